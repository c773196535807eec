"""The last checks before a training run, on the pocket model."""

import re
import time
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch

from helpers.data.tasks import load_task
from helpers.environment import this_machine
from helpers.presets import PRESETS
from helpers.rewards.structure import format_reward
from helpers.training import sampling
from helpers.training.trial_steps import Trial, check_limit, forecast, trial_step

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
        return trial_step(*policy, training, rewards, rows, settings, this_machine())

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
    assert "25.0 minutes" in whole and last.endswith(" 2.3 GB")


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
        check_limit(lengths, settings, *policy)
        return
    with pytest.raises(ValueError, match=r"5 of 8 .*max_completion_length=20") as error:
        check_limit(lengths, settings, *policy)
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
        check_limit([21] * 8, SETTINGS, model, tokenizer)
