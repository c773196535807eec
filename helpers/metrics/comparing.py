"""Runs side by side: the settings that differ, the accuracies with their intervals, the curves over
one another.
"""

import pandas as pd

from helpers.metrics.history import read_metrics
from helpers.runs import Run


def chosen(names: list[str]) -> list[Run]:
    """The runs of these names. ValueError for fewer than two, or for one given twice;
    FileNotFoundError for one not trained.
    """
    if len(names) < 2 or len(set(names)) < len(names):
        raise ValueError(f"{', '.join(names)}: name two or more different runs to compare.")
    for name in names:
        Run(name).require("metrics.csv")
    return [Run(name) for name in names]


def settings_that_differ(runs: list[Run]) -> pd.DataFrame:
    """A row for each setting, seed, reward weight or kind of data that is not the same in all runs;
    a column a run.
    """
    columns = {}
    for run in runs:
        training, data = run.section("training"), run.manifest.get("data", {})
        settings = training["settings"]
        weights = zip(training.get("rewards", []), training.get("weights", []), strict=False)
        columns[run.name] = settings | {
            "seed": training["seed"],
            "source": data.get("source", settings.get("source")),
            "tags": data.get("tags"),
            "data": training.get("data", "")[:12],
            "rewards": ", ".join(f"{name} x {weight:g}" for name, weight in weights),
        }
    names = dict.fromkeys(name for settings in columns.values() for name in settings)
    table = pd.DataFrame(
        {run: [settings.get(name, "") for name in names] for run, settings in columns.items()},
        index=list(names),
    )
    return table[table.astype(str).nunique(axis=1) > 1]


def outcomes(runs: list[Run]) -> pd.DataFrame:
    """A row a run: steps, the reward over the last ten, and the holdout accuracies with their 95 %
    intervals as text.

    An evaluation of an earlier training than the run's present one counts as none; see
    `Run.outdated`.
    """
    rows = {}
    for run in runs:
        history = read_metrics(run.require("metrics.csv"))
        evaluation = {} if run.outdated("evaluation.json") else run.evaluation
        rows[run.name] = {
            "steps": int(history["step"].max()),
            "reward, last 10": round(history["reward"].tail(10).mean(), 3),
        }
        for model in ("baseline", "trained", "merged"):
            rows[run.name][model] = "not measured"
            if entry := evaluation.get(model):
                low, high = entry["ci95"]
                how = ", greedy" if entry.get("temperature") == 0 else ""
                rows[run.name][model] = f"{entry['accuracy']:.1%} ({low:.1%} to {high:.1%}){how}"
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("run")


def histories(runs: list[Run]) -> dict[str, pd.DataFrame]:
    """The training history of each run, by its name."""
    return {run.name: read_metrics(run.require("metrics.csv")) for run in runs}
