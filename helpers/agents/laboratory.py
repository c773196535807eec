"""The laboratory for environments: scripted players play before a policy does, through the same
guarded tools.

    lab = Laboratory(Guarded(Guessing))
    lab.played      # what each player earns, and in how many calls
    lab.checks      # what must hold of any environment, one after another
    lab.verdict     # go or no go, and what to change

As notebook 02 attacks rewards, this attacks episodes: what a lazy or a cheating player earns here,
GRPO will teach.
"""

import itertools
import random
from typing import NamedTuple

import pandas as pd

from helpers.agents import players
from helpers.agents.guard import BrokenEnvironment, Guarded
from helpers.agents.protocol import Environment, called
from helpers.rewards.lab.verdicts import Verdict

_ROWS = 32
_WINS = 0.9  # of a full success
_HALF = 0.5  # of what the oracle earns
_MORE = 0.1  # of the same, beyond an honest try
ORACLE, RANDOM, NOTHING, AT_ONCE = "oracle", "random", "does nothing", "answers at once"
# The cheap players, each with what is wrong with a game that it wins,
_WINNING = {
    RANDOM: (players.at_random, "chance wins. Ask for more."),
    AT_ONCE: (players.at_once, "there is nothing to learn from several turns. Ask for more."),
    "loops for ever": (players.looping, "GRPO would teach the loop."),
    "lists all candidates": (players.all_in_one, "compare the whole answer, not a part of it."),
    "tries all candidates": (players.one_by_one, "let the first answer count, or ask for more."),
}
# and those that must earn no more than an honest try.
_PAYING = {
    "answers blank": (players.blank, 'refuse a blank; in Python, `"" in value` is true.'),
    "answers at length": (players.at_length, "length must not pay."),
    "answers nan": (players.not_a_number, "refuse what is no number: NaN passes comparisons."),
}


class Played(NamedTuple):
    """An episode that was played.

    replies: what was called, what the player was told, and whether the call failed; `reset` first.
    """

    replies: tuple[tuple[str, str | None, bool], ...]
    reward: float


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
        # TRL passes a prompt, too
        rows = [{"prompt": [{"role": "user", "content": ""}]} | row for row in rows[:_ROWS]]
        self.guard, self.rows = guard, rows
        oracle = getattr(type(guard.factory()), "_oracle", None)
        self.players = {ORACLE: lambda asked, *_: oracle(asked)} if oracle else {}
        self.players |= {name: player for name, (player, _) in (_WINNING | _PAYING).items()}
        self.players[NOTHING] = players.nothing
        self.episodes = {name: self._episodes(name) for name in self.players}
        self.played = pd.DataFrame(
            {name: _summary(played) for name, played in self.episodes.items()}
        ).T
        checks = self._of_what_was_earned() + self._of_what_was_repeated()
        table = pd.DataFrame(checks, columns=["check", "holds", "found"]).set_index("check")
        self.checks = table.assign(found=table["found"].mask(table["holds"], ""))
        self.verdict = self._verdict()

    def _episodes(self, player: str) -> list[Played]:
        """An episode of each row, one after another in one instance."""
        environment = self.guard()
        return [self.episode(player, at, environment) for at in range(len(self.rows))]

    def episode(
        self, player: str, at: int, environment: Environment, beside: Environment | None = None
    ) -> Played:
        """An episode of a row. A player that never ends gets twice the turns.

        beside: another instance, in which the hasty player plays the row before as soon as this
        episode has begun.
        """
        replies = [("reset", environment.reset(**self.rows[at]), False)]
        if beside is not None:
            self.episode(AT_ONCE, at - 1, beside)
        # the same luck for all players, so that the one that loops begins as the hasty one does
        known = replies[0][1] or "", self.guard.schemas, random.Random(at)
        calls, reply = self.players[player](*known), None
        for _ in range(2 * self.guard.turns + 2):
            try:
                name, arguments = calls.send(reply)
            except StopIteration:
                break
            reply, failed = called(environment, name, arguments)
            replies.append((name, reply, failed))
        reward = environment.get_reward()
        if self.guard.counts["dead"]:  # the rest would take long, and say no more
            raise BrokenEnvironment(
                f"an episode of the player '{player}' died: {self.guard.fatal} Correct that first."
            )
        return Played(tuple(replies), reward)

    def _of_what_was_earned(self) -> list[tuple[str, bool, str]]:
        """What the players earned and met: each check with whether it holds, and what is said if it
        does not.
        """
        earned, full = self.played["reward"], self.played["reward"].get(ORACLE, 1.0)
        nothing, trying = earned[NOTHING], max(earned[AT_ONCE], earned[RANDOM])
        episodes = [(name, each) for name, played in self.episodes.items() for each in played]
        beyond = {name: each.reward for name, each in episodes if not 0 <= each.reward <= 1}
        worked = {tool for _, each in episodes for tool, _, failed in each.replies if not failed}
        broken = [fault for tool, fault in self.guard.faults.items() if tool not in worked]
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
        if ORACLE in self.players:
            worst = min(self.episodes[ORACLE], key=lambda episode: episode.reward)
            found = (
                f"the oracle earns {full:.2f}, not 1: nobody can learn to win. It was told last: "
                f"{worst.replies[-1][1]!s:.200}"
            )
            checks.append(("the oracle wins", full >= _WINS, found))
        for player, (_, why) in _WINNING.items():
            found = (
                f"'{player}' earns {earned[player]:.2f} where a full success is {full:.2f}: {why}"
            )
            checks.append((f"'{player}' does not win", earned[player] < _HALF * full, found))
        for player, (_, why) in _PAYING.items():
            found = f"'{player}' earns {earned[player]:.2f}, and an honest try {trying:.2f}: {why}"
            holds = earned[player] <= max(nothing, trying) + _MORE * full
            checks.append((f"'{player}' does not pay", holds, found))
        return checks

    def _of_what_was_repeated(self) -> list[tuple[str, bool, str]]:
        """Whether the row and its seed decide an episode, and nothing else."""
        alone, checks = self._played_again(), []
        # without an oracle, a game of one row and one with much to find out look alike
        if ORACLE in self.players:
            checks.append(
                (
                    "other rows give other episodes",
                    len(set(self.episodes[ORACLE])) > 1 or len(self.rows) == 1,
                    "all rows give the same episode: `reset` does not use what it is given, and it "
                    "could be learnt by heart.",
                )
            )
        return [
            *checks,
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
        found, names = [], {ORACLE, RANDOM} & self.players.keys()
        for player, at in itertools.product(sorted(names), range(len(self.rows))):
            environment = self.guard()
            if disturbed:
                self.episode(AT_ONCE, at - 1, environment)
            found.append(self.episode(player, at, environment, self.guard() if disturbed else None))
        return found

    def _verdict(self) -> Verdict:
        turns, earned = self.guard.turns, self.played["reward"]
        notes = [
            f"after {turns} calls the tools refuse, but TRL goes on until "
            "`max_completion_length` is full: set "
            f"GRPOConfig(max_tool_calling_iterations={turns}), too."
        ]
        if ORACLE not in self.players:
            notes.append(
                "nobody showed that the game can be won, nor that other rows give other episodes: "
                "give the class a player that wins, `_oracle(asked)`, as in "
                "helpers/agents/guessing.py."
            )
        if not max(earned[AT_ONCE], earned[RANDOM]):
            notes.append(
                "a try that fails earns nothing, and a group without a success teaches nothing: "
                "an attempt could earn a little, 0.1 for example."
            )
        return Verdict([sentence for sentence in self.checks["found"] if sentence], notes)


def _summary(played: list[Played]) -> dict[str, float]:
    failed = [failed for episode in played for _, _, failed in episode.replies[1:]]
    return {
        "reward": sum(episode.reward for episode in played) / len(played),
        "calls": len(failed) / len(played),
        "failed": sum(failed) / max(1, len(failed)),
    }
