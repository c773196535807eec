r"""Number: the exact value, however it is spelt in digits.

A decimal that has to be rounded, such as that of 1/3, needs six correctly rounded digits. A unit or
a counted thing behind a number is passed over; `50%` is 0.5, and 50 where 50 is the row's answer.
Brackets, quotes and dollars around a number are, too.

- `1,000` = `1000`, `1 000` = `1000`, `1'000` = `1000`, `1_000` = `1000`, `10,\!080` = `10080`,
  `1{,}000` = `1000`
- `42.` = `42`, `−5` = `-5`, `1e3` = `1000`, `1.5 \times 10^{3}` = `1500`, `x = 7` = `7`,
  `**42**` = `42`
- `1/2` = `0.5`, `7 1/2` = `7.5`, `½` = `0.5`, `\frac3{3}` = `1`, `3\frac12` = `3.5`,
  `50%` = `0.5`, `50%` = `50`
- `0.(3)` = `1/3`, `0.333…` = `1/3`, `0.1\overline{6}` = `1/6`, `0.333333` = `1/3`,
  `0.666667` = `2/3`
- `$18` = `18`, `18 dollars` = `$18`, `$18 dollars` = `18`, `\$1,000.00` = `1000`,
  `5 km` = `5`, `2 million` = `2000000`, `5\text{ m}^2` = `5`, `90 degrees` = `90^\circ`,
  `13只` = `13`
- `(5)` = `5`, `"5",` = `5`, `(3)/(4)` = `3/4`, `{7 / 5}` = `1.4`, `x = \boxed{5}` = `5`,
  `$28$ percent` = `28\%`, `12.5\%` = `12.5`, `-30%` = `-30`, `٤٢` = `42`, `42。` = `42`
- `40+2` ≠ `42`, `>= 42` ≠ `42`, `1980s` ≠ `1980`, `41 | 42` ≠ `42`, `42 or 43` ≠ `42`,
  `42!` ≠ `42`, `42, ...` ≠ `42`, `5 lakhs` ≠ `5`, `3 dozen` ≠ `3`, `forty-two` ≠ `42`
- `0.33` ≠ `1/3`, `0.3333` ≠ `1/3`, `0.666666` ≠ `2/3`, `2.0000001` ≠ `2`, `0.1234564` ≠ `0.1234561`
- `5ab` ≠ `5`, `5t^2` ≠ `5`, `40_9` ≠ `40`, `2兆円` ≠ `2`, `2 quadrillions` ≠ `2`, `5m` ≠ `5`,
  `0.0` ≠ `1/1024`, `0.000001` ≠ `1/700000`, `(4)(200)` ≠ `4200`, `125\%` ≠ `12.5`
- `80, 10` ≠ `10,\!080`, `4 2` ≠ `42`, `1,00` ≠ `100`, `18 €` ≠ `$18`, `42k` ≠ `42`,
  `42 squared` ≠ `42`
"""

import re
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from helpers.rewards.answers.texts import plain_text

# characters; what is longer is no number, so no completion can cost more than a regex on 100
_LONGEST = 100
_ROUNDED_DIGITS = 6
_CURRENCIES = {
    "dollar": "$",
    "usd": "$",
    "euro": "€",
    "eur": "€",
    "gbp": "£",
    "yen": "¥",
    "jpy": "¥",
    "rupee": "₹",
    "inr": "₹",
    "degree": "°",
    "deg": "°",
}
CURRENCY_SIGNS = "$€£¥₹"
# A kanji, kana or hangul unit: none of the marks that multiply, divide or doubt.
_COUNTER = (
    "(?:(?![零十百千万萬億亿兆京半倍割折成以上下左右余多约約或不非之만억조천백십반])"
    "[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]){1,6}"
)
_NUMBER = re.compile(
    rf"""(?P<sign>[+-]?)\s?(?P<currency>[{CURRENCY_SIGNS}])?\s?(?P<again>[+-]?)
        (?:(?P<mixed>\d+)\s+(?:and\s)?(?=\d+\s?/))?             # the 7 of 7 1/2
        (?P<whole>\d{{1,3}}(?P<mark>[, '_])\d{{3}}(?:(?P=mark)\d{{3}})*     # 1,000,000
          |\d{{1,2}}(?:,\d\d)+,\d{{3}}                          # 12,34,567
          |\d+)?
        (?:\.(?P<decimals>\d*)(?:\((?P<repeating>\d+)\))?)?      # 0.1(6)
        (?:[eE](?P<exponent>[+-]?\d{{1,3}}))?
        (?:\s?/\s?(?P<denominator>-?\d+))?
        \s?(?P<percent>%|percent|per\scent|pct)?
        \s?(?P<behind>[{CURRENCY_SIGNS}])?
        \s?(?P<words>(?:(?<=\s)[a-zA-Z]|[a-zA-Z]{{2}}|[^\x00-\x7F]|/).*?)?[.,;]?""",
    re.VERBOSE | re.ASCII,
)
_BRACED_OR_DIGIT = r"\s*(?:\{\s*(-?\d+)\s*\}|(\d))"
_SPELLINGS = [  # LaTeX, and what a keyboard would type
    (re.compile(rf"\\[dtc]?frac{_BRACED_OR_DIGIT}{_BRACED_OR_DIGIT}(?!\s*\d)"), r" \1\2/\3\4"),
    (re.compile(r"\\(?:text\w*|mathrm|mathbf|mbox|boxed)\s*\{([^{}]*)\}"), r" \1 "),
    (re.compile(r"(?<!\\)\$([^$]+)(?<!\\)\$"), r" \1 "),
    (re.compile(r"(?<=\d)(?:\s?\{\s?,\s?\}\s?|,?\s?\\[,!]\s?)(?=\d)"), ","),
    (re.compile(r"\\(?:[;:,! ]|left|right|displaystyle)|(?<=\w)~"), " "),
    (re.compile(r"\\([%$])"), r"\1"),
    (re.compile(r"\^\s*\{?\s*\\circ\s*\}?"), "°"),
    (re.compile(r"\s*/\s*\(\s*(\d+)\s*\)"), r"/\1"),
    (re.compile(r"^\s*([\"'])(.*)\1[.,;]?\s*$"), r"\2"),
    # brackets around the whole, or around the number before a slash or a unit
    (
        re.compile(
            r"^\s*([+-]?)\s*[({\[]([^(){}\[\],]*)[)}\]](?=\s*(?:$|[/%.,]|[^ -~])|\s+[a-zA-Z])"
        ),
        r"\1\2 ",
    ),
    (
        re.compile(
            r"(?<=\d)\s?(?:\\times|\\cdot|[×·*x])\s?10\s?(?:\^|\*\*)\s?\{?([+-]?\d{1,3})\}?"
        ),
        r"e\1",
    ),
    (re.compile(r"(?<![\d.,^])10\s?\^\s?\{?([+-]?\d{1,3})\}?"), r"1e\1"),
    (re.compile(r"(\.\d*)\\(?:overline|bar)\s*\{?(\d+)\}?$"), r"\1(\2)"),
    (re.compile(r"(\.\d*?)(\d+?)\2+\.\.\."), r"\1(\2)"),  # 0.1666...
    (re.compile(r"\^\{(-?\d)\}"), r"^\1"),  # m^{2}
    (re.compile(r"^\s*[a-zA-Z](?:\(\w+\)|_\w)?\s?(?:=|≈|\\approx)\s?(?=[^=≈]*$)"), ""),
    (re.compile(r"^(?:minus|negative)\s+(?=[\d.$€£])", re.IGNORECASE), "-"),
]
_SCALES = {
    "dozen": 12,
    "hundred": 100,
    "thousand": 1000,
    "lakh": 10**5,
    "million": 10**6,
    "crore": 10**7,
    "billion": 10**9,
    "trillion": 10**12,
}
# most numbers have nothing to respell, and nothing around them
_DIGITS = re.compile(r"-?\d[\d.,]*", re.ASCII)
_TO_RESPELL = re.compile(r"[\\^×·*=≈~{(\[\"]|^['mMnN]|\.\.\.|\$.*\$")
# What is passed over behind a number: a unit, or a plural of things that are counted. Of single
# letters only those that are nothing but units: k, M and B multiply. Written against the number, a
# single letter is algebra, and an s makes a decade of 1980s. No plural is a word such as less, plus
# or this, and none multiplies or divides the number.
_SYMBOL = (
    "[kcmµμn]?m|k?g|mg|[mcd]?[lL]|lb|oz|ft|in|yd|mi|min|hrs?|ms|(?<=/)[sh]|mol|[kM]?Wh|[kMG]?Hz"
    "|[kM]?[NJWVA]|k?Pa|[mk]ph|°[CF]?|[¢Ω]"
)
_UNIT_WORD = (
    "(?i:(?:centi|milli|kilo)?(?:meter|metre|gram|liter|litre)|inch|foot|feet|yard|mile|ounce|pound"
    "|gallon|newton|joule|watt|volt|second|minute|hour|day|week|month|year|degree|cent|people|person"
    "|children)"
)
_COUNTED = (
    "(?!(?:halves|halfs|quarters|dozens|pairs|couples|scores|roots|percent(?:age)?s|times|does"
    "|always|perhaps|logs|hundreds|lakhs|googols|grosses|factorials|doubles|triples|ones|twos"
    r"|threes|fours|fives|sixes|sevens|eights|nines|tens|[a-z]*(?:th|third|illion|illiard)s)\b)"
    r"[a-z]{2,}[^aisu\W]s"
)
_ONE_UNIT = (
    rf"(?:(?:sq\.?|square|cubic)\s+)?(?:{_SYMBOL}|{_UNIT_WORD}s?|{_COUNTED}|{_COUNTER})"
    r"(?:\s*\^-?\d)?(?![\w^])"
)
UNIT = re.compile(
    rf"(?:/\s*|per\s+)?{_ONE_UNIT}(?:(?:\s*[/*·]\s*|\s+(?:(?:per|an?)\s+)?){_ONE_UNIT}){{0,4}}"
)


class Number(NamedTuple):
    """A number as it was written.

    value: exact; 50% is 1/2. unit: as typed, currencies as their sign, "" without one. places: of
    the decimal that was written, None for a fraction or a repeating decimal. form: what makes it
    more than digits with a point: `%`, `/2` of a half, `e3`, `million`; "" for a plain number.
    """

    value: Fraction | int
    unit: str = ""
    places: int | None = 0
    form: str = ""


def parse_number(text: str) -> Number | None:
    """Return the number that the whole text is, or None.

    Understands signs (the Unicode minus too), a currency sign, thousands separators, decimals,
    repeating ones (0.(3), 0.333…), exponents up to three digits, a/b, mixed numbers, percent (50%
    is 0.5), a unit behind, `million` and the like, an `x =` before, and the LaTeX spellings of all
    that, in `\\boxed{}` or dollars. `nan`, `inf`, ranges, doubts, alternatives and numbers in words
    are not numbers.

    >>> str(parse_number("−1,234.50").value), parse_number("42 or 43")
    ('-2469/2', None)
    >>> str(parse_number(r"\\boxed{\\frac{1}{2}}").value), str(parse_number("0.1(6)").value)
    ('1/2', '1/6')
    """
    return _parse(text) if len(text) <= _LONGEST else None


@lru_cache(maxsize=1 << 16)
def _parse(text: str) -> Number | None:
    # 1. In the spelling of a keyboard, without what LaTeX or Markdown puts around it.
    if not _DIGITS.fullmatch(text):
        text = plain_text(text)
    if text.isascii() and text.isdigit():
        return Number(int(text))
    if _TO_RESPELL.search(text):
        for pattern, spelling in _SPELLINGS:
            text = pattern.sub(spelling, text)
    match = _NUMBER.fullmatch(" ".join(text.split()))
    if not match or (match["sign"] and match["again"]):
        return None

    # 2. The digits before and behind the point, and the places that were written.
    whole = re.sub(r"\D", "", match["whole"] or "")
    decimals = match["decimals"] or ""
    if not whole + decimals:
        return None
    value: Fraction | int = int(whole or 0)  # whole numbers, which most are, cost no fraction
    places: int | None = len(decimals)
    if decimals.strip("0"):
        value = Fraction(int(whole + decimals), 10 ** len(decimals))
    block = match["repeating"]
    if block:
        # 0.1(6) is 0.1 and 6/9 of what one in its last place is worth
        value += Fraction(int(block), (10 ** len(block) - 1) * 10 ** len(decimals))
        places = None

    # 3. What multiplies or divides it: an exponent, a denominator, a percent sign, a million.
    if match["exponent"]:
        exponent = int(match["exponent"])
        value *= Fraction(10) ** exponent
        places = None if places is None else max(0, places - exponent)
    if match["denominator"]:
        over = int(match["denominator"])
        if over == 0 or (match["mixed"] and not 0 <= value < over):
            return None  # 48 27/1 is no mixed number, it is a product in disguise
        value = Fraction(value, over) + int(match["mixed"] or 0)
        places = None
    if match["percent"]:
        value = Fraction(value, 100)
        places = None if places is None else places + 2
    words = match["words"] or ""
    first, _, rest = words.partition(" ")
    scale = _SCALES.get(first.removesuffix("s"))
    if scale:
        value *= scale
        words = rest
    form = "".join(
        [
            f"({block})" if block else "",
            f"e{match['exponent']}" if match["exponent"] else "",
            f"{match['mixed'] or ''}/{match['denominator']}" if match["denominator"] else "",
            "%" if match["percent"] else "",
            first.removesuffix("s") if scale else "",
        ]
    )

    # 4. The unit: a currency before or behind, a unit, or what is counted.
    unit = match["currency"] or match["behind"] or ""
    if words:
        named = _CURRENCIES.get(words.casefold().removesuffix("s"), words)
        if unit and words.startswith(("/", "per ")):
            unit += words  # $5 per hour
        elif unit in ("", named) and (named in CURRENCY_SIGNS or UNIT.fullmatch(named)):
            unit = named  # $42 dollars names it twice
        else:
            return None
    negative = "-" in (match["sign"], match["again"])
    return Number(-value if negative else value, unit, places, form)


def same_number(given: str, gold: str) -> bool:
    """Return whether both texts are numbers of one value that name no different units."""
    answer = parse_number(given)
    wanted = parse_number(gold)
    if answer is None or wanted is None:
        return False
    if answer.unit and wanted.unit and answer.unit != wanted.unit:
        return False
    if answer.value == wanted.value:
        return True
    # Asked for per cent, 50 is 50%: the row says 50%, or a number that is no share of one.
    percent_given = "%" in answer.form
    percent_asked = "%" in wanted.form
    if percent_asked and not percent_given and wanted.value * 100 == answer.value:
        return True
    no_share = wanted.places is not None and abs(wanted.value) >= 1
    if percent_given and not percent_asked and no_share and answer.value * 100 == wanted.value:
        return True
    return _is_rounded(answer, wanted.value) or _is_rounded(wanted, answer.value)


def same_form(given: str, gold: str) -> bool:
    """Return whether both texts are one number in one form, as digits, a fraction or per cent.

    >>> same_form("$0.50", ".5"), same_form("1/2", ".5")
    (True, False)
    """
    answer = parse_number(given)
    wanted = parse_number(gold)
    if answer is None or wanted is None:
        return False
    return (answer.value, answer.form) == (wanted.value, wanted.form)


def _is_rounded(decimal: Number, value: Fraction | int) -> bool:
    """Return whether a decimal of six digits or more is a value that no decimal spells, rounded."""
    places = decimal.places
    if places is None or abs(decimal.value) * 10**places < 10 ** (_ROUNDED_DIGITS - 1):
        return False
    denominator = value.denominator
    spelt = pow(10, denominator.bit_length(), denominator) == 0  # by 2 and 5 alone it is divided
    return not spelt and round(value, places) == decimal.value
