"""Sets, tuples, intervals and lists of solutions: the brackets must be the same, and the order of a
set does not count.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from helpers.rewards.answers import mathematics, numbers
from helpers.rewards.answers.spelling import plain

_LONGEST = 300
_MOST_ELEMENTS = 50
_JOINED = re.compile(
    r",?\s*\\text\s*\{\s*(?:or|and)\s*\}\s*|,?\s+(?:or|and)\s+|\s*;\s*", re.IGNORECASE
)
_NAME = re.compile(
    r"\s*([a-zA-Z](?:_\{?\w\}?)?|\([a-zA-Z](?:\s*,\s*[a-zA-Z])+\))\s*(?:=|\\in(?![a-zA-Z])|∈)(?![=<>])\s*(.+)"
)
_BRACKETS = {"{": "}", "(": ")]", "[": ")]"}
_EMPTY = re.compile(
    r"no\s+solutions?\.?|\\emptyset|\\varnothing|∅|\\?\{\s*\\?\}|(?:the\s+)?empty\s+set\.?",
    re.IGNORECASE,
)


class Collection(NamedTuple):
    """opening and closing bracket ("" for a bare list), the elements as typed with the names before
    them, and how they are joined: ",", or in lower case the word between them.
    """

    opening: str
    closing: str
    elements: tuple[str, ...]
    names: tuple[str, ...]
    joined: str = ","

    @property
    def ordered(self) -> bool:
        """Whether the order of the elements counts."""
        return self.opening in ("(", "[")


@lru_cache(maxsize=1 << 14)
def collections(text: str) -> tuple[Collection, ...] | None:
    """The collections of which a text is the union, mostly one; () for the empty set, None for what
    is no collection.

    >>> collections("[0, 1)")
    (Collection(opening='[', closing=')', elements=('0', '1'), names=('', ''), joined=','),)
    """
    text = plain(text)
    if len(text) > _LONGEST:
        return None
    if _EMPTY.fullmatch(text):
        return ()
    text = (
        re.sub(r"\\(?:left|right)(?![a-zA-Z])|\\[,;:! ](?!\d{3})|~", " ", text)
        .strip()
        .removesuffix(".")
    )
    text = text.replace("\\{", "{").replace("\\}", "}")
    if not mathematics.balanced(text):
        return None
    parts = re.split(r"\\cup|∪|(?<=[)\]}])\s*U\s*(?=[(\[{\\])", text)
    name, parts[0] = _unnamed(parts[0])
    if len(parts) == 1 and not _whole(parts[0].strip()):
        found = _bare_list(parts[0], name)
        return found and (found,)
    if not all(_whole(part.strip()) for part in parts):
        return None
    return tuple(_bracketed(part.strip(), name if name.startswith("(") else "") for part in parts)


def same_collections(given: str, gold: str) -> bool | None:
    """Whether two collections are the same; None where their structure is but math-verify has to
    judge the elements.

    >>> same_collections("{2, 1}", "{1, 2}"), same_collections("(1,2)", "{1,2}")
    (True, False)
    >>> same_collections("3, -3", r"\\pm 3")
    True
    """
    one, other = collections(given), collections(gold)
    if one is None or other is None:
        if (
            other
            and mathematics.is_relation(given)
            and all(part.ordered and len(part.elements) == 2 for part in other)
        ):
            return None  # x > 3 for (3, ∞)
        return _scalar(given, other) if other else False
    if len(one) == len(other):
        unmatched, undecided = list(one), False
        for wanted in other:
            verdicts = [_same(part, wanted) for part in unmatched]
            if True in verdicts:
                unmatched.pop(verdicts.index(True))
            else:
                undecided |= None in verdicts
        if not unmatched:
            return True
        if undecided:
            return None
    # (0,1) ∪ [1,2) is (0,2): for math-verify, which takes {1,2} for (1,2).
    unions = max(len(one), len(other)) > 1 and ("{" in given) == ("{" in gold)
    return None if unions else False


def _same(given: Collection, gold: Collection) -> bool | None:
    brackets, wanted = given.opening + given.closing, gold.opening + gold.closing
    if brackets != wanted and not {brackets, wanted} <= {"", "{}"}:
        return False
    if len(given.elements) != len(gold.elements) or not _same_join(given, gold):
        return False
    pairs = list(zip(given.elements, given.names, strict=True))
    undecided = False
    for element, name in zip(gold.elements, gold.names, strict=True):
        candidates = [0] if gold.ordered else range(len(pairs))
        verdicts = [
            _same_element(*pairs[n], element, name, len(set(gold.names)) == 1) for n in candidates
        ]
        if True in verdicts:
            pairs.pop(verdicts.index(True))
        elif None in verdicts:
            undecided = True
            if gold.ordered:
                pairs.pop(0)
        else:
            return False
    return None if undecided else True


def _same_join(given: Collection, gold: Collection) -> bool:
    """x < 1 or x > 3 is a union, x < 3 and x > 1 is not; for solutions the words mean the same."""
    relations = any(re.search(r"[<>≤≥]|\\[lg]e", element) for element in gold.elements)
    return not relations or given.joined == gold.joined


def _same_element(
    given: str, given_name: str, gold: str, gold_name: str, one_name: bool
) -> bool | None:
    if given_name != gold_name and (gold_name if given_name else not one_name):
        return False
    a, b = numbers.parse_number(given), numbers.parse_number(gold)
    if a is not None and b is not None:
        return numbers.same_number(a, b) and (not a.unit or not b.unit or a.unit == b.unit)
    if mathematics.bare(given) == mathematics.bare(gold):
        return True
    if mathematics.is_spelt(given) or mathematics.is_spelt(gold):
        return mathematics.same_spelling(given, gold)
    if re.search(r"[<>≤≥=]|\\[lgn]eq?(?![a-z])", given + gold):
        return False
    computable = mathematics.looks_mathematical(gold) or b is not None
    return (
        None if computable and (mathematics.looks_mathematical(given) or a is not None) else False
    )


def _scalar(given: str, gold: tuple[Collection, ...]) -> bool | None:
    """A single value for a set of one."""
    (only,) = gold if len(gold) == 1 else (None,)
    if only is None or len(only.elements) != 1 or only.opening not in ("", "{"):
        return False
    name, value = _unnamed(given)
    return _same_element(value, name, only.elements[0], only.names[0], True)


def _whole(text: str) -> bool:
    """Whether the first bracket is closed by the last character."""
    if (
        not text
        or text[0] not in _BRACKETS
        or text[-1] not in _BRACKETS[text[0]]
        or len(split(text[1:-1])) < 1 + (text[0] != "{")
    ):
        return False
    depth = 0
    for at, character in enumerate(text):
        depth += (character in "{[(") - (character in "}])")
        if not depth:
            return at == len(text) - 1
    return False


def _bracketed(text: str, name: str) -> Collection:
    elements = [element for part in split(text[1:-1]) for element in _signs(part)]
    names, values = zip(
        *(_unnamed(element) if text[0] == "{" else (name, element.strip()) for element in elements),
        strict=True,
    )
    return Collection(text[0], text[-1], values, names)


def _bare_list(text: str, name: str) -> Collection | None:
    joins = {join.strip(" ,;").casefold() or "," for join in _JOINED.findall(text)}
    parts = [part for piece in _JOINED.split(text) for part in split(piece)]
    elements = [element for part in parts for element in _signs(part)]
    if not 2 <= len(elements) <= _MOST_ELEMENTS or not all(element.strip() for element in elements):
        return None
    names, values = [], []
    for element in elements:
        said, value = _unnamed(element)
        name = said or name
        names.append(name)
        values.append(value)
    if not all(numbers.parse_number(value) or _clear(value) for value in values):
        return None
    join = re.sub(r"\\text|[{}\s]", "", joins.pop()) if len(joins) == 1 else ","
    return Collection("", "", tuple(values), tuple(names), join)


def _clear(value: str) -> bool:
    """Whether an element of a bare list is mathematics: an expression, or a letter that is
    no article.
    """
    return mathematics.looks_mathematical(value) or bool(
        re.fullmatch(r"[b-hj-z]|\\?[πθ]|\\pi", value.strip())
    )


def _unnamed(text: str) -> tuple[str, str]:
    """The name before an equals sign and what stands behind it."""
    match = _NAME.fullmatch(text)
    return ("".join(match[1].split()), match[2].strip()) if match else ("", text.strip())


def _signs(text: str) -> list[str]:
    r"""`1 \pm 2` as `1 + 2` and `1 - 2`."""
    signs = re.findall(r"\\pm(?![a-zA-Z])|±|\+/-", text)
    if len(signs) != 1:
        return [text]
    before, after = (part.strip() for part in text.split(signs[0]))
    alone = not before or before.endswith("=")
    return [
        f"{before} {after}" if alone else f"{before} + {after}",
        f"{before} -{after}" if alone else f"{before} - {after}",
    ]


def split(text: str) -> list[str]:
    """The parts between the commas outside any bracket; a comma between digits only where none has
    a space behind it.
    """
    pattern = r",\s" if re.search(r",\s", text) else ","
    parts, depth, start = [], 0, 0
    for at, character in enumerate(text):
        depth += (character in "{[(") - (character in "}])")
        if character == "," and not depth and re.match(pattern, text[at:]):
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]
