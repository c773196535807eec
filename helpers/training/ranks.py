"""One training in several processes: which of them this one is, and what they tell one another so
that all decide alike.

torchrun and accelerate start the processes and give each its number, the rank; `join` connects
them. A process that has not joined is alone, whatever its environment says, and each function here
then gives back what it was given. What they exchange is small, on the CPU, and pickled: verdicts
and counts. Gradients are DDP's, Unsloth's or DeepSpeed's to exchange.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from datetime import timedelta

from helpers.environment import package_versions
from helpers.runs import git_revision
from helpers.subprocesses import end_with

# that one rank waits for another: the longest round of sampling must be shorter
TIMEOUT = timedelta(minutes=10)
_PATIENCE = 5.0  # seconds that a rank without a launcher has to end in order
_LOST = (
    "connection closed by peer",
    "connection reset by peer",
    "broken pipe",
    "connection refused",
    "socket closed",
)
_group = None  # in which the ranks talk; None: alone


def started() -> tuple[int, int]:
    """The rank and the number of processes that the launcher gave this process in its environment;
    (0, 1) without one.
    """
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def join() -> None:
    """Connect with the other ranks, on this rank's own GPU where there are any.

    Does nothing in a process that is alone.

    From then on this process ends with its launcher, however that one ends.
    """
    global _group
    if started()[1] < 2 or _group is not None:
        return
    if os.name == "posix":  # a launcher that is killed with -9 says nothing to those it has started
        end_with(os.getppid(), _PATIENCE)
    import torch
    import torch.distributed as dist

    on_gpu = torch.cuda.is_available()
    if on_gpu:
        local, cards = int(os.environ.get("LOCAL_RANK", 0)), torch.cuda.device_count()
        if cards == 1:  # each process may have been shown a card of its own
            local = 0
        if local >= cards:
            raise ValueError(
                f"process {local + 1} of this machine has no GPU to itself: there are {cards}. "
                f"Start {cards}."
            )
        torch.cuda.set_device(local)
    else:
        # accelerate 1.15 names a rank's CPU `cpu:0`, a place to which torch restores no optimizer
        # from a checkpoint.
        os.environ.setdefault("ACCELERATE_TORCH_DEVICE", "cpu")
    if not dist.is_initialized():
        dist.init_process_group("nccl" if on_gpu else "gloo", timeout=TIMEOUT)
    _group = dist.new_group(backend="gloo", timeout=TIMEOUT)


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
    return started()[0] if _group is not None else 0


def world() -> int:
    """How many processes train together."""
    return started()[1] if _group is not None else 1


def is_first() -> bool:
    """Whether this process is the one that writes, prints and decides."""
    return rank() == 0


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
    if _group is None:
        return decide()
    import torch.distributed as dist

    found = [decide() if is_first() else None]
    dist.broadcast_object_list(found, src=0, group=_group)
    return found[0]


def fails_first() -> bool:
    """Whether no other rank has said so before: the first one's error is the cause, those after it
    are consequences.
    """
    if _group is None:
        return True
    import torch.distributed as dist

    try:
        return dist.distributed_c10d._get_default_store().add("failed", 1) == 1
    # the store ended with the process that kept it, which was the first to fail
    except RuntimeError:
        return False


def lost(error: BaseException) -> bool:
    """Whether this error only says that another rank is gone."""
    return (
        world() > 1
        and isinstance(error, RuntimeError)
        and any(words in str(error).lower() for words in _LOST)
    )


def check_alike(**more: object) -> None:
    """ValueError where a rank has other packages, another revision of the project, or another of
    `more` than rank 0.
    """
    if world() == 1:
        return
    mine = package_versions() | {"the project": git_revision()} | more
    first, *others = gathered(mine)
    for number, theirs in enumerate(others, 1):
        names = [name for name in {**first, **theirs} if first.get(name) != theirs.get(name)]
        if names:
            said = "; ".join(
                f"{name} is {theirs.get(name)} there and {first.get(name)} on rank 0"
                for name in names
            )
            raise ValueError(
                f"rank {number} differs: {said}. All ranks need the same installation and the "
                "same data."
            )


def check_equal_weights(model) -> None:
    """RuntimeError where the ranks' trained weights are no longer the same: then their gradients
    were not averaged.
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
