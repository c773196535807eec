"""One page about a class: who is at which notebook, what failed and where, the exercises,
everybody's reward curves.

A file without a network, a script or a server, rewritten as often as one likes; `students.py` reads
what it shows.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from helpers import PROJECT
from helpers.results import report, students
from helpers.results.students import Curve, Student
from helpers.runs import atomic_write, refuse_to_replace

_WIDTH, _HEIGHT = 200, 100  # of a panel
# a curve that is so many times longer or higher than is usual in the class gets a scale of its own
_APART = 3.0
_LAST = 5  # points that the reward at the end is a mean of


def write(folder: Path, to: Path, every: float | None = None) -> list[Student]:
    """Write the page about a shared folder, whole or not at all; returns what it shows.

    every: the seconds after which the browser loads it again. ValueError where the folder is none,
    the page has no place, or something else is there.
    """
    if to.is_dir() or not to.parent.is_dir():
        raise ValueError(
            f"{to} is no place for the page: name a file in a folder that is there, such as --to "
            "class.html."
        )
    refuse_to_replace(to, 'content="python -m helpers class"')
    found = students.read(folder)
    page = report.templates().get_template("class.html.j2").render(_contents(folder, found, every))
    with atomic_write(to) as temporary:
        # the name of a folder may be no text
        temporary.write_text(page, encoding="utf-8", errors="replace")
    return found


def keep(folder: Path, to: Path, every: float) -> None:
    """Write the page again and again until Ctrl-C.

    A share that is away for a moment is said, and tried again.
    """
    print(f"Ctrl-C ends it; until then it is written again every {every:g} s", flush=True)
    while True:
        time.sleep(every)
        try:
            write(folder, to, every)
        # a page that is looked at goes on, whatever a stranger's files provoke
        except Exception as error:
            print(f"{datetime.now():%H:%M:%S} not written: {error}", file=sys.stderr, flush=True)


def seconds(text: str) -> float:
    """The number of seconds of --every. ValueError for less than one, or more than a day."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 1 <= value <= 86_400:
        raise ValueError(
            f"--every {text} is no number of seconds from 1 to 86400. Ten or thirty will do for a "
            "class."
        )
    return value


# --- What the template shows ----------------------------------------------------------------------


def _contents(folder: Path, found: list[Student], every: float | None) -> dict:
    notebooks = {
        path.name[:2]: path.stem[3:].replace("_", " ")
        for path in sorted((PROJECT / "notebooks").glob("[0-9]*.ipynb"))
    }
    begun = {number for student in found for number in student.stages}
    return {
        "name": folder.resolve().name or str(folder),
        "written": datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S"),
        "every": every,
        "students": found,
        "notebooks": {
            number: title
            for number, title in notebooks.items()
            if number <= "05" or number in begun
        },
        "finished": Counter(
            number for one in found for number, stage in one.stages.items() if stage.state == "done"
        ),
        "to_help": list(_to_help(found)),
        "ago": ago,
        "marks": marks,
        "exercises": _exercises(found),
        "curves": curves(found),
        "size": (_WIDTH, _HEIGHT),
    }


def _to_help(found: list[Student]) -> Iterator[tuple[str, list[str]]]:
    """Who needs a look, and why: what could not be read, then what failed, notebook by notebook."""
    for student in found:
        failed = [
            f"Notebook {number}, {stage.fault}"
            for number, stage in student.stages.items()
            if stage.fault
        ]
        if student.troubles or failed:
            yield student.name, [*student.troubles, *failed]


def marks(stage: students.Stage) -> str:
    """How many exercises of a notebook are right, and how many wrong, in words; empty where none
    was answered.

    >>> marks(students.Stage("done", exercises=(students.Exercise("1.1", "right"), students.Exercise("1.2", "wrong"))))
    '1/2 right, 1 wrong'
    """
    states = Counter(exercise.state for exercise in stage.exercises)
    said = [f"{states['right']}/{len(stage.exercises)} right"] * bool(
        states["right"] or states["wrong"]
    )
    said += [f"{states[state]} {state}" for state in ("wrong", "noted") if states[state]]
    return ", ".join(said)


def _exercises(found: list[Student]) -> list[dict]:
    """A row an exercise: how many are right, wrong, not answered; who is wrong, with what the check
    said.
    """
    rows: dict[str, dict] = {}
    for student in found:
        for stage in student.stages.values():
            for one in stage.exercises:
                row = rows.setdefault(
                    one.title, {"title": one.title, "counts": Counter(), "wrong": []}
                )
                row["counts"][one.state] += 1
                row["wrong"] += [(student.name, one.said)] * (one.state == "wrong")
    return [rows[title] for title in sorted(rows, key=_in_order)]


def _in_order(title: str) -> tuple[int, int, str]:
    first, _, second = title.partition(":")[0].partition(".")
    return (int(first), int(second), title)


def ago(then: float | None, now: float | None = None) -> str:
    """How long ago a moment was, in the one unit that matters; a dash where there is none.

    >>> ago(0.0, 59.0), ago(0.0, 600.0), ago(0.0, 7200.0), ago(0.0, 200_000.0), ago(9.0, 0.0), ago(None)
    ('now', '10 min ago', '2 h ago', '2 days ago', 'now', '–')
    """
    if then is None:
        return "–"
    passed = (time.time() if now is None else now) - then
    for unit, size in (("days", 86_400), ("h", 3600), ("min", 60)):
        if passed >= size * (2 if unit == "days" else 1):
            return f"{passed // size:.0f} {unit} ago"
    return "now"


# --- Curves ---------------------------------------------------------------------------------------


def curves(found: list[Student]) -> dict:
    """A panel a student on one scale, with everybody's curve behind it; one that is on another
    scale altogether has its own.

    Thirty lines in one panel cannot be told apart, by colour or otherwise; a name above each panel
    can be read.
    """
    drawn = {student.name: student.curve for student in found if student.curve}
    shared = {
        name: curve for name, curve in drawn.items() if not _apart(curve, list(drawn.values()))
    }
    scale = _scale(list(shared.values()))
    lines = {name: _line(curve, scale) for name, curve in shared.items()}
    return {
        "scale": scale,
        "lines": list(lines.values()),
        "panels": [
            _panel(name, curve, scale if name in shared else None) for name, curve in drawn.items()
        ],
        "without": [student.name for student in found if not student.curve],
    }


def _apart(curve: Curve, all_of_them: list[Curve]) -> bool:
    return any(
        size(curve) > _APART * statistics.median(map(size, all_of_them))
        for size in (_length, _reach)
    )


def _length(curve: Curve) -> float:
    return curve.of or curve.steps[-1]


def _reach(curve: Curve) -> float:
    return max(map(abs, curve.rewards))


def _scale(chosen: list[Curve]) -> tuple[float, float, float]:
    """The last step, the lowest and the highest reward; 0 is always among the rewards."""
    rewards = [reward for curve in chosen for reward in curve.rewards] or [0.0]
    low, high = min(0.0, *rewards), max(0.0, *rewards)
    return max(map(_length, chosen), default=1.0), low, high if high > low else low + 1.0


def _line(curve: Curve, scale: tuple[float, float, float]) -> str:
    """The points of a polyline. Steps grow to the right; a lone point becomes a dash."""
    (last, low, high), first = scale, min(1.0, curve.steps[0])
    width = max(1.0, last - first)
    points = [
        (_WIDTH * (step - first) / width, _HEIGHT * (high - reward) / (high - low))
        for step, reward in zip(curve.steps, curve.rewards, strict=True)
    ]
    points += [(points[0][0] + 2, points[0][1])] * (len(points) == 1)
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _panel(name: str, curve: Curve, scale: tuple[float, float, float] | None) -> dict:
    own = scale is None
    scale = scale or _scale([curve])
    end = statistics.fmean(curve.rewards[-_LAST:])
    where = f"step {curve.steps[-1]:g}" + (f" of {curve.of}, training" if curve.of else "")
    said = f"{curve.rewards[0]:.3g} → {end:.3g}, {where}"
    return {
        "name": name,
        "run": curve.run,
        "said": said,
        "own": own,
        "line": _line(curve, scale),
        "scale": [f"{number:.3g}" for number in scale],
        "zero": f"{_HEIGHT * scale[2] / (scale[2] - scale[1]):.1f}"
        if math.isfinite(scale[2])
        else "0",
    }
