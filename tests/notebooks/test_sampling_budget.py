"""A notebook with a small budget for its sampling: it answers fewer questions, and says so."""

import shutil

import pytest

from helpers.runs import Run, runs_folder

FEW = "are asked: 8 of {} (95% interval: up to ±35 points"


@pytest.mark.slow
@pytest.mark.nightly
def test_with_a_small_budget_all_are_measured_on_the_same_few_questions(executed, execute):
    shutil.copytree(executed.folder, runs_folder() / "small")
    run = Run("small")
    shutil.rmtree(run.folder / "evaluation")
    printed = execute("05", run, sampling_seconds=1e-3, samples=2)
    assert FEW.format("128 held-out questions") in printed
    assert "`null` (in Python, None) lifts the limit" in printed
    for entry in run.evaluation.values():
        assert entry["n"] == entry["greedy"]["n"] == 8
    baseline = run.evaluation["baseline"]
    assert not {"pass_at_k_questions", "other"} & set(baseline), "the holdout comes first"
    assert FEW.format("32 questions") in execute("02", run, sampling_seconds=1e-3)
    printed = execute("03", run, sampling_seconds=1e-3, max_steps=2, early_stopping=2)
    assert FEW.format("16 questions") in printed
    assert FEW.format("64 held-out questions during the training") in printed
