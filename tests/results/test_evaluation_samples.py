"""Several samples a question, and two models on the same questions: against enumeration, hand
counts and published tables.
"""

import itertools
import json
import math
import random

import pytest

from helpers.results.evaluation import (
    compare,
    comparison_lines,
    majority_vote,
    pass_at_k,
    right,
    sampled_scores,
    samples_summary,
)
from helpers.results.intervals import mcnemar_test, paired_interval, wilson_interval
from helpers.tags import THINK_ANSWER, TagFormat


def says(answer: str, tags: TagFormat = THINK_ANSWER) -> str:
    return tags.render("so", answer)


# --- pass@k ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", range(1, 9))
def test_it_is_the_share_of_all_subsets_that_hold_a_right_sample(n):
    for c, k in itertools.product(range(n + 1), range(1, n + 1)):
        subsets = list(itertools.combinations([True] * c + [False] * (n - c), k))
        assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, subsets)) / len(subsets), abs=1e-15)


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"),
    [
        (16, 0, 16, 0.0),
        (16, 1, 16, 1.0),
        (16, 4, 1, 0.25),
        (10, 3, 8, 1.0),
        (5, 2, 2, 0.7),
        (52, 4, 5, 0.341158),
    ],
)
def test_known_values(n, c, k, expected):  # the last: at least one ace in a hand of poker
    assert pass_at_k(n, c, k) == pytest.approx(expected, abs=5e-7)


@pytest.mark.parametrize(("n", "c", "k"), [(200, 20, 10), (200, 1, 100), (100, 70, 3), (16, 5, 8)])
def test_it_is_the_product_that_the_paper_computes(n, c, k):
    """Figure 3 of Chen et al., arXiv 2107.03374."""
    assert pass_at_k(n, c, k) == pytest.approx(
        1 - math.prod(1 - k / i for i in range(n - c + 1, n + 1)), rel=1e-9
    )


def test_it_is_unbiased():
    """The mean over the binomial number of right samples is the chance of k fresh ones, which 1 -
    (1 - c/n)^k is not.
    """
    n, k, p = 16, 8, 0.1
    chances = [math.comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)]
    expected = 1 - (1 - p) ** k
    assert sum(chance * pass_at_k(n, c, k) for c, chance in enumerate(chances)) == pytest.approx(
        expected, rel=1e-12
    )
    assert (
        sum(chance * (1 - (1 - c / n) ** k) for c, chance in enumerate(chances)) < expected - 0.01
    )


@pytest.mark.parametrize("n", [10**4, 10**5])
def test_it_neither_overflows_nor_cancels(n):
    assert pass_at_k(n, 1, 7) == pytest.approx(7 / n, rel=1e-12)
    assert pass_at_k(n, n // 2, n // 2) == 1.0


@pytest.mark.parametrize(("n", "c", "k"), [(4, 5, 1), (4, -1, 1), (4, 2, 5), (4, 2, 0), (0, 0, 1)])
def test_what_cannot_be_told_is_refused(n, c, k):
    with pytest.raises(ValueError, match=f"pass@{k} cannot be told from {c} right of {n}"):
        pass_at_k(n, c, k)


# --- The majority ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "winner"),
    [
        (["7", "42", "42"], "42"),
        (["7", "42", "7", "42.0", "42"], "42"),
        (["7", "1,000", "1000", "7", "1000.0"], "1,000"),
        (["7", "42"], "7"),  # a tie of one vote each: the first
        (["7", "42", "42", "7"], "42"),  # of two votes each: 42 had its second first
        (["Paris", "Rome", "paris"], "Paris"),
        (["42"], "42"),
    ],
)
def test_the_most_frequent_answer_wins_and_of_several_the_first_to_get_there(given, winner):
    assert majority_vote([says(answer) for answer in given]) == says(winner)


@pytest.mark.parametrize(
    "silent", ["", "42", "<answer></answer>", "<answer>42", "<answer>42</answer><answer>7</answer>"]
)
def test_what_gives_no_answer_or_two_does_not_vote(silent):
    assert majority_vote([silent, silent, says("7")]) == says("7")
    assert majority_vote([silent, silent]) == ""


def test_the_answer_is_looked_for_between_the_tags_given():
    tags = TagFormat("work", "result")
    assert majority_vote([says("7"), says("7"), says("42", tags)], tags) == says("42", tags)


# --- The scores of several samples ----------------------------------------------------------------


def groups_of(*counts: int, samples: int = 4) -> list[list[str]]:
    """For each count so many right samples, then different wrong ones; the answer is always 1."""
    return [[says("1")] * c + [says(str(100 + i)) for i in range(samples - c)] for c in counts]


def test_pass_at_k_is_the_mean_over_the_questions():
    counts = [0, 1, 4, 2, 0]
    scores = sampled_scores(groups_of(*counts), ["1"] * 5)
    assert (scores["samples"], scores["pass_at_k_questions"]) == (4, 5)
    assert list(scores["pass_at_k"]) == ["1", "2", "4"], "8 and 16 cannot be told from four samples"
    for k, point in scores["pass_at_k"].items():
        assert point["value"] == pytest.approx(sum(pass_at_k(4, c, int(k)) for c in counts) / 5)
    assert scores["pass_at_k"]["1"]["value"] == pytest.approx(7 / 20)
    assert scores["pass_at_k"]["4"]["value"] == pytest.approx(3 / 5)


def test_samples_are_counted_for_their_own_question():
    groups = [[says("1"), says("2")], [says("2"), says("2")], [says("3"), says("1")]]
    assert sampled_scores(groups, ["1", "2", "2"], ks=(1, 2))["pass_at_k"]["1"][
        "value"
    ] == pytest.approx(3 / 6)


def test_the_majority_is_judged_by_the_reward_and_silence_is_wrong():
    groups = [
        [says("2"), says("1"), says("1.0")],
        [says("2"), says("2"), says("1")],
        ["1", "", says("1")],
        ["1", "1", "1"],
    ]
    majority = sampled_scores(groups, ["1"] * 4)["majority"]
    assert majority == {"accuracy": 0.5, "ci95": list(wilson_interval(2, 4)), "n": 4}


def test_the_same_numbers_every_time_and_they_are_json():
    rng = random.Random(0)
    groups = groups_of(*(rng.randrange(17) for _ in range(50)), samples=16)
    first = sampled_scores(groups, ["1"] * 50)
    assert sampled_scores(groups, ["1"] * 50) == first
    assert json.loads(json.dumps(first)) == first


@pytest.mark.parametrize("seed", range(20))
def test_intervals_hold_the_point_and_lie_in_the_unit_interval(seed):
    rng = random.Random(seed)
    size, most = rng.randrange(1, 40), rng.randrange(1, 9)
    scores = sampled_scores(
        groups_of(*(rng.randrange(most + 1) for _ in range(size)), samples=8), ["1"] * size
    )
    for point in scores["pass_at_k"].values():
        assert 0 <= point["ci95"][0] <= point["value"] <= point["ci95"][1] <= 1
    low, high = scores["majority"]["ci95"]
    assert low <= scores["majority"]["accuracy"] <= high


def test_the_interval_of_pass_at_1_is_never_narrower_than_the_spread_of_the_questions_says():
    counts = [0] * 100 + [4] * 100  # samples agree, so 200 questions are worth 200 coins
    point = sampled_scores(groups_of(*counts), ["1"] * 200)["pass_at_k"]["1"]
    assert point == {"value": 0.5, "ci95": list(wilson_interval(100, 200))}
    low, high = sampled_scores(groups_of(*[2] * 100, *[1, 3] * 50), ["1"] * 200)["pass_at_k"]["1"][
        "ci95"
    ]
    assert high - low >= 2 * 1.96 * math.sqrt(1 / 32 / 200)


# As notebook 05 had them: nearly all samples right, and nearly none; a quarter of the samples
# right, as before training.
@pytest.mark.parametrize(
    "counts", [[16] * 30 + [15] * 25 + [12] * 9, [0] * 61 + [1] * 3, [1, 2, 4, 9] * 16]
)
def test_no_interval_is_a_point_and_neighbouring_k_have_like_widths(counts):
    scores = sampled_scores(
        groups_of(*counts, samples=16), ["1"] * len(counts), ks=tuple(range(1, 17))
    )
    widths = [high - low for low, high in (point["ci95"] for point in scores["pass_at_k"].values())]
    surest = 1.96**2 / (len(counts) + 1.96**2)  # the width at 0 and 1, where Wilson's is narrowest
    assert min(widths) >= 0.999 * surest
    assert all(abs(wide - next_wide) < 0.06 for wide, next_wide in itertools.pairwise(widths))


@pytest.mark.parametrize(("count", "value"), [(0, 0.0), (4, 1.0)])
def test_where_all_questions_agree_the_interval_is_not_a_point(count, value):
    scores = sampled_scores(groups_of(*[count] * 20), ["1"] * 20)
    for point in scores["pass_at_k"].values():
        assert point == {"value": value, "ci95": list(wilson_interval(20 * (count == 4), 20))}


@pytest.mark.parametrize(
    ("groups", "answers", "message"),
    [
        ([], [], "groups of"),
        ([[]], ["1"], "groups of"),
        ([["a"], ["a", "b"]], ["1", "1"], r"groups of \[1, 2\] samples"),
        ([["a"], ["b"]], ["1"], "2 groups do not go with 1 answers"),
    ],
)
def test_groups_that_cannot_be_scored_are_refused(groups, answers, message):
    with pytest.raises(ValueError, match=message):
        sampled_scores(groups, answers)


def test_the_summary_has_a_line_a_measure_and_a_column_a_model():
    four, two = (
        sampled_scores(groups_of(*[1, 2] * 8), ["1"] * 16),
        sampled_scores(groups_of(*[2] * 16, samples=2), ["1"] * 16),
    )
    lines = samples_summary({"baseline": four, "older": {"accuracy": 0.5}, "trained": two})
    assert lines[0].split() == ["baseline", "trained"]
    assert [line.split()[0] for line in lines[1:]] == [
        "samples",
        "pass@1",
        "pass@2",
        "pass@4",
        "majority",
    ]
    assert lines[1].split()[1:] == ["4", "for", "16", "questions", "2", "for", "16", "questions"]
    assert lines[2].split()[1] == "37.5%" and lines[2].split()[5:] == [
        "100.0%",
        "(80.6",
        "to",
        "100.0)",
    ]
    assert len(lines[4].split()) == 5, "two samples say nothing of pass@4"
    assert samples_summary({}) == samples_summary({"older": {"accuracy": 0.5}}) == []


# --- McNemar --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("won", "lost", "p"),
    [
        (0, 0, 1.0),
        (1, 0, 1.0),
        (5, 0, 2 / 2**5),
        (0, 6, 2 / 2**6),
        (7, 1, 2 * (1 + 8) / 2**8),
        (3, 3, 1.0),
        (12, 2, 2 * (1 + 14 + 91) / 2**14),  # Armitage and Berry 1994, page 127: 0.0129
        (16, 6, 0.052479),  # Cavo et al. 2012, in Fagerland et al. 2014: 0.0525
    ],
)
def test_hand_computed_p_values(won, lost, p):
    assert mcnemar_test(won, lost) == pytest.approx(p, abs=5e-7) == mcnemar_test(lost, won)


def test_a_clear_case_among_many_questions_is_not_rounded_away():
    assert 0 < mcnemar_test(330, 4) < 1e-80
    assert mcnemar_test(50_000, 0) == 0.0
    assert 0.9 < mcnemar_test(5_000, 5_001) <= 1.0


def test_it_is_the_share_of_coin_tosses_at_least_as_uneven():
    for won, lost in ((4, 1), (6, 2), (3, 4), (10, 1)):
        tosses = itertools.product((True, False), repeat=won + lost)
        uneven = [abs(2 * sum(heads) - won - lost) >= abs(won - lost) for heads in tosses]
        assert mcnemar_test(won, lost) == pytest.approx(sum(uneven) / len(uneven))


# --- The difference -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("both", "won", "lost", "neither", "low", "high"),
    [
        # Newcombe's interval in Fagerland, Lydersen and Laake, Statistics in Medicine 33, 2014:
        # Bentur 2009 and Cavo 2012.
        (1, 7, 1, 12, 0.026, 0.507),
        (59, 16, 6, 80, 0.0046, 0.1186),
    ],
)
def test_published_paired_intervals(both, won, lost, neither, low, high):
    tolerance = 5e-4 if both == 1 else 5e-5
    assert paired_interval(both, won, lost, neither) == pytest.approx((low, high), abs=tolerance)
    assert paired_interval(both, lost, won, neither) == pytest.approx((-high, -low), abs=tolerance)


def test_the_paired_interval_holds_the_point_and_lies_between_minus_one_and_one():
    for both, won, lost, neither in itertools.product((0, 1, 3, 40), repeat=4):
        n = both + won + lost + neither
        if n:
            low, high = paired_interval(both, won, lost, neither)
            assert -1 <= low <= (won - lost) / n <= high <= 1 and low < high


def test_pairing_narrows_the_interval_where_the_models_agree():
    low, high = paired_interval(both=240, won=16, lost=0, neither=256)
    (low_a, high_a), (_, high_b) = wilson_interval(256, 512), wilson_interval(240, 512)
    assert low > 0, "the gain is beyond doubt"
    assert low_a < high_b and high - low < (high_a - low_a), (
        "which the two intervals, apart, would not show"
    )


# --- The comparison -------------------------------------------------------------------------------

QUESTIONS = [f"What is {n} + 0?" for n in range(8)]
ANSWERS = [str(n) for n in range(8)]
BEFORE = [says(str(n)) if n in (0, 1, 2) else says("-1") for n in range(8)]
AFTER = [says(str(n)) if n in (1, 2, 3, 4, 5, 6) else "?" for n in range(8)]


def test_questions_won_and_lost_are_counted_and_add_up():
    found = compare(BEFORE, AFTER, QUESTIONS, ANSWERS)
    assert {
        key: found[key]
        for key in ("before", "after", "n", "won", "lost", "both_right", "both_wrong")
    } == {
        "before": "baseline",
        "after": "trained",
        "n": 8,
        "won": 4,
        "lost": 1,
        "both_right": 2,
        "both_wrong": 1,
    }
    assert found["p_value"] == mcnemar_test(4, 1) == 2 * 6 / 32
    accuracies = [sum(right(completions, ANSWERS)) / 8 for completions in (BEFORE, AFTER)]
    assert found["difference"] == accuracies[1] - accuracies[0] == 3 / 8
    assert found["difference_ci95"] == list(paired_interval(2, 4, 1, 1))
    assert json.loads(json.dumps(found)) == found


def test_examples_are_questions_that_were_won_or_lost_with_what_both_said():
    found = compare(BEFORE, AFTER, QUESTIONS, ANSWERS, names=("a", "b"))
    assert [row["question"] for row in found["won_examples"]] == QUESTIONS[3:6]
    assert found["lost_examples"] == [
        {"question": QUESTIONS[0], "answer": "0", "before": BEFORE[0], "after": "?"}
    ]
    assert (found["before"], found["after"]) == ("a", "b")
    assert len(compare(BEFORE, AFTER, QUESTIONS, ANSWERS, examples=9)["won_examples"]) == 4
    assert compare(BEFORE, AFTER, QUESTIONS, ANSWERS, examples=0)["won_examples"] == []


def test_a_model_against_itself_has_neither_won_nor_lost():
    found = compare(BEFORE, BEFORE, QUESTIONS, ANSWERS)
    assert (found["won"], found["lost"], found["p_value"], found["difference"]) == (0, 0, 1.0, 0.0)
    assert found["difference_ci95"][0] < 0 < found["difference_ci95"][1]


def test_other_tags_are_the_ones_compared():
    tags = TagFormat("work", "result")
    found = compare([says("1")], [says("1", tags)], ["?"], ["1"], tags)
    assert (found["won"], found["lost"]) == (1, 0)


@pytest.mark.parametrize("short", range(4))
def test_lists_of_two_lengths_are_refused(short):
    lists = [BEFORE, AFTER, QUESTIONS, ANSWERS]
    lists[short] = lists[short][:-1]
    with pytest.raises(ValueError):
        compare(*lists)


def test_nothing_to_compare_is_refused():
    with pytest.raises(ValueError, match="0 successes of 0"):
        compare([], [], [], [])


def test_the_lines_say_who_won_how_surely_and_by_how_much():
    assert comparison_lines(compare(BEFORE, AFTER, QUESTIONS, ANSWERS)) == [
        "trained against baseline: won 4, lost 1 of 8; exact McNemar p = 0.375",
        f"accuracy +37.5 points ({100 * paired_interval(2, 4, 1, 1)[0]:.1f} to "
        f"{100 * paired_interval(2, 4, 1, 1)[1]:.1f})",
    ]
    clear = compare([says("-1")] * 100, [says("1")] * 100, ["?"] * 100, ["1"] * 100)
    assert comparison_lines(clear)[0].endswith("won 100, lost 0 of 100; exact McNemar p < 1e-15")
    assert comparison_lines(compare(AFTER, BEFORE, QUESTIONS, ANSWERS))[1].startswith(
        "accuracy -37.5 points"
    )
