"""Notebooks 03 and 05 with the parameters that a plain run does not use: stopping early, and the
other ways to merge.
"""

import json
import shutil

import pytest
from transformers import AutoModelForCausalLM

from helpers.commands import pipeline
from helpers.runs import Run

pytestmark = pytest.mark.slow


@pytest.fixture
def run(executed, tmp_path, monkeypatch) -> Run:
    """A copy of the finished run, with few questions left to answer."""
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path))
    shutil.copytree(executed.folder, tmp_path / executed.name)
    return Run(executed.name)


@pytest.mark.parametrize("merge", ["dequantised", "4bit", "adapter"])
def test_every_way_to_merge_is_measured(run, merge):
    shutil.rmtree(run.path("merged"))
    given = [f"merge={merge}", "samples=2", "sampled_questions=8", "serve=false"]
    assert pipeline.run(run.name, None, "05", given) == 0
    evaluation = json.loads(run.require("evaluation.json").read_text())
    name = "adapter" if merge == "adapter" else "merged"
    assert list(evaluation) == ["baseline", "trained", name]
    assert evaluation[name]["ci95"][0] > evaluation["baseline"]["ci95"][1], (
        "what was learned is still there"
    )
    assert (run.folder / "merged").exists() == (merge != "adapter")
    if merge != "adapter":
        model = AutoModelForCausalLM.from_pretrained(run.require("merged"))
        assert bool(getattr(model.config, "quantization_config", None)) == (merge == "4bit")
        assert run.section("merge")["into"] == merge


def test_a_training_is_stopped_early_and_its_reason_is_kept(run):
    """After 12 steps the holdout of so small a model still rises; a learning rate of next to
    nothing keeps it where it is.
    """
    assert (
        pipeline.run(
            run.name, None, "03", ["early_stopping=4", "learning_rate=1e-9", "max_steps=40"]
        )
        == 0
    )
    training = run.section("training")
    assert training["steps"] < 40 and "has not improved since step" in training["stopped_early"]
