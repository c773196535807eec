"""Number guessing: its replies, its rewards, and the regret of a guess."""

import functools

import pytest

from helpers.agents import Guessing, ToolError


def played(guesses: list[int], number: int, span: int = 7) -> Guessing:
    environment = Guessing(span)
    environment.reset(seed=0)
    environment._number = number
    for guess in guesses:
        environment.guess(guess)
    return environment


def test_each_guess_is_told_where_the_number_lies_until_the_game_is_over():
    environment = played([], 5)
    said = [environment.guess(guess) for guess in (4, 6, 5)]
    assert said == ["Higher than 4.", "Lower than 6.", "Yes, it is 5."]
    lost = played([7] * 5, 1)
    assert lost.guess(7) == "Lower. No guesses are left."
    for over in (environment, lost):
        with pytest.raises(ToolError, match="The game is over"):
            over.guess(1)


@pytest.mark.parametrize(
    ("guesses", "earns"),
    [
        ([], 0.0),
        ([7], 0.1),
        ([1], 1.0),
        ([4, 2, 1], 1.0),
        ([7, 6, 5, 1], 0.9),
        ([7, 6, 5, 4, 3, 1], 0.7),
        ([7] * 6, 0.1),
    ],
)
def test_what_an_episode_earns(guesses, earns):
    assert played(guesses, 1).get_reward() == earns


@functools.cache
def shortest(left: int) -> float:
    """Return the guesses that the best strategy needs for all numbers together, by search."""
    if left == 0:
        return 0
    return left + min(shortest(below) + shortest(left - 1 - below) for below in range(left))


@pytest.mark.parametrize("first", range(1, 8))
def test_the_regret_is_what_a_search_through_all_strategies_finds(first):
    after = 7 + shortest(first - 1) + shortest(7 - first)
    regret = played([first], 4 if first != 4 else 3)._regret()
    assert regret == pytest.approx((after - shortest(7)) / 7)


def test_luck_plays_no_part_in_the_regret():
    assert played([1], 1)._regret() == played([1], 7)._regret() > 0
    for guesses, number in (([4, 2, 1], 1), ([4, 6, 7], 7)):  # halving gives nothing away
        assert played(guesses, number)._regret() == pytest.approx(0)
    # a guess that can tell nothing gives a whole guess away
    for guesses, number in (([4, 4], 1), ([4, 4], 7), ([1000], 1)):
        assert played(guesses, number)._regret() == pytest.approx(1)


def test_the_places_of_the_guesses_are_those_among_the_numbers_that_were_left():
    guesses = played([1, 32, 63, 17, 40], 10, span=63)._places()  # after 32, 2 to 31 are left
    assert guesses == [0.0, 30 / 61, None, 15 / 29, None]
    assert played([4, 2], 1, span=7)._places() == [], "of fewer than eight nearly all are middles"
