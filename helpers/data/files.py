"""The rows of a .csv, .jsonl or .parquet file, read as a stream.

Python's csv reader parses. Added here are the choice of the delimiter and an account of what cannot
be read: a row of another length is a `Broken` with its line, a file that would be misread is a
ValueError. `csv.Sniffer` guesses from letter frequencies and is often wrong about files of short
questions, so the columns that are asked for decide.
"""

import csv
import io
import itertools
import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

FILE_TYPES = (".csv", ".jsonl", ".parquet")


@dataclass(frozen=True)
class Broken:
    """A row that could not be read: why, and where."""

    reason: str
    where: str


def shortened(text: object, most: int = 200) -> str:
    """A text for a message: at most so many characters of it, then how many there are."""
    text = str(text).encode(errors="backslashreplace").decode()
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


def file_rows(
    path: Path, wanted: Collection[str] = ("question", "answer")
) -> Iterator[dict | Broken]:
    """The rows of a .csv, .jsonl or .parquet file; ValueError says what is wrong with its content.

    wanted: the columns that will be asked for. They decide a CSV's delimiter, and a header that
    names one of them twice is refused.
    """
    if path.suffix.lower() not in FILE_TYPES:
        raise ValueError(f"{path}: give a {', '.join(FILE_TYPES)} file.")
    if not path.stat().st_size:
        raise ValueError(f"{path}: the file is empty.")
    if path.suffix.lower() == ".jsonl":
        return _jsonl_rows(path)
    if path.suffix.lower() == ".csv":
        return _csv_rows(path, wanted)
    return _parquet_rows(path)


def text_lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file, with or without a byte order mark; ValueError names the line that
    is not UTF-8.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{path}: line {number} is not UTF-8 ({error}). Save the file as UTF-8: in a "
                    "spreadsheet as “CSV UTF-8”, or, if it came from an older Windows program, "
                    f"with `iconv -f WINDOWS-1252 -t UTF-8 {path.name} > utf8-{path.name}`."
                ) from None


def _jsonl_rows(path: Path) -> Iterator[dict | Broken]:
    for number, line in enumerate(text_lines(path), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield Broken("not JSON", f"line {number}: {error}")
            continue
        if isinstance(row, dict):
            yield row
        else:
            yield Broken("not a JSON object", f"line {number}: {line.strip()}")


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


def _csv_rows(path: Path, wanted: Collection[str]) -> Iterator[dict[str, str] | Broken]:
    """The rows of a CSV file; fields may be quoted and hold delimiters, line ends and doubled
    quotes.

    Left out are rows without any text and columns without a name. Of several other columns with one
    name the last counts.
    """
    csv.field_size_limit(2**24)  # characters; the csv module stops at 2**17
    # an old spreadsheet ends lines by a carriage return alone
    lines = (part for line in text_lines(path) for part in io.StringIO(line, newline=""))
    sample = list(itertools.islice(lines, 50))  # the header is among these

    def fit(delimiter: str) -> tuple[int, int]:
        """How many of the wanted columns it finds in the header, and how many columns."""
        rows = (row for row in csv.reader(sample, delimiter=delimiter) if "".join(row).strip())
        header = [name.strip() for name in next(rows, [])]
        return sum(name in header for name in wanted), len(header)

    names: list[str] = []
    begins = 1  # the line of the row that is read next: a quoted field may span lines
    try:
        # strict: a quote that is never closed is an error, not a field that swallows the rest
        reader = csv.reader(
            itertools.chain(sample, lines), delimiter=max(",;\t|", key=fit), strict=True
        )
        for row in reader:
            line, begins = begins, reader.line_num + 1
            if not "".join(row).strip():
                continue
            if not names:
                names = [name.strip() for name in row]
                if twice := [name for name in wanted if names.count(name) > 1]:
                    raise ValueError(
                        f"{path}: the header names {twice[0]!r} more than once. Rename one."
                    )
            elif len(row) != len(names):
                yield Broken(f"not {len(names)} fields", f"line {line}: {len(row)} fields")
            else:
                yield {name: value for name, value in zip(names, row, strict=True) if name}
    except csv.Error as error:
        raise ValueError(
            f"{path}: the row that starts at line {begins} cannot be read as CSV ({error}). Is a "
            'quote left open? A quote inside a quoted field is written twice (""), not with a '
            "backslash."
        ) from None
