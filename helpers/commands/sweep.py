"""`python -m helpers sweep`: a grid of settings and seeds becomes runs, and one table with a row
for each point. docs/batches.md says what a grid file holds.

Every run is an ordinary one, as of `python -m helpers run --once`, which knows what is done. A
sweep keeps only its tables, in `runs/sweeps/<name>/`. Several at a time on one machine:
`--emit commands`, and xargs.
"""

import argparse
import hashlib
import itertools
import json
import re
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd
import yaml
from pydantic import BaseModel

from helpers import commands, presets
from helpers.commands import run as notebooks
from helpers.environment import this_machine
from helpers.metrics.history import read_metrics
from helpers.results.intervals import student_interval
from helpers.runs import SWEEPS, Run, runs_folder, show_in_runs

MEASURES = ("accuracy", "final_reward", "kl", "training_seconds")


class Grid(BaseModel, extra="forbid"):
    """What a grid file may say."""

    name: str
    preset: str | None = None
    notebooks: list[int] = [1, 3]  # YAML reads 01 as an integer and 08 as text; pydantic takes both
    seeds: list[int]
    fixed: dict = {}
    one_at_a_time: dict[str, list] = {}
    product: dict[str, list] = {}


@dataclass(frozen=True)
class Task:
    """One run of a sweep: a point of the grid with one seed.

    knobs: the value that each knob of the sweep has here, given or not. parameters: what `run` is
    given, seed and preset among them.
    """

    run: str
    point: str
    knobs: dict
    seed: int
    parameters: dict
    notebooks: list[str]

    @property
    def texts(self) -> list[str]:
        """The parameters as `-p` takes them."""
        return [f"{key}={json.dumps(value)}" for key, value in self.parameters.items()]

    def is_done(self) -> bool:
        """Return whether the run has finished as the grid asks for it now."""
        asked = notebooks.is_last_call(self.run, self.notebooks, self.parameters)
        return asked and not notebooks.notebooks_left(notebooks.last_call(Run(self.run)))


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
    with other parameters than the grid now has is run anew. Raise ValueError or OSError for all
    that can be refused, before anything runs: see `read_grid`.
    """
    grid, tasks = read_grid(Path(parsed.grid), elsewhere=bool(parsed.emit or parsed.collect))
    if parsed.emit:
        for task in tasks:
            command = ["python", "-m", "helpers", "run", "--once", "--fresh", "--run", task.run]
            command += ["--only", ",".join(task.notebooks)]
            command += [word for text in task.texts for word in ("-p", text)]
            print(shlex.join(command))
        return 0

    # the runs
    left = [task for task in tasks if not task.is_done()]
    print(f"sweep {grid.name}: {len(tasks) - len(left)} runs done, {len(left)} to run", flush=True)
    for number, task in enumerate([] if parsed.collect else left, start=1):
        print(f"\n{number}/{len(left)}  {task.run}", flush=True)
        only = ",".join(task.notebooks)
        try:
            notebooks.run_notebooks(task.run, None, only, task.texts, fresh=True, once=True)
        except (ValueError, OSError) as error:
            print(f"error: {error}")
    unfinished = [task.run for task in left if not task.is_done()]

    # the tables
    folder = runs_folder() / SWEEPS / grid.name
    folder.mkdir(parents=True, exist_ok=True)
    runs = measured(tasks)
    runs.to_csv(folder / "runs.csv", index=False)
    points = means(tasks, runs)
    points.to_csv(folder / "table.csv", index=False)
    shown = points.dropna(axis="columns", how="all").to_string(
        index=False, float_format="{:.4g}".format
    )
    print(f"\n{shown}\n\nmeans over the seeds, with 95 % intervals")
    if unfinished:
        print(f"not finished: {', '.join(unfinished)}")
    print(f"table.csv and runs.csv: {show_in_runs(f'{SWEEPS}/{grid.name}')}")
    return int(bool(unfinished) and not parsed.collect)


def read_grid(path: Path, elsewhere: bool = False) -> tuple[Grid, list[Task]]:
    """Return a grid and its runs, point by point, each with every seed. All that can be checked
    before anything runs is checked: its keys, its parameters, and every point's settings.

    elsewhere: it may run on other machines, so this one need not be able to. Raise ValueError,
    beginning with the file's name, for everything that is wrong with its content.
    """
    try:
        grid = Grid.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
        return grid, tasks_of(grid, elsewhere)
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{path.name}: {error}") from None


def tasks_of(grid: Grid, elsewhere: bool) -> list[Task]:
    """Return the runs of a grid; see `read_grid`."""
    if bool(grid.one_at_a_time) == bool(grid.product):
        raise ValueError("give the knobs under one_at_a_time or under product: one of the two.")

    # values as `run -p` takes them: 1e-3, in which YAML sees a text, is a number
    def literal(value: object) -> object:
        return commands.value(value) if isinstance(value, str) else value

    numbers = [f"{number:02}" for number in sorted(set(grid.notebooks))]
    fixed = {name: literal(value) for name, value in grid.fixed.items()}
    if grid.preset is not None:
        fixed["preset"] = grid.preset
    knobs = grid.one_at_a_time or grid.product
    knobs = {knob: [literal(value) for value in values] for knob, values in knobs.items()}

    if "seed" in knobs:
        raise ValueError("seed: give the seeds under seeds.")

    # the points; a value that the base point has already is no other point
    base = notebooks.defaults(numbers)
    base |= asdict(presets.resolve(grid.preset or "auto", this_machine())) | fixed
    if grid.product:
        points = [dict(zip(knobs, one, strict=True)) for one in itertools.product(*knobs.values())]
    else:
        points = [{}]
        points += [{k: one} for k, values in knobs.items() for one in values if one != base.get(k)]

    # each with every seed
    tasks = {}
    for chosen in points:
        point = "-".join(f"{knob}-{value}" for knob, value in chosen.items()) or "base"
        try:
            notebooks.check("sweep", numbers, fixed | chosen, elsewhere=elsewhere)
        except (ValueError, OSError) as error:
            raise ValueError(f"point {point}: {error}") from None
        values = {knob: (base | chosen).get(knob) for knob in knobs}
        slug = re.sub(r"[^A-Za-z0-9_.]+", "-", point)
        if len(slug) > 40:  # a run name has room for 64 characters
            slug = hashlib.sha256(point.encode()).hexdigest()[:12]
        for seed in grid.seeds:
            name = Run(f"{grid.name}-{slug}-seed-{seed}").name
            if name in tasks:
                raise ValueError(f"two runs are called {name}.")
            given = fixed | chosen | {"seed": seed}
            tasks[name] = Task(name, point, values, seed, given, numbers)
    return list(tasks.values())


def measured(tasks: list[Task]) -> pd.DataFrame:
    """Return a row for each finished run: point, each knob's value, seed, and each of MEASURES; nan
    for what was not measured. Two points compare best seed by seed.

    accuracy: of the trained policy on the holdout, sampled; where notebook 05 has run.
    final_reward: the mean logged reward over the last fifth of the logged steps (at least one).
    kl: at the last step, in nats per token; nan with beta 0. training_seconds: the sum of
    step_time.
    """
    rows = []
    for task in tasks:
        if not task.is_done():
            continue
        run = Run(task.run)
        history = read_metrics(run.require("metrics.csv"))
        row = {"point": task.point} | task.knobs | {"seed": task.seed}
        if "05" in task.notebooks:
            row["accuracy"] = run.evaluation["trained"]["accuracy"]
        row["final_reward"] = history["reward"].tail(max(1, len(history) // 5)).mean()
        if "kl" in history:
            row["kl"] = history["kl"].iloc[-1]
        row["training_seconds"] = history["step_time"].sum()
        rows.append(row)
    return pd.DataFrame(rows, columns=["point", *tasks[0].knobs, "seed", *MEASURES])


def means(tasks: list[Task], runs: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each point: point, each knob's value, seeds (finished), and each of MEASURES
    with its bounds `_low` and `_high`. runs: of `measured`.

    A measure is the mean over the finished seeds. With two or more its interval is Student's t over
    the seeds: where the mean over many more seeds would lie, if seeds spread like a normal
    distribution. It covers all that a seed decides: the rows that are drawn, the adapter's first
    weights, the sampling. Few seeds make it wide, and it may pass 0 or 1. One seed has none; the
    interval of its accuracy over the questions is in the run's evaluation.json.
    """
    rows = []
    for point, knobs in {task.point: task.knobs for task in tasks}.items():
        own = runs[runs["point"] == point]
        row = {"point": point} | knobs | {"seeds": len(own)}
        for measure in MEASURES:
            row[measure] = own[measure].mean()
            low, high = student_interval(own[measure].dropna().tolist())
            row |= {f"{measure}_low": low, f"{measure}_high": high}
        rows.append(row)
    return pd.DataFrame(rows)
