"""The rows of a file as episodes: what `reset` takes, one row an episode."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from pathlib import Path

import pyarrow

from helpers.data.sources import Broken, file_rows

_WRITTEN = ("prompt", "question", "answer")  # the columns that notebook 10 adds


def episode_rows(path: str | Path, seed: int) -> tuple[list[dict], Counter]:
    """The rows of a .csv, .jsonl or .parquet file in an order drawn from `seed`, and how many were
    dropped, by reason.

    Lines that cannot be read and rows that stand there twice are dropped, so that no episode is
    trained on and held out, too. ValueError, with the row's number from 1, where a row has other
    columns than the first one, an empty value, or a value of another kind than its column.
    """
    rows, dropped, seen = [], Counter(), set()
    for number, row in enumerate(file_rows(Path(str(path)), set()), start=1):
        if isinstance(row, Broken):
            dropped[row.reason] += 1
            continue
        if not rows and (taken := [name for name in _WRITTEN if name in row]):
            raise ValueError(
                f"{path}: notebook 10 writes the column {taken[0]!r} itself: give yours another "
                "name."
            )
        names = (rows or [row])[0].keys()
        if row.keys() != names or any(map(_empty, row.values())):
            raise ValueError(
                f"{path}, row {number}: every row needs the columns {', '.join(names)}, and a "
                "value in each."
            )
        key = json.dumps(row, sort_keys=True, default=str)
        if key in seen:
            dropped["duplicate"] += 1
            continue
        seen.add(key)
        rows.append(row)
    for name in rows[0] if rows else ():
        try:
            pyarrow.array([row[name] for row in rows])
        except pyarrow.ArrowException as error:
            raise ValueError(
                f"{path}: the values of column {name!r} must be of one kind ({error})."
            ) from None
    random.Random(seed).shuffle(rows)
    return rows, dropped


def _empty(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))
