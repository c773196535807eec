"""Calls against the schemas that Transformers makes of signatures."""

from typing import Literal

import pytest

from helpers.agents.protocol import schema_of
from helpers.agents.tool_calls import misfit


def tool(
    count: int,
    share: float = 0.5,
    name: str | None = None,
    kind: Literal["a", "b"] = "a",
    places: list[int | None] | None = None,
    weights: dict[str, float] | None = None,
    either: int | str = 1,
    several: Literal[1, "a"] | list[str] | None = None,
    perhaps: Literal["a"] | None = None,
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
        weights: f
        either: g
        several: h
        perhaps: i
        loud: j
        free: k
    """
    return ""


SCHEMA = schema_of(tool)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"share": 1},
        {"name": None},
        {"name": "x"},
        {"kind": "b"},
        {"places": None},
        {"places": [1, None]},
        {"weights": {"a": 1, "b": 0.5}},
        {"either": "x"},
        {"either": 2},
        {"several": None},
        {"several": ["a"]},
        {"perhaps": None},
        {"loud": True},
        {"count": -(10**30)},
        {"share": 10**400},
    ],
)
def test_what_fits_goes_through(arguments):
    assert misfit("tool", SCHEMA, {"count": 1} | arguments) is None


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"count": "1"}, "tool: count must be a whole number, not '1'."),
        ({"count": True}, "tool: count must be a whole number, not True."),
        ({"count": 1.0}, "tool: count must be a whole number, not 1.0."),
        ({"count": None}, "tool: count must be a whole number, not None."),
        ({"share": "half"}, "tool: share must be a number, not 'half'."),
        ({"share": float("nan")}, "tool: share must be a number, not nan."),
        ({"weights": {"a": float("inf")}}, "tool: weights must be an object, not {'a': inf}."),
        ({"kind": "c"}, "tool: kind must be one of 'a', 'b', not 'c'."),
        ({"kind": None}, "tool: kind must be one of 'a', 'b', not None."),
        ({"places": [1, "2"]}, "tool: places must be a list, each a whole number, not [1, '2']."),
        ({"weights": {"a": "b"}}, "tool: weights must be an object, not {'a': 'b'}."),
        ({"either": 1.5}, "tool: either must be a whole number or a text, not 1.5."),
        ({"several": [1]}, "must be one of 1, 'a' or a list, each a text, not [1]."),
        ({"loud": "yes"}, "tool: loud must be true or false, not 'yes'."),
        ({"colour": 2}, "tool takes no 'colour'; it takes count, share, name,"),
    ],
)
def test_the_first_thing_that_does_not_fit_is_said(arguments, says):
    assert says in misfit("tool", SCHEMA, {"count": 1} | arguments)


def test_a_value_without_end_is_refused_in_a_short_sentence():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    assert misfit("tool", SCHEMA, {"count": deep}).endswith("a whole number, not a list.")
    assert misfit("tool", SCHEMA, {"count": "x" * 10**7}).endswith("not '" + "x" * 59 + "….")
    assert len(misfit("tool", SCHEMA, {"x" * 10**7: 1})) < 300


def test_what_is_needed_is_named_and_a_tool_without_arguments_takes_none():
    assert misfit("tool", SCHEMA, {"share": 1}) == "tool needs count: a whole number."
    schema = {"type": "object", "properties": {}}
    assert misfit("look", schema, {"at": 1}) == "look takes no 'at'; it takes nothing."
