"""`python -m helpers sweep`: train every point of a grid with every seed, and compare the points.

docs/sweeps.md describes the grid file. Each run is an ordinary one, as if started by
`python -m helpers run --once`. The sweep itself keeps only its tables, in `runs/sweeps/<name>/`.
It executes one run at a time; `--emit commands` prints the command lines, so that xargs or a
cluster can execute several at once.
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

from helpers.commands.checks import check_call, check_names, check_parameters
from helpers.commands.notebooks import defaults
from helpers.commands.run import run_notebooks
from helpers.metrics.history import final_reward, read_metrics
from helpers.parameters import read_value
from helpers.results.intervals import student_interval
from helpers.runs import SWEEPS, Run, runs_folder, show_in_runs
from helpers.settling import settings_in, settle

MEASURES = ("accuracy", "final_reward", "kl", "training_seconds")


class Grid(BaseModel, extra="forbid"):
    """The content of a grid file.

    fixed: parameters of every run. points: further parameters, one dictionary per point.
    """

    name: str
    notebooks: list[int] = [1, 3]  # YAML reads 01 as an integer and 08 as text; both work
    seeds: list[int]
    fixed: dict = {}
    points: list[dict]


@dataclass(frozen=True)
class SweepRun:
    """One point of a grid with one seed.

    run: the name of the run.
    first_columns: the first columns of its row in runs.csv: the point, the value of every parameter
        that some point varies, and the seed.
    parameters: the parameters for `python -m helpers run`.
    """

    run: str
    first_columns: dict
    parameters: dict
    notebooks: list[str]

    @property
    def assignments(self) -> list[str]:
        """The parameters as `run -p` takes them, such as `max_steps=20`."""
        return [f"{key}={json.dumps(value)}" for key, value in self.parameters.items()]

    @property
    def command(self) -> str:
        """The command line of the run, for a shell."""
        words = ["python", "-m", "helpers", "run", "--once", "--run", self.run]
        words += ["--only", ",".join(self.notebooks)]
        for assignment in self.assignments:
            words += ["-p", assignment]
        return shlex.join(words)

    def is_done(self) -> bool:
        """Return whether the run has finished with the parameters the grid now has."""
        run = Run(self.run)
        return run.is_last_call(self.notebooks, self.parameters) and not run.notebooks_left()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `sweep`."""
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
        help="run nothing; print a command line per run, for a cluster or for xargs",
    )
    instead.add_argument(
        "--collect",
        action="store_true",
        help="run nothing; make the table of the finished runs",
    )


def main(parsed: argparse.Namespace) -> int:
    """Execute the unfinished runs of a grid, then write and print the table; return 0, or 1 if a
    run is still unfinished.

    A run that fails does not stop the others; the next sweep tries it again. A run made with other
    parameters than the grid now has is executed anew. Raise ValueError, beginning with the file's
    name, or OSError before the first run if the grid is unusable.
    """
    path = Path(parsed.grid)
    try:
        grid = Grid.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
        sweep_runs = runs_of(grid, another_machine=bool(parsed.emit or parsed.collect))
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{path.name}: {error}") from None

    if parsed.emit:
        for sweep_run in sweep_runs:
            print(sweep_run.command)
        return 0

    if not parsed.collect:
        execute(sweep_runs)
    finished = [sweep_run for sweep_run in sweep_runs if sweep_run.is_done()]
    if finished:
        write_tables(grid.name, finished)
    unfinished = [sweep_run.run for sweep_run in sweep_runs if sweep_run not in finished]
    if unfinished:
        print(f"not finished: {', '.join(unfinished)}")
    return 1 if unfinished and not parsed.collect else 0


def execute(sweep_runs: list[SweepRun]) -> None:
    """Execute the runs that are not finished, one after another. If one is refused, print why."""
    for number, sweep_run in enumerate(sweep_runs, start=1):
        if not sweep_run.is_done():
            print(f"\n{number}/{len(sweep_runs)}  {sweep_run.run}", flush=True)
            try:
                run_notebooks(
                    sweep_run.run,
                    preset=None,  # it is one of the assignments
                    only=",".join(sweep_run.notebooks),
                    parameters=sweep_run.assignments,
                    once=True,
                )
            except (ValueError, OSError) as error:
                print(f"error: {error}")


def write_tables(name: str, finished: list[SweepRun]) -> None:
    """Measure the finished runs of the sweep `name`. Write runs.csv, with a row per run, and
    table.csv, with a row per point; print the latter.
    """
    runs = pd.DataFrame(
        [each.first_columns | measures_of(Run(each.run), each.notebooks) for each in finished]
    )
    points = means(runs)
    folder = runs_folder() / SWEEPS / name
    folder.mkdir(parents=True, exist_ok=True)
    runs.to_csv(folder / "runs.csv", index=False)
    points.to_csv(folder / "table.csv", index=False)
    points = points.dropna(axis="columns", how="all")
    print(f"\n{points.to_string(index=False, float_format='{:.4g}'.format)}")
    print(f"\nmeans over the seeds, with 95% intervals: {show_in_runs(f'{SWEEPS}/{name}')}")


def runs_of(grid: Grid, another_machine: bool) -> list[SweepRun]:
    """Return the runs of a grid, point by point, with every seed.

    another_machine: whether the runs may execute on another machine; then this machine's GPU and
        memory do not matter.

    Raise ValueError if two runs have one name, or if a run has parameters with which its notebooks
    cannot run.
    """
    numbers = [f"{number:02}" for number in sorted(set(grid.notebooks))]
    # every parameter that some point varies, once, in the order of the file
    varied = list(dict.fromkeys(name for point in grid.points for name in point))
    sweep_runs = {}
    for point in grid.points:
        # 1. Read texts as `run -p` does: YAML takes 1e-3 for a text, and it is a number here.
        parameters = {
            name: read_value(value) if isinstance(value, str) else value
            for name, value in (grid.fixed | point).items()
        }

        # 2. Name the point after its own parameters. A run name has room for 64 characters, for the
        # grid and the seed, too, so a long name gives way to a hash.
        label = "-".join(f"{name}-{parameters[name]}" for name in point) or "base"
        slug = re.sub(r"[^A-Za-z0-9_.]+", "-", label)
        if len(slug) > 40:
            slug = hashlib.sha256(label.encode()).hexdigest()[:12]

        # 3. Make a run of each seed. All must be possible before the first one starts.
        for seed in grid.seeds:
            name = Run(f"{grid.name}-{slug}-seed-{seed}").name
            if name in sweep_runs:
                raise ValueError(f"two runs are called {name}.")
            with_seed = parameters | {"seed": seed}
            try:
                check_names(numbers, with_seed)
                settings = check_call(name, numbers, with_seed, another_machine)
                check_parameters(with_seed, settings)
            except (ValueError, OSError) as error:
                raise ValueError(f"point {label}: {error}") from None
            all_values = values_of(numbers, parameters)
            values = {name: all_values.get(name) for name in varied}
            first_columns = {"point": label} | values | {"seed": seed}
            sweep_runs[name] = SweepRun(name, first_columns, with_seed, numbers)
    return list(sweep_runs.values())


def values_of(numbers: list[str], parameters: dict) -> dict:
    """Return every parameter and setting of a run, by name.

    A value comes from the point if the point has it, otherwise from the notebook, otherwise from
    the preset.
    """
    values = defaults(numbers) | parameters
    settings = settle(values.get("preset") or "auto", **settings_in(values))
    return values | asdict(settings)


def measures_of(run: Run, numbers: list[str]) -> dict[str, float | None]:
    """Return the MEASURES of a finished run.

    accuracy: the trained policy's, sampled on the holdout; None if notebook 05 did not run.
    final_reward: see `metrics.history.final_reward`.
    kl: in nats per token, at the last step; None with beta=0.
    training_seconds: the sum of `step_time`.
    """
    history = read_metrics(run.require("metrics.csv"))
    return {
        "accuracy": run.evaluation["trained"]["accuracy"] if "05" in numbers else None,
        "final_reward": final_reward(history),
        "kl": history["kl"].iloc[-1] if "kl" in history else None,
        "training_seconds": history["step_time"].sum(),
    }


def means(runs: pd.DataFrame) -> pd.DataFrame:
    """Return one row per point: its parameters, the number of finished `seeds`, and each of
    MEASURES as a mean over the seeds with a 95% interval, `_low` to `_high`.

    runs: one row per finished run, as `SweepRun.first_columns` and `measures_of` give it.

    The interval is Student's t over the seeds, which assumes that they are normally distributed. It
    covers everything a seed decides: the rows drawn, the initial weights of the adapter and the
    sampling. With few seeds it is wide and may extend beyond 0 or 1. With one seed it is NaN; the
    interval of that accuracy over the questions is in the run's evaluation.json.
    """
    rows = []
    for _, seeds in runs.groupby("point", sort=False):
        # what all seeds of a point have in common: its name and its parameters
        row = seeds.iloc[0].drop(["seed", *MEASURES]).to_dict() | {"seeds": len(seeds)}
        for measure in MEASURES:
            row[measure] = seeds[measure].astype(float).mean()
            low, high = student_interval(seeds[measure].dropna().tolist())
            row |= {f"{measure}_low": low, f"{measure}_high": high}
        rows.append(row)
    return pd.DataFrame(rows)
