"""Whether a short answer means what the row's answer means, by the kind of the row's answer.

The kind is said, by a reward's `kind=` or by a column `kind`; where it is not, an answer is a
number where it parses as one, mathematics where it is clearly LaTeX or an expression, and otherwise
text. Each kind's file begins with examples of what is the same and what is not.
"""

import math
import re
from collections.abc import Iterable
from functools import lru_cache

from helpers.rewards.answers import choices, exact, mathematics, numbers, texts, workers
from helpers.rewards.answers.mathematics import Verdict
from helpers.rewards.answers.numbers import parse_number
from helpers.rewards.answers.spelling import LONGEST, plain, unboxed

KINDS = ("number", "mathematics", "choice", "exact", "text")
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


def same_answer(given: str, gold: str, question: str = "", kind: str | None = None) -> bool:
    """Return whether an answer means what the row's answer means, judged by a kind of `KINDS`, or
    by the one that the row's answer shows.

    An expression copied from the `question` is no answer. ValueError for an unknown `kind`.

    >>> same_answer("$1,000", "1000.0"), same_answer("1/2", "50%"), same_answer("", "")
    (True, True, False)
    >>> same_answer("3.1", "3.10"), same_answer("3.1", "3.10", kind="text")
    (True, False)
    """
    right, pair = compare_answers(given, gold, question, kind)
    return workers.are_equal([pair])[0] if right is None else right


def quick_verdict(
    given: str, gold: str, question: str = "", kind: str | None = None
) -> bool | None:
    """Return `same_answer` wherever it can be told at once; None where math-verify has to judge."""
    return compare_answers(given, gold, question, kind).right


def compare_answers(given: str, gold: str, question: str = "", kind: str | None = None) -> Verdict:
    """Return the verdict where it can be told at once; else the pair that math-verify judges."""
    if given == gold:
        return Verdict(given.strip() != "")
    if len(given) > LONGEST or len(gold) > LONGEST:
        return Verdict(given.strip() == gold.strip())
    kind = checked(kind) if kind else kind_of(gold)
    if given[:1].isalpha():
        given = _LEAD.sub("", given, count=1)  # `The answer is 5` is 5
    if question and kind in ("number", "mathematics") and is_handed_back(given, gold, question):
        return Verdict(False)
    if kind == "mathematics":
        return mathematics.compare_expressions(given, gold)
    if kind == "number" and parse_number(gold) is not None:
        return Verdict(numbers.same_number(given, gold))
    if kind == "choice":
        return Verdict(choices.same_choice(given, gold))
    if kind == "exact":
        return Verdict(exact.same_code(given, gold))
    return Verdict(texts.same_text(given, gold))


def is_handed_back(given: str, gold: str, question: str) -> bool:
    """Return whether an answer hands the task back: an expression of the question's, or a division
    that comes out even.
    """
    if given.isalnum() or texts.same_text(given, gold):
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
    """Return the kind that an answer is judged by where none is said.

    >>> [kind_of(gold) for gold in ("1,000", "$5", "x^2+1", r"\\frac{x}{2}", "y = 3")]
    ['number', 'number', 'mathematics', 'mathematics', 'mathematics']
    >>> {kind_of(gold) for gold in ("5 km", "2024-01-02", "B", "10-5", "H2O", "twelve", "Paris")}
    {'text'}
    """
    number = parse_number(gold)
    if number is not None and "=" not in gold:
        bare = not number.unit or number.unit in numbers.CURRENCY_SIGNS
        even = number.places is None and number.value.denominator == 1  # 50/50 is no fraction
        return "number" if bare and not even and not re.match(r"0\d{4}", gold) else "text"
    text = plain(gold)
    if _CODE.search(text) or not mathematics.is_readable(mathematics.latex(text)):
        return "text"
    letters = mathematics.letters(mathematics.latex(text))
    # Digits with a dash or a slash are dates, scores and ranges; capitals alone are names.
    operation = _OPERATION.search(text) and (
        any(map(str.islower, letters)) or re.search(r"\d\s*[+*]|[+*]\s*\d", text)
    )
    return "mathematics" if _MATHS_SIGN.search(gold) or operation else "text"


def kind_of_row(row: dict) -> str:
    """Return the kind that a row of data is judged by: its own `kind` where that is one, else that
    of its `answer`.
    """
    return NAMES.get(str(row.get("kind"))) or kind_of(row["answer"])


def checked(kind: str) -> str:
    """Return the kind of this name, or of a former name; ValueError where there is none."""
    if kind not in NAMES:
        raise ValueError(
            f"kind={kind!r} is not a kind of answer. Known: {', '.join(KINDS)}; without one, an "
            "answer is a number, mathematics or text."
        )
    return NAMES[kind]


def looks_like(row: dict) -> str | None:
    """Return the kind that a row's answer, judged as text, might better be declared as, or that it
    is a number with a decimal comma: a guess, for a report alone.

    >>> [looks_like({"answer": text}) for text in ("5 km", "(B)", "10-5", "12,0", "Paris")]
    ['number', 'choice', 'exact', 'decimal comma', None]
    """
    gold = row["answer"]
    if isinstance(row.get("kind"), str) or kind_of(gold) != "text":
        return None
    if re.fullmatch(r"[+-]?\d[\d.' ]*,\d+", gold):
        return "decimal comma"
    if choices.split_option(gold)[0]:
        return "choice"
    number = parse_number(gold)
    if number is not None and number.unit:
        return "number"
    return "exact" if re.fullmatch(r"\S*\d\S*", gold) else None


def survey(rows: Iterable[dict]) -> dict[str, dict]:
    """Return what a data report says of the answers: how many of these rows are judged by each
    kind, and how many look like another one, most frequent first, each with ten different examples.

    >>> rows = [{"answer": answer} for answer in ("4", "5", "(B)", "12,0")]
    >>> survey(rows)["answer_hints"]["decimal comma"]
    {'rows': 1, 'examples': ['12,0']}
    """
    rows = list(rows)
    found = {}
    for name, kind_for in (("answer_kinds", kind_of_row), ("answer_hints", looks_like)):
        answers: dict[str, list[str]] = {}
        for row in rows:
            kind = kind_for(row)
            if kind is not None:
                answers.setdefault(kind, []).append(row["answer"][:200])
        found[name] = {
            kind: {"rows": len(given), "examples": list(dict.fromkeys(given))[:10]}
            for kind, given in sorted(answers.items(), key=lambda item: -len(item[1]))
        }
    return found
