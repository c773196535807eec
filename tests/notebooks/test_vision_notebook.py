"""Notebook 11 on the real libraries: a short training, what it measures and what it leaves."""

import pandas as pd
import pytest
from PIL import Image
from transformers import AutoProcessor

from helpers.runs import Run

pytestmark = pytest.mark.slow


def test_each_policy_is_measured_sighted_blind_and_swapped_and_the_merged_one_is_read_back(lesson):
    run, printed = lesson("11")
    evaluation = run.evaluation
    assert set(evaluation) == {"baseline", "trained", "merged"}
    for entry in evaluation.values():
        assert entry["n"] == entry["blind"]["n"] == entry["swapped"]["n"] == 24
        assert 0 <= entry["same_answer"] <= 1
    history = pd.read_csv(run.require("metrics.csv"))
    assert history["holdout/sighted"].notna().tolist() == [True, False, False, True]
    assert history["holdout/blind"].between(0, 1).sum() == 2
    assert "count alone: reward" in printed and "trained, swapped " in printed
    assert run.manifest["merge"]["kept"] > 0.9
    assert AutoProcessor.from_pretrained(run.require("merged")).image_token == "<image>"
    completions = pd.read_parquet(run.require("completions.parquet"))
    assert completions["question"].str.endswith("?").all()
    assert completions["answer"].isna().all(), "one question has many answers, by its picture"


@pytest.mark.nightly
def test_a_picture_of_ones_own_is_converted_and_resized(execute, machine, tmp_path):
    path = tmp_path / "mine.png"
    Image.new("LA", (640, 300), (255, 0)).save(path)  # grey, with transparency
    run = Run("own")
    printed = execute("11", run, image=str(path), max_steps=4, shortcut_steps=0)
    assert "Which color is the circle?\n  <think>" in printed
    assert "count alone" not in printed
