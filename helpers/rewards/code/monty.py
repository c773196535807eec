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
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from helpers.rewards.code import gaps
from helpers.rewards.code.plain import not_plain, returned
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
# Fed before the program, which may give `repr` and `print` another meaning. No program knows the
# names.
_TOKEN = secrets.token_hex(8)
_TOLD, _INPUTS = f"_told_{_TOKEN}", f"_inputs_{_TOKEN}"
_BEFORE_CALLS = f"""
def {_TOLD}(value, whole, most, repr=repr, len=len):
    text = repr(value)
    return text, value if whole and len(text) <= most else None
"""
# Without these no object has a `repr` of the program's, which may write it like a number.
_MAY_LIE = re.compile(r"\b(?:class|type|setattr)\b")
_AT_END = "EOF when reading a line"
_BEFORE_SCRIPTS = f"""
def input(prompt="", print=print, lines={_INPUTS}):
    print(prompt, end="")
    if not lines:
        raise Exception({_AT_END!r})
    return lines.pop()
"""
_DEFAULTDICT = re.compile(r"defaultdict\((?:<[^{]{0,99}>|None), (?=\{)")


class MontySandbox:
    """Programs in workers of pydantic-monty. ValueError where the package is not installed."""

    def __init__(self, workers: int | None = None):
        if importlib.util.find_spec("pydantic_monty") is None:
            raise ValueError(
                "the sandbox 'monty' is not installed: `pip install pydantic-monty==1.4.0`."
            )
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
        from pydantic_monty import MontyCrashedError

        called = job.call is not None
        if refused := gaps.before(job.source, [name for name, _ in job.calls] if called else []):
            return [refused] * job.count
        for _ in range(2):  # a worker may have died while it waited; the next is a new one
            with contextlib.suppress(MontyCrashedError):
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
            pool = Monty(min_processes=1, max_processes=workers, binary_path=_quiet_worker())
            pool.__enter__()
            # Never freed: in a forked process that would end the workers of its parent. They end
            # with this process, which holds the other end of their pipes.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(pool))
            _pools[key] = pool
        return _pools[key]


def _quiet_worker() -> str | None:
    """A script that starts a worker without its standard error, where it writes a line for a
    program that is over its memory; None (the worker itself) on Windows.
    """
    if os.name != "posix":
        return None
    from pydantic_monty._binary import find_monty_binary

    folder, owner = tempfile.mkdtemp(prefix="monty-"), os.getpid()
    # Not where a forked process ends: its parent still needs the script.
    atexit.register(lambda: os.getpid() == owner and shutil.rmtree(folder, ignore_errors=True))
    script = Path(folder, "monty")
    worker = shlex.quote(find_monty_binary())
    script.write_text(f'#!/bin/sh\nexec {worker} "$@" 2>/dev/null\n', encoding="utf-8")
    script.chmod(0o700)
    return str(script)


# --- One program ----------------------------------------------------------------------------------


def _calls(pool, job: Job, limits: Limits) -> list[Outcome]:
    """One outcome for each call, until one ends the session."""
    found: list[Outcome] = []
    whole = _MAY_LIE.search(job.source) is not None
    with _session(pool, job.source, limits, limits.seconds) as session:
        session.feed(_BEFORE_CALLS)
        # under this name a block for scripts is not run
        broken, _ = session.feed(job.source, inputs={"__name__": "program"})
        if broken:  # the program does not get as far as its inputs
            return [broken] * job.count
        for name, arguments in job.calls:
            if time.monotonic() > session.ends:
                found.append(timeout(limits))
                break
            asked = f"{_TOLD}({name}(*{_INPUTS}), {whole}, {limits.output})"
            broken, told = session.feed(asked, inputs={_INPUTS: arguments})
            found.append(broken or _returned(*told, limits, session.output))
            if session.ended:
                break
    return found + [found[-1]] * (job.count - len(found))


def _returned(text: object, value: object, limits: Limits, output: str) -> Outcome:
    """The outcome of a call, whose value is known by what `repr` wrote, and comes itself where that
    might lie.
    """
    if odd := "something else than text" if not isinstance(text, str) else not_plain(value):
        said = f"it returned {odd}; only plain data counts."
        return Outcome("error", error="TypeError", message=said, output=output)
    outcome = returned(text, limits, output)
    if outcome.kind == "error":  # what makes a default is no literal
        outcome = returned(_DEFAULTDICT.sub("dict(", text), limits, output)
    return outcome


def _scripts(pool, job: Job, limits: Limits) -> list[Outcome]:
    """One outcome for each text that the script reads; all runs share its time."""
    found, left = [], limits.seconds
    for text in job.texts:
        if left <= 0:
            found.append(timeout(limits))
            continue
        lines = text.removesuffix("\n").split("\n") if text else []
        with _session(pool, job.source, limits, left) as session:
            broken, _ = session.feed(_BEFORE_SCRIPTS, inputs={_INPUTS: lines[::-1]})
            if broken is None:
                broken, _ = session.feed(job.source)
            found.append(broken or Outcome("value", output=session.output))
            left = session.ends - time.monotonic()
    return found


@contextlib.contextmanager
def _session(pool, source: str, limits: Limits, seconds: float) -> Iterator[_Session]:
    """A session of a worker; its time begins when it has one, not while it waits for it."""
    given = {
        "max_feed_duration_secs": float(seconds),
        "max_memory": limits.memory,
        "max_recursion_depth": _DEEPEST,
        "max_suspensions": 1000,
    }
    with pool.checkout(
        limits=given, os_policy=_POLICY, assert_message_annotations=False
    ) as session:
        yield _Session(session, source, limits, seconds)


class _Session:
    """A session for one program: what it prints, when it must end, and how it ended.

    monty's own limit of time begins anew with each piece of code, and none begins after `ends`: so
    the last call that begins in time may take as long again.
    """

    def __init__(self, session, source: str, limits: Limits, seconds: float):
        self.session, self.source, self.limits = session, source, limits
        self.ends = time.monotonic() + seconds

    def feed(self, code: str, **given) -> tuple[Outcome | None, object]:
        """(what went wrong or None, the value)."""
        from pydantic_monty import MontyError

        self.output, self.size = "", 0  # of this piece of code
        error = value = None
        try:
            value = self.session.feed_run(code, print_callback=self._collect, **given)
        except MontyError as raised:
            error = raised
        except TypeError as why:  # an object in a set, which cannot come out
            self.ended, said = False, f"it returned {why}; only plain data counts."
            return Outcome("error", error="TypeError", message=said, output=self.output), None
        over = self._over_a_limit(error)
        self.ended = over is not None
        return over or (self._failed(error) if error else None), value

    def _collect(self, stream: str, text: str) -> None:
        if stream == "stdout":
            self.output += text[: max(0, self.limits.output - self.size)]
            self.size += len(text.encode(errors="replace"))

    def _over_a_limit(self, error) -> Outcome | None:
        """The outcome that ends the program, and with it the session."""
        kind, said = type(error and error.exception()).__name__, str(error)
        if self.size > self.limits.output:
            said = f"it printed more than {self.limits.output} bytes."
            return Outcome("output", message=said, output=self.output)
        own_limit = kind == "TimeoutError" and "time limit exceeded" in said
        if own_limit or getattr(error, "timed_out", False):
            return timeout(self.limits, self.output)
        if kind == "MemoryError" and "limit" in said:
            return out_of_memory(self.limits, self.output)
        if type(error).__name__ == "MontyCrashedError":
            said = "it crashed the interpreter."
            return Outcome("error", error="Crash", message=said, output=self.output)
        return None

    def _failed(self, error) -> Outcome:
        """The outcome of a program that raised, by itself or because monty lacks something."""
        inner = error.exception()
        frames = error.traceback() if hasattr(error, "traceback") else []
        name, message = type(inner).__name__, str(inner)
        if message.endswith(_AT_END):
            name, frames = "EOFError", frames[:-1]  # which monty does not know, from our `input`
        elif why := gaps.named(inner, frames, self.source):
            return Outcome("unsupported", message=why, output=self.output)
        elif message.startswith("Internal error in monty"):
            name = "Exception"  # raised with something else than one text, such as SystemExit(0)
        line = frames[-1].line if frames else None
        return Outcome("error", error=name, line=line, message=message[:500], output=self.output)
