"""The laboratory: go for the suite's own game; for each way in which an environment can be wrong,
a no go that says it.
"""

import random

import pytest
import sick_environments as sick

from helpers.agents import (
    BrokenEnvironment,
    Guarded,
    Guessing,
    Laboratory,
    ToolError,
)


def saying(view):
    """Wins: says the word that is asked for."""
    yield "say", {"word": view.observation.split()[1][::-1]}


def saying_else(view):
    yield "say", {"word": "something"}


class Echo:
    """Say the word of the question backwards: 1.0; another: 0.1. The first one counts."""

    def reset(self, seed: int, **columns) -> str:
        word = f"w{random.Random(seed).randrange(10**6)}"
        self._right, self._said, self._calls = word[::-1], None, 0
        return f"Say {word} backwards."

    def say(self, word: str) -> str:
        """Say a word.

        Args:
            word: The word.
        """
        self._calls += 1
        if self._said is not None:
            raise ToolError("It is over.")
        self._said = word
        return self._reply(word)

    def _reply(self, word):
        return "Yes." if word == self._right else "No."

    def get_reward(self) -> float:
        return 0.0 if self._said is None else 1.0 if self._said == self._right else 0.1


def lab_of(kind, **options) -> Laboratory:
    rows = [{"seed": seed} for seed in range(6)]
    return Laboratory(Guarded(kind, turns=4, **options), rows, saying, saying_else)


def test_number_guessing_is_a_go_and_its_players_always_play_the_same():
    """The mean reward, the calls of an episode, and the share that failed."""
    lab = Laboratory(Guarded(Guessing))
    played = lab.play().round(3)
    for player, numbers in {"random": (0.156, 34, 0.607), "does nothing": (0, 0, 0)}.items():
        assert tuple(played.loc[player, ["reward", "calls", "failed"]]) == numbers, player
    assert tuple(played.loc["oracle", ["reward", "failed"]]) == (1, 0)
    assert tuple(played.loc["answers at once", ["reward", "calls"]]) == (0.1, 1)
    assert played.loc["loops for ever", "calls"] == 2 * lab.guard.turns + 2
    verdict = lab.verdict()
    assert verdict.go and "max_tool_calling_iterations=16" in str(verdict), str(verdict)
    assert len(lab.checks()) == 10 and not lab.guard.faults


# --- One thing wrong each -------------------------------------------------------------------------


def paying(reward) -> type:
    return sick.made("Paying", Echo, get_reward=reward)


Unwinnable = paying(lambda self: 0.1 * (self._said is not None))
Generous = paying(lambda self: float(self._said is not None))
Paternal = paying(lambda self: 0.2 if self._said is None else Echo.get_reward(self))  # for silence
Percent = paying(lambda self: 100 * Echo.get_reward(self))
Chatty = paying(lambda self: max(Echo.get_reward(self), min(1.0, 0.3 * self._calls)))
Random = sick.made(
    "Random", Echo, reset=lambda self, seed, **columns: Echo.reset(self, random.randrange(10**6))
)
Constant = sick.made("Constant", Echo, reset=lambda self, seed, **columns: Echo.reset(self, 0))
Raising = sick.made("Raising", Echo, _reply=sick.raising(KeyError("word")))


class InTheClass(Echo):
    """Keeps the right word where all instances share it."""

    words: tuple = ()

    def reset(self, seed: int, **columns) -> str:
        said = super().reset(seed)
        type(self).words = (self._right,)
        return said

    def _reply(self, word):
        self._right = self.words[0]
        return super()._reply(word)


class Unfinished(Echo):
    """Begins afresh only if the last episode was won."""

    def reset(self, seed: int, **columns) -> str:
        left = getattr(self, "_said", None)
        lost = left is not None and left != self._right
        said = super().reset(seed)
        self._said = left if lost else None
        return said


@pytest.mark.parametrize(
    ("kind", "check", "says"),
    [
        (Unwinnable, "the oracle wins", "nobody can learn to win. It was told last: Yes."),
        (Generous, "answering at once does not win", "nothing to learn from several turns"),
        (Generous, "random does not win", "chance wins"),
        (Paternal, "doing nothing earns less than trying", "GRPO would teach silence"),
        (Chatty, "looping does not pay", "'loops for ever' earns 1.00"),
        (Random, "the same seed gives the same episode", "draw all that is random from `seed`"),
        (Constant, "other rows give other episodes", "could be learnt by heart"),
        (InTheClass, "episodes do not touch one another", "keep all state in the instance"),
        (Unfinished, "episodes do not touch one another", "let `reset` set everything"),
        (Percent, "rewards are of unit scale", "A full success is 1"),
        (Raising, "no tool fails", "raised KeyError: "),
    ],
)
def test_what_is_wrong_is_found_and_the_way_out_is_said(kind, check, says):
    lab = lab_of(kind)
    found = lab.checks()
    assert says in found.loc[check, "found"] and not found.loc[check, "holds"]
    assert not lab.verdict().go
    if kind in (Constant, InTheClass):
        assert (~found["holds"]).sum() == 1, "and nothing else"


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (
            sick.made("Broken", reset=sick.raising(OSError("gone"))),
            r"Broken.reset\(.* raised OSError: gone",
        ),
        (sick.doing(sick.sleeping), "did not return within 0.5 seconds"),
    ],
    ids=["cannot begin", "sleeping"],  # benchmarks/mutations.py leaves out what sleeps
)
def test_an_episode_that_dies_ends_the_programme_and_is_named(kind, says):
    lab = lab_of(kind, seconds=0.5)
    with pytest.raises(BrokenEnvironment, match=f"an episode died: .*{says}"):
        lab.verdict()
    assert lab.guard.counts["dead"] == 1


def test_an_environment_without_players_is_refused():
    with pytest.raises(ValueError, match="Echo needs an `oracle` and an `at_once`"):
        Laboratory(Guarded(Echo), oracle=saying)
