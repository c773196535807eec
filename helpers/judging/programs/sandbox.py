"""Run many untrusted programs at once, each in a sandbox of its own.

    [[outcome]] = run_code([Job("def add(a, b):\\n    return a + b", [("add", (1, 2))])])

A program's function is called inside the sandbox, and its value is compared outside, here. The
expected value never enters the sandbox, and only plain data leaves it. So a program's exit code,
its printed verdict, its `__eq__` and its exceptions decide nothing.

`run_code` chooses the sandboxes: monty first, then sandlock for the programs that monty may get
wrong. `_run_batch` runs a batch with one of them, and shares out the time. A sandbox runs one
program at a time, `_run`. At the end, `decode` reads the values that leave a sandbox.
"""

import contextlib
import importlib
import os
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

from helpers.judging.workers import slowness

# The sandboxes, and the time that each has for a batch of up to 64 programs, as a multiple of the
# time limit of one program.
# monty: an interpreter in Rust with part of the language; less than a millisecond per program.
# sandlock: all of CPython, under Landlock and seccomp, on Linux 6.12; about 0.05 s per program.
_BUDGETS = {"monty": 5.0, "sandlock": 10.0}
_BATCH = 64
_SLICE = 1 / 8  # the part of its time limit that every program of a batch gets at first
_BUSY = 1.3  # a machine that is slower by this factor is busy; also the margin of what it then gets
SOURCE_MOST = 50_000  # characters; a policy's program has some thousands

used_sandboxes: set[str] = set()  # the names of those that ran programs in this process
_late_before: list[int] = []  # the late programs of the last batch of this process


@dataclass(frozen=True)
class Limits:
    """The limits of one program, for all its inputs together.

    seconds: wall-clock time on a quiet machine; on a busy one, a program gets more. Under monty the
    last call can take up to twice as long. memory: in bytes. output: of everything printed, and of
    each returned value as text; in bytes, under monty in characters.
    """

    seconds: float = 1.0
    memory: int = 256_000_000
    output: int = 64_000


@dataclass(frozen=True)
class Job:
    """A program and its inputs. Each input has one outcome.

    calls: pairs of a function's name and a tuple of arguments, which are plain data. stdin: if
    there are no calls, the program is a script, and is run once for each of these texts. After a
    program crashes or exceeds a limit, all remaining inputs have the same outcome.
    """

    source: str
    calls: Sequence[tuple[str, tuple]] = ()
    stdin: Sequence[str] = ("",)

    @property
    def count(self) -> int:
        """Return the number of inputs, and so of outcomes."""
        return len(self.calls or self.stdin)


@dataclass(frozen=True)
class Outcome:
    """The result of one call, or of one run of a script.

    kind:
        "value": the call returned `value`, or the script ended.
        "error": the program raised `error`, the name of an exception, with the text `message`.
        "timeout", "memory", "output": the program exceeded this limit.
        "unsupported": the sandbox cannot run the program; `message` says why.
        "not started": the machine failed; `message` says how.
    output: what the program printed, up to the limit. seconds: how long the program had run.
    unordered: the items of a list may be in another order than in CPython. cut_short: the batch had
    no time left, so the program was stopped before it had reached its limit.
    """

    kind: Literal["value", "error", "timeout", "memory", "output", "unsupported", "not started"]
    value: object = None
    error: str = ""
    message: str = ""
    output: str = ""
    seconds: float = field(default=0.0, compare=False)
    unordered: bool = field(default=False, compare=False)
    cut_short: bool = field(default=False, compare=False)


def run_code(
    jobs: Sequence[Job],
    limits: Limits | None = None,
    sandbox: object = None,
    workers: int | None = None,
) -> list[list[Outcome]]:
    """Return the outcomes of each job, one per input.

    sandbox: "monty", "sandlock", or an object of your own with a method `run(job, limits)`, which
        returns the outcomes of a program and is called from several threads. None: two passes.
        Monty runs all programs. If sandlock works on this machine, it then runs those that monty
        cannot run, that ended with an error, or that may give another order in CPython, and its
        outcomes count. A program that CPython cannot read stays an error.
    workers: programs run at a time, by default the number of cores.

    How time is shared: in each pass, every program first gets a slice, an eighth of its time limit.
    Then those that need longer share the budget of the pass, and none gets more than its limit. The
    budget is 5 times the time limit of one program (10 if `sandbox` is "sandlock" or an object),
    and more for over 64 programs. If it does not suffice for all, those with the fewest calls left
    come first. A warning counts the programs that were stopped because the budget was used up. If
    the machine is busy, slices and budgets become longer, by the time that a reference computation
    takes.

    Raise ValueError if the sandbox is not known or does not work on this machine.

    >>> [[outcome]] = run_code([Job("def double(n):\\n    return 2 * n", [("double", (21,))])])
    >>> outcome.kind, outcome.value
    ('value', 42)
    """
    limits = limits or Limits()
    if isinstance(sandbox, str) and sandbox not in _BUDGETS:
        raise ValueError(
            f"the sandbox {sandbox!r} is not known. Known: {', '.join(_BUDGETS)}; or an object "
            "with run()."
        )

    # 1. The first pass, of all programs. It is the only one if a sandbox is given. An object may
    # be as slow as sandlock, so it gets the same budget.
    first = "monty" if sandbox is None else sandbox
    budget = _BUDGETS[first] if isinstance(first, str) else _BUDGETS["sandlock"]
    outcomes = _run_batch(jobs, limits, first, workers, budget)
    if sandbox is not None:
        return outcomes

    # 2. Find the programs for which CPython has the last word, by their place in `jobs`.
    doubtful = [place for place in range(len(jobs)) if any(map(_is_doubtful, outcomes[place]))]
    if not doubtful or not sandlock_works():
        return outcomes

    # 3. Early in a training run, most errors are programs that CPython cannot read, either. They
    # keep its syntax error, and are not run.
    unread = [place for place in doubtful if outcomes[place][0].error == "SyntaxError"]
    errors = _syntax_errors([jobs[place].source for place in unread], limits)
    for place, error in zip(unread, errors, strict=True):
        if error is not None:
            outcomes[place] = [error] * jobs[place].count
            doubtful.remove(place)

    # 4. The second pass, of the other doubtful programs. They get a budget of their own, so that no
    # neighbour has used it up; both budgets together take no longer than sandlock alone.
    second = _run_batch([jobs[place] for place in doubtful], limits, "sandlock", workers, budget)
    for place, job_outcomes in zip(doubtful, second, strict=True):
        if all(outcome.kind != "not started" for outcome in job_outcomes):
            outcomes[place] = job_outcomes
    return outcomes


def _is_doubtful(outcome: Outcome) -> bool:
    """Return whether a program may have another outcome in CPython than in monty."""
    return outcome.kind in ("unsupported", "error") or outcome.unordered


@lru_cache(maxsize=1)
def sandlock_works() -> bool:
    """Return whether sandlock is installed and confines a program on this machine."""
    with contextlib.suppress(ValueError):
        importlib.import_module("helpers.judging.programs.sandlock").Sandbox()
        return True
    return False


def _syntax_errors(sources: Sequence[str], limits: Limits) -> list[Outcome | None]:
    """Return CPython's syntax error for each source, as an outcome; None if there is none.

    One program in sandlock compiles them all. None also stands for those that it did not reach, or
    that exceeded a limit.
    """
    if not sources:
        return []
    compiling = Job(
        "def reads(source): compile(source, '<program>', 'exec')",
        [("reads", (source,)) for source in sources],
    )
    [compiled] = run_code([compiling], limits, "sandlock")
    return [
        outcome if outcome.error in ("SyntaxError", "IndentationError", "TabError") else None
        for outcome in compiled
    ]


def _run_batch(
    jobs: Sequence[Job], limits: Limits, sandbox: object, workers: int | None, budget: float
) -> list[list[Outcome]]:
    """Return the outcomes of all jobs, run with one sandbox.

    A program that reaches its limit of time is late, and may be run again with a longer one. Jobs
    are named by their places in `jobs`.

    budget: of up to _BATCH programs, as in _BUDGETS.
    """
    if isinstance(sandbox, str):
        used_sandboxes.add(sandbox)
        sandbox = importlib.import_module(f"helpers.judging.programs.{sandbox}").Sandbox()
    workers = workers or os.cpu_count() or 1
    budget *= limits.seconds * max(1.0, len(jobs) / _BATCH)
    outcomes: list[list[Outcome]] = [[]] * len(jobs)
    last_limit = [0.0] * len(jobs)  # the limit of time with which each job was run last
    began = time.monotonic()

    with ThreadPoolExecutor(workers) as threads:

        def run(waiting: Sequence[int], seconds: float) -> list[int]:
            """Run these jobs with this limit of time, and return those that are late."""
            limited = replace(limits, seconds=seconds)
            results = threads.map(lambda place: _run(sandbox, jobs[place], limited), waiting)
            late = []
            for place, job_outcomes in zip(waiting, results, strict=True):
                outcomes[place] = job_outcomes
                last_limit[place] = seconds
                if any(outcome.kind == "timeout" for outcome in job_outcomes):
                    late.append(place)
            return late

        # 1. Give every program a slice, which is longer on a busy machine. To measure that takes
        # time, so it is done beforehand only if programs of the last batch were late.
        margin_before = _margin() if _late_before else 1.0
        seconds = limits.seconds * _SLICE * margin_before
        late = run(range(len(jobs)), seconds)
        _late_before[:] = late

        # 2. If programs are late, measure now. Give them another slice if the machine is busier
        # than was thought.
        margin = max(margin_before, _margin()) if late else margin_before
        if margin > _BUSY * margin_before:
            seconds = limits.seconds * _SLICE * margin
            late = run(late, seconds)

        # 3. Let the late programs share the rest of the budget equally, as long as each gets at
        # least 1.5 times what it had. They start again from the beginning, so with less than that
        # they would mostly repeat what they have done.
        full_time = limits.seconds * margin
        end = began + budget * margin
        while late and seconds < full_time:
            share = min(full_time, (end - time.monotonic()) * workers / len(late))
            if share < 1.5 * seconds:
                break
            seconds = share
            late = run(late, seconds)

        # 4. If the rest does not suffice for all, give twice the time to those with the fewest
        # calls left, since a correct program may have been paused in its last one. (An endless
        # program can answer calls, too. It then takes a neighbour's second chance, but never its
        # slice.)
        if late and seconds < full_time:

            def calls_left(place: int) -> int:
                """Return the number of a job's calls without a value, such as errors."""
                return sum(outcome.kind != "value" for outcome in outcomes[place])

            late.sort(key=calls_left)
            seconds = min(full_time, 2 * seconds)
            rounds = max(0, int((end - time.monotonic()) / seconds))
            fitting = rounds * workers  # the number of programs that can still be run
            late = run(late[:fitting], seconds) + late[fitting:]

    # 5. Mark the programs that would have had more time in a smaller batch.
    cut_short = [place for place in late if last_limit[place] < full_time]
    for place in cut_short:
        outcomes[place] = [replace(outcome, cut_short=True) for outcome in outcomes[place]]
    if cut_short:
        shortest = min(last_limit[place] for place in cut_short)
        warnings.warn(
            f"{len(cut_short)} of {len(jobs)} programs were stopped after {shortest:.2g} s, "
            "because together they had used up the time of the batch; they count as programs that "
            "never end.",
            stacklevel=4,
        )
    return outcomes


def _margin() -> float:
    """Return the factor by which programs get more time here and now; 1.0 on an idle machine."""
    slower = slowness(time.monotonic, times=12)
    return _BUSY * slower if slower > _BUSY else 1.0


def _run(sandbox: object, job: Job, limits: Limits) -> list[Outcome]:
    """Return the outcomes of one job. A program that is too long never enters the sandbox."""
    if len(job.source) > SOURCE_MOST:
        message = f"the program has more than {SOURCE_MOST} characters."
        return [Outcome("error", error="SyntaxError", message=message)] * job.count
    if job.calls:
        return sandbox.run(job, limits)
    # Run a script again for each text. All runs share the time limit.
    outcomes = []
    seconds_left = limits.seconds
    for text in job.stdin:
        outcome = limit_outcome("timeout", limits)
        if seconds_left > 0:
            one_run = replace(job, stdin=(text,))
            [outcome] = sandbox.run(one_run, replace(limits, seconds=seconds_left))
        seconds_left -= outcome.seconds
        outcomes.append(outcome)
    return outcomes


def limit_outcome(kind: str, limits: Limits, output: str = "") -> Outcome:
    """Return the outcome of a program that exceeded a limit: "timeout", "memory" or "output"."""
    most = {
        "timeout": f"{limits.seconds:g} seconds",
        "memory": f"{limits.memory} bytes of memory",
        "output": f"{limits.output} bytes of output",
    }
    return Outcome(kind, message=f"it needed more than {most[kind]}.", output=output)


# --- Plain data that leaves a sandbox ------------------------------------------------------------


# How each kind is made of its parts.
_MADE = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "dict": lambda parts: dict(zip(parts[::2], parts[1::2], strict=True)),
    "bytes": bytes,
    "complex": lambda parts: complex(*parts),
}


def decode(written: object, depth: int = 0) -> object:
    """Return the value that `driver.encode` wrote as nested lists [kind, *parts].

    The lists may be forged. Raise ValueError if `encode` does not write such lists.

    >>> decode(["list", 1, ["tuple", 2.5, ["set", "a"]], ["dict", None, True]])
    [1, (2.5, {'a'}), {None: True}]
    """
    if type(written) in (type(None), bool, int, float, str):
        return written
    try:
        if type(written) is not list or depth > 100:
            raise TypeError(f"{written!r:.80}")
        kind, *parts = written
        if kind in ("set", "frozenset", "dict"):
            check_hashed(parts)
        return _MADE[kind]([decode(part, depth + 1) for part in parts])
    except (TypeError, LookupError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"not plain data: {error}") from None


def check_hashed(written: list) -> None:
    """Raise ValueError if the parts of a set or dictionary, at all levels, are more than 1,000.

    A set takes quadratic time to build if all its items have the same hash.
    """
    count = 0
    stack = [written]
    while stack:
        parts = stack.pop()
        count += len(parts)
        stack += [part for part in parts if type(part) is list]
    if count > 1000:
        raise ValueError("a set or a dictionary with more than 1000 parts")
