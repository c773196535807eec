"""How long a completion is: what earns at which length, in which unit, and which options
are refused.
"""

from functools import partial

import pytest

from helpers.rewards import max_length_reward, min_length_reward, target_length_reward

TARGET = partial(target_length_reward, target=4)
LEAST = partial(min_length_reward, minimum=4)
MOST = partial(max_length_reward, maximum=4)
each_reward = pytest.mark.parametrize(
    "reward", [TARGET, LEAST, MOST], ids=["target", "minimum", "maximum"]
)


def words(count: int) -> str:
    return " ".join(["word"] * count)


# --- What earns -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "tolerance", "earned"),
    [
        (10, 0.5, 1.0),
        (9, 0.5, 0.8),
        (11, 0.5, 0.8),
        (6, 0.5, 0.2),
        (5, 0.5, 0.0),
        (15, 0.5, 0.0),
        (0, 0.5, 0.0),
        (1000, 0.5, 0.0),
        (20, 2, 0.5),
        (0, 2, 0.5),
        (29, 2, 0.05),
        (10, 1e-9, 1.0),
        (11, 1e-9, 0.0),
    ],
)
def test_the_target_earns_most_and_both_sides_fall_alike(length, tolerance, earned):
    assert target_length_reward([words(length)], target=10, tolerance=tolerance) == [earned]


@pytest.mark.parametrize(
    ("length", "at_least_four", "at_most_four"),
    [
        (0, 0.0, 1.0),
        (1, 0.25, 1.0),
        (3, 0.75, 1.0),
        (4, 1.0, 1.0),
        (5, 1.0, 0.75),
        (6, 1.0, 0.5),
        (7, 1.0, 0.25),
        (8, 1.0, 0.0),
        (1000, 1.0, 0.0),
    ],
)
def test_a_bound_is_free_on_its_own_side_and_a_slope_on_the_other(
    length, at_least_four, at_most_four
):
    assert LEAST([words(length)]) == [at_least_four]
    assert MOST([words(length)]) == [at_most_four]


# --- Units ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "unit", "length"),
    [
        ("one  two\n\tthree ", "words", 3),
        ("one\u00a0two\u3000three", "words", 3),
        (" \n\t " * 100, "words", 0),
        ("a" * 1000, "words", 1),
        ("<think>a b</think>", "words", 2),
        ("äöü€", "characters", 4),
        ("a b\n", "characters", 4),
        ("\ud800\x00", "characters", 2),
        ("", "characters", 0),
    ],
)
def test_words_are_runs_of_non_space_and_characters_are_characters(text, unit, length):
    assert min_length_reward([text], minimum=1000, unit=unit) == [pytest.approx(length / 1000)]


@pytest.mark.parametrize("ids", [[], [7], [7] * 3, [7] * 4])
def test_tokens_are_the_ids_that_trl_passes_whatever_the_text(ids):
    for text in ("", words(50)):
        assert min_length_reward([text], minimum=4, unit="tokens", completion_ids=[ids]) == [
            len(ids) / 4
        ]


# --- Refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize("completions", [["a"], []], ids=["one", "none"])
@each_reward
def test_another_unit_is_named_and_tokens_need_ids(reward, completions):
    for unit in ("sentences", "Words", None):
        with pytest.raises(ValueError, match=f"unit={unit!r}.*characters, words, tokens"):
            reward(completions, unit=unit)
    with pytest.raises(ValueError, match=r"completion_ids.*TRL"):
        reward(completions, unit="tokens")


@pytest.mark.parametrize("value", [0, -1, -0.5, float("nan")])
@pytest.mark.parametrize("completions", [["a"], []], ids=["one", "none"])
@pytest.mark.parametrize(
    ("reward", "option"),
    [(TARGET, "target"), (TARGET, "tolerance"), (LEAST, "minimum"), (MOST, "maximum")],
    ids=["target", "tolerance", "minimum", "maximum"],
)
def test_a_length_that_is_not_positive_is_named_with_its_value(reward, option, completions, value):
    with pytest.raises(ValueError, match=f"{option}={value}"):
        reward(completions, **{option: value})
