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

from helpers.commands.pipeline import NOTEBOOKS
from helpers.data.tasks import load_task
from helpers.presets import PRESETS
from helpers.runs import Run, seed_everything
from helpers.training.policy import LORA_TARGETS

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]
POCKET = PRESETS["pocket"]
(PATH,) = NOTEBOOKS.glob("06_*.ipynb")
CELLS = nbformat.read(PATH, as_version=4).cells
WITHIN = 1e-5
LIMIT, GROUP, QUESTIONS = 20, 4, 2
CLIP = (0.05, 0.08)  # so narrow that a few steps reach it


def defined(*tags, **names):
    """What the notebook's cells with one of these tags define, given some names that its other
    cells would define.
    """
    names = {"torch": torch} | names
    for cell in CELLS:
        if set(tags) & set(cell.metadata.get("tags", [])):
            exec(cell.source, names)
    return names


GRPO = defined("algorithm")


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
    """Does what GRPOTrainer does, and notes beside it what the notebook's cells make of the same
    batch.
    """

    def compute_loss(self, model, inputs, **kwargs):
        self.batch_seen = inputs
        self.loss_seen = super().compute_loss(model, inputs, **kwargs)
        return self.loss_seen

    def training_step(self, model, inputs, num_items_in_batch):
        weights = {
            name: weight for name, weight in model.named_parameters() if weight.requires_grad
        }
        before = {
            name: torch.zeros_like(weight) if weight.grad is None else weight.grad.clone()
            for name, weight in weights.items()
        }
        step_loss = super().training_step(model, inputs, num_items_in_batch)
        theirs = {name: weight.grad - before[name] for name, weight in weights.items()}
        model.zero_grad()
        ours = self.ours(model, self.batch_seen)
        ours["loss"].backward()
        ours["gradient"] = max(
            (weights[name].grad - theirs[name]).abs().max().item() for name in weights
        )
        ours["size"] = max(theirs[name].abs().max().item() for name in weights)
        ours["loss_gap"] = abs(ours["loss"].item() - self.loss_seen.item())
        ours["kl_theirs"] = self._metrics["train"]["kl"][-1] if self.beta else None
        ours["clipped"] = self._metrics["train"]["clip_ratio/region_mean"][-1]
        ours["advantages_theirs"] = self.batch_seen["advantages"]
        for name, weight in weights.items():
            weight.grad = before[name] + theirs[name]
        self.compared.append(ours)
        return step_loss

    def ours(self, model, inputs):
        """Loss and KL of the notebook for what TRL is about to train on."""
        batch = {
            "ids": torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1),
            "attention_mask": torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1),
            "length": inputs["completion_ids"].shape[1],
        }
        mask = inputs["completion_mask"]
        log_probs = GRPO["token_log_probs"](model, **batch, temperature=self.temperature)
        old = inputs.get("old_per_token_logps", log_probs.detach())
        reference = inputs.get("ref_per_token_logps", log_probs.detach())
        loss, kl = GRPO["grpo_loss"](
            log_probs,
            old,
            reference,
            inputs["advantages"],
            mask,
            beta=self.beta,
            clip=CLIP,
            loss_type=self.loss_type,
            limit=LIMIT,
            parts=self.args.gradient_accumulation_steps,
            step_tokens=inputs["num_items_in_batch"],
        )
        return {"loss": loss, "kl": kl.item()}


def compare(folder, tokenizer, steps, **options):
    """Train with TRL, and return what was noted at each forward pass, and the rewards of each round
    of sampling.
    """
    rows = load_task("arithmetic/sums", train_size=24, holdout_size=1).train
    rounds = []

    def noted(completions, **columns):
        rounds.append(graded(completions))
        return rounds[-1]

    trainer = Compared(
        model=new_policy(),
        processing_class=tokenizer,
        args=GRPOConfig(
            output_dir=str(folder),
            use_cpu=True,
            bf16=False,
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
        reward_funcs=noted,
        train_dataset=Dataset.from_pandas(rows),
    )
    trainer.compared = []
    trainer.train()
    return trainer.compared, rounds


def agree(compared, rounds, scale):
    for ours in compared:
        assert ours["loss_gap"] < WITHIN
        assert ours["gradient"] < min(WITHIN, ours["size"] / 1000), (
            "of the largest entry, and not by its smallness"
        )
        if ours["kl_theirs"] is not None:
            assert abs(ours["kl"] - ours["kl_theirs"]) < WITHIN
    # TRL's reference is the adapter as it was at first: no distance then
    if compared[0]["kl_theirs"] is not None:
        assert max(ours["kl"] for ours in compared) > 1e-4
    for at, rewards in enumerate(rounds):  # TRL shuffles a round before it trains on it
        per_round = len(compared) // len(rounds)
        trained_on = [
            ours["advantages_theirs"] for ours in compared[at * per_round : (at + 1) * per_round]
        ]
        theirs = torch.cat(trained_on)[: len(rewards)].sort().values
        mine = (
            GRPO["advantages"](torch.tensor(rewards).view(-1, GROUP), scale).flatten().sort().values
        )
        assert (theirs - mine).abs().max() < WITHIN and mine.abs().max() > 0.01


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
    compared, rounds = compare(tmp_path, tokenizer, 3, **options)
    assert len(compared) == 3 and len(rounds) == 1
    assert compared[0]["clipped"] == 0 and compared[2]["clipped"] > 0.01, (
        "the third iteration must meet the bounds"
    )
    agree(compared, rounds, scale)


@pytest.mark.parametrize("loss_type", ["grpo", "bnpo", "dr_grpo", "dapo"])
def test_the_same_numbers_where_a_step_is_two_forward_passes(tmp_path, tokenizer, loss_type):
    options = {
        "loss_type": loss_type,
        "beta": 0.5,
        "temperature": 0.8,
        "gradient_accumulation_steps": 2,
        "per_device_train_batch_size": GROUP,
        "learning_rate": 2e-2,  # so that one step is far enough for a KL to compare
    }
    compared, rounds = compare(tmp_path, tokenizer, 2, **options)
    assert len(compared) == 4 and len(rounds) == 2
    agree(compared, rounds, "group")


def test_a_rollout_keeps_what_each_policy_gave_and_whose_advantage_is_whose(tokenizer):
    texts_seen = []

    def reward(texts, answers):
        texts_seen.extend(zip(texts, answers, strict=True))
        return torch.tensor([float(len(text)) for text in texts])

    def correct(texts, answer, tags):
        return [float(gold in text) for text, gold in zip(texts, answer, strict=True)]

    def above_the_mean(rewards):
        return GRPO["advantages"](rewards, "none")

    given = {"tokenizer": tokenizer, "settings": POCKET, "correctness_reward": correct, "fmt": None}
    names = defined("algorithm", "support", **given)
    policy, rows = new_policy(), load_task("arithmetic/sums", train_size=3, holdout_size=1).train
    batch, old, reference, advantage, mask, logged = names["rollout"](
        policy, rows, GROUP, reward, above_the_mean
    )
    base = AutoModelForCausalLM.from_pretrained(POCKET.model_path, dtype=torch.float32)
    with torch.no_grad():
        assert ((old - GRPO["token_log_probs"](policy, **batch)) * mask).abs().max() < WITHIN
        assert ((reference - GRPO["token_log_probs"](base, **batch)) * mask).abs().max() < WITHIN
    assert ((old - reference) * mask).abs().max() > 1e-3
    assert [answer for _, answer in texts_seen] == [
        answer for answer in rows["answer"] for _ in range(GROUP)
    ]
    lengths = torch.tensor([float(len(text)) for text, _ in texts_seen]).view(-1, GROUP)
    assert torch.allclose(advantage, (lengths - lengths.mean(dim=1, keepdim=True)).flatten())
    assert advantage.abs().max() > 1 and logged["reward"] == lengths.mean()
    written = tokenizer.batch_decode(
        batch["ids"][:, -batch["length"] :] * mask, skip_special_tokens=True
    )
    assert all(text in whole for (text, _), whole in zip(texts_seen, written, strict=True))


# --- The notebook ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def printed(executed, execute):
    """What the notebook prints when it is run on a finished run, in few steps."""
    with pytest.MonkeyPatch.context() as patch:  # another module may have its own runs folder
        patch.setenv("GRPO_RUNS_DIR", str(executed.folder.parent))
        run = Run("scratch")
        shutil.copytree(executed.folder, run.folder)
        text = execute("06", run, max_steps=20, trial_steps=2, holdout_questions=128)
    for name in ("from_scratch", "from_scratch_accuracy"):
        assert (run.folder / "figures" / f"{name}.png").is_file()
    return text


def test_it_trains(printed):
    accuracy = [
        float(line.split()[4].rstrip("%"))
        for line in printed.splitlines()
        if "  holdout accuracy " in line
    ]
    assert len(accuracy) == 3 and accuracy[0] < 45 and accuracy[-1] > 60, "0, 10 and 20 steps"


def test_it_prints_its_distance_to_trl(printed):
    found = re.findall(
        r"^(\w+) +largest entry (\S+)   max \|Δ\| to TRL (\S+)$", printed, re.MULTILINE
    )
    assert [what for what, *_ in found] == ["advantages", "KL", "loss", "gradient"]
    assert all(float(largest) > 0 and float(gap) < WITHIN for _, largest, gap in found)
    (clipped,) = re.findall(r"^tokens clipped: (\S+)%$", printed, re.MULTILINE)
    assert float(clipped) > 0, "the clip must have something to do"
