"""What to train, on what, and how: a preset for each kind of card, and the rules by which a preset,
a recorded run or a notebook's parameters become the settings of a run (`helpers.settings`).

`python -m helpers.presets` prints the table of the settings that docs/settings.md has.
"""

import difflib
from collections.abc import Iterable
from dataclasses import asdict, fields, replace

from helpers.environment import Machine, vllm_obstacle
from helpers.settings import (  # noqa: F401  # notebooks and rewards have them from here
    EMBEDDED,
    OF_TRAINING,
    POCKET_MODEL,
    SETTINGS,
    Preset,
    chosen,
    grpo,
    possible_values,
    rest,
)

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
    # Models of text are told not to think: Qwen3 thinks unless told otherwise, and then needs 1,500
    # to 2,200 tokens for a question of GSM8K, so these limits would clip most completions. The
    # embedded models and those that see have no such choice.
    # Cards below 20 GB sample through Transformers: a vLLM engine would leave little to train in,
    # and recent vLLM may not serve a T4 (compute capability 7.5, no bf16).
    Preset(
        "small",
        needs_gb=7.5,
        model="unsloth/gemma-3-1b-it",
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
    Preset(
        "a100",
        needs_gb=39,
        model="unsloth/Llama-3.1-8B-Instruct",
        max_completion_length=1024,
        thinking=False,
    ),
    Preset(
        "h100",
        needs_gb=79,
        model="unsloth/Qwen3-8B",
        max_completion_length=2048,
        thinking=False,
        num_generations=16,
        per_device_train_batch_size=16,
        gradient_accumulation_steps=2,
    ),
    Preset(
        "h200",
        needs_gb=138,
        model="unsloth/Qwen3-14B",
        max_completion_length=2048,
        thinking=False,
        lora_rank=64,
        lora_alpha=128,
        num_generations=16,
        per_device_train_batch_size=32,
        gradient_accumulation_steps=2,
    ),
    # The two recipes' batches are less than one group: steps_per_generation samples a whole one,
    # which then serves two optimiser steps.
    Preset(
        "memory_optimized",
        needs_gb=15,
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
        max_prompt_length=512,
        max_completion_length=1024,
        thinking=False,
        num_generations=16,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        steps_per_generation=4,
        learning_rate=1e-5,
    ),
    # Models that see, for notebook 11. Unsloth starts vLLM for each family.
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
# CUDA 13, for which torch 2.13 is built, has dropped what came before Turing
OLDEST_CAPABILITY = 7.5


def pick(machine: Machine) -> str:
    """The name of the largest preset that fits the machine's GPU, or else `pocket`."""
    if machine.gpu is None or machine.compute_capability < OLDEST_CAPABILITY:
        return "pocket"
    largest_first = ("h200", "h100", "a100", "l4", "t4", "small")
    fitting = (name for name in largest_first if PRESETS[name].needs_gb <= machine.gpu_memory_gb)
    return next(fitting, "pocket")


def resolve(name: str, machine: Machine, **overrides) -> Preset:
    """A preset by name (`auto` picks one for the machine) with some fields overridden; None keeps
    the preset's value.

    Raises ValueError for an unknown name or field, or for a combination that cannot run.
    """
    if name == "auto":
        name = pick(machine)
    if name not in PRESETS:
        raise ValueError(
            f"preset {name!r} is not known. Known: auto, {', '.join(PRESETS)}. "
            "`python -m helpers doctor` says which one fits this machine."
        )
    return with_overrides(PRESETS[name], **overrides)


def with_overrides(preset: Preset, **overrides) -> Preset:
    """The preset with these settings replaced, checked as a whole; None keeps a setting."""
    return from_manifest(asdict(preset), **overrides)


# --- What a run recorded --------------------------------------------------------------------------


def completed(settings: dict) -> dict:
    """Recorded settings, with newer ones at their defaults and without those that are gone."""
    return {
        each.name: settings.get(each.name, getattr(Preset, each.name, None))
        for each in fields(Preset)
    }


def hint(name: str, known: Iterable[str]) -> str:
    """`Did you mean …? ` for a name that is none of the known ones; empty if none is near."""
    # what Unsloth and TRL call a setting, and tutorials after them
    renamed = {"fast_inference": "engine", "use_vllm": "engine"}
    near = [renamed[name]] if name in renamed else difflib.get_close_matches(name, known, 1)
    return f"Did you mean {near[0]!r}? " if near else ""


def from_manifest(settings: dict, **overrides) -> Preset:
    """The preset that a manifest recorded, with some settings overridden, checked as a whole; None
    keeps a setting. ValueError names one that does not exist.
    """
    for name in overrides:
        if name not in SETTINGS:
            raise ValueError(f"{name!r} is not a setting. {hint(name, SETTINGS)}".strip())
    given = {name: value for name, value in overrides.items() if value is not None}
    generated = str(given.get("source", "arithmetic/")).startswith(
        ("arithmetic/", "pictures/", "reasoning-gym/")
    )
    if not generated:
        # a preset's numbers are for what can be generated; a file or a data set has what it has
        given = {"train_size": None, "holdout_size": None} | given
    if given.get("backend") == "transformers" and "engine" not in given:
        given["engine"] = "transformers"  # vLLM is Unsloth's to start here
    return Preset(**completed(settings) | given)


# Settings of the loss, which nothing reads that only samples.
_OBJECTIVE = (
    "loss_type",
    "epsilon",
    "epsilon_high",
    "scale_rewards",
    "multi_objective_aggregation",
    "importance_sampling_level",
    "mask_truncated_completions",
    "num_iterations",
    "vllm_importance_sampling_correction",
)


def for_sampling(settings: dict, **overrides) -> Preset:
    """`from_manifest` for what only loads a model and samples: the objective of its training is
    neither checked nor kept.
    """
    settings = {name: value for name, value in settings.items() if name not in _OBJECTIVE}
    overrides = {name: value for name, value in overrides.items() if name not in _OBJECTIVE}
    return from_manifest(settings, **overrides)


# --- What this machine can do ---------------------------------------------------------------------


def check_early_stopping(patience: int | None) -> None:
    """ValueError unless this is None or an integer of at least 2, in steps."""
    if patience is not None and (type(patience) is not int or patience < 2):
        raise ValueError(
            f"early_stopping={patience!r} is not a number of steps: give an integer of at least "
            "2, or None."
        )


def check_sampling_seconds(seconds: float | str | None) -> None:
    """ValueError unless this is "auto", a number of seconds above 0, or None for no limit."""
    number = type(seconds) in (int, float) and seconds > 0
    if not number and seconds not in ("auto", None):
        raise ValueError(
            f"sampling_seconds={seconds!r} is no time: give a number of seconds above 0, 'auto', "
            "or None for no limit."
        )


def check_machine(preset: Preset, machine: Machine) -> Preset:
    """The preset as it will run on this machine: its engine is then "vllm" or "transformers".

    "auto" becomes vLLM on a GPU that it serves, and else prints why not. ValueError if the preset,
    or the engine that was asked for, cannot run here, before anything is loaded or downloaded.
    """
    rules = [
        (
            machine.gpu is None and preset.needs_gb > 0,
            f"preset {preset.name!r} needs an NVIDIA GPU with {preset.needs_gb:.0f} GB and none "
            "is visible. Without one, take `--preset pocket`, which runs on a CPU.",
        ),
        (
            preset.needs_gb > 0 and machine.compute_capability < OLDEST_CAPABILITY,
            f"{machine.gpu} has compute capability {machine.compute_capability}, and the pinned "
            f"torch serves {OLDEST_CAPABILITY} (Turing: T4, RTX 20) and later. Take `--preset "
            "pocket` and hide the GPU with CUDA_VISIBLE_DEVICES= in the environment.",
        ),
        (
            preset.needs_gb > machine.gpu_memory_gb,
            f"preset {preset.name!r} is meant for a card of {preset.needs_gb:.0f} GB; "
            f"{machine.gpu} has {machine.gpu_memory_gb:.0f} GB. Take `--preset {pick(machine)}`.",
        ),
        (
            machine.gpu is not None
            and not machine.bf16
            and preset.backend == "transformers"
            and preset.load_in_4bit,
            "backend='transformers' with load_in_4bit=True casts the adapters to bfloat16, which "
            f"{machine.gpu} has not: take backend='unsloth', or load_in_4bit=False.",
        ),
        (
            machine.gpu is None
            and preset.engine == "vllm"
            and preset.vllm_importance_sampling_correction,
            "vllm_importance_sampling_correction=True needs vLLM on a GPU; on a CPU leave it out.",
        ),
    ]
    for refused, sentence in rules:
        if refused:
            raise ValueError(sentence)
    if preset.engine == "transformers" or (preset.engine == "auto" and machine.gpu is None):
        return replace(preset, engine="transformers")
    obstacle = vllm_obstacle(machine)
    if obstacle and preset.engine == "vllm":
        raise ValueError(
            f"engine='vllm': {obstacle}. Take engine='transformers'"
            + (
                ", or install it: python -m tools.optional."
                if obstacle == "vLLM is not installed"
                else "."
            )
        )
    if obstacle:
        print(
            f"{obstacle}: sampling goes through Transformers, which is slower "
            "(engine='transformers')."
        )
    return replace(preset, engine="transformers" if obstacle else "vllm")


def table() -> str:
    """The settings in Markdown, a row each, as docs/settings.md shows them."""
    lines = [
        "| setting | default | may be | what it does | passed to | parameter of |",
        "|---|---|---|---|---|---|",
    ]
    for name, setting in SETTINGS.items():
        told = setting.metadata
        lines.append(
            f"| `{name}` | `{setting.default}` | {possible_values(setting)} | {told['does']} | "
            f"{told['becomes']} | {told['notebooks']} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
