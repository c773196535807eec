"""Calling a reward that may be wrong: the scores that hold, and what went wrong where, without an
exception.
"""

import asyncio
import inspect
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from helpers.rewards.shaping import printable, reward_name
from helpers.tags import completion_text

_SHOWN = 200  # characters of a completion in a message


@dataclass(frozen=True)
class Fault:
    """One completion that a reward did not score: which reward, which completion, and what it did
    instead.
    """

    reward: str
    position: int
    completion: str
    what: str

    def __str__(self) -> str:
        text = self.completion if len(self.completion) <= _SHOWN else self.completion[:_SHOWN] + "…"
        return f"{self.reward} {self.what} for the completion {text!r}"


def checked_scores(
    reward: Callable, completions: list, columns: dict
) -> tuple[list[float | None], list[Fault]]:
    """Return a reward's scores, with None and a Fault for each completion that it did not score
    with one finite number.

    If the call raises, or returns something other than one value per completion, the completions
    are scored one at a time, so that one bad completion does not cost its batch. None is a score:
    the row cannot be judged.
    """
    rows = len(completions)
    found = _called(reward, completions, columns)
    if rows > 1 and all(what for _, what in found):
        alone = []
        for at, completion in enumerate(completions):
            row = {
                key: [value[at]]
                if isinstance(value, (list, tuple)) and len(value) == rows
                else value
                for key, value in columns.items()
            }
            # what logs a value per batch has nothing to log for one row
            row |= dict.fromkeys(row.keys() & {"log_extra", "log_metric"}, lambda *ignored: None)
            alone += _called(reward, [completion], row)
        # If all are fine alone, it is the batch that the reward cannot do: a fault of every one.
        if any(what for _, what in alone):
            found = alone
    faults = [
        Fault(reward_name(reward), position, completion_text(completion), what)
        for position, (completion, (_, what)) in enumerate(zip(completions, found, strict=True))
        if what
    ]
    return [score for score, _ in found], faults


def constant(name: str, scores: list[float | None]) -> str | None:
    """Return what to say of a reward that gave all completions one number; None for any other."""
    given = {score for score in scores if score is not None and score == score}
    if len(given) != 1 or len(scores) < 2:
        return None
    return (
        f"{name} gave {given.pop()} to each of {len(scores)} completions; completions are lists of "
        "messages, `completion_text` gives the text."
    )


def _called(reward: Callable, completions: list, columns: dict) -> list[tuple[float | None, str]]:
    """Return for each completion its score, or None and what is wrong with it or the whole call."""
    try:
        returned = reward(completions=completions, **columns)
        if inspect.isawaitable(returned):
            # in a thread of its own: a notebook's has an event loop already
            with ThreadPoolExecutor(1) as pool:
                returned = pool.submit(asyncio.run, returned).result()
        several = hasattr(returned, "__iter__") and getattr(returned, "ndim", 1) == 1
        is_text = isinstance(returned, (str, bytes, dict))
        values = list(returned) if several and not is_text else []
        if len(values) == len(completions):
            return list(map(_number, values))
        problem = f"returned {returned!r:.100}, not one number for each of {len(completions)},"
    except (Exception, asyncio.CancelledError) as error:
        # what an error says may be a completion's, and is printed
        problem = f"raised {type(error).__name__}: {printable(str(error))[:_SHOWN]}"
    return [(None, problem)] * len(completions)


def _number(value: object) -> tuple[float | None, str]:
    """Return the score, or None and what is wrong with the value."""
    if value is None:
        return None, ""
    try:
        score = math.nan if isinstance(value, (str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        score = math.nan
    if not math.isfinite(score):
        return None, f"returned {value!r:.100}, which is no finite number,"
    return score, ""
