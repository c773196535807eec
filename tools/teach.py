"""`python -m tools.teach`: four editions of the notebooks, made from the marks in the committed
ones: workshop, student, solutions, instructor.

In a committed notebook an exercise is two code cells, tagged `exercise` and `solution`; its check
is a function of `notebooks/checks/` (see CONTRIBUTING.md). In an edition, the second cell holds the
check itself: it needs no other file, and an answer cannot redefine the function that judges it.

- instructor: solutions, hidden tests, points and outputs. This is what `nbgrader
  generate_assignment` releases from.
- student: what nbgrader releases from it (by the rules of its `ClearSolutions` and
  `ClearHiddenTests`): `raise NotImplementedError()` in place of a solution, no hidden test, no
  output.
- workshop: the student's for a class that nobody grades. The checks are whole, so they name a
  mistake; who unfolds one can read the answer in it.
- solutions: to read and to run afterwards. Nothing is hidden, no marks, no outputs.

No later cell needs an answer. So that an exercise left out does not end "Run all", the cells that
may raise are tagged `raises-exception`: Jupyter shows the error and goes on, and nbgrader, which
goes on anyhow, gives no points.
"""

import argparse
import ast
import re
import shutil
import sys
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbconvert.preprocessors import ClearOutputPreprocessor
from nbformat import NotebookNode

from helpers import PROJECT
from helpers.commands import notebook_numbers

NOTEBOOKS = PROJECT / "notebooks"
EDITIONS = ("workshop", "student", "solutions", "instructor")
POINTS = {"easy": 1, "medium": 2, "hard": 3}
STUB = "# YOUR CODE HERE\nraise NotImplementedError()"  # nbgrader's own
_IMPORT = re.compile(r"from notebooks\.checks\.(?P<file>nb\d\d) import check_(?P<name>\w+)\n+")
_SOLUTION = re.compile(
    r"### BEGIN SOLUTION\n(?P<answer>.*?)\n+### END SOLUTION\n+"
    r"(?P<call>print\((?P<check>check_(?P<name>\w+)\(.*\))\))\s*",
    re.DOTALL,
)
_HIDDEN = re.compile(r"\n?[ \t]*### BEGIN HIDDEN TESTS\n.*?### END HIDDEN TESTS", re.DOTALL)
_MARK = re.compile(r"\n?[ \t]*### (BEGIN|END) (SOLUTION|HIDDEN TESTS)")
FOLDED = "The folded cell below holds a solution."  # what the text of an exercise may end with
_LEVEL = re.compile(r"\*\*\d+ minutes?, (easy|medium|hard)\.\*\*")


def main(typed: list[str] | None = None) -> None:
    """Write the edition that the command line asks for, and print its exercises.

    Raise ValueError, before anything is written, if the folder holds something or lies among the
    notebooks, if no notebook has one of the numbers, or if marks would not hold, with the notebook
    and the cell.
    """
    parser = argparse.ArgumentParser(
        prog="python -m tools.teach",
        description="student: one cell to answer in per exercise, without solutions, hidden tests "
        "and outputs. workshop: the same with whole checks, which name a mistake, for a class "
        "without grades. solutions: the same cells answered, to hand out afterwards. instructor: "
        "with solutions, hidden tests, points and outputs; the source of an assignment of "
        "nbgrader's.",
    )
    parser.add_argument("--edition", required=True, choices=EDITIONS, help="which one, see above")
    parser.add_argument(
        "--to", required=True, metavar="FOLDER", help="where to: a new or an empty folder"
    )
    parser.add_argument(
        "--only", metavar="NN,NN", help="only these notebooks, e.g. 01,02 (default: all)"
    )
    parsed = parser.parse_args(typed)

    to = Path(parsed.to).resolve()
    if to.is_relative_to(NOTEBOOKS.resolve()) or (to.exists() and any(to.iterdir())):
        raise ValueError(f"--to {to}: name a new or an empty folder, outside of {NOTEBOOKS}.")
    paths = {path.name[:2]: path for path in sorted(NOTEBOOKS.glob("*.ipynb"))}
    wanted = list(paths) if parsed.only is None else notebook_numbers(parsed.only)
    if missing := [number for number in wanted if number not in paths]:
        raise ValueError(
            f"--only {parsed.only}: there is no notebook {missing[0]}. There are: "
            f"{', '.join(paths)}."
        )
    editions = {}
    total = 0
    for path in (paths[number] for number in wanted):
        notebook = nbformat.read(path, as_version=4)
        try:
            points = [exercise.points for exercise in exercises(notebook)]
            editions[path.name] = edition_of(parsed.edition, notebook)
        except ValueError as error:
            raise ValueError(f"{path.name}, {error}") from None
        print(f"{path.name:<32}{len(points)} exercises, {sum(points)} points")
        total += sum(points)
    # The notebooks link to the glossary; what they read, they find in the project.
    to.mkdir(parents=True, exist_ok=True)
    for name, notebook in editions.items():
        nbformat.write(notebook, to / name)
    shutil.copy(NOTEBOOKS / "GLOSSARY.md", to)
    print(f"{parsed.to}: the {parsed.edition} edition, {total} points in all")


# --- Reading the marks ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Exercise:
    """An exercise of a notebook: the index of its first code cell, and what is in the two."""

    name: str  # of the variable or function that answers it
    points: int
    cell: int  # the exercise; its solution is the next one
    check: str  # the code that defines check_NAME
    stub: str  # what a student begins with
    answer: str
    call: str  # check_NAME(NAME)


def exercises(notebook: NotebookNode) -> list[Exercise]:
    """Return the exercises of a notebook, in its order.

    Raise ValueError, with the number of the cell from 1, if cells and marks make no exercise.
    """
    listed = []
    tags = [cell.metadata.get("tags", []) for cell in notebook.cells] + [[]]
    for index, cell in enumerate(notebook.cells):
        if "exercise" not in tags[index]:
            if "solution" in tags[index] and "exercise" not in tags[index - 1]:
                raise ValueError(f"cell {index + 1} is a solution without an exercise before it.")
            continue
        solution = "".join(after.source for after in notebook.cells[index + 1 : index + 2])
        parts = _SOLUTION.fullmatch(solution)
        begin = _IMPORT.match(cell.source)
        check = _check(begin["file"], parts["name"]) if begin and parts else ""
        if "solution" not in tags[index + 1] or not (
            _HIDDEN.search(check) and cell.source.endswith(parts["call"])
        ):
            raise ValueError(
                f"cells {index + 1} and {index + 2} are no exercise: the first must import "
                "check_NAME from notebooks.checks and end with print(check_NAME(NAME)); the "
                "second, tagged `solution`, must be ### BEGIN SOLUTION, lines, ### END SOLUTION, "
                "and the same call; and the check must hide its answer between "
                "### BEGIN HIDDEN TESTS and ### END HIDDEN TESTS."
            )
        # The task is the last text before the exercise; it names the level.
        level = _LEVEL.search(notebook.cells[_task(notebook.cells, index)].source)
        listed.append(
            Exercise(
                parts["name"],
                POINTS[level[1]] if level else 1,
                index,
                check,
                cell.source[begin.end() :].removesuffix(parts["call"]).rstrip("\n"),
                parts["answer"],
                parts["check"],
            )
        )
    return listed


def _task(cells: list[NotebookNode], index: int) -> int:
    """Return the index of the last text before a cell."""
    return max(i for i, cell in enumerate(cells[:index]) if cell.cell_type == "markdown")


def _check(file: str, name: str) -> str:
    """Return the code that defines check_NAME: its file's imports and helpers, and the function."""
    source = (NOTEBOOKS / "checks" / f"{file}.py").read_text(encoding="utf-8")
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    checks = [node for node in functions if node.name.startswith("check_")]
    lines = source.splitlines()
    for node in checks:
        if node.name == f"check_{name}":
            before = "\n".join(lines[: checks[0].lineno - 1]).rstrip()
            return f"{before}\n\n\n{chr(10).join(lines[node.lineno - 1 : node.end_lineno])}".strip()
    return ""


# --- From a notebook to a notebook ----------------------------------------------------------------


def edition_of(edition: str, notebook: NotebookNode) -> NotebookNode:
    """Return a notebook as it is in an edition.

    Raise ValueError as `exercises`, and if a mark would leave a solution in the open.
    """
    copy = deepcopy(notebook)
    # from behind, so that the indices before stay true
    for exercise in reversed(exercises(notebook)):
        _rewrite(copy.cells, exercise, edition)
    if edition == "instructor":
        return copy
    for number, cell in enumerate(copy.cells, start=1):
        if _MARK.search(cell.source):
            raise ValueError(
                f"cell {number} of the edition has a mark outside of an exercise's cells, or one "
                f"without its end, so students would read on: {cell.source[:200]!r}"
            )
    return ClearOutputPreprocessor().preprocess(copy, {})[0]


def _rewrite(cells: list[NotebookNode], exercise: Exercise, edition: str) -> None:
    """Make of the two cells one to answer in and one that checks the answer."""
    answer, check = cells[exercise.cell : exercise.cell + 2]
    answer.outputs, answer.metadata = [], NotebookNode(tags=["exercise"])
    check.metadata = NotebookNode(tags=["check"], jupyter={"source_hidden": True})

    # The cell that checks: the function, its verdict, and what that must say. With the sentence as
    # its message, an error says what is wrong where only errors are shown: in nbgrader's Validate.
    verdict = f"verdict_on_{exercise.name}"
    judged = f"\n\n\n{verdict} = {exercise.call}\nprint({verdict})\n"
    well_formed = f'assert {verdict}.startswith(("Right", "Noted")), {verdict}'
    right = f'assert {verdict}.startswith("Right"), {verdict}'
    answer.source = f"{exercise.stub}\n\n{STUB}"
    if edition == "student":  # whose check does not know the answer
        check.source = _HIDDEN.sub("", exercise.check) + judged + well_formed
    elif edition == "instructor":
        solution = f"### BEGIN SOLUTION\n{exercise.answer}\n### END SOLUTION"
        answer.source = f"{exercise.stub}\n\n{solution}"
        hidden = f"### BEGIN HIDDEN TESTS\n{right}\n### END HIDDEN TESTS"
        check.source = f"{exercise.check}{judged}{well_formed}\n{hidden}"
    else:
        check.source = _MARK.sub("", exercise.check) + judged + right

    if edition == "solutions":  # there a failure is to be seen
        answer.source = exercise.answer
        return
    about = {"task": False, "schema_version": 3, "cell_type": "code"}  # of nbgrader 0.9.6
    asked = {"grade_id": exercise.name, "grade": False, "locked": False, "solution": True}
    answer.metadata.nbgrader = NotebookNode(about | asked)
    graded = {"grade_id": f"check_{exercise.name}", "grade": True, "locked": True}
    graded |= {"solution": False, "points": exercise.points}
    check.metadata.nbgrader = NotebookNode(about | graded)
    for cell in (answer, check):
        cell.metadata.tags.append("raises-exception")
    if edition in ("student", "workshop"):
        answer.metadata.deletable = check.metadata.deletable = check.metadata.editable = False
    worth = f"{exercise.points} point{'s' * (exercise.points > 1)}"
    task = cells[_task(cells, exercise.cell)]
    task.source = task.source.replace(FOLDED, "").rstrip() + (
        "\n\nWrite your answer below, in place of the line `raise NotImplementedError()`. "
        f"The folded cell after it checks the answer ({worth}): run it."
    )


if __name__ == "__main__":
    try:
        main()
    except ValueError as error:
        sys.exit(f"error: {error}")
