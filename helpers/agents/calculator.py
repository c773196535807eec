"""A chain of calculations too long for the head, and a calculator."""

from __future__ import annotations

import ast
import operator
import random
import re
from collections.abc import Iterator

from helpers.agents.players import View
from helpers.agents.protocol import ToolError

_OPERATIONS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}
_WORDS = {"+": "add", "-": "subtract", "*": "multiply by"}
_LONGEST = 200  # characters of an expression: its value then has few enough digits to be printed


class Calculator:
    """Work out a chain such as "Start with 37, multiply by 84, subtract 51".

    The first answer counts: 1.0 for the right one, 0.1 for a wrong one, 0.0 for none. steps: how
    many operations a chain has. The numbers come from `seed`: 12 to 99, so that three steps are far
    beyond what a small model does without a tool.
    """

    def __init__(self, steps: int = 3):
        self._steps = steps

    def reset(self, seed: int, **columns) -> str:
        rng = random.Random(int(seed))
        value = rng.randrange(12, 100)
        words = [f"Start with {value}"]
        for _ in range(self._steps):
            sign, number = rng.choice("+-*"), rng.randrange(12, 100)
            value = evaluate(f"{value} {sign} {number}")
            words.append(f"{_WORDS[sign]} {number}")
        self._right, self._answer = value, None
        return f"{', '.join(words)}. What is the result?"

    def calculate(self, expression: str) -> str:
        """Work out an expression of whole numbers.

        Args:
            expression: Numbers with +, - and *, and brackets, such as (12 + 3) * 4.
        """
        return str(evaluate(expression))

    def answer(self, number: int) -> str:
        """Hand in the result. Only the first answer counts.

        Args:
            number: The result.
        """
        if self._answer is not None:
            raise ToolError("You have answered already. The episode is over.")
        self._answer = number
        return "Thank you."

    def get_reward(self) -> float:
        return 0.0 if self._answer is None else 1.0 if self._answer == self._right else 0.1


def evaluate(expression: str) -> int:
    """The value of an expression of whole numbers with +, - and *.

    ToolError for any other: nothing in it is ever run.

    >>> evaluate("(12 + 3) * -4")
    -60
    """
    if len(expression) > _LONGEST:
        raise ToolError(
            f"An expression has at most {_LONGEST} characters; this one has {len(expression)}."
        )
    try:
        return _value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ToolError(
            f"{expression!r} is not an expression. Write one such as (12 + 3) * 4."
        ) from None


def _value(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        return _OPERATIONS[type(node.op)](_value(node.left), _value(node.right))
    raise ToolError(
        f"{ast.unparse(node)!r} is not allowed: whole numbers, +, -, * and brackets are."
    )


def calculating(view: View) -> Iterator:
    """The player that knows how to win: it works the chain out step by step."""
    start, *steps = re.findall(r"(Start with|add|subtract|multiply by) (\d+)", view.observation)
    result = start[1]
    for word, number in steps:
        sign = {"add": "+", "subtract": "-", "multiply by": "*"}[word]
        result = yield "calculate", {"expression": f"({result}) {sign} {number}"}
    yield "answer", {"number": int(result)}


def calculating_at_once(view: View) -> Iterator:
    """Answers with the last number it read, without having tried."""
    yield "answer", {"number": int(re.findall(r"\d+", view.observation)[-1])}
