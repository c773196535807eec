"""The editions that `teach` makes of the committed notebooks: what is in them, what is not, that
they run; and bad marks.
"""

import contextlib
import importlib.util
import io
import json
import os
from copy import deepcopy

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


def region(source: str, kind: str) -> str:
    return source.partition(f"### BEGIN {kind}\n")[2].partition(f"### END {kind}")[0]


# --- All of them, from the committed notebooks ----------------------------------------------------


@pytest.mark.parametrize("edition", teach.EDITIONS)
def test_the_command_makes_an_edition_of_every_notebook_with_what_they_link_to(
    cli, tmp_path, edition
):
    before = {path: path.read_bytes() for path in NOTEBOOKS.glob("*.ipynb")}
    folder = tmp_path / "Kürs im Frühling" / edition
    code, out, err = cli("teach", "--edition", edition, "--to", str(folder))
    assert code == 0 and err == "" and f"the {edition} edition" in out
    assert {path.name for path in folder.iterdir()} == {*COMMITTED, "GLOSSARY.md", "data"}
    for name, committed in COMMITTED.items():
        made = nbformat.read(folder / name, as_version=4)
        nbformat.validate(made)
        assert f"{name} " in out and made == made_for(edition, committed)
    assert (folder / "data" / "orders.csv").read_bytes() == (
        NOTEBOOKS / "data" / "orders.csv"
    ).read_bytes()
    assert before == {path: path.read_bytes() for path in NOTEBOOKS.glob("*.ipynb")}


@each_notebook
def test_a_student_has_one_cell_to_answer_in_and_its_check_behind(name):
    committed, made = COMMITTED[name], made_for("student", COMMITTED[name])
    found = exercises(committed)
    assert len(found) == len(tagged(committed, "solution")) >= 2
    assert [*graded(made)] == [exercise.name for exercise in found]
    for exercise in found:
        answer, check = graded(made)[exercise.name]
        assert made.cells.index(answer) < made.cells.index(check)
        assert (
            answer.source.endswith(f"\n\n{STUB}") and f"check_{exercise.name}" not in answer.source
        )
        given = committed.cells[exercise.exercise].source
        assert given.startswith(answer.source.removesuffix(STUB).strip()), (
            "what the committed stub says stays"
        )
        assert (
            check.source.startswith(f"def check_{exercise.name}(")
            and check.metadata["editable"] is False
        )
    for tag, count in (("exercise", len(found)), ("check", len(found)), ("solution", 0)):
        assert len(tagged(made, tag)) == count


@each_notebook
def test_nothing_of_a_solution_or_a_hidden_test_and_no_output_reaches_a_student(name):
    committed, made = COMMITTED[name], made_for("student", COMMITTED[name])
    assert not any(mark in json.dumps(made) for mark in MARKS)
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in made.cells)
    told = {line.strip() for cell in made.cells for line in cell.source.splitlines()}
    # said in the open elsewhere
    open_ = {line.strip() for cell in committed.cells for line in _left_open(cell).splitlines()}
    hidden = ""
    for kind, tag in (("SOLUTION", "solution"), ("HIDDEN TESTS", "check")):
        hidden += "".join(region(cell.source, kind) for cell in tagged(committed, tag))
    secret = {line.strip() for line in hidden.splitlines() if len(line.strip()) > 12} - open_
    assert len(secret) > 5 and not secret & told


@each_notebook
def test_a_workshop_has_what_a_student_has_and_whole_checks(name):
    committed = COMMITTED[name]
    made, handed_out = (made_for(edition, committed) for edition in ("workshop", "student"))
    assert not any(mark in json.dumps(made) for mark in MARKS)
    checks = [check for _, check in graded(made).values()]
    for exercise, check in zip(exercises(committed), checks, strict=True):
        hidden = region(committed.cells[exercise.check].source, "HIDDEN TESTS")
        assert len(hidden) > 100 and hidden in check.source
    rest = [(cell.source, dict(cell.metadata)) for cell in made.cells if cell not in checks]
    assert rest == [
        (cell.source, dict(cell.metadata))
        for cell in handed_out.cells
        if "check" not in cell.metadata.get("tags", [])
    ]


def _left_open(cell) -> str:
    if "solution" in cell.metadata.get("tags", []):
        return ""
    return cell.source.replace(region(cell.source, "HIDDEN TESTS"), "")


@each_notebook
def test_what_is_no_exercise_stays_as_it_is(name):
    committed = COMMITTED[name]
    parts = {
        index
        for exercise in exercises(committed)
        for index in (exercise.check, exercise.exercise, exercise.solution)
    }
    # "Your answer:" and "One solution is folded away below."
    pointers = {
        index - 1
        for exercise in exercises(committed)
        for index in (exercise.exercise, exercise.solution)
    }
    for edition in teach.EDITIONS:
        sources = [cell.source for cell in made_for(edition, committed).cells]
        position = -1
        for index, cell in enumerate(committed.cells):
            if index not in parts | pointers:
                position = sources.index(cell.source, position + 1)  # all of them, in their order
        assert "One solution is folded away below." not in sources


@each_notebook
def test_whoever_answers_is_told_which_line_to_delete(name):
    committed, told = COMMITTED[name], "Delete the line `raise NotImplementedError()`:"
    found = exercises(committed)
    for edition in teach.EDITIONS:
        cells = made_for(edition, committed).cells
        above = [
            cells[index - 1].source
            for index, cell in enumerate(cells)
            if "exercise" in cell.metadata.get("tags", [])
        ]
        for exercise, said in zip(found, above, strict=True):
            asked = committed.cells[exercise.exercise - 1].source
            assert asked.startswith("Your answer") and asked.endswith(":")
            assert said == (asked if edition == "solutions" else f"{asked[:-1]}. {told}")


@pytest.mark.parametrize("edition", ["solutions", "workshop"])
def test_a_whole_check_asks_for_the_right_answer_alone(edition):
    (check,) = tagged(made_for(edition, notebook_of()), "check")
    assert check.source.endswith(
        'print(verdict_on_x)\nassert verdict_on_x.startswith("Right"), verdict_on_x'
    )


def test_a_figure_that_a_check_draws_is_seen_before_the_question_is_answered():
    made = made_for("instructor", COMMITTED["03_grpo_training.ipynb"])
    (figure,) = [
        index for index, cell in enumerate(made.cells) if "plots.overlay(trainings)" in cell.source
    ]
    answer, check = graded(made)["betas"]
    assert figure < made.cells.index(answer) and made.cells[figure].outputs
    assert "plots" not in check.source and "check_betas" not in made.cells[figure].source


@each_notebook
def test_the_instructor_has_solutions_outputs_points_and_notes(name):
    committed, made = COMMITTED[name], made_for("instructor", COMMITTED[name])
    assert sum(len(cell.get("outputs", [])) for cell in made.cells) >= sum(
        len(cell.get("outputs", [])) for cell in committed.cells
    ) - len(exercises(committed)), "all, but for what the unanswered exercises say"
    for exercise in exercises(committed):
        answer, check = graded(made)[exercise.name]
        solution = committed.cells[exercise.solution]
        assert (
            region(answer.source, "SOLUTION").strip() == region(solution.source, "SOLUTION").strip()
        )
        assert check.outputs == solution.outputs
        assert (
            check.metadata["nbgrader"]["points"]
            == exercise.points
            == teach.POINTS[exercise.level.split(", ")[1]]
        )
        notes = region(check.source, "HIDDEN TESTS")
        assert (
            exercise.title.startswith("Exercise")
            and exercise.title in notes
            and exercise.level in notes
        )
        assert all(output.text.split("\n")[0] in notes for output in solution.outputs)


# --- They run -------------------------------------------------------------------------------------


def execute(notebook, folder):
    """Run a notebook from the first cell to the last, in a folder; an error in a cell that may not
    raise is raised.
    """
    return NotebookClient(
        deepcopy(notebook), timeout=300, resources={"metadata": {"path": str(folder)}}
    ).execute()


def said(cell) -> str:
    return "".join(output.get("text", "") for output in cell.outputs)


def errors(cell) -> list[str]:
    return [output.ename for output in cell.outputs if output.output_type == "error"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A runs folder of its own, in which the executed notebooks find what those before
    them have left.
    """
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRPO_RUNS_DIR", str(folder))
        patch.setenv(
            "PYTHONPATH",
            os.pathsep.join([str(PROJECT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
        )
        yield folder


@pytest.fixture(scope="module")
def of_students(tmp_path_factory):
    folder = tmp_path_factory.mktemp("room") / "student"
    teach.make("student", folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", ["01_data_preparation.ipynb", "02_reward_functions.ipynb"])
def test_the_solutions_edition_runs_from_the_first_cell_to_the_last(name, runs, tmp_path):
    done = execute(made_for("solutions", COMMITTED[name]), tmp_path)
    checks = tagged(done, "check")
    assert len(checks) >= 2 and all(said(check).startswith("Right") for check in checks)


def test_a_student_who_leaves_the_exercises_out_gets_to_the_last_cell(runs, of_students):
    done = execute(
        nbformat.read(of_students / "01_data_preparation.ipynb", as_version=4), of_students
    )
    assert done.cells[-1].outputs or done.cells[-2].outputs, (
        "what comes after the exercises was run"
    )
    for answer, check in graded(done).values():
        assert errors(answer) == ["NotImplementedError"] and errors(check) == ["AssertionError"]
        assert said(check).startswith("Not answered yet")
    rest = [
        cell for cell in done.cells if cell.cell_type == "code" and "nbgrader" not in cell.metadata
    ]
    assert not any(errors(cell) for cell in rest)


# The checks of these need no run (02, 04 and 05 do); 10 has no wrong answers written down yet.
@pytest.mark.parametrize("number", ["01", "03", "06", "07", "08", "09"])
def test_a_right_answer_is_taken_in_each_edition_and_an_absent_one_in_none(number):
    (committed,) = (notebook for name, notebook in COMMITTED.items() if name.startswith(number))
    path = PROJECT / "tests" / "notebooks" / "exercises" / f"{number}.py"
    spec = importlib.util.spec_from_file_location(f"answers_{number}", path)
    answers = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(answers)

    def run(*cells) -> str:
        names, output = {**answers.context(None), **figures}, io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.suppress(NotImplementedError):
            exec(cells[0].source, names)
        with contextlib.redirect_stdout(output):
            exec(cells[1].source, names)
        return output.getvalue()

    editions = ("instructor", "student", "workshop")
    whole, given, told = (graded(made_for(edition, committed)) for edition in editions)
    solved = made_for("solutions", committed)
    answered = zip(tagged(solved, "exercise"), tagged(solved, "check"), strict=True)
    solved = dict(zip(whole, answered, strict=True))
    figures = {}
    for cell in made_for("instructor", committed).cells:
        # what a check's cell does besides: imports, mostly
        if cell.metadata.get("jupyter", {}).get("source_hidden") and not cell.metadata["tags"]:
            exec(cell.source, figures)
    for name, (answer, check) in given.items():
        with pytest.raises(AssertionError):
            run(answer, check)
        assert run(whole[name][0], check).startswith("Noted"), (
            "the student's check, which knows no solution"
        )
        assert run(whole[name][0], whole[name][1]).startswith("Right") and run(
            *solved[name]
        ).startswith("Right")
        source, _ = answers.WRONG[name][0]
        wrong = deepcopy(answer)
        wrong.source = (
            source
            if source.lstrip().startswith(("def ", "import ", f"{name} ="))
            else f"{name} = {source}"
        )
        for check in (whole[name][1], told[name][1]):
            with pytest.raises(AssertionError):
                run(wrong, check)
        assert run(whole[name][0], told[name][1]).startswith("Right")


def test_an_answer_cannot_redefine_its_check():
    _, check = graded(made_for("instructor", COMMITTED["08_training_recipes.ipynb"]))["worst"]
    names = {}
    exec("worst = 'plain'\ndef check_worst(answer): return 'Right'", names)
    with pytest.raises(AssertionError):
        exec(check.source, names)


def test_with_the_hidden_tests_it_is_not_enough_that_an_answer_is_noted():
    for edition, expected in (
        ("student", contextlib.nullcontext()),
        ("instructor", pytest.raises(AssertionError)),
    ):
        _, check = graded(made_for(edition, notebook_of()))["x"]
        with expected:
            exec(check.source, {"x": 2})  # neither told to be wrong nor to be right


# --- Bad input ------------------------------------------------------------------------------------

CHECK = """def check_x(x):
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


def test_an_exercise_without_a_level_is_worth_a_point():
    (exercise,) = exercises(notebook_of())
    assert (exercise.points, exercise.level, exercise.title) == (1, "", "Exercise")
    answer, check = graded(made_for("student", notebook_of()))["x"]
    assert (
        answer.source == f"x = None\n\n{STUB}"
        and '"Right"' in check.source
        and "x == 1" not in check.source
    )


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ({"solution": SOLUTION.replace("### END SOLUTION\n", "")}, "cell 4, tagged solution, must"),
        ({"solution": "x = 1\nprint(check_x(x))"}, "cell 4, tagged solution, must be"),
        ({"solution": "x = 1\n" + SOLUTION}, "cell 4, tagged solution, must be"),
        ({"solution": SOLUTION.replace("print(check_x(x))", "")}, "cell 4, tagged solution, must"),
        ({"exercise": "x = None"}, "cell 3, tagged exercise, must end as the solution does"),
        ({"check": CHECK.replace("    ### END HIDDEN TESTS\n", "")}, "cell 2, tagged check, must"),
        ({"check": "def check_x(x): return 'Right'"}, "cell 2, tagged check, must define check_x"),
        ({"check": CHECK.replace("check_x", "check_y")}, "cell 2, tagged check, must define"),
        ({"check": None}, "cell 2 is tagged exercise; the next of an exercise must be check"),
        ({"exercise": None}, "cell 3 is tagged solution; the next of an exercise must be exercise"),
        ({"solution": None}, "after cell 3 an exercise lacks solution"),
    ],
)
def test_marks_that_would_not_hold_are_refused_with_notebook_and_cell(tmp_path, cells, said):
    (tmp_path / "source").mkdir()
    nbformat.write(notebook_of(), tmp_path / "source" / "01_good.ipynb")
    nbformat.write(notebook_of(**cells), tmp_path / "source" / "02_mine.ipynb")
    for edition in teach.EDITIONS:
        with pytest.raises(ValueError) as refused:
            teach.make(edition, tmp_path / "made", source=tmp_path / "source")
        assert str(refused.value).startswith(f"02_mine.ipynb, {said}")
    assert [path.name for path in tmp_path.iterdir()] == ["source"], "nothing is written"


@pytest.mark.parametrize(
    ("cells", "number"),
    [
        ({"text": "see ### BEGIN HIDDEN TESTS"}, 1),
        ({"check": f"### BEGIN HIDDEN TESTS\nanswer = 1\n### END HIDDEN TESTS\n{CHECK}"}, 2),
    ],
)
def test_a_mark_where_it_would_hide_nothing_is_refused(cells, number):
    with pytest.raises(ValueError, match=rf"cell {number} .* students would read on"):
        made_for("student", notebook_of(**cells))


def test_only_the_notebooks_asked_for(cli, tmp_path):
    call = ("teach", "--edition", "student", "--to")
    code, out, _ = cli(*call, str(tmp_path / "made"), "--only", "2,1")
    assert code == 0 and sorted(path.name[:2] for path in (tmp_path / "made").glob("*.ipynb")) == [
        "01",
        "02",
    ]
    points = sum(e.points for name in [*COMMITTED][:2] for e in exercises(COMMITTED[name]))
    assert out.splitlines()[-1].endswith(f"the student edition, {points} points in all")
    code, _, err = cli(*call, str(tmp_path / "more"), "--only", "01,77")
    assert code == 2 and "--only 01,77: there is no notebook 77. There are: 01, 02" in err
    assert not (tmp_path / "more").exists()


def test_somebodys_files_are_never_overwritten(cli, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "01_data_preparation.ipynb").write_text("answers of a term")
    for to in (mine, NOTEBOOKS / "out", NOTEBOOKS / "data" / "out"):
        code, out, err = cli("teach", "--edition", "student", "--to", str(to))
        assert (code, out) == (2, "") and f"--to {to}: name a new or an empty folder" in err
    assert (mine / "01_data_preparation.ipynb").read_text() == "answers of a term"
    assert len([*mine.iterdir()]) == 1 and not (NOTEBOOKS / "out").exists()
