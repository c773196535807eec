"""What goes into a sandbox and what comes out: a job and its limits, an outcome, and plain data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

_MOST_DEEP = 100  # levels of containers in a value
_LARGEST_INT = 14_280  # bits: 4,299 digits
PLAIN = (type(None), bool, int, float, complex, str, bytes)
CONTAINERS = (list, tuple, set, frozenset)


@dataclass(frozen=True)
class Limits:
    """What one program may use, with all its inputs together.

    seconds: of time on the clock. memory: bytes. output: bytes of what it prints, and of the values
    that it returns.
    """

    seconds: float = 2.0
    memory: int = 256_000_000
    output: int = 64_000

    def __post_init__(self) -> None:
        """ValueError for a limit that is no positive number."""
        for name in ("seconds", "memory", "output"):
            value, whole = getattr(self, name), name != "seconds"
            kinds = int if whole else (int, float)
            if (
                isinstance(value, bool)
                or not isinstance(value, kinds)
                or not (0 < value < math.inf)
            ):
                kind = "whole number of bytes" if whole else "number of seconds"
                raise ValueError(
                    f"the limit {name}={value!r} is not a positive {kind}, such as "
                    f"{name}={_DEFAULTS[name]}."
                )


_DEFAULTS = {"seconds": 2.0, "memory": 256_000_000, "output": 64_000}


@dataclass(frozen=True)
class Job:
    """A program and what to do with it.

    With `call`, the name of a function in it: the function is called with each of `inputs`, a tuple
    of argument tuples; one outcome per input. Without: the program is run as a script that reads
    `stdin`; one outcome, whose `output` is what it printed. What ends a program (its time, its
    memory, a flood of output, a crash) ends it for the inputs that follow, too.
    """

    source: str
    call: str | None = None
    inputs: tuple = ()
    stdin: str | None = None


@dataclass(frozen=True)
class Outcome:
    """What came of one input (or of a script).

    kind: "value" (then `value` is plain data), "error" (then `error` is the exception's type,
    `line` the line of the program and `message` the text), "timeout", "memory", "output" (more than
    the limit), "unsupported" (the back end cannot run such a program; `message` says what it
    lacks). output: what was printed up to here, in full or up to the limit.
    """

    kind: Literal["value", "error", "timeout", "memory", "output", "unsupported"]
    value: object = None
    error: str = ""
    line: int | None = None
    message: str = ""
    output: str = ""


class Backend(Protocol):
    """Where programs run: the plug-in point. A service of your own needs this one method."""

    def run(self, jobs: Sequence[Job], limits: Limits) -> list[list[Outcome]]:
        """A list of outcomes for each job, in order: one per input, or one for a script."""


# --- What comes out -------------------------------------------------------------------------------


class TooMuch(Exception):
    """A value that is larger than the limit."""


def not_plain(value: object, most: float = math.inf) -> str | None:
    """What a value holds that is no plain data, in words; None if it is plain all through.

    Exact types only: a subclass of int, str or list brings methods of its own. TooMuch where it
    holds more than `most` bytes, counted as a tree: what stands in it twice counts twice, so that a
    few nested lists cannot stand for a billion.
    """
    stack, size = [(value, 0)], 0
    while stack:
        item, depth = stack.pop()
        kind = type(item)
        if depth > _MOST_DEEP:
            return f"containers nested more than {_MOST_DEEP} deep"
        if kind is dict:
            size += 2 * len(item)
            children = [*item.keys(), *item.values()] if size <= most else []
        elif kind in CONTAINERS:
            size += len(item)
            children = item if size <= most else []
        elif kind in PLAIN:
            size += _bytes_of(item, kind)
            children = ()
        else:
            return f"a value of type {kind.__name__}"
        if size > most:
            raise TooMuch
        stack.extend((child, depth + 1) for child in children)
    return None


def _bytes_of(item: object, kind: type) -> int:
    # about its decimal digits; more than Python prints is more than a verdict can use
    if kind is int:
        return item.bit_length() // 3 + 1 if item.bit_length() < _LARGEST_INT else math.inf
    return len(item) if kind in (str, bytes) else 1


def outcome_of(value: object, limits: Limits, output: str = "") -> Outcome:
    """The outcome for a value that a function returned: "value" if it is plain data within the
    limit, else what is wrong.
    """
    try:
        odd = not_plain(value, limits.output)
    except TooMuch:
        return Outcome(
            "output", message=f"it returned more than {limits.output} bytes.", output=output
        )
    if odd is None:
        return Outcome("value", value=value, output=output)
    return not_plain_outcome(odd, output)


def not_plain_outcome(odd: str, output: str = "") -> Outcome:
    """The outcome of a call that returned something else than plain data."""
    return Outcome(
        "error",
        error="TypeError",
        message=f"it returned {odd}; only plain data counts.",
        output=output,
    )


def timeout_outcome(limits: Limits, output: str = "") -> Outcome:
    """The outcome of a program that did not end in time."""
    return Outcome(
        "timeout", message=f"it took longer than {limits.seconds:g} seconds.", output=output
    )
