r"""Quantity: value and unit, converted by pint. The unit may be left out, unless it is required.

- `5000 m` = `5 km`, `5 kilometers` = `5 km`, `50 cents` = `$0.50`, `90 minutes` = `1.5 hours`,
  `5` = `5 km`
- `2 hours 30 minutes` = `150 min`, `25 °C` = `77 °F`, `5\text{ cm}^2` = `5 cm^2`,
  `5 apples` = `5 apples`
- `$5 per hour` = `5 dollars/hour`, `60 mph` = `60 miles per hour`, `1 apple` = `1 apples`
- `5 mW` ≠ `5 MW`, `5 m` ≠ `5 km`, `5000` ≠ `5 km`, `5 oranges` ≠ `5 apples`,
  `5 km or 6 km` ≠ `5 km`, `5 €` ≠ `$5`
"""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import pairwise

from helpers.rewards.answers import texts, units
from helpers.rewards.answers.numbers import Number, parse_number, respelled, same_value
from helpers.rewards.answers.spelling import plain

_LONGEST = 100
_PRECISION = 10**12  # what the conversion of units may lose: one part in so many
_COUNTED = re.compile(r"(.*\d)\s*([^\d+*/=<>|]*[a-zA-Z°Ωμ¢'\"][^\d+*/=<>|]*)")  # 5 red apples
_PART = re.compile(r"(\d+(?:\.\d+)?)\s?([a-zA-Z'\"°]+)\.?")
_BETWEEN = re.compile(r"(?:,|and|\s)*")


def same(given: str, gold: str, unit: str | None = None) -> bool:
    """Whether two quantities are the same; with unit="required" a unit must not be left out."""
    one, other = read(given), read(gold)
    if one is None or other is None:
        return texts.same(given, gold)
    (number, counted), (wanted, of) = one, other
    if not counted or not of:
        return (bool(counted) or not of or unit != "required") and same_value(number, wanted)
    if counted != of or isinstance(of, str):
        return counted == of and same_value(number, wanted)
    size = units.magnitude(number.value, number.unit)
    exact = units.magnitude(wanted.value, wanted.unit)
    if size is None or exact is None:  # no float holds 1e400 dB
        return False
    return abs(size[0] - exact[0]) * _PRECISION <= abs(exact[0])


def read(text: str) -> tuple[Number, str | tuple] | None:
    """A number with its unit, and what that measures in pint's base units, or else the noun that it
    counts; "" for a bare number, None for what is no quantity.

    >>> read("5 red apples")
    (Number(value=5, unit='red apples', places=0, percent=False), 'red apple')
    """
    if len(text) > _LONGEST:
        return None
    number = parse_number(text)
    if number is None:
        text = respelled(plain(text)).removesuffix(".")
        counted = _COUNTED.fullmatch(text)
        number = parse_number(counted[1]) if counted else None
        if number is None or number.unit:
            return _several(text)
        number = number._replace(unit=counted[2])
    if not number.unit:
        return number, ""
    size = units.magnitude(1, number.unit)
    return number, size[1] if size else _noun(number.unit)


def _several(text: str) -> tuple[Number, tuple] | None:
    """`2 hours 30 minutes` in seconds: quantities of one kind, each in a smaller unit."""
    parts = _PART.findall(text)
    sizes = [units.magnitude(Fraction(value), unit) for value, unit in parts]
    ones = [units.magnitude(1, unit) for _, unit in parts]
    if len(parts) < 2 or None in sizes or not _BETWEEN.fullmatch(_PART.sub("", text)):
        return None
    falling = all(one[0] > other[0] for one, other in pairwise(ones))
    if not falling or len({base for _, base in sizes}) > 1:
        return None
    whole = sum(value for value, _ in sizes) / ones[0][0]
    return Number(whole, parts[0][1]), ones[0][1]


def _noun(unit: str) -> str:
    """A counted thing in one spelling: without case in longer words, and without the plural."""
    if len(unit) <= 3:
        return unit
    return " ".join(unit.split()).casefold().removesuffix("s")
