r"""Choice: the same set of letters, with or without the option's text.

- `(A)` = `A`, `a` = `A`, `A.` = `A`, `option A` = `A`, `[B]` = `B`, `**C**` = `C`,
  `\text{(D)}` = `D`
- `A) Paris` = `A`, `A` = `A) Paris`, `Paris` = `A) Paris`, `(A), (C)` = `C and A`, `A & C` = `A, C`
- `B` ≠ `A`, `A or B` ≠ `A`, `A, B` ≠ `A`, `A*` ≠ `A`, `A+` ≠ `A`, `not A` ≠ `A`, `AB` ≠ `A`
- `A) Paris (B) London` ≠ `A`, `A) London` ≠ `A) Paris`, `London` ≠ `A) Paris`, `a) x b) y` ≠ `A`
"""

import re

from helpers.rewards.answers.spelling import plain
from helpers.rewards.answers.texts import same_text

_LETTER = r"(?:\(\s*[A-Za-z]\s*\)|\[\s*[A-Za-z]\s*\]|[A-Za-z][.):]?)"
_LETTERS = re.compile(
    rf"(?:(?:option|choice|answer)s?\s*:?\s*)?{_LETTER}"
    rf"(?:(?:\s*[,;&]\s*|\s*,?\s+and\s+){_LETTER})*",
    re.IGNORECASE,
)
# A letter with a mark behind it or in brackets, and the option's text.
_OPTION = re.compile(r"(?:\(([A-Za-z])\)|([A-Za-z])[.):](?=\s))\s*(.*\w.*)", re.DOTALL)
# In the text of an option: a second option, or a second thought.
_ANOTHER = re.compile(r"\([A-Za-z]\)|\b[A-Za-z]\)|\b[B-HJ-Z]\b|\b(?:or|not|no|but|wrong)\b")


def same_choice(given: str, gold: str) -> bool:
    """Return whether two answers name the same options."""
    letters, text = split_option(given)
    gold_letters, gold_text = split_option(gold)
    if not letters:  # the option's text alone
        return gold_text != "" and same_text(given, gold_text)
    return letters == gold_letters and (not text or not gold_text or same_text(text, gold_text))


def split_option(text: str) -> tuple[frozenset[str], str]:
    """Return the letters that a text names, and the option's text behind a single one.

    >>> split_option("(b) London"), split_option("A or B")
    ((frozenset({'B'}), 'London'), (frozenset(), ''))
    """
    text = plain(text)
    if len(text) <= 200 and _LETTERS.fullmatch(text):
        return frozenset(re.findall(r"\b[A-Z]\b", text.upper())), ""
    option = _OPTION.fullmatch(text)
    if not option or _ANOTHER.search(option[3]):
        return frozenset(), ""
    return frozenset((option[1] or option[2]).upper()), option[3]
