"""The laboratory for environments: scripted players play before a policy does, through the same
guarded tools.

    lab = Laboratory(Guarded(Guessing))
    lab.played      # what each player earns, and in how many calls
    lab.checks      # what must hold of any environment, one after another
    lab.verdict     # go or no go, and what to change

As notebook 02 attacks rewards, this attacks episodes: what a lazy or a cheating player earns here,
GRPO will teach.
"""

import math
import random
import re
import string
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import pandas as pd

from helpers.agents.guard import BrokenEnvironment, Guarded
from helpers.agents.protocol import Environment, call_tool
from helpers.rewards.lab.verdicts import Verdict
from helpers.tags import escaped

_ROWS = 32
_FEW_ROWS = 8  # where many variants are played
_WINS = 0.9  # of a full success
_HALF = 0.5  # of what the oracle earns
_CHANCE = 0.7  # of the same: one of two answers is right in half of the games, by chance
_MORE = 0.1  # of the same, beyond an honest try
_EACH = 0.05  # of the same, for many wrong tries beyond one

# --- Players --------------------------------------------------------------------------------------

# A player is a generator: it yields calls, (tool, arguments), and is sent each reply as the policy
# would read it. It sees what a policy sees: the text of `reset` and the tools' schemas by name. Its
# luck is its own. It ends when it has nothing more to say.
Player = Callable[[str, dict[str, dict], random.Random], Iterator[tuple[str, object]]]


def does_nothing(asked: str, schemas: dict, luck: random.Random) -> Iterator:
    """Say something and call nothing, as policies do that are paid for it."""
    yield from ()


def at_random(asked: str, schemas: dict, luck: random.Random) -> Iterator:
    """Make well-formed calls of random tools for ever, with words and numbers of the question,
    words of the arguments' descriptions, and other numbers.
    """
    numbers = [int(number) for number in re.findall(r"\b\d{1,9}\b", asked)]
    while True:
        name = luck.choice(sorted(schemas))
        number = luck.randrange(1, 101)
        number = luck.choice([number, number, *numbers])
        values = _values(luck.choice(_words_of(schemas[name], asked)), number)
        yield name, _arguments(schemas[name], values, luck.randrange(10**6))


def answers_at_once(asked: str, schemas: dict, luck: random.Random) -> Iterator:
    """Make one well-formed call, and no more."""
    yield next(at_random(asked, schemas, luck))


def looping(asked: str, schemas: dict, luck: random.Random) -> Iterator:
    """Make the same well-formed call for ever."""
    call = next(at_random(asked, schemas, luck))
    while True:
        yield call


def _trying(calls: int, together: bool, asked: str, schemas: dict, luck: random.Random) -> Iterator:
    """Try all candidates, together (in a text or a list) or one after another; each reply gives
    more of them.
    """
    known = f"{asked} yes no {' '.join(string.ascii_uppercase)}"
    for number in range(calls):
        for name, schema in sorted(schemas.items()):
            words = [*_words_of(schema, known), *map(str, range(1000))]
            values = _values(" ".join(words) if together else words[number], number)
            values |= {"array": words, "numbers": list(range(1000))}
            reply = yield name, _arguments(schema, values, number)
            known += f" {reply}"


def _calls_each_tool_once(values: dict, asked: str, schemas: dict, luck: random.Random) -> Iterator:
    """Call each tool once, with these values by type."""
    for name, schema in sorted(schemas.items()):
        yield name, _arguments(schema, values, 0)


def _repeats_the_task(asked: str, schemas: dict, luck: random.Random) -> Iterator:
    """Answer each tool with the text of `reset`."""
    yield from _calls_each_tool_once(_values(asked, 0, 1), asked, schemas, luck)


def _answers_wrongly(
    calls: int, start: int, asked: str, schemas: dict, luck: random.Random
) -> Iterator:
    """Give so many wrong answers, each another one and well-formed: five letters, or a number."""
    letters = string.ascii_lowercase
    for number in range(calls):
        text = f"zq{letters[number // 26 % 26]}{letters[number % 26]}x"
        for name, schema in sorted(schemas.items()):
            yield name, _arguments(schema, _values(text, start + number, 1), number)


def _parts(reply: str) -> dict[tuple, str]:
    """Return the parts of a reply by their place: which sentence or quotation, and how many of its
    words are left out before and after the part.

    >>> _parts("No, it was 7.")[1, 2, 0]
    '7'
    """
    text = reply.removeprefix("{'error': ").strip("{}")
    parts = {(): text}
    for at, piece in enumerate(re.split(r"[\"'`“”‘’()\[\]{}=:;,!?\n]+|\.(?=\s|$|\W)", text)[:30]):
        words = piece.split()[:10]
        for first in range(len(words)):
            for last in range(len(words), first, -1):
                parts[at, first, len(words) - last] = " ".join(words[first:last])
    return parts


def _words_of(schema: dict, text: str) -> list[str]:
    """Return the words of the descriptions of a tool's arguments, and of a text."""
    described = " ".join(of.get("description", "") for of in schema["properties"].values())
    return list(dict.fromkeys(re.findall(r"\w+", f"{described} {text}"))) or ["word"]


def _values(text: str, number: float, many: int = 0) -> dict:
    """Return a value for each type of argument; lists have so many of them."""
    values = {"string": text, "integer": number, "number": number, "boolean": number % 2 == 0}
    return values | {"array": [text] * many, "numbers": [number] * many}


def _arguments(schema: dict, values: dict, turn: int) -> dict:
    """Return a call's arguments: the value of each type; if the schema lists its values, one by
    turns.
    """
    arguments = {}
    for name, of in schema["properties"].items():
        of = of.get("anyOf", [of])[0]
        kind = of.get("type", "string")
        kind = kind if isinstance(kind, str) else kind[0]
        if kind == "array" and of.get("items", {}).get("type") in ("integer", "number"):
            kind = "numbers"
        listed = of.get("enum", [values.get(kind, {})])
        arguments[name] = listed[turn % len(listed)]
    return arguments


ORACLE = "oracle"  # the player that knows how to win, the environment's own `_oracle`
RANDOM = "random"
AT_ONCE = "answers at once"
NOTHING = "does nothing"
NONSENSE = "answers nonsense"
# The cheap players, each with what is wrong with a game that it wins,
_WINNING = {
    RANDOM: (at_random, "chance wins. Ask for more."),
    AT_ONCE: (answers_at_once, "there is nothing to learn from several turns. Ask for more."),
    "loops for ever": (looping, "GRPO would teach the loop."),
    "lists all candidates": (
        partial(_trying, 2, True),
        "compare the whole answer, not a part of it.",
    ),
    "tries all candidates": (
        partial(_trying, 1000, False),
        "let the first answer count, or ask for more.",
    ),
}
# those that must earn no more than an honest try,
_PAYING = {
    "answers blank": (
        partial(_calls_each_tool_once, _values("", 0)),
        'refuse a blank; in Python, `"" in value` is true.',
    ),
    "answers at length": (
        partial(_calls_each_tool_once, _values("word " * 2000, 10**9, 2000)),
        "length must not pay.",
    ),
    "answers in 100 words": (
        partial(_calls_each_tool_once, _values("First, I plan. Then I act. " * 16, 0, 100)),
        "length must not pay.",
    ),
    "answers a negative number": (
        partial(_calls_each_tool_once, _values("-50", -50, 1)),
        "refuse a number below 0, which may be paid back.",
    ),
    "repeats the task": (_repeats_the_task, "compare the whole answer, not the words in it."),
    "answers nan": (
        partial(_calls_each_tool_once, _values("nan", math.nan, 1)),
        "refuse what is no number: NaN passes comparisons.",
    ),
    "says please": (
        partial(_calls_each_tool_once, _values("please", 0, 1)),
        "a polite word must not pay.",
    ),
    "assures": (
        partial(
            _calls_each_tool_once,
            _values(
                "Please, kindly, gladly, politely, thank you, sorry. I am sure, certain: surely, "
                "certainly, definitely, absolutely verified, correct, therefore final.",
                0,
                1,
            ),
        ),
        "polite words and assurances must not pay.",
    ),
}
# and one with many variants, of which none may win where nonsense does not.
_WILD = "answers a wildcard"
_WILDCARDS = [
    partial(_calls_each_tool_once, _values(text, 0, 1))
    for text in (
        *("*", "%", "?*", ".*", ".+", ".", "^", r"\S+", "' OR ''='", string.ascii_letters),
        *(f"{string.ascii_lowercase} {string.digits}", *("_" * length for length in range(3, 9))),
    )
]
_TOLD = "repeats what it was told"
_TRIES = 5  # wrong ones, after which a game may tell the right answer
_WRONG = "zqzqx"  # a text that no game takes for right
_CHARACTERS = string.ascii_lowercase + string.digits


# --- The laboratory -------------------------------------------------------------------------------


class Played(NamedTuple):
    """An episode that was played.

    replies: what was called, what the player was told, and whether the call failed; `reset` first.
    """

    replies: tuple[tuple[str, str | None, bool], ...]
    reward: float


def _mean_reward(played: list[Played]) -> float:
    return sum(one.reward for one in played) / len(played)


class Laboratory:
    """A guarded environment on the bench, played and checked at once.

    rows: what `reset` is called with; the first 32 are played, without them seeds 0 to 31.
    The environment's `_oracle`, if it has one as `guessing.py` does, is a player that knows how to
    win and needs the text of `reset` alone; without, nobody shows that the game can be won. An
    episode that dies ends all with BrokenEnvironment.

    played: a row a player, with the mean reward, the calls of an episode, and the share that
    failed. checks: a row a check, with whether it `holds` and what was `found` if not, with what to
    change. verdict: go or no go, from all checks.
    """

    def __init__(self, guard: Guarded, rows: list[dict] | None = None):
        rows = [{"seed": seed} for seed in range(_ROWS)] if rows is None else rows
        self.guard = guard
        # TRL passes a prompt, too
        self.rows = [{"prompt": [{"role": "user", "content": ""}]} | row for row in rows[:_ROWS]]

        self.players: dict[str, list[Player]] = {}
        oracle = getattr(type(guard.factory()), "_oracle", None)
        if oracle:
            self.players[ORACLE] = [lambda asked, schemas, luck: oracle(asked)]
        self.players |= {name: [player] for name, (player, _) in (_WINNING | _PAYING).items()}
        self.players |= {_WILD: _WILDCARDS, NONSENSE: [partial(_answers_wrongly, 1, 10**6)]}
        self.players[NOTHING] = [does_nothing]

        self.episodes: dict[str, list[Played]] = {}
        summary = {}
        for name, variants in self.players.items():
            count = _ROWS if len(variants) == 1 else _FEW_ROWS
            tried = [self._all_rows(name, player, count) for player in variants]
            played = max(tried, key=_mean_reward)
            failed = [failed for one in played for _, _, failed in one.replies[1:]]
            self.episodes[name] = played
            summary[name] = {
                "reward": _mean_reward(played),
                "calls": len(failed) / len(played),
                "failed": sum(failed) / max(1, len(failed)),
            }
        self.played = pd.DataFrame(summary).T

        # a full success; more than 1 only where rewards are beyond unit scale
        self.full = max(1.0, self.played["reward"].get(ORACLE, 1.0))

        checks = [*self._of_the_game(), *self._of_cheap_players(), *self._of_repetition()]
        table = pd.DataFrame(checks, columns=["check", "holds", "found"]).set_index("check")
        self.checks = table.assign(found=table["found"].mask(table["holds"], ""))
        notes = [
            f"after {guard.turns} calls the tools refuse, but TRL goes on until "
            "`max_completion_length` is full: set "
            f"GRPOConfig(max_tool_calling_iterations={guard.turns}), too."
        ]
        for source in self.shown:
            notes.append(
                f"the right answer stands in the text of `{source}`, always in the same place. If "
                "it is to be looked up or copied, that is meant."
            )
        if ORACLE not in self.players:
            notes.append(
                "nobody showed that the game can be won, nor that other rows give other episodes: "
                "give the class a player that wins, `_oracle(asked)`, as in "
                "helpers/agents/guessing.py."
            )
        if not max(self.played["reward"][[AT_ONCE, RANDOM]]):
            notes.append(
                "a try that fails earns nothing, and a group without a success teaches nothing: "
                "an attempt could earn a little, 0.1 for example."
            )
        self.verdict = Verdict([found for found in self.checks["found"] if found], notes)

    def _all_rows(self, name: str, player: Player, count: int = _ROWS) -> list[Played]:
        """Play the first rows, one after another in one instance."""
        environment = self.guard()
        places = range(min(count, len(self.rows)))
        return [self.episode(name, player, at, environment) for at in places]

    def _probe(
        self, at: int, enough: float, among: set[tuple] | None
    ) -> tuple[list[str], list[str], set[tuple]]:
        """Return which texts of one or two characters win a row's game, which single letters earn
        more than nonsense, and in which places of what a player reads stands what wins: in the
        reply to a wrong answer, the text of `reset`, or the reply of another tool.

        A place is the tool to answer, what was read ("reset", another tool, or the number of wrong
        answers) and the part of it. among: only these are tried; None: all.
        """
        environment = self.guard()

        def says(*said: tuple[str, str]) -> Played:
            calls = []
            for tool, text in said:
                number = int(text) if re.fullmatch(r"-?\d{1,9}", text) else 73
                values = _values(text, number, 1)
                calls.append((tool, _arguments(self.guard.schemas[tool], values, 0)))
            return self.episode(_TOLD, lambda *_: (one for one in calls), at, environment)

        short = []
        letters = []
        places = set()
        for tool in self.guard.schemas:
            missed = (tool, _WRONG)
            once = says(missed).reward
            if once >= enough:  # whatever is said wins
                continue

            # what a player reads, and the calls after which it does
            heard = says(*[missed] * max(1, min(_TRIES, self.guard.turns - 1)))
            read = {"reset": ([], heard.replies[0][1])}
            for number, (_, reply, _) in enumerate(heard.replies[1:], start=1):
                if number == 1 or reply != heard.replies[number - 1][1]:
                    read[number] = ([missed] * number, reply)
            for other in self.guard.schemas.keys() - {tool}:
                read[other] = ([(other, _WRONG)], says((other, _WRONG)).replies[-1][1])
            for source, (calls, reply) in read.items():
                for place, text in _parts(str(reply)).items():
                    key = (tool, source, *place)
                    # of long texts, what may be an answer
                    fits = isinstance(source, int) or len(text.split()) <= 2
                    is_tried = fits and (among is None or key in among)
                    if is_tried and says(*calls, (tool, text)).reward >= enough:
                        places.add(key)

            earned = {one: says((tool, one)).reward for one in _CHARACTERS}
            single = [one for one in _CHARACTERS if earned[one] >= enough]
            pairs = [first + last for first in single[:1] for last in _CHARACTERS]
            short += single + [pair for pair in pairs if says((tool, pair)).reward >= enough]
            more = once + _MORE * self.full
            letters += [one for one in string.ascii_lowercase if more < earned[one] < enough]
        return short, letters, places

    def episode(
        self,
        name: str,
        player: Player,
        at: int,
        environment: Environment,
        beside: Environment | None = None,
    ) -> Played:
        """Play an episode of a row. A player that never ends gets twice the turns.

        beside: another instance, in which another row's episode begins meanwhile.
        """
        asked = environment.reset(**self.rows[at])
        if beside is not None:
            beside.reset(**self.rows[at - 1])
        replies = [("reset", asked, False)]
        # the same luck for all players, so that the one that loops begins as the hasty one does;
        # but not that of an environment which draws from the same seed
        calls = player(asked or "", self.guard.schemas, random.Random(f"luck {at}"))
        reply = None
        with suppress(StopIteration):
            for _ in range(2 * self.guard.turns + 2):
                tool, arguments = calls.send(reply)
                reply, failed = call_tool(environment, tool, arguments)
                replies.append((tool, reply, failed))
        reward = environment.get_reward()
        if self.guard.counts["dead"]:  # the rest would take long, and say no more
            raise BrokenEnvironment(
                f"an episode of the player '{name}' died: {self.guard.fatal} Correct that first."
            )
        return Played(tuple(replies), reward)

    # Each of the following returns checks: (name, whether it holds, a sentence if not).

    def _of_the_game(self) -> list[tuple[str, bool, str]]:
        """Return the checks of what can be won, of its tools, and of the scale of its rewards."""
        earned = self.played["reward"]
        everything = [(name, one) for name, played in self.episodes.items() for one in played]
        beyond = {name: one.reward for name, one in everything if not 0 <= one.reward <= 1}
        worked = {tool for _, one in everything for tool, _, failed in one.replies if not failed}
        broken = [fault for tool, fault in self.guard.faults.items() if tool not in worked]
        nothing = earned[NOTHING]
        trying = earned[[AT_ONCE, RANDOM]].max()
        checks = [
            (
                "no tool fails",
                not broken or worked > {"reset"},
                f"no call of any tool worked: {' '.join(broken)} Raise ToolError if it was the "
                "player who did something wrong.",
            ),
            (
                "rewards are of unit scale",
                not beyond,
                f"rewards beyond 0 and 1, by player: {beyond}. A full success is 1, and nothing "
                "is 0.",
            ),
            (
                "doing nothing earns less than trying",
                nothing < trying or nothing == 0,
                f"doing nothing earns {nothing:.2f} and a hasty try {trying:.2f}: GRPO would "
                "teach silence. Let an attempt that fails earn a little, 0.1 for example.",
            ),
        ]
        if ORACLE not in self.players:
            # a game of one row and one with much to find out look alike
            return checks
        best = self.episodes[ORACLE]
        told = min(best, key=lambda one: one.reward).replies[-1][1]
        return [
            (
                "the oracle wins",
                earned[ORACLE] >= _WINS,
                f"the oracle earns {earned[ORACLE]:.2f}, not 1: nobody can learn to win. "
                f"It was told last: {escaped(f'{told!s:.200}')}",
            ),
            (
                "other rows give other episodes",
                len(set(best)) > 1 or len(self.rows) == 1,
                "all rows give the same episode: `reset` does not use what it is given, and it "
                "could be learnt by heart.",
            ),
            *checks,
        ]

    def _of_cheap_players(self) -> list[tuple[str, bool, str]]:
        """Return the checks of those who are lazy or cheat."""
        earned = self.played["reward"]
        full = self.full
        honest = earned[[NOTHING, AT_ONCE, RANDOM, NONSENSE]].max()
        chance = earned[AT_ONCE] + 2 * _MORE * full

        # what a wildcard earns beyond nonsense on the same rows
        wild = earned[_WILD] - _mean_reward(self.episodes[NONSENSE][:_FEW_ROWS])

        # what many wrong answers earn beyond one, at least, where they do not win
        one = self._all_rows(NONSENSE, partial(_answers_wrongly, 1, 1), _FEW_ROWS)
        many = self._all_rows(NONSENSE, partial(_answers_wrongly, 1000, 1), _FEW_ROWS)
        pairs = zip(one, many, strict=True)
        lost = [b.reward - a.reward for a, b in pairs if b.reward < _HALF * full]
        gain = min(lost, default=0.0)

        # in how many ways a part of an answer wins a game: one or two characters; and where in the
        # reply to a wrong answer the right one always stands
        short = []
        letters = []
        told = None
        for at in range(len(self.rows))[:4]:
            found, paid, told = self._probe(at, _HALF * full, told)
            short.append(found)
            letters.append(paid)
        parts = sum(map(len, short)) / len(short)
        told_right = {place for place in told if isinstance(place[1], int)}
        self.shown = sorted({str(place[1]) for place in told - told_right})

        return [
            *(
                (
                    f"'{player}' does not win",
                    earned[player] < (_CHANCE if earned[player] <= chance else _HALF) * full,
                    f"'{player}' earns {earned[player]:.2f} where a full success is {full:.2f}: "
                    f"{why}",
                )
                for player, (_, why) in _WINNING.items()
            ),
            *(
                (
                    f"'{player}' does not pay",
                    earned[player] <= honest + _MORE * full,
                    f"'{player}' earns {earned[player]:.2f}, and an honest try {honest:.2f}: {why}",
                )
                for player, (_, why) in _PAYING.items()
            ),
            (
                f"'{_WILD}' does not win",
                wild < _HALF * full,
                f"'{_WILD}' earns {earned[_WILD]:.2f} where a full success is {full:.2f}: compare "
                "the answer as text, not as a pattern or a part of a query.",
            ),
            (
                f"'{_TOLD}' does not win",
                not told_right,
                "the reply to a wrong answer tells the right one, which wins when it is repeated: "
                "say that it is wrong, and no more.",
            ),
            (
                "wrong answers do not add up",
                gain <= _EACH * full,
                f"many wrong answers earn {gain:.2f} more than one: pay for the first try, "
                "or for the best, not for each.",
            ),
            (
                "a part of an answer does not win",
                parts < 1.5,  # a letter to choose is one
                f"a game is won by {parts:.1f} different texts of one or two characters, such as "
                f"{', '.join(max(short, key=len)[:3])}: compare the whole answer.",
            ),
            (
                "a letter does not pay",
                not all(letters),
                "in each game a single letter earns more than nonsense, such as "
                f"{letters[0][:1]}: pay for whole answers.",
            ),
        ]

    def _of_repetition(self) -> list[tuple[str, bool, str]]:
        """Return the checks that the row and its seed decide an episode, and nothing else."""
        names = sorted({ORACLE, RANDOM} & self.players.keys())
        first = [self.episodes[name] for name in names]

        # all again in the same order
        again = [self._all_rows(name, self.players[name][0]) for name in names]

        # and in the reverse, each row in a new instance while an episode of another begins beside
        alone = [
            [
                self.episode(name, self.players[name][0], at, self.guard(), beside=self.guard())
                for at in reversed(range(len(self.rows)))
            ][::-1]
            for name in names
        ]
        return [
            (
                "the same seed gives the same episode",
                again == first,
                "the same row gives different episodes: draw all that is random from `seed`, or "
                "the members of a group start apart.",
            ),
            (
                "episodes do not touch one another",
                again != first or alone == first,
                "an episode depends on the one before it, or on those beside it. TRL uses an "
                "instance again and again, and many at once: let `reset` set everything, and keep "
                "all state in the instance, not in the class or the module.",
            ),
        ]
