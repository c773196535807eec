"""What a source holds beside questions and answers: kept as far as Parquet can store it, and no run
is stopped by the rest.
"""

from __future__ import annotations

import pandas as pd

from helpers.data.csvfiles import listed
from helpers.data.files import Unreadable, shortened

MOST_COLUMNS = 500  # of a source; every reward is handed every one of them, as a list
_OURS = ("prompt", "question", "answer")
_MOST_NAMED = 100  # dropped columns that the report names


def kept_columns(
    train: list[dict], holdout: list[dict], left_out: dict[str, str]
) -> tuple[list[pd.DataFrame], dict[str, str]]:
    """The rows as two tables with the columns that Parquet can store; and why each other one was
    dropped, by its name.

    left_out: columns that the rows lack already, and why. What was dropped is printed, too.
    """
    dropped = dict(left_out)
    columns = [{}, {}]
    for name in dict.fromkeys([*_OURS, *(name for row in train + holdout for name in row)]):
        both = [
            pd.Series([row.get(name) for row in rows], dtype=object) for rows in (train, holdout)
        ]
        why = None if name in _OURS else next(filter(None, map(_obstacle, both)), None)
        if why:
            dropped[name] = why
            continue
        for chosen, values in zip(columns, both, strict=True):
            chosen[name] = values.infer_objects()
    dropped = {shortened(name): why for name, why in dropped.items()}
    for why in dict.fromkeys(dropped.values()):
        print(
            f"columns left out: {listed([name for name in dropped if dropped[name] == why])} "
            f"({why})"
        )
    if len(dropped) > _MOST_NAMED:
        more = f"and {len(dropped) - _MOST_NAMED:,} more"
        dropped = dict(list(dropped.items())[:_MOST_NAMED]) | {more: "for reasons such as these"}
    return [pd.DataFrame(chosen) for chosen in columns], dropped


def _obstacle(column: pd.Series) -> str | None:
    """Why a column cannot be stored in Parquet, if it cannot: it is written, and read back."""
    import pyarrow
    import pyarrow.parquet

    unreadable = next((value for value in column if isinstance(value, Unreadable)), None)
    if unreadable:
        return f"a value cannot be read: {shortened(unreadable.reason)}"
    file = pyarrow.BufferOutputStream()
    try:
        pyarrow.parquet.write_table(
            pyarrow.table({"column": pyarrow.Array.from_pandas(column.infer_objects())}), file
        )
        pyarrow.parquet.read_table(pyarrow.BufferReader(file.getvalue())).to_pandas()
    # Arrow's own, OverflowError, UnicodeEncodeError, TypeError: whatever the values provoke
    except Exception as error:
        said = str(error if isinstance(error, UnicodeError) or not error.args else error.args[0])
        said = said.splitlines()[0] if said.strip() else type(error).__name__
        return f"Parquet cannot store it: {shortened(said)}"
    return None
