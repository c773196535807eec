"""Call a program in each sandbox that works on this machine."""

import pytest

from helpers.judging.programs.sandbox import Job, Limits, Outcome, run_code

SAME = "def f(x):\n    return x"
SHORT = Limits(seconds=1.0, memory=150_000_000, output=5_000)

NO_SANDLOCK = ""  # why sandlock does not work on this machine
try:
    run_code([Job("1")], sandbox="sandlock")
except ValueError as error:
    NO_SANDLOCK = str(error)
NEEDS_SANDLOCK = pytest.mark.skipif(bool(NO_SANDLOCK), reason=NO_SANDLOCK)
SANDLOCK = pytest.param("sandlock", marks=NEEDS_SANDLOCK)
SANDBOXES = pytest.mark.parametrize("sandbox", ["monty", SANDLOCK])


def call(source: str, *inputs, sandbox="monty", limits: Limits = SHORT) -> list[Outcome]:
    """Return the outcome of f for each tuple of arguments."""
    [outcomes] = run_code(
        [Job(source, [("f", arguments) for arguments in inputs])], limits, sandbox
    )
    return outcomes


def script(source: str, stdin: str = "", sandbox="monty", limits: Limits = SHORT) -> Outcome:
    [[outcome]] = run_code([Job(source, stdin=[stdin])], limits, sandbox)
    return outcome
