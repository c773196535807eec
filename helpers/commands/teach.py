"""`python -m helpers teach`: four editions of the notebooks, made from the marks in the committed
ones: workshop, student, solutions, instructor.

In a committed notebook an exercise is three code cells, tagged `check`, `exercise` and `solution`
(see CONTRIBUTING.md). In an edition it has one cell to answer in, with the check behind it: an
answer cannot redefine the function that judges it.

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
import re
import shutil
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbconvert.preprocessors import ClearOutputPreprocessor
from nbformat import NotebookNode

from helpers import PROJECT
from helpers.commands import arguments

NOTEBOOKS = PROJECT / "notebooks"
EDITIONS = ("workshop", "student", "solutions", "instructor")
POINTS = {"easy": 1, "medium": 2, "hard": 3}
STUB = "# YOUR CODE HERE\nraise NotImplementedError()"  # nbgrader's own
_CELLS = ["check", "exercise", "solution"]  # of an exercise, in this order
_SOLUTION = re.compile(
    r"### BEGIN SOLUTION\n(?P<answer>.*?)\n+### END SOLUTION\n+"
    r"(?P<call>print\((?P<check>check_(?P<name>\w+)\(.*\))\))\s*",
    re.DOTALL,
)
_HIDDEN = re.compile(r"\n?[ \t]*### BEGIN HIDDEN TESTS\n.*?### END HIDDEN TESTS", re.DOTALL)
_MARK = re.compile(r"\n?[ \t]*### (BEGIN|END) (SOLUTION|HIDDEN TESTS)")
_DELETE = "Delete the line `raise NotImplementedError()`:"  # left in, it ends an answered cell, too
_LEVEL = re.compile(r"\*\*\d+ minutes?, (easy|medium|hard)\.\*\*")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `teach` takes."""
    parser.description = (
        "student: one cell to answer in per exercise, without solutions, hidden tests and outputs. "
        "workshop: the same with whole checks, which name a mistake, for a class without grades. "
        "solutions: the same cells answered, to hand out afterwards. "
        "instructor: with solutions, hidden tests, points and outputs; the source of an "
        "assignment of nbgrader's."
    )
    parser.add_argument("--edition", required=True, choices=EDITIONS, help="which one, see above")
    parser.add_argument(
        "--to", required=True, metavar="FOLDER", help="where to: a new or an empty folder"
    )
    parser.add_argument(
        "--only", metavar="NN,NN", help="only these notebooks, e.g. 01,02 (default: all)"
    )


def main(parsed: argparse.Namespace) -> int:
    """Write the edition, and print its exercises; 0.

    ValueError, before anything is written, for a folder that holds something or lies among the
    notebooks, a number that no notebook has, and marks that would not hold, with the notebook and
    the cell.
    """
    to = Path(parsed.to).resolve()
    if to.is_relative_to(NOTEBOOKS.resolve()) or (to.exists() and any(to.iterdir())):
        raise ValueError(f"--to {to}: name a new or an empty folder, outside of {NOTEBOOKS}.")
    paths = {path.name[:2]: path for path in sorted(NOTEBOOKS.glob("*.ipynb"))}
    wanted = list(paths) if parsed.only is None else arguments.numbers(parsed.only)
    if missing := [number for number in wanted if number not in paths]:
        raise ValueError(
            f"--only {parsed.only}: there is no notebook {missing[0]}. There are: "
            f"{', '.join(paths)}."
        )
    made, total = {}, 0
    for path in (paths[number] for number in wanted):
        notebook = nbformat.read(path, as_version=4)
        try:
            worth = [exercise.points for exercise in exercises(notebook)]
            made[path.name] = made_for(parsed.edition, notebook)
        except ValueError as error:
            raise ValueError(f"{path.name}, {error}") from None
        print(f"{path.name:<32}{len(worth)} exercises, {sum(worth)} points")
        total += sum(worth)
    # The folder also gets what the notebooks link to and read; a guide for teachers is for no
    # student.
    to.mkdir(parents=True, exist_ok=True)
    for name, notebook in made.items():
        nbformat.write(notebook, to / name)
    shutil.copy(NOTEBOOKS / "GLOSSARY.md", to)
    shutil.copytree(NOTEBOOKS / "data", to / "data")
    print(f"{parsed.to}: the {parsed.edition} edition, {total} points in all")
    return 0


# --- Reading the marks ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Exercise:
    """An exercise of a notebook: the indices of its three code cells, and what is in them."""

    name: str  # of the variable or function that answers it
    points: int
    cells: tuple[int, int, int]  # check, exercise, solution
    function: str  # of the check's cell, the definition of check_NAME,
    besides: str  # and all else: imports, or a figure that the question is about
    stub: str  # what a student begins with
    answer: str
    call: str  # check_NAME(NAME)


def exercises(notebook: NotebookNode) -> list[Exercise]:
    """The exercises of a notebook, in its order.

    ValueError, with the number of the cell from 1, for cells and marks that make no exercise.
    """
    tagged = [
        (tag, index)
        for index, cell in enumerate(notebook.cells)
        for tag in cell.metadata.get("tags", [])
        if tag in _CELLS
    ]
    found = []
    for begin in range(0, len(tagged), len(_CELLS)):
        tags, indices = zip(*tagged[begin : begin + len(_CELLS)], strict=True)
        if list(tags) != _CELLS:
            raise ValueError(
                f"cell {indices[0] + 1} must begin an exercise, which is three cells tagged "
                f"{', '.join(_CELLS)}; what follows is tagged {', '.join(tags)}."
            )
        check, exercise, solution = (notebook.cells[index].source for index in indices)
        parts, stub = _SOLUTION.fullmatch(solution), exercise.rstrip()
        # the definition of the check, to the next line that is not of it
        definition = rf"^def check_{parts['name'] if parts else ''}\(.*?(?=^[^\s)]|\Z)"
        function = re.search(definition, check, re.MULTILINE | re.DOTALL)
        hides = function and _HIDDEN.search(function[0])
        if not hides or not stub.endswith(parts["call"]):
            first, second, third = (index + 1 for index in indices)
            raise ValueError(
                f"cells {first}, {second} and {third} are no exercise: the first must define "
                "check_NAME and hide its answer between ### BEGIN HIDDEN TESTS and ### END HIDDEN "
                "TESTS, the second end with print(check_NAME(NAME)), and the third be ### BEGIN "
                "SOLUTION, lines, ### END SOLUTION, and the same call."
            )
        # The task is the last text before the check; it names the level.
        before = notebook.cells[: indices[0]]
        texts = [cell.source for cell in before if cell.cell_type == "markdown"]
        level = _LEVEL.search(texts[-1]) if texts else None
        found.append(
            Exercise(
                parts["name"],
                POINTS[level[1]] if level else 1,
                indices,
                function[0].rstrip(),
                check.replace(function[0], "").strip(),
                stub.removesuffix(parts["call"]).rstrip("\n"),
                parts["answer"],
                parts["check"],
            )
        )
    return found


# --- From a notebook to a notebook ----------------------------------------------------------------


def made_for(edition: str, notebook: NotebookNode) -> NotebookNode:
    """A notebook as it is in an edition.

    ValueError as `exercises`, and for a mark that would leave a solution in the open.
    """
    made = deepcopy(notebook)
    # from behind, so that the indices before stay true
    for exercise in reversed(exercises(notebook)):
        _rewrite(made.cells, exercise, edition)
    if edition == "instructor":
        return made
    for number, cell in enumerate(made.cells, start=1):
        if _MARK.search(cell.source):
            raise ValueError(
                f"cell {number} of the edition has a mark outside of an exercise's cells, or one "
                f"without its end, so students would read on: {cell.source[:200]!r}"
            )
    return ClearOutputPreprocessor().preprocess(made, {})[0]


def _rewrite(cells: list[NotebookNode], exercise: Exercise, edition: str) -> None:
    """Make of the three cells what the check's cell does besides, the answer, and the check."""
    first, second, third = exercise.cells
    besides, answer, check = cells[first], cells[second], cells[third]
    besides.source, besides.metadata["tags"] = exercise.besides, []
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
        check.source = _HIDDEN.sub("", exercise.function) + judged + well_formed
    elif edition == "instructor":
        solution = f"### BEGIN SOLUTION\n{exercise.answer}\n### END SOLUTION"
        answer.source = f"{exercise.stub}\n\n{solution}"
        hidden = f"### BEGIN HIDDEN TESTS\n{right}\n### END HIDDEN TESTS"
        check.source = f"{exercise.function}{judged}{well_formed}\n{hidden}"
    else:
        check.source = _MARK.sub("", exercise.function) + judged + right

    if edition == "solutions":  # there a failure is to be seen
        answer.source = exercise.answer
    else:
        about = {"task": False, "schema_version": 3, "cell_type": "code"}  # of nbgrader 0.9.6
        asked = {"grade_id": exercise.name, "grade": False, "locked": False, "solution": True}
        answer.metadata.nbgrader = NotebookNode(about | asked)
        graded = {"grade_id": f"check_{exercise.name}", "grade": True, "locked": True}
        graded |= {"solution": False, "points": exercise.points}
        check.metadata.nbgrader = NotebookNode(about | graded)
        for cell in (answer, check):
            cell.metadata.tags.append("raises-exception")
        before = cells[second - 1]
        if before.source.endswith(":"):  # "Your answer:"
            before.source = f"{before.source[:-1]}. {_DELETE}"
    if edition in ("student", "workshop"):
        answer.metadata.deletable = check.metadata.deletable = check.metadata.editable = False
    between = cells[third - 1]
    if between.cell_type == "markdown":  # "One solution is folded away below."
        worth = f"{exercise.points} point{'s' * (exercise.points > 1)}"
        between.source = f"The check is folded away below: run its cell ({worth})."
    if not exercise.besides:
        del cells[first]
