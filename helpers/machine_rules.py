"""What settings a machine can run, and how they run there. Settings are a `presets.Preset`."""

from dataclasses import replace
from typing import Any

from helpers.environment import OLDEST_CAPABILITY, Machine, vllm_obstacle


def refusal(preset: Any, machine: Machine) -> str | None:
    """Return why the preset cannot train on this machine, in a sentence; None if it can."""
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


def for_machine(preset: Any, machine: Machine) -> Any:
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
