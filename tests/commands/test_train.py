"""The command `train`: it runs notebook 03's cells as a script, as one process or as two."""

import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import pytest
from executions import SMALL, ended, processes_of, start, together

from helpers import PROJECT, presets
from helpers.__main__ import main
from helpers.commands import notebooks
from helpers.runs import Run

OF_03 = [
    f"-p{parameter}" for parameter in SMALL if parameter.startswith(("max_steps", "save_steps"))
]


@pytest.fixture
def tiny(notebook, monkeypatch, tmp_path, runs):
    """A function that writes a notebook 03 with these cells, for a run `a` with prepared data."""
    monkeypatch.setattr(notebooks, "NOTEBOOKS", tmp_path)
    Run("a").record("data", fingerprint="f00d", settings=asdict(presets.PRESETS["pocket"]))
    return lambda *cells: notebook("03", *cells)


def test_cells_share_names_take_parameters_and_leave_exercises_out(tiny, tmp_path, capsys):
    tiny(
        "double = 2 * number",
        ("double = None", "exercise"),
        "display(double)\nimport os\nprint(os.getcwd())",
        "import pandas\ndisplay(pandas.DataFrame({f'column {n}': [n] for n in range(30)}))",
    )
    before = os.getcwd()
    assert main(["train", "a", "-p", "number=21"]) == 0 and os.getcwd() == before
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["processes: 1", "42", str(tmp_path)]
    assert lines[3].count("column") == 30, "a wide table is printed whole"


def prepared(executed: Run, folder: Path) -> None:
    """Copy a run's results of 01 and 02 into a runs folder, as run `a`."""
    (folder / "a").mkdir(parents=True)
    shutil.copytree(executed.folder / "data", folder / "a/data")
    for name in ("manifest.json", "reward_report.json"):
        shutil.copy(executed.folder / name, folder / "a")


@pytest.mark.slow
@pytest.mark.nightly
def test_one_process_trains_to_the_numbers_of_the_notebook(executed, runs, python):
    """All columns except the times agree to the last digit."""
    run = Run("a")
    prepared(executed, runs)
    train_alone = [python, "-m", "helpers", "train", run.name, *OF_03]
    done = subprocess.run(train_alone, capture_output=True, text=True, cwd=PROJECT)
    assert done.returncode == 0, done.stderr
    mine, notebooks = (
        pd.read_csv(one.require("metrics.csv")).drop(columns="step_time") for one in (run, executed)
    )
    pd.testing.assert_frame_equal(mine, notebooks, check_exact=True)
    assert run.section("training")["settings"]["processes"] == 1


# --- Two processes --------------------------------------------------------------------------------


# `train`, where each process also prints a hash of its weights before the first saves them
WEIGHED = """
import hashlib, sys
from helpers.__main__ import main
from helpers.training import checkpoints
keep = checkpoints.keep

def weighed(run, trainer, *given, **recorded):
    digest = hashlib.sha256()
    for name, weight in sorted(trainer.model.named_parameters()):
        if weight.requires_grad:
            digest.update(weight.detach().float().numpy().tobytes())
    print(f"weights {digest.hexdigest()}", file=sys.stderr, flush=True)
    keep(run, trainer, *given, **recorded)

checkpoints.keep = weighed
sys.exit(main(["train", *sys.argv[1:]]))
"""


def files(folder: Path) -> dict[str, float]:
    return {
        str(path.relative_to(folder)): path.stat().st_mtime
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.slow
def test_two_processes_train_one_policy_and_only_the_first_writes(executed, tmp_path, monkeypatch):
    """Each process has its own runs folder, which shows what the second one writes."""
    for rank in "01":
        prepared(executed, tmp_path / rank)
    before = files(tmp_path / "1")
    (tmp_path / "weighed.py").write_text(WEIGHED)
    call = f'GRPO_RUNS_DIR={tmp_path}/$RANK exec "{sys.executable}" {tmp_path}/weighed.py a '
    # With so small a learning rate the held-out score stays, and two steps without improvement end the
    # training.
    given = (
        "max_steps=6 save_steps=6 max_completion_length=32 early_stopping=2 "
        "learning_rate=1e-9 backend=transformers"
    )
    call += " ".join(f"-p {one}" for one in given.split())
    code, out, err = together("--no-python", "bash", "-c", call)
    assert code == 0, err
    assert re.search("2 .* 32 .* 1 = 64 ", out) and out.count("stopping early:") == 1
    weights = re.findall(r"weights (\w{64})", err)  # two processes may share a line
    assert len(weights) == 2 and weights[0] == weights[1]
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path / "0"))
    run = Run("a")
    history = pd.read_csv(run.folder / "metrics.csv")
    assert list(history["step"]) == [1, 2, 3] and history["completions/mean_length"].gt(0).all()
    training = run.section("training")
    assert training["settings"]["processes"] == 2
    assert training["stopped_early"].startswith("the held-out score has not improved")
    assert len(pd.read_parquet(run.folder / "completions.parquet")) == 3 * 64  # of both
    written = {name for name, _ in set(files(tmp_path / "1").items()) - set(before.items())}
    assert written == {"a/checkpoints/checkpoint-3/rng_state_1.pth"}


@pytest.mark.slow
@pytest.mark.nightly
def test_two_processes_of_unsloth_end_with_one_of_them_and_go_on_where_they_were(
    executed, runs, tmp_path
):
    prepared(executed, runs)
    (tmp_path / "weighed.py").write_text(WEIGHED)
    given = "max_steps=8 save_steps=2 max_completion_length=32"
    call = [str(tmp_path / "weighed.py"), "a", *(f"-p{one}" for one in given.split())]
    process = start(*call)
    while not (runs / "a/checkpoints/checkpoint-2/trainer_state.json").exists():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    processes_of(process)[1].kill()
    code, _, err = ended(process)
    assert code != 0 and "Signal 9 (SIGKILL)" in err, err
    assert not (runs / "a/metrics.csv").exists()  # an unfinished training leaves no results

    code, out, err = together(*call)
    assert code == 0, err
    assert "continuing the interrupted training from step " in out
    run = Run("a")
    assert list(pd.read_csv(run.folder / "metrics.csv")["step"]) == list(range(1, 9))
    assert (run.folder / "adapter/adapter_model.safetensors").is_file()
    weights = re.findall(r"weights (\w{64})", err)  # two processes may share a line
    assert len(weights) == 2 and weights[0] == weights[1]
