"""Run what a policy wrote: many programs at once, each shut in, and only plain data comes out.

`run_code` is all that a reward needs. Inside, a function is called with the inputs of a test;
outside, here, its value is compared. The expected values never go in, no object of the policy's
ever comes out: exit codes, printed verdicts, `__eq__` and exceptions named like ours decide
nothing.

Back ends, chosen by name and never exchanged for one another:

- "monty": a Python interpreter written in Rust, in worker processes (pydantic-monty). Less than a
  millisecond a program; a part of the language and of the standard library. What it lacks comes out
  as "unsupported", never as a failure of the program.
- "sandlock": the whole of CPython in a process under Landlock and seccomp (Linux). Some five
  milliseconds a program.
- "auto": monty, and sandlock for each program that monty calls unsupported. An outcome says which
  back end it is from.
- an object with the method `run` of `Backend`: a service of your own.

Left out: a bare subprocess (nothing holds it), containers (need rights), and falling back from one
to another (a verdict must not depend on what happens to be installed).
"""

from collections.abc import Callable, Sequence

from helpers.rewards.code.monty import MontySandbox
from helpers.rewards.code.plain import not_plain
from helpers.rewards.code.sandlock import SandlockSandbox
from helpers.rewards.code.types import SOURCE_MOST, Backend, Job, Limits, Outcome

__all__ = [
    "BACKENDS",
    "SOURCE_MOST",
    "Backend",
    "Job",
    "Limits",
    "Outcome",
    "backend_named",
    "run_code",
]


def run_code(
    jobs: Sequence[Job],
    limits: Limits | None = None,
    backend: str | Backend = "monty",
    workers: int | None = None,
) -> list[list[Outcome]]:
    """Run each program in a sandbox of its own: a list of outcomes for each job, one per input, or
    one for a script.

    workers: how many run at the same time; by default as many as there are cores. A program that is
    too long is an "error" and never enters a sandbox. ValueError for a back end that is not known,
    not installed or not possible on this machine, and for inputs that are no plain data.

    >>> [[outcome]] = run_code([Job("def double(n):\\n    return 2 * n", "double", ((21,),))])
    >>> outcome.kind, outcome.value
    ('value', 42)
    """
    for job in jobs:
        if job.call is None and job.inputs:
            raise ValueError("a Job with inputs needs call, the name of the function they are for.")
        for name in [job.call] if isinstance(job.call, str) else job.call or ():
            if not name.isidentifier():
                raise ValueError(f"call={name!r} of a Job is not the name of a function.")
        for arguments in job.inputs:
            if not isinstance(arguments, tuple | list):
                raise ValueError(
                    f"the input {arguments!r} for {job.call} is not a tuple of arguments; write "
                    f"({arguments!r},)."
                )
            if odd := not_plain(arguments):
                raise ValueError(
                    f"an input for {job.call} holds {odd}: only plain data can be given."
                )
    chosen = backend_named(backend, workers) if isinstance(backend, str) else backend
    return chosen.run(jobs, limits or Limits())


class AutoSandbox:
    """monty, and sandlock for each program that monty calls unsupported. ValueError where the
    machine cannot have both: no verdict may depend on what happens to be installed.
    """

    def __init__(self, workers: int | None = None):
        self.monty, self.sandlock = MontySandbox(workers), SandlockSandbox(workers)

    def run(self, jobs: Sequence[Job], limits: Limits) -> list[list[Outcome]]:
        """As `Backend.run`."""
        found = self.monty.run(jobs, limits)
        again = [
            at
            for at, outcomes in enumerate(found)
            if any(outcome.kind == "unsupported" for outcome in outcomes)
        ]
        ran = self.sandlock.run([jobs[at] for at in again], limits)
        for at, outcomes in zip(again, ran, strict=True):
            found[at] = outcomes
        return found


BACKENDS: dict[str, Callable[[int | None], Backend]] = {
    "monty": MontySandbox,
    "sandlock": SandlockSandbox,
    "auto": AutoSandbox,
}


def backend_named(name: str, workers: int | None = None) -> Backend:
    """The back end of this name.

    ValueError where it is not known, not installed, or the machine cannot have it.
    """
    if name not in BACKENDS:
        raise ValueError(
            f"the sandbox {name!r} is not known. Known: {', '.join(BACKENDS)}; or an object with "
            "run()."
        )
    return BACKENDS[name](workers)
