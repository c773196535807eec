"""The weight that adapts, and the reward to look through."""

import json
import math

import pytest

from helpers.rewards import (
    AdaptiveReward,
    debug_reward,
    format_reward,
)
from helpers.tags import THINK_ANSWER

GOOD = THINK_ANSWER.render("2 + 2", "4")


def column(completions, scores, **columns):
    """A reward whose scores stand in the data."""
    return scores


# --- The weight that adapts -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("success", "scores", "factor"),
    [
        *(
            (0.5, [1.0] * successes + [0.0] * (10 - successes), factor)
            for successes, factor in ((0, 1.2), (2, 1.2), (3, 1.0), (8, 1.0), (9, 0.9), (10, 0.9))
        ),
        (0.6, [0.6, 0.6], 0.9),
        (0.61, [0.6, 0.6], 1.2),
        (0, [0.6, 0.6], 0.9),
        (0.5, [None, None], 1.0),
        (0.5, [], 1.0),
        (0.5, [None, None, None, 1.0], 0.9),
        (0.5, [None, 0.0, 0.0, 1.0, 1.0], 1.0),
        (0.5, [None, 0.0], 1.2),
    ],
)
def test_the_weight_rises_below_30_percent_of_success_and_falls_above_80(success, scores, factor):
    """Success is a score of at least `success`, and None does not count."""
    reward = AdaptiveReward(column, success=success, weight=2.0)
    # this batch still has the weight from before
    assert reward([""] * len(scores), scores=scores) == [score and 2 * score for score in scores]
    assert reward.weight == pytest.approx(2 * factor)


@pytest.mark.parametrize(
    ("options", "scores", "end"),
    [
        ({"bounds": (0.5, 2.0)}, [0.0], 2.0),
        ({"bounds": (0.5, 2.0)}, [1.0], 0.5),
        ({}, [0.0], 4.0),
        ({}, [1.0], 0.25),
    ],
)
def test_the_weight_stays_within_its_bounds(options, scores, end):
    reward = AdaptiveReward(column, **options)
    for _ in range(50):
        reward([""], scores=scores)
    assert reward.weight == end


def test_a_restored_weight_goes_on_where_it_was():
    first, second = AdaptiveReward(column), AdaptiveReward(column)
    assert [first([""], scores=[0.0]) for _ in range(3)] == [[0.0]] * 3
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second([""], scores=[1.0]) == [1.728] and second.weight == pytest.approx(1.5552)


@pytest.mark.parametrize(
    ("weight", "bounds"),
    [
        (1, (2, 0.5)),
        (1, (0, 4)),
        (1, (-1, 4)),
        (1, (1.5, 4)),
        (5, (0.25, 4)),
        (0.1, (0.25, 4)),
        (math.nan, (0.25, 4)),
    ],
)
def test_bounds_that_do_not_hold_the_weight_are_refused(weight, bounds):
    with pytest.raises(ValueError, match=f"weight={weight} and bounds="):
        AdaptiveReward(format_reward, weight=weight, bounds=bounds)


# --- The one to look through ----------------------------------------------------------------------


@pytest.mark.parametrize(("samples", "shown"), [(0, 0), (1, 1), (2, 2), (3, 3), (9, 3)])
def test_the_first_completions_are_printed_and_all_earn_1(capsys, samples, shown):
    texts = [GOOD, [{"role": "assistant", "content": "five"}], "\ud800"]
    prompts = [[{"role": "system", "content": "no"}, {"role": "user", "content": "2 \ud800"}]] * 3
    assert debug_reward(texts, prompts, ["4", "5", "6"], samples) == [1.0] * 3
    blocks = [
        f"--- completion {n} of 3, answer {gold!r}\n> 2 ?\n{text}\n"
        for n, gold, text in ((1, "4", GOOD), (2, "5", "five"), (3, "6", "?"))
    ]
    assert capsys.readouterr().out == "".join(blocks[:shown])
