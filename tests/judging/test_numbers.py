"""Parsing numbers as people and policies write them, and comparing them."""

import random
from fractions import Fraction

import pytest

from helpers.judging.answers.kinds import compare_answers
from helpers.judging.answers.numbers import Number, parse_number

VALUES = [
    ("42", 42),
    (" 42. ", 42),
    ("+42", 42),
    ("- 42", -42),
    ("\N{MINUS SIGN}42", -42),
    ("–5", -5),
    ("５", 5),
    ("٣", 3),
    ("5(3)", None),
    ("**42**", 42),
    ("`42`", 42),
    ("42\u200b", 42),
    ("-1,234.50", Fraction(-2469, 2)),
    ("1\u00a0000", 1000),
    ("1\u2009000", 1000),
    ("1_000'000", None),
    ("1'000'000", 10**6),
    ("12,34,567", 1234567),
    (".5", Fraction(1, 2)),
    ("0.30000000000000004", Fraction(30000000000000004, 10**17)),
    ("1e3", 1000),
    ("1E+3", 1000),
    ("1e-999", Fraction(1, 10**999)),
    ("9" * 100, 10**100 - 1),
    ("1/2", Fraction(1, 2)),
    ("7 1/2", Fraction(15, 2)),
    ("-7 1/2", Fraction(-15, 2)),
    ("1½", Fraction(3, 2)),
    ("12.5 %", Fraction(1, 8)),
    ("5 per cent", Fraction(1, 20)),
    ("$-5", -5),
    ("-€5", -5),
    ("0.(3)", Fraction(1, 3)),
    ("0.1666…", Fraction(1, 6)),
    ("0.12…", None),
    (r"\boxed{42}.", 42),
    (r"$\boxed{42}$", 42),
    (r"\(42\)", 42),
    (r"\dfrac{-3}{4}", Fraction(-3, 4)),
    (r"-\frac12", Fraction(-1, 2)),
    (r"\frac3{72}", Fraction(1, 24)),
    (r"\frac123", None),
    (r"\frac{1}{2}3", None),
    (r"3\frac{1}{2}", Fraction(7, 2)),
    (r"48\frac{27}{1}", None),
    (r"1{,}000", 1000),
    (r"1\,000", 1000),
    (r"10,\! 080", 10080),
    (r"50\%", Fraction(1, 2)),
    (r"1.5 \times 10^{3}", 1500),
    ("2.5*10^-1", Fraction(1, 4)),
    ("10^{-2}", Fraction(1, 100)),
    ("x = 7", 7),
    ("minus 5", -5),
    ("2 million", 2000000),
    ("3 dozen", 36),
]
NO_NUMBERS = [
    *("", " ", ".", "$", "-", "km", "nan", "inf", "3/0", "4²", "0x2a", "6*7", "9**9"),
    *("1e1000", "9" * 101, "\ud800", "zero-sum", "twenty-fifth", "one hundred two hundred"),
    *(
        "forty-two",
        "half",
        "two three",
        "8th",
        "1980s",
        "42 base eight",
        "42 point five",
        "one second half",
    ),
]


@pytest.mark.parametrize(("text", "value"), [*VALUES, *((text, None) for text in NO_NUMBERS)])
def test_a_number_is_read_exactly_and_nothing_else_is_one(text, value):
    number = parse_number(text)
    assert (number and number.value) == value


def test_a_random_number_is_read_from_each_of_its_spellings():
    rng = random.Random(59)
    for _ in range(500):
        minus = rng.choice(["", "-", "\N{MINUS SIGN}"])
        whole, below = rng.randrange(10 ** rng.randint(1, 12)), rng.randint(2, 999)
        decimals = rng.choice(["", f".{rng.randrange(10**6)}", f".{rng.randrange(10):03}"])
        thousands, power = f"{minus}{whole:,}{decimals}", rng.randint(-9, 9)
        plain = f"{minus}{whole}{decimals}"
        sign = -1 if minus else 1
        value, ratio = sign * Fraction(f"{whole}{decimals}"), sign * Fraction(whole, below)
        spellings = {
            plain: value,
            f"+{plain}": None if minus else value,
            f"{thousands}%": value / 100,
        }
        for form in ("{}", " {}. ", "**{}**", "x = {}", "${}$", r"\boxed{{{}}}", "{} km", "€{}"):
            spellings[form.format(thousands)] = value
        for comma in ("{,}", "\u00a0", "\u202f", "'"):
            spellings[thousands.replace(",", comma)] = value
        for form in ("{}e{}", "{} * 10^{}", r"{} \times 10^{{{}}}"):
            spellings[form.format(plain, power)] = value * Fraction(10) ** power
        spellings[f"{plain} million"] = value * 10**6
        for form in ("{}{}/{}", r"{}\frac{{{}}}{{{}}}"):
            spellings[form.format(minus, whole, below)] = ratio
        spellings[f"{minus}{whole} 1/{below}"] = sign * (whole + Fraction(1, below))
        for text, expected in spellings.items():
            number = parse_number(text)
            assert (number and number.value) == expected, text


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("42", Number(42)),
        ("1,000.0 Dollars", Number(1000, "$", 1)),
        ("50%", Number(Fraction(1, 2), "", 2, "%")),
        ("5 km/h.", Number(5, "km/h")),
        ("5 cm^{2}", Number(5, "cm^2")),
        ("$5 per hour", Number(5, "$per hour")),
        ("-3/4", Number(Fraction(-3, 4), "", None, "/4")),
        ("0.(3)", Number(Fraction(1, 3), "", None, "(3)")),
        ("1.25e1", Number(Fraction(25, 2), "", 1, "e1")),
        ("1.25e3", Number(1250, form="e3")),
    ],
)
def test_how_a_number_was_written_is_kept(text, number):
    assert parse_number(text) == number


CHANGING = [
    *("k", "K", "M", "bn", "mil", "lakh", "squared", "factorial", "halves", "hundredths"),
    *("point five", "negative", "degrees below zero", "no wait", "thirds", "quarters"),
    *("million", "dozen", "times", "less", "plus", "pairs", "tens", "pi", "e", "am", "th"),
    *("or so", "perhaps", "always", "incorrect", "cubed", "base eight", "roots"),
]
UNITS = [
    *("42 km", "42 hours", "42°", "42 m^2", "42 apples", "42 people", "42 Miles per hour"),
    *("42 km/h", "42 m/s", "42 square feet", "42 cubic meters", "42 kg", "42 °C", "42 inches"),
    *(r"42\text{ cm}^2", r"42^\circ", "42 cents", "42 newton meters", "42 eggs a day"),
]


@pytest.mark.parametrize(
    ("given", "gold", "same"),
    [
        # a unit or a counted thing is ignored, but not words that may change the number
        *((f"42 {words}", "42", False) for words in CHANGING),
        *((given, "42", True) for given in UNITS),
        ("$42", "42 cents", False),
        ("42 €", "$42", False),
        # percentages
        ("50%", "0.5", True),
        ("50%", "50", True),
        ("50", "50%", True),
        ("12.5", "12.5%", True),
        ("-50%", "50", False),
        ("50%", "5000", False),
        ("0.5%", "0.5", False),
        ("0.005", "50%", False),
        ("5e3%", "5", False),
        # rounded decimals
        ("33.3333%", "1/3", True),
        ("33.333%", "1/3", False),
        ("0.3333333", "1/3", True),
        ("1/3", "0.333333", True),
        ("0.33333", "1/3", False),
        ("0.33333344", "1/3", False),
        ("0.1250001", "1/8", False),
        ("0.1234564", "0.1234561", False),
        ("0.016667", "1/60", False),
        ("0.0166667", "1/60", True),
        ("9007199254740993", "9007199254740992", False),
    ],
)
def test_units_percentages_and_rounded_decimals(given, gold, same):
    assert compare_answers(given, gold).right is same
