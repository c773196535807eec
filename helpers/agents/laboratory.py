"""The laboratory for environments: scripted players play before a policy does, through the same
guarded tools.

    lab = Laboratory(Guarded(Guessing))
    lab.play()               # what each player earns, in how many calls and seconds
    lab.checks()             # what must hold of any environment, one after another
    print(lab.verdict())     # go or no go, and what to change

As notebook 02 attacks rewards, this attacks episodes: what a lazy or a cheating player earns here,
GRPO will teach.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pandas as pd

from helpers.agents import calculator, guessing, players, table
from helpers.agents.guard import BrokenEnvironment, Guarded
from helpers.agents.players import Player, View
from helpers.agents.protocol import Environment, called
from helpers.rewards.lab.verdicts import Verdict

_ROWS = 32
_WINS = 0.9  # of a full success
_HALF = 0.5  # of what the oracle earns
_SAME = 1e-9
ORACLE, RANDOM, NOTHING, AT_ONCE = "oracle", "random", "does nothing", "answers at once"
LOOPING, MALFORMED, NOT_TOOLS = "loops for ever", "malformed calls", "calls what is no tool"
# Of the suite's own environments, by name: the player that knows how to win, and the one that
# answers without having tried.
KNOWN: dict[str, tuple[Player, Player]] = {
    "Calculator": (calculator.calculating, calculator.calculating_at_once),
    "Guessing": (guessing.halving, guessing.guessing_at_once),
    "Table": (table.looking_up, table.looking_up_at_once),
}


class Played(NamedTuple):
    """An episode that was played.

    replies: what the player was told, the text of `reset` first, each with whether the call failed.
    """

    replies: tuple[tuple[str | None, bool], ...]
    reward: float


class Laboratory:
    """A guarded environment on the bench.

    rows: what `reset` is called with; the first 32 are played, without them seeds 0 to 31.
    oracle, at_once: players of the environment, as in `guessing.py`; those of the suite's own
    environments are known. ValueError if one is missing. The environment must judge itself
    (`get_reward`). An episode that dies ends all with BrokenEnvironment.
    """

    def __init__(
        self,
        guard: Guarded,
        rows: list[dict] | None = None,
        oracle: Player | None = None,
        at_once: Player | None = None,
    ):
        known = KNOWN.get(guard.__name__, (None, None))
        oracle, at_once = oracle or known[0], at_once or known[1]
        if oracle is None or at_once is None:
            raise ValueError(
                f"{guard.__name__} needs an `oracle` and an `at_once`: players of its own, written "
                "as in helpers/agents/guessing.py."
            )
        rows = [{"seed": seed} for seed in range(_ROWS)] if rows is None else rows
        prompt = {"prompt": [{"role": "user", "content": ""}]}  # TRL passes it, too
        self.guard, self.rows = guard, [prompt | row for row in rows[:_ROWS]]
        self.died_before, self.faults_before = guard.counts["dead"], len(guard.faults)
        self.players = {
            ORACLE: oracle,
            AT_ONCE: at_once,
            RANDOM: players.at_random,
            NOTHING: players.nothing,
            LOOPING: players.looping,
            MALFORMED: players.malformed,
            NOT_TOOLS: players.not_tools,
        }
        self.episodes: dict[str, list[Played]] = {}
        self.found: pd.DataFrame | None = None

    def turns(
        self, player: str, at: int, environment: Environment
    ) -> Iterator[tuple[str | None, bool]]:
        """An episode of a row, call by call: what the player is told, the text of `reset` first,
        and whether the call failed. A player that never ends gets twice the turns.
        """
        observation = environment.reset(**self.rows[at])
        self._stop_if_dead()
        yield observation, False
        view = View(observation or "", self.guard.schemas, random.Random(f"{player} {at}"))
        calls, reply = self.players[player](view), None
        for _ in range(2 * self.guard.turns + 2):
            try:
                name, arguments = calls.send(reply)
            except StopIteration:
                return
            reply, failed = called(environment, name, arguments)
            self._stop_if_dead()
            yield reply, failed

    def played(self, replies: Iterator[tuple[str | None, bool]], environment) -> Played:
        """The episode once it is at its end, with what it earned."""
        replies = tuple(replies)
        reward = environment.get_reward()
        self._stop_if_dead()
        return Played(replies, reward)

    def _stop_if_dead(self) -> None:
        """The rest of the programme would take long, and say no more."""
        if self.guard.counts["dead"] > self.died_before:
            raise BrokenEnvironment(f"an episode died: {self.guard.fatal}. Mend that first.")

    def play(self) -> pd.DataFrame:
        """What each player earns: a row a player, with the mean reward, the calls of an episode,
        the share that failed, and the seconds of an episode.
        """
        summary = {}
        for name in self.players:
            environment, rows = self.guard(), range(len(self.rows))
            began = time.perf_counter()
            played = [self.played(self.turns(name, at, environment), environment) for at in rows]
            seconds = time.perf_counter() - began
            self.episodes[name] = played
            calls = sum(len(episode.replies) - 1 for episode in played)
            failed = sum(failed for episode in played for _, failed in episode.replies)
            summary[name] = {
                "reward": self.earned(name),
                "calls": calls / len(played),
                "failed": failed / max(1, calls),
                "seconds": seconds / len(played),
            }
        return pd.DataFrame(summary).T

    def earned(self, player: str) -> float:
        """A player's mean reward."""
        played = self.episodes[player]
        return sum(episode.reward for episode in played) / len(played)

    def checks(self) -> pd.DataFrame:
        """What must hold of any environment: a row a check, with whether it does (`holds`) and what
        was `found` if not.
        """
        if not self.episodes:
            self.play()
        if self.found is None:
            said = [check(self) or "" for check in CHECKS.values()]
            holds = [sentence == "" for sentence in said]
            self.found = pd.DataFrame({"holds": holds, "found": said}, index=list(CHECKS))
        return self.found

    def verdict(self) -> Verdict:
        """Go or no go, with the reasons, from all checks."""
        found, turns = self.checks(), self.guard.turns
        note = (
            f"after {turns} calls the tools refuse, but TRL goes on until "
            "`max_completion_length` is full: set "
            f"GRPOConfig(max_tool_calling_iterations={turns}), too."
        )
        return Verdict(list(found["found"][~found["holds"]]), [note])


# Each takes the laboratory and says what is wrong, with what to change, or nothing.


def _no_faults(lab: Laboratory) -> str | None:
    faults = lab.guard.faults[lab.faults_before :]
    if not faults:
        return None
    return (
        f"{len(faults)} calls went wrong, such as {faults[0]}. Raise ToolError if it was the "
        "player who did something wrong."
    )


def _oracle_wins(lab: Laboratory) -> str | None:
    if lab.earned(ORACLE) >= _WINS:
        return None
    lost = next(episode for episode in lab.episodes[ORACLE] if episode.reward < _WINS)
    return (
        f"the oracle earns {lab.earned(ORACLE):.2f}, not 1: nobody can learn to win. It was told "
        f"last: {lost.replies[-1][0]!s:.200}"
    )


def _below_half(player: str, why: str) -> Callable[[Laboratory], str | None]:
    def check(lab: Laboratory) -> str | None:
        earned, oracle = lab.earned(player), lab.earned(ORACLE)
        if earned < _HALF * oracle:
            return None
        return f"'{player}' earns {earned:.2f} where the oracle earns {oracle:.2f}: {why}"

    return check


def _trying_pays(lab: Laboratory) -> str | None:
    nothing, trying = lab.earned(NOTHING), lab.earned(AT_ONCE)
    if nothing < trying - _SAME:
        return None
    return (
        f"doing nothing earns {nothing:.2f} and a hasty try {trying:.2f}: GRPO would teach "
        "silence. Let an attempt that fails earn a little, 0.1 for example."
    )


def _looping_does_not_pay(lab: Laboratory) -> str | None:
    looping, trying = lab.earned(LOOPING), lab.earned(AT_ONCE)
    if looping <= trying + _SAME:
        return None
    return f"'{LOOPING}' earns {looping:.2f}, and '{AT_ONCE}' {trying:.2f}: GRPO would teach that."


def _unit_scale(lab: Laboratory) -> str | None:
    for name, played in lab.episodes.items():
        for episode in played:
            if not 0 <= episode.reward <= 1:
                return (
                    f"'{name}' was given the reward {episode.reward}: a full success is 1, and "
                    "nothing is 0."
                )
    return None


def _rows_differ(lab: Laboratory) -> str | None:
    if len(set(lab.episodes[ORACLE])) > 1 or len(lab.rows) == 1:
        return None
    return (
        "all rows give the same episode: `reset` does not use what it is given, and it could "
        "be learnt by heart."
    )


def _alone(lab: Laboratory) -> list[Played]:
    """All rows played by two players, one after another, each in a new instance."""
    found = []
    for player in (ORACLE, RANDOM):
        for at in range(len(lab.rows)):
            environment = lab.guard()
            found.append(lab.played(lab.turns(player, at, environment), environment))
    return found


def _repeatable(lab: Laboratory) -> str | None:
    if _alone(lab) == _alone(lab):
        return None
    return (
        "the same row gives different episodes: draw all that is random from `seed`, or the "
        "members of a group start apart."
    )


def _independent(lab: Laboratory) -> str | None:
    environments, going = [], []
    for player in (ORACLE, RANDOM):
        for at in range(len(lab.rows)):
            environment = lab.guard()
            another = lab.turns(RANDOM, at - 1, environment)
            next(another)
            next(another, None)  # it is left after its first call
            environments.append(environment)
            going.append(lab.turns(player, at, environment))
    rounds = itertools.zip_longest(*going)  # a call of each in turn
    told = ([reply for reply in replies if reply] for replies in zip(*rounds, strict=True))
    together = [lab.played(*one) for one in zip(told, environments, strict=True)]
    if together == _alone(lab):
        return None
    return (
        "an episode depends on the one before it, or on those beside it. TRL uses an instance "
        "again and again, and many at once: let `reset` set everything, and keep all state in the "
        "instance, not in the class or the module."
    )


CHECKS: dict[str, Callable[[Laboratory], str | None]] = {
    "no tool fails": _no_faults,
    "rewards are of unit scale": _unit_scale,
    "the oracle wins": _oracle_wins,
    "random does not win": _below_half(RANDOM, "chance wins. Ask for more."),
    "answering at once does not win": _below_half(
        AT_ONCE, "there is nothing to learn from several turns. Ask for more."
    ),
    "doing nothing earns less than trying": _trying_pays,
    "looping does not pay": _looping_does_not_pay,
    "other rows give other episodes": _rows_differ,
    "the same seed gives the same episode": _repeatable,
    "episodes do not touch one another": _independent,
}
