"""The back end "sandlock": run each program in a CPython process of its own, confined by Landlock
and seccomp.

A program can read the Python installation and nothing else. It cannot write a file or change a
file's owner, mode, times or attributes. It has no network, no access to other processes, and no
environment variables. If we run as root, the program runs as the user nobody, without capabilities.

`_confinement` finds out once what works on this machine. `_run_confined` runs a program: it starts
`driver.py` in a confined process, and sends it the job as a line of text. `_read_outcomes` reads
what comes back.

Left out: a writable folder, because no limit on its size holds against one large or sparse file;
and a running interpreter that is forked for each program.
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
from typing import BinaryIO, NamedTuple

from helpers.judging.programs.sandbox import Job, Limits, Outcome, decode, limit_outcome

_PYTHON = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
_DRIVER = os.path.join(os.path.dirname(__file__), "driver.py")
# The files outside the Python installation that an interpreter needs.
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
# System calls refused in addition to sandlock's own list: changes to a file's metadata, for which
# Landlock has no right; memory that no limit counts; access to another process by its number; and
# reports about files elsewhere. `driver.refuse_more` refuses more.
_DENIED = """
    fchmod fchmodat fchmodat2 fchown fchownat utimensat setxattr lsetxattr fsetxattr setxattrat
    removexattr lremovexattr fremovexattr removexattrat file_setattr sync flock
    memfd_create memfd_secret vmsplice
    pidfd_open setpriority ioprio_set sched_setaffinity sched_setscheduler sched_setparam
    sched_setattr
    inotify_init1 fanotify_init clock_settime settimeofday syslog
"""
# Older system calls, which only x86 still has.
_DENIED_ON_X86 = "chmod chown lchown utime utimes futimesat inotify_init"


class Sandbox:
    """The back end: a process for each program.

    Raise ValueError if sandlock is not installed, or does not work on this machine.
    """

    def __init__(self):
        self.confinement = _confinement()

    def run(self, job: Job, limits: Limits) -> list[Outcome]:
        """Return one outcome per call of the program, or one outcome for a script."""
        return _run_confined(self.confinement, job, limits)


@lru_cache(maxsize=1)
def _confinement() -> dict:
    """Return the keywords of sandlock's Sandbox that work on this machine.

    Raise ValueError if none do.
    """
    if importlib.util.find_spec("sandlock") is None:
        raise ValueError(
            "the sandbox 'sandlock' is not installed: `pip install sandlock==0.9.0`, on Linux."
        )

    # 1. What the program may read, and which system calls it may not make.
    paths = sysconfig.get_paths()
    readable = {paths["stdlib"], paths["platstdlib"], _DRIVER, _PYTHON, *_SYSTEM}
    readable.add(os.path.join(sys.base_prefix, "lib"))  # libpython may be here
    denied = _DENIED.split()
    if os.uname().machine == "x86_64":
        denied += _DENIED_ON_X86.split()
    confinement = {
        "fs_readable": sorted(path for path in readable if os.path.exists(path)),
        "cwd": "/",
        "clean_env": True,
        "env": {"PYTHONHASHSEED": "0"},  # a fixed order of sets makes verdicts repeatable
        "max_processes": 1,
        "max_open_files": 32,
        "no_coredump": True,
        "extra_deny_syscalls": denied,
    }

    # 2. The user that it runs as. If we are root, sandlock makes the program nobody in a user
    # namespace. If a container forbids user namespaces, the driver does.
    identities: list[dict] = [{}]
    if os.geteuid() == 0:
        identities.insert(0, {"uid": 65534, "gid": 65534})
        # sandlock requires the gid, and warns that it does not use it.
        warnings.filterwarnings("ignore", message="Policy field 'gid'")

    # 3. Try a small program.
    for identity in identities:
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
    """Run a program in a process, and return one outcome per call, or one for a script."""
    from sandlock import ExitReason, Sandbox, StdioMode

    task = {
        "source": job.source,
        "calls": list(job.calls),
        # A script has exactly one text here: `sandbox._run` runs it again for each.
        "stdin": job.stdin[0],
        "memory": limits.memory,
        "output": limits.output,
    }
    piped = {"stdin": StdioMode.PIPED, "stdout": StdioMode.PIPED, "stderr": StdioMode.NULL}
    command = [_PYTHON, "-s", "-P", "-S", "-X", "utf8", _DRIVER]
    try:
        with Sandbox(**confinement).popen(command, **piped) as process:
            # 1. Send the job.
            with (
                contextlib.suppress(BrokenPipeError),  # the process has ended: the next step raises
                os.fdopen(os.dup(process.stdin.fileno()), "wb") as file,
            ):
                file.write(ascii(task).encode() + b"\n")

            # 2. Wait up to 30 s for the byte that the driver writes when it is ready. Then the
            # program's time begins.
            poll = select.poll()
            poll.register(process.stdout, select.POLLIN)
            if not poll.poll(30_000) or not process.stdout.read(1):
                raise RuntimeError("the interpreter did not start")
            began = time.monotonic()
            end = began + limits.seconds

            # 3. Read the outcomes.
            read = _read_outcomes(process.stdout, poll, job.count, limits, end)

            # 4. End the process. If it has closed its output by itself, it first gets the rest of
            # its time to end, at most a second.
            seconds_left = end - time.monotonic()
            patience = min(1.0, max(0.001, seconds_left)) if read.closed else 0.001
            ended = process.wait(timeout=patience)
            seconds = time.monotonic() - began
    except (RuntimeError, OSError) as error:  # the machine failed, not the program
        failed = Outcome("not started", message=f"sandlock could not start it: {error}")
        return [failed] * job.count

    # 5. The calls without an outcome have that of the limit, or of the way the process ended.
    if read.exceeded is not None:
        last = read.exceeded
    elif ended.reason == ExitReason.SIGNALED:
        message = f"it crashed the interpreter (signal {ended.signal})."
        last = Outcome("error", error="Crash", message=message)
    else:
        message = "it ended the process before it was done."
        last = Outcome("error", error="SystemExit", message=message)
    outcomes = read.outcomes + [last] * (job.count - len(read.outcomes))
    return [replace(outcome, seconds=seconds) for outcome in outcomes]


class _Read(NamedTuple):
    """What a program returned: the outcomes of its first calls, and why there are no more.

    exceeded: the outcome of a limit that the program exceeded; None if it exceeded none.
    closed: True if the program closed its output, most often by ending, before it was done.
    """

    outcomes: list[Outcome]
    exceeded: Outcome | None = None
    closed: bool = False


def _read_outcomes(
    output: BinaryIO, poll: select.poll, count: int, limits: Limits, end: float
) -> _Read:
    """Read an outcome per line until there are `count`, the program closes its output, or it
    exceeds a limit.

    poll: waits for the output. end: when the program's time is over, on the monotonic clock.
    """
    outcomes: list[Outcome] = []
    unfinished = b""  # the beginning of the next line
    while len(outcomes) < count:
        seconds_left = end - time.monotonic()
        if seconds_left <= 0 or not poll.poll(1000 * seconds_left):
            return _Read(outcomes, exceeded=limit_outcome("timeout", limits))
        if len(unfinished) > 12 * limits.output + 20_000:  # more than any outcome needs
            return _Read(outcomes, exceeded=limit_outcome("output", limits))
        data = output.read(65536)
        if not data:
            return _Read(outcomes, closed=True)
        *lines, unfinished = (unfinished + data).split(b"\n")
        missing = count - len(outcomes)
        outcomes += [_read_outcome(line, limits) for line in lines[:missing]]
    return _Read(outcomes)


def _read_outcome(line: bytes, limits: Limits) -> Outcome:
    """Return the outcome in a line of the driver's output. The program may have forged the line."""
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
