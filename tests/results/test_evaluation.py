"""Accuracy and its interval: against published values, against the equation it solves, and what is
refused.
"""

import doctest
import json
import math

import numpy as np
import pandas as pd
import pytest

from helpers.data.arithmetic import FAMILIES
from helpers.results import evaluation, intervals
from helpers.results.evaluation import (
    difficulty_summary,
    judge_named,
    judge_of_kinds,
    other_family,
    right,
    score,
    summary,
)
from helpers.results.intervals import wilson_interval
from helpers.tags import THINK_ANSWER, TagFormat

Z95 = 1.959963984540054


# --- The interval ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        (0, 10, 0.0, 0.2775),
        (10, 10, 0.7225, 1.0),
        (5, 10, 0.2366, 0.7634),
        (1, 1, 0.2065, 1.0),
        # R. G. Newcombe, Statistics in Medicine 17, 1998, table I, method 3.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_published_intervals(successes, n, low, high):
    assert wilson_interval(successes, n) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize("n", range(1, 51))
def test_the_interval_holds_the_point_and_lies_in_the_unit_interval(n):
    for k in range(n + 1):
        low, high = wilson_interval(k, n)
        assert 0 <= low <= k / n <= high <= 1 and low < high


@pytest.mark.parametrize("n", [1, 2, 7, 50, 512])
@pytest.mark.parametrize("z", [1.0, Z95, 2.576])
def test_the_bounds_are_where_the_score_test_just_rejects(n, z):
    for k in range(n + 1):
        low, high = wilson_interval(k, n, z)
        for bound in (low, high):
            if 0 < bound < 1:  # a bound at the edge is the edge, not a root
                assert abs(k / n - bound) == pytest.approx(
                    z * math.sqrt(bound * (1 - bound) / n), rel=1e-6
                )
        assert wilson_interval(n - k, n, z) == pytest.approx((1 - high, 1 - low), abs=1e-12)


def test_more_questions_and_less_confidence_narrow_the_interval():
    def width(*arguments):
        low, high = wilson_interval(*arguments)
        return high - low

    assert width(500, 1000) < width(50, 100) < width(5, 10)
    assert width(5, 10, 1.0) < width(5, 10)


@pytest.mark.parametrize(("successes", "n"), [(0, 0), (1, 0), (0, -1), (-1, 10), (11, 10)])
def test_what_is_no_proportion_is_refused(successes, n):
    with pytest.raises(ValueError, match=f"{successes} successes of {n}"):
        wilson_interval(successes, n)


# --- The score ------------------------------------------------------------------------------------

RIGHT = THINK_ANSWER.render("1 + 1", "2")


@pytest.mark.parametrize(
    ("completions", "answers", "accuracy", "in_format"),
    [
        ([RIGHT] * 4, ["2"] * 4, 1.0, 1.0),
        ([RIGHT] * 4, ["2", "3", "2", "3"], 0.5, 1.0),
        (["<answer>2</answer>", "2", RIGHT, ""], ["2"] * 4, 0.5, 0.25),
        (["2"], ["2"], 0.0, 0.0),
    ],
)
def test_right_answers_and_right_format_are_counted_apart(
    completions, answers, accuracy, in_format
):
    n = len(answers)
    assert score(completions, answers) == {
        "accuracy": accuracy,
        "ci95": list(wilson_interval(round(accuracy * n), n)),
        "n": n,
        "in_format": in_format,
    }


def test_other_tags_are_the_ones_looked_for():
    tags = TagFormat("work", "result")
    completions = [tags.render("1 + 1", "2"), RIGHT]
    entry = score(completions, ["2", "2"], tags)
    assert (entry["accuracy"], entry["in_format"]) == (0.5, 0.5)


@pytest.mark.parametrize(
    ("completions", "answers"), [([], []), ([RIGHT], ["2", "2"]), ([RIGHT, RIGHT], ["2"])]
)
def test_nothing_to_score_and_lists_of_two_lengths_are_refused(completions, answers):
    with pytest.raises(ValueError):
        score(completions, answers)


def test_right_is_what_the_reward_calls_right():
    hedged = RIGHT + "<answer>3</answer>"
    completions = [RIGHT, "<answer>2.0</answer>", "2", "<answer>3</answer>", hedged]
    assert right(completions, ["2"] * 5) == [True, True, False, False, False]
    assert right(
        [TagFormat("work", "result").render("", "2"), RIGHT],
        ["2", "2"],
        TagFormat("work", "result"),
    ) == [True, False]


def test_lists_of_two_lengths_are_named():
    with pytest.raises(ValueError, match="2 completions do not go with 1 answers"):
        right([RIGHT, RIGHT], ["2"])


@pytest.mark.filterwarnings("ignore:.*have no answer")
def test_a_question_without_an_answer_is_not_answered():
    assert right([RIGHT], [None]) == [False]


def test_the_mean_length_is_that_of_the_counted_tokens_and_absent_without_a_counter():
    entry = score(["a b c", RIGHT, "", "d"], ["2"] * 4, count_tokens=lambda text: len(text.split()))
    assert entry["mean_length"] == (3 + len(RIGHT.split()) + 0 + 1) / 4
    assert "mean_length" not in score([RIGHT], ["2"])


# --- By difficulty --------------------------------------------------------------------------------


def test_every_level_has_its_own_accuracy_and_they_add_up():
    answers = ["2", "2", "3", "2", "3", "3"]
    entry = score([RIGHT] * 6, answers, difficulty=[1, 1, 1, 2, 2, 10])
    assert list(entry["by_difficulty"]) == ["1", "2", "10"], (
        "in the order of the levels, not of the letters"
    )
    for level, correct, n in (("1", 2, 3), ("2", 1, 2), ("10", 0, 1)):
        expected = {"accuracy": correct / n, "ci95": list(wilson_interval(correct, n)), "n": n}
        assert entry["by_difficulty"][level] == expected
    assert entry["n"] == 6 and entry["accuracy"] == 0.5
    assert "by_difficulty" not in score([RIGHT], ["2"])


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        (["hard", "easy", "hard"], ["easy", "hard"]),
        (list(np.array([3, 1, 2])), ["1", "2", "3"]),
        ([2.0, float("nan"), 1.0], ["1", "2"]),
        ([0.25, 0.5, 0.125], ["0.125", "0.25", "0.5"]),
        (["10", "9", None], ["9", "10"]),
        ([3, "hard", 2], ["2", "3", "hard"]),
        ([None, None, float("nan")], []),
    ],
)
def test_levels_of_any_kind_are_sorted_and_missing_ones_left_out(levels, expected):
    entry = score([RIGHT] * 3, ["2"] * 3, difficulty=levels)
    assert list(entry["by_difficulty"]) == expected
    assert json.loads(json.dumps(entry)) == entry


def test_difficulties_of_another_number_are_refused():
    with pytest.raises(ValueError):
        score([RIGHT] * 2, ["2"] * 2, difficulty=[1])


@pytest.mark.parametrize(
    "source", [f"arithmetic/{name}" for name in FAMILIES] + ["openai/gsm8k", "my/rows.csv"]
)
def test_what_was_forgotten_is_looked_for_where_the_training_was_not(source):
    kind, _, family = other_family(source).partition("/")
    assert other_family(source) != source and kind == "arithmetic"
    assert family in ("sums", "differences"), "the pocket model knows no other"


# --- The summary ----------------------------------------------------------------------------------


def test_the_summary_has_a_line_for_each_model_in_order_and_in_columns():
    trained = score([RIGHT] * 10, ["2"] * 10, count_tokens=lambda text: 7) | {
        "greedy": score(["2"] * 10, ["2"] * 10)
    }
    lines = summary({"baseline": score([RIGHT] * 10, ["2"] * 5 + ["3"] * 5), "trained": trained})
    assert [line.split()[0] for line in lines] == ["sampled", "baseline", "trained"]
    # Of the baseline neither greedy decoding nor the length was measured.
    assert lines[1].split()[1:] == ["50.0%", "23.7%", "to", "76.3%", "nan%", "100.0%", "10", "nan"]
    assert lines[2].split()[1:] == [
        "100.0%",
        "72.2%",
        "to",
        "100.0%",
        "0.0%",
        "100.0%",
        "10",
        "7.0",
    ]
    assert len({len(line) for line in lines}) == 1


def test_the_summary_of_nothing_is_its_heading():
    assert len(summary({})) == 1


def test_the_levels_are_lines_and_the_models_columns():
    def entry(answers):
        return score([RIGHT] * 4, answers, difficulty=[10, 9, 9, 9])

    lines = difficulty_summary(
        {
            "baseline": entry(["2", "2", "3", "3"]),
            "old": score([RIGHT], ["2"]),
            "trained": entry(["2"] * 4),
        }
    )
    assert lines[0].split() == ["difficulty", "questions", "baseline", "trained"]
    assert lines[1].split() == [
        "9",
        "3",
        "33.3%",
        "(6.1",
        "to",
        "79.2)",
        "100.0%",
        "(43.9",
        "to",
        "100.0)",
    ]
    assert lines[2].split()[:3] == ["10", "1", "100.0%"]
    assert len({len(line) for line in lines}) == 1


def test_a_long_level_does_not_break_the_columns():
    lines = difficulty_summary(
        {
            "baseline": score(
                [RIGHT] * 2, ["2"] * 2, difficulty=["counting and probability", "algebra"]
            )
        }
    )
    assert len({len(line) for line in lines}) == 1 and lines[2].split()[3] == "1"


def test_without_levels_there_is_nothing_to_print():
    assert difficulty_summary({}) == difficulty_summary({"baseline": score([RIGHT], ["2"])}) == []


def test_the_examples_in_the_docstrings_run():
    results = [doctest.testmod(module) for module in (evaluation, intervals)]
    assert [result.failed for result in results] == [0, 0] and min(
        result.attempted for result in results
    ) >= 2


# --- A judge of one's own -------------------------------------------------------------------------


def half_for_text_reward(completions, answer, **columns):
    """Full success, in floats not quite 1.0, where the answer is in the completion; 0.5 otherwise,
    None where it is y.
    """
    texts = [completion[0]["content"] for completion in completions]
    return [
        None if gold == "y" else 0.7 + 0.2 + 0.1 if gold in text else 0.5
        for text, gold in zip(texts, answer, strict=True)
    ]


def test_a_reward_of_ones_own_decides_what_is_right():
    completions, answers = ["it is {a}", "it is b", "c"], ["{a}", "x", "y"]
    assert right(completions, answers) == [False] * 3
    assert right(completions, answers, judge=half_for_text_reward) == [True, False, False]
    entry = score(completions, answers, judge=half_for_text_reward, difficulty=[1, 1, 2])
    assert (
        entry["accuracy"] == pytest.approx(1 / 3) and entry["by_difficulty"]["1"]["accuracy"] == 0.5
    )


def test_a_judge_that_raises_is_named_with_the_completion():
    def broken_reward(completions, answer, **columns):
        raise KeyError("quantity")

    with pytest.raises(
        ValueError,
        match=r"the judge broken_reward raised KeyError: 'quantity' for the completion 'x'",
    ):
        right(["x"], ["1"], judge=broken_reward)


def test_a_judge_is_found_by_file_or_module_and_function(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "def always_reward(completions, **columns):\n    return [1.0] * len(completions)\n"
    )
    assert right(["x"], ["1"], judge=judge_named(f"{file}:always_reward")) == [True]
    assert judge_named("helpers.rewards:format_reward").__name__ == "format_reward"
    assert judge_named(None) is None


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("mine.py", "write it as file.py:function"),
        ("mine.py:", "write it as file.py:function"),
        ("absent.py:f", r"absent\.py cannot be read \(FileNotFoundError"),
        ("absent.module:f", r"absent\.module cannot be read \(ModuleNotFoundError"),
        ("helpers.rewards:no_reward", "helpers.rewards has no class or function no_reward"),
        (3, "write it as file.py:function"),
    ],
)
def test_a_judge_that_is_not_there_is_named(name, says):
    with pytest.raises(ValueError, match=says):
        judge_named(name)


def test_rows_that_state_their_kind_are_judged_as_in_training():
    rows = pd.DataFrame({"answer": ["1e3", "5"], "kind": ["text", None]})
    texts = [THINK_ANSWER.render("so", text) for text in ("1000", "5.0")]
    assert right(texts, list(rows["answer"])) == [True, True]
    assert right(texts, list(rows["answer"]), judge=judge_of_kinds(rows)) == [False, True]
    assert judge_of_kinds(rows[["answer"]]) is None
