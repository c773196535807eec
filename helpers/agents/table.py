"""A small table to query: find the row, read the cell, answer."""

from __future__ import annotations

import csv
import io
import random
from pathlib import Path

from helpers.agents.protocol import ToolError, seeded

_GOODS = [
    "apple",
    "beetroot",
    "carrot",
    "date",
    "fennel",
    "grape",
    "kale",
    "lemon",
    "melon",
    "onion",
    "peach",
    "spinach",
]
_SHELVES = ["left", "middle", "right"]
_OVER = "You have answered already. The episode is over."


class Table:
    """Answer a question such as "What is the price of the lemon?" about a table that only the tools
    show.

    The first answer counts: 1.0 for the right cell, 0.1 for another text, 0.0 for none. Rows,
    prices and the question come from `seed`, so there is nothing to learn by heart. rows: how many,
    2 to 12. path: a CSV file of your own with a header, whose first column names the rows; then
    only the question is drawn. ValueError for a file that is no such table.
    """

    def __init__(self, path: str | Path | None = None, rows: int = 8):
        if not 2 <= rows <= len(_GOODS):
            raise ValueError(f"rows={rows} must be 2 to {len(_GOODS)}.")
        self._rows, self._text = rows, None
        if path is not None:
            self._text = Path(path).read_text(encoding="utf-8-sig")
            _read(self._text)

    def reset(self, seed: int, **columns) -> str:
        rng = seeded(seed)
        self._table = _read(self._text or _drawn(rng, self._rows))
        self._answer, header = None, list(self._table[0])
        row, asked = rng.choice(self._table), rng.choice(header[1:])
        self._right = row[asked]
        return (
            f"A table has {len(self._table)} rows and the columns {', '.join(header)}. "
            f"What is the {asked} where {header[0]} is {row[header[0]]}?"
        )

    def find_row(self, column: str, value: str) -> str:
        """Find the rows whose cell in a column is a value.

        Args:
            column: The name of the column.
            value: The value to look for.
        """
        self._check(column)
        found = [
            str(at)
            for at, row in enumerate(self._table, start=1)
            if row[column].casefold() == value.strip().casefold()
        ]
        return f"Row {', '.join(found)}." if found else f"No row has {value!r:.50} in {column}."

    def read_cell(self, row: int, column: str) -> str:
        """Read one cell.

        Args:
            row: The number of the row, from 1 on.
            column: The name of the column.
        """
        self._check(column)
        if not 1 <= row <= len(self._table):
            raise ToolError(f"There is no row {row}: the rows are 1 to {len(self._table)}.")
        return self._table[row - 1][column]

    def answer(self, value: str) -> str:
        """Hand in the answer. Only the first one counts.

        Args:
            value: The cell that was asked for.
        """
        if self._answer is not None:
            raise ToolError(_OVER)
        self._answer = value.strip()
        return "Thank you."

    def get_reward(self) -> float:
        if self._answer is None:
            return 0.0
        return 1.0 if self._answer.casefold() == self._right.casefold() else 0.1

    def _check(self, column: str) -> None:
        if column not in self._table[0]:
            raise ToolError(
                f"There is no column {column!r:.50}: the columns are {', '.join(self._table[0])}."
            )


def _drawn(rng: random.Random, rows: int) -> str:
    """A shop's table as CSV."""
    lines = ["name,price,stock,shelf"]
    lines += [
        f"{name},{rng.randrange(11, 99)},{rng.randrange(100, 999)},{rng.choice(_SHELVES)}"
        for name in rng.sample(_GOODS, rows)
    ]
    return "\n".join(lines)


def _read(text: str) -> list[dict[str, str]]:
    lines = [[cell.strip() for cell in line] for line in csv.reader(io.StringIO(text)) if line]
    if len(lines) < 3 or len(lines[0]) < 2:
        raise ValueError("the table needs a header, at least two rows and two columns.")
    header, names = lines[0], [line[0] for line in lines[1:]]
    if len(set(header)) < len(header) or not all(header):
        raise ValueError(
            "the columns of the table need different names; they are "
            f"{', '.join(map(repr, header))}."
        )
    for at, line in enumerate(lines[1:], start=2):
        if len(line) != len(header):
            raise ValueError(
                f"line {at} of the table has {len(line)} cells, and the header {len(header)}."
            )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(
            f"{twice[0]!r} names two rows of the table: the first column must tell them apart."
        )
    return [dict(zip(header, line, strict=True)) for line in lines[1:]]
