"""`python -m helpers compare`: show two or more trained runs side by side.

It prints the settings that differ and the accuracies with their intervals, and draws the curves of
all runs into one figure.
"""

import argparse
import json

import pandas as pd

from helpers.metrics import plots
from helpers.metrics.history import final_reward, read_metrics
from helpers.runs import Run
from helpers.training.base import training_in_words


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `compare`."""
    parser.add_argument("runs", nargs="+", metavar="RUN")


def main(parsed: argparse.Namespace) -> int:
    """Print the settings that differ and the accuracies, and draw the curves; return 0.

    Raise ValueError unless two or more different runs are named, and FileNotFoundError for a run
    that has not been trained.
    """
    if len(parsed.runs) < 2 or len(set(parsed.runs)) < len(parsed.runs):
        raise ValueError(f"{', '.join(parsed.runs)}: name two or more different runs to compare.")
    runs = [Run(name) for name in parsed.runs]
    histories = {run.name: read_metrics(run.require("metrics.csv")) for run in runs}
    for run in runs:
        for sentence in training_in_words(run.section("training")):
            print(f"{run.name}: {sentence}")
    differ = settings_that_differ(runs)
    print(f"settings that differ\n{'nothing differs' if differ.empty else differ.to_string()}\n")
    print(f"holdout accuracy\n{outcomes(runs).to_string()}\n")
    harness = pd.DataFrame({run.name: harness_results(run) for run in runs})
    if len(harness):
        print(f"lm-evaluation-harness\n{harness.to_string()}\n")
    for run in runs:
        if why := run.outdated("evaluation.json"):
            print(f"note: {why}")
    name = f"compare-{'-'.join(parsed.runs)}"[:100]
    print("curves:", runs[0].save_figure(plots.overlay(histories), name))
    return 0


def settings_that_differ(runs: list[Run]) -> pd.DataFrame:
    """Return a table of the settings, seeds, rewards and data that are not the same in all runs.

    It has a row per setting and a column per run.
    """
    columns = {}
    for run in runs:
        training = run.section("training")
        data = run.manifest.get("data", {})
        settings = training["settings"]
        weights = zip(training.get("rewards", []), training.get("weights", []), strict=False)
        columns[run.name] = settings | {
            "seed": training["seed"],
            "source": data.get("source", settings.get("source")),
            "tags": data.get("tags"),
            "data": training.get("data", "")[:12],
            "rewards": ", ".join(f"{name} x {weight:g}" for name, weight in weights),
        }
    # a setting that a run of an earlier version did not record is blank
    names = dict.fromkeys(name for settings in columns.values() for name in settings)
    cells = {run: [settings.get(name, "") for name in names] for run, settings in columns.items()}
    table = pd.DataFrame(cells, index=list(names), dtype=object)
    # compare as text, in which None counts as a value
    return table[table.map(str).nunique(axis=1) > 1]


def outcomes(runs: list[Run]) -> pd.DataFrame:
    """Return a table with a row per run: steps, final reward, and the accuracies on the holdout
    with their 95 % intervals as text.

    An evaluation older than the run's training is not shown; see `Run.outdated`.
    """
    rows = {}
    for run in runs:
        history = read_metrics(run.require("metrics.csv"))
        evaluation = {} if run.outdated("evaluation.json") else run.evaluation
        rows[run.name] = {
            "steps": int(history["step"].max()),
            "final reward": round(final_reward(history), 3),
        }
        for model in ("baseline", "trained", "merged"):
            rows[run.name][model] = "not measured"
            if entry := evaluation.get(model):
                low, high = entry["ci95"]
                greedy = ", greedy" if entry.get("temperature") == 0 else ""
                interval = f"{low:.1%} to {high:.1%}"
                rows[run.name][model] = f"{entry['accuracy']:.1%} ({interval}){greedy}"
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("run")


def harness_results(run: Run) -> dict[str, str]:
    """Return what lm-evaluation-harness has measured of a run, by model, task and metric: from the
    files that `lm_eval --output_path lm_eval/MODEL` writes in the run's folder, the last of each.
    """
    found = {}
    files = run.folder.glob("lm_eval/*/**/results_*.json")
    for file in sorted(files, key=lambda file: file.name):  # the names have the time
        model = file.relative_to(run.folder / "lm_eval").parts[0]
        for task, metrics in json.loads(file.read_bytes())["results"].items():
            for metric, value in metrics.items():
                if isinstance(value, float) and "_stderr" not in metric:
                    error = metrics.get(metric.replace(",", "_stderr,"))
                    width = f" ± {1.96 * error:.1%}" if isinstance(error, float) else ""
                    found[f"{model}, {task}, {metric}"] = f"{value:.1%}{width}"
    return found
