"""The editions that `teach` makes of the committed notebooks: what is in them, what is not, that
they run; and bad marks.
"""

import contextlib
import json

import nbformat
import pytest
from nbclient import NotebookClient

from helpers import PROJECT
from helpers.commands import teach
from helpers.commands.teach import NOTEBOOKS, STUB, exercises, made_for

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
    ("edition", "only"), [(edition, None) for edition in teach.EDITIONS] + [("student", "2,1")]
)
def test_the_command_makes_an_edition_with_what_the_notebooks_link_to(cli, tmp_path, edition, only):
    folder = tmp_path / "Kürs im Frühling" / edition
    choice = ["--only", only] if only else []
    code, out, err = cli("teach", "--edition", edition, "--to", str(folder), *choice)
    assert code == 0 and err == ""
    chosen = [*COMMITTED][:2] if only else [*COMMITTED]
    assert {path.name for path in folder.iterdir()} == {*chosen, "GLOSSARY.md", "data"}
    points = 0
    for name in chosen:
        made = nbformat.read(folder / name, as_version=4)
        nbformat.validate(made)
        assert f"{name} " in out and made == made_for(edition, COMMITTED[name])
        points += sum(exercise.points for exercise in exercises(COMMITTED[name]))
    assert out.endswith(f"the {edition} edition, {points} points in all\n")
    orders = folder / "data" / "orders.csv"
    assert orders.read_bytes() == (NOTEBOOKS / "data" / "orders.csv").read_bytes()


@each_notebook
def test_a_student_gets_a_cell_to_answer_in_and_a_check_and_nothing_of_the_answer(name):
    committed, made = COMMITTED[name], made_for("student", COMMITTED[name])
    found = exercises(committed)
    assert len(found) == len(tagged(committed, "solution")) >= 2
    assert [*graded(made)] == [exercise.name for exercise in found]
    for answer, check in graded(made).values():
        assert made.cells.index(answer) < made.cells.index(check)
        assert answer.source.endswith(f"\n\n{STUB}") and "check_" not in answer.source
        assert check.metadata["editable"] is False
    assert not any(mark in json.dumps(made) for mark in MARKS)
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in made.cells)
    parts = {i for one in found for i in one.cells}
    rest = [cell.source for i, cell in enumerate(committed.cells) if i not in parts]
    kept = [source for source in rest if source in {cell.source for cell in made.cells}]
    # "Your answer:" and "One solution is folded away below." are replaced
    assert len(rest) - len(kept) <= 2 * len(found)


def test_a_figure_that_a_check_draws_is_seen_before_the_question_is_answered():
    made = made_for("instructor", COMMITTED["03_grpo_training.ipynb"])
    (figure,) = [
        index for index, cell in enumerate(made.cells) if "plots.overlay(trainings)" in cell.source
    ]
    answer, check = graded(made)["betas"]
    assert figure < made.cells.index(answer) and made.cells[figure].outputs
    assert "plots" not in check.source and "check_betas" not in made.cells[figure].source


# --- They run -------------------------------------------------------------------------------------


def test_a_student_who_leaves_the_exercises_out_gets_to_the_last_cell(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    cli("teach", "--edition", "student", "--to", str(tmp_path / "student"), "--only", "01")
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
EXERCISE = "x = None\nprint(check_x(x))"
SOLUTION = "### BEGIN SOLUTION\nx = 1\n### END SOLUTION\nprint(check_x(x))"


def notebook_of(
    check=CHECK, exercise=EXERCISE, solution=SOLUTION, text="### Exercise\n\nNo level."
):
    """A notebook with a text, these three cells (None leaves one out), and a last cell."""
    cells = [nbformat.v4.new_markdown_cell(text)]
    for tag, source in (("check", check), ("exercise", exercise), ("solution", solution)):
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
        ("instructor", "x = 2", False),  # noted, but neither told to be wrong nor to be right
        ("solutions", None, True),
    ],
)
def test_an_answer_is_taken_as_far_as_the_editions_check_knows(edition, answer, taken):
    made, names = made_for(edition, notebook_of()), {}
    (given,), (check,) = tagged(made, "exercise"), tagged(made, "check")
    with contextlib.suppress(NotImplementedError):
        exec(answer or given.source, names)
    with contextlib.nullcontext() if taken else pytest.raises(AssertionError):
        exec(check.source, names)


@pytest.mark.parametrize(
    ("level", "points"), [("", 1), ("5 minutes, easy", 1), ("1 minute, medium", 2)]
)
def test_the_instructor_has_the_solution_and_what_it_is_worth(level, points):
    source = notebook_of(text=f"### Two\n\n**{level}.** Think." if level else "### Two")
    source.cells[3].outputs = [nbformat.v4.new_output("stream", text="Right: one.\n")]
    answer, check = graded(made_for("instructor", source))["x"]
    assert answer.source.startswith("x = None\n\n") and "x = 1" in answer.source
    assert check.metadata["nbgrader"]["points"] == points
    assert check.outputs == source.cells[3].outputs


NO_END = {"check": f"### BEGIN HIDDEN TESTS\nanswer = 1\n### END HIDDEN TESTS\n{CHECK}"}
BAD = [
    ({"solution": SOLUTION.replace("### END SOLUTION\n", "")}, "cells 2, 3 and 4 are no exercise"),
    ({"solution": "x = 1\n" + SOLUTION}, "cells 2, 3 and 4 are no exercise"),
    ({"solution": SOLUTION.replace("print(check_x(x))", "")}, "cells 2, 3 and 4 are no exercise"),
    ({"exercise": "x = None"}, "cells 2, 3 and 4 are no exercise"),
    (
        {"check": CHECK.replace("    ### END HIDDEN TESTS\n", "")},
        "cells 2, 3 and 4 are no exercise",
    ),
    ({"check": CHECK.replace("check_x", "check_y")}, "cells 2, 3 and 4 are no exercise"),
    ({"check": None}, "cell 2 must begin an exercise"),
    ({"solution": None}, "cell 2 must begin an exercise"),
    ({"text": "see ### BEGIN HIDDEN TESTS"}, "cell 1 of the edition has a mark outside"),
    (NO_END, "cell 2 of the edition has a mark outside"),
]


@pytest.mark.parametrize(("cells", "said"), BAD)
def test_marks_that_would_not_hold_are_refused_with_notebook_and_cell(
    cli, tmp_path, monkeypatch, cells, said
):
    monkeypatch.setattr(teach, "NOTEBOOKS", tmp_path / "source")
    (tmp_path / "source").mkdir()
    nbformat.write(notebook_of(), tmp_path / "source" / "01_good.ipynb")
    nbformat.write(notebook_of(**cells), tmp_path / "source" / "02_mine.ipynb")
    code, _, err = cli("teach", "--edition", "student", "--to", str(tmp_path / "made"))
    assert code == 2 and err.startswith(f"error: 02_mine.ipynb, {said}")
    assert [path.name for path in tmp_path.iterdir()] == ["source"], "nothing is written"


def test_a_call_that_cannot_be_meant_writes_nothing(cli, tmp_path):
    mine = tmp_path / "mine" / "01_data_preparation.ipynb"
    mine.parent.mkdir()
    mine.write_text("answers of a term")
    for to in (mine.parent, NOTEBOOKS / "out", NOTEBOOKS / "data" / "out"):
        code, out, err = cli("teach", "--edition", "student", "--to", str(to))
        assert (code, out) == (2, "") and f"--to {to}: name a new or an empty folder" in err
    more = ("--to", str(tmp_path / "more"), "--only", "01,77")
    code, _, err = cli("teach", "--edition", "student", *more)
    assert code == 2 and "--only 01,77: there is no notebook 77. There are: 01, 02" in err
    assert [*tmp_path.rglob("*.*")] == [mine] and mine.read_text() == "answers of a term"
    assert not (NOTEBOOKS / "out").exists()
