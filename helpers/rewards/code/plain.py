"""Plain data: what may enter a sandbox and come out, and how it is read from the text of an
expression.

Tests are written as Python, and values leave a sandbox as `repr` writes them. Both are parsed here
and never executed.
"""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable

from helpers.rewards.code.types import Limits, Outcome

# What a policy writes is parsed here, and its `1if` is nobody's business.
warnings.filterwarnings("ignore", category=SyntaxWarning, module="<(unknown|program)>")
_DEEPEST = 100  # levels of containers in a value
_LARGEST_INT = 14_280  # bits: 4,299 digits, the most that Python prints
_LEAVES = (type(None), bool, int, float, complex, str, bytes)
_SEQUENCES = (list, tuple, set, frozenset)
# Where all items of a set have one hash, each is compared with all before it: 10,000 such integers
# take our process seven seconds that no time limit can end. So many pairs take half a second.
_MOST_PAIRS = 4_000_000


def not_plain(value: object) -> str | None:
    """What a value holds that is no plain data, in words; None if it is plain all through.

    Exact types only: a subclass of int, str or list brings methods of its own.
    """
    stack = [(value, 0)]
    while stack:
        item, depth = stack.pop()
        if depth > _DEEPEST:
            return f"containers nested more than {_DEEPEST} deep"
        if type(item) is int and item.bit_length() > _LARGEST_INT:
            return "an integer that is too large to be printed"
        if type(item) is dict:
            children = (*item.keys(), *item.values())
        elif type(item) in _SEQUENCES:
            children = item
        elif type(item) in _LEAVES:
            continue
        else:
            return f"a value of type {type(item).__name__}"
        stack.extend((child, depth + 1) for child in children)
    return None


def read(text: str) -> object:
    """The plain data that a text spells, as `repr` writes it. The text may be hostile: ValueError
    for anything else.

    >>> read("[1, (2.5, {'a'}), {None: inf}]")
    [1, (2.5, {'a'}), {None: inf}]
    """
    try:
        tree = ast.parse(text, mode="eval").body
        sets = [node for node in ast.walk(tree) if isinstance(node, ast.Set | ast.Dict)]
        items = [getattr(node, "elts", None) or getattr(node, "keys", ()) for node in sets]
        if sum(len(each) ** 2 for each in items) > _MOST_PAIRS:
            raise ValueError("too many items in its sets")
        value = value_of(tree, _repr)
    except (SyntaxError, TypeError, RecursionError, MemoryError, ArithmeticError) as error:
        raise ValueError(f"no plain data: {error}") from None
    if odd := not_plain(value):
        raise ValueError(f"no plain data: {odd}")
    return value


def value_of(node: ast.expr, otherwise: Callable[[ast.expr], object]) -> object:
    """The plain data that an expression of literals is; what is no literal is asked of
    `otherwise`.
    """
    match node:
        case ast.Constant(value):
            return value
        case ast.Name("inf" | "nan" as name):
            return float(name)
        case ast.List(items):
            return [value_of(item, otherwise) for item in items]
        case ast.Tuple(items):
            return tuple(value_of(item, otherwise) for item in items)
        case ast.Set(items):
            return {value_of(item, otherwise) for item in items}
        case ast.Dict(keys, values) if None not in keys:
            pairs = zip(keys, values, strict=True)
            return {value_of(key, otherwise): value_of(one, otherwise) for key, one in pairs}
        case ast.UnaryOp(ast.USub(), operand):
            return operator.neg(value_of(operand, otherwise))
    return otherwise(node)


_WRITTEN = {"set": set, "frozenset": frozenset, "dict": dict, "Counter": dict}


def _repr(node: ast.expr) -> object:
    """What `repr` writes beside literals: complex numbers, sets, and the library's dictionaries."""
    match node:
        case ast.BinOp(real, ast.Add() | ast.Sub() as sign, ast.Constant(complex() as imaginary)):
            signed = imaginary if isinstance(sign, ast.Add) else -imaginary
            return value_of(real, _repr) + signed
        case ast.Call(ast.Name(name), [], []) if name in _WRITTEN:
            return _WRITTEN[name]()
        case ast.Call(ast.Name(name), [ast.Set() | ast.Dict() as items], []) if name in _WRITTEN:
            return _WRITTEN[name](value_of(items, _repr))
    raise ValueError("no literal")


def returned(text: str, limits: Limits, output: str = "") -> Outcome:
    """The outcome of a call that returned a value, which the sandbox wrote as `repr` does."""
    if len(text) > limits.output:
        said = f"it returned more than {limits.output} bytes."
        return Outcome("output", message=said, output=output)
    try:
        return Outcome("value", value=read(text), output=output)
    except ValueError as why:
        said = f"it returned {text[:80]}; only plain data counts ({why})."
        return Outcome("error", error="TypeError", message=said, output=output)
