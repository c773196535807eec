"""The training history as a table, one row a logged step, under TRL's own names."""

from pathlib import Path

import pandas as pd


def read_metrics(path: Path) -> pd.DataFrame:
    """metrics.csv as a DataFrame, sorted by step."""
    return pd.read_csv(path).sort_values("step", ignore_index=True)


def reward_names(history: pd.DataFrame) -> list[str]:
    """The names of the single rewards, in the order TRL logged them (columns
    `rewards/<name>/mean`; a name may hold a slash).
    """
    means = [name for name in history if name.startswith("rewards/") and name.endswith("/mean")]
    return [name.removeprefix("rewards/").removesuffix("/mean") for name in means]


def smoothed(series: pd.Series, window: int = 9, median: bool = False) -> pd.Series:
    """The centred running mean; near the ends that of what there is. The median is not moved by
    single spikes.
    """
    around = series.rolling(min(window, max(1, len(series))), center=True, min_periods=1)
    return around.median() if median else around.mean()


def first_and_last(history: pd.DataFrame, columns: list[str], rows: int = 10) -> pd.DataFrame:
    """The mean of each column over the first and the last `rows` rows, one line a column; absent
    columns are left out.

    Of `kl` it is the median: one spike of this heavy-tailed estimate can be larger than all other
    rows together.
    """
    rows = min(rows, max(1, len(history) // 2))
    how = {name: "median" if name == "kl" else "mean" for name in columns if name in history}
    parts = {f"first {rows} steps": history.head(rows), f"last {rows} steps": history.tail(rows)}
    means = {name: part[list(how)].agg(how) for name, part in parts.items()}
    return pd.DataFrame(means, index=list(how))


def joined(stages: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Trainings that followed one another, by name, as one history: steps go on counting, and
    `stage` says which it was.

    Columns that a stage did not log are nan there. ValueError without a stage, KeyError for one
    without a `step`.

    >>> short = pd.DataFrame({"step": [1, 2], "reward": [0.1, 0.2]})
    >>> joined({"format": short, "correctness": short})[["step", "stage"]].values.tolist()
    [[1, 'format'], [2, 'format'], [3, 'correctness'], [4, 'correctness']]
    """
    parts, done = [], 0
    for name, history in stages.items():
        parts.append(history.assign(step=history["step"] + done, stage=name))
        done = parts[-1]["step"].max()
    return pd.concat(parts, ignore_index=True)
