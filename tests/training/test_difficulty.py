"""Filtering by difficulty: the pass rates that 02 measures, and the rows that 03 keeps."""

import re
from dataclasses import replace

import pandas as pd
import pytest

from helpers.laboratory.measures import Lab
from helpers.presets import PRESETS
from helpers.rewards.correctness import correctness_reward
from helpers.rewards.structure import format_reward
from helpers.training.difficulty import keep_pass_rates, rows_between

SETTINGS = replace(
    PRESETS["pocket"], per_device_train_batch_size=8, num_generations=4
)  # two questions a round
ROWS = pd.DataFrame({"question": [f"What is {n} + 1?" for n in range(8)]})
ROWS["answer"] = [str(n + 1) for n in range(8)]


@pytest.fixture
def rated(run):
    """A run of eight questions, of which seven have the pass rates 0, 0.25, 0.5, 0.9, 1, 1, None."""
    ROWS.to_parquet(run.path("data/train.parquet"))
    run.record("data", fingerprint="one", settings={"model": "pocket"})
    said = keep_pass_rates(run, ROWS[:7], [0.0, 0.25, 0.5, 0.9, 1.0, 1.0, None], [10, 20])
    assert re.search(r"\b7 .*\b30 .*\b1 .*\b2 ", said)
    return run


def test_the_rows_between_are_kept_with_their_bounds_and_the_rest_is_counted(rated, capsys):
    kept, recorded = rows_between(rated, "0.25, 0.9", SETTINGS)
    assert kept == [1, 2, 3]
    left_out = {"too hard": 1, "too easy": 2, "not measured": 2}
    assert recorded == {"keep_between": "0.25,0.9", "kept": 3, "left_out": left_out}
    said = "training on 3 of 8 questions; left out: 1 too hard, 2 too easy, 2 not measured\n"
    assert capsys.readouterr().out == said
    for pair in ((0, 0.5), [0, 0.5], "(0, 0.5)"):  # the last as papermill passes a pair
        assert rows_between(rated, pair, SETTINGS)[0] == [0, 1, 2]
    assert rows_between(rated, None, SETTINGS) == (None, {})


@pytest.mark.parametrize(
    ("between", "says"),
    [
        ("0.3,0.4", r"leaves 0 of 8 training questions \(2 too hard, 4 too easy, 2 not measured\)"),
        ("0.9,0.9", r"leaves 1 of 8 .* a round of sampling needs 2: widen it"),
        *(
            (wrong, "is not two pass rates")
            for wrong in ("0.5", "0.9,0.1", "a,b", 0.5, "0,1,2", "-1,1")
        ),
    ],
)
def test_bounds_that_leave_nothing_or_are_none_are_refused(rated, between, says):
    with pytest.raises(ValueError, match=says):
        rows_between(rated, between, SETTINGS)


def test_missing_and_outdated_rates_are_refused(rated):
    for data, model in (("another", "pocket"), ("one", "another")):
        rated.record("data", fingerprint=data, settings={"model": model})
        with pytest.raises(ValueError, match="02 with pass_rates=True"):
            rows_between(rated, "0.1,0.9", SETTINGS)
    rated.record("data", fingerprint="one", settings={"model": "pocket"})
    assert rows_between(rated, "0.1,0.9", SETTINGS)[0] == [1, 2, 3]
    rated.path("pass_rates.parquet").unlink()
    with pytest.raises(ValueError, match="02 with pass_rates=True"):
        rows_between(rated, "0.1,0.9", SETTINGS)


def test_a_pass_rate_is_what_the_judges_call_right_whatever_the_format_earns():
    lab = Lab([correctness_reward, format_reward], [1.0, 0.25])
    right, wrong = "<think>so</think><answer>{}</answer>", "<think>so</think><answer>1001</answer>"
    groups = [[right.format(answer), wrong, wrong, "no"] for answer in ROWS["answer"][:3]]
    groups[1][1] = groups[1][0]
    lab.attacks(ROWS)
    assert lab.pass_rates(ROWS[:3], groups) == [0.25, 0.5, 0.25]
