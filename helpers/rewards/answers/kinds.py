"""Whether a short answer means what the row's answer means, by the kind of the row's answer.

The kind is said, by a reward's `kind=` or by a column `kind`; where it is not, an answer is a
number where it parses as one, mathematics where it is clearly LaTeX or an expression, and otherwise
text. Each kind's file begins with examples of what is the same and what is not.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

from helpers.rewards.answers import Comparison, labels, mathematics, numbers, texts, workers
from helpers.rewards.answers.numbers import parse_number
from helpers.rewards.answers.texts import LONGEST_ANSWER, plain_text, to_keyboard

KINDS = ("number", "mathematics", "choice", "exact", "text")
DECLARED_KINDS = (*KINDS, "set")  # a set is mathematics whose lists have no order

_MATHS_SIGN = re.compile(
    r"\\[a-zA-Z]{2,}|[_^]\{|\d_\d|[=<>≤≥≠^√π∞∪∩±∈]|\$\S(?:[^$]*\S)?\$|\bsqrt\b|\bpi\b|[\d)]!"
    r"|(?i:^no (?:real )?solutions?\W*$)"
)
_OPERATION = re.compile(r"[\w)]\s*[+*/·×-]\s*[\w(\\]")
_CODE = re.compile(r"==|=>|->|::|&&|\|\||</|[a-zA-Z]{2,}\.[a-zA-Z]{2,}|[a-zA-Z]_\w{2,}")
_LEAD = re.compile(
    r"\*{0,2}(?:(?:so|thus|therefore|hence|then)\b,?\s*)?(?:the\s+)?(?:final\s+|correct\s+)?"
    r"(?:answer|option|choice)\s*(?:is\b|:|=)+:?\*{0,2}\s*(?=\S)|(?:####|≈|\\approx\b|=)\s*(?=[^\s=])",
    re.IGNORECASE,
)
# A question that asks for solutions, whose order is free.
_SOLUTIONS = re.compile(
    r"\b(?:solutions?|roots|zeros|any order|all (?:\w+ )?values)\b", re.IGNORECASE
)
# What is between the expressions of a question: words that are no functions, units and marks.
_WORDS = re.compile(
    r"(?<![\\a-zA-Z])(?!(?:sqrt|sin|cos|tan|log|ln|exp|pi|dozen|[a-z]{1,8}illion)\b)"
    r"(?:[a-zA-Z]{3,}|is|of|to|as|in|on|at|by|an|if|it|or|be|do|we|he|me)(?![a-zA-Z])"
    r"|[?;:$]|\\[()\[\]]|[.,](?!\d)"
)
_MOST_EXPRESSIONS = 4  # of a question, that math-verify compares with the row's answer


def compare_answers(
    given: str, gold: str, question: str = "", kind: str | None = None
) -> Comparison:
    """Return whether an answer means what the row's answer means, judged by a kind of `KINDS`, or
    by the one that the row's answer shows; `are_right` decides what math-verify has to judge.

    An expression of the `question`, respelt, is no answer. ValueError for an unknown `kind`.

    >>> compare_answers("$1,000", "1000.0").right, compare_answers("1/2", "50%").right
    (True, True)
    >>> compare_answers("3.1", "3.10").right, compare_answers("3.1", "3.10", kind="text").right
    (True, False)
    >>> compare_answers("x/2", r"\\frac{x}{2}").right is None
    True
    """
    if given == gold:
        return Comparison(given.strip() != "")
    if len(given) > LONGEST_ANSWER or len(gold) > LONGEST_ANSWER:
        return Comparison(given.strip() == gold.strip())
    kind = check_kind(kind) if kind else kind_of(gold)
    if _LEAD.match(given):
        given = _LEAD.sub("", given, count=1)
    if kind in ("mathematics", "set") or (kind == "number" and parse_number(gold) is not None):
        if kind == "number":
            found = Comparison(numbers.same_number(given, gold))
        else:
            in_any_order = kind == "set" or bool(_SOLUTIONS.search(question))
            found = mathematics.compare_expressions(given, gold, in_any_order)
        wrong = found.right is False
        return found if wrong or not question else refuse_handed_back(found, given, gold, question)
    if kind == "choice":
        return Comparison(labels.same_choice(given, gold))
    if kind == "exact":
        return Comparison(labels.same_code(given, gold))
    return Comparison(texts.same_text(given, gold))


def are_right(comparisons: list[Comparison]) -> list[bool]:
    """Return whether each answer is right, those that math-verify has to judge in one batch."""
    pairs = [pair for one in comparisons if one.pair for pair in (one.pair, *one.unless)]
    if not pairs:
        return [one.right for one in comparisons]
    equal = dict(zip(pairs, workers.scores_in_time("equal", pairs), strict=True))
    return [
        # what could not be judged in time is no proof that the question was not handed back
        equal[pair] == 1.0 and all(equal[other] == 0.0 for other in unless)
        if right is None
        else right
        for right, pair, unless in comparisons
    ]


def vote_of(given: str) -> str:
    """Return what two answers have in common if they are one vote: the value of a number, or the
    words of a text. `5%` is a vote for 0.05, whatever was answered before it.

    >>> vote_of("$42.0"), vote_of("5%"), vote_of("Paris.")
    ('42', '1/20', 'paris')
    """
    number = parse_number(given)
    if number is not None:
        return str(number.value)
    words = texts.words_of(given)
    return words if texts.case_counts(words) else words.casefold()


def refuse_handed_back(found: Comparison, given: str, gold: str, question: str) -> Comparison:
    """Return what was found of an answer, beside the question; wrong if it hands the task back.

    Where an expression of the question is equal to the row's answer, as 7/20 to be written as a
    decimal or x^2+5x+6 to be factored, the task is to change its form: the answer then has the
    digits, or the terms and factors, of the row's, in any order.
    """
    if terms_of(given) == terms_of(gold):
        return found
    shown = {terms_of(one): one for one in expressions_of(question)}
    if terms_of(gold) in shown:
        return found
    number = parse_number(given)
    divides = number is not None and "/" in number.form
    if terms_of(given) in shown or (divides and number.value.denominator == 1):
        return Comparison(False)  # copied, or a division that comes out even
    unless = []
    for one in list(shown.values())[:_MOST_EXPRESSIONS]:
        # an equation with one unknown is a task to solve
        if "=" not in one or len(mathematics.variables(gold)) > 1:
            unless.append(mathematics.compare_expressions(one, gold))
    if any(other.right for other in unless):
        return Comparison(False)
    return found._replace(unless=tuple(other.pair for other in unless if other.pair))


def terms_of(text: str) -> str:
    """Return what two spellings of one form share: a number's value and how it is written, or the
    characters of an expression without their order.

    >>> terms_of("$0.50") == terms_of(".5") != terms_of("1/2"), terms_of("b+a") == terms_of("a + b")
    (True, True)
    """
    number = parse_number(text)
    if number is not None:
        return f"{number.value} {number.form}"
    return "".join(sorted(re.sub(r"\\cdot|[{}\s.]", "", mathematics.to_latex(plain_text(text)))))


@lru_cache(maxsize=1 << 12)
def expressions_of(question: str) -> list[str]:
    """Return what is between the words of a question.

    >>> expressions_of("Write 7/20 as a decimal, and factor $x^2 + 5x$.")
    ['7/20', 'x^2 + 5x']
    """
    pieces = (piece.strip() for piece in _WORDS.split(to_keyboard(question)))
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
        bare = number.unit in numbers.CURRENCY_SIGNS + "°" or "\\" in gold
        even = number.places is None and number.value.denominator == 1  # 50/50 is no fraction
        return "number" if bare and not even and not re.match(r"0\d{4}", gold) else "text"
    text = plain_text(gold)
    spelt = mathematics.to_latex(text)
    if _CODE.search(text) or not mathematics.is_readable(spelt):
        return "text"
    letters = mathematics.variables(spelt)
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
    return row["kind"] if row.get("kind") in DECLARED_KINDS else kind_of(row["answer"])


def check_kind(kind: str) -> str:
    """Return the kind; ValueError where there is none of this name."""
    if kind not in DECLARED_KINDS:
        raise ValueError(
            f"kind={kind!r} is not a kind of answer. Known: {', '.join(DECLARED_KINDS)}; without "
            "one, an answer is a number, mathematics or text."
        )
    return kind


def looks_like(row: dict) -> str | None:
    """Return the kind that a row's answer, judged as text, might better be declared as, or that it
    is a number with a decimal comma: a guess, for a report alone.

    >>> [looks_like({"answer": text}) for text in ("5 km", "(B)", "10-5", "12,0", "Paris")]
    ['number', 'choice', 'exact', 'decimal comma', None]
    """
    gold = row["answer"]
    kind = kind_of(gold)
    number = parse_number(gold)
    looks = {
        "decimal comma": kind != "number" and re.fullmatch(r"[+-]?\d[\d.' ]*,\d+", gold),
        "choice": kind == "text" and labels.split_option(gold)[0],
        "number": kind == "text" and number is not None and number.unit,
        "exact": kind == "text" and re.fullmatch(r"\S*\d\S*", gold),
    }
    declared = isinstance(row.get("kind"), str)
    return None if declared else next((name for name, so in looks.items() if so), None)


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
