"""Chemical formulas: letters are elements, so their case and order count; H_2O, H₂O and H2O are one
spelling.
"""

from __future__ import annotations

import re
from functools import lru_cache

from helpers.rewards.answers.spelling import plain

_LONGEST = 120
_ELEMENTS = (
    "H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se "
    "Br Kr Rb Sr Y Zr Nb Mo Tc Ru "
    "Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy Ho Er Tm Yb Lu Hf Ta W Re "
    "Os Ir Pt Au Hg Tl Pb Bi Po At "
    "Rn Fr Ra Ac Th Pa U Np Pu Am Cm Bk Cf Es Fm Md No Lr Rf Db Sg Bh Hs Mt Ds Rg Cn Nh Fl Mc Lv "
    "Ts Og D T"
)
_ELEMENT = "(?:" + "|".join(sorted(_ELEMENTS.split(), key=len, reverse=True)) + ")"
_GROUP = rf"(?:{_ELEMENT}\d*|[(\[](?:{_ELEMENT}\d*|\((?:{_ELEMENT}\d*)+\)\d*)+[)\]]\d*)"
_SPECIES = (
    rf"(?:{_GROUP}+(?:·\d*{_GROUP}+)?)(?:\^(?:\d*[+-]|[+-]\d*)|[+-]{{1,3}})?(?:\((?:aq|s|l|g)\))?"
)
_FORMULA = re.compile(_SPECIES)
_REACTION = re.compile(
    rf"\d*{_SPECIES}(?:\+\d*{_SPECIES})*(?:->|<->|=)\d*{_SPECIES}(?:\+\d*{_SPECIES})*"
)
_ARROWS = re.compile(r"\\(?:long)?rightarrow|\\to\b|→|⟶|-+>|=>|⇒")
_BOTH_WAYS = re.compile(r"\\(?:right)?left(?:right)?(?:harpoons|arrow)s?|⇌|↔|<=+>|<-+>")
_LATEX = re.compile(r"\\(?:text|mathrm|mathbf|ce|rm|operatorname)\b|\\[,;:! ]|[{}\s$]")
# words that are symbols too
_ENGLISH = {"no", "he", "in", "as", "at", "be", "i", "am", "us", "os", "ho"}


def is_formula(text: str) -> bool:
    """Whether a text is a chemical formula or reaction: elements alone, and not an English word.

    >>> [is_formula(text) for text in ("Ca(OH)_2", "Co", "No", "x_2", "2H2 + O2 -> 2H2O")]
    [True, True, False, False, True]
    """
    bare = _bare(text)
    # 2NO, but not 2N, nor 44 BC
    several = len(re.findall(r"[A-Z]", bare)) > 1 and not re.match(r"\d+\s", text)
    known = _FORMULA.fullmatch(
        bare.lstrip("0123456789") if several else bare
    ) or _REACTION.fullmatch(bare)
    return bare.casefold() not in _ENGLISH and bool(known)


def same_formula(given: str, gold: str) -> bool | None:
    """Whether two formulas are written with the same symbols and numbers in the same order.

    None where the given text is no formula at all.

    >>> same_formula("H₂O", "H_2O"), same_formula("NO2", "N2O")
    (True, False)
    >>> same_formula("Ca2+", "Ca^{2+}"), same_formula("water", "H2O")
    (True, None)
    """
    one, other = _bare(given), _bare(gold)
    if not (_FORMULA.fullmatch(one) or _REACTION.fullmatch(one)):
        one = _FLAT_CHARGE.sub(r"^\1", one)
        if not _FORMULA.fullmatch(one):
            return None
    if ("^" in one) != ("^" in other):
        one, other = one.replace("^", ""), other.replace("^", "")
    return one == other


_FLAT_CHARGE = re.compile(r"(?<=[A-Za-z)\]])(\d[+-])$")  # Ca2+


@lru_cache(maxsize=1 << 12)
def _bare(text: str) -> str:
    r"""`\mathrm{Ca}^{+2}` as `Ca^2+`, `H_{2}O` as `H2O`, every arrow as `->`."""
    if len(text) > _LONGEST:
        return ""
    text = _BOTH_WAYS.sub("<->", plain(text))
    text = _ARROWS.sub(lambda match: "->", text) if "<->" not in text else text
    text = re.sub(r"\\cdot(?![a-zA-Z])|[*•.](?=\d*[A-Z])", "·", text)
    text = _LATEX.sub("", text).replace("_", "").removesuffix(".")
    text = re.sub(r"\^\((\d*[+-]|[+-]\d*)\)", r"^\1", text)
    text = re.sub(r"\^([+-])(\d+)", r"^\2\1", text)
    return re.sub(r"\^1([+-])", r"^\1", text)
