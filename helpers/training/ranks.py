"""One training in several processes: which of them this one is, what each does of a step, and what
they exchange so that all decide alike.

torchrun and accelerate start the processes and give each its number, the rank; `join` connects
them. A process that has not joined is alone, whatever its environment says, and each function here
then gives back what it was given. What they exchange is small, on the CPU, and pickled: verdicts
and counts. Gradients are DDP's or Unsloth's to exchange.
"""

import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from helpers import presets
from helpers.presets import Preset

# that one rank waits for another: the longest round of sampling must be shorter
_TIMEOUT = timedelta(minutes=10)
_OF_A_PROCESS = (
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "steps_per_generation",
)
_group = None  # in which the ranks talk; None: alone


# --- Who this process is --------------------------------------------------------------------------


def join() -> None:
    """Connect with the other ranks, on this rank's own GPU if there is one.

    Does nothing in a process that is alone.
    """
    global _group
    if int(os.environ.get("WORLD_SIZE", 1)) < 2 or _group is not None:
        return
    import torch
    import torch.distributed as dist

    on_gpu = torch.cuda.is_available()
    if on_gpu:
        # each process may have been shown a card of its own
        alone = torch.cuda.device_count() == 1
        torch.cuda.set_device(0 if alone else int(os.environ.get("LOCAL_RANK", 0)))
    else:
        # accelerate 1.15 names a rank's CPU `cpu:0`, a place to which torch restores no optimizer
        # from a checkpoint.
        os.environ.setdefault("ACCELERATE_TORCH_DEVICE", "cpu")
    if not dist.is_initialized():
        dist.init_process_group("nccl" if on_gpu else "gloo", timeout=_TIMEOUT)
    _group = dist.new_group(backend="gloo", timeout=_TIMEOUT)


def leave() -> None:
    """Wait for the others, which may still be writing, and end the connection."""
    global _group
    if _group is not None:
        import torch.distributed as dist

        dist.barrier(_group)
        dist.destroy_process_group()
        _group = None


def rank() -> int:
    """The number of this process, from 0."""
    return 0 if _group is None else int(os.environ["RANK"])


def world() -> int:
    """How many processes train together."""
    return 1 if _group is None else int(os.environ["WORLD_SIZE"])


def is_first() -> bool:
    """Whether this process is the one that writes, prints and decides."""
    return rank() == 0


# --- What they exchange ---------------------------------------------------------------------------


def gathered(value: object) -> list:
    """What each rank gave, by rank; every rank has to call it."""
    if _group is None:
        return [value]
    import torch.distributed as dist

    found = [None] * world()
    dist.all_gather_object(found, value, group=_group)
    return found


def from_first(decide: Callable[[], object]) -> object:
    """What rank 0 decides, on every rank; only rank 0 calls `decide`, and all wait for it."""
    return gathered(decide() if is_first() else None)[0]


def fails_first() -> bool:
    """Whether no other rank has failed before: the first one's error is the cause, later ones are
    consequences.
    """
    if _group is None:
        return True
    import torch.distributed as dist

    try:
        return dist.distributed_c10d._get_default_store().add("failed", 1) == 1
    # the store ended with the process that kept it, which was the first to fail
    except RuntimeError:
        return False


def check_equal_weights(model) -> None:
    """RuntimeError if the ranks' trained weights are no longer the same: then their gradients were
    not averaged.
    """
    if world() == 1:
        return
    digest = hashlib.sha256()
    for _, weight in sorted(
        (name, weight) for name, weight in model.named_parameters() if weight.requires_grad
    ):
        digest.update(weight.detach().float().cpu().numpy().tobytes())
    found = gathered(digest.hexdigest()[:16])
    if len(set(found)) > 1:
        raise RuntimeError(
            "the ranks' weights have parted: "
            f"{', '.join(f'rank {n}: {d}' for n, d in enumerate(found))}."
        )


# --- What each does of a step ---------------------------------------------------------------------


def from_manifest(settings: dict, **overrides) -> Preset:
    """`presets.from_manifest` for the processes that train together, and for how they were
    launched.

    Together the processes make the completions of a step that one would make alone (see `shared`),
    so that a curve stays comparable, unless `overrides` say what each process does. ValueError if
    the processes cannot share a step, and for FSDP and DeepSpeed.
    """
    if any(overrides.get(name) is not None for name in _OF_A_PROCESS):
        preset = presets.from_manifest(settings | {"processes": world()}, **overrides)
    else:
        preset = shared(presets.from_manifest(settings, **overrides), world())
    for name in ("ACCELERATE_USE_FSDP", "UNSLOTH_FSDP2", "ACCELERATE_USE_DEEPSPEED"):
        if os.environ.get(name, "").lower() in ("1", "true"):
            raise ValueError(
                f"{name} is set: FSDP and DeepSpeed are not supported, and gain little here, since "
                "each card samples with the whole model. Launch with torchrun, or with ddp.yaml."
            )
    return preset


def shared(preset: Preset, processes: int) -> Preset:
    """The settings of one process among so many, with the completions of a step and of a round of
    sampling that one would make.

    Each makes fewer forward passes or, as far as these do not divide, smaller ones. ValueError if
    neither divides.
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
        f"(per_device_train_batch_size={batch} x gradient_accumulation_steps={passes}) evenly: "
        "start a number that divides them, or say with these two settings what each process does."
    )


def comparable(settings: dict) -> dict:
    """Recorded settings, `completed`, without those that an interrupted training may continue with
    other values of: what samples, and how many processes share the completions of a step.
    """
    settings = presets.completed(settings)
    batch, passes, rounds = (settings[name] for name in _OF_A_PROCESS)
    of_all = batch * settings["processes"]
    compared = settings | dict.fromkeys(("engine", "processes", *_OF_A_PROCESS))
    return compared | {
        "completions a step": of_all * passes,
        "completions a round": of_all * (rounds or passes),
    }
