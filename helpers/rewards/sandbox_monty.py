"""The back end "monty": pydantic-monty's interpreter in worker processes, a new session for each program."""

from __future__ import annotations

import atexit
import builtins
import contextlib
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from helpers.rewards.sandbox import Job, Limits, Outcome, outcome_of

_POLICY = {"sleep": "zero", "random_start": {"seed": 0}}  # a verdict is the same each time, and time.sleep(100) holds nobody
_DEEPEST = 1000  # calls, as in CPython
_INPUTS = "_inputs_of_this_call"


class MontySandbox:
    """Programs in workers of pydantic-monty. ValueError where the package is not installed."""

    def __init__(self, workers: int | None = None):
        try:
            import pydantic_monty
        except ImportError:
            raise ValueError("the sandbox 'monty' is not installed: `pip install pydantic-monty==1.4.0`.") from None
        self._monty = pydantic_monty
        self.workers = workers or os.cpu_count() or 1

    def run(self, jobs: Sequence[Job], limits: Limits) -> list[list[Outcome]]:
        """As `Backend.run`."""
        pool = _pool(self.workers)
        workers = min(self.workers, len(jobs))
        if workers < 2:
            return [_Program(pool, job, limits).outcomes() for job in jobs]
        with ThreadPoolExecutor(workers) as threads:
            return list(threads.map(lambda job: _Program(pool, job, limits).outcomes(), jobs))


# --- The workers: started once, kept over the calls of run_code ----------------------------------------------------------

_pools: dict[tuple[int, int], object] = {}  # by process, because a fork shares no worker, and by number of workers
_lock = threading.Lock()


def _pool(workers: int):
    from pydantic_monty import Monty

    key = (os.getpid(), workers)
    with _lock:
        if key not in _pools:
            pool = Monty(min_processes=1, max_processes=workers)
            pool.__enter__()
            _pools[key] = pool
        return _pools[key]


@atexit.register
def close() -> None:
    """End the workers of this process."""
    with _lock:
        for key in [key for key in _pools if key[0] == os.getpid()]:
            with contextlib.suppress(Exception):
                _pools.pop(key).__exit__(None, None, None)


# --- One program -------------------------------------------------------------------------------------------------------


class _Program:
    """One job on its way through a session; a new session follows where one broke."""

    def __init__(self, pool, job: Job, limits: Limits):
        self.pool, self.job, self.limits = pool, job, limits
        self.ends = time.monotonic() + limits.seconds

    def outcomes(self) -> list[Outcome]:
        """One outcome per input, or one for a script."""
        if self.job.call is None:
            return self._script()
        found: list[Outcome] = []
        while len(found) < len(self.job.inputs):
            if time.monotonic() >= self.ends:
                return found + [_timeout(self.limits)] * (len(self.job.inputs) - len(found))
            self._session(found)
        return found

    def _checkout(self):
        limits = {
            "max_feed_duration_secs": max(0.001, self.ends - time.monotonic()),
            "max_memory": self.limits.memory,
            "max_recursion_depth": _DEEPEST,
        }
        return self.pool.checkout(limits=limits, os_policy=_POLICY, assert_message_annotations=False)

    def _script(self) -> list[Outcome]:
        lines = iter((self.job.stdin or "").splitlines())

        with self._checkout() as session:
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

    def _session(self, found: list[Outcome]) -> None:
        """Call with the inputs that have no outcome yet, until none is left or the session breaks."""
        with self._checkout() as session:
            turn = _Turn(self, session, self.limits.output)
            broken, _ = turn.feed(self.job.source)
            if broken:  # the program itself does not get through: the same for every input
                found.extend([broken] * (len(self.job.inputs) - len(found)))
                return
            while len(found) < len(self.job.inputs) and not turn.ended:
                if time.monotonic() >= self.ends:
                    return
                turn = _Turn(self, session, self.limits.output)
                inputs = {_INPUTS: tuple(self.job.inputs[len(found)])}
                broken, value = turn.feed(f"{self.job.call}(*{_INPUTS})", inputs=inputs)
                found.append(broken or outcome_of(value, self.limits, turn.output))


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
            os.kill(self.pid, signal.SIGKILL)

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

    @property
    def program_errors(self) -> type:
        """What a session raises for a program."""
        from pydantic_monty import MontyError

        return MontyError

    @contextlib.contextmanager
    def _watched(self):
        """End the worker at the program's time: the session's own limit begins anew with each call."""
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
        return Outcome("output", message=f"it printed more than {self.most} bytes.", output=self.output)

    def _went_wrong(self, error) -> Outcome:
        from pydantic_monty import MontyCrashedError

        limits = self.program.limits
        if self.flooded:
            return self._flood()
        if self.late or (isinstance(error, MontyCrashedError) and error.timed_out):
            self.ended = True
            return _timeout(limits, self.output)
        inner, text = error.exception(), str(error)
        name = type(inner).__name__
        frames = error.traceback() if hasattr(error, "traceback") else []
        if name == "TimeoutError" and not frames and "time limit exceeded" in text:
            self.ended = True
            return _timeout(limits, self.output)
        if name == "MemoryError" and "limit" in text:
            self.ended = True
            return Outcome("memory", message=f"it needed more than {limits.memory} bytes of memory.", output=self.output)
        if isinstance(error, MontyCrashedError):
            self.ended = True
            return Outcome("error", error="Crash", message="it crashed the interpreter.", output=self.output)
        if self.at_end and "EOF when reading a line" in text:
            return Outcome("error", error="EOFError", message=text, output=self.output)
        if why := _unsupported(name, str(inner), frames):
            return Outcome("unsupported", message=why, output=self.output)
        line = frames[-1].line if frames else None
        return Outcome("error", error=name, line=line, message=_first_line(inner), output=self.output)


def _first_line(error: BaseException) -> str:
    return str(error)[:500]


def _timeout(limits: Limits, output: str = "") -> Outcome:
    return Outcome("timeout", message=f"it took longer than {limits.seconds} seconds.", output=output)


_NOT_BUILTINS = {"display", "get_ipython"}  # added by Jupyter


def _unsupported(name: str, text: str, frames) -> str | None:
    """What the interpreter lacks, if that is why it raised this."""
    if name == "NotImplementedError" and frames and frames[-1].function_name is None and text.startswith("The monty"):
        return text
    if name == "ModuleNotFoundError" and (found := re.search(r"'([\w.]+)'", text)):
        module = found[1].partition(".")[0]
        return f"monty has no module {module}." if module in sys.stdlib_module_names else None
    if name == "NameError" and (found := re.search(r"name '(\w+)' is not defined", text)):
        known = hasattr(builtins, found[1]) and found[1] not in _NOT_BUILTINS
        return f"monty has no {found[1]}." if known else None
    return None
