"""Where monty is not CPython: programs that must come out as "unsupported", and not as a failure or
a success.

The lists were made with pydantic-monty 1.4.0; what a later version learns can be struck out. Most
gaps monty names itself when it meets them: see `named`. The others are found in the syntax tree,
before anything runs: see `before`.

Not found, and the reason for `confirm=True`: `round(2.675, 2)` is 2.68, `any` and `all` look at
every item of a generator, `$` in a pattern does not match before a last line break, `__slots__` do
not bind, and a set that is kept in a name has its order of insertion.
"""

from __future__ import annotations

import ast
import builtins
import collections
import datetime
import importlib
import re
import sys
import types
from collections.abc import Iterable

from helpers.rewards.code.types import Outcome

# --- The lists ------------------------------------------------------------------------------------

_MODULES = frozenset(
    """__future__ asyncio base64 binascii bisect collections copy csv dataclasses datetime decimal
    functools hashlib itertools json math os os.path pathlib posixpath random re sys time tomllib
    typing unicodedata""".split()
)
# It ignores these methods of a program's class, or fails where they would be called.
_METHODS = frozenset(
    """__bool__ __bytes__ __delattr__ __format__ __ge__ __getattr__ __getattribute__ __gt__ __le__
    __len__ __lt__ __ne__ __new__ __reversed__ __setattr__""".split()
)
# It computes these, and generator expressions, at once and makes lists of them. So they must be
# used up where they are made: by a loop, by unpacking, or by a function of the second list.
_LAZY = frozenset("enumerate filter map reversed zip".split())
_USES_UP = frozenset(
    """Counter OrderedDict accumulate all any chain combinations deque dict difference enumerate
    extend filter fromkeys frozenset fsum intersection islice iter join list map max mean min
    permutations prod product reduce reversed set sorted sum symmetric_difference tuple union
    update zip""".split()
)
# It keeps a set in its order of insertion; these show the order, unless the next list hides it.
_SHOWS_ORDER = frozenset("enumerate iter join list repr str tuple zip".split())
_HIDES_ORDER = frozenset("Counter all any frozenset len max min set sorted sum".split())
# What it says where it lacks something,
_SAYS = (
    "callable replacement is not yet supported",
    "cannot convert 'list' object to bytes",
    "cannot create 'object' instances",
    "is not supported in this environment",
    "pow() 2nd argument cannot be negative",
    "too deeply nested",
    "unknown encoding",
)
# and where it lacks a name that CPython has.
_LACKS = [
    re.compile(r"name '(?P<name>\w+)' is not defined"),
    re.compile(r"cannot import name '(?P<name>\w+)' from '(?P<owner>\w+)'"),
    re.compile(r"module '(?P<owner>\w+)' has no attribute '(?P<name>\w+)'"),
    re.compile(r"(type object )?'(\w+\.)?(?P<owner>\w+)'( object)? has no attribute '(?P<name>\w+)'"),
]
_NOT_PYTHON = frozenset("_ display get_ipython".split())  # builtins of interactive sessions
_TYPES = {"function": types.FunctionType, "NoneType": type(None), "Match": re.Match}
_TYPES |= {"Pattern": re.Pattern, "Counter": collections.Counter, "deque": collections.deque}
_TYPES |= {"defaultdict": collections.defaultdict, "date": datetime.date}
_TYPES |= {"datetime": datetime.datetime, "timedelta": datetime.timedelta}


# --- Before it runs -------------------------------------------------------------------------------


def before(source: str, called: Iterable[str] = ()) -> Outcome | None:
    """The outcome of a program that monty must not be asked about; None for all others.

    called: the functions that will be called. Nothing of it is run. It is parsed and not compiled: the compiler of Python 3.12 crashes with
    some programs (fifty comprehensions in one another).

    >>> before("return 3").error
    'SyntaxError'
    >>> before("def f(x): return map(str, x)").message
    'line 1: monty computes map(…) at once, and it is kept for later.'
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line, said = getattr(error, "lineno", None), getattr(error, "msg", None) or str(error)
        return Outcome("error", error=type(error).__name__, line=line, message=said)
    # Each node with whether it is inside a function, and what uses its value.
    stack: list[tuple[ast.AST, bool, str]] = [(tree, False, "")]
    bound: set[str] = set()
    notes: list[ast.Name] = []
    while stack:
        node, inside, use = stack.pop()
        if isinstance(node, ast.Return) and not inside:
            line = node.lineno
            said = "'return' outside function"
            return Outcome("error", error="SyntaxError", line=line, message=said)
        if why := _lacking(node, use):
            line = getattr(node, "lineno", None)
            return Outcome("unsupported", line=line, message=f"line {line}: {why}")
        bound.update(_bound(node))
        notes += _annotations(node)
        inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        stack += [(child, inside, _use(node, child)) for child in ast.iter_child_nodes(node)]
    # It does not look at annotations, and takes a builtin for the program's function.
    unknown = [note.id for note in notes if not hasattr(builtins, note.id)]
    if "annotations" in bound:  # from __future__
        unknown = []
    unknown += [name for name in called if hasattr(builtins, name)]
    missing = [name for name in unknown if name not in bound]
    if not missing:
        return None
    return Outcome("error", error="NameError", message=f"name {missing[0]!r} is not defined")


def _lacking(node: ast.AST, use: str) -> str | None:
    """What of this node monty lacks or does differently."""
    match node:
        case ast.Import(names):
            modules = [alias.name for alias in names]
        case ast.ImportFrom(module=module):
            modules = [module or ""]
        case _:
            modules = []
    for module in modules:
        if module.split(".")[0] in sys.stdlib_module_names and module not in _MODULES:
            return f"monty has no module {module}."
    if isinstance(node, ast.FunctionDef) and node.name in _METHODS:
        return f"monty does not call {node.name}."
    lazy = isinstance(node, ast.GeneratorExp) or _name(node) in _LAZY
    if lazy and use not in _USES_UP | {"loop"}:
        what = f"{_name(node)}(…)" if isinstance(node, ast.Call) else "a generator expression"
        return f"monty computes {what} at once, and it is kept for later."
    if use not in _HIDES_ORDER and any(map(_is_set, _shown(node))):
        return "monty keeps a set in its order of insertion, and here the order shows."
    return None


def _shown(node: ast.AST) -> list[ast.AST]:
    """The values whose order shows in the value of this node."""
    if isinstance(node, ast.ListComp):
        return [node.generators[0].iter]
    if _name(node) == "pop" and not node.args and isinstance(node.func, ast.Attribute):
        return [node.func.value]
    return node.args if _name(node) in _SHOWS_ORDER else []


def _is_set(node: ast.AST) -> bool:
    return isinstance(node, ast.Set | ast.SetComp) or _name(node) in ("set", "frozenset")


def _name(node: ast.AST) -> str | None:
    """The name of the function or method that a call calls."""
    called = node.func if isinstance(node, ast.Call) else None
    return getattr(called, "id", None) or getattr(called, "attr", None)


def _use(node: ast.AST, child: ast.AST) -> str:
    """What a node uses the value of this child for."""
    if isinstance(node, ast.Call):
        return _name(node) or "" if child is not node.func else ""
    if isinstance(node, ast.For | ast.comprehension):
        return "loop" if child is node.iter else ""
    unpacks = isinstance(node, ast.Assign) and all(
        isinstance(target, ast.Tuple | ast.List) for target in node.targets
    )
    searches = isinstance(node, ast.Compare) and isinstance(node.ops[-1], ast.In | ast.NotIn)
    return "loop" if unpacks or searches or isinstance(node, ast.Starred) else ""


def _bound(node: ast.AST) -> list[str]:
    """The names that a node binds."""
    if isinstance(node, ast.alias):
        return [(node.asname or node.name).split(".")[0]]
    if isinstance(node, ast.arg):
        return [node.arg]
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return [node.id]
    name = getattr(node, "name", None)  # of a function, a class, an exception, a type parameter
    return [name] if name else []


def _annotations(node: ast.AST) -> list[ast.Name]:
    """The names in an annotation of a function."""
    note = getattr(node, "returns", None) or (isinstance(node, ast.arg) and node.annotation)
    return [inner for inner in ast.walk(note) if isinstance(inner, ast.Name)] if note else []


# --- After it raised ------------------------------------------------------------------------------


def named(error: BaseException, frames: list, source: str) -> str | None:
    """What monty lacks, if that is why it raised this; None where the program failed by itself."""
    kind, text = type(error).__name__, str(error)
    # Raised by the parser, and so in no function.
    if kind == "NotImplementedError" and frames and frames[-1].function_name is None:
        return text
    if text.startswith("Internal error in monty"):
        # No program can catch it, so only one that catches nothing surely ends with it in CPython.
        return text if re.search(r"\bexcept\b", source) else None
    if any(said in text for said in _SAYS):
        return f"monty: {text}."
    found = next(filter(None, (pattern.match(text) for pattern in _LACKS)), None)
    return _lacks(**found.groupdict(), source=source) if found else None


def _lacks(name: str, source: str, owner: str = "") -> str | None:
    """That monty lacks a builtin, a function of a module or a method, if CPython has it."""
    if owner in _MODULES:
        place = importlib.import_module(owner)
    elif re.search(rf"\bclass\s+{owner or 'class'}\b", source):  # the program's own
        place = None
    else:
        place = _TYPES.get(owner) or getattr(builtins, owner, None) if owner else builtins
    if not hasattr(place, name) or name in _NOT_PYTHON:
        return None
    return f"monty has no {f'{owner}.{name}' if owner else name}."
