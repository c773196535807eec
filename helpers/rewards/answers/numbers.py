"""Numbers as people write them, read exactly: digits, LaTeX, or words; with the unit
behind them.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from helpers.rewards.answers import units
from helpers.rewards.answers.spelling import plain, unboxed

# characters; what is longer is no number, so no completion can cost more than a regex on 100
_LONGEST = 100
_DECIMALS_THAT_COUNT = 6  # what math-verify, and so TRL's accuracy_reward, rounds decimals to
_TINY = Fraction(1, 1000)
_MOST_WORDS = 12
_NUMBER = re.compile(
    rf"""(?P<sign>[+-]?)\s?(?P<currency>{units.CURRENCY})?\s?(?P<again>[+-]?)
        (?:(?P<mixed>\d+)\s+(?:and\s+)?(?=\d+\s?/))?
        (?P<whole>\d{{1,3}}(?:[, ]\d{{3}})+|\d{{1,2}}(?:,\d\d)+,\d{{3}}|\d+)?(?P<decimals>\.\d*)?
        (?:\((?P<repeating>\d+)\)|(?P<ellipsis>\.\.\.))?(?:[eE](?P<exponent>[+-]?\d{{1,3}}))?
        (?:\s?/\s?(?P<denominator>-?\d+))?
        \s?(?P<percent>%|percent|per\scent|pct)?\s?(?P<behind>{units.CURRENCY})?\s?
        (?P<unit>{units.PATTERN})?\.?""",
    re.VERBOSE | re.ASCII,
)
_SPELLINGS = [  # what must be in the text; LaTeX; what a keyboard would type
    (
        "frac",
        re.compile(
            r"\\[dtc]?frac\s*\{\s*(-?\d+)\s*\}\s*\{\s*(-?\d+)\s*\}(?!\s*\d)|\\[dtc]?frac\s*(\d)\s*(\d)(?!\d)"
        ),
        r" \1\3/\2\4",
    ),
    ("\\over", re.compile(r"^(-?)\{\s*(-?\d+)\s*\\over\s*(-?\d+)\s*\}$"), r"\1\2/\3"),
    ("frac", re.compile(r"\\[dtc]?frac\s*\{([^{}\d]+)\}\s*\{([^{}]+)\}"), r"\1/\2"),  # of units
    ("{", re.compile(r"\\(?:text|textbf|mathrm|mathbf|operatorname)\s*\{([^{}]*)\}"), r" \1 "),
    (",", re.compile(r"\{,\}|(?<=\d)\\,(?=\d)"), ","),
    ("\\!", re.compile(r"(?<=\d)\\!(?=\d)"), ","),
    ("\\", re.compile(r"\\(?:[;:,! ]|left|right)"), " "),
    ("~", re.compile(r"(?<=.)~"), " "),
    ("\\", re.compile(r"\\([%$])"), r"\1"),
    ("\\", re.compile(r"\^\s*\{?\s*\\circ\s*\}?|\\degree"), "°"),
    ("\\mu", re.compile(r"\\mu\s*(?=[a-zA-Z])"), "μ"),
    ("\\", re.compile(r"\\(?:Omega|ohm)\b"), "Ω"),
    (
        "10",
        re.compile(
            r"\b(\d[\d,]*(?:\.\d+)?)\s?(?:\\times|\\cdot|[×·*x])\s?10\s?(?:\^|\*\*)\s?\{?([+-]?\d{1,3})\}?"
        ),
        r"\1e\2",
    ),
    ("10", re.compile(r"(?<![\d.,^])10\s?\^\s?\{?([+-]?\d{1,3})\}?"), r"1e\1"),
    ("=", re.compile(r"^\s*[a-zA-Z]\s?=\s?(?=[^=]*$)"), ""),
    (".", re.compile(r"(\.\d*)\\(?:overline|bar)\s*\{?(\d+)\}?$"), r"\1(\2)"),
    ("^", re.compile(r"\s*\^\s*\{?([+-]?\d)\}?"), r"^\1"),  # m ^{2}
    ("\\cdot", re.compile(r"\\cdot(?![a-zA-Z])"), "·"),
]
_NEEDS_RESPELLING = re.compile(r"[\\{^×*=~]")
# a point, then a comma: the comma is the decimal
_EUROPEAN = re.compile(r"(?<![\d.,])(\d{1,3}(?:\.\d{3})+),(\d+)(?![\d.,])")
_MINUS = re.compile(r"(?i)(?:minus|negative)\s+(?=[\d.$€£])")
_SEPARATORS = str.maketrans("", "", ", ")


class Number(NamedTuple):
    """A number as it was written.

    value: exact, 50% is 1/2. unit: as typed, currencies as their sign, "" without one. numeral: its
    digits as typed, without sign, separators and percent sign. percent, whole: whether it was
    written as a percentage, and without point and fraction.
    """

    value: Fraction | int
    unit: str = ""
    numeral: str = ""
    percent: bool = False
    whole: bool = True


def parse_number(text: str) -> Number | None:
    """A text that is one number, or None.

    Understands signs (the Unicode minus too), a currency sign, thousands separators (1,000 and
    1,00,000), decimals, repeating ones (0.(3), 0.333…), exponents up to three digits, a/b, mixed
    numbers, percent (50% is 0.5), a unit behind, an `x =` before, number words, and the LaTeX
    spellings of all that, in `\\boxed{}` or dollars. `nan`, `inf`, ranges, doubts and alternatives
    are not numbers.

    >>> str(parse_number("−1,234.50").value), parse_number("42 or 43")
    ('-2469/2', None)
    >>> str(parse_number(r"\\boxed{\\frac{1}{2}}").value)
    '1/2'
    >>> str(parse_number("negative two thirds").value), str(parse_number("0.1(6)").value)
    ('-2/3', '1/6')
    """
    return _parsed(text) if len(text) <= _LONGEST else None


def same_number(given: Number, gold: Number) -> bool:
    """Whether two numbers have one value, by the rule of math-verify (decimals agree to six places,
    `50%` is 0.5 and also 50 where 50 is what was asked), except that a whole number is equal to
    itself alone. Units are not compared.
    """
    if given.value == gold.value:
        return True
    if (
        given.percent != gold.percent
        and given.numeral == gold.numeral
        and not (given.unit or gold.unit)
    ):
        # "What per cent": 50% against 50.
        return (
            (given.value < 0) == (gold.value < 0)
            if gold.percent
            else gold.whole and given.value >= 0 and gold.value >= 0
        )
    if any(number.whole and number.value.denominator == 1 for number in (given, gold)):
        return False
    decimals = "." in given.numeral or "." in gold.numeral
    # 1e-19 is not 1e-18, though both round to 0
    near = abs(given.value - gold.value) <= _TINY * abs(gold.value)
    return (
        decimals
        and near
        and round(given.value, _DECIMALS_THAT_COUNT) == round(gold.value, _DECIMALS_THAT_COUNT)
    )


def respelled(text: str) -> str:
    """The text with LaTeX's spellings of a number and its unit as a keyboard would type them."""
    for needed, pattern, spelling in _SPELLINGS:
        if needed in text:
            text = pattern.sub(spelling, text)
    return text.strip()


@lru_cache(maxsize=1 << 16)
def _parsed(text: str) -> Number | None:
    text = text.strip()
    if text.startswith(("\\", "$")):
        text = unboxed(text)
    if text[:1] in "mMnN":
        text = _MINUS.sub("-", text)
    if text.isascii() and text.isdigit():
        return Number(int(text), numeral=text.lstrip("0"))
    if not text.isascii() or text.startswith(("*", "`")):
        text = plain(text)
    if _NEEDS_RESPELLING.search(text):
        text = respelled(unboxed(text))
    if "," in text and "." in text:
        text = _EUROPEAN.sub(lambda match: f"{match[1].replace('.', '')}.{match[2]}", text)
    match = _NUMBER.fullmatch(units.currency_first(text) if text[:1].isalpha() else text)
    return (match and _number(match)) or _in_words(text)


def _number(match: re.Match) -> Number | None:
    whole, decimals = (match["whole"] or "").translate(_SEPARATORS), match["decimals"] or ""
    if not (whole or decimals.strip(".")) or (match["sign"] and match["again"]):
        return None
    value: Fraction | int = int(whole or 0)
    if digits := decimals[1:].rstrip("0"):
        value = Fraction(int(whole + digits), 10 ** len(digits))
    if match["repeating"] or match["ellipsis"]:
        value = _repeating(whole, decimals, match["repeating"])
        if value is None:
            return None
    if match["exponent"]:
        value *= Fraction(10) ** int(match["exponent"])
    numeral = whole.lstrip("0") + decimals.rstrip(".") + (match["exponent"] or "")
    if match["denominator"]:
        if not int(match["denominator"]) or (
            match["mixed"] and not 0 <= value < int(match["denominator"])
        ):
            return None  # 48 27/1 is no mixed number, it is a product in disguise
        value = Fraction(value, int(match["denominator"])) + int(match["mixed"] or 0)
        numeral = f"{match['mixed'] or ''} {numeral}/{match['denominator']}"
    if match["percent"]:
        value = Fraction(value, 100)
    scale, unit = 1, match["currency"] or match["behind"] or ""
    if match["unit"]:
        glued = not match.string[match.start("unit") - 1].isspace()
        found = units.read(match["unit"], glued, unit, years=len(whole) == 4)
        if found is None:
            return None
        scale, unit = found
    is_whole = not (decimals.strip(".") or match["denominator"] or match["repeating"])
    value = -value if "-" in (match["sign"], match["again"]) else value
    return Number(value * scale, unit, numeral, bool(match["percent"]), is_whole)


def _repeating(whole: str, decimals: str, block: str | None) -> Fraction | None:
    """0.1(6) exactly; 0.1666...

    where the last digits repeat: a block of one or more, seen at least twice.
    """
    digits = decimals[1:]
    if block is None:
        found = re.search(r"(\d+?)\1+$", digits)
        if not found:
            return None
        block, digits = found[1], digits[: found.start()]
    if not decimals:
        return None
    return Fraction(
        int(f"{whole}{digits}" or 0) + Fraction(int(block), 10 ** len(block) - 1), 10 ** len(digits)
    )


# --- In words -------------------------------------------------------------------------------------


_FIRST_WORD = re.compile(  # so that number-parser is not loaded for every text
    r"(?i)(?:negative|minus|an?\b|half|zero|one|tw|thi|thr|thou|fou|for|fi[fv]|si|se|ei|ni|te|el|hu|[mbtq]\w*ill)"
    r"[a-z -]*(?:%|$|[ .])"
)


def _in_words(text: str) -> Number | None:
    """`negative five`, `two thirds`, `one and a half`, `three point one four`, `twelve apples`,
    `half a million`.
    """
    if not _FIRST_WORD.match(text):
        return None
    words = text.removesuffix(".").split()
    # zero-sum, no forty-two
    if any("-" in word and not all(map(units.is_number, word.split("-"))) for word in words):
        return None
    words = " ".join(words).replace("-", " ").split()
    if len(words) > _MOST_WORDS or not all(word[0].isalpha() or word[0] == "%" for word in words):
        return None
    low = [word.casefold() for word in words]
    sign = -1 if low[0] in ("negative", "minus") else 1
    if sign < 0:
        low, words = low[1:], words[1:]
    value, used = _leading(low)
    if not used or units.scale(low[0]):  # a million, but not million
        return None
    rest, percent, whole = words[used:], False, value.denominator == 1
    if rest and re.match(r"percent\b|%|per cent", " ".join(rest)):
        value, percent, rest = Fraction(value, 100), True, rest[1 + (rest[0] == "per") :]
    scale, unit = 1, ""
    if rest:
        if rest[0] == "a" and rest[1:] and units.scale(rest[1]):  # half a million
            rest = rest[1:]
        found = units.read(" ".join(rest), glued=False) if rest else None
        if found is None:
            return None
        scale, unit = found
    value = sign * value
    numeral = str(abs(100 * value if percent else value))
    return Number(value * scale, unit, numeral, percent, whole)


def _leading(words: list[str]) -> tuple[Fraction | int, int]:
    """The number that the first words say, and how many words say it; 0 words where they
    say none.
    """
    value, used = _cardinal(words)
    if not used:
        part = units.part(words[0]) if words and words[0] == "half" else None
        return (part, 1) if part else (0, 0)
    rest = words[used:]
    if rest[:1] == ["point"]:
        digits = [units.cardinal(word) for word in rest[1:]]
        count = next(
            (n for n, digit in enumerate(digits) if digit is None or digit > 9), len(digits)
        )
        decimals = "".join(map(str, digits[:count]))
        return (value + Fraction(int(decimals), 10**count), used + 1 + count) if count else (0, 0)
    if rest[:1] == ["and"]:
        numerator, more = _cardinal(rest[1:])
        part = units.part(rest[1 + more]) if more and len(rest) > 1 + more else None
        return (value + numerator * part, used + 2 + more) if part else (value, used)
    part = units.part(rest[0]) if rest else None
    return (value * part, used + 1) if part else (value, used)


def _cardinal(words: list[str]) -> tuple[int, int]:
    if (
        words[:1] in (["a"], ["an"])
        and len(words) > 1
        and (units.part(words[1]) or units.scale(words[1]))
    ):
        return 1, 1
    for used in range(len(words), 0, -1):
        value = units.cardinal(" ".join(words[:used]))
        if value is not None:
            return value, used
    return 0, 0


# --- Several units --------------------------------------------------------------------------------

_COMPOUND = re.compile(
    r"(?:\d+(?:\.\d+)?\s?[a-zA-Z'\"°]+\.?(?:(?:,\s|\s|,?\sand\s)?(?=\d)|$)){2,4}"
)
_PARTS = re.compile(r"\d+(?:\.\d+)?\s?[a-zA-Z'\"°]+")


def compound(text: str) -> list[Number] | None:
    """The parts of `2 hours 30 minutes` or `5'3"`, the larger unit first; None for
    anything else.
    """
    if len(text) > _LONGEST:
        return None
    text = re.sub(r"(?<=[a-zA-Z]),?\sand\s(?=\d)", " ", respelled(plain(text)).removesuffix("."))
    if not _COMPOUND.fullmatch(text):
        return None
    parts = [parse_number(part) for part in _PARTS.findall(text)]
    return parts if all(part is not None and part.unit for part in parts) else None


def magnitude(text: str) -> tuple[Fraction, tuple] | None:
    """The size of a quantity in base units and what these are; None where it has no unit that can
    be converted.

    >>> magnitude("2 hours 30 minutes") == magnitude("150 min"), magnitude("30 minutes 2 hours")
    (True, None)
    """
    number = parse_number(text)
    parts = [number] if number else compound(text) or []
    sizes = [units.magnitude(part.value, part.unit) for part in parts if part.unit]
    if (
        not sizes
        or len(sizes) < len(parts)
        or None in sizes
        or len({base for _, base in sizes}) > 1
    ):
        return None
    ones = [units.magnitude(1, part.unit)[0] for part in parts]
    falling = all(
        large > small and value < large
        for large, small, (value, _) in zip(ones, ones[1:], sizes[1:], strict=False)
    )
    return (sum(size for size, _ in sizes), sizes[0][1]) if falling else None
