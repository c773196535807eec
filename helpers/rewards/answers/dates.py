"""Date: the same date, however written, as dateutil reads it.

What is given must say as much as the row's answer: nothing is filled in. Of 01/02/2024 the first
number is the month, unless `dayfirst` is set. A time of day is no date.

- `January 2, 2024` = `2024-01-02`, `2 Jan 2024` = `2024-01-02`, `5 January` = `Jan 5`,
  `July 1969` = `1969-07`
- `Tuesday, 2024-01-02` = `2024-01-02`, `the 2nd of January 2024` = `2024-01-02`
- `2024` ≠ `2024-01-02`, `January 2, 2024` ≠ `January 2`, `January 2024` ≠ `2024-01-02`
- `Monday, 2024-01-02` ≠ `2024-01-02`, `Jan 5 Feb` ≠ `Feb 5`, `5` ≠ `Jan 5`,
  `01/02/24` ≠ `2024-01-02`, `2024-01-02 15:30` ≠ `2024-01-02`
"""

import re
from datetime import datetime
from functools import lru_cache

from helpers.rewards.answers import texts
from helpers.rewards.answers.spelling import plain

_LONGEST = 60
# They differ in every part, so that what comes out of both alike was said. Each has a month of 31
# days in a year of 366, so that every day of a month is read.
_DEFAULTS = datetime(2000, 1, 1, 1), datetime(2004, 3, 2, 2)


def same(given: str, gold: str, dayfirst: bool = False) -> bool:
    """Whether both name the same date."""
    if texts.same(given, gold):
        return True
    one, other = said(given, dayfirst), said(gold, dayfirst)
    return one is not None and one == other


@lru_cache(maxsize=1 << 12)
def said(text: str, dayfirst: bool = False) -> dict | None:
    """The parts of a date that the whole text says; None where it is no date, or contradicts
    itself.

    >>> said("July 1969"), said("3:30 pm")
    ({'year': 1969, 'month': 7}, None)
    """
    from dateutil.parser import parser

    text = re.sub(r"\b(?:the|of)\s", "", " ".join(plain(text).split()).rstrip(".,;"))
    if len(text) > _LONGEST:
        return None
    dayfirst = dayfirst and not re.match(r"\d{4}", text)  # nor the month of 2024-01-02 last
    reader = parser()
    try:
        one, other = (
            reader.parse(text, default=default, dayfirst=dayfirst, ignoretz=True)
            for default in _DEFAULTS
        )
    except Exception:  # no date: dateutil raises many kinds of errors for what is none
        return None
    parts = ("year", "month", "day")
    found = {
        part: getattr(one, part) for part in parts if getattr(one, part) == getattr(other, part)
    }
    words = re.findall(r"[A-Za-z]{3,}", text)
    months = [word for word in words if reader.info.month(word)]
    weekdays = {reader.info.weekday(word) for word in words} - {None}
    has_time = one.hour == other.hour
    # of 01/02/69 the century is a guess
    is_guess = "year" in found and not re.search(r"\d{4}", text)
    # Jan 5 Feb names a part twice, and dateutil takes the last
    is_double = len(re.findall(r"\d+", text)) + len(months) > len(found)
    # a weekday contradicts the date, or moves one that is not said in full
    is_moved = weekdays and (len(found) < len(parts) or weekdays != {one.weekday()})
    if has_time or is_guess or is_double or is_moved:
        return None
    return found or None
