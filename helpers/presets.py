"""The presets: the values of the settings for each kind of card.

settings.py declares the settings and their defaults; a preset lists where it differs from these.
settling.py combines a preset with the changes of a run.
"""

from helpers import PROJECT, smollm2
from helpers.environment import Machine, gpu_obstacle
from helpers.settings import POCKET_MODEL, Preset

_TABLE = (
    Preset(
        "pocket",
        needs_gb=0,
        model=POCKET_MODEL,
        source="arithmetic/sums",
        train_size=1_000,
        holdout_size=256,
        max_prompt_length=64,
        max_completion_length=72,
        engine="transformers",
        gradient_checkpointing=False,
        lora_rank=16,
        lora_alpha=32,
        per_device_train_batch_size=64,
        gradient_accumulation_steps=1,
        max_steps=32,
        learning_rate=1e-3,
        beta=0.01,
        optim="adamw_torch",
        max_grad_norm=1.0,
        weight_decay=0.0,
        save_steps=16,
    ),
    # A real language model on two cores. It is in 16 bits, because 4 bits are slower on a CPU. The
    # completion limit is short, because the whole batch waits for its longest completion.
    Preset(
        "smollm2",
        needs_gb=0,
        model=smollm2.NAME,
        source="arithmetic/pairs",
        few_shot=str(PROJECT / "notebooks" / "data" / "pairs.jsonl"),
        train_size=1_000,
        holdout_size=256,
        max_prompt_length=160,
        max_completion_length=32,
        load_in_4bit=False,
        engine="transformers",
        gradient_checkpointing=False,
        lora_rank=16,
        lora_alpha=32,
        per_device_train_batch_size=16,
        gradient_accumulation_steps=1,
        max_steps=40,
        learning_rate=2e-4,
        beta=0.01,
        optim="adamw_torch",
        max_grad_norm=1.0,
        weight_decay=0.0,
        save_steps=4,
    ),
    # thinking=False: Qwen3 thinks by default and then needs 1,500 to 2,200 tokens for a question of
    # GSM8K, so these limits would cut off most completions. The pocket models and the vision
    # models have no such choice.
    # engine="transformers" below 20 GB: vLLM would leave little memory for training, and recent
    # vLLM may not support a T4 (compute capability 7.5, no bf16).
    Preset(
        "small",
        needs_gb=7.5,
        model="unsloth/gemma-3-1b-it",
        load_in_4bit=False,
        max_completion_length=512,
        thinking=False,
        engine="transformers",
        lora_rank=16,
        lora_alpha=32,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=4,
    ),
    Preset(
        "t4",
        needs_gb=15,
        model="unsloth/Qwen3-1.7B",
        thinking=False,
        engine="transformers",
        lora_rank=16,
        lora_alpha=32,
    ),
    Preset("l4", needs_gb=22, model="unsloth/Qwen3-4B-Instruct-2507", thinking=False),
    # Qwen3.5 is in 16 bits (families.py) and samples through Transformers: Unsloth's loader would
    # start vLLM for it (unsloth/models/vision.py 1283), but Unsloth's own GRPO notebook does not.
    # The ranks, learning rates and 16 to 32 completions per step follow TRL's
    # lora_without_regret.md (for RL: ranks of 1 to 32, 1e-5, a batch below 32) and Unsloth's
    # notebooks of August 2026 (ranks of 4 to 32, alpha twice the rank, 5e-6 to 5e-5).
    Preset(
        "a100",
        needs_gb=39,
        model="unsloth/Qwen3.5-9B",
        load_in_4bit=False,
        max_completion_length=1024,
        thinking=False,
        engine="transformers",
    ),
    Preset(
        "h100",
        needs_gb=79,
        model="unsloth/Qwen3.5-9B",
        load_in_4bit=False,
        max_completion_length=2048,
        thinking=False,
        engine="transformers",
        num_generations=16,
        per_device_train_batch_size=16,
        gradient_accumulation_steps=2,
    ),
    Preset(
        "h200",
        needs_gb=138,
        model="unsloth/Qwen3.5-27B",
        load_in_4bit=False,
        max_completion_length=2048,
        thinking=False,
        engine="transformers",
        num_generations=16,
        per_device_train_batch_size=16,
        gradient_accumulation_steps=2,
    ),
    # The batches of the next two recipes are smaller than one group. steps_per_generation samples a
    # whole group, which then serves two optimiser steps.
    Preset(
        "memory_optimized",
        needs_gb=7.5,
        model="unsloth/Qwen2.5-1.5B-Instruct",
        max_completion_length=512,
        thinking=False,
        engine="transformers",
        lora_rank=16,
        lora_alpha=32,
        num_generations=8,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=4,
        steps_per_generation=8,
        learning_rate=5e-6,
    ),
    Preset(
        "high_performance",
        needs_gb=39,
        model="unsloth/Qwen3-4B-Instruct-2507",
        load_in_4bit=False,  # the probabilities of vLLM and of the policy are nearer than in 4 bits
        max_prompt_length=512,
        max_completion_length=1024,
        thinking=False,
        num_generations=16,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        steps_per_generation=4,
        learning_rate=1e-5,
    ),
    # Vision models, for notebook 11. Unsloth starts vLLM for each of these families.
    Preset(
        "vision_2b",
        needs_gb=15,
        model="unsloth/Qwen3-VL-2B-Instruct",
        source="pictures/shapes",
        max_completion_length=256,
        engine="transformers",
    ),
    Preset(
        "vision_4b",
        needs_gb=22,
        model="unsloth/gemma-3-4b-it",
        source="pictures/shapes",
        max_completion_length=256,
    ),
    Preset(
        "vision_8b",
        needs_gb=39,
        model="unsloth/Qwen3-VL-8B-Instruct",
        source="pictures/shapes",
        max_completion_length=512,
    ),
)
PRESETS = {preset.name: preset for preset in _TABLE}


def pick(machine: Machine) -> str:
    """Return the name of the largest preset for the machine's GPU; `pocket` if none fits, or if
    torch cannot use the GPU, which then has to be hidden (`gpu_obstacle`).
    """
    if machine.gpu is None or gpu_obstacle(machine):
        return "pocket"
    for name in ("h200", "h100", "a100", "l4", "t4", "small"):  # the largest first
        if PRESETS[name].needs_gb <= machine.gpu_memory_gb:
            return name
    return "pocket"
