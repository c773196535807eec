"""Child processes: started, ended in order or killed, gone with their parent, asked why."""

import os
import re
import time

import psutil
import pytest

from helpers import subprocesses

ERROR = re.compile("^error: .*", re.M)
# a child that ends in order or not at all; with `parent`, one that starts such a child and waits
CHILD = """
import os, signal, sys, time
from pathlib import Path
from helpers import subprocesses
how = sys.argv[1]
if how == "parent":
    subprocesses.start("child", ["in order"], Path(sys.argv[2]), {})
if how == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if how == "in order":
    subprocesses.end_with_parent()
    signal.signal(signal.SIGTERM, lambda *_: (print("error: ended in order"), sys.exit(3)))
print(os.getpid(), flush=True)
time.sleep(600)
"""


@pytest.fixture
def start(tmp_path):
    (tmp_path / "child.py").write_text(CHILD)
    paths = {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(subprocesses.PROJECT)])}

    def started(*arguments):
        log = tmp_path / "logs" / f"{arguments[0]}.log"
        process = subprocesses.start("child", [*map(str, arguments)], log, paths)
        return process, pid_in(log), log

    yield started


def pid_in(log) -> int:
    while not log.exists() or not log.read_text().endswith("\n"):
        time.sleep(0.05)
    return int(log.read_text().split()[0])


def test_a_child_ends_in_order_or_is_killed(start):
    (orderly, pid, log), (stubborn, *_) = start("in order"), start("stubborn")
    assert pid == orderly.pid and os.getsid(pid) == pid, "Ctrl-C does not reach it"
    subprocesses.end([orderly, stubborn], patience=1)
    assert (orderly.returncode, stubborn.returncode) == (3, -9)
    assert subprocesses.last_error(log, ERROR) == "error: ended in order"


def test_a_child_ends_with_its_parent(start, tmp_path):
    log = tmp_path / "grandchild.log"
    parent, *_ = start("parent", log)
    child = psutil.Process(pid_in(log))
    parent.kill()
    parent.wait()
    assert not psutil.wait_procs([child], timeout=60)[1]
    assert subprocesses.last_error(log, ERROR) == "error: ended in order"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("step 1\nerror: no such run\nlater\n", "error: no such run"),
        ("one\n two \n\n", "two"),
        ("", "it ended without a word"),
    ],
)
def test_the_last_error_is_what_the_pattern_finds_or_else_the_last_line(tmp_path, text, why):
    (tmp_path / "log").write_text(text)
    assert subprocesses.last_error(tmp_path / "log", ERROR) == why
