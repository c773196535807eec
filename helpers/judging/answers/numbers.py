r"""Number: two answers are the same if they have the same exact value, however they are written.

`parse_number` reads a text in two steps: `_SPELLINGS` turns LaTeX into what one would type, and
`_NUMBER` matches the result. `same_number` compares two numbers. Both tables are at the end.

Correct (`=`) and wrong (`≠`), the given answer first; the functions have more:
`1,000` = `1000`, `\frac3{3}` = `1`, `50%` = `0.5`, `18 dollars` = `$18`, `x = 7` = `7`,
`40+2` ≠ `42`
"""

import re
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from helpers.judging.answers.names_and_units import AROUND_UNIT, NAME, NAME_IN_WORDS, UNIT
from helpers.judging.answers.texts import plain_text

_LONGEST = 100  # characters; longer text is not a number, so no completion can slow the patterns
_ROUNDED_DIGITS = 6  # significant digits of a rounded decimal


class Number(NamedTuple):
    """A number and how it was written.

    value: exact; 50% is 1/2.
    unit: as typed, a currency as its sign; "" without one.
    places: decimal places, also of a percentage as a fraction of 1 (50% has two); None for a
        fraction and for a repeating decimal.
    form: what it has beyond plain digits: `%`, `/2` of 1/2, `e3`, `million`; "" for a decimal.
    """

    value: Fraction | int
    unit: str = ""
    places: int | None = 0
    form: str = ""


def parse_number(text: str) -> Number | None:
    """Return the number that a whole text is, or None if the text is anything else.

    Reads signs, thousands separators, decimals, fractions, exponents, percentages, currencies,
    units and `million`, in LaTeX or as typed; tests/judging/test_answers.py has many examples.

    >>> str(parse_number("−1,234.50").value), parse_number("42 or 43")
    ('-2469/2', None)
    >>> str(parse_number(r"\\boxed{\\frac{1}{2}}").value), str(parse_number("0.1(6)").value)
    ('1/2', '1/6')
    """
    return _parse(text) if len(text) <= _LONGEST else None


@lru_cache(maxsize=1 << 16)
def _parse(text: str) -> Number | None:
    # 1. Rewrite LaTeX and Markdown as one would type the number. The two conditions only save time:
    # most answers are digits alone.
    if not _DIGITS.fullmatch(text):
        text = plain_text(text)
    if text.isascii() and text.isdigit():
        return Number(int(text))
    for pattern, spelling in _SPELLINGS:
        text = pattern.sub(spelling, text)

    # 2. Match the pattern. Its groups, named as in _NUMBER, are "" below if they are missing.
    match = _NUMBER.fullmatch(" ".join(text.split()))
    if not match:
        return None
    group = match.groupdict(default="")
    if group["sign"] and group["sign_after_currency"]:  # -$-5
        return None

    # 3. Read the digits before and after the point. Whole numbers stay int, which is faster.
    whole = re.sub(r"\D", "", group["whole"])  # 1,000 becomes 1000
    decimals = group["decimals"]
    if not whole + decimals:
        return None
    value: Fraction | int = int(whole or 0)
    places: int | None = len(decimals)
    form = ""
    if decimals.strip("0"):
        value = Fraction(int(whole + decimals), 10**places)

    # 4. Add a repeating block. That of 0.1(6) adds 6/9 of a unit in the last decimal place.
    block = group["repeating"]
    if block:
        value += Fraction(int(block), (10 ** len(block) - 1) * 10**places)
        places = None
        form = f"({block})"

    # 5. Apply an exponent: 1.5e3.
    if group["exponent"]:
        exponent = int(group["exponent"])
        value *= Fraction(10) ** exponent
        if places is not None:
            places = max(0, places - exponent)
        form += f"e{group['exponent']}"

    # 6. Apply a denominator: 1/2, or 7 1/2. But 48 27/1 is not a mixed number.
    mixed = group["mixed"]
    if group["denominator"]:
        denominator = int(group["denominator"])
        if denominator == 0 or (mixed and not 0 <= value < denominator):
            return None
        value = Fraction(value, denominator) + int(mixed or 0)
        places = None
        form += f"{mixed}/{group['denominator']}"

    # 7. Apply a percent sign, and a word such as `million`.
    if group["percent"]:
        value = Fraction(value, 100)
        if places is not None:
            places += 2
        form += "%"
    words = group["words"]
    first_word, _, other_words = words.partition(" ")
    multiplier = first_word.removesuffix("s")
    if multiplier in _MULTIPLIERS:
        value *= _MULTIPLIERS[multiplier]
        form += multiplier
        words = other_words

    # 8. Read the unit. Words that are not one make the text something else than a number.
    unit = _unit_of(group["currency"] or group["currency_after"], words)
    if unit is None:
        return None
    if group["sign"] == "-" or group["sign_after_currency"] == "-":
        value = -value
    return Number(value, unit, places, form)


def _unit_of(currency: str, words: str) -> str | None:
    """Return the unit of a number with this sign or code of a currency and these words after it,
    each of which may be "". Return None if the words are no unit, or that of another currency.

    >>> _unit_of("", "km"), _unit_of("usd", ""), _unit_of("$", "dollars"), _unit_of("$", "per hour")
    ('km', '$', '$', '$per hour')
    >>> _unit_of("$", "euros"), _unit_of("", "or so")
    (None, None)
    """
    currency = _SIGN_OF_WORD.get(currency.casefold(), currency)
    name = AROUND_UNIT.sub("", words) if words else ""  # `more eggs` becomes `eggs`
    if not name:
        return currency or words
    if currency and name.startswith(("/", "per ")):  # $5 per hour
        return currency + name
    name = _SIGN_OF_WORD.get(name.casefold().removesuffix("s"), name)
    is_unit = name in CURRENCY_SIGNS or UNIT.fullmatch(name)
    if currency not in ("", name):  # $5 euros
        return None
    return name if is_unit else None


def same_number(given: str, gold: str) -> bool:
    r"""Return whether two texts are numbers of the same value whose units do not differ.

    - A percentage is a fraction of 1; beside a row's answer of 1 or more it may be that number:
      `50%` = `50`, `12.5\%` = `12.5`, `125\%` ≠ `12.5`
    - A unit is ignored unless both answers have one: `$18` = `18`, `18 €` ≠ `$18`, `50 km` ≠ `50%`
    """
    answer = parse_number(given)
    wanted = parse_number(gold)
    if answer is None or wanted is None:
        return False
    if answer.unit and wanted.unit and answer.unit != wanted.unit:
        return False
    if answer.value == wanted.value:
        return True

    answer_in_percent = "%" in answer.form
    wanted_in_percent = "%" in wanted.form
    # 50 means 50% if the row's answer is a percentage; 50 km does not.
    is_bare = not answer_in_percent and not answer.unit
    if wanted_in_percent and is_bare and wanted.value * 100 == answer.value:
        return True
    # 50% means 50 if the row's answer is a decimal of 1 or more, because the question then probably
    # asks for per cent.
    if answer_in_percent and not wanted_in_percent:
        is_decimal = wanted.places is not None
        if is_decimal and abs(wanted.value) >= 1 and answer.value * 100 == wanted.value:
            return True
    return _is_rounded(answer, wanted.value) or _is_rounded(wanted, answer.value)


def _is_rounded(decimal: Number, value: Fraction | int) -> bool:
    """Return whether a decimal of six digits or more is the rounded value of a number that no
    decimal can spell, such as 1/3. A whole number is exact.

    `0.666667` = `2/3`, `0.33` ≠ `1/3`, `0.666666` ≠ `2/3`, `2.0000001` ≠ `2`, `0.0` ≠ `1/1024`
    """
    # 1. The decimal must have digits after its point, and six significant digits in all.
    places = decimal.places
    if places is None:
        return False
    as_written = decimal.value * 100 if "%" in decimal.form else decimal.value
    is_whole = as_written.denominator == 1
    digits_as_number = abs(decimal.value) * 10**places  # 666667 for 0.666667
    has_few_digits = digits_as_number < 10 ** (_ROUNDED_DIGITS - 1)
    if is_whole or has_few_digits:
        return False

    # 2. No decimal may spell the value. One can if the denominator divides a power of 10, that is,
    # if 2 and 5 are its only prime factors. It has no more of them than it has bits, so the power
    # with that exponent is enough.
    denominator = value.denominator
    can_be_spelt = pow(10, denominator.bit_length(), denominator) == 0
    return not can_be_spelt and round(value, places) == decimal.value


def same_quantity(given: str, gold: str) -> bool:
    """Return whether two texts are numbers of the same value and the same unit.

    >>> same_quantity("1000.99 m^2", "1,000.99 m²"), same_quantity("100", "100bps")
    (True, False)
    """
    if not same_number(given, gold):
        return False
    unit = parse_number(given).unit
    return unit != "" and unit == parse_number(gold).unit


def same_form(given: str, gold: str) -> bool:
    """Return whether two texts are one number in one form: digits, a fraction or a percentage.

    >>> same_form("$0.50", ".5"), same_form("1/2", ".5")
    (True, False)
    """
    answer = parse_number(given)
    wanted = parse_number(gold)
    are_numbers = answer is not None and wanted is not None
    return are_numbers and (answer.value, answer.form) == (wanted.value, wanted.form)


# --- Respelling -----------------------------------------------------------------------------------

# Digits alone, which most numbers are, have nothing around them.
_DIGITS = re.compile(r"-?\d[\d.,]*", re.ASCII)
_BRACED_OR_DIGIT = r"\s*(?:\{\s*(-?\d+)\s*\}|(\d))"
# What `_parse` replaces, in this order: a pattern, and what replaces it.
_SPELLINGS = [
    # \frac{1}{2}, \frac12 -> 1/2
    (
        re.compile(rf"\\[dtc]?frac{_BRACED_OR_DIGIT}{_BRACED_OR_DIGIT}(?!\s*\d)"),
        r" \1\2/\3\4",
    ),
    # 5\text{ km} -> 5 km
    (
        re.compile(r"\\(?:text\w*|mathrm|mathbf|mbox|boxed)\s*\{([^{}]*)\}"),
        r" \1 ",
    ),
    # $28$ percent -> 28 percent, $\$28$ each -> $28 each
    (re.compile(r"(?<!\\)\$((?:[^$\\]|\\.)+)\$"), r" \1 "),
    # 10{,}080, 10,\!080 -> 10,080
    (re.compile(r"(?<=\d)(?:\s?\{\s?,\s?\}\s?|,?\s?\\[,!]\s?)(?=\d)"), ","),
    # 5\,km, 5~km -> 5 km
    (re.compile(r"\\(?:[;:,! ]|left|right|displaystyle)|(?<=\w)~"), " "),
    # 5\% -> 5%
    (re.compile(r"\\([%$])"), r"\1"),
    # 90^\circ -> 90°
    (re.compile(r"\^\s*\{?\s*\\circ\s*\}?"), "°"),
    # 3/(4) -> 3/4
    (re.compile(r"\s*/\s*\(\s*(\d+)\s*\)"), r"/\1"),
    # "5", -> 5
    (re.compile(r"^\s*([\"'])(.*)\1[.,;]?\s*$"), r"\2"),
    # (5) -> 5, (3)/4 -> 3/4, (5) km -> 5 km
    (
        re.compile(
            r"^\s*([+-]?)\s*[({\[]([^(){}\[\],]*)[)}\]](?=\s*(?:$|[/%.,]|[^ -~])|\s+[a-zA-Z])"
        ),
        r"\1\2 ",
    ),
    # 1.5 \times 10^{3} -> 1.5e3
    (
        re.compile(
            r"(?<=\d)\s?(?:\\times|\\cdot|[×·*x])\s?10\s?(?:\^|\*\*)\s?\{?([+-]?\d{1,3})\}?"
        ),
        r"e\1",
    ),
    # 10^{-2} -> 1e-2
    (re.compile(r"(?<![\d.,^])10\s?\^\s?\{?([+-]?\d{1,3})\}?"), r"1e\1"),
    # 0.1\overline{6} -> 0.1(6)
    (re.compile(r"(\.\d*)\\(?:overline|bar)\s*\{?(\d+)\}?$"), r"\1(\2)"),
    # 0.1666... -> 0.1(6)
    (re.compile(r"(\.\d*?)(\d+?)\2+\.\.\."), r"\1(\2)"),
    # m^{2} -> m^2
    (re.compile(r"\^\{(-?\d)\}"), r"^\1"),
    # x = 7, \angle A = 7, total = 7 -> 7
    (re.compile(rf"^\s*(?:{NAME.pattern})\s*(?:=|≈|\\approx)\s?(?=[^=≈]*$)"), ""),
    (NAME_IN_WORDS, ""),
    # minus 5 -> -5
    (re.compile(r"^(?:minus|negative)\s+(?=[\d.$€£])", re.IGNORECASE), "-"),
]

# --- The pattern of a number, once respelt --------------------------------------------------------

CURRENCY_SIGNS = "$€£¥₹"
_NUMBER = re.compile(
    rf"""(?P<sign>[+-]?)\s?
        (?P<currency>[{CURRENCY_SIGNS}]|US\$|(?i:usd|eur|gbp|jpy|inr|rs\.?)(?=\s?\d))?
        \s?(?P<sign_after_currency>[+-]?)                        # -$5 or $-5
        (?:(?P<mixed>\d+)\s+(?:and\s)?(?=\d+\s?/))?              # the 7 of 7 1/2
        (?P<whole>\d{{1,3}}(?P<comma>[, '_])\d{{3}}(?:(?P=comma)\d{{3}})*     # 1,000,000
          |\d{{1,2}}(?:,\d\d)+,\d{{3}}                           # 12,34,567
          |\d+)?
        (?:\.(?P<decimals>\d*)(?:\((?P<repeating>\d+)\))?)?      # 0.1(6)
        (?:[eE](?P<exponent>[+-]?\d{{1,3}}))?                    # 1e3
        (?:\s?/\s?(?P<denominator>-?\d+))?                       # 1/2
        \s?(?P<percent>%|percent|per\scent|pct)?
        \s?(?P<currency_after>[{CURRENCY_SIGNS}])?                       # 18 €
        # 5 km, 5km, 13只 and $5/hour, but not 5m: one letter against the number is algebra
        \s?(?P<words>(?:(?<=\s)[a-zA-Z]|[a-zA-Z]{{2}}|[^\x00-\x7F]|/).*?)?[.,;]?""",
    re.VERBOSE | re.ASCII,
)
# Words after a number that multiply it.
_MULTIPLIERS = {
    "dozen": 12,
    "hundred": 100,
    "thousand": 1000,
    "lakh": 10**5,
    "million": 10**6,
    "crore": 10**7,
    "billion": 10**9,
    "trillion": 10**12,
}
# Words for the signs of currencies and degrees.
_SIGN_OF_WORD = {
    "dollar": "$",
    "usd": "$",
    "euro": "€",
    "eur": "€",
    "gbp": "£",
    "yen": "¥",
    "jpy": "¥",
    "rupee": "₹",
    "inr": "₹",
    "rs": "₹",
    "rs.": "₹",
    "us$": "$",
    "degree": "°",
    "deg": "°",
}
