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
import warnings
from collections.abc import Iterable

from helpers.rewards.code.types import Outcome

# --- The lists ------------------------------------------------------------------------------------


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_MODULES = _words(
    """__future__ asyncio base64 binascii bisect collections copy csv dataclasses datetime decimal
    functools hashlib itertools json math os os.path pathlib posixpath random re sys time tomllib
    typing unicodedata"""
)
# It ignores these methods of a program's class, or fails where they would be called.
_METHODS = _words(
    """__bool__ __bytes__ __delattr__ __format__ __ge__ __getattr__ __getattribute__ __gt__ __le__
    __len__ __lt__ __ne__ __new__ __reversed__ __setattr__"""
)
# It computes these, and generator expressions, at once and makes lists of them. So they must be
# used up where they are made: by a loop, by unpacking, or by a function of the second list.
_LAZY = _words("enumerate filter map reversed zip")
_USES_UP = _words(
    """Counter OrderedDict accumulate all any chain combinations deque dict difference enumerate
    extend filter fromkeys frozenset fsum intersection islice iter join list map max mean min
    permutations prod product reduce reversed set sorted sum symmetric_difference tuple union
    update zip loop"""
)
# It keeps a set in its order of insertion; these show the order, unless the next list hides it.
_SHOWS_ORDER = _words("enumerate iter join list repr str tuple zip")
_HIDES_ORDER = _words("Counter all any frozenset len max min set sorted sum")
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
    re.compile(r"cannot import name '(?P<name>\w+)' from '(?P<module>\w+)'"),
    re.compile(r"module '(?P<module>\w+)' has no attribute '(?P<name>\w+)'"),
    re.compile(
        r"(type object )?'(\w+\.)?(?P<owner>\w+)'( object)? has no attribute '(?P<name>\w+)'"
    ),
]
_NOT_PYTHON = _words("_ display get_ipython")  # builtins of interactive sessions
# The types that a message may name.
_TYPES = vars(collections) | vars(datetime) | vars(re) | vars(builtins)
_TYPES |= {"function": types.FunctionType, "NoneType": types.NoneType}


# --- Before it runs -------------------------------------------------------------------------------

_PROGRAM = "<program>"
# What Python's parser thinks of a policy's style is not for our log.
warnings.filterwarnings("ignore", module=_PROGRAM)


def before(source: str, called: Iterable[str] = ()) -> Outcome | None:
    """The outcome of a program that monty must not be asked about; None for all others.

    called: the functions that will be called. Nothing of the program is run. It is parsed and not
    compiled: the compiler of Python 3.12 crashes with some programs (fifty comprehensions in one
    another).

    >>> before("return 3").error
    'SyntaxError'
    >>> before("def f(x): return map(str, x)").message
    'line 1: monty computes map(…) at once, and it is kept for later.'
    """
    try:
        tree = ast.parse(source, _PROGRAM)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line, said = getattr(error, "lineno", None), getattr(error, "msg", None) or str(error)
        return Outcome("error", error=type(error).__name__, line=line, message=said)
    stack: list[tuple[ast.AST, ast.AST | None]] = [(tree, None)]  # a node, and its function
    uses: dict[int, str] = {}  # what the value of a node is used for
    bound: set[str] = set()
    notes: list[ast.Name] = []
    while stack:
        node, function = stack.pop()
        if isinstance(node, _LEAVES):
            continue
        returns = isinstance(node, ast.Return) and function is None
        awaits = isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith)
        if returns or (awaits and not isinstance(function, ast.AsyncFunctionDef)):
            said = "'return' outside function" if returns else "'await' outside async function"
            return Outcome("error", error="SyntaxError", line=node.lineno, message=said)
        if why := _lacking(node, uses.get(id(node), "")):
            message = f"line {node.lineno}: {why}"
            return Outcome("unsupported", line=node.lineno, message=message)
        uses |= _uses(node)
        bound.update(_bound(node))
        notes += _annotations(node)
        function = node if isinstance(node, _FUNCTIONS) else function
        stack += [(child, function) for child in ast.iter_child_nodes(node)]
    # It does not look at annotations, and takes a builtin for the program's function.
    unknown = [note.id for note in notes if not hasattr(builtins, note.id)]
    if "annotations" in bound:  # from __future__
        unknown = []
    unknown += [name for name in called if hasattr(builtins, name)]
    missing = [name for name in unknown if name not in bound]
    if not missing:
        return None
    return Outcome("error", error="NameError", message=f"name {missing[0]!r} is not defined")


_LEAVES = (ast.Constant, ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _lacking(node: ast.AST, use: str) -> str | None:
    """What of this node monty lacks or does differently; most nodes are none of these kinds."""
    match node:
        case ast.Import(names):
            return _no_module([alias.name for alias in names])
        case ast.ImportFrom(module):
            return _no_module([module or ""])
        case ast.FunctionDef(name) if name in _METHODS:
            return f"monty does not call {name}."
        case ast.GeneratorExp() if use not in _USES_UP:
            return "monty computes a generator expression at once, and it is kept for later."
        case ast.Call(ast.Name(name)) if name in _LAZY and use not in _USES_UP:
            return f"monty computes {name}(…) at once, and it is kept for later."
        case ast.ListComp(generators=[ast.comprehension(iter=shown), *_]):
            shows = _is_set(shown)
        case ast.Call(ast.Attribute(value=shown, attr="pop"), []):
            shows = _is_set(shown)
        case ast.Call(args=shown) if _name(node) in _SHOWS_ORDER:
            shows = any(map(_is_set, shown))
        case _:
            return None
    if shows and use not in _HIDES_ORDER:
        return "monty keeps a set in its order of insertion, and here the order shows."
    return None


def _no_module(modules: list[str]) -> str | None:
    """That monty lacks one of these, if CPython has it."""
    for module in modules:
        if module.split(".")[0] in sys.stdlib_module_names and module not in _MODULES:
            return f"monty has no module {module}."
    return None


def _is_set(node: ast.AST) -> bool:
    return isinstance(node, ast.Set | ast.SetComp) or _name(node) in ("set", "frozenset")


def _name(node: ast.AST) -> str | None:
    """The name of the function or method that a call calls."""
    called = node.func if isinstance(node, ast.Call) else None
    return getattr(called, "id", None) or getattr(called, "attr", None)


def _uses(node: ast.AST) -> dict[int, str]:
    """What a node uses the values of its children for: the name of a function, or to loop."""
    match node:
        case ast.Call(args=arguments):
            name = _name(node) or ""
            return {id(argument): name for argument in arguments}
        case ast.For(iter=used) | ast.comprehension(iter=used) | ast.Starred(value=used):
            return {id(used): "loop"}
        case ast.Assign([ast.Tuple() | ast.List()], used):
            return {id(used): "loop"}
        case ast.Compare(ops=[*_, ast.In() | ast.NotIn()], comparators=[*_, used]):
            return {id(used): "loop"}
    return {}


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
    lines = source.split("\n")
    at = frames[-1].line - 1 if frames else -1
    if 0 <= at < len(lines) and re.search(r"\braise\b", lines[at]):
        return None
    if any(said in text for said in _SAYS):
        return f"monty: {text}."
    found = next(filter(None, (pattern.match(text) for pattern in _LACKS)), None)
    return _lacks(**found.groupdict(), source=source) if found else None


def _lacks(name: str, source: str, module: str = "", owner: str = "") -> str | None:
    """That monty lacks a builtin, a function of a module or a method, if CPython has it."""
    if module:  # which the program may have made up
        place = importlib.import_module(module) if module in _MODULES else None
    elif re.search(rf"\bclass\s+{owner or 'class'}\b", source):  # the program's own
        place = None
    else:
        place = _TYPES.get(owner) if owner else builtins
    if not hasattr(place, name) or name in _NOT_PYTHON:
        return None
    return f"monty has no {'.'.join(filter(None, (module, owner, name)))}."
