"""A run is one training: what would mix two is refused before a byte changes, and what is older
than its source is marked.
"""

import hashlib
import json
import os
import subprocess

import papermill
import pytest
from finished import change, entry, finished_run
from papermill.exceptions import PapermillExecutionError

from helpers import PROJECT
from helpers.commands import pipeline
from helpers.data.tasks import load_task, save
from helpers.metrics import comparing
from helpers.presets import PRESETS
from helpers.results import report
from helpers.runs import LESSONS, TRAINING_LOCK, Run, held

pytestmark = pytest.mark.usefixtures("machine")
POCKET = PRESETS["pocket"]


def contents(run: Run) -> dict[str, str]:
    """The hash of each file of a run but the locks, which name their last holder, and copies of
    executed notebooks.
    """
    found = (
        path for path in run.folder.rglob("*") if path.is_file() and not path.name.endswith(".lock")
    )
    kept = [path for path in found if "notebooks" not in path.relative_to(run.folder).parts]
    return {
        str(path.relative_to(run.folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in kept
    }


@pytest.fixture
def run():
    """A finished run of notebooks 01 to 05, as `told`."""
    run = finished_run()
    for name, notebook in (("data", "01"), ("training", "03")):
        change(
            run,
            "manifest.json",
            lambda m, name=name, notebook=notebook: m[name].update(notebook=notebook),
        )
    return run


@pytest.fixture
def training(python, run):
    """Another process that trains the run, as far as any other process can see: it holds the lock
    of the training.
    """
    code = "import sys; from helpers.runs import TRAINING_LOCK, Run, held\n"
    code += (
        "with held(Run('told').folder, 'x', TRAINING_LOCK): print(1, flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [python, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=PROJECT
    )
    assert other.stdout.readline()
    yield other
    other.communicate()


# --- While it is trained --------------------------------------------------------------------------


@pytest.mark.parametrize("only", ["01", "03", "07", "10", "01,02,03,04,05"])
def test_nothing_that_would_replace_its_data_or_training_is_run(run, training, cli, only):
    before = contents(run)
    for fresh in ([], ["--fresh"])[only in LESSONS :]:  # without it a lesson is refused anyway
        code, out, err = cli("run", "--run", "told", "--only", only, *fresh)
        assert (
            f"run 'told' is being trained by process {training.pid}" in err
            and "another name" in err
        )
        assert (code, out, contents(run)) == (2, "", before)


def test_what_only_reads_is_run(run, training, cli, monkeypatch):
    monkeypatch.setattr(pipeline, "_execute", lambda *given: True)
    assert cli("run", "--run", "told", "--only", "04,06")[0] == 0


def test_a_demo_is_not_put_in_its_place(run, training, cli):
    before = contents(run)
    code, out, err = cli("checkpoint", "--run", "told", "--from-demo", "03")
    assert code == 2 and f"is being executed by process {training.pid}" in err and out == ""
    assert contents(run) == before


def test_nor_does_a_kernel_write_its_data(run, training):
    """Notebook 01 itself, in Jupyter: its first cell refuses, and so does the one that saves, for
    who began before.
    """
    before = contents(run)
    with pytest.raises(ValueError, match=f"being trained by process {training.pid}"):
        run.made_by("01")
    task = load_task("arithmetic/sums", train_size=8, holdout_size=2)
    with pytest.raises(ValueError, match=f"executed by process {training.pid}"):
        save(run, task, POCKET)
    assert contents(run) == before


def test_the_process_that_trains_may_begin_again(run):
    with held(run.folder, "the training", TRAINING_LOCK):
        assert run.made_by("03").notebook == "03"


# --- One lesson a run -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("maker", "only"), [("01", "07"), ("01", "09"), ("01", "10"), ("07", "01"), ("07", "03")]
)
def test_a_lesson_and_the_pipeline_leave_each_others_run_alone(run, cli, maker, only):
    change(run, "manifest.json", lambda m: m["data"].update(notebook=maker))
    before = contents(run)
    code, out, err = cli("run", "--run", "told", "--only", only)
    assert (code, out) == (2, "")
    for part in (f"that notebook {maker} made", "another run name", "--fresh"):
        assert part in err
    assert contents(run) == before


def test_nor_does_a_training_or_a_rerun_touch_a_lessons_run(run, cli):
    change(run, "manifest.json", lambda m: m["data"].update(notebook="07"))
    before = contents(run)
    assert cli("train", "--run", "told")[0] == 2
    code, _, err = cli("reproduce", "--run", "told")
    assert code == 2 and "is notebook 07's" in err and contents(run) == before


def test_so_does_the_notebook_itself(run, tmp_path):
    """As a person runs it in Jupyter, or a batch with papermill alone."""
    before = contents(run)
    (path,) = pipeline.NOTEBOOKS.glob("10_*.ipynb")
    with pytest.raises(PapermillExecutionError, match="that notebook 01 made"):
        papermill.execute_notebook(
            str(path),
            str(tmp_path / "copy.ipynb"),
            {"run": "told"},
            cwd=str(path.parent),
            progress_bar=False,
        )
    assert contents(run) == before


def test_a_run_of_an_earlier_version_is_the_pipelines_and_no_lessons(cli):
    run = finished_run()  # its manifest names no notebook
    assert run.made_by("01").made_by("03").notebook == "03"
    code, _, err = cli("run", "--run", "told", "--only", "09")
    assert code == 2 and "that an earlier version of these notebooks" in err
    change(run, "manifest.json", lambda m: m["data"].update(notebook="09"))
    assert run.made_by("09").notebook == "09", "its own run a lesson may replace"


def test_fresh_sets_the_other_lessons_work_aside_whole(run, cli, monkeypatch):
    monkeypatch.setattr(pipeline, "_execute", lambda *given: True)
    before = contents(run)
    code, out, _ = cli("run", "--run", "told", "--only", "07", "--fresh")
    assert code == 0 and "set aside, whole: " in out and "set_aside/1/" in out
    aside = Run("told")
    aside.folder = run.folder / "set_aside/1"
    assert contents(aside) == before and not (run.folder / "manifest.json").exists()


def test_fresh_does_not_leave_notebook_03_without_data(run, cli):
    change(run, "manifest.json", lambda m: m["data"].update(notebook="07"))
    before = contents(run)
    code, _, err = cli("run", "--run", "told", "--only", "03", "--fresh")
    assert code == 2 and "--only 01,03 --fresh" in err and contents(run) == before


def test_without_a_name_a_lesson_takes_its_own_and_leaves_demo_alone(run, cli, monkeypatch):
    calls = []
    monkeypatch.setattr(
        pipeline,
        "_execute",
        lambda path, run, given, in_place: calls.append((path.name[:2], given)) or True,
    )
    for only in ("07", "09", "10", "06"):
        assert cli("run", "--only", only)[0] == 0
    names = ["your-own-task", "code-that-runs", "agents", "demo"]
    assert calls == [
        (only, {"run": name}) for only, name in zip(("07", "09", "10", "06"), names, strict=True)
    ]
    code, _, err = cli("run", "--only", "06,07")
    assert code == 2 and "06: demo, 07: your-own-task" in err


@pytest.mark.parametrize("only", ["01,07", "07,10", "03,09"])
def test_one_call_does_not_write_two_lessons_into_one_run(cli, only):
    code, _, err = cli("run", "--run", "new", "--only", only)
    assert code == 2 and "over one another" in err and not Run("new").folder.exists()


# --- What is older than what it was made from -----------------------------------------------------


@pytest.fixture
def retrained(run):
    """The same run after notebook 03 has trained again, and nothing else was done."""
    change(
        run, "manifest.json", lambda m: m["training"].update(written="2099-01-01T00:00:00+00:00")
    )
    return run


STALE = ["evaluation.json", "comparison.json", "merged", "figures/reward.png"]


@pytest.mark.parametrize("part", STALE)
def test_what_was_made_of_an_earlier_training_is_told(run, part):
    if not (run.folder / part).exists():
        run.path(part).touch()
    assert run.outdated(part) is None
    change(
        run, "manifest.json", lambda m: m["training"].update(written="2099-01-01T00:00:00+00:00")
    )
    why = run.outdated(part)
    assert f"{part} is of an earlier training" in why and "--run told --only 0" in why
    # as an earlier version left it
    change(run, "manifest.json", lambda m: [m.pop("evaluation", 0), m.pop("merge", 0)])
    assert run.outdated(part) == why
    for name in STALE:
        if (path := run.folder / name).exists():
            os.utime(path, (5e9, 5e9))
    assert run.outdated(part) is None


def test_what_was_made_of_earlier_data_is_told(run):
    change(run, "manifest.json", lambda m: m["rewards"].update(data=m["data"]["fingerprint"]))
    assert run.outdated("reward_report.json") is None and run.outdated("metrics.csv") is None
    change(run, "manifest.json", lambda m: m["data"].update(fingerprint="another"))
    assert "is of earlier data than the run now holds" in run.outdated("reward_report.json")
    assert run.outdated("metrics.csv") and run.outdated("data_report.json") is None


def test_an_evaluation_that_ended_after_the_next_training_is_of_the_one_it_measured(run):
    """05 began before 03 had trained again, and wrote afterwards: the clock would call it new."""
    measured = run.section("training")
    change(
        run, "manifest.json", lambda m: m["training"].update(written="2020-01-01T00:00:00+00:00")
    )
    run.record_evaluation(measured, {"trained": entry(400)}, {})
    assert run.outdated("evaluation.json")


def test_compare_gives_no_accuracy_of_an_earlier_training(run, retrained, cli):
    table = comparing.outcomes([retrained])
    assert (
        table.loc["told", ["baseline", "trained", "merged"]].tolist()
        == ["of an earlier training"] * 3
    )
    other = Run("other")
    other.path("metrics.csv").write_text((run.folder / "metrics.csv").read_text())
    other.path("manifest.json").write_text(json.dumps(run.manifest | {"name": "other"}))
    code, out, _ = cli("compare", "told", "other")
    assert (
        code == 0
        and "95.7%" not in out
        and out.count("note: ") == 1
        and "told/evaluation.json is of an earlier" in out
    )


def test_report_and_the_last_lines_of_a_run_say_it(retrained, cli, monkeypatch):
    page = report.write(retrained).read_text(encoding="utf-8")
    assert (
        "nothing was measured" in page
        and "The merged model is of an earlier training" in page
        and "95.7 %" not in page
    )
    monkeypatch.setattr(pipeline, "_execute", lambda *given: True)
    code, out, _ = cli("run", "--run", "told", "--only", "03")
    assert code == 0 and "note: " in out and "told/merged is of an earlier training" in out


def test_generate_says_that_its_model_is_of_an_earlier_training(retrained, cli, tmp_path):
    """`merged` holds no model here, so nothing is answered; the note comes before it is loaded."""
    questions = tmp_path / "q.jsonl"
    questions.write_text('{"question": "1 + 1?"}\n')
    _, _, err = cli(
        "generate",
        "--run",
        "told",
        "--input",
        str(questions),
        "--output",
        str(tmp_path / "a.jsonl"),
    )
    assert "note: " in err and "told/merged is of an earlier training" in err
