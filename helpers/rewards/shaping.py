"""What all rewards share."""

from collections.abc import Callable


def reward_name(reward: Callable | str) -> str:
    """Return the name TRL logs a reward under: its function's, inside any functools.partial, or
    the last part of a model's.

    >>> from functools import partial
    >>> reward_name(partial(printable)), reward_name("my-org/my-classifier")
    ('printable', 'my-classifier')
    """
    while hasattr(reward, "func"):
        reward = reward.func
    config = getattr(reward, "config", None)
    path = reward if isinstance(reward, str) else getattr(config, "_name_or_path", None)
    return path.split("/")[-1] if path else getattr(reward, "__name__", type(reward).__name__)


def printable(text: str) -> str:
    """Return the text without lone surrogates: no tokenizer, file or terminal takes them."""
    return text.encode(errors="replace").decode()
