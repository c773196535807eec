"""Notebook 05: what it prints about the models is what their stored completions say."""

import re

import pytest

from helpers.commands.pipeline import NOTEBOOKS
from helpers.data.arithmetic import is_careful
from helpers.results.evaluation import right


@pytest.mark.parametrize("name", ["baseline", "trained"])
def test_either_way_of_working_is_counted_with_its_right_answers(executed, said, name):
    answers = list(executed.table("data/holdout.parquet")["answer"])
    texts = [
        text for (text,) in executed.table(f"evaluation/{name}-sampled.parquet")["completions"]
    ]
    ways = {True: [], False: []}
    for text, correct in zip(texts, right(texts, answers), strict=True):
        ways[is_careful(text)].append(correct)
    copy = executed.require("notebooks/05_merge_and_inference.ipynb")
    (row,) = re.findall(f"^{name} .*", said(copy, 'workings(name, "sampled"'), re.MULTILINE)
    counts = [(sum(hits), len(hits)) for hits in (ways[True], ways[False])]
    assert [(int(a), int(b)) for a, b in re.findall(r"(\d+) of (\d+)", row)] == counts
    assert f"{len(ways[True]) / len(texts):.1%}" in row


def test_the_card_says_what_the_notebook_quotes_of_careful_differences():
    card = (NOTEBOOKS.parent / "helpers/pocket/model/README.md").read_text(encoding="utf-8")
    (row,) = [
        line for line in card.splitlines() if line.startswith("| differences | 4-bit | sampled |")
    ]
    assert float(row.split("|")[8].strip(" %")) == pytest.approx(68, abs=1)
