"""The back end "sandlock": CPython in a process of its own under Landlock and seccomp, one for each
program.

A program reads the Python installation and nothing else, writes nothing (no file, no owner, mode,
time or attribute of one), has no network, no other process and no environment. As root it runs as
nobody, without any capability. Left out: a folder to write to, because no limit of its size holds
against one large or sparse file; and an interpreter that waits and forks for each program.
"""

import contextlib
import importlib.util
import json
import os
import select
import sys
import sysconfig
import time
import warnings
from dataclasses import replace
from functools import lru_cache

from helpers.rewards.code.sandbox import Job, Limits, Outcome, decode, limit_outcome

_PYTHON = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
_DRIVER = os.path.join(os.path.dirname(__file__), "driver.py")
_START_SECONDS = 30.0  # for the interpreter to come up; the program's time begins when it has
_END_SECONDS = 1.0  # for a process that has closed its output to end by itself
_FRAME = 20_000  # bytes of an outcome besides what is printed and returned
_SYSTEM = (
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/etc/ld.so.cache",
    "/dev/null",
    "/dev/urandom",
    "/dev/zero",
)
_NOBODY = 65534
# Refused beside sandlock's own list: metadata of files, for which Landlock has no right; memory
# that no limit counts; what reaches another process by its number, ours for example; and
# what tells of files elsewhere. The driver refuses more: see `driver.refuse_more`.
_DENIED = """
    fchmod fchmodat fchmodat2 fchown fchownat utimensat setxattr lsetxattr fsetxattr setxattrat
    removexattr lremovexattr fremovexattr removexattrat file_setattr sync flock
    memfd_create memfd_secret vmsplice
    pidfd_open setpriority ioprio_set sched_setaffinity sched_setscheduler sched_setparam
    sched_setattr
    inotify_init1 fanotify_init clock_settime settimeofday syslog
"""
# Their forerunners, which no other machine has.
_DENIED_ON_X86 = "chmod chown lchown utime utimes futimesat inotify_init"


class Sandbox:
    """Programs in processes of their own.

    Raise ValueError if sandlock is not installed, or the machine lacks what it needs.
    """

    def __init__(self):
        self.confinement = _confinement()

    def run(self, job: Job, limits: Limits) -> list[Outcome]:
        """Return the outcomes of a program, from one process."""
        return _run_confined(self.confinement, job, limits)


@lru_cache(maxsize=1)
def _confinement() -> dict:
    """Return the keywords of sandlock's Sandbox with which a program runs on this machine.

    Raise ValueError naming what is missing.
    """
    if importlib.util.find_spec("sandlock") is None:
        raise ValueError(
            "the sandbox 'sandlock' is not installed: `pip install sandlock==0.9.0`, on Linux."
        )
    paths = sysconfig.get_paths()
    readable = {paths["stdlib"], paths["platstdlib"], _DRIVER, _PYTHON, *_SYSTEM}
    readable.add(os.path.join(sys.base_prefix, "lib"))  # where libpython may be
    older = _DENIED_ON_X86.split() if os.uname().machine == "x86_64" else []
    confinement = {
        "fs_readable": sorted(path for path in readable if os.path.exists(path)),
        "cwd": "/",
        "clean_env": True,
        "env": {"PYTHONHASHSEED": "0"},  # a verdict is the same each time: the order of sets
        "max_processes": 1,
        "max_open_files": 32,
        "no_coredump": True,
        "extra_deny_syscalls": _DENIED.split() + older,
    }
    # sandlock wants both numbers, and warns that the second is not used.
    warnings.filterwarnings("ignore", message="Policy field 'gid'")
    # Root becomes nobody in a user namespace, or in the driver if a container forbids those.
    mapped = [{"uid": _NOBODY, "gid": _NOBODY}] if os.geteuid() == 0 else []
    for identity in [*mapped, {}]:
        confined = confinement | identity
        [outcome] = _run_confined(confined, Job("import json\nprint(1)"), Limits(seconds=10.0))
        if outcome.output == "1\n":
            return confined
    raise ValueError(
        f"the sandbox 'sandlock' does not start here ({outcome.message}). Possible causes: a "
        "kernel older than Linux 6.12; Landlock or seccomp's user notification blocked, perhaps by "
        "the container; or running as root while the user nobody cannot read this Python. "
        "Use 'monty'."
    )


def _run_confined(confinement: dict, job: Job, limits: Limits) -> list[Outcome]:
    """Return the outcomes of one process: one per call, or that of the script."""
    from sandlock import ExitReason, Sandbox, StdioMode

    task = {"source": job.source, "calls": list(job.calls), "stdin": job.stdin[0]}
    task |= {"memory": limits.memory, "output": limits.output}
    piped = {"stdin": StdioMode.PIPED, "stdout": StdioMode.PIPED, "stderr": StdioMode.NULL}
    command = [_PYTHON, "-s", "-P", "-S", "-X", "utf8", _DRIVER]
    outcomes: list[Outcome] = []
    received = b""  # and not yet a whole line
    last = None  # the outcome of the inputs that have none
    try:
        with Sandbox(**confinement).popen(command, **piped) as process:
            # Tell it the job, and wait until the interpreter is ready: then its time begins.
            with (
                contextlib.suppress(BrokenPipeError),  # it has ended, which the next step sees
                os.fdopen(os.dup(process.stdin.fileno()), "wb") as file,
            ):
                file.write(ascii(task).encode() + b"\n")
            poll = select.poll()
            poll.register(process.stdout, select.POLLIN)
            if not poll.poll(1000 * _START_SECONDS) or not process.stdout.read(1):
                raise RuntimeError("the interpreter did not start")
            began = time.monotonic()
            # Read an outcome per line, until all are there, it has ended, or it exceeds a limit.
            while last is None and len(outcomes) < job.count:
                remaining = began + limits.seconds - time.monotonic()
                if remaining <= 0 or not poll.poll(1000 * remaining):
                    last = limit_outcome("timeout", limits)
                elif len(received) > 12 * limits.output + _FRAME:
                    last = limit_outcome("output", limits)
                else:
                    data = process.stdout.read(65536)
                    if not data:
                        break
                    *lines, received = (received + data).split(b"\n")
                    missing = job.count - len(outcomes)
                    outcomes += [_read_outcome(line, limits) for line in lines[:missing]]
            seconds = time.monotonic() - began
            over = last is not None or len(outcomes) == job.count
            ended = process.wait(timeout=0.001 if over else _END_SECONDS)  # then it is killed
    except (RuntimeError, OSError) as error:  # the machine's fault, not the program's
        failed = Outcome("not started", message=f"sandlock could not start it: {error}")
        return [failed] * job.count
    if last is None:  # it ended by itself
        if ended.reason == ExitReason.SIGNALED:
            message = f"it crashed the interpreter (signal {ended.signal})."
            last = Outcome("error", error="Crash", message=message)
        else:
            message = "it ended the process before it was done."
            last = Outcome("error", error="SystemExit", message=message)
    outcomes += [last] * (job.count - len(outcomes))
    return [replace(outcome, seconds=seconds) for outcome in outcomes]


def _read_outcome(line: bytes, limits: Limits) -> Outcome:
    """Return the outcome in a line of the driver's, which the program may have written."""
    try:
        frame = json.loads(line)
        most = {"output": limits.output, "error": 100, "message": 500}
        texts = {name: str(frame.get(name, ""))[:length] for name, length in most.items()}
        if frame["kind"] in ("memory", "output"):
            return limit_outcome(frame["kind"], limits, texts["output"])
        value = frame.get("value", "null")
        if frame["kind"] not in ("value", "error") or len(value) > limits.output:
            raise ValueError("the driver sends no such frame")
        return Outcome(frame["kind"], decode(json.loads(value)), **texts)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        message = f"what came out of the sandbox is not an outcome: {error!s:.200}"
        return Outcome("error", error="SandboxError", message=message)
