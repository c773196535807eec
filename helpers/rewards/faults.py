"""Calling a reward that may be wrong: the scores that hold, and what went wrong where, without an
exception.
"""

import functools
import inspect
import math
import re
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from helpers.rewards.common import defining_function, reward_name
from helpers.rewards.time_limit import OutOfTime, time_limit, wait_for
from helpers.tags import completion_text, on_one_line

_SHOWN = 200  # characters of a completion in a message
# A user's reward may take so long for a completion on average, or for a whole call: a model that
# judges one completion after the other takes a second or two. No batch may take longer than the
# most, however large it is.
_SECONDS_EACH = 3.0
_SECONDS = 15.0
_SECONDS_MOST = 300.0

# Advice that the laboratory looks for, or gives itself.
LATE = (
    "Does a pattern in it backtrack, or does a request in it wait without a limit? If it asks a "
    "server, write it as `async def` and ask for all completions at once."
)
MESSAGES = (
    "Each argument is a list with an entry per completion, and a completion is a list of messages: "
    "`completion_text(completion)` gives its text."
)


@dataclass(frozen=True)
class Fault:
    """One completion that a reward did not score: which reward, which completion, what it did
    instead, and the way out where the cause is known.
    """

    reward: str
    position: int
    completion: str
    what: str
    advice: str = ""

    def __str__(self) -> str:
        text = self.completion if len(self.completion) <= _SHOWN else self.completion[:_SHOWN] + "…"
        return f"{self.reward} {self.what} for the completion {text!r}"


class Outcome(NamedTuple):
    """What a call gave for one completion.

    score: None where there is none. what: what is wrong with it, or with the whole call, "" if
    nothing is: a score of None alone says that the row cannot be judged. advice: the way out where
    the cause is known.
    """

    score: float | None
    what: str = ""
    advice: str = ""


def checked_scores(
    reward: Callable, completions: list, columns: dict, own: bool = True
) -> tuple[list[float | None], list[Fault]]:
    """Return a reward's scores, with None and a Fault for each completion that it did not score
    with one finite number.

    If the call raises, or returns something other than one value per completion, the completions
    are scored one at a time, so that one bad completion does not cost its batch. None is a score:
    the row cannot be judged. All async rewards of a process run on one lasting event loop, so they
    may share a client or a semaphore. A reward that ends the process, as `exit()` does, has raised.
    KeyboardInterrupt passes.

    own: whether it is a user's reward (`is_own`). A call that takes longer than 3 s per completion
        (at least 15 s, at most 5 minutes) is then interrupted, in the main thread on Linux and
        macOS.
    """
    rows = len(completions)
    outcomes = _outcomes(reward, completions, columns, own)

    # The whole call failed: one completion at a time. What came too late would come later still.
    failed = all(outcome.what and outcome.advice != LATE for outcome in outcomes)
    if failed and rows > 1:
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
            alone += _outcomes(reward, [completion], row, own)
        # If all are fine alone, it is the batch that the reward cannot do: a fault of every one.
        if any(outcome.what for outcome in alone):
            outcomes = alone

    faults = []
    for at, outcome in enumerate(outcomes):
        if outcome.what:
            text = completion_text(completions[at])
            faults.append(Fault(reward_name(reward), at, text, outcome.what, outcome.advice))
    return [outcome.score for outcome in outcomes], faults


def is_async(reward: Callable) -> bool:
    """Return whether calling a function, a partial of one or an object gives something to await."""
    while isinstance(reward, functools.partial):
        reward = reward.func
    return inspect.iscoroutinefunction(reward) or inspect.iscoroutinefunction(reward.__call__)


def _outcomes(reward: Callable, completions: list, columns: dict, own: bool) -> list[Outcome]:
    """Return what one call gives for each completion; the same for all where the call fails."""
    rows = len(completions)
    seconds = min(max(_SECONDS, _SECONDS_EACH * rows), _SECONDS_MOST)
    try:
        with time_limit(seconds) if own else nullcontext():
            returned = reward(completions=completions, **columns)
            if inspect.isawaitable(returned):
                returned = wait_for(returned)
            # a model's scores may be a column
            if getattr(returned, "ndim", 1) == 2:
                returned = returned.reshape(-1)
            several = hasattr(returned, "__iter__") and getattr(returned, "ndim", 1) == 1
            is_text = isinstance(returned, (str, bytes, dict))
            values = list(returned) if several and not is_text else []
        if len(values) == rows:
            return [_outcome_of(value) for value in values]
        what = f"returned {returned!r:.100}, not one number for each of {rows},"
        advice = "Return a list with one number per completion."
    except OutOfTime:
        what = f"did not return within {seconds:g} s"
        advice = LATE
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit, too: a policy's `exit()` in an `exec`
        # what an error says may be a completion's, and is printed
        message = on_one_line(str(error)[:_SHOWN])
        what = f"raised {type(error).__name__}{_place(error, reward)}: {message}"
        advice = _advice_on(error, columns)
    return [Outcome(None, what, advice)] * rows


def _outcome_of(value: object) -> Outcome:
    """Return the outcome of one value that a reward returned."""
    if value is None:
        return Outcome(None)
    try:
        score = math.nan if isinstance(value, (str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        score = math.nan
    if not math.isfinite(score):
        what = f"returned {value!r:.100}, which is no finite number,"
        advice = "Return one finite number per completion, or None for a row that it cannot judge."
        return Outcome(None, what, advice)
    return Outcome(score)


def _place(error: BaseException, reward: Callable) -> str:
    """Return where a reward raised: the last line of its own file, or cell, on the way there."""
    file = getattr(getattr(defining_function(reward), "__code__", None), "co_filename", None)
    for line in reversed(traceback.extract_tb(error.__traceback__)):
        if line.filename == file:
            name = Path(file).name if Path(file).is_file() else "its cell"
            return f" in {name}, line {line.lineno}"
    return ""


# What an error says, whether only the call itself raises it, and the way out.
_CAUSES = (
    (
        "unexpected keyword argument",
        True,
        "Add `**columns` to its parameters: TRL passes every column of the data.",
    ),
    (
        r"missing \d+ required [\w -]+: (.*)",
        True,
        "TRL passes `prompts`, `completions` and the data's columns by name; {0} is not among "
        "them. The columns here: {columns}.",
    ),
    (
        "event loop",
        False,
        "Write it as `async def` and use `await`: async rewards run on a loop already.",
    ),
    (r"'list' object has no attribute|got 'list'", False, MESSAGES),
)
# what TRL passes beside the columns of the data
_FROM_TRL = {"prompts", "completion_ids", "trainer_state", "log_extra", "log_metric"}


def _advice_on(error: BaseException, columns: dict) -> str:
    """Return the way out for a known cause, "" for any other."""
    names = ", ".join(sorted(columns.keys() - _FROM_TRL))
    is_the_call = error.__traceback__.tb_next is None  # and not a line of the reward
    for pattern, of_the_call, advice in _CAUSES:
        match = re.search(pattern, str(error))
        if match and of_the_call in (is_the_call, False):
            return advice.format(*match.groups(), columns=names)
    return ""
