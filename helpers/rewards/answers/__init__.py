"""What counts as the same answer: `kinds` judges, each kind by a file of its own."""

from typing import NamedTuple


class Comparison(NamedTuple):
    """Whether an answer is right. right: None where math-verify has to compare `pair`, the row's
    answer and the given one in LaTeX; the answer is then right if these are equal, and no pair of
    `unless` is.
    """

    right: bool | None
    pair: tuple[str, str] | None = None
    unless: tuple[tuple[str, str], ...] = ()
