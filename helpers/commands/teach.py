"""Four editions of the notebooks, made from the marks in the committed ones: workshop, student,
solutions, instructor.

In a committed notebook an exercise is three code cells, tagged `check`, `exercise` and `solution`
(see CONTRIBUTING.md). In an edition it has one cell to answer in, with the check behind it: an
answer cannot redefine the function that judges it.

- instructor: solutions, hidden tests, points, notes and outputs. This is what `nbgrader
  generate_assignment` releases from.
- student: the same after nbgrader's own rules (`clearsolutions.py` and `clearhiddentests.py` of
  nbgrader 0.9.6), so it is what nbgrader would release: `raise NotImplementedError()` in place of a
  solution, no hidden test, no output.
- workshop: the student's for a class that nobody grades. The checks are whole, so they name a
  mistake; who unfolds one can read the answer in it.
- solutions: to read and to run afterwards. Nothing is hidden, no marks, no outputs.

No later cell needs an answer. So that an exercise left out does not end "Run all", the cells that
may raise are tagged `raises-exception`: Jupyter shows the error and goes on, and nbgrader, which
goes on anyhow, gives no points.
"""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from helpers import PROJECT
from helpers.commands import arguments
from helpers.runs import atomic_folder

NOTEBOOKS = PROJECT / "notebooks"
# what the notebooks link to and read; a guide for teachers is for no student
BESIDE = ("GLOSSARY.md", "data")
POINTS = {"easy": 1, "medium": 2, "hard": 3}
STUB = "# YOUR CODE HERE\nraise NotImplementedError()"  # nbgrader's own
# anywhere in a line, as nbgrader reads it
_MARK = re.compile(r"(BEGIN|END) (SOLUTION|HIDDEN TESTS)")
_TAGGED = {"SOLUTION": "solution", "HIDDEN TESTS": "check"}
_CELLS = ("check", "exercise", "solution")  # in this order
_CALL = re.compile(r"\n*^print\((check_(\w+)\(.*\))\)\s*\Z", re.MULTILINE)
_DELETE = "Delete the line `raise NotImplementedError()`:"  # left in, it ends an answered cell, too
# what a check asks of its verdict where it does not know the answer
_NOTED = '.startswith(("Right", "Noted"))'
_LEVEL = re.compile(r"\*\*(\d+ minutes?), (easy|medium|hard)\.\*\*")


@dataclass(frozen=True)
class Exercise:
    """An exercise of a notebook: what it is called, and its three code cells, as their indices."""

    name: str  # of the variable or function that answers it
    title: str
    level: str  # "5 minutes, easy", or "" where the text does not say
    points: int
    check: int
    exercise: int
    solution: int


# --- Reading the marks ----------------------------------------------------------------------------


def exercises(notebook: NotebookNode) -> list[Exercise]:
    """The exercises of a notebook, in its order.

    ValueError, with cell and line from 1, for marks that would not hold.
    """
    found, open_ = [], {}
    for index, cell in enumerate(notebook.cells):
        _refuse_loose_marks(cell, index)
        for tag in [tag for tag in _CELLS if tag in cell.metadata.get("tags", [])]:
            if cell.cell_type != "code":
                raise ValueError(
                    f"cell {index + 1} is tagged {tag}, and is a {cell.cell_type} cell: it must "
                    "be a code cell."
                )
            if tag != _CELLS[len(open_)]:
                raise ValueError(
                    f"cell {index + 1} is tagged {tag}; the next of an exercise must be "
                    f"{_CELLS[len(open_)]}."
                )
            open_[tag] = index
            if tag == "solution":
                found.append(_exercise(notebook.cells, **open_))
                open_ = {}
    names = [exercise.name for exercise in found]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(
            f"two of its exercises are answered by {twice[0]!r}; nbgrader tells exercises apart "
            "by their names."
        )
    if open_:
        last = [*open_][-1]
        raise ValueError(
            f"cell {open_[last] + 1} is tagged {last}, and no {_CELLS[len(open_)]} comes after it."
        )
    return found


def _refuse_loose_marks(cell: NotebookNode, index: int) -> None:
    """ValueError where a mark is unfinished, or where it stands in a cell in which it would hide
    nothing.
    """
    begun, began_in = None, 0
    for number, line in enumerate(cell.source.splitlines(), start=1):
        if not (match := _MARK.search(line)):
            continue
        edge, kind = match.groups()
        where = f"cell {index + 1}, line {number}: {line.strip()!r}"
        if _TAGGED[kind] not in cell.metadata.get("tags", []):
            raise ValueError(
                f"{where} stands in a cell that is not tagged {_TAGGED[kind]}, so students would "
                "read on."
            )
        if edge == "BEGIN" and begun:
            raise ValueError(
                f"{where} begins before line {began_in} has found its ### END {begun}."
            )
        if edge == "END" and kind != begun:
            raise ValueError(
                f"{where} ends what has not begun: a ### BEGIN {kind} must stand before it."
            )
        begun, began_in = (kind, number) if edge == "BEGIN" else (None, 0)
    if begun:
        raise ValueError(
            f"cell {index + 1}, line {began_in}: ### BEGIN {begun} has no ### END {begun} after it."
        )


def _exercise(cells: list[NotebookNode], check: int, exercise: int, solution: int) -> Exercise:
    where = f"cell {solution + 1}"
    call = _CALL.search(cells[solution].source)
    if not call:
        raise ValueError(
            f"{where}, tagged solution, must end with the call of its check: "
            "print(check_NAME(NAME))."
        )
    if not (same := _CALL.search(cells[exercise].source)) or same[1] != call[1]:
        raise ValueError(
            f"cell {exercise + 1}, tagged exercise, must end as the solution does: "
            f"{call[0].strip()}"
        )
    around = _outside(cells[solution].source, "SOLUTION").strip()
    if len(re.findall("BEGIN SOLUTION", cells[solution].source)) != 1 or around != call[0].strip():
        raise ValueError(
            f"{where}, tagged solution, must be ### BEGIN SOLUTION, lines, ### END SOLUTION, and "
            "that call."
        )
    if "BEGIN HIDDEN TESTS" not in cells[check].source:
        raise ValueError(
            f"cell {check + 1}, tagged check, has no ### BEGIN HIDDEN TESTS: students would read "
            "the answer."
        )
    _definition(cells[check].source, call[2], check)
    text = (
        next((cell.source for cell in cells[check - 1 :: -1] if cell.cell_type == "markdown"), "")
        if check
        else ""
    )
    level = _LEVEL.search(text)
    title = re.match(r"#+ (.+)", text)
    points = POINTS[level[2]] if level else 1
    said = ", ".join(level.groups()) if level else ""
    return Exercise(
        call[2], title[1] if title else call[2], said, points, check, exercise, solution
    )


def _definition(source: str, name: str, index: int) -> tuple[str, str]:
    """Of a check's cell, the function `check_<name>`, and all else: imports, or a figure that the
    question is about.

    ValueError without that function, and for a mark beside it, which nbgrader would not look for
    there.
    """
    try:
        statements = ast.parse(source).body
    except SyntaxError as error:
        raise ValueError(
            f"cell {index + 1}, line {error.lineno}: this is no Python ({error.msg})."
        ) from None
    lines = source.splitlines()
    for position, statement in enumerate(statements):
        if isinstance(statement, ast.FunctionDef) and statement.name == f"check_{name}":
            begin = _begin(statement)
            # To the next statement, because a mark, which is a comment, belongs to no statement.
            end = _begin(statements[position + 1]) if position + 1 < len(statements) else len(lines)
            for number, line in enumerate(lines, start=1):
                if _MARK.search(line) and not begin < number <= end:
                    where = f"cell {index + 1}, line {number}: {line.strip()!r}"
                    raise ValueError(
                        f"{where} stands outside of check_{name}, so students would read on."
                    )
            return "\n".join(lines[begin:end]).rstrip(), "\n".join(
                lines[:begin] + lines[end:]
            ).strip()
    raise ValueError(
        f"cell {index + 1}, tagged check, does not define check_{name}, which the solution calls."
    )


def _begin(statement: ast.stmt) -> int:
    """The line on which a statement begins, from 0: that of its first decorator, if it has one."""
    return [*getattr(statement, "decorator_list", []), statement][0].lineno - 1


def _outside(source: str, kind: str, instead: str | None = None) -> str:
    """A cell's source without what stands between two marks, and `instead` in its place: what
    nbgrader makes of it.
    """
    kept, inside = [], False
    for line in source.split("\n"):
        if f"BEGIN {kind}" in line:
            inside = True
            kept += (
                []
                if instead is None
                else [re.match(r"\s*", line)[0] + part for part in instead.split("\n")]
            )
        elif f"END {kind}" in line:
            inside = False
        elif not inside:
            kept.append(line)
    return "\n".join(kept)


# --- From a notebook to a notebook ----------------------------------------------------------------


def instructor(notebook: NotebookNode) -> NotebookNode:
    """The edition with everything, nbgrader's source: the notes are hidden tests, too.

    ValueError as `exercises`.
    """
    made = _merged(notebook)
    checks = [cell for cell in _graded(made) if cell.metadata["nbgrader"]["grade"]]
    for exercise, check in zip(exercises(notebook), checks, strict=True):
        told = " ".join("".join(output.get("text", "") for output in check.outputs).split())
        notes = [exercise.title, exercise.level, told and f"A right answer is told: {told}"]
        lines = [
            "### BEGIN HIDDEN TESTS",
            *(f"# {note}" for note in notes if note),
            "### END HIDDEN TESTS",
            check.source,
        ]
        check.source = "\n".join(lines)
    return made


def student(notebook: NotebookNode) -> NotebookNode:
    """The edition to hand out: nbgrader's release of the instructor's, but for checksums.

    ValueError as `exercises`.
    """
    made = _released(notebook)
    for cell in _graded(made):
        cell.source = _outside(cell.source, "HIDDEN TESTS")
    return made


def workshop(notebook: NotebookNode) -> NotebookNode:
    """The edition for a class without grades: the student's, and its checks know the answers.

    ValueError as `exercises`.
    """
    made = _released(notebook)
    for cell in _graded(made):
        cell.source = _whole(cell.source)
    return made


def _released(notebook: NotebookNode) -> NotebookNode:
    """Without outputs and solutions; whoever answers can neither delete an exercise nor edit its
    check.
    """
    made = _without_outputs(_merged(notebook))
    for cell in _graded(made):
        cell.source = _outside(cell.source, "SOLUTION", STUB)
        cell.metadata["deletable"] = False
        if cell.metadata["nbgrader"]["locked"]:
            cell.metadata["editable"] = False
    return made


def _whole(source: str) -> str:
    """A cell without its marks. A check that knows the answer asks for nothing less than it."""
    kept = [line for line in source.split("\n") if not _MARK.search(line)]
    return "\n".join(
        line for line in kept if not (line.startswith("assert verdict_on_") and _NOTED in line)
    )


def solutions(notebook: NotebookNode) -> NotebookNode:
    """The edition to read afterwards: one cell with the solution, and the whole check.

    ValueError as `exercises`.
    """
    made = _without_outputs(_merged(notebook, answered=True))
    for cell in _graded(made):
        # what the student was given goes
        source = cell.source.partition("### BEGIN SOLUTION\n")[2] or cell.source
        cell.source = _whole(source)
        cell.metadata["tags"].remove("raises-exception")  # a solution that fails is to be seen
        del cell.metadata["nbgrader"]
    return made


def _merged(notebook: NotebookNode, answered: bool = False) -> NotebookNode:
    """A copy in which each exercise has one cell with the solution, and behind it one with the
    whole check: nbgrader's way.
    """
    made = deepcopy(notebook)
    # from behind, so that the indices before stay true
    for exercise in reversed(exercises(notebook)):
        made.cells[exercise.check : exercise.solution + 1] = _cells(made.cells, exercise, answered)
    return made


def _cells(cells: list[NotebookNode], exercise: Exercise, answered: bool) -> Iterator[NotebookNode]:
    """In place of a check, an exercise and a solution: what the check's cell does besides, the
    answer, and the check.
    """
    besides, answer, check = (
        cells[index] for index in (exercise.check, exercise.exercise, exercise.solution)
    )
    call = _CALL.search(check.source)
    definition, other = _definition(besides.source, exercise.name, exercise.check)
    solution = re.sub(r"\n+(### END)", r"\n\1", check.source[: call.start()])
    answer.source = f"{_CALL.sub('', answer.source)}\n\n{solution}"
    answer.metadata = NotebookNode(
        tags=["exercise", "raises-exception"], nbgrader=_nbgrader(exercise.name, solution=True)
    )
    answer.outputs = []

    verdict = f"verdict_on_{exercise.name}"
    # With the sentence as its message, an error says what is wrong where only errors are shown: in
    # nbgrader's Validate.
    lines = [f"{verdict} = {call[1]}", f"print({verdict})", f"assert {verdict}{_NOTED}, {verdict}"]
    lines += [
        "### BEGIN HIDDEN TESTS",
        f'assert {verdict}.startswith("Right"), {verdict}',
        "### END HIDDEN TESTS",
    ]
    check.source = "\n".join([definition, "", "", *lines])
    graded = _nbgrader(f"check_{exercise.name}", grade=True, locked=True, points=exercise.points)
    check.metadata = NotebookNode(
        tags=["check", "raises-exception"], jupyter={"source_hidden": True}, nbgrader=graded
    )

    if other:
        besides.source, besides.metadata["tags"] = other, []
        yield besides
    before = cells[exercise.check + 1 : exercise.exercise]
    # "Your answer:"
    if (
        not answered
        and before
        and before[-1].cell_type == "markdown"
        and before[-1].source.endswith(":")
    ):
        before[-1].source = f"{before[-1].source[:-1]}. {_DELETE}"
    yield from [*before, answer]
    between = cells[exercise.exercise + 1 : exercise.solution]
    if between and between[-1].cell_type == "markdown":  # "One solution is folded away below."
        worth = "1 point" if exercise.points == 1 else f"{exercise.points} points"
        between[-1].source = f"The check is folded away below: run its cell ({worth})."
    yield from [*between, check]


def _nbgrader(grade_id: str, **given) -> NotebookNode:
    """A cell's metadata for nbgrader 0.9.6 (schema 3)."""
    fixed = {
        "grade": False,
        "locked": False,
        "solution": False,
        "task": False,
        "schema_version": 3,
        "cell_type": "code",
    }
    return NotebookNode(fixed | {"grade_id": grade_id} | given)


def _graded(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if "nbgrader" in cell.metadata]


def _without_outputs(notebook: NotebookNode) -> NotebookNode:
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return notebook


# --- The folder -----------------------------------------------------------------------------------

EDITIONS: dict[str, Callable[[NotebookNode], NotebookNode]] = {
    "workshop": workshop,
    "student": student,
    "solutions": solutions,
    "instructor": instructor,
}


def make(
    edition: str, to: Path, only: str | None = None, source: Path | None = None
) -> dict[str, list[Exercise]]:
    """Write an edition into a new or empty folder, whole or not at all; the exercises of each
    notebook by its file's name.

    only: "01,03" for these notebooks alone. ValueError for a folder that holds something or lies
    among the notebooks, a number that no notebook has, a file that is no notebook, and marks that
    would not hold, with notebook, cell and line.
    """
    to = to.expanduser().resolve()
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise ValueError(
            f"{to} is there and is not an empty folder: name another, or remove it first."
        )
    if to == Path.cwd():
        raise ValueError(f"{to} is where you are, and would be replaced: name another folder.")
    source, made = (source or NOTEBOOKS).resolve(), {}
    if to.is_relative_to(source):
        raise ValueError(
            f"{to} lies in {source}, which the editions are made from: name a folder outside of it."
        )
    with atomic_folder(to) as folder:
        for path in _chosen(source, only):
            notebook = _read(path)
            try:
                made[path.name] = exercises(notebook)
                nbformat.write(EDITIONS[edition](notebook), folder / path.name)
            except ValueError as error:
                raise ValueError(f"{path.name}, {error}") from None
        for path in (source / name for name in BESIDE):
            if path.is_dir():
                shutil.copytree(path, folder / path.name)
            elif path.exists():
                shutil.copy(path, folder)
    return made


def _chosen(source: Path, only: str | None) -> list[Path]:
    every = sorted(source.glob("*.ipynb"))
    if only is None:
        return every
    wanted, there = arguments.numbers(only), [path.name[:2] for path in every]
    if missing := [number for number in wanted if number not in there]:
        raise ValueError(
            f"--only {only}: there is no notebook {missing[0]}. There are: {', '.join(there)}."
        )
    return [path for path in every if path.name[:2] in wanted]


def _read(path: Path) -> NotebookNode:
    try:
        notebook = nbformat.convert(
            nbformat.reader.reads(path.read_text(encoding="utf-8")), to_version=4
        )
        nbformat.validate(notebook)  # `nbformat.read` only logs what is wrong
        return notebook
    except nbformat.ValidationError as error:
        inside = [*error.relative_path]
        where = f", cell {inside[1] + 1}" if inside[:1] == ["cells"] and len(inside) > 1 else ""
        raise ValueError(
            f"{path.name}{where}: this is no valid notebook ({error.message[:200]})."
        ) from None
    except Exception as error:  # nbformat raises its own kinds, for JSON, for a version, for a cell
        raise ValueError(
            f"{path.name} is no notebook that can be read ({type(error).__name__})."
        ) from None
