r"""The kind of an answer, which decides how it is judged. The row's own answer says which; a `kind` may be given instead.

In the examples the row's answer stands on the right: `given` = `answer` is right, `given` ≠ `answer` is wrong.

| kind | the same is | never the same is |
|---|---|---|
| number | the value, however it is spelt; decimals to six places: `0.\overline{3}` = `1/3`, `twelve` = `12`, `50%` = `0.5`, `5 km` = `5` | a multiple, a part, or arithmetic not carried out: `5 lakhs` ≠ `5`, `6*7` ≠ `42` |
| quantity | value and unit after conversion; the unit may be left out: `5000 m` = `5 km`, `50 cents` = `$0.50`, `5` = `5 km` | another unit or thing counted: `5 mW` ≠ `5 MW`, `5 oranges` ≠ `5 apples`, `5000` ≠ `5 km` |
| mathematics | an equal expression, as math-verify finds; the name before may be left out: `(x+1)^2` = `x^2+2x+1`, `3` = `y=3`. With primes, derivatives, vectors, memberships, remainders or a product of capitals nothing is computed, and the spelling must be the same: `IR = V` = `V = IR` | another variable, relation or case, also of the name: `x=3` ≠ `y=3`, `x > 1` ≠ `x \geq 1`, `p+1` ≠ `P+1`, `X = 3` ≠ `x = 3`; another order where it may count: `f(x)` ≠ `f'(x)`, `BA^{-1}` ≠ `A^{-1}B`, `\frac{dx}{dy}` ≠ `\frac{dy}{dx}`, `A \in x` ≠ `x \in A` |
| set | equal elements; in sets and lists of solutions in any order: `{2, 1}` = `\{1,2\}`, `x = 3 or x = 2` = `x = 2 or x = 3` | other brackets, another number of elements, the order of a tuple, a name in another case: `(1,2)` ≠ `{1,2}`, `(2,1)` ≠ `(1,2)`, `X = 3 or X = 2` ≠ `x = 3 or x = 2` |
| choice | the same letters: `(A)` = `A`, `A) Paris` = `A`, `C and A` = `(A), (C)` | another letter, several for one, a grade: `A or B` ≠ `A`, `A*` ≠ `A` |
| date | the same date or time of day, whatever its format: `Jan 5` = `January 5`, `15:30` = `3:30 PM` | one that says less or more, or 01/02/2024 in words: `2024` ≠ `2024-01-02`, `3pm` ≠ `3am` |
| token | the same characters, with one dash and without spaces around it: `5–10` = `5-10`, `v1.2.3` = `1.2.3`, `7 remainder 2` = `7 R 2` | anything computed from it, in another order or case: `1` ≠ `1-0`, `6 in 1` ≠ `1 in 6`, `192.168.1.0` ≠ `192.168.0.1`, `my_Var` ≠ `my_var` |
| formula | the same symbols in the same order: `H₂O` = `H_2O`, `Ca²⁺` = `Ca^{2+}` | other numbers, order or case: `NO2` ≠ `N2O`, `CO` ≠ `Co`, `h2o` ≠ `H2O` |
| text | the same words without regard to quotes, spacing and final punctuation, and to case in ordinary words: `“paris”` = `Paris`, `Yes!` = `Yes` | other words, accents or hyphens, or a choice of two: `Paris or London` ≠ `Paris`; a symbol, code or abbreviation in another case: `line ab` ≠ `line AB`, `aa` ≠ `Aa`, `grep -V` ≠ `grep -v` |
"""  # noqa: E501

from __future__ import annotations

import re
from functools import lru_cache

from helpers.rewards.answers import dates, formulas, mathematics, numbers, sets, units
from helpers.rewards.answers.spelling import LONGEST, plain

KINDS = ("number", "quantity", "mathematics", "set", "choice", "date", "token", "formula", "text")

_LETTER = r"[A-Z]"
_CHOICE = re.compile(
    rf"(?i:(?:option|choice|answer)\s*:?\s*)?(?:[(\[]\s*(?P<boxed>[A-Za-z])\s*[)\]]|(?P<bare>{_LETTER})(?:[.)!]|$))"
    rf"|(?P<low>[a-df-hj])[.)]?"
)
_OPTION = re.compile(
    r"(?:\((?P<boxed>[A-Za-z])\)|(?P<bare>[A-Za-z])(?P<mark>[.):])(?=\s))\s*(?P<text>[^\s,;&].*)",
    re.DOTALL,
)
_INITIAL = re.compile(r"[E-Z]\.\s|[A-Za-z]\.\s[a-z]|[a-z]\.\s")  # E. coli, J. Smith
_SEVERAL = re.compile(
    r"\(?[A-Z]\)?(?:(?:\s*,\s*(?:and\s+)?|\s*;\s*|\s+and\s+|\s*&\s*)\(?[A-Z]\)?)+"
)
_VALUE = r"[+-]?[$€£]?\d+(?:,\d{3})*(?:\.\d+)?"
_SPAN = re.compile(
    rf"(?:from\s|between\s)?({_VALUE}\s?%?)\s?(?:-|\bto\b|(?<=\s)and\b)\s?({_VALUE}\s?%?)(?:\s?([a-zA-Z°$€£%][^\d+*/=^]*))?"
)
_GROUPS = re.compile(r"\d+(?:\s?-\s?\d+){2,}")  # 1-0-0, 12-34-56
_SIZE = re.compile(r"\d+(?:\.\d+)?(?:\s?(?:x|×|\bby\b|\\times)\s?\d+(?:\.\d+)?)+")
_SLASHED = re.compile(r"(\d+)/(\d+)")
_RATIO = re.compile(r"\d+(?:\.\d+)?(?:\s?:\s?\d+(?:\.\d+)?)+")
_DOTTED = re.compile(
    r"(?:version\s|v)?\d+(?:\.\d+){2,}(?:[-+.]?[a-zA-Z]\w*)*|v\d+(?:\.\d+)+", re.IGNORECASE
)
_PHONE = re.compile(
    r"(?=\+|.*\d[-)])(?:\+?\d{1,3}[ -])?(?:\(\d{2,4}\)[ -]?|\d{2,4}[ -])\d{3}[ -]?\d{3,4}"
)
_BASED = re.compile(
    r"\(?([\dA-Fa-f]+(?:\.[\dA-Fa-f]+)?)\)?\s*(?:_\s*\{?\s*(\d{1,2})\s*\}?|\(?\s*(?:in\s)?base\s(\d{1,2})\)?)"
)
_HEXADECIMAL = re.compile(
    r"(?:0[xX]|#)[0-9a-fA-F]+|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|0b[01]+|0o[0-7]+"
)
_ZEROS = re.compile(r"0\d{4,}")  # a code; a competition's answers such as 033 are numbers
_DECADE = re.compile(r"(?:the\s)?(?:'?\d0|\d{3}0)'?s")
_PLACE = re.compile(r"(\d+)(?:st|nd|rd|th)(?:\splace)?")
_REMAINDER = re.compile(
    r"(\d+)\s*(?:R|r|remainder)\s*(\d+)|(\d+)\s+(?i:(in|of|out\sof|per|over|choose|mod))\s+(\d+)"
)
_GRADE = re.compile(r"[A-F](?:\*{1,2}|[+#-]{1,2})")
_CODE = re.compile(
    r"[a-z]\w*[a-z0-9][A-Z]\w*|\S*\w_\w{2,}\S*|_+\w+|\S*\w\(.*\)\S*|\S*[a-zA-Z]\w+\.[a-zA-Z]\w+\S*|\S*[/\\]\w{2,}[/\\]\S*|\S*[a-zA-Z]\S*(?:==|::|=>|\|\||&&|@|~)\S*"
    r"|\S*\w[*&]+|\S*[\]}]\S*[a-zA-Z]{2,}\S*|(?=\w*\d)(?=\w*[a-z])(?=\w*[A-Z])\w*[a-z0-9][A-Z]\w*"
)
_NAME = re.compile(  # AC/DC, N/A, F-16, 4K, mp3: letters that are no variables
    r"[A-Z]+(?:[/-][A-Z]+)+|[A-Za-z]{2,}(?:[/-][A-Za-z]{2,})+|[A-Za-z]{2,}|n/a|[A-Z]{1,3}-?\d{2,}[A-Za-z]?|[\w.,]*\d\s+[A-Za-z]{2,}"
    r"|(?=\d*[a-zA-Z])(?=[a-zA-Z]*\d|\w*[A-Z])(?!\d+[a-z]{1,3}$)[a-zA-Z0-9]+"
)
_PRODUCT = re.compile(r"[b-df-hj-np-tv-z]{2}")  # xy, and not: no, up
_CONSTANT = re.compile(r"[+-]?\s?(?:infinity|pi)")


def kind_of(gold: str) -> str:
    """The kind of a row's answer, one of KINDS: how it will be judged.

    What is not clearly anything else is text.

    >>> [kind_of(gold) for gold in ("1,000", "5 km", "x^2+1", "{1, 2}", "B")]
    ['number', 'quantity', 'mathematics', 'set', 'choice']
    >>> [kind_of(gold) for gold in ("2024-01-02", "10.0.0.1", "H2O", "Paris")]
    ['date', 'token', 'formula', 'text']
    """
    return _kind(gold) if len(gold) <= LONGEST else "text"


@lru_cache(maxsize=1 << 16)
def _kind(gold: str) -> str:
    if gold.isdecimal() and gold.isascii() and not _ZEROS.fullmatch(gold):
        return "number"
    text = plain(gold) if gold.endswith("..") else plain(gold).removesuffix(".")
    if letters(text) and not _INITIAL.match(text):
        return "choice"
    if dates.moment(text):
        return "date"
    if token(text) is not None:
        return "token"
    if _DECADE.fullmatch(text):
        return "text"
    number = numbers.parse_number(gold)
    if number is not None and "=" not in text:
        return "quantity" if number.unit else "number"
    if numbers.compound(gold):
        return "quantity"
    if formulas.is_formula(text):
        return "formula"
    if _is_code(text):
        return "token"
    if sets.collections(gold) is not None:
        return "set"
    if _CONSTANT.fullmatch(text) or _PRODUCT.fullmatch(text) or re.fullmatch(r"[a-zA-Z]", text):
        return "mathematics"
    expression, _ = mathematics.without_unit(gold)
    return (
        "mathematics"
        if mathematics.looks_mathematical(mathematics.latex(expression))
        and not _NAME.fullmatch(text)
        else "text"
    )


def kind_of_row(row: dict) -> str:
    """The kind that a row of data is judged by: its own `kind` where that is one of KINDS, else
    that of its `answer`.
    """
    return row["kind"] if row.get("kind") in KINDS else kind_of(row["answer"])


def checked(kind: str) -> str:
    """The kind itself; ValueError where there is none of this name."""
    if kind not in KINDS:
        raise ValueError(
            f"kind={kind!r} is no kind of answer. Known: {', '.join(KINDS)}; leave it out to have "
            "it recognised."
        )
    return kind


def letters(text: str) -> tuple[str, ...]:
    """The letters of a choice, () where a text is none: `(A)`, `A.`, `option A`, `A) Paris`, `A,
    C`.

    Several come sorted where the answer has them in the order of the alphabet, or are two;
    otherwise they are a ranking.

    >>> letters("(c)"), letters("C and A"), letters("B) London"), letters("A or B"), letters("I am")
    (('C',), ('A', 'C'), ('B',), (), ())
    """
    if len(text) > LONGEST:
        return ()
    text = text.strip()
    if single := _CHOICE.fullmatch(text):
        return ((single["boxed"] or single["bare"] or single["low"]).upper(),)
    if _SEVERAL.fullmatch(text):
        found = re.findall(_LETTER, text)
        return tuple(sorted(found)) if len(found) == 2 else tuple(found)
    option = _OPTION.fullmatch(text)
    # What follows must be the option's text: no second letter, no second thought.
    if not option or re.search(
        r"(?i)\b(?:or|not|but|no|wrong|incorrect|and\s+\(?[A-Z]\)?)\b|\([A-Za-z]\)|\b[B-HJ-Z]\b",
        option["text"],
    ):
        return ()
    return ((option["boxed"] or option["bare"]).upper(),)


def option_text(text: str) -> str:
    """The words behind the letter of a choice: London of `(B) London`, "" where there are none."""
    option = _OPTION.fullmatch(text.strip()) if len(text) <= LONGEST else None
    return option["text"] if option and letters(text) else ""


def token(text: str) -> str | None:
    """A code-like answer in the one spelling that is compared, or None: a range, score, ratio,
    version, address, phone number, number with a base, place, grade. Code itself is compared as it
    stands (`same_token`).

    >>> token("5 to 10"), token("3 : 4"), token("101_{2}"), token("v1.2.3"), token("x - 1")
    ('5-10', '3:4', '101_2', '1.2.3', None)
    """
    if len(text) > LONGEST:
        return None
    text = text.strip().removesuffix(".")
    if (_PHONE.fullmatch(text) and not _SPAN.fullmatch(text)) or re.fullmatch(
        r"\d{3}[- ]\d{4}", text
    ):
        return re.sub(r"\D+", "-", text).strip("-")
    if (span := _SPAN.fullmatch(text)) and text.startswith("between ") >= (" and " in text):
        unit = " ".join((span[3] or "").split())
        return (
            f"{span[1].strip()}-{span[2].strip()}{unit and ' '}{unit}".replace(" %", "%")
            if not unit or _is_unit(unit)
            else None
        )
    if _RATIO.fullmatch(text) or _GROUPS.fullmatch(text):
        return text.replace(" ", "")
    if _SIZE.fullmatch(text):
        return re.sub(r"\s?(?:x|×|by|\\times)\s?", "x", text)
    if (
        (slashed := _SLASHED.fullmatch(text))
        and slashed[2].strip("0") not in ("", "1")
        and not int(slashed[1]) % int(slashed[2])
    ):
        return text  # 50/50, 20/20: what comes out even is no fraction
    if _DOTTED.fullmatch(text):
        return text.casefold().removeprefix("version ").removeprefix("v")
    if based := _BASED.fullmatch(text):
        return f"{based[1]}_{based[2] or based[3]}".upper()
    if _HEXADECIMAL.fullmatch(text):
        return text.casefold()
    if ordered := _REMAINDER.fullmatch(text):  # 7 R 2, 1 in 6
        one, rest, several, word, of = ordered.groups()
        return f"{one} R {rest}" if one else f"{several} {word.casefold()} {of}"
    if place := _PLACE.fullmatch(text):
        return f"{place[1]}th"
    if re.fullmatch(r"[A-Za-z -]{1,40}(?:st|nd|rd|th)", text) and (place := units.ordinal(text)):
        return f"{place}th"
    return text if _ZEROS.fullmatch(text) or _GRADE.fullmatch(text) else None


def same_token(given: str, gold: str) -> bool:
    """Whether two code-like answers are the same, character for character but for the spellings
    that `token` knows.
    """
    one, other = plain(given).removesuffix("."), plain(gold).removesuffix(".")
    if _PHONE.fullmatch(other) and re.fullmatch(r"[\d() +-]+", one):
        return re.findall(r"\d+", one) == re.findall(r"\d+", other)
    return one == other or (token(one) == token(other) is not None)


def _is_unit(text: str) -> bool:
    return numbers.parse_number(f"5 {text}") is not None


def _is_code(text: str) -> bool:
    if " " in text or len(text) < 2 or "\\" in text or not _CODE.fullmatch(text):
        return False
    return not mathematics.looks_mathematical(mathematics.latex(text))  # f(x), a_1
