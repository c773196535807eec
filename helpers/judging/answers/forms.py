"""The form in which an answer is written, and the expressions that a question contains: by these,
`kinds.refuse_handed_back` finds answers that only copy or respell the question.
"""

import re
from functools import lru_cache

from helpers.judging.answers.latex import to_latex
from helpers.judging.answers.numbers import parse_number
from helpers.judging.answers.texts import plain_text, to_keyboard


def form_of(text: str) -> str:
    """Return the form of an answer: a number's value and spelling, or an expression's characters,
    sorted.

    >>> form_of("$0.50") == form_of(".5") != form_of("1/2"), form_of("b+a") == form_of("a + b")
    (True, True)
    """
    number = parse_number(text)
    if number is not None:
        return f"{number.value} {number.form}"
    spelt = to_latex(plain_text(text))
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
