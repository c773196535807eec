"""Notebook 03 a second time, on from the adapter that the first has trained."""

import json
import shutil

import pandas as pd
import pytest

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
