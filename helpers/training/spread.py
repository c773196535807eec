"""One training spread over several processes: what each of them does of a step, and what cannot be
launched so.
"""

from __future__ import annotations

import os
from dataclasses import replace

from helpers import presets
from helpers.presets import Preset
from helpers.training import ranks

_OF_A_PROCESS = (
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "steps_per_generation",
)


def from_manifest(settings: dict, **overrides) -> Preset:
    """`presets.from_manifest` for the processes that train together.

    All of them together make the completions of a step that one would make alone (see `shared`), so
    that a curve stays comparable; unless `overrides` say what each process does. What that comes to
    is printed where there are several. ValueError where the processes cannot share a step, and for
    a launcher that the back end does not go with.
    """
    if any(overrides.get(name) is not None for name in _OF_A_PROCESS):
        preset = presets.from_manifest(settings | {"processes": ranks.world()}, **overrides)
    else:
        preset = shared(presets.from_manifest(settings, **overrides), ranks.world())
    return _launched(preset)


def shared(preset: Preset, processes: int) -> Preset:
    """The settings of one process among so many, with the completions of a step and of a round of
    sampling that one would make.

    Each makes fewer forward passes or, as far as these do not divide, smaller ones. ValueError
    where neither divides.
    """
    batch, passes, rounds = (getattr(preset, name) for name in _OF_A_PROCESS)
    for fewer in (number for number in range(processes, 0, -1) if processes % number == 0):
        smaller = processes // fewer
        if passes % fewer == (rounds or 0) % fewer == batch % smaller == 0:
            return replace(
                preset,
                processes=processes,
                per_device_train_batch_size=batch // smaller,
                gradient_accumulation_steps=passes // fewer,
                steps_per_generation=rounds // fewer if rounds else None,
            )
    raise ValueError(
        f"{processes} processes cannot share the {batch * passes} completions of a step "
        f"(per_device_train_batch_size={batch} x "
        f"gradient_accumulation_steps={passes}) evenly: start a number that divides them, or say "
        "with these two settings what "
        "each process does."
    )


def comparable(settings: dict) -> dict:
    """Recorded settings, `completed`, without what an interrupted training may go on with another
    value of: what samples (one that failed must not end it), and how many processes share the
    completions of a step.
    """
    settings, of_a_process = (
        presets.completed(settings),
        ("per_device_train_batch_size", "gradient_accumulation_steps"),
    )
    batch, passes = (settings[name] for name in of_a_process)
    all_of_them, rounds = batch * settings["processes"], settings["steps_per_generation"] or passes
    same = dict.fromkeys(("engine", "steps_per_generation", *of_a_process))
    # DeepSpeed takes its optimizer's parts up in as many processes only
    if not settings["zero_stage"]:
        same["processes"] = None
    return (
        settings
        | same
        | {"completions a step": all_of_them * passes, "completions a round": all_of_them * rounds}
    )


def zero_stage() -> int:
    """The stage of DeepSpeed's ZeRO that `accelerate launch` was asked for; 0 without it."""
    return (
        int(os.environ.get("ACCELERATE_DEEPSPEED_ZERO_STAGE", 0))
        if _is_on("ACCELERATE_USE_DEEPSPEED")
        else 0
    )


def _is_on(variable: str) -> bool:
    return os.environ.get(variable, "").lower() in ("1", "true")


def _launched(preset: Preset) -> Preset:
    stage = zero_stage()
    if _is_on("ACCELERATE_USE_FSDP") or _is_on("UNSLOTH_FSDP2"):
        raise ValueError("FSDP is not supported here: launch with ddp.yaml or zero2.yaml.")
    if stage and preset.backend == "unsloth":
        raise ValueError(
            f"DeepSpeed's ZeRO-{stage} takes weights and optimizer out of Unsloth's hands: set "
            "backend='transformers', or "
            "launch with ddp.yaml or torchrun."
        )
    if stage == 3 and preset.load_in_4bit:
        raise ValueError(
            "DeepSpeed's ZeRO-3 does not share out weights in 4 bits: prepare the run with "
            "load_in_4bit=False, or take zero2."
        )
    return replace(preset, zero_stage=stage)
