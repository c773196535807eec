"""Notebook 03 on from the adapter that it has trained, and with rewards that do not always score."""

import json
import os
import re
import shutil
import subprocess
import sys

import pandas as pd
import pytest
from reading import notebook

from helpers import PROJECT
from helpers.presets import PRESETS
from helpers.runs import Run, runs_folder


@pytest.mark.slow
def test_03_goes_on_from_the_adapter_and_measures_the_kl_from_there(executed, execute):
    shutil.copytree(executed.folder, runs_folder() / "longer", dirs_exist_ok=True)
    run = Run("longer")
    before = pd.read_csv(run.require("metrics.csv"))["reward"]
    printed = execute("03", run, from_adapter=True, max_steps=2, sampling_seconds=1e-3)
    assert f"note: {run.show()} holds a finished training of {len(before)} steps" in printed
    training = run.section("training")
    assert (training["earlier_steps"], training["steps"]) == (len(before), 2)
    after = pd.read_csv(run.require("metrics.csv"))
    assert after["reward"].iloc[0] > before.head(4).mean() + 0.1, "it begins as a trained policy"
    assert after["kl"].iloc[0] == pytest.approx(0, abs=1e-4)
    assert json.loads(run.require("checkpoints/settings.json").read_text())["from_adapter"]


REWARDS = """
def silent(completions, **columns):
    return [None] * len(completions)


def at_times(completions, **columns):
    return [0.5 if at % 4 else None for at in range(len(completions))]


def once_wrong(completions, **columns):
    # on a group that is worked out by hand, and not in the training's larger batches
    return ["?" if (len(completions), at) == (8, 0) else 1.0 for at in range(len(completions))]
"""


@pytest.mark.slow
def test_rewards_that_abstain_or_fail_can_be_worked_out_by_hand(executed, execute, tmp_path):
    shutil.copytree(executed.folder, runs_folder() / "abstains", dirs_exist_ok=True)
    path = tmp_path / "mine.py"
    path.write_text(REWARDS)
    names = [f"{path}:{name}" for name in ("silent", "at_times", "once_wrong")]
    printed = execute("03", Run("abstains"), rewards=",".join([*names, "correctness"]), max_steps=2)
    assert re.search(r"note: .*once_wrong returned '\?'", printed)
    assert "standard deviation" in printed, "the advantages are worked out all the same"


@pytest.mark.slow
def test_a_control_trains_on_its_own_reward_and_is_named_wherever_its_numbers_are(
    executed, execute, cli
):
    shutil.copytree(executed.folder, runs_folder() / "control", dirs_exist_ok=True)
    run = Run("control")
    execute("03", run, control="shuffled", max_steps=2, sampling_seconds=1e-3)
    assert run.section("training")["control"] == "shuffled"
    log = pd.read_csv(run.require("metrics.csv"))
    dealt = log["rewards/correctness_reward/mean"]
    dealt = dealt + 0.25 * log["rewards/substantial_format_reward/mean"]
    assert list(log["reward"]) == pytest.approx(list(log["rewards/shuffled_control/mean"]))
    assert list(log["reward"]) == pytest.approx(list(dealt))
    _, printed, _ = cli("compare", executed.name, "control")
    assert printed.startswith("control: ") and "shuffled" in printed.splitlines()[0]


@pytest.mark.slow
def test_the_lines_that_03_opens_with_train_the_pocket_model(tmp_path):
    text = notebook("03").read_text(encoding="utf-8")
    first = json.loads(text)["cells"][2]["source"]
    lines = re.search(r"```python\n(.*?)```", "".join(first), re.DOTALL)
    script = lines[1]
    here = {
        '"unsloth/Qwen3-4B"': repr(PRESETS["pocket"].model_path),
        "openai/gsm8k": "arithmetic/sums",
        "max_completion_length=512": "max_completion_length=40",
        "max_steps=300": "max_steps=2, report_to='none'",
    }
    for theirs, ours in here.items():
        assert script.count(theirs) == 1
        script = script.replace(theirs, ours)
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "adapter/adapter_model.safetensors").is_file()
