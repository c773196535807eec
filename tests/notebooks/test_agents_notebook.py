"""Notebook 10 on the real libraries: a short training, what it leaves, an environment of one's own,
and what is refused.
"""

import json
import re

import pandas as pd
import pytest

from helpers.runs import Run

pytestmark = pytest.mark.slow


@pytest.fixture
def played(lesson):
    """Notebook 10, executed once with few steps: the run and what was printed."""
    return lesson("10")


def test_the_history_has_the_tools_columns(played):
    run, _ = played
    history = pd.read_csv(run.require("metrics.csv"))
    assert (history["tools/call_frequency"] > 1).all() and history[
        "tools/failure_frequency"
    ].between(0, 1).all()
    # `finished` earns nothing
    assert history["reward"].tolist() == pytest.approx(history["rewards/Guessing/mean"].tolist())
    assert run.section("training")["rewards"] == ["Guessing"]


def test_the_completions_are_whole_episodes_with_what_the_tools_said(played):
    table = pd.read_parquet(played[0].require("completions.parquet"))
    assert len(table) == 2 * 16 and set(table["Guessing"].round(1)) <= {
        0.0,
        0.1,
        0.4,
        0.5,
        0.6,
        0.7,
        0.8,
        0.9,
        1.0,
    }
    found = table[table["Guessing"] >= 0.4]["completion"]
    assert len(found) and found.str.contains(r"guess\(number=\d+\)\n    Yes, it is \d+\.").all()
    assert table["question"].str.match(r"Game \d+\. I am thinking of a number from 1 to 63").all()


def test_both_of_trls_slots_give_the_same_tokens_and_the_exercises_are_solved(played):
    printed = played[1]
    assert "token for token the same: True" in printed
    assert "10 of 10 checks hold" in printed and printed.count("NO GO:") == 1
    assert printed.count("Not answered yet") == 2 and printed.count("Right: ") == 2


def test_an_environment_of_ones_own_with_rows_of_its_own(machine, tmp_path, execute):
    (tmp_path / "mine.py").write_text(
        "class Echo:\n"
        "    def reset(self, word, **columns):\n"
        "        self._word, self._said = word, None\n"
        '        return f"Say {word}."\n\n'
        "    def guess(self, number: int) -> str:\n"
        '        """Say a number.\n\n        Args:\n            number: The number.\n        """\n'
        "        self._said = number\n"
        '        return "Yes, it is. " * 12\n\n'
        "    def get_reward(self):\n"
        "        return float(self._said == self._word)\n",
        encoding="utf-8",
    )
    rows = [json.dumps({"word": number, "seed": number % 20}) for number in [*range(1, 41), 7]]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows), encoding="utf-8")
    mine = {
        "environment": f"{tmp_path / 'mine.py'}:Echo",
        "rows_file": str(tmp_path / "rows.jsonl"),
    }
    printed = execute("10", Run("mine"), **mine, max_steps=1, result_characters=100)
    assert re.search(r"faults of the environment: 0, texts cut short: [1-9]", printed)
    assert (
        "your environment was not attacked" in printed
        and "token for token the same: True" in printed
    )
    holdout = pd.read_parquet(Run("mine").require("data/holdout.parquet"))
    train = pd.read_parquet(Run("mine").require("data/train.parquet"))
    assert "40 rows; dropped: {'duplicate': 1}" in printed
    assert sorted([*holdout["word"], *train["word"]]) == list(range(1, 41)) and list(
        holdout["word"]
    ) != list(range(1, 25))
    assert holdout["question"][0] == f"Game 1. Say {holdout['word'][0]}."
    assert "guesses given away" not in Run("mine").require("policies.json").read_text(
        encoding="utf-8"
    )
