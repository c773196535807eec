"""Find text that two sets of questions share: runs of 8 words."""

import re
from collections.abc import Iterable
from pathlib import Path

from helpers.data.files import FILE_TYPES, Broken, file_rows

WORDS = 8  # as in the contamination checks of FLAN (arXiv 2109.01652); GPT-3's used 13


def shared_text(texts: Iterable[str], others: Iterable[str]) -> dict:
    """Return how many of the texts share a run of 8 words with any of the others: `texts`, `share`
    (of these, how many share one), `mostly` (at least half of their runs) and an `example`, the
    first text with the largest part in common, or None.

    Words are compared in lower case, and a punctuation mark is a word of its own. A text of fewer
    words is one run.

    >>> shared_text(["What is 1 + 2?", "What is 3?"], ["what is 1  + 2?"])
    {'texts': 2, 'share': 1, 'mostly': 1, 'example': 'What is 1 + 2?'}
    """
    known = set().union(*map(_runs, others))
    texts = list(texts)
    parts = [len(runs & known) / max(1, len(runs)) for runs in map(_runs, texts)]
    return {
        "texts": len(texts),
        "share": sum(part > 0 for part in parts),
        "mostly": sum(part >= 0.5 for part in parts),
        "example": texts[parts.index(max(parts))] if any(parts) else None,
    }


def _runs(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+|[^\w\s]", str(text).lower())
    return {tuple(words[at : at + WORDS]) for at in range(max(1, len(words) - WORDS + 1))} - {()}


def benchmark_texts(file: str) -> list[str]:
    """Return the texts of a benchmark's file: the lines of a text file, or the rows of a .csv,
    .json, .jsonl or .parquet file, each with all its texts.
    """
    if not file.lower().endswith(FILE_TYPES):
        return [
            line for line in Path(file).read_text(encoding="utf-8").splitlines() if line.strip()
        ]
    rows = [row for row in file_rows(Path(file)) if not isinstance(row, Broken)]
    return [" ".join(value for value in row.values() if isinstance(value, str)) for row in rows]


def shared_text_line(found: dict, of: str, among: str) -> str:
    """Return what `shared_text` found as a sentence."""
    if not found["share"]:
        return f"none of {found['texts']:,} {of} shares {WORDS} words in a row with {among}"
    return (
        f"{found['share']:,} of {found['texts']:,} {of} share {WORDS} words in a row with {among}, "
        f"{found['mostly']:,} at least half of their text, such as {found['example']!r:.120}"
    )
