r"""Quantity: value and unit, converted by pint. The unit may be left out, unless it is required.

- `5000 m` = `5 km`, `5 kilometers` = `5 km`, `50 cents` = `$0.50`, `90 minutes` = `1.5 hours`,
  `5` = `5 km`
- `2.5 hours` = `150 min`, `25 °C` = `77 °F`, `5\text{ cm}^2` = `5 cm^2`,
  `5 apples` = `5 apples`
- `$5 per hour` = `5 dollars/hour`, `60 mph` = `60 miles per hour`, `1 apple` = `1 apples`
- `5%` ≠ `5 km`, `30%` ≠ `30 apples`, `50 km` ≠ `50 ppm`,
  `5 mW` ≠ `5 MW`, `5 m` ≠ `5 km`, `5000` ≠ `5 km`, `5 oranges` ≠ `5 apples`,
  `5 km or 6 km` ≠ `5 km`, `5 €` ≠ `$5`
"""

import re
from fractions import Fraction

from helpers.rewards.answers import texts, units
from helpers.rewards.answers.numbers import Number, parse_number, respelled, same_value
from helpers.rewards.answers.spelling import plain

_LONGEST = 100
_PRECISION = 10**12  # what the conversion of units may lose: one part in so many
_COUNTED = re.compile(r"(.*\d)\s*([^\d+*/=<>|]*[a-zA-Z°Ωμ¢'\"][^\d+*/=<>|]*)")  # 5 red apples


def same(given: str, gold: str, unit: str | None = None) -> bool:
    """Whether two quantities are the same; with unit="required" a unit must not be left out."""
    one, other = read(given), read(gold)
    if one is None or other is None:
        return texts.same(given, gold)
    (number, size, measured), (wanted, exact, of) = one, other
    if not number.unit or not wanted.unit:
        if wanted.unit and (unit == "required" or number.percent):
            return False
        return not (number.unit and wanted.percent) and same_value(number, wanted)
    return measured == of and abs(size - exact) * _PRECISION <= abs(exact)


def read(text: str) -> tuple[Number, Fraction | int, str | tuple] | None:
    """A number with its unit, its size in pint's base units, and what these measure, or else the
    noun that it counts; "" for a bare number, None for what is no quantity.

    >>> read("5 red apples")
    (Number(value=5, unit='red apples', places=0, percent=False), 5, 'red apple')
    """
    if len(text) > _LONGEST:
        return None
    number = parse_number(text)
    if number is None:
        counted = _COUNTED.fullmatch(respelled(plain(text)).removesuffix("."))
        number = parse_number(counted[1]) if counted else None
        if number is None or number.unit:
            return None  # 2 hours 30 minutes are two
        number = number._replace(unit=counted[2])
    noun = " ".join(number.unit.split())
    if len(noun) > 3:  # a word, without case and without the plural
        noun = noun.casefold().removesuffix("s")
    size, measured = units.magnitude(number.value, number.unit) or (number.value, noun)
    return number, size, measured
