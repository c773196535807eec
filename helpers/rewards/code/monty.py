"""The back end "monty": pydantic-monty's interpreter in worker processes, a new session for each
program.

It lacks parts of the language and of the library. A program that needs them is "unsupported", and
never a failure. Where monty differs without a word, the program gets the verdict on what it did,
but for a template in `re.sub`, and lists whose order may be that of a set.
"""

import builtins
import ctypes
import importlib
import inspect
import math
import os
import re
import secrets
import sys
import time
from dataclasses import replace

from helpers.rewards.code import driver
from helpers.rewards.code.sandbox import Job, Limits, Outcome, decode, limit_outcome

# A verdict is the same each time; who sleeps longer than its time is ended at once.
_POLICY = {"sleep_system_max": math.inf, "random_start": {"seed": 0}}

# --- What is fed before the program, which may give `type` and `print` another meaning ------------

# No program knows this: names of ours that end with it, and the value of the program's last line.
_TOKEN = secrets.token_hex(8)
_INPUTS = f"inputs_{_TOKEN}"
# A value is written down inside, because outside a range would be text, and a deque a list. One
# that is too long comes out as an empty list.
_BEFORE_CALLS = f"""
import collections as library
LEAVES = (type(None), bool, int, float, str)
KINDS = {{list: "list", tuple: "tuple", set: "set", frozenset: "frozenset", dict: "dict"}}
KINDS |= {{library.Counter: "dict", library.defaultdict: "dict"}}
KINDS |= {{bytes: "bytes", complex: "complex"}}
{inspect.getsource(driver.encode)}
def write(value, most, len=len, repr=repr):
    written = encode(value)
    return [written] if len(repr(written)) <= most else []
"""
_OURS = r"\b(library|LEAVES|KINDS|encode|write)\b"
_BEFORE_CALLS = re.sub(_OURS, rf"\1_{_TOKEN}", _BEFORE_CALLS)
# For each function that will be called and is named like one of Python's.
_NOT_PYTHONS = """
def {name}(*arguments):
    raise NameError("the program has no function {name}")
"""
_BEFORE_SCRIPTS = f"""
def input_{_TOKEN}(prompt="", print=print, lines={_INPUTS}):
    print(prompt, end="")
    if not lines:
        raise Exception("EOF when reading a line")  # monty has no EOFError
    return lines.pop()
input = input_{_TOKEN}
"""


class Sandbox:
    """Programs in workers of pydantic-monty.

    Raise ValueError in a fork of a process that has some: their threads are not here, and a program
    would wait for them forever.
    """

    def __init__(self):
        from pydantic_monty import Monty

        process = os.getpid()
        if _pools.keys() - {process}:
            raise ValueError(
                "the sandbox 'monty' was started before this process was forked, and does not "
                "outlive that. Start the process with multiprocessing.get_context('spawn'), or "
                "fork before the first program runs."
            )
        if process not in _pools:
            # Inside one long operation nothing stops a program but the end of its worker.
            pool = Monty(max_processes=os.cpu_count(), feed_duration_limit_grace=0.02)
            pool.__enter__()
            # Never freed: in a forked process that would end the workers of its parent. They end
            # with this process, which holds the other end of their pipes.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(pool))
            _pools[process] = pool
        self.pool = _pools[process]

    def run(self, job: Job, limits: Limits) -> list[Outcome]:
        """Return the outcomes of a program."""
        from pydantic_monty import MontyCrashedError

        # It reads a template such as r"\1_" as the name of a group that there is not.
        lines = [line for line in job.source.split("\n") if "sub(" in line]
        if any(re.search(r"\\\d[A-Za-z_]", line) for line in lines):
            message = "monty: a group beside a letter in re.sub"
            return [Outcome("unsupported", message=message)] * job.count
        # A worker may have died while it waited; the next is a new one.
        for _ in range(2):
            try:
                outcomes = _run_in_session(self.pool, job, limits)
            except MontyCrashedError:
                continue
            # Its sets have the order of what was put into them.
            if re.search(r"\bset\(|\{[^{}:]*\}", job.source):
                outcomes = [replace(outcome, unordered=True) for outcome in outcomes]
            return outcomes
        message = "the workers of monty die before they get it."
        return [Outcome("not started", message=message)] * job.count


_pools: dict[int, object] = {}  # by process


def _run_in_session(pool, job: Job, limits: Limits) -> list[Outcome]:
    """Return one outcome per call, or that of the script.

    What ends the program is the outcome of all calls after it. The time begins when a worker is
    free. monty's own limit of time begins anew with each piece of code, and none begins after the
    end: so the last call that begins in time may take as long again.
    """
    session_limits = {
        "max_feed_duration_secs": float(limits.seconds),
        "max_total_sleep_secs": float(limits.seconds),
        "max_memory": limits.memory,
        "max_recursion_depth": 1000,  # calls, as in CPython
        "max_suspensions": 1000,
    }
    with pool.checkout(
        limits=session_limits, os_policy=_POLICY, assert_message_annotations=False
    ) as session:
        began = time.monotonic()
        # Our own functions first, then the program, then one call after the other.
        if job.calls:
            builtin = {name for name, _ in job.calls if hasattr(builtins, name)}
            ours = _BEFORE_CALLS + "".join(_NOT_PYTHONS.format(name=name) for name in builtin)
            outcome = _feed(session, job, limits, ours, {"__name__": "program"})
        else:
            lines = job.stdin[0].removesuffix("\n").split("\n") if job.stdin[0] else []
            outcome = _feed(session, job, limits, _BEFORE_SCRIPTS, {_INPUTS: lines[::-1]})
        if outcome.kind == "value":
            outcome = _feed(session, job, limits, f"{job.source}\n'{_TOKEN}'")
        if outcome.kind != "value" or not job.calls:
            return [replace(outcome, seconds=time.monotonic() - began)] * job.count
        outcomes: list[Outcome] = []
        for name, arguments in job.calls:
            outcome = limit_outcome("timeout", limits)
            if time.monotonic() - began <= limits.seconds:
                call = f"write_{_TOKEN}({name}(*{_INPUTS}), {limits.output})"
                outcome = _feed(session, job, limits, call, {_INPUTS: arguments})
            ended = outcome.kind in ("timeout", "memory", "output") or outcome.error == "Crash"
            if outcome.kind == "value" and not outcome.value:
                outcome = limit_outcome("output", limits, outcome.output)
            elif outcome.kind == "value":
                try:
                    outcome = replace(outcome, value=decode(outcome.value[0]))
                except ValueError as error:
                    outcome = Outcome("error", message=str(error), output=outcome.output)
            outcomes.append(outcome)
            if ended:
                break
    return outcomes + [outcome] * (job.count - len(outcomes))


def _feed(session, job: Job, limits: Limits, code: str, inputs: dict | None = None) -> Outcome:
    """Return the outcome of a piece of code, its value unchecked."""
    from pydantic_monty import MontyCrashedError, MontyError

    output = ""

    def collect(stream: str, text: str) -> None:
        nonlocal output
        if stream == "stdout" and len(output) <= limits.output:
            output += text

    error = value = None
    try:
        value = session.feed_run(code, inputs=inputs, print_callback=collect)
    except MontyError as raised:
        error = raised
    if len(output) > limits.output:
        return limit_outcome("output", limits, output[: limits.output])
    if error is None and code.endswith(f"'{_TOKEN}'") and value != _TOKEN:
        message = "'return' outside function"  # which monty allows
        return Outcome("error", error="SyntaxError", message=message, output=output)
    if error is None:
        return Outcome("value", value, output=output)

    # It exceeded a limit,
    raised = error.exception()
    name = type(raised).__name__
    message = str(raised)
    own_limit = name == "TimeoutError" and re.search("(time|sleep) limit exceeded", message)
    if own_limit or getattr(error, "timed_out", False):
        return limit_outcome("timeout", limits, output)
    if name == "MemoryError" and "limit" in message:
        return limit_outcome("memory", limits, output)
    # or crashed its worker, or monty lacks something, or the program failed by itself.
    if isinstance(error, MontyCrashedError):
        name = "Crash"
        message = "it crashed the interpreter."
    else:
        frames = error.traceback() if hasattr(error, "traceback") else []
        line = job.source.split("\n")[frames[-1].line - 1 : frames[-1].line] if frames else []
        if _lacks(raised, "".join(line), job):
            return Outcome("unsupported", message=f"monty: {message}", output=output)
    return Outcome("error", error=name, message=message[:500], output=output)


# --- What monty says where it lacks something (pydantic-monty 1.4.0) ------------------------------

_UNSUPPORTED = re.compile(
    r"not yet supported|not supported in this environment|cannot convert 'list' object to bytes"
    r"|cannot create 'object' instances|pow\(\) 2nd argument cannot be negative|unknown encoding"
)
# `+=` takes anything that can be iterated over in CPython.
_ADDED = re.compile(
    r"can only concatenate list \(not \"(?!int|float|complex|bool|NoneType|function)"
)
_NAME = re.compile(r"(?:No module named|name|attribute) '(\w+)")
_OWNER = re.compile(r"'(?:\w+\.)?(\w+)'(?: object)? has no attribute|from '(\w+)'")
# The modules that it has in part; the program may have made up the name of any other.
_MODULES = """
    asyncio base64 binascii bisect collections copy csv dataclasses datetime decimal functools
    hashlib io itertools json math os pathlib random re sys time tomllib typing unicodedata
"""
# What ends a process or reaches for the machine: a function that is called has no use for it, and
# is wrong in any sandbox.
_MACHINE = """
    __import__ abort breakpoint ctypes exit gc importlib inspect multiprocessing open os pty quit
    resource shutil signal socket subprocess sysconfig tempfile threading
"""


def _lacks(error: BaseException, line: str, job: Job) -> bool:
    """Return whether monty raised this error, in this line of the program, because it lacks
    something: it says so, or names what CPython has.
    """
    text = str(error)
    if text.startswith("Internal error in monty"):  # for `raise ValueError(3)`, for example
        # No program can catch it, so only one that catches nothing surely ends with it in CPython.
        return bool(re.search(r"\bexcept\b", job.source))
    if re.search(r"\braise\b", line):
        return False  # the program says so itself
    if isinstance(error, NotImplementedError) or _UNSUPPORTED.search(text):
        return True
    if isinstance(error, TypeError):
        return "+=" in line and bool(_ADDED.match(text))
    missing = _NAME.search(text)
    if missing is None or not isinstance(error, ImportError | NameError | AttributeError):
        return False
    name = missing[1]
    owned = _OWNER.search(text)
    owner = owned and (owned[1] or owned[2])
    if job.calls and {name, owner} & set(_MACHINE.split()):
        return False
    if isinstance(error, ModuleNotFoundError):
        return name in sys.stdlib_module_names
    if owner is None:
        return hasattr(builtins, name)
    if re.search(rf"\bclass\s+{owner}\b", job.source):
        return False
    # A module, or a type of one of them or of Python's.
    modules = {module: importlib.import_module(module) for module in _MODULES.split()}
    owners = [vars(module).get(owner) for module in (builtins, *modules.values())]
    return any(hasattr(has, name) for has in [modules.get(owner), *owners])
