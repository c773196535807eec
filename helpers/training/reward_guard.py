"""Log failing rewards as None instead of ending the training; stop above 1 %."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import asdict

import numpy as np
import pandas as pd
from torch import nn
from transformers import TrainerCallback

from helpers.rewards.common import is_own, reward_name
from helpers.rewards.faults import Fault, checked_scores, is_async
from helpers.runs import Run
from helpers.training import processes

_FAULTS = "reward_faults.jsonl"
_MOST_FAULTS = 0.01  # of the completions
_ENOUGH = 100  # completions, before a share says anything
_EQUAL = 1e-5  # between weighted rewards that are the same but for rounding


class RewardError(RuntimeError):
    """A reward failed on more than 1 % of the completions; the training was stopped after a
    checkpoint.
    """


class GuardedRewards(TrainerCallback):
    """Rewards that cannot end a run at step 400.

    `functions` goes to GRPOTrainer as reward_funcs, the object itself among its callbacks. If a
    reward raises, or returns anything but one finite number (or None) for a completion, the
    completion scores None and is logged with what happened in `checkpoints/reward_faults.jsonl`;
    training goes on. Once that concerns more than 1 % of the completions (at least 100 of them), a
    checkpoint is saved and RewardError reports. Models and their names are TRL's to call.
    ValueError if two rewards would be logged under one name.

    If several processes train together, the counts are of all, so they stop at the same step for
    the same reason. The first one logs the faults of each.

    It also counts the dead groups, for `frac_reward_zero_std`, and so belongs before what
    reads the log. TRL 1.15 asks whether the spread of float32 sums is 0 to the last bit: with a
    weight such as 0.3 rounding hides every dead group.
    """

    def __init__(self, run: Run, functions: list):
        names = [reward_name(function) for function in functions]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(
                    f"two rewards are called {name!r}, and TRL logs them by name: wrap one in a "
                    "function of its own."
                )
        self.run = run
        self.functions = [guard_reward(function, self.record) for function in functions]
        # by reward: of each batch in this step its scores and their faults,
        self.batches: dict[str, list[tuple[list, list[Fault]]]] = {name: [] for name in names}
        # and of all steps how many completions it judged, how many failed, and the first fault
        self.seen = dict.fromkeys(names, 0)
        self.failed = dict.fromkeys(names, 0)
        self.first: dict[str, Fault] = {}
        self.dead_groups: list[float] = []  # the share in each round of sampling since the last log

    def record(self, name: str, scores: list, faults: list[Fault]) -> None:
        """Keep what a reward gave a batch until the step ends."""
        self.batches[name].append((scores, faults))

    def on_step_end(self, args, state, control, **kwargs):
        """Count what all processes have judged since the last step. Stop, with a checkpoint, if a
        reward fails too often.
        """
        # each process has judged its part of every round of sampling
        of_processes = processes.gather(self.batches)
        self.batches = {name: [] for name in self.seen}
        rounds = {
            name: list(zip(*(batches[name] for batches in of_processes), strict=True))
            for name in self.seen
        }
        self._count_faults(rounds, state.global_step)
        self._count_dead_groups(rounds, args)
        if self._failing(_ENOUGH):
            control.should_save = True
            control.should_training_stop = True

    def _count_faults(self, rounds: dict[str, list], step: int) -> None:
        """Count completions and faults by reward, print the first fault of each, and log all."""
        lines = []
        for name, of_reward in rounds.items():
            for parts in of_reward:
                for rank, (scores, faults) in enumerate(parts):
                    self.seen[name] += len(scores)
                    self.failed[name] += len(faults)
                    lines += [{"step": step, "rank": rank} | asdict(fault) for fault in faults]
                    if faults and name not in self.first:
                        self.first[name] = faults[0]
                        print(
                            f"step {step}: {faults[0]}; it scores None. All such completions: "
                            f"{self.run.show(f'checkpoints/{_FAULTS}')}"
                        )
        if lines and processes.is_first():
            with self.run.path(f"checkpoints/{_FAULTS}").open("a", encoding="utf-8") as log:
                log.writelines(json.dumps(line) + "\n" for line in lines)

    def _count_dead_groups(self, rounds: dict[str, list], args) -> None:
        """Keep the share of dead groups in each round; none, if TRL calls a reward itself."""
        for one_round in zip(*rounds.values(), strict=False):
            earned = {}
            for name, parts in zip(rounds, one_round, strict=True):
                # a group may be of two processes; a None is NaN as a float
                scores = [score for of_process, _ in parts for score in of_process]
                earned[name] = np.array(scores, dtype=float)
            self.dead_groups.append(share_of_dead_groups(earned, args))

    def _failing(self, enough: int) -> list[str]:
        """Return the rewards that failed too often, of those that judged so many completions."""
        return [
            name
            for name, seen in self.seen.items()
            if seen >= enough and self.failed[name] > _MOST_FAULTS * seen
        ]

    def on_log(self, args, state, control, logs=None, **kwargs):
        """Put the share of dead groups in the place of TRL's, for the callbacks that come
        after this one.
        """
        if logs and "frac_reward_zero_std" in logs and self.dead_groups:
            logs["frac_reward_zero_std"] = float(np.mean(self.dead_groups))
            self.dead_groups = []

    def on_train_end(self, args, state, control, **kwargs):
        """Raise RewardError, now that the checkpoint is saved, if a reward failed too often."""
        for name in self._failing(1):
            saved = self.run.show(f"checkpoints/checkpoint-{state.global_step}")
            raise RewardError(
                f"{name} failed on {self.failed[name]} of {self.seen[name]} completions, more than "
                f"{_MOST_FAULTS:.0%}. First: {self.first[name]}. {self.first[name].advice} The "
                f"training stopped at step {state.global_step} and saved {saved}. When that is "
                "corrected, run this notebook again: it goes on from there. All such completions: "
                f"{self.run.show(f'checkpoints/{_FAULTS}')}."
            )


def share_of_dead_groups(earned: dict[str, np.ndarray], args) -> float:
    """Return the share of groups whose completions all earn the same, from each reward's scores.

    A score of NaN counts as nothing, and a completion without any score in no group, as in TRL.
    args: the trainer's, with `reward_weights` and `num_generations`.
    """
    totals = (pd.DataFrame(earned) * (args.reward_weights or 1.0)).sum(axis=1, min_count=1)
    groups = pd.DataFrame(totals.to_numpy().reshape(-1, args.num_generations))
    spread = groups.max(axis=1) - groups.min(axis=1)
    return float((~(spread >= _EQUAL)).mean())


def guard_reward(reward: Callable | str, record: Callable) -> Callable | str:
    """Return the reward as TRL calls it, without raising; what TRL itself calls, models and names
    of models, comes back as it is, and so does what TRL refuses.

    record: called after each batch with the reward's name, its scores and their faults.
    """
    if isinstance(reward, nn.Module) or not callable(reward):
        return reward
    return _GuardedAsync(reward, record) if is_async(reward) else _Guarded(reward, record)


class _Guarded:
    """A reward that does not raise. It can be pickled if the reward can."""

    def __init__(self, reward: Callable, record: Callable):
        self.reward = reward
        self.own = is_own(reward)
        self.record = record
        self.__name__ = reward_name(reward)

    def __call__(self, completions: list, **columns) -> list[float | None]:
        scores, faults = checked_scores(self.reward, completions, columns, self.own)
        self.record(self.__name__, scores, faults)
        return scores


class _GuardedAsync(_Guarded):
    """The same for an async reward: TRL waits for all of these side by side."""

    async def __call__(self, completions: list, **columns) -> list[float | None]:
        return await asyncio.to_thread(super().__call__, completions, **columns)
