"""The laboratory: go for the suite's own game; for each way in which an environment can be wrong,
a no go that says it.
"""

import fnmatch
import random
from typing import Literal

import pytest
import sick_environments as sick

from helpers.agents import BrokenEnvironment, Guarded, Guessing, ToolError
from helpers.agents.laboratory import Laboratory


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

    @staticmethod
    def _oracle(asked):
        yield "say", {"word": asked.split()[1][::-1]}

    def _reply(self, word):
        return "Yes." if word == self._right else "No."

    def get_reward(self) -> float:
        return 0.0 if self._said is None else 1.0 if self._said == self._right else 0.1


def lab_of(kind, **options) -> Laboratory:
    rows = [{"seed": seed} for seed in range(6)]
    return Laboratory(Guarded(kind, turns=4, **options), rows)


def test_number_guessing_is_a_go_and_its_players_always_play_the_same():
    """The mean reward, the calls of an episode, and the share that failed."""
    lab = Laboratory(Guarded(Guessing))
    played = lab.played.round(3)
    assert played.equals(Laboratory(Guarded(Guessing)).played.round(3))
    assert tuple(played.loc["oracle", ["reward", "failed"]]) == (1, 0)
    assert tuple(played.loc["answers at once", ["reward", "calls"]]) == (0.1, 1)
    assert played.loc["answers nan", "failed"] == 1, "the guard refuses it"
    assert played.loc["loops for ever", "calls"] == 2 * lab.guard.turns + 2
    assert lab.verdict.go and "max_tool_calling_iterations=16" in str(lab.verdict)
    assert lab.checks["holds"].all() and not lab.guard.faults


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


class Later(Echo):
    async def say(self, word: str) -> str:
        """Say a word.

        Args:
            word: The word.
        """


class Answered:
    """Find a number; a right answer earns 1.0. Nobody shows how: there is no `_oracle`."""

    def reset(self, seed: int, **columns) -> str:
        self._right, self._said = str(random.Random(seed).randrange(100, 1000)), []
        return f"Which number has the hash {hash(self._right)}?"

    def answer(self, text: str) -> str:
        """Answer.

        Args:
            text: The number.
        """
        self._said.append(text)
        return "Noted."

    def get_reward(self) -> float:
        return float(self._said[:1] == [self._right])


def judged(judge) -> type:
    """The same, if any text that was said is judged right by another rule."""

    def get_reward(self) -> float:
        return float(max((judge(text, self._right) for text in self._said), default=0.0))

    return sick.made("Judged", Answered, get_reward=get_reward)


Listed = judged(lambda text, right: right in text)
Blank = judged(lambda text, right: text in right)
Long = judged(lambda text, right: min(1.0, len(text) / 5000))
Near = judged(lambda text, right: text == "nan" and not abs(float(text) - int(right)) > 0.5)
Risen = judged(lambda text, right: float(text))  # what a policy writes raises, or is NaN


Wild = judged(lambda text, right: fnmatch.fnmatch(right, text))
Query = judged(lambda text, right: text == right or text.endswith("'='"))
Prefix = judged(lambda text, right: text != "" and right.startswith(text))
Polite = judged(lambda text, right: 0.4 * ("please" in text))
Sure = judged(lambda text, right: 0.4 * ("verified" in text))


def telling(words: str, error: bool = False, after: int = 0) -> type:
    """As many tries as one likes, and after some a reply that names the right answer."""

    def answer(self, text: str) -> str:
        self._said.append(text)
        if len(self._said) <= after:
            return "No."
        if error:
            raise ToolError(words.format(self._right))
        return words.format(self._right)

    answer.__doc__ = Answered.answer.__doc__
    judge = judged(lambda text, right: text == right)
    return sick.made("Telling", judge, answer=answer)


Late = telling("It was {}.", after=2)
Kindly = judged(lambda text, right: 0.4 * ("kindly" in text))
Echoed = judged(lambda text, right: 0.4 * ("hash" in text))
Wordy = judged(lambda text, right: 0.4 * (20 <= len(text.split()) <= 200))
Negative = judged(lambda text, right: 0.4 * text.startswith("-"))
Joker = judged(lambda text, right: fnmatch.fnmatch(right, text.replace("_", "?")))
Lettered = judged(lambda text, right: 0.3 * ("q" not in text and text[:1].isalpha()))
Everyone = judged(lambda text, right: set(right) <= set(text))


class Shown(Answered):
    """The file's number is the answer."""

    def reset(self, seed: int, **columns) -> str:
        super().reset(seed)
        return f"Case file {self._right}: who was it?"


class Quiz(Answered):
    """Yes or no; the first answer counts."""

    def reset(self, seed: int, **columns) -> str:
        super().reset(seed)
        self._right = "yes" if int(self._right) % 2 else "no"
        return f"Is it so in case {seed}, yes or no?"


def adding(counts) -> type:
    """Pays a little for each new try that counts."""

    def get_reward(self) -> float:
        return max(Answered.get_reward(self), min(0.4, 0.03 * len(set(filter(counts, self._said)))))

    return sick.made("Adding", Answered, get_reward=get_reward)


class Tried(Answered):
    """As many answers as one likes, and a few to choose from."""

    def answer(self, number: int) -> str:
        """Answer.

        Args:
            number: 1 to 8.
        """
        self._said.append(number)
        return "Noted."

    def get_reward(self) -> float:
        return float(1 + int(self._right) % 4 in self._said)


class Chosen(Answered):
    """All answers at once, in a list."""

    def answer(self, numbers: list[int]) -> str:
        """Answer.

        Args:
            numbers: The numbers.
        """
        self._said = numbers
        return "Noted."

    def get_reward(self) -> float:
        return float(int(self._right) in self._said)


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
        (Generous, "'answers at once' does not win", "nothing to learn from several turns"),
        (Generous, "'random' does not win", "chance wins"),
        (Paternal, "doing nothing earns less than trying", "GRPO would teach silence"),
        (Chatty, "'loops for ever' does not win", "'loops for ever' earns 1.00"),
        (Listed, "'lists all candidates' does not win", "compare the whole answer"),
        (Tried, "'tries all candidates' does not win", "let the first answer count"),
        (Chosen, "'lists all candidates' does not win", "earns 1.00"),
        (Blank, "'answers blank' does not pay", "refuse a blank"),
        (Long, "'answers at length' does not pay", "length must not pay"),
        (Near, "'answers nan' does not pay", "refuse what is no number"),
        (Wild, "'answers a wildcard' does not win", "not as a pattern"),
        (Query, "'answers a wildcard' does not win", "a part of a query"),
        *(
            (
                telling(words, error),
                "'repeats what it was told' does not win",
                "tells the right one",
            )
            for words in (
                "No, it was {}.",
                "Expected '{}' here.",
                "{}",
                "wrong (right: {}), go on!",
            )
            for error in (False, True)
        ),
        (adding(bool), "wrong answers do not add up", "pay for the first try"),
        (adding(str.isalpha), "wrong answers do not add up", "pay for the first try"),
        (Prefix, "a part of an answer does not win", "compare the whole answer"),
        (Late, "'repeats what it was told' does not win", "tells the right one"),
        (Kindly, "'assures' does not pay", "assurances must not pay"),
        (Echoed, "'repeats the task' does not pay", "not the words in it"),
        (Wordy, "'answers in 100 words' does not pay", "length must not pay"),
        (Negative, "'answers a negative number' does not pay", "below 0"),
        (Joker, "'answers a wildcard' does not win", "not as a pattern"),
        (Everyone, "'answers a wildcard' does not win", "not as a pattern"),
        (Lettered, "a letter does not pay", "pay for whole answers"),
        (Polite, "'says please' does not pay", "a polite word must not pay"),
        (Sure, "'assures' does not pay", "assurances must not pay"),
        (Random, "the same seed gives the same episode", "draw all that is random from `seed`"),
        (Constant, "other rows give other episodes", "could be learnt by heart"),
        (InTheClass, "episodes do not touch one another", "keep all state in the instance"),
        (Unfinished, "episodes do not touch one another", "let `reset` set everything"),
        (Percent, "rewards are of unit scale", "A full success is 1"),
        (Raising, "no tool fails", "raised KeyError: "),
        (Later, "no tool fails", "raised TypeError: Object of type coroutine"),
    ],
)
@pytest.mark.filterwarnings("ignore:coroutine")
def test_what_is_wrong_is_found_and_the_way_out_is_said(kind, check, says):
    lab = lab_of(kind)
    found = lab.checks
    assert says in found.loc[check, "found"] and not found.loc[check, "holds"]
    assert not lab.verdict.go
    if kind in (Unwinnable, Constant, InTheClass, Listed, Near, Wild, Prefix, Sure):
        assert (~found["holds"]).sum() == 1, "and nothing else"


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (
            sick.made("Broken", reset=sick.raising(OSError("gone"))),
            r"Broken.reset\(.* raised OSError: gone",
        ),
        (sick.doing(sick.sleeping), "did not return within 0.5 seconds"),
        (Risen, r"get_reward\(\) raised ValueError: could not convert string to float"),
        (sick.made("Nan", get_reward=lambda self: float("nan")), "nan is no finite number"),
    ],
    ids=[
        "cannot begin",
        "sleeping",
        "raises",
        "nan",
    ],  # tools/mutations.py leaves out what sleeps
)
def test_an_episode_that_dies_ends_the_programme_and_is_named(kind, says):
    with pytest.raises(BrokenEnvironment, match=f"an episode of the player '.*' died: .*{says}"):
        lab_of(kind, seconds=0.5)


def test_without_an_oracle_a_sparse_reward_of_0_and_1_is_a_go_with_what_was_not_shown():
    lab = lab_of(Answered)
    assert lab.verdict.go, str(lab.verdict)
    assert "oracle" not in lab.played.index and (lab.played["reward"] == 0).all()
    assert "nobody showed that the game can be won" in str(lab.verdict)
    assert "an attempt could earn a little" in str(lab.verdict)
    assert lab_of(
        sick.made("Sparse", Echo, get_reward=lambda self: self._said == self._right)
    ).verdict.go


class Chosen4(Echo):
    """A letter to choose; nonsense earns nothing."""

    def reset(self, seed: int, **columns) -> str:
        self._calls, self._said, self._right = 0, None, "abcd"[seed % 4]
        return f"The letter before {chr(ord(self._right) + 1)}?"

    @staticmethod
    def _oracle(asked):
        yield "say", {"word": chr(ord(asked[-2]) - 1)}


class Direction(Echo):
    """A value to choose from a list."""

    def reset(self, seed: int, **columns) -> str:
        self._said, self._right = None, ("north", "south", "east", "west")[seed % 4]
        return f"Go {self._right[::-1]}wards."

    def say(self, word: Literal["north", "south", "east", "west"]) -> str:
        """Go.

        Args:
            word: Where.
        """
        self._said = self._said or word
        return "You went."

    @staticmethod
    def _oracle(asked):
        yield "say", {"word": asked.split()[1].removesuffix("wards.")[::-1]}


# tells the right word after the first try, which alone counts
Correcting = sick.made(
    "Correcting", Echo, _reply=lambda self, word: f"The right word was {self._right}."
)


@pytest.mark.parametrize("kind", [Echo, Chosen4, Direction, Correcting])
def test_a_sound_environment_is_a_go(kind):
    lab = Laboratory(Guarded(kind, turns=6))
    assert lab.verdict.go, str(lab.verdict)


def test_an_answer_that_is_shown_is_noted_and_chance_is_no_cheating():
    shown = lab_of(Shown)
    assert shown.verdict.go and "stands in the text of `reset`" in str(shown.verdict)
    quiz = Laboratory(Guarded(Quiz, turns=4))
    assert quiz.verdict.go, str(quiz.verdict)


def test_a_tool_that_raises_at_some_calls_is_no_reason_against_training():
    def say(self, word: str) -> str:
        """Say a word.

        Args:
            word: The word.
        """
        if self._said is not None:
            raise ValueError("It is over.")  # as TRL's own examples do
        return Echo.say(self, word)

    lab = lab_of(sick.made("Raising", Echo, say=say))
    assert lab.verdict.go and "It is over" in lab.guard.faults["say"]
