"""Mathematics for math-verify: what looks like it, in LaTeX's spelling, and what is no answer
though it computes to one.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from helpers.rewards.answers.spelling import plain

_LONGEST = 300
_DEEPEST = 25  # nested braces or brackets; nobody's answer is deeper, a bomb is
_MATHEMATICAL = re.compile(r"[\d\\^_=+*/<>()\[\]{}|√π∞∪∩≤≥∅±-]")
_COMMAND = re.compile(r"\\[a-zA-Z]+")
_MATRIX = re.compile(r"\\(?:begin|end)\{[pbvBV]?matrix\}")
_WORD = re.compile(r"[^\W\d_]{3,}")
_FUNCTIONS = re.compile(
    r"sin|cos|tan|cot|sec|csc|log|exp|sqrt|arcsin|arccos|arctan|sinh|cosh|tanh|det|deg|min|max|inf|sup|abs|gcd|lcm|infinity"
    r"|alpha|beta|gamma|delta|theta|lambda|sigma|omega|phi|rho"
)
_LATEX = [  # what a keyboard writes on the left, LaTeX on the right
    (re.compile(r"√\s*\(([^()]*)\)|\\?\bsqrt\s*\(([^()]*)\)"), r"\\sqrt{\1\2}"),
    (re.compile(r"√\s*(\d+|[a-zA-Z])"), r"\\sqrt{\1}"),
    (re.compile(r"\{([^{}]*[^{}a-zA-Z\\])\\over(?![a-zA-Z])([^{}]*)\}"), r"\\frac{\1}{\2}"),
    (re.compile(r"\{([^{}]*)\\choose(?![a-zA-Z])([^{}]*)\}"), r"\\binom{\1}{\2}"),
    (re.compile(r"≡"), r"\\equiv "),
    (re.compile(r"\*\*"), "^"),
    (re.compile(r"\^\(([^()]*)\)"), r"^{\1}"),
    (re.compile(r"\^(-?\d{2,})"), r"^{\1}"),
    (re.compile(r"\*"), r"\\cdot "),
    (re.compile(r"<=|≤"), r"\\leq "),
    (re.compile(r">=|≥"), r"\\geq "),
    (re.compile(r"\\(le|ge)(?![a-zA-Z])"), r"\\\1q "),
    (re.compile(r"\\(?:dfrac|tfrac|cfrac)(?![a-zA-Z])"), r"\\frac"),
    (re.compile(r"\\lvert|\\rvert|\\mid(?![a-zA-Z])"), "|"),
    (re.compile(r"(?<![a-zA-Z\\])exp\s*\(([^()]*)\)"), r"e^{\1}"),
    (re.compile(r"∞|\\?(?<![a-zA-Z])(?:infinity|inf)(?![a-zA-Z])|\+∞"), r"\\infty "),
    (re.compile(r"(?<=[,(\[\s])\+\s*\\infty"), r"\\infty"),
    (re.compile(r"∪|(?<=[)\]}])\s*U\s*(?=[(\[{\\])"), r"\\cup "),
    (re.compile(r"∩"), r"\\cap "),
    (re.compile(r"×"), r"\\times "),
    (re.compile(r"·"), r"\\cdot "),
    (re.compile(r"÷"), r"\\div "),
    (re.compile(r"±|\+/-"), r"\\pm "),
    (re.compile(r"∈"), r"\\in "),
    (re.compile(r"∅|\\varnothing"), r"\\emptyset "),
    (
        re.compile(
            r"(?<![a-zA-Z\\])(sin|cos|tan|cot|sec|csc|log|ln|arcsin|arccos|arctan|pi|alpha|beta|gamma|delta|theta|lambda|sigma"
            r"|omega|phi|rho)(?![a-z])"
        ),
        r"\\\1 ",
    ),
]
_GREEK = {
    chr(code): unicodedata.name(chr(code)).split()[-1].lower()
    for code in (*range(0x3B1, 0x3C2), *range(0x3C3, 0x3CA))
}
_GREEK |= {
    chr(code): unicodedata.name(chr(code)).split()[-1].title()
    for code in range(0x391, 0x3AA)
    if code != 0x3A2
}
# Unicode writes lamda
_GREEK = {letter: name.replace("amda", "ambda") for letter, name in _GREEK.items()}
_NAMED = re.compile(r"\s*(\\?[a-zA-Z]\w*'*\s*(?:\([\w, ]*\))?)\s*=([^=<>]+)")  # y = …, f(x) = …
_RELATION = re.compile(r"[<>≤≥≠]|\\(?:leq?|geq?|neq?|lt|gt)(?![a-zA-Z])")
_STEP = re.compile(r"(>|\\geq |\\gt |<|\\leq |=)")
_RISING = {">": "<", r"\geq ": r"\leq ", r"\gt ": "<"}
_OPERATOR = re.compile(r"[+*/×÷·]|(?<=[\w})])\s*-|\\(?:times|cdot|div|pm|mp|ast)\b")
_VALUES = {
    r"\sqrt",
    r"\pi",
    r"\log",
    r"\ln",
    r"\sin",
    r"\cos",
    r"\tan",
    r"\exp",
    r"\left",
    r"\right",
    r"\text",
    r"\boxed",
}
# no memory holds the value
_TOWER = re.compile(r"\d\s*(?:\^\s*[{(]?\s*\d+\s*){3}|!\s*\)?\s*!|\d\s*\^\s*[{(]?\s*\d{7,}")


def looks_mathematical(text: str) -> bool:
    """Whether a text is worth parsing as mathematics: short, balanced, not too deep, no power of
    powers, and free of prose.

    >>> looks_mathematical(r"x^2 + \\frac{1}{2}"), looks_mathematical("Paris")
    (True, False)
    >>> looks_mathematical("{" * 300)
    False
    """
    if (
        len(text) > _LONGEST
        or not _MATHEMATICAL.search(text)
        or "__" in text
        or _TOWER.search(text)
    ):
        return False
    # 4 2 and x2, which LaTeX would multiply
    if re.search(r"(?<![_\d.])\d[\d.]*\s+\d|(?<![a-zA-Z\\])[a-zA-Z]\d", text):
        return False
    words = _WORD.findall(_COMMAND.sub(" ", _MATRIX.sub(" ", text)))
    if not all(map(_FUNCTIONS.fullmatch, words)) or re.search(r"\b(or|and|not|no)\b", text):
        return False
    return balanced(text)


def balanced(text: str) -> bool:
    """Whether brackets close, of whatever kind, so that [0,1) does; and none too deep."""
    depth = 0
    for character in text:
        depth += (character in "{[(") - (character in "}])")
        if not 0 <= depth <= _DEEPEST:
            return False
    return depth == 0 and text.count("{") == text.count("}")


@lru_cache(maxsize=1 << 14)
def latex(text: str) -> str:
    """The expression in the spelling that math-verify reads.

    >>> latex("2√3 + x²"), latex("x >= π")
    ('2\\\\sqrt{3} + x^{2}', 'x \\\\geq  \\\\pi ')
    """
    text = plain(text)
    if len(text) > _LONGEST:
        return text
    for letter, name in _GREEK.items():
        if letter in text:
            text = text.replace(letter, rf"\{name} ")
    for pattern, spelling in _LATEX:
        text = pattern.sub(spelling, text)
    steps = _STEP.split(text)
    if len(steps) > 3 and set(steps[1::2]) <= set(_RISING):  # 5 > x > 2 is 2 < x < 5
        text = "".join(_RISING.get(step, step) for step in reversed(steps))
    return text


_UNIT = re.compile(
    r"(.*?)(?:\\[,;:! ]|~|\s)*\\(?:text|mathrm|mbox)\s*\{\s*([a-zA-Z/ .]+)\}(?:\^\{?(\d)\}?)?",
    re.DOTALL,
)


def without_unit(text: str) -> tuple[str, str]:
    r"""An expression and the unit behind it, "" without one: `10\sqrt{3}\text{ cm}^2`."""
    match = _UNIT.fullmatch(plain(text))
    if not match or not match[1].strip() or match[2].strip() in ("or", "and"):
        return text, ""
    return match[1], match[2].strip() + (f"^{match[3]}" if match[3] else "")


def bare(text: str) -> str:
    """The expression in LaTeX, without spaces: two equal ones are equal without any computing."""
    return re.sub(r"\\(?:left|right)(?![a-zA-Z])|\\[,;:! ]|\s", "", latex(text))


# What math-verify takes for a product of numbers, or drops: it is compared as it is spelt.
_SPELT = re.compile(
    r"'|\\(?:prime|partial|nabla|mathbf|boldsymbol|bm|vec|top|dagger|int|subset(?:eq)?|supset(?:eq)?|in|ni|notin|p?mod|bmod|equiv)"
    r"(?![a-zA-Z])|\^\s*\{?\s*(?:T|\*|\\cdot)(?![a-zA-Z])|\\?%\s*[\w(]|(?<![a-zA-Z\\])[a-zA-Z]\w*\["
    r"|\{\s*d(?:\^\{?\w\}?)?\s*[a-zA-Z]?\s*\}\s*\{\s*d\s*[a-zA-Z]|(?<![a-zA-Z])d(?:\^\d)?[a-zA-Z]\s*/\s*d[a-zA-Z]"
)
_CAPITALS = re.compile(
    r"[A-Z](?:_(?:\w|\{\w*\}))?(?:\^(?:-?\w|\{[^{}]*\}))?[A-Z]|([A-Z])\([^()]*(?!\1)[A-Z]|([A-Z])[^()]*\)(?!\2)[A-Z]"
)  # A^{-1}B, A(B+C)


def is_spelt(text: str) -> bool:
    r"""Whether a text holds what math-verify does not respect: primes, derivatives, vectors, matrix
    products, memberships.

    >>> is_spelt("f'(x)"), is_spelt(r"A^{-1} \cdot B"), is_spelt(r"\frac{dy}{dx}")
    (True, True, True)
    >>> is_spelt("x(x+1)")
    False
    """
    text = re.sub(r"\\(?:mathrm|text|rm)\s*\{\s*(\w)\s*\}", r"\1", text)
    factors = re.sub(r"\\(?:cdot|times|left|right)(?![a-zA-Z])|\*|\s", "", text)
    return bool(_SPELT.search(text) or _CAPITALS.search(_COMMAND.sub("#", factors)))


def same_spelling(given: str, gold: str) -> bool:
    r"""Whether two expressions are spelt alike, but for spaces, LaTeX that says nothing, and the
    sides of = and of ≠.

    >>> same_spelling("y''", "y'"), same_spelling("IR = V", "V = IR")
    (False, True)
    >>> same_spelling("x ≡ 3 (mod 7)", r"x \equiv 3 \pmod{7}")
    True
    """
    one, other = _sides(given), _sides(gold)
    return one == other or (len(one) == 3 and one[::-1] == other)


def _sides(text: str) -> list[str]:
    """Left, sign and right of an equation, or the expression alone, each in one spelling."""
    text = re.sub(r"\(\\?mod(\w+)\)|\\pmod\{?(\w+)\}?", r"(mod \1\2)", bare(text))
    text = re.sub(r"\^?\{?\\prime\}?", "'", text)
    text = re.sub(r"(?<=[\^_])\{(\w)\}", r"\1", text)
    return re.split(r"(=|≠)", re.sub(r"\\neq|\\ne(?!g|arrow|xists)", "≠", text))


def is_a_tower(given: str) -> bool:
    """Whether an exponent has an exponent: nobody's number, and large."""
    return bool(re.search(r"\^\s*[{(]?[^{}()^]*\^", given))


def is_a_task(given: str) -> bool:
    """Whether an expression leaves something to do where a number was asked for: of those, roots
    and powers are values.
    """
    return bool(
        _OPERATOR.search(given)
        or not _VALUES.issuperset(_COMMAND.findall(given))
        or re.search(r"!|--|max|min|[\d)]\s*\(|\)\s*\d", given)
    )


def named(text: str) -> tuple[str, str] | None:
    """`y = 2x+1` as ("y", "2x+1"), `2x+1 = y` as well; None for what is no name and its value."""
    if text.count("=") != 1:
        return None
    if match := _NAMED.fullmatch(text):
        return "".join(match[1].split()), match[2].strip()
    left, _, right = text.partition("=")
    flipped = _NAMED.fullmatch(f"{right} = {left}")
    return (
        ("".join(flipped[1].split()), left.strip())
        if flipped and not _RELATION.search(text)
        else None
    )


def sides(given: str, gold: str) -> tuple[str, str] | None:
    """What of two expressions is to be compared, or None where they cannot be the same: another
    name, another relation.

    A name before a value that is no more than a name may be left out: 3 is the answer where x = 3
    is.

    >>> sides("3", "y=3"), sides("x=3", "y=3"), sides("x < 3", "x > 3 = y")
    (('3', '3'), None, None)
    """
    if bool(_RELATION.search(given)) != bool(_RELATION.search(gold)):
        interval = (
            not _RELATION.search(given)
            and "=" not in given
            and re.search(r"[\[(].*,.*[\])]", given)
        )
        return (given, gold) if interval and _RELATION.search(gold) else None
    if _RELATION.search(gold):
        return (given, gold) if given.count("=") == gold.count("=") else None
    wanted, said = named(gold), named(given)
    if wanted is None:
        if "=" in gold:
            return (given, gold) if given.count("=") == gold.count("=") else None
        # Of x = 13 = 12, and of 13 = 12, math-verify judges the last side.
        return (
            (said[1], gold)
            if said and given.rstrip().endswith(said[1])
            else None
            if "=" in given
            else (given, gold)
        )
    if said and said[0] == wanted[0]:
        return said[1], wanted[1]
    if "=" not in given:
        return given, wanted[1]
    # x - y = 1 for y = x - 1; not 2x = 6 for x = 3
    equations = re.search(r"[a-zA-Z]", wanted[1]) and given.count("=") == 1
    return (given, gold) if equations and not (said and said[0] not in letters(gold)) else None


def is_relation(text: str) -> bool:
    """Whether a text has an inequality."""
    return bool(_RELATION.search(text))


def letters(text: str) -> set[str]:
    """The variables of an expression."""
    return set(re.findall(r"[a-zA-Z]", _COMMAND.sub(" ", _MATRIX.sub(" ", latex(text)))))


def same_letters(given: str, gold: str) -> bool:
    """Whether the given expression has no variable of its own.

    math-verify drops some (am, cm), and takes p for P.
    """
    return letters(given) <= letters(gold) | {"e", "i"}
