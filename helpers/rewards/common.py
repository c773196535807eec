"""What all rewards share: which function a reward is (name, file, hash), and the text one sees."""

import hashlib
import inspect
import re
import unicodedata
from collections.abc import Callable
from functools import partial
from pathlib import Path

import regex

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


def defining_function(reward: Callable) -> Callable:
    """Return the function that holds a reward's lines: inside any functools.partial, and of an
    object its class's `__call__`.
    """
    while hasattr(reward, "func"):
        reward = reward.func
    return reward if hasattr(reward, "__code__") else type(reward).__call__


def is_own(reward: Callable) -> bool:
    """Return whether a reward is a user's own, not one of this package or of TRL."""
    module = getattr(defining_function(reward), "__module__", None) or ""
    return module.split(".")[0] not in ("helpers", "trl")


def source_of(reward: Callable) -> str:
    """Return the text of the file that defines a reward, or of the reward alone if it was typed
    into a notebook; "" without source.
    """
    function = defining_function(reward)
    try:
        file = Path(inspect.getsourcefile(function))
        if file.is_file():
            return file.read_bytes().decode(errors="replace")
        return inspect.getsource(function)
    except (TypeError, OSError):  # written in C, or typed at a prompt
        return ""


def source_hash(reward: Callable) -> str | None:
    """Return the SHA-256 of a reward's `source_of` and of the options that functools.partial binds,
    but for the run's tags.

    None for a reward without source, and for one of this package without options, because the
    manifest records its version. The modules that a file imports are not read.
    """
    source = source_of(reward) if is_own(reward) else ""
    options = {}
    while isinstance(reward, partial):
        options = dict(enumerate(reward.args)) | reward.keywords | options
        reward = reward.func
    options.pop("tags", None)
    if options:
        # an object without a text of its own has its address there
        source += re.sub(r" at 0x\w+", "", repr(options))
    return hashlib.sha256(source.encode()).hexdigest() if source else None


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
