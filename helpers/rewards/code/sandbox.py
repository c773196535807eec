"""Run many untrusted programs at once, each in a sandbox of its own.

    [[outcome]] = run_code([Job("def add(a, b):\\n    return a + b", [("add", (1, 2))])])

A program's function is called inside the sandbox, and its value is compared outside, here. The
expected value never enters the sandbox, and only plain data leaves it. So a program's exit code,
its printed verdict, its `__eq__` and its exceptions decide nothing.
"""

import importlib
import os
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Literal


@dataclass(frozen=True)
class Limits:
    """The limits of one program, for all its inputs together.

    seconds: wall-clock time. Under monty the last call can take up to twice as long. memory: in
    bytes. output: of everything printed, and of each returned value as text; in bytes, under monty
    in characters.
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
        "unsupported": the back end cannot run the program; `message` says why.
        "not started": the machine failed; `message` says how.
    output: what the program printed, up to the limit. seconds: how long the program had run.
    unordered: the items of a list may be in another order than in CPython.
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

    backend: "monty", "sandlock", or an object with a method `run(job, limits)`, which returns the
        outcomes of a program and is called from several threads.
    workers: programs run at a time, by default the number of cores.

    A batch has a budget for programs that return no value: together they may take one time limit.
    When it is used up, each remaining program gets only a share of its time and memory, given in
    `BACKENDS`. Raise ValueError if the back end is not known or does not work on this machine.

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
    # The limits of a program after the budget is used up.
    brief = replace(
        limits,
        seconds=max(0.01, time_share * limits.seconds),
        memory=int(memory_share * limits.memory),
    )
    wasted = 0.0  # seconds that programs without a value have taken beyond their shares
    cut_short = 0  # programs stopped because the budget was used up

    def run_in_budget(job: Job) -> list[Outcome]:
        nonlocal wasted, cut_short
        hurried = wasted + brief.seconds >= limits.seconds  # the budget is one time limit
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


# monty: an interpreter in Rust with part of the language; less than a millisecond per program.
# sandlock: all of CPython, under Landlock and seccomp, on Linux 6.12; about 0.1 s per program.
# The numbers are a program's shares of its time and memory after the budget is used up.
BACKENDS = {"monty": (0.01, 0.05), "sandlock": (0.25, 1.0)}
SOURCE_MOST = 50_000  # characters; a policy's program has some thousands


def _run(backend: object, job: Job, limits: Limits) -> list[Outcome]:
    """Return the outcomes of one job. A program that is too long never enters the sandbox."""
    if len(job.source) > SOURCE_MOST:
        message = f"the program has more than {SOURCE_MOST} characters."
        return [Outcome("error", error="SyntaxError", message=message)] * job.count
    if job.calls:
        return backend.run(job, limits)
    # Run a script again for each text. All runs share the time limit.
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
    """Return the outcome of a program that exceeded a limit: "timeout", "memory" or "output"."""
    most = {
        "timeout": f"{limits.seconds:g} seconds",
        "memory": f"{limits.memory} bytes of memory",
        "output": f"{limits.output} bytes of output",
    }
    return Outcome(kind, message=f"it needed more than {most[kind]}.", output=output)


# --- Plain data that leaves a sandbox ------------------------------------------------------------


def decode(written: object, depth: int = 0) -> object:
    """Return the value that `driver.encode` wrote as nested lists [kind, *parts].

    The lists may be forged: raise ValueError for anything that `encode` does not write.

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


_MADE = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "dict": lambda parts: dict(zip(parts[::2], parts[1::2], strict=True)),
    "bytes": bytes,
    "complex": lambda parts: complex(*parts),
}


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
