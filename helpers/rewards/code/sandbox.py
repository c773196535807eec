"""Run many programs at once, each in a sandbox of its own.

A function is called inside with the inputs of a test; outside, here, its value is compared. The
expected values never go in, and no object of the policy's ever comes out: exit codes, printed
verdicts, `__eq__` and exceptions named like ours decide nothing.
"""

import importlib
import os
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Literal

SOURCE_MOST = 50_000  # characters of a program; a policy's has some thousands

# monty: an interpreter in Rust; part of the language; less than a millisecond per program.
# sandlock: all of CPython, under Landlock and seccomp; Linux 6.12; about 0.1 s per program.
# The numbers are the shares of its time and memory that a program gets where others have used up
# the budget of the batch.
BACKENDS = {"monty": (0.01, 0.05), "sandlock": (0.25, 1.0)}


@dataclass(frozen=True)
class Limits:
    """What one program may use for all its inputs together.

    seconds: wall-clock time; under monty the last call that begins in time may take as long again.
    Once the programs of a batch that come to nothing have cost as much together, each of the others
    gets a small share of its time and memory. memory: bytes. output: bytes (under monty
    characters) of what it prints, and of each value that it returns, as text.
    """

    seconds: float = 1.0
    memory: int = 256_000_000
    output: int = 64_000


@dataclass(frozen=True)
class Job:
    """A program and its inputs; it has one outcome per input.

    calls: pairs of a function's name and a tuple of its arguments, plain data; each is called in
    turn. stdin: without calls, the program is run as a script, once for each of these texts, which
    it reads. A program that exceeds a limit or crashes has the same outcome for all inputs that
    follow.
    """

    source: str
    calls: Sequence[tuple[str, tuple]] = ()
    stdin: Sequence[str] = ("",)

    @property
    def count(self) -> int:
        """Return the number of its outcomes."""
        return len(self.calls or self.stdin)


@dataclass(frozen=True)
class Outcome:
    """The result of one call, or of one run of a script.

    kind: "value" (then `value` is plain data), "error" (then `error` is the exception's type and
    `message` its text), "timeout", "memory", "output" (more than the limit), "unsupported" (the
    back end cannot run such a program; `message` says what it lacks), "not started" (the machine
    failed). output: what the program printed, up to the limit. seconds: what it took until then, on
    the clock. unordered: the items of a list may be in another order than in CPython.
    """

    kind: Literal["value", "error", "timeout", "memory", "output", "unsupported", "not started"]
    value: object = None
    error: str = ""
    message: str = ""
    output: str = ""
    seconds: float = field(default=0.0, compare=False)
    unordered: bool = field(default=False, compare=False)


def run_code(
    jobs: Sequence[Job],
    limits: Limits | None = None,
    backend: object = "monty",
    workers: int | None = None,
) -> list[list[Outcome]]:
    """Return the outcomes of each job, one per input.

    backend: "monty", "sandlock", or an object with a method `run(job, limits)`, which is called by
    several threads at a time and returns the outcomes of a program: one per call, or that of a
    script with one text. workers: programs at a time; by default the number of cores. A program
    that is too long is an "error" and never enters a sandbox. Raise ValueError for a back end that
    this machine cannot have.

    >>> [[outcome]] = run_code([Job("def double(n):\\n    return 2 * n", [("double", (21,))])])
    >>> outcome.kind, outcome.value
    ('value', 42)
    """
    limits = limits or Limits()
    time_share, memory_share = BACKENDS["sandlock"]
    if isinstance(backend, str):
        if backend not in BACKENDS:
            raise ValueError(
                f"the sandbox {backend!r} is not known. Known: {', '.join(BACKENDS)}; or an object "
                "with run()."
            )
        time_share, memory_share = BACKENDS[backend]
        backend = importlib.import_module(f"helpers.rewards.code.{backend}").Sandbox()
    brief = replace(
        limits,
        seconds=max(0.01, time_share * limits.seconds),
        memory=int(memory_share * limits.memory),
    )
    wasted = 0.0  # seconds of the programs that came to nothing, beyond what each may have
    cut_short = 0

    def run_in_budget(job: Job) -> list[Outcome]:
        nonlocal wasted, cut_short
        hurried = wasted + brief.seconds >= limits.seconds  # one full limit is the budget
        began = time.monotonic()
        outcomes = _run(backend, job, brief if hurried else limits)
        kinds = {outcome.kind for outcome in outcomes}
        if kinds != {"value"}:
            wasted += max(0.0, time.monotonic() - began - brief.seconds)
            cut_short += hurried and not kinds.isdisjoint(("timeout", "memory"))
        return outcomes

    with ThreadPoolExecutor(workers or os.cpu_count()) as threads:
        outcomes = list(threads.map(run_in_budget, jobs))
    if cut_short:
        warnings.warn(
            f"{cut_short} of {len(jobs)} programs were stopped after {brief.seconds:g} s, because "
            f"others had used up the {limits.seconds:g} s of a batch for those that never end.",
            stacklevel=3,
        )
    return outcomes


def _run(backend: object, job: Job, limits: Limits) -> list[Outcome]:
    """Return the outcomes of a job, if its program is not too long."""
    if len(job.source) > SOURCE_MOST:
        message = f"the program has more than {SOURCE_MOST} characters."
        return [Outcome("error", error="SyntaxError", message=message)] * job.count
    if job.calls:
        return backend.run(job, limits)
    # A script is run anew for each text; all runs share its time.
    outcomes = []
    seconds = limits.seconds
    for text in job.stdin:
        outcome = limit_outcome("timeout", limits)
        if seconds > 0:
            [outcome] = backend.run(replace(job, stdin=(text,)), replace(limits, seconds=seconds))
        seconds -= outcome.seconds
        outcomes.append(outcome)
    return outcomes


def limit_outcome(kind: str, limits: Limits, output: str = "") -> Outcome:
    """Return the outcome of a program that went over a limit: "timeout", "memory" or "output"."""
    most = {
        "timeout": f"{limits.seconds:g} seconds",
        "memory": f"{limits.memory} bytes of memory",
        "output": f"{limits.output} bytes of output",
    }
    return Outcome(kind, message=f"it needed more than {most[kind]}.", output=output)


# --- What leaves a sandbox: plain data, written as lists by `driver.encode` ----------------------

_DEEPEST = 100  # levels of containers in a value
_MOST_HASHED = 1_000  # parts of a set or a dictionary, with all that is in them
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
    """Return the value that `driver.encode` wrote.

    What is written may be hostile: raise ValueError for anything else.

    >>> decode(["list", 1, ["tuple", 2.5, ["set", "a"]], ["dict", None, True]])
    [1, (2.5, {'a'}), {None: True}]
    """
    if type(written) in (type(None), bool, int, float, str):
        return written
    try:
        if type(written) is not list or depth > _DEEPEST:
            raise TypeError(f"{written!r:.80}")
        kind, *parts = written
        if kind in ("set", "frozenset", "dict"):
            check_hashed(parts)
        return _MADE[kind]([decode(part, depth + 1) for part in parts])
    except (TypeError, LookupError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"not plain data: {error}") from None


def check_hashed(written: list) -> None:
    """Raise ValueError if a set or a dictionary of these parts could take long to build: where all
    have one hash, each is compared with all before it.
    """
    count = 0
    stack = [written]
    while stack:
        parts = stack.pop()
        count += len(parts)
        stack += [part for part in parts if type(part) is list]
    if count > _MOST_HASHED:
        raise ValueError(f"a set or a dictionary with more than {_MOST_HASHED} parts")
