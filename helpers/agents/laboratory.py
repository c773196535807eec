"""The laboratory for environments: scripted players play an environment, through the same guarded
tools, before a policy trains in it.

    report = attack(Guarded(Guessing))
    report.played     # what each player earns, and in how many calls
    report.checks     # what must be true of any environment, and whether it is
    report.verdict    # go or no go, and what to change

Some players are lazy, and some cheat. GRPO will teach whatever they are paid for. (Notebook 02
attacks rewards in this way.)
"""

import random
import re
import string
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import pandas as pd

from helpers.agents import players
from helpers.agents.guard import BrokenEnvironment, Guarded
from helpers.agents.players import Player
from helpers.agents.protocol import Environment, call_tool
from helpers.rewards.lab.verdicts import Verdict
from helpers.tags import escaped

_ROWS = 32  # episodes of each player
_FEW_ROWS = 8  # episodes of a player with many variants
_PROBED_ROWS = 4  # episodes for each text that `_check_replies` and `_check_characters` try

# thresholds, as shares of a full success
_ORACLE_WINS = 0.9  # the least that the oracle must earn
_WIN = 0.5  # a mean reward from here on is a win
_WIN_BY_CHANCE = 0.7  # the threshold in place of _WIN if a hasty try wins half of the games
_PAY = 0.1  # a player is paid if it earns so much more than an honest try,
_PAY_PER_TRY = 0.05  # and many wrong tries are paid if they earn so much more than one

_TOLD = "repeats what it was told"
_WRONG = "zqzqx"  # a text that is wrong in every game
_TRIES = 5  # wrong answers, after each of which the reply may tell the right one
_CHARACTERS = string.ascii_lowercase + string.digits

# what must be true of an environment, whether it is, and the reason for a no go if it is not
Check = tuple[str, bool, str]


class PlayedEpisode(NamedTuple):
    """An episode that was played.

    replies: for each call the tool's name, its reply, and whether the call failed. `reset` is the
        first.
    """

    replies: tuple[tuple[str, str | None, bool], ...]
    reward: float


@dataclass(frozen=True)
class AttackReport:
    """The results of `attack`.

    episodes: by player.
    played: one row per player: the mean `reward`, the mean number of `calls` in an episode, and the
        share of calls that `failed`.
    checks: one row per check: whether it `holds`, and if not, what was `found` and what to change.
    verdict: a go if all checks hold.
    """

    episodes: dict[str, list[PlayedEpisode]]
    played: pd.DataFrame
    checks: pd.DataFrame
    verdict: Verdict


def attack(guard: Guarded, rows: list[dict] | None = None) -> AttackReport:
    """Let all players play a guarded environment, and check what they earn.

    rows: the arguments of `reset`, one row per episode. The first 32 are played; by default, the
        seeds 0 to 31.

    The class may have a static method `_oracle(question)`, as `guessing.py` does: a player that
    wins, knowing only the text of `reset`. Without it, nothing shows that the game can be won.

    Raise BrokenEnvironment if an episode dies.
    """
    bench = _Bench(guard, [{"seed": seed} for seed in range(_ROWS)] if rows is None else rows)

    # 1. all players play; of the wildcards, the one that earns most counts
    episodes = {name: bench.play(name, player) for name, player in bench.players.items()}
    attempts = [bench.play("answers a wildcard", player, _FEW_ROWS) for player in players.WILDCARDS]
    episodes["answers a wildcard"] = max(attempts, key=_mean_reward)
    nonsense = partial(players.answers_wrongly, calls=1, first_number=10**6)
    episodes["answers nonsense"] = bench.play("answers nonsense", nonsense)
    nothing = partial(players.repeats_one_call, times=0)
    episodes["does nothing"] = bench.play("does nothing", nothing)

    # 2. what each player earned
    summary = {}
    for name, of_player in episodes.items():
        failed = [failed for episode in of_player for _, _, failed in episode.replies[1:]]
        summary[name] = {
            "reward": _mean_reward(of_player),
            "calls": len(failed) / len(of_player),
            "failed": sum(failed) / max(1, len(failed)),
        }
    played = pd.DataFrame(summary).T
    earned = played["reward"]
    # a full success is 1, unless the oracle earns more
    full = max(1.0, earned.get("oracle", 1.0))

    # 3. the checks
    checks = [
        *_check_game(bench, episodes, earned),
        *_check_cheap_players(episodes, earned, full),
        _check_replies(bench, full),
        _check_many_answers(bench, full),
        *_check_characters(bench, full),
        *_check_repetition(bench, episodes),
    ]
    table = pd.DataFrame(checks, columns=["check", "holds", "found"]).set_index("check")
    table["found"] = table["found"].mask(table["holds"], "")

    # 4. the verdict
    notes = [
        f"after {guard.turns} calls the tools refuse, but TRL goes on until "
        "`max_completion_length` is full: set "
        f"GRPOConfig(max_tool_calling_iterations={guard.turns}), too."
    ]
    if "oracle" not in episodes:
        notes.append(
            "nobody showed that the game can be won, nor that other rows give other episodes: "
            "give the class a player that wins, `_oracle(question)`, as in "
            "helpers/agents/guessing.py."
        )
    if not max(earned[["answers at once", "random"]]):
        notes.append(
            "a try that fails earns nothing, and a group without a success teaches nothing: "
            "an attempt could earn a little, 0.1 for example."
        )
    verdict = Verdict([found for found in table["found"] if found], notes)
    return AttackReport(episodes, played, table, verdict)


def _mean_reward(played: list[PlayedEpisode]) -> float:
    return sum(episode.reward for episode in played) / len(played)


class _Bench:
    """A guarded environment, the rows of its episodes, and the players of all rows."""

    def __init__(self, guard: Guarded, rows: list[dict]):
        self.guard = guard
        # as TRL does, pass a prompt, too
        self.rows = [{"prompt": [{"role": "user", "content": ""}]} | row for row in rows[:_ROWS]]
        self.players: dict[str, Player] = {}
        oracle = getattr(type(guard.factory()), "_oracle", None)
        if oracle:
            self.players["oracle"] = lambda question, schemas, luck: oracle(question)
        for name, (player, _) in (players.WINNING | players.PAYING).items():
            self.players[name] = player
        self.probed = range(len(self.rows))[:_PROBED_ROWS]
        self.environment = guard()  # for single answers

    def play(self, name: str, player: Player, count: int = _ROWS) -> list[PlayedEpisode]:
        """Play the first rows, one after another, in one instance."""
        environment = self.guard()
        return [
            self.play_row(name, player, at, environment) for at in range(len(self.rows))[:count]
        ]

    def play_row(
        self,
        name: str,
        player: Player,
        at: int,
        environment: Environment,
        beside: Environment | None = None,
    ) -> PlayedEpisode:
        """Play the episode of row `at`. A player that never ends is stopped after twice the turns.

        beside: another instance, in which the episode of another row begins during this one.
        """
        question = environment.reset(**self.rows[at])
        if beside is not None:
            beside.reset(**self.rows[at - 1])
        replies = [("reset", question, False)]
        # All players of a row draw the same random numbers, so that "loops for ever" begins with
        # the call of "answers at once". The text keeps the seed apart from an environment's.
        calls = player(question or "", self.guard.schemas, random.Random(f"luck {at}"))
        reply = None
        with suppress(StopIteration):
            for _ in range(2 * self.guard.turns + 2):
                tool, arguments = calls.send(reply)
                reply, failed = call_tool(environment, tool, arguments)
                replies.append((tool, reply, failed))
        reward = environment.get_reward()
        if self.guard.counts["dead"]:  # more episodes would take long, and find nothing else
            raise BrokenEnvironment(
                f"an episode of the player '{name}' died: {self.guard.fatal} Correct that first."
            )
        return PlayedEpisode(tuple(replies), reward)

    def answer(self, at: int, *answers: tuple[str, str]) -> PlayedEpisode:
        """Play an episode of row `at` with these answers, each (tool, text). A tool that takes a
        number gets the text's number, or 73 if the text is not a number.
        """
        calls = []
        for tool, text in answers:
            number = int(text) if re.fullmatch(r"-?\d{1,9}", text) else 73
            values = players.values_by_type(text, number, 1)
            calls.append((tool, players.arguments_of(self.guard.schemas[tool], values, 0)))
        return self.play_row(_TOLD, lambda *_: (call for call in calls), at, self.environment)


# --- The game, and lazy or cheating players -------------------------------------------------------


def _check_game(
    bench: _Bench, episodes: dict[str, list[PlayedEpisode]], earned: pd.Series
) -> list[Check]:
    """Check that the game can be won, that the tools work, and the scale of the rewards."""
    beyond = {}  # by player, a reward below 0 or above 1
    working = set()  # tools of which a call succeeded
    for name, of_player in episodes.items():
        for episode in of_player:
            working |= {tool for tool, _, failed in episode.replies if not failed}
            if not 0 <= episode.reward <= 1:
                beyond[name] = episode.reward
    faults = [fault for tool, fault in bench.guard.faults.items() if tool not in working]
    nothing = earned["does nothing"]
    trying = earned[["answers at once", "random"]].max()
    checks = [
        (
            "no tool fails",
            not faults or working > {"reset"},
            f"no call of any tool worked: {' '.join(faults)} Raise ToolError if it was the "
            "player who did something wrong.",
        ),
        (
            "rewards are of unit scale",
            not beyond,
            f"rewards beyond 0 and 1, by player: {beyond}. A full success is 1, and nothing is 0.",
        ),
        (
            "doing nothing earns less than trying",
            nothing < trying or nothing == 0,
            f"doing nothing earns {nothing:.2f} and a hasty try {trying:.2f}: GRPO would "
            "teach silence. Let an attempt that fails earn a little, 0.1 for example.",
        ),
    ]
    if "oracle" not in episodes:
        # without an oracle, the other players' episodes may be equal because they find out little
        return checks
    best = episodes["oracle"]
    last_reply = min(best, key=lambda episode: episode.reward).replies[-1][1]
    return [
        (
            "the oracle wins",
            earned["oracle"] >= _ORACLE_WINS,
            f"the oracle earns {earned['oracle']:.2f}, not 1: nobody can learn to win. "
            f"It was told last: {escaped(f'{last_reply!s:.200}')}",
        ),
        (
            "other rows give other episodes",
            len(set(best)) > 1 or len(bench.rows) == 1,
            "all rows give the same episode: `reset` does not use what it is given, and it "
            "could be learnt by heart.",
        ),
        *checks,
    ]


def _check_cheap_players(
    episodes: dict[str, list[PlayedEpisode]], earned: pd.Series, full: float
) -> list[Check]:
    """Check that lazy and cheating players do not win, and are not paid."""
    checks = []

    # if a hasty try is often right by chance, other players may be, too
    chance = earned["answers at once"] + 2 * _PAY * full
    for name, (_, advice) in players.WINNING.items():
        share = _WIN_BY_CHANCE if earned[name] <= chance else _WIN
        checks.append(
            (
                f"'{name}' does not win",
                earned[name] < share * full,
                f"'{name}' earns {earned[name]:.2f} where a full success is {full:.2f}: {advice}",
            )
        )

    honest = earned[["does nothing", "answers at once", "random", "answers nonsense"]].max()
    for name, (_, advice) in players.PAYING.items():
        checks.append(
            (
                f"'{name}' does not pay",
                earned[name] <= honest + _PAY * full,
                f"'{name}' earns {earned[name]:.2f}, and an honest try {honest:.2f}: {advice}",
            )
        )

    # a wildcard must earn no more than nonsense on the same rows
    wild = earned["answers a wildcard"]
    nonsense = _mean_reward(episodes["answers nonsense"][:_FEW_ROWS])
    checks.append(
        (
            "'answers a wildcard' does not win",
            wild - nonsense < _WIN * full,
            f"'answers a wildcard' earns {wild:.2f} where a full success is {full:.2f}: compare "
            "the answer as text, not as a pattern or a part of a query.",
        )
    )
    return checks


# --- Wrong answers, and parts of right ones -------------------------------------------------------


def _check_replies(bench: _Bench, full: float) -> Check:
    """Check that the reply to a wrong answer does not tell the right one.

    In each row's game, every part of every reply is given as the next answer. The check fails if a
    part in the same place wins in all games, such as the last word of "No, it was 7".
    """
    told = None
    for at in bench.probed:
        told = _telling_places(bench, at, full, told)
    return (
        f"'{_TOLD}' does not win",
        not told,
        "the reply to a wrong answer tells the right one, which wins when it is repeated: "
        "say that it is wrong, and no more.",
    )


def _telling_places(bench: _Bench, at: int, full: float, known: set | None) -> set[tuple]:
    """Return the places in the replies of row `at` whose text wins as the next answer: each the
    tool, the number of wrong answers before, and a key of `_parts`.

    known: the only places to try; None for all.
    """
    tries = max(1, min(_TRIES, bench.guard.turns - 1))
    places = set()
    for tool in bench.guard.schemas:
        wrong = (tool, _WRONG)
        if bench.answer(at, wrong).reward >= _WIN * full:  # any answer wins
            continue
        replies = bench.answer(at, *[wrong] * tries).replies[1:]
        for number, (_, reply, _) in enumerate(replies, start=1):
            for part, text in _parts(str(reply)).items():
                place = (tool, number, *part)
                if known is not None and place not in known:
                    continue
                if bench.answer(at, *[wrong] * number, (tool, text)).reward >= _WIN * full:
                    places.add(place)
    return places


def _parts(reply: str) -> dict[tuple, str]:
    """Return the parts of a reply by their place: the number of the phrase, and how many of its
    words are left out before and after the part. The whole reply has the place ().

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


def _check_many_answers(bench: _Bench, full: float) -> Check:
    """Check that many wrong answers earn no more than one, in episodes that they do not win."""
    single = bench.play("answers wrongly", partial(players.answers_wrongly, calls=1), _FEW_ROWS)
    many = bench.play("answers wrongly", partial(players.answers_wrongly, calls=1000), _FEW_ROWS)
    gains = [
        after.reward - before.reward
        for before, after in zip(single, many, strict=True)
        if after.reward < _WIN * full
    ]
    gain = min(gains, default=0.0)
    return (
        "wrong answers do not add up",
        gain <= _PAY_PER_TRY * full,
        f"many wrong answers earn {gain:.2f} more than one: pay for the first try, "
        "or for the best, not for each.",
    )


def _check_characters(bench: _Bench, full: float) -> list[Check]:
    """Check that one or two characters, perhaps a part of the right answer, do not win or pay."""

    def reward_of(at: int, text: str) -> float:
        return bench.answer(at, *[(tool, text) for tool in bench.guard.schemas]).reward

    winning = []  # for each row, the texts that win although nonsense does not
    paid = []  # for each row, the letters that earn more than nonsense and do not win
    for at in bench.probed:
        nonsense = reward_of(at, _WRONG)
        rewards = {text: reward_of(at, text) for text in _CHARACTERS}
        paid.append([])
        for text in string.ascii_lowercase:
            if nonsense + _PAY * full < rewards[text] < _WIN * full:
                paid[-1].append(text)

        # two characters: the first one wins by itself
        single = [text for text, reward in rewards.items() if reward >= _WIN * full]
        for first in single[:1]:
            rewards |= {first + second: reward_of(at, first + second) for second in _CHARACTERS}
        winning.append(
            [text for text, reward in rewards.items() if nonsense < _WIN * full <= reward]
        )
    count = sum(map(len, winning)) / len(winning)
    return [
        (
            "a part of an answer does not win",
            count < 1.5,  # one text, if the right answer is a letter
            f"a game is won by {count:.1f} different texts of one or two characters, such as "
            f"{', '.join(max(winning, key=len)[:3])}: compare the whole answer.",
        ),
        (
            "a letter does not pay",
            not all(paid),
            "in each game a single letter earns more than nonsense, such as "
            f"{paid[0][:1]}: pay for whole answers.",
        ),
    ]


# --- Repetition -----------------------------------------------------------------------------------


def _check_repetition(bench: _Bench, episodes: dict[str, list[PlayedEpisode]]) -> list[Check]:
    """Check that an episode depends on its row alone."""
    names = sorted({"oracle", "random"} & episodes.keys())
    first = [episodes[name] for name in names]

    # all rows again, in the same order
    again = [bench.play(name, bench.players[name]) for name in names]

    # all rows in reverse order, each in a new instance, while another row's episode begins
    alone = []
    for name in names:
        played = []
        for at in reversed(range(len(bench.rows))):
            player = bench.players[name]
            played.append(bench.play_row(name, player, at, bench.guard(), beside=bench.guard()))
        alone.append(played[::-1])
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
