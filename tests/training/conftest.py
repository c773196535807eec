"""What the tests of a training share: an empty run, a policy, and a config of a few steps."""

import pytest

from unsloth import FastLanguageModel  # isort: skip

from trl import GRPOConfig

from helpers.presets import PRESETS
from helpers.runs import Run


@pytest.fixture
def run(tmp_path, monkeypatch) -> Run:
    """A run without anything in it."""
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path))
    return Run("a")


@pytest.fixture(scope="session")
def fresh():
    """A function to the pocket model with a fresh adapter, made as in notebook 03, and its
    tokenizer.
    """

    def fresh(load_in_4bit: bool = True):
        model, tokenizer = FastLanguageModel.from_pretrained(
            PRESETS["pocket"].model_path, max_seq_length=256, load_in_4bit=load_in_4bit
        )
        lora = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "up_proj"]}
        model = FastLanguageModel.get_peft_model(
            model, use_gradient_checkpointing=False, random_state=1, **lora
        )
        return model, tokenizer

    return fresh


@pytest.fixture(scope="session")
def policy(fresh):
    """One for all tests that may train it, or that leave no trace in it."""
    return fresh()


@pytest.fixture(scope="session")
def config():
    """A function to the configuration of a quiet training in groups of four."""

    def config(folder, **settings) -> GRPOConfig:
        quiet = {"report_to": "none", "disable_tqdm": True, "logging_steps": 1}
        few = {"num_generations": 4, "per_device_train_batch_size": 8, "save_strategy": "no"}
        return GRPOConfig(output_dir=str(folder), **quiet | few | settings)

    return config
