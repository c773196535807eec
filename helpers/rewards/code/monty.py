"""The back end "monty": pydantic-monty's interpreter in worker processes, a new session for each
program.
"""

import builtins
import contextlib
import ctypes
import importlib.util
import os
import secrets
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial

from helpers.rewards.code import gaps
from helpers.rewards.code.plain import not_plain
from helpers.rewards.code.types import (
    Job,
    Limits,
    Outcome,
    out_of_memory,
    run_all,
    timeout,
)

# a verdict is the same each time, and time.sleep(100) holds nobody
_POLICY = {"sleep": "zero", "random_start": {"seed": 0}}
_DEEPEST = 1000  # calls, as in CPython
# Fed before the program, which may give `type` and `print` another meaning. No program knows the
# names. The first looks at a value inside, because outside a range would be text, and a deque a
# list. A value of more items than `most` is longer than that when it is written down; one that
# holds itself has no end of them.
_TOKEN = secrets.token_hex(8)
_TOLD, _INPUTS = f"_told_{_TOKEN}", f"_inputs_{_TOKEN}"
_BEFORE_CALLS = f"""
def {_TOLD}(
    value,
    most,
    sequences=(list, tuple, set, frozenset),
    leaves=(type(None), bool, int, float, complex, str, bytes),
    dict=dict,
    isinstance=isinstance,
    len=len,
    repr=repr,
    type=type,
):
    stack, left = [value], most
    while 0 < len(stack) <= left:
        item = stack.pop()
        left -= 1
        if isinstance(item, dict):
            stack.extend(item.keys())
            stack.extend(item.values())
        elif type(item) in sequences:
            stack.extend(item)
        elif type(item) not in leaves:
            said = repr(type(item))[:100]
            return "error", f"it returned {{said}}; only plain data counts.", None
    if stack or len(repr(value)) > most:
        return "output", f"it returned more than {{most}} bytes.", None
    return "value", "", value
"""
# For each function that will be called and is named like one of Python's.
_NOT_PYTHONS = """
def {name}(*given):
    raise NameError("the program has no function {name}")
"""
_AT_END = "EOF when reading a line"
_BEFORE_SCRIPTS = f"""
def input(prompt="", print=print, lines={_INPUTS}):
    print(prompt, end="")
    if not lines:
        raise Exception({_AT_END!r})
    return lines.pop()
"""


class MontySandbox:
    """Programs in workers of pydantic-monty."""

    def __init__(self, workers: int | None = None):
        self.workers = workers or os.cpu_count() or 1
        # pydantic-monty looks for it in every call, which takes 60 of 76 us
        if importlib.util.find_spec("opentelemetry") is None:
            sys.modules["opentelemetry"] = None

    def run(self, jobs: Sequence[Job], limits: Limits) -> list[list[Outcome]]:
        """As `Backend.run`."""
        outcomes = partial(_outcomes, _pool(self.workers))
        return run_all(outcomes, jobs, limits, self.workers, "monty")


_pools: dict[tuple[int, int], object] = {}  # by process and number of workers


def _pool(workers: int):
    """The workers: started once, kept over the calls of run_code."""
    from pydantic_monty import Monty

    key = (os.getpid(), workers)
    # its threads are not here, and it would wait for them forever
    if any(process != key[0] for process, _ in _pools):
        raise ValueError(
            "the sandbox 'monty' was started before this process was forked, and does not outlive "
            "that. Start the process with multiprocessing.get_context('spawn'), or fork before the "
            "first program runs."
        )
    if key not in _pools:
        pool = Monty(min_processes=1, max_processes=workers)
        pool.__enter__()
        # Never freed: in a forked process that would end the workers of its parent. They end with
        # this process, which holds the other end of their pipes.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(pool))
        _pools[key] = pool
    return _pools[key]


# --- One program ----------------------------------------------------------------------------------


def _outcomes(pool, job: Job, limits: Limits) -> list[Outcome]:
    """The outcomes of a job."""
    from pydantic_monty import MontyCrashedError

    if refused := gaps.before(job.source):
        return [refused] * job.count
    run = _scripts if job.call is None else _calls
    for _ in range(2):  # a worker may have died while it waited; the next is a new one
        with contextlib.suppress(MontyCrashedError):
            return run(pool, job, limits)
    died = Outcome("not started", message="the workers of monty die before they get it.")
    return [died] * job.count


def _calls(pool, job: Job, limits: Limits) -> list[Outcome]:
    """One outcome for each call, until one ends the program."""
    found: list[Outcome] = []
    pythons = [name for name in {name for name, _ in job.calls} if hasattr(builtins, name)]
    before = _BEFORE_CALLS + "".join(_NOT_PYTHONS.format(name=name) for name in pythons)
    with _session(pool, limits, limits.seconds) as (session, ends):
        feed = partial(_feed, session, job.source, limits)
        feed(before)
        # under this name a block for scripts is not run
        loaded = feed(f"{job.source}\nNone", {"__name__": "program"})
        if loaded.kind != "value":  # the program does not get as far as its inputs
            return [loaded] * job.count
        for name, arguments in job.calls:
            if time.monotonic() > ends:
                found.append(timeout(limits))
                break
            told = feed(f"{_TOLD}({name}(*{_INPUTS}), {limits.output})", {_INPUTS: arguments})
            ended = told.kind in ("timeout", "memory", "output") or told.error == "Crash"
            if told.kind == "value":
                kind, said, value = told.value
                if odd := not_plain(value):
                    kind, value = "error", None
                    said = f"it returned {odd}; only plain data counts."
                error = "TypeError" if kind == "error" else ""
                told = Outcome(kind, value, error, message=said, output=told.output)
            found.append(told)
            if ended:
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
        with _session(pool, limits, left) as (session, ends):
            outcome = _feed(session, job.source, limits, _BEFORE_SCRIPTS, {_INPUTS: lines[::-1]})
            if outcome.kind == "value":
                outcome = _feed(session, job.source, limits, f"{job.source}\nNone")
            found.append(outcome)
            left = ends - time.monotonic()
    return found


@contextlib.contextmanager
def _session(pool, limits: Limits, seconds: float) -> Iterator[tuple]:
    """(a session of a worker, when its program must end): the time begins here, and not while the
    program waits for a worker.

    monty's own limit of time begins anew with each piece of code, and none begins after the end: so
    the last call that begins in time may take as long again.
    """
    given = {
        "max_feed_duration_secs": float(seconds),
        "max_memory": limits.memory,
        "max_recursion_depth": _DEEPEST,
        "max_suspensions": 1000,
    }
    with pool.checkout(
        limits=given, os_policy=_POLICY, assert_message_annotations=False
    ) as session:
        yield session, time.monotonic() + seconds


def _feed(session, source: str, limits: Limits, code: str, inputs: dict | None = None) -> Outcome:
    """The outcome of a piece of code, with an unchecked value. source: the whole program."""
    from pydantic_monty import MontyError

    printed, size = [], 0

    def collect(stream: str, text: str) -> None:
        nonlocal size
        if stream == "stdout" and size <= limits.output:
            printed.append(text[: limits.output - size])
            size += len(text.encode(errors="replace"))

    try:
        value, error = session.feed_run(code, inputs=inputs, print_callback=collect), None
    except MontyError as raised:
        value, error = None, raised
    output = "".join(printed)
    if size > limits.output:
        said = f"it printed more than {limits.output} bytes."
        return Outcome("output", message=said, output=output)
    if error is None:
        return Outcome("value", value=value, output=output)

    # It is over a limit, monty lacks something, or the program failed by itself.
    inner = error.exception()
    frames = error.traceback() if hasattr(error, "traceback") else []
    name, message = type(inner).__name__, str(inner)
    own_limit = name == "TimeoutError" and "time limit exceeded" in message
    if own_limit or getattr(error, "timed_out", False):
        return timeout(limits, output)
    if name == "MemoryError" and "limit" in message:
        return out_of_memory(limits, output)
    if type(error).__name__ == "MontyCrashedError":
        name, message = "Crash", "it crashed the interpreter."
    elif message.endswith(_AT_END):
        name, frames = "EOFError", frames[:-1]  # which monty does not know, from our `input`
    elif why := gaps.named(inner, frames, source):
        return Outcome("unsupported", message=why, output=output)
    elif message.startswith("Internal error in monty"):
        name = "Exception"  # raised with something else than one text, such as SystemExit(0)
    line = frames[-1].line if frames else None
    return Outcome("error", error=name, line=line, message=message[:500], output=output)
