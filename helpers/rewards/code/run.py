"""Run many programs at once, each in a sandbox of its own.

A function is called inside with the inputs of a test; outside, here, its value is compared. The
expected values never go in, and no object of the policy's ever comes out: exit codes, printed
verdicts, `__eq__` and exceptions named like ours decide nothing.
"""

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from helpers.rewards.code.jobs import Backend, Job, Limits, Outcome
from helpers.rewards.code.monty import Monty
from helpers.rewards.code.sandlock import Sandlock

__all__ = ["BACKENDS", "Backend", "Job", "Limits", "Outcome", "backend_named", "run_code"]

SOURCE_MOST = 50_000  # characters of a program; a policy's has some thousands

# monty: an interpreter in Rust; part of the language; less than a millisecond per program.
# sandlock: all of CPython, under Landlock and seccomp; Linux 6.12; about 0.1 s per program.
BACKENDS: dict[str, Callable[[], Backend]] = {"monty": Monty, "sandlock": Sandlock}


def run_code(
    jobs: Sequence[Job],
    limits: Limits | None = None,
    backend: str | Backend = "monty",
    workers: int | None = None,
) -> list[list[Outcome]]:
    """Return the outcomes of each job, one per input.

    backend: "monty", "sandlock", or an object with the method `run` of `Backend`. workers: programs
    at a time; by default the number of cores. A program that is too long is an "error" and never
    enters a sandbox. Raise ValueError for a back end that this machine cannot have.

    >>> [[outcome]] = run_code([Job("def double(n):\\n    return 2 * n", [("double", (21,))])])
    >>> outcome.kind, outcome.value
    ('value', 42)
    """
    limits = limits or Limits()
    sandbox = backend_named(backend) if isinstance(backend, str) else backend
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
        return sandbox.run(job, limits)

    with ThreadPoolExecutor(workers or os.cpu_count()) as threads:
        return list(threads.map(outcomes, jobs))


def backend_named(name: str) -> Backend:
    """Return the back end of this name.

    Raise ValueError if it is not known, not installed, or the machine cannot have it.
    """
    if name not in BACKENDS:
        raise ValueError(
            f"the sandbox {name!r} is not known. Known: {', '.join(BACKENDS)}; or an object with "
            "run()."
        )
    return BACKENDS[name]()
