"""The page about a class: thirty folders of a real run's files, some of them broken, strange, or
somebody's trap.
"""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from browser import browse, in_a_browser, measured
from classes import NAMED, PLAIN, SCRIPT, answer, copy_until, edit, fail_at, make_class
from finished import change

from helpers import PROJECT
from helpers.results import room, students
from helpers.results.students import Curve, Exercise, Stage, Student
from helpers.runs import Run

SECRET = "not for the class"


@pytest.fixture(scope="module")
def class_of_thirty(executed, tmp_path_factory) -> Path:
    outside = tmp_path_factory.mktemp("outside")
    copy_until(executed.folder, outside / SECRET, "05")
    return make_class(executed.folder, tmp_path_factory.mktemp("share") / "Kurs 7", outside)


@pytest.fixture(scope="module")
def found(class_of_thirty) -> dict[str, Student]:
    return {student.name: student for student in students.read(class_of_thirty)}


@pytest.fixture(scope="module")
def page(class_of_thirty, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("page") / "class.html"
    room.write(class_of_thirty, path)
    return path


@pytest.fixture
def one(executed, tmp_path):
    """A student with a run as it is after notebook 03; returns the run's folder."""
    return copy_until(executed.folder, tmp_path / "share" / "mia" / "demo", "03")


def read_one(run: Path) -> Student:
    (student,) = students.read(run.parents[1])
    return student


# --- What is read ---------------------------------------------------------------------------------


def test_everybody_is_there_by_name(found):
    assert len(found) == 30 and set(found) == {*PLAIN, *NAMED}
    assert all(found[name].changed for name in found if name != "link")


@pytest.mark.parametrize(
    ("name", "done"),
    [("ada", 5), ("ben", 2), ("fatma", 1), ("dilek", 4), ("Zoë with space", 4), (SCRIPT, 4)],
)
def test_who_has_finished_what(found, name, done):
    assert {number: stage.state for number, stage in found[name].stages.items()} == {
        f"0{n + 1}": "done" for n in range(done)
    }
    assert (found[name].curve is not None) == (done >= 3) and found[name].troubles == ()


def test_a_failed_cell_is_named_with_its_heading_and_message(found):
    stage = found["failed"].stages["04"]
    assert stage.state == "failed" and re.fullmatch(
        r"cell \[\d+\] under “.+”: KeyError: 'reward' " + re.escape(SCRIPT), stage.fault
    )
    assert "\x1b" not in stage.fault and found["failed"].stages["03"].state == "done"


def test_an_exercise_is_judged_by_what_its_check_said(found):
    right, wrong, nobody = (
        found[name].stages["01"].exercises for name in ("Jörg Müller", "wrong", "ada")
    )
    assert right[0].title == wrong[0].title == "1.1: Predict a leak"
    assert (right[0].state, wrong[0].state, nobody[0].state) == ("right", "wrong", "open")
    assert right[0].said.startswith("Right: ") and len(wrong[0].said) > 20 and len(nobody) == 2


def test_a_training_that_goes_on_shows_how_far_it_is(found):
    student = found["training"]
    assert student.stages["03"] == Stage("begun", "training", changed=student.stages["03"].changed)
    assert (
        student.curve.of == 12
        and student.curve.steps == [1, 2, 3, 4, 5]
        and student.curve.run == "demo"
    )


def test_a_corrupt_folder_is_said_file_by_file(found):
    said = "\n".join(found["corrupt"].troubles)
    for part in (
        "runs/demo/notebooks/01_data_preparation.ipynb cannot be read (it is nested too deeply).",
        "runs/demo/notebooks/02_reward_functions.ipynb cannot be read (",
        "runs/demo/notebooks/03_grpo_training.ipynb cannot be read (cells[0] is the number 3, not "
        "an object).",
        "runs/demo/notebooks/04_training_metrics.ipynb cannot be read (it is no plain file).",
        "runs/demo/manifest.json cannot be read (data.written is a text, not a time).",
        "runs/demo/metrics.csv cannot be read (it is no text).",
        "runs/demo/reward_report.json is a symbolic link, which is not followed.",
    ):
        assert part in said, part
    assert found["corrupt"].stages == {}, "its figures may be of any run"
    assert len(found["corrupt"].troubles) == 7 and str(PROJECT) not in said and "root:" not in said


def test_a_link_out_of_the_folder_is_not_followed(found, page):
    assert (
        found["link"].stages == {}
        and "is a symbolic link, which is not followed" in found["link"].troubles[0]
    )
    assert SECRET not in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("what", ["notebooks", "checkpoints", "demo", "metrics.csv"])
def test_nor_is_one_further_in(one, tmp_path, what):
    target = one if what == "demo" else one / what
    if target.exists():
        os.rename(target, tmp_path / "elsewhere")
    else:
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere/metrics.csv").write_text("step,reward\n1,77\n")
    os.symlink(tmp_path / "elsewhere", target)
    student = read_one(one)
    named = "demo" if what == "demo" else f"demo/{what}"
    assert f"{named} is a symbolic link, which is not followed." in student.troubles
    assert (
        all(not stage.about for stage in student.stages.values()) if what == "notebooks" else True
    )
    assert (
        student.curve is None
        if what in ("demo", "metrics.csv")
        else 77 not in student.curve.rewards
    )


def test_who_reads_along_in_jupyter_is_known_by_the_files(one):
    for copy in (one / "notebooks").iterdir():
        copy.unlink()
    assert {number: stage.state for number, stage in read_one(one).stages.items()} == dict.fromkeys(
        ("01", "02", "03"), "done"
    )


def test_what_came_with_a_fetched_demo_is_nobodys_until_it_is_done_again(one, cli, monkeypatch):
    class_folder = one.parents[1]
    monkeypatch.setenv("GRPO_RUNS_DIR", str(class_folder / "noor"))
    assert cli("checkpoint", "--fetch-demo", "--run", "spare")[0] == 0
    os.symlink(class_folder, class_folder / "noor/material")
    noor = students.read(class_folder)[1]
    assert (noor.name, noor.curve) == ("noor", None)
    assert noor.stages == dict.fromkeys(("01", "02", "03", "04", "05"), Stage("demo"))
    page = class_folder.parent / "class.html"
    room.write(class_folder, page)
    text = page.read_text(encoding="utf-8")
    assert (
        text.count('<span class="word">demo</span>') == 5
        and "not read" not in text
        and "01 by 1" in text
    )
    change(
        Run("spare"),
        "manifest.json",
        lambda manifest: manifest["training"].update(written="2999-01-01T00:00:00+00:00"),
    )
    noor = students.read(class_folder)[1]
    assert (
        noor.stages["03"].state == "done"
        and noor.curve.run == "spare"
        and noor.stages["02"].state == "demo"
    )


def test_who_had_a_run_mended_keeps_what_was_done(one, cli, monkeypatch):
    edit(one / "notebooks/03_grpo_training.ipynb", fail_at(5, "KeyError", "'reward'"))
    monkeypatch.setenv("GRPO_RUNS_DIR", str(one.parent))
    change(Run("demo"), "manifest.json", lambda manifest: manifest.pop("training"))
    assert cli("checkpoint", "--run", "demo", "--from-demo", "03")[0] == 0
    mia = read_one(one)
    assert {number: stage.state for number, stage in mia.stages.items()} == {
        "01": "done",
        "02": "done",
        "03": "demo",
    }
    assert mia.curve is None and mia.stages["01"].about and not mia.stages["03"].fault
    (one / "figures").mkdir(exist_ok=True)
    (one / "figures/loss.png").write_bytes(b"drawn at once")
    assert read_one(one).stages["04"].state == "done"


def test_notebooks_in_the_folder_itself_count_unless_they_are_as_committed(one):
    own = one.parent / "notebooks"
    own.mkdir()
    for path in (PROJECT / "notebooks").glob("0[1-9]_*.ipynb"):
        (own / path.name).write_bytes(path.read_bytes())
    assert set(read_one(one).stages) == {"01", "02", "03"}
    edit(own / "06_grpo_from_scratch.ipynb", lambda cells: cells[-1].update(source="done"))
    assert set(read_one(one).stages) == {"01", "02", "03", "06"}


def test_what_was_mended_later_no_longer_fails(one):
    copy = one / "notebooks/02_reward_functions.ipynb"
    edit(
        copy,
        lambda cells: cells[-1].update(
            cell_type="code", outputs=[{"output_type": "error"}], execution_count=9
        ),
    )
    assert read_one(one).stages["02"].state == "failed"
    os.utime(copy, (1, 1))  # and the manifest's section is newer
    assert read_one(one).stages["02"].state == "done"


def test_a_no_go_of_the_rewards_is_said(one):
    manifest = json.loads((one / "manifest.json").read_text())
    manifest["rewards"] |= {"go": False, "written": "2100-01-01T00:00:00+00:00"}
    (one / "manifest.json").write_text(json.dumps(manifest))
    report = json.loads((one / "reward_report.json").read_text())
    report["verdict"] |= {"go": False, "stops": ["x pays for nothing."]}
    (one / "reward_report.json").write_text(json.dumps(report))
    assert read_one(one).stages["02"].fault == "no go for the rewards. x pays for nothing."


@pytest.mark.parametrize(
    ("printed", "error", "state"),
    [
        ("Right: yes.\n", None, "right"),
        ("debug\nNot answered yet: do.\n", None, "open"),
        ("Noted.\n", None, "noted"),
        ("Close, but no.\n", None, "wrong"),
        ("", None, "open"),
        ("", "NotImplementedError", "open"),
        ("", "NameError", "wrong"),
    ],
)
def test_the_states_of_an_exercise(tmp_path, printed, error, state):
    outputs = [{"output_type": "stream", "name": "stdout", "text": [printed]}] * bool(printed)
    outputs += [{"output_type": "error", "ename": error, "evalue": "x", "traceback": []}] * bool(
        error
    )
    solution = {
        "cell_type": "code",
        "metadata": {"tags": ["solution"]},
        "source": "### BEGIN SOLUTION\nprint(check_x(1))",
    }
    right = [{"output_type": "stream", "text": "Right: of the edition's own solution"}]
    cells = [
        {"cell_type": "markdown", "source": "### Exercise 1.1: A leak\n\nText."},
        {
            "cell_type": "code",
            "source": ["x = 1\n", "print(check_x(x))"],
            "outputs": outputs,
            "execution_count": 1,
        },
        solution | {"outputs": right, "execution_count": 2},
    ]
    copy = tmp_path / "share" / "mia" / "01_data_preparation.ipynb"
    copy.parent.mkdir(parents=True)
    copy.write_text(json.dumps({"cells": cells}))
    (student,) = students.read(tmp_path / "share")
    (exercise,) = student.stages["01"].exercises
    assert (exercise.title, exercise.state) == ("1.1: A leak", state)
    assert (student.stages["01"].state == "failed") == bool(error)
    # The student's edition: the answer, and behind it the check with its verdict, in which a wrong
    # answer raises.
    raised = [{"output_type": "error", "ename": "AssertionError", "evalue": ""}] * (
        state == "wrong"
    )
    tags = {"tags": ["check", "raises-exception"]}
    verdict = "def check_x(x): ...\n\n\nverdict_on_x = check_x(x)\nprint(verdict_on_x)\nassert ..."
    cells[1:] = [
        {
            "cell_type": "code",
            "metadata": tags,
            "source": verdict,
            "outputs": outputs + raised,
            "execution_count": 2,
        }
    ]
    copy.write_text(json.dumps({"cells": cells}))
    stage = students.read(tmp_path / "share")[0].stages["01"]
    assert (stage.exercises[0].state, stage.state) == (state, "done")


def test_too_large_a_file_is_not_read(one, monkeypatch):
    monkeypatch.setitem(students._BYTES, ".csv", 100)
    student = read_one(one)
    assert student.curve is None and any(
        "metrics.csv cannot be read (it is larger than 0 MB)" in said for said in student.troubles
    )


def test_whatever_stands_in_a_file_the_rest_is_read(one):
    """Values of another kind at random places of every JSON file: a sentence at most, and never the
    whole folder.
    """
    dice, junk = (
        random.Random(3),
        [None, 3, -1e400, "x", [], {}, [[]], {"a": 1}, True, "\ud800", "9" * 400],
    )
    files = [path for path in one.rglob("*") if path.suffix in (".json", ".ipynb")]
    originals = {path: path.read_text(encoding="utf-8") for path in files}
    for _ in range(60):
        path = dice.choice(files)
        content = json.loads(originals[path])
        for _ in range(3):
            inside = content
            while isinstance(inside, dict | list) and inside:
                key = dice.choice(list(inside) if isinstance(inside, dict) else range(len(inside)))
                if dice.random() < 0.3 or not isinstance(inside[key], dict | list):
                    inside[key] = dice.choice(junk)
                    break
                inside = inside[key]
        path.write_text(json.dumps(content))
        student = read_one(one)
        assert "The folder cannot" not in "".join(student.troubles), student.troubles
        room.write(one.parents[1], one.parents[2] / "page.html")
        path.write_text(originals[path], encoding="utf-8")
    half = files[0].read_bytes()
    for cut in range(0, len(half), max(1, len(half) // 20)):
        files[0].write_bytes(half[:cut])
        assert read_one(one).stages


def test_a_folder_that_may_not_be_read_is_a_line(one, monkeypatch):
    def refuse(folder):
        raise PermissionError(13, "Permission denied")

    (one.parents[1] / "noor").mkdir()
    known = students._places
    monkeypatch.setattr(
        students,
        "_places",
        lambda folder, said: refuse(folder) if folder.name == "noor" else known(folder, said),
    )
    mia, noor = students.read(one.parents[1])
    assert noor.troubles == ("The folder cannot be read (Permission denied).",) and set(
        mia.stages
    ) == {"01", "02", "03"}


def test_odd_curves(tmp_path):
    table = tmp_path / "metrics.csv"
    table.write_text("step,reward\n3,1\n1,0.5\n2,nan\n4,inf\n5,1e300\nx,1\n-1,1\n6\n")
    assert students._points(table) == ([1.0, 3.0], [0.5, 1.0])
    table.write_text("step,reward\n" + "".join(f"{n},{n % 5}\n" for n in range(1, 100_001)))
    steps, rewards = students._points(table)
    assert len(steps) == 160 and steps[0] == 1 and steps[-1] == 100_000 and set(rewards) == {2.0}
    table.write_text("loss\n1\n")
    with pytest.raises(ValueError, match="no step with a reward"):
        students._points(table)


def test_a_number_without_end_is_no_end_to_the_class(one):
    (one / "checkpoints").mkdir()
    (one / "checkpoints/metrics.csv").write_text("step,reward\n1,1")
    (one / "checkpoints/settings.json").write_text('{"settings":{"max_steps":1' + "0" * 400 + "}}")
    asked = {"cell_type": "markdown", "source": f"### Exercise {'1' * 400}.1: x"}
    told = {
        "cell_type": "code",
        "source": "print(check_x(1))",
        "outputs": [{"output_type": "stream", "text": "Wrong"}],
    }
    failed = {
        "cell_type": "code",
        "source": "1 / 0",
        "outputs": [{"output_type": "error", "ename": "ZeroDivisionError"}],
    }
    cells = [asked, told | {"execution_count": 1}, failed | {"execution_count": 10**500}]
    (one / "notebooks/01_data_preparation.ipynb").write_text(json.dumps({"cells": cells}))
    room.write(one.parents[1], one.parents[2] / "page.html")
    text = (one.parents[2] / "page.html").read_text()
    assert (
        "checkpoints/settings.json cannot be read (settings.max_steps is no number of steps)."
        in text
    )
    assert (
        "a cell under “Exercise 111" in text
        and "0" * 400 not in text
        and read_one(one).curve.rewards == [1.0]
    )


def test_a_run_in_the_folder_itself_is_one_run(tmp_path):
    inside = tmp_path / "share" / "mia" / "checkpoints"
    inside.mkdir(parents=True)
    (inside / "metrics.csv").write_text("step,reward\n1,1")
    (inside / "settings.json").write_text('{"settings": {"max_steps": 12}}')
    assert read_one(inside).curve == Curve("", [1.0], [1.0], 12)


def test_a_folder_that_may_only_be_listed_has_no_last_change(one, monkeypatch):
    known = os.lstat

    def refuse(path, **given):
        if one in Path(path).parents:
            raise PermissionError(13, "Permission denied")
        return known(path, **given)

    monkeypatch.setattr(os, "lstat", refuse)
    assert (
        read_one(one).changed is None
        and "demo/notebooks cannot be read (Permission denied)." in read_one(one).troubles
    )


# --- What is drawn --------------------------------------------------------------------------------


def test_a_curve_on_another_scale_does_not_flatten_the_others(found):
    drawn = room.curves(list(found.values()))
    own = [panel["name"] for panel in drawn["panels"] if panel["own"]]
    assert (
        own == ["scaled"]
        and drawn["scale"][2] < 3
        and len(drawn["lines"]) == len(drawn["panels"]) - 1
    )
    assert {"corrupt", "link", "ben"} <= set(drawn["without"])
    ys = [float(point.split(",")[1]) for line in drawn["lines"] for point in line.split()]
    assert min(ys) >= 0 and max(ys) <= 100


def test_a_line_begins_at_the_first_step_and_rises_with_the_reward():
    curve = Curve("demo", [1.0, 2.0, 5.0], [0.0, 1.0, 0.5])
    assert room._line(curve, (5.0, 0.0, 1.0)) == "0.0,100.0 50.0,0.0 200.0,50.0"
    lone = room.curves([Student("a", curve=Curve("", [1.0], [0.0]))])
    assert len(lone["panels"][0]["line"].split()) == 2 and "nan" not in str(lone)


def test_the_page_says_who_needs_a_look_and_shows_hostile_names_as_they_are(page):
    text = page.read_text(encoding="utf-8")
    assert (
        "<script" not in text.lower()
        and "&lt;script&gt;console.log" in text
        and "http" not in text.replace("http-equiv", "")
    )
    help_ = text[text.index('id="help"') : text.index('id="progress"')]
    assert re.findall(r"<h3><bdi>(.*?)</bdi>", help_) == ["corrupt", "failed", "link"]
    assert (
        "Notebook 04, cell [" in help_
        and "3 need a look" in text
        and "1 answer to exercises is wrong" in text
    )
    table = text[text.index('id="progress"') : text.index('id="curves"')]
    assert (
        table.count('<th scope="row">') == 30
        and "Jörg Müller" in table
        and 'http-equiv="refresh"' not in text
    )
    exercises = text[text.index('id="exercises"') :]
    row = exercises[exercises.index("1.1: Predict a leak") :]
    assert (
        re.findall(r'<td class="n">(\d+)</td>', row)[:3] == ["1", "1", "26"]
        and "<bdi>wrong</bdi>" in row
    )
    panels = re.findall(
        r'<svg role="img"[^>]* aria-label="([^"]+): reward [^"]+ → [^"]+, step \d+', text
    )
    assert len(panels) == len(set(panels)) == text.count("<figure>") and "training" in panels


@in_a_browser
def test_the_page_can_be_read_on_a_desk_and_on_a_phone(page, tmp_path):
    dumped, console = browse(page, tmp_path / "profile", "--dump-dom")
    assert console == [] and 'id="exercises"' in dumped
    for view, width in zip(measured(page, tmp_path, (1280, 400)), (1280, 400), strict=True):
        assert (
            view["width"] == width
            and view["scroll"] <= width
            and view["wide"] == []
            and view["text"] >= 12.5
        )
        assert all(view["tables"]) and len(view["figures"]) > 15
        for figure in view["figures"]:
            left, top, right, bottom = figure["box"]
            assert (
                figure["visible"]
                and right - left >= 140
                and bottom - top >= 60
                and left >= 0
                and right <= width
            )


def test_a_class_of_nobody_and_one_of_empty_folders(tmp_path):
    share = tmp_path / "share"
    share.mkdir()
    (share / "README.txt").write_text("no student")
    (share / ".hidden").mkdir()
    assert room.write(share, tmp_path / "class.html") == []
    assert "There is no folder yet" in (tmp_path / "class.html").read_text()
    (share / "mia").mkdir()
    assert room.write(share, tmp_path / "class.html") == [Student("mia")]
    text = (tmp_path / "class.html").read_text()
    assert (
        "nothing yet" in text
        and "Nobody has finished a notebook yet" in text
        and "Nobody has logged a step" in text
    )


def test_marks_and_times():
    stage = Stage("done", exercises=(Exercise("1.1", "noted"), Exercise("1.2", "open")))
    assert room.marks(stage) == "1 noted" and room.marks(Stage("done")) == ""
    assert [room.ago(0.0, then) for then in (59, 3599, 3600, 172_800)] == [
        "now",
        "59 min ago",
        "1 h ago",
        "2 days ago",
    ]


# --- The command ----------------------------------------------------------------------------------


def test_the_command_writes_the_page(cli, class_of_thirty, tmp_path):
    code, out, err = cli(
        "class", "--runs", str(class_of_thirty), "--to", str(tmp_path / "ä b.html")
    )
    assert (code, err) == (0, "") and out == f"{tmp_path / 'ä b.html'}: 30 students\n"
    assert [path.name for path in tmp_path.iterdir()] == ["ä b.html"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--runs", "nowhere"], "nowhere is not a folder"),
        (["--runs", ".", "--to", "."], ". is no place for the page"),
        (["--runs", ".", "--to", "no/such/folder.html"], "is no place for the page"),
        (["--runs", ".", "--every", "0.1"], "--every 0.1 is no number of seconds from 1 to 86400"),
        (["--runs", ".", "--every", "nan"], "--every nan is no number"),
        (["--runs", ".", "--every", "soon"], "--every soon is no number"),
    ],
)
def test_what_cannot_be_written_is_refused(cli, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    code, _, err = cli("class", *arguments)
    assert code == 2 and said in err and not list(tmp_path.iterdir())


def test_only_a_page_of_a_class_is_written_again(cli, tmp_path):
    (tmp_path / "share").mkdir()
    page, mine, empty = (tmp_path / name for name in ("class.html", "precious.txt", "empty"))
    mine.write_text("a term's work")
    empty.touch()
    codes = [
        cli("class", "--runs", str(tmp_path / "share"), "--to", str(to))[0]
        for to in (page, page, empty, mine)
    ]
    assert codes == [0, 0, 0, 2] and mine.read_text() == "a term's work"


def test_a_folder_of_thousands_is_no_class(cli, tmp_path):
    for n in range(students.MOST + 1):
        (tmp_path / str(n)).mkdir()
    code, _, err = cli("class", "--runs", str(tmp_path), "--to", str(tmp_path / "class.html"))
    assert code == 2 and "more than 500 folders" in err


def test_a_page_that_is_looked_at_goes_on_whatever_a_folder_provokes(tmp_path, monkeypatch, capsys):
    provoked = iter([OverflowError("int too large"), KeyboardInterrupt()])

    def write(*_):
        raise next(provoked)

    monkeypatch.setattr(room, "write", write)
    with pytest.raises(KeyboardInterrupt):
        room.keep(tmp_path, tmp_path / "class.html", 0)
    assert "not written: int too large" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Ctrl-C is sent as POSIX does")
def test_it_is_written_again_until_ctrl_c(one, tmp_path):
    share, page = one.parents[1], tmp_path / "class.html"
    command = [
        sys.executable,
        "-m",
        "helpers",
        "class",
        "--runs",
        str(share),
        "--to",
        str(page),
        "--every",
        "1",
    ]
    with subprocess.Popen(
        command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert wait_for(lambda: page.exists() and 'http-equiv="refresh"' in page.read_text())
            (share / "new").mkdir()
            assert wait_for(lambda: "<bdi>new</bdi>" in page.read_text())
            os.rename(share, tmp_path / "away")  # a network share that is gone for a moment
            assert "not written" in process.stderr.readline()
            os.rename(tmp_path / "away", share)
            (share / "newer").mkdir()
            assert wait_for(lambda: "<bdi>newer</bdi>" in page.read_text())
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=600)
        finally:
            process.kill()
    assert process.returncode == 130 and "Ctrl-C ends it" in out and "Traceback" not in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["class.html", "share"]


def wait_for(what, seconds: float = 600) -> bool:
    end = time.monotonic() + seconds
    while not (found := what()) and time.monotonic() < end:
        time.sleep(0.1)
    return found


def test_the_names_of_the_lessons_runs_are_those_of_their_notebooks():
    own = []
    for path in sorted((PROJECT / "notebooks").glob("[0-9]*.ipynb")):
        (name,) = set(re.findall(r'"run = \\"([\w-]+)\\"', path.read_text(encoding="utf-8")))
        own += [name] if name != "demo" else []
    assert tuple(own) == students.LESSONS


def test_answers_that_an_edition_has_in_its_solution_are_nobodys(executed, tmp_path):
    run = copy_until(executed.folder, tmp_path / "share" / "mia" / "demo", "01")
    edit(run / "notebooks/01_data_preparation.ipynb", answer("leak", None))
    assert [one.state for one in read_one(run).stages["01"].exercises] == ["open", "open"]


def test_a_copy_that_nobody_has_run_counts_for_no_exercise(executed, tmp_path):
    run = copy_until(executed.folder, tmp_path / "share" / "mia" / "demo", "01")
    path = run / "notebooks/01_data_preparation.ipynb"
    content = json.loads(path.read_text(encoding="utf-8"))
    for cell in content["cells"]:
        cell |= {"outputs": [], "execution_count": None} if cell["cell_type"] == "code" else {}
    path.write_text(json.dumps(content), encoding="utf-8")
    assert read_one(run).stages["01"].exercises == ()
