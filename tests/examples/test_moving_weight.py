"""A moving weight: TRL computes the next step with the new weight."""

import pytest
from datasets import Dataset
from trl import GRPOTrainer

from examples.moving_weight import MovingWeight
from helpers.data.tasks import load_task


def never_reward(completions, **columns):
    return [0.0] * len(completions)


def always_reward(completions, **columns):
    return [1.0] * len(completions)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("name", ["never_reward", "always_reward"])
def test_the_next_step_uses_the_moved_weight(fresh, config, tmp_path, name):
    """A reward that nothing earns gains weight, and one that all earn loses it: the other loses as
    much or gains it, because the sum stays 2.
    """
    model, tokenizer = fresh(load_in_4bit=False)
    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        args=config(tmp_path, max_steps=3, max_completion_length=8, reward_weights=[1.0, 1.0]),
        reward_funcs=[never_reward, always_reward],
        train_dataset=Dataset.from_pandas(
            load_task("arithmetic/sums", train_size=8, holdout_size=1).train
        ),
    )
    with pytest.raises(ValueError, match="'other'"):
        MovingWeight(trainer, "other")
    moving = MovingWeight(trainer, name, factor=2.0)
    trainer.add_callback(moving)
    trainer.train()
    never = [weights[0] for weights in moving.weights]
    assert never[:2] == [pytest.approx(4 / 3), pytest.approx(1.6)]
    assert all(sum(weights) == pytest.approx(2.0) for weights in moving.weights)
    earned = [step["reward"] for step in trainer.state.log_history if "reward" in step]
    assert earned == [pytest.approx(weight) for weight in (1.0, 2 / 3, 0.4)]
