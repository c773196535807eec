"""The back end "sandlock": CPython in a process of its own under Landlock and seccomp, one for each
program, forked from one that waits in the sandbox (`starter`).

A program reads the Python installation and nothing else, writes nothing (no file, no owner, mode,
time or attribute of one), has no network, no other process and no environment. As root it runs as
nobody, without any capability. Left out: a folder to write to, because no limit of its size holds
against one large or sparse file.
"""

import importlib.util
import json
import os
import select
import signal
import sys
import sysconfig
import time
from collections.abc import Sequence
from functools import lru_cache, partial

from helpers.rewards.code.driver import PRINTED_TOO_MUCH, READY
from helpers.rewards.code.plain import read
from helpers.rewards.code.starter import START_SECONDS, starter
from helpers.rewards.code.types import (
    Job,
    Limits,
    Outcome,
    out_of_memory,
    run_all,
    timeout,
)

_PYTHON = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
_DRIVER = os.path.join(os.path.dirname(__file__), "driver.py")
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
# what tells of files elsewhere. The driver refuses more: see `driver._keep_to_itself`.
_DENIED = """
    fchmod fchmodat fchmodat2 fchown fchownat utimensat setxattr lsetxattr fsetxattr setxattrat
    removexattr lremovexattr fremovexattr removexattrat file_setattr sync
    memfd_create memfd_secret vmsplice
    pidfd_open setpriority ioprio_set sched_setaffinity sched_setscheduler sched_setparam
    sched_setattr
    inotify_init1 fanotify_init clock_settime settimeofday syslog
"""
# Their forerunners, which no other machine has.
_DENIED_ON_X86 = "chmod chown lchown utime utimes futimesat inotify_init"


class SandlockSandbox:
    """Programs in processes of their own.

    ValueError where sandlock is not installed, or the machine lacks what it needs.
    """

    def __init__(self, workers: int | None = None):
        self.confinement = _possible()
        self.workers = workers or os.cpu_count() or 1

    def run(self, jobs: Sequence[Job], limits: Limits) -> list[list[Outcome]]:
        """As `Backend.run`."""
        outcomes = partial(_outcomes, self.confinement)
        return run_all(outcomes, jobs, limits, self.workers, "sandlock")


@lru_cache(maxsize=1)
def _possible() -> dict:
    """What sandlock makes of the starter, and of each child: the keywords of its Sandbox.

    ValueError naming what is missing.
    """
    if importlib.util.find_spec("sandlock") is None:
        raise ValueError(
            "the sandbox 'sandlock' is not installed: `pip install sandlock==0.9.0`, on Linux."
        )
    paths = sysconfig.get_paths()
    readable = {paths["stdlib"], paths["platstdlib"], _DRIVER, _PYTHON, *_SYSTEM}
    readable.add(os.path.join(sys.base_prefix, "lib"))  # where libpython may be
    older = _DENIED_ON_X86.split() if os.uname().machine == "x86_64" else []
    confinement = dict(
        fs_readable=sorted(path for path in readable if os.path.exists(path)),
        cwd="/",
        clean_env=True,
        max_open_files=32,
        no_coredump=True,
        # a verdict is the same each time: the order of sets, and in the driver random's numbers
        env={"PYTHONHASHSEED": "0"},
        extra_deny_syscalls=_DENIED.split() + older,
    )
    # Root becomes nobody in a user namespace, or in the driver where a container forbids those.
    mapped = [{"uid": _NOBODY, "gid": _NOBODY}] if os.geteuid() == 0 else []
    for identity in [*mapped, {}]:
        chosen = confinement | identity
        [outcome] = _outcomes(chosen, Job("import json\nprint(1)"), Limits(seconds=10.0))
        if outcome.output == "1\n":
            return chosen
    raise ValueError(
        f"the sandbox 'sandlock' does not start here ({outcome.message}): the kernel is older than "
        "Linux 6.12; or it, or the container around us, refuses Landlock or seccomp's user "
        "notification; or we are root, and the user nobody may not read this Python. Use 'monty'."
    )


def _outcomes(confinement: dict, job: Job, limits: Limits) -> list[Outcome]:
    """The outcomes of a job: of one process, or of one for each text that a script reads."""
    told = {"source": job.source, "output": limits.output, "calls": None, "stdin": ""}
    if job.call is not None:
        told["calls"] = job.calls
        return _run(confinement, told, job.count, limits, limits.seconds)[0]
    found, left = [], limits.seconds
    for text in job.texts:
        outcomes, left = _run(confinement, told | {"stdin": text}, 1, limits, left)
        found += outcomes
    return found


def _run(
    confinement: dict, told: dict, count: int, limits: Limits, seconds: float
) -> tuple[list[Outcome], float]:
    """The outcomes of one process, and how many of its seconds are left."""
    command = [_PYTHON, "-s", "-P", "-S", "-X", "utf8", _DRIVER]
    job = ascii(told).encode() + b"\n"
    found: list[Outcome] = []
    last, left = None, seconds  # last: the outcome of the inputs that have none
    try:
        with (
            starter(confinement, command) as process,
            process.begin(limits.memory, job) as reading,
        ):
            poll = select.poll()
            poll.register(reading, select.POLLIN)
            if not poll.poll(1000 * START_SECONDS) or not reading.read(len(READY)):
                raise TimeoutError("the interpreter did not start")
            ends, rest = time.monotonic() + seconds, b""
            while last is None and len(found) < count:
                left = ends - time.monotonic()
                if left <= 0 or not poll.poll(1000 * left):
                    last = timeout(limits)
                elif len(rest) > 12 * limits.output + _FRAME:
                    last = Outcome("output", message=f"it sent more than {limits.output} bytes.")
                elif data := reading.read(65536):
                    *lines, rest = (rest + data).split(b"\n")
                    found += [_outcome(line, limits) for line in lines[: count - len(found)]]
                else:
                    break
            left = ends - time.monotonic()
            status = process.end()
    except OSError as error:  # the machine's fault, not the program's
        failed = Outcome("not started", message=f"sandlock could not start it: {error}")
        return [failed] * count, left
    if last is None:  # the process ended by itself
        if status == PRINTED_TOO_MUCH:  # or the program chose this number, and has won nothing
            last = Outcome("output", message=f"it printed more than {limits.output} bytes.")
        elif status < 0 and status != -signal.SIGKILL:  # by which the starter ends it
            said = f"it crashed the interpreter (signal {-status})."
            last = Outcome("error", error="Crash", message=said)
        else:
            said = "it ended the process before it was done."
            last = Outcome("error", error="SystemExit", message=said)
    return found + [last] * (count - len(found)), left


def _outcome(told: bytes, limits: Limits) -> Outcome:
    """The outcome that a line of the driver's stands for; the program may have written it."""
    try:
        frame = json.loads(told)
        kind, value, line = frame["kind"], frame.get("value", "null"), frame.get("line")
        most = {"output": limits.output, "error": 100, "message": 500}
        texts = {name: str(frame.get(name, ""))[:length] for name, length in most.items()}
        if kind == "memory":
            return out_of_memory(limits, texts["output"])
        if kind not in ("value", "error", "output") or len(value) > limits.output:
            raise ValueError("the driver sends no such frame")
        return Outcome(kind, read(value), line=line if type(line) is int else None, **texts)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        said = "what came out of the sandbox is no outcome."
        return Outcome("error", error="SandboxError", message=said)
