r"""Mathematics: whether two expressions, equations, intervals, sets or lists are equal.

math-verify computes whether two expressions are equal. `compare_expressions` runs before it: it
settles what needs no computing, and refuses wrong answers that math-verify 0.9.0 would accept. Read
it first; the functions below it follow its order. Each is one decision, states the reason and has
examples of correct (`=`) and wrong (`≠`) answers, the given answer first. `expressions.py` takes
expressions apart. These are the examples that math-verify decides:

- Equal expressions are correct, in LaTeX or as typed:
  `(x+1)^2` = `x^2+2x+1`, `\frac{\sqrt{3}}{2}` = `\frac{3}{2\sqrt{3}}`, `\sqrt{8}/2` = `sqrt(2)`,
  `3` ≠ `3R^2`, `\frac{1}{2^{55}}` ≠ `\frac{1}{2^{54}}`
- An equation or an inequality may be turned around, but not weakened:
  `5 \geq x` = `x \leq 5`, `x > 1` ≠ `x \geq 1`
- Lists, tuples and sets need equal members:
  `(1,4.5)` = `(1,\frac{9}{2})`, `(2,1)` ≠ `(1,2)`, `\{1\}` ≠ `\{1,2\}`
"""

import math
import re
from functools import lru_cache

from helpers.judging.answers import Comparison
from helpers.judging.answers.expressions import (
    AND_OR,
    interval_of,
    is_inequality,
    is_literal,
    split_list,
    split_name,
    tuple_brackets,
    variables,
    without_commands,
    without_spaces,
)
from helpers.judging.answers.latex import to_latex
from helpers.judging.answers.names_and_units import (
    FUNCTIONS,
    GREEK,
    NAME,
    NAME_IN_WORDS,
    UNIT,
    any_of,
)
from helpers.judging.answers.numbers import parse_number, same_number
from helpers.judging.answers.texts import depths, plain_text

_LONGEST = 300  # characters
_DEEPEST = 25  # nested brackets; deeper text is an attempt to hang the parser, not an answer
# A unit at the end: `5\text{ m}^2`.
_TRAILING_UNIT = re.compile(
    rf"\\(?:text\w*|mbox|mathrm)\s*\{{\s*{UNIT.pattern}\s*\}}(?:\^\{{?\d\}}?)?\s*$"
)


@lru_cache(maxsize=1 << 14)
def compare_expressions(given: str, gold: str, in_any_order: bool = False) -> Comparison:
    """Decide whether two expressions are equal, or return the pair that math-verify must compare.

    in_any_order: accept a list in any order.

    >>> compare_expressions("x=3", "y=3").right
    False
    >>> compare_expressions("x + 1", "1+x").pair
    ('1+x', 'x + 1')
    """
    # 1. Settle plain numbers.
    given_text = NAME_IN_WORDS.sub("", plain_text(given).removesuffix("."))
    gold_text = plain_text(gold).removesuffix(".")
    if is_number(given_text) and is_number(gold_text):
        return Comparison(same_number(given_text, gold_text))

    # 2. Settle equal spellings, and refuse text that math-verify must not read. A unit after the
    # given answer does not count, unless the row's answer has one, too.
    if r"\text" not in gold_text:
        given_text = _TRAILING_UNIT.sub("", given_text)
    given_latex = to_latex(given_text)
    gold_latex = to_latex(gold_text)
    if without_spaces(given_latex) == without_spaces(gold_latex):
        return Comparison(True)
    if not is_readable(given_latex) or (is_costly(given_latex) and not is_costly(gold_latex)):
        return Comparison(False)

    # 3. Remove the names before values, as of `x = 3`. What is left may now be spelt alike, unless
    # it is a chain of steps.
    given_values, gold_values = without_names(given_latex, gold_latex)
    if "matrix" in gold_values:
        given_values = as_matrix(given_values)
    if differ_in_steps(given_values, gold_values):
        return Comparison(False)
    if without_spaces(given_values) == without_spaces(gold_values):
        return Comparison(True)

    # 4. Does the order of a list count? Then write out both values of `±`.
    no_order = has_no_order(gold_latex) or has_two_values(given_values, gold_values)
    given_members = without_plus_minus(given_values)
    gold_members = without_plus_minus(gold_values)

    # 5. Notation that math-verify ignores must be spelt as in the row. The sides of an equation may
    # be exchanged.
    if has_ignored_notation(given_members) or has_ignored_notation(gold_members):
        turned_around = "=".join(reversed(given_members.split("=")))
        return Comparison(without_spaces(turned_around) == without_spaces(gold_members))

    # 6. If the row's answer is a number, only a number can be correct. Refuse other differences
    # that math-verify does not see.
    if is_number(gold_members):
        return Comparison(same_number(given_members, gold_members))
    if (
        leaves_computation(given_members, gold_members)
        or differ_in_variables(given_members, gold_members)
        or differ_in_brackets(given_members, gold_members)
        or differ_in_inequalities(given_members, gold_members)
        or has_unreduced_fraction(gold_members)
    ):
        return Comparison(False)

    # 7. Leave the rest to math-verify, which takes the row's answer first.
    given_final, gold_final = as_intervals(given_members, gold_members)
    if not in_any_order and not no_order:
        given_final, gold_final = as_tuples(given_final, gold_final)
    return Comparison(None, (gold_final, given_final))


# --- The decisions, in the order of compare_expressions -------------------------------------------


def is_number(text: str) -> bool:
    r"""Return whether a text is a number without a name.

    Numbers are compared exactly, with their units. If the row's answer is a number, only a number
    can be correct, because math-verify would do the computation that the policy was asked for.

    `0.5` = `\frac12`, `5 km` ≠ `5 m`, `40+2` ≠ `42`, `2, 3` ≠ `2`, `x = \ln(e^{40})` ≠ `x = 40`
    """
    return "=" not in text and parse_number(text) is not None


def is_readable(text: str) -> bool:
    r"""Return whether math-verify should read a text: short, with balanced brackets, without prose.

    math-verify multiplies whatever is side by side: two numbers, two answers, and the letters of
    a word.

    `4 2x` ≠ `8x`, `\boxed{1}\boxed{2}` ≠ `12`, `$1$ $x<1$` ≠ `x<1`

    >>> [is_readable(text) for text in ("x^2 + 1", "the sum", "{" * 300, "4 2")]
    [True, False, False, False]
    """
    if not text or len(text) > _LONGEST:
        return False
    # Brackets are balanced if none is closed before it is opened, and none is left open.
    levels = depths(text)
    is_balanced = min(levels) == 0 and levels[-1] == 0
    if not is_balanced or max(levels) > _DEEPEST:
        return False
    words = without_commands(text)
    # A word of three small letters, a blank `__`, or the # that to_latex puts between two answers.
    has_prose = re.search(r"[a-z]{3,}|__|#", words)
    # Two numbers side by side, `4 2`, or a letter before a digit, `x2`.
    has_unclear_product = re.search(r"(?<![_\d.])\d[\d.]*\s+\d|(?<![a-zA-Z])[a-zA-Z]\d", words)
    return not has_prose and not has_unclear_product


def is_costly(text: str) -> bool:
    r"""Return whether math-verify may compute for minutes: a tower of powers, a large exponent, a
    factorial, a sum. Such an answer is refused, unless the row's answer is costly as well.

    >>> is_costly("9^{9^9}"), is_costly("2^{999}"), is_costly(r"\sum_{k=1}^{3} k"), is_costly("9^9")
    (True, True, True, False)
    """
    return bool(
        re.search(
            r"""(?<![.\d])\d{7}              # a number of seven digits or more
                | \^\s*(?:\{[^}]*|\w\s*)\^   # a tower of powers
                | \^\s*\{?-?[\d.]{3}         # a large exponent
                | \d\d! | !\s*!              # a factorial
                | \\(?:sum|prod|int|lim)     # a sum, a product, an integral, a limit
                | binom.*\d\d                # a large binomial coefficient
                """,
            text,
            re.VERBOSE,
        )
    )


def without_names(given: str, gold: str) -> tuple[str, str]:
    r"""Return both answers without the names before their values.

    A name may be left out, so names are removed if only one answer has them, or if both have the
    same one. Two different names stay, and so does an equation such as `x^2 = 3`. In the given
    answer, an expression is a name only if it is the row's.

    `3` = `y=3`, `x = \sqrt{2}` = `\sqrt{2}`, `(3,2)` = `(p,q)=(3,2)`, `7:32` = `S_{MBCN}:S=7:32`,
    `x = \boxed{3}` = `3`, `\sqrt{2}` = `\ln x = \sqrt{2}`, `\ln x = \sqrt{2}` ≠ `\sqrt{2}`,
    `\frac{1}{x} = \sqrt{3}` ≠ `\sqrt{3}`, `x = x<2 and x>3` ≠ `x<2 or x>3`

    >>> without_names("x = 3", "3"), without_names("x = 3", "y = 3")
    (('3', '3'), ('x = 3', 'y = 3'))
    """
    # 1. Split each member of both answers into its name and its value.
    given_items = [split_name(item) for item in split_list(given)]
    gold_items = [split_name(item) for item in split_list(gold)]
    given_names = {name for name, _ in given_items} - {""}
    gold_names = {name for name, _ in gold_items} - {""}
    names = given_names | gold_names

    # 2. Keep the names if there are none to remove, if an equation is among the members, or if the
    # names matter: both answers have some, and there are several.
    if not names or None in names:
        return given, gold
    if given_names and gold_names and len(names) > 1:
        return given, gold
    if not all(NAME.fullmatch(name) for name in given_names - gold_names):
        return given, gold

    # 3. Keep the values alone. Those of several names form a tuple, in the order of the names.
    given_values = ", ".join(value for _, value in given_items)
    gold_values = ", ".join(value for _, value in gold_items)
    if len(names) > 1:
        return f"({given_values})", f"({gold_values})"
    return given_values, gold_values


def as_matrix(text: str) -> str:
    r"""Return a list of lists of the same length as a matrix, and any other text as it is.

    `[[1,2],[3,4]]` = `\begin{pmatrix}1&2\\3&4\end{pmatrix}`,
    `[[1,3],[2,4]]` ≠ `\begin{pmatrix}1&2\\3&4\end{pmatrix}`

    >>> as_matrix("[[1, 2], [3, 4]]"), as_matrix("[[1, 2], [3]]")
    ('\\begin{pmatrix}1& 2\\\\3& 4\\end{pmatrix}', '[[1, 2], [3]]')
    """
    # the inside of the outer brackets, `[1,2],[3,4]`, and the inside of each row, `1,2`
    whole = re.fullmatch(r"\s*\[((?:\s*\[[^\[\]()]*\]\s*,?)+)\]\s*", text)
    rows = re.findall(r"\[([^\[\]]*)\]", whole[1]) if whole else []
    if len({row.count(",") for row in rows}) != 1:
        return text
    return r"\begin{pmatrix}" + r"\\".join(rows).replace(",", "&") + r"\end{pmatrix}"


def differ_in_steps(given: str, gold: str) -> bool:
    r"""Return whether one answer has more equals signs than the other: it is a chain of steps.

    math-verify would accept a chain as an answer.

    `x = 1 = 3` ≠ `x = 3`, `x = 5+5+1 = 11` ≠ `x = 11`, `2\sqrt{3} ≈ \sqrt{5}` ≠ `2\sqrt{3}`
    """
    return given.count("=") != gold.count("=")


def has_no_order(gold: str) -> bool:
    r"""Return whether the members of the row's list have no order, because it has braces, `and`,
    `or`, `\pm` or names.

    `\{2, 1\}` = `\{1,2\}`, `\{1,2,3\}` = `$1$ and $2$ and $3$`, `-3, 3` = `\pm 3`,
    `x = 3 or x = 2` = `x=2, x=3`
    """
    # `\{1,2\}`, `{1,2}`, `\pm 3`, `x = 3`
    return bool(re.search(r"\\\{|^\s*\{|\\pm|=", gold) or AND_OR.search(gold))


def has_two_values(given: str, gold: str) -> bool:
    r"""Return whether each member of the given answer has a `\pm`, for two of the row's members.

    Such a list has no order. A single `\pm` among other members does not take the order away.

    `\pm 3` = `-3, 3`, `1, 2, 3 \pm 0` ≠ `3, 1, 2`, `1 \pm 0, 2 \pm 0` ≠ `2, 1`,
    `x \pm 0, 2x \pm 0` ≠ `2x, x`
    """
    members = split_list(given)
    has_two_for_each = len(split_list(gold)) == 2 * len(members)
    return has_two_for_each and all(r"\pm" in member for member in members)


def without_plus_minus(text: str) -> str:
    r"""Return an expression with both values of each member that has one `\pm`.

    `\frac{1+\sqrt{5}}{2}, \frac{1-\sqrt{5}}{2}` = `\frac{1\pm\sqrt{5}}{2}`,
    `\frac{1\pm\sqrt{5}}{2}` = `\frac{1-\sqrt{5}}{2}, \frac{1+\sqrt{5}}{2}`,
    `\frac{1+\sqrt{5}}{2}` ≠ `\frac{1\pm\sqrt{5}}{2}`, `2 \pm 1` ≠ `3, 1`

    >>> without_plus_minus(r"0, 1 \pm x")
    '0, 1 + x, 1 - x'
    """
    if r"\pm" not in text:
        return text
    members = []
    for member in split_list(text):
        if r"\pm" not in member:
            members.append(member)
            continue
        # Two of them may mean two or four values. A comma is inside brackets: `\{\pm 1, 2\}`.
        has_one_sign = member.count(r"\pm") == 1 and r"\mp" not in member
        if not has_one_sign or re.search("[,=]", member) or is_inequality(member):
            return text
        members.append(member.replace(r"\pm", "+").removeprefix("+").strip())
        members.append(member.replace(r"\pm", "-"))
    return ", ".join(members)


# The commands that math-verify understands. It drops all others, or reads them as variables.
_KNOWN_COMMAND = re.compile(
    r"\\"
    + any_of(
        "frac sqrt binom choose cdot times div pm mp cup cap in infty emptyset lt gt le leq ge geq"
        " ne neq vert lvert rvert lfloor rfloor lceil rceil lbrace rbrace lbrack rbrack max min sum"
        f" prod begin end sinh cosh tanh {FUNCTIONS} {GREEK}"
    )
    + "(?![a-zA-Z])"
)


def has_ignored_notation(text: str) -> bool:
    r"""Return whether a text has notation that math-verify ignores or misreads: primes,
    derivatives, vectors, bases, unknown commands, or a product of capitals, which may be matrices.

    Such an answer must be spelt as in the row:
    `f(x)` ≠ `f'(x)`, `BA^{-1}` ≠ `A^{-1}B`, `\frac{dx}{dy}` ≠ `\frac{dy}{dx}`, `\vec{a}` ≠ `a`,
    `x \not= \sqrt{2}` ≠ `x = \sqrt{2}`, `42_{5}` ≠ `42`, `42` ≠ `42_{5}`

    >>> has_ignored_notation("f'(x)"), has_ignored_notation(r"A^{-1} \cdot B")
    (True, True)
    >>> has_ignored_notation("x(x+1)")
    False
    """
    capitals = [letter for letter in variables(text) if letter.isupper()]
    unknown = re.search(r"\\[a-zA-Z]", _KNOWN_COMMAND.sub("@", text))
    ignored = re.search(
        r"""'                         # f'
            | \{\s*d.*\}\s*\{\s*d     # \frac{dx}{dy}
            | \bd[a-z]\s*/\s*d[a-z]   # dx/dy
            | [a-zA-Z]\[              # a[1]
            | %\s*\w                  # a % b
            | !\s*!                   # n!!
            | \d\s*_                  # 52_8""",
        without_commands(text),
        re.VERBOSE,
    )
    return bool(unknown or len(capitals) > 1 or ignored)


def leaves_computation(given: str, gold: str) -> bool:
    """Return whether the given answer leaves something to compute, and the row's answer does not.

    math-verify would do the computation that the policy was asked for.

    `(1, 1+1)` ≠ `(1, 2)`, `2x = 6` ≠ `x = 3`
    """
    return is_literal(gold) and not is_literal(given)


def differ_in_variables(given: str, gold: str) -> bool:
    """Return whether the given answer has a variable that the row's answer does not have.

    math-verify ignores case. If an inequality is given for an interval, its one variable may have
    any name.

    `x=3` ≠ `y=3`, `X=3` ≠ `x=3`, `p+1` ≠ `P+1`, `y > 3` = `(3, ∞)`
    """
    is_for_an_interval = is_inequality(given) and not is_inequality(gold)
    if is_for_an_interval and len(variables(given)) == 1:
        return False
    return bool(variables(given) - variables(gold) - {"e", "i"})


def differ_in_brackets(given: str, gold: str) -> bool:
    r"""Return whether the tuples and intervals have other brackets than the row's.

    math-verify ignores the brackets of a pair. An interval may be given for an inequality, and an
    inequality for an interval.

    `(1,2)` ≠ `\{1,2\}`, `\{1,2\}` ≠ `(1,2)`, `[0,1)` ≠ `(0,1)`, `1, 2` ≠ `(1,2)`,
    `(3, ∞)` = `x > 3`
    """
    if is_inequality(given) and not is_inequality(gold):
        return not tuple_brackets(gold)  # the row's answer is no interval
    if is_inequality(gold) and not is_inequality(given):
        return not tuple_brackets(given)
    return tuple_brackets(given) != tuple_brackets(gold)


def differ_in_inequalities(given: str, gold: str) -> bool:
    """Return whether two inequalities differ in `and` and `or`, or have no variable.

    math-verify ignores `and` and `or`, and finds all true inequalities without variables equal.

    `x < 1 and x > 3` ≠ `x < 1 or x > 3`, `3 < 4` ≠ `1 < 2`
    """
    are_inequalities = is_inequality(given) and is_inequality(gold)
    joints_differ = AND_OR.findall(given) != AND_OR.findall(gold)
    return are_inequalities and (joints_differ or not variables(gold))


def has_unreduced_fraction(gold: str) -> bool:
    """Return whether the row's answer is a list with an unreduced fraction, such as `2/4`.

    Such a list asks for this spelling. math-verify would reduce the fraction.

    `1/2, 3/4` ≠ `2/4, 3/4`
    """
    fractions = re.findall(r"(?<![\^\w.])(\d+)\s*/\s*(\d+)", gold)
    return "," in gold and any(math.gcd(int(above), int(below)) > 1 for above, below in fractions)


def as_intervals(given: str, gold: str) -> tuple[str, str]:
    r"""Return both answers with intervals in place of inequalities, if all of them allow it.

    math-verify compares the members of `x < 2 or x > 3` one by one, and a chain as it is spelt.

    `(-\infty,2)\cup(3,\infty)` = `x<2 or x>3`, `x<2 or x>3` = `(-\infty,2)\cup(3,\infty)`,
    `5>x>3` = `3<x<5`, `x>3 or x<2` = `x<2 or x>3`, `(-\infty,2)\cap(3,\infty)` ≠ `x<2 or x>3`,
    `5 \geq x>3` ≠ `3<x<5`, `3>x>5` ≠ `3<x<5`
    """
    new_given = interval_of(given) if is_inequality(given) else given
    new_gold = interval_of(gold) if is_inequality(gold) else gold
    return (new_given, new_gold) if new_given and new_gold else (given, gold)


def as_tuples(given: str, gold: str) -> tuple[str, str]:
    r"""Return both answers in parentheses if the row's answer is a list whose order counts.

    math-verify compares tuples member by member, but lists as sets. A list of tuples has no order.

    `3, 2, 1` ≠ `1, 2, 3`, `(2,1),(1,2)` = `(1,2),(2,1)`
    """
    members = split_list(gold)
    if len(members) < 2 or members[0].startswith(("(", "[")):
        return given, gold
    return f"({', '.join(split_list(given))})", f"({', '.join(members)})"
