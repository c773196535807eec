"""A shared folder of students' runs, read with care: who is at which notebook, what failed and
where, the answers, the curve.

The folders are other people's. Nothing in them is executed, no symbolic link is followed, no large
file is read, and what cannot be read becomes a sentence about it: one student's broken folder is no
end to the class. What a student could do by exchanging a folder for a link in the moment between
two looks is not guarded against.
"""

from __future__ import annotations

import csv
import itertools
import json
import math
import os
import re
import stat
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from helpers import PROJECT
from helpers.runs import ASIDE
from helpers.shapes import MANIFEST, REWARD_REPORT, Shape, count, misfit, whole

MOST = 500  # folders of a class; more are not one
_FOLDERS, _ENTRIES = 60, 2000  # looked into in a student's folder; read of a listing
_BYTES = {".ipynb": 10_000_000, ".json": 2_000_000, ".csv": 5_000_000}
_POINTS = 160  # of a curve: more cannot be seen
_SAID = 300  # characters of a message
_LARGEST = 10**9  # step, or reward, of a curve that can be drawn
_CELLS = 10**6  # executed in a session; more are made up
_LINK = "is a symbolic link, which is not followed"
_FILES = ("manifest.json", "reward_report.json", "metrics.csv", "figures/loss.png")
_FILES += ("checkpoints/metrics.csv", "checkpoints/settings.json", "checkpoints/finished")
_INSIDE = ("notebooks", "checkpoints", "figures")  # folders of a run that hold some of them
# of the manifest, and who writes them
_SECTIONS = {"data": "01", "rewards": "02", "training": "03", "merge": "05"}
# the runs of 07, 09 and 10, which write the same sections
LESSONS = ("your-own-task", "code-that-runs", "agents")
_NOTEBOOK = re.compile(r"(\d\d)_\w+\.ipynb")
_EXERCISE = re.compile(r"^### Exercise (\d{1,3}\.\d{1,3}: .+)", re.MULTILINE)
# as committed; in an edition
_CHECKED = re.compile(r"^print\((check_\w+\(|verdict_on_\w+\))", re.MULTILINE)
# how a check's message begins; else it is wrong
_ANSWERS = {"Right": "right", "Noted": "noted", "Not answered yet": "open"}

_TEXT = (str, [str])
_OUTPUT = {"output_type": str, "text?": _TEXT, "ename?": str, "evalue?": str}
_CELL = {"cell_type": str, "source": _TEXT, "metadata?": {"tags?": [str]}, "outputs?": [_OUTPUT]}
_CELL |= {"execution_count?": (whole, type(None))}
_COPY = {"cells": [_CELL]}


@dataclass(frozen=True)
class Exercise:
    """state: right, wrong, open (not answered yet), or noted, by an edition whose checks do not
    judge. said: the check.
    """

    title: str
    state: str
    said: str = ""


@dataclass(frozen=True)
class Stage:
    """One notebook of one student.

    state: done, failed, begun, open, or demo, which was fetched. about: how far it is.

    fault: the cell and the message of its first error. changed: when its copy was saved, or its
    part of the manifest written.
    """

    state: str
    about: str = ""
    fault: str = ""
    exercises: tuple[Exercise, ...] = ()
    changed: float = 0.0


@dataclass(frozen=True)
class Curve:
    """Steps and rewards of a training, thinned out.

    of: the steps it will have, while it goes on; None when it has ended.
    """

    run: str
    steps: list[float]
    rewards: list[float]
    of: int | None = None


@dataclass(frozen=True)
class Student:
    """What a folder says. stages: by the number of the notebook.

    troubles: what could not be read, a sentence each.
    """

    name: str
    stages: dict[str, Stage] = field(default_factory=dict)
    curve: Curve | None = None
    changed: float | None = None
    troubles: tuple[str, ...] = ()


def read(folder: Path) -> list[Student]:
    """The students of a shared folder, one a folder in it, by name.

    ValueError where there is no such folder, or no class.
    """
    if not folder.is_dir():
        raise ValueError(
            f"{folder} is not a folder. Name the one that holds a folder for each student: --runs "
            "DIR."
        )
    with os.scandir(folder) as entries:
        found = [
            entry
            for entry in itertools.islice(entries, 20 * MOST)
            if not entry.name.startswith(".")
        ]
    found = [entry for entry in found if entry.is_symlink() or entry.is_dir(follow_symlinks=False)]
    if len(found) > MOST:
        raise ValueError(
            f"{folder} holds more than {MOST} folders: that is no class. Name the folder that "
            "holds the students'."
        )
    return [
        _student(entry)
        for entry in sorted(found, key=lambda entry: (entry.name.casefold(), entry.name))
    ]


def _student(entry: os.DirEntry) -> Student:
    if entry.is_symlink():
        how = (
            "Copy what it points to, or let the student work in this folder itself: "
            "GRPO_RUNS_DIR names it"
        )
        return Student(entry.name, troubles=(f"The folder {_LINK}. {how}.",))
    troubles: list[str] = []
    try:
        return _read_student(Path(entry.path), troubles)
    except Exception as error:  # whatever a stranger's files provoke, the others are shown
        return Student(
            entry.name, troubles=(*troubles, f"The folder cannot be read ({_why(error)}).")
        )


def _read_student(folder: Path, troubles: list[str]) -> Student:
    places = _places(folder, troubles)
    if len(places) > _FOLDERS:
        troubles.append(
            f"It holds {len(places)} folders; {_FOLDERS} were read, those that changed last."
        )
    stages: dict[str, list[Stage]] = {}
    curves: list[tuple[float, Curve]] = []
    changed: list[float] = []
    for place in sorted(places, key=_changed, reverse=True)[:_FOLDERS]:
        files = _files(place, folder, troubles)
        changed += filter(None, map(_changed, files.values()))
        manifest = _tried(
            lambda path: _json(path, MANIFEST), files.get("manifest.json"), folder, troubles
        )
        came = _came_with_the_demo(manifest)
        # what a mended run held: done is done, and what was broken is mended
        before = place.parent.name == ASIDE
        for number, stage in (
            *_copies(files, folder, troubles),
            *_left(place, manifest, came, files, folder, troubles),
        ):
            if stage.state == "done" or not before:
                stages.setdefault(number, []).append(stage)
        curves += [] if before else _curves(place, came, files, folder, troubles)
    together = {number: _together(found) for number, found in sorted(stages.items())}
    newest = max(curves, key=lambda one: one[0], default=(0.0, None))[1]
    return Student(
        folder.name, together, newest, max(changed, default=None), tuple(dict.fromkeys(troubles))
    )


# --- The files ------------------------------------------------------------------------------------


def _listing(folder: Path) -> list[os.DirEntry]:
    with os.scandir(folder) as entries:
        return list(itertools.islice(entries, _ENTRIES))


def _places(folder: Path, troubles: list[str]) -> list[Path]:
    """Where runs and copies of notebooks may lie: the folder itself, those in it, in its `runs/`,
    and what was set aside.
    """
    inside = _folders(folder, folder, troubles)
    places = [
        folder,
        *inside,
        *(
            place
            for path in inside
            if path.name == "runs"
            for place in _folders(path, folder, troubles)
        ),
    ]
    asides = [place / ASIDE for place in places if _is_folder(place / ASIDE)]
    return [*places, *(place for path in asides for place in _folders(path, folder, troubles))]


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _folders(folder: Path, student: Path, troubles: list[str]) -> list[Path]:
    entries = [entry for entry in _listing(folder) if not entry.name.startswith(".")]
    troubles += [
        f"{_shown(Path(entry.path), student)} {_LINK}." for entry in entries if entry.is_symlink()
    ]
    return [
        Path(entry.path)
        for entry in entries
        if entry.is_dir(follow_symlinks=False) and entry.name not in _INSIDE
    ]


def _files(place: Path, student: Path, troubles: list[str]) -> dict[str, Path]:
    """The files in a place that are worth reading, by their path in it; of what a link hides, a
    trouble.
    """
    found: dict[str, Path] = {}
    for inside in ("", *_INSIDE):
        try:
            mode = os.lstat(place / inside).st_mode
            if stat.S_ISLNK(mode):
                troubles.append(f"{_shown(place / inside, student)} {_LINK}.")
            entries = _listing(place / inside) if stat.S_ISDIR(mode) else []
        except FileNotFoundError:
            continue
        except OSError as error:
            troubles.append(f"{_shown(place / inside, student)} cannot be read ({_why(error)}).")
            continue
        for entry in entries:
            name = f"{inside}/{entry.name}" if inside else entry.name
            if name not in _FILES and not (
                inside in ("", "notebooks") and _NOTEBOOK.fullmatch(entry.name)
            ):
                continue
            if entry.is_symlink():
                troubles.append(f"{_shown(Path(entry.path), student)} {_LINK}.")
            else:
                found[name] = Path(entry.path)
    return found


def _shown(path: Path, student: Path) -> str:
    return path.relative_to(student).as_posix()


def _changed(path: Path) -> float:
    try:
        return os.lstat(path).st_mtime
    except OSError:  # replaced just now, or in a folder that may only be listed
        return 0.0


def _text(path: Path) -> str:
    """A plain file as text.

    ValueError where it is too large, no text, or no file: opening a pipe would wait for ever.
    """
    flags = (
        os.O_RDONLY
        | getattr(os, "O_NOFOLLOW", 0)
        | getattr(os, "O_NONBLOCK", 0)
        | getattr(os, "O_BINARY", 0)
    )
    most, opened = _BYTES[path.suffix], os.open(path, flags)
    try:
        about = os.fstat(opened)
        if not stat.S_ISREG(about.st_mode):
            raise ValueError("it is no plain file")
        if about.st_size > most:
            raise ValueError(f"it is larger than {most // 1_000_000} MB")
        with open(opened, "rb", closefd=False) as file:
            return file.read(most).decode("utf-8")
    finally:
        os.close(opened)


def _json(path: Path, shape: Shape) -> dict:
    content = json.loads(_text(path))
    wrong = misfit(content, shape)
    if wrong:
        raise ValueError(wrong)
    return content


def _tried(read: Callable, path: Path | None, student: Path, troubles: list[str]):
    """What `read` makes of a file; None, and a trouble, where it cannot be read."""
    if path is None:
        return None
    try:
        return read(path)
    except FileNotFoundError:  # replaced just now
        return None
    except (OSError, ValueError, RecursionError, csv.Error) as error:
        troubles.append(f"{_shown(path, student)} cannot be read ({_why(error)}).")
        return None


def _why(error: BaseException) -> str:
    known = {UnicodeDecodeError: "it is no text", RecursionError: "it is nested too deeply"}
    said = error.strerror if isinstance(error, OSError) else str(error)
    return known.get(type(error)) or short(said or type(error).__name__)


def short(text: str) -> str:
    """A message of somebody's, without the colours and control characters of a terminal, and of
    bearable length.
    """
    text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text[: 20 * _SAID])
    text = " ".join(
        "".join(character if character.isprintable() else " " for character in text).split()
    )
    return text if len(text) <= _SAID else f"{text[:_SAID]}…"


# --- Notebooks ------------------------------------------------------------------------------------


def _copies(
    files: dict[str, Path], student: Path, troubles: list[str]
) -> Iterator[tuple[str, Stage]]:
    for path in files.values():
        number = _NOTEBOOK.fullmatch(path.name)
        stage = _tried(_copy, path, student, troubles) if number else None
        if stage:
            yield number[1], stage


def _copy(path: Path) -> Stage | None:
    """What the copy of a notebook says; None of one as it is committed, whose outputs are nobody's
    in the class.
    """
    committed = PROJECT / "notebooks" / path.name
    text = _text(path)
    if committed.is_file() and committed.read_text(encoding="utf-8") == text:
        return None
    content = json.loads(text)
    wrong = misfit(content, _COPY)
    if wrong:
        raise ValueError(wrong)
    heading, title, ran, of, fault = "", "", 0, 0, ""
    exercises: dict[str, Exercise] = {}
    for cell in content["cells"]:
        source, tags = _joined(cell["source"]), cell.get("metadata", {}).get("tags", [])
        if cell["cell_type"] == "markdown":
            heading = next(
                (line for line in reversed(source.splitlines()) if line.startswith("#")), heading
            )
            title = next(iter(_EXERCISE.findall(source)), title)
        if cell["cell_type"] != "code" or not source.strip():
            continue
        if title and _is_answered(source, tags):
            exercises[title] = _exercise(title, cell)
        if "solution" not in tags:
            of, ran = of + 1, ran + (cell.get("execution_count") is not None)
        if not fault and "raises-exception" not in tags:
            fault = _fault(cell, heading)
    state = "failed" if fault else "open" if not ran else "done" if ran == of else "begun"
    return Stage(
        state, f"{ran}/{of}", fault, tuple(exercises.values()) if ran else (), _changed(path)
    )


def _joined(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)


def _error(cell: dict) -> tuple[str, str] | None:
    found = (output for output in cell.get("outputs", []) if output["output_type"] == "error")
    return next(
        ((output.get("ename", "error"), short(output.get("evalue", ""))) for output in found), None
    )


def _fault(cell: dict, heading: str) -> str:
    """The first error of a cell, with where it is; empty without one."""
    error = _error(cell)
    if error is None:
        return ""
    number = cell.get("execution_count")
    where = "a cell" if number is None or not 0 <= number < _CELLS else f"cell [{number}]"
    under = f" under “{short(heading.lstrip('# '))}”" if heading else ""
    return f"{where}{under}: {short(error[0])}: {error[1]}".removesuffix(": ")


def _is_answered(source: str, tags: list[str]) -> bool:
    """Whether a cell says how an exercise stands: it calls the check, and is not the solution that
    everybody has been given.
    """
    return bool(_CHECKED.search(source)) and "solution" not in tags


def _exercise(title: str, cell: dict) -> Exercise:
    """How an exercise stands, by the last verdict that its cell printed; an error without one is a
    wrong answer.

    NotImplementedError is none: nbgrader's editions raise it where nobody has written anything.
    """
    streams = (
        output.get("text", "")
        for output in cell.get("outputs", [])
        if output["output_type"] == "stream"
    )
    lines = [line for line in "".join(map(_joined, streams)).splitlines() if line.strip()]
    verdicts = (
        state
        for line in reversed(lines)
        for begin, state in _ANSWERS.items()
        if line.startswith(begin)
    )
    error = _error(cell)
    if lines or not error:
        return Exercise(
            short(title), next(verdicts, "wrong" if lines else "open"), short(" ".join(lines))
        )
    return Exercise(
        short(title),
        "open" if error[0] == "NotImplementedError" else "wrong",
        short(": ".join(error)),
    )


# --- What the notebooks left ----------------------------------------------------------------------


def _came_with_the_demo(manifest: dict | None) -> set[str]:
    """The notebooks whose part of a run was fetched with the demo, by `checkpoint`, and not done
    again since.
    """
    manifest = manifest or {}
    fetched = manifest.get("demo", {})
    again = {
        number
        for section, number in _SECTIONS.items()
        if _written(manifest.get(section)) > _written(fetched)
    }
    return set(fetched.get("notebooks", ())) - again if "written" in fetched else set()


def _written(section: dict | None) -> float:
    written = (section or {}).get("written")
    return datetime.fromisoformat(written).timestamp() if written else 0.0


def _left(
    place: Path,
    manifest: dict | None,
    came: set[str],
    files: dict[str, Path],
    student: Path,
    troubles: list[str],
) -> Iterator[tuple[str, Stage]]:
    """Stages by the files of a run: who reads along in Jupyter has no executed copies."""
    if place.name.startswith(LESSONS):
        return
    if manifest is None and "manifest.json" in files:  # what else lies there may be of any run
        return
    manifest = manifest or {}
    yield from ((number, Stage("demo")) for number in came)
    for section, number in _SECTIONS.items():
        about = manifest.get(section)
        if about and number not in came:
            stage = Stage("done", changed=_written(about))
            yield (
                number,
                replace(stage, fault=_no_go(about, files, student, troubles))
                if section == "rewards"
                else stage,
            )
    if "figures/loss.png" in files and "04" not in came:
        yield "04", Stage("done", changed=_changed(files["figures/loss.png"]))
    if "checkpoints/settings.json" in files and "checkpoints/finished" not in files:
        yield "03", Stage("begun", "training", changed=_changed(files["checkpoints/settings.json"]))


def _no_go(rewards: dict, files: dict[str, Path], student: Path, troubles: list[str]) -> str:
    """Why the laboratory advised against training; empty where it did not."""
    if rewards.get("go", True):
        return ""
    report = _tried(
        lambda path: _json(path, REWARD_REPORT), files.get("reward_report.json"), student, troubles
    )
    stops = report["verdict"]["stops"] if report else []
    return short(" ".join(["no go for the rewards.", *stops]))


def _together(found: list[Stage]) -> Stage:
    """One stage out of several copies and files: what was saved last counts, but what was done
    stays done until it fails.
    """
    found = sorted(found, key=lambda stage: stage.changed)
    last, done = found[-1], [stage for stage in found if stage.state == "done"]
    chosen = done[-1] if done and last.state in ("begun", "open") else last
    exercises = next((stage.exercises for stage in reversed(found) if stage.exercises), ())
    return replace(chosen, exercises=exercises)


def _curves(
    place: Path, came: set[str], files: dict[str, Path], student: Path, troubles: list[str]
) -> Iterator[tuple[float, Curve]]:
    """The curve of a run with when it was written: of the training that goes on, else of the last
    that ended.
    """
    going_on = "checkpoints/metrics.csv" in files and "checkpoints/finished" not in files
    path = (
        files.get("checkpoints/metrics.csv" if going_on else "metrics.csv")
        if going_on or "03" not in came
        else None
    )
    points = _tried(_points, path, student, troubles)
    if points:
        settings = files.get("checkpoints/settings.json") if going_on else None
        of = _tried(_steps, settings, student, troubles)
        yield _changed(path), Curve("" if place == student else place.name, *points, of)


def _steps(path: Path) -> int:
    """The steps that a training will have, by its settings."""
    steps = _json(path, {"settings": {"max_steps": count}})["settings"]["max_steps"]
    if steps >= _LARGEST:
        raise ValueError("settings.max_steps is no number of steps")
    return steps


def _points(path: Path) -> tuple[list[float], list[float]]:
    """Steps and rewards, in order, at most `_POINTS` of them, each the mean of those it
    stands for.
    """
    rows = []
    for row in csv.DictReader(_text(path).splitlines()):
        try:
            step, reward = float(row["step"]), float(row["reward"])
        except (KeyError, TypeError, ValueError):  # a line that is being written
            continue
        if math.isfinite(reward) and 0 <= step < _LARGEST and abs(reward) < _LARGEST:
            rows.append((step, reward))
    if not rows:
        raise ValueError("it has no step with a reward")
    rows.sort()
    size = math.ceil(len(rows) / _POINTS)
    parts = [rows[at : at + size] for at in range(0, len(rows), size)]
    steps, rewards = (
        [statistics.fmean(one[column] for one in part) for part in parts] for column in (0, 1)
    )
    return [rows[0][0], *steps[1:-1], rows[-1][0]] if len(steps) > 1 else steps, rewards
