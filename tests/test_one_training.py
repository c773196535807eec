"""A run is one training: what would mix two is refused before a byte changes, and what is older
than its source is marked.
"""

import hashlib
import json
import re
import subprocess

import pytest
from finished import change, finished_run

from helpers import PROJECT
from helpers.commands import compare
from helpers.commands.notebooks import NOTEBOOKS
from helpers.data.tasks import load_task, save
from helpers.presets import PRESETS
from helpers.results import card
from helpers.runs import LESSONS, TRAINING_LOCK, Run, lock
from helpers.training import checkpoints

pytestmark = pytest.mark.usefixtures("machine")
POCKET = PRESETS["pocket"]
LATER = "2099-01-01T00:00:00+00:00"  # when notebook 03 has trained again
# what another process does that trains the run
TRAINS = """
import sys
from helpers.runs import TRAINING_LOCK, Run, lock
with lock(Run("told").folder, "x", TRAINING_LOCK):
    print(1, flush=True)
    sys.stdin.read()
"""


def record(run: Run, section: str, **values) -> None:
    """Change what the manifest of a run says in one section."""
    change(run, "manifest.json", lambda manifest: manifest[section].update(values))


def contents(run: Run) -> dict[str, str]:
    """The hash of each file of a run but the locks, which name their last holder, and copies of
    executed notebooks.
    """
    return {
        str(path.relative_to(run.folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in run.folder.rglob("*")
        if path.is_file()
        and not path.name.endswith(".lock")
        and "notebooks" not in path.relative_to(run.folder).parts
    }


@pytest.fixture
def run():
    """A finished run of notebooks 01 to 05, as `told`."""
    run = finished_run()
    record(run, "data", notebook="01")
    return run


@pytest.fixture
def training(python, run):
    """Another process that trains the run, as far as any other process can see: it holds the lock
    of the training.
    """
    other = subprocess.Popen(
        [python, "-c", TRAINS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=PROJECT
    )
    assert other.stdout.readline()
    yield other
    other.communicate()


# --- While it is trained --------------------------------------------------------------------------


@pytest.mark.parametrize("only", ["01", "03", "01,02,03,04,05"])
def test_only_what_would_not_replace_its_data_or_training_is_run(
    run, training, cli, executions, only
):
    before = contents(run)
    code, out, err = cli("run", "--run", "told", "--only", only)
    assert "'told'" in err and f"process {training.pid}" in err
    assert (code, out, contents(run)) == (2, "", before)
    assert not executions and cli("run", "--run", "told", "--only", "04,06")[0] == 0


def test_no_kernel_takes_its_place(run, training):
    """Notebook 01 itself, in Jupyter: the cell that saves refuses."""
    before = contents(run)
    task = load_task("arithmetic/sums", train_size=8, holdout_size=2)
    with pytest.raises(ValueError, match=f"executed by process {training.pid}"):
        save(run, task, POCKET)
    with pytest.raises(ValueError, match=f"executed by process {training.pid}"):
        checkpoints.begin(run, POCKET, 1)
    assert contents(run) == before


# --- One lesson a run -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("maker", "command", "said"),
    [
        *(("01", f"run --run told --only {only}", "of notebook 01, and") for only in LESSONS),
        ("07", "run --run told --only 01", "of notebook 07, and"),
        ("07", "train told", "of notebook 07, and"),
        ("01", "run --run told --only 01,07", "would overwrite one another"),
        ("01", "run --run told --only 07,10", "would overwrite one another"),
    ],
)
def test_a_lesson_and_the_pipeline_leave_each_others_run_alone(run, cli, maker, command, said):
    record(run, "data", notebook=maker)
    before = contents(run)
    code, _, err = cli(*command.split())
    assert (code, contents(run)) == (2, before) and said in err


@pytest.mark.parametrize("number", ["01", "03", *LESSONS])
def test_a_notebook_that_writes_data_or_a_training_asks_so_first(number):
    """As a person runs it in Jupyter, or a batch with papermill alone."""
    (path,) = NOTEBOOKS.glob(f"{number}_*.ipynb")
    (opening,) = re.findall(r"open_run\(.*?\)\\n", path.read_text(encoding="utf-8"))
    assert f'globals(), \\"{number}\\"' in opening and "makes=False" not in opening


def test_a_run_that_names_no_notebook_is_the_pipelines_and_a_lesson_may_replace_its_own():
    run = finished_run()
    with lock(run.folder, "the training", TRAINING_LOCK):  # which this process may begin again
        assert run.made_by("01").made_by("03").notebook == "03"
    with pytest.raises(ValueError, match="another run name"):
        run.made_by("09")
    record(run, "data", notebook="09")
    assert run.made_by("09").notebook == "09"


def test_without_a_name_a_lesson_takes_its_own_and_leaves_demo_alone(run, cli, executions):
    names = {"07": "your-own-task", "09": "code-that-runs", "10": "agents", "11": "vision"}
    names["06"] = "demo"
    Run("demo").record("data", fingerprint="f")
    assert cli("run", "--only", ",".join(names))[0] == 0
    assert executions == [(only, {"run": names[only]}) for only in sorted(names)]


# --- What is older than what it was made from -----------------------------------------------------


NEWER = {"training": {"written": LATER}, "data": {"fingerprint": "another"}}


@pytest.mark.parametrize(
    ("part", "replaced", "said"),
    [
        ("evaluation.json", "training", "is from an earlier training .*--run told --only 05"),
        ("comparison.json", "training", "is from an earlier training .*--run told --only 05"),
        ("merged", "training", "is from an earlier training .*--run told --only 05"),
        ("metrics.csv", "data", "is from earlier data than the run now holds.*--only 03"),
        ("reward_report.json", "data", "is from earlier data than the run now holds.*--only 02"),
        ("data_report.json", "data", None),
    ],
)
def test_what_was_made_of_an_earlier_training_or_data_is_told(run, part, replaced, said):
    assert run.outdated(part) is None
    record(run, replaced, **NEWER[replaced])
    # the time of a file says nothing: an evaluation may end after the next training
    record(run, "evaluation", written="2100-01-01T00:00+00:00")
    why = run.outdated(part)
    assert why is None if said is None else re.search(f"{part} {said}", why)


def test_compare_gives_no_accuracy_of_an_earlier_training(run, cli):
    record(run, "training", written=LATER)
    told = compare.outcomes([run]).loc["told", ["baseline", "trained", "merged"]]
    assert told.tolist() == ["not measured"] * 3
    other = Run("other")
    other.path("metrics.csv").write_text((run.folder / "metrics.csv").read_text())
    other.path("manifest.json").write_text(json.dumps(run.manifest | {"name": "other"}))
    code, out, _ = cli("compare", "told", "other")
    assert code == 0 and "95.7%" not in out and out.count("note: ") == 1
    assert "told/evaluation.json" in out


def test_card_run_and_generate_say_it(run, cli, executions, tmp_path):
    record(run, "training", written=LATER)
    text = card.markdown(card.read_facts(run), {})
    assert "Whether training helped is not known" in text and "95.7%" not in text
    assert "The merged model is from an earlier training" in text
    code, out, _ = cli("run", "--run", "told", "--only", "03")
    assert code == 0 and "note: " in out and "told/merged" in out
    # `merged` holds no model here, so nothing is answered; the note comes before it is loaded
    questions = tmp_path / "q.jsonl"
    questions.write_text('{"question": "1 + 1?"}\n')
    asked = f"generate --run told --input {questions} --output {tmp_path / 'a.jsonl'}"
    _, _, err = cli(*asked.split())
    assert "note: " in err and "told/merged" in err
