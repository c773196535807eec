"""Whether a short answer means what the row's answer means, by the kind of the row's answer.

The kind is said, by a reward's `kind=` or by a column `kind`; where it is not, an answer is a
number where it parses as one, mathematics where it is clearly LaTeX or an expression, and otherwise
text. Each kind's file begins with examples of what is the same and what is not.
"""

import math
import re
from collections.abc import Iterable
from functools import lru_cache

from helpers.rewards.answers import (
    choices,
    dates,
    exact,
    mathematics,
    numbers,
    quantities,
    symbolic,
    texts,
    units,
)
from helpers.rewards.answers.numbers import parse_number
from helpers.rewards.answers.spelling import LONGEST, plain, unboxed

JUDGES = {
    "number": numbers.same,
    "mathematics": mathematics.judged,
    "quantity": quantities.same,
    "date": dates.same,
    "choice": choices.same,
    "exact": exact.same,
    "text": texts.same,
}
KINDS = tuple(JUDGES)
# A kind by its name, or by a former name.
NAMES = {kind: kind for kind in KINDS} | {
    "set": "mathematics",
    "token": "exact",
    "formula": "exact",
}

_MATHS_SIGN = re.compile(r"\\[a-zA-Z]{2,}|[_^]\{|[=<>≤≥≠^√π∞∪∩±∈]|\$\S(?:[^$]*\S)?\$")
_OPERATION = re.compile(r"[\w)]\s*[+*/·×-]\s*[\w(\\]")
_CODE = re.compile(r"==|!=|=>|->|::|&&|\|\||</|[a-zA-Z]{2,}\.[a-zA-Z]{2,}|\w_\w{2,}")
_UNFINISHED = re.compile(
    r"[+*/×÷·!^|√]|(?<=[\w})])\s*-|\\(?!boxed|text|[,%$])|\d\s(?:dozen|\w+illion)"
)
_NOTATION = re.compile(r"\s|\\(?:left|right)|[\\{}()$]")
_LEAD = re.compile(
    r"(?:so\s+|thus,?\s+)?(?:the\s+)?(?:final\s+|correct\s+)?answer\s+is:?\s+(?=\S)", re.IGNORECASE
)


def same_answer(given: str, gold: str, question: str = "", kind: str | None = None, **how) -> bool:
    """Whether an answer means what the row's answer means, judged by a kind of `KINDS`, or by the
    one that the row's answer shows.

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
    kind = checked(kind) if kind else kind_of(gold)
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
    return JUDGES[kind](given, gold)


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


@lru_cache(maxsize=1 << 16)
def kind_of(gold: str) -> str:
    """The kind that an answer is judged by where none is said.

    >>> [kind_of(gold) for gold in ("1,000", "twelve", "$5", "x^2+1", r"\\frac{x}{2}", "y = 3")]
    ['number', 'number', 'number', 'mathematics', 'mathematics', 'mathematics']
    >>> {kind_of(gold) for gold in ("5 km", "2024-01-02", "B", "10-5", "H2O", "AC/DC", "Paris")}
    {'text'}
    """
    number = parse_number(gold)
    if number is not None and "=" not in gold:
        bare = not number.unit or number.unit in units.SIGNS
        even = number.places is None and number.value.denominator == 1  # 50/50 is no fraction
        return "number" if bare and not even and not re.match(r"0\d{4}", gold) else "text"
    text = plain(gold)
    if _CODE.search(text) or not mathematics.readable(mathematics.latex(text)):
        return "text"
    letters = mathematics.letters(mathematics.latex(text))
    # Digits with a dash or a slash are dates, scores and ranges; capitals alone are names.
    operation = _OPERATION.search(text) and (
        any(map(str.islower, letters)) or re.search(r"\d\s*[+*]|[+*]\s*\d", text)
    )
    return "mathematics" if _MATHS_SIGN.search(gold) or operation else "text"


def kind_of_row(row: dict) -> str:
    """The kind that a row of data is judged by: its own `kind` where that is one, else that of its
    `answer`.
    """
    return NAMES.get(str(row.get("kind"))) or kind_of(row["answer"])


def checked(kind: str) -> str:
    """The kind of this name, or of a former name; ValueError where there is none."""
    if kind not in NAMES:
        raise ValueError(
            f"kind={kind!r} is no kind of answer. Known: {', '.join(KINDS)}; without one, an "
            "answer is a number, mathematics or text."
        )
    return NAMES[kind]


def looks_like(row: dict) -> str | None:
    """The kind that a row's answer, judged as text, might better be declared as, or a number with a
    decimal comma: a guess, for a report alone.

    >>> [looks_like({"answer": text}) for text in ("5 km", "Jan 5", "(B)", "10-5", "12,0", "Paris")]
    ['quantity', 'date', 'choice', 'exact', 'decimal comma', None]
    """
    gold = row["answer"]
    if isinstance(row.get("kind"), str) or kind_of(gold) != "text":
        return None
    if re.fullmatch(r"[+-]?\d[\d.' ]*,\d+", gold):
        return "decimal comma"
    if choices.named(gold)[0]:
        return "choice"
    quantity = quantities.read(gold)
    if quantity is not None and quantity[2]:
        return "quantity"
    moment = dates.said(gold)
    if moment is not None and len(moment) > 1 and re.search(r"[A-Za-z:]|\d{4}", gold):
        return "date"
    return "exact" if re.fullmatch(r"\S*\d\S*", gold) else None


def survey(rows: Iterable[dict]) -> dict[str, dict]:
    """What a data report says of the answers: how many of these rows are judged by each kind, and
    how many look like another one, most frequent first, each with ten different examples.

    >>> rows = [{"answer": answer} for answer in ("4", "5", "5 km", "12,0")]
    >>> survey(rows)["answer_hints"]["decimal comma"]
    {'rows': 1, 'examples': ['12,0']}
    """
    rows, found = list(rows), {}
    for name, kind_for in (("answer_kinds", kind_of_row), ("answer_hints", looks_like)):
        answers: dict[str, list[str]] = {}
        for row in rows:
            if (kind := kind_for(row)) is not None:
                answers.setdefault(kind, []).append(row["answer"][:200])
        found[name] = {
            kind: {"rows": len(given), "examples": list(dict.fromkeys(given))[:10]}
            for kind, given in sorted(answers.items(), key=lambda item: -len(item[1]))
        }
    return found
