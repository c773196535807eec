"""Does the pocket preset learn with any seed? Trains it with several and writes the table: `python
-m benchmarks.seeds`.

Each seed draws its own training rows, holdout and adapter, and is run through notebooks 01, 03 and
05 as a user would.
"""

import argparse
import os
import platform
import re
import shutil

import pandas as pd

from helpers import PROJECT
from helpers.commands.run import run_notebooks
from helpers.data.arithmetic import is_careful
from helpers.runs import Run

RESULTS = PROJECT / "benchmarks" / "results" / "seeds.md"


def run_anew(name: str, notebooks: str, parameters: list[str], preset: str | None = None) -> Run:
    """Run notebooks under this name, without what an earlier run of it has left."""
    run = Run(name)
    shutil.rmtree(run.folder, ignore_errors=True)
    if run_notebooks(name, preset, notebooks, parameters):
        raise SystemExit(f"{name} failed; see {run.show('notebooks')}")
    return run


def percent(share: float, ci95: tuple[float, float]) -> str:
    """Return a share with its interval."""
    return f"{share:.1%} ({ci95[0]:.1%} to {ci95[1]:.1%})"


def seeds_of_command(description: str, default: list[int] | None = None) -> list[int] | None:
    """Return the seeds that a benchmark was called with."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=default, help="run the notebook with each of these"
    )
    return parser.parse_args().seeds


def machine() -> str:
    """Return what a table was measured on."""
    return f"{os.cpu_count()} cores, {platform.machine()}, no GPU"


def row(seed: int, run: Run) -> str:
    """The row of the table for a run that is finished."""
    evaluation = run.evaluation
    before, after = evaluation["baseline"], evaluation["trained"]
    cells = []
    for name in ("baseline", "trained", "merged"):
        cells.append(percent(evaluation[name]["accuracy"], evaluation[name]["ci95"]))
    cells += [
        f"{before['in_format']:.0%}",
        f"{_anywhere(run):.0%}",
        f"{before['pass_at_k']['16']['value']:.0%}",
    ]
    cells += [" → ".join(f"{_careful(run, name):.0%}" for name in ("baseline", "trained"))]
    cells += [
        f"{before['mean_length']:.1f} → {after['mean_length']:.1f}",
        f"{run.table('metrics.csv')['step_time'].sum():.0f}",
    ]
    return f"| {seed} | {' | '.join(cells)} |"


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
    """The share of the base model's completions whose last number is the correct one, in
    whatever block it stands.
    """
    holdout = pd.read_parquet(run.require("data/holdout.parquet"))
    answers = dict(zip(holdout["question"], holdout["answer"], strict=True))
    texts = _sampled(run, "baseline")
    return sum(
        re.findall(r"-?\d+", text)[-1:] == [answers[question]] for question, text in texts.items()
    ) / len(texts)


def main() -> None:
    """Measure every seed asked for and write benchmarks/results/seeds.md."""
    seeds = seeds_of_command(__doc__.splitlines()[0], default=[1, 2, 3])
    rows = []
    for seed in seeds:
        parameters = [f"seed={seed}", "sampled_questions=64"]
        run = run_anew(f"benchmark-seed-{seed}", "01,03,05", parameters, preset="pocket")
        rows.append(row(seed, run))
    n = run.evaluation["baseline"]["n"]
    text = f"""# The pocket preset with {len(seeds)} seeds

`python -m benchmarks.seeds --seeds {" ".join(map(str, seeds))}` on {machine()}.
Answers to {n} held-out questions are sampled at temperature 1; accuracies have 95% Wilson intervals. Three columns describe the model before training: the
share of completions in the format, the share whose last number is correct ("found"), and pass@16 (64 questions). Then come the share of
careful workings and the mean length in tokens, before → after, and the seconds of all steps.

| seed | baseline (4-bit) | trained (4-bit) | merged (fp32) | in format | found | pass@16 | careful | tokens | training, s |
|---|---|---|---|---|---|---|---|---|---|
""" + "\n".join(rows)
    RESULTS.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
