"""Plain data: what may enter a sandbox and come out, and how it is read from the text of an
expression.

Tests are written as Python, and values leave a sandbox as `repr` writes them. Both are parsed here
and never executed.
"""

from __future__ import annotations

import ast
import math
import operator

from helpers.rewards.code.types import Limits, Outcome

_DEEPEST = 100  # levels of containers in a value
_LARGEST_INT = 14_280  # bits: 4,299 digits, the most that Python prints
_LONGEST = 200_000  # items of a sequence that is written as a product
_LEAVES = (type(None), bool, int, float, complex, str, bytes)
_SEQUENCES = (list, tuple, set, frozenset)
# Where all items of a set have one hash, each is compared with all before it: 10,000 such integers
# take our process seven seconds that no time limit can end. So many pairs take half a second.
_MOST_PAIRS = 4_000_000


class TooMuch(Exception):
    """A value that is larger than the limit."""


def not_plain(value: object, most: float = math.inf) -> str | None:
    """What a value holds that is no plain data, in words; None if it is plain all through.

    Exact types only: a subclass of int, str or list brings methods of its own. TooMuch where it
    holds more than `most` bytes, counted as a tree: what is in it twice counts twice, so that a few
    nested lists cannot stand for a billion.
    """
    stack, size = [(value, 0)], 0
    while stack:
        item, depth = stack.pop()
        kind = type(item)
        if depth > _DEEPEST:
            return f"containers nested more than {_DEEPEST} deep"
        if kind is dict:
            size, children = size + 2 * len(item), (*item.keys(), *item.values())
        elif kind in _SEQUENCES:
            size, children = size + len(item), item
        elif kind in _LEAVES:
            size, children = size + _bytes_of(item, kind), ()
        else:
            return f"a value of type {kind.__name__}"
        if size > most:
            raise TooMuch
        stack.extend((child, depth + 1) for child in children)
    return None


def _bytes_of(item: object, kind: type) -> float:
    if kind is int:  # about its decimal digits
        return item.bit_length() // 3 + 1 if item.bit_length() < _LARGEST_INT else math.inf
    return len(item) if kind in (str, bytes) else 1


def read(text: str, most: float = math.inf) -> object:
    """The plain data that a text spells, as `repr` writes it; the text may be hostile.

    ValueError for anything else, TooMuch for more than `most` bytes or too many pairs of items.

    >>> read("[1, (2.5, {'a'}), {None: inf}]")
    [1, (2.5, {'a'}), {None: inf}]
    """
    try:
        tree = ast.parse(text, mode="eval").body
        if _pairs(tree) > _MOST_PAIRS:
            raise TooMuch
        value = value_of(tree)
    except (SyntaxError, TypeError, RecursionError, MemoryError, ArithmeticError) as error:
        raise ValueError(f"no plain data: {error}") from None
    if odd := not_plain(value, most):
        raise ValueError(f"no plain data: {odd}")
    return value


def _pairs(tree: ast.expr) -> int:
    """How many pairs of items its sets and dictionaries have. ValueError for what `repr` never
    writes and this count would miss: a sum of lists, a set made of the value of a call.
    """
    pairs = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.Set | ast.Dict):
            pairs += len(getattr(node, "elts", None) or getattr(node, "keys", ())) ** 2
        elif isinstance(node, ast.Call) and not all(
            isinstance(one, ast.Set | ast.Dict) for one in node.args
        ):
            raise ValueError("a call of something else than a set or a dictionary")
        elif isinstance(node, ast.BinOp | ast.UnaryOp):
            inner = [one for one in ast.iter_child_nodes(node) if isinstance(one, ast.expr)]
            if not all(isinstance(one, ast.Constant | ast.Name | ast.UnaryOp) for one in inner):
                raise ValueError("arithmetic with something else than numbers")
    return pairs


def value_of(node: ast.expr) -> object:
    """The plain data that an expression is: literals, arithmetic with them, and `set`, `float` and
    the like of them.

    ValueError for any other expression; what Python raises for the arithmetic is raised here, too.
    """
    match node:
        case ast.Constant(value):
            return value
        case ast.Name("inf" | "nan" as name):
            return float(name)
        case ast.List(items):
            return [value_of(item) for item in items]
        case ast.Tuple(items):
            return tuple(value_of(item) for item in items)
        case ast.Set(items):
            return {value_of(item) for item in items}
        case ast.Dict(keys, values) if None not in keys:
            return dict(zip(map(value_of, keys), map(value_of, values), strict=True))
        case ast.UnaryOp(op, operand) if type(op) in _SIGNED:
            return _SIGNED[type(op)](value_of(operand))
        case ast.BinOp(left, op, right) if type(op) in _ARITHMETIC:
            return _ARITHMETIC[type(op)](value_of(left), value_of(right))
        case ast.Call(ast.Name(name), arguments, []) if name in _MADE and len(arguments) <= 1:
            return _MADE[name](*map(value_of, arguments))
    raise ValueError("it is no literal")


def _small(value: object) -> object:
    if isinstance(value, int) and value.bit_length() > 4096:
        raise ValueError("the number is too large")
    return value


def _product(one: object, other: object) -> object:
    for many, times in ((one, other), (other, one)):
        if hasattr(many, "__len__") and isinstance(times, int) and len(many) * times > _LONGEST:
            raise ValueError(f"more than {_LONGEST} items")
    return _small(one) * _small(other)


def _remainder(one: object, other: object) -> object:
    if isinstance(one, str | bytes):
        raise ValueError("a text is not formatted")
    return one % other


def _power(base: object, exponent: object) -> object:
    if isinstance(exponent, int) and abs(exponent) > 1000:
        raise ValueError("the exponent is above 1,000")
    return _small(base) ** exponent


_SIGNED = {ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Not: operator.not_}
_ARITHMETIC = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: _product,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: _remainder,
    ast.Pow: _power,
}
_KINDS = (float, int, complex, str, list, tuple, set, frozenset, dict, sorted, sum, len, abs)
_MADE = {function.__name__: function for function in _KINDS} | {"Counter": dict}


def returned(text: str, limits: Limits, output: str = "") -> Outcome:
    """The outcome of a call that returned a value, which the sandbox wrote as `repr` does."""
    too_much = Outcome(
        "output", message=f"it returned more than {limits.output} bytes.", output=output
    )
    if len(text) > 4 * limits.output:  # a float is one item, and up to 20 characters
        return too_much
    try:
        return Outcome("value", value=read(text, limits.output), output=output)
    except TooMuch:
        return too_much
    except ValueError:
        return Outcome(
            "error",
            error="TypeError",
            message=f"it returned {text[:80]}; only plain data counts.",
            output=output,
        )
