"""The training history as a table, one row a logged step, under TRL's own names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

REQUIRED = ("step", "reward", "reward_std", "loss")


def read_metrics(path: Path) -> pd.DataFrame:
    """metrics.csv as a DataFrame, sorted by step.

    ValueError where it is empty, cut off, or lacks a column that every run logs.
    """
    try:
        history = pd.read_csv(path)
    except (
        pd.errors.EmptyDataError,
        pd.errors.ParserError,
        UnicodeDecodeError,
        IsADirectoryError,
    ) as error:
        raise ValueError(
            f"{path.name} cannot be read ({error}). Rerun notebook 03_grpo_training."
        ) from None
    absent = [column for column in REQUIRED if column not in history.columns]
    if absent or history.empty:
        why = f"has no column {', '.join(absent)}" if absent else "has no row"
        raise ValueError(f"{path.name} {why}. Rerun notebook 03_grpo_training.")
    if not path.read_bytes().endswith(b"\n"):  # a number that is cut off is still a number
        raise ValueError(
            f"{path.name} is cut off in its last line. Rerun notebook 03_grpo_training."
        )
    logged = history.drop(columns="stage", errors="ignore").dropna(axis=1, how="all")
    strange = [name for name in logged if not pd.api.types.is_numeric_dtype(logged[name])]
    if not strange and not np.isfinite(history["step"]).all():
        strange = ["step"]
    if strange:
        raise ValueError(
            f"{path.name} holds what is no number in column {strange[0]!r}. Rerun notebook "
            "03_grpo_training."
        )
    return history.sort_values("step", ignore_index=True)


def reward_names(history: pd.DataFrame) -> list[str]:
    """The names of the single rewards, in the order TRL logged them (columns
    `rewards/<name>/mean`).
    """
    return [
        column.split("/")[1]
        for column in history.columns
        if column.startswith("rewards/") and column.endswith("/mean")
    ]


def smoothed(series: pd.Series, window: int = 9) -> pd.Series:
    """The centred running mean; near the ends it averages what there is."""
    return series.rolling(min(window, max(1, len(series))), center=True, min_periods=1).mean()


def running_median(series: pd.Series, window: int = 9) -> pd.Series:
    """The centred running median, which single spikes do not move; near the ends that of what there
    is.
    """
    return series.rolling(min(window, max(1, len(series))), center=True, min_periods=1).median()


def first_and_last(history: pd.DataFrame, columns: list[str], rows: int = 10) -> pd.DataFrame:
    """The mean of each column over the first and the last `rows` rows, one line a column; absent
    columns are left out.

    Of `kl` it is the median: one spike of this heavy-tailed estimate can be larger than all other
    rows together.
    """
    present = [column for column in columns if column in history.columns]
    rows = min(rows, max(1, len(history) // 2))
    how = {column: "median" if column == "kl" else "mean" for column in present}
    parts = {f"first {rows} steps": history.head(rows), f"last {rows} steps": history.tail(rows)}
    return pd.DataFrame(
        {name: part[present].agg(how) for name, part in parts.items()}, index=present
    )


def joined(stages: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Trainings that followed one another, by name, as one history: steps go on counting, and
    `stage` says which it was.

    Columns that a stage did not log are nan there. ValueError where there is no stage, or one
    without a row or a `step`.

    >>> short = pd.DataFrame({"step": [1, 2], "reward": [0.1, 0.2]})
    >>> joined({"format": short, "correctness": short})[["step", "stage"]].values.tolist()
    [[1, 'format'], [2, 'format'], [3, 'correctness'], [4, 'correctness']]
    """
    if not stages:
        raise ValueError("there is no stage to join: give at least one history, by name.")
    parts, done = [], 0
    for name, history in stages.items():
        if history.empty or "step" not in history:
            raise ValueError(
                f"the history of stage {name!r} has no {'row' if history.empty else 'column step'}."
            )
        parts.append(history.assign(step=history["step"] + done, stage=name))
        done = parts[-1]["step"].max()
    return pd.concat(parts, ignore_index=True)
