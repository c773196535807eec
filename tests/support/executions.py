"""Executing the notebooks in tests: the small run that all compare with, the end of one, what
stands in for one; and a program as several processes, as torchrun starts it.
"""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import psutil

from helpers import PROJECT

SMALL = [
    "max_steps=12",
    "save_steps=4",
    "holdout_size=128",
    "train_size=200",
    "sampled_questions=16",
]


def kill(process: subprocess.Popen) -> None:
    """Nobody gets to say goodbye: the program, then the kernels, which jupyter starts in sessions
    of their own.
    """
    children = psutil.Process(process.pid).children()
    process.kill()
    for child in children:
        # a kernel that has seen that the program is gone
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
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


# --- Two processes --------------------------------------------------------------------------------

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def start(*program: str, cwd: Path | None = None, **environment: str) -> subprocess.Popen:
    """Two processes of one thread each; `program` is what torchrun takes after its own options."""
    own = {
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": str(PROJECT),
        "PYTHONUNBUFFERED": "1",
    }
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(
        [*TORCHRUN, *program], cwd=cwd or PROJECT, env=os.environ | own | environment, **pipes
    )


def ended(process: subprocess.Popen, seconds: float = 600) -> tuple[int, str, str]:
    """The exit code and what was printed; the process and its processes are ended if that
    takes too long.
    """
    try:
        out, err = process.communicate(timeout=seconds)
        return process.returncode, out, err
    finally:
        for left in processes_of(process).values():
            left.kill()
        process.kill()


def together(*program: str, seconds: float = 900, **environment: str) -> tuple[int, str, str]:
    """`start` and `ended`."""
    return ended(start(*program, **environment), seconds)


def processes_of(process: subprocess.Popen) -> dict[int, psutil.Process]:
    """The processes that a launcher has started, by their number."""
    try:
        children = psutil.Process(process.pid).children(recursive=True)
        return {
            int(child.environ()["RANK"]): child for child in children if "RANK" in child.environ()
        }
    except psutil.NoSuchProcess:
        return {}
