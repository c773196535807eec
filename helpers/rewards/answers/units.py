"""The words behind a number: a unit (pint knows them), a currency, a thing that is counted, or a
word that changes the number.

pint is loaded when two units are spelt differently, and not before. Words for numbers are
number-parser's.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import cache, lru_cache

CURRENCY = "[$€£¥₹]"
# One to five words, joined by a space, a dot, a star or a slash; "/h" and "per hour" behind a
# currency.
_WORD = r"[a-zA-Z°μΩÅ¢'\"][a-zA-ZμΩÅ'\"]*(?:\^[+-]?\d)?"
PATTERN = rf"(?:/\s?|per\s)?(?:°\s?)?{_WORD}\.?(?:\s?[\s/*·]\s?\(?{_WORD}\)?){{0,4}}"

_CURRENCIES = {
    "dollar": "$",
    "usd": "$",
    "us$": "$",
    "buck": "$",
    "euro": "€",
    "eur": "€",
    "pound sterling": "£",
    "pounds sterling": "£",
    "gbp": "£",
}
_CURRENCIES |= {"yen": "¥", "jpy": "¥", "rupee": "₹", "inr": "₹", "rs": "₹"}
_CURRENCY_FIRST = re.compile(r"(?:(US\$|USD|EUR|GBP|JPY|INR|Rs\.?)\s?)(?=[\d.])")
# behind a currency
_SHORT_SCALES = {
    "k": 10**3,
    "K": 10**3,
    "m": 10**6,
    "M": 10**6,
    "b": 10**9,
    "B": 10**9,
    "bn": 10**9,
}
# number-parser knows hundred, thousand, …
_SCALES = {"dozen": 12, "gross": 144, "lakh": 10**5, "lac": 10**5, "crore": 10**7}
# and third, fourth, …
_PARTS = {"half": Fraction(1, 2), "halve": Fraction(1, 2), "quarter": Fraction(1, 4)}
# Function words and operators: half of an alternative, a doubt, or arithmetic; no unit and nothing
# that is counted.
_NO_UNIT = re.compile(
    r"\b(?:or|and|not?|but|nor|e|i|x|y|z|k|bn|mil|to|is|maybe|perhaps|either|likely|about|approx|around|almost|guess|think"
    r"|unsure|sure|unknown|wrong|incorrect|false|wait|none|else|than|more|less|least|most|over|under|below|above|negative"
    r"|minus|plus|times|point|base|modulo?|factorial|halves|halved|doubled|tripled|bce?|ad|ce|[ap]\.?m|pairs?|couples?|scores?|pi|tau"
    r"|roots?|logs?|ln|choose|if|in(?=\s)|on|at|with|from|by|\w+ly)\b"
    r"|^(?:squared?|cubed?|of)$|^(?:squared|cubed|of)\b"
)
_GLUED = re.compile(
    r"[kMGTcdmnpμu]?(?:[mglLsWVAJNBbFΩ]|Hz|Pa|eV|Wh|mol|cal|bar)(?:/\w+|\^[+-]?\d)*|°.?|¢|min|h|hrs?|mph|kmh|kph|ft|in|yd|mi"
    r"|lbs?|oz|px|rpm|K?B|dB|atm|psi|KM|CM|KG|[CF]|['\"]"
)
_TITLE = re.compile(r"\b[A-Z][a-z]{2,}\b")


def currency_first(text: str) -> str:
    """`USD 5`, `Rs. 5` as `$5`, `₹5`."""
    return _CURRENCY_FIRST.sub(
        lambda match: _CURRENCIES[match[1].casefold().rstrip(".")], text, count=1
    )


def read(text: str, glued: bool, currency: str = "", years: bool = False) -> tuple[int, str] | None:
    """What the words behind a number multiply it by, and the unit they name ("" for none); None
    where they are no unit.

    glued: without a space between: 5km is a length, 2y a term. years: behind four digits, where
    1990s is a decade.

    >>> read("km", glued=True), read("million dollars", glued=False)
    ((1, 'km'), (1000000, '$'))
    >>> read("hopefully", glued=False), read("y", glued=True)
    (None, None)
    """
    if currency and text in _SHORT_SCALES:
        return _SHORT_SCALES[text], currency
    if glued and not currency and (not _GLUED.fullmatch(text) or (years and text == "s")):
        return None
    multiplied, words = 1, text.split()
    while words and (factor := scale(words[0])):
        multiplied, words = multiplied * factor, words[1:]
    unit = " ".join(words)
    if not unit:
        return multiplied, currency
    if _NO_UNIT.search(unit.casefold() if len(unit) > 1 else unit) or any(map(is_number, words)):
        return None
    name = _currency(unit)
    if name is None and any(_TITLE.fullmatch(word) and not _known(word) for word in words):
        return None  # a name: 12 Angry Men, 10 Downing Street
    if currency:
        return (
            (multiplied, currency + unit)
            if unit.startswith(("/", "per "))
            else (multiplied, currency)
            if name
            else None
        )
    return multiplied, name or unit


def same_unit(one: str, other: str) -> bool:
    """Whether two units are one by their spelling alone: case does not count in words, nor does the
    plural.
    """
    return one == other or _noun(one) == _noun(other) != ""


def magnitude(value: Fraction | int, unit: str) -> tuple[Fraction, tuple] | None:
    """The quantity in base units and what these are, or None where pint does not know the unit.

    >>> magnitude(5, "km") == magnitude(5000, "meters"), magnitude(5, "mW") == magnitude(5, "MW")
    (True, False)
    >>> magnitude(5, "apples")
    """
    known = _resolved(unit)
    if known is None:
        return None
    try:
        base = known._REGISTRY.Quantity(Fraction(value), known).to_root_units()
    # whatever a unit such as a decibel or °C/min makes of it: it cannot be converted
    except Exception:
        return None
    return base.magnitude, tuple(sorted((name, power) for name, power in base._units.items()))


def scale(word: str) -> int | None:
    """12 for `dozen` and `dozens`, 1000 for `thousand`; None for what does not multiply the number
    before it.
    """
    singular = word.casefold().removesuffix("s") if word.casefold() != "gross" else "gross"
    if singular in _SCALES:
        return _SCALES[singular]
    value = cardinal(singular)
    return value if value is not None and value >= 100 and value % 100 == 0 else None


def part(word: str) -> Fraction | None:
    """1/3 for `third` and `thirds`, 1/2 for `half`."""
    singular = word.casefold().removesuffix("s")
    if singular in _PARTS:
        return _PARTS[singular]
    place = ordinal(singular)
    return Fraction(1, place) if place and place > 2 else None


@lru_cache(maxsize=1 << 12)
def cardinal(words: str) -> int | None:
    """12 for `twelve`, 105 for `one hundred and five`; None for anything else."""
    import number_parser

    if not words.replace(" ", "").isalpha() or words.endswith((" and", " a")):
        return None
    return number_parser.parse_number(words, language="en")


def ordinal(word: str) -> int | None:
    """21 for `twenty-first`; None for anything else."""
    import number_parser

    words = word.casefold().replace("-", " ")
    if not words.replace(" ", "").isalpha() or cardinal(words) is not None:
        return None
    return number_parser.parse_ordinal(words, language="en")


def is_number(word: str) -> bool:
    """Whether a word says a number or a place: two, thirds, twentieth, thousand."""
    singular = word.casefold().removesuffix("s")
    if singular == "second":  # the unit, not the ordinal
        return False
    known = (cardinal(word.casefold()), ordinal(singular), scale(word), _PARTS.get(singular))
    return any(value is not None for value in known)


def _currency(unit: str) -> str | None:
    head, slash, rest = unit.partition("/") if "/" in unit else unit.partition(" per ")
    name = _CURRENCIES.get(head.strip().casefold().removesuffix("s")) or _CURRENCIES.get(
        head.strip().casefold()
    )
    return f"{name}{slash}{rest}" if name else None


def _noun(unit: str) -> str:
    unit = " ".join(unit.replace("°", "degrees").split())
    if len(unit) <= 3 or re.search(r"[/^*·]", unit):
        return unit
    unit = unit.casefold()
    return unit.removesuffix("s").removesuffix("e")


# --- pint -----------------------------------------------------------------------------------------


@cache
def _registry():
    import pint

    registry = pint.UnitRegistry(non_int_type=Fraction, cache_folder=None, on_redefinition="ignore")
    for definition in (
        "dollar = [dollar] = _ = USD",
        "us_cent = dollar / 100 = _ = cent",
        "euro = [euro] = _ = EUR",
        "pound_sterling = [sterling] = _ = GBP",
        "yen = [yen] = _ = JPY",
        "rupee = [rupee] = _ = INR",
        "barn = 1e-28 meter ** 2",  # gives its b to the bit
        "@alias bit = b",
        "KB = 1000 byte",
        "@alias gram = gm",
        "@alias light_year = lightyear",
        "@alias degree_Celsius = Celsius",
        "@alias degree_Fahrenheit = Fahrenheit",
    ):
        registry.define(definition)
    return registry


_SIGNS = {
    "$": "dollar",
    "€": "euro",
    "£": "pound_sterling",
    "¥": "yen",
    "₹": "rupee",
    "¢": "us_cent",
    "'": "foot",
    '"': "inch",
}
_PINT_SPELLINGS = [
    (re.compile(r"°\s*([CFK])\b"), r"deg\1"),
    (re.compile(r"(?i)\bdeg(?:rees?)?\s+(?:C\b|Celsius)|\bcentigrade\b"), "degC"),
    (re.compile(r"(?i)\bdeg(?:rees?)?\s+(?:F\b|Fahrenheit)"), "degF"),
    (re.compile(r"°"), " degree "),
    (re.compile(r"\bfl\.?\s?oz\b|\bfluid ounces?\b"), "floz"),
    (re.compile(r"\blight years?\b"), "lightyear"),
    (re.compile(r"\b(kg|cm|km|mm|mg|ml)s\b"), r"\1"),
    (re.compile(r"\bkmh\b"), "kph"),
    (re.compile(r"\bnautical miles?\b"), "nautical_mile"),
    (re.compile(r"\bold$"), ""),  # 7 years old
    (re.compile(r"·"), "*"),
]


@lru_cache(maxsize=4096)
def _resolved(unit: str):
    """pint's unit of this name, or None; words may be written in any case, symbols (mW,
    MW) may not.
    """
    for sign, name in _SIGNS.items():
        unit = unit.replace(sign, f" {name} ")
    for pattern, spelling in _PINT_SPELLINGS:
        unit = pattern.sub(spelling, unit)
    unit = " ".join(unit.split()).removesuffix(".")
    per = re.sub(r"\bper\b", "/", unit)
    for name in (
        per,
        _TITLE.sub(lambda word: word[0].casefold(), per),
        per.casefold() if per.isupper() else per,
    ):
        try:
            return _registry().parse_units(name)
        except Exception:  # not defined, or no unit at all: pint raises many kinds
            continue
    return None


def _known(word: str) -> bool:
    return _currency(word) is not None or _resolved(word) is not None
