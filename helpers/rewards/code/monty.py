"""The back end "monty": pydantic-monty's interpreter in worker processes, a new session for each
program.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib.util
import os
import secrets
import shlex
import shutil
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from helpers.rewards.code import gaps
from helpers.rewards.code.driver import MOST_PAIRS
from helpers.rewards.code.types import (
    Job,
    Limits,
    Outcome,
    not_plain_outcome,
    outcome_of,
    timeout_outcome,
)

# a verdict is the same each time, and time.sleep(100) holds nobody
_POLICY = {"sleep": "zero", "random_start": {"seed": 0}}
# seconds; threads that hand over more often than that wait for one another longer than they work
_SLOW = 0.005
_DEEPEST = 1000  # calls, as in CPython
_INPUTS, _VALUE = "_inputs_of_this_call", "_value_of_this_call"
# a name that no program knows, because the count protects our process
_COUNTS = f"_pairs_{secrets.token_hex(8)}"
_COUNT = """
def %s(value, isinstance=isinstance, len=len, dict=dict, set=set, frozenset=frozenset,
       list=list, tuple=tuple):
    pairs, items, seen = 0, [value], 0
    while items and seen < 200000:
        item = items.pop()
        seen += 1
        if isinstance(item, dict):
            pairs += len(item) ** 2
            items.extend(list(item.keys()))
            items.extend(list(item.values()))
        elif isinstance(item, (set, frozenset)):
            pairs += len(item) ** 2
            items.extend(list(item))
        elif isinstance(item, (list, tuple)):
            items.extend(list(item))
    return pairs if not items else 10 ** 18
"""


class MontySandbox:
    """Programs in workers of pydantic-monty. ValueError where the package is not installed."""

    def __init__(self, workers: int | None = None):
        try:
            import pydantic_monty
        except ImportError:
            raise ValueError(
                "the sandbox 'monty' is not installed: `pip install pydantic-monty==1.4.0`."
            ) from None
        self._monty = pydantic_monty
        self.workers = workers or os.cpu_count() or 1

    def run(self, jobs: Sequence[Job], limits: Limits) -> list[list[Outcome]]:
        """As `Backend.run`."""
        pool = _pool(self.workers)
        workers = min(self.workers, len(jobs))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of CPython's compiler, about the policy's program
            refused = [gaps.before(job.source) for job in jobs]

        def outcomes(job: Job, refusal: Outcome | None) -> list[Outcome]:
            count = 1 if job.call is None else len(job.inputs)
            if refusal is not None:
                return [refusal] * count
            # a worker may have died of something else while it waited; the next is a new one
            for _ in range(2):
                with contextlib.suppress(self._monty.MontyCrashedError):
                    return _Program(pool, job, limits).outcomes()
            return [
                Outcome(
                    "unsupported", message="the workers of monty die before they get the program."
                )
            ] * count

        with _no_search_for_telemetry(), ThreadPoolExecutor(self.workers) as threads:
            found: list[list[Outcome]] = []
            for job, refusal in zip(jobs, refused, strict=True):
                began = time.monotonic()
                found.append(outcomes(job, refusal))
                if workers > 1 and time.monotonic() - began > _SLOW:
                    break
            return found + list(threads.map(outcomes, jobs[len(found) :], refused[len(found) :]))


@contextlib.contextmanager
def _no_search_for_telemetry() -> Iterator[None]:
    """Where opentelemetry is not installed, say so at once: pydantic-monty looks for it in every
    call (60 of 76 us).
    """
    absent = (
        "opentelemetry" not in sys.modules and importlib.util.find_spec("opentelemetry") is None
    )
    if absent:
        sys.modules["opentelemetry"] = None
    try:
        yield
    finally:
        if absent:
            sys.modules.pop("opentelemetry", None)


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
                "outlive that. Start the process "
                "with multiprocessing.get_context('spawn'), or fork before the first program runs."
            )
        if key not in _pools:
            try:
                pool = Monty(min_processes=1, max_processes=workers, binary_path=_quiet_worker())
                pool.__enter__()
            except (OSError, RuntimeError) as error:  # as with pydantic-monty-client alone
                why = (
                    f"the sandbox 'monty' cannot start its worker: {error}. `pip install "
                    "pydantic-monty==1.4.0`."
                )
                raise ValueError(why) from None
            _pools[key] = pool
        return _pools[key]


def _quiet_worker() -> str | None:
    """A script that starts a worker without its standard error; None (the worker itself) where
    there are no such scripts.

    A worker writes there that a program was over its memory, which is in the outcome: a training
    would log a line for each.
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


def _keep_in_child() -> None:
    """In a forked process: never free what is our parent's, which would end its workers and then
    wait for threads that are not here.
    """
    for pool in _pools.values():
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(pool))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_keep_in_child)


@atexit.register
def close() -> None:
    """End the workers of this process."""
    with _lock:
        for key in [key for key in _pools if key[0] == os.getpid()]:
            with contextlib.suppress(Exception):
                _pools.pop(key).__exit__(None, None, None)


# --- One program ----------------------------------------------------------------------------------


class _Program:
    """One job on its way through a session of its own."""

    def __init__(self, pool, job: Job, limits: Limits):
        self.pool, self.job, self.limits = pool, job, limits
        self.count = 1 if job.call is None else len(job.inputs)
        self.ends = 0.0

    def outcomes(self) -> list[Outcome]:
        """One outcome per input, or one for a script."""
        if self.job.call is None:
            return self._script()
        found: list[Outcome] = []
        if self.count:
            self._calls(found)
        return found + [found[-1]] * (self.count - len(found)) if found else []

    @contextlib.contextmanager
    def _session(self):
        """A session for this program alone.

        Its time begins when it has one, not while it waits for a worker.
        """
        limits = {
            "max_feed_duration_secs": float(self.limits.seconds),
            "max_memory": self.limits.memory,
            "max_recursion_depth": _DEEPEST,
            # one for every line that it reads
            "max_suspensions": 1000 + (self.job.stdin or "").count("\n"),
        }
        with self.pool.checkout(
            limits=limits, os_policy=_POLICY, assert_message_annotations=False
        ) as session:
            self.ends = time.monotonic() + self.limits.seconds
            yield session

    def _script(self) -> list[Outcome]:
        stdin = self.job.stdin or ""
        lines = iter(stdin.removesuffix("\n").split("\n") if stdin else [])

        with self._session() as session:
            turn = _Turn(self, session, self.limits.output)

            def read_line(prompt: str = "") -> str:
                turn.collect("stdout", str(prompt))
                line = next(lines, None)
                if line is None:
                    turn.at_end = True
                    raise EOFError("EOF when reading a line")
                return line

            broken, _ = turn.feed(self.job.source, external_lookup={"input": read_line})
        return [broken or Outcome("value", output=turn.output)]

    def _calls(self, found: list[Outcome]) -> None:
        """Call with one input after the other, until one ends the session."""
        with self._session() as session:
            turn = _Turn(self, session, self.limits.output)
            # before the program, which may give the builtins another meaning
            turn.feed(_COUNT % _COUNTS)
            # a block for scripts is not run
            broken, _ = turn.feed(self.job.source, inputs={"__name__": "program"})
            broken = broken or gaps.not_there(self.job.source, self.job.call)
            if broken:  # the program does not get as far as its inputs
                found.append(broken)
                return
            for arguments in self.job.inputs:
                if time.monotonic() >= self.ends:
                    found.append(timeout_outcome(self.limits))
                    return
                turn = _Turn(self, session, self.limits.output)
                found.append(turn.call(self.job.call, tuple(arguments)))
                if turn.ended:
                    return


class _Turn:
    """One piece of code in a session: what it prints, when it must end, and how it ended."""

    def __init__(self, program: _Program, session, most: int):
        self.program, self.session, self.most = program, session, most
        self.pid = session.worker_pid
        self.printed: list[str] = []
        self.size = 0
        self.late = self.flooded = self.at_end = self.ended = False

    @property
    def output(self) -> str:
        """What was printed."""
        return "".join(self.printed)

    def collect(self, stream: str, text: str) -> None:
        """Keep what is printed; a program that prints more than it may is ended at once."""
        if self.flooded or stream == "stderr":
            return
        left = self.most - self.size
        self.printed.append(text[:left])
        self.size += len(text.encode(errors="replace"))
        if self.size > self.most:
            self.flooded = True
            self._kill()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, TypeError):
            # on Windows the second is as final
            os.kill(self.pid, getattr(signal, "SIGKILL", signal.SIGTERM))

    def _too_late(self) -> None:
        self.late = True
        self._kill()

    def feed(self, code: str, **given) -> tuple[Outcome | None, object]:
        """(what went wrong or None, the value)."""
        with self._watched():
            try:
                value = self.session.feed_run(code, print_callback=self.collect, **given)
            except self.program_errors as error:
                return self._went_wrong(error), None
        return (self._flood(), None) if self.flooded else (None, value)

    def call(self, name: str, arguments: tuple) -> Outcome:
        """The outcome of a call."""
        code = (
            f"{_VALUE} = {name}(*{_INPUTS})\n{_VALUE} if {_COUNTS}({_VALUE}) <= {MOST_PAIRS} "
            f"else {_COUNTS!r}"
        )
        broken, value = self.feed(code, inputs={_INPUTS: arguments})
        if broken:
            return broken
        if value == _COUNTS and type(value) is str:
            return Outcome(
                "output",
                message="it returned sets or dictionaries of too many items.",
                output=self.output,
            )
        outcome = outcome_of(value, self.program.limits, self.output)
        if outcome.kind == "value" and gaps.doubtful(value, self.program.job.source):
            broken, names = self.feed(gaps.LOOK_CLOSER % _VALUE)
            if odd := gaps.odd_type(names):
                return not_plain_outcome(odd, self.output)
        return outcome

    @property
    def program_errors(self) -> type:
        """What a session raises for a program."""
        from pydantic_monty import MontyError

        return MontyError

    @contextlib.contextmanager
    def _watched(self):
        """End the worker at the program's time: the session's own limit begins anew with
        each call.
        """
        limits, left = self.program.limits, self.program.ends - time.monotonic()
        if left > 0.9 * limits.seconds:
            yield
            return
        timer = threading.Timer(max(left, 0.0), self._too_late)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()

    def _flood(self) -> Outcome:
        self.ended = True
        return Outcome(
            "output", message=f"it printed more than {self.most} bytes.", output=self.output
        )

    def _went_wrong(self, error) -> Outcome:
        from pydantic_monty import MontyCrashedError

        limits = self.program.limits
        if self.flooded:
            return self._flood()
        if self.late or (isinstance(error, MontyCrashedError) and error.timed_out):
            self.ended = True
            return timeout_outcome(limits, self.output)
        inner, text = error.exception(), str(error)
        name = type(inner).__name__
        frames = error.traceback() if hasattr(error, "traceback") else []
        if name == "TimeoutError" and not frames and "time limit exceeded" in text:
            self.ended = True
            return timeout_outcome(limits, self.output)
        if name == "MemoryError" and "limit" in text:
            self.ended = True
            return Outcome(
                "memory",
                message=f"it needed more than {limits.memory} bytes of memory.",
                output=self.output,
            )
        if isinstance(error, MontyCrashedError):
            self.ended = True
            return Outcome(
                "error", error="Crash", message="it crashed the interpreter.", output=self.output
            )
        if self.at_end and "EOF when reading a line" in text:
            return Outcome(
                "error", error="EOFError", message="EOF when reading a line", output=self.output
            )
        if why := gaps.missing(inner, frames, self.program.job.source):
            return Outcome("unsupported", message=why, output=self.output)
        if name == "RuntimeError" and text.startswith("RuntimeError: Internal error in monty"):
            name = "Exception"  # raised with something else than one text, such as SystemExit(0)
        line = frames[-1].line if frames else None
        return Outcome(
            "error", error=name, line=line, message=_first_line(inner), output=self.output
        )


def _first_line(error: BaseException) -> str:
    return str(error)[:500]
