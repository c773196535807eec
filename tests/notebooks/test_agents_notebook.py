"""Notebook 10 on the real libraries: a short training, what it leaves, an environment of one's own,
and what is refused.
"""

import json
import re

import pandas as pd
import pytest
from papermill.exceptions import PapermillExecutionError

from helpers.runs import Run

pytestmark = pytest.mark.slow


def test_whole_episodes_are_kept_with_what_the_tools_said(lesson):
    run, printed = lesson("10")
    history = pd.read_csv(run.require("metrics.csv"))
    assert (history["tools/call_frequency"] > 1).all()
    # `finished` earns nothing
    assert history["reward"].tolist() == pytest.approx(history["rewards/Guessing/mean"].tolist())
    table = pd.read_parquet(run.require("completions.parquet"))
    assert len(table) == 2 * 16 and table["Guessing"].between(0, 1).all()
    found = table[table["Guessing"] >= 0.4]["completion"]
    assert (
        len(found)
        and found.str.contains(r"call:   guess\(number=\d+\)\ntool:   Yes, it is \d+\.").all()
    )
    assert table["question"].str.match(r"Game \d+\. I am thinking of a number from 1 to 63").all()
    # the laboratory, the exercises
    assert re.search(r"players attacked Guessing; (\d+) of \1 checks hold", printed)
    assert printed.count("NO GO:") == 1
    assert printed.count("Not answered yet") == 2 and printed.count("Right: ") == 2


ECHO = """
class Echo:
    def reset(self, word=7, **columns):
        self._word, self._said = word, None
        return f"Say the number after {word - 1}."  # which chance does not find

    def guess(self, number: int) -> str:
        \"\"\"Say a number.

        Args:
            number: The number.
        \"\"\"
        self._said = number
        return "Yes, it is. " * 12

    def get_reward(self):
        return 0.0 if self._said is None else 1.0 if self._said == self._word else 0.1


class Silent(Echo):
    def get_reward(self):
        return 0.0


class Untold(Echo):
    def say(self, number: int) -> str:
        \"\"\"Say a number.

        Args:
            number: The number.
        \"\"\"
        return Echo.guess(self, number)

    guess = None


class Holding(Untold):
    def reset(self, seed, **columns):
        self._said = []

    def say(self, text: str) -> str:
        \"\"\"Say a number.

        Args:
            text: The number.
        \"\"\"
        self._said = text
        return "Yes."

    def get_reward(self):
        return float("27" in self._said)
"""


@pytest.fixture
def mine(machine, tmp_path) -> str:
    """The file of a user's environments."""
    (tmp_path / "mine.py").write_text(ECHO, encoding="utf-8")
    return str(tmp_path / "mine.py")


def test_an_environment_of_ones_own_with_rows_of_its_own(mine, tmp_path, execute):
    rows = [json.dumps({"word": number, "seed": number % 20}) for number in [*range(1, 41), 7]]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows), encoding="utf-8")
    given = {"environment": f"{mine}:Echo", "rows_file": str(tmp_path / "rows.jsonl")}
    printed = execute("10", Run("mine"), **given, max_steps=1, result_characters=100)
    assert re.search(r"faults of the environment: 0, texts cut short: [1-9]", printed)
    assert "note: the small model knows only number guessing" in printed
    assert re.search(r"note: \d+ players attacked Echo; (\d+) of \1 checks hold", printed)
    assert "40 rows; dropped: {'duplicate': 1}" in printed
    holdout = pd.read_parquet(Run("mine").require("data/holdout.parquet"))
    train = pd.read_parquet(Run("mine").require("data/train.parquet"))
    words = [*holdout["word"], *train["word"]]
    assert sorted(words) == list(range(1, 41)) != words, "each row once, and shuffled"
    assert holdout["question"][0] == f"Game 1. Say the number after {words[0] - 1}."


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Silent", "all 8 episodes earned 0.0: in a group of equals nothing is learned"),
        ("Untold", "no call worked in 8 episodes.*First error: .*Tool guess not found"),
        ("Holding", "Holding is not ready for a training: 'lists all candidates' earns 1.00"),
    ],
)
def test_an_environment_that_cannot_teach_is_refused_before_the_training(mine, execute, name, says):
    given = {"environment": f"{mine}:{name}", "holdout_size": 8, "max_completion_length": 96}
    with pytest.raises(PapermillExecutionError, match=f"(?s){says}"):
        execute("10", Run(name), **given)
    assert not (Run(name).folder / "checkpoints").exists()
