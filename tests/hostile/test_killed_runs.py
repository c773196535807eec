"""A run that is killed twice and resumed ends with the results of a run that never stopped.

It is killed with -9 once while it trains, and once after a random line of its output.
"""

import random
import subprocess
import time

import pandas as pd
import pytest
from executions import SMALL, kill

from helpers import PROJECT
from helpers.runs import Run

pytestmark = pytest.mark.slow

LONGEST = 12  # lines before the second kill at most; a resumed run of this size prints about 12


def start(python: str, run: Run, *arguments: str) -> subprocess.Popen:
    """Start `run` in its own process group, so that its kernel can be killed with it."""
    command = [python, "-m", "helpers", "run", "--run", run.name, *arguments]
    log = run.path("killed.log").open("a")
    return subprocess.Popen(command, cwd=PROJECT, stdout=log, stderr=log, start_new_session=True)


def said(run: Run) -> list[str]:
    return run.path("killed.log").read_text().splitlines()


@pytest.mark.needs("pgrep")
def test_a_run_killed_twice_and_resumed_ends_as_if_it_had_never_stopped(executed, python):
    rng, run = random.Random(12), Run("hostile")
    process = start(python, run, "--preset", "pocket", *(f"-p{size}" for size in SMALL))
    # kill it after this number of steps: in the next step, or while it writes a checkpoint
    moment, steps = rng.randrange(2, 9), run.folder / "checkpoints/metrics.csv"
    while not steps.exists() or len(steps.read_text().splitlines()) <= moment:
        assert process.poll() is None, said(run)
        time.sleep(0.02)
    kill(process)
    assert not (run.folder / "adapter").exists(), "it was killed while training"
    last = len(said(run)) + rng.randint(1, LONGEST)
    process = start(python, run, "--resume")
    while process.poll() is None and len(said(run)) < last:
        time.sleep(0.02)
    kill(process)
    how = f"killed after {said(run)[-1:]}"
    assert start(python, run, "--resume").wait() == 0, said(run)
    left = [path.name for path in run.folder.rglob(".*") if path.is_dir()]
    assert left == [], f"left behind, {how}"

    # the same rows, curve, completions and accuracies; sums may differ in their last digits
    assert run.section("data")["fingerprint"] == executed.section("data")["fingerprint"], how
    ours, theirs = (pd.read_csv(one.require("metrics.csv")) for one in (run, executed))
    assert list(ours["step"]) == list(theirs["step"]), how
    columns = ["reward", "kl", "learning_rate", "rewards/correctness_reward/mean"]
    pd.testing.assert_frame_equal(ours[columns], theirs[columns], rtol=1e-3)
    ours, theirs = (pd.read_parquet(one.require("completions.parquet")) for one in (run, executed))
    assert list(ours["completion"]) == list(theirs["completion"]) and len(ours) == 12 * 64, how
    for model, entry in executed.evaluation.items():
        ours = run.evaluation[model]["accuracy"]
        assert ours == pytest.approx(entry["accuracy"], abs=0.02), how
