"""What all rewards share.

A reward that changes while training says so with `state_dict` and `load_state_dict`;
`training.reward_guard` saves that with every checkpoint.
"""

from collections.abc import Callable


def reward_name(reward: Callable | str) -> str:
    """The name TRL logs a reward under: its function's, inside any functools.partial, or the last
    part of a model's.

    >>> from functools import partial
    >>> reward_name(partial(printable)), reward_name("my-org/my-classifier")
    ('printable', 'my-classifier')
    """
    reward = _unwrapped(reward)
    config = getattr(reward, "config", None)
    path = reward if isinstance(reward, str) else getattr(config, "_name_or_path", None)
    return path.split("/")[-1] if path else getattr(reward, "__name__", type(reward).__name__)


def stateful(reward: object) -> object | None:
    """What in a reward, inside any functools.partial, keeps a state over a training; None where
    nothing does.

    A model keeps none that a checkpoint should hold: its weights stay as they are.
    """
    reward = _unwrapped(reward)
    learns = hasattr(reward, "load_state_dict") and not hasattr(reward, "named_parameters")
    return reward if learns else None


def _unwrapped(reward: object) -> object:
    """What is inside any functools.partial."""
    while hasattr(reward, "func"):
        reward = reward.func
    return reward


def printable(text: str) -> str:
    """The text without lone surrogates, which no tokenizer, no file and no terminal takes."""
    return text.encode(errors="replace").decode()
