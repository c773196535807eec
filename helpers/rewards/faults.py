"""Calling a reward that may be wrong: the scores that hold, and what went wrong where, without an
exception.
"""

import asyncio
import functools
import inspect
import math
import re
import signal
import threading
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from helpers.rewards.common import defining_function, reward_name
from helpers.tags import completion_text, on_one_line

_SHOWN = 200  # characters of a completion in a message
# A user's reward may take so long for a completion on average, or for a whole call: a model that
# judges one completion after the other takes a second or two. No batch may take longer than the
# most, however large it is.
_SECONDS_EACH = 3.0
_SECONDS = 15.0
_SECONDS_MOST = 300.0
# what TRL passes beside the columns of the data
_FROM_TRL = {"prompts", "completion_ids", "trainer_state", "log_extra", "log_metric"}

LATE = (
    "Does a pattern in it backtrack, or does a request in it wait without a limit? If it asks a "
    "server, write it as `async def` and ask for all completions at once."
)
MESSAGES = (
    "Each argument is a list with an entry per completion, and a completion is a list of messages: "
    "`completion_text(completion)` gives its text."
)
_NUMBER = "Return one finite number per completion, or None for a row that it cannot judge."
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


class _OutOfTime(BaseException):
    """A call takes too long. No Exception, which a reward's own `except` would swallow."""


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
    # the whole call failed: one completion at a time
    if rows > 1 and all(what and advice != LATE for _, what, advice in outcomes):
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
        if any(what for _, what, _ in alone):
            outcomes = alone
    faults = [
        Fault(reward_name(reward), position, completion_text(completion), what, advice)
        for position, (completion, (_, what, advice)) in enumerate(
            zip(completions, outcomes, strict=True)
        )
        if what
    ]
    return [score for score, _, _ in outcomes], faults


def is_async(reward: Callable) -> bool:
    """Return whether calling a function, a partial of one or an object gives something to await."""
    while isinstance(reward, functools.partial):
        reward = reward.func
    return inspect.iscoroutinefunction(reward) or inspect.iscoroutinefunction(reward.__call__)


def _outcomes(
    reward: Callable, completions: list, columns: dict, own: bool
) -> list[tuple[float | None, str, str]]:
    """Return for each completion its score, or None, what is wrong with it or the whole call, and
    the way out.
    """
    rows = len(completions)
    seconds = min(max(_SECONDS, _SECONDS_EACH * rows), _SECONDS_MOST) if own else None
    try:
        with _alarm(seconds) as rung:
            returned = reward(completions=completions, **columns)
            if inspect.isawaitable(returned):
                work = asyncio.run_coroutine_threadsafe(_result_of(returned), _lasting_loop())
                returned = work.result()
            # a model's scores may be a column
            if getattr(returned, "ndim", 1) == 2:
                returned = returned.reshape(-1)
            several = hasattr(returned, "__iter__") and getattr(returned, "ndim", 1) == 1
            is_text = isinstance(returned, (str, bytes, dict))
            values = list(returned) if several and not is_text else []
        if rung:  # a bare `except:` of the reward has swallowed the alarm
            raise _OutOfTime
        if len(values) == rows:
            return list(map(_number, values))
        what = f"returned {returned!r:.100}, not one number for each of {rows},"
        advice = "Return a list with one number per completion."
    except _OutOfTime:
        what = f"did not return within {seconds:g} s"
        advice = LATE
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit, too: a policy's `exit()` in an `exec`
        # what an error says may be a completion's, and is printed
        message = on_one_line(str(error)[:_SHOWN])
        what = f"raised {type(error).__name__}{_place(error, reward)}: {message}"
        advice = _advice_on(error, columns)
    return [(None, what, advice)] * rows


@contextmanager
def _alarm(seconds: float | None) -> Iterator[list]:
    """Raise _OutOfTime in the block after so many seconds, and ten times a second from then on; the
    list that the block gets is then no longer empty.

    Does nothing without a limit, outside the main thread, which alone gets signals, and on Windows.
    """
    in_main = threading.current_thread() is threading.main_thread()
    rung = []
    if seconds is None or not in_main or not hasattr(signal, "SIGALRM"):
        yield rung
        return

    def ring(*_):
        rung.append(True)
        raise _OutOfTime

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, 0.1)
    try:
        yield rung
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


async def _result_of(returned: Awaitable) -> object:
    try:
        return await returned
    except SystemExit as error:  # it would end the loop of all async rewards
        raise RuntimeError(f"the process was to end: exit({error})") from None


@functools.cache
def _lasting_loop() -> asyncio.AbstractEventLoop:
    """Return the loop of all async rewards, in a thread of its own: a notebook's has one already,
    and a client or a semaphore belongs to the loop that first used it.
    """
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop


def _place(error: BaseException, reward: Callable) -> str:
    """Return where a reward raised: the last line of its own file, or cell, on the way there."""
    file = getattr(getattr(defining_function(reward), "__code__", None), "co_filename", None)
    for line in reversed(traceback.extract_tb(error.__traceback__)):
        if line.filename == file:
            name = Path(file).name if Path(file).is_file() else "its cell"
            return f" in {name}, line {line.lineno}"
    return ""


def _advice_on(error: BaseException, columns: dict) -> str:
    """Return the way out for a known cause, "" for any other."""
    names = ", ".join(sorted(columns.keys() - _FROM_TRL))
    is_the_call = error.__traceback__.tb_next is None  # and not a line of the reward
    for pattern, of_the_call, advice in _CAUSES:
        match = re.search(pattern, str(error))
        if match and of_the_call in (is_the_call, False):
            return advice.format(*match.groups(), columns=names)
    return ""


def _number(value: object) -> tuple[float | None, str, str]:
    """Return the score, or None, what is wrong with the value, and the way out."""
    if value is None:
        return None, "", ""
    try:
        score = math.nan if isinstance(value, (str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        score = math.nan
    if not math.isfinite(score):
        return None, f"returned {value!r:.100}, which is no finite number,", _NUMBER
    return score, "", ""
