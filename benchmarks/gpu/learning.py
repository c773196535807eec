"""Learning: 32 steps of notebook 06's loop on the pocket model, in 32 bits and in float16.

The sampling, the advantages and the loss are the notebook's own cells. float16 is that of a T4: the
frozen weights in 16 bits, the adapter in 32, autocast, and a scaler of the loss.
"""

import json
import random

import torch

from benchmarks.gpu import common
from helpers import PROJECT
from helpers.data.sources import read_source
from helpers.presets import PRESETS
from helpers.tags import TagFormat

PRESET = PRESETS["pocket"]
FMT = TagFormat()


def measure(result: common.Result) -> None:
    """Accuracy on 128 held-out sums, greedy, before and after."""
    steps, questions, groups = (2, 16, 2) if result.rehearse else (PRESET.max_steps, 128, 8)
    asked = list(read_source("arithmetic/sums", None, 1000, questions, 1))
    train, holdout = (
        [row for row in asked if row["split"] == side] for side in ("train", "holdout")
    )
    for dtype in (torch.float32, torch.float16):
        before, after, finite = learn(dtype, steps, groups, train, holdout)
        name = str(dtype).removeprefix("torch.")
        result.found[f"{name}: correct before"] = before
        result.found[f"{name}: correct after {steps} steps"] = after
        result.expect(finite, f"{name}: the adapter has weights that are no numbers.")
        if not result.rehearse:
            result.expect(
                after > before + 0.3, f"{name}: from {before:.0%} to {after:.0%} correct."
            )


def learn(
    dtype: torch.dtype, steps: int, groups: int, train: list, holdout: list
) -> tuple[float, float, bool]:
    """Accuracy before and after, and whether the adapter is made of finite numbers."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer, get_scheduler

    device, loop = common.device(), algorithm()
    tokenizer = AutoTokenizer.from_pretrained(common.POCKET)
    torch.manual_seed(1)
    base = AutoModelForCausalLM.from_pretrained(common.POCKET, dtype=dtype).to(device)
    lora = {"r": PRESET.lora_rank, "lora_alpha": PRESET.lora_alpha}
    policy = get_peft_model(base, LoraConfig(**lora, target_modules="all-linear"))
    weights = [weight for weight in policy.parameters() if weight.requires_grad]
    betas = (PRESET.adam_beta1, PRESET.adam_beta2)
    adamw = torch.optim.AdamW(weights, PRESET.learning_rate, betas, weight_decay=0.0)
    schedule = get_scheduler(PRESET.lr_scheduler_type, adamw, 0.1 * steps, steps)
    scaler = torch.amp.GradScaler(device, enabled=dtype == torch.float16)
    in_16_bits = torch.autocast(device, torch.float16, enabled=dtype == torch.float16)

    def drawn(chosen: list[dict], group: int, temperature: float):
        system = {"role": "system", "content": FMT.system_prompt}
        texts = [
            tokenizer.apply_chat_template(
                [system, {"role": "user", "content": row["question"]}],
                add_generation_prompt=True,
                tokenize=False,
            )
            for row in chosen
        ]
        prompts = tokenizer(texts, padding=True, padding_side="left", add_special_tokens=False)
        ids, seen = (
            torch.tensor(prompts[name], device=device).repeat_interleave(group, dim=0)
            for name in ("input_ids", "attention_mask")
        )
        limit = PRESET.max_completion_length
        new, mask = loop["sample"](policy, ids, seen, limit, temperature)
        kept = [row[one.bool()] for row, one in zip(new, mask, strict=True)]
        said = tokenizer.batch_decode(kept, skip_special_tokens=True)
        answers = [row["answer"] for row in chosen for _ in range(group)]
        right = [FMT.extract_answer(text) == a for text, a in zip(said, answers, strict=True)]
        scores = torch.tensor(right, device=device) + 0.25 * torch.tensor(
            [FMT.matches(text) for text in said], device=device
        )
        batch = {"ids": torch.cat([ids, new], 1), "attention_mask": torch.cat([seen, mask], 1)}
        return batch | {"length": mask.shape[1]}, mask, scores.view(-1, group), right

    def accuracy() -> float:
        with in_16_bits:
            right = drawn(holdout, 1, 0.01)[-1]  # so cold that it is greedy
        return sum(right) / len(right)

    before, choose = accuracy(), random.Random(1)
    for _ in range(steps):
        chosen = choose.sample(train, groups)
        with in_16_bits:
            batch, mask, scores, _ = drawn(chosen, PRESET.num_generations, PRESET.temperature)
            with torch.no_grad():
                old = loop["token_log_probs"](policy, **batch)
                with policy.disable_adapter():
                    reference = loop["token_log_probs"](policy, **batch)
            advantage = loop["advantages"](scores).flatten()
            now = loop["token_log_probs"](policy, **batch)
            loss, _ = loop["grpo_loss"](now, old, reference, advantage, mask, beta=PRESET.beta)
        scaler.scale(loss).backward()
        scaler.unscale_(adamw)
        torch.nn.utils.clip_grad_norm_(weights, PRESET.max_grad_norm)
        scaler.step(adamw)
        scaler.update()
        schedule.step()
        adamw.zero_grad()
    return before, accuracy(), all(weight.isfinite().all().item() for weight in weights)


def algorithm() -> dict:
    """What the cells of notebook 06 with the tag `algorithm` define."""
    (path,) = (PROJECT / "notebooks").glob("06_*.ipynb")
    defined = {"torch": torch}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if "algorithm" in cell["metadata"].get("tags", []):
            names = ("def rollout", "def optimiser", "def train")
            if not any(name in "".join(cell["source"]) for name in names):
                exec("".join(cell["source"]), defined)
    return defined


if __name__ == "__main__":
    common.main(measure)
