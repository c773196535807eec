"""Controls: rewards without the signal of the true ones, to learn what a gain is worth.

    functions, weights = control_rewards("shuffled", functions, weights, tags, seed)

A policy can improve for reasons that have nothing to do with its rewards: Qwen2.5-Math-7B gained
21 points on MATH-500 with random rewards and 29 with true ones ("Spurious Rewards", arXiv
2506.10947). What a control gains too is no evidence for the reward. Notebooks 03 and 08 use it.
"""

import os
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from random import Random

from helpers.rewards.common import reward_name
from helpers.rewards.faults import checked_scores
from helpers.rewards.structure import substantial_format_reward
from helpers.tags import TagFormat, completion_text

# What a control trains on, as a sentence says it.
CONTROLS = {
    "random": "a fair coin for each completion",
    "shuffled": "the rewards of each group, shuffled among its completions",
    "format": "the format alone",
}


def check_control(control: str | None) -> None:
    """Raise ValueError if this is neither None nor a control."""
    if control is not None and control not in CONTROLS:
        raise ValueError(f"control={control!r}: choose {', '.join(map(repr, CONTROLS))}, or None.")


def control_rewards(
    control: str, functions: list, weights: list[float], tags: TagFormat, seed: int
) -> tuple[list, list[float]]:
    """Return the rewards and weights of a control: the given rewards with weight 0, so that they
    are logged and teach nothing, and one reward that the policy is trained on.

    Raise ValueError if the control is unknown, or if a reward model should be shuffled, because TRL
    calls it.
    """
    check_control(control)
    if control == "random":
        taught = _Coin(seed)
    elif control == "shuffled":
        for function in functions:
            if not callable(function) or hasattr(function, "parameters"):
                raise ValueError(
                    f"control='shuffled' cannot shuffle the scores of {reward_name(function)}: TRL "
                    "calls a reward model itself. Choose 'random' or 'format'."
                )
        taught = _Shuffled(seed, functions, weights)
    else:
        taught = partial(format_control, tags=tags)
    return [*functions, taught], [0.0] * len(functions) + [1.0]


def format_control(completions: list, tags: TagFormat, **columns) -> list[float]:
    """Return the scores of `substantial_format_reward`, under a name of its own in TRL's log."""
    return substantial_format_reward(completions, tags=tags)


@dataclass
class _Coin:
    """1.0 or 0.0 by a fair coin, whatever the completion."""

    seed: int
    __name__ = "random_control"  # TRL logs the reward under it

    def __call__(self, completions: list, **columns) -> list[float]:
        coin = _generator(self.seed, completions, columns)
        return [float(coin.random() < 0.5) for _ in completions]


@dataclass
class _Shuffled:
    """The weighted sum of the given rewards, shuffled among the completions of a question."""

    seed: int
    functions: list
    weights: list[float]
    __name__ = "shuffled_control"

    def __call__(self, completions: list, prompts: list, **columns) -> list[float | None]:
        # 1. Sum the scores of each completion. As in TRL, a None adds nothing, and a completion
        # without any score has none.
        totals: list[float | None] = [None] * len(completions)
        for function, weight in zip(self.functions, self.weights, strict=True):
            scores, _ = checked_scores(function, completions, columns | {"prompts": prompts})
            for at, score in enumerate(scores):
                if score is not None:
                    totals[at] = (totals[at] or 0.0) + weight * score

        # 2. Shuffle the sums of each group, which are those of neighbours with the same prompt.
        generator = _generator(self.seed, completions, columns)
        shuffled: list[float | None] = []
        for _, group in groupby(range(len(completions)), key=lambda at: prompts[at]):
            own = [totals[at] for at in group]
            shuffled += generator.sample(own, len(own))
        return shuffled


def _generator(seed: int, completions: list, columns: dict) -> Random:
    """Return random numbers that are the same if a resumed training run repeats a step."""
    step = getattr(columns.get("trainer_state"), "global_step", None)
    texts = [completion_text(completion) for completion in completions]
    return Random(repr((seed, step, os.environ.get("RANK"), texts)))
