"""Read the training logs of other trainers and of trackers.

`read_log` reads a log in any of many forms, with the names it was logged under;
`history.in_trl_names` renames its columns. `history.read_metrics` reads the table that this project
itself writes.

A log may hold several runs, and no finding may be made of two. Each form shows this in its own way,
so each reader collects whatever tells runs apart and passes it to `_refuse_several`.
"""

import ast
import json
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from helpers.metrics.history import in_trl_names

# What a log has in place of a missing number, in lower case.
_MISSING = ("", "nan", "-nan", "none", "null", "nil", "na", "n/a", "#n/a", "<na>", "-", "–", "—")


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
    # first line.
    file_type = path.suffix.lower()
    separator = ","
    if file_type in (".csv", ".tsv"):
        with path.open(encoding="utf-8", errors="replace") as file:
            names = file.readline()
        separator = max(",;\t", key=names.count)
        table = pd.read_csv(path, sep=separator)
    elif file_type == ".parquet":
        table = pd.read_parquet(path)
    else:
        table = _read_text(path)

    # 2. Replace texts by numbers: "25%" by 0.25, and if no comma separates the columns, so that it
    # may be the decimal point, "0,25", too. A column with any other text is kept, apart from words
    # for a missing value.
    for column in table.select_dtypes(["str", "object"]):
        texts = table[column].astype(str).str.strip()
        if separator != ",":
            texts = texts.str.replace(",", ".", regex=False)
        numbers = pd.to_numeric(texts.str.removesuffix("%"), errors="coerce")
        is_number = numbers.notna()
        is_missing = table[column].isna() | texts.str.lower().isin(_MISSING)
        if is_number.any() and (is_number | is_missing).all():
            table[column] = numbers / np.where(texts.str.endswith("%"), 100, 1)

    # 3. Refuse several runs: of an export of wandb, which has a column for each of them, `RUN -
    # train/reward`; of a table with a column that names the run; and of steps that begin again, if
    # the first step has several rows with a reward.
    prefixes = [str(column).rpartition(" - ")[0] for column in table]
    _refuse_several(path, [prefix for prefix in prefixes if prefix])
    for column in table:
        if re.fullmatch("_?run([_ ]?(id|name))?", str(column), re.IGNORECASE):
            _refuse_several(path, table[column].dropna())
    named = in_trl_names(table)
    if {"step", "reward"} <= {*named}:
        steps = pd.to_numeric(named["step"][named["reward"].notna()], errors="coerce")
        first = steps.min()
        count = int((steps == first).sum())
        _refuse_several(path, [f"run {n + 1} from step {first:g}" for n in range(count)])
    return table


def _refuse_several(path: Path, runs: Iterable) -> None:
    """Raise ValueError with the list if these names of runs are not all the same."""
    names = list(dict.fromkeys(map(str, runs)))
    if len(names) > 1:
        raise ValueError(
            f"{path} holds {len(names)} runs: {', '.join(names[:8])}. Give only one of them, in "
            "its own folder or file."
        )


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

    # 1. Read the content: rows, or in JSON perhaps an object around them.
    try:
        if file_type == ".json":
            content = json.loads(text)
        elif file_type in (".jsonl", ".ndjson"):
            content = [json.loads(line) for line in text.splitlines() if line.strip()]
        else:
            content = _printed_rows(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: {error}") from None

    # 2. Open the object: a trainer_state.json, a table by columns, or a single row.
    if isinstance(content, dict):
        content = content.get("log_history", content)
    if isinstance(content, dict):
        if any(isinstance(value, list) for value in content.values()):
            return pd.DataFrame(content)
        content = [content]

    # 3. verl's file logger nests the numbers of a step under "data"; take them out.
    rows = []
    for row in content:
        if isinstance(row, dict):
            data = row.get("data")
            rows.append(row | data if isinstance(data, dict) else row)
    if not rows:
        raise ValueError(
            f"{path}: no training history was found in it. Known formats: CSV, TSV, Parquet, JSON, "
            "JSON lines, TensorBoard's events, and the printed lines of Transformers and verl."
        )
    return pd.DataFrame(rows)


def _printed_rows(text: str) -> list[dict]:
    """Return the rows in a trainer's printed output: the dictionaries that Transformers prints for
    a step or an evaluation, `{'loss': 0.1, 'reward': 0.5, 'epoch': 0.02}`, and verl's lines,
    `step:1 - critic/score/mean:0.25`.

    Those of Transformers may lack the step, which is then counted.
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

        # 3. Count its step. Another run begins where the first epoch returns after later ones: the
        # steps then begin again, and `read_log` finds two runs.
        if "reward" in row:
            epoch = float(row.get("epoch", len(epochs)))
            epochs.append(epoch)
            begins_again = epoch == epochs[0] and epoch < max(epochs)
            step = 1 if begins_again else step + 1
        rows.append({"step": step} | row)
    return rows


def _read_events(paths: list[Path]) -> pd.DataFrame:
    """Return the scalars of TensorBoard's event files as a table."""
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ModuleNotFoundError:
        raise ValueError(
            f"{paths[0]}: reading this file needs TensorBoard, which is not installed: python -m "
            "helpers install --optional tensorboard"
        ) from None
    rows = {}  # by step
    holders = []  # folders with a reward: those of hyperparameters have none
    for path in paths:
        events = EventAccumulator(str(path), size_guidance={"scalars": 0})  # 0: all of them
        events.Reload()
        names = events.Tags()["scalars"]
        if "reward" in in_trl_names(pd.DataFrame(columns=names)):
            holders.append(str(path.parent))
        for name in names:
            for event in events.Scalars(name):
                rows.setdefault(event.step, {"step": event.step})[name] = event.value
    _refuse_several(paths[0].parent, holders)
    return pd.DataFrame(list(rows.values()))
