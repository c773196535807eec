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

    Raise ValueError unless two or more different runs are named, and FileNotFoundError if a run
    has not been trained.
    """
    if len(parsed.runs) < 2 or len(set(parsed.runs)) < len(parsed.runs):
        raise ValueError(f"{', '.join(parsed.runs)}: name two or more different runs to compare.")
    runs = [Run(name) for name in parsed.runs]
    histories = {run.name: read_metrics(run.require("metrics.csv")) for run in runs}

    # 1. how each run was trained
    for run in runs:
        for sentence in training_in_words(run.section("training")):
            print(f"{run.name}: {sentence}")

    # 2. the tables; few runs have results of the harness
    different = settings_that_differ(runs)
    print(
        f"settings that differ\n{'nothing differs' if different.empty else different.to_string()}\n"
    )
    print(f"holdout accuracy\n{outcomes(runs).to_string()}\n")
    harness = pd.DataFrame({run.name: harness_results(run) for run in runs})
    if not harness.empty:
        print(f"lm-evaluation-harness\n{harness.to_string()}\n")

    # 3. evaluations that the tables leave out, because the run was trained again after them
    for run in runs:
        if why := run.outdated("evaluation.json"):
            print(f"note: {why}")

    # 4. the curves, in the folder of the first run
    figure = f"compare-{'-'.join(parsed.runs)}"[:100]
    print("curves:", runs[0].save_figure(plots.overlay(histories), figure))
    return 0


def settings_that_differ(runs: list[Run]) -> pd.DataFrame:
    """Return a table of the settings, seeds, rewards and data that are not the same in all runs.

    It has a row per setting and a column per run.
    """
    # 1. what each run has recorded
    recorded = {}
    for run in runs:
        training = run.section("training")
        data = run.manifest.get("data", {})
        settings = training["settings"]
        weights = zip(training.get("rewards", []), training.get("weights", []), strict=False)
        recorded[run.name] = settings | {
            "seed": training["seed"],
            "source": data.get("source", settings.get("source")),
            "tags": data.get("tags"),
            "data": training.get("data", "")[:12],
            "rewards": ", ".join(f"{name} x {weight:g}" for name, weight in weights),
        }

    # 2. one row per setting; one that a run of an earlier version did not record is blank
    names = dict.fromkeys(name for settings in recorded.values() for name in settings)
    columns = {
        run: [settings.get(name, "") for name in names] for run, settings in recorded.items()
    }
    table = pd.DataFrame(columns, index=list(names), dtype=object)

    # 3. the rows with several values, compared as text, in which None counts as a value
    return table[table.map(str).nunique(axis=1) > 1]


def outcomes(runs: list[Run]) -> pd.DataFrame:
    """Return a table with a row per run: steps, final reward, and the accuracies on the holdout
    with their 95% intervals as text.

    An evaluation older than the run's training is not shown; see `Run.outdated`.
    """
    rows = {}
    for run in runs:
        history = read_metrics(run.require("metrics.csv"))
        row = {
            "steps": int(history["step"].max()),
            "final reward": round(final_reward(history), 3),
        }
        evaluation = {} if run.outdated("evaluation.json") else run.evaluation
        for model in ("baseline", "trained", "merged"):
            row[model] = "not measured"
            if entry := evaluation.get(model):
                low, high = entry["ci95"]
                greedy = ", greedy" if entry.get("temperature") == 0 else ""
                row[model] = f"{entry['accuracy']:.1%} ({low:.1%} to {high:.1%}){greedy}"
        rows[run.name] = row
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("run")


def harness_results(run: Run) -> dict[str, str]:
    """Return what lm-evaluation-harness has measured of a run, by model, task and metric: from the
    files that `lm_eval --output_path lm_eval/MODEL` writes in the run's folder, the last of each.
    """
    results = {}
    files = run.folder.glob("lm_eval/*/**/results_*.json")
    # the names have the time, so the result of a later file replaces that of an earlier one
    for file in sorted(files, key=lambda file: file.name):
        model = file.relative_to(run.folder / "lm_eval").parts[0]
        for task, metrics in json.loads(file.read_bytes())["results"].items():
            for metric, value in metrics.items():
                if not isinstance(value, float) or "_stderr" in metric:
                    continue
                # the standard error of "acc,none" is called "acc_stderr,none"
                error = metrics.get(metric.replace(",", "_stderr,"))
                width = f" ± {1.96 * error:.1%}" if isinstance(error, float) else ""
                results[f"{model}, {task}, {metric}"] = f"{value:.1%}{width}"
    return results
