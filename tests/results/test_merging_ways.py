"""Notebook 05 with the kinds of merge that it does not use by default."""

import json
import shutil

import pytest

from helpers.commands.run import run_notebooks
from helpers.runs import Run

pytestmark = pytest.mark.slow


@pytest.fixture
def run(executed, tmp_path, monkeypatch) -> Run:
    """Return a copy of the executed run."""
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path))
    shutil.copytree(executed.folder, tmp_path / executed.name)
    return Run(executed.name)


@pytest.mark.parametrize("merge", ["dequantised", "adapter"])
def test_every_way_to_merge_is_measured(run, merge):
    shutil.rmtree(run.path("merged"))
    given = [f"merge={merge}", "samples=2", "sampled_questions=8"]
    assert run_notebooks(run.name, None, "05", given) == 0
    evaluation = json.loads(run.require("evaluation.json").read_text())
    name = "adapter" if merge == "adapter" else "merged"
    assert list(evaluation) == ["baseline", "trained", name]
    assert evaluation[name]["ci95"][0] > evaluation["baseline"]["ci95"][1], (
        "the merged model keeps what was learned"
    )
    assert (run.folder / "merged").exists() == (merge != "adapter")
    if merge != "adapter":
        assert run.section("merge")["into"] == merge
