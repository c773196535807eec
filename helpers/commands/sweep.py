"""Small sweeps: a grid of settings and seeds becomes runs, and one table with a row for each point.

Every run is an ordinary one, `python -m helpers run`, in a process of its own. A sweep keeps only
its tables and logs, in `runs/sweeps/<name>/`. Which runs are done is read from the runs
themselves: from what each was asked for, not from its name.
"""

from __future__ import annotations

import argparse
import math
import shlex
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from helpers import subprocesses
from helpers.commands import arguments, pipeline, sweep_ray
from helpers.commands.grid import Grid, Point, read_grid
from helpers.metrics.history import read_metrics
from helpers.results.intervals import student_interval
from helpers.runs import SWEEPS, Run, atomic_write, held, runs_folder, show_in_runs

MEASURES = ("accuracy", "final_reward", "completions_to_target", "kl", "training_seconds")
_TARGET = 0.8  # of the running mean over three logged steps of correctness_reward
_CORRECTNESS = "rewards/correctness_reward/mean"


def sweep(
    path: Path, jobs: int = 1, dry_run: bool = False, on: str | None = None, address: str = "auto"
) -> int:
    """Run what is not yet done of a grid, `jobs` runs at a time, then write and print the table.

    Returns the exit code.

    A run that failed is named at the end, makes the code 1, and is tried again by the next sweep;
    one that was asked for with other parameters than the grid now has is run anew. dry_run: check,
    say what would be run, and run nothing. on: "ray" for a task per run on the cluster at
    `address`, see `sweep_ray.run_all`.

    With several jobs, and on Ray's CPUs, each run computes on one thread. (Sums in another order
    differ in their last digits, and after some steps in their completions: keep to one kind of
    sweep where that matters.)

    ValueError or OSError for all that can be refused, before anything runs: see `grid.read_grid`,
    and `runs.held` for a sweep that another process is running.
    """
    if jobs < 1:
        raise ValueError(
            f"--jobs {jobs} is not a number of runs at a time: give an integer of at least 1."
        )
    grid = _for_others(path) if on else read_grid(path)
    if jobs > 1 and grid.needs_gpu:
        raise ValueError(
            f"--jobs {jobs}: the preset is meant to have the GPU to itself. Leave --jobs out."
        )
    if dry_run:
        print("\n".join(f"  {grid.run_name(*task)}" for task in _left(grid)))
        return 0
    with held(_folder(grid.name), f"sweep {grid.name!r}"), pipeline.ended_like_ctrl_c():
        runs = {grid.run_name(*task): grid.command(*task) for task in _left(grid)}
        logs = _folder(grid.name) / "logs"
        logs.mkdir(exist_ok=True)
        for name in runs:
            (logs / f"{name}.log").unlink(missing_ok=True)
        if on:
            ended = sweep_ray.run_all(runs, logs, grid.needs_gpu, address)
        else:
            ended = _run_here(runs, logs, jobs)
        failed = _follow(ended, len(runs))
        _write_and_show(grid)
    for name, why in failed.items():
        log = show_in_runs(f"{SWEEPS}/{grid.name}/logs/{name}.log")
        print(f"failed: {name}: {why}\n        the whole output is in {log}", file=sys.stderr)
    return 1 if failed else 0


def emit(path: Path) -> int:
    """Print a command line for each run, quoted for a shell, in the order of the grid; 0.

    Each is to be given in a checkout, in its environment. Given again it does nothing where the run
    is done, and goes on with one that was interrupted.
    """
    grid = _for_others(path)
    for task in grid.tasks:
        print(shlex.join(["python", "-m", "helpers", *grid.command(*task)]))
    return 0


def collect(path: Path) -> int:
    """Write and print the table of what has finished, whoever ran it, and name what has not; 0.

    ValueError if nothing has.
    """
    grid = read_grid(path, elsewhere=True)
    left = _left(grid)
    if len(left) == len(grid.tasks):
        raise ValueError(
            f"no run of {grid.name!r} has finished in {show_in_runs('')} as the grid asks for it "
            "now. `--emit commands` prints what makes them."
        )
    _write_and_show(grid)
    if left:
        print(f"not finished: {', '.join(grid.run_name(*task) for task in left)}")
    return 0


def _for_others(path: Path) -> Grid:
    """A grid that other machines will run. ValueError where it leaves the preset to the machine."""
    grid = read_grid(path, elsewhere=True)
    if grid.fixed.get("preset", "auto") == "auto":
        raise ValueError(
            f"{path.name}: `preset:` must name one: which of them `auto` is depends on the "
            "machine, and others will run this."
        )
    return grid


def _folder(name: str) -> Path:
    return runs_folder() / SWEEPS / name


# --- Running --------------------------------------------------------------------------------------


def is_done(grid: Grid, point: Point, seed: int) -> bool:
    """Whether the run has finished as the grid asks for it now."""
    run = Run(grid.run_name(point, seed))
    found = arguments.asked_alike(run, grid.parameters(point, seed), grid.notebooks)
    return bool(found) and not arguments.left(found)


def _left(grid: Grid) -> list[tuple[Point, int]]:
    """The points and seeds that are not done, after a line that counts them."""
    left = [task for task in grid.tasks if not is_done(grid, *task)]
    points, seeds = len(grid.points), len(grid.seeds)
    size = f"{points} point{'s' * (points > 1)}, {seeds} seed{'s' * (seeds > 1)}"
    print(
        f"sweep {grid.name}: {size}; {len(grid.tasks) - len(left)} runs done, {len(left)} to run",
        flush=True,
    )
    return left


def _run_here(
    runs: dict[str, list[str]], logs: Path, jobs: int
) -> Iterator[tuple[str, float, str]]:
    """Run all on this machine; yields as `sweep_ray.run_all` does."""
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
    finally:
        ended.close()
    return failed


# --- The table ------------------------------------------------------------------------------------


def measures(run: Run, evaluated: bool) -> dict[str, float]:
    """What one finished run is judged by; nan for what was not measured or not reached.

    accuracy: of the trained policy on the holdout, sampled; where `evaluated`, that is, where
    notebook 05 has run.
    final_reward: the mean logged reward over the last fifth of the logged steps (at least one).
    completions_to_target: completions sampled until correctness_reward, as a running mean over
    three logged steps, is 0.8.
    kl: at the last step, in nats per token; nan with beta 0. training_seconds: the sum of
    step_time.
    """
    history = read_metrics(run.require("metrics.csv"))
    settings = run.section("training")["settings"]
    return {
        "accuracy": run.evaluation["trained"]["accuracy"] if evaluated else math.nan,
        "final_reward": float(history["reward"].tail(max(1, len(history) // 5)).mean()),
        "completions_to_target": completions_to_target(history, settings),
        "kl": float(history["kl"].iloc[-1]) if "kl" in history else math.nan,
        "training_seconds": float(history["step_time"].sum())
        if "step_time" in history
        else math.nan,
    }


def completions_to_target(history: pd.DataFrame, settings: dict) -> float:
    """See `measures`. settings: of the training, as its manifest has them."""
    if _CORRECTNESS not in history:
        return math.nan
    reached = history["step"][history[_CORRECTNESS].rolling(3).mean() >= _TARGET]
    if reached.empty:
        return math.nan
    # A round of sampling may serve several optimiser steps: presets.Preset.completions_per_round.
    passes = settings["gradient_accumulation_steps"]
    per_round = settings["steps_per_generation"] or passes
    rounds = math.ceil(
        int(reached.iloc[0]) * passes / (per_round * settings.get("num_iterations", 1))
    )
    return float(
        rounds * per_round * settings["per_device_train_batch_size"] * settings.get("processes", 1)
    )


def each_run(grid: Grid) -> pd.DataFrame:
    """A row for each finished run: point, each knob's value, seed, and each of MEASURES.

    Two points compare best seed by seed.
    """
    rows = [
        {"point": point.name}
        | point.knobs
        | {"seed": seed}
        | measures(Run(grid.run_name(point, seed)), "05" in grid.notebooks)
        for point, seed in grid.tasks
        if is_done(grid, point, seed)
    ]
    return pd.DataFrame(rows, columns=["point", *grid.knobs, "seed", *MEASURES])


def table(grid: Grid, runs: pd.DataFrame) -> pd.DataFrame:
    """A row for each point: point, each knob's value, seeds (finished), and each of MEASURES with
    its bounds `_low` and `_high`. runs: of `each_run`.

    A measure is the mean over the finished seeds. With two or more its interval is Student's t over
    the seeds: where the mean over many more seeds would lie, if seeds spread like a normal
    distribution. It covers all that a seed decides: the rows that are drawn, the adapter's first
    weights, the sampling. Few seeds make it wide, and it may pass 0 or 1. With one seed only the
    accuracy has an interval, Wilson's, which covers the choice of holdout questions and nothing of
    the training.

    completions_to_target is blank unless every finished seed reached the target, because the mean
    of those that did would flatter; reached_target counts them.
    """
    return pd.DataFrame(
        [_row(grid, point, runs[runs["point"] == point.name]) for point in grid.points]
    )


def _row(grid: Grid, point: Point, runs: pd.DataFrame) -> dict:
    row = {"point": point.name} | point.knobs | {"seeds": len(runs)}
    for measure in MEASURES:
        values = runs[measure].tolist()
        known = bool(values) and not any(map(math.isnan, values))
        low, high = student_interval(values) if known else (math.nan, math.nan)
        if measure == "accuracy" and known and len(values) == 1:
            run = Run(grid.run_name(point, int(runs["seed"].iloc[0])))
            low, high = run.evaluation["trained"]["ci95"]
        row[measure] = statistics.mean(values) if known else math.nan
        row |= {f"{measure}_low": low, f"{measure}_high": high}
    return row | {"reached_target": int(runs["completions_to_target"].notna().sum())}


def _write_and_show(grid: Grid) -> None:
    """Write the table and that of each run, and print the first, a cell for each measure."""
    folder = _folder(grid.name)
    folder.mkdir(parents=True, exist_ok=True)
    runs = each_run(grid)
    found = table(grid, runs)
    for name, content in {"runs": runs, "table": found}.items():
        with atomic_write(folder / f"{name}.csv") as temporary:
            content.to_csv(temporary, index=False)
    text = found[["point", *grid.knobs, "seeds"]].astype(str)
    text["seeds"] += f"/{len(grid.seeds)}"
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
    """Sweep, or print and collect what other machines run; the exit code."""
    grid = Path(parsed.grid)
    if parsed.address and not parsed.on:
        raise ValueError(f"--address {parsed.address} is for --on ray: give both.")
    if parsed.emit:
        return emit(grid)
    if parsed.collect:
        return collect(grid)
    return sweep(grid, parsed.jobs, parsed.dry_run, parsed.on, parsed.address or "auto")
