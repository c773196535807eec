"""Call a reward that may be faulty: keep the valid scores, and return each failure as a `Fault`
instead of raising it.

    scores, faults = checked_scores(my_reward, completions, columns)

A user's reward may raise, hang, or return something else than one number per completion.
`checked_scores` calls it once for the whole batch, by `_call`, and if that fails once for each
completion. `_check` looks at one returned value, and `_advice_on` explains an error to the user.
"""

import functools
import inspect
import math
import re
import traceback
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from helpers.printing import on_one_line
from helpers.rewards.common import defining_function, reward_name
from helpers.rewards.time_limit import OutOfTime, time_limit, wait_for
from helpers.tags import completion_text

# The time limit of a call, in seconds. A judge that is asked about one completion after another
# takes a second or two for each.
_SECONDS_EACH = 3.0  # for each completion, but
_SECONDS = 15.0  # at least this, and
_SECONDS_MOST = 300.0  # at most this

OUT_OF_TIME = "out of time"  # the cause of a fault whose call was interrupted
# The keywords that TRL passes besides the columns of the data.
FROM_TRL = {"prompts", "completion_ids", "trainer_state", "log_extra", "log_metric"}
# The advice on a call that ran out of time.
LATE = (
    "Check whether a pattern in it backtracks, or a request in it waits without a time limit. If "
    "it asks a server, write it as `async def` and ask for all completions at once."
)
# The laboratory also gives this advice for a reward that ignores the text.
MESSAGES = (
    "Each argument is a list with an entry per completion, and a completion is a list of messages: "
    "`completion_text(completion)` gives its text."
)


@dataclass(frozen=True)
class Fault:
    """A completion that a reward failed to score.

    reward: the reward's name.
    position: the index of the completion in its batch.
    what: what the reward did instead, such as "raised KeyError in my_rewards.py, line 3: 'answer'".
    advice: how to correct the reward, for the user to read; "" if the cause is not known.
    cause: the key by which to count faults or to tell them apart: `OUT_OF_TIME`, or for example
        "KeyError in my_rewards.py, line 3", without the error's message.
    """

    reward: str
    position: int
    completion: str
    what: str
    advice: str = ""
    cause: str = ""

    def __str__(self) -> str:
        text = self.completion if len(self.completion) <= 200 else self.completion[:200] + "…"
        return f"{self.reward} {self.what} for the completion {text!r}"


def checked_scores(
    reward: Callable, completions: list, columns: dict, own: bool = True
) -> tuple[list[float | None], list[Fault]]:
    """Return a reward's scores, and a Fault for each completion without a valid score.

    A valid score is one finite number, or None if the row cannot be judged. A completion with a
    Fault scores None. If the call raises, or does not return one value per completion, each
    completion is scored alone, so one bad completion does not cost the whole batch its scores.
    Anything a reward raises becomes a Fault, including SystemExit; only KeyboardInterrupt is passed
    on. All async rewards of a process run on one event loop, so they may share a client.

    own: whether a user wrote the reward (see `is_own`). A call is then interrupted after 3 s per
        completion, at least 15 s and at most 300 s: in the main thread, on Linux and macOS.
    """
    # 1. Score the whole batch in one call.
    rows = len(completions)
    results = _call(reward, completions, columns, own)

    # 2. If there is no valid score, score one completion at a time. A call that ran out of time is
    # not repeated, because each completion might take as long again.
    all_failed = all(result.failed for result in results)
    ran_out_of_time = any(result.cause == OUT_OF_TIME for result in results)
    if all_failed and not ran_out_of_time and rows > 1:
        alone = []
        for position, completion in enumerate(completions):
            columns_of_row = {}
            for name, value in columns.items():
                has_one_per_completion = isinstance(value, (list, tuple)) and len(value) == rows
                columns_of_row[name] = [value[position]] if has_one_per_completion else value
                if name in ("log_extra", "log_metric"):  # these log one value per batch
                    columns_of_row[name] = lambda *ignored: None
            alone += _call(reward, [completion], columns_of_row, own)
        # If each completion succeeds alone, the reward cannot score a batch: keep that failure.
        if any(result.failed for result in alone):
            results = alone

    # 3. Make a fault of each failure.
    faults = []
    for position, result in enumerate(results):
        if result.failed:
            faults.append(
                Fault(
                    reward=reward_name(reward),
                    position=position,
                    completion=completion_text(completions[position]),
                    what=result.what,
                    advice=result.advice,
                    cause=result.cause,
                )
            )
    return [result.score for result in results], faults


def is_async(reward: Callable) -> bool:
    """Return whether a reward is async: a function, a functools.partial or a callable object."""
    while isinstance(reward, functools.partial):  # an object may have a `func` of its own
        reward = reward.func
    return inspect.iscoroutinefunction(reward) or inspect.iscoroutinefunction(reward.__call__)


class _Result(NamedTuple):
    """The score of one completion; or None and, of a fault, `what`, `advice` and `cause`."""

    score: float | None
    what: str = ""
    advice: str = ""
    cause: str = ""

    @property
    def failed(self) -> bool:
        """Return whether this is a fault. A score of None alone is valid."""
        return self.what != ""


def _call(reward: Callable, completions: list, columns: dict, own: bool) -> list[_Result]:
    """Return the result for each completion. If the call fails, all results are the same."""
    rows = len(completions)
    seconds = min(max(_SECONDS, _SECONDS_EACH * rows), _SECONDS_MOST)
    limit = time_limit(seconds) if own else nullcontext()
    try:
        # 1. Call the reward, and make a list of what it returns: still within the time limit,
        # because a generator computes its values only now.
        with limit:
            returned = reward(completions=completions, **columns)
            if inspect.isawaitable(returned):
                returned = wait_for(returned)
            # A reward model may return a tensor with one column.
            if getattr(returned, "ndim", 1) == 2:
                returned = returned.reshape(-1)
            # Text, a dictionary, or a tensor of another shape is not a list of scores.
            is_iterable = hasattr(returned, "__iter__") and getattr(returned, "ndim", 1) == 1
            is_list = is_iterable and not isinstance(returned, (str, bytes, dict))
            values = list(returned) if is_list else []

        # 2. Check each value.
        if len(values) == rows:
            return [_check(value) for value in values]
        failure = _Result(
            score=None,
            what=f"returned {_shown(returned)}, not one number for each of {rows},",
            advice="Return a list with one number per completion.",
            cause="not one number per completion",
        )
    except OutOfTime:
        failure = _Result(
            score=None,
            what=f"did not return within {seconds:g} s",
            advice=LATE,
            cause=OUT_OF_TIME,
        )
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # including SystemExit, if a reward runs a policy's `exit()`
        cause = type(error).__name__ + _place(error, reward)
        message = on_one_line(str(error)[:200])  # it may quote a completion, and it is printed
        failure = _Result(
            score=None,
            what=f"raised {cause}: {message}",
            advice=_advice_on(error, columns),
            cause=cause,
        )
    return [failure] * rows


def _shown(value: object) -> str:
    """Return the start of a value's `repr` for a message. That of a parsed completion, such as
    SymPy's, may be text of the completion as it is.
    """
    return on_one_line(repr(value)[:100])


def _check(value: object) -> _Result:
    """Return the result for one value that a reward returned."""
    if value is None:
        return _Result(None)
    score = math.nan
    if not isinstance(value, (str, bytes)):  # float("4") would be a number
        with suppress(TypeError, ValueError, OverflowError):
            score = float(value)
    if math.isfinite(score):
        return _Result(score)
    return _Result(
        score=None,
        what=f"returned {_shown(value)}, which is not a finite number,",
        advice="Return one finite number per completion, or None for a row that it cannot judge.",
        cause="no finite number",
    )


def _place(error: BaseException, reward: Callable) -> str:
    """Return the last line of the reward's own file or cell in the traceback, such as
    " in my_rewards.py, line 3", or "" if there is none.
    """
    code = getattr(defining_function(reward), "__code__", None)
    file = getattr(code, "co_filename", None)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename == file:
            name = Path(file).name if Path(file).is_file() else "its cell"
            return f" in {name}, line {frame.lineno}"
    return ""


def _advice_on(error: BaseException, columns: dict) -> str:
    """Return the advice on an error, "" if its cause is not known."""
    message = str(error)

    # 1. Python could not call the reward with these keywords: no line of the reward is in the
    # traceback.
    if error.__traceback__.tb_next is None:
        if "unexpected keyword argument 'completions'" in message:
            return (
                "TRL passes the texts as `completions`: give a parameter this name, and add "
                "`**columns`."
            )
        if "unexpected keyword argument" in message:
            return "Add `**columns` to its parameters: TRL passes every column of the data."
        if missing := re.search(r"missing \d+ required [\w -]+: (.*)", message):
            names = ", ".join(sorted(columns.keys() - FROM_TRL))
            return (
                "TRL passes `prompts`, `completions` and the data's columns by name; "
                f"{missing[1]} is not among them. The columns here: {names}."
            )

    # 2. The reward itself raised the error.
    if "event loop" in message:
        return "Write it as `async def` and use `await`: async rewards run on a loop already."
    if re.search("'list' object has no attribute|got 'list'", message):
        return MESSAGES
    return ""
