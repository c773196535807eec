"""Notebook 10 on the real libraries: a short training, what it leaves, an environment of one's own,
and what is refused.
"""

import json
import re

import pandas as pd
import pytest

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
    assert len(found) and found.str.contains(r"guess\(number=\d+\)\n    Yes, it is \d+\.").all()
    assert table["question"].str.match(r"Game \d+\. I am thinking of a number from 1 to 63").all()
    # the laboratory, the exercises
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
    assert "your environment was not attacked" in printed
    assert "40 rows; dropped: {'duplicate': 1}" in printed
    holdout = pd.read_parquet(Run("mine").require("data/holdout.parquet"))
    train = pd.read_parquet(Run("mine").require("data/train.parquet"))
    words = [*holdout["word"], *train["word"]]
    assert sorted(words) == list(range(1, 41)) != words, "each row once, and shuffled"
    assert holdout["question"][0] == f"Game 1. Say {words[0]}."
