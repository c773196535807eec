r"""The two kinds that a data set must declare: choice and exact.

Choice: two answers are the same if they name the same letters, with or without the option's text.
Right (`=`) and wrong (`≠`), the given answer first:

- `(A)` = `A`, `a` = `A`, `A.` = `A`, `option A` = `A`, `[B]` = `B`, `**C**` = `C`,
  `\text{(D)}` = `D`
- `A) Paris` = `A`, `A` = `A) Paris`, `Paris` = `A) Paris`, `(A), (C)` = `C and A`, `A & C` = `A, C`
- `B` ≠ `A`, `A or B` ≠ `A`, `A, B` ≠ `A`, `A*` ≠ `A`, `A+` ≠ `A`, `not A` ≠ `A`, `AB` ≠ `A`
- `A) Paris (B) London` ≠ `A`, `A) London` ≠ `A) Paris`, `London` ≠ `A) Paris`, `a) x b) y` ≠ `A`

Exact: the same characters, for codes, versions, formulas, ratios and scores. Only the spelling may
differ: the kind of dash, spaces around `:`, `-` and arrows, and how the indices and charges of
chemistry are written.

- `5–10` = `5-10`, `3 : 4` = `3:4`, `1 - 0` = `1-0`, `**v1.2.3**` = `v1.2.3`, `AB–12` = `AB-12`
- `H₂O` = `H_2O`, `H2O` = `H_{2}O`, `Ca²⁺` = `Ca^{2+}`, `\mathrm{CO_2}` = `CO2`
- `1` ≠ `1-0`, `10-5` ≠ `5-10`, `192.168.1.0` ≠ `192.168.0.1`, `my_Var` ≠ `my_var`,
  `myvar` ≠ `my_var`
- `O^{2-}` ≠ `O_2^-`, `O2^-` ≠ `O^{2-}`, `O2^-` = `O_2^-`,
  `O_2^-` = `O₂⁻`, `SO4^2-` = `SO_4^{2-}`, `SO_{42}^-` ≠ `SO_4^{2-}`
- `NO2` ≠ `N2O`, `Co` ≠ `CO`, `h2o` ≠ `H2O`, `102` ≠ `10^2`, `1012` ≠ `101_2`, `A` ≠ `A*`
"""

import re

from helpers.judging.answers.texts import plain_text, same_text, without_latex

# --- Choice ---------------------------------------------------------------------------------------


def same_choice(given: str, gold: str) -> bool:
    """Return whether two answers name the same options."""
    letters, text = split_option(given)
    gold_letters, gold_text = split_option(gold)
    if not letters:  # the answer may be the option's text alone
        return gold_text != "" and same_text(given, gold_text)
    return letters == gold_letters and (not text or not gold_text or same_text(text, gold_text))


def split_option(text: str) -> tuple[frozenset[str], str]:
    """Return the letters that an answer names, in upper case, and the text after a single letter.

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


# One letter: A, a., (A), [A].
_LETTER = r"(?:\(\s*[A-Za-z]\s*\)\.?|\[\s*[A-Za-z]\s*\]\.?|[A-Za-z][.):]?)"
# Letters alone: A; A, C; (A) and (C); Answer: A.
_LETTERS = re.compile(
    rf"(?:(?:option|choice|answer)s?\s*:?\s*)?{_LETTER}"
    rf"(?:(?:\s*[,;&]\s*|\s*,?\s+and\s+){_LETTER})*",
    re.IGNORECASE,
)
# A letter and the option's text: A) Paris, (A) Paris.
_OPTION = re.compile(r"(?:\(([A-Za-z])\)|([A-Za-z])[.):](?=\s))\s*(.*\w.*)", re.DOTALL)
# In the text of an option, a sign of a second option or a second thought: (B), or, not.
_ANOTHER = re.compile(r"\([A-Za-z]\)|\b[A-Za-z]\)|\b[B-HJ-Z]\b|\b(?:or|not|no|but|wrong)\b")

# --- Exact ----------------------------------------------------------------------------------------


def same_code(given: str, gold: str) -> bool:
    """Return whether two codes have the same characters.

    A plain digit or sign may be an index or a charge; an index is not a charge.
    """
    code = code_of(given)
    gold_code = code_of(gold)
    if code == gold_code:
        return code != ""
    same_characters = code.translate(_PLAIN) == gold_code.translate(_PLAIN)
    return same_characters and all(
        mark == gold_mark or mark.isascii() or gold_mark.isascii()
        for mark, gold_mark in zip(code, gold_code, strict=True)
    )


def code_of(text: str) -> str:
    """Return a code in one spelling, with raised charges and lowered indices where they are marked.

    >>> code_of("Ca^{2+}"), code_of("H_2O"), code_of("H2O"), code_of("3 : 4"), code_of("101_{2}")
    ('Ca²⁺', 'H₂O', 'H2O', '3:4', '101_2')
    """
    text = without_latex(re.sub(r"\\(?:right|longright)arrow|\\to\b", "->", plain_text(text)))
    text = _BRACED.sub(r"\1\2", " ".join(text.split()).removesuffix("."))
    if "->" in text:  # a chemical reaction
        text = text.replace(" ", "")
    text = _INDEX.sub(lambda index: index[1].translate(_LOWERED), _JOINED.sub(r"\1", text))
    text = _CHARGE.sub(lambda charge: charge[1].translate(_RAISED), text)
    # A plain digit before a marked sign is an index: the charge of O2^- is a single minus.
    return _BEFORE_SIGN.sub(lambda index: index[0].translate(_LOWERED), text)


# Spaces around an arrow, a colon or a dash: 3 : 4.
_JOINED = re.compile(r"\s*(->|[:-])\s*")
# Braces of an index or an exponent: x_{12}.
_BRACED = re.compile(r"([_^])\{([\w+-]*)\}")
# The index of H_2O. The base of 101_2 stays.
_INDEX = re.compile(r"(?<=[A-Za-z)\]])_(\d+)", re.ASCII)
# The charge of Ca^2+ and of SO_4^2-. The exponent of 10^2 stays.
_CHARGE = re.compile(r"\^(\d*[+-])(?!\w)", re.ASCII)
_BEFORE_SIGN = re.compile(r"(?<=[A-Za-z)\]])\d+(?=[⁺⁻])", re.ASCII)
_LOWERED = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
_RAISED = str.maketrans("0123456789+-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻")
_PLAIN = {high: low for low, high in [*_LOWERED.items(), *_RAISED.items()]}
