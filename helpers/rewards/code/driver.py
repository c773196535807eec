"""What runs inside a sandbox of CPython: this file is the driver's program.

The driver forks a child for each program. The child reads a job as one line, runs it and writes one
line for every outcome, each an object of JSON. Whatever the program does to the child, all that
leaves is a line that the other side reads as data: a forged one is no more than a value that the
program could have returned. No child holds an expected value, and the driver never reads a job.
"""

import _thread
import ctypes
import io
import json
import os
import signal
import socket
import struct
import sys
import traceback

READY = b"ready\n"  # the child's first word, when the program's time begins
PRINTED_TOO_MUCH = 7  # the status of a child that was ended for it
# Where all items of a set have one hash, each is compared with all before it: a second's work for
# the process that reads them.
MOST_HASHED = 4_000
_DEEPEST = 100
_LIBRARY = ("Counter", "OrderedDict", "defaultdict")  # dictionaries of collections
_PROGRAM = "<program>"


def plain(value: object, depth: int = 0) -> object:
    """The value as JSON has it; what JSON lacks becomes {"its type": [its parts]}.

    TypeError names what is no plain data. Types are exact: a subclass of int or list has methods of
    its own, which may lie.
    """
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if depth > _DEEPEST:
        said = f"it returned containers nested more than {_DEEPEST} deep; only plain data counts."
        raise TypeError(said)
    if kind.__module__ == "collections" and kind.__name__ in _LIBRARY:
        kind = dict
    if kind in (dict, set, frozenset) and len(value) > MOST_HASHED:
        raise TypeError(f"it returned a {kind.__name__} of more than {MOST_HASHED} items.")
    if kind is dict:
        items = dict.items(value)
        return {"dict": [[plain(key, depth + 1), plain(item, depth + 1)] for key, item in items]}
    if kind is complex:
        return {"complex": [value.real, value.imag]}
    if kind not in (list, tuple, set, frozenset, bytes):
        raise TypeError(f"it returned a value of type {kind.__name__}; only plain data counts.")
    parts = [plain(item, depth + 1) for item in value]
    return parts if kind is list else {kind.__name__: parts}


class _Printed(io.BytesIO):
    """What the program prints, up to a limit; past it the program ends."""

    def __init__(self, most: int):
        super().__init__()
        self._most = most

    def write(self, data) -> int:
        """As of a file."""
        count = super().write(data)
        if self.tell() > self._most:
            os._exit(PRINTED_TOO_MUCH)
        return count


def _frame(job: dict, names: dict, call: tuple | None) -> dict:
    """What came of a call of the program's function; without a call, of the program itself, which
    puts its functions into `names`.

    Any exception is an outcome: a program must not end the driver by SystemExit or
    KeyboardInterrupt.
    """
    try:
        if call is None:
            exec(compile(job["source"], _PROGRAM, "exec"), names)
            return {"kind": "value"}
        name, arguments = call
        if name not in names:
            raise NameError(f"name {name!r} is not defined")
        text = json.dumps(plain(names[name](*arguments)))
        if len(text) > job["output"]:  # the other side counts again
            return {"kind": "output", "message": f"it returned more than {job['output']} bytes."}
        return {"kind": "value", "value": text}
    except BaseException as error:
        # a script may end so
        if job["calls"] is None and isinstance(error, SystemExit) and error.code in (None, 0):
            return {"kind": "value"}
        trace = traceback.walk_tb(error.__traceback__)
        lines = [line for frame, line in trace if frame.f_code.co_filename == _PROGRAM]
        if isinstance(error, SyntaxError) and error.filename == _PROGRAM:
            lines.append(error.lineno)
        kind = "memory" if isinstance(error, MemoryError) else "error"
        frame = {"kind": kind, "error": type(error).__name__, "message": str(error)[:500]}
        return frame | {"line": lines[-1] if lines else None}


# The numbers of system calls, and what seccomp's filters are written in (linux/filter.h).
_CALLS = {
    # socket, ioctl, fork, vfork, flock, prctl, readlink, readlinkat; clone; prlimit64; fcntl
    "x86_64": ((41, 16, 57, 58, 73, 157, 89, 267), 56, 302, 72),
    "aarch64": ((198, 29, 32, 167, 78), 220, 261, 25),
}
# What fcntl may do: duplicate a file, and its flag for exec. Its locks and other flags would tell
# later programs something.
_FCNTL_MOST, _DUPLICATE_FOR_EXEC = 3, 1030
_CLONE3, _LANDLOCK_CREATE, _LANDLOCK_RESTRICT = 435, 444, 446  # on every machine
_LOAD, _IS, _ABOVE, _HAS, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
_ALLOW, _REFUSE, _UNKNOWN = 0x7FFF0000, 0x0005000D, 0x00050026  # as EACCES, as ENOSYS
_NUMBER, _FIRST, _SECOND = 0, 16, 24  # where a filter finds a call's number and arguments
_CLONE_THREAD = 0x10000
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 1, 22, 2
_SIGNALS_AND_ABSTRACT_SOCKETS = 3
_NOBODY = 65534


def _keep_to_itself() -> None:
    """Refuse what sandlock cannot, because an interpreter or the starter needs it: signals to a
    process outside (the starter, too), sockets, ioctl (flags of files), a new process (a thread is
    none), an end that is not the starter's, locks that later programs would see, names of files in
    other processes, and the limits of these (prlimit64 with a number of a process).

    OSError where the kernel takes no rules.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # with the starter
    scoped = (ctypes.c_uint64 * 3)(0, 0, _SIGNALS_AND_ABSTRACT_SOCKETS)
    rules = libc.syscall(_LANDLOCK_CREATE, scoped, ctypes.c_size_t(24), 0)
    if rules < 0 or libc.syscall(_LANDLOCK_RESTRICT, rules, 0):
        raise OSError(ctypes.get_errno(), "the kernel takes no Landlock rules")
    os.close(rules)
    refused, clone, prlimit64, fcntl = _CALLS[os.uname().machine]
    # A step: what it does, how many steps it jumps over if so, and if not, and its operand.
    steps = [(_LOAD, 0, 0, _NUMBER)]
    for call in refused:
        steps += [(_IS, 0, 1, call), (_RETURN, 0, 0, _REFUSE)]
    # The C library takes clone where there is no clone3, whose flags a filter cannot read.
    steps += [(_IS, 0, 1, _CLONE3), (_RETURN, 0, 0, _UNKNOWN)]
    steps += [
        (_IS, 0, 4, clone),
        (_LOAD, 0, 0, _FIRST),
        (_HAS, 0, 1, _CLONE_THREAD),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
        (_IS, 0, 3, prlimit64),
        (_LOAD, 0, 0, _FIRST),
        (_IS, 1, 0, 0),
        (_RETURN, 0, 0, _REFUSE),
        (_IS, 0, 4, fcntl),
        (_LOAD, 0, 0, _SECOND),
        (_IS, 2, 0, _DUPLICATE_FOR_EXEC),
        (_ABOVE, 0, 1, _FCNTL_MOST),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HP", len(steps), ctypes.addressof(code)))
    if libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, program, 0, 0):
        raise OSError(ctypes.get_errno(), "the kernel takes no filter")


def _feed(pipe: int, text: bytes) -> None:
    with open(pipe, "wb") as file:
        file.write(text)


# What programs import most: a child of the starter has it at once.
_USUAL = """
    math random re string collections itertools functools heapq bisect typing dataclasses json
    datetime fractions decimal statistics operator copy enum abc contextlib textwrap inspect
"""


def main() -> None:
    """Fork a child for each pair of pipes that comes out of the socket on file 0, one at a time.

    Nothing of a job comes here: the child reads it. A message is the child's limit of memory; the
    next one, whatever it says, ends the child, and its answer is the child's status.
    """
    import resource  # which Windows lacks, where the tests import this file

    os.closerange(3, 1024)  # what the launcher may have left open
    if os.geteuid() == 0:  # sandlock could not make us nobody from the start
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    control = socket.socket(fileno=os.dup(0))
    for name in _USUAL.split():
        __import__(name)
    while True:
        memory, pipes, _, _ = socket.recv_fds(control, 32, 2)
        if not memory:
            return
        child = os.fork()
        if not child:
            os.dup2(pipes[0], 0)
            os.dup2(pipes[1], 1)
            control.close()
            os.closerange(3, 1024)
            resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
            sys.modules["random"].seed(0)  # which Python seeds anew in every child
            _keep_to_itself()
            run()
        for pipe in pipes:
            os.close(pipe)
        os.read(control.fileno(), 16)  # a read is not sandlock's business, a recv is
        os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        os.write(control.fileno(), b"%d" % status)


def run() -> None:
    """Read the job from file 0, run it, write the outcomes to file 1."""
    job = eval(sys.stdin.readline(), {"inf": float("inf"), "nan": float("nan")})
    wire = os.dup(1)
    os.dup2(2, 1)  # which is the null device: what a program writes past sys.stdout goes nowhere
    reading, writing = os.pipe()
    if job["stdin"]:
        _thread.start_new_thread(_feed, (writing, job["stdin"].encode(errors="replace")))
    else:
        os.close(writing)
    os.dup2(reading, 0)
    os.close(reading)
    printed = _Printed(job["output"])
    # Named twice, because a program that puts another file in its place must not close it.
    sys.stdout = sys.__stdout__ = io.TextIOWrapper(
        printed, encoding="utf-8", errors="replace", write_through=True
    )
    __builtins__.exit = __builtins__.quit = sys.exit
    script = job["calls"] is None
    # so that a block for scripts is none of a function's business
    module = type(sys)("__main__" if script else "program")
    sys.modules[module.__name__] = module
    names = vars(module)
    with open(wire, "wb") as frames:
        frames.write(READY)
        frames.flush()
        loaded = _frame(job, names, None)
        for call in [None] if script else job["calls"]:
            runs = call is not None and loaded["kind"] == "value"
            frame = _frame(job, names, call) if runs else loaded
            text = printed.getvalue().decode("utf-8", "replace")
            printed.seek(0)
            printed.truncate()  # the next call's outcome has what that prints
            frames.write(json.dumps(frame | {"output": text}).encode() + b"\n")
            frames.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
