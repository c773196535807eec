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

import inspect
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pandas as pd

from helpers.agents import players
from helpers.agents.guarded import BrokenEnvironment, Guarded
from helpers.agents.players import Player, View
from helpers.agents.protocol import check_environment, tools_of
from helpers.rewards.lab.verdicts import Verdict

_ROWS = 32
_WINS = 0.9  # of a full success
_HALF = 0.5  # of what the oracle earns
_SAME = 1e-9
_DEAD = 3  # episodes, after which there is nothing to be learnt by waiting for more
_SLOW = 0.1  # seconds an episode
ORACLE, RANDOM, NOTHING, AT_ONCE = "oracle", "random", "does nothing", "answers at once"
LOOPING, MALFORMED, NOT_TOOLS = "loops for ever", "malformed calls", "calls what is no tool"


class _Sick(Exception):
    """Episodes die; the rest of the programme would take hours and say no more."""


@dataclass
class Episode:
    """One that was or is being played.

    `replies`: what the player was told, with whether the call failed.
    """

    environment: object
    row: dict
    schemas: dict[str, dict]
    player: Player
    seed: str
    limit: int
    observation: str | None = None
    replies: list[tuple[str, bool]] = field(default_factory=list)
    seconds: float = 0.0

    def begin(self) -> Episode:
        """Reset the environment and seat the player."""
        began = time.perf_counter()
        self.observation = self.environment.reset(**self.row)
        self.seconds = time.perf_counter() - began
        view = View(self.observation or "", self.schemas, random.Random(self.seed))
        self._calls, self._last = self.player(view), None
        return self

    def turn(self) -> bool:
        """One call; False once the player has ended, or has made as many calls as it may."""
        if len(self.replies) >= self.limit:
            return False
        try:
            name, arguments = self._calls.send(self._last)
        except StopIteration:
            return False
        except Exception as error:  # a player that cannot read a reply has lost
            self.replies.append((f"the player gave up: {type(error).__name__}: {error}", True))
            return False
        began = time.perf_counter()
        self.replies.append(called(self.environment, name, arguments))
        self.seconds += time.perf_counter() - began
        self._last = self.replies[-1][0]
        return True

    def played(self) -> Episode:
        """Play to the end."""
        while self.turn():
            pass
        return self

    def outcome(self) -> tuple:
        """All that must be the same where the episode is the same."""
        return self.observation, tuple(self.replies), self.environment.get_reward()


def called(environment: object, name: str, arguments: object) -> tuple[str, bool]:
    """One call as TRL makes it (grpo_trainer.py 1918 to 1929, 1957): the reply, and
    whether it failed.
    """
    tools = {tool: getattr(environment, tool) for tool in tools_of(type(environment))}
    try:
        if name not in tools:
            raise ValueError(f"Tool {name} not found.")
        return str(tools[name](**arguments)), False
    except Exception as error:
        return str({"error": str(error)}), True


class Laboratory:
    """A guarded environment on the bench.

    rows: what `reset` is called with, a DataFrame or dictionaries, the first 32 are played; without
    them seeds 0 to 31.
    oracle, at_once: see `players`; those of the suite's own environments are known. ValueError
    where one is missing, or where the environment does not judge itself (`get_reward`).
    """

    def __init__(
        self,
        guard: Guarded,
        rows: pd.DataFrame | list[dict] | None = None,
        oracle: Player | None = None,
        at_once: Player | None = None,
    ):
        oracle, at_once = (
            oracle or players.ORACLES.get(guard.__name__),
            at_once or players.AT_ONCE.get(guard.__name__),
        )
        if oracle is None or at_once is None:
            missing = "oracle" if oracle is None else "at_once"
            raise ValueError(
                f"{guard.__name__} needs `{missing}`: a player of its own, written as those in "
                "environments/players.py."
            )
        if not inspect.isfunction(getattr(guard.kind, "get_reward", None)):
            raise ValueError(
                f"{guard.__name__} has no `get_reward`: the laboratory asks it what an episode "
                "earned."
            )
        rows = rows.to_dict("records") if isinstance(rows, pd.DataFrame) else rows
        rows = [{"seed": seed} for seed in range(_ROWS)] if rows is None else rows
        if not rows:
            raise ValueError("the laboratory needs at least one row.")
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
        self.episodes: dict[str, list[tuple[Episode, float | None]]] = {}
        self.found: pd.DataFrame | None = None
        self.sick = ""

    # --- Playing ---

    def _seated(self, player: str, at: int, environment: object = None) -> Episode:
        """An episode about to begin, in a new instance unless one is given; a player that never
        ends gets twice the turns.
        """
        if self.guard.counts["dead"] - self.died_before >= _DEAD:
            raise _Sick
        chosen, seed = self.players[player], f"{player} {at}"
        limit = 2 * self.guard.turns + 2
        return Episode(
            environment or self.guard(), self.rows[at], self.guard.schemas, chosen, seed, limit
        ).begin()

    def _outcomes(self, player: str, order: list[int]) -> list[tuple]:
        """The outcomes by row, all played in one instance, in this order."""
        environment, found = self.guard(), {}
        for at in order:
            found[at] = self._seated(player, at, environment).played().outcome()
        return [found[at] for at in range(len(self.rows))]

    def play(self) -> pd.DataFrame:
        """What each player earns: a row a player, with the mean reward, the calls of an episode,
        the share that failed, and the seconds of an episode.
        """
        try:
            for name in self.players:
                environment, played = self.guard(), []
                for at in range(len(self.rows)):
                    episode = self._seated(name, at, environment).played()
                    played.append((episode, environment.get_reward()))
                self.episodes[name] = played
        except (_Sick, BrokenEnvironment) as error:
            self.sick = str(error) or f"{_DEAD} episodes died: {self.guard.faults[-1]}."
        return pd.DataFrame(
            {name: self._summary(played) for name, played in self.episodes.items()}
        ).T

    def _summary(self, played: list) -> dict:
        calls = [len(episode.replies) for episode, _ in played]
        failed = sum(failed for episode, _ in played for _, failed in episode.replies)
        return {
            "reward": self._mean(played),
            "calls": sum(calls) / len(calls),
            "failed": failed / max(1, sum(calls)),
            "seconds": sum(episode.seconds for episode, _ in played) / len(played),
        }

    @staticmethod
    def _mean(played: list) -> float:
        return sum(reward or 0.0 for _, reward in played) / len(played)

    def earned(self, player: str) -> float:
        """A player's mean reward."""
        return self._mean(self.episodes[player])

    # --- Checks ---

    def checks(self) -> pd.DataFrame:
        """What must hold of any environment: a row a check, with whether it does (`holds`) and what
        was `found` where not.
        """
        if not self.episodes and not self.sick:
            self.play()
        found = {}
        for check, sentence in CHECKS.items() if not self.sick else ():
            try:
                said = sentence(self)
            except (_Sick, BrokenEnvironment) as error:
                self.sick = str(error) or f"{_DEAD} episodes died: {self.guard.faults[-1]}."
                break
            found[check] = {"holds": said is None, "found": said or ""}
        self.found = pd.DataFrame.from_dict(found, orient="index", columns=["holds", "found"])
        return self.found

    def verdict(self) -> Verdict:
        """Go or no go, with the reasons, from all checks."""
        table = self.checks() if self.found is None else self.found
        verdict = Verdict(
            [f"{self.sick} Mend that first: the other checks were not done."] if self.sick else []
        )
        verdict.stops += list(table["found"][~table["holds"].astype(bool)])
        if not self.sick:
            slowest = max(
                self.episodes, key=lambda name: self._summary(self.episodes[name])["seconds"]
            )
            seconds = self._summary(self.episodes[slowest])["seconds"]
            if seconds > _SLOW:
                verdict.notes.append(
                    f"an episode takes {seconds:.2f} s in the tools alone ('{slowest}'); TRL runs "
                    "them one by one."
                )
            verdict.notes.append(
                f"after {self.guard.turns} calls the tools refuse, but TRL goes on until "
                "`max_completion_length` is full: set "
                f"GRPOConfig(max_tool_calling_iterations={self.guard.turns}), too."
            )
        return verdict

    def report(self) -> dict:
        """Everything as JSON: `players`, `checks` and the `verdict`."""
        verdict = self.verdict()
        return {
            "environment": self.guard.__name__,
            "players": {name: self._summary(played) for name, played in self.episodes.items()},
            "checks": {name: bool(holds) for name, holds in self.found["holds"].items()},
            "verdict": {"go": verdict.go, "stops": verdict.stops, "notes": verdict.notes},
        }


# Each takes the laboratory and says what is wrong, with what to change, or nothing.


def _usable(lab: Laboratory) -> str | None:
    return " ".join(check_environment(lab.guard.factory, lab.rows[0])) or None


def _oracle_wins(lab: Laboratory) -> str | None:
    if lab.earned(ORACLE) >= _WINS:
        return None
    lost = next(episode for episode, reward in lab.episodes[ORACLE] if (reward or 0.0) < _WINS)
    last = lost.replies[-1][0] if lost.replies else "nothing"
    return (
        f"the oracle earns {lab.earned(ORACLE):.2f}, not 1: nobody can learn to win. It was "
        f"told last: {last:.200}"
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
        "silence. Let an attempt that fails "
        "earn a little, 0.1 for example."
    )


def _looping_ends(lab: Laboratory) -> str | None:
    late = [
        reply
        for episode, _ in lab.episodes[LOOPING]
        for reply in episode.replies[lab.guard.turns :]
    ]
    return (
        None
        if late and all(failed for _, failed in late)
        else "an endless loop is still answered after the last turn."
    )


def _earns_no_more(player: str, than: str) -> Callable[[Laboratory], str | None]:
    def check(lab: Laboratory) -> str | None:
        earned, bar = lab.earned(player), lab.earned(than)
        if earned <= bar + _SAME:
            return None
        return f"'{player}' earns {earned:.2f}, and '{than}' {bar:.2f}: GRPO would teach that."

    return check


def _all_fail(player: str) -> Callable[[Laboratory], str | None]:
    def check(lab: Laboratory) -> str | None:
        through = [
            reply
            for episode, _ in lab.episodes[player]
            for reply, failed in episode.replies
            if not failed
        ]
        return (
            f"'{player}': {len(through)} calls were answered, such as with {through[0]!r:.100}."
            if through
            else None
        )

    return check


def _repeatable(lab: Laboratory) -> str | None:
    everyone = range(len(lab.rows))
    once, again = (
        [lab._seated(RANDOM, at).played().outcome() for at in everyone] for _ in range(2)
    )
    if once == again:
        return None
    return (
        "the same row gives different episodes: draw all that is random from `seed`, or the "
        "members of a group start apart."
    )


def _rows_differ(lab: Laboratory) -> str | None:
    outcomes = lab._outcomes(ORACLE, list(range(len(lab.rows))))
    if len(set(outcomes)) > 1 or len(outcomes) == 1:
        return None
    return (
        "all rows give the same episode: `reset` does not use what it is given, and it could "
        "be learnt by heart."
    )


def _order_is_free(lab: Laboratory) -> str | None:
    forward = list(range(len(lab.rows)))
    if all(
        lab._outcomes(player, forward) == lab._outcomes(player, forward[::-1])
        for player in (ORACLE, RANDOM)
    ):
        return None
    return (
        "an episode depends on the one before it: let `reset` set everything, and keep nothing "
        "in the class or the module."
    )


def _side_by_side(lab: Laboratory) -> str | None:
    seats = [(player, at) for at in range(len(lab.rows)) for player in (ORACLE, RANDOM)]
    alone = [lab._seated(*seat).played().outcome() for seat in seats]
    going = together = [lab._seated(*seat) for seat in seats]
    while going:
        going = [episode for episode in going if episode.turn()]
    if [episode.outcome() for episode in together] == alone:
        return None
    return (
        "episodes at the same time change one another: keep their state in the instance, not "
        "in the class or the module."
    )


def _as_new(lab: Laboratory) -> str | None:
    used, last = lab.guard(), len(lab.rows) - 1
    for leaving in (lab._seated(ORACLE, last, used).played(), lab._seated(RANDOM, last, used)):
        leaving.turn()  # the second one is left in the middle
    if lab._seated(ORACLE, 0, used).played().outcome() == lab._seated(ORACLE, 0).played().outcome():
        return None
    return (
        "an instance that was used before plays differently from a new one: TRL reuses them, "
        "so let `reset` set everything."
    )


def _asking_is_free(lab: Laboratory) -> str | None:
    for at in range(len(lab.rows)):
        episode = lab._seated(ORACLE, at)
        while episode.turn():
            episode.environment.get_reward()
        if episode.outcome() != lab._seated(ORACLE, at).played().outcome():
            return "asking for the reward changes the episode: let `get_reward` only read."
    return None


def _settled(lab: Laboratory) -> str | None:
    for at in range(len(lab.rows)):
        environment = lab.guard()
        won = lab._seated(ORACLE, at, environment).played().outcome()[-1]
        view = View("", lab.guard.schemas, random.Random(at))
        for _, (name, arguments) in zip(
            range(lab.guard.turns), players.at_random(view), strict=False
        ):
            called(environment, name, arguments)
        if (after := environment.get_reward()) != won:
            return (
                f"calls after the end change the reward from {won} to {after}: let only the "
                "first answer count."
            )
    return None


def _unit_scale(lab: Laboratory) -> str | None:
    for name, played in lab.episodes.items():
        for _, reward in played:
            if reward is None or not 0 <= reward <= 1:
                return (
                    f"'{name}' was given the reward {reward}: a full success is 1, nothing is "
                    "0, and every episode has one."
                )
    return None


def _no_faults(lab: Laboratory) -> str | None:
    faults = lab.guard.faults[lab.faults_before :]
    if not faults:
        return None
    return (
        f"{len(faults)} calls went wrong, such as {faults[0]}. Raise ToolError where it was "
        "the player who did something wrong."
    )


CHECKS: dict[str, Callable[[Laboratory], str | None]] = {
    "TRL can use it": _usable,
    "no tool fails": _no_faults,
    "the oracle wins": _oracle_wins,
    "random does not win": _below_half(RANDOM, "chance wins. Ask for more."),
    "answering at once does not win": _below_half(
        AT_ONCE, "there is nothing to learn from several turns. Ask for more."
    ),
    "doing nothing earns less than trying": _trying_pays,
    "looping ends": _looping_ends,
    "looping does not pay": _earns_no_more(LOOPING, AT_ONCE),
    "malformed calls fail": _all_fail(MALFORMED),
    "malformed calls do not pay": _earns_no_more(MALFORMED, NOTHING),
    "what is no tool cannot be called": _all_fail(NOT_TOOLS),
    "cheating does not pay": _earns_no_more(NOT_TOOLS, NOTHING),
    "the same seed gives the same episode": _repeatable,
    "other rows give other episodes": _rows_differ,
    "the order of episodes does not matter": _order_is_free,
    "episodes side by side do not touch": _side_by_side,
    "an instance that was reset is as a new one": _as_new,
    "asking for the reward changes nothing": _asking_is_free,
    "what is decided stays decided": _settled,
    "rewards are of unit scale": _unit_scale,
}
