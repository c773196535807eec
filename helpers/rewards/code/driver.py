"""What runs inside a sandbox of CPython: this file is the driver's program, and the wire format of
values on both sides.

The driver gets a job as one line of JSON, runs it and writes one line for every outcome. Whatever
the program does to the driver, all that leaves is data that the other side reads as data: a forged
line is no more than a value that the program could have returned. It never holds an expected value.
Only the standard library, because nothing else is there.
"""

import io
import json
import os
import sys

_DEEPEST = 100
_EXACT_INT = 1 << 53
_SAME_AS_DICT = {
    ("collections", "Counter"),
    ("collections", "OrderedDict"),
    ("collections", "defaultdict"),
}
_PROGRAM = "<program>"


# Where all items of a set have one hash, each is compared with all before it: 10,000 such integers
# take our process, which a value is built in, seven seconds that no time limit can end. So many
# pairs take less than half a second.
MOST_PAIRS = 4_000_000


def encode(value: object, most: float = float("inf")):
    """Plain data as JSON's types: what JSON lacks is an object with one key.

    TypeError names anything else, OverflowError tells of more than `most` items and characters.

    >>> encode((1, {"a"}, float("inf")))
    {'tuple': [1, {'set': ['a']}, {'float': 'inf'}]}
    """
    return _encoded(value, [most], 0)


def _encoded(value: object, left: list, depth: int):
    kind = type(value)
    left[0] -= 1 + (len(value) if kind is str or kind is bytes else 0)
    if left[0] < 0:
        raise OverflowError
    if depth > _DEEPEST:
        raise TypeError(f"containers nested more than {_DEEPEST} deep")
    if value is None or kind is bool or kind is str:
        return value
    # JSON's readers may hold a number as a float, and Python's refuses 5,000 digits
    if kind is int:
        return value if -_EXACT_INT < value < _EXACT_INT else {"int": hex(value)}
    if kind is float:
        return value if value - value == 0 else {"float": repr(value)}
    if kind is complex:
        return {"complex": [_encoded(value.real, left, depth), _encoded(value.imag, left, depth)]}
    if kind is bytes:
        return {"bytes": value.hex()}
    if kind is list:
        return [_encoded(item, left, depth + 1) for item in value]
    if kind is tuple or kind is set or kind is frozenset:
        return {kind.__name__: [_encoded(item, left, depth + 1) for item in value]}
    if kind is dict or (kind.__module__, kind.__name__) in _SAME_AS_DICT:
        return {
            "dict": [
                [_encoded(key, left, depth + 1), _encoded(item, left, depth + 1)]
                for key, item in dict.items(value)
            ]
        }
    raise TypeError(f"a value of type {kind.__name__}")


def decode(data: object, pairs: float = float("inf")):
    """The value that `encode` wrote.

    ValueError for anything that it cannot have written, and for sets and dictionaries of more than
    so many pairs of items.
    """
    try:
        return _decoded(data, [pairs])
    except (TypeError, KeyError, RecursionError, OverflowError) as error:
        raise ValueError(f"no value of the wire format: {error}") from None


def _decoded(data: object, left: list):
    if data is None or isinstance(data, bool | int | float | str):
        return data
    if isinstance(data, list):
        return [_decoded(item, left) for item in data]
    if not isinstance(data, dict) or len(data) != 1:
        raise ValueError("no value of the wire format")
    [(tag, content)] = data.items()
    if tag == "int":
        return int(content, 16)
    if tag == "float" and content in ("nan", "inf", "-inf"):
        return float(content)
    if tag == "complex":
        real, imaginary = (_decoded(part, left) for part in content)
        return complex(real, imaginary)
    if tag == "bytes":
        return bytes.fromhex(content)
    if tag in _HASHED and isinstance(content, list):
        left[0] -= len(content) ** 2
        if left[0] < 0:
            raise ValueError("sets and dictionaries of too many items")
    if tag in _SEQUENCES and isinstance(content, list):
        return _SEQUENCES[tag]([_decoded(item, left) for item in content])
    if tag == "dict" and isinstance(content, list):
        return {_decoded(key, left): _decoded(item, left) for key, item in content}
    raise ValueError("no value of the wire format")


_SEQUENCES = {"tuple": tuple, "set": set, "frozenset": frozenset}
_HASHED = ("set", "frozenset", "dict")


# --- Inside ---------------------------------------------------------------------------------------


class _Printed(io.BytesIO):
    """What the program prints, up to a limit; past it the program ends."""

    def __init__(self, wire: int, most: int):
        super().__init__()
        self._wire, self._most = wire, most

    def write(self, data) -> int:
        """As of a file."""
        count = super().write(data)
        if self.tell() > self._most:
            _send(
                self._wire,
                {
                    "kind": "output",
                    "all": True,
                    "message": f"it printed more than {self._most} bytes.",
                },
            )
            os._exit(0)
        return count

    def take(self) -> str:
        """All that was printed since the last time."""
        text = self.getvalue().decode("utf-8", "replace")
        self.seek(0)
        self.truncate()
        return text


def _send(wire: int, frame: dict) -> None:
    data = json.dumps(frame).encode() + b"\n"
    while data:
        data = data[os.write(wire, data) :]


class _Tried:
    """Keeps what is raised inside, whatever it is: a program must not end the driver by SystemExit
    or KeyboardInterrupt.
    """

    error: BaseException | None = None

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace) -> bool:
        self.error = error
        return True


def _failed(error: BaseException) -> dict:
    """The frame for an exception, whose own methods may lie or fail."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == _PROGRAM:
            line = trace.tb_lineno
        trace = trace.tb_next
    if isinstance(error, SyntaxError) and error.filename == _PROGRAM:
        line = error.lineno
    message = ""
    with _Tried():
        message = str(str(error)[:500])
    kind = "memory" if isinstance(error, MemoryError) else "error"
    return {"kind": kind, "error": type(error).__name__[:100], "line": line, "message": message}


def _value(value: object, most: int) -> dict:
    try:
        encoded = encode(value, most)
        if _pairs(encoded) > MOST_PAIRS:
            raise OverflowError
        return {"kind": "value", "value": encoded}
    except TypeError as error:
        return {
            "kind": "error",
            "error": "TypeError",
            "message": f"it returned {error}; only plain data counts.",
        }
    except OverflowError:  # the other side counts again
        return {"kind": "output", "message": f"it returned more than {most} bytes."}


def _pairs(encoded: object) -> int:
    if isinstance(encoded, list):
        return sum(map(_pairs, encoded))
    if not isinstance(encoded, dict):
        return 0
    [(tag, content)] = encoded.items()
    return (len(content) ** 2 if tag in _HASHED else 0) + _pairs(content)


# its number, and below what seccomp's filters are written in (linux/filter.h)
_PRLIMIT64 = {"x86_64": 302, "aarch64": 261}
_LOAD, _IS, _RETURN, _ALLOW, _REFUSE = 0x20, 0x15, 0x06, 0x7FFF0000, 0x00050001
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2


def _keep_to_itself() -> None:
    """Refuse the limits of other processes to the program: prlimit64 with a number of a process.

    OSError where that fails.
    """
    import ctypes
    import struct

    number = _PRLIMIT64[os.uname().machine]
    steps = [(_LOAD, 0, 0, 0), (_IS, 0, 3, number), (_LOAD, 0, 0, 16), (_IS, 1, 0, 0)]
    steps += [(_RETURN, 0, 0, _REFUSE), (_RETURN, 0, 0, _ALLOW)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HP", len(steps), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, program, 0, 0):
        raise OSError(ctypes.get_errno(), "the kernel takes no filter")


def main() -> None:
    """Read the job from file 0, run it, write the outcomes to file 1."""
    os.closerange(3, 1024)  # what our process may have left open
    _keep_to_itself()
    job = json.loads(sys.stdin.readline())
    wire = os.dup(1)
    os.dup2(2, 1)  # which is the null device: what a program writes past sys.stdout goes nowhere
    with open("stdin", "wb") as file:
        file.write(job["stdin"].encode())
    text = os.open("stdin", os.O_RDONLY)
    os.unlink("stdin")
    os.dup2(text, 0)
    os.close(text)
    sys.stdin = open(0, encoding="utf-8")  # noqa: SIM115 (open as long as the program runs)
    printed = _Printed(wire, job["output"])
    # Named twice, because a program that puts another file in its place must not close it.
    sys.stdout = sys.__stdout__ = io.TextIOWrapper(
        printed, encoding="utf-8", errors="replace", write_through=True
    )
    sys.argv = [_PROGRAM]
    __builtins__.exit = __builtins__.quit = sys.exit
    script = job["call"] is None
    # so that a block for scripts is none of a function's business
    module = type(sys)("__main__" if script else "program")
    sys.modules[module.__name__] = module
    names = vars(module)
    _send(wire, {"kind": "ready"})
    with _Tried() as tried:
        exec(compile(job["source"], _PROGRAM, "exec"), names)
    ended = isinstance(tried.error, SystemExit) and tried.error.code in (None, 0)  # as a script may
    if script or tried.error is not None:
        frame = (
            {"kind": "value"} if script and (ended or tried.error is None) else _failed(tried.error)
        )
        _send(wire, frame | {"output": printed.take(), "all": True})
        os._exit(0)
    for arguments in job["inputs"]:
        frame = {
            "kind": "error",
            "error": "NameError",
            "message": f"name {job['call']!r} is not defined",
        }
        if job["call"] in names:
            with _Tried() as tried:
                frame = _value(names[job["call"]](*decode(arguments)), job["output"])
            frame = frame if tried.error is None else _failed(tried.error)
        _send(wire, frame | {"output": printed.take()})
    os._exit(0)


if __name__ == "__main__":
    main()
