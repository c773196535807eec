r"""Mathematics: equal expressions, equations, intervals, sets, tuples and lists of solutions, as
math-verify finds.

What math-verify does not respect is decided here: an answer that is a chain of steps or arithmetic
that was not carried out, the order of a list, the brackets of a set and of a tuple, an answer's own
letters, and marks such as primes, with which the spelling must be the same. A name before a value
may be left out. A list has no order where the row's answer has braces, `and`, `or`, `±` or names,
where its members are tuples, and where the kind is said as `set`.

- `(x+1)^2` = `x^2+2x+1`, `\frac{\sqrt{3}}{2}` = `\frac{3}{2\sqrt{3}}`, `2√3` = `2\sqrt{3}`,
  `x**2` = `x²`, `0.5` = `\frac12`, `\sqrt{8}/2` = `sqrt(2)`, `1+2\mathrm{i}` = `1+2i`
- `3` = `y=3`, `x = \sqrt{2}` = `\sqrt{2}`, `(3,2)` = `(p,q)=(3,2)`, `7:32` = `S_{MBCN}:S=7:32`,
  `5 \geq x` = `x \leq 5`, `x = \boxed{3}` = `3`
- `\{2, 1\}` = `\{1,2\}`, `x = 3 or x = 2` = `x=2, x=3`, `\{1,2,3\}` = `$1$ and $2$ and $3$`,
  `(1,4.5)` = `(1,\frac{9}{2})`
- `(0,1) ∪ (1,2)` = `(0,1)\cup(1,2)`, `(2,1),(1,2)` = `(1,2),(2,1)`, `-3, 3` = `\pm 3`,
  `(3, ∞)` = `x > 3`, `\mathbb{R}` = `(-\infty,\infty)`
- `x=3` ≠ `y=3`, `X=3` ≠ `x=3`, `p+1` ≠ `P+1`, `x > 1` ≠ `x \geq 1`, `x = 5+5+1 = 11` ≠ `x = 11`,
  `2x = 6` ≠ `x = 3`, `x = \ln(e^{40})` ≠ `x = 40`, `(1, 1+1)` ≠ `(1, 2)`
- `(1,2)` ≠ `\{1,2\}`, `(2,1)` ≠ `(1,2)`, `[0,1)` ≠ `(0,1)`, `1, 2` ≠ `(1,2)`,
  `\{1\}` ≠ `\{1,2\}`, `2, 3` ≠ `2`, `3, 2, 1` ≠ `1, 2, 3`
- `f(x)` ≠ `f'(x)`, `BA^{-1}` ≠ `A^{-1}B`, `\frac{dx}{dy}` ≠ `\frac{dy}{dx}`, `\vec{a}` ≠ `a`,
  `x \not= \sqrt{2}` ≠ `x = \sqrt{2}`, `3 < 4` ≠ `1 < 2`, `3` ≠ `3R^2`
- `x < 1 and x > 3` ≠ `x < 1 or x > 3`, `40+2` ≠ `42`, `5 km` ≠ `5 m`, `4 2x` ≠ `8x`,
  `\boxed{1}\boxed{2}` ≠ `12`, `42_{5}` ≠ `42`, `2\sqrt{3} ≈ \sqrt{5}` ≠ `2\sqrt{3}`,
  `$1$ $x<1$` ≠ `x<1`, `\frac{1}{2^{55}}` ≠ `\frac{1}{2^{54}}`
"""

import math
import re
from functools import lru_cache
from itertools import pairwise

from helpers.rewards.answers import Comparison
from helpers.rewards.answers.numbers import UNIT, parse_number, same_number
from helpers.rewards.answers.texts import depths, plain_text

_LONGEST = 300
_DEEPEST = 25  # nested braces or brackets; nobody's answer is deeper, a bomb is
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
_SPELLINGS = [
    (re.compile(r"\\text\s*\{\s*(and|or)\s*\}"), r" \1 "),
    (re.compile(r"\\(?:left|right|displaystyle)(?![a-zA-Z])|(?<!\\)\\[!,;: ]"), " "),
    (re.compile(r"√\s*\(([^()]*)\)|\\?\bsqrt\s*\(([^()]*)\)"), r"\\sqrt{\1\2}"),
    (re.compile(r"√\s*(\d+|[a-zA-Z])|(?<![a-zA-Z\\])sqrt\s*(\d+)"), r"\\sqrt{\1\2}"),
    (re.compile(r"(?<=[\d)])\s*i(?![a-zA-Z])"), " i "),  # the unit, to math-verify, if it is apart
    (re.compile(r"\^(-?\d{2,})"), r"^{\1}"),  # a keyboard's x^12
    (re.compile(rf"(?<![a-zA-Z\\])({_FUNCTIONS})(?![a-zA-Z])"), r"\\\1 "),
    (re.compile(r"(?<![a-zA-Z\\])(?:infinity|inf)(?![a-zA-Z])"), r"\\infty "),
    (re.compile(r"(?i)no (?:real )?solutions?|(?:the )?empty set|\\varnothing"), r"\\emptyset "),
    (re.compile(r"(?i)(?:all )?real numbers|\\mathbb\{R\}"), r"(-\\infty,\\infty)"),
    (re.compile(r"(?<=[)\]}])\s*U\s*(?=[(\[{\\])"), r"\\cup "),
    (re.compile(r"(?<=\})\s*\\boxed"), r" # \\boxed"),  # two answers, and no product
    (re.compile(r"\\boxed\s*\{([^{}]*)\}"), r"\1"),
    (re.compile(r"\\boxed\s*(?=\{)"), ""),
    (re.compile(r"^\s*[a-zA-Z]\s*\\in(?![a-zA-Z])"), ""),  # of x \in [1,2]
]
_AND_OR = re.compile(r"(?<![a-zA-Z\\])(and|or)(?![a-zA-Z])")
_RELATION = re.compile(r"[<>]|\\(?:leq?|geq?|neq?|lt|gt)(?![a-zA-Z])")
_UNORDERED = re.compile(r"\\\{|^\s*\{|\\pm|=")
_UNIT_BEHIND = re.compile(
    rf"\\(?:text\w*|mbox|mathrm)\s*\{{\s*{UNIT.pattern}\s*\}}(?:\^\{{?\d\}}?)?\s*$"
)
_INNERMOST = re.compile(r"[{\[(][^{}\[\]()]*[}\])]")
_COMMAND = re.compile(r"\\(?:begin|end)\{[a-zA-Z]*\}|\\[a-zA-Z]+")
_PROSE = re.compile(r"[a-z]{3,}|__|#")
_TWO_NUMBERS = re.compile(r"(?<![_\d.])\d[\d.]*\s+\d|(?<![a-zA-Z])[a-zA-Z]\d")  # 4 2, x2
# What would cost a parser minutes: towers of powers, large exponents, factorials, sums.
_BOMB = re.compile(
    r"\d{7}|\^\s*(?:\{[^}]*|\w\s*)\^|\^\s*\{?-?\d\d\d|\d\d!|!\s*!|\\(?:sum|prod|int|lim)|binom.*\d\d"
)
# What stands left of an equals sign is a name, and no expression: y, f(x), |AB|, (p,q), V_1:V_2.
_NAME = re.compile(r"(?!\d)[^+^<>=-]*[a-zA-Z][^+^<>=-]*")
# The commands that math-verify reads for what they are; others it drops, or takes for variables.
_KNOWN = re.compile(
    rf"\\(?:frac|sqrt|cdot|times|div|pm|mp|cup|cap|in|infty|emptyset|leq?|geq?|neq?|lt|gt|binom|choose"
    rf"|[lr]?vert|[lr](?:floor|ceil|brace|brack)|max|min|sum|prod|begin|end|{_FUNCTIONS}|sinh|cosh|tanh"
    r"|(?:var)?(?:alpha|beta|gamma|delta|epsilon|theta|lambda|mu|rho|sigma|phi|omega|eta|kappa|nu|xi"
    r"|tau|chi|psi|zeta|Delta|Omega|Gamma|Theta|Lambda|Sigma|Phi|Psi))(?![a-zA-Z])"
)
# A prime, a fraction of two differentials, an index of code, a remainder of code, a number's base.
_SPELT = re.compile(r"'|\{\s*d.*\}\s*\{\s*d|\bd[a-z]\s*/\s*d[a-z]|[a-zA-Z]\[|%\s*\w|!\s*!|\d\s*_")
_SHORT_FRACTION = re.compile(r"\\frac\s*(?:\{(-?\d+)\}|(\d))\s*(?:\{(-?\d+)\}|(\d))")
_SEPARATOR = re.compile(rf"[()\[\]{{}},=]|\\[{{}}]|\\(?:cup|cap|pm|emptyset)|{_RELATION.pattern}")


@lru_cache(maxsize=1 << 14)
def compare_expressions(given: str, gold: str, in_any_order: bool = False) -> Comparison:
    """Return the comparison, decided where math-verify would err or is not needed.

    >>> compare_expressions("x=3", "y=3").right, compare_expressions("x + 1", "1+x").pair
    (False, ('1+x', 'x + 1'))
    """
    # 1. Plain numbers, the same spelling, and what nobody should parse.
    given = plain_text(given).removesuffix(".")
    gold = plain_text(gold).removesuffix(".")
    if parse_number(given) and parse_number(gold) and "=" not in given + gold:
        return Comparison(same_number(given, gold))
    given = to_latex(given if r"\text" in gold else _UNIT_BEHIND.sub("", given))
    gold = to_latex(gold)
    if without_spaces(given) == without_spaces(gold):
        return Comparison(True)
    if not is_readable(given) or (_BOMB.search(given) and not _BOMB.search(gold)):
        return Comparison(False)
    in_any_order = in_any_order or bool(_UNORDERED.search(gold) or _AND_OR.search(gold))

    # 2. Values without the names before them, such as 3 of x = 3.
    values = without_names(given, gold)
    if values is None:
        return Comparison(False)
    given, gold = values

    # 3. With marks, the spelling is the same, or it is an equation the other way round.
    if has_marks(given) or has_marks(gold) or without_spaces(given) == without_spaces(gold):
        sides = without_spaces(given).split("=")
        return Comparison(without_spaces(gold) in ("=".join(sides), "=".join(reversed(sides))))

    # 4. If the row's answer leaves nothing to compute, neither does the given one.
    if "=" not in gold and parse_number(gold):
        return Comparison(same_number(given, gold))
    if is_literal(gold) and not is_literal(given):
        return Comparison(False)

    # 5. The answer's own letters and brackets. An inequality may stand for an interval, in a letter
    # of its own; x < 1 or x > 3 is not x < 1 and x > 3, and 3 < 4 is as true as 1 < 2.
    relation_given = bool(_RELATION.search(given))
    relation_asked = bool(_RELATION.search(gold))
    foreign = variables(given) - variables(gold) - {"e", "i"}
    if relation_given != relation_asked:
        own_letter = relation_given and len(variables(given)) == 1
        interval = gold if relation_given else given
        comparable = (own_letter or not foreign) and tuple_brackets(interval)
    else:
        comparable = not foreign and tuple_brackets(given) == tuple_brackets(gold)
    if relation_given and relation_asked:
        comparable &= _AND_OR.findall(given) == _AND_OR.findall(gold) and bool(variables(gold))
    if not comparable:
        return Comparison(False)

    # 6. Fractions that a list of the row leaves unreduced, and the order of the list.
    fractions = re.findall(r"(?<![\^\w.])(\d+)\s*/\s*(\d+)", gold) if "," in gold else []
    if any(math.gcd(int(above), int(below)) > 1 for above, below in fractions):
        return Comparison(False)
    members = split_list(gold)
    ordered = len(members) > 1 and not members[0].startswith(("(", "["))
    if ordered and not in_any_order and r"\pm" not in given:
        given = f"({', '.join(split_list(given))})"
        gold = f"({', '.join(members)})"
    return Comparison(None, (gold, given))


def is_literal(text: str) -> bool:
    r"""Return whether nothing is left to compute: numbers, single letters, and what holds them.

    >>> [is_literal(text) for text in (r"(1, \frac{1}{2})", "x > 3", "2+3", r"\sqrt{2}", "3y")]
    [True, True, False, False, False]
    """
    text = _SHORT_FRACTION.sub(r"\1\2/\3\4", _AND_OR.sub(",", text)).replace(r"\infty", "0")
    for piece in map(str.strip, _SEPARATOR.split(text)):
        # e and i are numbers
        if piece and not parse_number(piece) and not re.fullmatch("-?[a-df-hj-zA-Z]", piece):
            return False
    return True


def without_names(given: str, gold: str) -> tuple[str, str] | None:
    """Return both without the names before their values, where one of the two leaves them out or
    both have the same one; None where they cannot be the same.

    >>> without_names("x = 3", "3"), without_names("x = 1 = 3", "x = 3")
    (('3', '3'), None)
    """
    if "=" not in given + gold:
        return given, gold
    given_items = [split_name(item) for item in split_list(given)]
    gold_items = [split_name(item) for item in split_list(gold)]
    given_names = {name for name, _ in given_items} - {""}
    gold_names = {name for name, _ in gold_items} - {""}
    names = given_names | gold_names
    if None in names or (given_names and gold_names and len(names) > 1):
        # Equations, each of as many sides as the other: an answer is no chain of steps.
        return (given, gold) if given.count("=") == gold.count("=") else None
    # Values of several names are in the order of these.
    template = "({})" if len(names) > 1 else "{}"
    return (
        template.format(", ".join(value for _, value in given_items)),
        template.format(", ".join(value for _, value in gold_items)),
    )


def split_name(item: str) -> tuple[str | None, str]:
    """Return `x = 3` as ("x", "3"); the name is "" where there is none, None for an equation.

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
    """Return the answers of a list: what is between commas, `and` and `or`, outside of brackets.

    >>> split_list("(1,2) and x = 3"), split_list("{1,2}")
    (['(1,2)', 'x = 3'], ['{1,2}'])
    """
    text = _AND_OR.sub(",", text)
    levels = depths(text)
    commas = [at for at, mark in enumerate(text) if mark == "," and levels[at] == 0]
    parts = (text[begin + 1 : end] for begin, end in pairwise([-1, *commas, len(text)]))
    return [part.strip() for part in parts if part.strip()]


def tuple_brackets(text: str) -> set[str]:
    """Return the round and square brackets that hold a comma, as those of tuples and intervals do.

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


def has_marks(text: str) -> bool:
    r"""Return whether a text holds what math-verify does not respect: primes, derivatives, vectors,
    remainders, words, bases, or products of capitals, whose order may count.

    >>> [has_marks(text) for text in ("f'(x)", r"A^{-1} \cdot B", r"\frac{dy}{dx}", "x(x+1)")]
    [True, True, True, False]
    """
    text = _AND_OR.sub(",", text)
    capitals = [letter for letter in variables(text) if letter.isupper()]
    unknown = re.search(r"\\[a-zA-Z]", _KNOWN.sub("@", text))
    return bool(unknown or len(capitals) > 1 or _SPELT.search(_COMMAND.sub("@", text)))


def is_readable(text: str) -> bool:
    """Return whether a text is worth parsing: short, balanced, not too deep, free of prose, and
    without two numbers side by side, which LaTeX would multiply.

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
    """Return the variables of an expression; p is not P."""
    return set(re.findall(r"[a-zA-Z]", _COMMAND.sub(" ", _AND_OR.sub(" ", text))))


@lru_cache(maxsize=1 << 14)
def to_latex(text: str) -> str:
    r"""Return the expression in the spelling that math-verify reads.

    >>> to_latex("2√3 + x^12"), to_latex("x >= π")
    ('2\\sqrt{3} + x^{12}', 'x \\geq  \\pi ')
    """
    # two answers side by side are no product; $$ alone opens or closes a display
    text = re.sub(r"(?<=[^\s$])\$\s*\$(?=[^\s$])|\$\s+\$", " # ", text)
    for written, spelling in _LATEX.items():
        text = text.replace(written, spelling)
    for pattern, spelling in _SPELLINGS:
        text = pattern.sub(spelling, text)
    return text


def without_spaces(text: str) -> str:
    """Return an expression without spaces: two equal ones are equal without any computing."""
    return re.sub(r"([\^_])\{(\w)\}", r"\1\2", re.sub(r"\\[,;:! ]|\s", "", text))
