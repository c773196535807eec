"""Small sweeps: a grid of settings and seeds becomes runs, and one table with a row for each point.

A grid is a YAML file:

    name: knobs                 # the runs are called <name>-<point>-seed-<seed>
    preset: pocket              # optional, like `run --preset`
    notebooks: [01, 03]         # optional; 05 adds the accuracies
    seeds: [1, 2, 3]
    fixed: {max_steps: 25}      # optional: parameters of every run
    one_at_a_time:              # each knob alone; all share the base point, which is run once
      learning_rate: [3.0e-4, 1.0e-3]
      num_generations: [4, 8, 16]

or, in place of `one_at_a_time`, `product: {beta: [0, 0.02], lora_rank: [8, 16]}`, every
combination.

Every run is an ordinary one, as of `python -m helpers run`. A sweep keeps only its tables and logs,
in `runs/sweeps/<name>/`. Which runs are done is read from the runs themselves: from what each was
asked for, not from its name. Several at a time on one machine: `--emit commands`, and xargs.
"""

import argparse
import contextlib
import hashlib
import itertools
import json
import math
import re
import shlex
import statistics
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import pandas as pd
import yaml
from pydantic import AfterValidator, BaseModel, Field, JsonValue, ValidationError

from helpers import presets
from helpers.commands import arguments, pipeline
from helpers.environment import this_machine
from helpers.metrics.history import read_metrics
from helpers.results.intervals import student_interval
from helpers.runs import SWEEPS, Run, atomic_write, held, runs_folder, show_in_runs
from helpers.subprocesses import last_error

MEASURES = ("accuracy", "final_reward", "kl", "training_seconds")
_ELSEWHERE = {"run": "name", "seed": "seeds", "preset": "preset"}  # parameters with their own keys
_EXPONENT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)[eE][+-]?\d+")


# --- The command ----------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `sweep` takes."""
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
    """Run what is not yet done of a grid, then write and print the table; the exit code.

    A run that failed makes the code 1, and is tried again by the next sweep; one that was asked for
    with other parameters than the grid now has is run anew.

    ValueError or OSError for all that can be refused, before anything runs: see `read_grid`, and
    `runs.held` for a sweep that another process is running.
    """
    grid, tasks = read_grid(Path(parsed.grid), elsewhere=bool(parsed.emit or parsed.collect))
    if parsed.emit and grid.preset in (None, "auto"):
        raise ValueError(
            f"{parsed.grid}: `preset:` must name one: which of them `auto` is depends on the "
            "machine, and others will run this."
        )
    if parsed.emit:
        for task in tasks:
            print(shlex.join(["python", "-m", "helpers", *task.command()]))
        return 0
    left = [task for task in tasks if not task.is_done()]
    print(f"sweep {grid.name}: {len(tasks) - len(left)} runs done, {len(left)} to run", flush=True)
    failed = not parsed.collect and _run(grid, left)
    if parsed.collect and left:
        print(f"not finished: {', '.join(task.run for task in left)}")
    _write_and_show(grid, tasks)
    return int(failed)


# --- The grid -------------------------------------------------------------------------------------


def _number(value: JsonValue) -> JsonValue:
    """Text such as 1e-3, in which YAML 1.1 does not see the number, as that number."""
    return float(value) if isinstance(value, str) and _EXPONENT.fullmatch(value) else value


Value = Annotated[JsonValue, AfterValidator(_number)]
Knobs = Annotated[dict[str, Annotated[list[Value], Field(min_length=1)]], Field(min_length=1)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]


class Grid(BaseModel, extra="forbid"):
    """What a grid file may say."""

    name: str = Field(max_length=32)  # a run's name, of 64 characters, holds point and seed too
    preset: str | None = None
    notebooks: list[int] = [1, 3]  # YAML reads 01 as an integer and 08 as text; pydantic takes both
    seeds: list[Seed] = Field(min_length=1)
    fixed: dict[str, Value] = {}
    one_at_a_time: Knobs | None = None
    product: Knobs | None = None


@dataclass(frozen=True)
class Task:
    """One run of a sweep: a point of the grid with one seed."""

    run: str  # its name
    point: str
    knobs: dict  # the value that each knob of the sweep has here, given or not ("none" for None)
    seed: int
    parameters: dict  # what `run` is given, seed and preset among them
    notebooks: list[str]

    def command(self) -> list[str]:
        """What makes the run, after `python -m helpers`; given again, it goes on with what was
        interrupted, or does nothing.
        """
        command = ["run", "--once", "--fresh", "--run", self.run]
        command += ["--only", ",".join(self.notebooks)]
        return command + [word for text in self.texts() for word in ("-p", text)]

    def texts(self) -> list[str]:
        """The parameters as `-p` takes them."""
        return [f"{key}={json.dumps(value)}" for key, value in self.parameters.items()]

    def is_done(self) -> bool:
        """Whether the run has finished as the grid asks for it now."""
        asked = arguments.last(Run(self.run))
        alike = arguments.is_for(asked, self.parameters, self.notebooks)
        return alike and not arguments.left(asked)


def read_grid(path: Path, elsewhere: bool = False) -> tuple[Grid, list[Task]]:
    """Read a grid and check all that can be checked before anything runs: its keys, its parameters,
    and every point's settings. Its runs come point by point, each with every seed.

    elsewhere: it may run on other machines, so this one need not be able to. ValueError, beginning
    with the file's name, for everything that is wrong with its content.
    """
    try:
        grid = Grid.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
        return grid, _tasks(grid, elsewhere)
    except ValidationError as error:
        said = "; ".join(": ".join([*map(str, one["loc"]), one["msg"]]) for one in error.errors())
        known = ", ".join(Grid.model_fields)
        raise ValueError(f"{path.name}: {said}. A grid has the keys {known}.") from None
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{path.name}: {error}") from None


def _tasks(grid: Grid, elsewhere: bool) -> list[Task]:
    Run(grid.name)  # refuses what cannot begin a run's name
    notebooks = [f"{number:02}" for number in sorted(set(grid.notebooks))]
    if not {"01", "03"} <= set(notebooks):
        raise ValueError(
            f"notebooks: {', '.join(notebooks)}: a sweep trains each run anew, which takes 01 and "
            "03."
        )
    if (grid.one_at_a_time is None) == (grid.product is None):
        raise ValueError(
            "give the knobs under one_at_a_time (each alone) or product (every combination): one "
            "of the two."
        )
    knobs = grid.one_at_a_time or grid.product
    places = dict.fromkeys(grid.fixed, "fixed") | _ELSEWHERE
    for name, key in places.items():
        if name in knobs or (name in grid.fixed and key != "fixed"):
            raise ValueError(f"{name} has a place of its own, `{key}:`.")

    # what a point has that gives nothing of its own
    preset = presets.resolve(grid.preset or "auto", this_machine())
    base = pipeline.defaults(notebooks) | asdict(preset)
    base |= {name: value for name, value in grid.fixed.items() if value is not None}
    if grid.product:
        combinations = itertools.product(*knobs.values())
        points = [dict(zip(knobs, values, strict=True)) for values in combinations]
    else:  # a value that the base point has already is no other point
        points = [{}] + [
            {knob: value}
            for knob, values in knobs.items()
            for value in values
            if value not in (None, base.get(knob))
        ]

    tasks = []
    for chosen in points:
        point = "-".join(f"{knob}-{_plain(value)}" for knob, value in chosen.items()) or "base"
        # paths of files are made to hold from anywhere, as `run -p` makes them
        given = {
            name: arguments.absolute(value) if isinstance(value, str) else value
            for name, value in (grid.fixed | chosen).items()
        }
        if grid.preset is not None:
            given["preset"] = grid.preset
        try:
            pipeline.check("sweep", notebooks, given, elsewhere=elsewhere)
        except (ValueError, OSError) as error:
            raise ValueError(f"point {point}: {error}") from None
        has = base | {knob: value for knob, value in chosen.items() if value is not None}
        values = {knob: _plain(has.get(knob)) for knob in knobs}
        for seed in grid.seeds:
            run = run_name(grid.name, point, seed)
            tasks.append(Task(run, point, values, seed, given | {"seed": seed}, notebooks))
    names = [task.run for task in tasks]
    if len(set(names)) < len(names):
        twice = max(names, key=names.count)
        raise ValueError(f"a seed or a value is given twice: there are two runs {twice}.")
    return tasks


def run_name(grid: str, point: str, seed: int) -> str:
    """`<grid>-<point>-seed-<seed>`; a point's name that does not fit, or is no part of a run name,
    ends in a hash.
    """
    whole = f"{grid}-{point}-seed-{seed}"
    if len(whole) <= 64 and re.fullmatch(r"[A-Za-z0-9._-]+", whole) and ".." not in whole:
        return whole
    end = f"-{hashlib.sha256(point.encode()).hexdigest()[:8]}-seed-{seed}"
    start = f"{grid}-{re.sub('[^A-Za-z0-9_]+', '-', point)}"
    return start[: 64 - len(end)].rstrip("-") + end


def _plain(value: JsonValue) -> JsonValue:
    """A value as a cell of a table."""
    if value is None:
        return "none"
    return json.dumps(value) if isinstance(value, list | dict) else value


# --- Running --------------------------------------------------------------------------------------


def _run(grid: Grid, left: list[Task]) -> bool:
    """Run what is left, one after the other, each with a log; print how each ended, and why one
    failed. Whether one did.
    """
    folder, failed = runs_folder() / SWEEPS / grid.name, False
    with held(folder, f"sweep {grid.name!r}"):
        (folder / "logs").mkdir(exist_ok=True)
        for number, task in enumerate(left, start=1):
            log, outcome = folder / "logs" / f"{task.run}.log", "done"
            try:
                code = _logged(task, log)
            except KeyboardInterrupt:
                again = "Give the same command again to go on with what is left."
                print(f"\n{again}", file=sys.stderr)
                raise
            if code:
                where = show_in_runs(f"{SWEEPS}/{grid.name}/logs/{log.name}")
                outcome, failed = f"failed: {last_error(log)} (the whole output: {where})", True
            print(f"  {number}/{len(left)}  {task.run}  {outcome}", flush=True)
    return failed


def _logged(task: Task, log: Path) -> int:
    """The exit code of a run whose output goes to a file."""
    with (
        log.open("w", encoding="utf-8") as file,
        contextlib.redirect_stdout(file),
        contextlib.redirect_stderr(file),
    ):
        try:
            only = ",".join(task.notebooks)
            return pipeline.run(task.run, None, only, task.texts(), fresh=True, once=True)
        except (ValueError, OSError) as error:
            print(f"error: {error}")
            return 2


# --- The table ------------------------------------------------------------------------------------


def each_run(tasks: list[Task]) -> pd.DataFrame:
    """A row for each finished run: point, each knob's value, seed, and each of MEASURES; nan for
    what was not measured. Two points compare best seed by seed.

    accuracy: of the trained policy on the holdout, sampled; where notebook 05 has run.
    final_reward: the mean logged reward over the last fifth of the logged steps (at least one).
    kl: at the last step, in nats per token; nan with beta 0. training_seconds: the sum of
    step_time.
    """
    rows = []
    for task in tasks:
        if task.is_done():
            run, evaluated = Run(task.run), "05" in task.notebooks
            history = read_metrics(run.require("metrics.csv"))
            measured = {
                "accuracy": run.evaluation["trained"]["accuracy"] if evaluated else math.nan,
                "final_reward": history["reward"].tail(max(1, len(history) // 5)).mean(),
                "kl": history["kl"].iloc[-1] if "kl" in history else math.nan,
                "training_seconds": history["step_time"].sum(),
            }
            rows.append({"point": task.point} | task.knobs | {"seed": task.seed} | measured)
    return pd.DataFrame(rows, columns=["point", *tasks[0].knobs, "seed", *MEASURES])


def table(tasks: list[Task], runs: pd.DataFrame) -> pd.DataFrame:
    """A row for each point: point, each knob's value, seeds (finished), and each of MEASURES with
    its bounds `_low` and `_high`. runs: of `each_run`.

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
            values = own[measure].dropna().tolist()
            low, high = student_interval(values)
            mean = statistics.mean(values) if values else math.nan
            row |= {measure: mean, f"{measure}_low": low, f"{measure}_high": high}
        rows.append(row)
    return pd.DataFrame(rows)


def _write_and_show(grid: Grid, tasks: list[Task]) -> None:
    """Write the table and that of each run, and print the first, a cell for each measure."""
    folder = runs_folder() / SWEEPS / grid.name
    folder.mkdir(parents=True, exist_ok=True)
    runs = each_run(tasks)
    found = table(tasks, runs)
    for name, content in {"runs": runs, "table": found}.items():
        with atomic_write(folder / f"{name}.csv") as temporary:
            content.to_csv(temporary, index=False)
    text = found[["point", *tasks[0].knobs, "seeds"]].astype(str)
    text["seeds"] += f"/{len(grid.seeds)}"
    for measure in MEASURES:
        if found[measure].notna().any():
            bounds = found[[measure, f"{measure}_low", f"{measure}_high"]]
            text[measure] = [_cell(*numbers) for numbers in bounds.itertuples(index=False)]
    print(f"\n{text.to_string(index=False)}\n\nmeans over the seeds, with 95 % intervals\n")
    print(f"table.csv and runs.csv: {show_in_runs(f'{SWEEPS}/{grid.name}')}")


def _cell(value: float, low: float, high: float) -> str:
    if math.isnan(value):
        return ""
    return f"{value:.4g}" + ("" if math.isnan(low) else f" ({low:.3g} to {high:.3g})")
