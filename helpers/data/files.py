"""The rows of a .csv, .json, .jsonl or .parquet file.

A row that cannot be read is a `Broken` with its line, so that it is counted; a file that would be
misread is a ValueError. Python's csv module reads CSV, and not pandas, which leaves out the rest of
a file whose quote is never closed.

Imports the standard library only: `doctor`, before the install, imports this.
"""

import ast
import csv
import io
import json
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

FILE_TYPES = (".csv", ".json", ".jsonl", ".parquet")


@dataclass(frozen=True)
class Broken:
    """A row that could not be read: why, where, and what to do about many of them."""

    reason: str
    where: str
    advice: str


class Dropped(ValueError):
    """A row that cannot be used: the reason, by which such rows are counted, and what to do about
    many of them.
    """

    def __init__(self, reason: str, advice: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.advice = advice


def shorten(text: object, most: int = 200) -> str:
    """Return a text for a message: at most so many characters of it, then how many there are."""
    text = str(text).encode(errors="backslashreplace").decode()
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


def hub_failure(what: str, error: Exception) -> str:
    """Return the sentence for a data set or a model's files that could not be fetched."""
    return (
        f"{what} could not be fetched ({type(error).__name__}: "
        f"{shorten(' '.join(str(error).split()), 300)}). Check its name, the network and, if it "
        "is gated or private, HF_TOKEN; or name a folder that holds it."
    )


def parse_literal(value: object) -> object:
    """Return the list or dictionary that a text writes out, as in a cell of a CSV file; else the
    value.
    """
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        for read in (json.loads, ast.literal_eval):
            with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
                return read(value)
    return value


def file_rows(
    path: Path, wanted: Collection[str] = ("question", "answer")
) -> Iterator[dict | Broken]:
    """Return the rows of a file of one of FILE_TYPES; ValueError says what is wrong with its
    content.

    wanted: the columns that will be asked for. They decide a CSV's delimiter, and a header that
    names one of them twice is refused.
    """
    file_type = path.suffix.lower()
    if file_type not in FILE_TYPES:
        raise ValueError(f"{path}: give a {', '.join(FILE_TYPES)} file.")
    if not path.exists() or not path.stat().st_size:
        raise ValueError(
            f"{path}: the file is empty."
            if path.exists()
            else f"No such file: {path} (looked for from {Path.cwd()})."
        )
    if file_type == ".parquet":
        return _parquet_rows(path)
    # Excel's "Unicode text" begins with UTF-16's mark; UTF-8 may have a mark, too
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
    return _csv_rows(path, text, wanted) if file_type == ".csv" else _json_rows(path, text, wanted)


def _json_rows(path: Path, text: str, wanted: Collection[str]) -> Iterator[dict | Broken]:
    """Yield the rows of an array, also of one that an object holds beside other things; of an
    object of columns, as pandas writes them; of an object of rows by their names; or of JSON lines.
    """
    import pandas as pd

    # 1. the whole file as one value, or each line as one
    content = _json_or_error(text)
    if isinstance(content, Exception):
        content = [_json_or_error(line) for line in io.StringIO(text) if line.strip()]

    # 2. an object around the rows, if it is not a row itself
    if isinstance(content, dict) and not {name.split(".")[0] for name in wanted} & content.keys():
        lists = [
            name
            for name, value in content.items()
            if isinstance(value, list) and any(isinstance(item, dict) for item in value)
        ]
        if len(lists) > 1:
            raise ValueError(
                f"{path}: there are rows in {' and in '.join(map(repr, lists))}. Give each list a "
                "file of its own: of a folder with train.jsonl and test.jsonl, test is held out."
            )
        if lists:
            content = content[lists[0]]
        elif all(isinstance(v, dict) and not any(map(str.isdecimal, v)) for v in content.values()):
            content = list(content.values())

    # 3. an object of columns, all of one length
    if (
        isinstance(content, dict)
        and all(isinstance(column, list | dict) for column in content.values())
        and len({len(column) for column in content.values()}) == 1
    ):
        content = pd.DataFrame(content).to_dict("records")

    # 4. row by row; an object that is none of these is a row itself
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


def _json_or_error(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        return error


def _parquet_rows(path: Path) -> Iterator[dict]:
    import pyarrow
    import pyarrow.parquet

    try:
        # so many rows are Python objects at one time; each may hold a picture
        for batch in pyarrow.parquet.ParquetFile(path).iter_batches(256):
            yield from batch.to_pylist()
    # ValueError: a value that Python cannot hold, such as a date beyond the year 9999
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:
        raise ValueError(f"{path}: cannot be read as a Parquet file ({error}).") from None


def _csv_rows(path: Path, text: str, wanted: Collection[str]) -> Iterator[dict[str, str] | Broken]:
    """Yield the rows of a CSV file with the delimiter that finds the most of the wanted columns in
    the header, or else the most columns; `csv.Sniffer` is often wrong about files of short
    questions.

    A first line `sep=;`, for Excel, says which it is. Left out are rows without any text and
    columns without a name. Of several other columns with one name the last counts.
    """
    csv.field_size_limit(2**24)  # characters; the csv module stops at 2**17
    declared = text[4:5] if text.startswith("sep=") and text[5:6] == "\n" else ""
    text = text[5:] if declared else text  # its end of line remains, and is counted

    def header(delimiter: str) -> list[str]:
        rows = csv.reader(io.StringIO(text), delimiter=delimiter)
        return next(([name.strip() for name in row] for row in rows if "".join(row).strip()), [])

    def fit(delimiter: str) -> tuple[int, int]:
        return len(set(wanted) & set(header(delimiter))), len(header(delimiter))

    delimiter = declared or max(",;\t|", key=fit)
    names = header(delimiter)
    twice = [name for name in wanted if names.count(name) > 1]
    if twice:
        raise ValueError(f"{path}: the header names {twice[0]!r} more than once. Rename one.")
    # strict: a quote that is never closed is an error, not a field that swallows the rest
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
            f"{path}: what follows line {line} cannot be read as CSV ({error}). Is a quote left "
            'open? A quote inside a quoted field is written twice (""), not with a backslash.'
        ) from None
