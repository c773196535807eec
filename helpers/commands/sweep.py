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

Every run is an ordinary one, `python -m helpers run`, in a process of its own. A sweep keeps only
its tables and logs, in `runs/sweeps/<name>/`. Which runs are done is read from the runs
themselves: from what each was asked for, not from its name.
"""

from __future__ import annotations

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
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pandas as pd
import yaml
from pydantic import AfterValidator, BaseModel, Field, JsonValue, ValidationError

from helpers import presets, subprocesses
from helpers.commands import arguments, pipeline, sweep_ray
from helpers.environment import this_machine
from helpers.metrics.history import read_metrics
from helpers.results.intervals import student_interval
from helpers.runs import SWEEPS, Run, atomic_write, held, runs_folder, show_in_runs

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
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="runs at a time (default: 1)"
    )
    parser.add_argument("--on", choices=["ray"], help="run on a Ray cluster instead, a task a run")
    parser.add_argument(
        "--address",
        metavar="HOST:PORT",
        help="of that cluster (default: auto, the one this machine is in)",
    )
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--emit",
        choices=["commands"],
        help="run nothing, and print a command line a run, for a cluster",
    )
    instead.add_argument(
        "--collect",
        action="store_true",
        help="run nothing, and make the table of what has finished",
    )
    instead.add_argument(
        "--dry-run", action="store_true", help="check the grid and say what would be run"
    )


def main(parsed: argparse.Namespace) -> int:
    """Run what is not yet done of a grid, then write and print the table; the exit code.

    A run that failed is named at the end, makes the code 1, and is tried again by the next sweep;
    one that was asked for with other parameters than the grid now has is run anew.

    ValueError or OSError for all that can be refused, before anything runs: see `read_grid`, and
    `runs.held` for a sweep that another process is running.
    """
    if parsed.jobs < 1:
        raise ValueError(
            f"--jobs {parsed.jobs} is not a number of runs at a time: give an integer of at least "
            "1."
        )
    if parsed.address and not parsed.on:
        raise ValueError(f"--address {parsed.address} is for --on ray: give both.")
    for_others = bool(parsed.on or parsed.emit)
    grid = read_grid(Path(parsed.grid), elsewhere=for_others or parsed.collect)
    if for_others and grid.preset in (None, "auto"):
        raise ValueError(
            f"{parsed.grid}: `preset:` must name one: which of them `auto` is depends on the "
            "machine, and others will run this."
        )
    if parsed.jobs > 1 and grid.needs_gpu:
        raise ValueError(
            f"--jobs {parsed.jobs}: the preset is meant to have the GPU to itself. Leave --jobs "
            "out."
        )
    if parsed.emit:
        for task in grid.tasks:
            print(shlex.join(["python", "-m", "helpers", *grid.command(task)]))
        return 0
    left = [task for task in grid.tasks if not is_done(grid, task)]
    points = len({task.point for task in grid.tasks})
    seeds = len(grid.tasks) // points
    size = f"{points} point{'s' * (points > 1)}, {seeds} seed{'s' * (seeds > 1)}"
    done = len(grid.tasks) - len(left)
    print(f"sweep {grid.name}: {size}; {done} runs done, {len(left)} to run", flush=True)
    if parsed.dry_run:
        print("\n".join(f"  {task.run}" for task in left))
        return 0
    if parsed.collect:
        if not done:
            raise ValueError(
                f"no run of {grid.name!r} has finished in {show_in_runs('')} as the grid asks for "
                "it now. `--emit commands` prints what makes them."
            )
        _write_and_show(grid)
        if left:
            print(f"not finished: {', '.join(task.run for task in left)}")
        return 0
    with held(grid.folder, f"sweep {grid.name!r}"), pipeline.ended_like_ctrl_c():
        logs = grid.folder / "logs"
        logs.mkdir(exist_ok=True)
        for task in left:
            (logs / f"{task.run}.log").unlink(missing_ok=True)
        runs = {task.run: grid.command(task) for task in left}
        if parsed.on:
            ended = sweep_ray.run_all(runs, logs, grid.needs_gpu, parsed.address or "auto")
        else:
            ended = _run_here(runs, logs, parsed.jobs)
        failed = _follow(ended, len(runs))
        _write_and_show(grid)
    for name, why in failed.items():
        log = show_in_runs(f"{SWEEPS}/{grid.name}/logs/{name}.log")
        print(f"failed: {name}: {why}\n        the whole output is in {log}", file=sys.stderr)
    return 1 if failed else 0


# --- The grid -------------------------------------------------------------------------------------


def _number(value: JsonValue) -> JsonValue:
    """Text such as 1e-3, in which YAML 1.1 does not see the number, as that number."""
    return float(value) if isinstance(value, str) and _EXPONENT.fullmatch(value) else value


Value = Annotated[JsonValue, AfterValidator(_number)]
Knobs = Annotated[dict[str, Annotated[list[Value], Field(min_length=1)]], Field(min_length=1)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]


class GridFile(BaseModel, extra="forbid"):
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


@dataclass(frozen=True)
class Grid:
    """A checked grid: every point can run on this machine."""

    name: str
    preset: str | None
    needs_gpu: bool
    notebooks: list[str]
    tasks: list[Task]  # point by point, each with every seed

    @property
    def folder(self) -> Path:
        """Where the sweep keeps its tables and logs."""
        return runs_folder() / SWEEPS / self.name

    def command(self, task: Task) -> list[str]:
        """What makes a run, after `python -m helpers`; given again, it goes on with what was
        interrupted, or does nothing.
        """
        only = ",".join(self.notebooks)
        command = ["run", "--once", "--fresh", "--run", task.run, "--only", only]
        for key, value in task.parameters.items():
            command += ["-p", f"{key}={json.dumps(value)}"]
        return command


def read_grid(path: Path, elsewhere: bool = False) -> Grid:
    """Read a grid and check all that can be checked before anything runs: its keys, its parameters,
    and every point's settings.

    elsewhere: it may run on other machines, so this one need not be able to. ValueError, beginning
    with the file's name, for everything that is wrong with its content.
    """
    try:
        file = GridFile.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
        return _checked(file, elsewhere)
    except ValidationError as error:
        said = "; ".join(": ".join([*map(str, one["loc"]), one["msg"]]) for one in error.errors())
        known = ", ".join(GridFile.model_fields)
        raise ValueError(f"{path.name}: {said}. A grid has the keys {known}.") from None
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{path.name}: {error}") from None


def _checked(file: GridFile, elsewhere: bool) -> Grid:
    Run(file.name)  # refuses what cannot begin a run's name
    notebooks = [f"{number:02}" for number in sorted(set(file.notebooks))]
    if not {"01", "03"} <= set(notebooks):
        raise ValueError(
            f"notebooks: {', '.join(notebooks)}: a sweep trains each run anew, which takes 01 and "
            "03."
        )
    if (file.one_at_a_time is None) == (file.product is None):
        raise ValueError(
            "give the knobs under one_at_a_time (each alone) or product (every combination): one "
            "of the two."
        )
    knobs = file.one_at_a_time or file.product
    for name, key in _ELSEWHERE.items():
        if name in knobs or name in file.fixed:
            raise ValueError(f"{name} has a place of its own, `{key}:`.")

    # what a point has that gives nothing of its own
    preset = presets.resolve(file.preset or "auto", this_machine())
    base = pipeline.defaults(notebooks) | presets.as_settings(preset)
    base |= {name: value for name, value in file.fixed.items() if value is not None}
    if file.product:
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
            for name, value in (file.fixed | chosen).items()
        }
        if file.preset is not None:
            given["preset"] = file.preset
        try:
            pipeline.check("sweep", notebooks, given, elsewhere=elsewhere)
        except (ValueError, OSError) as error:
            raise ValueError(f"point {point}: {error}") from None
        has = base | {knob: value for knob, value in chosen.items() if value is not None}
        values = {knob: _plain(has.get(knob)) for knob in knobs}
        for seed in file.seeds:
            run = run_name(file.name, point, seed)
            tasks.append(Task(run, point, values, seed, given | {"seed": seed}))
    names = [task.run for task in tasks]
    if len(set(names)) < len(names):
        twice = max(names, key=names.count)
        raise ValueError(f"a seed or a value is given twice: there are two runs {twice}.")
    return Grid(file.name, file.preset, preset.needs_gb > 0, notebooks, tasks)


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


def is_done(grid: Grid, task: Task) -> bool:
    """Whether the run has finished as the grid asks for it now."""
    asked = arguments.last(Run(task.run))
    alike = arguments.is_for(asked, task.parameters, grid.notebooks)
    return alike and not arguments.left(asked)


def _run_here(
    runs: dict[str, list[str]], logs: Path, jobs: int
) -> Iterator[tuple[str, float, str]]:
    """Run all on this machine, `jobs` at a time; yields as `sweep_ray.run_all` does.

    With several jobs, and on Ray's CPUs, each run computes on one thread. (Sums in another order
    differ in their last digits, and after some steps in their completions: keep to one kind of
    sweep where that matters.)
    """
    environment = {"GRPO_RUNS_DIR": str(runs_folder())}
    if jobs > 1:
        environment["OMP_NUM_THREADS"] = "1"
    waiting, running = list(runs), {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                name = waiting.pop(0)
                process = subprocesses.start(
                    "helpers", runs[name], logs / f"{name}.log", environment
                )
                running[name] = (process, time.monotonic())
            time.sleep(0.1)
            for name, (process, began) in list(running.items()):
                if process.poll() is not None:
                    del running[name]
                    failed = process.returncode != 0
                    why = subprocesses.last_error(logs / f"{name}.log") if failed else ""
                    yield name, time.monotonic() - began, why
    finally:
        subprocesses.end([process for process, _ in running.values()])


def _follow(ended: Iterator[tuple[str, float, str]], total: int) -> dict[str, str]:
    """Print each run as it ends; why a run failed, by its name."""
    failed = {}
    try:
        with contextlib.closing(ended):
            for number, (name, seconds, why) in enumerate(ended, 1):
                if why:
                    failed[name] = why
                outcome = "failed" if why else "done"
                print(f"  {number}/{total}  {name}  {outcome}  {seconds:.0f} s", flush=True)
    except KeyboardInterrupt:
        print(
            "\nThe runs were ended; give the same command again to go on with what is left.",
            file=sys.stderr,
        )
        raise
    return failed


# --- The table ------------------------------------------------------------------------------------


def measures(run: Run, evaluated: bool) -> dict[str, float]:
    """What one finished run is judged by; nan for what was not measured.

    accuracy: of the trained policy on the holdout, sampled; where `evaluated`, that is, where
    notebook 05 has run.
    final_reward: the mean logged reward over the last fifth of the logged steps (at least one).
    kl: at the last step, in nats per token; nan with beta 0. training_seconds: the sum of
    step_time.
    """
    history = read_metrics(run.require("metrics.csv"))
    return {
        "accuracy": run.evaluation["trained"]["accuracy"] if evaluated else math.nan,
        "final_reward": float(history["reward"].tail(max(1, len(history) // 5)).mean()),
        "kl": float(history["kl"].iloc[-1]) if "kl" in history else math.nan,
        "training_seconds": float(history["step_time"].sum()),
    }


def each_run(grid: Grid) -> pd.DataFrame:
    """A row for each finished run: point, each knob's value, seed, and each of MEASURES.

    Two points compare best seed by seed.
    """
    rows = [
        {"point": task.point}
        | task.knobs
        | {"seed": task.seed}
        | measures(Run(task.run), "05" in grid.notebooks)
        for task in grid.tasks
        if is_done(grid, task)
    ]
    return pd.DataFrame(rows, columns=["point", *grid.tasks[0].knobs, "seed", *MEASURES])


def table(grid: Grid, runs: pd.DataFrame) -> pd.DataFrame:
    """A row for each point: point, each knob's value, seeds (finished), and each of MEASURES with
    its bounds `_low` and `_high`. runs: of `each_run`.

    A measure is the mean over the finished seeds. With two or more its interval is Student's t over
    the seeds: where the mean over many more seeds would lie, if seeds spread like a normal
    distribution. It covers all that a seed decides: the rows that are drawn, the adapter's first
    weights, the sampling. Few seeds make it wide, and it may pass 0 or 1. With one seed only the
    accuracy has an interval, Wilson's, which covers the choice of holdout questions and nothing of
    the training.
    """
    rows = []
    for point, knobs in {task.point: task.knobs for task in grid.tasks}.items():
        own = runs[runs["point"] == point]
        row = {"point": point} | knobs | {"seeds": len(own)}
        for measure in MEASURES:
            values = own[measure].tolist()
            mean = low = high = math.nan
            if values and not any(map(math.isnan, values)):
                mean, (low, high) = statistics.mean(values), student_interval(values)
            if measure == "accuracy" and len(values) == 1 and not math.isnan(mean):
                only = Run(run_name(grid.name, point, own["seed"].iloc[0]))
                low, high = only.evaluation["trained"]["ci95"]
            row |= {measure: mean, f"{measure}_low": low, f"{measure}_high": high}
        rows.append(row)
    return pd.DataFrame(rows)


def _write_and_show(grid: Grid) -> None:
    """Write the table and that of each run, and print the first, a cell for each measure."""
    grid.folder.mkdir(parents=True, exist_ok=True)
    runs = each_run(grid)
    found = table(grid, runs)
    for name, content in {"runs": runs, "table": found}.items():
        with atomic_write(grid.folder / f"{name}.csv") as temporary:
            content.to_csv(temporary, index=False)
    text = found[["point", *grid.tasks[0].knobs, "seeds"]].astype(str)
    text["seeds"] += f"/{len(grid.tasks) // len(found)}"
    for measure in MEASURES:
        if found[measure].notna().any():
            bounds = zip(
                found[measure], found[f"{measure}_low"], found[f"{measure}_high"], strict=True
            )
            text[measure] = [_cell(*numbers) for numbers in bounds]
    print(f"\n{text.to_string(index=False)}\n\nmeans over the seeds, with 95 % intervals\n")
    print(f"table.csv and runs.csv: {show_in_runs(f'{SWEEPS}/{grid.name}')}")


def _cell(value: float, low: float, high: float) -> str:
    if math.isnan(value):
        return ""
    return f"{value:.4g}" + ("" if math.isnan(low) else f" ({low:.3g} to {high:.3g})")
