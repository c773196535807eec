"""Memory at Qwen3-4B's shapes, in 16 and 4 bits: held, forward, backward; and the estimates of it.

The step is a training's: an adapter, gradient checkpointing, 8 sequences of 1,024 tokens, the log
probabilities of the last 768, AdamW. The estimates are those of TRL alone, without the KV cache.
"""

import gc

import torch

from benchmarks.gpu import common
from benchmarks.gpu.grpo_step import settings_for

TOLERANCE = 0.15  # of an estimate, as a share of what is measured


def measure(result: common.Result) -> None:
    """16 bits first: they need no bitsandbytes."""
    from helpers.environment import this_machine
    from helpers.families import config_of
    from helpers.training.memory import card_of, estimate

    shape = common.shape(result) if result.rehearse else config_of("unsloth/Qwen3-4B")
    folder = common.work("memory") / "model"
    common.speaking_model(shape, folder)
    long = (16, 48) if result.rehearse else (256, 768)
    sizes = dict(zip(("max_prompt_length", "max_completion_length"), long, strict=True))
    sizes |= {"per_device_train_batch_size": 8, "optim": "adamw_torch", "beta": 0.0}
    sizes |= {"backend": "transformers", "gradient_checkpointing": True}
    for bits in (16, 4):
        settings = settings_for(str(folder), result.rehearse, load_in_4bit=bits == 4, **sizes)
        try:
            seen = step(settings)
        except ImportError as error:
            if bits == 16:
                raise
            result.left_out.append(f"4 bits: need bitsandbytes ({error})")
            continue
        if not seen:
            result.left_out.append(f"{bits} bits, measured: needs a GPU")
            continue
        guess = estimate(settings, shape, card_of(this_machine()))
        context = guess.held.pop("CUDA context")  # torch does not count it
        guesses = {"held": sum(guess.held.values()), "backward": guess.peaks["training"]}
        for name, measured in seen.items():
            result.found[f"{bits} bits, {name}, GB"] = measured / 1e9
            if name in guesses:
                ratio = guesses[name] / measured
                result.found[f"{bits} bits, {name}: estimate / measured"] = ratio
                off = f"the estimate in {bits} bits, {name}, is {ratio:.2f} of what was measured."
                result.expect(abs(ratio - 1) <= TOLERANCE, off)
        result.found["CUDA context as estimated, GB"] = context / 1e9


def step(settings) -> dict[str, int]:
    """The bytes that torch held at most, by the part of a step; nothing without a GPU."""
    from helpers.training import policy

    model, _ = policy.load(settings)
    model = policy.add_adapter(model, settings, seed=0)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    for weight in weights if settings.load_in_4bit else ():  # as TRL does
        weight.data = weight.data.bfloat16()
    optimizer = torch.optim.AdamW(weights, lr=1e-5)
    for weight in weights:  # so that the optimizer's state is there before the step
        weight.grad = torch.zeros_like(weight)
    optimizer.step()
    optimizer.zero_grad()
    gc.collect()
    seen = {"held": peak()}
    rows = settings.per_device_train_batch_size
    ids = torch.randint(3, 300, (rows, settings.context), device=model.device)
    length = settings.max_completion_length
    model.train()
    logits = model(input_ids=ids, logits_to_keep=length + 1).logits[:, :-1] / settings.temperature
    kept = logits.gather(-1, ids[:, -length:, None]).squeeze(-1) - logits.logsumexp(-1)
    seen["forward"] = peak()
    kept.mean().backward()
    optimizer.step()
    seen["backward"] = peak()
    del model, optimizer, weights, weight, logits, kept
    gc.collect()
    peak()
    return seen if torch.cuda.is_available() else {}


def peak() -> int:
    """The most bytes in use since the last call."""
    if not torch.cuda.is_available():
        return 0
    most = torch.cuda.max_memory_allocated()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return most


if __name__ == "__main__":
    common.main(measure)
