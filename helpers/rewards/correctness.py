"""Rewards for a right answer."""

from __future__ import annotations

import re
import warnings
from fractions import Fraction
from itertools import combinations

from helpers.formats import THINK_ANSWER, TagFormat, completion_text

_LONGEST_NUMBER = 100  # characters; a longer text is compared as text, so no completion can cost more than a regex on 100
_MOST_BLOCKS = 8  # more answer blocks than this are no answer, and comparing every two would cost
_NUMBER = re.compile(
    r"""(?P<sign>[+-]?)\s?[$€£]?\s?(?P<again>[+-]?)
        (?P<whole>\d{1,3}(?:,\d{3})+|\d+)?(?P<decimals>\.\d*)?(?:[eE](?P<exponent>[+-]?\d{1,3}))?
        (?:\s?/\s?(?P<denominator>\d+))?
        \s?(?P<percent>%)?\s?(?P<unit>[^\W\d_]*)\.?""",
    re.VERBOSE | re.ASCII,
)
# Words that stand between or before alternatives; "42 or" is no unit, it is half of a hedge.
_NOT_A_UNIT = {"or", "and", "not", "e", "x", "to"}


def correctness_reward(
    completions: list, answer: list | None = None, tags: TagFormat = THINK_ANSWER, **columns
) -> list[float | None]:
    """1.0 where the judged answer equals the row's, else 0.0; None where the row has no answer to compare with.

    The judged text is the last complete answer block outside the reasoning. Blocks that disagree with one another score 0:
    naming two answers is hedging. Numbers are compared by value (see `parse_number`), everything else as text, without
    regard to case and spacing. `completions` are strings or chat messages, `answer` one text a completion.

    >>> correctness_reward(["<think>2 + 2</think><answer>$4.00</answer>", "4"], answer=["4", "4"])
    [1.0, 0.0]
    """
    if answer is None:
        answer = [None] * len(completions)
    missing = sum(map(_is_missing, answer))
    if missing:
        warnings.warn(f"correctness_reward: {missing} of {len(answer)} rows have no answer; they score None.", stacklevel=2)
    return [_verdict(completion, gold, tags) for completion, gold in zip(completions, answer, strict=True)]


def _verdict(completion: object, gold: object, tags: TagFormat) -> float | None:
    if _is_missing(gold):
        return None
    blocks = tags.answer_blocks(completion_text(completion))
    if not blocks or len(blocks) > _MOST_BLOCKS or not all(same_answer(a, b) for a, b in combinations(set(blocks), 2)):
        return 0.0
    return float(same_answer(blocks[-1], str(gold)))


def _is_missing(gold: object) -> bool:
    # gold != gold: a float nan, which is how pandas spells a missing value.
    return gold is None or gold != gold or not str(gold).strip()


def same_answer(given: str, gold: str) -> bool:
    """Whether two answers mean the same: as numbers where both are, with equal units where both name one; else as text.

    >>> same_answer("1,000 dollars", "1000.0"), same_answer("1/2", "50%"), same_answer("5 km", "5 m"), same_answer("", "")
    (True, True, False, False)
    """
    given, gold = given.strip(), gold.strip()
    if given == gold:
        return bool(given)
    a, b = parse_number(given), parse_number(gold)
    if a is None or b is None:
        return bool(given) and " ".join(given.casefold().split()) == " ".join(gold.casefold().split())
    return a[0] == b[0] and (not a[1] or not b[1] or a[1] == b[1])


def parse_number(text: str) -> tuple[Fraction, str] | None:
    """The exact value and the unit ("" without one) of a text that is one number, or None.

    Understands signs (the Unicode minus too), $ € £ before, thousands separators, decimals, exponents up to three digits,
    a/b, percent (50% is 0.5) and one word of unit behind. `nan`, `inf`, ranges and alternatives are not numbers.

    >>> parse_number("−1,234.50")[0] == Fraction(-2469, 2), parse_number("42 or 43")
    (True, None)
    """
    if len(text) > _LONGEST_NUMBER:
        return None
    match = _NUMBER.fullmatch(text.strip().replace("\N{MINUS SIGN}", "-"))
    if not match:
        return None
    whole, decimals = match["whole"] or "", match["decimals"] or ""
    unit = match["unit"].casefold()
    if not (whole or decimals.strip(".")) or unit in _NOT_A_UNIT or (match["sign"] and match["again"]):
        return None
    value = Fraction(f"{whole.replace(',', '') or '0'}.{decimals[1:] or '0'}e{match['exponent'] or '0'}")
    if match["denominator"]:
        if not int(match["denominator"]):
            return None
        value /= int(match["denominator"])
    if match["percent"]:
        value /= 100
    return (-value if "-" in (match["sign"], match["again"]) else value), unit
