"""Held-out questions of a training run: how many, and that they leave the training as it was."""

import math
from dataclasses import replace

import pandas as pd
import pytest

import unsloth  # isort: skip  # noqa: F401  # before trl

from datasets import Dataset
from trl import GRPOTrainer

from helpers.data.tasks import load_task
from helpers.presets import PRESETS
from helpers.rewards.structure import format_reward
from helpers.runs import Run
from helpers.training.checkpoints import History
from helpers.training.held_out import held_out_looks, keep_apart
from helpers.training.reward_guard import GuardedRewards

pytestmark = pytest.mark.usefixtures("one_thread")
ROWS = load_task("arithmetic/sums", train_size=60, holdout_size=8).train


@pytest.mark.parametrize(
    ("preset", "changes", "looks"),
    [
        ("pocket", {}, (22, 6, 22)),
        ("pocket", {"max_steps": 20}, (21, 5, 21)),
        ("pocket", {"max_steps": 2}, None),
        ("pocket", {"logging_steps": 4}, (22, 8, 22)),
        ("pocket", {"per_device_train_batch_size": 32, "processes": 2}, (22, 6, 11)),
        (
            "pocket",  # 21 questions are one too many for two equal parts
            {"per_device_train_batch_size": 32, "processes": 2, "max_steps": 20},
            (20, 5, 10),
        ),
        ("smollm2", {}, (10, 10, 10)),
        ("t4", {"max_steps": 300}, (32, 38, 16)),
        ("memory_optimized", {"max_steps": 100}, None),
        # 10 questions are enough, but 2 of them would not fill a batch
        ("pocket", {"per_device_train_batch_size": 4, "max_steps": 300}, None),
    ],
)
def test_held_out_questions_cost_a_tenth_of_the_training(policy, preset, changes, looks):
    settings = replace(PRESETS[preset], **changes)
    rows = pd.concat([ROWS] * 2)
    asked, keywords = held_out_looks(rows, settings, None, *policy)
    if looks is None:
        assert (asked, keywords) == (None, {})
        return
    count, every, batch = looks
    assert asked["question"][:] == list(rows["question"][:count])
    assert keywords["eval_steps"] == every and keywords["per_device_eval_batch_size"] == batch
    looks = math.ceil(settings.max_steps / every)
    assert count * looks < settings.max_steps * settings.completions_per_step / 10


def test_early_stopping_has_its_score_and_an_empty_holdout_has_none(policy, capsys):
    settings = replace(PRESETS["pocket"], max_steps=6)
    assert held_out_looks(ROWS, settings, None, *policy) == (None, {})
    asked, keywords = held_out_looks(ROWS, settings, None, *policy, patience=4)
    assert len(asked) == len(ROWS) and keywords["eval_steps"] == 2
    nothing = held_out_looks(ROWS.head(0), settings, None, *policy, patience=4)
    assert nothing == (None, {}) and "not logged" in capsys.readouterr().out
    # a budget of seconds that leaves too few questions turns the score off
    real = replace(PRESETS["pocket"], model="unsloth/Qwen3-4B", max_completion_length=20)
    assert held_out_looks(ROWS, real, 1e-3, *policy) == (None, {})
    told = capsys.readouterr().out
    assert "to sample everything" in told and "to sample in a training" not in told


@pytest.mark.parametrize(
    ("patience", "changes", "every"),
    [
        (5, {}, 2),
        (4, {}, 2),
        (2, {}, 1),
        (8, {"logging_steps": 3}, 3),
        (5, {"logging_steps": 4}, 4),  # more than half the patience: each logged step
        (500, {"logging_steps": 7}, 49),  # the patience is longer than the training
    ],
)
def test_there_are_two_looks_within_the_patience_of_early_stopping(
    policy, patience, changes, every
):
    settings = replace(PRESETS["pocket"], max_steps=50, **changes)
    asked, keywords = held_out_looks(ROWS, settings, None, *policy, patience=patience)
    assert len(asked) == len(ROWS) and keywords["eval_steps"] == every


def test_evaluations_leave_the_training_and_its_tables_as_they_were(
    fresh, config, tmp_path, capsys
):
    def trained(name: str, held_out, **looks):
        """The rows of a training run, its completions, and the completions that were counted."""
        model, tokenizer = fresh()
        run = Run(name)
        guard = GuardedRewards(run, [format_reward])
        history = History(run)
        options = {"max_steps": 3, "learning_rate": 1e-3, "beta": 0.02, "max_completion_length": 20}
        trainer = GRPOTrainer(
            model=model,
            processing_class=tokenizer,
            args=config(run.path("checkpoints"), log_completions=True, **options, **looks),
            reward_funcs=guard.functions,
            train_dataset=Dataset.from_pandas(ROWS, preserve_index=False),
            eval_dataset=held_out,
            callbacks=[guard, history],
        )
        keep_apart(trainer)
        trainer.train()
        tables = sorted(run.folder.rglob("completions_*.parquet"))
        written = pd.concat([pd.read_parquet(table) for table in tables])
        return pd.DataFrame(history.rows), list(written["advantage"]), guard.seen

    settings = replace(PRESETS["pocket"], per_device_train_batch_size=8, max_steps=3)
    asked, looks = held_out_looks(ROWS.tail(16), settings, None, *fresh(), patience=2)
    alone, advantages, seen = trained("alone", None)
    beside, *same = trained("beside", asked, **looks)
    assert same == [advantages, seen] and seen == {"format_reward": 24}
    timed = ("step_time", "epoch")
    for column in set(alone) - set(timed):
        assert list(beside[column]) == list(alone[column]), column
    assert list(beside["step"]) == [1, 2, 3]
    assert beside["eval_rewards/format_reward/mean"].between(0, 1).all()
    assert (beside["eval_runtime"] > 0).all()
