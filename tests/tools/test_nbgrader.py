"""The instructor's edition of notebook 01 as an assignment of the real nbgrader's: what it
releases, and what submissions earn.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from helpers import PROJECT
from tools import teach

pytestmark = [pytest.mark.slow, pytest.mark.needs("nbgrader")]

NAME = "01_data_preparation.ipynb"
POINTS = {"leak": 1, "repaired": 1}
FORGED = "def check_repaired(answer):\n    return 'Right'"


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A course of nbgrader's in a folder with a space and an umlaut; course("autograde", "grpo")
    runs a command of it there.
    """
    folder = tmp_path_factory.mktemp("Kürs 1")
    # nbgrader starts alembic by its name; an activated environment has it in its path.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(PROJECT)}
    environment.pop("GRPO_RUNS_DIR", None)  # the config file puts runs into the course's folder
    shutil.copy(teach.NOTEBOOKS / "nbgrader_config.py", folder)

    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "nbgrader", *arguments]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stderr

    run.folder = folder
    for edition, to in {"instructor": "source/grpo", "student": "student"}.items():
        teach.main(["--edition", edition, "--to", str(folder / to), "--only", "01"])
    run("generate_assignment", "grpo")
    return run


@pytest.fixture(scope="module")
def graded(course):
    """Four submissions, autograded: {student: {exercise: points, or None}}."""
    from nbgrader.api import Gradebook

    notebook = nbformat.read(teach.NOTEBOOKS / NAME, as_version=4)
    solved = teach.edition_of("solutions", notebook).cells
    answers = [cell.source for cell in solved if "exercise" in cell.metadata.get("tags", [])]
    right = dict(zip(POINTS, answers, strict=True))
    release = course.folder / "release" / "grpo"
    _submit(course, release, "perfect", right)
    _submit(course, release, "empty", {})
    # from our edition, not nbgrader's release
    _submit(course, course.folder / "student", "mistaken", right | {"leak": "leak = 0.1"})
    forged = {"repaired": FORGED, "check_repaired": "pass", "check_leak": None}
    _submit(course, release, "forger", forged)
    told = course("autograde", "grpo")
    assert "Warning" not in told and "WARNING" not in told, told
    assert (course.folder / "runs" / "demo" / "manifest.json").is_file()
    with Gradebook(f"sqlite:///{course.folder}/gradebook.db") as book:
        return {
            submission.student.id: {
                grade.name.removeprefix("check_"): grade.auto_score
                for grade in submission.notebooks[0].grades
            }
            for submission in book.assignment_submissions("grpo")
        }


def _submit(course, handed_out: Path, who: str, answers: dict[str, str | None]) -> None:
    """Hand in what was handed out, with other sources in some cells; None takes the cell away."""
    notebook = nbformat.read(handed_out / NAME, as_version=4)
    for cell in list(notebook.cells):
        name = cell.metadata.get("nbgrader", {}).get("grade_id")
        if name in answers and answers[name] is None:
            notebook.cells.remove(cell)
        else:
            cell.source = answers.get(name, cell.source)
    folder = course.folder / "submitted" / who / "grpo"
    folder.mkdir(parents=True)
    nbformat.write(notebook, folder / NAME)


def test_an_answer_earns_its_points_and_a_check_that_a_student_wrote_or_took_away_none(graded):
    assert graded["perfect"] == POINTS and graded["empty"] == dict.fromkeys(POINTS, 0)
    assert graded["mistaken"] == POINTS | {"leak": 0}
    # the check of `repaired` was put back, behind the answer that redefines it
    assert graded["forger"]["repaired"] == 0 and not graded["forger"]["leak"]
