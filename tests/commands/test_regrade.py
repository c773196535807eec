"""The command `regrade`: a run's completions judged by other rewards, and what would have changed."""

import pandas as pd
import pytest
from finished import finished_run

from helpers.commands.regrade import what_changes

MINE = """
def shortness(completions, difficulty, trainer_state, **columns):
    late = trainer_state.global_step > 1
    texts = [completion[0]["content"] for completion in completions]
    return [1.0 * (len(text) < 3) * level + late for text, level in zip(texts, difficulty)]


def fails(completions, **columns):
    raise KeyError("no")
"""


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """A run whose training paid for the correct answer: two steps with a group of four each."""
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path))
    (tmp_path / "mine.py").write_text(MINE)
    run = finished_run()
    right = "<think>so it is</think><answer>3</answer>"
    texts = [right, right, "3", "no idea"] * 2
    stored = pd.DataFrame({"step": [1] * 4 + [2] * 4, "question": "What is 2 + 1?", "answer": "3"})
    stored["completion"] = texts
    stored["correctness_reward"] = [1.0, 1.0, 0.0, 0.0] * 2
    stored["format_reward"] = [1.0, 1.0, 0.0, None] * 2
    stored.to_parquet(run.path("completions.parquet"))
    data = pd.DataFrame({"question": ["What is 2 + 1?"], "answer": ["3"], "difficulty": [2]})
    data["prompt"] = [[{"role": "user", "content": "What is 2 + 1?"}]]
    data.to_parquet(run.path("data/train.parquet"))
    return run


def test_the_rewards_of_the_training_change_nothing(cli, trained):
    manifest = trained.manifest["training"]
    pairs = zip(manifest["rewards"], manifest["weights"], strict=True)
    same = ",".join(f"{name.removesuffix('_reward')}*{weight:g}" for name, weight in pairs)
    code, out, _ = cli("regrade", "told", "--rewards", same)
    table = [line.split() for line in out.splitlines()]
    assert code == 0 and ["another", "total", "0.0%"] in table
    assert ["pushed", "the", "other", "way", "0.0%"] in table and "->" not in out
    assert ["dead", "groups", "0.0%", "0.0%"] in table


def test_another_reward_gets_the_columns_and_the_step_of_each_completion(cli, trained, tmp_path):
    kept = tmp_path / "out.parquet"
    own = f"{tmp_path}/mine.py:shortness*0.5"
    code, out, _ = cli("regrade", "told", "--rewards", own, "--output", str(kept))
    found = pd.read_parquet(kept)
    assert list(found["after"]) == [0, 0, 1, 0, 0.5, 0.5, 1.5, 0.5]
    both = sum(trained.manifest["training"]["weights"])
    assert list(found["before"]) == [both, both, 0, 0] * 2
    table = [line.split() for line in out.splitlines()]
    # the two correct ones and the short one of each group change sides, the last stays down
    assert code == 0 and ["pushed", "the", "other", "way", "75.0%"] in table
    assert ["pushed", "up", "50.0%", "25.0%"] in table
    assert "step 1, 0.00 -> 1.00" in out and "dead groups: 0% of 2" in out


def test_groups_that_a_reward_no_longer_tells_apart_are_dead():
    table = pd.DataFrame({"step": 1, "question": ["a"] * 2 + ["b"] * 2})
    table = table.assign(before=[0.0, 1, 0, 1], after=[0.1 + 0.2, 0.3, 1, 0])
    changes = what_changes(table)
    assert list(changes.loc["dead groups"]) == ["0.0%", "50.0%"]
    assert changes.loc["pushed the other way", "after"] == "50.0%"


def test_a_reward_that_fails_and_a_run_without_completions_are_named(cli, trained, tmp_path):
    code, _, err = cli("regrade", "told", "--rewards", f"{tmp_path}/mine.py:fails")
    assert code == 2 and "fails" in err and "KeyError" in err
    trained.path("completions.parquet").unlink()
    code, _, err = cli("regrade", "told", "--rewards", "correctness")
    assert code == 2 and "completions.parquet" in err
