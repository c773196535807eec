"""The battery of attacks: none escapes a sandbox, and many escape a harness without a sandbox."""

import subprocess
import sys

import pytest
from escapes import ANSWER, BATTERY, SECRET, SUCCESS, attempt
from sandboxes import SANDBOXES

from helpers.judging.programs.sandbox import Outcome


def test_there_are_many_attacks_and_none_contains_the_answer():
    names = [escape.name for escape in BATTERY]
    assert len(names) >= 100 and len(set(names)) == len(names)
    assert not any(str(ANSWER) in escape.source for escape in BATTERY)


# One attack for each target.
FAMILIES = list({escape.after: escape for escape in BATTERY}.values())


@pytest.mark.parametrize(
    "battery",
    [FAMILIES, pytest.param(BATTERY, marks=pytest.mark.slow)],
    ids=["families", "all"],
)
@SANDBOXES
def test_nothing_escapes(sandbox, battery, capfd):
    won = {name: win for name, win in attempt(sandbox, battery).items() if win}
    assert won == {}
    assert capfd.readouterr() == ("", ""), "nothing is printed by our process"


class Naive:
    """The usual harness: it runs the program and its test in a process with our files and
    environment, and counts an exit code of 0 as passed.
    """

    def run(self, job, limits) -> list[Outcome]:
        """Run a program like a sandbox."""
        program = f"{job.source}\nprint(solve(20))\nassert solve(20) == {ANSWER}\n"
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=600
        )
        if done.returncode == 0:
            return [Outcome("value", value=ANSWER, output=done.stdout)]
        return [Outcome("error", output=done.stdout)]


@pytest.mark.parametrize(
    ("name", "won"),
    [
        ("os._exit(0) in the program", SUCCESS),
        ("SystemExit(0)", SUCCESS),
        ("an object equal to everything", SUCCESS),
        ("an int equal to everything", SUCCESS),
        ("the environment", SECRET),
        ("our file of tests", SECRET),
        ("a file outside", "outside"),
        ("a connection", "outside"),
        ("a local socket", "outside"),
        ("ctypes", "outside"),
        ("PASS", None),
    ],
)
def test_the_battery_finds_a_naive_harness(name, won):
    """Only harmless attacks are listed, because this harness really runs them."""
    [escape] = [escape for escape in BATTERY if escape.name == name]
    win = attempt(Naive(), [escape], workers=1)[name]
    assert win == won or (won == "outside" and win)
