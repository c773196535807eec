"""Calls against the schemas that Transformers makes of signatures."""

import doctest
from typing import Literal

import pytest

from helpers.agents import calculator, guessing, schemas
from helpers.agents.protocol import schema_of
from helpers.agents.schemas import misfit


def tool(
    count: int,
    share: float = 0.5,
    name: str | None = None,
    kind: Literal["a", "b"] = "a",
    places: list[int] | None = None,
    pair: tuple[int, str] | None = None,
    weights: dict[str, float] | None = None,
    either: int | str = 1,
    loud: bool = False,
    free: object = None,
) -> str:
    """A tool with an argument of every sort.

    Args:
        count: a
        share: b
        name: c
        kind: d
        places: e
        pair: f
        weights: g
        either: h
        loud: i
        free: j
    """
    return ""


SCHEMA = schema_of(tool)


@pytest.mark.parametrize(
    "arguments",
    [{}, {"share": 1}, {"name": None}, {"name": "x"}, {"kind": "b"}, {"places": []}, {"places": [1, 2]}, {"pair": [1, "a"]},
     {"weights": {"a": 1, "b": 0.5}}, {"either": "x"}, {"either": 2}, {"loud": True}, {"count": -10**30}],
)  # fmt: skip
def test_what_fits_goes_through(arguments):
    assert misfit("tool", SCHEMA, {"count": 1} | arguments) is None


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"share": 1}, "tool needs count: a whole number."),
        ({"count": "1"}, "tool: count must be a whole number, not '1'."),
        ({"count": True}, "tool: count must be a whole number, not True."),
        ({"count": 1.0}, "tool: count must be a whole number, not 1.0."),
        ({"count": None}, "tool: count must be a whole number, not None."),
        ({"count": 1, "share": "half"}, "tool: share must be a number, not 'half'."),
        ({"count": 1, "kind": "c"}, "tool: kind must be one of 'a', 'b', not 'c'."),
        (
            {"count": 1, "places": [1, "2"]},
            "tool: places must be a list, each a whole number, not [1, '2'].",
        ),
        ({"count": 1, "pair": [1]}, "tool: pair must be a list, not [1]."),
        ({"count": 1, "weights": {"a": "b"}}, "tool: weights must be an object, not {'a': 'b'}."),
        ({"count": 1, "either": 1.5}, "tool: either must be a whole number or a text, not 1.5."),
        ({"count": 1, "loud": "yes"}, "tool: loud must be true or false, not 'yes'."),
        ({"count": 1, "colour": 2}, "tool takes no 'colour'; it takes count, share, name,"),
        ({"count": "x" * 500}, "not '" + "x" * 59 + "…."),
    ],
)
def test_the_first_thing_that_does_not_fit_is_said(arguments, says):
    assert says in misfit("tool", SCHEMA, arguments)


def test_brackets_without_end_are_no_reason_to_fail():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    assert (
        misfit("tool", SCHEMA, {"count": deep}) == "tool: count must be a whole number, not a list."
    )


def test_a_tool_without_arguments_takes_none():
    assert (
        misfit("look", {"type": "object", "properties": {}}, {"at": 1})
        == "look takes no 'at'; it takes nothing."
    )


@pytest.mark.parametrize("module", [schemas, calculator, guessing])
def test_docstring_examples(module):
    result = doctest.testmod(module)
    assert result.attempted and not result.failed
