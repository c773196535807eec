"""Files of rows, as they are found on disks: .csv, .jsonl, .parquet, read as a stream, and what is
no such file refused.

A value that cannot be had in Python (a date beyond the year 9999, bytes that are no UTF-8) is an
`Unreadable` in its place: the row is none the worse where nobody asks for that column.
"""

from __future__ import annotations

import difflib
import json
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from helpers.data.csvfiles import Broken, csv_rows, distinct_names, text_lines

FILE_TYPES = (".csv", ".jsonl", ".parquet")
_PARQUET_BATCH = 4_096  # rows that are Python objects at one time
_SHOWN = 200  # characters of a path or name in a message


@dataclass(frozen=True)
class Unreadable:
    """A value that Python cannot hold, and why."""

    reason: str


def shortened(text: object, most: int = _SHOWN) -> str:
    """A name for a message: at most so many characters of it, then how many there are."""
    text = str(text).encode(errors="backslashreplace").decode()
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


def regular_file(path: Path) -> Path:
    """The same path, if it is a file that can be read from its beginning to its end; ValueError
    says what it is instead.
    """
    name = shortened(path)
    try:
        mode = path.stat().st_mode
    except ValueError:  # a NUL in it
        raise ValueError(f"{name!r} is no path of a file.") from None
    except FileNotFoundError:
        there = [p.name for p in path.parent.glob("*")] if path.parent.is_dir() else []
        near = difflib.get_close_matches(
            path.name, [other for other in there if other != path.name], 1
        )
        hint = f" Did you mean {path.with_name(near[0])}?" if near else ""
        link = " It is a link, and what it points to is gone." if path.is_symlink() else hint
        raise ValueError(f"{name}: no such file.{link}") from None
    except OSError as error:  # too long a name, a folder that may not be entered, links in a circle
        raise ValueError(f"{name}: there can be no such file ({error.strerror}).") from None
    if stat.S_ISDIR(mode):
        raise ValueError(f"{name} is a folder; name a file.")
    if not stat.S_ISREG(mode):
        raise ValueError(
            f"{name} is a pipe or a device. It is read more than once: write what it gives to a "
            "file, and name that."
        )
    return path


def file_rows(
    path: Path, wanted: Collection[str] = ("question", "answer")
) -> Iterator[dict | Broken]:
    """The rows of a .csv, .jsonl or .parquet file, read as a stream.

    ValueError says what is wrong with the file.

    wanted: the columns that will be asked for. One that is there twice is refused; of the others
    the second `note` becomes `note.1`.
    """
    if not regular_file(path).stat().st_size:
        raise ValueError(f"{path}: the file is empty.")
    if path.suffix.lower() == ".jsonl":
        return _jsonl_rows(path)
    return (csv_rows if path.suffix.lower() == ".csv" else _parquet_rows)(path, wanted)


def _jsonl_rows(path: Path) -> Iterator[dict | Broken]:
    for number, line in enumerate(text_lines(path), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield Broken("not JSON", f"line {number}: {error}")
            continue
        yield (
            row
            if isinstance(row, dict)
            else Broken("not a JSON object", f"line {number}: {line.strip()}")
        )


def _parquet_rows(path: Path, wanted: Collection[str]) -> Iterator[dict]:
    import pyarrow
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path)
        names = distinct_names(path, file.schema_arrow.names, wanted)
        for batch in file.iter_batches(_PARQUET_BATCH):
            columns = [_python_values(column) for column in batch.columns]
            for values in zip(*columns, strict=True):
                yield dict(zip(names, values, strict=True))
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{path}: not a Parquet file, or a damaged one ({error}).") from None


def _python_values(column) -> list:
    """A column of Arrow as Python objects; one at a time where not all of them can be had."""
    try:
        return column.to_pylist()
    # OverflowError, UnicodeDecodeError, ValueError, Arrow's own: the type of the column decides
    except Exception:
        return [_python_value(value) for value in column]


def _python_value(value) -> object:
    try:
        return value.as_py()
    except Exception as error:
        return Unreadable(f"{type(error).__name__}: {error}")
