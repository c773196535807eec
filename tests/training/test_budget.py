"""Trial steps on the pocket model, their forecast, and the budget of a notebook's own sampling."""

import math
import re
import time
from contextlib import nullcontext
from dataclasses import replace

import pandas as pd
import pytest
import torch

import unsloth  # isort: skip  # noqa: F401  # before trl

from datasets import Dataset
from trl import GRPOTrainer

from helpers.data.tasks import load_task
from helpers.environment import this_machine
from helpers.presets import PRESETS
from helpers.rewards.structure import format_reward
from helpers.runs import Run
from helpers.training import budget, sampling
from helpers.training.budget import Trial, forecast
from helpers.training.checkpoints import History
from helpers.training.reward_guard import GuardedRewards

pytestmark = pytest.mark.usefixtures("one_thread")
SETTINGS = replace(
    PRESETS["pocket"],
    max_completion_length=20,
    num_generations=4,
    per_device_train_batch_size=8,
    max_steps=3,
)
ROWS = load_task("arithmetic/sums", train_size=60, holdout_size=8).train


@pytest.fixture
def take_trial(policy, config, tmp_path):
    """A function that takes trial steps with given rewards, at a large learning rate."""
    options = {"max_completion_length": 20, "max_steps": 3, "learning_rate": 1e-2, "beta": 0.02}

    def take_trial(rewards, rows=ROWS, iterations=1, **shape) -> Trial:
        training = config(tmp_path / "never", num_iterations=iterations, **options, **shape)
        settings = replace(SETTINGS, **shape)
        return budget.trial_step(*policy, training, rewards, rows, settings, this_machine())

    return take_trial


class Seen:
    """A reward that records its calls."""

    __name__ = "seen_reward"

    def __init__(self):
        self.calls = []

    def __call__(self, prompts, completions, completion_ids, **columns):
        self.calls.append((prompts, completion_ids))
        return [float(i % 2) for i in range(len(completions))]


@pytest.mark.parametrize(("passes", "accumulated", "iterations"), [(2, 1, 1), (3, 2, 1), (1, 1, 2)])
def test_the_forecast_uses_a_step_that_samples(take_trial, passes, accumulated, iterations):
    class Slow(Seen):
        def __call__(self, **columns):
            time.sleep(0.5 if self.calls else 0.0)  # in the second round of sampling
            return super().__call__(**columns)

    shape = {"steps_per_generation": passes, "gradient_accumulation_steps": accumulated}
    trial = take_trial([seen := Slow()], iterations=iterations, **shape)
    assert len(seen.calls) == 2 and trial.seconds >= 0.5


def test_trial_steps_use_the_longest_prompts_and_full_completions(take_trial, tmp_path):
    long = "What is 11 + 22 + 33 + 44?"
    prompts = list(ROWS["prompt"])
    prompts[17] = prompts[40] = [prompts[0][0], {"role": "user", "content": long}]
    seen = Seen()
    trial = take_trial([seen], ROWS.assign(prompt=prompts))
    assert len(seen.calls) == 2, "the first step, and one that is not the first"
    for prompts, ids in seen.calls:  # two prompts, four completions each
        assert [prompt[-1]["content"] for prompt in prompts] == [long] * 8
        assert [len(row) for row in ids] == [SETTINGS.max_completion_length] * 8
    assert trial.first > 0 and 0 < trial.sampling < trial.seconds and trial.peak is None
    assert not (tmp_path / "never").exists(), "nothing is written where the training will write"


def interrupts_reward(completions, **columns):
    """End a step from within, as a person's Ctrl-C does."""
    raise KeyboardInterrupt("something else")


def broken_reward(completions, **columns):
    raise KeyError("the training's to report")


@pytest.mark.parametrize("interrupted", [False, True])
def test_trial_steps_restore_the_model(policy, take_trial, interrupted):
    model, _ = policy
    rewards = [format_reward, broken_reward] + [interrupts_reward] * interrupted
    model.train()
    before = {name: weight.detach().clone() for name, weight in model.state_dict().items()}
    with pytest.raises(KeyboardInterrupt, match="something else") if interrupted else nullcontext():
        take_trial(rewards, ROWS[:1])  # fewer rows than a round takes are repeated
    after = model.state_dict()
    assert after.keys() == before.keys(), "TRL's reference adapter is gone"
    for name, weight in before.items():
        assert torch.equal(after[name], weight) and after[name].dtype == weight.dtype
    assert all(parameter.grad is None for parameter in model.parameters())
    assert model.training


def test_the_forecast_is_an_upper_bound():
    settings = replace(SETTINGS, max_steps=500, gradient_accumulation_steps=2)
    step, share, whole = forecast(Trial(120.0, 36.0, 27.0, None), settings)
    assert re.findall(r"[\d.]+", step) == ["120.0", "36.0"]
    assert re.findall(r"\d+", share) == ["75"]
    assert "5.0 hours" in whole and f"{500 * 16 * 20:,} sampled tokens" in whole
    *_, whole, last = forecast(Trial(3.0, 3.0, 1.0, 2_345_000_000), settings)
    assert "at most 25.0 minutes" in whole and last == "memory in use at its height: 2.3 GB"


def test_running_out_of_memory_raises_one_sentence(take_trial, policy):
    def full(*given):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    hook = policy[0].register_forward_pre_hook(full)
    with pytest.raises(ValueError, match="per_device_train_batch_size"):
        take_trial([format_reward])
    hook.remove()
    assert list(policy[0].peft_config) == ["default"]


@pytest.mark.parametrize(("cut", "thinking"), [(4, None), (5, None), (5, False)])
def test_a_limit_that_cuts_off_more_than_half_is_refused(policy, cut, thinking):
    settings = replace(SETTINGS, thinking=thinking)
    # the limit is 20 tokens, including the end token
    lengths = [21] * cut + [20] * (8 - cut)
    if cut == 4:
        budget.check_limit(lengths, settings, *policy)
        return
    with pytest.raises(ValueError, match=r"5 of 8 .*max_completion_length=20") as error:
        budget.check_limit(lengths, settings, *policy)
    assert ("thinking=False" in str(error.value)) == (thinking is None)


def test_a_turn_that_no_token_ends_is_named(policy, monkeypatch):
    model, tokenizer = policy
    assert sampling.end_that_ends_nothing(model, tokenizer) is None
    end = model.generation_config.eos_token_id
    end = end if isinstance(end, int) else end[0]
    # a completion that was cut off counts one more than its tokens
    assert sampling.lengths_of(model, tokenizer, [[[5, end], [5, 6]], [[end]]]) == [2, 3, 1]
    template = "{% for m in messages %}{{ m['content'] }}<done>{% endfor %}"
    monkeypatch.setattr(tokenizer, "chat_template", template)
    assert sampling.end_that_ends_nothing(model, tokenizer) == "<done>"
    with pytest.raises(ValueError, match=r"8 of 8 .*'<done>'.*eos_token_id"):
        budget.check_limit([21] * 8, SETTINGS, model, tokenizer)


# --- A notebook's own sampling --------------------------------------------------------------------


@pytest.fixture
def within(policy, monkeypatch):
    """A function from a budget to the number of rows kept of each table. The measured batch, 16
    completions of 20 tokens, takes `takes` seconds.
    """

    def within(seconds, takes, rows=64, extra=False, **differs) -> list[int]:
        tables = {"questions": (pd.concat([ROWS] * 2)[:rows], 1, 2), "of them": (ROWS[:20], 4, 1)}
        clock = iter([0.0, takes])
        monkeypatch.setattr(budget.time, "perf_counter", lambda: next(clock))
        extras = {"wished": (ROWS[:20], 1, 1)} if extra else {}
        settings = replace(SETTINGS, **differs)
        kept = budget.questions_within(seconds, *policy, settings, tables, extras)
        tables |= extras
        for table, (given, *_) in zip(kept, tables.values(), strict=True):
            assert list(table["question"]) == list(given["question"][: len(table)])
        return [len(table) for table in kept]

    return within


def test_auto_limits_only_models_that_are_not_embedded(within, capsys):
    assert within("auto", 1e6) == within(None, 1e6) == [64, 20]
    assert capsys.readouterr().out == ""
    assert within("auto", 1e6, model="unsloth/Qwen3-4B") == [8, 8]


def test_every_table_keeps_the_same_share_of_its_rows(within, capsys):
    # 208 completions of 20 tokens, at 100 tokens a second: 41.6 s
    assert within(41.7, 3.2) == [64, 20]
    everything = "to sample everything: at most about 42 s, at 100 tokens a second\n"
    assert capsys.readouterr().out == everything
    assert within(20.9, 3.2) == [32, 10]
    note = capsys.readouterr().out.removeprefix(everything)
    shares = re.findall(r"(\d+) of (\d+) .*?±(\d+) points", note)
    assert "sampling_seconds=20.9" in note and shares == [("32", "64", "17"), ("10", "20", "31")]
    assert within(6.3, 3.2, rows=60) == [9, 8], "never fewer than eight"


def test_a_budget_below_the_fewest_rows_is_said_with_the_time_that_these_take(within, capsys):
    # 8 x 2 and 8 x 4 completions of 20 tokens, at 100 tokens a second: 9.6 s
    assert within(2.0, 3.2) == [8, 8]
    told = capsys.readouterr().out
    assert "has room" not in told and re.search(r"is too short.* 8 of 64 .* about 10 s", told)


@pytest.mark.parametrize(("seconds", "left"), [(41.5, 0), (42.8, 0), (43.5, 9), (45.7, 20)])
def test_extras_get_what_the_tables_leave_or_nothing(within, seconds, left, capsys):
    *tables, extra = within(seconds, 3.2, extra=True)
    assert extra == left and (left == 0 or tables == [64, 20])
    assert ("0 of 20 wished" in capsys.readouterr().out) == (left == 0)


# --- Held-out questions during a training run -----------------------------------------------------


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
    ],
)
def test_held_out_questions_cost_a_tenth_of_the_training(policy, preset, changes, looks):
    settings = replace(PRESETS[preset], **changes)
    rows = pd.concat([ROWS] * 2)
    asked, keywords = budget.held_out_looks(rows, settings, None, *policy)
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
    assert budget.held_out_looks(ROWS, settings, None, *policy) == (None, {})
    asked, keywords = budget.held_out_looks(ROWS, settings, None, *policy, patience=4)
    assert len(asked) == len(ROWS) and keywords["eval_steps"] == 2
    nothing = budget.held_out_looks(ROWS.head(0), settings, None, *policy, patience=4)
    assert nothing == (None, {}) and "not logged" in capsys.readouterr().out
    # a budget of seconds that leaves too few questions turns the score off
    real = replace(PRESETS["pocket"], model="unsloth/Qwen3-4B", max_completion_length=20)
    assert budget.held_out_looks(ROWS, real, 1e-3, *policy) == (None, {})


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
        budget.keep_apart(trainer)
        trainer.train()
        tables = sorted(run.folder.rglob("completions_*.parquet"))
        written = pd.concat([pd.read_parquet(table) for table in tables])
        return pd.DataFrame(history.rows), list(written["advantage"]), guard.seen

    settings = replace(SETTINGS, max_steps=3)
    asked, looks = budget.held_out_looks(ROWS.tail(16), settings, None, *fresh(), patience=2)
    alone, advantages, seen = trained("alone", None)
    beside, *same = trained("beside", asked, **looks)
    assert same == [advantages, seen] and seen == {"format_reward": 24}
    timed = ("step_time", "epoch")
    for column in set(alone) - set(timed):
        assert list(beside[column]) == list(alone[column]), column
    assert list(beside["step"]) == [1, 2, 3]
    assert beside["eval_rewards/format_reward/mean"].between(0, 1).all()
    assert (beside["eval_runtime"] > 0).all()
