"""The instructor's edition as an assignment of the real nbgrader's: what it releases, and what
submissions earn.

Notebook 01 is graded whole; of 07, which trains for minutes, only the cells of its exercises.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from helpers import PROJECT
from helpers.commands import teach

nbgrader = pytest.importorskip("nbgrader", reason="nbgrader is not installed (make optional)")

pytestmark = pytest.mark.slow

EMPTY: dict[str, str] = {}
POINTS = {"leak": 1, "mended": 1, "accepted": 1, "quantity_score": 2, "predicted": 1}
FORGED = "def check_accepted(answer):\n    return 'Right'"


@pytest.fixture(scope="module")
def room(tmp_path_factory):
    """A course of nbgrader's in a folder with a space and an umlaut; room("autograde", "grpo") runs
    a command of it there.
    """
    folder = tmp_path_factory.mktemp("Kürs 1")
    # nbgrader starts alembic by its name; an activated environment has it in its path.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {
        "PATH": path,
        "GRPO_RUNS_DIR": str(folder / "runs"),
        "PYTHONPATH": str(PROJECT),
    }

    def run(*arguments: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "nbgrader", *arguments]
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)

    run.folder = folder
    return run


@pytest.fixture(scope="module")
def small(room):
    """A folder of notebooks to make editions from: 01, and the exercises of 07."""
    folder = room.folder / "small"
    folder.mkdir()
    shutil.copy(teach.NOTEBOOKS / "01_data_preparation.ipynb", folder)
    notebook = nbformat.read(teach.NOTEBOOKS / "07_your_own_task.ipynb", as_version=4)
    parts = [(exercise.check - 1, exercise.solution + 1) for exercise in teach.exercises(notebook)]
    notebook.cells = [cell for begin, end in parts for cell in notebook.cells[begin:end]]
    nbformat.write(notebook, folder / "07_your_own_task.ipynb")
    return folder


@pytest.fixture(scope="module")
def right(small) -> dict[str, str]:
    """{exercise: the lines of its solution}."""
    found = {}
    for path in small.glob("*.ipynb"):
        notebook = nbformat.read(path, as_version=4)
        answers = [
            cell.source
            for cell in teach.made_for("solutions", notebook).cells
            if "exercise" in cell.metadata.get("tags", [])
        ]
        found |= dict(
            zip([exercise.name for exercise in teach.exercises(notebook)], answers, strict=True)
        )
    return found


@pytest.fixture(scope="module")
def released(room, small):
    """The small assignment `grpo` as nbgrader releases it, and all notebooks as `whole`."""
    teach.make("instructor", room.folder / "source" / "grpo", source=small)
    teach.make("instructor", room.folder / "source" / "whole")
    for assignment in ("grpo", "whole"):
        done = room("generate_assignment", assignment)
        assert done.returncode == 0, done.stderr
    return room.folder / "release"


@pytest.fixture(scope="module")
def graded(room, small, released, right):
    """Four submissions, autograded: {student: {exercise: points, or None}}."""
    mistakes = {
        "leak": "leak = 0.1",
        "quantity_score": "def quantity_score(given, wanted):\n    return float(given == wanted)",
    }
    _submit(room, released / "grpo", "perfect", right)
    _submit(room, released / "grpo", "empty", EMPTY)
    teach.make("student", room.folder / "small-student", source=small)
    # from our edition, not nbgrader's release
    _submit(room, room.folder / "small-student", "two mistakes", right | mistakes)
    _submit(
        room,
        released / "grpo",
        "forger",
        {"accepted": FORGED, "check_accepted": "pass", "check_predicted": None},
        "07",
    )
    room("autograde", "grpo", "--Execute.timeout=600")
    points = {}
    with nbgrader.api.Gradebook(f"sqlite:///{room.folder}/gradebook.db") as book:
        for submission in book.assignment_submissions("grpo"):
            grades = [grade for notebook in submission.notebooks for grade in notebook.grades]
            assert submission.max_score == sum(POINTS.values())
            points[submission.student.id] = {
                grade.name.removeprefix("check_"): grade.auto_score for grade in grades
            }
    return points


def _submit(
    room, handed_out: Path, who: str, answers: dict[str, str | None], only: str = ""
) -> None:
    """Hand in what was handed out, with other sources in some cells; None takes the cell away."""
    folder = room.folder / "submitted" / who / "grpo"
    folder.mkdir(parents=True)
    for path in handed_out.glob(f"{only}*.ipynb"):
        notebook = nbformat.read(path, as_version=4)
        for cell in list(notebook.cells):
            name = cell.metadata.get("nbgrader", {}).get("grade_id")
            if name in answers and answers[name] is None:
                notebook.cells.remove(cell)
            else:
                cell.source = answers.get(name, cell.source)
        nbformat.write(notebook, folder / path.name)


def test_what_nbgrader_releases_is_the_students_edition(released, tmp_path):
    teach.make("student", tmp_path / "student")
    names = sorted(path.name for path in (tmp_path / "student").glob("*.ipynb"))
    assert len(names) >= 10 and names == sorted(
        path.name for path in (released / "whole").glob("*.ipynb")
    )
    for name in names:
        ours, theirs = (
            nbformat.read(folder / name, as_version=4)
            for folder in (tmp_path / "student", released / "whole")
        )
        for cell in theirs.cells:
            cell.metadata.get("nbgrader", {}).pop("checksum", None)
        assert ours.cells == theirs.cells
    for beside in ("GLOSSARY.md", "data/orders.csv"):
        assert (released / "whole" / beside).read_bytes() == (teach.NOTEBOOKS / beside).read_bytes()


def test_a_perfect_submission_gets_all_points_and_an_empty_one_none(graded):
    assert graded["perfect"] == POINTS and graded["empty"] == dict.fromkeys(POINTS, 0)


def test_two_known_mistakes_cost_their_points_and_no_others(graded):
    assert graded["two mistakes"] == POINTS | {"leak": 0, "quantity_score": 0}


def test_a_check_that_a_student_wrote_or_took_away_earns_nothing(graded):
    points = graded["forger"]
    assert points["accepted"] == 0, "the check was put back, behind the answer that redefines it"
    assert not points["predicted"] and points["quantity_score"] == 0
