"""What a short answer means: a number, a mathematical expression, or a text."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from helpers.rewards import symbolic

_LONGEST_NUMBER = 100  # characters; what is longer is no number, so no completion can cost more than a regex on 100
_LONGEST_MATH = 300
_LONGEST_BOXED = 1000
_DEEPEST_MATH = 25  # nested braces or brackets; nobody's answer is deeper, a bomb is
_DECIMALS_THAT_COUNT = 6  # what math-verify, and so TRL's accuracy_reward, rounds decimals to
_CURRENCY = "$€£¥₹"
_NUMBER = re.compile(
    rf"""(?P<sign>[+-]?)\s?(?P<currency>[{_CURRENCY}])?\s?(?P<again>[+-]?)
        (?:(?P<mixed>\d+)\s+(?=\d+\s?/))?
        (?P<whole>\d{{1,3}}(?:[, ]\d{{3}})+|\d+)?(?P<decimals>\.\d*)?(?:[eE](?P<exponent>[+-]?\d{{1,3}}))?
        (?:\s?/\s?(?P<denominator>\d+))?
        \s?(?P<percent>%|percent|per\scent|pct)?\s?(?P<behind>[{_CURRENCY}])?\s?
        (?P<unit>[a-zA-Z°]+(?:[\s/][a-zA-Z]+){{0,2}}(?:\^?[23²³])?)?\.?""",
    re.VERBOSE | re.ASCII,
)
# What stands behind a number and is no unit: half of an alternative, or a doubt.
_NO_UNIT = re.compile(
    r"\b(?:or|and|not?|but|nor|e|x|y|z|k|bn|mil|to|i|if|is|maybe|perhaps|either|likely|about|approx|around|almost|guess|think"
    r"|unsure|sure|unknown|wrong|incorrect|false|wait|none|else|than|more|less|least|most|over|under|below|above|negative"
    r"|minus|plus|times|point|base|modulo?|factorial|half|halves|halved|doubled|tripled|lakh|crore|zero|one|two|three|four"
    r"|five|six|seven|eight|nine|ten|\w+ly|(?:fif|six|seven|eigh|nin|ten|hundred|thousand|million)ths?)\b|^(?:squared|cubed|thirds?|quarters?)\b"
)
_GLUED_UNIT = re.compile(
    r"[cdkmµ]?[mglsWVAJN](?:/\w+|\^?[23²³])?|°.?|min|h|hrs?|mph|kmh|ft|in|yd|mi|lbs?|oz|k?cal|k?Hz|[CF]|px"
)
_SAME_UNIT = {"meter": "m", "metre": "m", "kilometer": "km", "kilometre": "km", "centimeter": "cm", "centimetre": "cm"}
_SAME_UNIT |= {"millimeter": "mm", "kilogram": "kg", "gram": "g", "liter": "l", "litre": "l", "hour": "h", "minute": "min"}
_SAME_UNIT |= {
    "second": "s",
    "dollar": "$",
    "usd": "$",
    "buck": "$",
    "euro": "€",
    "eur": "€",
    "pound sterling": "£",
    "gbp": "£",
}
_SCALES = {"dozen": 12, "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}

_BOXES = (
    (r"\boxed{", "}"),
    (r"\text{", "}"),
    (r"\mathrm{", "}"),
    (r"\textbf{", "}"),
    ("$$", "$$"),
    ("$", "$"),
    (r"\(", r"\)"),
    (r"\[", r"\]"),
)
_SPELLINGS = [  # LaTeX on the left, what a keyboard would type on the right
    (
        re.compile(r"\\[dtc]?frac\s*\{\s*(-?\d+)\s*\}\s*\{\s*(\d+)\s*\}(?!\s*\d)|\\[dtc]?frac\s*(\d)\s*(\d)(?!\d)"),
        r" \1\3/\2\4",
    ),
    (re.compile(r"\\(?:text|textbf|mathrm|mathbf|operatorname)\s*\{([^{}]*)\}"), r" \1 "),
    (re.compile(r"\{,\}|\\[,!]"), ","),
    (re.compile(r"(?:\\[;: ]|(?<=.)~|\\left|\\right)"), " "),
    (re.compile(r"\\([%$])"), r"\1"),
    (re.compile(r"\^\s*\{?\s*\\circ\s*\}?"), "°"),
    (re.compile(r"\b(\d[\d,]*(?:\.\d+)?)\s?(?:\\times|\\cdot|[×*x])\s?10\s?(?:\^|\*\*)\s?\{?([+-]?\d{1,3})\}?"), r"\1e\2"),
    (re.compile(r"(?<![\d.,])10\s?\^\s?\{?([+-]?\d{1,3})\}?"), r"1e\1"),
    (re.compile(r"^\s*[a-zA-Z]\s?=\s?(?=[^=]*$)"), ""),
]
# Minus signs, dashes and spaces that look like the plain ones, and the fractions that are one character.
_TYPED = str.maketrans({"−": "-", "–": "-", "－": "-", "\u00a0": " ", "\u2009": " ", "\u202f": " "})
_TYPED |= {ord(c): f" {n}/{d}" for c, n, d in (("½", 1, 2), ("¼", 1, 4), ("¾", 3, 4), ("⅓", 1, 3), ("⅔", 2, 3), ("⅕", 1, 5))}
_NAMED = re.compile(r"\s*\\?[a-zA-Z]\w*'?\s*(?:\([\w, ]*\))?\s*=[^=<>]+")  # y = …, f(x) = …
_CHOICE = re.compile(r"\(?([a-z])\)?")
_NEEDS_RESPELLING = re.compile(r"[\\{$^×*=~]")

_OPERATOR = re.compile(r"[+*/×÷·]|(?<=[\w})])\s*-|\\(?:times|cdot|div|pm|mp|ast)\b")
_UNFINISHED = re.compile(rf"{_OPERATOR.pattern}|[!^|√]|\\(?!boxed|text|[,%$])|\d\s(?:{'|'.join(_SCALES)})\b")
_NOTATION = re.compile(r"\s|\\(?:left|right)|[\\{}()$]")
_VALUES = {r"\sqrt", r"\pi", r"\log", r"\ln", r"\sin", r"\cos", r"\tan", r"\exp", r"\left", r"\right", r"\text", r"\boxed"}
_FRACTION = re.compile(r"-?(\d{1,20})\s?/\s?(\d{1,20})", re.ASCII)
_MATHEMATICAL = re.compile(r"[\d\\^_=+*/<>()\[\]{}|√π∞∪∩≤≥-]")
_COMMAND = re.compile(r"\\[a-zA-Z]+")
_WORD = re.compile(r"[^\W\d_]{3,}")
_FUNCTIONS = re.compile(r"sin|cos|tan|cot|sec|csc|log|exp|sqrt|arcsin|arccos|arctan|sinh|cosh|tanh|det|deg|min|max|inf|sup")


class Number(NamedTuple):
    """A number as it was written.

    value: exact, 50% is 1/2. unit: casefolded, "" without one. numeral: its digits as typed, without sign, separators and
    percent sign. percent, whole: whether it was written as a percentage, and without point and fraction.
    """

    value: Fraction | int
    unit: str = ""
    numeral: str = ""
    percent: bool = False
    whole: bool = True


def same_answer(given: str, gold: str, question: str = "") -> bool:
    """Whether an answer means what the row's answer means: as numbers, as mathematics, or as text.

    Two numbers are compared by value and, where both name one, by unit. Decimals agree to six places, except that a whole
    number is equal to itself alone; `50%` is 0.5, and also 50 where 50 is what was asked: the verdicts of math-verify.
    Against a number, arithmetic that was not carried out (`17 + 25`) is no answer, nor is one copied from the `question`.
    Everything mathematical that is not a plain number goes to `symbolic.equal`; all else is compared as text, without regard
    to case, spacing and a final full stop.

    >>> same_answer("1,000 dollars", "1000.0"), same_answer("1/2", "50%"), same_answer("5 km", "5 m"), same_answer("", "")
    (True, True, False, False)
    """
    verdict = quick_verdict(given, gold, question)
    return symbolic.equal([(unboxed(gold), unboxed(given))])[0] if verdict is None else verdict


def quick_verdict(given: str, gold: str, question: str = "") -> bool | None:
    """`same_answer` wherever numbers and text decide it; None for the pairs that math-verify has to judge."""
    if given == gold and gold.isascii() and gold.isdigit():
        return True
    a, b = parse_number(given), parse_number(gold)
    if question and _not_worked_out(given, a, question) and _as_text(given) != _as_text(gold):
        return False
    if a is not None and b is not None:
        return _same_number(a, b)
    if _as_text(given) == _as_text(gold):
        return _as_text(given) not in ("", "nan", "inf", "-inf", "+inf")
    if not (looks_mathematical(gold) and looks_mathematical(given)) or (b is not None and _is_a_task(given)):
        return False
    if "=" in given and "=" not in gold and not _NAMED.fullmatch(given):  # of 13 = 12, math-verify judges the last side
        return False
    return None


def _same_number(given: Number, gold: Number) -> bool:
    if given.unit and gold.unit and given.unit != gold.unit:
        return False
    if given.value == gold.value:
        return True
    if given.percent != gold.percent and given.numeral == gold.numeral:  # "what per cent": 50% against 50
        return (given.value < 0) == (gold.value < 0) if gold.percent else gold.whole and given.value >= 0 and gold.value >= 0
    if any(number.whole and number.value.denominator == 1 for number in (given, gold)):
        return False
    decimals = "." in given.numeral or "." in gold.numeral
    return decimals and round(given.value, _DECIMALS_THAT_COUNT) == round(gold.value, _DECIMALS_THAT_COUNT)


def _is_a_task(given: str) -> bool:
    """Whether an expression leaves something to do where a number was asked for: of those, roots and powers are values."""
    return bool(_OPERATOR.search(given) or not _VALUES.issuperset(_COMMAND.findall(given)) or re.search(r"!|--|max|min", given))


def parse_number(text: str) -> Number | None:
    """A text that is one number, or None.

    Understands signs (the Unicode minus too), a currency sign, thousands separators, decimals, exponents up to three digits,
    a/b, mixed numbers, percent (50% is 0.5), up to three words of unit behind, an `x =` before, and the LaTeX spellings of all
    that, in `\\boxed{}` or dollars. `nan`, `inf`, ranges, doubts and alternatives are not numbers.

    >>> str(parse_number("−1,234.50").value), parse_number("42 or 43"), str(parse_number(r"\\boxed{\\frac{1}{2}}").value)
    ('-2469/2', None, '1/2')
    """
    return _parsed(text) if len(text) <= _LONGEST_NUMBER else None


@lru_cache(maxsize=1 << 16)
def _parsed(text: str) -> Number | None:
    text = text.strip("`*_ \t\n\r\u200b\ufeff")  # Markdown's emphasis, and what nobody sees
    if text.startswith("\\"):
        text = unboxed(text)
    if text.isascii() and text.isdigit():
        return Number(int(text), numeral=text.lstrip("0"))
    if not text.isascii():
        text = text.translate(_TYPED)
    if _NEEDS_RESPELLING.search(text):
        text = _respelled(text)
    match = _NUMBER.fullmatch(text.strip())
    return _number(match) if match else None


def _number(match: re.Match) -> Number | None:
    whole, decimals = (match["whole"] or "").replace(",", "").replace(" ", ""), match["decimals"] or ""
    if not (whole or decimals.strip(".")) or (match["sign"] and match["again"]):
        return None
    value: Fraction | int = int(whole or 0)
    if digits := decimals[1:].rstrip("0"):
        value = Fraction(int(whole + digits), 10 ** len(digits))
    if match["exponent"]:
        value *= Fraction(10) ** int(match["exponent"])
    numeral = whole.lstrip("0") + decimals.rstrip(".") + (match["exponent"] or "")
    if match["denominator"]:
        if not int(match["denominator"]) or (match["mixed"] and value >= int(match["denominator"])):
            return None  # 48 27/1 is no mixed number, it is a product in disguise
        value = Fraction(value, int(match["denominator"])) + int(match["mixed"] or 0)
        numeral = f"{match['mixed'] or ''} {numeral}/{match['denominator']}"
    if match["percent"]:
        value = Fraction(value, 100)
    scale, unit = 1, match["currency"] or match["behind"] or ""
    if match["unit"]:
        scale, named = _unit(match["unit"], glued=not match.string[match.start("unit") - 1].isspace())
        if named is None:
            return None
        unit = named or unit
    plain = not (decimals.strip(".") or match["denominator"])
    value = -value if "-" in (match["sign"], match["again"]) else value
    return Number(value * scale, unit, numeral, bool(match["percent"]), plain)


def _unit(text: str, glued: bool) -> tuple[int, str | None]:
    """What the words behind a number multiply it by, and the unit; None where they are no unit."""
    if glued and not _GLUED_UNIT.fullmatch(text):  # 5km is a length, 2y a term
        return 1, None
    first, _, rest = text.casefold().partition(" ")
    scale, unit = (_SCALES[first], rest) if first in _SCALES else (1, text.casefold())
    if _NO_UNIT.search(unit):
        return 1, None
    unit = unit.replace("°", "degrees")
    singular = unit.removesuffix("s").removesuffix("e") if len(unit) > 3 else unit
    return scale, _SAME_UNIT.get(unit) or _SAME_UNIT.get(unit.removesuffix("s")) or singular


def looks_mathematical(text: str) -> bool:
    """Whether a text is worth parsing as mathematics: short, balanced, not too deep, and free of prose.

    >>> looks_mathematical(r"x^2 + \\frac{1}{2}"), looks_mathematical("Paris"), looks_mathematical("{" * 300)
    (True, False, False)
    """
    if len(text) > _LONGEST_MATH or not _MATHEMATICAL.search(text) or "__" in text:
        return False
    words = _WORD.findall(_COMMAND.sub(" ", text))
    if not all(map(_FUNCTIONS.fullmatch, words)) or re.search(r"\b(or|and|not)\b", text):
        return False
    depth = 0
    for character in text:
        depth += (character in "{[(") - (character in "}])")
        if not 0 <= depth <= _DEEPEST_MATH:
            return False
    return depth == 0 and text.count("{") == text.count("}")


def _not_worked_out(given: str, number: Number | None, question: str) -> bool:
    """Whether the answer hands the task back: an expression of the question's, or a division that comes out even."""
    if given.isalnum():
        return False
    if number is not None and "/" in number.numeral and number.value.denominator == 1 and not number.numeral.endswith("/1"):
        return True
    if not _UNFINISHED.search(given):
        return False
    fraction = _FRACTION.fullmatch(_respelled(given))
    if fraction and math.gcd(int(fraction[1]), int(fraction[2])) == 1:
        return False
    return _bare(unboxed(given)) in _bare(question)


def _bare(text: str) -> str:
    return _NOTATION.sub("", text)


def _respelled(text: str) -> str:
    text = unboxed(text)
    for pattern, plain in _SPELLINGS:
        text = pattern.sub(plain, text)
    return text.strip()


def unboxed(text: str) -> str:
    """The text without the `\\boxed{}`, `\\text{}`, dollars or LaTeX brackets that surround the whole of it."""
    text = text.strip()
    if len(text) > _LONGEST_BOXED:
        return text
    for _ in range(_DEEPEST_MATH):
        if not text.startswith(("\\", "$")):
            break
        for opening, closing in _BOXES:
            inside = text[len(opening) : -len(closing)]
            if text.startswith(opening) and text.endswith(closing) and len(text) > len(opening) and _is_one(inside, opening):
                text = inside.strip()
                break
        else:
            break
    return text


def _is_one(inside: str, opening: str) -> bool:
    """Whether the text between an opening and a closing never closes it: `\\boxed{1}, \\boxed{2}` are two boxes."""
    if not opening.endswith("{"):
        return opening not in inside
    if "{" not in inside and "}" not in inside:
        return True
    depth = 0
    for character in inside:
        depth += (character == "{") - (character == "}")
        if depth < 0:
            return False
    return depth == 0


def _as_text(text: str) -> str:
    if len(text) > _LONGEST_BOXED:
        return text.strip()
    plain = " ".join(unboxed(text.strip("*_` ")).casefold().split()).removesuffix(".")
    choice = _CHOICE.fullmatch(plain)
    return choice[1] if choice else plain
