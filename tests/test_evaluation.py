"""Accuracy and its interval: against published values, against the equation it solves, and what is refused."""

import math

import pytest

from helpers.evaluation import score, summary, wilson_interval
from helpers.formats import THINK_ANSWER, TagFormat

Z95 = 1.959963984540054


# --- The interval ------------------------------------------------------------------------------------------------------


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
                assert abs(k / n - bound) == pytest.approx(z * math.sqrt(bound * (1 - bound) / n), rel=1e-6)
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


# --- The score ---------------------------------------------------------------------------------------------------------

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
def test_right_answers_and_right_format_are_counted_apart(completions, answers, accuracy, in_format):
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


@pytest.mark.parametrize(("completions", "answers"), [([], []), ([RIGHT], ["2", "2"]), ([RIGHT, RIGHT], ["2"])])
def test_nothing_to_score_and_lists_of_two_lengths_are_refused(completions, answers):
    with pytest.raises(ValueError):
        score(completions, answers)


# --- The summary -------------------------------------------------------------------------------------------------------


def test_the_summary_has_a_line_for_each_model_in_order_and_in_columns():
    trained = score([RIGHT] * 10, ["2"] * 10) | {"greedy": score(["2"] * 10, ["2"] * 10)}
    lines = summary({"baseline": score([RIGHT] * 10, ["2"] * 5 + ["3"] * 5), "trained": trained})
    assert [line.split()[0] for line in lines] == ["sampled", "baseline", "trained"]
    assert lines[1].split()[1:] == ["50.0%", "23.7%", "to", "76.3%", "nan%", "100.0%", "10"]  # greedy was not measured
    assert lines[2].split()[1:] == ["100.0%", "72.2%", "to", "100.0%", "0.0%", "100.0%", "10"]
    assert len({len(line) for line in lines}) == 1


def test_the_summary_of_nothing_is_its_heading():
    assert len(summary({})) == 1
