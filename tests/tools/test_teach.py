"""The editions that `teach` makes of the committed notebooks: what is in them, what is not, that
they run; and bad marks.
"""

import contextlib
import json

import nbformat
import pytest
from nbclient import NotebookClient

from helpers import PROJECT
from tools import teach
from tools.teach import NOTEBOOKS, STUB, edition_of, exercises

COMMITTED = {
    path.name: nbformat.read(path, as_version=4) for path in sorted(NOTEBOOKS.glob("*.ipynb"))
}
MARKS = ("BEGIN SOLUTION", "END SOLUTION", "BEGIN HIDDEN TESTS", "END HIDDEN TESTS")
each_notebook = pytest.mark.parametrize("name", COMMITTED)


def graded(notebook) -> dict:
    """{exercise: (the cell to answer in, its check)} of the student's or the instructor's
    edition.
    """
    cells = {
        cell.metadata["nbgrader"]["grade_id"]: cell
        for cell in notebook.cells
        if "nbgrader" in cell.metadata
    }
    return {
        name: (cell, cells[f"check_{name}"])
        for name, cell in cells.items()
        if cell.metadata["nbgrader"]["solution"]
    }


def tagged(notebook, tag: str) -> list:
    return [cell for cell in notebook.cells if tag in cell.metadata.get("tags", [])]


# --- All of them, from the committed notebooks ----------------------------------------------------


@pytest.mark.parametrize(
    ("edition", "only"), [*((edition, []) for edition in teach.EDITIONS), ("student", [1, 2])]
)
def test_an_edition_is_written_with_what_the_notebooks_link_to(capsys, tmp_path, edition, only):
    folder = tmp_path / "Kürs im Frühling" / edition
    choice = ["--only", "2,1"] if only else []
    teach.main(["--edition", edition, "--to", str(folder), *choice])
    chosen = [[*COMMITTED][number] for number in only or range(len(COMMITTED))]
    assert {path.name for path in folder.iterdir()} == {*chosen, "GLOSSARY.md"}
    for name in chosen:
        made = nbformat.read(folder / name, as_version=4)
        nbformat.validate(made)
        assert made == edition_of(edition, COMMITTED[name])
    found = [exercise for name in chosen for exercise in exercises(COMMITTED[name])]
    points = sum(exercise.points for exercise in found)
    said = capsys.readouterr().out
    assert said.endswith(f"the {edition} edition, {points} points in all\n")


@each_notebook
def test_a_student_gets_a_cell_to_answer_in_and_a_check_and_nothing_of_the_answer(name):
    committed, made = COMMITTED[name], edition_of("student", COMMITTED[name])
    found = exercises(committed)
    assert len(found) == len(tagged(committed, "solution")) >= (0 if name.startswith("00") else 2)
    assert [*graded(made)] == [exercise.name for exercise in found]
    for answer, check in graded(made).values():
        assert made.cells.index(answer) < made.cells.index(check)
        assert answer.source.endswith(f"\n\n{STUB}") and "check_" not in answer.source
        assert check.metadata["editable"] is False
    assert not any(mark in json.dumps(made) for mark in (*MARKS, teach.FOLDED))
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in made.cells)
    other = {i for one in found for i in (one.cell, one.cell + 1)}
    for i, (before, after) in enumerate(zip(committed.cells, made.cells, strict=True)):
        asked = "NotImplementedError" in after.source  # the task, which says where to write
        assert i in other or asked or before.source == after.source


# --- They run -------------------------------------------------------------------------------------


def test_a_student_who_leaves_the_exercises_out_gets_to_the_last_cell(runs, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    teach.main(["--edition", "student", "--to", str(tmp_path / "student"), "--only", "01"])
    notebook = nbformat.read(tmp_path / "student" / "01_data_preparation.ipynb", as_version=4)
    place = {"metadata": {"path": str(tmp_path / "student")}}
    done = NotebookClient(notebook, timeout=300, resources=place).execute()
    outputs = {
        cell.id: [output.get("ename", output.get("text", "")) for output in cell.outputs]
        for cell in tagged(done, "raises-exception")
    }
    for answer, check in graded(done).values():
        assert outputs[answer.id] == ["NotImplementedError"]
        assert outputs[check.id][0].startswith("Not answered yet")
        assert outputs[check.id][-1] == "AssertionError"  # what is printed may come in parts
    assert done.cells[-1].get("outputs") or done.cells[-2].get("outputs"), "it ran to the end"


# --- Bad input ------------------------------------------------------------------------------------

CHECK = """def check_x(x):
    if x is None:
        return "Not answered yet"
    ### BEGIN HIDDEN TESTS
    if x == 1:
        return "Right"
    ### END HIDDEN TESTS
    return "Noted"
"""
EXERCISE = "from notebooks.checks.nb99 import check_x\n\nx = None\nprint(check_x(x))"
SOLUTION = "### BEGIN SOLUTION\nx = 1\n### END SOLUTION\nprint(check_x(x))"


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A folder in the place of notebooks/, with the one check that `notebook_of` imports."""
    folder = tmp_path / "source"
    monkeypatch.setattr(teach, "NOTEBOOKS", folder)
    (folder / "checks").mkdir(parents=True)
    (folder / "checks" / "nb99.py").write_text(f"import math\n\n\n{CHECK}")
    return folder


def notebook_of(exercise=EXERCISE, solution=SOLUTION, text="### Exercise\n\nNo level."):
    """A notebook with a text, these two cells (None leaves one out), and a last cell."""
    cells = [nbformat.v4.new_markdown_cell(text)]
    for tag, source in (("exercise", exercise), ("solution", solution)):
        if source is not None:
            cells.append(nbformat.v4.new_code_cell(source, metadata={"tags": [tag]}))
    return nbformat.v4.new_notebook(cells=[*cells, nbformat.v4.new_code_cell("print(2)")])


@pytest.mark.parametrize(
    ("edition", "answer", "taken"),
    [
        ("student", None, False),  # left as it was handed out
        ("student", "x = 2", True),  # its check knows no solution
        ("workshop", None, False),
        ("workshop", "x = 2", False),
        ("workshop", "x = 1", True),
        ("instructor", None, True),  # the solution
        ("instructor", "x = 2", False),  # noted, but neither told to be wrong nor to be correct
        ("solutions", None, True),
    ],
)
def test_an_answer_is_taken_as_far_as_the_editions_check_knows(source, edition, answer, taken):
    made, names = edition_of(edition, notebook_of()), {}
    (given,), (check,) = tagged(made, "exercise"), tagged(made, "check")
    with contextlib.suppress(NotImplementedError):
        exec(answer or given.source, names)
    with contextlib.nullcontext() if taken else pytest.raises(AssertionError):
        exec(check.source, names)


NO_EXERCISE = "cells 2 and 3 are no exercise"
BAD = [
    ({"solution": SOLUTION.replace("### END SOLUTION\n", "")}, NO_EXERCISE),
    ({"solution": "x = 1\n" + SOLUTION}, NO_EXERCISE),
    ({"solution": SOLUTION.replace("print(check_x(x))", "")}, NO_EXERCISE),
    ({"exercise": EXERCISE.replace("print(check_x(x))", "")}, NO_EXERCISE),
    ({"exercise": "x = None\nprint(check_x(x))"}, NO_EXERCISE),
    ({"solution": SOLUTION.replace("check_x", "check_y")}, NO_EXERCISE),
    ({"exercise": None}, "cell 2 is a solution without an exercise"),
    ({"solution": None}, NO_EXERCISE),
    ({"text": "see ### BEGIN HIDDEN TESTS"}, "cell 1 of the edition has a mark outside"),
]


@pytest.mark.parametrize(("cells", "said"), BAD)
def test_marks_that_would_not_hold_are_refused_with_notebook_and_cell(
    tmp_path, source, cells, said
):
    nbformat.write(notebook_of(), source / "01_good.ipynb")
    nbformat.write(notebook_of(**cells), source / "02_mine.ipynb")
    with pytest.raises(ValueError, match=f"^02_mine.ipynb, {said}"):
        teach.main(["--edition", "student", "--to", str(tmp_path / "made")])
    assert [path.name for path in tmp_path.iterdir()] == ["source"], "nothing is written"


def test_an_edition_is_written_into_no_folder_that_holds_something(tmp_path):
    mine = tmp_path / "mine" / "01_data_preparation.ipynb"
    mine.parent.mkdir()
    mine.write_text("answers of a term")
    for to in (mine.parent, NOTEBOOKS / "out"):
        with pytest.raises(ValueError, match="name a new or an empty folder"):
            teach.main(["--edition", "student", "--to", str(to)])
    assert mine.read_text() == "answers of a term" and not (NOTEBOOKS / "out").exists()
