"""Experiment trackers: each takes up a real training, stays in the run folder, and no key is
written anywhere.
"""

import importlib.util
import os
import shutil

import nbformat
import papermill
import pytest

from helpers.commands.pipeline import NOTEBOOKS
from helpers.runs import Run
from helpers.training import trackers

KEY = "0123456789abcdef0123456789abcdef01234567"  # the form of wandb's keys, and nobody's


@pytest.fixture
def run(tmp_path, monkeypatch) -> Run:
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "no_netrc"))
    for name in (
        "WANDB_API_KEY",
        "WANDB_MODE",
        "WANDB_SILENT",
        *filter(None, trackers.TRACKERS.values()),
    ):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv(name, "")  # so that what the code sets is taken back
        monkeypatch.delenv(name)
    return Run("a")


def test_none_needs_nothing(run):
    assert trackers.options(run, "none") == {"report_to": "none"}
    assert not run.folder.exists()


@pytest.mark.parametrize("name", ["all", "", "wandbb", "mlflow", None])
def test_an_unknown_tracker_is_refused(run, cli, name):
    with pytest.raises(
        ValueError, match=r"is not known\. Known: none, tensorboard, wandb, trackio"
    ):
        trackers.options(run, name)


def test_the_command_line_refuses_it_before_anything_runs(run, cli):
    code, _, err = cli("run", "--run", "a", "--only", "03", "-p", "report_to=wandbb")
    assert code == 2 and "Did you mean 'wandb'?" in err and not run.folder.exists()


def test_a_tracker_that_is_not_installed_is_named(run, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        ValueError, match="report_to='trackio' needs the package trackio: pip install trackio"
    ):
        trackers.options(run, "trackio")


@pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="wandb is not installed")
@pytest.mark.parametrize(
    ("given", "mode"),
    [({}, "offline"), ({"WANDB_API_KEY": KEY}, None), ({"WANDB_MODE": "disabled"}, "disabled")],
)
def test_without_a_key_wandb_stays_offline(run, monkeypatch, capsys, given, mode):
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert trackers.options(run, "wandb") == {
        "report_to": "wandb",
        "run_name": "a",
        "project": "grpo-notebooks",
    }
    assert os.environ.get("WANDB_MODE") == mode
    said = capsys.readouterr().out
    assert KEY not in said and ("/a/tracking/wandb" in said) == (not given)


KEPT = {"tensorboard": "events.out.tfevents.*", "wandb": "*.wandb", "trackio": "*.db"}


@pytest.mark.slow
@pytest.mark.parametrize("name", KEPT)
def test_a_training_is_tracked_in_the_run_folder(executed, name, monkeypatch, tmp_path):
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed (make optional)")
    run = Run(f"tracked-{name}")
    for part in ("data", "data_report.json", "manifest.json"):
        source = executed.folder / part
        (shutil.copytree if source.is_dir() else shutil.copy)(source, run.path(part))
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("HF_TOKEN", "hf_" + KEY)
    copy = run.path("notebooks/03.ipynb")
    parameters = {"run": run.name, "report_to": name, "max_steps": 2, "save_steps": 2}
    papermill.execute_notebook(
        str(NOTEBOOKS / "03_grpo_training.ipynb"),
        str(copy),
        parameters,
        cwd=str(NOTEBOOKS),
        progress_bar=False,
    )
    (kept,) = [
        path
        for path in run.path(f"tracking/{name}/x").parent.rglob(KEPT[name])
        if path.stat().st_size
    ]
    assert b"correctness_reward" in kept.read_bytes()
    written = [path for path in run.folder.rglob("*") if path.is_file()]
    assert not [path for path in written if KEY.encode() in path.read_bytes()], "a key was written"
    for cell in nbformat.read(copy, as_version=4).cells:
        for output in cell.get("outputs", []):
            assert output.get("name") != "stderr", output.text
