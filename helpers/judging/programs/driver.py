"""The program that runs inside sandlock. It reads a job, runs the untrusted program of the job, and
writes one line of JSON for each outcome.

The untrusted program runs in this process and may change anything in it. All it can send out is a
line that `sandlock` reads as data. A forged line is harmless: it could only hold a value that the
program could have returned, because the expected values are never here. This file imports nothing
of the project.

`main` takes away what a program must not use, runs the program, and then each call. `encode` is how
a value leaves. `refuse_more`, at the end, forbids system calls that sandlock must allow.
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

# The types of plain data. The library's dictionaries become plain ones.
LEAVES = (type(None), bool, int, float, str)
KINDS = {list: "list", tuple: "tuple", set: "set", frozenset: "frozenset", dict: "dict"}
KINDS |= {Counter: "dict", OrderedDict: "dict", defaultdict: "dict"}
KINDS |= {bytes: "bytes", complex: "complex"}


def encode(value, depth=0, kinds=KINDS, leaves=LEAVES, type=type):
    """Return plain data as nested lists [kind, *parts], which `sandbox.decode` reads.

    Raise TypeError if the value is anything else, including a subclass of int or list: its own
    methods may return something else each time. monty runs the source of this function, too.
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


# --- The job -------------------------------------------------------------------------------------


def main() -> None:
    """Read the job from file 0, run it, and write the outcomes to file 1."""
    import resource  # not on Windows, where monty still imports this file

    # 1. Give up what a program must not use: our files, root, system calls, memory.
    os.closerange(3, 1024)
    if os.geteuid() == 0:  # sandlock could not start this process as nobody
        nobody = 65534
        os.setgroups([])
        os.setresgid(nobody, nobody, nobody)
        os.setresuid(nobody, nobody, nobody)
    refuse_more()
    job = eval(sys.stdin.readline(), {"inf": float("inf"), "nan": float("nan")})
    resource.setrlimit(resource.RLIMIT_AS, (job["memory"], job["memory"]))
    random.seed(0)

    # 2. Keep a copy of file 1 for the outcomes. The program's files 1 and 2 are the null device.
    wire = os.dup(1)
    os.dup2(2, 1)

    # 3. Make a pipe for its input the program's file 0.
    reading, writing = os.pipe()
    if job["stdin"]:
        _thread.start_new_thread(_feed, (writing, job["stdin"].encode(errors="replace")))
    else:
        os.close(writing)
    os.dup2(reading, 0)
    os.close(reading)

    # 4. Keep what it prints in memory. The second name keeps the file open if the program replaces
    # sys.stdout.
    printed = _Printed()
    printed.most = job["output"]
    sys.stdout = sys.__stdout__ = io.TextIOWrapper(
        printed, encoding="utf-8", errors="replace", write_through=True
    )
    __builtins__.exit = __builtins__.quit = sys.exit

    # 5. Make the program's module. If its functions are called, it has another name than __main__,
    # so that its block for scripts does not run.
    module = type(sys)("program" if job["calls"] else "__main__")
    sys.modules[module.__name__] = module
    names = vars(module)

    # 6. Run the program, then each call, and write a line for each. If the program itself fails,
    # its outcome is that of every call.
    with open(wire, "wb") as lines:
        lines.write(b"\n")  # ready: the program's time begins
        lines.flush()
        loaded = _outcome(job, names, None)
        for call in job["calls"] or [None]:
            outcome = loaded
            if call is not None and loaded["kind"] == "value":
                outcome = _outcome(job, names, call)
            if printed.tell() > job["output"]:
                outcome = {"kind": "output"}
            text = printed.getvalue()[: job["output"]].decode("utf-8", "replace")
            printed.seek(0)
            printed.truncate()  # the next outcome has only what the next call prints
            lines.write(json.dumps(outcome | {"output": text}).encode() + b"\n")
            lines.flush()
    os._exit(0)


class _Printed(io.BytesIO):
    """The bytes that the program prints. More than `most` of them raise MemoryError."""

    most = 0

    def write(self, data) -> int:
        """Write like a file, up to the limit."""
        if self.tell() > self.most:
            raise MemoryError
        return super().write(data)


def _feed(pipe: int, text: bytes) -> None:
    with open(pipe, "wb") as file:
        file.write(text)


def _outcome(job: dict, names: dict, call: tuple | None) -> dict:
    """Return the outcome of calling one of the program's functions. If `call` is None, run the
    program itself, which defines its functions in `names`.

    Every exception is an outcome, also SystemExit and KeyboardInterrupt.
    """
    try:
        if call is None:
            exec(compile(job["source"], "<program>", "exec"), names)
            return {"kind": "value"}
        name, arguments = call
        if name not in names:
            raise NameError(f"name {name!r} is not defined")
        value = json.dumps(encode(names[name](*arguments)))
        too_long = len(value) > job["output"]  # `sandlock` checks the length again
        return {"kind": "output"} if too_long else {"kind": "value", "value": value}
    except BaseException as error:
        # A script may end with sys.exit().
        if not job["calls"] and isinstance(error, SystemExit) and error.code in (None, 0):
            return {"kind": "value"}
        kind = "memory" if isinstance(error, MemoryError) else "error"
        return {"kind": kind, "error": type(error).__name__, "message": str(error)[:500]}


# --- System calls that sandlock cannot refuse, because the interpreter needs them to start --------


def refuse_more() -> None:
    """Install a seccomp filter for the rest of this process. Raise OSError if the kernel refuses.

    Refused are sockets, ioctl (which changes flags of files), prctl (which lets a process outlive
    ours), readlink (which names files that other processes have open), prlimit64 on any other
    process, and the commands of fcntl that leave locks and flags behind.
    """
    refused, prlimit64, fcntl = _CALLS[os.uname().machine]
    # A step is an instruction, the number of steps to skip if its condition holds, the number to
    # skip if not, and an operand. _LOAD reads the number of the system call (at 0), its first
    # argument (at 16) or its second (at 24).
    steps = [(_LOAD, 0, 0, 0)]
    for call in refused:
        steps += [(_IS, 0, 1, call), (_RETURN, 0, 0, _REFUSE)]
    steps += [
        (_IS, 0, 3, prlimit64),
        (_LOAD, 0, 0, 16),
        (_IS, 1, 0, 0),  # allow prlimit64 on this process itself
        (_RETURN, 0, 0, _REFUSE),
        (_IS, 0, 4, fcntl),
        (_LOAD, 0, 0, 24),
        (_IS, 2, 0, 1030),  # allow F_DUPFD_CLOEXEC
        (_ABOVE, 0, 1, 3),  # allow F_DUPFD, F_GETFD, F_SETFD and F_GETFL, which are 0 to 3
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, 0x7FFF0000),  # allow everything else
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HP", len(steps), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(22, 2, program, 0, 0):  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
        raise OSError(ctypes.get_errno(), "the kernel takes no filter")


# The numbers of system calls: socket, ioctl, prctl, readlink (x86 only) and readlinkat; prlimit64;
# fcntl.
_CALLS = {
    "x86_64": ((41, 16, 157, 89, 267), 302, 72),
    "aarch64": ((198, 29, 167, 78), 261, 25),
}
# The instructions of a seccomp filter (linux/filter.h).
_LOAD = 0x20
_IS = 0x15
_ABOVE = 0x25
_RETURN = 0x06
_REFUSE = 0x0005000D  # the verdict: fail with EACCES


if __name__ == "__main__":
    main()
