"""What a launcher costs: the seconds of a step of `python -m helpers train` against those of
notebook 03 under papermill.

`PYTHONPATH=. python -m benchmarks.launcher` prepares the pocket model's run once, trains it with
either, both at the same time so that they meet the same machine (of two cores at least: each has
one thread), and writes benchmarks/results/launcher.md. The measure is TRL's own `step_time`; the
first step of each training, which does what is done once, is left out.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd

from helpers import PROJECT
from helpers.environment import package_versions

_TABLE = PROJECT / "benchmarks" / "results" / "launcher.md"
_CALLS = {"notebook 03": ["run", "--only", "03"], "train": ["train"]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=2, help="trainings of each kind (default: 2)")
    parser.add_argument("--steps", type=int, default=16, help="steps of a training (default: 16)")
    parsed = parser.parse_args()
    found: dict[str, list[float]] = {kind: [] for kind in _CALLS}
    with tempfile.TemporaryDirectory() as folder:
        _wait(_start(folder, "run", "--run", "prepared", "--preset", "pocket", "--only", "01"))
        for turn in range(parsed.turns):
            names = {kind: f"{kind.split()[0]}-{turn}" for kind in _CALLS}
            _wait(*(_training(folder, kind, name, parsed.steps) for kind, name in names.items()))
            for kind, name in names.items():
                found[kind] += list(pd.read_csv(Path(folder) / name / "metrics.csv")["step_time"])[
                    1:
                ]
    table = _as_table(found, parsed)
    _TABLE.write_text(table, encoding="utf-8")
    print(table)
    return 0


def _training(folder: str, kind: str, name: str, steps: int) -> subprocess.Popen:
    shutil.copytree(Path(folder) / "prepared", Path(folder) / name)
    command, *rest = _CALLS[kind]
    return _start(folder, command, "--run", name, *rest, "-p", f"max_steps={steps}")


def _start(folder: str, *arguments: str) -> subprocess.Popen:
    environment = os.environ | {
        "GRPO_RUNS_DIR": folder,
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.Popen(
        [sys.executable, "-m", "helpers", *arguments], cwd=PROJECT, env=environment
    )


def _wait(*processes: subprocess.Popen) -> None:
    for process in processes:
        if process.wait():
            raise SystemExit("a training failed; what it said stands above.")


def _as_table(found: dict[str, list[float]], parsed: argparse.Namespace) -> str:
    medians = {kind: statistics.median(times) for kind, times in found.items()}
    rows = [
        f"| {kind} | {len(times)} | {medians[kind]:.3f} | {min(times):.3f} |"
        for kind, times in found.items()
    ]
    ratio = medians["train"] / medians["notebook 03"]
    versions = package_versions()
    return "\n".join(
        [
            "# The launcher's overhead",
            "",
            "`python -m benchmarks.launcher`: the pocket model, 64 completions a step, one "
            "process of one thread, no GPU; "
            f"{parsed.turns} trainings of {parsed.steps} steps of each kind, two at a time, one "
            "of each. torch "
            f"{versions['torch']}, TRL {versions['trl']}, Unsloth {versions['unsloth']}.",
            "",
            "| | steps | median seconds a step | fastest |",
            "|---|---|---|---|",
            *rows,
            "",
            f"Median step of `train` over that of the notebook: {ratio:.3f} (wanted: at most "
            "1.05).",
            "",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
