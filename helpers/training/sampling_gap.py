"""How far the engine that samples is from the trainer that learns: what the two say of the same
tokens.

They compute with other kernels and roundings, so the policy that samples is never quite the one
whose gradient is taken.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from helpers.training.policy import adapter_request, release

# what cuts no token off: TRL's own values, vLLM's, and unset
_NEUTRAL = {"top_p": (1.0, None), "top_k": (0, -1, None), "min_p": (0.0, None)}


@dataclass(frozen=True)
class Gap:
    """The engine's log-probabilities against the trainer's, over `tokens` sampled tokens.

    mean, largest: of the absolute difference, in nats per token. effective: the effective sample
    size of the ratios exp(trainer - engine), as a share of the tokens; 1 if all are alike. kept,
    least: the probability that top_p, top_k and min_p leave at a token, on average and at the
    token where they leave least.
    """

    tokens: int
    mean: float
    largest: float
    effective: float
    kept: float
    least: float


@torch.inference_mode()
def measure(model, tokenizer, prompts: list[list[dict]], config) -> Gap:
    """Sample one completion for each chat prompt through the model's vLLM engine, as `config` will,
    and compare.

    config: the GRPOConfig of the training. The adapter goes to the engine as a request of its own.
    (When Unsloth trains 16-bit weights on one card, it folds the adapter in: the training's gap may
    then be another.)
    """
    from vllm import SamplingParams

    cut = truncation(config)
    parameters = SamplingParams(
        temperature=config.temperature, max_tokens=config.max_completion_length, logprobs=0, **cut
    )
    texts = [
        tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False)
        for prompt in prompts
    ]
    ids = tokenizer(texts, add_special_tokens=False)["input_ids"]
    with adapter_request(model) as request:
        answers = model.fast_generate(
            [{"prompt_token_ids": row} for row in ids],
            sampling_params=parameters,
            lora_request=request,
            use_tqdm=False,
        )
    release(model)  # as in training, where the engine sleeps while logits are computed
    training = model.training
    try:
        model.eval()
        found = [
            _compared(model, row, answer.outputs[0], config, cut)
            for row, answer in zip(ids, answers, strict=True)
        ]
    finally:
        model.train(training)
    difference, kept = (torch.cat(column) for column in zip(*found, strict=True))
    ratio = difference.exp()
    return Gap(
        tokens=len(difference),
        mean=difference.abs().mean().item(),
        largest=difference.abs().max().item(),
        effective=(ratio.sum() ** 2 / (len(ratio) * (ratio**2).sum())).item(),
        kept=kept.mean().item(),
        least=kept.min().item(),
    )


def _compared(
    model, prompt: list[int], sampled, config, cut: dict
) -> tuple[torch.Tensor, torch.Tensor]:
    """For each token that was sampled: log-probability of the trainer minus the engine's, and what
    truncation leaves there.
    """
    from transformers import MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    tokens = torch.tensor(list(sampled.token_ids), device=model.device)
    engine = torch.tensor(
        [
            place[token].logprob
            for place, token in zip(sampled.logprobs, tokens.tolist(), strict=True)
        ]
    )
    whole = torch.cat([torch.tensor(prompt, device=model.device), tokens])[None]
    logits = model(input_ids=whole).logits[0, len(prompt) - 1 : -1].float() / config.temperature
    trainer = torch.log_softmax(logits, dim=-1).gather(-1, tokens[:, None])[:, 0].cpu()
    left = logits
    for name, warper in (
        ("min_p", MinPLogitsWarper),
        ("top_k", TopKLogitsWarper),
        ("top_p", TopPLogitsWarper),
    ):
        if name in cut:
            left = warper(cut[name])(None, left)
    kept = (left.logsumexp(-1) - logits.logsumexp(-1)).exp()
    return trainer - engine, kept.cpu()


def truncation(config) -> dict:
    """Which of top_p, top_k and min_p cut tokens off when vLLM samples, by name; empty if all may
    be drawn.

    Unsloth samples by `vllm_sampling_params` if the configuration has it.
    """
    asked = getattr(config, "vllm_sampling_params", None) or config
    return {
        name: getattr(asked, name)
        for name, values in _NEUTRAL.items()
        if getattr(asked, name) not in values
    }


def lines(gap: Gap, config) -> list[str]:
    """The gap as lines of text, whether it is corrected, and a warning if sampling is truncated."""
    corrected = bool(config.use_vllm and config.vllm_importance_sampling_correction)
    found = [
        f"vLLM against the trainer, on {gap.tokens:,} sampled tokens: log-probabilities differ by "
        f"{gap.mean:.4f} nats on average and {gap.largest:.2f} at most; effective sample size "
        f"{gap.effective:.1%}",
        f"importance-sampling correction: {'on' if corrected else 'off'}",
    ]
    if cut := truncation(config):
        effect = (
            f"the correction multiplies the loss by about {gap.kept:.3f}; with beta 0 on a GPU "
            "Unsloth scores what is left"
            if corrected
            else "the gradient is that of a policy which nobody sampled from"
        )
        found.append(
            f"WARNING: {' and '.join(f'{name}={value}' for name, value in cut.items())} cuts off "
            f"{1 - gap.kept:.2%} of the probability at a token on average and {1 - gap.least:.0%} "
            f"at most, so {effect} (TRL issue 6789). Leave "
            f"{' and '.join(f'{name} at {_NEUTRAL[name][0]:g}' for name in cut)}."
        )
    return found
