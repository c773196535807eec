"""For kinds that the suite reads itself, and of which there are more answers than a table holds:
another spelling never turns right into wrong, another answer never wrong into right.

ANSWER_EXAMPLES sets how many of each are tried (10,000 were, by hand); they are the same in every
run. A strategy per kind draws an answer, other spellings of it, and other answers.
"""

import datetime
import os
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from helpers.rewards.answers import same_answer

pick = st.sampled_from
FRAMES = ["{}", " {} ", "{}.", "\\boxed{{{}}}", "${}$"]
WIDE = str.maketrans("0123456789", "０１２３４５６７８９")


# --- A kind: an answer, its other spellings, and other answers ------------------------------------


@st.composite
def numbers(draw):
    whole, below = draw(st.integers(1, 10**6)), draw(st.integers(2, 30))
    shape = draw(pick(["whole", "decimal", "fraction"]))
    if shape == "whole":
        value = Fraction(whole)
        right = [f"{whole}", f"{whole:,}", f"{whole}.0", f"{whole}".translate(WIDE)]
        right += [f"{2 * whole}/2", f"\\frac{{{3 * whole}}}{{3}}", f"{whole}e0"]
    elif shape == "decimal":
        value = Fraction(whole, 1000)
        right = [f"{whole / 1000:.3f}", f"{whole / 1000:.4f}", f"{whole / 1000:,.3f}"]
        right += [f"{whole / 10:.1f}%", f"{whole / 10**6:.6f} × 10^3"]
        right += [f"\\frac{{{value.numerator}}}{{{value.denominator}}}"]
    else:
        value = Fraction(whole % 200 + 1, below)
        assume(value.denominator > 1)
        above, below = value.numerator, value.denominator
        right = [f"{above}/{below}", f"\\dfrac{{{above}}}{{{below}}}", f"{above}⁄{below}"]
        if above > below:
            right.append(f"{above // below} {above % below}/{below}")
    sign, other_sign = draw(pick([("", "-"), ("-", "")]))
    gold, digits = sign + right[0], str(value.numerator)
    at = draw(st.integers(0, len(digits) - 1))
    changed = Fraction(
        int(digits[:at] + draw(pick("0123456789")) + digits[at + 1 :]), value.denominator
    )
    assume(changed != value)
    near, exact = f"{sign}{changed}", f"{sign}{value}"
    more = ["0", " dozen", " million", " lakhs", " pi", "x", " squared", "!", " or so", "%1"]
    wrong = [near] * 6 + [f"{other_sign}{value}", f"{exact} and 1/2", f"{exact} + 1 - 1"]
    wrong += [f"{exact}{behind}" for behind in more]
    wrong += [f"{gold} or {near}", f"{gold}, {near}", f"2 * {value / 2}", f"not {gold}", "", "nan"]
    minus = draw(pick(["-", "−", "- "])) if sign else ""
    frame = draw(pick(FRAMES))
    return gold, [frame.format(minus + text) for text in right], wrong


UNITS = [  # the spellings of a unit, and how many of the first unit of its line it is
    [
        (["m", "meters", "metres", "meter"], 1),
        (["km", "kilometers", "kilometres"], 1000),
        (["cm", "centimeters"], Fraction(1, 100)),
    ],
    [(["g", "grams"], 1), (["kg", "kilograms"], 1000), (["mg", "milligrams"], Fraction(1, 1000))],
    [(["W", "watts"], 1), (["MW", "megawatts"], 10**6), (["mW", "milliwatts"], Fraction(1, 1000))],
    [(["B", "bytes"], 1), (["MB"], 10**6), (["Mb", "megabits"], 10**6 / Fraction(8))],
    [(["s", "seconds"], 1), (["min", "minutes"], 60), (["h", "hours"], 3600)],
    [(["m/s", "meters per second", "m s^{-1}"], 1), (["km/h"], Fraction(5, 18))],
    [(["cm^2", "cm²", "\\text{cm}^2"], 1), (["m^2", "m²"], 10**4)],
    [(["ft", "feet", "foot"], 1), (["inches", "inch"], Fraction(1, 12)), (["yd", "yards"], 3)],
]


def decimal(value: Fraction) -> str:
    """Exactly, as a decimal or as a fraction."""
    if (value * 10**9).denominator > 1:
        return f"{value.numerator}/{value.denominator}"
    text = f"{value.numerator * 10**9 // value.denominator:010}"
    return f"{text[:-9]}.{text[-9:]}".rstrip("0").rstrip(".")


@st.composite
def quantities(draw):
    line, foreign = draw(st.permutations(UNITS))[:2]
    (names, size), (others, other_size) = draw(pick(line)), draw(pick(line))
    value = Fraction(draw(st.integers(1, 9999)), draw(pick([1, 10])))
    gold, gap = f"{decimal(value)} {names[0]}", draw(pick([" ", "  ", "~"]))
    right = [f"{decimal(value * size / other_size)}{gap}{name}" for name in others]
    wrong = [f"{decimal(value)} {draw(pick(draw(pick(foreign))[0]))}"]
    wrong += [f"{decimal(value)} {name}" for name in others if other_size != size]
    off = value + draw(pick([1, 10, Fraction(1, 10), 9 * value]))
    return gold, [*right, decimal(value)], [*wrong, f"{decimal(off)} {names[0]}", f"-{gold}"]


@st.composite
def sets(draw):
    values = draw(st.lists(st.integers(-99, 99), min_size=2, max_size=5, unique=True))
    shape = draw(pick(["set", "tuple", "interval"]))
    if shape == "interval":
        values = sorted(values[:2])
    opening, closing, foreign = {
        "set": ("\\{", "\\}", ["({})", "[{}]"]),
        "tuple": ("(", ")", ["\\{{{}\\}}", "[{}]"]),
        "interval": (*draw(pick(["[)", "[]", "(]"])), ["\\{{{}\\}}", "({})"]),
    }[shape]
    others = draw(st.permutations(values)) if shape == "set" else values
    comma, same = draw(pick([",", ", ", " , "])), ", ".join(map(str, values))
    right = [
        f"{left}{opening}{comma.join(map(str, others))}{end}{closing}"
        for left, end in (("", ""), ("\\left", "\\right"))
    ]
    off = draw(st.integers(0, len(values) - 1))
    changed = [number + 200 * (at == off) for at, number in enumerate(values)]
    texts = [", ".join(map(str, changed)), ", ".join(map(str, values[1:])), f"{same}, 500"]
    wrong = [f"{opening}{text}{closing}" for text in texts]
    wrong += [bracket.format(same) for bracket in foreign]
    if shape != "set":
        wrong.append(f"{opening}{', '.join(map(str, values[::-1]))}{closing}")
    return f"{opening}{same}{closing}", right, wrong


MONTHS = [datetime.date(2000, month, 1).strftime("%B") for month in range(1, 13)]


@st.composite
def dates(draw):
    day = draw(st.dates(datetime.date(1500, 1, 1), datetime.date(2100, 12, 31)))
    month = MONTHS[day.month - 1]
    right = [f"{month} {day.day}, {day.year}", f"{day:%Y-%m-%d}", f"{day.day} {month} {day.year}"]
    right += [f"{month[:3]} {day.day}, {day.year}", f"{day:%A}, {day.day} {month} {day.year}"]
    gold = draw(pick(right[:2]))
    other = day + datetime.timedelta(days=draw(pick([1, -1, 7, 31, 365, -366])))
    wrong = [f"{other:%Y-%m-%d}", f"{MONTHS[other.month - 1]} {other.day}, {other.year}"]
    wrong += [f"{day.year}", f"{month} {day.day}", f"{month} {day.year}", f"{day:%d/%m/%y}"]
    return gold, right, wrong


# --- The tests ------------------------------------------------------------------------------------

KINDS = {
    "number": numbers(),
    "quantity": quantities(),
    "set": sets(),
    "date": dates(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_another_spelling_stays_right_and_another_answer_wrong(kind):
    @settings(
        max_examples=int(os.environ.get("ANSWER_EXAMPLES", "150")),
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(KINDS[kind], st.data())
    def check(case, data):
        gold, right, wrong = case
        assert same_answer(data.draw(pick(right)), gold, kind=kind)
        assert not same_answer(data.draw(pick(wrong)), gold, kind=kind)

    check()
