r"""Text: the same words, without regard to outer quotes, final punctuation and spacing.

Case counts where the row's answer has a digit, a symbol, or a capital that begins no word, and in
an answer of one or two letters other than `no`.

- `“paris”` = `Paris`, `Yes!` = `Yes`, `PARIS` = `Paris`, `new  york.` = `New York`,
  `O’Brien` = `O'Brien`
- `Paris or London` ≠ `Paris`, `resume` ≠ `résumé`, `well known` ≠ `well-known`
- `NO` = `No`, `Na` ≠ `NA`, `X` ≠ `x`, `co` ≠ `CO`, `5 MW` ≠ `5 mW`, `c++` ≠ `C++`,
  `grep -V` ≠ `grep -v`, `line ab` ≠ `line AB`
- `\text{Even}` = `Even`, `**Paris**` = `Paris`, `nan` = `nan`, `…` = `…`
"""

import re
from itertools import pairwise

from helpers.rewards.answers.spelling import plain, without_latex

_FINAL = re.compile(
    r"(?:[.,\s]|(?<=[^\W\d_]{2}|'[^\W\d_])[!?])+$"
)  # not the exclamation mark of n! or 5!
_QUOTED = re.compile(r"(['\"])(.+)\1", re.DOTALL)
_SYMBOL = re.compile(r"[\d_]|\w[.(]\w|[^\w\s'\".,;:?()-]|(?<!\w)-")


def words_of(text: str) -> str:
    """Return what two texts are compared by.

    >>> words_of("“New  York!”"), words_of("O’Brien.")
    ('New York', "O'Brien")
    """
    text = " ".join(without_latex(plain(text)).split())
    for _ in range(3):
        bare = _FINAL.sub("", text)
        quoted = _QUOTED.fullmatch(bare)
        if quoted:
            bare = quoted[2].strip()
        if bare == text:
            break
        text = bare
    return text


def same_text(given: str, gold: str) -> bool:
    """Return whether two texts are the same words."""
    one = words_of(given)
    other = words_of(gold)
    if one == other:
        return one != ""
    return one.casefold() == other.casefold() and not case_counts(other)


def case_counts(text: str) -> bool:
    """Return whether a text may be a symbol or a code, in which a capital is another letter.

    >>> case_counts("A king"), case_counts("CO"), case_counts("5 mW"), case_counts("C++")
    (False, True, True, True)
    """
    if len(text) < 3 and text.casefold() != "no":
        return True
    inside = any(before.isalnum() and after.isupper() for before, after in pairwise(text))
    return inside or bool(_SYMBOL.search(text))
