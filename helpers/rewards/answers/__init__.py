"""Whether a short answer means what the row's answer means.

`kinds.py` has the rules, one a kind, in a table.
"""

from __future__ import annotations

import math
import re

from helpers.rewards.answers import (
    dates,
    formulas,
    kinds,
    mathematics,
    numbers,
    sets,
    symbolic,
    units,
)
from helpers.rewards.answers.kinds import kind_of
from helpers.rewards.answers.mathematics import looks_mathematical
from helpers.rewards.answers.numbers import Number, parse_number
from helpers.rewards.answers.spelling import LONGEST, as_text, plain, same_words, unboxed

__all__ = [
    "Number",
    "kind_of",
    "looks_mathematical",
    "parse_number",
    "quick_verdict",
    "same_answer",
    "to_compute",
    "unboxed",
]

_UNFINISHED = re.compile(
    r"[+*/×÷·!^|√]|(?<=[\w})])\s*-|\\(?!boxed|text|[,%$])|\d\s(?:dozen|hundred|thousand|million|billion|trillion|lakh|crore)\b"
)
_NOTATION = re.compile(r"\s|\\(?:left|right)|[\\{}()$]")
_LEAD = re.compile(
    r"(?:so\s+|thus,?\s+)?(?:the\s+)?(?:final\s+|correct\s+)?answer\s+is:?\s+(?=\S)", re.IGNORECASE
)
_PRECISION = 10**12  # what conversion of units may lose: one part in so many
_NO_ANSWER = ("", "nan", "inf", "-inf", "+inf")
_FRACTION = re.compile(r"-?(\d{1,20})\s?/\s?(\d{1,20})", re.ASCII)
_RADIANS = re.compile(r"(?:\\(?:text|mathrm)\s*\{\s*)?\brad(?:ians?)?\b\s*\}?")
_DEGREES = {"°", "degree", "degrees", "deg"}


def same_answer(given: str, gold: str, question: str = "", kind: str | None = None) -> bool:
    """Whether an answer means what the row's answer means, judged by the kind of the row's answer
    or by the one given.

    Against a number, arithmetic that was not carried out (`17 + 25`) is no answer, nor is an
    expression copied from the `question`. ValueError for a `kind` that is none of `kinds.KINDS`.

    >>> same_answer("1,000 dollars", "1000.0"), same_answer("1/2", "50%")
    (True, True)
    >>> same_answer("5 km", "5 m"), same_answer("", "")
    (False, False)
    >>> same_answer("3.1", "3.10"), same_answer("3.1", "3.10", kind="text")
    (True, False)
    """
    verdict = quick_verdict(given, gold, question, kind)
    return symbolic.equal([to_compute(given, gold)])[0] if verdict is None else verdict


def quick_verdict(
    given: str, gold: str, question: str = "", kind: str | None = None
) -> bool | None:
    """`same_answer` wherever it can be told at once; None for the pairs that math-verify
    has to judge.
    """
    return verdict_of(given, gold, kind_of(gold) if kind is None else kinds.checked(kind), question)


def verdict_of(given: str, gold: str, kind: str, question: str = "") -> bool | None:
    """`quick_verdict` where the kind is known."""
    if given == gold:
        return (gold.isascii() and gold.isdigit()) or as_text(gold) not in _NO_ANSWER
    if question and _not_worked_out(given, question) and as_text(given) != as_text(gold):
        return False
    if len(given) > LONGEST:
        return as_text(given) == as_text(gold)
    if given[:1].isalpha():
        given = _without_lead(given, gold)
    verdict = _JUDGES[kind](given, gold)
    return verdict if verdict is not None or _readable(given) else False


def to_compute(given: str, gold: str) -> tuple[str, str]:
    """What math-verify is asked where `quick_verdict` is None: the row's answer and the given one,
    in LaTeX.
    """
    (given, _), (gold, _) = (
        mathematics.without_unit(_without_lead(given, gold)),
        mathematics.without_unit(gold),
    )
    given, gold = mathematics.latex(given), mathematics.latex(gold)
    one, other = parse_number(given), parse_number(gold)
    if one and one.unit in _DEGREES and "\\pi" in gold:
        return gold, rf"\frac{{{one.value}\pi}}{{180}}"
    if other and other.unit in _DEGREES:
        return rf"\frac{{{other.value}\pi}}{{180}}", _RADIANS.sub("", given)
    if one and "," in given and not one.unit and sets.collections(gold) is None:
        given = str(one.value)  # 1,024 for 2^{10}
    if (
        sets.collections(gold)
        and mathematics.is_relation(given)
        and not mathematics.is_relation(gold)
    ):
        # math-verify takes an interval for an inequality, and not the other way round
        return given, gold
    compared = None if sets.collections(gold) else mathematics.sides(given, gold)
    return compared[::-1] if compared else (gold, given)


def _same_number(given: str, gold: str) -> bool | None:
    a, b = parse_number(given), parse_number(gold)
    if a is not None and b is not None:
        if a.unit and b.unit and not units.same_unit(a.unit, b.unit):
            return _same_quantity(given, gold)
        return numbers.same_number(a, b)
    if same_words(given, gold):
        return as_text(given) not in _NO_ANSWER
    if b is None or mathematics.is_a_task(given) or mathematics.is_a_tower(given):
        return False
    # of 13 = 12, math-verify judges the last side
    if "=" in given and not mathematics.named(given):
        return False
    compared = mathematics.sides(mathematics.latex(given), gold)
    if compared is None or not mathematics.same_letters(*compared):
        return False
    return None if sets.collections(given) is None and kinds.token(plain(given)) is None else False


def _same_quantity(given: str, gold: str) -> bool | None:
    a, b = parse_number(given), parse_number(gold)
    if (
        a is not None
        and b is not None
        and (not a.unit or not b.unit or units.same_unit(a.unit, b.unit))
    ):
        return numbers.same_number(a, b)
    one, other = numbers.magnitude(given), numbers.magnitude(gold)
    if one is not None and other is not None:
        # no float holds 1e400
        return one[1] == other[1] and abs(one[0] - other[0]) * _PRECISION <= abs(other[0])
    if b is not None and b.unit in _DEGREES and "\\pi" in mathematics.latex(given):
        return None
    one, other = ("".join(plain(text).removesuffix(".").split()) for text in (given, gold))
    return one == other != ""


def _same_mathematics(given: str, gold: str) -> bool | None:
    one, other = mathematics.bare(given), mathematics.bare(gold)
    if one == other or mathematics.same_spelling(given, gold):
        return as_text(given) not in _NO_ANSWER
    (given, unit), (gold, wanted) = mathematics.without_unit(given), mathematics.without_unit(gold)
    if (
        unit
        and wanted
        and not units.same_unit(unit, wanted)
        and units.magnitude(1, unit) != (units.magnitude(1, wanted) or 0)
    ):
        return False
    given, gold = mathematics.latex(given), mathematics.latex(gold)
    number = parse_number(given)
    if number is not None and number.unit in _DEGREES and "\\pi" in gold:
        return None
    compared = mathematics.sides(given, gold)
    if compared is None or not mathematics.same_letters(*compared):
        return False
    if any(map(mathematics.is_spelt, compared)) and not (
        sets.collections(given) and "=" not in gold
    ):
        return mathematics.same_spelling(*compared)
    a, b = map(parse_number, compared)
    if a is not None and b is not None:
        return numbers.same_number(a, b) and (
            not a.unit or not b.unit or units.same_unit(a.unit, b.unit)
        )
    if a is None and sets.collections(given) and not mathematics.is_relation(gold):
        return False
    if b is not None and mathematics.is_a_task(compared[0]):
        return False
    return None


def _readable(given: str) -> bool:
    given = _RADIANS.sub("", mathematics.latex(mathematics.without_unit(given)[0]))
    return looks_mathematical(given) or bool(re.fullmatch(r"\s*[a-zA-Z]\s*", given))


def _same_choice(given: str, gold: str) -> bool:
    given, gold = plain(given), plain(gold)
    one, other = kinds.letters(given), kinds.letters(gold)
    words, wanted = kinds.option_text(given), kinds.option_text(gold)
    if not one:
        return bool(wanted) and same_words(given, wanted)
    if one != other and not (list(other) == sorted(other) and sorted(one) == list(other)):
        return False
    return not (words and wanted) or same_words(words, wanted)


def _same_formula(given: str, gold: str) -> bool:
    verdict = formulas.same_formula(given, gold)
    return plain(given) == plain(gold) if verdict is None else verdict


def _same_text(given: str, gold: str) -> bool:
    return same_words(given, gold) and as_text(gold) not in _NO_ANSWER


_JUDGES = {
    "number": _same_number,
    "quantity": _same_quantity,
    "mathematics": _same_mathematics,
    "set": sets.same_collections,
    "choice": _same_choice,
    "date": dates.same_moment,
    "token": kinds.same_token,
    "formula": _same_formula,
    "text": _same_text,
}


def _not_worked_out(given: str, question: str) -> bool:
    """Whether the answer hands the task back: an expression of the question's, or a division that
    comes out even.
    """
    if given.isalnum():
        return False
    number = parse_number(given)
    if (
        number is not None
        and "/" in number.numeral
        and number.value.denominator == 1
        and not number.numeral.endswith("/1")
    ):
        return True
    if not _UNFINISHED.search(given):
        return False
    fraction = _FRACTION.fullmatch(numbers.respelled(plain(given)))
    if fraction and math.gcd(int(fraction[1]), int(fraction[2])) == 1:
        return False
    return _bare(unboxed(given)) in _bare(question)


def _without_lead(given: str, gold: str) -> str:
    """`The answer is 5` as `5`."""
    return _LEAD.sub("", given, count=1) if _LEAD.match(given) and not _LEAD.match(gold) else given


def _bare(text: str) -> str:
    return _NOTATION.sub("", text)
