"""The laboratory for environments: scripted players play before a policy does, through the same
guarded tools.

    lab = Laboratory(Guarded(Guessing))
    lab.play()               # what each player earns, in how many calls and seconds
    lab.checks()             # what must hold of any environment, one after another
    print(lab.verdict())     # go or no go, and what to change

As notebook 02 attacks rewards, this attacks episodes: what a lazy or a cheating player earns here,
GRPO will teach.
"""

import itertools
import random
import time
from typing import NamedTuple

import pandas as pd

from helpers.agents import guessing, players
from helpers.agents.guard import BrokenEnvironment, Guarded
from helpers.agents.players import Player, View
from helpers.agents.protocol import Environment, called
from helpers.rewards.lab.verdicts import Verdict

_ROWS = 32
_WINS = 0.9  # of a full success
_HALF = 0.5  # of what the oracle earns
_SAME = 1e-9
ORACLE, RANDOM, NOTHING, AT_ONCE = "oracle", "random", "does nothing", "answers at once"
LOOPING = "loops for ever"
# By the name of an environment of the suite: the player that knows how to win, and the one that
# answers without having tried.
KNOWN: dict[str, tuple[Player, Player]] = {
    "Guessing": (guessing.halving, guessing.guessing_at_once),
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
    oracle, at_once: players of the environment, as in `guessing.py`; those of `Guessing` are known.
    ValueError if one is missing. The environment must judge itself
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
        self.players = {
            ORACLE: oracle,
            AT_ONCE: at_once,
            RANDOM: players.at_random,
            NOTHING: players.nothing,
            LOOPING: players.looping,
        }
        self.episodes: dict[str, list[Played]] = {}
        self.found: pd.DataFrame | None = None

    def episode(
        self, player: str, at: int, environment: Environment, beside: Environment | None = None
    ) -> Played:
        """An episode of a row. A player that never ends gets twice the turns.

        beside: another instance, in which the hasty player plays the row before as soon as this
        episode has begun.
        """
        replies = [(environment.reset(**self.rows[at]), False)]
        self._stop_if_dead()
        if beside is not None:
            self.episode(AT_ONCE, at - 1, beside)
        view = View(replies[0][0] or "", self.guard.schemas, random.Random(f"{player} {at}"))
        calls, reply = self.players[player](view), None
        for _ in range(2 * self.guard.turns + 2):
            try:
                name, arguments = calls.send(reply)
            except StopIteration:
                break
            reply, failed = called(environment, name, arguments)
            self._stop_if_dead()
            replies.append((reply, failed))
        reward = environment.get_reward()
        self._stop_if_dead()
        return Played(tuple(replies), reward)

    def _stop_if_dead(self) -> None:
        """The rest of the programme would take long, and say no more."""
        if self.guard.counts["dead"]:
            raise BrokenEnvironment(f"an episode died: {self.guard.fatal}. Mend that first.")

    def play(self) -> pd.DataFrame:
        """What each player earns: a row a player, with the mean reward, the calls of an episode,
        the share that failed, and the seconds of an episode.
        """
        summary = {}
        for name in self.players:
            environment = self.guard()
            began = time.perf_counter()
            played = [self.episode(name, at, environment) for at in range(len(self.rows))]
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
        was `found` if not, with what to change.
        """
        if self.found is None:
            if not self.episodes:
                self.play()
            checks = self._of_what_was_earned() + self._of_what_was_repeated()
            table = pd.DataFrame(checks, columns=["check", "holds", "found"]).set_index("check")
            self.found = table.assign(found=table["found"].mask(table["holds"], ""))
        return self.found

    def _of_what_was_earned(self) -> list[tuple[str, bool, str]]:
        """What the players earned and met: each check with whether it holds, and what is said if it
        does not.
        """
        earned = {player: self.earned(player) for player in self.players}
        oracle, trying, chance = earned[ORACLE], earned[AT_ONCE], earned[RANDOM]
        nothing, looping = earned[NOTHING], earned[LOOPING]
        faults = list(itertools.chain.from_iterable(self.guard.faults.values()))
        beyond = {
            player: episode.reward
            for player, played in self.episodes.items()
            for episode in played
            if not 0 <= episode.reward <= 1
        }
        worst = min(self.episodes[ORACLE], key=lambda episode: episode.reward)
        return [
            (
                "no tool fails",
                not faults,
                f"{len(faults)} calls went wrong, such as {faults[:1]}. Raise ToolError if "
                "it was the player who did something wrong.",
            ),
            (
                "rewards are of unit scale",
                not beyond,
                f"rewards beyond 0 and 1, by player: {beyond}. A full success is 1, and nothing "
                "is 0.",
            ),
            (
                "the oracle wins",
                oracle >= _WINS,
                f"the oracle earns {oracle:.2f}, not 1: nobody can learn to win. It was told last: "
                f"{worst.replies[-1][0]!s:.200}",
            ),
            (
                "random does not win",
                chance < _HALF * oracle,
                f"'{RANDOM}' earns {chance:.2f} where the oracle earns {oracle:.2f}: chance wins. "
                "Ask for more.",
            ),
            (
                "answering at once does not win",
                trying < _HALF * oracle,
                f"'{AT_ONCE}' earns {trying:.2f} where the oracle earns {oracle:.2f}: there is "
                "nothing to learn from several turns. Ask for more.",
            ),
            (
                "doing nothing earns less than trying",
                nothing < trying - _SAME,
                f"doing nothing earns {nothing:.2f} and a hasty try {trying:.2f}: GRPO would "
                "teach silence. Let an attempt that fails earn a little, 0.1 for example.",
            ),
            (
                "looping does not pay",
                looping <= trying + _SAME,
                f"'{LOOPING}' earns {looping:.2f}, and '{AT_ONCE}' {trying:.2f}: GRPO would teach "
                "the loop.",
            ),
        ]

    def _of_what_was_repeated(self) -> list[tuple[str, bool, str]]:
        """Whether the row and its seed decide an episode, and nothing else."""
        alone = self._played_again()
        return [
            (
                "other rows give other episodes",
                len(set(self.episodes[ORACLE])) > 1 or len(self.rows) == 1,
                "all rows give the same episode: `reset` does not use what it is given, and it "
                "could be learnt by heart.",
            ),
            (
                "the same seed gives the same episode",
                alone == self._played_again(),
                "the same row gives different episodes: draw all that is random from `seed`, or "
                "the members of a group start apart.",
            ),
            (
                "episodes do not touch one another",
                alone == self._played_again(disturbed=True),
                "an episode depends on the one before it, or on those beside it. TRL uses an "
                "instance again and again, and many at once: let `reset` set everything, and keep "
                "all state in the instance, not in the class or the module.",
            ),
        ]

    def _played_again(self, disturbed: bool = False) -> list[Played]:
        """All rows played by two players, each in a new instance. Disturbed, that instance has
        another episode behind it, left after its first call, and another instance plays beside it.
        """
        found = []
        for player, at in itertools.product((ORACLE, RANDOM), range(len(self.rows))):
            environment = self.guard()
            if disturbed:
                self.episode(AT_ONCE, at - 1, environment)
            found.append(self.episode(player, at, environment, self.guard() if disturbed else None))
        return found

    def verdict(self) -> Verdict:
        """Go or no go, with the reasons, from all checks."""
        found, turns = self.checks()["found"], self.guard.turns
        note = (
            f"after {turns} calls the tools refuse, but TRL goes on until "
            "`max_completion_length` is full: set "
            f"GRPOConfig(max_tool_calling_iterations={turns}), too."
        )
        return Verdict([sentence for sentence in found if sentence], [note])
