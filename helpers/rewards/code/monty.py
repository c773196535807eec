"""The back end "monty": pydantic-monty's interpreter in worker processes, a new session for each
program.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib.util
import os
import re
import secrets
import shlex
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from helpers.rewards.code import gaps
from helpers.rewards.code.plain import returned
from helpers.rewards.code.types import (
    Job,
    Limits,
    Outcome,
    out_of_memory,
    timeout,
    within_batch,
)

# a verdict is the same each time, and time.sleep(100) holds nobody
_POLICY = {"sleep": "zero", "random_start": {"seed": 0}}
# seconds; threads that hand over more often than that wait for one another longer than they work
_SLOW = 0.005
_DEEPEST = 1000  # calls, as in CPython
# Fed before the program, which may give `repr` another meaning. No program knows the name.
_REPR = f"_repr_{secrets.token_hex(8)}"
_PRELUDE = f"def {_REPR}(value, repr=repr):\n    return repr(value)\n"
_INPUTS = "_inputs_of_this_call"
_DEFAULTDICT = re.compile(r"defaultdict\((?:<.*?>|None), (?=\{)")


class MontySandbox:
    """Programs in workers of pydantic-monty. ValueError where the package is not installed."""

    def __init__(self, workers: int | None = None):
        try:
            import pydantic_monty
        except ImportError:
            raise ValueError(
                "the sandbox 'monty' is not installed: `pip install pydantic-monty==1.4.0`."
            ) from None
        self._crashed = pydantic_monty.MontyCrashedError
        self.workers = workers or os.cpu_count() or 1
        # pydantic-monty looks for it in every call, which takes 60 of 76 us
        if importlib.util.find_spec("opentelemetry") is None:
            sys.modules["opentelemetry"] = None

    def run(self, jobs: Sequence[Job], limits: Limits) -> list[list[Outcome]]:
        """As `Backend.run`."""
        self._pool = _pool(self.workers)
        outcomes = within_batch(self._outcomes, limits, "monty")
        found: list[list[Outcome]] = []
        for job in jobs:
            began = time.monotonic()
            found.append(outcomes(job))
            if self.workers > 1 and time.monotonic() - began > _SLOW:
                break
        with ThreadPoolExecutor(self.workers) as threads:
            return found + list(threads.map(outcomes, jobs[len(found) :]))

    def _outcomes(self, job: Job, limits: Limits) -> list[Outcome]:
        called = job.call is not None
        names = [name for name, _ in job.calls] if called else []
        if refused := gaps.before(job.source, names):
            return [refused] * job.count
        for _ in range(2):  # a worker may have died while it waited; the next is a new one
            with contextlib.suppress(self._crashed):
                return (_calls if called else _scripts)(self._pool, job, limits)
        died = Outcome("not started", message="the workers of monty die before they get it.")
        return [died] * job.count


# --- The workers: started once, kept over the calls of run_code -----------------------------------

_pools: dict[tuple[int, int], object] = {}  # by process and number of workers
_lock = threading.Lock()


def _pool(workers: int):
    from pydantic_monty import Monty

    key = (os.getpid(), workers)
    with _lock:
        # its threads are not here, and it would wait for them forever
        if any(process != key[0] for process, _ in _pools):
            raise ValueError(
                "the sandbox 'monty' was started before this process was forked, and does not "
                "outlive that. Start the process with multiprocessing.get_context('spawn'), or "
                "fork before the first program runs."
            )
        if key not in _pools:
            try:
                pool = Monty(min_processes=1, max_processes=workers, binary_path=_quiet_worker())
                pool.__enter__()
            except (OSError, RuntimeError) as error:  # as with pydantic-monty-client alone
                raise ValueError(
                    f"the sandbox 'monty' cannot start its worker: {error}. `pip install "
                    "pydantic-monty==1.4.0`."
                ) from None
            # Never freed: in a forked process that would end the workers of its parent.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(pool))
            _pools[key] = pool
        return _pools[key]


def _quiet_worker() -> str | None:
    """A script that starts a worker without its standard error, where it writes a line for each
    program that is over its memory; None (the worker itself) on Windows.
    """
    if os.name != "posix":
        return None
    from pydantic_monty._binary import find_monty_binary

    worker = find_monty_binary()
    if not os.path.isfile(worker):
        raise FileNotFoundError(f"{worker} is not there")
    folder, owner = tempfile.mkdtemp(prefix="monty-"), os.getpid()
    # Not where a forked process ends: its parent still needs the script.
    atexit.register(lambda: os.getpid() == owner and shutil.rmtree(folder, ignore_errors=True))
    script = Path(folder, "monty")
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(worker)} "$@" 2>/dev/null\n', encoding="utf-8")
    script.chmod(0o700)
    return str(script)


@atexit.register
def close() -> None:
    """End the workers of this process."""
    with _lock:
        for key in [key for key in _pools if key[0] == os.getpid()]:
            with contextlib.suppress(Exception):
                _pools.pop(key).__exit__(None, None, None)


# --- One program ----------------------------------------------------------------------------------


def _calls(pool, job: Job, limits: Limits) -> list[Outcome]:
    """One outcome for each call, until one ends the session."""
    found: list[Outcome] = []
    with _session(pool, job.source, limits, limits.seconds) as session:
        session.feed(_PRELUDE)
        # under this name a block for scripts is not run
        broken, _ = session.feed(job.source, inputs={"__name__": "program"})
        if broken:  # the program does not get as far as its inputs
            return [broken] * job.count
        for name, arguments in job.calls:
            found.append(session.call(name, arguments))
            if session.ended:
                break
    return found + [found[-1]] * (job.count - len(found))


def _scripts(pool, job: Job, limits: Limits) -> list[Outcome]:
    """One outcome for each text that the script reads; all runs share its time."""
    found, left = [], limits.seconds
    for text in job.texts:
        if left <= 0:
            found.append(timeout(limits))
            continue
        lines = text.removesuffix("\n").split("\n") if text else []
        with _session(pool, job.source, limits, left, len(lines)) as session:
            names = {"input": session.reader(iter(lines))}
            broken, _ = session.feed(job.source, external_lookup=names)
            found.append(broken or Outcome("value", output=session.output))
            left = session.ends - time.monotonic()
    return found


@contextlib.contextmanager
def _session(
    pool, source: str, limits: Limits, seconds: float, lines: int = 0
) -> Iterator[_Session]:
    """A session of a worker; its time begins when it has one, not while it waits for it."""
    given = {
        "max_feed_duration_secs": float(seconds),
        "max_memory": limits.memory,
        "max_recursion_depth": _DEEPEST,
        "max_suspensions": 1000 + lines,  # one for every line that it reads
    }
    with pool.checkout(
        limits=given, os_policy=_POLICY, assert_message_annotations=False
    ) as session:
        yield _Session(session, source, limits, seconds)


class _Session:
    """A session for one program: what it prints, when it must end, and how it ended."""

    def __init__(self, session, source: str, limits: Limits, seconds: float):
        self.session, self.source, self.limits = session, source, limits
        self.pid, self.ends = session.worker_pid, time.monotonic() + seconds
        self.output, self.size = "", 0  # of the piece of code that runs
        self.late = self.at_end = self.ended = False

    @property
    def flooded(self) -> bool:
        """Whether it printed more than it may."""
        return self.size > self.limits.output

    def reader(self, lines: Iterator[str]):
        """`input` for a script that reads these lines."""

        def read_line(prompt: str = "") -> str:
            self._collect("stdout", str(prompt))
            line = next(lines, None)
            if line is None:
                self.at_end = True
                raise EOFError("EOF when reading a line")
            return line

        return read_line

    def call(self, name: str, arguments: tuple) -> Outcome:
        """The outcome of a call."""
        self.output, self.size = "", 0
        broken, text = self.feed(f"{_REPR}({name}(*{_INPUTS}))", inputs={_INPUTS: arguments})
        if broken:
            return broken
        text = text if isinstance(text, str) else "something else than text"
        return returned(_DEFAULTDICT.sub("dict(", text), self.limits, self.output)

    def feed(self, code: str, **given) -> tuple[Outcome | None, object]:
        """(what went wrong or None, the value)."""
        from pydantic_monty import MontyError

        # The session's own limit begins anew with each piece of code.
        left = self.ends - time.monotonic()
        timer = None
        if left < 0.9 * self.limits.seconds:
            timer = threading.Timer(max(left, 0.0), self._too_late)
            timer.start()
        try:
            value = self.session.feed_run(code, print_callback=self._collect, **given)
        except MontyError as error:
            return self._went_wrong(error), None
        finally:
            if timer:  # it must not end a worker that another program has by then
                timer.cancel()
                timer.join()
        return (self._flood(), None) if self.flooded else (None, value)

    def _collect(self, stream: str, text: str) -> None:
        if self.flooded or stream == "stderr":
            return
        self.output += text[: self.limits.output - self.size]
        self.size += len(text.encode(errors="replace"))
        if self.flooded:
            self._kill()

    def _too_late(self) -> None:
        self.late = True
        self._kill()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, TypeError):
            # on Windows the second is as final
            os.kill(self.pid, getattr(signal, "SIGKILL", signal.SIGTERM))

    def _flood(self) -> Outcome:
        self.ended = True
        said = f"it printed more than {self.limits.output} bytes."
        return Outcome("output", message=said, output=self.output)

    def _went_wrong(self, error) -> Outcome:
        from pydantic_monty import MontyCrashedError

        if self.flooded:
            return self._flood()
        inner, text, crashed = error.exception(), str(error), isinstance(error, MontyCrashedError)
        name = type(inner).__name__
        frames = error.traceback() if hasattr(error, "traceback") else []
        own_limit = name == "TimeoutError" and not frames and "time limit exceeded" in text
        if self.late or own_limit or (crashed and error.timed_out):
            self.ended = True
            return timeout(self.limits, self.output)
        if name == "MemoryError" and "limit" in text:
            self.ended = True
            return out_of_memory(self.limits, self.output)
        if crashed:
            self.ended = True
            said = "it crashed the interpreter."
            return Outcome("error", error="Crash", message=said, output=self.output)
        if self.at_end and "EOF when reading a line" in text:
            return Outcome("error", error="EOFError", message=text, output=self.output)
        if why := gaps.named(inner, frames, self.source):
            return Outcome("unsupported", message=why, output=self.output)
        if text.startswith("RuntimeError: Internal error in monty"):
            name = "Exception"  # raised with something else than one text, such as SystemExit(0)
        line = frames[-1].line if frames else None
        said = str(inner)[:500]
        return Outcome("error", error=name, line=line, message=said, output=self.output)
