"""Deciding whether an answer means the same as the row's: `kinds` is the entry, and each kind of
answer has a module.
"""

from typing import NamedTuple


class Comparison(NamedTuple):
    """The verdict on an answer, or the pairs that math-verify must compare for a verdict.

    right: the verdict; None if it depends on math-verify.
    pair: the row's answer and the given one in LaTeX. The answer is right if they are equal.
    unless: pairs in LaTeX. The answer is wrong if one of them is equal, whatever `pair` says.
    """

    right: bool | None
    pair: tuple[str, str] | None = None
    unless: tuple[tuple[str, str], ...] = ()
