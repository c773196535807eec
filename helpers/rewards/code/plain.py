"""Plain data: what may enter a sandbox and come out of it."""

import json

from helpers.rewards.code.driver import MOST_HASHED

_DEEPEST = 100  # levels of containers in a value
_LARGEST_INT = 14_280  # bits: 4,299 digits, the most that Python prints
_LEAVES = (type(None), bool, int, float, complex, str, bytes)
_SEQUENCES = (list, tuple, set, frozenset)


def not_plain(value: object) -> str | None:
    """What a value holds that is no plain data, in words; None if it is plain all through.

    Exact types only: a subclass of int, str or list brings methods of its own.
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
    return None


def read(text: str) -> object:
    """The plain data that `driver.plain` wrote as JSON. The text may be hostile: ValueError for
    anything else.

    >>> read('[1, {"tuple": [2.5, {"set": ["a"]}]}, {"dict": [[null, Infinity]]}]')
    [1, (2.5, {'a'}), {None: inf}]
    """
    try:
        value = json.loads(text, object_hook=_made)
    except (TypeError, LookupError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"no plain data: {error}") from None
    if odd := not_plain(value):
        raise ValueError(f"no plain data: {odd}")
    return value


_MADE = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "dict": dict,
    "bytes": bytes,
    "complex": lambda parts: complex(*parts),
}


def _made(written: dict) -> object:
    """What JSON lacks, from {"its type": [its parts]}."""
    [(kind, parts)] = written.items()
    if not isinstance(parts, list):  # bytes(10**10) are many
        raise ValueError(f"no plain data: {kind} of {parts!r:.80}")
    if kind in ("set", "frozenset", "dict") and len(parts) > MOST_HASHED:
        raise ValueError(f"no plain data: more than {MOST_HASHED} items in a set")
    return _MADE[kind](parts)
