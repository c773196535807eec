"""Date: the same date, time of day, or both, however written, as dateutil reads them.

What is given must say as much as the row's answer: nothing is filled in. Of 01/02/2024 the first
number is the month, unless `dayfirst` is set.

- `January 2, 2024` = `2024-01-02`, `2 Jan 2024` = `2024-01-02`, `5 January` = `Jan 5`,
  `July 1969` = `1969-07`
- `3:30 PM` = `15:30`, `3 pm` = `3:00 pm`, `15:30 UTC` = `15:30Z`,
  `Tuesday, 2024-01-02` = `2024-01-02`, `noon` = `12 pm`
- `2024` ≠ `2024-01-02`, `January 2, 2024` ≠ `January 2`, `3am` ≠ `3pm`, `3:30 AM` ≠ `3:30`,
  `15:30` ≠ `15:30 UTC`
- `Monday, 2024-01-02` ≠ `2024-01-02`, `10:00 11:00` ≠ `11:00`, `15:30 EST` ≠ `15:30 PST`,
  `5` ≠ `Jan 5`, `01/02/24` ≠ `2024-01-02`
"""

from __future__ import annotations

import re
from datetime import datetime
from functools import cache, lru_cache

from helpers.rewards.answers import texts
from helpers.rewards.answers.spelling import plain

_LONGEST = 60
# They differ in every part, so that what comes out of both alike was said. Each has a month of 31
# days in a year of 366, so that every day of a month is read.
_DEFAULTS = datetime(2000, 1, 1, 1), datetime(2004, 3, 2, 2)
_HALF = re.compile(r"(?<![a-z])[ap]\.?m\b", re.IGNORECASE)
_CLOCK_WORDS = {"noon": "12:00 pm", "midday": "12:00 pm", "midnight": "12:00 am"}
_OFFSET = re.compile(r"[+-]\d\d:?\d\d$")


def same(given: str, gold: str, dayfirst: bool = False) -> bool:
    """Whether both name the same date, time, or both."""
    if texts.same(given, gold):
        return True
    one, other = said(given, dayfirst), said(gold, dayfirst)
    return one is not None and one == other


@lru_cache(maxsize=1 << 12)
def said(text: str, dayfirst: bool = False) -> dict | None:
    """What the whole text says of a moment; None where it is no date, or contradicts itself.

    >>> said("July 1969")
    {'year': 1969, 'month': 7}
    """
    text = " ".join(plain(text).split()).rstrip(".,;")
    text = re.sub(r"\b(?:the|of)\s", "", text)
    text = _CLOCK_WORDS.get(text.casefold(), text)
    if len(text) > _LONGEST:
        return None
    dayfirst = dayfirst and not re.match(r"\d{4}", text)  # nor the month of 2024-01-02 last
    try:
        one, other = (
            _parser().parse(text, default=default, dayfirst=dayfirst, tzinfos=_zone)
            for default in _DEFAULTS
        )
    except Exception:  # no date: dateutil raises many kinds of errors for what is none
        return None
    found = {
        part: getattr(one, part)
        for part in ("year", "month", "day", "hour")
        if getattr(one, part) == getattr(other, part)
    }
    if "year" in found and not re.search(r"\d{4}", text):
        return None  # of 01/02/69 the century is a guess
    words, halves = re.findall(r"[A-Za-z]{3,}", text), _HALF.findall(text)
    months = [word for word in words if _parser().info.month(word)]
    numbers = re.findall(r"\d+", _OFFSET.sub("", text))
    # 10:00 11:00 and Jan 5 Feb name a part twice, and dateutil takes the last.
    if len(numbers) + len(months) > len(found) + 2 * (":" in text) or len(halves) > 1:
        return None
    if "hour" in found:
        clock = re.search(r"\b0\d:", text) is not None or not 0 < one.hour <= 12  # of 24 hours
        found |= {"minute": one.minute, "second": one.second, "half is said": clock or bool(halves)}
        found |= {"zone": (one.utcoffset(), one.tzname())}
    weekdays = {_parser().info.weekday(word) for word in words} - {None}
    if not {"year", "month", "day"} <= found.keys():
        return (found | ({"weekdays": weekdays} if weekdays else {})) or None
    return found if weekdays <= {one.weekday()} else None


@cache
def _parser():
    from dateutil.parser import parser

    return parser()


def _zone(name: str | None, offset: int | None):
    """A time zone by its offset, and where only a name is known, by the name."""
    from dateutil.tz import tzoffset

    if offset is not None:
        return tzoffset(None, offset)
    return tzoffset(name, 0) if name else None
