"""On a CUDA device, the last part of `make gpu-check`: what the earlier parts do not run.

Elsewhere all of it is skipped.
"""

import json
import os
import subprocess

import pytest

from helpers import PROJECT, environment
from helpers.environment import vllm_obstacle
from helpers.runs import Run

environment.this_machine.cache_clear()
MACHINE = environment.this_machine()
pytestmark = pytest.mark.skipif(
    MACHINE.gpu is None,
    reason="no NVIDIA GPU is visible: `make gpu-check` on a machine that has one runs these",
)
needs_vllm = pytest.mark.skipif(bool(vllm_obstacle(MACHINE)), reason=str(vllm_obstacle(MACHINE)))


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.chdir(PROJECT)


def helpers(python: str, *arguments: str) -> subprocess.CompletedProcess:
    done = subprocess.run(
        [python, "-m", "helpers", *arguments], env=os.environ, capture_output=True, text=True
    )
    print(done.stdout[-4000:], done.stderr[-4000:])
    return done


@needs_vllm
def test_vllm_teaches_the_pocket_model_and_serves_it(python):
    """Part 1 trains it through Transformers, as its preset says, and serves nothing."""
    options = [
        "-p",
        "engine=vllm",
        "-p",
        "gpu_memory_utilization=0.3",
        "-p",
        "serve=true",
        "-p",
        "sampled_questions=8",
    ]
    assert helpers(python, "run", "--run", "pocket", "--preset", "pocket", *options).returncode == 0
    evaluation = json.loads(Run("pocket").require("evaluation.json").read_text(encoding="utf-8"))
    assert evaluation["baseline"]["ci95"][1] < evaluation["trained"]["ci95"][0], "it learned"
    assert evaluation["merged"]["ci95"][0] > evaluation["baseline"]["ci95"][1]
    served = Run("pocket").manifest["served"]
    assert served["merged"]["share"] > 0.5 and served["adapter"]["share"] > 0.5


def test_trl_alone_teaches_the_pocket_model(python):
    options = ["-p", "backend=transformers", "-p", "max_steps=8"]
    assert (
        helpers(
            python, "run", "--run", "trl", "--preset", "pocket", "--only", "01,02,03", *options
        ).returncode
        == 0
    )
    assert len(Run("trl").table("metrics.csv")) == 8


def test_the_lessons_run(python):
    options = ["-p", "max_steps=8", "-p", "holdout_size=64"]
    for only in ("01,03,06", "07", "09"):  # 07 and 09 each have a run of their own
        assert (
            helpers(python, "run", "--preset", "pocket", "--only", only, *options).returncode == 0
        )
