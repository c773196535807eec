"""Run what a policy wrote: many programs at once, each shut in, and only plain data comes out.

`run_code` is all that a reward needs. Inside, a function is called with the inputs of a test;
outside, here, its value is compared. The expected values never go in, no object of the policy's
ever comes out: exit codes, printed verdicts, `__eq__` and exceptions named like ours decide
nothing.

Back ends, chosen by name and never exchanged for one another:

- "monty": a Python interpreter written in Rust, in worker processes (pydantic-monty). Less than a
  millisecond a program; a part of the language and of the standard library. What it lacks comes out
  as "unsupported", never as a failure of the program.
- "sandlock": the whole of CPython in a process under Landlock and seccomp (Linux). About a
  twentieth of a second a program.
- an object with the method `run` of `Backend`, such as `RemoteSandbox`.

Left out: a bare subprocess (nothing holds it), containers (need rights), and falling back from one
to another (a verdict must not depend on what happens to be installed).
"""

from __future__ import annotations

import difflib
import keyword
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

SOURCE_MOST = 50_000  # characters of a program; a policy's has some thousands
_MOST_DEEP = 100  # levels of containers in a value
_LARGEST_INT = 14_280  # bits: 4,299 digits
PLAIN = (type(None), bool, int, float, complex, str, bytes)
CONTAINERS = (list, tuple, set, frozenset)


@dataclass(frozen=True)
class Limits:
    """What one program may use, with all its inputs together.

    seconds: of time on the clock. memory: bytes. output: bytes of what it prints, and of the values
    that it returns.
    """

    seconds: float = 2.0
    memory: int = 256_000_000
    output: int = 64_000

    def __post_init__(self) -> None:
        """ValueError for a limit that is no positive number."""
        for name in ("seconds", "memory", "output"):
            value, whole = getattr(self, name), name != "seconds"
            kinds = int if whole else (int, float)
            if (
                isinstance(value, bool)
                or not isinstance(value, kinds)
                or not (0 < value < math.inf)
            ):
                kind = "whole number of bytes" if whole else "number of seconds"
                raise ValueError(
                    f"the limit {name}={value!r} is not a positive {kind}, such as "
                    f"{name}={_DEFAULTS[name]}."
                )


_DEFAULTS = {"seconds": 2.0, "memory": 256_000_000, "output": 64_000}


@dataclass(frozen=True)
class Job:
    """A program and what to do with it.

    With `call`, the name of a function in it: the function is called with each of `inputs`, a tuple
    of argument tuples; one outcome per input. Without: the program is run as a script that reads
    `stdin`; one outcome, whose `output` is what it printed. What ends a program (its time, its
    memory, a flood of output, a crash) ends it for the inputs that follow, too.
    """

    source: str
    call: str | None = None
    inputs: tuple = ()
    stdin: str | None = None


@dataclass(frozen=True)
class Outcome:
    """What came of one input (or of a script).

    kind: "value" (then `value` is plain data), "error" (then `error` is the exception's type,
    `line` the line of the program and `message` the text), "timeout", "memory", "output" (more than
    the limit), "unsupported" (the back end cannot run such a program; `message` says what it
    lacks). output: what was printed up to here, in full or up to the limit.
    """

    kind: Literal["value", "error", "timeout", "memory", "output", "unsupported"]
    value: object = None
    error: str = ""
    line: int | None = None
    message: str = ""
    output: str = ""


class Backend(Protocol):
    """Where programs run: the plug-in point. A service of your own needs this one method."""

    def run(self, jobs: Sequence[Job], limits: Limits) -> list[list[Outcome]]:
        """A list of outcomes for each job, in order: one per input, or one for a script."""


def run_code(
    jobs: Sequence[Job],
    limits: Limits | None = None,
    backend: str | Backend = "monty",
    workers: int | None = None,
) -> list[list[Outcome]]:
    """Run each program in a sandbox of its own: a list of outcomes for each job, one per input, or
    one for a script.

    workers: how many run at the same time; by default as many as there are cores. A program that is
    too long, empty, or no text is an "error" of its own and never enters a sandbox. ValueError for
    a back end that is not known, not installed or not possible on this machine, and for inputs that
    are no plain data.

    >>> [[outcome]] = run_code([Job("def double(n):\\n    return 2 * n", "double", ((21,),))])
    >>> outcome.kind, outcome.value
    ('value', 42)
    """
    limits = limits or Limits()
    if not isinstance(limits, Limits):
        raise ValueError(f"limits={limits!r} is not a Limits, such as Limits(seconds=1.0).")
    jobs = [_checked(job) for job in jobs]
    chosen = backend_named(backend, workers) if isinstance(backend, str) else backend
    refused = [_refusal(job) for job in jobs]
    outcomes = iter(
        chosen.run([job for job, why in zip(jobs, refused, strict=True) if why is None], limits)
    )
    return [
        next(outcomes) if why is None else [why] * _count(job)
        for job, why in zip(jobs, refused, strict=True)
    ]


def _monty(workers: int | None) -> Backend:
    from helpers.rewards.code.monty import MontySandbox

    return MontySandbox(workers)


def _sandlock(workers: int | None) -> Backend:
    from helpers.rewards.code.sandlock import SandlockSandbox

    return SandlockSandbox(workers)


BACKENDS: dict[str, Callable[[int | None], Backend]] = {"monty": _monty, "sandlock": _sandlock}


def backend_named(name: str, workers: int | None = None) -> Backend:
    """The back end of this name.

    ValueError where it is not known, not installed, or the machine cannot have it.
    """
    if workers is not None and (
        isinstance(workers, bool) or not isinstance(workers, int) or workers < 1
    ):
        raise ValueError(
            f"workers={workers!r} is not a positive whole number; leave it out for one per core."
        )
    if name not in BACKENDS:
        near = difflib.get_close_matches(str(name), BACKENDS, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(
            f"the sandbox {name!r} is not known.{hint} Known: {', '.join(BACKENDS)}; or an object "
            "with run()."
        )
    return BACKENDS[name](workers)


# --- What goes in ---------------------------------------------------------------------------------


def _checked(job: Job) -> Job:
    """The job, if a caller may ask for it. ValueError names what the caller got wrong."""
    if not isinstance(job, Job):
        raise ValueError(
            f"{job!r} is not a Job, such as Job('def f(n): return n', call='f', inputs=((1,),))."
        )
    if job.call is None:
        if job.inputs:
            raise ValueError(
                "a Job with inputs needs call, the name of the function that they are for."
            )
        if not isinstance(job.stdin, str | None):
            raise ValueError(f"stdin={job.stdin!r} of a Job is not text.")
        return job
    if not (
        isinstance(job.call, str) and job.call.isidentifier() and not keyword.iskeyword(job.call)
    ):
        raise ValueError(f"call={job.call!r} of a Job is not the name of a function.")
    for arguments in job.inputs:
        if not isinstance(arguments, tuple | list):
            raise ValueError(
                f"the input {arguments!r} for {job.call} is not a tuple of arguments; write "
                f"({arguments!r},)."
            )
        if (odd := not_plain(arguments)) is not None:
            raise ValueError(
                f"an input for {job.call} holds {odd}: only plain data enters a sandbox (None, "
                "numbers, text, …)."
            )
    return job


def _refusal(job: Job) -> Outcome | None:
    """The outcome of a program that cannot be one, without running it."""
    source = job.source
    if not isinstance(source, str):
        return Outcome(
            "error",
            error="TypeError",
            message=f"the program is of type {type(source).__name__}, not text.",
        )
    if not source.strip():
        return Outcome("error", error="SyntaxError", message="the program is empty.")
    if len(source) > SOURCE_MOST:
        return Outcome(
            "error",
            error="SyntaxError",
            message=f"the program has {len(source)} characters; {SOURCE_MOST} at most.",
        )
    if "\0" in source:
        return Outcome("error", error="SyntaxError", message="the program holds a NUL character.")
    try:
        source.encode()
    except UnicodeEncodeError:
        return Outcome(
            "error",
            error="SyntaxError",
            message="the program holds half a character, which no UTF-8 file can.",
        )
    return None


def _count(job: Job) -> int:
    return 1 if job.call is None else len(job.inputs)


# --- What comes out -------------------------------------------------------------------------------


class TooMuch(Exception):
    """A value that is larger than the limit."""


def not_plain(value: object, most: float = math.inf) -> str | None:
    """What a value holds that is no plain data, in words; None if it is plain all through.

    Exact types only: a subclass of int, str or list brings methods of its own. TooMuch where it
    holds more than `most` bytes, counted as a tree: what stands in it twice counts twice, so that a
    few nested lists cannot stand for a billion.
    """
    stack, size = [(value, 0)], 0
    while stack:
        item, depth = stack.pop()
        kind = type(item)
        if depth > _MOST_DEEP:
            return f"containers nested more than {_MOST_DEEP} deep"
        if kind is dict:
            size += 2 * len(item)
            children = [*item.keys(), *item.values()] if size <= most else []
        elif kind in CONTAINERS:
            size += len(item)
            children = item if size <= most else []
        elif kind in PLAIN:
            size += _bytes_of(item, kind)
            children = ()
        else:
            return f"a value of type {kind.__name__}"
        if size > most:
            raise TooMuch
        stack.extend((child, depth + 1) for child in children)
    return None


def _bytes_of(item: object, kind: type) -> int:
    # about its decimal digits; more than Python prints is more than a verdict can use
    if kind is int:
        return item.bit_length() // 3 + 1 if item.bit_length() < _LARGEST_INT else math.inf
    return len(item) if kind in (str, bytes) else 1


def outcome_of(value: object, limits: Limits, output: str = "") -> Outcome:
    """The outcome for a value that a function returned: "value" if it is plain data within the
    limit, else what is wrong.
    """
    try:
        odd = not_plain(value, limits.output)
    except TooMuch:
        return Outcome(
            "output", message=f"it returned more than {limits.output} bytes.", output=output
        )
    if odd is None:
        return Outcome("value", value=value, output=output)
    return not_plain_outcome(odd, output)


def not_plain_outcome(odd: str, output: str = "") -> Outcome:
    """The outcome of a call that returned something else than plain data."""
    return Outcome(
        "error",
        error="TypeError",
        message=f"it returned {odd}; only plain data counts.",
        output=output,
    )


def timeout_outcome(limits: Limits, output: str = "") -> Outcome:
    """The outcome of a program that did not end in time."""
    return Outcome(
        "timeout", message=f"it took longer than {limits.seconds:g} seconds.", output=output
    )
