r"""Text: the same words, without regard to outer quotes, final punctuation and spacing. And one
spelling for all kinds: Unicode, fonts, Markdown and the LaTeX around an answer, normalised first.

Case counts where the row's answer has a digit, a symbol, or a capital that begins no word, and in
an answer of one or two letters other than `no`.

- `“paris”` = `Paris`, `Yes!` = `Yes`, `PARIS` = `Paris`, `new  york.` = `New York`,
  `O’Brien` = `O'Brien`, `$125$ miles` = `125 miles`, `red,white` = `red, white`
- `Paris or London` ≠ `Paris`, `resume` ≠ `résumé`, `well known` ≠ `well-known`
- `NO` = `No`, `Na` ≠ `NA`, `X` ≠ `x`, `co` ≠ `CO`, `5 MW` ≠ `5 mW`, `c++` ≠ `C++`,
  `grep -V` ≠ `grep -v`, `line ab` ≠ `line AB`
- `\text{Even}` = `Even`, `**Paris**` = `Paris`, `nan` = `nan`, `…` = `…`
"""

import re
import unicodedata
from itertools import accumulate, pairwise

LONGEST_ANSWER = 1000  # characters; a longer text is no short answer, and is compared as it is
_DEEPEST = 25  # boxes in boxes

_BOXES = (
    (r"\boxed{", "}"),
    (r"\text{", "}"),
    (r"\mathrm{", "}"),
    (r"\textbf{", "}"),
    (r"\mbox{", "}"),
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
_OPEN_BOX = re.compile(r"\\(?:boxed|fbox)\s*(?:\{|([\w.]+))")  # `\fbox{`, `\boxed {`, `\boxed 5`
_INVISIBLE = dict.fromkeys([*range(0x200B, 0x2010), *range(0x202A, 0x202F), 0x2060, 0xFEFF, 0xAD])
# What Unicode's compatibility form (NFKC) leaves apart and a keyboard has one key for.
_KEYS = {
    "-": "−–—‐‑‒－﹣",
    "'": "‘’‚‛′ʼ",
    '"': "“”„‟″«»",
    "/": "⁄∕",
    ":": "∶",
    ".": "。｡٫",
    ",": "、،٬",
    "%": "٪",
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
_SHOUTED = re.compile(r"(?<=[^\W\d_]{2}|'[^\W\d_])[!?]++$")  # not the mark of n! or 5!
_QUOTED = re.compile(r"(['\"])(.+)\1", re.DOTALL)
_SYMBOL = re.compile(r"[\d_]|\w[.(]\w|[^\w\s'\".,;:?()-]|(?<!\w)-")


def to_keyboard(text: str) -> str:
    """Return the text as a plain keyboard would write it: NFKC, straight quotes, one dash, one set
    of digits; `x²` is `x^{2}`, `⅞` is ` 7/8`, and nothing invisible is left.

    >>> to_keyboard("x² − ４½ “a”…"), to_keyboard("H₂O"), to_keyboard("٤٢")
    ('x^{2} - 4 1/2 "a"...', 'H_{2}O', '42')
    """
    if text.isascii() or len(text) > LONGEST_ANSWER:
        return text
    keyed = _RAISED.sub(r"^{\g<0>}", text)  # NFKC would melt these into the digits before them
    keyed = _LOWERED.sub(r"_{\g<0>}", keyed)
    keyed = _FRACTION.sub(r" \g<0>", keyed)
    keyed = unicodedata.normalize("NFKC", keyed.translate(_TYPED)).translate(_TYPED)
    if len(keyed) > LONGEST_ANSWER:  # one character may become eighteen
        return text
    return re.sub(r"\d", lambda digit: str(unicodedata.decimal(digit[0])), keyed)


def strip_boxes(text: str) -> str:
    """Return the text without the `\\boxed{}`, `\\text{}`, dollars or LaTeX brackets that surround
    the whole of it; `\\boxed{1}, \\boxed{2}` is two.
    """
    text = text.strip()
    if "box" in text:
        text = _OPEN_BOX.sub(lambda box: r"\boxed{" + (f"{box[1]}}}" if box[1] else ""), text)
    for _ in range(_DEEPEST):
        if not text.startswith(("\\", "$", "*", "`")):
            break
        inside = _inside_box(text.removesuffix("."))
        if not inside:
            break
        text = inside
    return text


def _inside_box(text: str) -> str:
    """Return what is in the one box around all of a text; "" if there is none, or if the first and
    the last of several boxes only begin and end it.
    """
    for opening, closing in _BOXES:
        if text.startswith(opening) and text.endswith(closing):
            content = text[len(opening) : -len(closing)]
            if closing == "}":
                levels = depths(content, "{", "}")
                is_one_box = min(levels) == levels[-1] == 0
            else:
                is_one_box = opening not in content
            if is_one_box and content.strip():
                return content.strip()
    return ""


def depths(text: str, opening: str = "{[(", closing: str = "}])") -> list[int]:
    """Return in how many brackets each character of a text is, and at last what follows it.

    >>> depths("f(x)")
    [0, 0, 1, 1, 0]
    """
    steps = ((character in opening) - (character in closing) for character in text)
    return list(accumulate(steps, initial=0))


def plain_text(text: str) -> str:
    """Return the text as typed, out of its boxes and Markdown's emphasis; case, spacing and
    punctuation inside stay.

    >>> plain_text("**Paris**"), plain_text("A*"), plain_text(r"$\\boxed{x²}$")
    ('Paris', 'A*', 'x^{2}')
    """
    return strip_boxes(to_keyboard(text))


def without_latex(text: str) -> str:
    r"""Return `\text{New} York\%` without the LaTeX around words and before signs: `New York%`."""
    text = re.sub(r"(?<!\\)\$(\S[^$]*(?<![\s\\]))\$", r"\1", _LATEX_WORDS.sub(r"\1", text))
    return re.sub(r"\\([%$&#_{}])", r"\1", text)


def words_of(text: str) -> str:
    """Return what two texts are compared by.

    >>> words_of("“New  York!”"), words_of("O’Brien.")
    ('New York', "O'Brien")
    """
    text = " ".join(without_latex(plain_text(text)).split())
    text = re.sub(r" ?, ?+(?!\d{3})", ", ", text)  # but 1,234
    for _ in range(3):
        bare = _SHOUTED.sub("", text.rstrip("., ")).rstrip("., ")
        quoted = _QUOTED.fullmatch(bare)
        if quoted:
            bare = quoted[2].strip()
        if bare == text:
            break
        text = bare
    return text


def same_text(given: str, gold: str) -> bool:
    """Return whether two texts are the same words."""
    words = words_of(given)
    gold_words = words_of(gold)
    if words == gold_words:
        return words != ""
    return words.casefold() == gold_words.casefold() and not case_counts(gold_words)


def case_counts(text: str) -> bool:
    """Return whether a text may be a symbol or a code, in which a capital is another letter.

    >>> case_counts("A king"), case_counts("CO"), case_counts("5 mW"), case_counts("C++")
    (False, True, True, True)
    """
    if len(text) < 3 and text.casefold() != "no":
        return True
    inside = any(before.isalnum() and after.isupper() for before, after in pairwise(text))
    return inside or bool(_SYMBOL.search(text))
