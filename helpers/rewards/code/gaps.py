"""Where monty is not CPython: programs that must come out as "unsupported", and not as a failure or
a success.

The lists were made with pydantic-monty 1.4.0; what a later version learns can be struck out. Most
gaps monty names itself when it meets them: see `named`. The others are found in the syntax tree,
before anything runs: see `before`.

Not found, and the reason for `confirm=True`: `round(2.675, 2)` is 2.68, `any` and `all` look at
every item of a generator, `$` in a pattern does not match before a last line break, `__slots__` do
not bind, a set that is kept in a name has its order of insertion, and a program may go on without a
module that monty lacks. Nor does monty look at annotations: a name that is nowhere defined does no
harm in one, as in Python 3.14.
"""

import ast
import builtins
import collections
import datetime
import importlib
import io
import re
import sys
import threading
import types
import warnings

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
_SETS = _words("set frozenset")
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
# and where it lacks a module or a name that CPython has.
_LACKS = (
    r"No module named '(?P<module>[\w.]+)'",
    r"name '(?P<name>\w+)' is not defined",
    r"cannot import name '(?P<name>\w+)' from '(?P<owner>\w+)'",
    r"(module |type object )?'(\w+\.)?(?P<owner>\w+)'( object)? has no attribute '(?P<name>\w+)'",
)
_NOT_PYTHON = _words("_ display get_ipython")  # builtins of interactive sessions
# The types that a message may name.
_TYPES = vars(collections) | vars(datetime) | vars(io) | vars(re) | vars(builtins)
_TYPES |= {"function": types.FunctionType, "NoneType": types.NoneType}


# --- Before it runs -------------------------------------------------------------------------------

_PROGRAM = "<program>"
# What Python's parser thinks of a policy's style is not for our log.
warnings.filterwarnings("ignore", module=_PROGRAM)
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
_AWAITS = (ast.Await, ast.AsyncFor, ast.AsyncWith)
# Two threads in ast.parse may end in a SystemError in Python 3.11 (python/cpython issue 106905).
_one_parses = threading.Lock()


def before(source: str) -> Outcome | None:
    """The outcome of a program that monty must not be asked about; None for all others.

    Nothing of the program is run. It is parsed and not compiled: the compiler of Python 3.12
    crashes with some programs (fifty comprehensions in one another).

    >>> before("return 3").error
    'SyntaxError'
    >>> before("def f(x): return map(str, x)").message
    'line 1: monty computes map(…) at once, and it is kept for later.'
    """
    try:
        with _one_parses:
            tree = ast.parse(source, _PROGRAM)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line, said = getattr(error, "lineno", None), getattr(error, "msg", None) or str(error)
        return Outcome("error", error=type(error).__name__, line=line, message=said)
    # A node, the function around it, and what its value is used for.
    stack: list[tuple[ast.AST, ast.AST | None, str]] = [(tree, None, "")]
    while stack:
        node, function, use = stack.pop()
        misplaced = ""
        if isinstance(node, ast.Return) and function is None:
            misplaced = "'return' outside function"
        elif isinstance(node, _AWAITS) and not isinstance(function, ast.AsyncFunctionDef):
            misplaced = "'await' outside async function"
        if misplaced:
            return Outcome("error", error="SyntaxError", line=node.lineno, message=misplaced)
        if why := _lacking(node, use):
            return Outcome("unsupported", line=node.lineno, message=f"line {node.lineno}: {why}")
        function = node if isinstance(node, _FUNCTIONS) else function
        stack += [(child, function, _use(node, child)) for child in ast.iter_child_nodes(node)]
    return None


def _use(node: ast.AST, child: ast.AST) -> str:
    """What a node uses the value of a child for: the name of a function, or to loop."""
    match node:
        case ast.Call(func=called):
            return _name(node) if child is not called else ""
        case (
            ast.For(iter=used)
            | ast.comprehension(iter=used)
            | ast.Starred(value=used)
            | ast.Assign([ast.Tuple() | ast.List()], used)
            | ast.Compare(ops=[*_, ast.In() | ast.NotIn()], comparators=[*_, used])
        ) if child is used:
            return "loop"
    return ""


def _lacking(node: ast.AST, use: str) -> str | None:
    """What of this node monty lacks or does differently; most nodes are none of these kinds."""
    match node:
        case ast.FunctionDef(name) if name in _METHODS:
            return f"monty does not call {name}."
        case ast.GeneratorExp() if use not in _USES_UP:
            return "monty computes a generator expression at once, and it is kept for later."
        case ast.Call(ast.Name(name)) if name in _LAZY and use not in _USES_UP:
            return f"monty computes {name}(…) at once, and it is kept for later."
        case ast.ListComp(generators=[ast.comprehension(iter=inner), *_]) | ast.Call(
            ast.Attribute(value=inner, attr="pop"), []
        ):
            shown = [inner]
        case ast.Call(args=arguments) if _name(node) in _SHOWS_ORDER:
            shown = arguments
        case _:
            return None
    sets = [
        each for each in shown if isinstance(each, ast.Set | ast.SetComp) or _name(each) in _SETS
    ]
    if sets and use not in _HIDES_ORDER:
        return "monty keeps a set in its order of insertion, and here the order shows."
    return None


def _name(node: ast.AST) -> str:
    """The name of the function or method that a call calls."""
    called = node.func if isinstance(node, ast.Call) else None
    return getattr(called, "id", "") or getattr(called, "attr", "")


# --- After it raised ------------------------------------------------------------------------------


def named(error: BaseException, frames: list, source: str) -> str | None:
    """What monty lacks, if that is why it raised this; None where the program failed by itself."""
    text = str(error)
    # Raised by the parser, and so in no function.
    if type(error) is NotImplementedError and frames and frames[-1].function_name is None:
        return text
    if text.startswith("Internal error in monty"):
        # No program can catch it, so only one that catches nothing surely ends with it in CPython.
        return text if re.search(r"\bexcept\b", source) else None
    at = frames[-1].line if frames else 0
    if any(re.search(r"\braise\b", line) for line in source.split("\n")[max(0, at - 1) : at]):
        return None  # the program says so itself
    if any(said in text for said in _SAYS):
        return f"monty: {text}."
    for pattern in _LACKS:
        found = re.match(pattern, text)
        match found and found.groupdict():
            case {"module": module} if module.split(".")[0] in sys.stdlib_module_names:
                return f"monty has no module {module}."
            case {"owner": owner, "name": name} if not re.search(rf"\bclass\s+{owner}\b", source):
                # No other module is imported here: the program may have made its name up.
                module = importlib.import_module(owner) if owner in _MODULES else None
                if hasattr(module, name) or hasattr(_TYPES.get(owner), name):
                    return f"monty has no {owner}.{name}."
            case {"name": name} if hasattr(builtins, name) and name not in _NOT_PYTHON:
                return f"monty has no {name}."
    return None
