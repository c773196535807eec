"""Notebook 06 against TRL, number for number: the cells a reader sees are run on GRPOTrainer's own
batches.

What is compared is the notebook's source itself, so the two cannot drift apart. Everything is in
fp32.
"""

import re
import shutil

import nbformat
import pytest
import torch

import unsloth  # isort: skip  # noqa: F401  # before trl, which on a CPU needs its patches

from datasets import Dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM
from trl import GRPOConfig, GRPOTrainer

from helpers.commands.notebooks import NOTEBOOKS
from helpers.data.tasks import load_task
from helpers.presets import PRESETS
from helpers.runs import Run, seed_everything
from helpers.training.policy import LORA_TARGETS

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]
POCKET = PRESETS["pocket"]
(PATH,) = NOTEBOOKS.glob("06_*.ipynb")
WITHIN = 1e-5
LIMIT, GROUP, QUESTIONS = 20, 4, 2
CLIP = (0.05, 0.08)  # so narrow that a few steps reach it
ALGORITHM = [
    cell.source
    for cell in nbformat.read(PATH, as_version=4).cells
    if "algorithm" in cell.metadata.get("tags", [])
]
GRPO = {"torch": torch}  # and what the notebook's algorithm defines
for source in ALGORITHM:
    exec(source, GRPO)


def new_policy():
    """fp32, and LoRA whose B is not zero, so that A has a gradient from the first step on."""
    seed_everything(5)
    model = AutoModelForCausalLM.from_pretrained(POCKET.model_path, dtype=torch.float32)
    policy = get_peft_model(
        model, LoraConfig(r=4, lora_alpha=8, target_modules=LORA_TARGETS, task_type="CAUSAL_LM")
    )
    with torch.no_grad():
        for name, weight in policy.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.02)
    return policy


def graded(completions, **columns):
    """Different for nearly every completion; an integer a character, so that sums are exact in any
    order.
    """
    return [float(sum(map(ord, completion[-1]["content"])) % 17) / 16 for completion in completions]


class Compared(GRPOTrainer):
    """Does what GRPOTrainer does, and notes beside it how far off the notebook's cells are for the
    same batch.
    """

    def compute_loss(self, model, inputs, **kwargs):
        theirs = super().compute_loss(model, inputs, **kwargs)
        mask = inputs["completion_mask"]
        batch = {
            "ids": torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1),
            "attention_mask": torch.cat([inputs["prompt_mask"], mask], dim=1),
            "length": inputs["completion_ids"].shape[1],
        }
        log_probs = GRPO["token_log_probs"](model, **batch, temperature=self.temperature)
        ours, kl = GRPO["grpo_loss"](
            log_probs,
            inputs.get("old_per_token_logps", log_probs.detach()),
            inputs.get("ref_per_token_logps", log_probs.detach()),
            inputs["advantages"],
            mask,
            beta=self.beta,
            clip=CLIP,
            loss_type=self.loss_type,
            limit=LIMIT,
            parts=self.args.gradient_accumulation_steps,
            step_tokens=inputs["num_items_in_batch"],
        )
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        gradients = [
            torch.cat(
                [part.flatten() for part in torch.autograd.grad(loss, weights, retain_graph=True)]
            )
            for loss in (theirs, ours)
        ]
        metrics = self._metrics["train"]
        self.noted.append(
            {
                "loss": abs(ours - theirs).item(),
                "gradient": (gradients[0] - gradients[1]).abs().max().item(),
                "largest": gradients[0].abs().max().item(),
                "kl": abs(kl.item() - metrics["kl"][-1]) if self.beta else 0.0,
                "moved": kl.item(),
                "clipped": metrics["clip_ratio/region_mean"][-1],
            }
        )
        return theirs


class Displaced(Compared):
    """The same with tokens far outside the bounds on both sides, whatever their advantage's sign."""

    def compute_loss(self, model, inputs, **kwargs):
        old = inputs["old_per_token_logps"].clone()
        old[:, ::3] += 0.3
        old[:, 1::3] -= 0.3
        return super().compute_loss(model, inputs | {"old_per_token_logps": old}, **kwargs)


def compare(folder, tokenizer, steps, kind=Compared, **options):
    """Train with TRL beside the notebook's cells, which must agree; returns what was noted at each
    forward pass.
    """
    trainer = kind(
        model=new_policy(),
        processing_class=tokenizer,
        args=GRPOConfig(
            output_dir=str(folder),
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            seed=5,
            max_steps=steps,
            num_generations=GROUP,
            max_completion_length=LIMIT,
            epsilon=CLIP[0],
            epsilon_high=CLIP[1],
            logging_steps=steps + 1,  # so that TRL's metrics are still there when they are read
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            **{"per_device_train_batch_size": GROUP * QUESTIONS, "learning_rate": 3e-3} | options,
        ),
        reward_funcs=graded,
        train_dataset=Dataset.from_pandas(
            load_task("arithmetic/sums", train_size=24, holdout_size=1).train
        ),
    )
    trainer.noted = []
    trainer.train()
    for noted in trainer.noted:
        assert max(noted["loss"], noted["kl"], noted["gradient"]) < WITHIN
        assert noted["gradient"] < noted["largest"] / 1000, "and not by its smallness"
    # TRL's reference is the adapter as it was at first: no distance then
    assert not trainer.beta or max(noted["moved"] for noted in trainer.noted) > 1e-4
    rewards = torch.tensor(trainer._logs["rewards"]["graded"]).view(-1, GROUP)
    ours = GRPO["advantages"](rewards, trainer.scale_rewards).flatten()
    assert (torch.tensor(trainer._logs["advantages"]) - ours).abs().max() < WITHIN
    assert ours.abs().max() > 0.01
    return trainer.noted


LOSSES, SCALES, BETAS = ["grpo", "bnpo", "dr_grpo", "dapo"], ["group", "batch", "none"], [0.0, 0.5]
# Every two values of two settings together at least once: half of all combinations.
PAIRS = [
    (loss, scale, BETAS[(i + j) % 2])
    for i, loss in enumerate(LOSSES)
    for j, scale in enumerate(SCALES)
]


@pytest.mark.parametrize(("loss_type", "scale", "beta"), PAIRS)
def test_the_same_numbers_as_trl_with_clipping_active(tmp_path, tokenizer, loss_type, scale, beta):
    options = {"loss_type": loss_type, "scale_rewards": scale, "beta": beta, "num_iterations": 3}
    first, _, third = compare(tmp_path, tokenizer, 3, **options)
    assert first["clipped"] == 0 and third["clipped"] > 0.01, "it must meet the bounds"


def test_the_same_numbers_as_trl_where_the_clip_must_not_help(tmp_path, tokenizer):
    """A ratio outside its bounds counts in full where that makes the objective worse."""
    (noted,) = compare(tmp_path, tokenizer, 1, Displaced, beta=0.0, num_iterations=3)
    assert 0.1 < noted["clipped"] < 0.6, "TRL counts those alone that the clip holds back"
    ratio = torch.tensor([0.5, 0.5, 1.5, 1.5, 1.1], requires_grad=True)
    advantage = torch.tensor([1.0, -1.0, 1.0, -1.0, -1.0])
    objective = GRPO["clipped_objective"](ratio, advantage)
    assert objective.tolist() == pytest.approx([0.5, -0.8, 1.2, -1.5, -1.1])
    objective.sum().backward()
    assert ratio.grad.tolist() == [1.0, 0.0, 0.0, -1.0, -1.0]


@pytest.mark.parametrize("loss_type", LOSSES)
def test_the_same_numbers_where_a_step_is_two_forward_passes(tmp_path, tokenizer, loss_type):
    options = {
        "loss_type": loss_type,
        "beta": 0.5,
        "temperature": 0.8,
        "gradient_accumulation_steps": 2,
        "per_device_train_batch_size": GROUP,
        "learning_rate": 2e-2,  # so that one step is far enough for a KL to compare
    }
    assert len(compare(tmp_path, tokenizer, 2, **options)) == 4


# --- The notebook ---------------------------------------------------------------------------------


def test_the_notebook_trains_and_prints_its_distance_to_trl(executed, execute):
    run = Run("scratch")
    shutil.copytree(executed.folder, run.folder)
    printed = execute("06", run, max_steps=20, trial_steps=2, holdout_questions=128)
    at_0, _, at_20 = map(float, re.findall(r"  holdout accuracy +(\S+)%", printed))
    assert at_0 < 45 and at_20 > 60
    found = re.findall(
        r"^(\w+) +largest entry (\S+)   max \|Δ\| to TRL (\S+)$", printed, re.MULTILINE
    )
    assert [what for what, *_ in found] == ["advantages", "KL", "loss", "gradient"]
    assert all(float(largest) > 0 and float(gap) < WITHIN for _, largest, gap in found)
