"""Runs side by side: the settings that differ, the accuracies with their intervals, the curves over
one another.
"""

from __future__ import annotations

import pandas as pd

from helpers.metrics.history import read_metrics
from helpers.runs import Run

_NOT_A_SETTING = ["name", "needs_gb"]


def chosen(names: list[str]) -> list[Run]:
    """The runs of these names.

    ValueError for fewer than two, or for one given twice; FileNotFoundError for one not trained.
    """
    if len(names) < 2 or len(set(names)) < len(names):
        raise ValueError(
            f"{', '.join(names) or 'no run'}: name two or more different runs to compare."
        )
    check_names(names)
    return [Run(name) for name in names]


def check_names(names: list[str], run: str | None = None) -> None:
    """ValueError or FileNotFoundError unless these are different trained runs, none of them the run
    they are drawn beside.
    """
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(
            f'compare={names!r} is not a list of runs: give their names, such as ["seed-1", '
            '"seed-2"].'
        )
    for name in names:
        if names.count(name) > 1 or name == run:
            raise ValueError(
                f"compare={names!r}: {name!r} is there twice, or is the run itself. Name other "
                "runs."
            )
        Run(name).require("metrics.csv")


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
            "data": training.get("data", "")[:12],
            "rewards": ", ".join(f"{name} x {weight:g}" for name, weight in weights),
        }
    names = dict.fromkeys(name for settings in columns.values() for name in settings)
    table = pd.DataFrame(
        {run: [settings.get(name, "") for name in names] for run, settings in columns.items()},
        index=list(names),
    ).drop(_NOT_A_SETTING, errors="ignore")
    return table[table.astype(str).nunique(axis=1) > 1]


def outcomes(runs: list[Run]) -> pd.DataFrame:
    """A row a run: steps, the reward over the last ten, and the holdout accuracies with their 95 %
    intervals as text.

    Accuracies of an earlier training than the run's present one are not given; see `Run.outdated`.
    """
    rows = {}
    for run in runs:
        history = read_metrics(run.require("metrics.csv"))
        evaluation = run.evaluation
        outdated = run.outdated("evaluation.json")
        rows[run.name] = {
            "steps": int(history["step"].max()),
            "reward, last 10": round(history["reward"].tail(10).mean(), 3),
        }
        for model in ("baseline", "trained", "merged"):
            entry = evaluation.get(model)
            if not entry:
                said = "not measured"
            elif outdated:
                said = "of an earlier training"
            else:
                low, high = entry["ci95"]
                said = f"{entry['accuracy']:.1%} ({low:.1%} to {high:.1%})"
            rows[run.name][model] = said
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("run")


def histories(runs: list[Run]) -> dict[str, pd.DataFrame]:
    """The training history of each run, by its name."""
    return {run.name: read_metrics(run.require("metrics.csv")) for run in runs}
