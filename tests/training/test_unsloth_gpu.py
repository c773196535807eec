"""What the suite does so that a training through Unsloth on a GPU is the training here: one
reference of the KL. See tests/gpu_path for what runs Unsloth's GPU code.
"""

import json

import pytest

import unsloth  # isort: skip  # noqa: F401  # before trl

import torch
from datasets import Dataset
from trl import GRPOTrainer

from helpers.commands.run import NOTEBOOKS
from helpers.data.tasks import load_task
from helpers.rewards.structure import format_reward
from helpers.training.policy import freeze_reference

pytestmark = pytest.mark.slow


def test_unsloths_loss_stops_pulling_a_token_back_once_it_is_13_6_times_less_likely():
    """docs/presets.md; TRL's gradient goes on growing."""
    from unsloth_zoo.rl_replacements import grpo_compute_loss

    ratios = torch.tensor([[13.5, 13.7]])  # the reference's probability over the policy's
    new = torch.zeros(1, 2, requires_grad=True)
    given = {"old": None, "sampling_per_token_logps": None, "mask": torch.ones(1, 2), "beta": 1.0}
    ids = torch.ones(1, 2, dtype=torch.long)
    loss, *_ = grpo_compute_loss(
        ratios.log(), new, input_ids=ids, advantages=torch.zeros(1), loss_type="grpo", **given
    )
    loss.backward()
    pulled, let_go = new.grad[0]
    assert pulled < -5 and let_go == 0


ROWS = Dataset.from_pandas(load_task("arithmetic/sums", train_size=60, holdout_size=8).train)


@pytest.fixture
def kl(fresh, config, tmp_path):
    """A function to the KL of each step of two, which are large; of a second stage after them, if
    `stages` is 2.

    gpu: with the reference as Unsloth's trainer for a GPU has it; freeze: and ours.
    """
    few = {"max_steps": 2, "max_completion_length": 16, "lr_scheduler_type": "constant"}
    few |= {"seed": 7, "learning_rate": 1e-2, "beta": 0.02}

    def kl(stages: int = 1, gpu: bool = False, freeze: bool = False) -> list[float]:
        model, tokenizer = fresh(load_in_4bit=False)
        given = {"model": model, "processing_class": tokenizer, "reward_funcs": [format_reward]}
        if stages == 2:
            GRPOTrainer(**given, args=config(tmp_path, **few), train_dataset=ROWS).train()
            model.delete_adapter("ref")
        trainer = GRPOTrainer(**given, args=config(tmp_path, **few), train_dataset=ROWS)
        if gpu:
            model.delete_adapter("ref")
        if freeze:
            freeze_reference(model)
        trainer.train()
        return [row["kl"] for row in trainer.state.log_history if "kl" in row]

    return kl


def test_a_fresh_adapter_has_one_reference_on_every_machine(kl):
    """Notebook 03: the copy of an adapter that changes nothing is the model without it."""
    here = kl()
    assert here[0] == 0 and here[1] > 0
    assert kl(gpu=True) == here


def test_a_second_stage_is_held_to_its_own_start_on_every_machine(kl):
    """Notebook 08: the stages, and the warm start."""
    here = kl(stages=2)
    assert here[0] == 0 and here[1] > 0
    assert kl(stages=2, gpu=True)[0] > 0, "the bare base is another reference"
    assert kl(stages=2, gpu=True, freeze=True) == here
    assert kl(stages=2, freeze=True) == here, "TRL's copy is left as it is"


def test_notebook_08_freezes_it_between_the_trainer_and_the_training():
    (path,) = NOTEBOOKS.glob("08_*.ipynb")
    cells = json.loads(path.read_text("utf-8"))["cells"]
    (cell,) = [text for one in cells if "def grpo(" in (text := "".join(one["source"]))]
    order = ["= GRPOTrainer(", "freeze_reference(model)", "trainer.train()"]
    assert sorted(order, key=cell.index) == order
