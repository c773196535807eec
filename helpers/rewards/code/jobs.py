"""What enters a sandbox and what leaves it: a job and its limits, an outcome, plain data."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

# Where all items of a set have one hash, each is compared with all before it: a second's work for
# the process that reads them.
MOST_HASHED = 4_000
_DEEPEST = 100  # levels of containers in a value
_LARGEST_INT = 14_280  # bits: 4,299 digits, the most that Python prints
_LEAVES = (type(None), bool, int, float, complex, str, bytes)
_SEQUENCES = (list, tuple, set, frozenset)


@dataclass(frozen=True)
class Limits:
    """What one program may use for all its inputs together, and the time of a whole batch.

    seconds: wall-clock time; under monty the last call that begins in time may take as long again.
    memory: bytes. output: bytes of what it prints, and of each value that it returns, as text.
    batch: seconds after which `run_code` starts no further program.
    """

    seconds: float = 2.0
    memory: int = 256_000_000
    output: int = 64_000
    batch: float = 300.0


@dataclass(frozen=True)
class Job:
    """A program and its inputs; it has one outcome per input.

    calls: pairs of a function's name and a tuple of its arguments, plain data; each is called in
    turn. stdin: without calls, the program is run as a script, once for each of these texts, which
    it reads. A program that exceeds a limit or crashes has the same outcome for all inputs that
    follow.
    """

    source: str
    calls: Sequence[tuple[str, tuple]] = ()
    stdin: Sequence[str] = ("",)

    @property
    def count(self) -> int:
        """Return the number of its outcomes."""
        return len(self.calls or self.stdin)


@dataclass(frozen=True)
class Outcome:
    """The result of one call, or of one run of a script.

    kind: "value" (then `value` is plain data), "error" (then `error` is the exception's type,
    `line` the line of the program and `message` the text), "timeout", "memory", "output" (more than
    the limit), "unsupported" (the back end cannot run such a program; `message` says what it
    lacks), "not started" (the batch's time was over, or the machine failed). output: what the
    program printed, up to the limit.
    """

    kind: Literal["value", "error", "timeout", "memory", "output", "unsupported", "not started"]
    value: object = None
    error: str = ""
    line: int | None = None
    message: str = ""
    output: str = ""


class Backend(Protocol):
    """Where programs run. A sandbox of your own needs this one method; it is called by several
    threads at a time.
    """

    def run(self, job: Job, limits: Limits) -> list[Outcome]:
        """Return the outcomes of a program, `job.count` of them."""


def timeout(limits: Limits, output: str = "") -> Outcome:
    """Return the outcome of a program that did not end in time."""
    said = f"it took longer than {limits.seconds:g} seconds."
    return Outcome("timeout", message=said, output=output)


def out_of_memory(limits: Limits, output: str = "") -> Outcome:
    """Return the outcome of a program that needed too much memory."""
    said = f"it needed more than {limits.memory} bytes of memory."
    return Outcome("memory", message=said, output=output)


def too_much_output(limits: Limits, did: str, output: str = "") -> Outcome:
    """Return the outcome of a program that printed, returned or sent too much."""
    said = f"it {did} more than {limits.output} bytes."
    return Outcome("output", message=said, output=output)


def other_than_plain(value: object) -> str:
    """Name what a value holds that is not plain data; return "" if it is plain throughout.

    Types are exact: a subclass of int, str or list brings methods of its own.

    >>> other_than_plain([1, {"a": (2.5, None)}]), other_than_plain([range(3)])
    ('', 'a value of type range')
    """
    stack = [(value, 0)]
    while stack:
        item, depth = stack.pop()
        if depth > _DEEPEST:
            return f"containers nested more than {_DEEPEST} deep"
        if type(item) is int and item.bit_length() > _LARGEST_INT:
            return "an integer that is too large to be printed"
        if type(item) is dict:
            children = (*item.keys(), *item.values())
        elif type(item) in _SEQUENCES:
            children = item
        elif type(item) in _LEAVES:
            continue
        else:
            return f"a value of type {type(item).__name__}"
        stack.extend((child, depth + 1) for child in children)
    return ""
