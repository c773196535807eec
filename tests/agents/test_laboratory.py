"""The laboratory: go for the three of the suite; for each way in which an environment can be wrong,
a no go that says it.
"""

import itertools
import random
from typing import Any

import pandas as pd
import pytest
import sick_environments as sick

from helpers.agents import Calculator, Guarded, Guessing, Laboratory, Table, ToolError
from helpers.agents.laboratory import CHECKS, LOOPING, NOTHING, ORACLE, RANDOM


def saying(view):
    """Wins: says the word that is asked for."""
    yield "say", {"word": view.observation.split()[1][::-1]}


def saying_else(view):
    yield "say", {"word": "something"}


class Echo:
    """Say the word of the question backwards: 1.0; another: 0.1. The first one counts."""

    def reset(self, seed: int, **columns) -> str:
        word, self._said = f"w{random.Random(seed).randrange(10**6)}", None
        self._right = word[::-1]
        return f"Say {word} backwards."

    def say(self, word: str) -> str:
        """Say a word.

        Args:
            word: The word.
        """
        if self._said is not None:
            raise ToolError("It is over.")
        self._said = word
        return "Yes." if word == self._right else "No."

    def get_reward(self) -> float:
        return 0.0 if self._said is None else 1.0 if self._said == self._right else 0.1


def lab_of(kind, oracle=saying, at_once=saying_else, **options) -> Laboratory:
    return Laboratory(
        Guarded(kind, **({"turns": 4} | options)),
        [{"seed": seed} for seed in range(6)],
        oracle,
        at_once,
    )


def failing(kind, **options) -> dict[str, str]:
    table = lab_of(kind, **options).checks()
    return table["found"][~table["holds"].astype(bool)].to_dict()


@pytest.mark.parametrize("kind", [Calculator, Guessing, Table])
def test_those_of_the_suite_are_a_go(kind):
    lab = Laboratory(Guarded(kind), pd.DataFrame({"seed": range(8), "answer": "x"}))
    played = lab.play()
    assert lab.verdict().go, str(lab.verdict())
    assert (
        played.loc[ORACLE, "reward"] == 1
        and played.loc[NOTHING, "reward"] == 0
        and played.loc[RANDOM, "reward"] < 0.4
    )
    assert (
        played.loc[LOOPING, "calls"] > lab.guard.turns
        and played.loc["malformed calls", "failed"] == 1
    )
    assert len(lab.found) == len(CHECKS) >= 12 and not lab.guard.faults


def test_the_verdict_says_what_trl_has_to_be_told_as_well():
    verdict = lab_of(Echo).verdict()
    assert verdict.go and "max_tool_calling_iterations=4" in str(verdict)


def test_the_report_is_json_with_players_checks_and_verdict():
    report = lab_of(Echo).report()
    assert (
        report["environment"] == "Echo"
        and report["verdict"]["go"]
        and all(report["checks"].values())
    )
    assert report["players"][ORACLE]["reward"] == 1.0


# --- One thing wrong each -------------------------------------------------------------------------


class Unwinnable(Echo):
    def get_reward(self) -> float:
        return 0.1 * (self._said is not None)


class Generous(Echo):
    def get_reward(self) -> float:
        return float(self._said is not None)


class Paternal(Echo):
    """Pays for silence."""

    def get_reward(self) -> float:
        return 0.2 if self._said is None else super().get_reward()


class Chatty(Echo):
    """Pays for every call."""

    def reset(self, seed: int, **columns) -> str:
        self._calls = 0
        return super().reset(seed)

    def say(self, word: str) -> str:
        """Say a word.

        Args:
            word: The word.
        """
        self._calls += 1
        self._said = self._said or word
        return "Yes."

    def get_reward(self) -> float:
        return max(super().get_reward(), min(1.0, 0.3 * self._calls))


class LastCounts(Echo):
    def say(self, word: str) -> str:
        """Say a word.

        Args:
            word: The word.
        """
        self._said = word
        return "Yes."


class Random(Echo):
    def reset(self, seed: int, **columns) -> str:
        return super().reset(random.randrange(10**6))


class Constant(Echo):
    def reset(self, seed: int, **columns) -> str:
        return super().reset(0)


class InTheClass(Echo):
    """Keeps the right word where all instances share it."""

    words: tuple = ()

    def reset(self, seed: int, **columns) -> str:
        said = super().reset(seed)
        type(self).words = (self._right,)
        return said

    def say(self, word: str) -> str:
        """Say a word.

        Args:
            word: The word.
        """
        self._right = self.words[0]
        return super().say(word)


class Remembering(Echo):
    """The second episode of an instance is another one than the first."""

    _episodes = 0

    def reset(self, seed: int, **columns) -> str:
        self._episodes += 1
        return super().reset(seed + 1000 * self._episodes)


class Unfinished(Echo):
    """Begins afresh only where the last episode was won."""

    def reset(self, seed: int, **columns) -> str:
        left = getattr(self, "_said", None)
        lost = left is not None and left != self._right
        said = super().reset(seed)
        self._said = left if lost else None
        return said


class Spending(Echo):
    """The reward may be asked for once."""

    def get_reward(self) -> float:
        earned, self._said = super().get_reward(), None
        return earned


class Percent(Echo):
    def get_reward(self) -> float:
        return 100 * super().get_reward()


class Raising(Echo):
    def say(self, word: str) -> str:
        """Say a word.

        Args:
            word: The word.
        """
        if not word.endswith("w"):
            raise KeyError(word)
        return super().say(word)


WRONG = [
    (Unwinnable, "the oracle wins", "nobody can learn to win. It was told last: Yes."),
    (Generous, "answering at once does not win", "there is nothing to learn from several turns"),
    (Generous, "random does not win", "chance wins"),
    (Paternal, "doing nothing earns less than trying", "GRPO would teach silence"),
    (Chatty, "looping does not pay", "'loops for ever' earns 1.00"),
    (LastCounts, "what is decided stays decided", "let only the first answer count"),
    (Random, "the same seed gives the same episode", "draw all that is random from `seed`"),
    (Constant, "other rows give other episodes", "could be learnt by heart"),
    (InTheClass, "episodes side by side do not touch", "keep their state in the instance"),
    (Remembering, "an instance that was reset is as a new one", "TRL reuses them"),
    (Unfinished, "an instance that was reset is as a new one", "let `reset` set everything"),
    (Spending, "asking for the reward changes nothing", "let `get_reward` only read"),
    (Percent, "rewards are of unit scale", "a full success is 1"),
    (Raising, "no tool fails", "raised KeyError: 'something'"),
]


@pytest.mark.parametrize(("kind", "check", "says"), WRONG)
def test_what_is_wrong_is_found_and_the_way_out_is_said(kind, check, says):
    assert says in failing(kind)[check]
    assert not lab_of(kind).verdict().go


def test_the_order_of_episodes_must_not_matter():
    class Ordered(Echo):
        def reset(self, seed: int, **columns) -> str:
            before, self._before = getattr(self, "_before", 0), seed
            return super().reset(seed * 1000 + before)

    assert (
        "an episode depends on the one before it"
        in failing(Ordered)["the order of episodes does not matter"]
    )


def test_malformed_calls_and_cheating_must_not_pay():
    class Growing(Echo):
        """Pays the more, the more often anybody asked: so those who come after the one that does
        nothing earn more.
        """

        asked = itertools.count()

        def get_reward(self) -> float:
            return 0.001 * next(self.asked)

    found = failing(Growing)
    assert (
        "GRPO would teach that" in found["malformed calls do not pay"]
        and found["cheating does not pay"]
    )


def test_arguments_that_may_be_anything_are_not_called_malformed():
    class Anything(Echo):
        def say(self, word: Any) -> str:
            """Say anything.

            Args:
                word: Anything.
            """
            return super().say(str(word))

    assert failing(Anything) == {}


def test_episodes_that_cannot_begin_are_named_at_once():
    assert "3 episodes died: BrokenReset.reset(" in str(
        lab_of(sick.broken_reset(OSError("gone"))).verdict()
    )


@pytest.mark.parametrize("does", [sick.sleeping, sick.spinning])
def test_an_environment_that_hangs_is_named_at_once_and_not_waited_for(does):
    lab = lab_of(sick.doing(does), seconds=0.5)
    verdict = str(lab.verdict())
    assert (
        "3 episodes died" in verdict
        and "did not return within 0.5 seconds" in verdict
        and "Mend that first" in verdict
    )
    assert lab.guard.counts["episodes"] < 10


def test_a_loop_that_the_guard_does_not_end_is_noticed(monkeypatch):
    lab = lab_of(Echo)
    lab.play()
    episode, _ = lab.episodes[LOOPING][0]
    episode.replies[-1] = ("Yes.", False)
    assert "looping ends" in lab.checks().index[~lab.found["holds"].astype(bool)]


def test_a_player_that_cannot_read_a_reply_loses_and_breaks_nothing():
    def lost(view):
        reply = yield "say", {"word": "x"}
        yield "say", {"word": str(int(reply))}

    assert "the player gave up: ValueError" in failing(Echo, oracle=lost)["the oracle wins"]


def test_what_the_laboratory_needs_is_said():
    with pytest.raises(ValueError, match="Echo needs `oracle`"):
        Laboratory(Guarded(Echo))
    with pytest.raises(ValueError, match="Echo needs `at_once`"):
        Laboratory(Guarded(Echo), oracle=saying)

    with pytest.raises(ValueError, match="at least one row"):
        Laboratory(Guarded(Guessing), pd.DataFrame({"seed": []}))

    class Unjudged(Echo):
        get_reward = None

    with pytest.raises(ValueError, match="Unjudged has no `get_reward`"):
        lab_of(Unjudged)
