"""Notebook 02: what it reports, that it needs no model, and that it refuses to go on with rewards
that do not hold.
"""

import json
import shutil

import pandas as pd
import pytest
from papermill.exceptions import PapermillExecutionError
from reading import said

from helpers.laboratory.attacks import BATTERY
from helpers.laboratory.under_test import HONEST_CORRECT, HONEST_WRONG
from helpers.runs import Run

pytestmark = pytest.mark.slow

REWARDS = {"correctness_reward": 1.0, "substantial_format_reward": 0.25}


def test_the_report_has_an_entry_a_reward_and_a_verdict(executed):
    report = executed.read_object("reward_report.json")
    assert {name: entry["weight"] for name, entry in report["rewards"].items()} == REWARDS
    assert all(entry["cases"]["right"] == 1.0 for entry in report["rewards"].values())
    assert report["attacks"].keys() == {HONEST_CORRECT, HONEST_WRONG} | {
        attack.name for attack in BATTERY
    }
    assert not any(attack["wins"] for attack in report["attacks"].values())
    assert 0.1 < sum(report["signal"]["pass_rate"]) / 32 < 0.6  # the pocket model, before GRPO
    assert report["verdict"]["go"] is executed.manifest["rewards"]["go"] is True


def test_a_reward_for_length_is_a_no_go_and_what_is_made_of_it_a_go(executed):
    copy = executed.require("notebooks/02_reward_functions.ipynb")
    verdict = said(copy, "mine.examine(")
    assert verdict.startswith("NO GO") and "'filler up to the bound' earns" in verdict
    assert said(copy, "repaired.examine(").startswith("GO")


def test_stored_completions_take_the_place_of_a_model_and_a_case_that_fails_is_a_no_go(
    executed, execute
):
    run = Run("reward_notebook")
    shutil.copytree(executed.folder, run.folder)
    table = pd.read_parquet(run.require("completions.parquet"))
    table = table.loc[table["step"] <= 2, ["step", "question", "answer", "completion"]]
    table.to_json(stored := run.path("stored.jsonl"), orient="records", lines=True)
    case = {
        "name": "mine",
        "completion": "<answer>3.14</answer>",
        "answer": "3.1416",
        "expected": {"correctness_reward": 1},
    }
    run.path("cases.jsonl").write_text(json.dumps(case), encoding="utf-8")
    why = "correctness_reward gives 0 for 'mine', expected 1"
    with pytest.raises(PapermillExecutionError, match="NO GO"):
        execute("02", run, cases=str(run.path("cases.jsonl")), completions=str(stored))
    printed = said(run.require("notebooks/02_reward_functions.ipynb"))
    assert why in printed and "Unsloth" not in printed
    report = run.read_object("reward_report.json")
    assert (report["signal"]["groups"], report["signal"]["group_size"]) == (16, 8)
    assert report["verdict"]["go"] is run.manifest["rewards"]["go"] is False
