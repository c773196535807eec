"""Patterns and schemas of a user on texts of a policy, in bounded time.

A backtracking search can take twice as long for every character (`(a+)+$` on a row of `a`), and a
recursive schema for every
bracket: a policy that loops on one character finds both. So patterns are searched by the package
regex, which takes a time limit, and jsonschema runs with that search and looks at the clock at
every keyword.

Left out: a linear-time engine (RE2), which has neither look-around nor back-references, and a
process of its own, which would cost more than the judgement.
"""

from __future__ import annotations

import re
import sys
import threading
import time
import warnings
from collections.abc import Callable
from functools import lru_cache
from types import FunctionType, SimpleNamespace

import regex

# seconds of processor time for one completion, and for all slow ones of a batch
_ONE, _ALL = 0.25, 0.75
# what takes less is not counted, so that no honest batch, however large, runs out of time
_SLOW = 0.02
_LEAST = 0.002  # for each completion, when the time of the batch is used up


class OutOfTime(Exception):
    """A judgement that took longer than it may."""


class Budget:
    """The time of one batch: `judged` gives each completion its part of it."""

    def __init__(self, name: str):
        self.name, self.left, self.missed = name, _ALL, 0

    def judged(self, judge: Callable[[], float]) -> float:
        """What `judge` returns; 0.0 where it does not return in time."""
        began = time.thread_time()
        _now.ends = began + max(_LEAST, min(_ONE, self.left))
        try:
            return judge()
        except (OutOfTime, TimeoutError):
            self.missed += 1
            return 0.0
        finally:
            taken = time.thread_time() - began
            self.left -= taken if taken > _SLOW else 0.0
            _now.ends = None

    def tell(self, completions: int) -> None:
        """A warning, if some were not judged in time."""
        if self.missed:
            warnings.warn(
                f"{self.name}: {self.missed} of {completions} completions could not be judged in "
                "time; they score 0.0. A "
                "pattern or schema that tries many ways, such as (a+)+, is the usual cause.",
                stacklevel=3,
            )


_now = threading.local()


def _seconds_left() -> float | None:
    ends = getattr(_now, "ends", None)
    if ends is None:
        return None
    left = ends - time.thread_time()
    if left <= 0:
        raise OutOfTime
    return left


@lru_cache(maxsize=256)
def compiled(pattern: str, flags: int = 0) -> regex.Pattern:
    """A pattern of Python's re, compiled by regex. ValueError names one that is none."""
    try:
        re.compile(pattern)
        return regex.compile(pattern, flags)
    except (re.error, regex.error, RecursionError, OverflowError, TypeError) as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}.") from None


def search(pattern: str | regex.Pattern, text: str):
    """As `re.search`. TimeoutError where a `Budget` is at work and the search takes longer."""
    pattern = pattern if isinstance(pattern, regex.Pattern) else compiled(pattern)
    return pattern.search(text, timeout=_seconds_left())


# --- JSON Schema ----------------------------------------------------------------------------------


def validator(schema: dict | bool):
    """A jsonschema validator that keeps to the time of the `Budget` at work.

    jsonschema.SchemaError for what is no schema.
    """
    from jsonschema.validators import extend, validator_for

    kind = validator_for(schema)
    kind.check_schema(schema)
    keywords = {name: _watched(_copied(function)) for name, function in kind.VALIDATORS.items()}
    # with its $schema, `$ref: "#"` would lead back to jsonschema's own class
    if isinstance(schema, dict):
        schema = {key: value for key, value in schema.items() if key != "$schema"}
    return extend(kind, keywords)(schema)


def _watched(keyword: Callable) -> Callable:
    def watched(*arguments):
        _seconds_left()
        return keyword(*arguments)

    return watched


_names: dict[str, dict] = {}  # of jsonschema's modules, with our search for their `re`


def _copied(function: Callable) -> Callable:
    """A function of jsonschema that searches through `search`; what it calls in those modules does
    so, too.
    """
    if not isinstance(function, FunctionType) or not function.__module__.startswith("jsonschema._"):
        return function
    if function.__module__ not in _names:
        names = _names[function.__module__] = dict(vars(sys.modules[function.__module__]))
        names.update(
            {name: _copied(value) for name, value in names.items() if name != function.__name__}
        )
        names[function.__name__] = _copied(function)
        names["re"] = SimpleNamespace(search=search)
        if "equal" in names:  # uniqueItems compares every two items that cannot be sorted
            names["equal"] = _watched(names["equal"])
    return FunctionType(
        function.__code__,
        _names[function.__module__],
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
