"""Dates and times: `2024-01-02`, `January 2, 2024`, `Jan 5`, `3:30 PM`, `15:30 UTC`,
`2024-01-02T15:30Z`.

The patterns say which parts are there, so that nothing is filled in; dateutil reads the names and
checks the calendar. A date such as 01/02/2024 may be read in two ways, so it is equal to the same
digits alone.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import NamedTuple

from helpers.rewards.answers.spelling import as_text, plain

_LONGEST = 60
_DAY = r"(?:the\s)?(?P<day>\d{1,2})(?:st|nd|rd|th|\.)?"
_MONTH = r"(?P<month>[A-Za-z]{3,9})\.?"
_YEAR = r"(?P<year>\d{4})"
_DATES = [
    re.compile(pattern)
    for pattern in (
        r"(?P<year>\d{4})(?P<s>[-/.])(?P<month>\d{1,2})(?P=s)(?P<day>\d{1,2})",
        rf"{_MONTH}\s{_DAY}(?:,?\s{_YEAR})?",
        rf"{_DAY}[\s-](?:of\s)?{_MONTH}(?:,?[\s-]{_YEAR})?",
        rf"{_MONTH},?\s{_YEAR}",
        rf"{_YEAR}[\s-]{_MONTH}[\s-]{_DAY}",
    )
]
_NUMERIC = re.compile(r"(\d{1,2})([-/.])(\d{1,2})\2(\d{4}|(?<!\.)\d\d)")
_TIME = re.compile(
    r"(?P<hour>\d{1,2})(?:(?P<colon>[:.])(?P<minute>\d\d)(?::(?P<second>\d\d))?)?\s?(?P<half>[ap]\.?m\b\.?)?"
    r"\s?(?P<zone>Z|[A-Z]{2,4}T|UTC|GMT|[+-]\d\d:?\d\d)?",
    re.IGNORECASE,
)
_WEEKDAY = re.compile(r"(?P<name>[A-Za-z]{3,9})\.?,?\s(?=.*\d)")
_CLOCK_WORDS = {"noon": "12:00 pm", "midnight": "12:00 am", "midday": "12:00 pm"}
_WORLD_TIME = ("Z", "UTC", "GMT", "+00:00", "+0000", "-00:00")


class Moment(NamedTuple):
    """What a text says of a moment; None where it says nothing.

    ambiguous: the three numbers of a date such as 01/02/2024.

    time: hour (24), minute, second, and whether the half of the day is known.
    """

    year: int | None = None
    month: int | None = None
    day: int | None = None
    weekday: int | None = None
    ambiguous: tuple | None = None
    time: tuple | None = None
    zone: str | None = None


def same_moment(given: str, gold: str) -> bool:
    """Whether both name the same date, time, or both; nothing that one of them leaves out is filled
    in.

    >>> same_moment("5 January", "Jan 5"), same_moment("15:30", "3:30 PM")
    (True, True)
    >>> same_moment("3pm", "3am")
    False
    """
    if as_text(given) == as_text(gold):
        return True
    one, other = moment(given), moment(gold)
    if one is None or other is None:
        return False
    if one.weekday != other.weekday and not _falls_on(
        one, other.weekday if one.weekday is None else one.weekday
    ):
        return False
    return one._replace(weekday=None) == other._replace(weekday=None)


@lru_cache(maxsize=1 << 14)
def moment(text: str) -> Moment | None:
    """The date or time that the whole text is, or None.

    >>> moment("July 1969")
    Moment(year=1969, month=7, day=None, weekday=None, ambiguous=None, time=None, zone=None)
    """
    if len(text) > _LONGEST:
        return None
    text = " ".join(plain(text).split()).strip(",;")
    text = _CLOCK_WORDS.get(text.casefold(), text)
    found = _time(text) or _date(text)
    if found is None and (
        split := re.fullmatch(r"(.+?)(?:(?<=\d)T(?=\d)|,?\sat\s|,?\s)(\d[\w:.+\s-]*)", text)
    ):
        day, clock = _date(split[1]), _time(split[2])
        if day and clock:
            found = day._replace(time=clock.time, zone=clock.zone)
    if found is None and text.endswith("."):
        return moment(text[:-1])
    return found


def _time(text: str) -> Moment | None:
    match = _TIME.fullmatch(text)
    if not match or not (match["half"] or match["colon"] == ":"):
        return None
    hour, minute, second = (int(match[name] or 0) for name in ("hour", "minute", "second"))
    half = (match["half"] or "").casefold()[:1]
    if (half and not 1 <= hour <= 12) or hour > 23 or minute > 59 or second > 59:
        return None
    # Without am or pm an hour up to 12 may be either, unless it is written as on a clock of 24
    # hours.
    known = (
        bool(half)
        or hour == 0
        or hour > 12
        or match["hour"].startswith("0")
        or bool(match["second"])
    )
    if half:
        hour = hour % 12 + 12 * (half == "p")
    zone = match["zone"] and match["zone"].upper()
    return Moment(time=(hour, minute, second, known), zone="UTC" if zone in _WORLD_TIME else zone)


def _date(text: str) -> Moment | None:
    weekday = None
    if (match := _WEEKDAY.match(text)) and (weekday := _names().weekday(match["name"])) is not None:
        text = text[match.end() :]
    if numeric := _NUMERIC.fullmatch(text):
        return _numeric(numeric)
    for pattern in _DATES:
        if match := pattern.fullmatch(text):
            parts = match.groupdict()
            month = (
                int(parts["month"]) if parts["month"].isdigit() else _names().month(parts["month"])
            )
            year, day = (int(parts[name]) if parts.get(name) else None for name in ("year", "day"))
            if month is not None and _exists(year, month, day):
                return Moment(year, month, day, weekday)
    return None


@cache
def _names():
    from dateutil.parser import parserinfo

    return parserinfo()


def _numeric(match: re.Match) -> Moment | None:
    first, second, year = int(match[1]), int(match[3]), match[4]
    if len(year) == 4 and first > 12 and _exists(int(year), second, first):
        return Moment(int(year), second, first)
    if len(year) == 4 and second > 12 and _exists(int(year), first, second):
        return Moment(int(year), first, second)
    return (
        Moment(ambiguous=(first, second, year)) if 1 <= first <= 31 and 1 <= second <= 31 else None
    )


def _exists(year: int | None, month: int, day: int | None) -> bool:
    import datetime

    try:
        datetime.date(year or 2000, month, day or 1)
    except ValueError:
        return False
    return True


def _falls_on(date: Moment, weekday: int) -> bool:
    """Whether the date, if it is a whole one, is on that day of the week."""
    import datetime

    whole = None not in (date.year, date.month, date.day)
    return whole and datetime.date(date.year, date.month, date.day).weekday() == weekday
