"""Experiment trackers: each takes up a real training, stays in the run folder, and no key is
written anywhere.
"""

import importlib.util
import os
import shutil

import pytest

from helpers.commands import pipeline
from helpers.runs import Run
from helpers.training import trackers

KEY = "0123456789abcdef0123456789abcdef01234567"  # the form of wandb's keys, and nobody's
VARIABLES = ("WANDB_API_KEY", "WANDB_MODE", "WANDB_SILENT", *trackers.TRACKERS.values())


@pytest.fixture
def run(run, tmp_path, monkeypatch) -> Run:
    """A run on a machine where nobody has logged in to a tracker."""
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    for name in filter(None, VARIABLES):
        monkeypatch.setenv(name, "")  # so that what the code sets is taken back
        monkeypatch.delenv(name)
    return run


def test_none_needs_nothing(run):
    assert trackers.options(run, "none") == {"report_to": "none"}
    assert not run.folder.exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        *(
            (name, r"known\. Known: none, tensorboard, wandb, trackio")
            for name in ("all", "", "wandbb", "mlflow", None, ["wandb"])
        ),
        ("trackio", r"report_to='trackio' needs .* pip install trackio"),
    ],
)
def test_a_tracker_that_is_unknown_or_not_installed_is_refused(run, monkeypatch, name, said):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=said):
        trackers.options(run, name)


@pytest.mark.needs("wandb")
@pytest.mark.parametrize(
    ("given", "logged_in", "mode"),
    [
        ({}, False, "offline"),
        ({}, True, None),
        ({"WANDB_API_KEY": KEY}, False, None),
        ({"WANDB_MODE": "disabled"}, False, "disabled"),
    ],
)
def test_without_a_key_wandb_stays_offline(run, monkeypatch, capsys, given, logged_in, mode):
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    if logged_in:  # as `wandb login` leaves it
        run.folder.with_name("netrc").write_text(f"machine api.wandb.ai login user password {KEY}")
    expected = {"report_to": "wandb", "run_name": "a", "project": "grpo-notebooks"}
    assert trackers.options(run, "wandb") == expected
    assert os.environ.get("WANDB_MODE") == mode
    said = capsys.readouterr().out
    assert KEY not in said and ("/a/tracking/wandb" in said) == (mode == "offline")


KEPT = {"tensorboard": "events.out.tfevents.*", "wandb": "*.wandb", "trackio": "*.db"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.needs(name)) for name in KEPT]
)
def test_a_training_is_tracked_in_the_run_folder(executed, name, monkeypatch, tmp_path):
    run = Run(f"tracked-{name}")
    for part in ("data", "data_report.json", "manifest.json"):
        source = executed.folder / part
        (shutil.copytree if source.is_dir() else shutil.copy)(source, run.path(part))
    secrets = {"WANDB_API_KEY": KEY, "WANDB_MODE": "offline", "HF_TOKEN": "hf_" + KEY}
    for variable, value in secrets.items():
        monkeypatch.setenv(variable, value)
    given = [f"report_to={name}", "max_steps=2", "save_steps=2"]
    assert pipeline.run(run.name, None, "03", given) == 0
    kept = run.path(f"tracking/{name}/x").parent.rglob(KEPT[name])
    (kept,) = [path for path in kept if path.stat().st_size]
    assert b"correctness_reward" in kept.read_bytes()
    written = [path for path in run.folder.rglob("*") if path.is_file()]
    assert not [path for path in written if KEY.encode() in path.read_bytes()], "a key was written"
