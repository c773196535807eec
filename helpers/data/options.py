"""Multiple-choice questions: find the options, show them by letter, and make the answer a letter.

`options_in` reads the options in the formats that datasets have. `with_options` puts them below
the question and finds the letter of the answer; the functions below it are its steps.
"""

import re
from typing import NamedTuple

from helpers.data.files import Dropped, parse_literal

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
NUMBERED = "an option's number, counted from 0"
# What separates the options in one text.
_BETWEEN_OPTIONS = re.compile(
    r"""\s*[\n|;]+\s* (?: \(?[A-Za-z][ ]?[).:](?=\s) )? \s*   # red|blue, A) red\nB) blue
        | ^ \(?[A-Za-z][ ]?[).:](?=\s) \s*                   # A) at the start
        | [\s,]+ \(?[A-Za-z][ ]?\) \s+                       # (A) red (B) blue
    """,
    re.VERBOSE,
)


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
            if None in options.values():
                return {}
            return dict(zip(options["label"], options["text"], strict=False))
        return options

    # 2. One text becomes a list of texts.
    if isinstance(options, str):
        options = [text for text in _BETWEEN_OPTIONS.split(options.strip()) if text]
    if not isinstance(options, list):
        return {}

    # 3. A list. An option is a text, or a dictionary of a label and a text: `key` and `value` in
    # MedQA, `label` or `id` and `text` in other datasets. Without a label, it gets a letter; after
    # Z a number, for `with_options` to refuse.
    by_label = {}
    for place, option in enumerate(options):
        letter = LETTERS[place] if place < len(LETTERS) else str(place)
        label = letter
        text = option
        if isinstance(option, dict):
            label = option.get("label", option.get("key", option.get("id", letter)))
            text = option.get("text", option.get("value", option))
        by_label[label] = text
    return by_label


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

    Raise Dropped if the answer is none of these, and ValueError if it is a number beyond the
    options: the numbers of the other rows then probably count from 1.

    >>> with_options("Which is red?", {"A": "sky", "B": "blood"}, "blood")
    Choice(question='Which is red?\\nA. sky\\nB. blood', letter='B', note='')
    """
    texts = _texts_of(options)
    labels = [_name(label) for label in options]
    if _is_number(answer, labels, texts):
        place = int(_bare_name(answer))
        note = NUMBERED
        if place >= len(texts):
            raise ValueError(
                f"the answer {answer!r} is a number beyond the {len(texts)} options of "
                f"{question!r}. Numbers count from 0 here; if yours count from 1, or are options "
                'themselves, give the letters, or the options as texts ("10", not 10).'
            )
    else:
        place = _place_by_name(answer, labels, texts)
        note = ""
    return Choice(_shown(question, texts), LETTERS[place], note)


def _texts_of(options: dict) -> list[str]:
    """Return the texts of the options, without the letters before them if each has its own."""
    if len(options) < 2 or any(isinstance(text, list | dict) for text in options.values()):
        raise Dropped(
            "options are not several texts",
            'Give a list of texts, ["red", "blue"], or texts by their labels, {"A": "red"}.',
        )
    if len(options) > len(LETTERS):
        raise Dropped(
            f"more than {len(LETTERS)} options",
            "Each option gets a letter, so leave out wrong options, or leave out the column.",
        )
    texts = [str(text).strip() for text in options.values()]
    without_letters = [
        # `A) red`, `(A) red`, `A.red`; but not the A. of `A.D. 70`
        re.sub(rf"^\(?{letter}[).:](?![A-Za-z]\.)\s*", "", text)
        for letter, text in zip(LETTERS, texts, strict=False)
    ]
    # A text may begin like a letter by chance: `A. Lincoln` beside `Washington`.
    has_letters = all(text != bare for text, bare in zip(texts, without_letters, strict=True))
    return without_letters if has_letters else texts


def _is_number(answer: object, labels: list[str], texts: list[str]) -> bool:
    """Return whether an answer is the number of an option.

    An integer is one unless it is a label. A text is one only if no option has a number for its
    label or text.
    """
    name = _bare_name(answer)
    others = [*labels, *texts] if isinstance(answer, str) else []
    return name.isdecimal() and name not in labels and not any(map(str.isdecimal, others))


def _place_by_name(answer: object, labels: list[str], texts: list[str]) -> int:
    """Return the place, from 0, of the option that an answer names. Labels come first: if the
    labels are 1, 2 and 3, and the texts 4, 2 and 1, then "2" is a label.
    """
    whole = _name(answer).strip()
    bare = _bare_name(answer)
    texts = [text.casefold() for text in texts]

    # 1. A label: `b`, `(B)`, `B.`
    if bare in labels:
        return labels.index(bare)
    # 2. A label and the text: `b. blue`, `B) blue`, `(B) blue`, `B: blue`
    for place, (label, text) in enumerate(zip(labels, texts, strict=True)):
        spellings = {f"{label}{sign} {text}" for sign in ".):"} | {f"({label}) {text}"}
        if whole in spellings or bare in spellings:
            return place
    # 3. The text, unless two options share it: `blue`, `Blue.`
    for name in (whole, bare):
        if texts.count(name) == 1:
            return texts.index(name)
    raise Dropped(
        "answer is not an option",
        "An answer is the label or the text of an option, or, as an integer, its number from "
        "0; if the options are numbers, 2 as a text is the option 2. Are these the right "
        'columns? columns={"answer": "…", "options": "…"}.',
    )


def _shown(question: str, texts: list[str]) -> str:
    """Return the question with the options below it, unless it already shows each of them with its
    letter: `(A) red`, `A: red`.
    """
    lines = [question]
    all_shown = True
    for letter, text in zip(LETTERS, texts, strict=False):
        lines.append(f"{letter}. {text}")
        shown = rf"(?<!\w){letter}[^\w\s]\W{{0,3}}{re.escape(text)}(?!\w)"
        if not re.search(shown, question):
            all_shown = False
    return question if all_shown else "\n".join(lines)


def _name(value: object) -> str:
    """Return a label or an answer as text in lower case, whole numbers without a fraction.

    pandas turns a column of integers with missing values into floats, so 1.0 stands for 1.
    """
    name = str(value).casefold()
    return name if isinstance(value, str) else name.removesuffix(".0")


def _bare_name(answer: object) -> str:
    """Return an answer's name without the marks around a label: `(B)`, `B.`"""
    return _name(answer).strip(" ().")
