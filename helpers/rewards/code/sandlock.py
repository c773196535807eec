"""The back end "sandlock": CPython in a process of its own under Landlock and seccomp, one for each
program.

No network, no other process, no file but the Python installation and an empty folder that is gone
afterwards, no environment. Left out: a warm interpreter that forks for each program. It would save
most of the time, and what one program does to it would meet the next.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

from helpers.rewards.code import driver
from helpers.rewards.code.types import Job, Limits, Outcome, outcome_of, timeout_outcome

_START_SECONDS = 30.0  # for the interpreter to come up; the program's time begins when it has
_FILES = 32
_DISK = 16_000_000  # bytes that a program may write
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


# Memory that max_memory does not count, and what reaches another process by its number: ours, for
# example. prlimit64 is missing here, because an interpreter needs it for itself: see
# `sandbox_inside._keep_to_itself`.
_DENIED = ["memfd_create", "pidfd_open", "setpriority", "ioprio_set"]
_DENIED += ["sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr"]


class SandlockSandbox:
    """Programs in processes of their own.

    ValueError where sandlock is not installed, or what the kernel lacks for it.
    """

    def __init__(self, workers: int | None = None):
        _possible()
        self.workers = workers or os.cpu_count() or 1

    def run(self, jobs: Sequence[Job], limits: Limits) -> list[list[Outcome]]:
        """As `Backend.run`."""
        with ThreadPoolExecutor(self.workers) as threads:
            return list(threads.map(lambda job: _run(job, limits), jobs))


@lru_cache(maxsize=1)
def _possible() -> None:
    """ValueError naming what is missing."""
    if not sys.platform.startswith("linux"):
        raise ValueError(
            f"the sandbox 'sandlock' needs Linux; this is {sys.platform}. Use 'monty'."
        )
    try:
        import sandlock
    except ImportError:
        raise ValueError(
            "the sandbox 'sandlock' is not installed: `pip install sandlock==0.9.0`."
        ) from None
    has, needs = sandlock.landlock_abi_version(), sandlock.min_landlock_abi()
    if has < needs:
        found = "no Landlock" if has < 1 else f"version {has} of Landlock's interface"
        raise ValueError(
            f"the sandbox 'sandlock' needs version {needs} of Landlock (Linux 6.7); this kernel "
            f"has {found}. Use 'monty'."
        )
    [outcome] = _run(Job("print(1)"), Limits(seconds=10.0))
    if outcome.output != "1\n":
        raise ValueError(
            f"the sandbox 'sandlock' does not start here ({outcome.message}): the kernel, or the "
            "container around us, refuses "
            "Landlock or seccomp's user notification. Use 'monty'."
        )


def _confined(folder: str, limits: Limits):
    from sandlock import BranchAction, Sandbox

    work = os.path.join(folder, "work")
    os.mkdir(work)
    paths = sysconfig.get_paths()
    readable = {paths["stdlib"], paths["platstdlib"], driver.__file__, _python(), *_SYSTEM}
    readable.add(os.path.join(sys.base_prefix, "lib"))  # where libpython may be
    return Sandbox(
        fs_readable=sorted(path for path in readable if os.path.exists(path)),
        fs_writable=[work],
        cwd=work,
        # what is written there goes to a branch, which max_disk bounds and ABORT throws away
        workdir=work,
        fs_storage=os.path.join(folder, "storage"),
        max_disk=_DISK,
        on_exit=BranchAction.ABORT,
        clean_env=True,
        max_memory=limits.memory,
        max_processes=1,
        max_open_files=_FILES,
        no_coredump=True,
        # a verdict is the same each time: the order of sets, and random's first numbers
        random_seed=0,
        extra_deny_syscalls=_DENIED,
    )


def _python() -> str:
    return os.path.realpath(getattr(sys, "_base_executable", sys.executable))


def _run(job: Job, limits: Limits) -> list[Outcome]:
    from sandlock import StdioMode

    piped, null = StdioMode.PIPED, StdioMode.NULL
    command = [_python(), "-I", "-S", "-X", "utf8", driver.__file__]
    with tempfile.TemporaryDirectory(prefix="sandbox-", ignore_cleanup_errors=True) as folder:
        try:
            process = _confined(folder, limits).popen(
                command, stdin=piped, stdout=piped, stderr=null
            )
        except RuntimeError as error:
            why = f"sandlock could not start it: {error}"  # the machine's fault, not the program's
            return [Outcome("unsupported", message=why)] * (len(job.inputs) if job.call else 1)
        with process:
            return _Reader(process, job, limits).outcomes()


def _message(job: Job, limits: Limits) -> bytes:
    inputs = [driver.encode(list(arguments)) for arguments in job.inputs]
    told = {
        "source": job.source,
        "call": job.call,
        "inputs": inputs,
        "stdin": job.stdin or "",
        "output": limits.output,
    }
    return json.dumps(told).encode() + b"\n"


class _Reader:
    """What comes out of one process, until it has said all, ended, said too much, or its
    time is over.
    """

    def __init__(self, process, job: Job, limits: Limits):
        self.process, self.job, self.limits = process, job, limits
        self.count = 1 if job.call is None else len(job.inputs)
        self.ends = time.monotonic() + _START_SECONDS
        self.rest = b""
        self.poll = select.poll()
        self.poll.register(process.stdout, select.POLLIN)

    def outcomes(self) -> list[Outcome]:
        """One per input, or one for a script."""
        found: list[Outcome] = []
        try:
            self._tell(_message(self.job, self.limits))
            if self._frame().get("kind") != "ready":
                raise _Ended(
                    Outcome("unsupported", message="the interpreter did not start in sandlock.")
                )
            self.ends = time.monotonic() + self.limits.seconds
            while len(found) < self.count:
                frame = self._frame()
                found.append(self._outcome(frame))
                if frame.get("all") is True:  # the program did not get as far as its inputs
                    break
        except _Ended as ended:
            found.append(ended.outcome)
        return found + [found[-1]] * (self.count - len(found))

    def _tell(self, message: bytes) -> None:
        # it ended before it read: what it says, or does not, tells
        with contextlib.suppress(OSError):
            while message:
                message = message[self.process.stdin.write(message) :]

    def _frame(self) -> dict:
        """The next line. _Ended where there is none."""
        most = 8 * self.limits.output + _FRAME
        while b"\n" not in self.rest:
            if len(self.rest) > most:
                raise _Ended(
                    Outcome("output", message=f"it sent more than {self.limits.output} bytes.")
                )
            left = self.ends - time.monotonic()
            if left <= 0 or not self.poll.poll(1000 * left):
                raise _Ended(timeout_outcome(self.limits))
            data = os.read(self.process.stdout.fileno(), 65536)
            if not data:
                raise _Ended(self._end())
            self.rest += data
        line, _, self.rest = self.rest.partition(b"\n")
        try:
            frame = json.loads(line)
        except (ValueError, RecursionError):
            raise _Ended(_NONSENSE) from None
        if not isinstance(frame, dict):
            raise _Ended(_NONSENSE)
        return frame

    def _end(self) -> Outcome:
        """Why it ended without a word."""
        result = self.process.wait(timeout=1.0)
        if result.reason == 2 or result.signal == 9:
            return Outcome(
                "memory", message=f"it needed more than {self.limits.memory} bytes of memory."
            )
        if result.reason == 1:
            return Outcome(
                "error",
                error="Crash",
                message=f"it crashed the interpreter (signal {result.signal}).",
            )
        return Outcome(
            "error", error="SystemExit", message="it ended the process before it was done."
        )

    def _outcome(self, frame: dict) -> Outcome:
        kind, limits = frame.get("kind"), self.limits
        output, message = (
            str(frame.get("output") or "")[: limits.output],
            str(frame.get("message") or "")[:500],
        )
        if kind == "value":
            try:
                return outcome_of(
                    driver.decode(frame.get("value"), driver.MOST_PAIRS), limits, output
                )
            except ValueError:
                return _NONSENSE
        if kind == "output":
            return Outcome("output", message=message, output=output)
        if kind == "memory":
            return Outcome(
                "memory",
                message=f"it needed more than {limits.memory} bytes of memory.",
                output=output,
            )
        if kind != "error":
            return _NONSENSE
        line = frame.get("line") if type(frame.get("line")) is int else None
        return Outcome(
            "error", error=str(frame.get("error"))[:100], line=line, message=message, output=output
        )


class _Ended(Exception):
    def __init__(self, outcome: Outcome):
        super().__init__(outcome.message)
        self.outcome = outcome


_NONSENSE = Outcome(
    "error", error="SandboxError", message="what came out of the sandbox is no outcome."
)
