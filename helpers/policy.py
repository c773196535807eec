"""Sampling completions from a policy, whichever way it was loaded."""

from __future__ import annotations

import torch
from tqdm.auto import tqdm


def sample(
    model,
    tokenizer,
    prompts: list[list[dict]],
    *,
    max_new_tokens: int,
    temperature: float = 1.0,
    samples: int = 1,
    batch_size: int = 128,
    seed: int = 3407,
    progress: bool = True,
) -> list[list[str]]:
    """Completions for chat prompts: for each prompt, in the order given, a list of `samples` texts.

    temperature: 0 is greedy decoding (then one sample a prompt says it all). Prompts are batched by length, so little is
    padded; batch_size counts prompts times samples. The model's training mode, caching and the global random state are
    put back afterwards, so sampling in the middle of a training changes nothing about it.
    """
    if not temperature >= 0 or samples < 1:  # not >=: false for nan too
        raise ValueError(f"temperature={temperature} must be 0 or more and samples={samples} 1 or more.")
    texts = [tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False) for prompt in prompts]
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    step = max(1, batch_size // samples)
    completions: list[list[str]] = [[] for _ in texts]
    was_training, had_cache, side = model.training, model.config.use_cache, tokenizer.padding_side
    # Said aloud, so that what a model ships in its generation config (top_k, a repetition penalty) does not bend the result.
    decoding = {"do_sample": temperature > 0, "repetition_penalty": 1.0}
    if temperature > 0:
        decoding |= {"temperature": temperature, "top_k": 0, "top_p": 1.0}
    devices = [model.device] if model.device.type == "cuda" else []
    with torch.random.fork_rng(devices), torch.inference_mode(), tqdm(total=len(texts), disable=not progress) as bar:
        torch.manual_seed(seed)
        try:
            model.eval()
            model.config.use_cache = True
            tokenizer.padding_side = "left"
            for start in range(0, len(order), step):
                chosen = order[start : start + step]
                batch = tokenizer([texts[i] for i in chosen], return_tensors="pt", padding=True, add_special_tokens=False)
                batch = batch.to(model.device)
                output = model.generate(
                    input_ids=batch["input_ids"],
                    attention_mask=batch["attention_mask"],
                    max_new_tokens=max_new_tokens,
                    num_return_sequences=samples,
                    pad_token_id=tokenizer.pad_token_id,
                    **decoding,
                )
                decoded = tokenizer.batch_decode(output[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
                for position, i in enumerate(chosen):
                    completions[i] = decoded[position * samples : (position + 1) * samples]
                bar.update(len(chosen))
        finally:
            model.train(was_training)
            model.config.use_cache, tokenizer.padding_side = had_cache, side
    return completions
