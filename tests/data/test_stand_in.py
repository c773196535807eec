"""Where the hub cannot be reached (no test may reach it), GSM8K has a stand-in, and
nothing else has.
"""

import sys

import pytest

from helpers.data.sources import STAND_INS, Unreachable
from helpers.data.tasks import load_task
from helpers.rewards import correctness_reward
from helpers.tags import THINK_ANSWER

SIZES = {"train_size": 12, "holdout_size": 4}


def test_gsm8k_is_replaced_aloud_by_problems_that_its_rewards_can_judge(capsys):
    pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed")
    task = load_task("openai/gsm8k", stand_in=True, **SIZES)
    out = capsys.readouterr().out
    assert (
        "hub cannot be reached" in out and "TAKING reasoning-gym/gsm_symbolic IN ITS PLACE" in out
    )
    assert task.report["source"] == "reasoning-gym/gsm_symbolic" == STAND_INS["openai/gsm8k"]
    assert (len(task.train), len(task.holdout)) == (12, 4)
    right = [THINK_ANSWER.render("so", answer) for answer in task.train["answer"]]
    assert correctness_reward(right, list(task.train["answer"])) == [1.0] * 12


def test_without_reasoning_gym_the_error_says_what_would_help(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(ValueError) as error:
        load_task("openai/gsm8k", stand_in=True, **SIZES)
    for part in (
        "reasoning-gym/gsm_symbolic",
        "pip install reasoning-gym",
    ):
        assert part in str(error.value)
    assert "'openai/gsm8k' could not be fetched" in capsys.readouterr().out


def test_what_was_asked_for_by_name_is_not_replaced():
    with pytest.raises(Unreachable, match="'openai/gsm8k' could not be fetched"):
        load_task("openai/gsm8k", **SIZES)


def test_another_data_set_has_no_stand_in():
    with pytest.raises(Unreachable, match="'nobody/nothing-there' could not be fetched"):
        load_task("nobody/nothing-there", stand_in=True, **SIZES)
