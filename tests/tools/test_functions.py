"""The functions of notebook 09: the file and the shipped weights."""

import json

import pytest

from helpers.results.intervals import wilson_interval
from helpers.rewards.code.rewards import tests_reward
from tools.pocket import functions


@pytest.fixture(scope="module")
def rows():
    return [
        json.loads(line)
        for line in functions.FUNCTIONS_JSONL.read_text(encoding="utf-8").splitlines()
    ]


# --- The file -------------------------------------------------------------------------------------


def test_the_shipped_file_is_what_the_script_writes(tmp_path, rows):
    functions.main(tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == functions.FUNCTIONS_JSONL.read_bytes()
    assert functions.functions(seed=1) != rows


# --- The model ------------------------------------------------------------------------------------


def test_the_weights_reproduce_the_card(reproduced, carded, rows):
    chosen = rows[:128]
    system = {"role": "system", "content": functions.SYSTEM_PROMPT}
    asked = [functions.question(row["text"], row["test_list"]) for row in chosen]
    prompts = [[system, {"role": "user", "content": question}] for question in asked]

    def right(number: int, text: str) -> float:
        hidden = chosen[number]["challenge_test_list"]
        return tests_reward([text], tests=[hidden], share=False)[0]

    cells = ("fp32", "sampled")
    texts = reproduced("functions", cells, prompts, right, max_new_tokens=40, seed=11)
    low, high = wilson_interval(sum(map(functions.is_hard_coded, texts)), len(texts))
    assert low <= carded("functions", *cells)[4] <= high
