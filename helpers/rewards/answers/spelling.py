"""One way of writing: what two answers differ in only for a keyboard, a font, Markdown or LaTeX is
taken off here.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

LONGEST = 1000  # characters; what is longer is nobody's short answer, and is compared as it stands
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
)
_EMPHASIS = re.compile(r"(\*{1,3}|`)(?=[^*`\s])(.*[^*`\s])\1", re.DOTALL)
# the exclamation mark of a word, not that of 5! or n!
_FINAL = re.compile(r"(?:[.,;\s]|(?<=[^\W\d_]{2}|'[^\W\d_])!+)+$")
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
}
_TYPED = _INVISIBLE | {ord(look): key for key, looks in _KEYS.items() for look in looks}
_RAISED = re.compile(r"\^\{([^{}]*)\}\^\{([^{}]*)\}|_\{([^{}]*)\}_\{([^{}]*)\}")

# an apostrophe inside a word is no quote
_QUOTED = re.compile(r"(['\"])((?:(?!\1).|(?<=\w)\1(?=\w))+)\1", re.DOTALL)


def typed(text: str) -> str:
    """The text as a plain keyboard would write it: NFKC, straight quotes, one dash; `x²` is
    `x^{2}`, `⅞` is ` 7/8`.

    >>> typed("x² − ４½ “a”…"), typed("H₂O")
    ('x^{2} - 4 1/2 "a"...', 'H_{2}O')
    """
    if text.isascii() or len(text) > LONGEST:
        return text
    text = "".join(map(_character, text.translate(_TYPED)))
    while (joined := _RAISED.sub(_join, text)) != text:
        text = joined
    return unicodedata.normalize("NFKC", text).translate(_TYPED)


@lru_cache(maxsize=4096)
def _character(character: str) -> str:
    """Superscripts and fractions, which NFKC would melt into the digits before them."""
    form, _, _ = unicodedata.decomposition(character).partition(" ")
    if form not in ("<super>", "<sub>", "<fraction>"):
        return character
    plain = unicodedata.normalize("NFKC", character).translate(_TYPED)
    if form == "<fraction>":
        return f" {plain}"
    return f"{'^' if form == '<super>' else '_'}{{{plain}}}" if len(plain) == 1 else character


def _join(match: re.Match) -> str:
    up, more, down, rest = match.groups()
    return f"^{{{up}{more}}}" if up is not None else f"_{{{down}{rest}}}"


def unboxed(text: str) -> str:
    """The text without the `\\boxed{}`, `\\text{}`, dollars or LaTeX brackets that surround the
    whole of it.
    """
    text = text.strip()
    if len(text) > LONGEST:
        return text
    for _ in range(_DEEPEST):
        if not text.startswith(("\\", "$")):
            break
        for opening, closing in _BOXES:
            inside = text[len(opening) : -len(closing)]
            if (
                text.startswith(opening)
                and text.endswith(closing)
                and len(text) > len(opening)
                and _is_one(inside, opening)
            ):
                text = inside.strip()
                break
        else:
            break
    return text


def _is_one(inside: str, opening: str) -> bool:
    """Whether the text between an opening and a closing never closes it: `\\boxed{1}, \\boxed{2}`
    are two boxes.
    """
    if not opening.endswith("{"):
        return opening not in inside
    if "{" not in inside and "}" not in inside:
        return True
    depth = 0
    for character in inside:
        depth += (character == "{") - (character == "}")
        if depth < 0:
            return False
    return depth == 0


def plain(text: str) -> str:
    """The text as typed, out of its boxes and Markdown's emphasis; case, spacing and punctuation
    inside stay.

    >>> plain("**Paris**"), plain("A*"), plain(r"$\\boxed{x²}$")
    ('Paris', 'A*', 'x^{2}')
    """
    if len(text) > LONGEST:
        return text.strip()
    text = typed(text).strip()
    for _ in range(3):
        emphasised = _EMPHASIS.fullmatch(text)
        bare = unboxed(emphasised[2] if emphasised else text)
        if bare == text:
            break
        text = bare
    return text


def as_text(text: str) -> str:
    """What two texts are compared by: plain, without regard to case, spacing, surrounding quotes
    and final punctuation.

    >>> as_text("“New  York!”"), as_text("O’Brien.")
    ('new york', "o'brien")
    """
    return as_written(text).casefold() if len(text) <= LONGEST else text.strip()


def as_written(text: str) -> str:
    """`as_text` with its case."""
    if len(text) > LONGEST:
        return text.strip()
    text = " ".join(_letters(plain(text)).split())
    for _ in range(3):
        bare = _FINAL.sub("", text)
        if quoted := _QUOTED.fullmatch(bare):
            bare = quoted[2].strip()
        if bare == text:
            break
        text = bare
    return text


def _letters(text: str) -> str:
    r"""`\text{New} York\%` without the LaTeX around words."""
    text = re.sub(r"([\^_])\{(\w)\}", r"\1\2", text)  # 2s^{2} 2p^{6}
    if "\\" not in text:
        return text
    text = re.sub(
        r"\\(?:text|textbf|textit|mathrm|mathbf|operatorname)\s*\{([^{}]*)\}", r"\1", text
    )
    return re.sub(r"\\([%$&#_{}])", r"\1", text)


# --- Case -----------------------------------------------------------------------------------------

_ALWAYS = {"yes", "no", "true", "false", "none"}
_LITTLE = re.compile(
    r"a|an|as|at|by|d[aeiu]|e[lnt]|he|i[fnst]|l[ae]|my|o[fnr]|so|to|up|us|we", re.IGNORECASE
)
# mathematics or code: every letter counts
_SYMBOLS = re.compile(r"[=<>^_\\{}\[\]|$@#~+*%]|(?<!\S)-")
# no mgh, no aabb
_ORDINARY = re.compile(
    r"(?!(?:([^\W\d_])\1)+$)(?=.*(?:[aeiouy]|[^\x00-\x7f]))[^\W\d_]{3,}", re.IGNORECASE
)
_CAMEL = re.compile(r"[A-Z][a-z]+[A-Z][a-z]{2,}")  # McDonald, and not NaCl
_ROMAN = re.compile(r"[IVX]{2,}")
_LONG = 5  # letters; a word of so many may be written in capitals throughout


def same_words(given: str, gold: str) -> bool:
    """Whether two texts are the same words.

    Case is passed over in ordinary words alone: never in a symbol or an abbreviation.

    >>> same_words("PARIS", "Paris"), same_words("A king", "a King")
    (True, True)
    >>> same_words("aa", "Aa"), same_words("line ab", "line AB")
    (False, False)
    """
    one, other = _listed(as_written(given)), _listed(as_written(gold))
    if one == other:
        return True
    if one.casefold() != other.casefold() or _SYMBOLS.search(other) or len(one) > LONGEST:
        return False
    words, wanted = _PIECE.findall(one), _PIECE.findall(other)
    several = len(words) == len(wanted) > 1
    if several and other.isupper() and any(map(_ORDINARY.fullmatch, wanted)):
        return True
    beside = any(map(_ordinary, wanted)) and not any(map(str.isdigit, other))
    return len(words) == len(wanted) and all(
        said == word
        or _same_case(
            said.capitalize() if several and one.isupper() else said,
            word,
            beside,
            f"{word}." in other,
        )
        for said, word in zip(words, wanted, strict=True)
    )


_PIECE = re.compile(r"\w+(?:'\w+)*")


def _ordinary(word: str) -> bool:
    return bool(_ORDINARY.fullmatch(word.replace("'", ""))) and (word.islower() or _titled(word))


def _titled(word: str) -> bool:
    return word.istitle() or word.replace("'", "").istitle()  # O'Brien, Don't


def _same_case(given: str, gold: str, beside: bool, initial: bool) -> bool:
    """Whether two words that differ in case are one.

    beside: an ordinary word stands beside them. initial: J. in a name.
    """
    regular = given.islower() or _titled(given) or (given.isupper() and len(given) >= _LONG)
    if gold.casefold() in _ALWAYS:
        return True
    if len(gold) <= 2:
        if gold.isupper():
            return beside and (initial or (bool(_ROMAN.fullmatch(gold)) and given.islower()))
        return beside and regular and (bool(_LITTLE.fullmatch(gold)) or gold.istitle())
    if gold.isupper() and gold.isalpha() and len(gold) >= _LONG:
        return regular
    if beside and _ROMAN.fullmatch(gold):
        return given.islower()
    return regular and (_ordinary(gold) or bool(_CAMEL.fullmatch(gold.replace("'", ""))))


def _listed(text: str) -> str:
    """`red, green, and blue` as `red, green, blue`."""
    return re.sub(r",?\s(?:and|&)\s", ", ", text) if ", " in text else text
