"""Executing the notebooks in tests: the small run that all compare with, the end of one, and what
stands in for one.
"""

import contextlib
import os
import signal
import subprocess

SMALL = [
    "max_steps=12",
    "save_steps=4",
    "holdout_size=128",
    "train_size=200",
    "sampled_questions=16",
    "serve=false",
]


def kill(process: subprocess.Popen) -> None:
    """Nobody gets to say goodbye: the program, then the kernels, which jupyter starts in sessions
    of their own.
    """
    children = subprocess.run(
        ["pgrep", "-P", str(process.pid)], capture_output=True, text=True
    ).stdout.split()
    process.kill()
    for pid in map(int, children):
        # a kernel that has seen that the program is gone
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


class Executions(list):
    """In place of execution: the (number, parameters) of each notebook; `outcomes` says which fail,
    or what they raise.
    """

    def __init__(self):
        self.outcomes = {}

    def __call__(self, path, run, parameters):
        number = path.name[:2]
        self.append((number, parameters))
        outcome = self.outcomes.get(number, True)
        if isinstance(outcome, type):
            raise outcome
        return outcome
