"""Deciding whether an answer means the same as the row's: `kinds` is the entry, and each kind of
answer has a module.
"""

import difflib
from typing import NamedTuple

KINDS = ("number", "mathematics", "choice", "exact", "text")
# a set is a list of expressions or words without an order
DECLARED_KINDS = (*KINDS, "set", "json")


class Comparison(NamedTuple):
    """The verdict on an answer, or the pairs that math-verify must compare for a verdict.

    right: the verdict; None if it depends on math-verify.
    pair: the row's answer and the given one in LaTeX. The answer is correct if they are equal.
    unless: pairs in LaTeX. The answer is wrong if one of them is equal, whatever `pair` says.
    """

    right: bool | None
    pair: tuple[str, str] | None = None
    unless: tuple[tuple[str, str], ...] = ()


def check_kind(kind: str) -> str:
    """Return the kind, or raise ValueError if it is not one of `DECLARED_KINDS`."""
    if kind not in DECLARED_KINDS:
        near = difflib.get_close_matches(str(kind), DECLARED_KINDS, 1)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        raise ValueError(
            f"kind={kind!r} is not a kind of answer. {hint}Known: {', '.join(DECLARED_KINDS)}; "
            "without one, an answer is a number, mathematics or text."
        )
    return kind
