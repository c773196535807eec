"""Text files line by line, and the rows of a CSV file as spreadsheets, databases and scripts really
write them.

The standard library's reader does the parsing. What is added is the choice of the delimiter and an
account of what cannot be read, each with its line: a row of another length is a `Broken`, a file
that would be misread is a ValueError. Files are read as a stream, so their size does not matter.
`csv.Sniffer` is left out: it guesses from letter frequencies and is wrong about files of short
questions; the columns asked for say more.
"""

from __future__ import annotations

import codecs
import csv
import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

DELIMITERS = ",;\t|"
_SAMPLED_LINES = 50  # lines that the delimiter is chosen by
_LONGEST_FIELD = 2**24  # characters; a quote left open ends here rather than with the memory
_DELIMITER_HINT = re.compile(r"sep=(.)\s*")  # Excel writes and reads this above the header


@dataclass(frozen=True)
class Broken:
    """A row that could not be read: why, and where."""

    reason: str
    where: str


def text_lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file, or of a UTF-16 file with its byte order mark.

    ValueError names the line that is neither.
    """
    with path.open("rb") as file:
        if file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            yield from _utf16_lines(path)
            return
        file.seek(0)
        for number, line in enumerate(file, 1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{path}: line {number} is not UTF-8 (byte {error.object[error.start]:#04x} "
                    f"at column {error.start + 1}). "
                    "Save the file as UTF-8: in a spreadsheet as “CSV UTF-8”, or, if it came from "
                    "an older Windows program, "
                    f"with `iconv -f WINDOWS-1252 -t UTF-8 {path.name} > utf8-{path.name}`."
                ) from None
            if number == 1 and "\0" in text:
                raise ValueError(
                    f"{path}: line 1 holds a NUL byte, so this is no UTF-8 text. If it is UTF-16 "
                    "without its byte order mark, "
                    f"`iconv -f UTF-16LE -t UTF-8 {path.name} > utf8-{path.name}` converts it."
                )
            yield text


def _utf16_lines(path: Path) -> Iterator[str]:
    number = 0
    try:
        with path.open(encoding="utf-16", newline="\n") as file:
            for line in file:
                number += 1
                yield line
    except UnicodeError as error:
        raise ValueError(
            f"{path}: starts as UTF-16, but cannot be read as such after line {number} ({error})."
        ) from None


def csv_rows(path: Path, wanted: Collection[str]) -> Iterator[dict[str, str] | Broken]:
    """The rows of a CSV file; fields may be quoted and hold delimiters, line ends and doubled
    quotes.

    wanted: the columns that will be asked for. They decide the delimiter, and none of them may be
    there twice. Blank lines are skipped, and so are columns without a name and blank fields behind
    the last column. ValueError: not text, no header, no row, a wanted column twice, or quotes that
    would make the rest of the file misread.
    """
    csv.field_size_limit(_LONGEST_FIELD)
    lines = text_lines(path)
    sample = list(itertools.islice(lines, _SAMPLED_LINES))
    delimiter = _hinted(sample) or max(DELIMITERS, key=lambda one: _fit(one, sample, wanted))
    # strict: a quote that is never closed is an error, not a field that swallows the rest of the
    # file.
    reader = csv.reader(itertools.chain(sample, lines), delimiter=delimiter, strict=True)
    header, names = [], []
    line, behind, rows = 1, 1, 0
    try:
        for row in reader:
            # a quoted field may span lines: the row starts at the first
            line, behind = behind, reader.line_num + 1
            if len(row) < 2 and not "".join(row).strip():
                continue
            if not names:
                header, names = row, distinct_names(path, [name.strip() for name in row], wanted)
                continue
            rows += 1
            yield (
                Broken("the header again", f"line {line}")
                if row == header
                else _row(names, row, line)
            )
    except csv.Error as error:
        raise ValueError(
            f"{path}: the row that starts at line {behind} cannot be read as CSV ({error}). Is a "
            "quote left open? A quote "
            'inside a quoted field is written twice (""), not with a backslash.'
        ) from None
    if not rows:
        what = (
            f"a header ({listed(names)}) and no row below it"
            if names
            else "nothing but blank lines"
        )
        raise ValueError(f"{path}: {what}.")


def _row(names: list[str], row: list[str], line: int) -> dict[str, str] | Broken:
    found = len(row)
    while len(row) > len(names) and not row[-1].strip():
        row.pop()
    while len(row) < len(names) and not names[len(row)]:
        row.append("")
    if len(row) != len(names):
        return Broken(f"not {len(names)} fields", f"line {line}: {found} fields")
    fields = dict(zip(names, row, strict=True))
    fields.pop("", None)
    return fields


def distinct_names(path: Path, names: list[str], wanted: Collection[str]) -> list[str]:
    """The names of a file's columns, the second `note` as `note.1`: no column hides another.

    Blank names stay blank.

    ValueError where a wanted name is there twice, because only the person knows which is meant.
    """
    twice = sorted({name for name in wanted if names.count(name) > 1})
    if twice:
        raise ValueError(
            f"{path}: the header names {', '.join(map(repr, twice))} more than once. Rename one."
        )
    seen, taken, distinct = Counter(), set(names), []
    for name in names:
        other = name
        while name and seen[name] and other in taken:
            other, seen[name] = f"{name}.{seen[name]}", seen[name] + 1
        seen[name] = seen[name] or 1
        taken.add(other)
        distinct.append(other)
    return distinct


def listed(names: Collection[str], most: int = 20) -> str:
    """The names in a line that a message can hold: at most `most` of them, each cut at 40
    characters.
    """
    shown = [
        name if len(name) <= 40 else f"{name[:39]}…"
        for name in map(str, itertools.islice(names, most))
    ]
    return ", ".join(shown) + (f" and {len(names) - most} more" if len(names) > most else "")


def _hinted(sample: list[str]) -> str | None:
    """The delimiter that a `sep=;` line names, if the first line is one; the line is then
    blanked.
    """
    hint = _DELIMITER_HINT.fullmatch(sample[0]) if sample else None
    if hint:
        sample[0] = "\n"
    return hint and hint[1]


def _fit(delimiter: str, sample: list[str], wanted: Collection[str]) -> tuple[int, int, int]:
    """How well a delimiter fits: wanted columns in the header, then rows as long as the header,
    then columns.
    """
    try:
        rows = [row for row in csv.reader(sample, delimiter=delimiter) if "".join(row).strip()]
    except csv.Error:
        return 0, 0, 0
    header = [name.strip() for name in rows[0]] if rows else []
    alike = sum(len(row) == len(header) for row in rows[1:]) if len(header) > 1 else 0
    return sum(name in header for name in wanted), alike, len(header)
