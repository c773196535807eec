"""Notebook 05: what it prints about the models is what their stored completions say."""

import re

import pytest
from reading import said

from helpers.data.arithmetic import is_careful
from helpers.results.evaluation import right


@pytest.mark.parametrize("name", ["baseline", "trained"])
def test_either_way_of_working_is_counted_with_its_right_answers(executed, name):
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
    # the third pair counts numbers, in an answer block or not
    assert [(int(a), int(b)) for a, b in re.findall(r"(\d+) of (\d+)", row)][:2] == counts
    assert f"{len(ways[True]) / len(texts):.1%}" in row
