"""A notebook with a small budget for its sampling: it answers fewer questions, and says so."""

import json
import re
import shutil

import pytest

from helpers.runs import Run, runs_folder

FEW = "note: sampling_seconds=0.001 has room for 8 of {} (95 % interval: up to ±35 points"


@pytest.fixture
def small(executed):
    """A copy of the executed run."""
    shutil.copytree(executed.folder, runs_folder() / "small", dirs_exist_ok=True)
    return Run("small")


def test_without_a_budget_the_embedded_model_answers_all(executed):
    for name in ("02_reward_functions", "03_grpo_training", "05_merge_and_inference"):
        copy = executed.require(f"notebooks/{name}.ipynb").read_text(encoding="utf-8")
        assert "to sample everything" not in copy and "sampling_seconds=" not in copy


@pytest.mark.slow
def test_05_with_a_small_budget_measures_all_models_on_the_same_few_questions(small, execute):
    shutil.rmtree(small.folder / "evaluation")
    printed = execute("05", small, sampling_seconds=1e-3, samples=2)
    assert FEW.format("128 held-out questions") in printed
    assert "8 of 32 questions for pass@k" in printed
    assert "sampling_seconds=None lifts the limit" in printed
    for entry in small.evaluation.values():
        assert entry["n"] == entry["greedy"]["n"] == 8
    baseline = small.evaluation["baseline"]
    assert (baseline["pass_at_k_questions"], baseline["other"]["n"]) == (8, 8)
    assert json.loads(small.require("comparison.json").read_text())["sampled"]["n"] == 8
    assert len(small.table("evaluation/trained-sampled.parquet")) == 8


@pytest.mark.slow
def test_02_and_03_with_a_small_budget_sample_few_groups(small, execute):
    printed = execute("02", small, sampling_seconds=1e-3)
    assert FEW.format("32 questions") in printed and "8 groups of 8" in printed
    printed = execute("03", small, sampling_seconds=1e-3, max_steps=2, early_stopping=2)
    assert FEW.format("16 questions") in printed
    assert FEW.format("128 questions for early stopping") in printed
    assert re.search(r"an ordinary batch: \d+ tokens on average, \d+ at most; \d+% of", printed)
