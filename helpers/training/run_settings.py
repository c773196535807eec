"""Settle the settings of a run for this machine, this model and this process, or refuse them.

    settings = settings_for("auto", this_machine(), {"max_steps": 100})

The command `run` calls this before it starts a notebook, and the notebook calls it again.
"""

import math
from dataclasses import replace

from helpers import presets
from helpers.environment import Machine, gpu_obstacle, vllm_obstacle
from helpers.presets import Preset
from helpers.training import processes
from helpers.training.families import family_of
from helpers.training.memory import config_of

# the settings that describe one process's part of a step
OF_A_PROCESS = (
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "steps_per_generation",
)


def settings_for(
    start: str | dict,
    machine: Machine,
    parameters: dict,
    *,
    small: dict | None = None,
    sees: bool = False,
    trains: bool = True,
    loads: bool = True,
) -> Preset:
    """Return the settings of a run in this process. ValueError if they cannot run; nothing has been
    loaded by then.

    start: a preset's name, or the settings that a manifest recorded.
    parameters: settings to change, by name; None keeps a setting.
    small: settings for a lesson's own small model. They replace those of preset `pocket` unless the
        parameters name another model, which then needs a learning rate.
    sees: whether the run has pictures.
    trains: whether the run trains; otherwise the objective is neither checked nor kept.
    loads: whether a model will be loaded here; otherwise this machine's limits do not matter.
    """
    if isinstance(start, dict) and not trains:
        settings = presets.for_sampling(start, **parameters)
    elif isinstance(start, dict):
        # Several processes share the completions of a step, so that curves stay comparable, unless
        # the parameters set each process's part.
        number = processes.count()
        if any(parameters.get(name) is not None for name in OF_A_PROCESS):
            settings = presets.override(start | {"processes": number}, **parameters)
        else:
            settings = share(presets.override(start, **parameters), number)
    else:
        name = presets.pick(machine) if start == "auto" else start
        if small and name == "pocket":
            if parameters.get("model") in (None, small["model"]):
                parameters = small | parameters
            elif parameters.get("learning_rate") is None:
                raise ValueError(
                    f"the learning rate of preset 'pocket' would ruin {parameters['model']!r}: "
                    "take preset='auto' on a GPU, or name a rate"
                )
        settings = presets.resolve(name, machine, **parameters)
    if not loads:
        return settings
    return for_model(for_machine(settings, machine), machine, sees=sees)


def for_machine(preset: Preset, machine: Machine) -> Preset:
    """Return the settings for this machine: the engine is "vllm" or "transformers", and
    `vllm_importance_sampling_correction` is decided.

    `engine="auto"` becomes vLLM on a GPU, and Transformers otherwise. If vLLM cannot run on the
    GPU, the reason is printed and Transformers samples. ValueError if the machine cannot train the
    preset, or cannot run the engine that was asked for.
    """
    if sentence := refusal(preset, machine):
        raise ValueError(sentence)

    engine = preset.engine
    if engine == "auto":
        engine = "vllm" if machine.gpu else "transformers"
    obstacle = vllm_obstacle(machine, preset.load_in_4bit) if engine == "vllm" else None
    if obstacle and preset.engine == "vllm":
        install = ""
        if obstacle == "vLLM is not installed":
            install = ", or install it: python -m helpers install"
        raise ValueError(f"engine='vllm': {obstacle}. Take engine='transformers'{install}.")
    if obstacle:
        print(
            f"{obstacle}: sampling goes through Transformers, which is slower "
            "(engine='transformers')."
        )
        engine = "transformers"

    # by default, correct vLLM's probabilities only in a long run with 4-bit weights
    possible = engine == "vllm"
    corrects = preset.vllm_importance_sampling_correction
    if corrects and not possible:
        raise ValueError(
            "vllm_importance_sampling_correction=True needs vLLM on a GPU; leave it out here."
        )
    if corrects is None and possible and preset.load_in_4bit and preset.max_steps >= 100:
        corrects = True
    return replace(preset, engine=engine, vllm_importance_sampling_correction=corrects)


def refusal(preset: Preset, machine: Machine) -> str | None:
    """Return in a sentence why this machine cannot train the preset; None if it can."""
    if machine.gpu is None and preset.needs_gb > 0:
        return (
            f"preset {preset.name!r} needs an NVIDIA GPU with {preset.needs_gb:.0f} GB and none "
            "is visible. Without one, take `--preset pocket`, or `--preset smollm2` for a real "
            "language model: both run on a CPU."
        )
    if obstacle := gpu_obstacle(machine):
        return obstacle
    if preset.needs_gb > machine.gpu_memory_gb:
        return (
            f"preset {preset.name!r} is meant for a card of {preset.needs_gb:.0f} GB; "
            f"{machine.gpu} has {machine.gpu_memory_gb:.0f} GB. `--preset auto` takes one that "
            "fits."
        )
    only_fp16 = machine.gpu is not None and not machine.bf16
    if only_fp16 and preset.backend == "transformers" and preset.load_in_4bit:
        return (
            "backend='transformers' with load_in_4bit=True casts the adapters to bfloat16, which "
            f"{machine.gpu} has not: take backend='unsloth', or load_in_4bit=False."
        )
    return None


def for_model(settings: Preset, machine: Machine, *, sees: bool = False) -> Preset:
    """Return the settings for their model. If Unsloth starts no vLLM for the model's family on this
    card, a sentence is printed and the engine becomes Transformers.

    sees: whether the run has pictures. The chat template then decides whether the model thinks.

    Call this before importing Unsloth, which would fall back silently or raise.
    """
    if sees:  # a processor takes an unknown template keyword for one of its own
        settings = replace(settings, thinking=None)
    if settings.engine != "vllm":
        return settings
    config = config_of(settings.model_path)
    kind = config.get("model_type", "")
    family = family_of(kind)
    blind = "vision_config" in config and sees and not family.sees_through_vllm
    starts = family.vllm_from is not None and machine.compute_capability >= family.vllm_from
    if starts and not blind:
        return settings
    print(
        f"Unsloth starts no vLLM for {kind}{' and pictures' if sees else ''} on {machine.gpu} "
        f"(compute capability {machine.compute_capability}): sampling goes through Transformers, "
        "which is slower (engine='transformers')."
    )
    # nothing is left to correct
    return replace(settings, engine="transformers", vllm_importance_sampling_correction=None)


def share(settings: Preset, number: int) -> Preset:
    """Return the settings of one of `number` processes that share the completions of a step and of
    a round of sampling.

    Each process makes fewer forward passes. If their number does not divide, the passes become
    smaller as well. ValueError if neither divides.
    """
    batch = settings.per_device_train_batch_size
    passes = settings.gradient_accumulation_steps
    rounds = settings.steps_per_generation
    fewer = math.gcd(number, passes, rounds or 0)
    smaller = number // fewer
    if batch % smaller:
        raise ValueError(
            f"{number} processes cannot share the {batch * passes} completions of a step "
            f"(per_device_train_batch_size={batch} x gradient_accumulation_steps={passes}) evenly: "
            "start a number that divides them, or say with these two settings what each process "
            "does."
        )
    return replace(
        settings,
        processes=number,
        per_device_train_batch_size=batch // smaller,
        gradient_accumulation_steps=passes // fewer,
        steps_per_generation=rounds // fewer if rounds else None,
    )


def check_early_stopping(patience: int | None) -> None:
    """Raise ValueError unless the patience is None or at least 2 steps."""
    if patience is not None and (type(patience) is not int or patience < 2):
        raise ValueError(
            f"early_stopping={patience!r} is not a number of steps: give an integer of at least "
            "2, or None."
        )


def check_sampling_seconds(seconds: float | str | None) -> None:
    """Raise ValueError unless this is a positive number of seconds, "auto", or None (no limit)."""
    number = type(seconds) in (int, float) and seconds > 0
    if not number and seconds not in ("auto", None):
        raise ValueError(
            f"sampling_seconds={seconds!r} is no time: give a number of seconds above 0, 'auto', "
            "or None for no limit."
        )
