"""Units, as pint knows them, and currencies. pint is loaded for the first unit, not before."""

import re
from fractions import Fraction
from functools import cache, lru_cache

SIGNS = {"$": "dollar", "€": "euro", "£": "pound_sterling", "¥": "yen", "₹": "rupee"}
CURRENCIES = {
    "dollar": "$",
    "usd": "$",
    "euro": "€",
    "eur": "€",
    "gbp": "£",
    "yen": "¥",
    "jpy": "¥",
    "rupee": "₹",
    "inr": "₹",
}
_WORD = r"[a-zA-ZµμΩÅ°¢$€£¥₹'\"]+(?:\^-?\d)?"
_SHAPE = re.compile(rf"(?:/\s*|per\s+)?{_WORD}(?:(?:\s*[/*·]\s*|\s+){_WORD}){{0,4}}")
# After a number without a unit of its own these may be a unit. Other letters are pint's too, but
# k, M and B multiply, and e and c are constants; mil is a million as often as an angle.
_LETTERS = set("mghlLNJWVA")  # no s: 1980s is a decade
_NO_UNIT = {"mil", "am", "pm", "ad", "bc", "st", "nd", "rd", "th"}
# A plural of things that are counted: no word such as less, plus or this, no thirds and no tenths,
# and none that multiplies.
_COUNTED = re.compile(r"[a-z]{2,}[^aisu\W]s|people|children")
_NOT_COUNTED = {
    *("halves", "quarters", "dozens", "pairs", "couples", "scores", "tens", "roots"),
    *("percents", "times", "does", "always", "perhaps", "logs"),
}
_SPELLINGS = [
    (r"°\s*([CF])\b|\bdegrees?\s+([CF])\w*", r"deg\1\2"),
    ("°", " degree "),
    ("'", " foot "),
    ('"', " inch "),
    ("·", "*"),
    ("¢", " cent "),
    *((re.escape(sign), f" {name} ") for sign, name in SIGNS.items()),
    (r"\bper\b", "/"),
]


def is_unit(text: str) -> bool:
    """Whether a text behind a number is surely a unit, and nothing that changes the number.

    >>> [is_unit(text) for text in ("km", "hours", "apples", "million", "thirds", "squared", "k")]
    [True, True, True, False, False, False, False]
    """
    if _COUNTED.fullmatch(text) and not re.search("(?:th|third)s$", text):
        return text not in _NOT_COUNTED
    if (len(text) == 1 and text not in _LETTERS | {"°"}) or text.casefold() in _NO_UNIT:
        return False
    size = magnitude(1, text)
    return size is not None and size[1] != ()


@lru_cache(maxsize=1 << 12)
def magnitude(value: Fraction | int, unit: str) -> tuple[Fraction, tuple] | None:
    """The quantity in base units, exactly, and what these are; None where pint does not know the
    unit.

    >>> magnitude(5, "km") == magnitude(5000, "meters"), magnitude(5, "mW") == magnitude(5, "MW")
    (True, False)
    >>> magnitude(5, "apples")
    """
    if not _SHAPE.fullmatch(unit):
        return None
    for pattern, spelling in _SPELLINGS:
        unit = re.sub(pattern, spelling, unit)
    unit = unit.strip()
    # Case counts in symbols; words may be written in any.
    for name in (unit.replace(" ", "_"), unit, unit.casefold()):
        try:
            base = _registry().Quantity(Fraction(value), name).to_root_units()
            return Fraction(base.magnitude), tuple(sorted(base._units.items()))
        except Exception:  # no unit, or none that can be converted: pint raises many kinds
            continue
    return None


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
        "@alias degree_Celsius = Celsius",
        "@alias degree_Fahrenheit = Fahrenheit",
    ):
        registry.define(definition)
    return registry
