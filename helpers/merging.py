"""The proof that a merged model is the adapter on its base, and the room that a merge needs."""

from __future__ import annotations

import math
import shutil

import torch

from helpers.memory import shape_of
from helpers.runs import Run

_SPARE = 1.05  # of the weights' bytes: the tokenizer, and a little room


@torch.inference_mode()
def prompt_logits(model, tokenizer, prompts: list[list[dict]]) -> list[torch.Tensor]:
    """A model's logits over every token of these chat prompts: a (tokens, vocabulary) tensor a prompt, 32 bits, off the GPU.

    One prompt at a time: no padding to explain away. Kept, they stand for a model that is no longer in memory. ValueError
    without prompts.
    """
    if not prompts:
        raise ValueError("no prompts to compare the two models on: a difference over none would prove nothing.")
    logits = []
    for prompt in prompts:
        text = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False)
        batch = tokenizer(text, return_tensors="pt", add_special_tokens=False).to(model.device)
        logits.append(model(input_ids=batch["input_ids"]).logits[0].float().cpu())
    return logits


def largest_difference(logits: list[torch.Tensor], others: list[torch.Tensor]) -> float:
    """The largest absolute difference between two models' `prompt_logits`; infinite where a logit is not a number."""
    largest = 0.0
    for mine, theirs in zip(logits, others, strict=True):
        difference = (mine - theirs).abs().max().item()
        if not math.isfinite(difference):
            return math.inf  # a broken model is no model's equal; max() would pass over a nan
        largest = max(largest, difference)
    return largest


def untrained_matrices(model) -> list[str]:
    """The adapter matrices that are still all zero: LoRA's B starts at zero, so such a layer has learned nothing."""
    return [name for name, weight in model.named_parameters() if "lora_" in name and not weight.detach().any()]


def check_disk(run: Run, model: str, dtype: torch.dtype) -> None:
    """ValueError where the run's disk has no room for the merged model in this type; before anything is loaded.

    model: a hub name or a folder. Where its shape is not known (see `memory.shape_of`), nothing is said.
    """
    shape = shape_of(model)
    needed = _SPARE * shape.parameters * dtype.itemsize if shape else 0
    free = shutil.disk_usage(run.folder).free
    if needed > free:
        raise ValueError(
            f"the merged model would take {needed / 1e9:.1f} GB and the disk of {run.show()} has {free / 1e9:.1f} GB free: "
            "delete old runs, or set GRPO_RUNS_DIR to a larger disk. The adapter is whole, and can be used without a merge."
        )
