"""Layer inputs kept on the card (True) or moved off it ("unsloth"): peak and seconds of a step.

A step is the forward and backward pass of 16 sequences of 2,304 tokens through Unsloth. The saving
is compared with what the memory estimate says.
"""

import gc
import time

import torch

from benchmarks.gpu import common
from benchmarks.gpu.grpo_step import settings_for

TOLERANCE = 0.15  # of the saving, as a share of what is measured


def measure(result: common.Result) -> None:
    """Both ways on a fresh model; the second of two steps, as the first makes the buffers."""
    import unsloth  # noqa: F401  # before Transformers

    from helpers.families import config_of
    from helpers.training.memory import estimate

    folder = common.work("checkpointing") / "model"
    base = common.speaking_model(common.shape(result), folder)
    sizes = {"max_prompt_length": 256, "max_completion_length": 2_048}
    sizes |= {"per_device_train_batch_size": 16, "gradient_checkpointing": True}
    if result.rehearse:
        sizes |= {"max_completion_length": 256, "per_device_train_batch_size": 8}
    settings = settings_for(base, result.rehearse, load_in_4bit=True, backend="unsloth", **sizes)
    peaks = {}
    for way in (True, "unsloth"):
        peaks[way], seconds = step(settings, way)
        result.found[f"{way}: seconds a step"] = seconds
        if not torch.cuda.is_available():
            continue
        result.found[f"{way}: peak, GB"] = peaks[way] / 1e9
        if way == "unsloth":
            patched = torch.utils.checkpoint.CheckpointFunction.__name__
            result.expect("Unsloth" in patched, f"checkpoints are made by {patched}.")
    if not torch.cuda.is_available():
        result.left_out.append("the peaks and the saving: need a GPU")
        return
    card = torch.cuda.get_device_properties(0).total_memory
    guess = estimate(settings, config_of(base), card).offloaded
    guess *= 25 / 27  # of 28 layers' inputs 27 leave the card, and two buffers come
    saved = peaks[True] - peaks["unsloth"]
    result.found |= {"saved, GB": saved / 1e9, "saving: estimate / measured": guess / saved}
    off = f"the estimate of the saving is {guess / saved:.2f} of what was measured."
    result.expect(abs(guess / saved - 1) <= TOLERANCE, off)


def step(settings, way: bool | str) -> tuple[int, float]:
    """Return the peak bytes and the seconds of a step; 0 bytes without a GPU."""
    from unsloth import FastLanguageModel

    from helpers.training import policy

    model, _ = policy.load(settings)
    lora = {"r": settings.lora_rank, "lora_alpha": settings.lora_alpha, "random_state": 1}
    lora["target_modules"] = policy.lora_targets(model)
    model = FastLanguageModel.get_peft_model(model, use_gradient_checkpointing=way, **lora)
    model.train()
    size = (settings.per_device_train_batch_size, settings.context)
    ids = torch.randint(3, 300, size, device=model.device)
    for _ in range(2):
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        began = time.monotonic()
        model(input_ids=ids, labels=ids).loss.backward()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        seconds = time.monotonic() - began
    peak = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
    del model
    gc.collect()
    torch.cuda.empty_cache()
    return peak, seconds


if __name__ == "__main__":
    common.main(measure)
