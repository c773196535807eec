"""A teacher, in a real training of the pocket model."""

from types import SimpleNamespace

import pytest

import unsloth  # isort: skip  # noqa: F401  # before trl

import torch
from datasets import Dataset
from transformers import AutoTokenizer
from trl import GRPOTrainer

from examples.distillation import learn_from
from helpers import PROJECT
from helpers.data.tasks import load_task
from helpers.presets import PRESETS

pytestmark = pytest.mark.usefixtures("one_thread")
TASK = load_task("arithmetic/sums", train_size=60, holdout_size=8).train


def test_the_policy_moves_to_its_teacher_by_the_kl_alone(fresh, config, tmp_path):
    def zero(completions, **columns):
        return [0.0] * len(completions)

    def kl(spoilt: float, steps: int) -> list[float]:
        """The KL of each step of a spoilt pocket model that the pocket model teaches."""
        teacher, _ = fresh(load_in_4bit=False)
        model, tokenizer = fresh(load_in_4bit=False)
        torch.manual_seed(1)
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(weight, std=spoilt)
        few = {"max_steps": steps, "max_completion_length": 24, "beta": 1.0, "seed": 5}
        few |= {"per_device_train_batch_size": 32}
        rate = {"learning_rate": 3e-3, "lr_scheduler_type": "constant"}
        trainer = GRPOTrainer(
            model=model,
            processing_class=tokenizer,
            args=config(tmp_path, **few, **rate),
            reward_funcs=[zero],
            train_dataset=Dataset.from_pandas(TASK),
        )
        learn_from(trainer, teacher, tokenizer)
        trainer.train()
        return [row["kl"] for row in trainer.state.log_history if "reward" in row]

    assert kl(0.0, 1) == pytest.approx([0.0], abs=1e-4)
    first, *_, last = kl(0.4, 8)
    assert first > 0.05 and last < 0.6 * first


def test_a_teacher_with_other_tokens_is_refused_by_name():
    pocket, other = (PRESETS["pocket"].model_path, PROJECT / "helpers" / "pocket" / "games_model")
    models = [
        SimpleNamespace(config=SimpleNamespace(_name_or_path=str(p))) for p in (pocket, other)
    ]
    tokens = [AutoTokenizer.from_pretrained(path) for path in (pocket, other)]
    trainer = SimpleNamespace(model=models[0], processing_class=tokens[0])
    with pytest.raises(ValueError, match=r"games_model and the policy .*different tokenizers"):
        learn_from(trainer, models[1], tokens[1])
