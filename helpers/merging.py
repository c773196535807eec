"""The proof that a merged model is the adapter on its base."""

from __future__ import annotations

import math

import torch


@torch.inference_mode()
def largest_logit_difference(model, other, tokenizer, prompts: list[list[dict]]) -> float:
    """The largest absolute difference between two models' logits, over every token of these chat prompts.

    Both models must be on the same device and know the same vocabulary. One prompt at a time: no padding to explain away.
    Infinite where a logit is not a number. ValueError without prompts.
    """
    if not prompts:
        raise ValueError("no prompts to compare the two models on: a difference over none would prove nothing.")
    largest = 0.0
    for prompt in prompts:
        text = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False)
        batch = tokenizer(text, return_tensors="pt", add_special_tokens=False).to(model.device)
        mine, theirs = (m(input_ids=batch["input_ids"]).logits.float() for m in (model, other))
        difference = (mine - theirs).abs().max().item()
        if not math.isfinite(difference):
            return math.inf  # a broken model is no model's equal; max() would pass over a nan
        largest = max(largest, difference)
    return largest


def untrained_matrices(model) -> list[str]:
    """The adapter matrices that are still all zero: LoRA's B starts at zero, so such a layer has learned nothing."""
    return [name for name, weight in model.named_parameters() if "lora_" in name and not weight.detach().any()]
