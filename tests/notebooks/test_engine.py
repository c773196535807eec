"""The notebooks that sample, once more with vLLM: the same cells, the same learning."""

import json

import pandas as pd
import pytest
from check_notebooks import problems
from executions import SMALL

from helpers.commands import pipeline
from helpers.environment import this_machine, vllm_obstacle
from helpers.runs import Run

OBSTACLE = vllm_obstacle(this_machine())
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(OBSTACLE), reason=f"{OBSTACLE} (make optional)"),
]


@pytest.fixture(scope="module")
def sampled_by_vllm(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRPO_RUNS_DIR", str(tmp_path_factory.mktemp("runs")))
        assert (
            pipeline.run("vllm", "pocket", "01,02,03,05", [*SMALL, "engine=vllm", "serve=true"])
            == 0
        )
        yield Run("vllm")


def test_the_outputs_are_those_of_a_clean_run(sampled_by_vllm):
    for path in sampled_by_vllm.require("notebooks").glob("*.ipynb"):
        found = [problem for problem in problems(path) if "path" not in problem]
        assert found == [], path.name


def test_the_training_was_sampled_by_vllm(sampled_by_vllm, said):
    assert sampled_by_vllm.section("training")["settings"]["engine"] == "vllm"
    assert "WARNING" not in said(sampled_by_vllm.require("notebooks/03_grpo_training.ipynb"))
    report = json.loads(sampled_by_vllm.require("reward_report.json").read_text(encoding="utf-8"))
    assert report["signal"]


def test_it_learns_as_with_transformers(sampled_by_vllm, executed):
    history = pd.read_csv(sampled_by_vllm.require("metrics.csv"))
    assert (
        len(history) == 12 and history["reward"].tail(3).mean() > history["reward"].head(3).mean()
    )
    found, other = (
        json.loads(run.require("evaluation.json").read_text("utf-8"))
        for run in (sampled_by_vllm, executed)
    )
    for name in ("baseline", "trained", "merged"):
        low, high = found[name]["ci95"]
        other_low, other_high = other[name]["ci95"]
        assert low <= other_high and other_low <= high, (
            name,
            found[name]["accuracy"],
            other[name]["accuracy"],
        )


def test_both_models_were_served_and_answer_as_with_transformers(sampled_by_vllm, said):
    served = sampled_by_vllm.section("served")
    for entry in (served["merged"], served["adapter"]):
        assert entry["n"] == 64 and entry["same"] >= 63 and entry["share"] == entry["same"] / 64
    assert "64 answers of the server are those of Transformers" in said(
        sampled_by_vllm.require("notebooks/05_merge_and_inference.ipynb")
    )
