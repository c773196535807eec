"""One spelling: Unicode, fonts, Markdown and the LaTeX around an answer, normalised before any kind
compares two of them.
"""

import re
import unicodedata
from itertools import accumulate

LONGEST = 1000  # characters; a longer text is no short answer, and is compared as it is
_DEEPEST = 25  # boxes in boxes

_BOXES = (
    (r"\boxed{", "}"),
    (r"\text{", "}"),
    (r"\mathrm{", "}"),
    (r"\textbf{", "}"),
    (r"\ce{", "}"),
    ("$$", "$$"),
    ("$", "$"),
    (r"\(", r"\)"),
    (r"\[", r"\]"),
    ("***", "***"),
    ("**", "**"),
    ("*", "*"),
    ("`", "`"),
)
_INVISIBLE = dict.fromkeys([*range(0x200B, 0x2010), *range(0x202A, 0x202F), 0x2060, 0xFEFF, 0xAD])
# What Unicode's compatibility form (NFKC) leaves apart and a keyboard has one key for.
_KEYS = {
    "-": "−–—‐‑‒－﹣",
    "'": "‘’‚‛′ʼ",
    '"': "“”„‟″«»",
    "/": "⁄∕",
    ":": "∶",
    "≤": "⩽≦",
    "≥": "⩾≧",
    "·": "⋅∙",
    "->": "→⟶",
}
_TYPED = _INVISIBLE | {ord(look): key for key, looks in _KEYS.items() for look in looks}
_RAISED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿⁱ]+")
_LOWERED = re.compile("[₀₁₂₃₄₅₆₇₈₉₊₋]+")
_FRACTION = re.compile("[¼-¾⅐-⅞]")
_LATEX_WORDS = re.compile(
    r"\\(?:text|textbf|textit|textnormal|mathrm|mathbf|operatorname)\s*\{([^{}]*)\}"
)


def typed(text: str) -> str:
    """Return the text as a plain keyboard would write it: NFKC, straight quotes, one dash; `x²` is
    `x^{2}`, `⅞` is ` 7/8`, and nothing invisible is left.

    >>> typed("x² − ４½ “a”…"), typed("H₂O")
    ('x^{2} - 4 1/2 "a"...', 'H_{2}O')
    """
    if text.isascii() or len(text) > LONGEST:
        return text
    text = _RAISED.sub(r"^{\g<0>}", text)  # NFKC would melt these into the digits before them
    text = _LOWERED.sub(r"_{\g<0>}", text)
    text = _FRACTION.sub(r" \g<0>", text)
    return unicodedata.normalize("NFKC", text.translate(_TYPED)).translate(_TYPED)


def unboxed(text: str) -> str:
    """Return the text without the `\\boxed{}`, `\\text{}`, dollars or LaTeX brackets that surround
    the whole of it; `\\boxed{1}, \\boxed{2}` is two.
    """
    text = text.strip()
    for _ in range(_DEEPEST):
        if not text.startswith(("\\", "$", "*", "`")):
            break
        boxed = text.removesuffix(".")
        inside = ""
        for opening, closing in _BOXES:
            if boxed.startswith(opening) and boxed.endswith(closing):
                content = boxed[len(opening) : -len(closing)]
                levels = depths(content, "{", "}")
                # one box around all of it, and not the first and the last of several
                if min(levels) == levels[-1] == 0 if closing == "}" else opening not in content:
                    inside = inside or content.strip()
        if not inside:
            break
        text = inside
    return text


def depths(text: str, opening: str = "{[(", closing: str = "}])") -> list[int]:
    """Return in how many brackets each character of a text is, and at last what follows it.

    >>> depths("f(x)")
    [0, 0, 1, 1, 0]
    """
    steps = ((character in opening) - (character in closing) for character in text)
    return list(accumulate(steps, initial=0))


def plain(text: str) -> str:
    """Return the text as typed, out of its boxes and Markdown's emphasis; case, spacing and
    punctuation inside stay.

    >>> plain("**Paris**"), plain("A*"), plain(r"$\\boxed{x²}$")
    ('Paris', 'A*', 'x^{2}')
    """
    return unboxed(typed(text))


def without_latex(text: str) -> str:
    r"""Return `\text{New} York\%` without the LaTeX around words and before signs: `New York%`."""
    return re.sub(r"\\([%$&#_{}])", r"\1", _LATEX_WORDS.sub(r"\1", text))
