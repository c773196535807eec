"""On-policy distillation in a real training run of the pocket model."""

from types import SimpleNamespace

import pytest

import unsloth  # isort: skip  # noqa: F401  # before trl

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOTrainer

from examples.distillation import learn_from
from helpers import PROJECT
from helpers.data.tasks import load_task
from helpers.presets import PRESETS

pytestmark = pytest.mark.usefixtures("one_thread")
TASK = load_task("arithmetic/sums", train_size=60, holdout_size=8).train


def test_the_kl_alone_moves_the_policy_to_its_teacher(fresh, config, tmp_path):
    """The pocket model teaches a damaged copy of itself."""
    teacher, _ = fresh(load_in_4bit=False)
    model, tokenizer = fresh(load_in_4bit=False)
    torch.manual_seed(1)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.4)
    options = {"max_steps": 8, "max_completion_length": 24, "beta": 1.0, "seed": 5}
    options |= {"per_device_train_batch_size": 32, "learning_rate": 3e-3}
    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        args=config(tmp_path, lr_scheduler_type="constant", **options),
        reward_funcs=[lambda completions, **columns: [0.0] * len(completions)],
        train_dataset=Dataset.from_pandas(TASK),
    )
    learn_from(trainer, teacher, tokenizer)
    trainer.train()
    first, *_, last = [row["kl"] for row in trainer.state.log_history if "reward" in row]
    assert first > 0.05 and last < 0.6 * first


def test_a_teacher_with_another_vocabulary_is_refused():
    paths = (PRESETS["pocket"].model_path, PROJECT / "helpers" / "pocket" / "games_model")
    policy, teacher = [AutoModelForCausalLM.from_pretrained(path) for path in paths]
    tokenizer, other = [AutoTokenizer.from_pretrained(path) for path in paths]
    trainer = SimpleNamespace(model=policy, processing_class=tokenizer)
    with pytest.raises(ValueError, match="games_model"):
        learn_from(trainer, teacher, other)
