"""An expression in the LaTeX that math-verify reads, from other LaTeX and from what is typed."""

import re
from functools import lru_cache

from helpers.judging.answers.names_and_units import FUNCTIONS


@lru_cache(maxsize=1 << 14)
def to_latex(text: str) -> str:
    r"""Return an expression in the LaTeX that math-verify reads.

    `2√3` = `2\sqrt{3}`, `x**2` = `x²`, `1+2\mathrm{i}` = `1+2i`, `\mathbb{R}` = `(-\infty,\infty)`,
    `(0,1) ∪ (1,2)` = `(0,1)\cup(1,2)`

    >>> to_latex("2√3 + x^12"), to_latex("x >= π")
    ('2\\sqrt{3} + x^{12}', 'x \\geq  \\pi ')
    """
    # Two formulas side by side, `$1$ $2$`, are not a product. The `$$` of a display is one mark.
    text = re.sub(r"(?<=[^\s$])\$\s*\$(?=[^\s$])|\$\s+\$", " # ", text)
    for written, spelling in _SIGNS.items():
        text = text.replace(written, spelling)
    for pattern, spelling in _PATTERNS:
        text = pattern.sub(spelling, text)
    return text


# What `to_latex` replaces first, in this order: characters and commands.
_SIGNS = {
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
# What it replaces then, in this order: patterns.
_PATTERNS = [
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
    (re.compile(rf"(?<![a-zA-Z\\])({FUNCTIONS})(?![a-zA-Z])"), r"\\\1 "),
    # inf -> \infty
    (re.compile(r"(?<![a-zA-Z\\])(?:infinity|inf)(?![a-zA-Z])"), r"\\infty "),
    # no solution -> \emptyset
    (re.compile(r"(?i)no (?:real )?solutions?|(?:the )?empty set|\\varnothing"), r"\\emptyset "),
    # \mathbb{R} -> (-\infty,\infty)
    (re.compile(r"(?i)(?:all )?real numbers|\\mathbb\{R\}"), r"(-\\infty,\\infty)"),
    # (0,1) U (1,2) -> (0,1) \cup (1,2)
    (re.compile(r"(?<=[)\]}])\s*U\s*(?=[(\[{\\])"), r"\\cup "),
    # \left[\begin{array}{cc}1 & 2\end{array}\right], \begin{bmatrix} -> \begin{pmatrix}
    (
        re.compile(
            r"(?:\(|(\[))\s*\\begin\{(?:array\}\s*\{[clr ]*|(?:small)?matrix)\}"
            r"((?:(?!\\(?:begin|end)\{).)*)\\end\{(?:array|(?:small)?matrix)\}\s*(?(1)\]|\))",
            re.DOTALL,
        ),
        r"\\begin{pmatrix}\2\\end{pmatrix}",
    ),
    (re.compile(r"\\(begin|end)\{bmatrix\}"), r"\\\1{pmatrix}"),
    # \boxed{1}\boxed{2} is two answers, not a product: the # makes it unreadable
    (re.compile(r"(?<=\})\s*\\boxed"), r" # \\boxed"),
    # \boxed{3} -> 3
    (re.compile(r"\\boxed\s*\{([^{}]*)\}"), r"\1"),
    (re.compile(r"\\boxed\s*(?=\{)"), ""),
    # x \in [1,2] -> [1,2]
    (re.compile(r"^\s*[a-zA-Z]\s*\\in(?![a-zA-Z])"), ""),
]
