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
- an object with the method `run` of `Backend`: a service of your own.

Left out: a bare subprocess (nothing holds it), containers (need rights), and falling back from one
to another (a verdict must not depend on what happens to be installed).
"""

from __future__ import annotations

import difflib
import keyword
from collections.abc import Callable, Sequence

from helpers.rewards.code.monty import MontySandbox
from helpers.rewards.code.sandlock import SandlockSandbox
from helpers.rewards.code.types import Backend, Job, Limits, Outcome, not_plain

__all__ = ["BACKENDS", "Backend", "Job", "Limits", "Outcome", "backend_named", "run_code"]

SOURCE_MOST = 50_000  # characters of a program; a policy's has some thousands


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


BACKENDS: dict[str, Callable[[int | None], Backend]] = {
    "monty": MontySandbox,
    "sandlock": SandlockSandbox,
}


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
