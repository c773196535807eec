"""A part of the project as a process of its own: started, ended in order, and asked why it failed.

Needs no installed package, so that the processes that only start others stay small.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from helpers import PROJECT

_PARENT = "GRPO_ENDS_WITH"  # a child's variable: the number of the process that it must not outlive


def start(
    module: str, arguments: list[str], log: Path, environment: dict[str, str]
) -> subprocess.Popen:
    """Start `python -m module arguments`; its output is appended to a log.

    environment: additional variables. The child has a session of its own, so that a Ctrl-C reaches
    only the parent, which then ends its children in order.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    own = {"PYTHONUNBUFFERED": "1", _PARENT: str(os.getpid())}
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=PROJECT,
            env=os.environ | own | environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def end(processes: list[subprocess.Popen], patience: float = 20.0) -> None:
    """Ask processes that `start` started to end; after `patience` seconds kill those that are still
    there, and whatever they have left in their sessions.
    """
    for process in processes:
        process.terminate()
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def end_with_parent() -> None:
    """In a child: end as by SIGTERM soon after the process that started it with `start` is gone,
    however that one ended. A parent that is killed then leaves nothing behind.
    """
    # taken out, because it is not meant for this process's own children
    parent = os.environ.pop(_PARENT, None)

    def watch() -> None:
        while os.getppid() == int(parent):
            time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGTERM)

    if parent is not None:
        threading.Thread(target=watch, daemon=True).start()


def last_error(log: Path, pattern: re.Pattern) -> str:
    """Return why a process ended, by its log: the last match of a pattern (of its group, if it has
    one), or else the last line.
    """
    text = log.read_text(encoding="utf-8", errors="replace")
    found = pattern.findall(text) or [line for line in text.splitlines() if line.strip()]
    return found[-1].strip() if found else "it ended without a word"
