"""`backend="transformers"` on a GPU is Transformers, PEFT and TRL alone: what 07 to 11 call."""

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

TWO_STEPS = """
import stand_in
import sys
from datasets import Dataset
from helpers.data.tasks import load_task
from helpers.environment import this_machine
from helpers.presets import PRESETS
from helpers.settling import settle
from helpers.runs import Run
from helpers.training import lessons, policy

changed = {"backend": "transformers", "max_steps": 2, "per_device_train_batch_size": 16}
settings = settle(PRESETS["pocket"], max_completion_length=16, **changed)
policy.import_unsloth(settings)
model, tokenizer = policy.load(settings)
model = policy.add_adapter(model, settings, seed=1)
from trl import GRPOConfig, GRPOTrainer
trainer = GRPOTrainer(
    model=model,
    processing_class=tokenizer,
    args=GRPOConfig(**lessons.lesson_keywords(Run("plain_lesson"), settings, this_machine(), seed=1)),
    reward_funcs=[lambda completions, **columns: [float(i % 2) for i in range(len(completions))]],
    train_dataset=Dataset.from_pandas(load_task("arithmetic/sums", train_size=64).train),
)
trainer.train()
print("steps:", trainer.state.global_step, "Unsloth:", "unsloth" in sys.modules)
"""
TOO_LATE = """
import stand_in
import unsloth
from helpers.presets import PRESETS
from helpers.settling import settle
from helpers.training import policy

policy.load(settle(PRESETS["pocket"], backend="transformers"))
"""


def test_a_lesson_trains_with_trls_own_trainer(process):
    done = process(TWO_STEPS)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "steps: 2 Unsloth: False" in done.stdout


def test_a_process_that_has_imported_unsloth_is_told_to_start_again(process):
    done = process(TOO_LATE)
    assert done.returncode and "Restart the kernel" in done.stderr.splitlines()[-1]
