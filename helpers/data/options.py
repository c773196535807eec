"""Multiple-choice questions: find the options, show them by letter, and make the answer a letter.

`options_in` reads the options in the formats that data sets have. `with_options` puts them below
the question and finds the letter of the answer.
"""

import re
from typing import NamedTuple

from helpers.data.files import Dropped, parse_literal

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
NUMBERED = "an option's number, counted from 0"


def options_in(value: object) -> dict:
    """Return the options in a value by their labels, or by letters if they have no labels.

    value: a list of texts, a list of dictionaries of a label and a text, a dictionary of texts by
        label, {"label": [...], "text": [...]}, or one text. Returns {} for anything else.

    >>> options_in([{"key": "A", "value": "red"}, {"key": "B", "value": "blue"}])
    {'A': 'red', 'B': 'blue'}
    >>> options_in("a ) red , b ) blue"), options_in("red|blue")
    ({'A': 'red', 'B': 'blue'}, {'A': 'red', 'B': 'blue'})
    """
    options = parse_literal(value)  # a list or a dictionary, even if it was written as text

    # 1. A dictionary: two lists, as in ARC, or texts by label.
    if isinstance(options, dict):
        if options.keys() == {"label", "text"}:
            return dict(zip(options["label"], options["text"], strict=False))
        return options

    # 2. One text becomes a list of texts.
    if isinstance(options, str):
        options = [text for text in _BETWEEN_OPTIONS.split(options.strip()) if text]
    if not isinstance(options, list):
        return {}

    # 3. A list. An option is a text, or a dictionary of a label and a text: `key` and `value` in
    # MedQA, `label` or `id` and `text` in other data sets. Without a label, it gets a letter.
    by_label = {}
    for letter, option in zip(LETTERS, options, strict=False):
        label = letter
        text = option
        if isinstance(option, dict):
            label = _first_field(option, ("label", "key", "id"), otherwise=letter)
            text = _first_field(option, ("text", "value"), otherwise=option)
        by_label[label] = text
    return by_label


def _first_field(fields: dict, names: tuple[str, ...], otherwise: object) -> object:
    """Return the first of these fields that is there."""
    return next((fields[name] for name in names if name in fields), otherwise)


# What separates the options in one text: a new line, a bar or a semicolon, with or without the
# letter of the next option (`A) red\nB) blue`, `red|blue`); or a letter alone (`(A) red (B) blue`).
_BETWEEN_OPTIONS = re.compile(
    r"\s*(?:[\n|;]+|^)\s*(?:\(?[A-Za-z] ?[).:](?=\s))?\s*|[\s,]+\(?[A-Za-z] ?\)\s+"
)


class Choice(NamedTuple):
    """A question with its options below it, and the letter of its answer.

    note: NUMBERED if the answer was given as the number of an option, else "".
    """

    question: str
    letter: str
    note: str


def with_options(question: str, options: dict, answer: object) -> Choice:
    """Return the question as a choice among its options. They are not repeated if the question
    already shows each of them with its letter.

    options: from `options_in`.
    answer: a label, the text of an option, both (`B. blue`), or the number of an option, counted
        from 0. Among options that are numbers, only an integer is the number of an option.

    Dropped if the answer is none of these. ValueError for a number beyond the options: the numbers
    of the other rows then probably count from 1.

    >>> with_options("Which is red?", {"A": "sky", "B": "blood"}, "blood")
    Choice(question='Which is red?\\nA. sky\\nB. blood', letter='B', note='')
    """
    # 1. Clean the texts. Each gets a new letter below, so `A) red` becomes `red`.
    texts = [
        re.sub(rf"^\(?{letter}[).:]\s*", "", str(text).strip())
        for letter, text in zip(LETTERS, options.values(), strict=False)
    ]
    if len(texts) < 2 or any(isinstance(text, list | dict) for text in options.values()):
        raise Dropped(
            "options are not several texts",
            'Give a list of texts, ["red", "blue"], or texts by their labels, {"A": "red"}.',
        )

    # 2. Collect what an answer may call each option, with the option's place from 0: its text,
    # unless two options share it; label and text, as in `b. blue`; its label. Later names replace
    # equal ones, so labels come last: if the labels are 1, 2 and 3, and the texts 4, 2 and 1, then
    # "2" is a label.
    labels = [_name(label) for label in options][: len(texts)]
    folded = [text.casefold() for text in texts]
    place_of: dict[str, int] = {}
    for place, text in enumerate(folded):
        if folded.count(text) == 1:
            place_of[text] = place
    for place, text in enumerate(folded):
        for sign in ".):":
            place_of[f"{labels[place]}{sign} {text}"] = place
    for place, label in enumerate(labels):
        place_of[label] = place

    # 3. Find the option that the answer names.
    name = _name(answer).strip(" ().")
    place = place_of.get(name)

    # 4. Or the answer is the number of an option. A text may be one only if no option has a number
    # for a name; an integer, unless it is a label.
    if isinstance(answer, str):
        may_be_a_number = not any(other.isdecimal() for other in place_of)
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
            "answer is not an option",
            "An answer is the label or the text of an option, or, as an integer, its number from "
            "0; if the options are numbers, 2 as a text is the option 2. Are these the right "
            'columns? columns={"answer": "…", "options": "…"}.',
        )

    # 5. Put the options below the question, unless it already shows each of them with its letter:
    # `(A) red`, `A: red`.
    lines = [question]
    all_shown = True
    for letter, text in zip(LETTERS, texts, strict=False):
        lines.append(f"{letter}. {text}")
        shown = rf"(?<!\w){letter}[^\w\s]\W{{0,3}}{re.escape(text)}(?!\w)"
        if not re.search(shown, question):
            all_shown = False
    if not all_shown:
        question = "\n".join(lines)
    return Choice(question, LETTERS[place], NUMBERED if is_number else "")


def _name(value: object) -> str:
    """Return a label or an answer as text in lower case, whole numbers without a fraction.

    pandas turns a column of integers with missing values into floats, so 1.0 stands for 1.
    """
    name = str(value).casefold()
    return name if isinstance(value, str) else name.removesuffix(".0")
