"""The back end "monty": run programs in pydantic-monty, a Python interpreter in Rust, in worker
processes. Each program gets a new session, so nothing passes from one program to the next.

monty implements part of the language and of the standard library. A program that needs more is
"unsupported", which does not count as a failure. monty also differs from CPython in places where it
raises nothing. Two of them are known here: some templates of `re.sub` are "unsupported", and the
outcome of a program with sets is marked `unordered`. Otherwise what monty does decides the verdict.

A session is an interpreter that keeps its names from one piece of code to the next. `_run_session`
feeds it our own functions, the program, and then each call; `_feed` turns what happens into an
outcome. Our functions are below, as text, and `_is_unsupported` at the end.
"""

import builtins
import contextlib
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

from helpers.judging.programs import driver
from helpers.judging.programs.sandbox import Job, Limits, Outcome, decode, limit_outcome

# Our own names in a session end with this token, so that no program can know them. It is also the
# value of the line that we add to a program.
_TOKEN = secrets.token_hex(8)
_INPUTS = f"inputs_{_TOKEN}"  # the name of a call's arguments, or of a script's lines

_pools: dict[int, object] = {}  # the pool of workers of each process, by its number


class Sandbox:
    """The back end: a pool of monty's workers, one for each process of ours.

    Raise ValueError if this process is a fork of one that has a pool. The pool's threads do not
    exist in the fork, so a program would wait for them forever.
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
            # Kill a worker 0.02 s after the time limit: monty cannot interrupt one long operation.
            pool = Monty(max_processes=os.cpu_count(), feed_duration_limit_grace=0.02)
            pool.__enter__()
            # Never free the pool. If a forked process freed its copy, our workers would end. The
            # workers end with this process, which holds the other end of their pipes.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(pool))
            _pools[process] = pool
        self.pool = _pools[process]

    def run(self, job: Job, limits: Limits) -> list[Outcome]:
        """Return one outcome per call of the program, or one outcome for a script."""
        from pydantic_monty import MontyCrashedError

        # 1. Refuse what monty would get wrong without a word: in a template of `re.sub`, it reads
        # "\1_" as a group named "1_".
        lines = [line for line in job.source.split("\n") if "sub(" in line]
        if any(re.search(r"\\\d[A-Za-z_]", line) for line in lines):
            message = "monty: a group beside a letter in re.sub"
            return [Outcome("unsupported", message=message)] * job.count

        # 2. Run the program. A worker may have died while it was idle; a second try gets a new one.
        outcomes = None
        for _ in range(2):
            with contextlib.suppress(MontyCrashedError):
                outcomes = _run_session(self.pool, job, limits)
                break
        if outcomes is None:
            message = "the workers of monty die before they receive the program."
            return [Outcome("not started", message=message)] * job.count

        # 3. Mark programs with sets: monty's, such as `set(x)` and `{1, 2}`, keep the order of
        # insertion. The braces of a string, as in f"{x}", are no set.
        bare = re.sub(r"""(["'])(?:(?!\1)[^{}\n\\]|\{[^{}\n]*\})*\1""", "", job.source)
        if re.search(r"\bset\(", job.source) or re.search(r"\{[^{}:]*\}", bare):
            outcomes = [replace(outcome, unordered=True) for outcome in outcomes]
        return outcomes


def _run_session(pool, job: Job, limits: Limits) -> list[Outcome]:
    """Run a program in a new session, and return one outcome per call, or one for a script.

    The clock starts when a worker is free. monty restarts its own limit of time for each piece of
    code, so the last call can take up to twice the limit.
    """
    session_limits = {
        "max_feed_duration_secs": float(limits.seconds),
        "max_total_sleep_secs": float(limits.seconds),
        "max_memory": limits.memory,
        "max_recursion_depth": 1000,  # nested calls, as in CPython
        "max_suspensions": 1000,
    }
    # A fixed seed makes verdicts repeatable. Only the total of all sleeps is limited, not each one.
    policy = {"sleep_system_max": math.inf, "random_start": {"seed": 0}}
    with pool.checkout(
        limits=session_limits, os_policy=policy, assert_message_annotations=False
    ) as session:
        began = time.monotonic()
        # 1. Feed our own functions first, because the program may redefine `type` and `print`.
        if job.calls:
            ours = _BEFORE_CALLS
            for name in {name for name, _ in job.calls}:
                if hasattr(builtins, name):
                    ours += _NOT_A_BUILTIN.format(name=name)
            outcome = _feed(session, job, limits, ours, {"__name__": "program"})
        else:
            lines = re.findall(r"[^\n]*\n|[^\n]+", job.stdin[0])
            lines.reverse()  # so that the next line is the last one, which `pop` returns
            outcome = _feed(session, job, limits, _BEFORE_SCRIPT, {_INPUTS: lines})

        # 2. Feed the program. A script is finished then.
        if outcome.kind == "value":
            source = job.source if job.calls else _with_streams(job.source)
            outcome = _feed(session, job, limits, f"{source}\n'{_TOKEN}'")
        if outcome.kind != "value" or not job.calls:
            return [replace(outcome, seconds=time.monotonic() - began)] * job.count

        # 3. Feed one call after the other, until one of them ends the session.
        outcomes: list[Outcome] = []
        for name, arguments in job.calls:
            if time.monotonic() - began > limits.seconds:
                outcome = limit_outcome("timeout", limits)
            else:
                call = f"write_{_TOKEN}({name}(*{_INPUTS}), {limits.output})"
                outcome = _feed(session, job, limits, call, {_INPUTS: arguments})
            session_ended = (
                outcome.kind in ("timeout", "memory", "output") or outcome.error == "Crash"
            )
            # a value that is too long becomes "output" only now, and does not end the session
            if outcome.kind == "value":
                outcome = _read_value(outcome, limits)
            outcomes.append(outcome)
            if session_ended:
                break

    # 4. The calls that were not made have the outcome of the last call.
    return outcomes + [outcome] * (job.count - len(outcomes))


def _read_value(outcome: Outcome, limits: Limits) -> Outcome:
    """Return the outcome of a call with its value decoded. [] stands for a value that is too long,
    which does not end the session.
    """
    if not outcome.value:
        return limit_outcome("output", limits, outcome.output)
    try:
        return replace(outcome, value=decode(outcome.value[0]))
    except ValueError as error:
        return Outcome("error", message=str(error), output=outcome.output)


def _feed(session, job: Job, limits: Limits, code: str, inputs: dict | None = None) -> Outcome:
    """Run a piece of code in a session, and return its outcome. Its value is not decoded yet."""
    from pydantic_monty import MontyCrashedError, MontyError

    # 1. Run the code. Keep what it prints, up to a little more than the limit.
    output = ""

    def collect(stream: str, text: str) -> None:
        nonlocal output
        if stream == "stdout" and len(output) <= limits.output:
            output += text

    failure = None
    try:
        value = session.feed_run(code, inputs=inputs, print_callback=collect)
    except MontyError as caught:
        failure = caught
    if len(output) > limits.output:
        return limit_outcome("output", limits, output[: limits.output])

    # 2. It ended. monty allows `return` outside a function: then the program's last line, which is
    # ours, is never reached.
    if failure is None:
        if code.endswith(f"'{_TOKEN}'") and value != _TOKEN:
            message = "'return' outside function"
            return Outcome("error", error="SyntaxError", message=message, output=output)
        return Outcome("value", value, output=output)

    # 3. It exceeded a limit.
    error = failure.exception()
    name = type(error).__name__
    message = str(error)
    is_late = name == "TimeoutError" and re.search("(time|sleep) limit exceeded", message)
    if is_late or getattr(failure, "timed_out", False):
        return limit_outcome("timeout", limits, output)
    if name == "MemoryError" and "limit" in message:
        return limit_outcome("memory", limits, output)

    # 4. It crashed its worker.
    if isinstance(failure, MontyCrashedError):
        return Outcome("error", error="Crash", message="it crashed the interpreter.", output=output)

    # 5. It needs something that monty lacks. The last frame has the number of the line that raised
    # the error. There may be no such line: the error may be in our own code.
    line = ""
    frames = failure.traceback() if hasattr(failure, "traceback") else []
    if frames:
        number = frames[-1].line
        line = "".join(job.source.split("\n")[number - 1 : number])
    if _is_unsupported(error, line, job):
        return Outcome("unsupported", message=f"monty: {message}", output=output)

    # 6. It failed by itself.
    return Outcome("error", error=name, message=message[:500], output=output)


# --- Our own code, which runs in the session before the program ----------------------------------

# The functions that write the value of a call as plain data. They run inside, because monty itself
# returns a range as text and a deque as a list. A value that is too long comes out as [].
_BEFORE_CALLS = """
import collections as library
LEAVES = (type(None), bool, int, float, str)
KINDS = {list: "list", tuple: "tuple", set: "set", frozenset: "frozenset", dict: "dict"}
KINDS |= {library.Counter: "dict", library.defaultdict: "dict"}
KINDS |= {bytes: "bytes", complex: "complex"}
"""
_BEFORE_CALLS += inspect.getsource(driver.encode)
_BEFORE_CALLS += """
def write(value, most, len=len, repr=repr):
    written = encode(value)
    return [written] if len(repr(written)) <= most else []
"""
_BEFORE_CALLS = re.sub(r"\b(library|LEAVES|KINDS|encode|write)\b", rf"\1_{_TOKEN}", _BEFORE_CALLS)
# If a tested function has the name of a builtin, the builtin must not be called in its place.
_NOT_A_BUILTIN = """
def {name}(*arguments):
    raise NameError("the program has no function {name}")
"""
# monty has no `sys.stdin`, no `write` of `sys.stdout` and no EOFError. A script gets these objects
# instead. All of them read the same lines, the last of which is the next one.
_BEFORE_SCRIPT = """
class Reader:
    def __init__(self, lines, binary):
        self.lines = lines
        self.binary = binary
    def readline(self):
        line = self.lines.pop() if self.lines else ""
        return line.encode() if self.binary else line
    def readlines(self):
        return list(self)
    def read(self):
        text = "".join(self.lines[::-1])
        self.lines.clear()
        return text.encode() if self.binary else text
    def __iter__(self):
        return self
    def __next__(self):
        if not self.lines:
            raise StopIteration
        return self.readline()
class Writer:
    def __init__(self, binary):
        self.binary = binary
    def write(self, text, print=print):
        print(text.decode() if self.binary else text, end="")
        return len(text)
    def writelines(self, texts):
        for text in texts:
            self.write(text)
    def flush(self):
        pass
STDIN = Reader(INPUTS, False)
STDIN.buffer = Reader(INPUTS, True)
STDOUT = Writer(False)
STDOUT.buffer = Writer(True)
def input(prompt="", print=print, stdin=STDIN):
    print(prompt, end="")
    if not stdin.lines:
        raise Exception("EOF when reading a line")
    line = stdin.readline()
    return line[:-1] if line.endswith("\\n") else line
def LIMIT(depth):
    pass
"""
_BEFORE_SCRIPT = _BEFORE_SCRIPT.replace("INPUTS", _INPUTS)
_BEFORE_SCRIPT = re.sub(r"\b(Reader|Writer|STDIN|STDOUT|LIMIT)\b", rf"\1_{_TOKEN}", _BEFORE_SCRIPT)
# Each name of `sys` that monty lacks, and our object for it.
_OURS = {"stdin": "STDIN", "stdout": "STDOUT", "setrecursionlimit": "LIMIT"}


def _with_streams(source: str) -> str:
    """Return a script with our objects in place of those of `sys` that monty lacks. Each line stays
    on its line.
    """

    # 1. `from sys import stdin as lines` becomes an assignment, unless a name is not ours.
    def assign(match: re.Match) -> str:
        indent, imported = match.groups()
        assignments = []
        for name_as in imported.split(","):  # `stdin`, or `stdin as lines`
            name, *alias = re.split(r"\s+as\s+", name_as.strip())
            if name not in _OURS:
                return match[0]
            assigned = alias[-1] if alias else name
            assignments.append(f"{assigned} = {_OURS[name]}_{_TOKEN}")
        return indent + "; ".join(assignments)

    source = re.sub(r"(?m)^([ \t]*)from sys import ([\w, \t]+)$", assign, source)

    # 2. `sys.stdin` and `open(0)` become our objects.
    for name, ours in _OURS.items():
        source = re.sub(rf"\bsys\.{name}\b", f"{ours}_{_TOKEN}", source)
    return re.sub(r"\bopen\(0\)", f"STDIN_{_TOKEN}", source)


# --- Which errors mean that monty lacks something (pydantic-monty 1.4.0) --------------------------


# What monty says of what it lacks.
_UNSUPPORTED = (
    r"not yet supported|not supported in this environment|cannot convert 'list' object to bytes"
    r"|cannot create 'object' instances|pow\(\) 2nd argument cannot be negative|unknown encoding"
)
# If `x` is a list, monty accepts only a list in `x += y`. CPython accepts any iterable, and so the
# error is the program's own only for these types, which cannot be iterated over.
_ADDED_TO_LIST = r"can only concatenate list \(not \"(?!int|float|complex|bool|NoneType|function)"
# The modules that monty has in part. Other modules are not imported here: the program may have made
# up their names.
_MODULES = """
    asyncio base64 binascii bisect collections copy csv dataclasses datetime decimal functools
    hashlib io itertools json math os pathlib random re sys time tomllib typing unicodedata
"""
# Names that end the process or use the machine. A function that is tested needs none of them, and
# would be wrong in any sandbox.
_MACHINE = """
    __import__ abort breakpoint ctypes exit gc importlib inspect multiprocessing open os pty quit
    resource shutil signal socket subprocess sysconfig tempfile threading
"""


def _is_unsupported(error: BaseException, line: str, job: Job) -> bool:
    """Return whether monty raised an error because it lacks something: monty says so, or the error
    names something that CPython has. line: the line of the program that raised the error.
    """
    # 1. Decide by what monty says, and by a line that raises an error itself.
    text = str(error)
    if text.startswith("Internal error in monty"):  # for `raise ValueError(3)`, for example
        # The program cannot catch this error, but in CPython it might have caught its own.
        return bool(re.search(r"\bexcept\b", job.source))
    if re.search(r"\braise\b", line):
        return False  # the program raised the error itself
    if isinstance(error, NotImplementedError) or re.search(_UNSUPPORTED, text):
        return True
    if isinstance(error, TypeError):
        return "+=" in line and bool(re.match(_ADDED_TO_LIST, text))

    # 2. Find the name that is missing, and its owner, the module or class that should have it: 'x'
    # and 'list' in "'list' object has no attribute 'x'", 'x' and 'y' in "cannot import name 'x'
    # from 'y'", 'x' alone in "No module named 'x'".
    missing = re.search(r"(?:No module named|name|attribute) '(\w+)", text)
    if missing is None or not isinstance(error, ImportError | NameError | AttributeError):
        return False
    name = missing[1]
    owned = re.search(r"'(?:\w+\.)?(\w+)'(?: object)? has no attribute|from '(\w+)'", text)
    owner = owned and (owned[1] or owned[2])
    if job.calls and {name, owner} & set(_MACHINE.split()):
        return False

    # 3. A missing module, or a missing builtin: look whether CPython has it.
    if isinstance(error, ModuleNotFoundError):
        return name in sys.stdlib_module_names
    if owner is None:
        return hasattr(builtins, name)

    # 4. A missing attribute: look whether CPython has it in a module of the owner's name, or in a
    # class of that name in one of the modules. A class of the program itself is none of them.
    if re.search(rf"\bclass\s+{owner}\b", job.source):
        return False
    modules = {module: importlib.import_module(module) for module in _MODULES.split()}
    owners = [modules.get(owner)]
    for module in (builtins, *modules.values()):
        owners.append(vars(module).get(owner))
    return any(hasattr(each, name) for each in owners)
