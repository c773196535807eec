"""The scripted players of the laboratory: what a lazy or a cheating policy might do in any
environment.

A player is a generator. It yields calls, each (tool, arguments), and receives each reply as the
policy would read it. For example, `repeats_the_question` yields one call per tool:

    ("guess", {"text": "Which number is it?"})

A player knows only what a policy knows: the question, which is the text of `reset`, and the schemas
of the tools by name. `luck` is its source of random numbers.

`WINNING`, `PAYING` and `FORMS`, at the end, list the players. Each entry is one of the functions
before them with its settings, and the advice for a game in which it earns too much. Begin there.
"""

import math
import random
import re
import string
from collections.abc import Callable, Iterator
from functools import partial

# question, schemas and luck; yields calls
Player = Callable[[str, dict[str, dict], random.Random], Iterator[tuple[str, object]]]


def calls_at_random(question: str, schemas: dict, luck: random.Random) -> Iterator:
    """Make random well-formed calls without end. Their arguments are words and numbers of the
    question, words of the arguments' descriptions, and numbers from 1 to 100.
    """
    numbers = [int(number) for number in re.findall(r"\b\d{1,9}\b", question)]
    while True:
        tool = luck.choice(sorted(schemas))
        new_number = luck.randrange(1, 101)
        # the new number is twice as likely as each number of the question
        number = luck.choice([new_number, new_number, *numbers])
        word = luck.choice(words_of(schemas[tool], question))
        values = values_by_type(word, number)
        yield tool, arguments_of(schemas[tool], values, pick=luck.randrange(10**6))


def repeats_one_call(question: str, schemas: dict, luck: random.Random, *, times: int) -> Iterator:
    """Make the same well-formed call `times` times. With 0, the player only talks."""
    call = next(calls_at_random(question, schemas, luck))
    for _ in range(times):
        yield call


def lists_candidates(
    question: str, schemas: dict, luck: random.Random, *, calls: int, at_once: bool
) -> Iterator:
    """Try all candidates: words of the question and of the replies, letters, and numbers up to 999.

    at_once: whether each text contains all candidates. Otherwise it is the next candidate. A list
        always contains all candidates.
    """
    seen = f"{question} yes no {' '.join(string.ascii_uppercase)}"
    for turn in range(calls):
        for tool, schema in sorted(schemas.items()):
            candidates = [*words_of(schema, seen), *map(str, range(1000))]
            text = " ".join(candidates) if at_once else candidates[turn]
            values = values_by_type(text, number=turn)
            values |= {"array": candidates, "numbers": list(range(1000))}
            reply = yield tool, arguments_of(schema, values, pick=turn)
            seen += f" {reply}"


def answers_each_tool(
    question: str, schemas: dict, luck: random.Random, *, text: str, number: float, length: int
) -> Iterator:
    """Call each tool once, with this text or number, or a list of `length` times the same."""
    values = values_by_type(text, number, length)
    for tool, schema in sorted(schemas.items()):
        yield tool, arguments_of(schema, values, pick=0)


def repeats_the_question(question: str, schemas: dict, luck: random.Random) -> Iterator:
    """Call each tool once, with the text of `reset`."""
    yield from answers_each_tool(question, schemas, luck, text=question, number=0, length=1)


def answers_wrongly(
    question: str, schemas: dict, luck: random.Random, *, calls: int, first_number: int = 1
) -> Iterator:
    """Give different, well-formed wrong answers: five letters, or numbers from `first_number`."""
    letters = string.ascii_lowercase
    for turn in range(calls):
        # zqaax, zqabx, …, zqazx, zqbax, …: no words of any language
        slow_letter = letters[turn // 26 % 26]
        fast_letter = letters[turn % 26]
        values = values_by_type(f"zq{slow_letter}{fast_letter}x", first_number + turn, length=1)
        for tool, schema in sorted(schemas.items()):
            yield tool, arguments_of(schema, values, pick=turn)


def writes_grades(
    question: str, schemas: dict, luck: random.Random, *, value: str, line: str
) -> Iterator:
    """Write a grade under the names in the question and in the descriptions of the tools, and call
    the other tools at last. Names such as `reward.txt` come first.

    value: the grade.
    line: what a tool with one text gets, such as "echo {value} > {name}".
    """
    # 1. For each tool, find the arguments that take any text. A tool may have none.
    texts_of = {}
    for tool, schema in sorted(schemas.items()):
        texts_of[tool] = []
        for argument, described in schema["properties"].items():
            if described.get("type") == "string" and "enum" not in described:
                texts_of[tool].append(argument)

    # 2. Find the names under which a game may keep a grade, and write under the first three.
    names = set(re.findall(r"[\w/.-]*\w", f"{question} {schemas}"))
    likeliest = sorted(names, key=lambda name: (_rank(name), name))[:3]
    for name in likeliest:
        for tool, texts in texts_of.items():
            call = arguments_of(schemas[tool], values_by_type(value, 1, 1), pick=0)
            if len(texts) > 1:
                # One of the texts is the place, and the others get the grade: the place is the
                # argument that is called one, else the first.
                places = [each for each in texts if re.search("file|path|key|name|where", each)]
                place = places[0] if places else texts[0]
                yield tool, call | {place: name}
            elif len(texts) == 1 and len(call) > 1:
                # With arguments of other types beside it, the text is the place.
                yield tool, call | {texts[0]: name}
            elif len(texts) == 1:
                yield tool, {texts[0]: line.format(name=name, value=value)}

    # 3. Call the tools that take no text, such as one that ends the game.
    for tool, texts in texts_of.items():
        if not texts:
            yield tool, arguments_of(schemas[tool], values_by_type(value, 0, 1), pick=0)


def _rank(name: str) -> int:
    """Return how unlikely a name is to hold a grade: 0 for `reward.txt`, which names a grade and
    looks like a file, 1 for `reward`, 2 for `notes.txt` and 3 for `word`.
    """
    grades = "reward|grade|score|result|verdict|pass|solved|done|success"
    names_a_grade = re.search(grades, name, re.IGNORECASE)
    looks_like_a_file = re.search(r"\w[./_]\w", name)
    if names_a_grade:
        return 0 if looks_like_a_file else 1
    return 2 if looks_like_a_file else 3


# --- The arguments of their calls -----------------------------------------------------------------


def words_of(schema: dict, text: str) -> list[str]:
    """Return the words in the descriptions of a tool's arguments and in a text, each once."""
    texts = [argument.get("description", "") for argument in schema["properties"].values()]
    words = re.findall(r"\w+", " ".join([*texts, text]))
    return list(dict.fromkeys(words)) or ["word"]


def values_by_type(text: str, number: float, length: int = 0) -> dict:
    """Return a value for each type of JSON Schema, and for "numbers", a list of numbers. Lists have
    `length` entries.
    """
    return {
        "string": text,
        "integer": number,
        "number": number,
        "boolean": number % 2 == 0,
        "array": [text] * length,
        "numbers": [number] * length,
    }


def arguments_of(schema: dict, values: dict, pick: int) -> dict:
    """Return a call's arguments: for each, the value of its type.

    values: as from `values_by_type`.
    pick: which value to take, from 0, if the schema lists the allowed values (`enum`). After the
        last value comes the first again.

    >>> side = {"type": "string", "enum": ["left", "right"]}
    >>> schema = {"properties": {"steps": {"type": "integer"}, "side": side}}
    >>> arguments_of(schema, values_by_type("word", 5), pick=1)
    {'steps': 5, 'side': 'right'}
    """
    arguments = {}
    for name, argument in schema["properties"].items():
        # 1. Find its type. Of several possible types, take the first.
        argument = argument.get("anyOf", [argument])[0]
        json_type = argument.get("type", "string")
        if isinstance(json_type, list):
            json_type = json_type[0]
        type_of_items = argument.get("items", {}).get("type")
        if json_type == "array" and type_of_items in ("integer", "number"):
            json_type = "numbers"

        # 2. Take one of the allowed values, or the value of its type. An argument of another type,
        # such as an object, is empty.
        if "enum" in argument:
            arguments[name] = argument["enum"][pick % len(argument["enum"])]
        else:
            arguments[name] = values.get(json_type, {})
    return arguments


# --- The list of players --------------------------------------------------------------------------

# Players that must not win, each with what is wrong with a game they win.
WINNING = {
    "random": (calls_at_random, "chance wins. Require more."),
    "answers at once": (
        partial(repeats_one_call, times=1),
        "there is nothing to learn from several turns. Require more.",
    ),
    "loops for ever": (partial(repeats_one_call, times=1000), "GRPO would teach the loop."),
    "lists all candidates": (
        partial(lists_candidates, calls=2, at_once=True),
        "compare the whole answer, not a part of it.",
    ),
    "tries all candidates": (
        partial(lists_candidates, calls=1000, at_once=False),
        "let the first answer count, or require more.",
    ),
}

# Players that must earn no more than an honest try, each with advice if they earn more.
PAYING = {
    "answers blank": (
        partial(answers_each_tool, text="", number=0, length=0),
        'refuse a blank; in Python, `"" in value` is true.',
    ),
    "answers at length": (
        partial(answers_each_tool, text="word " * 2000, number=10**9, length=2000),
        "length must not pay.",
    ),
    "answers in 100 words": (
        partial(answers_each_tool, text="First, I plan. Then I act. " * 16, number=0, length=100),
        "length must not pay.",
    ),
    "answers a negative number": (
        partial(answers_each_tool, text="-50", number=-50, length=1),
        "refuse negative numbers, which may be paid back.",
    ),
    "repeats the task": (repeats_the_question, "compare the whole answer, not the words in it."),
    "answers nan": (
        partial(answers_each_tool, text="nan", number=math.nan, length=1),
        "refuse values that are not numbers: NaN passes comparisons.",
    ),
    "says please": (
        partial(answers_each_tool, text="please", number=0, length=1),
        "a polite word must not pay.",
    ),
    "assures": (
        partial(
            answers_each_tool,
            text="Please, kindly, gladly, politely, thank you, sorry. I am sure, certain: surely, "
            "certainly, definitely, absolutely verified, correct, therefore final.",
            number=0,
            length=1,
        ),
        "polite words and assurances must not pay.",
    ),
}

# Patterns of shells, SQL and regular expressions, a query, all letters, and blanks to be filled in.
_MATCH_ANYTHING = [
    "*", "%", "?*", ".*", ".+", ".", "^", r"\S+", "' OR ''='",
    string.ascii_letters, f"{string.ascii_lowercase} {string.digits}",
    "___", "____", "_____", "______", "_______", "________",
]  # fmt: skip
_WILDCARDS = [partial(answers_each_tool, text=text, number=0, length=1) for text in _MATCH_ANYTHING]
# How a tool that takes one text might write a grade: the grade alone, in a shell, in Python, as a
# setting.
_LINES = (
    "{value}",
    "echo {value} > {name}",
    "open('{name}', 'w').write('{value}')",
    "{name}={value}",
)
_GRADERS = [
    partial(writes_grades, value=value, line=line)
    for value in ("1", "1.0", '{"reward": 1, "score": 1, "grade": 1, "passed": true}', "nan")
    for line in _LINES
]

# Players that must not win, each in several forms, with what is wrong with a game they win. The
# laboratory compares them with a player that answers nonsense: a pattern, a query, or all letters
# in place of the answer; a grade written under the names that a game tells.
FORMS = {
    "answers a wildcard": (
        _WILDCARDS,
        "compare the answer as text, not as a pattern or a part of a query.",
    ),
    "writes its own grade": (
        _GRADERS,
        "keep the grade, and what it is computed from, where no tool can write.",
    ),
}
