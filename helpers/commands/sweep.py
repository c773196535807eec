"""`python -m helpers sweep`: each point of a grid with each seed becomes a run, and one table has a
row for each point. docs/batches.md says what a grid file holds.

Every run is an ordinary one, as of `python -m helpers run --once`, which knows what is done. A
sweep keeps only its tables, in `runs/sweeps/<name>/`. Several at a time on one machine:
`--emit commands`, and xargs.
"""

import argparse
import hashlib
import json
import re
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd
import yaml
from pydantic import BaseModel

from helpers import commands, presets
from helpers.commands.run import check_call, defaults, run_notebooks
from helpers.environment import this_machine
from helpers.metrics.history import final_reward, read_metrics
from helpers.results.intervals import student_interval
from helpers.runs import SWEEPS, Run, runs_folder, show_in_runs

MEASURES = ("accuracy", "final_reward", "kl", "training_seconds")


class Grid(BaseModel, extra="forbid"):
    """What a grid file may say. points: the parameters of each; `fixed` are those of all."""

    name: str
    notebooks: list[int] = [1, 3]  # YAML reads 01 as an integer and 08 as text; pydantic takes both
    seeds: list[int]
    fixed: dict = {}
    points: list[dict]


@dataclass(frozen=True)
class SweepRun:
    """One run of a sweep: a point with one seed.

    row: what the table says of it: point, the value of each knob, and seed. parameters: what `run`
    gets.
    """

    run: str
    row: dict
    parameters: dict
    notebooks: list[str]

    @property
    def texts(self) -> list[str]:
        """The parameters as `run -p` takes them."""
        return [f"{key}={json.dumps(value)}" for key, value in self.parameters.items()]

    @property
    def command(self) -> str:
        """The line that a shell would run."""
        words = ["python", "-m", "helpers", "run", "--once", "--run", self.run]
        words += ["--only", ",".join(self.notebooks)]
        for text in self.texts:
            words += ["-p", text]
        return shlex.join(words)

    def is_done(self) -> bool:
        """Return whether the run has finished as the grid asks for it now."""
        run = Run(self.run)
        return run.is_last_call(self.notebooks, self.parameters) and not run.notebooks_left()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `sweep` takes."""
    parser.add_argument(
        "--grid",
        required=True,
        metavar="FILE",
        help="a YAML file, e.g. benchmarks/grids/knobs.yaml",
    )
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--emit",
        choices=["commands"],
        help="run nothing, and print a command line per run, for a cluster or for xargs",
    )
    instead.add_argument(
        "--collect",
        action="store_true",
        help="run nothing, and make the table of what has finished",
    )


def main(parsed: argparse.Namespace) -> int:
    """Run what is not yet done of a grid, one run after the other, then write and print the table;
    return the exit code.

    A run that failed makes the code 1, and is tried again by the next sweep; one that was asked for
    with other parameters than the grid now has is run anew. Raise ValueError, which begins with the
    file's name, or OSError for all that can be refused, before anything runs.
    """
    path = Path(parsed.grid)
    try:
        grid = Grid.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
        sweep_runs = runs_of(grid, elsewhere=bool(parsed.emit or parsed.collect))
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{path.name}: {error}") from None

    if parsed.emit:
        for sweep_run in sweep_runs:
            print(sweep_run.command)
        return 0

    # run what is left
    for number, sweep_run in enumerate(sweep_runs, start=1):
        if not parsed.collect and not sweep_run.is_done():
            name = sweep_run.run
            print(f"\n{number}/{len(sweep_runs)}  {name}", flush=True)
            try:
                only = ",".join(sweep_run.notebooks)
                run_notebooks(name, None, only, sweep_run.texts, once=True)
            except (ValueError, OSError) as error:
                print(f"error: {error}")

    # measure what is done, and write the tables
    done = [sweep_run for sweep_run in sweep_runs if sweep_run.is_done()]
    if done:
        rows = []
        for sweep_run in done:
            measures = measures_of(Run(sweep_run.run), sweep_run.notebooks)
            rows.append(sweep_run.row | measures)
        runs = pd.DataFrame(rows)
        points = means(runs)
        folder = runs_folder() / SWEEPS / grid.name
        folder.mkdir(parents=True, exist_ok=True)
        runs.to_csv(folder / "runs.csv", index=False)
        points.to_csv(folder / "table.csv", index=False)
        table = points.dropna(axis="columns", how="all")
        print(f"\n{table.to_string(index=False, float_format='{:.4g}'.format)}")
        print(
            f"\nmeans over the seeds, with 95 % intervals: {show_in_runs(f'{SWEEPS}/{grid.name}')}"
        )
    unfinished = [sweep_run.run for sweep_run in sweep_runs if sweep_run not in done]
    if unfinished:
        print(f"not finished: {', '.join(unfinished)}")
    return int(bool(unfinished) and not parsed.collect)


def runs_of(grid: Grid, elsewhere: bool) -> list[SweepRun]:
    """Return the runs of a grid, point by point, each with every seed. All that can be checked
    before anything runs is checked: the parameters, and every point's settings.

    elsewhere: it may run on other machines, so this one need not be able to. Raise ValueError for
    what no notebook could run with.
    """
    numbers = [f"{number:02}" for number in sorted(set(grid.notebooks))]
    knobs = list(dict.fromkeys(knob for point in grid.points for knob in point))
    sweep_runs = {}
    for point in grid.points:
        # values as `run -p` takes them: 1e-3, in which YAML sees a text, is a number
        parameters = {
            name: commands.read_value(value) if isinstance(value, str) else value
            for name, value in (grid.fixed | point).items()
        }
        label = "-".join(f"{knob}-{parameters[knob]}" for knob in point) or "base"
        slug = re.sub(r"[^A-Za-z0-9_.]+", "-", label)
        if len(slug) > 40:  # a run name has room for 64 characters
            slug = hashlib.sha256(label.encode()).hexdigest()[:12]
        for seed in grid.seeds:
            name = Run(f"{grid.name}-{slug}-seed-{seed}").name
            if name in sweep_runs:
                raise ValueError(f"two runs are called {name}.")
            with_seed = parameters | {"seed": seed}
            try:
                check_call(name, numbers, with_seed, elsewhere=elsewhere)
            except (ValueError, OSError) as error:
                raise ValueError(f"point {label}: {error}") from None
            values = values_of(numbers, parameters)
            row = {"point": label} | {knob: values.get(knob) for knob in knobs} | {"seed": seed}
            sweep_runs[name] = SweepRun(name, row, with_seed, numbers)
    return list(sweep_runs.values())


def values_of(numbers: list[str], parameters: dict) -> dict:
    """Return the value that each parameter and each setting has in a run of these notebooks: what
    the point says, else what the notebook says, else what the point's own preset says.
    """
    values = defaults(numbers) | parameters
    changes = {name: values[name] for name in presets.SETTINGS if name in values}
    settings = presets.resolve(values.get("preset") or "auto", this_machine(), **changes)
    return values | asdict(settings)


def measures_of(run: Run, numbers: list[str]) -> dict[str, float | None]:
    """Return each of MEASURES of a finished run; None for what was not measured.

    accuracy: of the trained policy on the holdout, sampled; where notebook 05 has run.
    final_reward: as `metrics.history.final_reward` has it. kl: at the last step, in nats per token;
    None with beta 0. training_seconds: the sum of step_time.
    """
    history = read_metrics(run.require("metrics.csv"))
    return {
        "accuracy": run.evaluation["trained"]["accuracy"] if "05" in numbers else None,
        "final_reward": final_reward(history),
        "kl": history["kl"].iloc[-1] if "kl" in history else None,
        "training_seconds": history["step_time"].sum(),
    }


def means(runs: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each point: point, each knob's value, seeds (finished), and each of MEASURES
    with its bounds `_low` and `_high`. runs: a row for each run, see `SweepRun` and `measures_of`.

    A measure is the mean over the finished seeds. With two or more its interval is Student's t over
    the seeds: where the mean over many more seeds would lie, if seeds spread like a normal
    distribution. It covers all that a seed decides: the rows that are drawn, the adapter's first
    weights, the sampling. Few seeds make it wide, and it may pass 0 or 1. One seed has none; the
    interval of its accuracy over the questions is in the run's evaluation.json.
    """
    rows = []
    for _, seeds in runs.groupby("point", sort=False):
        row = seeds.iloc[0].drop(["seed", *MEASURES]).to_dict() | {"seeds": len(seeds)}
        for measure in MEASURES:
            row[measure] = seeds[measure].astype(float).mean()
            low, high = student_interval(seeds[measure].dropna().tolist())
            row |= {f"{measure}_low": low, f"{measure}_high": high}
        rows.append(row)
    return pd.DataFrame(rows)
