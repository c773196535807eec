"""The back end "sandlock": CPython in a process of its own under Landlock and seccomp, one for each
program, forked from one that waits in the sandbox (`starter`).

A program reads the Python installation and nothing else, writes nothing (no file, no owner, mode,
time or attribute of one), has no network, no other process and no environment. As root it runs as
nobody, without any capability. Left out: a folder to write to, because no limit of its size holds
against one large or sparse file.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import select
import signal
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial

from helpers.rewards.code import plain
from helpers.rewards.code.plain import returned
from helpers.rewards.code.starter import starter
from helpers.rewards.code.types import (
    Job,
    Limits,
    Outcome,
    out_of_memory,
    timeout,
    within_batch,
)

_DRIVER = os.path.join(os.path.dirname(__file__), "driver.py")
_START_SECONDS = 30.0  # for the interpreter to come up; the program's time begins when it has
_FILES = 32
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
    memfd_create memfd_secret
    pidfd_open setpriority ioprio_set sched_setaffinity sched_setscheduler sched_setparam
    sched_setattr
    inotify_init1 fanotify_init clock_settime settimeofday syslog
"""
# Their forerunners, which no other machine has.
_DENIED_ON_X86 = "chmod chown lchown utime utimes futimesat inotify_init"


class SandlockSandbox:
    """Programs in processes of their own.

    ValueError where sandlock is not installed, or what the machine lacks for it.
    """

    def __init__(self, workers: int | None = None):
        self.identity = _possible()
        self.workers = workers or os.cpu_count() or 1

    def run(self, jobs: Sequence[Job], limits: Limits) -> list[list[Outcome]]:
        """As `Backend.run`."""
        outcomes = within_batch(partial(_outcomes, identity=self.identity), limits, "sandlock")
        with ThreadPoolExecutor(self.workers) as threads:
            return list(threads.map(outcomes, jobs))


@lru_cache(maxsize=1)
def _possible() -> dict[str, int]:
    """The user that programs run as, as sandlock takes it. ValueError naming what is missing."""
    if importlib.util.find_spec("sandlock") is None:
        raise ValueError(
            "the sandbox 'sandlock' is not installed: `pip install sandlock==0.9.0`, on Linux."
        )
    # Root becomes nobody in a user namespace, or in the driver where a container forbids those.
    mapped = [{"uid": _NOBODY, "gid": _NOBODY}] if os.geteuid() == 0 else []
    for identity in [*mapped, {}]:
        [outcome] = _outcomes(Job("import json\nprint(1)"), Limits(seconds=10.0), identity)
        if outcome.output == "1\n":
            return identity
    raise ValueError(
        f"the sandbox 'sandlock' does not start here ({outcome.message}): the kernel is older than "
        "Linux 6.12; or it, or the container around us, refuses Landlock or seccomp's user "
        "notification; or we are root, and the user nobody may not read this Python. Use 'monty'."
    )


def _confinement(identity: dict[str, int]) -> dict:
    """What sandlock makes of the starter, and of each child."""
    paths = sysconfig.get_paths()
    readable = {paths["stdlib"], paths["platstdlib"], _DRIVER, _python(), *_SYSTEM}
    readable.add(os.path.join(sys.base_prefix, "lib"))  # where libpython may be
    older = _DENIED_ON_X86.split() if os.uname().machine == "x86_64" else []
    return dict(
        fs_readable=sorted(path for path in readable if os.path.exists(path)),
        cwd="/",
        clean_env=True,
        max_open_files=_FILES,
        no_coredump=True,
        # a verdict is the same each time: the order of sets, and in the driver random's numbers
        env={"PYTHONHASHSEED": "0"},
        extra_deny_syscalls=_DENIED.split() + older,
        **identity,
    )


def _python() -> str:
    return os.path.realpath(getattr(sys, "_base_executable", sys.executable))


def _outcomes(job: Job, limits: Limits, identity: dict[str, int]) -> list[Outcome]:
    """The outcomes of a job: of one process, or of one for each text that a script reads."""
    told = {"source": job.source, "output": limits.output, "calls": None, "stdin": ""}
    if job.call is not None:
        calls = [(name, arguments) for name, arguments in job.calls]
        return _Process(told | {"calls": calls}, job.count, limits).run(identity)
    found, left = [], limits.seconds
    for text in job.texts:
        if left <= 0:
            found.append(timeout(limits))
            continue
        process = _Process(told | {"stdin": text}, 1, limits, left)
        found += process.run(identity)
        left = process.ends - time.monotonic()
    return found


class _Process:
    """One process, and what comes out of it until it has said all, ended, said too much, or its
    time is over.
    """

    def __init__(self, told: dict, count: int, limits: Limits, seconds: float = 0.0):
        self.told, self.count, self.limits = told, count, limits
        self.seconds = seconds or limits.seconds
        self.ends = time.monotonic() + _START_SECONDS
        self.rest = b""
        self.exit: int | None = None

    def run(self, identity: dict[str, int]) -> list[Outcome]:
        """One outcome per input, or one for a script."""
        command = [_python(), "-s", "-P", "-S", "-X", "utf8", _DRIVER]
        try:
            with starter(_confinement(identity), command) as self.starter:
                self.writing, self.reading = self.starter.begin(self.limits.memory)
                found = list(self._outcomes())
                if self.exit is None:
                    self.starter.end()
        except OSError as error:  # the machine's fault, not the program's
            found = [Outcome("not started", message=f"sandlock could not start it: {error}")]
        return found + [found[-1]] * (self.count - len(found))

    def _outcomes(self) -> Iterator[Outcome]:
        self.poll = select.poll()
        self.poll.register(self.reading, select.POLLIN)
        try:
            self._tell(ascii(self.told).encode() + b"\n")
            if self._frame().get("kind") != "ready":
                raise _Ended(_NO_START)
            self.ends = time.monotonic() + self.seconds
            for _ in range(self.count):
                frame = self._frame()
                yield self._outcome(frame)
                if frame.get("all") is True:  # the program did not get as far as its inputs
                    break
        except _Ended as ended:
            yield ended.outcome

    def _tell(self, message: bytes) -> None:
        # it ended before it read: what it says, or does not, tells
        with contextlib.suppress(OSError):
            while message:
                message = message[os.write(self.writing, message) :]

    def _frame(self) -> dict:
        """The next line. _Ended where there is none."""
        while b"\n" not in self.rest:
            if len(self.rest) > 12 * self.limits.output + _FRAME:
                said = f"it sent more than {self.limits.output} bytes."
                raise _Ended(Outcome("output", message=said))
            left = self.ends - time.monotonic()
            if left <= 0 or not self.poll.poll(1000 * left):
                raise _Ended(timeout(self.limits))
            data = os.read(self.reading, 65536)
            if not data:
                raise _Ended(self._end())
            self.rest += data
        line, _, self.rest = self.rest.partition(b"\n")
        with contextlib.suppress(ValueError):
            frame = plain.read(line.decode("ascii"))
            if isinstance(frame, dict):
                return frame
        raise _Ended(_NONSENSE)

    def _end(self) -> Outcome:
        """Why it ended without a word."""
        self.exit = self.starter.end()
        said = "it ended the process before it was done."
        if self.exit < 0 and self.exit != -signal.SIGKILL:  # by which the starter ends it
            said = f"it crashed the interpreter (signal {-self.exit})."
            return Outcome("error", error="Crash", message=said)
        return Outcome("error", error="SystemExit", message=said)

    def _outcome(self, frame: dict) -> Outcome:
        """The outcome that a line of the driver's stands for; the program may have written it."""
        kind, value, line = frame.get("kind"), frame.get("value", "None"), frame.get("line")
        output = str(frame.get("output") or "")[: self.limits.output]
        if kind == "value" and isinstance(value, str):
            return returned(value, self.limits, output)
        if kind == "memory":
            return out_of_memory(self.limits, output)
        if kind not in ("error", "output"):
            return _NONSENSE
        error, message = (str(frame.get(name) or "") for name in ("error", "message"))
        line = line if type(line) is int else None
        return Outcome(kind, error=error[:100], line=line, message=message[:500], output=output)


class _Ended(Exception):
    def __init__(self, outcome: Outcome):
        super().__init__(outcome.message)
        self.outcome = outcome


_NO_START = Outcome("not started", message="the interpreter did not start in sandlock.")
_NONSENSE = Outcome(
    "error", error="SandboxError", message="what came out of the sandbox is no outcome."
)
