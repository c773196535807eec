"""What all rewards share.

`reward_name`, `is_own`, `source_of`, `code_of` and `source_hash` describe a reward, for the logs,
the manifest and the laboratory. `visible` removes the invisible characters from a text before a
reward reads it.
"""

import ast
import hashlib
import inspect
import re
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import regex


def reward_name(reward: Callable | str) -> str:
    """Return the name under which TRL logs a reward: the name of its function, or the last part of
    a reward model's name.

    >>> from functools import partial
    >>> reward_name(partial(visible)), reward_name("my-org/my-classifier")
    ('visible', 'my-classifier')
    """
    while hasattr(reward, "func"):  # functools.partial, or a wrapper such as `VerlReward`
        reward = reward.func
    # A reward model is given by its path, or loaded: then its config has the path.
    config = getattr(reward, "config", None)
    path = reward if isinstance(reward, str) else getattr(config, "_name_or_path", None)
    if path:
        return path.split("/")[-1]
    # An object without a name, such as a callable of a class, is named for its class.
    return getattr(reward, "__name__", type(reward).__name__)


def defining_function(reward: Callable) -> Callable:
    """Return the function that a reward calls: the one inside functools.partial, or the `__call__`
    of an object's class.
    """
    while hasattr(reward, "func"):
        reward = reward.func
    return reward if hasattr(reward, "__code__") else type(reward).__call__


def is_own(reward: Callable) -> bool:
    """Return whether a reward is the user's own, rather than this package's or TRL's."""
    module = getattr(defining_function(reward), "__module__", None) or ""
    return module.split(".")[0] not in ("helpers", "trl")


def source_of(reward: Callable) -> str:
    """Return the text of the file that defines a reward, or only the reward's own text if it was
    typed into a notebook; "" if there is no source.
    """
    function = defining_function(reward)
    try:
        file = Path(inspect.getsourcefile(function))
        if file.is_file():
            return file.read_bytes().decode(errors="replace")
        return inspect.getsource(function)
    except (TypeError, OSError):  # written in C, or typed at a prompt
        return ""


def code_of(reward: Callable) -> str:
    """Return the part of `source_of` that a reward uses: the definition that it is in or that has
    its name, and the definitions of the file that these name, directly or by way of others. If
    there is no such definition, return the whole source.
    """
    source = source_of(reward)
    lines = source.splitlines()

    # 1. Find the texts of the file's statements, by the names that each of them defines.
    texts_by_name = {}
    with suppress(SyntaxError, ValueError):
        for statement in ast.parse(source).body:
            decorators = getattr(statement, "decorator_list", [])
            first_line = min(part.lineno for part in [statement, *decorators])
            text = "\n".join(lines[first_line - 1 : statement.end_lineno])
            for name in names_defined_by(statement):
                texts_by_name.setdefault(name, []).append(text)

    # 2. Begin with the reward's own names: those of the file's variables that hold it, and that of
    # the function or class that defines it. A function written in C has no globals.
    function = defining_function(reward)
    its_globals = getattr(function, "__globals__", {})
    names = [name for name, value in its_globals.items() if value is reward]
    names.append(getattr(function, "__qualname__", "").split(".")[0])

    # 3. Take the definition of each name, and look up the words in it, too. `pop` takes each
    # definition once, so the list of names stops growing.
    used = []
    for name in names:
        for text in texts_by_name.pop(name, []):
            used.append(text)
            names += re.findall(r"\w+", text)
    return "\n".join(used) or source


def names_defined_by(statement: ast.stmt) -> list[str]:
    """Return the names that a statement defines: one for a function or a class, several for an
    assignment, an import, or definitions below `if` or `try`.
    """
    if hasattr(statement, "name"):
        return [statement.name]
    names = []
    for part in ast.walk(statement):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):  # x in `x = 1`
            names.append(part.id)
        # y in `import x as y`, else x in `import x` or `def x`
        name = getattr(part, "asname", None) or getattr(part, "name", None)
        if name:
            names.append(name)
    return names


def source_hash(reward: Callable) -> str | None:
    """Return the SHA-256 of a reward's source and of its options, bound by functools.partial.

    Two things are left out: the option `tags`, which belongs to the run, and the source of this
    package's and TRL's rewards, whose versions the manifest records. Returns None if nothing is
    left to hash. Modules that the reward imports are not read.
    """
    source = source_of(reward) if is_own(reward) else ""
    # Collect the options from the outer partial to the inner one: positional options by number,
    # keywords by name. In a call, the outer partial's options replace the inner one's; `|` keeps
    # the value on its right.
    options = {}
    while isinstance(reward, partial):
        positional = dict(enumerate(reward.args))
        options = positional | reward.keywords | options
        reward = reward.func
    options.pop("tags", None)
    if options:
        # The default repr of an object has its address, which changes from run to run.
        source += re.sub(r" at 0x\w+", "", repr(options))
    return hashlib.sha256(source.encode()).hexdigest() if source else None


# Zero-width characters, Hangul fillers, tags, control characters and the Braille blank.
_INVISIBLE = regex.compile(
    r"[\p{Default_Ignorable_Code_Point}\ufff9-\ufffb\u2800\x00-\x08\x0e-\x1f\x7f]"
)
# Thirty combining marks, before one more.
_LONG_RUN = regex.compile(r"(\p{M}{30})(?=\p{M})")


def visible(text: str, instead: str = "") -> str:
    """Return a text with `instead` for each invisible character, and with characters that look the
    same spelt the same (Unicode's NFC).

    >>> visible("f\N{ZERO WIDTH SPACE}o\N{HANGUL FILLER}ur")
    'four'
    """
    return _INVISIBLE.sub(instead, normal_form(text, "NFC"))


def normal_form(text: str, form: str) -> str:
    """Return a text in one of Unicode's normal forms, in linear time.

    Python sorts the combining marks of a character in quadratic time. So a long run of marks is
    first split by an invisible character, as in Unicode's Stream-Safe Text Format (UAX 15).
    """
    text = _LONG_RUN.sub("\\1\N{COMBINING GRAPHEME JOINER}", text)
    return unicodedata.normalize(form, text)
