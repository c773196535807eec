"""Scripted players for any environment: what a policy might do in an episode, before it is trained.

A player is a generator: it yields calls, (tool, arguments), and is sent each reply as the policy
would read it. It sees what a policy sees: the text of `reset` and the tools' schemas. It ends when
it has nothing more to say. The player that knows how to win is the environment's own, `_oracle`.
"""

import math
import random
import re
import string
from collections.abc import Callable, Iterator

# From the text of `reset`, the tools' schemas by name, and random numbers of its own.
Player = Callable[[str, dict[str, dict], random.Random], Iterator[tuple[str, object]]]


def nothing(asked: str, schemas: dict, luck: random.Random) -> Iterator:
    """Says something and calls nothing, as policies do that are paid for it."""
    yield from ()


def at_random(asked: str, schemas: dict, luck: random.Random) -> Iterator:
    """Well-formed calls of random tools, with words and numbers of the question and
    others, for ever.
    """
    words = re.findall(r"\w+", asked) or ["word"]
    numbers = [int(word) for word in words if re.fullmatch(r"\d{1,9}", word)]
    while True:
        name, number = luck.choice(sorted(schemas)), luck.randrange(1, 101)
        number = luck.choice([number, number, *numbers])
        values = {"string": luck.choice(words), "integer": number, "number": number}
        values |= {"boolean": number % 2 == 0, "array": [], "numbers": []}
        yield name, _arguments(schemas[name], values, luck.randrange(10**6))


def at_once(asked: str, schemas: dict, luck: random.Random) -> Iterator:
    """One well-formed call, and no more."""
    yield next(at_random(asked, schemas, luck))


def looping(asked: str, schemas: dict, luck: random.Random) -> Iterator:
    """The same well-formed call for ever."""
    call = next(at_random(asked, schemas, luck))
    while True:
        yield call


def listing(asked: str, schemas: dict, luck: random.Random) -> Iterator:
    """All candidates: in one text or list, or one call after another; replies give more of them."""
    known = f"yes no {' '.join(string.ascii_uppercase)} {asked} {schemas}"
    for number in range(1, 101):
        for name, schema in sorted(schemas.items()):
            words = [*map(str, range(1000)), *dict.fromkeys(re.findall(r"\w+", known))]
            values = {"string": " ".join(words), "array": words, "numbers": list(range(1000))}
            values |= {"integer": number, "number": number, "boolean": number % 2 == 0}
            reply = yield name, _arguments(schema, values, number)
            known += f" {reply}"


def _always(**values) -> Player:
    """The player that gives each tool once these values, by type."""

    def player(asked: str, schemas: dict, luck: random.Random) -> Iterator:
        for name, schema in sorted(schemas.items()):
            yield name, _arguments(schema, values, 0)

    return player


blank = _always(string="", integer=0, number=0, boolean=False, array=[], numbers=[])
at_length = _always(
    string="word " * 2000, integer=10**9, number=1e9, array=["word"] * 2000, numbers=[1] * 2000
)
# `nan` is neither below nor above any other number
not_a_number = _always(string="nan", number=math.nan, array=["nan"], numbers=[math.nan])


def _arguments(schema: dict, values: dict, turn: int) -> dict:
    """A call's arguments: the value of each type; if the schema lists its values, one by turns."""
    arguments = {}
    for name, of in schema["properties"].items():
        of = of.get("anyOf", [of])[0]
        kind = of.get("type", "string")
        kind = kind if isinstance(kind, str) else kind[0]
        if kind == "array" and of.get("items", {}).get("type") in ("integer", "number"):
            kind = "numbers"
        listed = of.get("enum", [values.get(kind, {})])
        arguments[name] = listed[turn % len(listed)]
    return arguments
