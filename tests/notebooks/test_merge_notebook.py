"""Notebook 05: what it prints about the models is what their stored completions say."""

import re
from functools import partial

import pandas as pd
import pytest

from helpers.commands.pipeline import NOTEBOOKS
from helpers.data.arithmetic import is_careful
from helpers.results.evaluation import right


@pytest.fixture
def printed(executed, said):
    """A function from a line of the notebook's code to what its cell showed in the small run."""
    return partial(said, executed.require("notebooks/05_merge_and_inference.ipynb"))


def stored(run, name: str) -> list[list[str]]:
    return [
        list(group)
        for group in pd.read_parquet(run.require(f"evaluation/{name}.parquet"))["completions"]
    ]


def test_the_careful_samples_are_counted_from_what_was_written(executed, printed):
    groups = [
        [is_careful(text) for text in group] for group in stored(executed, "baseline-samples")
    ]
    share, some = sum(map(sum, groups)) / sum(map(len, groups)), sum(map(any, groups))
    said = (
        f"untrained: {share:.1%} of the samples are careful, and at least one is for {some} of "
        f"{len(groups)} questions"
    )
    assert said in printed("careful = [[is_careful(text)")


@pytest.mark.parametrize(
    ("kind", "line"), [("sampled", 'workings(name, "sampled"'), ("other", 'workings(name, "other"')]
)
def test_either_way_of_working_is_counted_with_its_right_answers(executed, printed, kind, line):
    if kind == "sampled":
        answers = list(pd.read_parquet(executed.require("data/holdout.parquet"))["answer"])
    else:
        questions = pd.read_parquet(executed.require("evaluation/baseline-other.parquet"))[
            "question"
        ]
        answers = [
            str(eval(question.removeprefix("What is ").removesuffix("?"))) for question in questions
        ]
    table = {
        row.split()[0]: row
        for row in printed(line).splitlines()
        if row.startswith(("baseline", "trained"))
    }
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
    assert printed("figures.merge()").startswith("Three matrices before the merge")


def test_the_card_says_what_the_notebook_quotes_of_careful_differences():
    card = (NOTEBOOKS.parent / "helpers/pocket/model/README.md").read_text(encoding="utf-8")
    (row,) = [
        line for line in card.splitlines() if line.startswith("| differences | 4-bit | sampled |")
    ]
    assert float(row.split("|")[8].strip(" %")) == pytest.approx(68, abs=1)


def test_the_rounded_p_of_the_table_is_as_good_as_the_exact_one(defined):
    names = defined("05", "def check_pass_at_8(")
    evaluation = {"baseline": {"pass_at_k": {"1": {"value": 0.310546875}, "8": {"value": 0.865}}}}
    assert names["check_pass_at_8"](1 - (1 - 0.311) ** 8, evaluation).startswith("Right")
    assert not names["check_pass_at_8"](0.94, evaluation).startswith("Right")
