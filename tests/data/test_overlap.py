"""Text that questions share, found by runs of eight words."""

import json
import re

import pandas as pd
import pytest

from helpers.data.overlap import benchmark_texts, shared_text, shared_text_line

TRAIN = "A farmer has twelve cows and sells three of them on Monday. How many are left?"
NEAR = "A farmer has twelve cows and sells four of them on Tuesday. How many are left?"
COPY = TRAIN.upper().replace(" ", "  ")
TAIL = (
    "Anna counts. A farmer has twelve cows and sells three of them, and then Anna sleeps all day."
)


def test_copies_are_found_and_a_shared_run_is_told_from_most_of_a_text():
    found = shared_text(
        [NEAR, COPY, TAIL, "How many?"], [TRAIN, "Something else entirely, you see."]
    )
    assert (found["texts"], found["share"], found["mostly"]) == (4, 2, 1), "NEAR shares seven"
    assert found["example"] == COPY
    line = shared_text_line(found, "held-out questions", "b")
    assert re.search("2 of 4 held-out questions .* 8 ", line)
    assert shared_text([TAIL], [TRAIN])["mostly"] == 0


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("What is 12 + 30?", "What is 12 - 30?", False),  # signs are words
        ("What is 12 + 30?", "what is 12+30 ?", True),
        ("What is 12 + 30?", "Tell me. What is 12 + 30? Now.", False),  # a short text is one run
        ("", "", False),
    ],
)
def test_short_texts_and_signs(one, other, same):
    assert shared_text([one], [other])["share"] == same


def test_a_benchmark_may_be_a_text_file_or_a_table(tmp_path):
    lines = tmp_path / "bench.txt"
    lines.write_text(f"{TRAIN}\n\nAnother line\n")
    rows = tmp_path / "bench.jsonl"
    rows.write_text(json.dumps({"problem": TRAIN, "level": 3, "subject": "cows"}) + "\n")
    table = tmp_path / "bench.parquet"
    pd.DataFrame({"q": [TRAIN]}).to_parquet(table)
    assert benchmark_texts(str(lines)) == [TRAIN, "Another line"]
    assert benchmark_texts(str(rows)) == [f"{TRAIN} cows"] and benchmark_texts(str(table)) == [
        TRAIN
    ]
    for file in (lines, rows, table):
        assert shared_text([COPY], benchmark_texts(str(file)))["share"] == 1
