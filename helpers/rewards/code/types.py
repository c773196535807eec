"""What goes into a sandbox and what comes out: a job and its limits, an outcome, a back end."""

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Literal, Protocol

SOURCE_MOST = 50_000  # characters of a program; a policy's has some thousands


@dataclass(frozen=True)
class Limits:
    """What one program may use, with all its inputs together, and the time of a whole batch.

    seconds: of time on the clock; under monty the last call that begins in time may take as long
    again. memory: bytes. output: bytes of what it prints, and of each value that it returns, as it
    is written down. batch: seconds after which no further program of one call of `run_code` starts.
    """

    seconds: float = 2.0
    memory: int = 256_000_000
    output: int = 64_000
    batch: float = 300.0

    def __post_init__(self) -> None:
        """ValueError for a limit that is no positive number."""
        for name, value in vars(self).items():
            kinds = int if name in ("memory", "output") else (int, float)
            if not isinstance(value, kinds) or not 0 < value < math.inf:
                kind = "whole number of bytes" if kinds is int else "number of seconds"
                raise ValueError(f"the limit {name}={value!r} is not a positive {kind}.")


@dataclass(frozen=True)
class Job:
    """A program and what to do with it.

    With `call`, the name of a function in it: the function is called with each of `inputs`, a tuple
    of argument tuples; one outcome per input. A tuple of names has one name per input. Without
    `call`, the program is run as a script that reads `stdin`; one outcome, whose `output` is what
    it printed. With a tuple of texts, it is run once for each. What ends a program (its time, its
    memory, a flood of output, a crash) ends it for the inputs that follow, too; a script that is
    run several times shares its time among all runs. A back end reads `calls` and `texts`, which
    are the same for both forms.
    """

    source: str
    call: str | tuple[str, ...] | None = None
    inputs: tuple = ()
    stdin: str | tuple[str, ...] | None = None

    @property
    def calls(self) -> list[tuple[str, tuple]]:
        """The function and the arguments of each call."""
        names = [self.call] * len(self.inputs) if isinstance(self.call, str) else self.call
        return list(zip(names, map(tuple, self.inputs), strict=True))

    @property
    def texts(self) -> tuple[str, ...]:
        """What each run of a script reads."""
        return self.stdin if isinstance(self.stdin, tuple) else (self.stdin or "",)

    @property
    def count(self) -> int:
        """How many outcomes it has."""
        return len(self.texts) if self.call is None else len(self.inputs)


@dataclass(frozen=True)
class Outcome:
    """What came of one input (or of one run of a script).

    kind: "value" (then `value` is plain data), "error" (then `error` is the exception's type,
    `line` the line of the program and `message` the text), "timeout", "memory", "output" (more than
    the limit), "unsupported" (the back end cannot run such a program; `message` says what it
    lacks), "not started" (the batch's time was over, or the machine failed). output: what was
    printed up to here, in full or up to the limit. backend: what ran it.
    """

    kind: Literal["value", "error", "timeout", "memory", "output", "unsupported", "not started"]
    value: object = None
    error: str = ""
    line: int | None = None
    message: str = ""
    output: str = ""
    backend: str = ""


class Backend(Protocol):
    """Where programs run: the plug-in point. A service of your own needs this one method."""

    def run(self, jobs: Sequence[Job], limits: Limits) -> list[list[Outcome]]:
        """A list of outcomes for each job, in order: `job.count` of them."""


def run_all(
    outcomes: Callable[[Job, Limits], list[Outcome]],
    jobs: Sequence[Job],
    limits: Limits,
    workers: int,
    backend: str,
) -> list[list[Outcome]]:
    """The outcomes of each job, of so many at a time. No program runs that is too long, and none
    starts after the batch's time.
    """
    ends = time.monotonic() + limits.batch
    late = f"the batch's {limits.batch:g} seconds were over before it could start."
    long = f"the program has more than {SOURCE_MOST} characters."

    def run(job: Job) -> list[Outcome]:
        if not job.count:
            return []
        if len(job.source) > SOURCE_MOST:
            return [Outcome("error", error="SyntaxError", message=long)] * job.count
        if time.monotonic() > ends:
            return [Outcome("not started", message=late)] * job.count
        return [replace(outcome, backend=backend) for outcome in outcomes(job, limits)]

    with ThreadPoolExecutor(workers) as threads:
        return list(threads.map(run, jobs))


# --- Outcomes that both back ends have ------------------------------------------------------------


def timeout(limits: Limits, output: str = "") -> Outcome:
    """The outcome of a program that did not end in time."""
    return Outcome(
        "timeout", message=f"it took longer than {limits.seconds:g} seconds.", output=output
    )


def out_of_memory(limits: Limits, output: str = "") -> Outcome:
    """The outcome of a program that needed too much memory."""
    return Outcome(
        "memory", message=f"it needed more than {limits.memory} bytes of memory.", output=output
    )
