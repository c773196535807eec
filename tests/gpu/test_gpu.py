"""On a CUDA device, the last part of `make gpu-check`: what the earlier parts do not run.

Elsewhere all of it is skipped.
"""

import subprocess
import sys

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


def run(*arguments: str) -> None:
    command = [sys.executable, "-m", "helpers", "run", "--preset", "pocket", *arguments]
    subprocess.run(command, check=True)


@needs_vllm
def test_vllm_teaches_the_pocket_model_and_serves_it():
    """Part 1 trains it through Transformers, as its preset says, and serves nothing."""
    options = ["engine=vllm", "gpu_memory_utilization=0.3", "serve=true", "sampled_questions=8"]
    run("--run", "pocket", *(word for option in options for word in ("-p", option)))
    evaluation = Run("pocket").evaluation
    assert evaluation["baseline"]["ci95"][1] < evaluation["trained"]["ci95"][0], "it learned"
    assert evaluation["merged"]["ci95"][0] > evaluation["baseline"]["ci95"][1]
    served = Run("pocket").manifest["served"]
    assert served["merged"]["share"] > 0.5


def test_trl_alone_teaches_the_pocket_model():
    run("--run", "trl", "--only", "01,02,03", "-p", "backend=transformers", "-p", "max_steps=8")
    assert len(Run("trl").table("metrics.csv")) == 8


@pytest.mark.parametrize(
    ("only", "name"), [("01,03,06", "demo"), ("07", "your-own-task"), ("09", "code-that-runs")]
)
def test_the_lessons_run(only, name):
    """07 and 09 each have a run of their own."""
    run("--only", only, "-p", "max_steps=8", "-p", "holdout_size=64")
    lesson = Run(name)
    assert len(lesson.table("metrics.csv")) == lesson.section("training")["steps"] > 0
    executed = sorted(path.name[:2] for path in lesson.require("notebooks").iterdir())
    assert executed == only.split(",")
