"""Keep a failing reward from ending the training run: its completions score None and are logged.
The run stops, with a checkpoint, if more than 1% of the completions fail.

    guard = GuardedRewards(run, reward_functions)
    GRPOTrainer(..., reward_funcs=guard.functions, callbacks=[guard])
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import asdict
from itertools import chain

import numpy as np
import pandas as pd
from torch import nn

from helpers import processes
from helpers.rewards.common import is_own, reward_name
from helpers.rewards.faults import Fault, checked_scores, is_async
from helpers.runs import Run
from helpers.training.checkpoints import BeforeHistory

_FAULTS = "reward_faults.jsonl"
_MOST_FAULTS = 0.01  # training stops if a larger share of a reward's completions failed
_ENOUGH = 100  # it does not stop before the reward has judged this many completions
_EQUAL = 1e-5  # weighted rewards closer than this differ only by rounding


# What a reward gave the completions of one process in one round of sampling: a score or None for
# each of them, and the faults among them.
_Batch = tuple[list[float | None], list[Fault]]


class RewardError(RuntimeError):
    """A reward failed on more than 1% of the completions. Training stopped after a checkpoint."""


class GuardedRewards(BeforeHistory):
    """The rewards of a run, guarded against errors, and the callback that counts their faults.

    Pass `functions` to GRPOTrainer as reward_funcs, and the object itself as a callback. If a
    reward raises, or returns anything but one finite number or None for a completion, the
    completion scores None and the fault is written to `checkpoints/reward_faults.jsonl`. If a
    reward fails on more than 1% of at least 100 completions, a checkpoint is saved and training
    stops. RewardError is raised at the end of training if a reward failed on more than 1%.

    Reward models are called by TRL and are not guarded. If several processes train together, their
    completions are counted together. Raise ValueError if two rewards have the same name.

    The callback also replaces `frac_reward_zero_std` in the log, and so must come before callbacks
    that read the log. TRL 1.15 compares the spread of float32 sums with 0, and a weight such as 0.3
    then hides dead groups by rounding.
    """

    def __init__(self, run: Run, functions: list):
        names = [reward_name(function) for function in functions]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(
                    f"two rewards are called {name!r}, and TRL logs them by name: wrap one in a "
                    "function with another name."
                )
        self.run = run
        self.functions = [guard_reward(function, self.record) for function in functions]
        # By reward: the batches of this process since the last step, one per round of sampling.
        self.batches: dict[str, list[_Batch]] = {name: [] for name in names}
        # By reward, for all steps: the completions judged and failed, and the first fault.
        self.seen = dict.fromkeys(names, 0)
        self.failed = dict.fromkeys(names, 0)
        self.first: dict[str, Fault] = {}
        # The share of dead groups in each round of sampling since the last log.
        self.dead_groups: list[float] = []

    def record(self, name: str, scores: list, faults: list[Fault]) -> None:
        """Keep the scores and faults of a batch until the step ends."""
        self.batches[name].append((scores, faults))

    def on_step_end(self, args, state, control, **kwargs):
        """Count the faults and dead groups of this step in all processes. Save a checkpoint and
        stop if a reward fails too often.
        """
        rounds_of = self._gather_rounds()

        # 1. Count the completions that each reward judged and failed on, and log its faults.
        for name, rounds in rounds_of.items():
            for scores, faults in chain(*rounds):
                self.seen[name] += len(scores)
                self.failed[name] += len(faults)
        self._log_faults(rounds_of, state.global_step)

        # 2. Keep the share of dead groups in each round of sampling. A reward that TRL calls
        # itself, such as a model, has no rounds here. The totals are then unknown, and no round is
        # counted.
        for number in range(min(map(len, rounds_of.values()), default=0)):
            earned = {}
            for name, rounds in rounds_of.items():
                # of all processes, because they may share a group
                of_all = chain(*(scores for scores, _ in rounds[number]))
                earned[name] = np.array(list(of_all), dtype=float)  # None becomes NaN
            self.dead_groups.append(share_of_dead_groups(earned, args))

        # 3. Stop if a reward fails too often. RewardError is raised later, in `on_train_end`,
        # because the checkpoint must be saved first.
        if self._failing(_ENOUGH):
            control.should_save = True
            control.should_training_stop = True

    def on_evaluate(self, args, state, control, **kwargs):
        """Log the faults of an evaluation. Only completions of the training are counted."""
        self._log_faults(self._gather_rounds(), state.global_step)

    def _gather_rounds(self) -> dict[str, list[tuple[_Batch, ...]]]:
        """Return the rounds of sampling since the last call, by reward, and forget them. A round is
        a tuple with the batch of each process.
        """
        by_process = processes.gather(self.batches)
        self.batches = {name: [] for name in self.seen}
        rounds_of = {}
        for name in self.seen:
            rounds_of[name] = list(zip(*(batches[name] for batches in by_process), strict=True))
        return rounds_of

    def _log_faults(self, rounds_of: dict[str, list[tuple[_Batch, ...]]], step: int) -> None:
        """Print each reward's first fault, and append all faults to `reward_faults.jsonl`, by
        reward, by round of sampling and by process.
        """
        lines = []
        for name, rounds in rounds_of.items():
            faults = []
            for batches in rounds:
                for rank, (_, of_process) in enumerate(batches):
                    faults += of_process
                    place = {"step": step, "rank": rank}
                    lines += [place | asdict(fault) for fault in of_process]
            if faults and name not in self.first:
                self.first[name] = faults[0]
                print(
                    f"step {step}: {faults[0]}; it scores None. All such completions: "
                    f"{self.run.show(f'checkpoints/{_FAULTS}')}"
                )
        if lines and processes.is_first():
            with self.run.path(f"checkpoints/{_FAULTS}").open("a", encoding="utf-8") as log:
                log.writelines(json.dumps(line) + "\n" for line in lines)

    def _failing(self, enough: int) -> list[str]:
        """Return the names of the rewards that have judged at least `enough` completions, and
        failed on more than 1% of them.
        """
        return [
            name
            for name, seen in self.seen.items()
            if seen >= enough and self.failed[name] > _MOST_FAULTS * seen
        ]

    def on_log(self, args, state, control, logs, **kwargs):
        """Replace TRL's share of dead groups in the log, for the callbacks after this one."""
        if "frac_reward_zero_std" in logs and self.dead_groups:
            logs["frac_reward_zero_std"] = float(np.mean(self.dead_groups))
            self.dead_groups = []

    def on_train_end(self, args, state, control, **kwargs):
        """Raise RewardError if a reward failed too often. The checkpoint is saved by now."""
        for name in self._failing(1):
            saved = self.run.show(f"checkpoints/checkpoint-{state.global_step}")
            raise RewardError(
                f"{name} failed on {self.failed[name]} of {self.seen[name]} completions, more than "
                f"{_MOST_FAULTS:.0%}. First: {self.first[name]}. {self.first[name].advice} The "
                f"training stopped at step {state.global_step} and saved {saved}. Correct this, "
                "and run this notebook again: it continues from there. All such completions: "
                f"{self.run.show(f'checkpoints/{_FAULTS}')}."
            )


def share_of_dead_groups(earned: dict[str, np.ndarray], args) -> float:
    """Return the share of groups that teach nothing: all completions have the same total reward, or
    none has any.

    earned: each reward's scores, with NaN for None. As in TRL, a NaN adds nothing to the total. A
        completion without any score does not count in its group.
    args: the trainer's arguments, with `reward_weights` and `num_generations`.

    >>> from types import SimpleNamespace
    >>> args = SimpleNamespace(reward_weights=None, num_generations=2)
    >>> share_of_dead_groups({"my_reward": np.array([0, 1, 1, 1, np.nan, np.nan, 0.5, 1])}, args)
    0.5
    """
    weighted = pd.DataFrame(earned) * (args.reward_weights or 1.0)
    totals = weighted.sum(axis=1, min_count=1)  # NaN for a completion without any score
    # one row per group, and one column per completion of a group
    groups = pd.DataFrame(totals.to_numpy().reshape(-1, args.num_generations))
    spread = groups.max(axis=1) - groups.min(axis=1)  # NaN for a group without any score
    is_dead = (spread < _EQUAL) | spread.isna()
    return float(is_dead.mean())


def guard_reward(reward: Callable | str, record: Callable) -> Callable | str:
    """Return a reward that does not raise. Models, names of models, and anything that TRL would
    refuse are returned unchanged.

    record: called after each batch with the reward's name, its scores and their faults.
    """
    if isinstance(reward, nn.Module) or not callable(reward):
        return reward
    return _SafeAsyncReward(reward, record) if is_async(reward) else _SafeReward(reward, record)


class _SafeReward:
    """A reward that does not raise. It can be pickled if the original can."""

    def __init__(self, reward: Callable, record: Callable):
        self.reward = reward
        self.own = is_own(reward)
        self.record = record
        self.__name__ = reward_name(reward)

    def __call__(self, completions: list, **columns) -> list[float | None]:
        scores, faults = checked_scores(self.reward, completions, columns, self.own)
        self.record(self.__name__, scores, faults)
        return scores


class _SafeAsyncReward(_SafeReward):
    """An async reward that does not raise. TRL awaits all async rewards at once."""

    async def __call__(self, completions: list, **columns) -> list[float | None]:
        return await asyncio.to_thread(super().__call__, completions, **columns)
