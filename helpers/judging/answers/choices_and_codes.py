r"""Compare answers of two kinds that a dataset declares: the letters of options (`choice`), and
codes (`exact`).

Choice: two answers are the same if they name the same letters, with or without the option's text.
Correct (`=`) and wrong (`≠`), the given answer first:

- `(A)` = `A`, `a` = `A`, `A.` = `A`, `option A` = `A`, `[B]` = `B`, `**C**` = `C`,
  `\text{(D)}` = `D`
- `A) Paris` = `A`, `**A)** Paris` = `A`, `A` = `A) Paris`, `Paris` = `A) Paris`,
  `(A), (C)` = `C and A`, `A & C` = `A, C`
- `B` ≠ `A`, `A or B` ≠ `A`, `A, B` ≠ `A`, `A*` ≠ `A`, `A+` ≠ `A`, `not A` ≠ `A`, `AB` ≠ `A`
- `A) Paris (B) London` ≠ `A`, `A) London` ≠ `A) Paris`, `London` ≠ `A) Paris`, `a) x b) y` ≠ `A`
- `B: A` ≠ `B`, `B) a` ≠ `B`, `B. A. Paris` ≠ `B`, `B: A` = `B) A`, `A: Paris` ≠ `A: London`

If the question shows its options, a letter with the text of another option is wrong, too.

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

from helpers.judging.answers.texts import plain_text, same_text, without_latex, words_of

# --- Choice ---------------------------------------------------------------------------------------

# One letter: A, a., (A), [A].
_LETTER = r"(?:\(\s*[A-Za-z]\s*\)\.?|\[\s*[A-Za-z]\s*\]\.?|[A-Za-z][.):]?)"
# Letters alone: A; A, C; (A) and (C); Answer: A.
_LETTERS = re.compile(
    rf"(?:(?:option|choice|answer)s?\s*:?\s*)?{_LETTER}"
    rf"(?:(?:\s*[,;&]\s*|\s*,?\s+and\s+){_LETTER})*",
    re.IGNORECASE,
)
# A letter and the option's text: A) Paris, (A) Paris, A: Paris, **A)** Paris. Codes such as A.B and
# A:2 have no space after the letter's mark.
_OPTION = re.compile(
    r"(?P<bold>\*\*)?(?:\((?P<bracketed>[A-Za-z])\)|(?P<bare>[A-Za-z])[.):](?(bold)|(?=\s)))(?(bold)\*\*)"
    r"\s*(?P<text>.*\w.*)",
    re.DOTALL,
)
# In the text of an option, a sign of a second option or a second thought: (B), b), B, or, not.
# The capitals A and I alone are no signs, because they are also words; `answer is A` is one.
_ANOTHER = re.compile(
    r"\([A-Za-z]\)|\b[A-Za-z]\)|\b[B-HJ-Z]\b|\b(?:or|not|no|but|wrong)\b"
    r"|\b[Aa]nswer(?:\s+is\b|\s*:)\W*[AI]\b"
)
# The label of an option in a question: A), (A), [A], A., A:, **A.**
_LABEL = re.compile(r"(?<![\w(\[])[(\[]?([A-Za-z])(?:[)\]]|[.:](?=\**\s))\**\s*")
# The same at the beginning of a line, perhaps as an item of a list.
_LINE_LABEL = re.compile(rf"^[ \t>*-]*{_LABEL.pattern}", re.MULTILINE)


def same_choice(given: str, gold: str, question: str = "") -> bool:
    """Return whether two answers name the same options.

    question: shows the options, if it is known.

    >>> question = "2 + 2? A) 3 B) 4"
    >>> [same_choice(given, "B", question) for given in ("B", "B) 4", "B: 3", "B: it is even")]
    [True, True, False, True]
    """
    gold_letters, gold_text = split_option(gold)
    # 1. A letter with the text of an option that the question shows must be that option's letter.
    # The text may then have any words: D) not enough information. If one of the two labels stands
    # twice in the question, as in a dialogue, nothing is refused for another label's text.
    option = _OPTION.fullmatch(plain_text(given))
    if option and not gold_text:
        # Where options begin lines, what looks like a label within a line is a part of a text.
        in_lines = len(_LINE_LABEL.findall(question)) > 1
        _, *parts = (_LINE_LABEL if in_lines else _LABEL).split(question)
        labels = [label.upper() for label in parts[::2]]
        texts = [text.partition("\n")[0].rstrip(" ;|") for text in parts[1::2]]
        shown = list(zip(labels, texts, strict=True))
        owners = {label for label, text in shown if same_text(option["text"], text)}
        letter = (option["bracketed"] or option["bare"]).upper()
        if letter in owners:
            return gold_letters == {letter}
        is_clear = all(labels.count(label) == 1 for label in {letter, *owners})
        if owners and is_clear and dict(shown)[letter]:
            return False

    # 2. Other answers name letters, perhaps with a text.
    letters, text = split_option(given)
    if not letters:  # the answer may be the option's text alone
        return gold_text != "" and same_text(given, gold_text)
    if letters != gold_letters:
        return False
    if not text or gold_text:  # the text may be left out, on either side
        return not text or same_text(text, gold_text)
    # The row's answer is a letter alone, and the text after it must not be another letter.
    return not split_option(words_of(text))[0]


def split_option(text: str) -> tuple[frozenset[str], str]:
    """Return the letters that an answer names, in upper case, and the text after a single letter.

    >>> split_option("(b) London"), split_option("A or B")
    ((frozenset({'B'}), 'London'), (frozenset(), ''))
    """
    text = plain_text(text)
    # All 26 letters, joined by `and`, have 151 characters. A longer text is not tried, because the
    # time of _LETTERS grows with the square of the number of spaces in a row.
    if len(text) <= 200 and _LETTERS.fullmatch(text):
        return frozenset(re.findall(r"\b[A-Z]\b", text.upper())), ""
    option = _OPTION.fullmatch(text)
    if not option or _ANOTHER.search(option["text"]):
        return frozenset(), ""
    letter = option["bracketed"] or option["bare"]
    return frozenset(letter.upper()), option["text"]


# --- Exact ----------------------------------------------------------------------------------------

_LATEX_ARROW = re.compile(r"\\(?:right|longright)arrow|\\to\b")
# Braces of an index or an exponent: H_{2}O, Ca^{2+}.
_BRACED = re.compile(r"([_^])\{([\w+-]*)\}")
# An arrow, a colon or a dash, with the spaces around it.
_SPACED_SIGN = re.compile(r"\s*(->|[:-])\s*")
# An index follows a letter or a bracket: H_2, (OH)_2. The base of 101_2 is no index.
_INDEX = re.compile(r"(?<=[A-Za-z)\]])_(\d+)", re.ASCII)
# A charge ends with its sign: Ca^2+, Cl^-. The exponents of 10^2 and 10^-3 are no charges.
_CHARGE = re.compile(r"\^(\d*[+-])(?!\w)", re.ASCII)
# A plain index before a charge that is marked already: the 4 of SO4²⁻.
_INDEX_BEFORE_CHARGE = re.compile(r"(?<=[A-Za-z)\]])\d+(?=[⁺⁻])", re.ASCII)
# Translations of single characters.
_TO_INDEX = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
_TO_CHARGE = str.maketrans("0123456789+-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻")
_TO_PLAIN = str.maketrans("₀₁₂₃₄₅₆₇₈₉⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "01234567890123456789+-")


def same_code(given: str, gold: str) -> bool:
    """Return whether two codes have the same characters.

    A plain digit or sign may be an index or a charge; an index is not a charge.
    """
    code = code_of(given)
    gold_code = code_of(gold)
    if code.translate(_TO_PLAIN) != gold_code.translate(_TO_PLAIN):
        return False
    # H2O is H₂O, but O²⁻ is not O₂⁻
    for character, gold_character in zip(code, gold_code, strict=True):
        one_is_plain = character.isascii() or gold_character.isascii()
        if character != gold_character and not one_is_plain:
            return False
    return code != ""


def code_of(text: str) -> str:
    """Return a code in one spelling, with raised charges and lowered indices where they are marked.

    >>> code_of("Ca^{2+}"), code_of("H_2O"), code_of("H2O"), code_of("3 : 4"), code_of("101_{2}")
    ('Ca²⁺', 'H₂O', 'H2O', '3:4', '101_2')
    >>> code_of("O2^-"), code_of("O_2^-"), code_of("O^{2-}")
    ('O₂⁻', 'O₂⁻', 'O²⁻')
    """
    # 1. Use the characters of a keyboard, without LaTeX.
    text = plain_text(text)  # **H₂O** becomes H_{2}O, and a → becomes ->
    text = _LATEX_ARROW.sub("->", text)  # A \to B becomes A -> B
    text = without_latex(text)  # \mathrm{CO_2} becomes CO_2
    text = " ".join(text.split()).removesuffix(".")

    # 2. Remove braces and spaces, because the patterns of step 3 allow none.
    text = _BRACED.sub(r"\1\2", text)  # Ca^{2+} becomes Ca^2+
    if "->" in text:  # a chemical reaction
        text = text.replace(" ", "")  # 2 H_2 + O_2 -> 2 H_2O becomes 2H_2+O_2->2H_2O
    text = _SPACED_SIGN.sub(r"\1", text)  # 3 : 4 becomes 3:4

    # 3. Mark indices and charges: SO_4^2- becomes SO₄^2-, and then SO₄²⁻.
    text = _INDEX.sub(lambda index: index[1].translate(_TO_INDEX), text)
    text = _CHARGE.sub(lambda charge: charge[1].translate(_TO_CHARGE), text)
    # Only now does a sign show that a plain digit before it is an index: O2^- became O2⁻, and
    # becomes O₂⁻. It is the same as O_2^-. O^{2-} is another ion: both its characters are raised.
    return _INDEX_BEFORE_CHARGE.sub(lambda index: index[0].translate(_TO_INDEX), text)
