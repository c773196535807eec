"""The calculator: chains that are right, and an evaluator in which nothing is ever run."""

import pytest

from helpers.agents import Calculator, ToolError
from helpers.agents.calculator import evaluate


def test_the_chain_that_is_asked_for_has_the_answer_that_counts():
    environment = Calculator(steps=2)
    assert environment.reset(seed=3) == "Start with 42, multiply by 81, add 59. What is the result?"
    assert environment.calculate("42 * 81 + 59") == "3461" and environment.get_reward() == 0.0
    environment.answer(3461)
    assert environment.get_reward() == 1.0


def test_a_wrong_answer_earns_a_little_and_only_the_first_counts():
    environment = Calculator(steps=2)
    environment.reset(seed=3)
    environment.answer(1)
    with pytest.raises(ToolError, match="answered already"):
        environment.answer(3461)
    assert environment.get_reward() == 0.1


@pytest.mark.parametrize(
    ("expression", "value"), [("1+2*3", 7), (" (1 + 2) * -3 ", -9), ("--4", 4), ("7-7", 0)]
)
def test_an_expression_has_its_value(expression, value):
    assert evaluate(expression) == value


REFUSED = """2 **9999 | 9/3 | 1.5 | True | x | __import__('os') | (1).__class__ | [1] | 1, 2 | (
 | 007 | 1 if 1 else 2 | lambda: 1 | 'a' * 999 | 1j | +1 | ~1"""


@pytest.mark.parametrize(
    "expression",
    [*REFUSED.split(" | "), "", "1\n2", "\0", "(" * 150, "9" * 201, "\ud800"],
)
def test_whatever_else_is_refused_in_a_sentence(expression):
    with pytest.raises(
        ToolError, match=r"is not an expression|is not allowed|has at most 200 characters"
    ):
        evaluate(expression)
