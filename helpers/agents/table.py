"""A small table to query: find the row, read the cell, answer."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from helpers.agents.players import View
from helpers.agents.protocol import ToolError

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


class Table:
    """Answer a question such as "What is the price of the lemon?" about a shop's table that only
    the tools show.

    The first answer counts: 1.0 for the right cell, 0.1 for another text, 0.0 for none. Rows,
    prices and the question come from `seed`, so there is nothing to learn by heart. rows: how many,
    2 to 12.
    """

    def __init__(self, rows: int = 8):
        self._rows = rows

    def reset(self, seed: int, **columns) -> str:
        rng = random.Random(int(seed))
        self._table = [
            {
                "name": name,
                "price": str(rng.randrange(11, 99)),
                "stock": str(rng.randrange(100, 999)),
                "shelf": rng.choice(_SHELVES),
            }
            for name in rng.sample(_GOODS, self._rows)
        ]
        header = list(self._table[0])
        row, asked = rng.choice(self._table), rng.choice(header[1:])
        self._right, self._answer = row[asked], None
        return (
            f"A table has {self._rows} rows and the columns {', '.join(header)}. "
            f"What is the {asked} where name is {row['name']}?"
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
            raise ToolError("You have answered already. The episode is over.")
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


def looking_up(view: View) -> Iterator:
    """The player that knows how to win: it finds the row, reads the cell, and answers."""
    asked, name = re.search(r"What is the (.+) where name is (.+)\?", view.observation).groups()
    found = yield "find_row", {"column": "name", "value": name}
    cell = yield "read_cell", {"row": int(re.search(r"\d+", found).group()), "column": asked}
    yield "answer", {"value": cell}


def looking_up_at_once(view: View) -> Iterator:
    """Answers with the name of the row, without having looked."""
    yield "answer", {"value": re.search(r" is (.+)\?", view.observation).group(1)}
