"""What all rewards share, a weight that adapts, and a reward to look through.

A reward that changes while training says so with `state_dict` and `load_state_dict`;
`training.reward_guard` saves that with every checkpoint.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from helpers.tags import completion_text

_RISE, _FALL = 1.2, 0.9  # factors
_RARE, _COMMON = 0.30, 0.80  # success rates


def reward_name(reward: Callable | str) -> str:
    """The name TRL logs a reward under: its function's, inside any functools.partial, or the last
    part of a model's.

    >>> from functools import partial
    >>> reward_name(partial(debug_reward, samples=1)), reward_name("my-org/my-classifier")
    ('debug_reward', 'my-classifier')
    """
    reward = _unwrapped(reward)
    config = getattr(reward, "config", None)
    path = reward if isinstance(reward, str) else getattr(config, "_name_or_path", None)
    return path.split("/")[-1] if path else getattr(reward, "__name__", type(reward).__name__)


def stateful(reward: object) -> object | None:
    """What in a reward, inside any functools.partial, keeps a state over a training; None where
    nothing does.

    A model keeps none that a checkpoint should hold: its weights stay as they are.
    """
    reward = _unwrapped(reward)
    is_model = hasattr(reward, "named_parameters")
    return reward if hasattr(reward, "load_state_dict") and not is_model else None


def _unwrapped(reward: object) -> object:
    """What is inside any functools.partial."""
    while hasattr(reward, "func"):
        reward = reward.func
    return reward


def awaited(returned: object) -> object:
    """What a reward returned; an asynchronous one is run to its end first."""
    if not inspect.isawaitable(returned):
        return returned
    # in a thread of its own: a notebook's has an event loop already
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, returned).result()


class AdaptiveReward:
    """A reward times a weight that rises while success is rare and falls once it is common.

    After each batch: success below 30 % multiplies the weight by 1.2, above 80 % by 0.9, within
    `bounds`. Success is a score of at least `success`; rows scored None do not count. So the scale
    of this reward moves between the bounds, and its mean in the log with it. Where several
    processes train together, `training.reward_guard` gives each the mean of their weights after
    every step.

    >>> from helpers.rewards import format_reward
    >>> reward = AdaptiveReward(format_reward)
    >>> reward(["no tags"]), reward(["<think>2</think><answer>2</answer>"]), reward.weight
    ([0.0], [1.2], 1.08)
    """

    def __init__(
        self,
        reward: Callable,
        success: float = 0.5,
        weight: float = 1.0,
        bounds: tuple[float, float] = (0.25, 4.0),
    ):
        low, high = bounds
        if not 0 < low <= weight <= high:
            raise ValueError(
                f"weight={weight} and bounds={bounds}: 0 < lower bound <= weight <= upper bound "
                "must hold."
            )
        self.reward, self.success, self.weight, self.bounds = reward, success, weight, (low, high)
        self.__name__ = reward_name(reward)

    def __call__(self, completions: list, **columns) -> list[float | None]:
        scores = awaited(self.reward(completions=completions, **columns))
        weighted = [None if score is None else score * self.weight for score in scores]
        judged = [score for score in scores if score is not None]
        if judged:
            rate = sum(score >= self.success for score in judged) / len(judged)
            factor = _RISE if rate < _RARE else _FALL if rate > _COMMON else 1.0
            self.weight = round(min(self.bounds[1], max(self.bounds[0], self.weight * factor)), 9)
        return weighted

    def state_dict(self) -> dict:
        """What a checkpoint has to keep."""
        return {"weight": self.weight}

    def load_state_dict(self, state: dict) -> None:
        """Go on from a checkpoint."""
        self.weight = float(state["weight"])


def debug_reward(
    completions: list,
    prompts: list | None = None,
    answer: list | None = None,
    samples: int = 2,
    **columns,
) -> list[float]:
    """1.0 for every completion, and the first `samples` of them printed with their prompt and
    answer.

    To look at what a reward is handed: add it to the list with weight 0. Scores that are all the
    same teach nothing.

    >>> debug_reward(["<answer>4</answer>", "4"], answer=["4", "4"], samples=1)
    --- completion 1 of 2, answer '4'
    <answer>4</answer>
    [1.0, 1.0]
    """
    for position, completion in enumerate(completions[:samples]):
        told = "" if answer is None else f", answer {answer[position]!r}"
        print(f"--- completion {position + 1} of {len(completions)}{told}")
        if prompts is not None:
            prompt = prompts[position]
            question = prompt[-1]["content"] if isinstance(prompt, list) else prompt
            print(printable(f"> {question}"))
        print(printable(completion_text(completion)))
    return [1.0] * len(completions)


def printable(text: str) -> str:
    """The text without lone surrogates, which no tokenizer, no file and no terminal takes."""
    return text.encode(errors="replace").decode()
