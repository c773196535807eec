"""The program that runs inside sandlock: it reads a job, runs it, and writes one line per outcome,
an object of JSON.

Whatever the program does to this process, all that leaves is a line that the other side reads as
data: a forged one is no more than a value that the program could have returned. No expected value
is here. Nothing of the project can be imported here, and nothing is imported from here.
"""

import _thread
import ctypes
import io
import json
import os
import random
import struct
import sys
from collections import Counter, OrderedDict, defaultdict

_NOBODY = 65534

# How each kind of plain data is written; a dictionary of the library is one.
LEAVES = (type(None), bool, int, float, str)
KINDS = {list: "list", tuple: "tuple", set: "set", frozenset: "frozenset", dict: "dict"}
KINDS |= {Counter: "dict", OrderedDict: "dict", defaultdict: "dict"}
KINDS |= {bytes: "bytes", complex: "complex"}


def encode(value, depth=0, kinds=KINDS, leaves=LEAVES, type=type):
    """Return plain data as lists and leaves: [its kind, *its parts]; see `sandbox.decode`.

    Raise TypeError naming what is not plain data. Types are exact: a subclass of int or list has
    methods of its own, which may lie. monty runs this function, too.
    """
    kind = type(value)
    if kind in leaves:
        return value
    if kind not in kinds:
        raise TypeError(f"a value of type {kind.__name__} is not plain data")
    if depth == 100:
        raise TypeError("containers nested more than 100 deep are not plain data")
    name = kinds[kind]
    parts = value
    if name == "dict":
        parts = [part for pair in value.items() for part in pair]
    elif name == "complex":
        parts = [value.real, value.imag]
    return [name, *[encode(part, depth + 1) for part in parts]]


# --- What sandlock cannot refuse, because an interpreter or sandlock itself needs it to start -----

# The numbers of system calls: socket, ioctl, prctl, readlink, readlinkat; prlimit64; fcntl.
_CALLS = {
    "x86_64": ((41, 16, 157, 89, 267), 302, 72),
    "aarch64": ((198, 29, 167, 78), 261, 25),
}
# The words that seccomp's filters are written in (linux/filter.h).
_LOAD = 0x20
_IS = 0x15
_ABOVE = 0x25
_RETURN = 0x06
_REFUSE = 0x0005000D  # as EACCES


def refuse_more() -> None:
    """Refuse sockets, ioctl (flags of files), prctl (outliving our process), the names of files in
    other processes, prlimit64 with the number of a process (the limits of another one), and what
    fcntl could leave to other programs: locks and flags of files.

    Raise OSError if the kernel accepts no filter.
    """
    refused, prlimit64, fcntl = _CALLS[os.uname().machine]
    # A step: what it does, how many steps it jumps over if so, and if not, and its operand. What it
    # loads is the call's number, at 0, or an argument, at 16 and 24.
    steps = [(_LOAD, 0, 0, 0)]
    for call in refused:
        steps += [(_IS, 0, 1, call), (_RETURN, 0, 0, _REFUSE)]
    steps += [
        (_IS, 0, 3, prlimit64),
        (_LOAD, 0, 0, 16),
        (_IS, 1, 0, 0),  # of this process itself
        (_RETURN, 0, 0, _REFUSE),
        (_IS, 0, 4, fcntl),
        (_LOAD, 0, 0, 24),
        (_IS, 2, 0, 1030),  # duplicate a file for exec;
        (_ABOVE, 0, 1, 3),  # up to 3: duplicate it, read its flags, and set its flag for exec
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, 0x7FFF0000),  # allow
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HP", len(steps), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(22, 2, program, 0, 0):  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
        raise OSError(ctypes.get_errno(), "the kernel takes no filter")


# --- A job ----------------------------------------------------------------------------------------


class _Printed(io.BytesIO):
    """What the program prints; past the limit it gets a MemoryError."""

    most = 0

    def write(self, data) -> int:
        """As of a file."""
        if self.tell() > self.most:
            raise MemoryError
        return super().write(data)


def _frame(job: dict, names: dict, call: tuple | None) -> dict:
    """Return the outcome of a call of the program's function; without a call, of the program
    itself, which puts its functions into `names`.

    Any exception is an outcome: a program must not end this one by SystemExit or KeyboardInterrupt.
    """
    try:
        if call is None:
            exec(compile(job["source"], "<program>", "exec"), names)
            return {"kind": "value"}
        name, arguments = call
        if name not in names:
            raise NameError(f"name {name!r} is not defined")
        value = json.dumps(encode(names[name](*arguments)))
        too_long = len(value) > job["output"]  # the other side counts again
        return {"kind": "output"} if too_long else {"kind": "value", "value": value}
    except BaseException as error:
        # a script may end so
        if not job["calls"] and isinstance(error, SystemExit) and error.code in (None, 0):
            return {"kind": "value"}
        kind = "memory" if isinstance(error, MemoryError) else "error"
        return {"kind": kind, "error": type(error).__name__, "message": str(error)[:500]}


def _feed(pipe: int, text: bytes) -> None:
    with open(pipe, "wb") as file:
        file.write(text)


def main() -> None:
    """Read the job from file 0, run it, write the outcomes to file 1."""
    import resource  # which Windows has not, where monty reads this file

    # Give up what this process has too much of: our files, root, memory, system calls.
    os.closerange(3, 1024)
    if os.geteuid() == 0:  # sandlock could not make us nobody from the start
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    refuse_more()
    job = eval(sys.stdin.readline(), {"inf": float("inf"), "nan": float("nan")})
    resource.setrlimit(resource.RLIMIT_AS, (job["memory"], job["memory"]))
    random.seed(0)

    # The program reads its input from a pipe, and prints into our memory; what it writes past
    # sys.stdout goes to file 2, which is the null device.
    wire = os.dup(1)
    os.dup2(2, 1)
    reading, writing = os.pipe()
    if job["stdin"]:
        _thread.start_new_thread(_feed, (writing, job["stdin"].encode(errors="replace")))
    else:
        os.close(writing)
    os.dup2(reading, 0)
    os.close(reading)
    printed = _Printed()
    printed.most = job["output"]
    # Named twice, because a program that puts another file in its place must not close it.
    sys.stdout = sys.__stdout__ = io.TextIOWrapper(
        printed, encoding="utf-8", errors="replace", write_through=True
    )
    __builtins__.exit = __builtins__.quit = sys.exit

    # Run it: a module of another name than __main__ if its functions are called, so that it does
    # not run its block for scripts.
    module = type(sys)("program" if job["calls"] else "__main__")
    sys.modules[module.__name__] = module
    names = vars(module)
    with open(wire, "wb") as frames:
        frames.write(b"\n")  # ready: its time begins
        frames.flush()
        loaded = _frame(job, names, None)
        for call in job["calls"] or [None]:
            runs = call is not None and loaded["kind"] == "value"
            frame = _frame(job, names, call) if runs else loaded
            if printed.tell() > job["output"]:
                frame = {"kind": "output"}
            text = printed.getvalue()[: job["output"]].decode("utf-8", "replace")
            printed.seek(0)
            printed.truncate()  # the next call's outcome has what that prints
            frames.write(json.dumps(frame | {"output": text}).encode() + b"\n")
            frames.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
