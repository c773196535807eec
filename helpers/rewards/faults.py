"""Calling a reward that may be wrong: the scores that hold, and what went wrong where, without an
exception.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from helpers.rewards.shaping import awaited, printable, reward_name, stateful
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
    """A reward's scores, with None and a Fault for each completion that it did not score with one
    finite number.

    If the call raises, or returns something other than one value per completion, the completions
    are scored one at a time, so that one bad completion does not cost its batch; a reward that
    learns from batches learns nothing of that. None is a score: the row cannot be judged.
    """
    values, problem = _called(reward, completions, columns)
    found = [(None, problem)] * len(completions) if problem else list(map(_number, values))
    if problem and len(completions) > 1:
        alone = []
        for position, completion in enumerate(completions):
            with _unlearnt(reward):
                row = _row(columns, position, len(completions))
                values, what = _called(reward, [completion], row)
            alone.append((None, what) if what else _number(values[0]))
        # If all are fine alone, it is the batch that the reward cannot do: a fault of every one.
        if any(what for _, what in alone):
            found = alone
    faults = [
        Fault(reward_name(reward), position, completion_text(completion), what)
        for position, (completion, (_, what)) in enumerate(zip(completions, found, strict=True))
        if what
    ]
    return [score for score, _ in found], faults


def tried(
    reward: Callable, completions: list, columns: dict
) -> tuple[list[float | None], list[Fault]]:
    """`checked_scores` of completions that are no training batch: a reward that learns from batches
    keeps its state.
    """
    with _unlearnt(reward):
        return checked_scores(reward, completions, columns)


@contextmanager
def _unlearnt(reward: Callable) -> Iterator[None]:
    """Afterwards a reward that learns, such as AdaptiveReward, is in the state that it was in."""
    learner = stateful(reward)
    state = learner.state_dict() if learner else None
    yield
    if learner:
        learner.load_state_dict(state)


def _called(reward: Callable, completions: list, columns: dict) -> tuple[list, str]:
    """The values, or what was wrong with the call as a whole."""
    try:
        returned = awaited(reward(completions=completions, **columns))
        one_each = hasattr(returned, "__iter__") and getattr(returned, "ndim", 1) == 1
        if not one_each or isinstance(returned, (str, bytes, dict)):
            return [], f"returned {returned!r:.100}, not a list with one number per completion,"
        values = list(returned)
    except Exception as error:
        # what an error says may be a completion's, and is printed
        return [], f"raised {type(error).__name__}: {printable(str(error))[:_SHOWN]}"
    if len(values) != len(completions):
        plural = "s" * (len(completions) != 1)
        return [], f"returned {len(values)} values for {len(completions)} completion{plural},"
    return values, ""


def _number(value: object) -> tuple[float | None, str]:
    """The score, or what is wrong with the value."""
    if value is None:
        return None, ""
    try:
        score = math.nan if isinstance(value, (str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        score = math.nan
    if not math.isfinite(score):
        return None, f"returned {value!r:.100}, which is no finite number,"
    return score, ""


def _row(columns: dict, position: int, rows: int) -> dict:
    """The columns of one row. What logs a value per batch has nothing to log for one row."""
    row = {
        key: [value[position]] if isinstance(value, (list, tuple)) and len(value) == rows else value
        for key, value in columns.items()
    }
    for key in row.keys() & {"log_extra", "log_metric"}:
        row[key] = lambda *ignored: None
    return row
