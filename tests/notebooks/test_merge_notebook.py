"""Notebook 05: what it prints about the models is what their stored completions say."""

import re

import nbformat
import pandas as pd
import pytest

from helpers.data.arithmetic import is_careful
from helpers.results.evaluation import right


@pytest.fixture(scope="module")
def printed(executed):
    """What the executed cell with this line in it printed or displayed, as text."""
    cells = nbformat.read(executed.require("notebooks/05_merge_and_inference.ipynb"), as_version=4).cells

    def printed(line: str) -> str:
        (cell,) = [cell for cell in cells if cell.cell_type == "code" and line in cell.source]
        return "\n".join(output.get("text") or output.data["text/plain"] for output in cell.outputs)

    return printed


def stored(run, name: str) -> list[list[str]]:
    return [list(group) for group in pd.read_parquet(run.require(f"evaluation/{name}.parquet"))["completions"]]


def test_the_careful_samples_are_counted_from_what_was_written(executed, printed):
    groups = [[is_careful(text) for text in group] for group in stored(executed, "baseline-samples")]
    share, some = sum(map(sum, groups)) / sum(map(len, groups)), sum(map(any, groups))
    said = f"untrained: {share:.1%} of the samples are careful, and at least one is for {some} of {len(groups)} questions"
    assert said in printed("careful = [[is_careful(text)")


@pytest.mark.parametrize(("kind", "line"), [("sampled", 'workings(name, "sampled"'), ("other", 'workings(name, "other"')])
def test_either_way_of_working_is_counted_with_its_right_answers(executed, printed, kind, line):
    if kind == "sampled":
        answers = list(pd.read_parquet(executed.require("data/holdout.parquet"))["answer"])
    else:
        questions = pd.read_parquet(executed.require("evaluation/baseline-other.parquet"))["question"]
        answers = [str(eval(question.removeprefix("What is ").removesuffix("?"))) for question in questions]
    table = {row.split()[0]: row for row in printed(line).splitlines() if row.startswith(("baseline", "trained"))}
    for name in ("baseline", "trained"):
        texts = [text for (text,) in stored(executed, f"{name}-{kind}")]
        ways = {True: [], False: []}
        for text, correct in zip(texts, right(texts, answers), strict=True):
            ways[is_careful(text)].append(correct)
        counts = [(sum(hits), len(hits)) for hits in (ways[True], ways[False])]
        assert [(int(a), int(b)) for a, b in re.findall(r"(\d+) of (\d+)", table[name])] == counts
        assert f"{len(ways[True]) / len(texts):.1%}" in table[name]


def test_a_question_of_each_difficulty_is_measured(printed):
    table = printed("ev.difficulty_summary").splitlines()
    assert table[0].split() == ["difficulty", "questions", "baseline", "trained"]
    assert [row.split()[0] for row in table[1:]] == ["1", "2", "3", "4"]
    assert sum(int(row.split()[1]) for row in table[1:]) == 128


def test_the_merge_has_a_picture_that_can_be_read_aloud(printed):
    assert printed("diagrams.merge()").startswith("Three matrices before the merge")
