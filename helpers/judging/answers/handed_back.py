"""Refuse the question handed back: an answer that only copies or respells it earns nothing.

`84/12` does not answer "What is 84/12?", and `6+5x+x^2` does not answer "Factor x^2+5x+6", although
each is equal to the row's answer.
"""

import re
from functools import lru_cache

from helpers.judging.answers import Comparison, mathematics
from helpers.judging.answers.numbers import parse_number
from helpers.judging.answers.texts import plain_text, to_keyboard

_MOST_EXPRESSIONS = 4  # of one question, compared with the row's answer


def refuse_handed_back(comparison: Comparison, given: str, gold: str, question: str) -> Comparison:
    """Return the comparison of an answer, or a wrong one if the answer hands the question back.

    If the question contains an expression equal to the row's answer, the task is to change its
    form: to write 7/20 as a decimal, or to factor x^2+5x+6. The answer must then have the row's
    form: the same digits, or the same terms and factors in any order.
    """
    # 1. Keep the comparison if the answer has the form of the row's answer.
    given_form = form_of(given)
    gold_form = form_of(gold)
    if given_form == gold_form:
        return comparison

    # 2. Refuse a copy from the question, and a division left undone: `84/12` for 7.
    expressions = {form_of(text): text for text in expressions_of(question)}
    if given_form in expressions or mathematics.divisions_of(given) - mathematics.divisions_of(
        gold
    ):
        return Comparison(False)

    # 3. Keep the comparison if the question has the row's answer itself, as in "Which is larger,
    # 1/2 or 1/3?": there is no form to change.
    if gold_form in expressions:
        return comparison

    # 4. Refuse the answer if an expression of the question is equal to the row's answer. If only
    # math-verify can tell, `unless` hands it the pair, and the answer is wrong if the two are
    # equal. Equations in one unknown are skipped: an
    # equation to solve is always equal to its solution.
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
    """Return the form of an answer: a number's value and spelling, or an expression's characters,
    sorted.

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
    """Return the expressions between the words of a question.

    >>> expressions_of("Write 7/20 as a decimal, and factor $x^2 + 5x$.")
    ['7/20', 'x^2 + 5x']
    """
    pieces = (piece.strip() for piece in _WORDS.split(to_keyboard(question)))
    return [piece for piece in pieces if len(piece) > 1 or piece.isdigit()]


# Words and punctuation between the expressions of a question.
_WORDS = re.compile(
    r"""
    # a word, such as Write or as, but not a function, a number or a LaTeX command
    (?<![\\a-zA-Z]) (?!(?:sqrt|sin|cos|tan|log|ln|exp|pi|dozen|[a-z]{1,8}illion)\b)
    (?:[a-zA-Z]{3,}|is|of|to|as|in|on|at|by|an|if|it|or|be|do|we|he|me) (?![a-zA-Z])
    | [?;:$]          # punctuation
    | \\[()\[\]]      # \( and \]
    | [.,](?!\d)      # the full stop of 2.5., not its point
    """,
    re.VERBOSE,
)
