"""Does the pocket preset learn with any seed? Trains it with several and writes the table: `python
-m benchmarks.seeds`.

Each seed draws its own training rows, holdout and adapter, and is run through notebooks 01, 03 and
05 as a user would.
"""

import argparse
import json
import os
import platform
import re
import shutil
from pathlib import Path

import nbformat
import pandas as pd

from helpers import PROJECT
from helpers.commands.run import run_notebooks
from helpers.data.arithmetic import is_careful
from helpers.runs import Run

RESULTS = PROJECT / "benchmarks" / "results" / "seeds.md"


def trained(seed: int) -> Run:
    """The run that trains and evaluates with this seed."""
    run = Run(f"benchmark-seed-{seed}")
    shutil.rmtree(run.folder, ignore_errors=True)
    options = [f"seed={seed}", "sampled_questions=64"]
    if run_notebooks(run.name, "pocket", "01,03,05", options):
        raise SystemExit(f"seed {seed} failed; see {run.show('notebooks')}")
    return run


def row(seed: int, run: Run) -> str:
    """The row of the table for a run that is finished."""
    evaluation = json.loads(run.require("evaluation.json").read_text(encoding="utf-8"))
    before, after = evaluation["baseline"], evaluation["trained"]
    cells = [_percent(evaluation[name]) for name in ("baseline", "trained", "merged")]
    cells += [
        f"{before['in_format']:.0%}",
        f"{_anywhere(run):.0%}",
        f"{before['pass_at_k']['16']['value']:.0%}",
    ]
    cells += [" → ".join(f"{_careful(run, name):.0%}" for name in ("baseline", "trained"))]
    cells += [
        f"{before['mean_length']:.1f} → {after['mean_length']:.1f}",
        f"{_training_seconds(run):.0f}",
    ]
    return f"| {seed} | {' | '.join(cells)} |"


def _percent(entry: dict) -> str:
    low, high = entry["ci95"]
    return f"{entry['accuracy']:.1%} ({low:.1%} to {high:.1%})"


def _sampled(run: Run, name: str) -> dict[str, str]:
    """The completion that 05 kept of each question held out."""
    kept = pd.read_parquet(run.require(f"evaluation/{name}-sampled.parquet"))
    return {
        question: texts[0]
        for question, texts in zip(kept["question"], kept["completions"], strict=True)
    }


def _careful(run: Run, name: str) -> float:
    texts = _sampled(run, name).values()
    return sum(map(is_careful, texts)) / len(texts)


def _anywhere(run: Run) -> float:
    """The share of the untrained model's completions whose last number is the right one, in
    whatever block it stands.
    """
    holdout = pd.read_parquet(run.require("data/holdout.parquet"))
    answers = dict(zip(holdout["question"], holdout["answer"], strict=True))
    texts = _sampled(run, "baseline")
    return sum(
        re.findall(r"-?\d+", text)[-1:] == [answers[question]] for question, text in texts.items()
    ) / len(texts)


def _training_seconds(run: Run) -> float:
    notebook = nbformat.read(run.require("notebooks/03_grpo_training.ipynb"), as_version=4)
    (cell,) = [
        cell
        for cell in notebook.cells
        if cell.cell_type == "code" and "= trainer.train(" in cell.source
    ]
    return cell.metadata.papermill.duration


def main() -> None:
    """Measure every seed asked for and write benchmarks/results/seeds.md."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    seeds = parser.parse_args().seeds
    rows = [row(seed, trained(seed)) for seed in seeds]
    n = json.loads(
        Run(f"benchmark-seed-{seeds[0]}").require("evaluation.json").read_text(encoding="utf-8")
    )["baseline"]["n"]
    text = f"""# The pocket preset with {len(seeds)} seeds

`python -m benchmarks.seeds --seeds {" ".join(map(str, seeds))}` on {os.cpu_count()} cores, {platform.machine()}, no GPU.
Sampled at temperature 1, {n} questions held out; accuracies with 95 % Wilson intervals. Before training: the share in the
format, the share with the right number wherever it stands ("found"), and pass@16 (64 questions). Then the share of careful
workings and the mean length in tokens, before → after, and the seconds that the cell with `trainer.train()` took.

| seed | baseline (4-bit) | trained (4-bit) | merged (fp32) | in format | found | pass@16 | careful | tokens | training, s |
|---|---|---|---|---|---|---|---|---|---|
""" + "\n".join(rows)
    Path(RESULTS).parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
