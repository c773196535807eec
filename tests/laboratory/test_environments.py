"""The laboratory for environments: a go for the suite's own game and other sound ones, and a no go
with the reason for each way in which an environment can be wrong.
"""

import fnmatch
import itertools
import json
import random
import re
import zlib
from collections.abc import Callable
from typing import Literal

import pytest
import sick_environments as sick

from helpers.agents import BrokenEnvironment, Guarded, Guessing, ToolError
from helpers.laboratory.environments import AttackReport, attack


class Echo:
    """Say the word of the question backwards for 1.0. Another word earns 0.1. The first try counts."""

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
    def _oracle(question):
        yield "say", {"word": question.split()[1][::-1]}

    def _reply(self, word):
        return "Yes." if word == self._right else "No."

    def get_reward(self) -> float:
        return 0.0 if self._said is None else 1.0 if self._said == self._right else 0.1


class Answered:
    """Find a number for 1.0. There is no `_oracle`, so no player can show how."""

    def reset(self, seed: int, **columns) -> str:
        self._right, self._said = str(random.Random(seed).randrange(100, 1000)), []
        return f"Which number has the checksum {zlib.crc32(self._right.encode())}?"

    def answer(self, text: str) -> str:
        """Answer.

        Args:
            text: The number.
        """
        self._said.append(text)
        return "Noted."

    def get_reward(self) -> float:
        return float(self._said[:1] == [self._right])


def report_on(kind: type, **options) -> AttackReport:
    return attack(Guarded(kind, turns=4, **options), [{"seed": seed} for seed in range(6)])


def test_number_guessing_is_a_go_and_its_players_always_play_the_same():
    guard = Guarded(Guessing)
    report = attack(guard)
    played = report.played.round(3)
    assert played.equals(attack(Guarded(Guessing)).played.round(3))
    assert tuple(played.loc["oracle", ["reward", "failed"]]) == (1, 0)
    assert tuple(played.loc["answers at once", ["reward", "calls"]]) == (0.1, 1)
    assert played.loc["answers nan", "failed"] == 1, "the guard refuses it"
    assert played.loc["loops for ever", "calls"] == 2 * guard.turns + 2
    assert report.verdict.go and "max_tool_calling_iterations=16" in str(report.verdict)
    assert report.checks["holds"].all() and not guard.faults


# --- One thing wrong each -------------------------------------------------------------------------


def echo(**members) -> type:
    """Return the game Echo with other methods."""
    return sick.made("Sick", Echo, **members)


def judged(rule: Callable) -> type:
    """Return the game Answered with another rule: the best of all answers counts."""

    def get_reward(self) -> float:
        return float(max((rule(text, self._right) for text in self._said), default=0.0))

    return sick.made("Judged", Answered, get_reward=get_reward)


def telling(words: str, error: bool = False, after: int = 0) -> type:
    """Return a game without a limit of tries that names the correct answer after some of them."""

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


def adding(counts: Callable) -> type:
    """Return a game that pays a little for each new try that `counts` accepts."""

    def get_reward(self) -> float:
        return max(Answered.get_reward(self), min(0.4, 0.03 * len(set(filter(counts, self._said)))))

    return sick.made("Adding", Answered, get_reward=get_reward)


class Later(Echo):
    async def say(self, word: str) -> str:
        """Say a word.

        Args:
            word: The word.
        """


class Tried(Answered):
    """A game without a limit of tries, and few possible answers."""

    def answer(self, number: int) -> str:
        """Answer.

        Args:
            number: 1 to 8.
        """
        self._said.append(number)
        return "Noted."

    def get_reward(self) -> float:
        return float(1 + int(self._right) % 4 in self._said)


class Listed(Answered):
    """A game that takes all answers at once, in a list."""

    def answer(self, numbers: list[int]) -> str:
        """Answer.

        Args:
            numbers: The numbers.
        """
        self._said = numbers
        return "Noted."

    def get_reward(self) -> float:
        return float(int(self._right) in self._said)


def filed(place: str, read: Callable, told: str = "The grade is kept in {}.") -> type:
    """Return the game Answered with a tool that writes a file, and a grade that is read from one."""

    def reset(self, seed: int, **columns) -> str:
        self._files = {}
        return f"{Answered.reset(self, seed)} {told.format(place)}"

    def write(self, name: str, text: str) -> str:
        """Write a file.

        Args:
            name: The file's name.
            text: Its content.
        """
        self._files[name] = text
        return "Written."

    def get_reward(self) -> float:
        right = Answered.get_reward(self)
        return read(self._files[place]) if place in self._files else right

    return sick.made("Filed", Answered, reset=reset, write=write, get_reward=get_reward)


class Marked(Answered):
    """A game with a tool that takes a list, in which one mark of 1 is a grade."""

    def reset(self, seed: int, **columns) -> str:
        self._marks = []
        return super().reset(seed)

    def finish(self, marks: list[str]) -> str:
        """End the game.

        Args:
            marks: The marks.
        """
        self._marks = marks
        return "Noted."

    def get_reward(self) -> float:
        return 1.0 if self._marks == ["1"] else super().get_reward()


class Shell(Answered):
    """A game whose one tool runs a line, and may overwrite the grade."""

    def reset(self, seed: int, **columns) -> str:
        return super().reset(seed) + " It ends when out/score holds your grade."

    def get_reward(self) -> float:
        return float(any(re.fullmatch("echo (1) > out/score", text) for text in self._said))


class InTheClass(Echo):
    """A game whose instances share the correct word."""

    words: tuple = ()

    def reset(self, seed: int, **columns) -> str:
        question = super().reset(seed)
        type(self).words = (self._right,)
        return question

    def _reply(self, word):
        self._right = self.words[0]
        return super()._reply(word)


class Unfinished(Echo):
    """A game that begins anew only if the last episode was won."""

    def reset(self, seed: int, **columns) -> str:
        before = getattr(self, "_said", None)
        lost = before is not None and before != self._right
        question = super().reset(seed)
        self._said = before if lost else None
        return question


# What is said if a check does not hold.
SAYS = {
    "the oracle wins": "no policy can learn to win. The last reply to it: ",
    "other rows give other episodes": "could memorise the episode",
    "no tool fails": "Raise ToolError if the player",
    "rewards are of unit scale": "The scale is 0 (nothing achieved) to 1",
    "doing nothing earns less than trying": "GRPO would teach silence",
    "'random' does not win": "chance wins",
    "'answers at once' does not win": "nothing to learn from several turns",
    "'loops for ever' does not win": "GRPO would teach the loop",
    "'lists all candidates' does not win": "compare the whole answer",
    "'tries all candidates' does not win": "let the first answer count",
    "'answers blank' does not pay": "refuse a blank",
    "'answers at length' does not pay": "length must not pay",
    "'answers in 100 words' does not pay": "length must not pay",
    "'answers a negative number' does not pay": "refuse negative numbers",
    "'repeats the task' does not pay": "not the words in it",
    "'answers nan' does not pay": "refuse values that are not numbers",
    "'says please' does not pay": "a polite word must not pay",
    "'assures' does not pay": "assurances must not pay",
    "'answers a wildcard' does not win": "not as a pattern or a part of a query",
    "'writes its own grade' does not win": "where no tool can write",
    "'repeats what it was told' does not win": "reveals the correct one",
    "wrong answers do not add up": "reward the first try",
    "a part of an answer does not win": "compare the whole answer",
    "a letter does not pay": "reward only whole answers",
    "the same seed gives the same episode": "derive all random numbers from `seed`",
    "episodes do not touch one another": "keep all state in the instance",
}
NUMBERS = itertools.count(10**6)
# Each with all the checks that do not hold.
SICK = {
    # what can be won, and how
    "unwinnable": (
        echo(get_reward=lambda self: 0.1 * (self._said is not None)),
        ["the oracle wins"],
    ),
    "generous": (
        echo(get_reward=lambda self: float(self._said is not None)),
        [
            *("'random' does not win", "'answers at once' does not win"),
            *("'loops for ever' does not win", "'lists all candidates' does not win"),
            "'tries all candidates' does not win",
        ],
    ),
    "pays for silence": (
        echo(get_reward=lambda self: 0.2 if self._said is None else Echo.get_reward(self)),
        ["doing nothing earns less than trying"],
    ),
    "pays for calls": (
        echo(get_reward=lambda self: max(Echo.get_reward(self), min(1.0, 0.3 * self._calls))),
        [
            *("'random' does not win", "'loops for ever' does not win"),
            *("'lists all candidates' does not win", "'tries all candidates' does not win"),
            "'repeats what it was told' does not win",
        ],
    ),
    "percent": (
        echo(get_reward=lambda self: 100 * Echo.get_reward(self)),
        ["rewards are of unit scale"],
    ),
    "constant": (
        echo(reset=lambda self, seed, **columns: Echo.reset(self, 0)),
        ["other rows give other episodes"],
    ),
    "chance": (
        # the first row's game is always another one
        echo(reset=lambda self, seed, **columns: Echo.reset(self, seed or next(NUMBERS))),
        ["the same seed gives the same episode"],
    ),
    "raises": (echo(_reply=sick.raising(KeyError("word"))), ["no tool fails"]),
    "async": (Later, ["no tool fails", "the oracle wins"]),
    "in the class": (InTheClass, ["episodes do not touch one another"]),
    "unfinished": (Unfinished, ["episodes do not touch one another"]),
    # how an answer is judged
    "right in it": (
        judged(lambda text, right: right in text),
        ["'lists all candidates' does not win"],
    ),
    "in the right": (
        judged(lambda text, right: text in right),
        ["'answers blank' does not pay", "a part of an answer does not win"],
    ),
    "prefix": (
        judged(lambda text, right: text != "" and right.startswith(text)),
        ["a part of an answer does not win"],
    ),
    "near": (
        judged(lambda text, right: text == "nan" and not abs(float(text) - int(right)) > 0.5),
        ["'answers nan' does not pay"],
    ),
    "list": (
        Listed,
        ["'lists all candidates' does not win", "'tries all candidates' does not win"],
    ),
    "tries": (Tried, ["'tries all candidates' does not win"]),
    "pattern": (
        judged(lambda text, right: fnmatch.fnmatch(right, text)),
        ["'answers a wildcard' does not win"],
    ),
    "grade file": (filed("reward.txt", float), ["'writes its own grade' does not win"]),
    "grade as JSON": (
        filed("result.json", lambda text: float(text[0] == "{" and json.loads(text)["score"])),
        ["'writes its own grade' does not win"],
    ),
    "shell": (Shell, ["'writes its own grade' does not win"]),
    "grade in a list": (Marked, ["'writes its own grade' does not win"]),
    "blanks": (
        judged(lambda text, right: fnmatch.fnmatch(right, text.replace("_", "?"))),
        ["'answers a wildcard' does not win"],
    ),
    "query": (
        judged(lambda text, right: text == right or text.endswith("'='")),
        ["'answers a wildcard' does not win"],
    ),
    "everyone": (
        judged(lambda text, right: set(right) <= set(text)),
        ["'answers a wildcard' does not win", "'lists all candidates' does not win"],
    ),
    # what else is paid
    "length": (
        judged(lambda text, right: min(1.0, len(text) / 5000)),
        ["'answers at length' does not pay", "'lists all candidates' does not win"],
    ),
    "words": (
        judged(lambda text, right: 0.4 * (20 <= len(text.split()) <= 200)),
        ["'answers in 100 words' does not pay"],
    ),
    "debts": (
        judged(lambda text, right: 0.4 * text.startswith("-")),
        ["'answers a negative number' does not pay"],
    ),
    "echo": (
        judged(lambda text, right: 0.4 * ("checksum" in text)),
        ["'repeats the task' does not pay"],
    ),
    "please": (
        judged(lambda text, right: 0.4 * ("please" in text)),
        ["'says please' does not pay"],
    ),
    "kindly": (
        judged(lambda text, right: 0.4 * ("kindly" in text)),
        ["'assures' does not pay"],
    ),
    "verified": (
        judged(lambda text, right: 0.4 * ("verified" in text)),
        ["'assures' does not pay"],
    ),
    "letters": (
        judged(lambda text, right: 0.3 * ("q" not in text and text[:1].isalpha())),
        ["a letter does not pay"],
    ),
    "new tries": (adding(bool), ["wrong answers do not add up"]),
    "new words": (adding(str.isalpha), ["wrong answers do not add up"]),
    # what a reply tells
    "tells late": (telling("It was {}.", after=2), ["'repeats what it was told' does not win"]),
    "tells last": (telling("No, it was {}."), ["'repeats what it was told' does not win"]),
    "tells in quotes": (
        telling("Expected '{}' here.", error=True),
        ["'repeats what it was told' does not win"],
    ),
    "tells alone": (telling("{}", error=True), ["'repeats what it was told' does not win"]),
    "tells in brackets": (
        telling("wrong (right: {}), go on!"),
        ["'repeats what it was told' does not win"],
    ),
}


@pytest.mark.parametrize("name", SICK)
@pytest.mark.filterwarnings("ignore:coroutine")
def test_what_is_wrong_is_found_and_the_way_out_is_said(name):
    kind, wrong = SICK[name]
    report = report_on(kind)
    assert set(report.checks.index[~report.checks["holds"]]) == set(wrong)
    assert all(SAYS[check] in report.checks.loc[check, "found"] for check in wrong)
    assert not report.verdict.go


@pytest.mark.parametrize(
    ("name", "check", "says"),
    [
        ("raises", "no tool fails", "') raised KeyError: "),
        ("unwinnable", "the oracle wins", "The last reply to it: Yes."),
    ],
)
def test_what_a_tool_raised_and_what_the_oracle_was_told_is_named(name, check, says):
    assert says in report_on(SICK[name][0]).checks["found"][check]


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (
            sick.made("Broken", reset=sick.raising(OSError("gone"))),
            r"Broken.reset\(.* raised OSError: gone",
        ),
        (sick.doing(sick.sleeping), "did not return within 0.5 seconds"),
        (judged(lambda text, right: float(text)), r"get_reward\(\) raised ValueError: could not"),
        (sick.made("Nan", get_reward=lambda self: float("nan")), "nan is not a finite number"),
    ],
    ids=["cannot begin", "sleeping", "raises", "nan"],  # tools/mutations.py leaves out what sleeps
)
def test_an_episode_that_dies_ends_the_programme_and_is_named(kind, says):
    with pytest.raises(BrokenEnvironment, match=f"player '.*{says}"):
        report_on(kind, seconds=0.5)


def test_without_an_oracle_a_sparse_reward_of_0_and_1_is_a_go_with_what_was_not_shown():
    report = report_on(Answered)
    assert report.verdict.go, str(report.verdict)
    assert "oracle" not in report.played.index and (report.played["reward"] == 0).all()
    assert "nothing has shown that the game can be won" in str(report.verdict)
    assert "a try could earn a little" in str(report.verdict)


# --- Sound ones -----------------------------------------------------------------------------------


class Letter(Echo):
    """A game in which the answer is one letter, and nonsense earns nothing."""

    def reset(self, seed: int, **columns) -> str:
        self._calls, self._said, self._right = 0, None, "abcd"[seed % 4]
        return f"The letter before {chr(ord(self._right) + 1)}?"

    @staticmethod
    def _oracle(question):
        yield "say", {"word": chr(ord(question[-2]) - 1)}


class Direction(Echo):
    """A game in which the answer is one of four listed values."""

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
    def _oracle(question):
        yield "say", {"word": question.split()[1].removesuffix("wards.")[::-1]}


class Quiz(Answered):
    """A game of yes or no, half of which chance wins. The first answer counts."""

    def reset(self, seed: int, **columns) -> str:
        super().reset(seed)
        self._right = "yes" if int(self._right) % 2 else "no"
        return f"Is it so in case {seed}, yes or no?"


SOUND = {
    "notes beside": filed("notes.txt", lambda text: 0.0, "Keep notes in {} with `write`."),
    "echo": Echo,
    "a letter": Letter,
    "a direction": Direction,
    "yes or no": Quiz,
    "all or nothing": echo(get_reward=lambda self: self._said == self._right),
    # tells the correct word after the first try, which alone counts
    "corrects": echo(_reply=lambda self, word: f"The right word was {self._right}."),
    # raises at a wrong word
    "raises at times": echo(_reply=lambda self, word: {self._right: "Yes."}[word]),
}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_environment_is_a_go(name):
    report = attack(Guarded(SOUND[name], turns=6))
    assert report.verdict.go, str(report.verdict)
