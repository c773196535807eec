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
from functools import partial

# From the text of `reset`, the tools' schemas by name, and random numbers of its own.
Player = Callable[[str, dict[str, dict], random.Random], Iterator[tuple[str, object]]]


def nothing(asked: str, schemas: dict, luck: random.Random) -> Iterator:
    """Says something and calls nothing, as policies do that are paid for it."""
    yield from ()


def at_random(asked: str, schemas: dict, luck: random.Random) -> Iterator:
    """Well-formed calls of random tools, for ever, with words and numbers of the question, words of
    the arguments' descriptions, and other numbers.
    """
    numbers = [int(number) for number in re.findall(r"\b\d{1,9}\b", asked)]
    while True:
        name, number = luck.choice(sorted(schemas)), luck.randrange(1, 101)
        number = luck.choice([number, number, *numbers])
        word = luck.choice(_words(schemas[name], asked))
        values = {"string": word, "integer": number, "number": number}
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


def _trying(calls: int, together: bool, asked: str, schemas: dict, luck: random.Random) -> Iterator:
    """All candidates, together or one after another; what was replied gives more of them."""
    known = f"{asked} yes no {' '.join(string.ascii_uppercase)}"
    for number in range(calls):
        for name, schema in sorted(schemas.items()):
            words = [*_words(schema, known), *map(str, range(1000))]
            text = " ".join(words) if together else words[number]
            values = {"string": text, "array": words, "numbers": list(range(1000))}
            values |= {"integer": number, "number": number, "boolean": number % 2 == 0}
            reply = yield name, _arguments(schema, values, number)
            known += f" {reply}"


all_in_one = partial(_trying, 2, True)  # in a text or a list
one_by_one = partial(_trying, 1000, False)


def _once(values: dict, asked: str, schemas: dict, luck: random.Random) -> Iterator:
    """Each tool once, with these values by type."""
    for name, schema in sorted(schemas.items()):
        yield name, _arguments(schema, values, 0)


_BLANK = {"string": "", "integer": 0, "number": 0, "boolean": False, "array": [], "numbers": []}
_LONG = {"string": "word " * 2000, "array": ["word"] * 2000, "numbers": [1] * 2000}
blank = partial(_once, _BLANK)
at_length = partial(_once, _LONG | {"integer": 10**9, "number": 1e9, "boolean": True})
# `nan` is neither below nor above any other number
not_a_number = partial(_once, {"string": "nan", "number": math.nan, "numbers": [math.nan]})


def _words(schema: dict, text: str) -> list[str]:
    """The words of the descriptions of a tool's arguments, and of a text."""
    described = " ".join(of.get("description", "") for of in schema["properties"].values())
    return list(dict.fromkeys(re.findall(r"\w+", f"{described} {text}"))) or ["word"]


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
