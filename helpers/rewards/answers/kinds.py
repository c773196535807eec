"""Whether a short answer means what the row's answer means, by the kind of the row's answer.

The kind is said, by a reward's `kind=` or by a column `kind`; where it is not, an answer is a
number where it parses as one, mathematics where it is clearly LaTeX or an expression, and otherwise
text. Each kind's file begins with examples of what is the same and what is not.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

from helpers.rewards.answers import labels, mathematics, numbers, texts, workers
from helpers.rewards.answers.mathematics import Verdict
from helpers.rewards.answers.numbers import parse_number
from helpers.rewards.answers.texts import LONGEST, plain, typed

KINDS = ("number", "mathematics", "choice", "exact", "text")
# A kind by its name, or by a former name.
NAMES = {kind: kind for kind in KINDS} | {
    "set": "mathematics",
    "token": "exact",
    "formula": "exact",
}

_MATHS_SIGN = re.compile(
    r"\\[a-zA-Z]{2,}|[_^]\{|\d_\d|[=<>≤≥≠^√π∞∪∩±∈]|\$\S(?:[^$]*\S)?\$|\bsqrt\b|\bpi\b"
)
_OPERATION = re.compile(r"[\w)]\s*[+*/·×-]\s*[\w(\\]")
_CODE = re.compile(r"==|=>|->|::|&&|\|\||</|[a-zA-Z]{2,}\.[a-zA-Z]{2,}|[a-zA-Z]_\w{2,}")
_LEAD = re.compile(
    r"(?:(?:so|thus|therefore|hence|then)\b,?\s*)?(?:the\s+)?(?:final\s+|correct\s+)?"
    r"answer\s*(?:is\b|:|=)+:?\s*(?=\S)|(?:####|≈|\\approx\b|=)\s*(?=[^\s=])",
    re.IGNORECASE,
)
# A question that asks for solutions, whose order is free.
_SOLUTIONS = re.compile(
    r"\b(?:solutions?|roots|zeros|any order|all (?:\w+ )?values)\b", re.IGNORECASE
)
# What is between the expressions of a question: words that are no functions, units and marks.
_WORDS = re.compile(
    r"(?<![\\a-zA-Z])(?!(?:sqrt|sin|cos|tan|log|ln|exp|pi|dozen|\w+illion)\b)"
    r"(?:[a-zA-Z]{3,}|is|of|to|as|in|on|at|by|an|if|it|or|be|do|we|he|me)(?![a-zA-Z])"
    r"|[?;:$]|\\[()\[\]]|[.,](?!\d)"
)
_MOST_EXPRESSIONS = 4  # of a question, that math-verify compares with the row's answer


def same_answer(given: str, gold: str, question: str = "", kind: str | None = None) -> bool:
    """Return whether an answer means what the row's answer means, judged by a kind of `KINDS`, or
    by the one that the row's answer shows.

    An expression of the `question`, respelt, is no answer. ValueError for an unknown `kind`.

    >>> same_answer("$1,000", "1000.0"), same_answer("1/2", "50%"), same_answer("", "")
    (True, True, False)
    >>> same_answer("3.1", "3.10"), same_answer("3.1", "3.10", kind="text")
    (True, False)
    """
    return settle([compare_answers(given, gold, question, kind)])[0]


def quick_verdict(
    given: str, gold: str, question: str = "", kind: str | None = None
) -> bool | None:
    """Return `same_answer` wherever it can be told at once; None where math-verify has to judge."""
    return compare_answers(given, gold, question, kind).right


def settle(verdicts: list[Verdict]) -> list[bool]:
    """Return whether each answer is right, those that math-verify has to judge in one batch."""
    open_ones = [verdict for verdict in verdicts if verdict.right is None]
    pairs = [pair for verdict in open_ones for pair in (verdict.pair, *verdict.unless)]
    equal = dict(zip(pairs, workers.are_equal(pairs), strict=True))
    return [
        equal[pair] and not any(equal[other] for other in unless) if right is None else right
        for right, pair, unless in verdicts
    ]


def compare_answers(given: str, gold: str, question: str = "", kind: str | None = None) -> Verdict:
    """Return the verdict where it can be told at once; else the pairs that math-verify judges."""
    if given == gold:
        return Verdict(given.strip() != "")
    if len(given) > LONGEST or len(gold) > LONGEST:
        return Verdict(given.strip() == gold.strip())
    judged_as = checked(kind) if kind else kind_of(gold)
    if not given[:1].isdigit():
        given = _LEAD.sub("", given, count=1) if _LEAD.match(given) else given
    if judged_as == "mathematics":
        in_any_order = kind == "set" or bool(_SOLUTIONS.search(question))
        verdict = mathematics.compare_expressions(given, gold, in_any_order)
        if question and verdict.right is None:
            return with_form(verdict, given, gold, question)
        return verdict
    number = parse_number(gold)
    if judged_as == "number" and number is not None:
        if not numbers.same_number(given, gold):
            return Verdict(False)
        return Verdict(not question or in_asked_form(parse_number(given), number, question))
    if judged_as == "choice":
        return Verdict(labels.same_choice(given, gold))
    if judged_as == "exact":
        return Verdict(labels.same_code(given, gold))
    return Verdict(texts.same_text(given, gold))


def vote_of(given: str) -> str:
    """Return what two answers have in common if they are one vote: the value of a number, or the
    words of a text. `5%` is a vote for 0.05, whatever was answered before it.

    >>> vote_of("$42.0"), vote_of("5%"), vote_of("Paris.")
    ('42', '1/20', 'paris')
    """
    number = parse_number(given)
    words = texts.words_of(given)
    if number is not None:
        return str(number.value)
    return words if texts.case_counts(words) else words.casefold()


def in_asked_form(given: numbers.Number, gold: numbers.Number, question: str) -> bool:
    """Return False for a division that comes out even, and where the question has the number in
    another form than the row's answer, as 7/20 to be written as a decimal, and the given answer is
    not in that of the row's.
    """
    if given.form == gold.form:
        return True
    if given.places is None and given.value.denominator == 1:
        return False
    shown = map(parse_number, expressions_of(question))
    return not any(one and one.value == gold.value and one.form != gold.form for one in shown)


def with_form(verdict: Verdict, given: str, gold: str, question: str) -> Verdict:
    """Return the verdict on an expression with what it may not be beside the question.

    Where an expression of the question is equal to the row's answer, the task is to change its
    form, and an answer has the terms and factors of the row's, in any order.
    """

    def terms(text: str) -> list[str]:
        text = re.sub(r"\\cdot|\\times|[{}\s.]", "", mathematics.latex(plain(text)))
        return sorted(text)

    wanted = terms(gold)
    shown = [one for one in expressions_of(question) if _OPERATION.search(one) or "\\" in one]
    if terms(given) == wanted or any(terms(one) == wanted for one in shown):
        return verdict
    if any(terms(given) == terms(one) for one in shown):
        return Verdict(False)
    pairs = []
    for one in shown[:_MOST_EXPRESSIONS]:
        # an equation that has one unknown is a task to solve
        solved = "=" in one and len(mathematics.letters(gold)) < 2
        judged = Verdict(False) if solved else mathematics.compare_expressions(one, gold)
        pairs += [judged.pair] if judged.pair else []
    return verdict._replace(unless=tuple(pairs))


@lru_cache(maxsize=1 << 12)
def expressions_of(question: str) -> list[str]:
    """Return what stands between the words of a question.

    >>> expressions_of("Write 7/20 as a decimal, and factor $x^2 + 5x$.")
    ['7/20', 'x^2 + 5x']
    """
    pieces = (piece.strip() for piece in _WORDS.split(typed(question)))
    return [piece for piece in pieces if len(piece) > 1 or piece.isdigit()]


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
        bare = not number.unit or number.unit in numbers.CURRENCY_SIGNS + "°"
        even = number.places is None and number.value.denominator == 1  # 50/50 is no fraction
        return "number" if bare and not even and not re.match(r"0\d{4}", gold) else "text"
    text = plain(gold)
    spelt = mathematics.latex(text)
    if _CODE.search(text) or not mathematics.is_readable(spelt):
        return "text"
    letters = mathematics.letters(spelt)
    # A list, a tuple or an interval of numbers.
    holds_comma = "," in spelt or mathematics.split_list(spelt) != [spelt.strip()]
    if holds_comma and not letters and mathematics.is_literal(spelt):
        return "mathematics"
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
    kind = kind_of(gold)
    if isinstance(row.get("kind"), str) or kind == "number":
        return None
    if re.fullmatch(r"[+-]?\d[\d.' ]*,\d+", gold):
        return "decimal comma"
    if kind == "mathematics":
        return None
    if labels.split_option(gold)[0]:
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
