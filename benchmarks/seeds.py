"""Does the pocket preset learn with any seed? Trains it with several and writes the table: `python -m benchmarks.seeds`.

Each seed draws its own training rows, holdout and adapter, and is run through notebooks 01, 03 and 05 as a user would.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
from pathlib import Path

import nbformat

from helpers import PROJECT
from helpers.batch import pipeline
from helpers.runs import Run

RESULTS = PROJECT / "benchmarks" / "results" / "seeds.md"


def measured(seed: int) -> str:
    """Train and evaluate with one seed; returns its row of the table."""
    run = Run(f"benchmark-seed-{seed}")
    shutil.rmtree(run.folder, ignore_errors=True)
    if pipeline.run(run.name, "pocket", "01,03,05", [f"seed={seed}"]):
        raise SystemExit(f"seed {seed} failed; see {run.show('notebooks')}")
    evaluation = json.loads(run.require("evaluation.json").read_text(encoding="utf-8"))
    cells = []
    for name in ("baseline", "trained", "merged"):
        entry = evaluation[name]
        low, high = entry["ci95"]
        cells.append(f"{entry['accuracy']:.1%} ({low:.1%} to {high:.1%})")
    gain = evaluation["trained"]["accuracy"] - evaluation["baseline"]["accuracy"]
    return f"| {seed} | {' | '.join(cells)} | {100 * gain:+.1f} | {_training_seconds(run):.0f} |"


def _training_seconds(run: Run) -> float:
    notebook = nbformat.read(run.require("notebooks/03_grpo_training.ipynb"), as_version=4)
    (cell,) = [cell for cell in notebook.cells if "trainer.train(" in cell.source]
    return cell.metadata.papermill.duration


def main() -> None:
    """Measure every seed asked for and write benchmarks/results/seeds.md."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    seeds = parser.parse_args().seeds
    rows = [measured(seed) for seed in seeds]
    n = json.loads(Run(f"benchmark-seed-{seeds[0]}").require("evaluation.json").read_text(encoding="utf-8"))["baseline"]["n"]
    text = f"""# The pocket preset with {len(seeds)} seeds

`python -m benchmarks.seeds --seeds {" ".join(map(str, seeds))}` on {os.cpu_count()} cores, {platform.machine()}, no GPU.
Accuracy on {n} questions held out, sampled at temperature 1, with 95 % Wilson intervals; the gain in points; the seconds that
the cell with `trainer.train()` took.

| seed | baseline (4-bit) | trained (4-bit) | merged (fp32) | gain | training, s |
|---|---|---|---|---|---|
""" + "\n".join(rows)
    Path(RESULTS).parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
