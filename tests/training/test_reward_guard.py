"""Guarded rewards in a real training run: faults are logged, many faults stop the run after a
checkpoint, and dead groups are counted.
"""

import asyncio
import functools
import json
import pickle
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import unsloth  # isort: skip  # noqa: F401  # before trl

from datasets import Dataset
from torch import nn
from trl import GRPOTrainer

from helpers.data.tasks import load_task
from helpers.rewards.correctness import correctness_reward
from helpers.rewards.structure import format_reward
from helpers.runs import Run
from helpers.training.checkpoints import History, last_checkpoint
from helpers.training.reward_guard import GuardedRewards, RewardError, share_of_dead_groups

pytestmark = pytest.mark.usefixtures("one_thread")
ROWS = load_task("arithmetic/sums", train_size=32, holdout_size=8).train


@pytest.fixture
def train(run, policy, config):
    """Return a function that trains with rewards, and returns the trainer and the guard."""
    model, tokenizer = policy
    shape = {"num_generations": 8, "per_device_train_batch_size": 64, "max_completion_length": 32}
    saved = {"save_strategy": "steps", "save_steps": 2}

    def train(functions: list, max_steps=2, checkpoint=None, weights=None):
        rewards = GuardedRewards(run, functions)
        options = shape | saved | {"max_steps": max_steps, "reward_weights": weights}
        trainer = GRPOTrainer(
            model=model,
            processing_class=tokenizer,
            args=config(run.path("checkpoints"), **options),
            reward_funcs=rewards.functions,
            train_dataset=Dataset.from_pandas(ROWS),
            callbacks=[rewards, History(run)],
        )
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        return trainer, rewards

    return train


def faults(run: Run) -> list[dict]:
    lines = run.require("checkpoints/reward_faults.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def dead(run: Run) -> list[float]:
    return list(pd.read_csv(run.require("checkpoints/metrics.csv"))["frac_reward_zero_std"])


def chats(*texts: str) -> list[list[dict]]:
    return [[{"role": "assistant", "content": text}] for text in texts]


def certain_reward(completions, **columns):
    return [1.0] * len(completions)


def picky_reward(completions, **columns):
    return [1 / ("2" not in completion[0]["content"]) for completion in completions]


# --- Dead groups ----------------------------------------------------------------------------------


def test_dead_groups_are_counted_with_any_weights(run, train):
    trainer, _ = train([certain_reward], weights=[1.3])
    assert dead(run) == [1.0, 1.0]
    # In TRL's own number, rounding hides the dead groups.
    logged = [row for row in trainer.state.log_history if "reward" in row]
    assert {row["frac_reward_zero_std"] for row in logged} == {0.0}


@pytest.mark.parametrize(("weights", "last"), [(None, 0.5), ([0.0, 1.0], 1.0)])
def test_the_groups_of_each_round_are_counted_and_a_none_earns_nothing(run, weights, last):
    def given_reward(completions, **columns):
        return [None if text == "none" else float(text) for text in completions]

    guarded = GuardedRewards(run, [given_reward, certain_reward])
    for texts in (["1"] * 8, ["0", "none", "0", "0", "1", "none", "1", "1"]):
        for function in guarded.functions:
            function(completions=texts)
    args = SimpleNamespace(reward_weights=weights, num_generations=4)
    guarded.on_step_end(args, SimpleNamespace(global_step=1), SimpleNamespace())
    assert guarded.dead_groups == [1.0, last]
    # A completion without any score does not count in its group.
    scores = np.array([1, np.nan, 1, 1, 0, np.nan, 1, 1])
    args.reward_weights = None
    assert share_of_dead_groups({"given": scores}, args) == 0.5
    # A group without any score is dead.
    scores[:4] = np.nan
    assert share_of_dead_groups({"given": scores}, args) == 0.5


# --- Faults ---------------------------------------------------------------------------------------


def test_an_invalid_score_becomes_none_and_is_logged_and_training_goes_on(run, train, capsys):
    wrong = [float("nan"), 0.5]  # for the fourth completion of the first and the second step

    def text_reward(completions, **columns):
        return [0.5] * 3 + [wrong.pop(0)] + [0.5] * (len(completions) - 4)

    trainer, rewards = train([text_reward, format_reward])
    assert trainer.state.global_step == 2
    assert rewards.failed == {"text_reward": 1, "format_reward": 0}
    assert rewards.seen == dict.fromkeys(rewards.failed, 128)
    (fault,) = faults(run)
    assert (fault["step"], fault["reward"], fault["position"]) == (1, "text_reward", 3)
    logged = [row for row in trainer.state.log_history if "reward" in row]
    # The None is left out of the mean, not counted as 0.
    assert [row["rewards/text_reward/mean"] for row in logged] == [0.5] * 2
    assert "step 1: text_reward " in capsys.readouterr().out


def test_faults_of_an_evaluation_are_told_and_not_counted(run, capsys):
    guarded = GuardedRewards(run, [picky_reward])
    guarded.functions[0](completions=chats("1", "2"))
    guarded.on_evaluate(None, SimpleNamespace(global_step=6), SimpleNamespace())
    assert [(fault["step"], fault["completion"]) for fault in faults(run)] == [(6, "2")]
    assert guarded.seen == guarded.failed == {"picky_reward": 0}
    assert "step 6: picky_reward " in capsys.readouterr().out


async def judge_reward(completions, **columns):
    """An async reward that fails on completions with a 2."""
    return picky_reward(completions)


@pytest.mark.parametrize("reward", [picky_reward, judge_reward])
def test_a_reward_that_keeps_failing_stops_the_training_after_a_checkpoint(run, train, reward):
    said = rf"{reward.__name__} failed on \d+ of 128 completions.*ZeroDivisionError"
    with pytest.raises(RewardError, match=said) as caught:
        train([correctness_reward, reward], max_steps=50)
    assert run.show("checkpoints/checkpoint-2") in str(caught.value)
    checkpoint = last_checkpoint(run.path("checkpoints"))
    assert checkpoint.name == "checkpoint-2"
    for fault in faults(run):
        assert "2" in fault["completion"] and "ZeroDivisionError" in fault["what"]
    # with a corrected reward, training resumes
    trainer, _ = train([correctness_reward, format_reward], max_steps=3, checkpoint=checkpoint)
    assert trainer.state.global_step == 3


both = asyncio.Barrier(2)


async def one_reward(completions, **columns):
    await asyncio.wait_for(both.wait(), 60)  # until the other reward runs, too
    return [1.0] * len(completions)


async def other_reward(completions, **columns):
    return await one_reward(completions)


def test_async_rewards_run_at_the_same_time_on_one_loop_in_all_steps(run, train):
    _, rewards = train([one_reward, other_reward])
    assert rewards.seen == {"one_reward": 128, "other_reward": 128}
    assert rewards.failed == {"one_reward": 0, "other_reward": 0}


def test_guarded_rewards_can_be_pickled(run):
    functions = GuardedRewards(run, [picky_reward, other_reward]).functions
    function, asynchronous = pickle.loads(pickle.dumps(functions))
    assert function(completions=chats("1", "2")) == [1.0, None]
    assert (function.__name__, asynchronous.__name__) == ("picky_reward", "other_reward")


@pytest.mark.parametrize(
    ("seen", "failed", "stops"), [(99, 99, False), (100, 1, False), (100, 2, True)]
)
def test_training_stops_above_one_percent_of_at_least_a_hundred_completions(
    run, seen, failed, stops
):
    rewards = GuardedRewards(run, [picky_reward])
    rewards.functions[0](completions=chats(*["1"] * (seen - failed), *["2"] * failed))
    control = SimpleNamespace(should_save=False, should_training_stop=False)
    args = SimpleNamespace(reward_weights=None, num_generations=1)
    state = SimpleNamespace(global_step=1)
    rewards.on_step_end(args, state, control)
    assert (control.should_save, control.should_training_stop) == (stops, stops)
    assert [fault["position"] for fault in faults(run)] == list(range(seen - failed, seen))
    if failed > 1:
        said = f"picky_reward failed on {failed} of {seen} completions.*ZeroDivisionError.*'2'"
        with pytest.raises(RewardError, match=said):
            rewards.on_train_end(None, state, None)


def test_two_rewards_with_the_same_name_are_refused(run):
    with pytest.raises(ValueError, match="'format_reward'"):
        GuardedRewards(run, [format_reward, functools.partial(format_reward)])


@pytest.mark.parametrize("reward", ["org/reward-model", nn.Linear(1, 1)], ids=["name", "module"])
def test_reward_models_are_left_to_trl(run, reward):
    assert GuardedRewards(run, [reward]).functions == [reward]
