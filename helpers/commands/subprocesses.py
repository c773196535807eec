"""A run as a process of its own: started, ended in order, and asked why it failed.

For a sweep on this machine or on a cluster.

Needs no installed package, so that the processes that only start runs stay small.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from helpers import PROJECT
from helpers.runs import end_with

PATIENCE = 20.0  # seconds that an interrupted run has to save what it is at
# in a run's environment: the number of the process that it must not outlive
_PARENT = "GRPO_ENDS_WITH"
# how `python -m helpers run` says why it stopped
_ERROR_LINE = re.compile(r"(?:error: |\d\d_\w+\.ipynb[,:] ).*")


def start(arguments: list[str], log: Path, runs: Path, more: dict[str, str]) -> subprocess.Popen:
    """Start `python -m helpers …`, whose output is added to a log; it ends soon after this process,
    however this one ends.

    runs: its runs folder. more: what its environment gets besides.
    """
    environment = os.environ | more | {"GRPO_RUNS_DIR": str(runs), "PYTHONUNBUFFERED": "1"}
    own = {}
    if os.name == "posix":
        environment[_PARENT] = str(os.getpid())
        # a Ctrl-C reaches this process alone, which then ends the runs in order
        own = {"start_new_session": True}
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "helpers", *arguments],
            cwd=PROJECT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            **own,
        )


def end_with_parent() -> None:
    """In a run: watch the process that started it with `start`, and end as by Ctrl-C when that one
    is gone.

    A sweep that is killed, or the worker of a node that died, leaves nothing behind that would
    write where the next one does.
    """
    # not for the kernels, which watch this process by themselves
    parent = os.environ.pop(_PARENT, None)
    if parent is not None:
        end_with(int(parent), PATIENCE)


def end(processes: Iterable[subprocess.Popen]) -> None:
    """Interrupt what still runs, as Ctrl-C would; what has not ended after a while is killed."""
    for process in processes:
        # which a run takes like Ctrl-C; SIGINT itself is blocked in what Ray's workers start
        process.terminate()
    for process in processes:
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def last_error(log: Path, code: int) -> str:
    """The line of a run's output that says why it ended: the error of a notebook or of the command,
    or else the last one.
    """
    lines = [
        line.strip()
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines()
        if line.strip()
    ]
    said = [line for line in lines if _ERROR_LINE.fullmatch(line)] or lines
    return said[-1] if said else f"it ended with code {code} and said nothing"
