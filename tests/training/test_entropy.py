"""The setting `entropy_coef`: an entropy bonus changes what a step learns, in the direction it says."""

from datasets import Dataset
from transformers import PrinterCallback
from trl import GRPOConfig, GRPOTrainer

from helpers.data.tasks import load_task
from helpers.environment import this_machine
from helpers.runs import Run
from helpers.settling import settle
from helpers.training import lessons

ROWS = load_task("arithmetic/sums", train_size=64, holdout_size=8).train


def equal_reward(completions, **columns):
    """Nothing to learn from but the entropy."""
    return [1.0] * len(completions)


def test_a_bonus_alone_raises_the_entropy(fresh, tmp_path, monkeypatch):
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path))
    shape = {"per_device_train_batch_size": 16, "num_generations": 8, "max_completion_length": 24}
    shape |= {"max_steps": 6, "beta": 0.0, "warmup_steps": 0, "learning_rate": 0.02}
    entropies = {}
    for bonus in (0.0, 1.0):
        settings = settle("pocket", entropy_coef=bonus, max_seq_length=256, **shape)
        model, tokenizer = fresh()
        trainer = GRPOTrainer(
            model=model,
            processing_class=tokenizer,
            args=GRPOConfig(**lessons.lesson_keywords(Run("a"), settings, this_machine(), 1)),
            reward_funcs=[equal_reward],
            train_dataset=Dataset.from_pandas(ROWS),
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        logged = [row for row in trainer.state.log_history if "reward" in row]
        entropies[bonus] = [row["entropy"] for row in logged]
    assert entropies[0.0][0] == entropies[1.0][0]
    assert entropies[1.0][-1] > 1.2 * entropies[0.0][-1], entropies
