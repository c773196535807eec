r"""The parts of an expression: its members, names, variables, relations and brackets.

`mathematics` and `kinds` decide with them whether two expressions are equal. They read the LaTeX
that `to_latex` returns; `without_brackets` and `divisions_of` convert a text themselves.
"""

import re
from itertools import pairwise

from helpers.judging.answers.latex import to_latex
from helpers.judging.answers.numbers import parse_number
from helpers.judging.answers.texts import depths, plain_text

# The words `and` and `or`, outside other words.
AND_OR = re.compile(r"(?<![a-zA-Z\\])(and|or)(?![a-zA-Z])")
# A LaTeX command: `\frac`, `\begin{pmatrix}`.
_COMMAND = re.compile(r"\\(?:begin|end)\{[a-zA-Z]*\}|\\[a-zA-Z]+")
# The relation of an inequality: the > of `x > 3`, the \neq of `x \neq 3`.
_RELATION = r"[<>]|\\(?:leq?|geq?|neq?|lt|gt)(?![a-zA-Z])"
# A command of small letters: `\theta`, `\ell`, also `\ln`. But not `\pi` and `\infty`, which are
# numbers, nor a command that begins like one of them.
_SYMBOL = re.compile(r"\\(?!pi|infty)[a-z]+")
# A text with a letter that does not begin with a digit, and has no sum, power or relation:
# `y`, `f(x)`, `|AB|`, `(p,q)`, `V_1:V_2`, but also `x*2`.
_NAME = re.compile(r"(?!\d)[^+^<>=-]*[a-zA-Z][^+^<>=-]*")
# For each relation that decreases from left to right, the one that says the same the other way.
_TURNED = {">": "<", r"\gt": "<", r"\geq": r"\leq", r"\ge": r"\leq"}
# For each relation of an increasing chain, the brackets of an interval: at its start and its end.
_BRACKETS = {"<": "()", r"\lt": "()", r"\leq": "[]", r"\le": "[]"}


def without_spaces(text: str) -> str:
    """Return an expression without spaces, and with `x^2` for `x^{2}`."""
    text = re.sub(r"\\[,;:! ]|\s", "", text)
    return re.sub(r"([\^_])\{(\w)\}", r"\1\2", text)


def without_commands(text: str) -> str:
    """Return an expression with `@` for each LaTeX command, and a comma for `and` and `or`."""
    return _COMMAND.sub("@", AND_OR.sub(",", text))


def variables(text: str) -> set[str]:
    r"""Return the letters of an expression outside LaTeX commands, `and` and `or`; case counts. The
    numbers e and i are among them, and a Greek letter such as `\theta` is not.

    >>> sorted(variables(r"2x + e^{i\theta} and AB"))
    ['A', 'B', 'e', 'i', 'x']
    """
    return set(re.findall(r"[a-zA-Z]", without_commands(text)))


def is_inequality(text: str) -> bool:
    """Return whether a text has the relation of an inequality, such as `<` or `\\neq`."""
    return re.search(_RELATION, text) is not None


def split_list(text: str) -> list[str]:
    """Split a list at its commas, `and` and `or`, except inside brackets, where `and` and `or` only
    become commas. Empty members are left out.

    >>> split_list("(1,2) and x = 3"), split_list("{1,2}")
    (['(1,2)', 'x = 3'], ['{1,2}'])
    >>> split_list("1,, 2,"), split_list("(1 or 2)")
    (['1', '2'], ['(1 , 2)'])
    """
    text = AND_OR.sub(",", text)
    levels = depths(text)
    commas = [at for at, mark in enumerate(text) if mark == "," and levels[at] == 0]
    ends = pairwise([-1, *commas, len(text)])
    members = [text[before + 1 : after].strip() for before, after in ends]
    return [member for member in members if member]


def split_name(item: str) -> tuple[str | None, str]:
    r"""Split `x = 3` into its name and its value. The name of an equation is None, and the name of
    a value alone is "".

    An expression without a sum or a power counts as a name as well, such as the left side of
    `x*2 = 3` or `\ln x = 3`: `without_names` accepts it only if the row's answer has it, too.

    >>> split_name("x = 3"), split_name("x^2 = 3"), split_name("3")
    (('x', '3'), (None, 'x^2 = 3'), ('', '3'))
    """
    name, equals, value = item.partition("=")
    if not equals:
        return "", item
    if "=" in value or is_inequality(item):  # a chain, or a condition beside the equation
        return None, item
    name = name.strip()
    has_letter = variables(name) or _SYMBOL.fullmatch(name)
    if not has_letter or not _NAME.fullmatch(name):
        return None, item
    return without_spaces(name), value.strip()


def without_brackets(text: str) -> str:
    """Return the members of a list without the square brackets around the whole of it.

    >>> without_brackets("[3, 4]"), without_brackets("[1, 2], [3, 4]")
    ('3, 4', '[1, 2], [3, 4]')
    """
    text = plain_text(text)
    bracketed = re.fullmatch(r"\[([^\[\]()]*,[^\[\]()]*)\]", text)
    return bracketed[1] if bracketed else text


def pieces_of(text: str) -> list[str]:
    r"""Return the pieces between brackets, commas and relations, with `1/2` for `\frac{1}{2}`.

    >>> pieces_of(r"x = (\frac{1}{2}, 3]")
    ['x', '1/2', '3']
    """
    # \frac{1}{2}, \frac12 -> 1/2
    fraction = r"\\frac\s*(?:\{(-?\d+)\}|(\d))\s*(?:\{(-?\d+)\}|(\d))"
    text = re.sub(fraction, r"\1\2/\3\4", AND_OR.sub(",", text))
    separator = rf"[()\[\]{{}},=]|\\[{{}}]|\\(?:cup|cap|pm|emptyset)|{_RELATION}"
    return [piece.strip() for piece in re.split(separator, text) if piece.strip()]


def is_literal(text: str) -> bool:
    r"""Return whether nothing is left to compute: each of the `pieces_of` a text is a number, which
    `parse_number` reads with its unit, or a single letter other than e and i.

    >>> is_literal(r"(1, \frac{1}{2})"), is_literal("x > 3"), is_literal("5 km, 2%")
    (True, True, True)
    >>> is_literal("2+3"), is_literal(r"\sqrt{2}"), is_literal("3y"), is_literal(r"\theta")
    (False, False, False, False)
    """
    for piece in pieces_of(text.replace(r"\infty", "0")):
        # The letters e and i are numbers that a computation uses.
        if not parse_number(piece) and not re.fullmatch("-?[a-df-hj-zA-Z]", piece):
            return False
    return True


def divisions_of(text: str) -> set[str]:
    """Return the pieces that leave a division undone, because their value is a whole number.

    >>> divisions_of("(144/12, 1/2)")
    {'144/12'}
    """
    undone = set()
    for piece in [text, *pieces_of(to_latex(plain_text(text)))]:
        number = parse_number(piece)
        if number is not None and "/" in number.form and number.value.denominator == 1:
            undone.add(piece)
    return undone


def tuple_brackets(text: str) -> set[str]:
    """Return the pairs of round and square brackets with a comma inside: tuples and intervals.

    >>> sorted(tuple_brackets("(1,2) and [0,1)")), tuple_brackets("\\{1,2\\} + (x+1)")
    (['()', '[)'], set())
    """
    found = set()
    # Remove the brackets from the inside to the outside: first the `(1,2)` of `\{(1,2)\}`.
    while innermost := re.search(r"[{\[(][^{}\[\]()]*[}\])]", text):
        inside = innermost[0]
        if "," in inside and not inside.startswith("{"):
            found.add(inside[0] + inside[-1])
        text = text[: innermost.start()] + text[innermost.end() :]
    return found


def interval_of(inequality: str) -> str:
    r"""Return an inequality in one variable as an interval or a union of intervals; "" if it is
    anything else.

    >>> interval_of("x < 2 or x > 3"), interval_of(r"5 \geq x > 3"), interval_of("x^2 < 4")
    ('(-\\infty,2)\\cup(3,\\infty)', '(3,5]', '')
    """
    names = variables(inequality) - {"e"}
    if len(names) != 1 or "," in inequality or "and" in AND_OR.findall(inequality):
        return ""
    (name,) = names
    intervals = []
    for piece in split_list(inequality):  # `x < 2` and `x > 3` of `x < 2 or x > 3`
        # 1. Split a chain into terms and the relations between them: `5`, `>`, `x`, `>`, `3`.
        chain = [part.strip() for part in re.split(rf"({_RELATION})", piece)]
        # 2. Make it increase: `5 > x > 3` becomes `3 < x < 5`. Its relations must have one
        # direction.
        if len(chain) > 1 and chain[1] in _TURNED:
            if not all(relation in _TURNED for relation in chain[1::2]):
                return ""
            chain[1::2] = [_TURNED[relation] for relation in chain[1::2]]
            chain.reverse()
        # 3. Add the end that is missing: `x < 2` becomes `-\infty < x < 2`.
        if len(chain) == 3 and chain[0] == name:
            chain = [r"-\infty", "<", *chain]
        elif len(chain) == 3:
            chain += ["<", r"\infty"]
        # 4. Both ends must be there, and the variable in the middle, and nowhere else.
        if len(chain) != 5 or not all(chain):
            return ""
        below, first_relation, middle, second_relation, above = chain
        if middle != name or variables(below + above) & names:
            return ""
        if first_relation not in _BRACKETS or second_relation not in _BRACKETS:
            return ""
        opening = _BRACKETS[first_relation][0]
        closing = _BRACKETS[second_relation][1]
        intervals.append(f"{opening}{below},{above}{closing}")
    return r"\cup".join(intervals)
