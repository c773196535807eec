"""One training in several processes: who writes, what all of them decide together, and what each
does of a step.

torchrun and accelerate start the processes; `join` connects them through accelerate's PartialState.
A process that has not joined is alone, whatever its environment says. Verdicts and counts are
exchanged here; gradients are DDP's to average.
"""

import os
from collections.abc import Callable
from dataclasses import replace

from helpers import presets
from helpers.presets import Preset

# the settings that say what one process does of a step
OF_A_PROCESS = (
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "steps_per_generation",
)
_state = None  # accelerate's PartialState; None: alone


def join() -> None:
    """Connect with the processes that a launcher started beside this one; do nothing if alone."""
    global _state
    if int(os.environ.get("WORLD_SIZE", 1)) == 1:
        return
    import torch
    from accelerate import PartialState

    on_cpu = not torch.cuda.is_available()
    if on_cpu:
        # the trainer makes a state of its own, which must find the processes without a GPU, too
        os.environ["ACCELERATE_USE_CPU"] = "true"
        # accelerate 1.15 calls a process's CPU `cpu:1`, to which torch restores no optimizer
        os.environ["ACCELERATE_TORCH_DEVICE"] = "cpu"
    _state = PartialState(cpu=on_cpu)


def leave() -> None:
    """Wait for the others, which may still be writing, and end the connection."""
    if _state is not None:
        _state.wait_for_everyone()
        _state.destroy_process_group()


def count() -> int:
    """Return how many processes train together."""
    return 1 if _state is None else _state.num_processes


def is_first() -> bool:
    """Return whether this process is the one that writes, prints and decides."""
    return _state is None or _state.is_main_process


def gathered(value: object) -> list:
    """Return what each process gave, in their order; all of them have to call it."""
    if _state is None:
        return [value]
    from accelerate.utils import gather_object

    return gather_object([value])


def from_first(decide: Callable[[], object]) -> object:
    """Return in every process what the first one decides; the others wait for it."""
    return gathered(decide() if is_first() else None)[0]


def from_manifest(settings: dict, **overrides) -> Preset:
    """Return `presets.override` for one of the processes that train together.

    Together they make the completions of a step that one would make alone (see `shared`), so that a
    curve stays comparable, unless `overrides` say what each process does.
    """
    if any(overrides.get(name) is not None for name in OF_A_PROCESS):
        return presets.override(settings | {"processes": count()}, **overrides)
    return shared(presets.override(settings, **overrides), count())


def shared(preset: Preset, processes: int) -> Preset:
    """Return the settings of one process among so many, with the completions of a step and of a
    round of sampling that one would make.

    Each makes fewer forward passes or, as far as these do not divide, smaller ones. ValueError if
    neither divides.
    """
    batch = preset.per_device_train_batch_size
    passes = preset.gradient_accumulation_steps
    rounds = preset.steps_per_generation
    for fewer in range(processes, 0, -1):
        smaller = processes // fewer
        divides = (rounds or 0) % fewer == 0 and passes % fewer == 0 and batch % smaller == 0
        if processes % fewer == 0 and divides:
            return replace(
                preset,
                processes=processes,
                per_device_train_batch_size=batch // smaller,
                gradient_accumulation_steps=passes // fewer,
                steps_per_generation=rounds // fewer if rounds else None,
            )
    raise ValueError(
        f"{processes} processes cannot share the {batch * passes} completions of a step "
        f"(per_device_train_batch_size={batch} x gradient_accumulation_steps={passes}) evenly: "
        "start a number that divides them, or say with these two settings what each process does."
    )
