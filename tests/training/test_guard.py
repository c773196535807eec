"""Rewards inside a real training: what a faulty one costs, and that their state is part of a checkpoint."""

import asyncio
import functools
import json
from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest

from unsloth import FastLanguageModel  # isort: skip

from datasets import Dataset
from torch import nn
from trl import GRPOConfig, GRPOTrainer

from helpers.data.tasks import load_task
from helpers.presets import PRESETS
from helpers.rewards import AdaptiveReward, correctness_reward, format_reward
from helpers.runs import Run
from helpers.training.checkpoints import History, last_checkpoint
from helpers.training.guard import GuardedRewards, RewardError

POCKET = replace(PRESETS["pocket"], max_completion_length=32)
ROWS = load_task("arithmetic/sums", train_size=32, holdout_size=8).train


@pytest.fixture
def run(tmp_path, monkeypatch) -> Run:
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path))
    return Run("a")


@functools.cache
def policy():
    model, tokenizer = FastLanguageModel.from_pretrained(POCKET.model_path, max_seq_length=256, load_in_4bit=True)
    options = {"use_gradient_checkpointing": False, "random_state": 1}
    return FastLanguageModel.get_peft_model(model, r=4, lora_alpha=4, target_modules=["q_proj"], **options), tokenizer


def train(run: Run, functions: list, max_steps=2, checkpoint=None, weights=None) -> tuple[GRPOTrainer, GuardedRewards]:
    model, tokenizer = policy()
    rewards = GuardedRewards(run, functions, resumed_from=checkpoint)
    config = GRPOConfig(
        output_dir=str(run.path("checkpoints")),
        max_steps=max_steps,
        reward_weights=weights,
        save_steps=2,
        num_generations=8,
        per_device_train_batch_size=64,
        max_completion_length=POCKET.max_completion_length,
        logging_steps=1,
        report_to="none",
        disable_tqdm=True,
    )
    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        args=config,
        reward_funcs=rewards.functions,
        train_dataset=Dataset.from_pandas(ROWS),
        callbacks=[rewards, History(run)],
    )
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    return trainer, rewards


def logged_faults(run: Run) -> list[dict]:
    return [json.loads(line) for line in run.require("checkpoints/reward_faults.jsonl").read_text().splitlines()]


def certain_reward(completions, **columns):
    return [1.0] * len(completions)


def hopeless_reward(completions, **columns):
    return [0.0] * len(completions)


def other_reward(completions, **columns):
    """The same for all of a group in every second group of eight, and None once."""
    return [None if i == 0 else float((i // 8) % 2 == 0 or i % 2) for i in range(len(completions))]


def test_groups_that_agree_are_counted_whatever_the_weights(run):
    trainer, _ = train(run, [certain_reward], weights=[1.3])
    assert list(pd.read_csv(run.require("checkpoints/metrics.csv"))["frac_reward_zero_std"]) == [1.0, 1.0]
    # What this is for: in the number of TRL itself, rounding hides groups that agree.
    assert {row["frac_reward_zero_std"] for row in trainer.state.log_history if "reward" in row} == {0.0}


def test_each_round_of_a_step_counts_its_groups(run):
    def given_reward(completions, **columns):
        return [float(text) for text in completions]

    guarded = GuardedRewards(run, [given_reward, certain_reward])
    for texts in (["1"] * 8, ["1", "0"] * 4):
        for function in guarded.functions:
            function(completions=texts)
    args = SimpleNamespace(reward_weights=None, num_generations=4)
    guarded.on_step_end(args, SimpleNamespace(global_step=1), SimpleNamespace())
    assert guarded.agreeing == [1.0, 0.0]


def test_a_none_counts_as_nothing_earned_as_in_the_advantage(run):
    train(run, [certain_reward, other_reward], weights=[1.0, 0.5])
    assert list(pd.read_csv(run.require("checkpoints/metrics.csv"))["frac_reward_zero_std"]) == [3 / 8, 3 / 8]


class Once:
    """Right but for one completion of its first batch, where it does this instead."""

    def __init__(self, wrong: object, name: str):
        self.wrong, self.calls, self.__name__ = wrong, 0, name

    def __call__(self, completions, **columns):
        self.calls += 1
        scores = [0.5] * len(completions)
        if self.calls == 1:
            scores[3] = self.wrong
        return scores


def test_one_bad_score_is_none_and_logged_and_the_training_goes_on(run, capsys):
    trainer, rewards = train(run, [Once("0.5", "text_reward"), Once(float("nan"), "nan_reward"), format_reward])
    assert trainer.state.global_step == 2 and rewards.failed == {"text_reward": 1, "nan_reward": 1, "format_reward": 0}
    faults = logged_faults(run)
    assert [(fault["step"], fault["reward"], fault["position"]) for fault in faults] == [
        (1, "text_reward", 3),
        (1, "nan_reward", 3),
    ]
    assert "'0.5'" in faults[0]["what"] and "nan" in faults[1]["what"]
    logged = [row for row in trainer.state.log_history if "reward" in row]
    # The None is left out of the mean, not counted as 0.
    assert [row[f"rewards/{name}_reward/mean"] for row in logged for name in ("text", "nan")] == [0.5] * 4
    assert "text_reward returned '0.5'" in capsys.readouterr().out


def picky_reward(completions, **columns):
    return [1 / ("2" not in completion[0]["content"]) for completion in completions]


def test_a_reward_that_keeps_failing_stops_the_training_after_a_checkpoint(run):
    with pytest.raises(RewardError, match=r"picky_reward failed on \d+ of 128 completions.*ZeroDivisionError") as caught:
        train(run, [correctness_reward, picky_reward], max_steps=50)
    assert run.show("checkpoints/checkpoint-2") in str(caught.value)
    checkpoint = last_checkpoint(run.path("checkpoints"))
    assert checkpoint.name == "checkpoint-2"
    assert all("2" in fault["completion"] and "ZeroDivisionError" in fault["what"] for fault in logged_faults(run))
    trainer, _ = train(run, [correctness_reward, format_reward], max_steps=3, checkpoint=checkpoint)  # mended
    assert trainer.state.global_step == 3


def test_a_reward_that_fails_in_the_last_step_is_reported_too(run):
    with pytest.raises(RewardError, match="of 64 completions"):
        train(run, [picky_reward], max_steps=1)
    assert last_checkpoint(run.path("checkpoints")).name == "checkpoint-1"


@pytest.mark.parametrize(
    "bound",
    [
        pytest.param(lambda reward: reward, marks=pytest.mark.slow),
        lambda reward: functools.partial(reward, some="option"),
    ],
)
def test_an_adaptive_reward_goes_on_where_the_checkpoint_left_it(run, bound):
    adaptive = AdaptiveReward(hopeless_reward)
    train(run, [bound(adaptive)], max_steps=3)
    checkpoint = run.path("checkpoints/checkpoint-2")
    callbacks = json.loads((checkpoint / "trainer_state.json").read_text())["stateful_callbacks"]
    (saved,) = callbacks["GuardedRewards"]["attributes"]["rewards"].values()
    assert saved["weight"] != 1.0
    again = AdaptiveReward(hopeless_reward)
    train(run, [bound(again)], max_steps=3, checkpoint=checkpoint)
    # One step after the checkpoint, the weight is the saved one times one factor, not the first one times it.
    assert again.weight == adaptive.weight and again.weight / saved["weight"] == pytest.approx(1.2)


def test_a_checkpoint_without_reward_state_is_a_fresh_start(run, tmp_path):
    (tmp_path / "trainer_state.json").write_text("{}")
    adaptive = AdaptiveReward(format_reward)
    GuardedRewards(run, [adaptive], resumed_from=tmp_path)
    assert adaptive.weight == 1.0


def test_two_rewards_of_one_name_are_refused(run):
    with pytest.raises(ValueError, match="two rewards are called 'format_reward'"):
        GuardedRewards(run, [format_reward, AdaptiveReward(format_reward)])


class Judge:
    """Asynchronous, as one that asks a server would be; fails on what the trained policy likes to write."""

    __name__ = "judge_reward"

    async def __call__(self, completions, **columns):
        await asyncio.sleep(0)
        return picky_reward(completions)


def test_an_asynchronous_reward_that_fails_stops_the_training_likewise(run):
    with pytest.raises(RewardError, match=r"judge_reward failed on .* ZeroDivisionError"):
        train(run, [Judge(), format_reward], max_steps=50)
    assert last_checkpoint(run.path("checkpoints")).name == "checkpoint-2"


def test_the_report_names_its_own_first_fault_however_full_the_log_is(run):
    def bad_reward(completions, **columns):
        return ["bad"] * len(completions)

    rewards = GuardedRewards(run, [picky_reward, bad_reward])
    picky, bad = rewards.functions
    chats = [[{"role": "assistant", "content": "2"}]]
    bad(completions=chats * 1200)
    picky(completions=chats * 3)
    assert len(logged_faults(run)) == 1000 and rewards.failed == {"picky_reward": 3, "bad_reward": 1200}
    with pytest.raises(RewardError, match=r"picky_reward failed on 3 of 3 completions.*ZeroDivisionError"):
        rewards.seen["bad_reward"] = 10**6  # by share, only the reward whose faults found no room is failing
        rewards.on_train_end(None, SimpleNamespace(global_step=1), None)


def test_a_fault_does_not_count_as_many_batches_for_an_adaptive_reward(run):
    adaptive = AdaptiveReward(lambda completions, **columns: picky_reward(completions))
    (function,) = GuardedRewards(run, [adaptive]).functions
    chats = [[{"role": "assistant", "content": text}] for text in ("1", "2", "3", "4")]
    assert function(completions=chats) == [1.0, None, 1.0, 1.0]
    assert adaptive.weight == 1.0
    assert function(completions=chats[2:]) == [1.0, 1.0] and adaptive.weight == pytest.approx(0.9)


@pytest.mark.parametrize("reward", ["org/reward-model", nn.Linear(1, 1)], ids=["name", "module"])
def test_what_trl_calls_itself_is_handed_through(run, reward):
    assert GuardedRewards(run, [reward]).functions == [reward]
