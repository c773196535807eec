"""The notebooks that sample, once more with vLLM: the same cells, the same learning."""

import pandas as pd
import pytest
from executions import SMALL

from helpers.commands.run import run_notebooks
from helpers.runs import Run

pytestmark = [pytest.mark.slow, pytest.mark.needs("vllm")]


@pytest.fixture(scope="module")
def sampled_by_vllm(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRPO_RUNS_DIR", str(tmp_path_factory.mktemp("runs")))
        assert run_notebooks("vllm", "pocket", "01,02,03,05", [*SMALL, "engine=vllm"]) == 0
        yield Run("vllm")


def test_it_learns_as_with_transformers(sampled_by_vllm, executed):
    assert sampled_by_vllm.section("training")["settings"]["engine"] == "vllm"
    rewards = pd.read_csv(sampled_by_vllm.require("metrics.csv"))["reward"]
    assert len(rewards) == 12 and rewards.tail(3).mean() > rewards.head(3).mean()
    for name in ("baseline", "trained", "merged"):
        low, high = sampled_by_vllm.evaluation[name]["ci95"]
        other_low, other_high = executed.evaluation[name]["ci95"]
        assert low <= other_high and other_low <= high, name
