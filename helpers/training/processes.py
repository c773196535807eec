"""One training in several processes: who writes, and what all of them decide together.

torchrun and accelerate start the processes; `join` connects them through accelerate's PartialState.
A process that has not joined is alone, whatever its environment says. Verdicts and counts are
exchanged here; gradients are DDP's to average.
"""

import os
from collections.abc import Callable

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


def gather(value: object) -> list:
    """Return what each process gave, in their order; all of them have to call it."""
    if _state is None:
        return [value]
    from accelerate.utils import gather_object

    return gather_object([value])


def from_first(decide: Callable[[], object]) -> object:
    """Return in every process what the first one decides; the others wait for it."""
    return gather(decide() if is_first() else None)[0]
