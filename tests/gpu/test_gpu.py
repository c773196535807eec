"""On a CUDA device, with `make gpu-check`: the five notebooks unchanged, on the pocket model and at a real model's shape.

Elsewhere, and in `make test`, which hides the GPU, all of it is skipped.
"""

import json
import os
import subprocess

import pandas as pd
import pytest

from benchmarks.gpu import random_model
from helpers import PROJECT, environment
from helpers.environment import vllm_obstacle
from helpers.runs import Run

environment.this_machine.cache_clear()
MACHINE = environment.this_machine()
pytestmark = pytest.mark.skipif(
    MACHINE.gpu is None, reason="no NVIDIA GPU is visible: `make gpu-check` on a machine that has one runs these"
)
engines = pytest.mark.parametrize(
    "fast_inference",
    [
        pytest.param(False, id="transformers"),
        pytest.param(
            True, id="vllm", marks=pytest.mark.skipif(bool(vllm_obstacle(MACHINE)), reason=str(vllm_obstacle(MACHINE)))
        ),
    ],
)


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.chdir(PROJECT)


def helpers(python: str, *arguments: str) -> subprocess.CompletedProcess:
    done = subprocess.run([python, "-m", "helpers", *arguments], env=os.environ, capture_output=True, text=True)
    print(done.stdout[-4000:], done.stderr[-4000:])
    return done


@engines
def test_the_five_notebooks_teach_the_pocket_model(python, fast_inference):
    sizes = ["-p", "holdout_size=256", "-p", f"fast_inference={fast_inference}", "-p", "gpu_memory_utilization=0.3"]
    assert helpers(python, "run", "--run", "pocket", "--preset", "pocket", *sizes).returncode == 0
    evaluation = json.loads(Run("pocket").require("evaluation.json").read_text(encoding="utf-8"))
    assert evaluation["baseline"]["ci95"][1] < evaluation["trained"]["ci95"][0], "it learned"
    assert evaluation["merged"]["ci95"][0] > evaluation["baseline"]["ci95"][1]


@engines
def test_every_notebook_runs_at_a_real_models_shape(python, tmp_path, fast_inference):
    """Qwen3-1.7B's shape with random weights. Nothing can be learned; 02 says so with a no go, as it should."""
    model = random_model("unsloth/Qwen3-1.7B", tmp_path)
    data = ["-p", f"model={model}", "-p", "source=arithmetic/sums", "-p", "train_size=64", "-p", "holdout_size=16"]
    lengths = ["-p", "max_completion_length=64", "-p", f"fast_inference={fast_inference}"]
    preset = "l4" if MACHINE.gpu_memory_gb >= 22 else "t4"
    assert helpers(python, "run", "--run", "real", "--preset", preset, "--only", "01", *data, *lengths).returncode == 0
    helpers(python, "run", "--run", "real", "--only", "02", "-p", "groups=4")
    assert json.loads(Run("real").require("reward_report.json").read_text(encoding="utf-8"))
    steps = ["-p", "max_steps=3", "-p", "learning_rate=1e-3"]
    assert helpers(python, "run", "--run", "real", "--only", "03,04,05", *steps).returncode == 0
    history = pd.read_csv(Run("real").require("metrics.csv"))
    assert list(history["step"]) == [1, 2, 3] and history["grad_norm"].notna().all()
    assert set(json.loads(Run("real").require("evaluation.json").read_text(encoding="utf-8"))) >= {"baseline", "merged"}


def test_the_estimate_is_within_15_percent_of_what_is_measured(python):
    """The goal of the flight check, at Qwen3-4B's shape and the l4 preset's own sizes, sampled through Transformers."""
    done = subprocess.run(
        [python, "-m", "benchmarks.gpu", "--models", "unsloth/Qwen3-4B", "--steps", "1", "--no-table"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert rows and not [row for row in rows if "error" in row], rows
    for row in rows:
        assert 0.85 <= row["estimate"] / row["peak"] <= 1.15, row
