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

    An expression of the `question`, respelt, is no answer.

    >>> compare_answers("$1,000", "1000.0").right, compare_answers("1/2", "50%").right
    (True, True)
    >>> compare_answers("3.1", "3.10").right, compare_answers("3.1", "3.10", kind="text").right
    (True, False)
    >>> compare_answers("x/2", r"\\frac{x}{2}").right is None
    True
    """
    if given == gold:
        return Comparison(given.strip() != "")
    if max(len(given), len(gold)) > LONGEST_ANSWER:
        return Comparison(given.strip() == gold.strip())
    kind = kind or kind_of(gold)
    lead = _LEAD.match(given)
    if lead:
        given = given[lead.end() :]
    if kind == "choice":
        return Comparison(labels.same_choice(given, gold))
    if kind == "exact":
        return Comparison(labels.same_code(given, gold))
    if kind == "text" or (kind == "number" and parse_number(gold) is None):
        return Comparison(texts.same_text(given, gold))
    if kind == "number":
        comparison = Comparison(numbers.same_number(given, gold))
    else:
        in_any_order = kind == "set" or bool(_SOLUTIONS.search(question))
        comparison = mathematics.compare_expressions(given, gold, in_any_order)
    if comparison.right is False or not question:
        return comparison
    return refuse_handed_back(comparison, given, gold, question)


def are_right(comparisons: list[Comparison]) -> list[bool]:
    """Return whether each answer is right, those that math-verify has to judge in one batch."""
    pairs = []
    for comparison in comparisons:
        if comparison.pair:
            pairs += [comparison.pair, *comparison.unless]
    if not pairs:
        return [comparison.right for comparison in comparisons]
    equal = dict(zip(pairs, workers.scores_in_time("equal", pairs), strict=True))
    verdicts = []
    for right, pair, unless in comparisons:
        if right is None:
            # what could not be judged in time is no proof that the question was not handed back
            right = equal[pair] == 1.0 and all(equal[other] == 0.0 for other in unless)
        verdicts.append(right)
    return verdicts


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


def refuse_handed_back(comparison: Comparison, given: str, gold: str, question: str) -> Comparison:
    """Return the comparison of an answer; wrong if the answer hands the question back.

    Where an expression of the question is equal to the row's answer, as 7/20 to be written as a
    decimal or x^2+5x+6 to be factored, the task is to change its form: the answer then has the
    digits, or the terms and factors, of the row's, in any order.
    """
    # 1. An answer in the row's form, or a question that holds that form: nothing to change.
    given_form = form_of(given)
    gold_form = form_of(gold)
    if given_form == gold_form:
        return comparison
    expressions = {form_of(text): text for text in expressions_of(question)}
    if gold_form in expressions:
        return comparison

    # 2. A copy of an expression of the question, or a division that comes out even.
    number = parse_number(given)
    divides = number is not None and "/" in number.form
    if given_form in expressions or (divides and number.value.denominator == 1):
        return Comparison(False)

    # 3. An expression of the question that is equal to the row's answer, at once or for math-verify
    # to say. But an equation with one unknown is a task to solve.
    unless = []
    for text in list(expressions.values())[:_MOST_EXPRESSIONS]:
        if "=" in text and len(mathematics.variables(gold)) <= 1:
            continue
        change_of_form = mathematics.compare_expressions(text, gold)
        if change_of_form.right:
            return Comparison(False)
        if change_of_form.pair:
            unless.append(change_of_form.pair)
    return comparison._replace(unless=tuple(unless))


def form_of(text: str) -> str:
    """Return what two spellings of one form share: a number's value and how it is written, or the
    characters of an expression without their order.

    >>> form_of("$0.50") == form_of(".5") != form_of("1/2"), form_of("b+a") == form_of("a + b")
    (True, True)
    """
    number = parse_number(text)
    if number is not None:
        return f"{number.value} {number.form}"
    spelt = mathematics.to_latex(plain_text(text))
    return "".join(sorted(re.sub(r"\\cdot|[{}\s.]", "", spelt)))


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
    # 1. A number; with a unit, as a fraction such as 50/50 or as a postcode it is a text.
    number = parse_number(gold)
    if number is not None and "=" not in gold:
        bare = number.unit in numbers.CURRENCY_SIGNS + "°" or "\\" in gold
        even_fraction = number.places is None and number.value.denominator == 1
        postcode = re.match(r"0\d{4}", gold)
        return "number" if bare and not even_fraction and not postcode else "text"

    # 2. Code, prose, and whatever else math-verify could not read.
    text = plain_text(gold)
    spelt = mathematics.to_latex(text)
    if _CODE.search(text) or not mathematics.is_readable(spelt):
        return "text"

    # 3. A list, a tuple or an interval of numbers; an expression by its signs.
    names = mathematics.variables(spelt)
    is_list = "," in spelt or mathematics.split_list(spelt) != [spelt.strip()]
    if is_list and not names and mathematics.is_literal(spelt):
        return "mathematics"
    # digits with a dash or a slash are dates, scores and ranges; capitals alone are names
    computes = any(map(str.islower, names)) or re.search(r"\d\s*[+*]|[+*]\s*\d", text)
    operation = computes and _OPERATION.search(text)
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
    if isinstance(row.get("kind"), str):
        return None
    if kind != "number" and re.fullmatch(r"[+-]?\d[\d.' ]*,\d+", gold):
        return "decimal comma"
    if kind == "text" and labels.split_option(gold)[0]:
        return "choice"
    if kind == "text" and number is not None and number.unit:
        return "number"
    if kind == "text" and re.fullmatch(r"\S*\d\S*", gold):
        return "exact"
    return None


def survey(rows: Iterable[dict]) -> dict[str, dict]:
    """Return what a data report says of the answers: how many of these rows are judged by each
    kind, and how many look like another one, most frequent first, each with ten different examples.

    >>> rows = [{"answer": answer} for answer in ("4", "5", "(B)", "12,0")]
    >>> survey(rows)["answer_hints"]["decimal comma"]
    {'rows': 1, 'examples': ['12,0']}
    """
    rows = list(rows)
    report = {}
    for name, kind_for in (("answer_kinds", kind_of_row), ("answer_hints", looks_like)):
        answers: dict[str, list[str]] = {}
        for row in rows:
            kind = kind_for(row)
            if kind is not None:
                answers.setdefault(kind, []).append(row["answer"][:200])
        by_frequency = sorted(answers.items(), key=lambda item: -len(item[1]))
        report[name] = {
            kind: {"rows": len(texts_of_kind), "examples": list(dict.fromkeys(texts_of_kind))[:10]}
            for kind, texts_of_kind in by_frequency
        }
    return report
