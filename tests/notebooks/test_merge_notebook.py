"""Notebook 05: what it prints about the models is what their stored completions say."""

import re
from functools import partial

import nbformat
import pandas as pd
import pytest

from helpers.commands.pipeline import NOTEBOOKS
from helpers.data.arithmetic import is_careful
from helpers.results.evaluation import right

NAME = "05_merge_and_inference.ipynb"


@pytest.fixture
def printed(executed, said):
    """A function from a line of the notebook's code to what its cell showed in the small run."""
    return partial(said, executed.require(f"notebooks/{NAME}"))


@pytest.fixture
def committed(said):
    """The same of the notebook as it is committed."""
    return partial(said, NOTEBOOKS / NAME)


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


# --- What is said beside the committed tables -----------------------------------------------------


def numbers(table: str, label: str) -> list[float]:
    """All numbers of the row that begins with this label."""
    (row,) = [line for line in table.splitlines() if line.startswith(label)]
    return [float(number) for number in re.findall(r"[\d.]+", row.removeprefix(label))]


def test_the_careful_working_became_the_usual_one(committed):
    table = committed('workings(name, "sampled"')
    tokens, careful, right_careful, all_careful, right_careless, all_careless, number = numbers(
        table, "baseline"
    )
    assert 15 < careful < 35 and right_careful / all_careful > 0.5
    assert all_careless / all_careful == pytest.approx(
        3, abs=0.8
    ) and right_careless / all_careless == pytest.approx(0.2, abs=0.06)
    trained = numbers(table, "trained")
    assert trained[1] > 95 and trained[0] > 1.5 * tokens and trained[-1] > 1.9 * number


def test_the_untrained_model_could_do_it_already(committed):
    table = committed("ev.samples_summary")
    before, _, high = numbers(table, "pass@16")[:3]
    once, once_low = numbers(table, "pass@1 ")[3:5]
    assert before >= 95 and high >= once_low and 94 < once < 98
    assert numbers(table, "majority")[0] == pytest.approx(33, abs=7)
    assert numbers(table, "untrained: ")[0] == pytest.approx(25, abs=6)
    p, measured = (numbers(table, f"pass@{k} ")[0] / 100 for k in (1, 8))
    assert measured < 1 - (1 - p) ** 8


def test_the_gain_is_largest_where_there_is_a_carry(committed):
    table = committed("ev.difficulty_summary")
    rows = {level: numbers(table, f"{level} ")[1:] for level in (1, 2, 3, 4)}
    gains = {level: row[3] - row[0] for level, row in rows.items()}
    assert min(row[3] for row in rows.values()) > 90 and min(gains[3], gains[4]) > 2.5 * gains[1]
    assert max(rows[3][1], rows[4][1]) < min(rows[3][2], rows[4][2]), (
        "the intervals of levels 3 and 4 overlap"
    )


def test_the_habit_carried_over_and_the_skill_did_not(committed):
    before, after = (
        numbers(committed('workings(name, "other"'), name) for name in ("baseline", "trained")
    )
    assert before[1] < 27 and after[1] > 75
    assert after[2] / after[3] == pytest.approx(1 / 3, abs=0.08), (
        "about one in three of the careful differences is right"
    )
    assert before[-1] - after[-1] == pytest.approx(10, abs=4), (
        "the number in any format fell by about ten points"
    )
    share, _, _ = numbers(committed("{other}, {name:<9}"), "arithmetic/differences, baseline")
    _, low, high = numbers(committed("{other}, {name:<9}"), "arithmetic/differences, trained")
    assert low < share < high, "the accuracy before lies within the interval after"


def test_the_card_says_what_the_notebook_quotes_of_careful_differences():
    card = (NOTEBOOKS.parent / "helpers/pocket/model/README.md").read_text(encoding="utf-8")
    (row,) = [
        line for line in card.splitlines() if line.startswith("| differences | 4-bit | sampled |")
    ]
    assert float(row.split("|")[8].strip(" %")) == pytest.approx(68, abs=1)


def test_the_dequantised_base_is_several_times_nearer_to_the_policy(committed):
    gaps = {
        base: numbers(committed("gaps, chosen = "), base)[-1]
        for base in ("original", "dequantised")
    }
    assert gaps["original"] > 3 * gaps["dequantised"] > 0


def test_the_rounded_p_of_the_table_is_as_good_as_the_exact_one():
    cells = nbformat.read(NOTEBOOKS / NAME, as_version=4).cells
    (source,) = [cell.source for cell in cells if cell.source.startswith("def check_pass_at_8(")]
    exec(source, names := {})
    evaluation = {"baseline": {"pass_at_k": {"1": {"value": 0.310546875}, "8": {"value": 0.865}}}}
    assert names["check_pass_at_8"](1 - (1 - 0.311) ** 8, evaluation).startswith("Right")
    assert not names["check_pass_at_8"](0.94, evaluation).startswith("Right")


def test_the_merge_cost_nothing_that_shows(committed):
    table = committed("plots.accuracy(evaluation)")
    (_, low, high, *_), (merged, *_) = numbers(table, "trained"), numbers(table, "merged")
    assert low < merged < high
