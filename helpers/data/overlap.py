"""Find text that two sets of questions share: runs of 8 words."""

import re
from collections.abc import Iterable
from pathlib import Path

from helpers.data.files import FILE_TYPES, Broken, file_rows

WORDS = 8  # as in the contamination checks of FLAN (arXiv 2109.01652); GPT-3's used 13


def benchmark_texts(file: str) -> list[str]:
    """Return the texts of a benchmark's file: the lines of a text file, or the rows of a .csv,
    .json, .jsonl or .parquet file, each with all its texts.
    """
    if not file.lower().endswith(FILE_TYPES):
        lines = Path(file).read_text(encoding="utf-8").splitlines()
        return [line for line in lines if line.strip()]
    rows = [row for row in file_rows(Path(file)) if not isinstance(row, Broken)]
    return [" ".join(value for value in row.values() if isinstance(value, str)) for row in rows]


def shared_text(texts: Iterable[str], others: Iterable[str]) -> dict:
    """Return how many of the texts share a run of 8 words with any of the others.

    The result has four entries:
        texts: the number of texts.
        share: how many of them share a run.
        mostly: how many share at least half of their runs.
        example: the first text that shares the largest part of its runs; None if none shares any.

    Words are compared in lower case, and a punctuation mark is a word of its own. A text of fewer
    words is one run.

    >>> shared_text(["What is 1 + 2?", "What is 3?"], ["what is 1  + 2?"])
    {'texts': 2, 'share': 1, 'mostly': 1, 'example': 'What is 1 + 2?'}
    """
    # 1. Collect the runs of the other texts.
    known = set()
    for other in others:
        known |= _runs(other)

    # 2. For each text, compute which part of its runs is among them.
    texts = list(texts)
    parts = []
    for text in texts:
        runs = _runs(text)
        parts.append(len(runs & known) / len(runs) if runs else 0.0)

    # 3. Count the texts.
    largest = max(parts, default=0.0)
    return {
        "texts": len(texts),
        "share": sum(part > 0 for part in parts),
        "mostly": sum(part >= 0.5 for part in parts),
        "example": texts[parts.index(largest)] if largest > 0 else None,
    }


def _runs(text: str) -> set[tuple[str, ...]]:
    """Return all runs of 8 words in a text. A shorter text is one run, an empty text has none."""
    words = re.findall(r"\w+|[^\w\s]", str(text).lower())
    starts = range(max(1, len(words) - WORDS + 1)) if words else []
    return {tuple(words[start : start + WORDS]) for start in starts}


def shared_text_line(found: dict, of: str, among: str) -> str:
    """Return the result of `shared_text` as a sentence.

    of, among: the names of the texts and of the others, such as "held-out questions" and
        "a training question".
    """
    if not found["share"]:
        return f"none of {found['texts']:,} {of} shares {WORDS} words in a row with {among}"
    return (
        f"{found['share']:,} of {found['texts']:,} {of} share {WORDS} words in a row with {among}, "
        f"{found['mostly']:,} at least half of their text, such as {found['example']!r:.120}"
    )
