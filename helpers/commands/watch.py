"""How far a sweep is, whoever runs it: this machine, a Ray cluster, or emitted lines where the runs
folder is shared.

All is read off the run folders: what was asked for, what is done, who holds the lock, which steps
are logged.
"""

from __future__ import annotations

import csv
import json
import shutil
import statistics
import sys
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from helpers.commands import arguments, subprocesses, sweep
from helpers.commands.grid import Grid, Point, read_grid
from helpers.runs import SWEEPS, Run, holder, runs_folder

_EVERY = 2.0  # seconds between two looks
_ORDER = ("running", "failed", "waiting", "done")  # what there is room for is shown in this order


@dataclass(frozen=True)
class State:
    """One run. what: one of _ORDER, where `failed` is begun, not done, and held by nobody.

    about: its step, or why it failed. seconds: how long it has run, or took; None where that is not
    known. share: of its steps, from 0 to 1.
    """

    name: str
    what: str
    about: str = ""
    seconds: float | None = None
    share: float = 0.0


def watch(path: Path, many: bool = False) -> int:
    """Show the runs of a grid, redrawn in place until all have ended; once, where the output is no
    terminal. Returns 0.
    """
    grid, drawn = read_grid(path, many, elsewhere=True), 0
    while True:
        states = [state(grid, *task) for task in grid.tasks]
        lines = shown(grid.name, states)
        if not sys.stdout.isatty():
            print("\n".join(lines))
            return 0
        size = shutil.get_terminal_size()
        lines = [line[: size.columns - 1] for line in lines[: size.lines - 1]]
        print(f"\x1b[{drawn}A" * bool(drawn) + "\x1b[J" + "\n".join(lines), flush=True)
        if all(one.what in ("done", "failed") for one in states):
            return 0
        drawn = len(lines)
        time.sleep(_EVERY)


def state(grid: Grid, point: Point, seed: int) -> State:
    """What a run is at, by its folder."""
    run = Run(grid.run_name(point, seed))
    who = holder(run.folder)
    if who:
        step, steps = _steps(run)
        where = f"step {step}/{steps}" if steps else "before its first step"
        return State(
            run.name,
            "running",
            f"{where}, {who}",
            time.time() - (_since(who) or time.time()),
            step / max(1, steps),
        )
    asked = run.folder / "asked.json"
    if sweep.is_done(grid, point, seed):
        began = (
            _since((run.folder / ".lock").read_text(encoding="utf-8"))
            if (run.folder / ".lock").is_file()
            else None
        )
        took = asked.stat().st_mtime - began if began else 0
        # its lock was taken since, to find it done
        return State(run.name, "done", seconds=took if took > 0 else None)
    if not arguments.asked_alike(run, grid.parameters(point, seed), grid.notebooks):
        return State(run.name, "waiting")
    log = runs_folder() / SWEEPS / grid.name / "logs" / f"{run.name}.log"
    return State(
        run.name,
        "failed",
        subprocesses.last_error(log, 1) if log.is_file() else "it ended before it was done",
    )


def _since(holder: str) -> float | None:
    """The time in the text of a lock."""
    try:
        return datetime.fromisoformat(holder.strip().rpartition(" since ")[2]).timestamp()
    except ValueError:
        return None


def _steps(run: Run) -> tuple[int, int]:
    """The last logged step of the training that is going on, and how many it will have; 0 and 0
    before it begins.
    """
    folder = run.folder / "checkpoints"
    try:
        if (folder / "finished").exists() and "03" in arguments.left(arguments.last(run)):
            return 0, 0  # of the training before
        steps = json.loads((folder / "settings.json").read_text(encoding="utf-8"))["settings"][
            "max_steps"
        ]
        if not (folder / "metrics.csv").exists():
            return 0, steps
        with (folder / "metrics.csv").open(encoding="utf-8", newline="") as file:
            return int(float([row["step"] for row in csv.DictReader(file)][-1])), steps
    except (OSError, ValueError, LookupError, TypeError):  # being replaced just now
        return 0, 0


def shown(name: str, states: list[State]) -> list[str]:
    """The lines of the table: counts, time left, and a row a run, those that are running first."""
    found = {what: [one for one in states if one.what == what] for what in _ORDER}
    counts = ", ".join(
        f"{len(found[what])} {what}" for what in ("done", "running", "failed", "waiting")
    )
    left = seconds_left(states)
    head = f"sweep {name}: {counts}" + ("" if left is None else f"; about {_span(left)} left")
    width = max(len(one.name) for one in states)
    return [head, *(_line(one, width) for what in _ORDER for one in found[what])]


def _line(one: State, width: int) -> str:
    took = "" if one.seconds is None else _span(one.seconds)
    return f"  {one.name:<{width}}  {one.what:<8}{took:>9}  {one.about}".rstrip()


def seconds_left(states: list[State]) -> float | None:
    """Until all have ended, if as many go on at a time as now; None where that cannot be known.

    A run is expected to take as long as those that are done, on average, or, before the first is
    done, as the steps of those that run let expect.
    """
    running = [one for one in states if one.what == "running"]
    took = [one.seconds for one in states if one.what == "done" and one.seconds]
    took = took or [one.seconds / one.share for one in running if one.share]
    if not running or not took:
        return None
    each = statistics.mean(took)
    waiting = sum(one.what == "waiting" for one in states)
    return (sum(max(0.0, each - one.seconds) for one in running) + waiting * each) / len(running)


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return (
        f"{minutes // 60} h {minutes % 60} min"
        if minutes >= 60
        else f"{minutes} min {rest} s"
        if minutes
        else f"{rest} s"
    )
