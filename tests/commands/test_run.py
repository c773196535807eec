"""The command `run`: how it reads values, which parameters each notebook gets, what it prints, what
it refuses, and how it resumes.
"""

import json
import re
import subprocess
from dataclasses import asdict

import nbformat
import pytest
from filelock import FileLock

from helpers import PROJECT
from helpers.commands.notebooks import defaults
from helpers.commands.papermill_engine import lines_to_print
from helpers.parameters import read_parameters, read_value
from helpers.presets import PRESETS
from helpers.printing import quoted
from helpers.runs import Run
from helpers.settings import SETTINGS, check_report_to
from helpers.training.trial_steps import Trial, forecast

pytestmark = pytest.mark.usefixtures("machine")


# --- Values on the command line -------------------------------------------------------------------

LITERALS = {
    "20": 20,
    "1e-3": 1e-3,
    "[1, 2]": [1, 2],
    "True": True,
    "true": True,
    "null": None,
    '"20"': "20",
    "'text'": "text",
    "{'a': 'b'}": {"a": "b"},
}
TEXTS = ["text", "arithmetic/sums", "What is 1 + 2?", "2026-08-01", "007", "C:\\data\\mine.csv", ""]
TEXTS += ["{x", "{[1]: 2}", "long? " * 1000]  # half a literal, an unhashable key, a long name


@pytest.mark.parametrize(("text", "value"), [*LITERALS.items(), *((text, text) for text in TEXTS)])
def test_a_literal_becomes_its_value_and_any_other_text_stays(text, value):
    read = read_value(text)
    assert read == value and type(read) is type(value)


def test_paths_of_files_become_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("mine.py", "yours.py"):
        (tmp_path / name).touch()
    assert read_value("mine.py") == f"{tmp_path}/mine.py"
    listed = f"{tmp_path}/mine.py:one*0.5,correctness,{tmp_path}/yours.py:two"
    assert read_value("mine.py:one*0.5, correctness, yours.py:two") == listed


def test_parameters_are_split_at_the_first_equals_sign_and_trimmed():
    given = ["max_steps=20", " beta = 0.1 ", "question=1 + 1 = ?", "source=", "max_steps=30"]
    expected = {"max_steps": 30, "beta": 0.1, "question": "1 + 1 = ?", "source": ""}
    assert read_parameters(given) == expected


# --- Notebooks ------------------------------------------------------------------------------------


def test_each_notebook_gets_the_run_and_the_parameters_it_takes(cli, executions):
    given, run = ["seed=5", "max_steps=3", "question=Why?"], {"run": "a"}
    assert cli("run", "--run", "a", "--preset", "pocket", *(f"-p{text}" for text in given))[0] == 0
    assert executions == [
        ("01", run | {"preset": "pocket", "seed": 5}),
        ("02", run | {"seed": 5}),
        ("03", run | {"seed": 5, "max_steps": 3}),
        ("04", run),
        ("05", run | {"seed": 5, "question": "Why?"}),
    ]


# --- Stopped and resumed ---------------------------------------------------------------------------

# the notebook where the run stopped, its arguments, and the notebooks that --resume executes
RESUMED = {
    "in the training": ("03", ["--preset", "pocket"], ["03", "04", "05"]),
    "at once": (
        "01",
        ["-p", "seed=5", "-p", "question=What's 1 + 2?"],
        ["01", "02", "03", "04", "05"],
    ),
    "a part": ("04", ["--only", "03,04"], ["04"]),
}


@pytest.mark.parametrize(("at", "given", "left"), RESUMED.values(), ids=RESUMED)
@pytest.mark.parametrize("how", ["interrupted", "failed"])
def test_a_run_that_stopped_is_resumed_with_what_was_given(cli, executions, at, given, left, how):
    executions.outcomes[at] = KeyboardInterrupt if how == "interrupted" else False
    Run("a").record("data", fingerprint="f")  # of an earlier call, for the part that needs it
    code, _, err = cli("run", "--run", "a", *given)
    assert code == (130 if how == "interrupted" else 1)
    assert how == "failed" or "continue with `python -m helpers run --run a --resume`" in err
    assert executions[-1][0] == at, "no later notebook is run"
    asked = dict(executions)[at]
    call = Run("a").section("call")
    assert list(call["given"]) == [*call["done"], at]
    assert call["notebooks"] == [*call["done"], *left]
    executions.clear()
    executions.outcomes.clear()
    code, out, _ = cli("run", "--run", "a", "--resume")
    assert code == 0 and [number for number, _ in executions] == left
    assert dict(executions)[at] == asked, "the same parameters"
    executions.clear()
    code, out, _ = cli("run", "--run", "a", "--resume")
    assert code == 0 and executions == [] and "finished" in out


def test_help_lists_presets_and_the_values_of_settings_and_an_unknown_value_is_refused(
    cli, runs, capsys
):
    with pytest.raises(SystemExit):
        cli("run", "--help")
    shown = " ".join(capsys.readouterr().out.split())
    assert all(name in shown for name in PRESETS)
    for name in ("loss_type", "engine", "lr_scheduler_type"):
        values = ", ".join(SETTINGS[name].metadata["may_be"])
        assert f"{name}: {values}" in shown
        code, _, err = cli("run", "--preset", "pocket", "-p", f"{name}=cosinus")
        assert code == 2 and values in err
    assert not runs.exists()


def test_resuming_says_if_the_training_begins_anew(cli, executions):
    executions.outcomes["03"] = False
    Run("a").record("data", fingerprint="f")
    assert cli("run", "--run", "a", "--only", "03")[0] == 1
    anew = "no checkpoint was saved, so notebook 03 starts from the beginning\n"
    assert anew in cli("run", "--run", "a", "--resume")[1]
    Run("a").path("checkpoints/checkpoint-4/trainer_state.json").write_text("{}")
    assert anew not in cli("run", "--run", "a", "--resume")[1]


def test_once_executes_only_notebooks_that_the_same_command_did_not_finish(cli, executions):
    call = ("run", "--once", "--run", "a", "--only", "01,03", "-p", "seed=1")
    executions.outcomes["03"] = False
    assert cli(*call)[0] == 1
    executions.clear()
    executions.outcomes.clear()
    assert cli(*call)[0] == 0 and [number for number, _ in executions] == ["03"]
    assert "finished" in cli(*call)[1] and len(executions) == 1
    assert cli(*call, "-p", "beta=0")[0] == 0 and len(executions) == 3, "another call"


@pytest.mark.parametrize(
    ("preset", "maker", "only", "said"),
    [
        ("h200", "01", "04", ""),  # the metrics of a run from a GPU can be looked at without one
        ("h200", "01", "03", "needs an NVIDIA GPU"),
        ("pocket", "10", "05", "run 'a' is notebook 10's"),
    ],
)
def test_the_settings_and_the_maker_of_a_run_decide_which_notebooks_can_run(
    cli, executions, preset, maker, only, said
):
    Run("a").record("data", settings=asdict(PRESETS[preset]), notebook=maker)
    code, _, err = cli("run", "--run", "a", "--only", only)
    assert (code, bool(executions)) == ((2, False) if said else (0, True)) and said in err


def test_a_lesson_is_checked_with_its_preset_and_not_with_the_settings_it_recorded(cli, executions):
    long = asdict(PRESETS["pocket"]) | {"max_steps": 100, "warmup_steps": 50.0}
    Run("a").record("data", settings=long, notebook="00")
    assert cli("run", "--run", "a", "--only", "00", "-p", "max_steps=20")[0] == 0 and executions


def test_an_evaluation_is_printed_at_the_end(cli, executions):
    entry = {"accuracy": 0.5, "ci95": [0.4, 0.6], "n": 100, "in_format": 0.25}
    Run("a").path("evaluation.json").write_text(json.dumps({"baseline": entry}))
    code, out, _ = cli("run", "--run", "a", "--preset", "pocket")
    assert code == 0 and "5 notebooks in" in out
    assert re.search(r"baseline +50\.0% +40\.0% to 60\.0% +25\.0% +100 *\n", out)
    _, out, _ = cli("run", "--run", "a", "--only", "04")
    assert "baseline" not in out, "notebook 04 measures no accuracy"
    Run("b").path("evaluation.json").write_text(json.dumps({"baseline": entry}))
    assert "baseline" in cli("run", "--run", "b", "--only", "00")[1]


# --- papermill ------------------------------------------------------------------------------------


ONE_RUN = """
import sys
from pathlib import Path
from helpers.__main__ import main
from helpers.commands import notebooks
notebooks.NOTEBOOKS = Path(sys.argv[1])
sys.exit(main(["run", "--only", "01", "--run", *sys.argv[2:]]))
"""


STEPS = """
print("data: 3 of 4 rows usable", "no data: 4", "note: brevity gave 1.0", "NOT TESTED: it", sep="\\n")
from types import SimpleNamespace
from helpers.metrics.plots import dashboard
from helpers.training.callbacks import Watch
history = SimpleNamespace(rows=[])
watch = Watch(history, lambda table: [], dashboard)
for step in (1, 2, 3):
    row = {"step": step, "reward": step / 10, "reward_std": 0.5, "loss": 0.0}
    history.rows.append(row)
    watch.on_log(None, SimpleNamespace(global_step=step, max_steps=3), None, logs=row)
watch.on_train_end(None, None, None)
"""
VERDICTS = """
from helpers.laboratory.verdicts import Verdict
example = Verdict(stops=["it pays for length"])
verdict = Verdict(stops=["it pays for praise"], notes=["it is slow"])
"""


@pytest.mark.slow
def test_progress_and_the_verdict_are_printed_and_the_notebook_keeps_one_figure(notebook, python):
    path = notebook("01", VERDICTS, "print(example)", "print(verdict)", STEPS)
    command = [python, "-c", ONE_RUN, str(path.parent), "a"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
    told = [
        line.split("  spread")[0] for line in done.stdout.splitlines() if line.startswith("    ")
    ]
    assert told == [
        "    NO GO:",
        "      - it pays for praise",
        "      note: it is slow",
        "    data: 3 of 4 rows usable",
        "    note: brevity gave 1.0",
        "    NOT TESTED: it",
        *(f"    step    {step}/3  reward 0.{step}00" for step in (1, 2, 3)),
    ]
    assert "no data" not in done.stdout
    outputs = (
        nbformat.read(Run("a").require("notebooks/01_tiny.ipynb"), as_version=4).cells[-1].outputs
    )
    (output,) = [output for output in outputs if output.output_type == "display_data"]
    numbers = re.findall(r"\d+(?:\.\d+)?", output.data["text/plain"])
    assert "<img alt=" in output.data["text/html"] and numbers[-4:] == ["0.10", "1", "0.30", "3"]


def test_a_completion_cannot_write_a_line_of_the_terminal():
    ends = "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
    completion = f"5{'note: all is well'.join(['', *ends])}\x1b[2J\u202e\u200b\udc80"
    assert lines_to_print("print(verdict)", f"0  {completion}\n1  {completion}") == []
    assert lines_to_print("", quoted(completion.replace("\v", "\n"))) == []
    (line,) = lines_to_print("", f"note: {completion} is odd")
    assert line.isprintable() and r"\u2028" in line and r"\x1b[2J" in line


@pytest.mark.parametrize("parameter", ["cases", "completions"])
def test_a_file_that_is_not_there_is_named_at_the_door_and_presets_in_the_help(
    cli, executions, capsys, parameter
):
    code, _, err = cli("run", "--run", "t", "--only", "02", "-p", f"{parameter}=nowhere.jsonl")
    assert code == 2 and "nowhere.jsonl" in err and not executions and not Run("t").folder.exists()
    with pytest.raises(SystemExit):
        cli("run", "--help")
    assert "memory_optimized" in capsys.readouterr().out


def test_a_finished_run_begins_anew_audibly_and_a_failed_one_names_how_it_goes_on(cli, executions):
    call = ("run", "--run", "t", "--preset", "pocket", "--only", "01,03")
    executions.outcomes["03"] = False
    code, out, err = cli(*call)
    assert code == 1 and "--run t --resume" in err and "was finished" not in out
    executions.outcomes["03"] = True
    code, out, err = cli(*call[:3], "--resume")
    assert code == 0 and "was finished" not in out and not err
    assert "it executes 01, 03 again" in cli(*call)[1]
    # another notebook of the run is not announced as a repetition
    assert "was finished" not in cli("run", "--run", "t", "--only", "04")[1]
    cli("run", "--run", "other", "--preset", "pocket", "--only", "01")
    code, _, err = cli("report", "--run", "tt")
    assert code == 2 and ": other, t." in err and not Run("tt").folder.exists()


@pytest.mark.parametrize("notebook", ["00", "03", "07"])
def test_a_tracker_is_checked_at_the_door_and_says_where_it_writes(
    cli, notebook, executions, monkeypatch, tmp_path
):
    def said(report_to: str) -> str:
        given = ("-p", f"report_to={report_to}", "-p", "preset=pocket")
        code, _, err = cli("run", "--run", "t", "--only", notebook, *given)
        return err if code else ""

    for name in ("WANDB_API_KEY", "WANDB_MODE", "TENSORBOARD_LOGGING_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name != "trackio")
    if notebook != "03":  # which would ask for the data first
        assert "Did you mean 'tensorboard'?" in said("tensorbord")
        assert "WANDB_MODE=offline" in said("wandb") and "not installed" in said("trackio")
        assert not executions
    monkeypatch.setenv("WANDB_MODE", "offline")
    for tracker in ("wandb", "tensorboard"):
        line = check_report_to(tracker, "runs/t/checkpoints")
        assert lines_to_print("", line) == [line]
    assert "runs/t/checkpoints/runs" in line and check_report_to("none") == ""
    assert "report_to" in defaults([notebook])


def test_a_default_of_one_notebook_is_not_lost_to_another_that_has_none():
    assert defaults(["10", "11"])["holdout_size"] == 256
    assert defaults(["00", "07"])["preset"] == "auto"
    assert defaults(["09", "10"])["run"] == "agents", "of two values, the later one counts"


def test_what_takes_long_is_announced_on_the_terminal():
    trial = Trial(first=70.0, seconds=30.0, sampling=20.0, peak=None)
    first, _, whole = forecast(trial, PRESETS["smollm2"])
    assert lines_to_print("", f"{first}\n{whole}\nan ordinary batch: 9 tokens") == [first, whole]


HIDDEN_STEPS = """
import sys
print("policy:", end=" ", flush=True)
print("step 8/9  reward 1.000", "step 1/9  reward 0.100", sep="\\n")
print("step 9/9  reward 1.000", file=sys.stderr)
"""


@pytest.mark.slow
def test_neither_the_rest_of_a_line_nor_a_warning_is_printed_as_progress(notebook, python):
    path = notebook("01", HIDDEN_STEPS)
    command = [python, "-c", ONE_RUN, str(path.parent), "a"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
    told = [line for line in done.stdout.splitlines() if line.startswith("    ")]
    assert told == ["    step 1/9  reward 0.100"]


@pytest.mark.parametrize("number", ["02", "07", "10"])
def test_a_notebook_prints_its_own_verdict_and_not_those_of_its_examples(number):
    (path,) = (PROJECT / "notebooks").glob(f"{number}_*.ipynb")
    printed = []
    for cell in nbformat.read(path, as_version=4).cells:
        for output in cell.get("outputs", []):
            printed += lines_to_print(cell.source, output.get("text", ""))
    others = re.compile(
        r"\s*(data|note|to sample everything|every completion at its limit): |\d+ steps: "
    )
    verdicts = [line for line in printed if not others.match(line)]
    assert verdicts == ["GO: no reason against training was found."]
    said = ["GO: no reason.", "  note: it gave 0 to each; leave it out."]
    assert lines_to_print("print(verdict)", "\n".join(said)) == said


def test_a_warning_about_the_model_or_its_rewards_is_printed():
    lines = [
        "WARNING: this model is worse.",
        "NOT tested: mine",
        "step 1/3",
        "stopping early: slow",
    ]
    assert lines_to_print("train()", "\n".join([*lines, "loading"])) == lines


def test_a_notebook_saved_with_another_kernel_runs_in_the_commands_interpreter(notebook, python):
    path = notebook("01", "import sys; print(sys.executable)")
    saved = nbformat.read(path, as_version=4)
    saved.metadata.kernelspec = {"name": "ir", "display_name": "R", "language": "R"}
    nbformat.write(saved, path)
    command = [python, "-c", ONE_RUN, str(path.parent), "a"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    copy = nbformat.read(Run("a").require("notebooks/01_tiny.ipynb"), as_version=4)
    assert copy.cells[-1].outputs[0].text.strip() == str(python)


def test_a_failed_notebook_keeps_its_traceback(notebook, python):
    path = notebook("01", "print(1)\n1 / 0")
    command = [python, "-c", ONE_RUN, str(path.parent), "a"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    copy = Run("a").folder / "notebooks" / "01_tiny.ipynb"
    assert done.returncode == 1 and str(copy) in done.stderr
    assert "\n01_tiny.ipynb, In [3]: ZeroDivisionError: division" in done.stderr
    *_, last = nbformat.read(copy, as_version=4).cells
    assert [output.get("ename") for output in last.outputs] == [None, "ZeroDivisionError"]
    assert [path.name for path in copy.parent.iterdir()] == ["01_tiny.ipynb"]


@pytest.mark.parametrize(
    "call", [["run", "--preset", "pocket"], ["run", "--resume"], ["run", "--only", "04"]]
)
def test_a_run_that_another_process_executes_is_refused_and_unchanged(cli, executions, call):
    executions.outcomes["03"] = False
    assert cli("run", "--run", "a", "--preset", "pocket")[0] == 1
    executions.clear()
    before = Run("a").manifest
    with FileLock(Run("a").folder / ".lock"):  # another lock than this process's own
        code, _, err = cli(*call, "--run", "a")
    assert code == 2 and "run 'a'" in err
    assert executions == [] and Run("a").manifest == before
    executions.outcomes.clear()
    assert cli(*call, "--run", "a")[0] == 0 and executions, "once that process has ended, it runs"


def test_a_wrong_name_leaves_no_folder_and_lists_the_runs(cli):
    Run("mine").record("data", fingerprint="f")
    code, _, error = cli("run", "--run", "mien", "--only", "04")
    assert code == 2 and "mine" in error
    assert not Run("mien").folder.exists()
