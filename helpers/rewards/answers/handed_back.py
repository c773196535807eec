"""The question handed back: an answer that only respells what the question says earns nothing.

"What is 84/12?" is not answered by `84/12` or `168/24`, nor "Factor x^2+5x+6" by `6+5x+x^2`,
although each is equal to the row's answer.
"""

import re
from functools import lru_cache

from helpers.rewards.answers import Comparison, mathematics
from helpers.rewards.answers.numbers import parse_number
from helpers.rewards.answers.texts import plain_text, to_keyboard

_MOST_EXPRESSIONS = 4  # of a question, that math-verify compares with the row's answer


def refuse_handed_back(comparison: Comparison, given: str, gold: str, question: str) -> Comparison:
    """Return the comparison of an answer; wrong if the answer hands the question back.

    Where an expression of the question is equal to the row's answer, as 7/20 to be written as a
    decimal or x^2+5x+6 to be factored, the task is to change its form: the answer then has the
    digits, or the terms and factors, of the row's, in any order.
    """
    # 1. An answer in the row's form, or a question that holds that form, has nothing to change:
    # "Which is larger, 1/2 or 1/3?" has the answer `1/2`.
    given_form = form_of(given)
    gold_form = form_of(gold)
    if given_form == gold_form:
        return comparison
    expressions = {form_of(text): text for text in expressions_of(question)}
    if gold_form in expressions:
        return comparison

    # 2. A copy of an expression of the question, or a division that comes out even: `84/12` for 7.
    number = parse_number(given)
    divides = number is not None and "/" in number.form
    if given_form in expressions or (divides and number.value.denominator == 1):
        return Comparison(False)

    # 3. An expression of the question that is equal to the row's answer, at once or for math-verify
    # to say: `x(x+5)+6` is no factored x^2+5x+6. But an equation with one unknown is a task to
    # solve: all of it is equal to its solution.
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


# What is between the expressions of a question.
_WORDS = re.compile(
    r"""
    # a word, such as Write or as, that is no function, number or LaTeX command
    (?<![\\a-zA-Z]) (?!(?:sqrt|sin|cos|tan|log|ln|exp|pi|dozen|[a-z]{1,8}illion)\b)
    (?:[a-zA-Z]{3,}|is|of|to|as|in|on|at|by|an|if|it|or|be|do|we|he|me) (?![a-zA-Z])
    | [?;:$]          # a mark
    | \\[()\[\]]      # \( and \]
    | [.,](?!\d)      # the full stop of 2.5., not its point
    """,
    re.VERBOSE,
)


@lru_cache(maxsize=1 << 12)
def expressions_of(question: str) -> list[str]:
    """Return what is between the words of a question.

    >>> expressions_of("Write 7/20 as a decimal, and factor $x^2 + 5x$.")
    ['7/20', 'x^2 + 5x']
    """
    pieces = (piece.strip() for piece in _WORDS.split(to_keyboard(question)))
    return [piece for piece in pieces if len(piece) > 1 or piece.isdigit()]
