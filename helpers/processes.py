"""Coordinate the processes of one training run: which one writes, and what they decide together.

torchrun or accelerate starts the processes, and `join` connects them through accelerate's
PartialState. A process that has not joined counts as alone. Only small values are exchanged here,
such as decisions and counts; DDP averages the gradients.
"""

import os
from collections.abc import Callable

_state = None  # accelerate's PartialState; None: alone


def join() -> None:
    """Connect to the other processes of the launcher; do nothing if there are none."""
    global _state
    if int(os.environ.get("WORLD_SIZE", 1)) == 1:
        return
    import torch
    from accelerate import PartialState

    on_cpu = not torch.cuda.is_available()
    if on_cpu:
        # the trainer makes its own state, which must also use the CPU
        os.environ["ACCELERATE_USE_CPU"] = "true"
        # accelerate 1.15 names a process's CPU `cpu:1`; torch cannot restore an optimizer to it
        os.environ["ACCELERATE_TORCH_DEVICE"] = "cpu"
    _state = PartialState(cpu=on_cpu)


def leave() -> None:
    """Wait for the other processes, which may still be writing, and disconnect."""
    if _state is not None:
        _state.wait_for_everyone()
        _state.destroy_process_group()


def count() -> int:
    """Return how many processes train together."""
    return 1 if _state is None else _state.num_processes


def is_first() -> bool:
    """Return whether this process writes, prints and decides for all."""
    return _state is None or _state.is_main_process


def gather(value: object) -> list:
    """Return the values of all processes, in their order. Every process must call this."""
    if _state is None:
        return [value]
    from accelerate.utils import gather_object

    return gather_object([value])


def from_first(decide: Callable[[], object]) -> object:
    """Call a function in the first process, and return its result in all processes.

    If it raises, the first process raises its error, and the others a RuntimeError with its text.
    """
    result = None
    error = None
    if is_first():
        try:
            result = decide()
        except Exception as raised:  # the others wait in `gather`, and must be told
            error = raised
    told = "" if error is None else f"{type(error).__name__}: {error}"
    result, told = gather((result, told))[0]
    if error is not None:
        raise error
    if told:
        raise RuntimeError(f"the first process failed: {told}")
    return result
