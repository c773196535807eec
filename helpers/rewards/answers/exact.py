r"""Exact: the same characters, for codes, versions, formulas, ratios and scores.

After Unicode's NFKC, with one kind of dash, with no space around `:`, `-` and an arrow, and with
indices and charges as they are read: `_{2}` behind a letter is the 2 of H2O.

- `5–10` = `5-10`, `3 : 4` = `3:4`, `1 - 0` = `1-0`, `**v1.2.3**` = `v1.2.3`, `AB–12` = `AB-12`
- `H₂O` = `H_2O`, `H2O` = `H_{2}O`, `Ca²⁺` = `Ca^{2+}`, `\mathrm{CO_2}` = `CO2`
- `1` ≠ `1-0`, `10-5` ≠ `5-10`, `192.168.1.0` ≠ `192.168.0.1`, `my_Var` ≠ `my_var`,
  `myvar` ≠ `my_var`
- `NO2` ≠ `N2O`, `Co` ≠ `CO`, `h2o` ≠ `H2O`, `102` ≠ `10^2`, `1012` ≠ `101_2`, `A` ≠ `A*`
"""

import re

from helpers.rewards.answers.spelling import plain, without_latex

_JOINED = re.compile(r"\s*(->|[:-])\s*")
_BRACED = re.compile(r"([_^])\{([\w+-]*)\}")  # x_{12} is x_12
_INDEX = re.compile(r"(?<=[A-Za-z)\]])_(?=\d)")
_CHARGE = re.compile(r"(?<=[A-Za-z)\]])\^(?=\d*[+-](?!\w))|\^(?=[+-](?!\w))")


def same_code(given: str, gold: str) -> bool:
    """Return whether two codes are the same, character for character."""
    return code_of(given) == code_of(gold) != ""


def code_of(text: str) -> str:
    """Return what two codes are compared by.

    >>> code_of("Ca²⁺"), code_of("3 : 4"), code_of("101_{2}")
    ('Ca2+', '3:4', '101_2')
    """
    text = without_latex(re.sub(r"\\(?:right|longright)arrow|\\to\b", "->", plain(text)))
    text = _BRACED.sub(r"\1\2", " ".join(text.split()).removesuffix("."))
    if "->" in text:  # a reaction
        text = text.replace(" ", "")
    return _CHARGE.sub("", _INDEX.sub("", _JOINED.sub(r"\1", text)))
