"""For each kind of answer: another spelling never turns right into wrong, another answer never
wrong into right.

ANSWER_EXAMPLES sets how many of each are tried (10,000 were, by hand); they are the same in every
run. First come strategies: a kind's answers, other spellings of them, and other answers.
"""

import datetime
import os
import unicodedata
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from helpers.rewards.answers import kind_of, same_answer

pick = st.sampled_from
FRAMES = ["{}", " {} ", "{}.", "**{}**", "\\boxed{{{}}}", "${}$", "\\text{{{}}}"]
SUPERSCRIPT = str.maketrans("0123456789+-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻")
SUBSCRIPT = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
WIDE = str.maketrans("0123456789", "０１２３４５６７８９")
ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen"
)
ONES = [*ONES.split(), "eighteen", "nineteen"]
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]


def in_words(number: int) -> str:
    if number < 20:
        return ONES[number]
    return TENS[number // 10 - 2] + (f"-{ONES[number % 10]}" if number % 10 else "")


def indian(number: int) -> str:
    head, tail = divmod(number, 1000)
    groups = []
    while head:
        head, group = divmod(head, 100)
        groups.insert(0, f"{group:02}" if head else f"{group}")
    return ",".join([*groups, f"{tail:03}"]) if groups else str(tail)


# --- A kind: its answers, their other spellings, and other answers --------------------------------


@st.composite
def numbers(draw):
    kind = draw(pick(["whole", "decimal", "fraction"]))
    sign = draw(pick(["", "-"]))
    if kind == "whole":
        size = draw(st.integers(1, 10**7))
        spelt = [
            f"{size}",
            f"{size:,}",
            f"{size}.0",
            f"{size}".translate(WIDE),
            f"{size}.",
            f"{2 * size}/2",
            indian(size),
        ]
        spelt += [f"\\frac{{{3 * size}}}{{3}}", f"{size}e0"] + (
            [f"{size / 10**6:f} million"] if size % 10**5 == 0 else []
        )
        spelt += [in_words(size)] if size < 100 and not sign else []
        value = Fraction(size)
    elif kind == "decimal":
        size = Fraction(draw(st.integers(1, 10**6)), 1000)
        spelt = [
            f"{float(size):.3f}",
            f"{float(size):.4f}",
            f"\\frac{{{size.numerator}}}{{{size.denominator}}}",
        ]
        spelt += [
            f"{float(size) * 100:.1f}%",
            f"{float(size):,.3f}",
            f"{float(size) / 1000:.6f} × 10^3",
        ]
        value = size
    else:
        denominator = draw(st.integers(2, 30))
        numerator = draw(st.integers(1, 200))
        assume(numerator % denominator)
        value = Fraction(numerator, denominator)
        spelt = [
            f"{numerator}/{denominator}",
            f"\\dfrac{{{numerator}}}{{{denominator}}}",
            f"{numerator}⁄{denominator}",
        ]
        whole, rest = divmod(numerator, denominator)
        spelt += (
            [f"{whole} {rest}/{denominator}", f"{whole} and {rest}/{denominator}"]
            if whole and rest
            else []
        )
    gold, other = sign + spelt[0], draw(pick(spelt))
    minus = draw(pick(["-", "−", "- "])) if not other[0].isalpha() else "negative "
    return (
        gold,
        draw(pick([*FRAMES[:-1], "x = {}", "{} apples"])).format(minus + other if sign else other),
        value if not sign else -value,
    )


@st.composite
def other_numbers(draw):
    gold, _, value = draw(numbers())
    digits = str(abs(value.numerator))
    at = draw(st.integers(0, len(digits) - 1))
    changed = digits[:at] + draw(pick("0123456789")) + digits[at + 1 :]
    other = Fraction(int(changed), value.denominator)
    assume(other != abs(value))
    sign = "-" if value < 0 else ""
    near = f"{sign}{other}"
    positive = f"{abs(value)}"
    wrong = [
        near,
        near,
        near,
        positive if sign else f"-{positive}",
        f"{sign}{positive}0",
        f"{sign}{positive} dozen",
    ]
    wrong += [
        f"{sign}{positive}{more}"
        for more in (" million", " lakhs", " pi", "x", " squared", "!", " or so", "%1", " and 1/2")
    ]
    wrong += [
        f"{sign}{positive} + 1 - 1",
        f"{gold} or {near}",
        f"{gold}, {near}",
        f"2 * {value / 2}",
        f"not {gold}",
        "",
        "nan",
    ]
    return gold, draw(pick(wrong))


UNITS = [  # the spellings of a unit, and how many of the first unit of its line it is
    [
        (["m", "meters", "metres", "meter"], 1),
        (["km", "kilometers", "kilometres", "KM"], 1000),
        (["cm", "centimeters"], Fraction(1, 100)),
    ],
    [
        (["g", "grams", "gram"], 1),
        (["kg", "kilograms", "Kilograms"], 1000),
        (["mg", "milligrams"], Fraction(1, 1000)),
    ],
    [
        (["W", "watts"], 1),
        (["MW", "megawatts"], 10**6),
        (["mW", "milliwatts"], Fraction(1, 1000)),
        (["kW", "kilowatts"], 1000),
    ],
    [
        (["B", "bytes"], 1),
        (["MB", "megabytes"], 10**6),
        (["Mb", "megabits"], 10**6 / Fraction(8)),
        (["kB"], 1000),
    ],
    [
        (["s", "seconds", "sec"], 1),
        (["min", "minutes"], 60),
        (["h", "hours", "hrs"], 3600),
        (["days", "day"], 86400),
    ],
    [
        (["m/s", "meters per second", "m s^{-1}", "m·s⁻¹", "\\frac{m}{s}"], 1),
        (["km/h", "kilometers per hour"], Fraction(5, 18)),
    ],
    [
        (["cm^2", "cm²", "square centimeters", "\\text{cm}^2"], 1),
        (["m^2", "m²", "square meters"], 10**4),
    ],
    [(["ft", "feet", "foot"], 1), (["inches", "inch"], Fraction(1, 12)), (["yd", "yards"], 3)],
    [(["dollars", "USD", "dollar"], 1), (["cents", "¢"], Fraction(1, 100))],
    [(["N", "newtons", "kg m/s^2"], 1), (["kN", "kilonewtons"], 1000)],
    [(["apples", "apple"], 1)],
    [(["red balls"], 1)],
]


def decimal(value: Fraction) -> str:
    """Exactly, as a decimal or as a fraction."""
    if (value * 10**9).denominator > 1:
        return f"{value.numerator}/{value.denominator}"
    text = f"{value.numerator * 10**9 // value.denominator:010}"
    return f"{text[:-9]}.{text[-9:]}".rstrip("0").rstrip(".")


@st.composite
def quantities(draw):
    line = draw(pick(UNITS))
    (names, size), (others, other_size) = draw(pick(line)), draw(pick(line))
    value = Fraction(draw(st.integers(1, 9999)), draw(pick([1, 10])))
    gold = f"{decimal(value)} {names[0]}"
    gap = draw(pick([" ", "  ", "~", " "]))
    spelt = f"{decimal(value * size / other_size)}{gap}{draw(pick(others))}"
    return gold, draw(pick([spelt, spelt, spelt, decimal(value)])), (line, value, names, size)


@st.composite
def other_quantities(draw):
    gold, _, (line, value, names, size) = draw(quantities())
    other_line = draw(pick(UNITS))
    others, other_size = draw(pick(other_line))
    if draw(st.booleans()):
        assume(other_line is not line or other_size != size)
        return gold, f"{decimal(value)} {draw(pick(others))}"
    other = value + draw(pick([1, -1, 10, Fraction(1, 10), 9 * value, -2 * value]))
    return gold, f"{decimal(other)} {draw(pick(names))}".replace("0-", "-")


@st.composite
def polynomials(draw):
    powers = draw(
        st.lists(st.integers(0, 12), min_size=2, max_size=4, unique=True).map(
            lambda found: sorted(found, reverse=True)
        )
    )
    assume(powers[0] > 0)
    return draw(pick("xyt")), {power: draw(st.integers(-9, 9).filter(bool)) for power in powers}


def written(variable: str, terms: list[tuple[int, int]], style: str) -> str:
    text = ""
    for power, factor in terms:
        raised = {
            "latex": f"^{{{power}}}",
            "typed": f"^{power}",
            "raised": str(power).translate(SUPERSCRIPT),
            "code": f"**{power}",
        }[style]
        symbol = "" if not power else variable + (raised if power > 1 else "")
        size = str(abs(factor)) if abs(factor) > 1 or not power else ""
        times = "*" if style == "code" and size and symbol else ""
        text += f" {'-' if factor < 0 else '+'} {size}{times}{symbol}"
    return text.removeprefix(" + ").strip()


@st.composite
def expressions(draw):
    variable, terms = draw(polynomials())
    gold = written(variable, list(terms.items()), "latex")
    spelt = written(
        variable,
        draw(st.permutations(list(terms.items()))),
        draw(pick(["latex", "typed", "raised", "code"])),
    )
    spelt = draw(
        pick([spelt, spelt.replace(" ", ""), f"y = {spelt}" if variable != "y" else spelt])
    )
    return (
        gold,
        draw(pick(["{}", "${}$", "\\boxed{{{}}}", " {} "])).format(spelt),
        (variable, terms),
    )


@st.composite
def other_expressions(draw):
    gold, _, (variable, terms) = draw(expressions())
    power = draw(pick(sorted(terms)))
    changed = dict(terms)
    how = draw(pick(["factor", "sign", "power", "variable", "missing", "case"]))
    if how == "factor":
        changed[power] += draw(pick([1, 2, 10])) * (1 if changed[power] > 0 else -1)
    elif how == "sign":
        changed[power] *= -1
    elif how == "power":
        changed[power + 13] = changed.pop(power)
    elif how == "missing":
        changed.pop(power)
    variable = {"variable": "z", "case": variable.upper()}.get(how, variable)
    return gold, written(variable, list(changed.items()), draw(pick(["latex", "raised"])))


@st.composite
def sets(draw):
    values = draw(st.lists(st.integers(-99, 99), min_size=2, max_size=5, unique=True))
    shape = draw(pick(["set", "list", "tuple", "interval"]))
    if shape == "interval":
        values = sorted(values[:2])
    opening, closing = {
        "set": ("\\{", "\\}"),
        "list": ("", ""),
        "tuple": ("(", ")"),
        "interval": draw(pick([("[", ")"), ("[", "]"), ("(", "]")])),
    }[shape]
    gold = f"{opening}{', '.join(map(str, values))}{closing}"
    others = draw(st.permutations(values)) if shape in ("set", "list") else values
    comma = draw(pick([",", ", ", " , "]))
    spelt = comma.join(str(value) if draw(st.booleans()) else f"{value}.0" for value in others)
    if opening and draw(st.booleans()):
        opening, closing = f"\\left{opening}", f"\\right{closing}"
    elif shape == "set":
        opening, closing = "{", "}"
    elif shape == "list":
        spelt = draw(
            pick(
                [
                    spelt,
                    " and ".join(map(str, others)) if len(others) == 2 else spelt,
                    "x = " + " or x = ".join(map(str, others)),
                ]
            )
        )
    return gold, f"{opening}{spelt}{closing}", (shape, values)


@st.composite
def other_sets(draw):
    gold, _, (shape, values) = draw(sets())
    at = draw(st.integers(0, len(values) - 1))
    changed = [*values[:at], values[at] + draw(pick([1, -1, 100])), *values[at + 1 :]]
    assume(sorted(changed) != sorted(values) and len(set(changed)) == len(changed))
    line = ", ".join(map(str, changed))
    same = ", ".join(map(str, values))
    opening, closing = (
        (gold[:2], gold[-2:])
        if shape == "set"
        else (gold[0], gold[-1])
        if shape != "list"
        else ("", "")
    )
    shorter, longer = ", ".join(map(str, values[1:])), f"{same}, 500"
    wrong = [f"{opening}{text}{closing}" for text in (line, line, shorter, longer)]
    brackets = {
        "set": ["({})", "[{}]"],
        "list": ["({})", "[{}]"],
        "tuple": ["\\{{{}\\}}", "{}", "[{}]"],
        "interval": ["\\{{{}\\}}", "({})"],
    }[shape]
    wrong += [bracket.format(same) for bracket in brackets]
    if shape in ("tuple", "interval"):
        wrong.append(f"{opening}{', '.join(map(str, values[::-1]))}{closing}")
    return gold, draw(pick([text for text in wrong if text != gold]))


@st.composite
def choices(draw):
    letters = draw(st.lists(pick("ABCDEFGH"), min_size=1, max_size=3, unique=True).map(sorted))
    gold = (
        ", ".join(letters)
        if draw(st.booleans())
        else ", ".join(f"({letter})" for letter in letters)
    )
    if len(letters) == 1:
        forms = [
            "{}",
            "({})",
            "{}.",
            "{})",
            "**{}**",
            "option {}",
            "\\boxed{{{}}}",
            "\\text{{{}}}",
            "{}) Paris",
            "({}) 42 km",
        ]
        return gold, draw(pick(forms)).format(letters[0]), letters
    shuffled = draw(st.permutations(letters))
    return (
        gold,
        draw(pick([", ", ",", " and ", "; ", " & "])).join(
            draw(pick(["{}", "({})"])).format(letter) for letter in shuffled
        ),
        letters,
    )


@st.composite
def other_choices(draw):
    gold, _, letters = draw(choices())
    other = draw(pick([letter for letter in "ABCDEFGH" if letter not in letters]))
    changed = draw(pick([[*letters[1:], other], [*letters, other], letters[1:] or [other]]))
    wrong = [
        ", ".join(changed),
        " or ".join([*letters, other]),
        f"{letters[0]}*",
        f"{letters[0]}+",
        f"not {gold}",
        f"{other}) Paris",
    ]
    return gold, draw(pick([*wrong, f"{letters[0]}) or {other})", f"({letters[0]}) ({other})"]))


MONTHS = [datetime.date(2000, month, 1).strftime("%B") for month in range(1, 13)]


@st.composite
def dates(draw):
    if draw(st.booleans()):
        hour, minute = draw(st.integers(0, 23)), draw(st.integers(0, 59))
        half, twelve = "AM" if hour < 12 else "PM", hour % 12 or 12
        forms = [
            f"{twelve}:{minute:02} {half}",
            f"{twelve}:{minute:02}{half.lower()}",
            f"{hour:02}:{minute:02}:00",
        ]
        forms += [f"{twelve}:{minute:02} {half[0].lower()}.m."] + (
            [f"{twelve} {half}"] if not minute else []
        )
        forms += [f"{hour:02}:{minute:02}"] if not 10 <= hour <= 12 else []
        return forms[0], draw(pick(forms)), (hour, minute)
    day = draw(st.dates(datetime.date(1500, 1, 1), datetime.date(2100, 12, 31)))
    month = MONTHS[day.month - 1]
    end = {1: "st", 2: "nd", 3: "rd"}.get(day.day % 10 if day.day not in (11, 12, 13) else 0, "th")
    forms = [
        f"{month} {day.day}, {day.year:04}",
        f"{day:%Y-%m-%d}",
        f"{day.day} {month} {day.year}",
        f"{month[:3]} {day.day}, {day.year}",
    ]
    forms += [
        f"{day.year}/{day.month}/{day.day}",
        f"{month} {day.day}{end}, {day.year}",
        f"{day.day}{end} of {month} {day.year}",
    ]
    forms += [f"{day.day} {month[:3]}. {day.year}", f"{day:%A}, {day.day} {month} {day.year}"]
    return draw(pick(forms[:2])), draw(pick(forms)), day


@st.composite
def other_dates(draw):
    gold, _, moment = draw(dates())
    if isinstance(moment, tuple):
        hour, minute = moment
        hour, minute = draw(
            pick(
                [
                    ((hour + 12) % 24, minute),
                    ((hour + 1) % 24, minute),
                    (hour, (minute + 1) % 60),
                    (hour, (minute + 30) % 60),
                ]
            )
        )
        return gold, draw(
            pick(
                [
                    f"{hour:02}:{minute:02}",
                    f"{hour % 12 or 12}:{minute:02} {'AM' if hour < 12 else 'PM'}",
                    f"{hour}{minute:02}",
                ]
            )
        )
    other = moment + datetime.timedelta(days=draw(pick([1, -1, 7, 31, 365, -366])))
    wrong = [
        f"{other:%Y-%m-%d}",
        f"{MONTHS[other.month - 1]} {other.day}, {other.year}",
        f"{other.day} {MONTHS[other.month - 1][:3]} {other.year}",
    ]
    wrong += [
        f"{moment.year}",
        f"{MONTHS[moment.month - 1]} {moment.day}",
        f"{moment.year - moment.month - moment.day}",
    ]
    wrong += [f"{other:%A}, {gold}"] if other.weekday() != moment.weekday() else []
    wrong += [f"{moment:%d/%m/%y}", f"{MONTHS[moment.month - 1]} {moment.year}"]
    return gold, draw(pick(wrong))


@st.composite
def tokens(draw):
    kind = draw(pick(["range", "address", "version", "phone", "ratio", "code", "base"]))
    a, b, c, d = (draw(st.integers(10, 99)) for _ in range(4))
    gold, forms = {
        "range": (f"{a}-{a + b}", ["{0}–{1}", "{0} - {1}", "{0} to {1}", "{0}-{1}"]),
        "address": (f"{a}.{b}.{c}.{d}", ["{gold}", "{gold}."]),
        "version": (f"{a}.{b}.{c}", ["v{gold}", "{gold}"]),
        "phone": (f"5{a}-{b}{c}", ["{gold}", "5{a} {b}{c}", "5{a}‑{b}{c}"]),
        "ratio": (f"{a}:{b}{c}", ["{gold}", "{a} : {b}{c}"]),
        "code": (f"get_v{a}_Name", ["{gold}", "`{gold}`"]),
        "base": (f"1{bin(a)[2:]}_2", ["{gold}", "1{bits}_{{2}}", "1{bits}₂", "1{bits} base 2"]),
    }[kind]
    spelt = draw(pick(forms)).format(a, a + b, gold=gold, a=a, b=b, c=c, bits=bin(a)[2:])
    return gold, spelt, (a, b, c, d)


@st.composite
def other_tokens(draw):
    gold, _, (a, b, *_) = draw(tokens())
    digits = [at for at, character in enumerate(gold) if character.isdigit()]
    at, to = draw(pick(digits)), draw(pick(digits))
    digit = draw(pick("0123456789" if not gold.endswith("_2") else "01"))
    swapped = list(gold)
    swapped[at], swapped[to] = swapped[to], swapped[at]
    wrong = [
        gold[:at] + digit + gold[at + 1 :],
        gold[:at] + gold[at + 1 :],
        "".join(swapped),
        str(-b),
        str(a),
        gold.swapcase(),
        gold + "1",
    ]
    wrong = [text for text in wrong if text != gold]
    return gold, draw(pick(wrong))


ELEMENTS = [
    "H",
    "C",
    "N",
    "O",
    "Na",
    "Mg",
    "Al",
    "S",
    "Cl",
    "K",
    "Ca",
    "Fe",
    "Co",
    "Cu",
    "Zn",
    "Br",
    "Ag",
    "I",
    "Ba",
    "Pb",
]


@st.composite
def formulas(draw):
    parts = draw(
        st.lists(
            st.tuples(pick(ELEMENTS), st.integers(1, 12)),
            min_size=2,
            max_size=4,
            unique_by=lambda part: part[0],
        )
    )
    charge = draw(pick(["", "", "+", "-", "2+", "3-"]))
    spelt = {}
    for style in ("plain", "latex", "braces", "unicode", "roman"):
        text = ""
        for element, count in parts:
            low = {
                "plain": f"{count}",
                "latex": f"_{{{count}}}",
                "braces": f"_{{{count}}}",
                "unicode": f"{count}".translate(SUBSCRIPT),
                "roman": f"_{{{count}}}",
            }
            text += (f"\\mathrm{{{element}}}" if style == "roman" else element) + (
                low[style] if count > 1 else ""
            )
        high = charge.translate(SUPERSCRIPT) if style == "unicode" else f"^{{{charge}}}"
        spelt[style] = text + (high if charge else "")
    return spelt["plain"], draw(pick(list(spelt.values()))), (parts, charge)


@st.composite
def other_formulas(draw):
    gold, _, (parts, charge) = draw(formulas())
    at = draw(st.integers(0, len(parts) - 1))
    (element, count), changed = parts[at], list(parts)
    counts = [number for _, number in parts]
    how = draw(pick(["count", "element", "swap", "order", "case", "charge"]))
    if how == "count":
        changed[at] = element, count + draw(pick([1, 2, 10]))
    elif how == "element":
        changed[at] = draw(pick([other for other in ELEMENTS if other not in dict(parts)])), count
    elif how == "swap":
        changed = [
            (name, number) for (name, _), number in zip(parts, counts[1:] + counts[:1], strict=True)
        ]
    elif how == "order":
        changed = parts[1:] + parts[:1]
    elif how == "charge":
        charge = draw(pick([other for other in ("", "+", "-", "2+", "2-") if other != charge]))
    assume(how in ("case", "charge") or changed != parts)
    text = "".join(f"{name}{number if number > 1 else ''}" for name, number in changed) + (
        f"^{{{charge}}}" if charge else ""
    )
    if how == "case":
        text = (
            text.replace("Co", "CO")
            .replace("Na", "NA")
            .replace("Ca", "CA")
            .replace("Cl", "CL")
            .replace("Pb", "PB")
        )
    assume(
        text != gold
        and not (how == "case" and text.lower() == gold.lower() and "O" not in text + "B")
    )
    return gold, text


WORDS = [
    "paris",
    "river",
    "Émile",
    "o'hara",
    "jean-luc",
    "washington",
    "mitochondria",
    "blue",
    "don't",
    "straße",
    "münchen",
    "rock",
    "water",
    "lincoln",
    "yes",
    "einstein",
]


@st.composite
def texts(draw):
    words = draw(st.lists(pick(WORDS), min_size=1, max_size=4))
    gold = " ".join(word.title() if draw(st.booleans()) else word for word in words)
    spelt = draw(
        pick(
            [
                gold,
                gold.upper() if "ß" not in gold else gold,
                gold.lower(),
                unicodedata.normalize("NFD", gold),
            ]
        )
    )
    spelt = (
        spelt.replace("'", draw(pick(["'", "’"])))
        .replace("-", draw(pick(["-", "‑", "–"])))
        .replace(" ", draw(pick([" ", "  ", "\u00a0"])))
    )
    return (
        gold,
        draw(
            pick(["{}", "{}.", "{}!", "“{}”", '"{}"', "**{}**", "\\text{{{}}}", " {}\n", "‘{}’"])
        ).format(spelt),
        words,
    )


@st.composite
def other_texts(draw):
    gold, _, words = draw(texts())
    at = draw(st.integers(0, len(gold) - 1))
    letter = draw(pick("abcdefghijklmnopqrstuvwxyz"))
    wrong = [
        gold[:at] + letter + gold[at + 1 :],
        gold[:at] + letter + gold[at:],
        gold[:at] + gold[at + 1 :],
    ]
    wrong += [
        f"{gold} or london",
        f"not {gold}",
        f"{gold}?",
        f"{gold} {draw(pick(WORDS))}",
        " ".join(words[1:]) or "x",
    ]
    text = draw(pick(wrong))
    assume(" ".join(text.casefold().split()) != " ".join(gold.casefold().split()))
    return gold, text


SPELLINGS = {
    "number": numbers(),
    "quantity": quantities(),
    "mathematics": expressions(),
    "set": sets(),
    "choice": choices(),
    "date": dates(),
    "token": tokens(),
    "formula": formulas(),
    "text": texts(),
}
OTHERS = {
    "number": other_numbers(),
    "quantity": other_quantities(),
    "mathematics": other_expressions(),
    "set": other_sets(),
    "choice": other_choices(),
    "date": other_dates(),
    "token": other_tokens(),
    "formula": other_formulas(),
    "text": other_texts(),
}


# --- The tests ------------------------------------------------------------------------------------

tried = settings(
    max_examples=int(os.environ.get("ANSWER_EXAMPLES", "150")),
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("kind", SPELLINGS)
def test_another_spelling_stays_right(kind):
    @tried
    @given(SPELLINGS[kind])
    def check(case):
        gold, spelt, _ = case
        assert kind_of(gold) == kind
        assert same_answer(spelt, gold)

    check()


@pytest.mark.parametrize("kind", OTHERS)
def test_another_answer_stays_wrong(kind):
    @tried
    @given(OTHERS[kind])
    def check(case):
        gold, other = case
        assert not same_answer(other, gold)

    check()
