"""A training killed at any moment goes on as if nothing had happened. GRPO_KILLS=8 takes eight moments instead of one."""

import os
import random
import shutil
import subprocess
import time

import pandas as pd
import pytest
import torch
from executions import kill
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, TrainerState

from helpers import PROJECT
from helpers.presets import PRESETS
from helpers.runs import Run
from helpers.training.checkpoints import History, last_checkpoint

KILLS = int(os.environ.get("GRPO_KILLS", "1"))  # up to 10
PARAMETERS = ["-p", "max_steps=12", "-p", "save_steps=4"]  # those of the run that was not interrupted


def start(python: str, run: Run, *arguments: str) -> subprocess.Popen:
    """In a process group of its own, so that the kernel can be killed with it."""
    command = [python, "-m", "helpers", "run", "--run", run.name, *arguments]
    log = run.path("killed.log").open("a")
    return subprocess.Popen(command, cwd=PROJECT, stdout=log, stderr=log, start_new_session=True)


def steps_on_disk(run: Run) -> int:
    path = run.folder / "checkpoints" / "metrics.csv"
    return len(path.read_text().splitlines()) - 1 if path.exists() else 0


@pytest.mark.skipif(shutil.which("pgrep") is None, reason="needs pgrep to find the kernel")
def test_killed_at_random_moments_the_curve_is_that_of_a_run_never_killed(executed, python):
    rng = random.Random(7)
    run = Run("killed")
    for name in ("data", "data_report.json", "manifest.json"):
        source = executed.folder / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, run.path(name))
    process = start(python, run, "--only", "03", *PARAMETERS)
    moments = sorted(rng.sample(range(2, 12), KILLS))
    for moment in moments:
        deadline = time.monotonic() + 180
        while steps_on_disk(run) < moment and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(rng.uniform(0, 0.5))  # into the next step, or into a checkpoint that is being written
        assert process.poll() is None, run.path("killed.log").read_text()
        kill(process)
        assert not (run.folder / "adapter").exists(), "it was killed while training"
        process = start(python, run, "--resume")
    assert process.wait(timeout=300) == 0, run.path("killed.log").read_text()
    never, often = (pd.read_csv(path.require("metrics.csv")) for path in (executed, run))
    assert list(often["step"]) == list(range(1, 13)), "each step once"
    columns = ["reward", "reward_std", "kl", "completions/mean_length", "learning_rate", "rewards/correctness_reward/mean"]
    pd.testing.assert_frame_equal(often[columns], never[columns], rtol=1e-3)
    ours, theirs = (load_file(path.require("adapter/adapter_model.safetensors")) for path in (run, executed))
    assert all(torch.allclose(ours[name], theirs[name], atol=1e-4) for name in theirs)
    completions = pd.read_parquet(run.require("completions.parquet"))
    assert len(completions) == 12 * 64


def test_the_adapter_of_the_checkpoint_is_loaded_beside_a_reference_adapter(executed):
    """Transformers loads only the adapters in sub-folders where there are any, and TRL's `ref` is in one."""
    checkpoint = last_checkpoint(executed.folder / "checkpoints")
    assert (checkpoint / "ref" / "adapter_model.safetensors").exists()
    base = AutoModelForCausalLM.from_pretrained(PRESETS["pocket"].model_path)
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    model = get_peft_model(base, LoraConfig(r=PRESETS["pocket"].lora_rank, target_modules=targets))
    History(executed, resumed_from=checkpoint).on_train_begin(None, TrainerState(global_step=4), None, model=model)
    saved = load_file(checkpoint / "adapter_model.safetensors")
    fresh = dict(model.named_parameters())
    assert saved
    for name, tensor in saved.items():
        assert torch.equal(fresh[name.replace(".weight", ".default.weight")].float(), tensor.float())
