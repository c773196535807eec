r"""The two kinds that a data set declares by name: choice and exact.

Choice: the same set of letters, with or without the option's text.

- `(A)` = `A`, `a` = `A`, `A.` = `A`, `option A` = `A`, `[B]` = `B`, `**C**` = `C`,
  `\text{(D)}` = `D`
- `A) Paris` = `A`, `A` = `A) Paris`, `Paris` = `A) Paris`, `(A), (C)` = `C and A`, `A & C` = `A, C`
- `B` ≠ `A`, `A or B` ≠ `A`, `A, B` ≠ `A`, `A*` ≠ `A`, `A+` ≠ `A`, `not A` ≠ `A`, `AB` ≠ `A`
- `A) Paris (B) London` ≠ `A`, `A) London` ≠ `A) Paris`, `London` ≠ `A) Paris`, `a) x b) y` ≠ `A`

Exact: the same characters, for codes, versions, formulas, ratios and scores. After Unicode's NFKC,
with one kind of dash, with no space around `:`, `-` and an arrow, and with indices and charges as
they are read: `_{2}` behind a letter is the 2 of H2O.

- `5–10` = `5-10`, `3 : 4` = `3:4`, `1 - 0` = `1-0`, `**v1.2.3**` = `v1.2.3`, `AB–12` = `AB-12`
- `H₂O` = `H_2O`, `H2O` = `H_{2}O`, `Ca²⁺` = `Ca^{2+}`, `\mathrm{CO_2}` = `CO2`
- `1` ≠ `1-0`, `10-5` ≠ `5-10`, `192.168.1.0` ≠ `192.168.0.1`, `my_Var` ≠ `my_var`,
  `myvar` ≠ `my_var`
- `NO2` ≠ `N2O`, `Co` ≠ `CO`, `h2o` ≠ `H2O`, `102` ≠ `10^2`, `1012` ≠ `101_2`, `A` ≠ `A*`
"""

import re

from helpers.rewards.answers.texts import plain_text, same_text, without_latex

_LETTER = r"(?:\(\s*[A-Za-z]\s*\)\.?|\[\s*[A-Za-z]\s*\]\.?|[A-Za-z][.):]?)"
_LETTERS = re.compile(
    rf"(?:(?:option|choice|answer)s?\s*:?\s*)?{_LETTER}"
    rf"(?:(?:\s*[,;&]\s*|\s*,?\s+and\s+){_LETTER})*",
    re.IGNORECASE,
)
# A letter with a mark behind it or in brackets, and the option's text.
_OPTION = re.compile(r"(?:\(([A-Za-z])\)|([A-Za-z])[.):](?=\s))\s*(.*\w.*)", re.DOTALL)
# In the text of an option: a second option, or a second thought.
_ANOTHER = re.compile(r"\([A-Za-z]\)|\b[A-Za-z]\)|\b[B-HJ-Z]\b|\b(?:or|not|no|but|wrong)\b")

_JOINED = re.compile(r"\s*(->|[:-])\s*")
_BRACED = re.compile(r"([_^])\{([\w+-]*)\}")  # x_{12} is x_12
_INDEX = re.compile(r"(?<=[A-Za-z)\]])_(?=\d)")
_CHARGE = re.compile(r"(?<=[A-Za-z)\]])\^(?=\d*[+-](?!\w))|\^(?=[+-](?!\w))")


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
    text = plain_text(text)
    if len(text) <= 200 and _LETTERS.fullmatch(text):
        return frozenset(re.findall(r"\b[A-Z]\b", text.upper())), ""
    option = _OPTION.fullmatch(text)
    if not option or _ANOTHER.search(option[3]):
        return frozenset(), ""
    return frozenset((option[1] or option[2]).upper()), option[3]


def same_code(given: str, gold: str) -> bool:
    """Return whether two codes are the same, character for character."""
    return code_of(given) == code_of(gold) != ""


def code_of(text: str) -> str:
    """Return what two codes are compared by.

    >>> code_of("Ca²⁺"), code_of("3 : 4"), code_of("101_{2}")
    ('Ca2+', '3:4', '101_2')
    """
    text = without_latex(re.sub(r"\\(?:right|longright)arrow|\\to\b", "->", plain_text(text)))
    text = _BRACED.sub(r"\1\2", " ".join(text.split()).removesuffix("."))
    if "->" in text:  # a reaction
        text = text.replace(" ", "")
    return _CHARGE.sub("", _INDEX.sub("", _JOINED.sub(r"\1", text)))
