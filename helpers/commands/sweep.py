"""Small sweeps: a grid of settings and seeds becomes runs, N at a time, and one table with a row a
point.

Every run is an ordinary one, `python -m helpers run`, in a process of its own. A sweep keeps only
its table, figures and logs, in `runs/sweeps/<name>/`. What is done is read off the runs themselves:
off what each was asked for, not off its name.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import shlex
import statistics
import sys
import time
from pathlib import Path

import pandas as pd

from helpers.commands import arguments, pipeline, subprocesses, sweep_ray
from helpers.commands.grid import Grid, Point, read_grid
from helpers.metrics import plots
from helpers.metrics.history import read_metrics
from helpers.results.intervals import student_interval, wilson_interval
from helpers.runs import SWEEPS, Run, atomic_write, held, runs_folder, show_in_runs

MEASURES = ("accuracy", "final_reward", "completions_to_target", "kl", "training_seconds")
_TARGET = 0.8  # of the running mean over three logged steps of correctness_reward
_CORRECTNESS = "rewards/correctness_reward/mean"


def sweep(
    path: Path,
    jobs: int = 1,
    dry_run: bool = False,
    many: bool = False,
    on: str | None = None,
    address: str = "auto",
) -> int:
    """Run what is not yet done of a grid, `jobs` runs at a time, then write and print the table.

    Returns the exit code.

    A run that failed is told at the end, makes the code 1, and is tried again by the next sweep;
    one that was asked for with other parameters than the grid now has is run anew. dry_run: check,
    say what would be run, and run nothing.
    many: take more than 10,000 runs, too. on: "ray" for a task a run on the cluster at `address`,
    see `on_ray.cluster`.

    With several jobs, and on Ray's CPUs, each run computes on one thread. (Sums in another order
    differ in their last digits, and after some steps in their completions: keep to one kind of
    sweep where that matters.)

    ValueError or FileNotFoundError for all that can be refused, before anything runs: see
    `grid.read_grid`, and `runs.held` for a sweep that another process is running.
    """
    if jobs < 1:
        raise ValueError(
            f"--jobs {jobs} is not a number of runs at a time: give an integer of at least 1."
        )
    grid = _for_others(path, many) if on else read_grid(path, many)
    if jobs > 1 and (on or grid.needs_gpu):
        why = (
            "Ray runs as many at a time as its nodes have room for"
            if on
            else "the preset is meant to have the GPU to itself"
        )
        raise ValueError(f"--jobs {jobs}: {why}. Leave --jobs out.")
    if dry_run:
        print("\n".join(f"  {grid.run_name(*task)}" for task in _left(grid)))
        return 0
    place = sweep_ray.cluster(address, grid.needs_gpu) if on else contextlib.nullcontext()
    with (
        place as cluster,
        held(runs_folder() / SWEEPS / grid.name, f"sweep {grid.name!r}"),
        pipeline.ended_like_ctrl_c(),
    ):
        left = {grid.run_name(*task): task for task in _left(grid)}
        runs = {name: grid.command(*task) for name, task in left.items()}
        logs = _path(grid.name, "logs")
        for name in runs:
            (logs / f"{name}.log").unlink(missing_ok=True)
        failed = sweep_ray.run_all(cluster, runs, logs) if on else _run_here(runs, logs, jobs)
        for name in [name for name, task in left.items() if not is_done(grid, *task)]:
            failed.setdefault(
                name, f"it ended well, but without metrics.csv: delete {show_in_runs(name)}"
            )
        _write_tables(grid)
        _show(grid, read(grid.name))
    for name, why in failed.items():
        print(
            f"failed: {name}: {why}\n        the whole output is in "
            f"{_shown(grid.name, f'logs/{name}.log')}",
            file=sys.stderr,
        )
    return 1 if failed else 0


def emit(path: Path, many: bool = False) -> int:
    """Print a command line a run, quoted for a shell, in the order of the grid; 0.

    Each is to be given in a checkout, in its environment. Given again it does nothing where the run
    is done, and goes on with one that was interrupted.
    """
    grid = _for_others(path, many)
    for task in grid.tasks:
        print(shlex.join(["python", "-m", "helpers", *grid.command(*task)]))
    return 0


def collect(path: Path, many: bool = False) -> int:
    """Write and print the table of what has finished, whoever ran it, and name what has not; 0.

    ValueError if nothing has.
    """
    grid = read_grid(path, many, elsewhere=True)
    left = _left(grid)
    if len(left) == len(grid.tasks):
        raise ValueError(
            f"no run of {grid.name!r} has finished in {show_in_runs('')} as the grid asks for it "
            "now. `--emit commands` prints "
            "what makes them."
        )
    _write_tables(grid)
    _show(grid, read(grid.name))
    if left:
        print(f"not finished: {', '.join(grid.run_name(*task) for task in left)}")
    return 0


def _for_others(path: Path, many: bool) -> Grid:
    """A grid that other machines will run. ValueError where it leaves the preset to the machine."""
    grid = read_grid(path, many, elsewhere=True)
    if grid.fixed.get("preset", "auto") == "auto":
        raise ValueError(
            f"{path.name}: `preset:` must name one: which of them `auto` is depends on the "
            "machine, and others will run this."
        )
    return grid


def _write_tables(grid: Grid) -> None:
    for name, content in {"runs": each_run(grid), "table": table(grid)}.items():
        with atomic_write(_path(grid.name, f"{name}.csv")) as temporary:
            content.to_csv(temporary, index=False)


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


def read(name: str) -> pd.DataFrame:
    """The table of a sweep that has run: see `table` for its columns.

    FileNotFoundError says how to make it.
    """
    Run(name)  # a sweep's name is one that a run could have
    path = runs_folder() / SWEEPS / name / "table.csv"
    if not path.is_file():
        raise FileNotFoundError(
            f"{_shown(name, 'table.csv')} is not there. Run the sweep first: `python -m helpers "
            "sweep --grid FILE`, with "
            f"`name: {name}` in the file."
        )
    return pd.read_csv(path)


def _path(name: str, relative: str) -> Path:
    path = runs_folder() / SWEEPS / name / relative
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _shown(name: str, relative: str) -> str:
    return show_in_runs(f"{SWEEPS}/{name}/{relative}")


# --- Running --------------------------------------------------------------------------------------


def is_done(grid: Grid, point: Point, seed: int) -> bool:
    """Whether the run has finished as the grid asks for it now."""
    run = Run(grid.run_name(point, seed))
    found = arguments.asked_alike(run, grid.parameters(point, seed), grid.notebooks)
    return bool(
        found and found["done"] == grid.notebooks and (run.folder / "metrics.csv").is_file()
    )


def _run_here(runs: dict[str, list[str]], logs: Path, jobs: int) -> dict[str, str]:
    """Run what is waiting, telling of each run as it ends; why a run failed, by its name.

    runs: the command of each, by its name.
    """
    waiting, running, failed = list(runs), {}, {}
    threads = {"OMP_NUM_THREADS": "1"} if jobs > 1 else {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                name = waiting.pop(0)
                process = subprocesses.start(
                    runs[name], logs / f"{name}.log", runs_folder(), threads
                )
                running[name] = (process, time.monotonic())
            time.sleep(0.1)
            for name in [
                name for name, (process, _) in running.items() if process.poll() is not None
            ]:
                process, began = running.pop(name)
                ended = len(runs) - len(waiting) - len(running)
                if process.returncode:
                    failed[name] = subprocesses.last_error(logs / f"{name}.log", process.returncode)
                outcome = "failed" if name in failed else "done"
                print(
                    f"  {ended}/{len(runs)}  {name}  {outcome}  {time.monotonic() - began:.0f} s",
                    flush=True,
                )
    except KeyboardInterrupt:
        print(
            "\nEnding the runs; give the same command again to go on with what is left.",
            file=sys.stderr,
        )
        raise
    finally:
        subprocesses.end([process for process, _ in running.values()])
    return failed


# --- The table ------------------------------------------------------------------------------------


def measures(run: Run, evaluated: bool) -> dict[str, float]:
    """What one finished run is judged by; nan for what was not measured or not reached.

    accuracy: of the trained policy on the holdout, sampled; where `evaluated`, that is, where
    notebook 05 has run.
    final_reward: the mean logged reward over the last fifth of the logged steps (at least one).
    completions_to_target: completions sampled until correctness_reward, as a running mean over
    three logged steps, is 0.8.
    kl: at the last step, in nats a token; nan with beta 0. training_seconds: the sum of step_time.
    """
    history = read_metrics(run.require("metrics.csv"))
    kl = history["kl"].iloc[-1] if "kl" in history else math.nan
    return {
        "accuracy": run.evaluation["trained"]["accuracy"] if evaluated else math.nan,
        "final_reward": float(history["reward"].tail(max(1, len(history) // 5)).mean()),
        "completions_to_target": _completions_to_target(
            history, run.section("training")["settings"]
        ),
        "kl": float(kl),
        "training_seconds": float(history["step_time"].sum())
        if "step_time" in history
        else math.nan,
    }


def _completions_to_target(history: pd.DataFrame, settings: dict) -> float:
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
    """A row a finished run: point, each knob's value, seed, and each of MEASURES.

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


def table(grid: Grid) -> pd.DataFrame:
    """A row a point: point, each knob's value, seeds (finished), and each of MEASURES with its
    bounds `_low` and `_high`.

    A measure is the mean over the finished seeds. With two or more its interval is Student's t over
    the seeds: where the mean over many more seeds would lie, if seeds spread like a normal
    distribution. It covers all that a seed decides: the rows that are drawn, the adapter's first
    weights, the sampling. Few seeds make it wide, and it may pass 0 or 1. With one seed only the
    accuracy has an interval, Wilson's, which covers the choice of holdout questions and nothing of
    the training.

    completions_to_target is blank unless every finished seed reached the target, because the mean
    of those that did would flatter; reached_target counts them.
    """
    return pd.DataFrame([_row(grid, point) for point in grid.points])


def _row(grid: Grid, point: Point) -> dict:
    evaluated = "05" in grid.notebooks
    runs = [Run(grid.run_name(point, seed)) for seed in grid.seeds if is_done(grid, point, seed)]
    found = [measures(run, evaluated) for run in runs]
    row = {"point": point.name} | point.knobs | {"seeds": len(found)}
    for measure in MEASURES:
        values = [one[measure] for one in found]
        known = bool(values) and not any(map(math.isnan, values))
        low, high = student_interval(values) if known else (math.nan, math.nan)
        if measure == "accuracy" and known and len(found) == 1:
            entry = runs[0].evaluation["trained"]
            low, high = wilson_interval(round(entry["accuracy"] * entry["n"]), entry["n"])
        row |= {
            measure: statistics.mean(values) if known else math.nan,
            f"{measure}_low": low,
            f"{measure}_high": high,
        }
    return row | {
        "reached_target": sum(not math.isnan(one["completions_to_target"]) for one in found)
    }


def _show(grid: Grid, found: pd.DataFrame) -> None:
    """Print the table, a cell a measure, and draw a figure a knob."""
    text = found[["point", *grid.knobs, "seeds"]].astype(str)
    text["seeds"] += f"/{len(grid.seeds)}"
    for measure in MEASURES:
        if found[measure].notna().any():
            bounds = zip(
                found[measure], found[f"{measure}_low"], found[f"{measure}_high"], strict=True
            )
            text[measure] = [_cell(*numbers) for numbers in bounds]
    print(f"\n{text.to_string(index=False)}\n\nmeans over the seeds, with 95 % intervals\n")
    measure = "accuracy" if found["accuracy"].notna().any() else "final_reward"
    for knob in grid.knobs if found[measure].notna().any() else []:
        with atomic_write(_path(grid.name, f"{knob}.png")) as temporary:
            plots.sweep(found, knob, measure).savefig(
                temporary, dpi=120, bbox_inches="tight", format="png"
            )
    print(f"table and figures: {_shown(grid.name, '')}")


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
    parser.add_argument(
        "--yes",
        action="store_true",
        help="run more than 10,000 points and seeds, if that many are meant",
    )


def main(parsed: argparse.Namespace) -> int:
    """Sweep, or print and collect what another machine runs; the exit code."""
    grid = Path(parsed.grid)
    if parsed.address and not parsed.on:
        raise ValueError(f"--address {parsed.address} is for --on ray: give both.")
    if parsed.emit or parsed.collect:
        if parsed.on or parsed.jobs != 1:
            raise ValueError("--emit and --collect run nothing: leave --on and --jobs out.")
        return (emit if parsed.emit else collect)(grid, parsed.yes)
    return sweep(grid, parsed.jobs, parsed.dry_run, parsed.yes, parsed.on, parsed.address or "auto")
