"""Scripted players for any environment: what a policy might do in an episode, before it is trained.

A player is a generator: it yields calls, (tool, arguments), and is sent each reply as the policy
would read it. It sees what a policy sees: the text of `reset` and the tools' schemas. It ends when
it has nothing more to say. The players that know a game are in the game's own file.
"""

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class View:
    """What a player knows: the text of `reset`, the tools' schemas by name, and random numbers of
    its own.
    """

    observation: str
    schemas: dict[str, dict]
    rng: random.Random


Player = Callable[[View], Iterator[tuple[str, object]]]


def nothing(view: View) -> Iterator:
    """Says something and calls nothing, as policies do that are paid for it."""
    yield from ()


def at_random(view: View) -> Iterator:
    """Well-formed calls of random tools, with words and numbers of the question and
    others, for ever.
    """
    while True:
        name = view.rng.choice(sorted(view.schemas))
        yield name, _drawn(view, view.schemas[name])


def looping(view: View) -> Iterator:
    """The same well-formed call for ever."""
    name = sorted(view.schemas)[-1]
    arguments = _drawn(view, view.schemas[name])
    while True:
        yield name, arguments


def _drawn(view: View, schema: dict) -> dict:
    """Arguments of the right types."""
    return {name: _value(view, of) for name, of in schema["properties"].items()}


def _value(view: View, schema: dict) -> object:
    if "enum" in schema:
        return view.rng.choice(schema["enum"])
    kind = schema.get("type", "string")
    kind = kind if isinstance(kind, str) else kind[0]
    numbers = [int(number) for number in re.findall(r"\d{1,9}", view.observation)]
    if kind in ("integer", "number"):
        return view.rng.choice([*numbers, view.rng.randrange(1, 101), view.rng.randrange(1, 101)])
    simple = {"boolean": view.rng.random() < 0.5, "array": [], "object": {}, "null": None}
    return (
        simple[kind]
        if kind in simple
        else view.rng.choice(re.findall(r"\w+", view.observation) or ["word"])
    )
