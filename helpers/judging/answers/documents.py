r"""JSON: two documents are the same if they have the same value.

Spaces, line breaks, the order of keys, the spelling of numbers and strings, and a fence around the
document do not count. The order of a list, letters and the types of values do. Correct (`=`) and
wrong (`≠`), the given answer first:

- `{"a":1,"b":[2]}` = `{"b": [2], "a": 1.0}`, `"\u0041"` = `"A"`, `1e2` = `100`
- `{"a": 1}` ≠ `{"a": "1"}`, `true` ≠ `1`, `[1, 2]` ≠ `[2, 1]`, `{"a": 1}` ≠ `{"a": 1, "b": null}`
- what is not one JSON document is wrong: `{"a": 1, "a": 2}`, `NaN`, `{'a': 1}`, `{} {}`
"""

import json
import re
from decimal import Decimal

_LONGEST_DOCUMENT = 100_000  # characters
_FENCE = re.compile(r"\s*```\w*\n(.*)\n\s*```\s*", re.DOTALL)


def same_document(given: str, gold: str) -> bool:
    """Return whether two texts are JSON with the same value."""
    try:
        return value_of(given) == value_of(gold)
    # of a deep nesting, where the limit on the stack allows reading but not comparing
    except (ValueError, RecursionError):
        return False


def value_of(text: str) -> object:
    """Return the value of a JSON document. Raise ValueError if the text is anything else, or if it
    has what a policy could write to confuse or delay its judge: repeated keys, NaN, extreme
    exponents, deep nesting.

    >>> value_of('{"a": 1.0}') == value_of('{"a": 1}'), value_of("true") == value_of("1")
    (True, False)
    """
    if len(text) > _LONGEST_DOCUMENT:
        raise ValueError("the document is too long")
    fenced = _FENCE.fullmatch(text)
    try:
        return json.loads(
            fenced[1] if fenced else text,
            object_pairs_hook=_object,
            parse_int=_number,
            parse_float=_number,
            parse_constant=_number,
        )
    except (ArithmeticError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None


def _object(pairs: list[tuple]) -> dict:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key is repeated")
    return dict(pairs)


def _number(spelt: str) -> tuple:
    """Return a number exactly, as what no other type equals: in Python, 1 == True."""
    number = Decimal(spelt)
    if not number.is_finite():
        raise ValueError(f"{spelt} is not JSON")
    return "number", number
