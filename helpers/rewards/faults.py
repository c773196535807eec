"""Calling a reward that may be wrong: the scores that hold, and what went wrong where, without an
exception.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass

from helpers.rewards.shaping import awaited, reward_name, stateful
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

    def as_dict(self) -> dict:
        """For a log in JSON; lone surrogates are spelt out."""
        return {key: value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value
                for key, value in asdict(self).items()}  # fmt: skip


def checked_scores(
    reward: Callable, completions: list, columns: dict
) -> tuple[list[float | None], list[Fault]]:
    """A reward's scores, with None and a Fault for each completion that it did not score with one
    finite number.

    Where the call raises, or returns something other than one value a completion, the completions
    are scored one at a time, so that one bad completion does not cost its batch; a reward with a
    state keeps the one it had. None is a score: the row cannot be judged.
    """
    before = _state(reward)
    values, what = _call(reward, completions, columns)
    if what and len(completions) > 1:
        scores, faults = [], []
        for position, completion in enumerate(completions):
            _restore(reward, before)
            (score,), found = checked_scores(
                reward, [completion], _row(columns, position, len(completions))
            )
            scores.append(score)
            faults += [
                Fault(fault.reward, position, fault.completion, fault.what) for fault in found
            ]
        _restore(reward, before)
        # Scored alone, all are fine: then it is the batch that the reward cannot do, and that is a
        # fault of every one.
        if not faults:
            name = reward_name(reward)
            return [None] * len(completions), [
                Fault(name, i, completion_text(c), what) for i, c in enumerate(completions)
            ]
        return scores, faults
    if what:
        return [None] * len(completions), [
            Fault(reward_name(reward), 0, completion_text(c), what) for c in completions
        ]
    scores, faults = [], []
    for position, value in enumerate(values):
        score, what = _number(value)
        scores.append(score)
        if what:
            faults.append(
                Fault(reward_name(reward), position, completion_text(completions[position]), what)
            )
    return scores, faults


def tried(
    reward: Callable, completions: list, columns: dict
) -> tuple[list[float | None], list[Fault]]:
    """`checked_scores` of completions that are no training batch: a reward that learns from batches
    keeps its state.
    """
    before = _state(reward)
    scored = checked_scores(reward, completions, columns)
    _restore(reward, before)
    return scored


def _state(reward: Callable) -> dict | None:
    kept = stateful(reward)
    return kept.state_dict() if kept else None


def _restore(reward: Callable, state: dict | None) -> None:
    """An AdaptiveReward learns from batches; completions tried one at a time are none."""
    if state is not None:
        stateful(reward).load_state_dict(state)


def _call(reward: Callable, completions: list, columns: dict) -> tuple[list, str]:
    """The values, or what was wrong with the call as a whole."""
    try:
        returned = awaited(reward(completions=completions, **columns))
        if (
            isinstance(returned, (str, bytes, dict))
            or not hasattr(returned, "__iter__")
            or getattr(returned, "ndim", 1) != 1
        ):
            return [], f"returned {returned!r:.100}, not a list with one number a completion,"
        values = list(returned)
    except Exception as error:
        return [], f"raised {type(error).__name__}: {error!s:.{_SHOWN}}"
    if len(values) != len(completions):
        return (
            [],
            f"returned {len(values)} values for {len(completions)} "
            f"completion{'s' * (len(completions) != 1)},",
        )
    return values, ""


def _number(value: object) -> tuple[float | None, str]:
    if value is None:
        return None, ""
    try:
        score = math.nan if isinstance(value, (str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        score = math.nan
    return (
        (score, "")
        if math.isfinite(score)
        else (None, f"returned {value!r:.100}, which is no finite number,")
    )


def _row(columns: dict, position: int, rows: int) -> dict:
    """The columns of one row. What logs a value a batch has nothing to log for one row."""
    silent = {"log_extra": _nothing, "log_metric": _nothing}
    return {
        key: silent.get(key)
        or ([value[position]] if isinstance(value, (list, tuple)) and len(value) == rows else value)
        for key, value in columns.items()
    }


def _nothing(*ignored) -> None:
    pass
