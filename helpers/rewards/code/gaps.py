"""Where monty is not CPython: what must come out as "unsupported", and never as a failure or a
success of the program.

Three kinds of gaps, as of pydantic-monty 1.4.0:

- what it refuses to parse, or has no name for: it raises, and `missing` tells that from a program
  that raises of its own;
- what it accepts and CPython does not (`return` outside a function): `before` asks CPython's
  parser, which runs nothing;
- what it does at once and CPython later (a generator expression, map and zip are lists): `before`
  refuses programs that keep one, because their values cannot be trusted. Nor can those that make a
  list of a set, which keeps its order of insertion.

Not found out: `any` and `all` over a generator look at every item, round(2.675, 2) is 2.68
(CPython: 2.67), `__bool__`, `__setattr__` and `__slots__` of a class are ignored, `$` in a pattern
does not match before a last line break, and a program may catch the ImportError of a module that
only monty lacks. Where that matters, take sandlock.
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

from helpers.rewards.code.types import Outcome

# fmt: off
_MODULES = frozenset(
    {
        "asyncio", "base64", "binascii", "bisect", "collections", "copy", "csv",
        "dataclasses", "datetime", "decimal", "functools", "hashlib", "itertools", "json",
        "math", "os", "pathlib", "posixpath", "random", "re", "sys", "time", "tomllib",
        "typing", "unicodedata",
    }
)
_LAZY = frozenset(
    {
        "enumerate", "filter", "map", "reversed", "zip",
    }
)
_CONSUMERS = frozenset(
    {
        "Counter", "OrderedDict", "accumulate", "all", "any", "chain", "combinations",
        "deque", "dict", "difference", "enumerate", "extend", "filter", "fromkeys",
        "frozenset", "fsum", "intersection", "islice", "iter", "join", "list", "map", "max",
        "mean", "min", "permutations", "prod", "product", "reduce", "reversed", "set",
        "sorted", "sum", "symmetric_difference", "tuple", "union", "update", "zip",
    }
)
# fmt: on
# what Jupyter and interactive sessions add to the builtins
_NOT_PYTHON = frozenset({"display", "get_ipython", "_"})


def before(source: str) -> Outcome | None:
    """The outcome of a program that monty must not be asked about; None for all others.

    Nothing of it is run.

    Only parsed: CPython's compiler crashes with some programs (fifty comprehensions in one another,
    Python 3.12).

    >>> before("return 3").error
    'SyntaxError'
    >>> before("def f(x): return map(str, x)").kind
    'unsupported'
    """
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        return Outcome(
            "error", error=type(error).__name__, line=error.lineno, message=str(error.msg)
        )
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        return Outcome(
            "error",
            error=type(error).__name__,
            message="the program is nested too deeply, or no text of Python.",
        )
    walk = _Walk()
    walk.through(tree)
    if walk.outside is not None:
        kind = type(walk.outside).__name__.lower()
        return Outcome(
            "error",
            error="SyntaxError",
            line=walk.outside.lineno,
            message=f"'{kind}' outside function",
        )
    if (name := _unbound_annotation(tree)) is not None:
        return Outcome(
            "error", error="NameError", line=name.lineno, message=f"name {name.id!r} is not defined"
        )
    if (line := walk.kept()) is not None:
        why = (
            f"monty computes generator expressions, map and zip at once; line {line} keeps one "
            "for later."
        )
        return Outcome("unsupported", line=line, message=why)
    if ("set" in source or "{" in source) and (line := _ordered_set(tree)) is not None:
        why = (
            f"monty keeps a set in its order of insertion, and line {line} makes a sequence of one."
        )
        return Outcome("unsupported", line=line, message=why)
    return None


class _Walk:
    """What a syntax tree holds: `return` and `await` where CPython has none, and iterators not used
    up where they stand.
    """

    def __init__(self) -> None:
        self.lazy: list[tuple[ast.AST, str | None]] = []
        self.used: set[int] = set()
        self.own: set[str] = set()
        self.outside: ast.AST | None = None

    def through(self, tree: ast.AST) -> None:
        """Look at every node, without recursion."""
        stack: list[tuple[ast.AST, type | None]] = [(tree, None)]
        while stack:
            node, inside = stack.pop()
            kind = type(node)
            if look := _LOOKS.get(kind):
                look(self, node)
            if kind in _FUNCTIONS:
                inside = kind
            elif kind in _INSIDE and inside not in _INSIDE[kind]:
                self.outside = node
            for name in _BRANCHES[kind] if kind in _BRANCHES else _branches(kind):
                child = getattr(node, name, None)
                if type(child) is list:
                    stack.extend([(item, inside) for item in child if isinstance(item, ast.AST)])
                elif isinstance(child, ast.AST):
                    stack.append((child, inside))

    def kept(self) -> int | None:
        """The line of the first iterator that is not used up where it stands."""
        lines = [
            node.lineno
            for node, name in self.lazy
            if id(node) not in self.used and name not in self.own
        ]
        return min(lines, default=None)

    def call(self, node: ast.Call) -> None:
        """map(…) is lazy; list(…) uses up."""
        name = getattr(node.func, "id", None) or getattr(node.func, "attr", None)
        if name in _LAZY and isinstance(node.func, ast.Name):
            self.lazy.append((node, name))
        if name in _CONSUMERS:
            self.used.update(map(id, node.args))

    def assign(self, node: ast.Assign) -> None:
        """`a, b = map(…)` uses up."""
        if all(isinstance(target, ast.Tuple | ast.List) for target in node.targets):
            self.used.add(id(node.value))

    def compare(self, node: ast.Compare) -> None:
        """`x in map(…)` uses up."""
        if isinstance(node.ops[-1], ast.In | ast.NotIn):
            self.used.add(id(node.comparators[-1]))


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_INSIDE = {ast.Return: (ast.FunctionDef, ast.AsyncFunctionDef), ast.Await: (ast.AsyncFunctionDef,)}
_LEAVES = {
    "ctx",
    "op",
    "ops",
    "id",
    "attr",
    "name",
    "arg",
    "kind",
    "type_comment",
    "lineno",
    "names",
    "level",
    "module",
}
_BRANCHES: dict[type, tuple[str, ...]] = {ast.Constant: ()}


def _branches(kind: type) -> tuple[str, ...]:
    """The fields of a kind of node that may hold nodes worth a look: half the time of a walk goes
    into the others.
    """
    _BRANCHES[kind] = tuple(name for name in kind._fields if name not in _LEAVES)
    return _BRANCHES[kind]


_LOOKS = {
    ast.Call: _Walk.call,
    ast.Assign: _Walk.assign,
    ast.Compare: _Walk.compare,
    ast.GeneratorExp: lambda walk, node: walk.lazy.append((node, None)),
    ast.For: lambda walk, node: walk.used.add(id(node.iter)),
    ast.comprehension: lambda walk, node: walk.used.add(id(node.iter)),
    ast.Starred: lambda walk, node: walk.used.add(id(node.value)),
    ast.FunctionDef: lambda walk, node: walk.own.add(node.name),
}


def _bound(tree: ast.Module) -> set[str]:
    """The names that a program binds at its top level, in whatever block; "*" where it imports what
    nobody can know.
    """
    found, stack = set(), list(tree.body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
            continue
        if isinstance(node, ast.alias):
            found.add((node.asname or node.name).split(".")[0])
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        stack.extend(ast.iter_child_nodes(node))
    return found


def _unbound_annotation(tree: ast.Module) -> ast.Name | None:
    """A name in the annotation of a function that nothing binds, such as List without its import:
    monty does not look at it.
    """
    functions = [
        node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    names = []
    for function in functions:
        given = function.args
        every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
        notes = [function.returns, *(one.annotation for one in every if one is not None)]
        inside = (inner for note in notes if note is not None for inner in ast.walk(note))
        names += [
            name for name in inside if isinstance(name, ast.Name) and not hasattr(builtins, name.id)
        ]
    late = sys.version_info >= (3, 14) or any(
        isinstance(n, ast.ImportFrom) and n.module == "__future__" for n in tree.body
    )
    bound = {"*"} if late or not names else _bound(tree)
    return None if "*" in bound else next((name for name in names if name.id not in bound), None)


_OF_SETS = frozenset({"set", "frozenset"})
_SET_METHODS = frozenset({"union", "intersection", "difference", "symmetric_difference"})
_SEQUENCES = frozenset({"list", "tuple", "join", "enumerate", "iter", "zip", "str", "repr"})
_ORDERLESS = frozenset(
    {"sorted", "set", "frozenset", "sum", "min", "max", "len", "any", "all", "Counter"}
)


def _ordered_set(tree: ast.Module) -> int | None:
    """The line where a sequence is made of what is plainly a set, and its order then matters.

    Loops over a set are let be.
    """
    nodes = list(ast.walk(tree))
    names: set[str] = set()

    def is_set(node: ast.AST) -> bool:
        called = node.func if isinstance(node, ast.Call) else None
        return (
            isinstance(node, ast.Set | ast.SetComp)
            or (isinstance(node, ast.Name) and node.id in names)
            or (isinstance(called, ast.Name) and called.id in _OF_SETS)
            or (
                isinstance(called, ast.Attribute)
                and called.attr in _SET_METHODS
                and is_set(called.value)
            )
            or (isinstance(node, ast.BinOp) and (is_set(node.left) or is_set(node.right)))
        )

    assigned = [
        node
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    ]
    names.update(node.targets[0].id for node in assigned if is_set(node.value))
    # it may be a list by then
    names.difference_update(node.targets[0].id for node in assigned if not is_set(node.value))
    fine = {
        id(one)
        for node in nodes
        if isinstance(node, ast.Call) and _named(node) in _ORDERLESS
        for one in node.args
    }
    for node in nodes:
        if id(node) in fine:
            continue
        if isinstance(node, ast.Call):
            of = (
                node.args
                if _named(node) in _SEQUENCES
                else [node.func.value]
                if _named(node) == "pop" and not node.args
                else []
            )
        else:
            of = (
                [node.generators[0].iter]
                if isinstance(node, ast.ListComp | ast.GeneratorExp)
                else []
            )
        if any(map(is_set, of)):
            return node.lineno
    return None


def _named(node: ast.Call) -> str | None:
    return getattr(node.func, "id", None) or getattr(node.func, "attr", None)


def not_there(source: str, name: str) -> Outcome | None:
    """The outcome where a function of a builtin's name is asked for, and the program has none:
    monty would call the builtin.
    """
    if not hasattr(builtins, name) or {name, "*"} & _bound(ast.parse(source)):
        return None
    return Outcome("error", error="NameError", message=f"name {name!r} is not defined")


# --- After it raised ------------------------------------------------------------------------------


def missing(error: BaseException, frames: list, source: str) -> str | None:
    """What monty lacks, if that is why it raised this; None where the program failed by itself."""
    name, text = type(error).__name__, str(error)
    # from the parser, in no function
    if name == "NotImplementedError" and frames and frames[-1].function_name is None:
        return text
    if name == "RuntimeError":
        return _internal(text, source)
    if name in ("ModuleNotFoundError", "NameError", "ImportError", "AttributeError", "TypeError"):
        return _RULES[name](text, source)
    return None


def _internal(text: str, source: str) -> str | None:
    if text.startswith("Internal error in monty"):
        # Not to be caught there, so only a program that catches nothing is sure to end with it in
        # CPython, too.
        return text if re.search(r"\bexcept\b", source) else None
    return f"monty: {text}." if text.endswith("is not supported in this environment") else None


def _module(text: str, source: str) -> str | None:
    found = re.fullmatch(r"No module named '(\w+)[\w.]*'", text)
    return (
        f"monty has no module {found[1]}."
        if found and found[1] in sys.stdlib_module_names
        else None
    )


def _name(text: str, source: str) -> str | None:
    found = re.fullmatch(r"name '(\w+)' is not defined", text)
    known = found and hasattr(builtins, found[1]) and found[1] not in _NOT_PYTHON
    return f"monty has no {found[1]}." if known else None


def _import(text: str, source: str) -> str | None:
    found = re.match(r"cannot import name '(\w+)' from '(\w+)'", text)
    return _of_module(found[2], found[1]) if found else None


def _of_module(module: str, name: str) -> str | None:
    has = module in _MODULES and hasattr(importlib.import_module(module), name)
    return f"monty has no {module}.{name}." if has else None


def _attribute(text: str, source: str) -> str | None:
    if found := re.match(r"module '(\w+)' has no attribute '(\w+)'", text):
        return _of_module(found[1], found[2])
    found = re.match(
        r"(?:type object )?'(?:[\w.]+\.)?(\w+)'(?: object)? has no attribute '(\w+)'", text
    )
    if not found or re.search(rf"\bclass\s+{found[1]}\b", source):
        return None
    kind = _TYPES.get(found[1]) or getattr(builtins, found[1], None)
    return (
        f"monty has no {found[1]}.{found[2]}."
        if isinstance(kind, type) and hasattr(kind, found[2])
        else None
    )


_TYPES = {
    "function": types.FunctionType,
    "NoneType": type(None),
    "Match": re.Match,
    "Pattern": re.Pattern,
    "Counter": collections.Counter,
    "defaultdict": collections.defaultdict,
    "deque": collections.deque,
    "date": datetime.date,
    "datetime": datetime.datetime,
    "timedelta": datetime.timedelta,
}


def _type(text: str, source: str) -> str | None:
    found = re.fullmatch(r"cannot create '(\w+)' instances", text)
    if found and isinstance(getattr(builtins, found[1], None), type):
        return f"monty cannot create {found[1]}."
    # it knows some methods of this kind, and ignores the others
    if re.search(r"\bdef\s+__(?!init__)\w+__", source):
        return f"monty may not know a special method of the program's classes: {text}."
    return None


_RULES = {
    "ModuleNotFoundError": _module,
    "NameError": _name,
    "ImportError": _import,
    "AttributeError": _attribute,
    "TypeError": _type,
}


# --- Values that come out as something else -------------------------------------------------------

_STAND_IN = re.compile(r"<.*>|(?:range|slice|dict_\w+|typing|deque)[(.].*|[\[({]\.\.\.[\])}]", re.S)
_KNOWN = [
    kind.__name__
    for kind in (
        type(None),
        bool,
        int,
        float,
        complex,
        str,
        bytes,
        list,
        tuple,
        dict,
        set,
        frozenset,
    )
]
_EXACT = frozenset(
    f"<class '{name}'>" for name in [*_KNOWN, "collections.defaultdict", "collections.Counter"]
)
LOOK_CLOSER = """
def _types_in(value):
    names, items, seen = set(), [value], 0
    while items and seen < 100000:
        item = items.pop()
        seen += 1
        names.add(str(type(item)))
        if isinstance(item, dict):
            items.extend(list(item.keys()))
            items.extend(list(item.values()))
        elif isinstance(item, (list, tuple, set, frozenset)):
            items.extend(list(item))
    if items:
        names.add("a container that holds itself")
    return sorted(names)
_types_in(%s)
"""


def doubtful(value: object, source: str) -> bool:
    """Whether a value may stand for another type: monty writes what it cannot hand over as text,
    and a deque as a list.
    """
    stack, seen = [value], 0
    while stack and seen < 100_000:
        item = stack.pop()
        seen += 1
        if isinstance(item, str):
            if _STAND_IN.fullmatch(item):
                return True
        elif isinstance(item, dict):
            stack += [*item.keys(), *item.values()]
        elif isinstance(item, list | tuple | set | frozenset):
            stack += item
    return "deque" in source


def odd_type(names: object) -> str | None:
    """The first type that is no plain data, of those that LOOK_CLOSER found."""
    return (
        next((str(name)[:100] for name in names if name not in _EXACT), None)
        if isinstance(names, list)
        else None
    )
