"""The settings of a run as they will run: on this machine, with this model, in this process. The
command `run` asks before it starts a notebook and the notebook asks again, both here.
"""

import math
from dataclasses import replace

from helpers import presets
from helpers.environment import OLDEST_CAPABILITY, Machine, vllm_obstacle
from helpers.presets import Preset
from helpers.training import processes
from helpers.training.families import family_of
from helpers.training.memory import config_of

# the settings that say what one process does of a step
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
    """Return the settings of a run as this process will have them; ValueError for what cannot run,
    before anything is loaded.

    start: a preset's name, or what a manifest recorded.
    parameters: the settings that they change.
    small: a lesson's own small model and its values. They apply with preset `pocket` alone, and
        only if the parameters name no other model; another needs a learning rate.
    sees: whether the run has pictures.
    trains: whether it trains; otherwise the objective is neither checked nor kept.
    loads: whether a model will be loaded here; otherwise what this machine lacks is no reason.
    """
    if isinstance(start, dict) and not trains:
        settings = presets.for_sampling(start, **parameters)
    elif isinstance(start, dict):
        # Together the processes make the completions of a step that one would make alone, so that a
        # curve stays comparable, unless the parameters say what each process does.
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


def refusal(preset: Preset, machine: Machine) -> str | None:
    """Return why the preset cannot train on this machine, in a sentence; None if it can."""
    rules = [
        (
            machine.gpu is None and preset.needs_gb > 0,
            f"preset {preset.name!r} needs an NVIDIA GPU with {preset.needs_gb:.0f} GB and none "
            "is visible. Without one, take `--preset pocket`, or `--preset smollm2` for a real "
            "language model: both run on a CPU.",
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
            f"{machine.gpu} has {machine.gpu_memory_gb:.0f} GB. `--preset auto` takes one that "
            "fits.",
        ),
        (
            machine.gpu is not None
            and not machine.bf16
            and preset.backend == "transformers"
            and preset.load_in_4bit,
            "backend='transformers' with load_in_4bit=True casts the adapters to bfloat16, which "
            f"{machine.gpu} has not: take backend='unsloth', or load_in_4bit=False.",
        ),
    ]
    return next((sentence for refused, sentence in rules if refused), None)


def for_machine(preset: Preset, machine: Machine) -> Preset:
    """Return the settings as they will run on this machine: the engine is then "vllm" or
    "transformers", and whether the sampler's probabilities are corrected is known.

    "auto" becomes vLLM on a GPU that it serves; otherwise what is in its way is printed. Raise
    ValueError, before anything is loaded or downloaded, if the preset, or the engine that was asked
    for, cannot run here.
    """
    if sentence := refusal(preset, machine):
        raise ValueError(sentence)

    engine = preset.engine
    if engine == "auto":
        engine = "vllm" if machine.gpu else "transformers"
    obstacle = vllm_obstacle(machine) if engine == "vllm" else None
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

    # vLLM's probabilities are corrected by default in a long run on 4 bits
    possible = engine == "vllm"
    corrects = preset.vllm_importance_sampling_correction
    if corrects and not possible:
        raise ValueError(
            "vllm_importance_sampling_correction=True needs vLLM on a GPU; leave it out here."
        )
    if corrects is None and possible and preset.load_in_4bit and preset.max_steps >= 100:
        corrects = True
    return replace(preset, engine=engine, vllm_importance_sampling_correction=corrects)


def share(settings: Preset, number: int) -> Preset:
    """Return the settings of one process among so many, with the completions of a step and of a
    round of sampling that one would make.

    Each makes fewer forward passes or, as far as these do not divide, smaller ones. ValueError if
    neither divides.
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


def for_model(settings: Preset, machine: Machine, *, sees: bool = False) -> Preset:
    """Return the settings as they will run with their model: with Transformers as the engine if
    Unsloth gives it no vLLM on this card, which is printed. Call it before Unsloth is imported,
    which falls back by itself or raises.

    sees: whether the run has pictures; then the model's template decides whether it thinks.
    Otherwise only the language part of a model that sees is loaded.
    """
    if sees:  # a processor would take the keyword for one of its own, if its template has none
        settings = replace(settings, thinking=None)
    if settings.engine != "vllm" or machine.gpu is None:
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
