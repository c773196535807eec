"""A run of all five notebooks, killed with -9 while it trains and after a random line of what it
says, and resumed, ends as one never stopped.
"""

import random
import shutil
import subprocess
import time

import pandas as pd
import pytest
import torch
from executions import SMALL, kill
from safetensors.torch import load_file

from helpers import PROJECT
from helpers.runs import Run

pytestmark = pytest.mark.slow

LONGEST = 12  # lines until the second kill: about as many as a resumed run of this size says


def start(python: str, run: Run, *arguments: str) -> subprocess.Popen:
    """In a process group of its own, so that the kernel can be killed with it."""
    command = [python, "-m", "helpers", "run", "--run", run.name, *arguments]
    log = run.path("killed.log").open("a")
    return subprocess.Popen(command, cwd=PROJECT, stdout=log, stderr=log, start_new_session=True)


def steps_on_disk(run: Run) -> int:
    path = run.folder / "checkpoints" / "metrics.csv"
    return len(path.read_text().splitlines()) - 1 if path.exists() else 0


def said(run: Run) -> list[str]:
    return run.path("killed.log").read_text().splitlines()


def kill_in_training(process: subprocess.Popen, run: Run, rng: random.Random) -> None:
    """In the step after that many, or in a checkpoint that is being written."""
    moment = rng.randrange(2, 9)
    while steps_on_disk(run) < moment:
        assert process.poll() is None, said(run)
        time.sleep(0.02)
    kill(process)
    assert steps_on_disk(run) >= moment and not (run.folder / "adapter").exists(), (
        "it was killed while training"
    )


@pytest.mark.skipif(shutil.which("pgrep") is None, reason="needs pgrep to find the kernel")
def test_killed_in_training_and_after_a_random_line_a_run_ends_as_if_it_had_not_been(
    executed, python
):
    rng, run = random.Random(12), Run("hostile")
    asked = ["--preset", "pocket", *(part for size in SMALL for part in ("-p", size))]
    kill_in_training(start(python, run, *asked), run, rng)
    last = len(said(run)) + rng.randint(1, LONGEST)
    process = start(python, run, "--resume")
    while process.poll() is None and len(said(run)) < last:
        time.sleep(0.02)
    kill(process)
    how = f"killed after {said(run)[-1:]}"
    assert start(python, run, "--resume").wait() == 0, said(run)
    left = [path.name for path in run.folder.rglob(".*") if path.is_dir()]
    assert left == [], f"left behind, {how}"
    assert_same(executed, run, how)


def assert_same(never: Run, often: Run, how: str) -> None:
    """The same rows, curve, completions, weights and accuracies; sums may differ in their
    last digits.
    """
    assert never.section("data")["fingerprint"] == often.section("data")["fingerprint"], how
    ours, theirs = (pd.read_csv(run.require("metrics.csv")) for run in (often, never))
    assert list(ours["step"]) == list(theirs["step"]), how
    columns = [
        "reward",
        "reward_std",
        "kl",
        "completions/mean_length",
        "learning_rate",
        "rewards/correctness_reward/mean",
    ]
    pd.testing.assert_frame_equal(ours[columns], theirs[columns], rtol=1e-3)
    ours, theirs = (pd.read_parquet(run.require("completions.parquet")) for run in (often, never))
    assert list(ours["completion"]) == list(theirs["completion"]) and len(ours) == 12 * 64, how
    for file in ("adapter/adapter_model.safetensors", "merged/model.safetensors"):
        ours, theirs = (load_file(run.require(file)) for run in (often, never))
        assert ours.keys() == theirs.keys(), how
        assert all(torch.allclose(ours[name], theirs[name], atol=1e-4) for name in theirs), (
            file,
            how,
        )
    for model, entry in never.evaluation.items():
        assert often.evaluation[model]["accuracy"] == pytest.approx(entry["accuracy"], abs=0.02), (
            how
        )
