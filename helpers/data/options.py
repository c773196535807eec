"""The options of a row's question: read in the shapes that people's data has, shown below the
question behind letters, and the answer as a letter.
"""

import re

from helpers.data.files import Dropped, parse_literal

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
NUMBERED = "an option's number, counted from 0"
# between the options that a text lists: a new line, a bar, a semicolon, or the letter of the next
_BETWEEN_OPTIONS = re.compile(
    r"\s*(?:[\n|;]+|^)\s*(?:\(?[A-Za-z] ?[).:](?=\s))?\s*|[\s,]+\(?[A-Za-z] ?\)\s+"
)


def options_in(value: object) -> dict:
    """Return the options in a value, by their labels; without labels, by letters. Empty for a value
    that is none.

    value: a list of texts, or of dictionaries of a label and a text; texts by label; {"label":
    [...], "text": [...]}; or a text that lists them behind letters, on lines, or between bars.

    >>> options_in([{"key": "A", "value": "red"}, {"key": "B", "value": "blue"}])
    {'A': 'red', 'B': 'blue'}
    >>> options_in("a ) red , b ) blue"), options_in("red|blue")
    ({'A': 'red', 'B': 'blue'}, {'A': 'red', 'B': 'blue'})
    """
    options = parse_literal(value)
    if isinstance(options, str):
        options = [text for text in _BETWEEN_OPTIONS.split(options.strip()) if text]
    if isinstance(options, list):
        by_label = {}
        for letter, option in zip(LETTERS, options, strict=False):
            # MedQA has key and value, others id and text
            label = _first_field(option, ("label", "key", "id"), letter)
            by_label[label] = _first_field(option, ("text", "value"), option)
        return by_label
    if not isinstance(options, dict):
        return {}
    if options.keys() == {"label", "text"}:  # ARC
        return dict(zip(options["label"], options["text"], strict=False))
    return options


def _first_field(option: object, names: tuple[str, ...], default: object) -> object:
    """Return the first of these fields that an option has."""
    for name in names:
        if isinstance(option, dict) and name in option:
            return option[name]
    return default


def with_options(question: str, options: dict, answer: object) -> tuple[str, str, str]:
    """Return a question with its options below it, unless each is in it after its letter; the
    letter of the answer; and NUMBERED if the answer is a number, else "".

    options: from `options_in`. answer: a label, a text, both (`B. blue`), or the number of an
    option from 0, an integer unless there are numbers among the options. Dropped if it is none of
    these; ValueError for a number beyond the options, because then others may count from 1, too.

    >>> with_options("Which is red?", {"A": "sky", "B": "blood"}, "blood")
    ('Which is red?\\nA. sky\\nB. blood', 'B', '')
    """
    # 1. the texts: `A) red` is red, since each gets its letter anew
    texts = [
        re.sub(rf"^\(?{letter}[).:]\s*", "", str(text).strip())
        for letter, text in zip(LETTERS, options.values(), strict=False)
    ]
    if len(texts) < 2 or any(isinstance(text, list | dict) for text in options.values()):
        raise Dropped(
            "options are not several texts",
            'Give a list of texts, ["red", "blue"], or texts by their labels, {"A": "red"}.',
        )

    # 2. the option that the answer names
    labels = [_name(label) for label, _ in zip(options, texts, strict=False)]
    places = _places_by_name(labels, texts)
    name = _name(answer).strip(" ().")
    place = places.get(name)

    # 3. or whose number it is: an integer that is not a label; a text, such as "1", only if no
    # option is a number
    if isinstance(answer, str):
        may_be_a_number = not any(other.isdecimal() for other in places)
    else:
        may_be_a_number = name not in labels
    is_number = may_be_a_number and name.isdecimal()
    if is_number:
        place = int(name)
        if place >= len(texts):
            raise ValueError(
                f"the answer {answer!r} is a number beyond the {len(texts)} options of "
                f"{question!r}. Numbers count from 0 here; if yours count from 1, or are options "
                'themselves, give the letters, or the options as texts ("10", not 10).'
            )
    if place is None:
        raise Dropped(
            "answer is no option",
            "An answer is the label or the text of an option, or, as an integer, its number from "
            "0; among options that are numbers, 2 as a text is the option 2. Are these the "
            'columns? columns={"answer": "…", "options": "…"}.',
        )

    # 4. shown, unless the question has each behind its letter: `(A) red`, `A: red`
    lines = [f"{letter}. {text}" for letter, text in zip(LETTERS, texts, strict=False)]
    is_shown = all(
        re.search(rf"(?<!\w){letter}[^\w\s]\W{{0,3}}{re.escape(text)}(?!\w)", question)
        for letter, text in zip(LETTERS, texts, strict=False)
    )
    if not is_shown:
        question = "\n".join([question, *lines])
    return question, LETTERS[place], NUMBERED if is_number else ""


def _name(value: object) -> str:
    """Return a label or an answer as text in lower case.

    A whole number is written without a fraction: pandas turns a column of integers with missing
    values into floats, so 1.0 stands for 1.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).casefold()


def _places_by_name(labels: list[str], texts: list[str]) -> dict[str, int]:
    """Return the place of each option by what names it, in small letters: its text, unless another
    has the same; its label with its text; and, before these, its label.
    """
    folded = [text.casefold() for text in texts]
    places = {text: place for place, text in enumerate(folded) if folded.count(text) == 1}
    for place, (label, text) in enumerate(zip(labels, folded, strict=True)):
        for sign in ").:":
            places[f"{label}{sign} {text}"] = place
    for place, label in enumerate(labels):
        places[label] = place
    return places
