"""The training history as a table: one row per logged step, with TRL's column names.

`read_metrics` reads the table that this project writes. `read_log` reads logs of other trainers and
trackers, in many forms; `in_trl_names` then renames their columns. The functions at the end are
what figures and notebooks compute from a history.
"""

import ast
import json
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd


def read_metrics(path: Path) -> pd.DataFrame:
    """Return metrics.csv as a DataFrame, sorted by step."""
    return pd.read_csv(path).sort_values("step", ignore_index=True)


def read_log(path: Path) -> pd.DataFrame:
    """Return the training history in a file or folder, with the names it was logged under.

    path: a table (CSV, TSV, Parquet, JSON or JSON lines, such as an export of wandb or trackio), a
        trainer_state.json, the printed output of a trainer (.log or .txt), TensorBoard's events, or
        the folder of a run, of checkpoints or of events.

    Raise ValueError if no history is found, if there are several runs, or if TensorBoard must read
    the file and is missing.
    """
    if path.is_dir():
        return _read_folder(path)
    if "tfevents" in path.name:
        return _read_events([path])

    # 1. Read the file as a table. Columns are separated by the sign that is most frequent in the
    # first line; if that is not the comma, the comma may be the decimal point, as in 0,25.
    file_type = path.suffix.lower()
    decimal_comma = False
    if file_type in (".csv", ".tsv"):
        with path.open(encoding="utf-8", errors="replace") as file:
            names = file.readline()
        separator = max(",;\t", key=names.count)
        table = pd.read_csv(path, sep=separator)
        decimal_comma = separator != ","
    elif file_type == ".parquet":
        table = pd.read_parquet(path)
    else:
        table = _read_text(path)

    # 2. Replace texts by numbers: "25%" by 0.25, and with a decimal comma "0,25", too. A column
    # with any other text is kept, apart from words for a missing value.
    for column in table.select_dtypes(["str", "object"]):
        texts = table[column].astype(str).str.strip()
        if decimal_comma:
            texts = texts.str.replace(",", ".", regex=False)
        numbers = pd.to_numeric(texts.str.removesuffix("%"), errors="coerce")
        is_number = numbers.notna()
        is_missing = table[column].isna() | texts.str.lower().isin(_MISSING)
        if is_number.any() and (is_number | is_missing).all():
            table[column] = numbers / np.where(texts.str.endswith("%"), 100, 1)

    # 3. Refuse several runs in one table, because no number may be made of two.
    _refuse_several_runs(path, table)
    return table


# What a log has in place of a missing number, in lower case.
_MISSING = ("", "nan", "-nan", "none", "null", "nil", "na", "n/a", "#n/a", "<na>", "-", "–", "—")


def _refuse_several_runs(path: Path, table: pd.DataFrame) -> None:
    """Raise ValueError if a table, read from this path, holds several runs."""
    # 1. An export of wandb has a column for each run: `RUN - train/reward`.
    prefixes = [str(column).rpartition(" - ")[0] for column in table]
    _refuse_several(path, [prefix for prefix in prefixes if prefix])

    # 2. A column may name the run.
    for column in table:
        if re.fullmatch("_?run([_ ]?(id|name))?", str(column), re.IGNORECASE):
            _refuse_several(path, table[column].dropna())

    # 3. Steps may begin again: the first step then has several rows with a reward.
    named = in_trl_names(table)
    if {"step", "reward"} <= {*named}:
        steps = pd.to_numeric(named["step"][named["reward"].notna()], errors="coerce")
        first = steps.min()
        count = int((steps == first).sum())
        _refuse_several(path, [f"run {n + 1} from step {first:g}" for n in range(count)])


def _read_folder(path: Path) -> pd.DataFrame:
    """Return the history of the run in a folder, from what holds the most of it."""
    metrics = path / "metrics.csv"
    if metrics.is_file():
        return read_log(metrics)
    states = list(path.rglob("trainer_state.json"))
    if states:
        states.sort(key=lambda state: state.stat().st_mtime)
        # a run has several checkpoints, and the last one has the whole history
        holders = [re.sub(r"/checkpoint-\d+$", "", str(state.parent)) for state in states]
        _refuse_several(path, holders)
        return read_log(states[-1])
    events = sorted(path.rglob("*tfevents*"))
    if events:
        return _read_events(events)
    raise ValueError(
        f"{path}: no training history in this folder. A metrics.csv, a trainer_state.json or "
        "TensorBoard's events are read; from wandb or trackio, export the run as CSV."
    )


def _read_text(path: Path) -> pd.DataFrame:
    """Return the history in a file of JSON, JSON lines or printed output."""
    text = path.read_text(encoding="utf-8", errors="replace")
    file_type = path.suffix.lower()

    # 1. Find the rows: a list, or in JSON perhaps a dictionary.
    try:
        if file_type == ".json":
            rows = json.loads(text)
            if isinstance(rows, dict):  # a trainer_state.json
                rows = rows.get("log_history", rows)
        elif file_type in (".jsonl", ".ndjson"):
            rows = [json.loads(line) for line in text.splitlines() if line.strip()]
        else:
            rows = _printed_rows(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: {error}") from None

    # 2. A dictionary with lists is a table by columns; any other one is a single row.
    if isinstance(rows, dict):
        is_table = any(isinstance(value, list) for value in rows.values())
        rows = rows if is_table else [rows]

    # 3. verl's file logger nests the numbers of a step under "data"; take them out.
    if not isinstance(rows, dict):
        nested = [row for row in rows if isinstance(row, dict)]
        rows = []
        for row in nested:
            data = row.get("data")
            rows.append(row | data if isinstance(data, dict) else row)
    if not rows:
        raise ValueError(
            f"{path}: no training history was found in it. Known formats: CSV, TSV, Parquet, JSON, "
            "JSON lines, TensorBoard's events, and the printed lines of Transformers and verl."
        )
    return pd.DataFrame(rows)


def _read_events(paths: list[Path]) -> pd.DataFrame:
    """Return the scalars of TensorBoard's event files as a table."""
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ModuleNotFoundError:
        raise ValueError(
            f"{paths[0]}: reading this file needs TensorBoard, which is not installed: python -m "
            "helpers install --optional tensorboard"
        ) from None
    rows = {}
    holders = []  # folders with a reward: those of hyperparameters have none
    for path in paths:
        events = EventAccumulator(str(path), size_guidance={"scalars": 0})
        events.Reload()
        names = events.Tags()["scalars"]
        if "reward" in in_trl_names(pd.DataFrame(columns=names)):
            holders.append(str(path.parent))
        for name in names:
            for event in events.Scalars(name):
                rows.setdefault(event.step, {"step": event.step})[name] = event.value
    _refuse_several(paths[0].parent, holders)
    return pd.DataFrame(list(rows.values()))


def _refuse_several(path: Path, runs: Iterable) -> None:
    """Raise ValueError with the list if these names of runs are not all the same."""
    names = list(dict.fromkeys(map(str, runs)))
    if len(names) > 1:
        raise ValueError(
            f"{path} holds {len(names)} runs: {', '.join(names[:8])}. Give only one of them, in "
            "its own folder or file."
        )


def _printed_rows(text: str) -> list[dict]:
    """Return the rows in a trainer's printed output: the dictionaries of Transformers for a step or
    an evaluation, which may lack the step, and verl's lines `step:1 - critic/score/mean:0.25`.
    """
    rows = []
    step = 0  # of Transformers' last line
    epochs = []  # of all its lines
    for line in text.splitlines():
        # 1. A line without a dictionary may be verl's.
        dictionary = re.search(r"\{'.*'\s*:.*\}", line)
        if dictionary is None:
            if re.search(r"\bstep:\d+ - ", line):
                pairs = re.findall(r"([\w/@.-]+):([-+\d.e]+|nan)(?= - |$)", line)
                rows.append({name: float(value) for name, value in pairs})
            continue

        # 2. A dictionary is Transformers' if it has a reward.
        try:
            row = ast.literal_eval(re.sub(r"\bnan\b", "None", dictionary[0]))
        except (ValueError, SyntaxError):
            continue
        if not isinstance(row, dict) or not row.keys() & {"reward", "eval_reward"}:
            continue

        # 3. Count its step. Another run begins where the first epoch returns after later ones.
        if "reward" in row:
            epoch = float(row.get("epoch", len(epochs)))
            epochs.append(epoch)
            begins_again = epoch == epochs[0] and epoch < max(epochs)
            step = 1 if begins_again else step + 1
        rows.append({"step": step} | row)
    return rows


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
            name = trl_name
            break
    is_statistic = name.endswith(("/mean", "/std", "/min", "/max"))
    if name.startswith("rewards/") and not is_statistic:
        name += "/mean"
    return name


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
    over its halves: one row per column. Missing columns are left out.

    For `kl`, the median is used: a single spike of this heavy-tailed estimate can exceed the sum of
    all other rows.
    """
    rows = min(10, max(1, len(history) // 2))
    average = {}  # how each column is averaged
    for name in columns:
        if name in history:
            average[name] = "median" if name == "kl" else "mean"
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
    are nan. ValueError if there are no stages, KeyError if a stage has no column `step`.

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
