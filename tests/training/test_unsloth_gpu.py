"""The KL's reference is the same with TRL's trainer and with Unsloth's GPU trainer.

tests/gpu_path runs Unsloth's GPU code itself.
"""

import pytest

import unsloth  # isort: skip  # noqa: F401  # before trl

from datasets import Dataset
from trl import GRPOTrainer

from helpers.data.tasks import load_task
from helpers.rewards.structure import format_reward
from helpers.training.reference import freeze_reference

pytestmark = pytest.mark.slow


ROWS = Dataset.from_pandas(load_task("arithmetic/sums", train_size=60, holdout_size=8).train)


@pytest.mark.parametrize(
    ("stages", "unsloths", "freezes", "here"),
    [
        (1, True, False, True),  # notebook 03: a fresh adapter changes nothing
        (2, True, False, False),  # notebook 08: the bare base is another reference
        (2, True, True, True),
        (2, False, True, True),  # TRL's copy stays
    ],
)
def test_each_stage_has_its_own_start_as_the_kl_reference(
    fresh, config, tmp_path, stages, unsloths, freezes, here
):
    """unsloths: the reference is the bare base, as with Unsloth's GPU trainer. freezes:
    `freeze_reference` is called. here: the KL equals that of TRL's trainer.
    """
    few = {"max_steps": 2, "max_completion_length": 16, "lr_scheduler_type": "constant"}
    few |= {"seed": 7, "learning_rate": 1e-2, "beta": 0.02}

    def kl(unsloths: bool, freezes: bool) -> list[float]:
        """Return the KL of each step of the last stage."""
        model, tokenizer = fresh(load_in_4bit=False)
        for stage in range(stages):
            trainer = GRPOTrainer(
                model=model,
                processing_class=tokenizer,
                reward_funcs=[format_reward],
                args=config(tmp_path, **few),
                train_dataset=ROWS,
            )
            last = stage == stages - 1
            if unsloths and last:
                model.delete_adapter("ref")
            if freezes and last:
                freeze_reference(model)
            trainer.train()
            if not last:
                model.delete_adapter("ref")
        return [row["kl"] for row in trainer.state.log_history if "kl" in row]

    expected = kl(unsloths=False, freezes=False)
    assert expected[0] == 0 and expected[1] > 0
    assert (kl(unsloths, freezes) == expected) == here
