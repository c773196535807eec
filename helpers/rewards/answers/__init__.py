"""Whether a short answer means what the row's answer means. `kinds.py` says what kinds there are;
each has a file, which begins with examples.
"""

import math
import re

from helpers.rewards.answers import dates, kinds, quantities, symbolic, texts
from helpers.rewards.answers.kinds import kind_of
from helpers.rewards.answers.numbers import Number, parse_number
from helpers.rewards.answers.spelling import LONGEST, plain, unboxed

__all__ = ["Number", "judged", "kind_of", "parse_number", "quick_verdict", "same_answer"]

_UNFINISHED = re.compile(
    r"[+*/×÷·!^|√]|(?<=[\w})])\s*-|\\(?!boxed|text|[,%$])|\d\s(?:dozen|\w+illion)"
)
_NOTATION = re.compile(r"\s|\\(?:left|right)|[\\{}()$]")
_LEAD = re.compile(
    r"(?:so\s+|thus,?\s+)?(?:the\s+)?(?:final\s+|correct\s+)?answer\s+is:?\s+(?=\S)", re.IGNORECASE
)


def same_answer(given: str, gold: str, question: str = "", kind: str | None = None, **how) -> bool:
    """Whether an answer means what the row's answer means, judged by a kind of `kinds.KINDS`, or by
    the one that the row's answer shows.

    An expression copied from the `question` is no answer. how: `unit="required"`, without which a
    quantity may leave its unit out; `dayfirst=True`, to read 01/02/2024 as February 1. ValueError
    for an unknown `kind`.

    >>> same_answer("$1,000", "1000.0"), same_answer("1/2", "50%"), same_answer("", "")
    (True, True, False)
    >>> same_answer("5000 m", "5 km"), same_answer("5000 m", "5 km", kind="quantity")
    (False, True)
    >>> same_answer("3.1", "3.10"), same_answer("3.1", "3.10", kind="text")
    (True, False)
    """
    verdict = judged(given, gold, question, kind, **how)
    return verdict if isinstance(verdict, bool) else symbolic.equal([verdict])[0]


def quick_verdict(
    given: str, gold: str, question: str = "", kind: str | None = None, **how
) -> bool | None:
    """`same_answer` wherever it can be told at once; None where math-verify has to judge."""
    verdict = judged(given, gold, question, kind, **how)
    return verdict if isinstance(verdict, bool) else None


def judged(
    given: str,
    gold: str,
    question: str = "",
    kind: str | None = None,
    unit: str | None = None,
    dayfirst: bool = False,
) -> bool | tuple[str, str]:
    """The verdict where it can be told at once; else what `symbolic.equal` has to judge, the row's
    answer and the given one in LaTeX.
    """
    if given == gold:
        return given.strip() != ""
    if len(given) > LONGEST or len(gold) > LONGEST:
        return given.strip() == gold.strip()
    kind = kinds.checked(kind) if kind else kind_of(gold)
    if given[:1].isalpha():
        given = _LEAD.sub("", given, count=1)  # `The answer is 5` is 5
    if question and kind in ("number", "mathematics") and _handed_back(given, gold, question):
        return False
    if kind == "quantity":
        return quantities.same(given, gold, unit)
    if kind == "date":
        return dates.same(given, gold, dayfirst)
    if kind == "number" and parse_number(gold) is None:
        kind = "text"
    return kinds.JUDGES[kind](given, gold)


def _handed_back(given: str, gold: str, question: str) -> bool:
    """Whether the answer hands the task back: an expression of the question's, or a division that
    comes out even.
    """
    if given.isalnum() or texts.same(given, gold):
        return False
    number = parse_number(given)
    if number is not None and number.places is None and number.value.denominator == 1:
        return True
    fraction = re.fullmatch(r"-?(\d+)\s?/\s?(\d+)", plain(given))
    reduced = fraction and math.gcd(*map(int, fraction.groups())) == 1
    copied = _NOTATION.sub("", unboxed(given).removesuffix(".")) in _NOTATION.sub("", question)
    return bool(copied and not reduced and _UNFINISHED.search(given))
