r"""Text: two answers are the same if they have the same words.

Outer quotes, final punctuation and spacing do not count. Case counts if the row's answer may be a
symbol or a code: one with a digit, a symbol or a capital inside a word, or one of one or two
letters other than `no`.

Correct (`=`) and wrong (`≠`), the given answer first:

- `“paris”` = `Paris`, `Yes!` = `Yes`, `PARIS` = `Paris`, `new  york.` = `New York`,
  `O’Brien` = `O'Brien`, `$125$ miles` = `125 miles`, `red,white` = `red, white`
- `Paris or London` ≠ `Paris`, `resume` ≠ `résumé`, `well known` ≠ `well-known`
- `NO` = `No`, `Na` ≠ `NA`, `X` ≠ `x`, `co` ≠ `CO`, `5 MW` ≠ `5 mW`, `c++` ≠ `C++`,
  `grep -V` ≠ `grep -v`, `line ab` ≠ `line AB`
- `\text{Even}` = `Even`, `**Paris**` = `Paris`, `nan` = `nan`, `…` = `…`

The other kinds use `plain_text` as well. It removes the boxes and the Markdown around an answer,
and replaces typographic characters with those of a keyboard.
"""

import re
import unicodedata
from itertools import accumulate, pairwise

LONGEST_ANSWER = 1000  # characters; a longer answer must equal the row's, character for character
_DEEPEST = 25  # boxes inside boxes, or quotes inside quotes; deeper ones stay

# --- Boxes ----------------------------------------------------------------------------------------

# Marks that may surround a whole answer.
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
_BOX_ENDS = tuple({closing for _, closing in _BOXES})
# Other spellings of a box: \fbox{5}, \boxed {5}, \boxed 5.
_OPEN_BOX = re.compile(r"\\(?:boxed|fbox)\s*(?:\{|([\w.]+))")
# A command around words: \text{New} York.
_LATEX_WORDS = re.compile(
    r"\\(?:text|textbf|textit|textnormal|mathrm|mathbf|operatorname)\s*\{([^{}]*)\}"
)
# A formula among words: $125$ miles. Spaces beside the dollars mean money: 5 $ or 6 $.
_FORMULA = re.compile(r"(?<!\\)\$((?:[^$\\\s]|\\.)(?:[^$\\]|\\.)*)(?<!\s)\$")
# A sign with a backslash: 5\%.
_ESCAPED = re.compile(r"\\([%$&#_{}])")

# --- The keyboard ---------------------------------------------------------------------------------

# Zero-width spaces, direction marks, soft hyphens.
_INVISIBLE = dict.fromkeys([*range(0x200B, 0x2010), *range(0x202A, 0x202F), 0x2060, 0xFEFF, 0xAD])
# Each key, and the characters that NFKC does not replace by it.
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
# x², x₂, ½
_RAISED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿⁱ]+")
_LOWERED = re.compile("[₀₁₂₃₄₅₆₇₈₉₊₋]+")
_FRACTION = re.compile("[¼-¾⅐-⅞]")

# --- Words ----------------------------------------------------------------------------------------

# A comma with the spaces around it: red ,white. But not the comma of 1,234.
_COMMA = re.compile(r" ?, ?+(?!\d{3})")
# Exclamation and question marks after a word: Yes! But not after n! or 5!, which are factorials.
_EXCLAIMED = re.compile(r"(?<=[^\W\d_]{2}|'[^\W\d_])[!?]++$")
# A text in quotes.
_QUOTED = re.compile(r"(['\"])(.+)\1", re.DOTALL)
# A sign of a code: a digit, os.path, f(x), C++, -v.
_SYMBOL = re.compile(r"[\d_]|\w[.(]\w|[^\w\s'\".,;:?()-]|(?<!\w)-")

# --- Functions ------------------------------------------------------------------------------------


def same_text(given: str, gold: str) -> bool:
    """Return whether two texts have the same words."""
    words = words_of(given)
    gold_words = words_of(gold)
    if words == gold_words:
        return words != ""
    return words.casefold() == gold_words.casefold() and not case_counts(gold_words)


def words_of(text: str) -> str:
    """Return a text without the differences that do not count, except case.

    >>> words_of("“New  York!”"), words_of("O’Brien.")
    ('New York', "O'Brien")
    """
    # 1. Make the spacing the same: one space between words, and after a comma, but not in 1,234.
    text = without_latex(plain_text(text))
    text = " ".join(text.split())
    text = _COMMA.sub(", ", text)

    # 2. Remove punctuation at the end, and quotes around the whole. There may be punctuation inside
    # the quotes and outside, "Paris!"., so repeat this until nothing changes.
    for _ in range(_DEEPEST):
        bare = text.rstrip("., ")
        bare = _EXCLAIMED.sub("", bare).rstrip("., ")
        quoted = _QUOTED.fullmatch(bare)
        if quoted:
            bare = quoted[2].strip()
        if bare == text:
            break
        text = bare
    return text


def case_counts(text: str) -> bool:
    """Return whether a text may be a symbol or a code, so that its capitals matter.

    >>> case_counts("A king"), case_counts("CO"), case_counts("5 mW"), case_counts("C++")
    (False, True, True, True)
    """
    if len(text) < 3 and text.casefold() != "no":
        return True
    has_capital_inside = any(
        before.isalnum() and after.isupper() for before, after in pairwise(text)
    )
    return has_capital_inside or _SYMBOL.search(text) is not None


def plain_text(text: str) -> str:
    """Return a text in keyboard characters, without the boxes and Markdown around the whole of it.

    >>> plain_text("**Paris**"), plain_text("A*"), plain_text(r"$\\boxed{x²}$")
    ('Paris', 'A*', 'x^{2}')
    """
    return strip_boxes(to_keyboard(text))


def to_keyboard(text: str) -> str:
    """Return a text as a plain keyboard would type it.

    Unicode's compatibility form (NFKC) replaces full-width and styled characters. Quotes become
    straight, dashes one dash and digits 0 to 9; exponents and indices get braces. Invisible
    characters are removed.

    >>> to_keyboard("x² − ４½ “a”…"), to_keyboard("H₂O"), to_keyboard("٤٢")
    ('x^{2} - 4 1/2 "a"...', 'H_{2}O', '42')
    """
    if text.isascii() or len(text) > LONGEST_ANSWER:
        return text
    # NFKC would turn x² into x2, and 4½ into 41/2.
    keyed = _RAISED.sub(r"^{\g<0>}", text)
    keyed = _LOWERED.sub(r"_{\g<0>}", keyed)
    keyed = _FRACTION.sub(r" \g<0>", keyed)
    # NFKC may produce typographic characters, so translate before and after it.
    keyed = unicodedata.normalize("NFKC", keyed.translate(_TYPED)).translate(_TYPED)
    if len(keyed) > LONGEST_ANSWER:  # NFKC may turn one character into eighteen
        return text
    return re.sub(r"\d", lambda digit: str(unicodedata.decimal(digit[0])), keyed)


def strip_boxes(text: str) -> str:
    r"""Return a text without the boxes around the whole of it: `\boxed{}`, `\text{}`, dollars,
    LaTeX brackets and Markdown.

    >>> strip_boxes(r"$\boxed{5}$"), strip_boxes(r"\boxed{1}, \boxed{2}")
    ('5', '\\boxed{1}, \\boxed{2}')
    """
    text = text.strip()
    if "box" in text:
        # \boxed 5 becomes \boxed{5}, and \fbox{ becomes \boxed{
        text = _OPEN_BOX.sub(
            lambda box: rf"\boxed{{{box[1]}}}" if box[1] else r"\boxed{",
            text,
        )
    for _ in range(_DEEPEST):
        inside = _inside_box(text.removesuffix("."))
        if not inside:
            break
        text = inside
    return text


def _inside_box(text: str) -> str:
    r"""Return the content of the one box around a whole text; "" if there is none.

    `\boxed{1}, \boxed{2}` starts and ends with a box, but is not inside one.
    """
    if not text.endswith(_BOX_ENDS):  # most answers have no box
        return ""
    for opening, closing in _BOXES:
        if not text.startswith(opening) or not text.endswith(closing):
            continue
        content = text[len(opening) : -len(closing)]
        if closing == "}":
            # It is one box if its braces are balanced inside.
            levels = depths(content, "{", "}")
            is_one_box = min(levels) == 0 and levels[-1] == 0
        else:
            # An escaped dollar is no end of a formula: $\$36$.
            bare = content.replace("\\\\", "").replace(r"\$", "")
            is_one_box = opening not in bare and not bare.endswith("\\")
        if is_one_box and content.strip():
            return content.strip()
    return ""


def depths(text: str, opening: str = "{[(", closing: str = "}])") -> list[int]:
    """Return the number of open brackets before each character, and after the last one.

    >>> depths("f(x)")
    [0, 0, 1, 1, 0]
    """
    steps = ((character in opening) - (character in closing) for character in text)
    return list(accumulate(steps, initial=0))


def without_latex(text: str) -> str:
    r"""Return a text without the LaTeX around its words and before its signs.

    >>> without_latex(r"\text{New} York, 5\%"), without_latex("$125$ miles")
    ('New York, 5%', '125 miles')
    """
    text = _LATEX_WORDS.sub(r"\1", text)
    text = _FORMULA.sub(r"\1", text)
    return _ESCAPED.sub(r"\1", text)
