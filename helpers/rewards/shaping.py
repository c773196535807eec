"""What all rewards share."""

import hashlib
import inspect
import unicodedata
from collections.abc import Callable
from pathlib import Path

import regex

from helpers import PROJECT

# Characters without a glyph: zero-width ones, Hangul fillers, tags, control characters, a blank.
_UNSEEN = regex.compile(
    r"[\p{Default_Ignorable_Code_Point}\ufff9-\ufffb\u2800\x00-\x08\x0e-\x1f\x7f]"
)


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


def source_hash(reward: Callable) -> str | None:
    """Return the SHA-256 of the file that defines a reward, or of the reward's own source if it was
    typed into a notebook.

    None for a reward of this package, whose version the manifest records, and for one without
    source. The modules that the file imports are not read.
    """
    while hasattr(reward, "func"):
        reward = reward.func
    # an object with __call__ is defined where its class is
    function = reward if hasattr(reward, "__code__") else type(reward).__call__
    try:
        file = Path(inspect.getsourcefile(function))
        if file.is_relative_to(PROJECT / "helpers"):
            return None
        source = file.read_bytes() if file.is_file() else inspect.getsource(function).encode()
    except (TypeError, OSError):  # written in C, or typed at a prompt
        return None
    return hashlib.sha256(source).hexdigest()


def printable(text: str) -> str:
    """Return the text without lone surrogates: no tokenizer, file or terminal takes them."""
    return text.encode(errors="replace").decode()


def visible(text: str, instead: str = "") -> str:
    """Return the text with `instead` in the place of each character that nobody sees, and in one
    spelling of those that look the same because Unicode says so (NFC).

    >>> visible("f\N{ZERO WIDTH SPACE}o\N{HANGUL FILLER}ur")
    'four'
    """
    return _UNSEEN.sub(instead, unicodedata.normalize("NFC", text))
