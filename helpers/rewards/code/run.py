"""Run many programs at once, each in a sandbox of its own.

A function is called inside with the inputs of a test; outside, here, its value is compared. The
expected values never go in, and no object of the policy's ever comes out: exit codes, printed
verdicts, `__eq__` and exceptions named like ours decide nothing.
"""

import importlib
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Literal

SOURCE_MOST = 50_000  # characters of a program; a policy's has some thousands

# monty: an interpreter in Rust; part of the language; less than a millisecond per program.
# sandlock: all of CPython, under Landlock and seccomp; Linux 6.12; about 0.1 s per program.
BACKENDS = ("monty", "sandlock")


@dataclass(frozen=True)
class Limits:
    """What one program may use for all its inputs together, and the time of a whole batch.

    seconds: wall-clock time; under monty the last call that begins in time may take as long again.
    memory: bytes. output: bytes of what it prints, and of each value that it returns, as text.
    batch: seconds after which `run_code` starts no further program.
    """

    seconds: float = 2.0
    memory: int = 256_000_000
    output: int = 64_000
    batch: float = 300.0


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
    back end cannot run such a program; `message` says what it lacks), "not started" (the batch's
    time was over, or the machine failed). output: what the program printed, up to the limit.
    seconds: what it took until then, on the clock.
    """

    kind: Literal["value", "error", "timeout", "memory", "output", "unsupported", "not started"]
    value: object = None
    error: str = ""
    message: str = ""
    output: str = ""
    seconds: float = field(default=0.0, compare=False)


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
    if isinstance(backend, str):
        if backend not in BACKENDS:
            raise ValueError(
                f"the sandbox {backend!r} is not known. Known: {', '.join(BACKENDS)}; or an object "
                "with run()."
            )
        backend = importlib.import_module(f"helpers.rewards.code.{backend}").Sandbox()
    ends = time.monotonic() + limits.batch

    def outcomes(job: Job) -> list[Outcome]:
        refused = ""
        if len(job.source) > SOURCE_MOST:
            refused = f"the program has more than {SOURCE_MOST} characters."
        elif "\0" in job.source:
            refused = "the program contains null bytes."  # which monty allows in comments
        if refused:
            return [Outcome("error", error="SyntaxError", message=refused)] * job.count
        if time.monotonic() > ends:
            late = f"the batch's {limits.batch:g} seconds were over before it could start."
            return [Outcome("not started", message=late)] * job.count
        if job.calls:
            return backend.run(job, limits)
        # A script is run anew for each text; all runs share its time.
        found = []
        left = limits.seconds
        for text in job.stdin:
            if left > 0:
                [outcome] = backend.run(replace(job, stdin=(text,)), replace(limits, seconds=left))
                left -= outcome.seconds
            else:
                outcome = exceeded("timeout", limits)
            found.append(outcome)
        return found

    with ThreadPoolExecutor(workers or os.cpu_count()) as threads:
        return list(threads.map(outcomes, jobs))


def exceeded(kind: str, limits: Limits, output: str = "") -> Outcome:
    """Return the outcome of a program that went over a limit: "timeout", "memory" or "output"."""
    most = {
        "timeout": f"{limits.seconds:g} seconds",
        "memory": f"{limits.memory} bytes of memory",
        "output": f"{limits.output} bytes of output",
    }
    return Outcome(kind, message=f"it needed more than {most[kind]}.", output=output)


# --- What leaves a sandbox: plain data, written as lists by `driver.encoded` ----------------------

_DEEPEST = 100  # levels of containers in a value
# Parts of a set or a dictionary, with all that is in them. Where all items have one hash, each is
# compared with all before it: a second's work for the process that reads more of them.
_MOST_HASHED = 1_000
_MADE = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "dict": lambda parts: dict(zip(parts[::2], parts[1::2], strict=True)),
    "bytes": bytes,
    "complex": lambda parts: complex(*parts),
}


def decoded(written: object, depth: int = 0) -> object:
    """Return the value that `driver.encoded` wrote.

    What is written may be hostile: raise ValueError for anything else.

    >>> decoded(["list", 1, ["tuple", 2.5, ["set", "a"]], ["dict", None, True]])
    [1, (2.5, {'a'}), {None: True}]
    """
    if type(written) in (type(None), bool, int, float, str):
        return written
    try:
        if type(written) is not list or depth > _DEEPEST:
            raise TypeError(f"{written!r:.80}")
        kind, *parts = written
        if kind in ("set", "frozenset", "dict") and _size(parts) > _MOST_HASHED:
            raise TypeError(f"a {kind} with more than {_MOST_HASHED} parts")
        return _MADE[kind]([decoded(part, depth + 1) for part in parts])
    except (TypeError, LookupError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"not plain data: {error}") from None


def _size(written: object) -> int:
    return sum(map(_size, written)) if type(written) is list else 1
