"""The presets, one for each kind of card, and the road on which the settings of a run are settled.

    settings = settle("auto", this_machine(), max_steps=100)

settings.py declares each setting. `settle` combines a preset with the changes of a notebook or of a
command, fits the result to the machine, and refuses what cannot run. The command `run` settles
before it starts a notebook, and the notebook settles again: nothing has been loaded by then.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import fields, replace

from helpers import PROJECT, families, processes, smollm2
from helpers.environment import Machine, gpu_obstacle, say_which_gpu, this_machine, vllm_obstacle
from helpers.settings import (
    GENERATED,
    POCKET_MODEL,
    SETTINGS,
    Preset,
    did_you_mean,
    misfits,
    problems,
)

# --- The presets ---------------------------------------------------------------------------------

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
        examples=str(PROJECT / "notebooks" / "data" / "pairs.jsonl"),
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


# --- The road of the settings ---------------------------------------------------------------------

# The settings that describe one process's part of a step.
OF_A_PROCESS = (
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "steps_per_generation",
)


def settings_in(names: dict, among: Iterable[str] = SETTINGS) -> dict:
    """Return the settings that a notebook's parameters change: `settings_in(globals())` returns the
    variables that are named like a setting and are not None.
    """
    return {name: names[name] for name in among if names.get(name) is not None}


def settle(
    start: str | dict | Preset,
    machine: Machine | None = None,
    *,
    small: dict | None = None,
    sees: bool = False,
    **changes,
) -> Preset:
    """Return the settings of a run in this process. Raise ValueError if they cannot run, with a
    sentence for each reason.

    start: a preset's name, "auto" for the one that fits this machine, or settings, as a `Preset` or
        as a manifest recorded them.
    machine: where a model will be loaded; None: nowhere, so no machine's limits matter.
    small: settings for a lesson's own small model. They replace those of preset `pocket`, unless
        the changes name another model, which then needs a learning rate.
    sees: whether the run has pictures. The chat template then decides whether the model thinks.
    changes: settings by name; None keeps a setting.

    If the engine was left to the suite and vLLM cannot run, a sentence is printed and Transformers
    samples. Unsloth would fall back silently or raise.

    An unknown preset and an impossible value that was recorded are refused at once, because the
    rest depends on them. A rule about a refused value is not judged. Nor is which library samples
    here, which may need a file of the model from the hub, if anything was refused before.
    """
    # 1. where the settings start
    if start == "auto":
        here = machine or this_machine()
        say_which_gpu(here)
        start = pick(here)
    if not isinstance(start, dict | Preset):
        if start not in PRESETS:
            raise ValueError(
                f"preset {start!r} is not known. Known: auto, {', '.join(PRESETS)}. "
                "`python -m helpers doctor` says which one fits this machine."
            )
        start = PRESETS[start]
    if isinstance(start, dict):
        # A manifest of an older version may lack settings, which get their defaults (or None, which
        # the rules refuse), and may have some that no longer exist, which are left out.
        names = [setting.name for setting in fields(Preset)]
        start = Preset(**{name: start.get(name, getattr(Preset, name, None)) for name in names})

    # 2. what the parameters change: those that are not None
    refused = [
        f"{name!r} is not a setting. {did_you_mean(name, SETTINGS)}".strip()
        for name in changes
        if name not in SETTINGS
    ]
    changes = settings_in(changes)
    if small and start.name == "pocket":
        if changes.get("model", small["model"]) == small["model"]:
            changes = settings_in(small) | changes
        elif "learning_rate" not in changes:
            refused.append(
                f"the learning rate of preset 'pocket' would ruin {changes['model']!r}: use "
                "preset='auto' on a GPU, or give a rate."
            )
    settings, wrong = changed(start, changes)
    if wrong.keys() - changes.keys():  # recorded, so there is nothing to judge the rest by
        refuse(refused, wrong.values())

    # 3. this process's share of a step
    settings = _share(settings, processes.count(), changes, refused)

    # 4. this machine, and the model on it
    if machine:
        obstacle = _obstacle(settings, machine)
        if obstacle:
            refused.append(obstacle)
        elif not refused and not wrong:
            settings = _fit(settings, machine, sees, changes, refused)

    # 5. which values go together; a run that recorded a misfit did run, by the rules of its time
    allowed = misfits(start)
    unknown = {*wrong}
    if machine and settings.engine == "auto":  # step 4 could not decide it
        unknown.add("engine")
    together = [sentence for sentence in misfits(settings, unknown) if sentence not in allowed]
    refuse(refused, [*wrong.values(), *together])
    return settings


def changed(start: Preset, changes: dict) -> tuple[Preset, dict[str, str]]:
    """Return the settings with these changes, none of which is None, and by name a sentence for
    each value of a wrong type or out of its range. Such a change is left out of the settings.
    Whether the values go together is not checked.
    """
    # 1. A change can take another setting with it. A preset's numbers of rows and its examples
    # belong to its generated source, not to a file or a dataset; and only Unsloth starts vLLM.
    values = {}
    if "source" in changes and not str(changes["source"]).startswith(GENERATED):
        values = {"train_size": None, "holdout_size": None, "examples": None}
    if changes.get("backend") == "transformers":
        values["engine"] = "transformers"

    # 2. Read texts: in YAML, and so for papermill, 3e-4 is one.
    for name, value in changes.items():
        is_number = re.fullmatch(r"-?[\d.]*\de[-+]?\d+", str(value))
        if SETTINGS[name].type is float and is_number:
            value = float(value)
        if name == "stop" and isinstance(value, str):
            value = [value]
        values[name] = value

    # 3. Check each value by itself.
    settings = replace(start, **values)
    wrong = problems(settings)
    return replace(settings, **{name: getattr(start, name) for name in wrong}), wrong


def refuse(reasons: list[str], of_values: Iterable[str]) -> None:
    """Raise ValueError with all these sentences, if there are any: those about values first."""
    if of_values:
        reasons = ["these settings cannot run:", *of_values, *reasons]
    if reasons:
        raise ValueError(" ".join(reasons))


def _share(settings: Preset, number: int, changes: dict, refused: list[str]) -> Preset:
    """Return the settings of one of `number` processes. If they cannot share a step evenly, add a
    sentence to `refused`.

    Together, the processes sample as many completions as the settings say, so that curves stay
    comparable. But if a change gives one of OF_A_PROCESS, all three hold for each process.
    """
    if changes.keys() & set(OF_A_PROCESS) or number == settings.processes:
        return replace(settings, processes=number)

    # 1. Count the forward passes of all processes: of a step, and of a round of sampling (0 if a
    # round has as many as a step).
    batch = settings.per_device_train_batch_size
    passes = settings.gradient_accumulation_steps * settings.processes
    passes_of_round = (settings.steps_per_generation or 0) * settings.processes

    # 2. Divide the number of passes by as many of the processes as possible, and their size by the
    # rest: with 4 passes, each of 8 processes makes 1 pass of half the size.
    fewer = math.gcd(number, passes, passes_of_round)
    smaller = number // fewer
    if batch % smaller:
        refused.append(
            f"{number} processes cannot share the {batch * passes} completions of a step "
            f"(per_device_train_batch_size={batch} x gradient_accumulation_steps={passes}) evenly: "
            "start a number that divides them, or say with these two settings what each process "
            "does."
        )
        return settings
    return replace(
        settings,
        processes=number,
        per_device_train_batch_size=batch // smaller,
        gradient_accumulation_steps=passes // fewer,
        steps_per_generation=passes_of_round // fewer or None,
    )


def _obstacle(settings: Preset, machine: Machine) -> str | None:
    """Return why the machine cannot train the preset, or None."""
    if machine.gpu is None and settings.needs_gb > 0:
        return (
            f"preset {settings.name!r} needs an NVIDIA GPU with {settings.needs_gb:.0f} GB, but "
            "none is visible. Without a GPU, use `--preset pocket`, or `--preset smollm2` for a "
            "real language model: both run on a CPU."
        )
    obstacle = gpu_obstacle(machine)
    if obstacle is None and settings.needs_gb > machine.gpu_memory_gb:
        return (
            f"preset {settings.name!r} is meant for a card of {settings.needs_gb:.0f} GB; "
            f"{machine.gpu} has {machine.gpu_memory_gb:.0f} GB. `--preset auto` picks one that "
            "fits."
        )
    return obstacle


def _fit(
    settings: Preset, machine: Machine, sees: bool, changes: dict, refused: list[str]
) -> Preset:
    """Return the settings on this machine; what it cannot do is added to `refused`.

    The engine becomes "vllm" or "transformers", and `vllm_importance_sampling_correction` is
    decided.
    """
    # 1. whether the machine can compute with the adapters
    if machine.only_fp16 and settings.backend == "transformers" and settings.load_in_4bit:
        refused.append(
            "backend='transformers' with load_in_4bit=True casts the adapters to bfloat16, which "
            f"{machine.gpu} does not support: use backend='unsloth', or load_in_4bit=False."
        )

    # 2. which library samples
    engine = _engine(settings, machine, sees, refused)

    # 3. whether to correct vLLM's probabilities: by default only in a long run with 4-bit weights
    corrects = settings.vllm_importance_sampling_correction
    if engine == "vllm":
        if corrects is None and settings.load_in_4bit and settings.max_steps >= 100:
            corrects = True
    elif corrects and "vllm_importance_sampling_correction" in changes:
        refused.append(
            "vllm_importance_sampling_correction=True needs vLLM on a GPU; leave it out here."
        )
    elif corrects:
        corrects = None  # recorded where vLLM sampled

    return replace(
        settings,
        engine=engine,
        # a processor takes an unknown template keyword for one of its own
        thinking=None if sees else settings.thinking,
        vllm_importance_sampling_correction=corrects,
    )


def _engine(settings: Preset, machine: Machine, sees: bool, refused: list[str]) -> str:
    """Return which library samples on this machine, "vllm" or "transformers". If vLLM was to
    sample, and cannot, print a sentence; if it was asked for, add one to `refused`.
    """
    if settings.engine == "transformers" or (settings.engine == "auto" and not machine.gpu):
        return "transformers"

    # 1. whether vLLM is there
    obstacle = vllm_obstacle(machine, settings.load_in_4bit)
    if obstacle and settings.engine == "vllm":
        install = ""
        if obstacle == "vLLM is not installed":
            install = ", or install it: python -m helpers install"
        refused.append(f"engine='vllm': {obstacle}. Use engine='transformers'{install}.")
        return "vllm"
    if obstacle:
        print(
            f"{obstacle}: sampling goes through Transformers, which is slower "
            "(engine='transformers')."
        )
        return "transformers"

    # 2. whether Unsloth starts it for this model
    config = families.config_of(settings.model_path)
    kind = config.get("model_type", "")
    family = families.family_of(kind)
    card_is_new_enough = (
        family.vllm_from is not None and machine.compute_capability >= family.vllm_from
    )
    shows_pictures = sees and "vision_config" in config
    if card_is_new_enough and (family.sees_through_vllm or not shows_pictures):
        return "vllm"
    pictures = " and images" if sees else ""
    print(
        f"Unsloth does not start vLLM for {kind}{pictures} on {machine.gpu} (compute capability "
        f"{machine.compute_capability}): sampling goes through Transformers, which is slower "
        "(engine='transformers')."
    )
    return "transformers"
