"""The back end "monty": pydantic-monty's interpreter in worker processes, a new session for each
program.

It lacks parts of the language and of the library. A program that needs them is "unsupported", and
never a failure; where monty differs without a word, the program gets the verdict on what it did.
"""

import builtins
import collections
import contextlib
import ctypes
import datetime
import importlib
import io
import os
import re
import secrets
import sys
import time
import types
from collections.abc import Iterator
from functools import partial

from helpers.rewards.code.jobs import (
    Job,
    Limits,
    Outcome,
    other_than_plain,
    out_of_memory,
    timeout,
    too_much_output,
)

# A verdict is the same each time, and time.sleep(100) delays nobody.
_POLICY = {"sleep": "zero", "random_start": {"seed": 0}}
_DEEPEST = 1000  # calls, as in CPython

# --- What is fed before the program, which may give `type` and `print` another meaning ------------

# No program knows these names, nor the value that the last line of a program gives.
_TOKEN = secrets.token_hex(8)
_CHECKED = f"_checked_{_TOKEN}"
_INPUTS = f"_inputs_{_TOKEN}"
# A value is checked inside, because outside a range would be text, and a deque a list. A value of
# more items than `most` is longer than that as text; one that contains itself has no end of them.
_BEFORE_CALLS = f"""
def {_CHECKED}(
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
            return "error", repr(type(item))[:100]
    if stack or len(repr(value)) > most:
        return "output", None
    return "value", value
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


class Monty:
    """Programs in workers of pydantic-monty."""

    def __init__(self):
        self.pool = _workers()

    def run(self, job: Job, limits: Limits) -> list[Outcome]:
        """Return the outcomes of a program."""
        from pydantic_monty import MontyCrashedError

        run = _call_outcomes if job.calls else _script_outcomes
        for _ in range(2):  # a worker may have died while it waited; the next is a new one
            with contextlib.suppress(MontyCrashedError):
                return run(self.pool, job, limits)
        died = Outcome("not started", message="the workers of monty die before they get it.")
        return [died] * job.count


_pools: dict[int, object] = {}  # by process


def _workers():
    """Return this process's workers, which are started once and kept.

    Raise ValueError in a fork of a process that has some: their threads are not here, and a program
    would wait for them forever.
    """
    from pydantic_monty import Monty as Pool

    process = os.getpid()
    if _pools.keys() - {process}:
        raise ValueError(
            "the sandbox 'monty' was started before this process was forked, and does not outlive "
            "that. Start the process with multiprocessing.get_context('spawn'), or fork before the "
            "first program runs."
        )
    if process not in _pools:
        pool = Pool(min_processes=1, max_processes=os.cpu_count())
        pool.__enter__()
        # Never freed: in a forked process that would end the workers of its parent. They end with
        # this process, which holds the other end of their pipes.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(pool))
        _pools[process] = pool
    return _pools[process]


# --- One program ----------------------------------------------------------------------------------


def _call_outcomes(pool, job: Job, limits: Limits) -> list[Outcome]:
    """Return one outcome per call; what ends the program is the outcome of all calls after it."""
    found: list[Outcome] = []
    with _session(pool, limits, limits.seconds) as (session, ends):
        feed = partial(_feed, session, job.source, limits)
        # Our own functions first, then the program, then one call after the other.
        named = {name for name, _ in job.calls if hasattr(builtins, name)}
        feed(_BEFORE_CALLS + "".join(_NOT_PYTHONS.format(name=name) for name in named))
        loaded = feed(f"{job.source}\n'{_TOKEN}'", {"__name__": "program"})
        if loaded.kind != "value":
            return [loaded] * job.count
        for name, arguments in job.calls:
            if time.monotonic() > ends:
                found.append(timeout(limits))
                break
            call = f"{_CHECKED}({name}(*{_INPUTS}), {limits.output})"
            outcome = feed(call, {_INPUTS: arguments})
            ended = outcome.kind in ("timeout", "memory", "output") or outcome.error == "Crash"
            found.append(_value_outcome(outcome, limits) if outcome.kind == "value" else outcome)
            if ended:
                break
    return found + [found[-1]] * (job.count - len(found))


def _value_outcome(outcome: Outcome, limits: Limits) -> Outcome:
    """Return the outcome with the value of the call, from what _CHECKED returned inside."""
    kind, value = outcome.value
    if kind == "output":
        return too_much_output(limits, "returned", outcome.output)
    other = value if kind == "error" else other_than_plain(value)
    if other:
        said = f"it returned {other}; only plain data counts."
        return Outcome("error", error="TypeError", message=said, output=outcome.output)
    return Outcome("value", value, output=outcome.output)


def _script_outcomes(pool, job: Job, limits: Limits) -> list[Outcome]:
    """Return one outcome per text that the script reads; all runs share its time."""
    found = []
    left = limits.seconds
    for text in job.stdin:
        if left <= 0:
            found.append(timeout(limits))
            continue
        lines = text.removesuffix("\n").split("\n") if text else []
        with _session(pool, limits, left) as (session, ends):
            outcome = _feed(session, job.source, limits, _BEFORE_SCRIPTS, {_INPUTS: lines[::-1]})
            if outcome.kind == "value":
                outcome = _feed(session, job.source, limits, f"{job.source}\n'{_TOKEN}'")
            found.append(outcome)
            left = ends - time.monotonic()
    return found


@contextlib.contextmanager
def _session(pool, limits: Limits, seconds: float) -> Iterator[tuple]:
    """Yield (a session of a worker, when its program must end). The time begins here, and not while
    the program waits for a worker.

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
    """Return the outcome of a piece of code, its value unchecked. source: the whole program."""
    from pydantic_monty import MontyError

    printed = []
    size = 0

    def collect(stream: str, text: str) -> None:
        nonlocal size
        if stream == "stdout" and size <= limits.output:
            printed.append(text[: limits.output - size])
            size += len(text.encode(errors="replace"))

    error = value = None
    try:
        value = session.feed_run(code, inputs=inputs, print_callback=collect)
    except MontyError as raised:
        error = raised
    output = "".join(printed)
    if size > limits.output:
        return too_much_output(limits, "printed", output)
    if error is None and code.endswith(f"'{_TOKEN}'") and value != _TOKEN:
        said = "'return' outside function"  # which monty allows
        return Outcome("error", error="SyntaxError", message=said, output=output)
    if error is None:
        return Outcome("value", value, output=output)

    # It exceeded a limit,
    inner = error.exception()
    frames = error.traceback() if hasattr(error, "traceback") else []
    name = type(inner).__name__
    message = str(inner)
    own_limit = name == "TimeoutError" and "time limit exceeded" in message
    if own_limit or getattr(error, "timed_out", False):
        return timeout(limits, output)
    if name == "MemoryError" and "limit" in message:
        return out_of_memory(limits, output)
    # or monty lacks something, or the program failed by itself.
    if type(error).__name__ == "MontyCrashedError":
        name = "Crash"
        message = "it crashed the interpreter."
    elif message.endswith(_AT_END):
        name = "EOFError"  # which monty does not know, from our `input`
        frames = frames[:-1]
    elif lacks := _lacking(inner, frames, source):
        return Outcome("unsupported", message=lacks, output=output)
    elif message.startswith("Internal error in monty"):
        name = "Exception"  # raised with something else than one text, such as SystemExit(0)
    line = frames[-1].line if frames else None
    return Outcome("error", error=name, line=line, message=message[:500], output=output)


# --- What monty says where it lacks something (pydantic-monty 1.4.0) ------------------------------

_SAYS = (
    "callable replacement is not yet supported",
    "cannot convert 'list' object to bytes",
    "cannot create 'object' instances",
    "is not supported in this environment",
    "pow() 2nd argument cannot be negative",
    "unknown encoding",
)
_NO_MODULE = re.compile(r"No module named '([\w.]+)'")
_NO_NAME = re.compile(r"name '(\w+)' is not defined")
_NO_IMPORT = re.compile(r"cannot import name '(?P<name>\w+)' from '(?P<owner>\w+)'")
_NO_ATTRIBUTE = re.compile(
    r"(module |type object )?'(\w+\.)?(?P<owner>\w+)'( object)? has no attribute '(?P<name>\w+)'"
)
# The modules that it has in part,
_MODULES = """
    asyncio base64 binascii bisect collections copy csv dataclasses datetime decimal functools
    hashlib itertools json math os pathlib random re sys time tomllib typing unicodedata
"""
# and the types that a message may name.
_TYPES = vars(collections) | vars(datetime) | vars(io) | vars(re) | vars(builtins)
_TYPES |= {"function": types.FunctionType, "NoneType": types.NoneType}


def _lacking(error: BaseException, frames: list, source: str) -> str:
    """Say what monty lacks, if that is why it raised this; return "" if the program failed by
    itself.
    """
    text = str(error)
    # Raised by its parser, and so in no function.
    if type(error) is NotImplementedError and frames and frames[-1].function_name is None:
        return text
    if text.startswith("Internal error in monty"):
        # No program can catch it, so only one that catches nothing surely ends with it in CPython.
        return text if re.search(r"\bexcept\b", source) else ""
    line = frames[-1].line if frames else 0
    if any(re.search(r"\braise\b", one) for one in source.split("\n")[max(0, line - 1) : line]):
        return ""  # the program says so itself
    if any(said in text for said in _SAYS):
        return f"monty: {text}."
    # It names something that CPython has.
    if found := _NO_MODULE.match(text):
        known = found[1].split(".")[0] in sys.stdlib_module_names
        return f"monty has no module {found[1]}." if known else ""
    if found := _NO_NAME.match(text):
        return f"monty has no {found[1]}." if hasattr(builtins, found[1]) else ""
    found = _NO_IMPORT.match(text) or _NO_ATTRIBUTE.match(text)
    if found and not re.search(rf"\bclass\s+{found['owner']}\b", source):
        # No other module is imported here: the program may have made its name up.
        known = found["owner"] in _MODULES.split()
        module = importlib.import_module(found["owner"]) if known else None
        if any(hasattr(one, found["name"]) for one in (module, _TYPES.get(found["owner"]))):
            return f"monty has no {found['owner']}.{found['name']}."
    return ""
