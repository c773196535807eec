"""Read the rows of a .csv, .json, .jsonl or .parquet file: `file_rows`.

A row that cannot be read becomes a `Broken`, so that it is counted. A file that would be misread is
a ValueError. CSV files are read with Python's csv module, because pandas silently drops the rest of
a file after a quote that is never closed. There is a reader for each type of file; `parse_literal`,
at the end, reads a list or a dictionary in a cell.

This module imports only the standard library: `doctor` uses it before anything is installed.
"""

import ast
import csv
import io
import json
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from helpers.printing import shorten

FILE_TYPES = (".csv", ".json", ".jsonl", ".parquet")


@dataclass(frozen=True)
class Broken:
    """A row that cannot be used: why, where, and advice for a user with many such rows.

    where: its place in the file, or its number, question and answer.
    """

    reason: str
    where: str
    advice: str


class Dropped(ValueError):
    """Raised for a row that cannot be used.

    reason: the report counts dropped rows by it.
    advice: what a user with many such rows can do.
    """

    def __init__(self, reason: str, advice: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.advice = advice


def file_rows(
    path: Path, wanted: Collection[str] = ("question", "answer")
) -> Iterator[dict | Broken]:
    """Return the rows of a file whose type is one of FILE_TYPES.

    wanted: the columns that the caller needs. They decide which delimiter a CSV file has.

    Raise ValueError if there is no such file, or if its content would be misread.
    """
    file_type = path.suffix.lower()
    if file_type not in FILE_TYPES:
        raise ValueError(f"{path}: give a {', '.join(FILE_TYPES)} file.")
    if not path.exists():
        raise ValueError(f"No such file: {path} (looked for from {Path.cwd()}).")
    if not path.stat().st_size:
        raise ValueError(f"{path}: the file is empty.")
    if file_type == ".parquet":
        return _parquet_rows(path)

    # The other types are text. Excel's "Unicode text" is UTF-16 with a byte order mark; UTF-8 may
    # have a mark, too.
    is_utf16 = path.read_bytes()[:2] in (b"\xff\xfe", b"\xfe\xff")
    try:
        text = path.read_text(encoding="utf-16" if is_utf16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{path}: line {line} is not UTF-8 ({error.reason}). Save the file as UTF-8: in a "
            "spreadsheet as “CSV UTF-8”, or, if it came from an older Windows program, with "
            f"`iconv -f WINDOWS-1252 -t UTF-8 {path.name} > utf8-{path.name}`."
        ) from None
    if file_type == ".csv":
        return _csv_rows(path, text, wanted)
    return _json_rows(path, text, wanted)


def _csv_rows(path: Path, text: str, wanted: Collection[str]) -> Iterator[dict[str, str] | Broken]:
    """Yield the rows of a CSV file, without blank rows and without columns that have no name.

    The delimiter is the one that finds the most wanted columns in the header, or the most columns
    if there is a tie. `csv.Sniffer` is often wrong about files of short questions. Excel can name
    the delimiter itself, in a first line `sep=;`. If two other columns have the same name, the last
    one is used.
    """
    csv.field_size_limit(2**24)  # characters; by default, the csv module stops at 2**17

    # 1. Delimiters to try.
    delimiters = [",", ";", "\t", "|"]
    if text.startswith("sep=") and text[5:6] == "\n":
        delimiters = [text[4]]
        text = text[5:]  # the line's end remains, so that line numbers stay right

    # 2. Read the first row that is not blank by each of them, and choose the one that fits best.
    headers = {}
    for delimiter in delimiters:
        reader = csv.reader(io.StringIO(text), delimiter=delimiter)
        first_row = next((row for row in reader if "".join(row).strip()), [])
        headers[delimiter] = [name.strip() for name in first_row]

    def fit(delimiter: str) -> tuple[int, int]:
        header = headers[delimiter]
        wanted_columns = set(wanted) & set(header)
        return len(wanted_columns), len(header)

    delimiter = max(headers, key=fit)
    names = headers[delimiter]
    twice = [name for name in wanted if names.count(name) > 1]
    if twice:
        raise ValueError(f"{path}: the header names {twice[0]!r} more than once. Rename one.")

    # 3. Read the rows. strict: a quote that is never closed is an error; otherwise its field would
    # hold the rest of the file.
    reader = csv.reader(io.StringIO(text), delimiter=delimiter, strict=True)
    rows = (row for row in reader if "".join(row).strip())
    line = 0
    try:
        next(rows, None)  # the header
        for row in rows:
            line = reader.line_num
            if len(row) == len(names):
                yield {name: value for name, value in zip(names, row, strict=True) if name}
            else:
                yield Broken(
                    f"not {len(names)} fields",
                    f"line {line}: {len(row)} fields",
                    "A field that holds a delimiter needs double quotes around it.",
                )
    except csv.Error as error:
        raise ValueError(
            f"{path}: the text after line {line} cannot be read as CSV ({error}). Is a quote left "
            'open? A quote inside a quoted field is written twice (""), not with a backslash.'
        ) from None


def _json_rows(path: Path, text: str, wanted: Collection[str]) -> Iterator[dict | Broken]:
    """Yield the rows of JSON lines, or of one JSON value in any of these layouts.

    - an array of rows, also inside an object: `{"version": 1, "data": [{"question": …}, …]}`
    - an object of columns, as pandas writes it: `{"question": {"0": …}, "answer": {"0": …}}`
    - an object of rows by their ids: `{"id1": {"question": …}, "id2": {"question": …}}`
    - a single row
    """
    import pandas as pd

    # 1. Read one JSON value, or else one value per line.
    content = _json_or_error(text)
    if isinstance(content, Exception):
        content = [_json_or_error(line) for line in io.StringIO(text) if line.strip()]

    # 2. Open an object around the rows. It is not a row itself if it has none of the columns.
    columns = {name.split(".")[0] for name in wanted}
    if isinstance(content, dict) and not columns & content.keys():
        lists = []
        for name, value in content.items():
            if isinstance(value, list) and any(isinstance(item, dict) for item in value):
                lists.append(name)
        if len(lists) > 1:
            raise ValueError(
                f"{path}: there are rows in {' and in '.join(map(repr, lists))}. Put each list in "
                "its own file: of a folder with train.jsonl and test.jsonl, test is held out."
            )
        if lists:
            content = content[lists[0]]
        elif all(_is_row_by_id(value) for value in content.values()):
            content = list(content.values())

    # 3. Turn an object of columns, all of the same length, into rows.
    if isinstance(content, dict) and all(isinstance(c, list | dict) for c in content.values()):
        lengths = {len(column) for column in content.values()}
        if len(lengths) == 1:
            content = pd.DataFrame(content).to_dict("records")

    # 4. Yield the rows. Any other object is a row itself.
    rows = content if isinstance(content, list) else [content]
    for number, row in enumerate(rows, 1):
        if isinstance(row, dict):
            yield row
        else:
            yield Broken(
                "not a JSON object",
                f"row {number}: {shorten(row)}",
                'Each row is an object: {"question": "…", "answer": "…"}.',
            )


def _is_row_by_id(value: object) -> bool:
    """Return whether a value is a row, and not a column of pandas, which has row numbers for
    names.
    """
    return isinstance(value, dict) and not any(name.isdecimal() for name in value)


def _json_or_error(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        return error


def _parquet_rows(path: Path) -> Iterator[dict]:
    import pyarrow
    import pyarrow.parquet

    try:
        # 256 rows at a time, because each may hold a picture
        for batch in pyarrow.parquet.ParquetFile(path).iter_batches(256):
            yield from batch.to_pylist()
    # ValueError: a value that Python cannot represent, such as a date after the year 9999
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:
        raise ValueError(f"{path}: cannot be read as a Parquet file ({error}).") from None


# --- For other modules ----------------------------------------------------------------------------


def parse_literal(value: object) -> object:
    """Return the list or dictionary that a text contains as JSON or as Python; else the value.

    >>> parse_literal("['a', 'b']"), parse_literal("a")
    (['a', 'b'], 'a')
    """
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        for read in (json.loads, ast.literal_eval):
            with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
                return read(value)
    return value
