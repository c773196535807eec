r"""Mathematics: whether two expressions, equations, intervals, sets or lists are equal.

math-verify computes whether two expressions are equal. `compare_expressions` runs before it: it
settles what needs no computing, and refuses wrong answers that math-verify 0.9.0 would accept.
These are math-verify's mistakes, by the step of `compare_expressions` that prevents them:

- Step 1: it multiplies whatever is side by side, so it accepts `4 2x` for `8x`, and it reads a word
  as a product of letters. A computation such as `9^{9^9}` may take it minutes.
- Step 2: it reads a chain of steps as an answer: `x = 1 = 3` for `x = 3`.
- Step 3: it ignores primes and bases, and the order of factors: `f(x)` for `f'(x)`, `42` for
  `42_{5}`, `BA^{-1}` for `A^{-1}B`.
- Step 4: it carries out the computation that the policy was asked for: `40+2` for `42`,
  `(1, 1+1)` for `(1, 2)`.
- Step 5: it ignores case, the brackets of a pair, and whether `and` or `or` joins inequalities:
  `P+1` for `p+1`, `\{1,2\}` for `(1,2)`, `x < 1 and x > 3` for `x < 1 or x > 3`. It finds all true
  inequalities equal: `3 < 4` for `1 < 2`.
- Step 6: it reduces fractions that the row leaves unreduced: `1/2, 3/4` for `2/4, 3/4`.
- Step 7: it reads a list as a set: `3, 2, 1` for `1, 2, 3`.

Right (`=`) and wrong (`≠`), the given answer first:

- Equal expressions, in LaTeX or as typed:
  `(x+1)^2` = `x^2+2x+1`, `\frac{\sqrt{3}}{2}` = `\frac{3}{2\sqrt{3}}`, `2√3` = `2\sqrt{3}`,
  `x**2` = `x²`, `0.5` = `\frac12`, `\sqrt{8}/2` = `sqrt(2)`, `1+2\mathrm{i}` = `1+2i`
- A name before a value may be left out, and an equation may be turned around:
  `3` = `y=3`, `x = \sqrt{2}` = `\sqrt{2}`, `(3,2)` = `(p,q)=(3,2)`, `7:32` = `S_{MBCN}:S=7:32`,
  `5 \geq x` = `x \leq 5`, `x = \boxed{3}` = `3`
- A list has no order if the row's answer has braces, `and`, `or`, `±` or names, if its members are
  tuples, or if the kind is `set`:
  `\{2, 1\}` = `\{1,2\}`, `x = 3 or x = 2` = `x=2, x=3`, `\{1,2,3\}` = `$1$ and $2$ and $3$`,
  `(2,1),(1,2)` = `(1,2),(2,1)`, `-3, 3` = `\pm 3`
- Tuples, intervals and inequalities:
  `(1,4.5)` = `(1,\frac{9}{2})`, `(0,1) ∪ (1,2)` = `(0,1)\cup(1,2)`, `(3, ∞)` = `x > 3`,
  `\mathbb{R}` = `(-\infty,\infty)`
- Another variable, another relation, or a computation that is not carried out is wrong:
  `x=3` ≠ `y=3`, `X=3` ≠ `x=3`, `p+1` ≠ `P+1`, `x > 1` ≠ `x \geq 1`, `x = 5+5+1 = 11` ≠ `x = 11`,
  `2x = 6` ≠ `x = 3`, `x = \ln(e^{40})` ≠ `x = 40`, `(1, 1+1)` ≠ `(1, 2)`, `40+2` ≠ `42`
- Other brackets, another number of members, or another order are wrong:
  `(1,2)` ≠ `\{1,2\}`, `(2,1)` ≠ `(1,2)`, `[0,1)` ≠ `(0,1)`, `1, 2` ≠ `(1,2)`,
  `\{1\}` ≠ `\{1,2\}`, `2, 3` ≠ `2`, `3, 2, 1` ≠ `1, 2, 3`
- Primes, vectors, bases and other notation that math-verify ignores must be spelt as in the row:
  `f(x)` ≠ `f'(x)`, `BA^{-1}` ≠ `A^{-1}B`, `\frac{dx}{dy}` ≠ `\frac{dy}{dx}`, `\vec{a}` ≠ `a`,
  `x \not= \sqrt{2}` ≠ `x = \sqrt{2}`, `42_{5}` ≠ `42`
- Answers that math-verify would misread, or equate only after rounding:
  `3 < 4` ≠ `1 < 2`, `3` ≠ `3R^2`, `x < 1 and x > 3` ≠ `x < 1 or x > 3`, `5 km` ≠ `5 m`,
  `4 2x` ≠ `8x`, `\boxed{1}\boxed{2}` ≠ `12`, `2\sqrt{3} ≈ \sqrt{5}` ≠ `2\sqrt{3}`,
  `$1$ $x<1$` ≠ `x<1`, `\frac{1}{2^{55}}` ≠ `\frac{1}{2^{54}}`
"""

import math
import re
from functools import lru_cache
from itertools import pairwise

from helpers.rewards.answers import Comparison
from helpers.rewards.answers.numbers import UNIT, parse_number, same_number
from helpers.rewards.answers.texts import depths, plain_text

_LONGEST = 300  # characters
_DEEPEST = 25  # nested brackets; deeper text is an attempt to hang the parser, not an answer


@lru_cache(maxsize=1 << 14)
def compare_expressions(given: str, gold: str, in_any_order: bool = False) -> Comparison:
    """Decide whether two expressions are equal, or return the pair that math-verify must compare.

    in_any_order: accept a list in any order.

    >>> compare_expressions("x=3", "y=3").right
    False
    >>> compare_expressions("x + 1", "1+x").pair
    ('1+x', 'x + 1')
    """
    # 1. Settle plain numbers and equal spellings. Refuse text that is not an expression, and
    # computations that may take minutes, unless the row's answer has one, too.
    given = plain_text(given).removesuffix(".")
    gold = plain_text(gold).removesuffix(".")
    if parse_number(given) and parse_number(gold) and "=" not in given + gold:
        return Comparison(same_number(given, gold))
    given = to_latex(given if r"\text" in gold else _TRAILING_UNIT.sub("", given))
    gold = to_latex(gold)
    if without_spaces(given) == without_spaces(gold):
        return Comparison(True)
    if not is_readable(given) or (_HUGE.search(given) and not _HUGE.search(gold)):
        return Comparison(False)
    # A list with names, `x = 3, y = 2`, has no order. Step 2 removes names, so look for them now.
    in_any_order = in_any_order or bool(_UNORDERED.search(gold) or _AND_OR.search(gold))

    # 2. Remove the names before values: `x = 3` becomes `3`. Refuse a chain, `x = 1 = 3`.
    values = without_names(given, gold)
    if values is None:
        return Comparison(False)
    given, gold = values

    # 3. An answer with notation that math-verify ignores must be spelt as in the row. The sides of
    # an equation may be exchanged.
    if (
        has_ignored_notation(given)
        or has_ignored_notation(gold)
        or without_spaces(given) == without_spaces(gold)
    ):
        sides = without_spaces(given).split("=")
        return Comparison(without_spaces(gold) in ("=".join(sides), "=".join(reversed(sides))))

    # 4. If the row's answer leaves nothing to compute, refuse an answer that does: `40+2`.
    if "=" not in gold and parse_number(gold):
        return Comparison(same_number(given, gold))
    if is_literal(gold) and not is_literal(given):
        return Comparison(False)

    # 5. Variables, in the same case, and brackets must agree. But `x > 3` may be given for the
    # interval `(3, ∞)`, and then its one variable may have any name.
    given_is_inequality = bool(_RELATION.search(given))
    gold_is_inequality = bool(_RELATION.search(gold))
    foreign = variables(given) - variables(gold) - {"e", "i"}
    if given_is_inequality != gold_is_inequality:
        interval = gold if given_is_inequality else given
        has_one_variable = given_is_inequality and len(variables(given)) == 1
        if not tuple_brackets(interval) or (foreign and not has_one_variable):
            return Comparison(False)
    else:
        # `1 < 2`, which math-verify finds equal to `3 < 4`, because both are true.
        is_vacuous = given_is_inequality and not variables(gold)
        # `x < 1 and x > 3`, beside `x < 1 or x > 3`.
        joints_differ = given_is_inequality and _AND_OR.findall(given) != _AND_OR.findall(gold)
        if foreign or is_vacuous or joints_differ or tuple_brackets(given) != tuple_brackets(gold):
            return Comparison(False)

    # 6. A list of the row with unreduced fractions, `2/4, 3/4`, asks for exactly this spelling.
    fractions = re.findall(r"(?<![\^\w.])(\d+)\s*/\s*(\d+)", gold) if "," in gold else []
    if any(math.gcd(int(above), int(below)) > 1 for above, below in fractions):
        return Comparison(False)

    # 7. Put a list whose order counts in parentheses, because math-verify compares tuples member by
    # member, but lists as sets.
    members = split_list(gold)
    ordered = len(members) > 1 and not members[0].startswith(("(", "["))
    if ordered and not in_any_order and r"\pm" not in given:
        given = f"({', '.join(split_list(given))})"
        gold = f"({', '.join(members)})"
    return Comparison(None, (gold, given))


def without_names(given: str, gold: str) -> tuple[str, str] | None:
    """Return both answers without the names before their values; None if they cannot be equal.

    Names are removed if only one answer has them, or if both have the same one. Otherwise both are
    equations, which need equally many sides: an answer is not a chain of steps.

    >>> without_names("x = 3", "3")
    ('3', '3')
    >>> without_names("x = 1 = 3", "x = 3") is None
    True
    """
    if "=" not in given + gold:
        return given, gold
    given_items = [split_name(item) for item in split_list(given)]
    gold_items = [split_name(item) for item in split_list(gold)]
    given_names = {name for name, _ in given_items} - {""}
    gold_names = {name for name, _ in gold_items} - {""}
    names = given_names | gold_names
    if None in names or (given_names and gold_names and len(names) > 1):
        return (given, gold) if given.count("=") == gold.count("=") else None
    # The values of several names form a tuple, in the order of the names.
    template = "({})" if len(names) > 1 else "{}"
    return (
        template.format(", ".join(value for _, value in given_items)),
        template.format(", ".join(value for _, value in gold_items)),
    )


def split_name(item: str) -> tuple[str | None, str]:
    """Split `x = 3` into its name and its value. The name of an equation is None, that of a value
    alone is "".

    >>> split_name("x = 3"), split_name("x^2 = 3"), split_name("3")
    (('x', '3'), (None, 'x^2 = 3'), ('', '3'))
    """
    name, equals, value = item.partition("=")
    if not equals:
        return "", item
    variable = variables(name) or re.fullmatch(r"\\(?!pi|infty)[a-z]+", without_spaces(name))
    if "=" in value or not variable or not _NAME.fullmatch(name.strip()):
        return None, item
    return without_spaces(name), value.strip()


def split_list(text: str) -> list[str]:
    """Split a list at its commas, `and` and `or`, except inside brackets.

    >>> split_list("(1,2) and x = 3"), split_list("{1,2}")
    (['(1,2)', 'x = 3'], ['{1,2}'])
    """
    text = _AND_OR.sub(",", text)
    levels = depths(text)
    commas = [at for at, mark in enumerate(text) if mark == "," and levels[at] == 0]
    parts = (text[begin + 1 : end] for begin, end in pairwise([-1, *commas, len(text)]))
    return [part.strip() for part in parts if part.strip()]


def is_literal(text: str) -> bool:
    r"""Return whether nothing is left to compute: the text has numbers, single letters, brackets
    and relations only.

    >>> is_literal(r"(1, \frac{1}{2})"), is_literal("x > 3")
    (True, True)
    >>> is_literal("2+3"), is_literal(r"\sqrt{2}"), is_literal("3y")
    (False, False, False)
    """
    text = _SHORT_FRACTION.sub(r"\1\2/\3\4", _AND_OR.sub(",", text)).replace(r"\infty", "0")
    for piece in map(str.strip, _SEPARATOR.split(text)):
        # The letters e and i are numbers that a computation uses.
        if piece and not parse_number(piece) and not re.fullmatch("-?[a-df-hj-zA-Z]", piece):
            return False
    return True


def tuple_brackets(text: str) -> set[str]:
    """Return the pairs of round and square brackets with a comma inside: tuples and intervals.

    >>> sorted(tuple_brackets("(1,2) and [0,1)")), tuple_brackets("\\{1,2\\} + (x+1)")
    (['()', '[)'], set())
    """
    found = set()
    innermost = _INNERMOST.search(text)
    while innermost:
        inside = innermost[0]
        if "," in inside and not inside.startswith("{"):
            found.add(inside[0] + inside[-1])
        text = text[: innermost.start()] + text[innermost.end() :]
        innermost = _INNERMOST.search(text)
    return found


def has_ignored_notation(text: str) -> bool:
    r"""Return whether a text has notation that math-verify ignores or misreads: primes,
    derivatives, vectors, bases, unknown commands, or a product of capitals, which may be matrices.

    >>> has_ignored_notation("f'(x)"), has_ignored_notation(r"A^{-1} \cdot B")
    (True, True)
    >>> has_ignored_notation("x(x+1)")
    False
    """
    text = _AND_OR.sub(",", text)
    capitals = [letter for letter in variables(text) if letter.isupper()]
    unknown = re.search(r"\\[a-zA-Z]", _KNOWN_COMMAND.sub("@", text))
    return bool(unknown or len(capitals) > 1 or _IGNORED.search(_COMMAND.sub("@", text)))


def is_readable(text: str) -> bool:
    """Return whether math-verify should read a text: short, with balanced brackets, without prose.

    Two numbers side by side are refused as well, because LaTeX would multiply them.

    >>> [is_readable(text) for text in ("x^2 + 1", "the sum", "{" * 300, "4 2")]
    [True, False, False, False]
    """
    if not text or len(text) > _LONGEST:
        return False
    levels = depths(text)
    if not min(levels) == levels[-1] == 0 or max(levels) > _DEEPEST:
        return False
    words = _COMMAND.sub("@", _AND_OR.sub(",", text))
    return not _PROSE.search(words) and not _TWO_NUMBERS.search(words)


def variables(text: str) -> set[str]:
    """Return the variables of an expression, as single letters; case counts."""
    return set(re.findall(r"[a-zA-Z]", _COMMAND.sub(" ", _AND_OR.sub(" ", text))))


@lru_cache(maxsize=1 << 14)
def to_latex(text: str) -> str:
    r"""Return an expression in the LaTeX that math-verify reads.

    >>> to_latex("2√3 + x^12"), to_latex("x >= π")
    ('2\\sqrt{3} + x^{12}', 'x \\geq  \\pi ')
    """
    # Two formulas side by side, `$1$ $2$`, are not a product. The `$$` of a display is one mark.
    text = re.sub(r"(?<=[^\s$])\$\s*\$(?=[^\s$])|\$\s+\$", " # ", text)
    for written, spelling in _LATEX.items():
        text = text.replace(written, spelling)
    for pattern, spelling in _SPELLINGS:
        text = pattern.sub(spelling, text)
    return text


def without_spaces(text: str) -> str:
    """Return an expression without spaces, and with `x^2` for `x^{2}`."""
    return re.sub(r"([\^_])\{(\w)\}", r"\1\2", re.sub(r"\\[,;:! ]|\s", "", text))


# --- Replacements of to_latex ---------------------------------------------------------------------

# Characters and commands, replaced in this order.
_LATEX = {
    "∞": r"\infty ",
    "∪": r"\cup ",
    "∩": r"\cap ",
    "∈": r"\in ",
    "∅": r"\emptyset ",
    "**": "^",
    "*": r"\cdot ",
    "·": r"\cdot ",
    "×": r"\times ",
    "÷": r"\div ",
    "<=": r"\leq ",
    "≤": r"\leq ",
    ">=": r"\geq ",
    "≥": r"\geq ",
    "!=": r"\neq ",
    "≠": r"\neq ",
    "±": r"\pm ",
    "+/-": r"\pm ",
    "≈": "=",
    r"\approx": "=",
    r"\leqslant": r"\leq ",
    r"\geqslant": r"\geq ",
    ";": ",",
    r"\$": "",
    "$": "",
    r"\dfrac": r"\frac",
    r"\tfrac": r"\frac",
    r"\cfrac": r"\frac",
    r"\quad": " ",
    r"\overline": r"\bar",
    r"\mathrm{d}": "d",
    r"\mathrm{i}": "i",
    r"\mathrm{e}": "e",
    r"\text{i}": "i",
    "Δ": r"\Delta ",
    "Ω": r"\Omega ",
    "α": r"\alpha ",
    "β": r"\beta ",
    "γ": r"\gamma ",
    "δ": r"\delta ",
    "ε": r"\epsilon ",
    "θ": r"\theta ",
    "λ": r"\lambda ",
    "μ": r"\mu ",
    "π": r"\pi ",
    "ρ": r"\rho ",
    "σ": r"\sigma ",
    "φ": r"\phi ",
    "ω": r"\omega ",
}
_FUNCTIONS = r"sin|cos|tan|cot|sec|csc|log|ln|exp|arcsin|arccos|arctan|pi"
# Patterns, replaced in this order.
_SPELLINGS = [
    # \text{and} -> and
    (re.compile(r"\\text\s*\{\s*(and|or)\s*\}"), r" \1 "),
    # \left( -> (, and the spaces \, and \! go
    (re.compile(r"\\(?:left|right|displaystyle)(?![a-zA-Z])|(?<!\\)\\[!,;: ]"), " "),
    # √(x+1), sqrt(x+1) -> \sqrt{x+1}
    (re.compile(r"√\s*\(([^()]*)\)|\\?\bsqrt\s*\(([^()]*)\)"), r"\\sqrt{\1\2}"),
    # √3, sqrt 3 -> \sqrt{3}
    (re.compile(r"√\s*(\d+|[a-zA-Z])|(?<![a-zA-Z\\])sqrt\s*(\d+)"), r"\\sqrt{\1\2}"),
    # 3i -> 3 i: math-verify reads i as the imaginary unit only if it is apart
    (re.compile(r"(?<=[\d)])\s*i(?![a-zA-Z])"), " i "),
    # x^12 -> x^{12}
    (re.compile(r"\^(-?\d{2,})"), r"^{\1}"),
    # sin x -> \sin x
    (re.compile(rf"(?<![a-zA-Z\\])({_FUNCTIONS})(?![a-zA-Z])"), r"\\\1 "),
    # inf -> \infty
    (re.compile(r"(?<![a-zA-Z\\])(?:infinity|inf)(?![a-zA-Z])"), r"\\infty "),
    # no solution -> \emptyset
    (re.compile(r"(?i)no (?:real )?solutions?|(?:the )?empty set|\\varnothing"), r"\\emptyset "),
    # \mathbb{R} -> (-\infty,\infty)
    (re.compile(r"(?i)(?:all )?real numbers|\\mathbb\{R\}"), r"(-\\infty,\\infty)"),
    # (0,1) U (1,2) -> (0,1) \cup (1,2)
    (re.compile(r"(?<=[)\]}])\s*U\s*(?=[(\[{\\])"), r"\\cup "),
    # \boxed{1}\boxed{2} is two answers, not a product: the # makes it unreadable
    (re.compile(r"(?<=\})\s*\\boxed"), r" # \\boxed"),
    # \boxed{3} -> 3
    (re.compile(r"\\boxed\s*\{([^{}]*)\}"), r"\1"),
    (re.compile(r"\\boxed\s*(?=\{)"), ""),
    # x \in [1,2] -> [1,2]
    (re.compile(r"^\s*[a-zA-Z]\s*\\in(?![a-zA-Z])"), ""),
]

# --- Patterns of the comparison -------------------------------------------------------------------

# The words `and` and `or`, outside other words.
_AND_OR = re.compile(r"(?<![a-zA-Z\\])(and|or)(?![a-zA-Z])")
# An inequality: `x > 3`, `x \neq 3`.
_RELATION = re.compile(r"[<>]|\\(?:leq?|geq?|neq?|lt|gt)(?![a-zA-Z])")
# A list without order: `\{1, 2\}`, `\pm 3`, `x=1, y=2`.
_UNORDERED = re.compile(r"\\\{|^\s*\{|\\pm|=")
# A unit at the end: `5\text{ m}^2`.
_TRAILING_UNIT = re.compile(
    rf"\\(?:text\w*|mbox|mathrm)\s*\{{\s*{UNIT.pattern}\s*\}}(?:\^\{{?\d\}}?)?\s*$"
)
# Brackets without brackets inside: the `(1,2)` of `\{(1,2)\}`.
_INNERMOST = re.compile(r"[{\[(][^{}\[\]()]*[}\])]")
# A LaTeX command: `\frac`, `\begin{pmatrix}`.
_COMMAND = re.compile(r"\\(?:begin|end)\{[a-zA-Z]*\}|\\[a-zA-Z]+")
# Prose: a word of three small letters, a blank `__`, or the # between two answers.
_PROSE = re.compile(r"[a-z]{3,}|__|#")
# Two numbers side by side, or a letter before a digit: `4 2`, `x2`.
_TWO_NUMBERS = re.compile(r"(?<![_\d.])\d[\d.]*\s+\d|(?<![a-zA-Z])[a-zA-Z]\d")
# Computations that may take minutes: towers of powers, large exponents, factorials, sums.
_HUGE = re.compile(
    r"\d{7}|\^\s*(?:\{[^}]*|\w\s*)\^|\^\s*\{?-?\d\d\d|\d\d!|!\s*!|\\(?:sum|prod|int|lim)|binom.*\d\d"
)
# A name left of an equals sign, not an expression: `y`, `f(x)`, `|AB|`, `(p,q)`, `V_1:V_2`.
_NAME = re.compile(r"(?!\d)[^+^<>=-]*[a-zA-Z][^+^<>=-]*")
# The commands that math-verify understands. It drops all others, or reads them as variables.
_KNOWN_COMMAND = re.compile(
    rf"\\(?:frac|sqrt|cdot|times|div|pm|mp|cup|cap|in|infty|emptyset|leq?|geq?|neq?|lt|gt|binom|choose"
    rf"|[lr]?vert|[lr](?:floor|ceil|brace|brack)|max|min|sum|prod|begin|end|{_FUNCTIONS}|sinh|cosh|tanh"
    r"|(?:var)?(?:alpha|beta|gamma|delta|epsilon|theta|lambda|mu|rho|sigma|phi|omega|eta|kappa|nu|xi"
    r"|tau|chi|psi|zeta|Delta|Omega|Gamma|Theta|Lambda|Sigma|Phi|Psi))(?![a-zA-Z])"
)
# Notation that math-verify ignores: `f'`, `\frac{dx}{dy}`, `dx/dy`, `a[1]`, `a % b`, `n!!`, `52_8`.
_IGNORED = re.compile(r"'|\{\s*d.*\}\s*\{\s*d|\bd[a-z]\s*/\s*d[a-z]|[a-zA-Z]\[|%\s*\w|!\s*!|\d\s*_")
# A fraction of whole numbers: `\frac{1}{2}`, `\frac12`.
_SHORT_FRACTION = re.compile(r"\\frac\s*(?:\{(-?\d+)\}|(\d))\s*(?:\{(-?\d+)\}|(\d))")
# Separators between the parts of a literal: brackets, commas, relations, `\cup`, `\pm`.
_SEPARATOR = re.compile(rf"[()\[\]{{}},=]|\\[{{}}]|\\(?:cup|cap|pm|emptyset)|{_RELATION.pattern}")
