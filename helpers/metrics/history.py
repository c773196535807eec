"""The training history as a table: one row per logged step, with TRL's column names.

`read_metrics` reads the table that this project writes. `in_trl_names` renames the columns of other
logs, which `logs.read_log` reads. The other functions compute what figures and notebooks show of a
history.
"""

import re
from pathlib import Path

import pandas as pd

# Columns with single high values, which would lift a mean; a median ignores them. The KL is
# estimated from samples, and one spike can exceed the sum of all other rows.
WITH_SPIKES = ("kl",)

# Other names for TRL's columns, in lower case: from TRL before spring 2025, its progress table,
# verl, OpenRLHF and ms-swift.
_NAMES = {
    "step": ("global_step", "training/global_step", "_step", "global_step/max_steps"),
    "loss": ("training loss", "train_loss", "actor/pg_loss", "actor/loss", "policy_loss"),
    "grad_norm": ("actor/grad_norm", "grad norm", "gradient_norm"),
    "learning_rate": ("actor/lr", "actor_lr", "lr", "learning rate"),
    "kl": ("actor/kl_loss", "actor/kl", "kl_loss", "objective/kl"),
    "entropy": ("actor/entropy", "actor/entropy_loss"),
    "reward": ("critic/rewards/mean", "critic/score/mean", "reward/mean", "mean_reward"),
    "reward_std": ("reward/std", "critic/rewards/std", "critic/score/std"),
    "completions/mean_length": ("completion_length", "response_length/mean", "response_length"),
    "completions/clipped_ratio": ("response_length/clip_ratio", "response_clip_ratio"),
}


def read_metrics(path: Path) -> pd.DataFrame:
    """Return metrics.csv as a DataFrame, sorted by step."""
    return pd.read_csv(path).sort_values("step", ignore_index=True)


def in_trl_names(history: pd.DataFrame) -> pd.DataFrame:
    """Return the history with its columns renamed to those of TRL 1.15.

    Unknown names are kept, and so is a second column for the same name.

    >>> list(in_trl_names(pd.DataFrame(columns=["Step", "Training Loss", "rewards / right"])))
    ['step', 'loss', 'rewards/right/mean']
    >>> list(in_trl_names(pd.DataFrame(columns=["critic/score/mean", "reward"])))
    ['critic/score/mean', 'reward']
    """
    # 1. Find the new name of each column. wandb's own `_step` or `Step` comes last: it counts the
    # calls of its logger, which may be more than the steps.
    own_counters = [column for column in history if str(column) in ("_step", "Step")]
    others = [column for column in history if column not in own_counters]
    new_names = {}
    for column in others + own_counters:
        name = _trl_name(str(column))
        if name not in history and name not in new_names.values():
            new_names[column] = name
    history = history.rename(columns=new_names)

    # 2. ms-swift writes "5/60" for step 5; its summary row has no step.
    if "global_step/max_steps" in new_names:
        steps = history["step"].astype(str).str.partition("/")[0]
        history["step"] = pd.to_numeric(steps, errors="coerce")

    # 3. verl logs no spread. Take the largest one between its bounds with this mean, which is exact
    # if rewards have two values (Bhatia and Davis, 2000).
    bounds_are_known = {"reward", "critic/score/min", "critic/score/max"} <= {*history}
    if bounds_are_known and "reward_std" not in history:
        lowest = history["critic/score/min"]
        highest = history["critic/score/max"]
        mean = history["reward"]
        history["reward_std"] = ((highest - mean) * (mean - lowest)).clip(lower=0) ** 0.5
    return history


def _trl_name(column: str) -> str:
    """Return TRL's name for a column; its own name if it is unknown."""
    # trackers add a prefix, `train/` or `RUN - train/`; a progress table has spaces around slashes
    _, _, name = column.rpartition(" - ")
    name = re.sub(r"\s*/\s*", "/", name).strip().removeprefix("train/")
    for trl_name, other_names in _NAMES.items():
        if name.lower() in (trl_name, *other_names):
            return trl_name
    # early versions of TRL log the mean of a reward as `rewards/NAME`
    is_statistic = name.endswith(("/mean", "/std", "/min", "/max"))
    if name.startswith("rewards/") and not is_statistic:
        return f"{name}/mean"
    return name


def reward_names(history: pd.DataFrame) -> list[str]:
    """Return the names of the rewards that were logged as `rewards/<name>/mean`, in TRL's order. A
    name may contain a slash.
    """
    names = []
    for column in history:
        if column.startswith("rewards/") and column.endswith("/mean"):
            names.append(column.removeprefix("rewards/").removesuffix("/mean"))
    return names


def smooth(series: pd.Series, window: int = 9, median: bool = False) -> pd.Series:
    """Return the centred running mean, or the running median, which single spikes do not affect.
    Near the ends, the window is cut off.
    """
    window = min(window, max(1, len(series)))
    around = series.rolling(window, center=True, min_periods=1)
    return around.median() if median else around.mean()


def first_and_last(history: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """Return the mean of each column over the first and over the last 10 rows, of a short history
    over its halves: one row per column. Missing columns are left out, and columns in WITH_SPIKES
    have their median.
    """
    rows = min(10, max(1, len(history) // 2))
    average = {}  # how each column is averaged
    for name in columns:
        if name in history:
            average[name] = "median" if name in WITH_SPIKES else "mean"
    logged = list(average)
    averages = {
        f"first {rows} steps": history.head(rows)[logged].agg(average),
        f"last {rows} steps": history.tail(rows)[logged].agg(average),
    }
    return pd.DataFrame(averages, index=logged)


def final_reward(history: pd.DataFrame) -> float:
    """Return the mean reward over the last fifth of the logged steps (at least one)."""
    return history["reward"].tail(max(1, len(history) // 5)).mean()


def join_stages(stages: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Join the histories of consecutive training stages, given by name, into one history.

    Steps continue to count, and the column `stage` holds the name. Values that a stage did not log
    are nan. Raise ValueError if there are no stages, and KeyError if a stage has no column `step`.

    >>> short = pd.DataFrame({"step": [1, 2], "reward": [0.1, 0.2]})
    >>> join_stages({"format": short, "correctness": short})[["step", "stage"]].values.tolist()
    [[1, 'format'], [2, 'format'], [3, 'correctness'], [4, 'correctness']]
    """
    parts = []
    steps_before = 0
    for name, history in stages.items():
        part = history.assign(step=history["step"] + steps_before, stage=name)
        steps_before = part["step"].max()
        parts.append(part)
    return pd.concat(parts, ignore_index=True)
