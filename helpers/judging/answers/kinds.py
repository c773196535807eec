"""Whether an answer means the same as the row's answer, judged by the kind of the row's answer.

The kind is declared by a reward's `kind=` or a column `kind`: number, mathematics, set, choice,
exact, json or text. If it is not, `kind_of` chooses: number if the row's answer parses as one,
mathematics if it clearly is an expression, otherwise text. The module of each kind has examples of
right and wrong answers in its docstrings. In this file: comparing (`compare_answers`, `are_right`),
choosing a kind (`kind_of`), and refusing an answer that only repeats the question
(`refuse_handed_back`).

    comparisons = [compare_answers(given, gold), ...]   # settles most answers at once
    verdicts = are_right(comparisons)                   # math-verify judges the others in one batch
"""

import re
from collections.abc import Callable
from functools import lru_cache
from numbers import Number

from helpers.judging import workers
from helpers.judging.answers import Comparison, check_kind, documents, mathematics, numbers, texts
from helpers.judging.answers.choices_and_codes import same_choice, same_code
from helpers.judging.answers.expressions import (
    divisions_of,
    is_literal,
    split_list,
    variables,
    without_brackets,
)
from helpers.judging.answers.latex import to_latex
from helpers.judging.answers.numbers import parse_number
from helpers.judging.answers.texts import LONGEST_ANSWER, plain_text, to_keyboard

_LONGEST_WORKING = 10_000  # characters of a text that may end in a conclusion
_MOST_EXPRESSIONS = 4  # of one question, compared with the row's answer


def compare_answers(
    given: str | Number, gold: str | Number, question: str = "", kind: str | None = None
) -> Comparison:
    """Compare a given answer with the row's answer.

    The comparison has a verdict, or the pair that `are_right` must pass to math-verify.

    question: the row's question. An answer that only respells an expression of it is wrong, and so
        is the letter of one of its options with the text of another.
    kind: one of `DECLARED_KINDS`; by default the kind that `kind_of` chooses for the row's answer.

    Raise ValueError for another kind, and TypeError for an answer that is neither a text nor a
    number, such as None, or the nan that pandas has for a missing one.

    >>> compare_answers("$1,000", "1000.0").right, compare_answers("1/2", "50%").right
    (True, True)
    >>> compare_answers("3.1", "3.10").right, compare_answers("3.1", "3.10", kind="text").right
    (True, False)
    >>> compare_answers("x/2", r"\\frac{x}{2}").right is None
    True
    """
    # 1. Check the call. nan differs from itself; as a text, a policy could write it.
    if kind:
        check_kind(kind)
    for answer in (given, gold):
        if not isinstance(answer, str | Number) or answer != answer:
            raise TypeError(f"the answer {answer!r} is neither a text nor a number.")
    given = str(given)
    gold = str(gold)
    question = question or ""  # None if the row has none

    # 2. An identical answer is correct, unless it is empty.
    if given == gold:
        return Comparison(given.strip() != "")

    # 3. Compare JSON before anything is cut off, because its texts may look like a conclusion. It
    # may be long, and a lead such as `The answer is` may come before it.
    if kind == "json":
        without_lead = _LEAD.sub("", given)
        same = documents.same_document(given, gold)
        return Comparison(same or documents.same_document(without_lead, gold))

    # 4. Take the conclusion of a working; code that must be exact has none. A long answer must be
    # identical: the rules below are for short ones.
    if kind != "exact":
        given = conclusion_of(given)
    if max(len(given), len(gold)) > LONGEST_ANSWER:
        return Comparison(given.strip() == gold.strip())

    # 5. Drop the lead, and choose the kind. A column may declare `number` for an answer that is not
    # a number, such as `none of them`. No number equals that, so it is compared as text.
    given = _LEAD.sub("", given)
    is_declared = kind is not None
    kind = kind or kind_of(gold)
    if kind == "number" and parse_number(gold) is None:
        kind = "text"

    # 6. Apply the rules of the kind.
    if kind == "choice":
        return Comparison(same_choice(given, gold, question))
    if kind == "exact":
        return Comparison(same_code(given, gold))
    if kind == "text":
        # `1,000.99 m²` is undeclared text, but its number may be spelt in other ways.
        same_quantity = not is_declared and numbers.same_quantity(given, gold)
        return Comparison(same_quantity or texts.same_text(given, gold))
    if kind == "number":
        comparison = Comparison(numbers.same_number(given, gold))
    elif kind == "set" and same_members(given, gold):
        comparison = Comparison(True)  # its members are words, or spelt alike
    elif kind == "set":  # its members may be equal expressions
        given = without_brackets(given)  # `[3, 4]` and `3, 4` are one set
        gold = without_brackets(gold)
        comparison = mathematics.compare_expressions(given, gold, in_any_order=True)
    else:  # mathematics
        in_any_order = bool(_SOLUTIONS.search(question))
        comparison = mathematics.compare_expressions(given, gold, in_any_order)

    # 7. A correct answer in another form than the row's may only repeat the question.
    is_wrong = comparison.right is False
    if is_wrong or not question or numbers.same_form(given, gold):
        return comparison
    return refuse_handed_back(comparison, given, gold, question)


def same_members(given: str, gold: str) -> bool:
    r"""Return whether two sets have the same members as texts, in any order.

    >>> same_members("red and blue", r"\{Blue, red\}"), same_members("red, red", "red, blue")
    (True, False)
    """
    # Each member of one needs a member of its own in the other, and none may be left.
    left = members_of(gold)
    for member in members_of(given):
        same = [other for other in left if texts.same_text(member, other)]
        if not same:
            return False
        left.remove(same[0])
    return not left


def members_of(text: str) -> list[str]:
    r"""Return the members of a set. It may have square brackets, braces or nothing around it, and
    commas or semicolons between its members.

    >>> members_of("[1, 2]"), members_of(r"\{red, blue\}")
    (['1', '2'], ['red', 'blue'])
    """
    bare = without_brackets(text)
    braced = re.fullmatch(r"\\?\{(.*?)\\?\}", bare)
    inside = braced[1] if braced else bare
    return split_list(inside.replace(";", ","))


def conclusion_of(given: str) -> str:
    r"""Return the answer at the end of a working; a text without a conclusion stays as it is.

    A conclusion ends the text. It is the only box, on its own line or after `is` or a colon, or the
    only sentence with `answer is`. Nothing else in prose is an answer.

    >>> conclusion_of("6 * 7 = 42.\nSo the answer is 42."), conclusion_of("6 * 7 is 42.")
    ('42', '6 * 7 is 42.')
    >>> conclusion_of(r"We add. Hence the sum is \boxed{42}."), conclusion_of(r"41 or \boxed{42}")
    ('42', '41 or \\boxed{42}')
    """
    # 1. A single word is no working, and several boxes or sentences are no single conclusion.
    if len(given.split(None, 1)) < 2 or len(given) > _LONGEST_WORKING:
        return given
    boxes = given.count(r"\boxed")
    statements = len(_STATES.findall(given))
    if boxes > 1 or statements > 1:
        return given

    # 2. Look for a box if there is one, or else for a sentence, at the end of the text.
    pattern = _BOX_AT_END if boxes else _STATED_AT_END
    conclusion = pattern.search(given[-LONGEST_ANSWER:].strip())
    return conclusion[1] if conclusion else given


# The words before an answer.
_STATES = re.compile(r"\banswer\s*(?:is\b|:|=)", re.IGNORECASE)
# Lines and then a box, or words such as `Hence the sum is` and then a box.
_BOX_AT_END = re.compile(
    r"(?:\n|(?:\b(?:is|are|equals|gives?|get|have|obtain)|:)\s)\s*"
    r"\$*\\boxed\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})+)\}\$*\.?\Z"
)
# The last of several sentences or lines: `So the answer is 42.`
_STATED_AT_END = re.compile(
    r"(?:\n|[.!?:]\s)\s*(?:(?:so|thus|therefore|hence)\b,?\s*)?(?:the\s+)?(?:final\s+)?"
    r"answer\s*(?:is\b|:|=)+:?\s*(?!not\b)([^\n]*[^\n.])\.?\Z",
    re.IGNORECASE,
)
# A lead before an answer: `So the final answer is: 12`, `**Answer:** 12`, `#### 12`, `= 12`.
_LEAD = re.compile(
    r"""
    ^(?:
    \*{0,2}(?:(?:so|thus|therefore|hence|then)\b,?\s*)?(?:the\s+)?(?:final\s+|correct\s+)?
    (?:answer|option|choice)\s*(?:is\b|:|=)+:?\*{0,2}\s*(?=\S)
    | (?:\#{4}|≈|\\approx\b|=)\s*(?=[^\s=])
    )
    """,
    re.IGNORECASE | re.VERBOSE,
)
# A question whose solutions have no order: `Find all real values of x`, `What are the roots?`
_SOLUTIONS = re.compile(
    r"\b(?:solutions?|roots|zeros|any order|all (?:\w+ )?values)\b", re.IGNORECASE
)


def are_right(
    comparisons: list[Comparison], log: Callable[[float], None] | None = None
) -> list[bool]:
    """Return the verdict of each comparison. math-verify judges the open ones, in one batch.

    log: called with the share of their pairs that were not judged in time.
    """
    # 1. Collect the pairs, and let math-verify judge them: 1.0 if equal, 0.0 if not, None if time
    # ran out.
    pairs = []
    for comparison in comparisons:
        if comparison.pair:
            pairs += [comparison.pair, *comparison.unless]
    scores = workers.scores_in_time("equal", pairs, log) if pairs else []
    score_of = dict(zip(pairs, scores, strict=True))

    # 2. An answer is right only if its pair is known to be equal, and each pair of `unless` is
    # known to differ: if one may be equal, the answer may only repeat the question.
    verdicts = []
    for comparison in comparisons:
        right = comparison.right
        if right is None:
            is_equal = score_of[comparison.pair] == 1.0
            right = is_equal and all(score_of[pair] == 0.0 for pair in comparison.unless)
        verdicts.append(right)
    return verdicts


@lru_cache(maxsize=1 << 16)
def kind_of(gold: str) -> str:
    """Return the kind of an undeclared row's answer: number, mathematics or text.

    The first of these rules that applies decides.

    >>> [kind_of(gold) for gold in ("1,000", "$5", "x^2+1", r"\\frac{x}{2}", "y = 3")]
    ['number', 'number', 'mathematics', 'mathematics', 'mathematics']
    >>> {kind_of(gold) for gold in ("5 km", "2024-01-02", "B", "10-5", "H2O", "twelve", "Paris")}
    {'text'}
    """
    # 1. A number: `1,000`, `$5`, `90°`, `1/3`. `x = 7` is an equation.
    number = parse_number(gold)
    if number is not None and "=" not in gold:
        # `5 km` is text, because the words may count. The unit of `5\text{ km}` does not.
        is_unit_in_words = number.unit not in ("", "°", *numbers.CURRENCY_SIGNS)
        is_latex = "\\" in gold
        if is_unit_in_words and not is_latex:
            return "text"
        # `50/50` is a score: the number would be written as `1`. Only fractions and repeating
        # decimals have no `places`.
        if number.places is None and number.value.denominator == 1:
            return "text"
        # `02134` is a postcode.
        return "text" if re.match(r"0\d{4}", gold) else "number"

    # 2. Code is text: `get_name`.
    text = plain_text(gold)
    if _CODE.search(text):
        return "text"

    # 3. An expression that math-verify could not read is text: `the sum of 2 + 3`.
    spelt = to_latex(text)
    if not mathematics.is_readable(spelt):
        return "text"

    # 4. A sign of mathematics: `y = 3`, `\sqrt{2}`.
    if _MATHS_SIGN.search(gold):
        return "mathematics"

    # 5. A list, a tuple or an interval of numbers: `3, -3`, `2 and 5`, `[0,1)`.
    letters = variables(spelt)
    is_list = "," in spelt or split_list(spelt) != [spelt.strip()]
    if is_list and not letters and is_literal(spelt):
        return "mathematics"

    # 6. An operation on a small letter, `n-1`, or a sum or product with a digit, `3 + N`. Other
    # operations may be a score, `10-5`, or a name, `AC/DC`.
    has_small_letter = any(letter.islower() for letter in letters)
    if _OPERATION.search(text) and (has_small_letter or _SUM_OR_PRODUCT.search(text)):
        return "mathematics"

    # 7. Anything else: `Paris`.
    return "text"


# Code: `x == 1`, `a->b`, `std::sort`, `a && b`, `</p>`, `os.path`, `get_name`.
_CODE = re.compile(r"==|=>|->|::|&&|\|\||</|[a-zA-Z]{2,}\.[a-zA-Z]{2,}|[a-zA-Z]_\w{2,}")
# A sign that only mathematics has.
_MATHS_SIGN = re.compile(
    r"""
    \\[a-zA-Z]{2,}                            # \frac{x}{2}
    | [_^]\{                                  # a_{n}
    | \d_\d                                   # 52_8
    | [=<>≤≥≠^√π∞∪∩±∈]                        # y = 3
    | \$\S(?:[^$]*\S)?\$                      # $AB$
    | \bsqrt\b | \bpi\b                       # sqrt(2)
    | [\d)]!                                  # 5!
    | (?i:^no[ ](?:real[ ])?solutions?\W*$)   # No real solution.
    """,
    re.VERBOSE,
)
# An operation between two terms: `n-1`.
_OPERATION = re.compile(r"[\w)]\s*[+*/·×-]\s*[\w(\\]")
# A plus sign or an asterisk beside a digit: `2*N`, `N + 1`.
_SUM_OR_PRODUCT = re.compile(r"\d\s*[+*]|[+*]\s*\d")


def vote_of(given: str) -> str:
    """Return the key under which majority voting counts an answer: the value of a number, or the
    words of a text.

    >>> vote_of("$42.0"), vote_of("5%"), vote_of("Paris.")
    ('42', '1/20', 'paris')
    """
    number = parse_number(given)
    if number is not None:
        return str(number.value)
    words = texts.words_of(given)
    return words if texts.case_counts(words) else words.casefold()


# --- The question handed back ---------------------------------------------------------------------


def refuse_handed_back(comparison: Comparison, given: str, gold: str, question: str) -> Comparison:
    """Return the comparison of an answer, or a wrong one if the answer hands the question back.

    `84/12` does not answer "What is 84/12?", and `6+5x+x^2` does not answer "Factor x^2+5x+6",
    although each is equal to the row's answer.

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
    divisions_left = divisions_of(given) - divisions_of(gold)
    if given_form in expressions or divisions_left:
        return Comparison(False)

    # 3. Keep the comparison if the question has the row's answer itself, as in "Which is larger,
    # 1/2 or 1/3?": there is no form to change.
    if gold_form in expressions:
        return comparison

    # 4. Refuse the answer if an expression of the question is equal to the row's answer. If only
    # math-verify can tell, `unless` hands it the pair, and the answer is wrong if the two are
    # equal. Equations in one unknown are skipped: an equation to solve is always equal to its
    # solution.
    unless = []
    for text in list(expressions.values())[:_MOST_EXPRESSIONS]:
        if "=" in text and len(variables(gold)) <= 1:
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
    spelt = to_latex(plain_text(text))
    return "".join(sorted(re.sub(r"\\cdot|[{}\s.]", "", spelt)))


@lru_cache(maxsize=1 << 12)
def expressions_of(question: str) -> list[str]:
    """Return the expressions between the words of a question.

    >>> expressions_of("Write 7/20 as a decimal, and factor $x^2 + 5x$.")
    ['7/20', 'x^2 + 5x']
    """
    pieces = (piece.strip() for piece in _BETWEEN_EXPRESSIONS.split(to_keyboard(question)))
    return [piece for piece in pieces if len(piece) > 1 or piece.isdigit()]


# Words and punctuation between the expressions of a question.
_BETWEEN_EXPRESSIONS = re.compile(
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
