"""`python -m helpers compare`: trained runs side by side. See `metrics/comparing.py`."""

import argparse

from helpers.metrics import comparing, plots


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `compare` takes."""
    parser.add_argument("runs", nargs="+", metavar="RUN")


def main(parsed: argparse.Namespace) -> int:
    """Print the settings that differ and the accuracies, and draw the curves; return 0."""
    runs = comparing.chosen(parsed.runs)
    differ = comparing.settings_that_differ(runs)
    print(f"settings that differ\n{'nothing differs' if differ.empty else differ.to_string()}\n")
    print(f"holdout accuracy\n{comparing.outcomes(runs).to_string()}\n")
    for run in runs:
        if why := run.outdated("evaluation.json"):
            print(f"note: {why}")
    name = f"compare-{'-'.join(parsed.runs)}"[:100]
    print("curves:", runs[0].save_figure(plots.overlay(comparing.histories(runs)), name))
    return 0
