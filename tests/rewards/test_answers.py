"""What a short answer means, and that the verdicts are those of TRL's accuracy_reward where it has
one.
"""

import doctest
import random
from fractions import Fraction

import pytest

from helpers.rewards import answers
from helpers.rewards.answers import (
    Number,
    looks_mathematical,
    parse_number,
    quick_verdict,
    same_answer,
    unboxed,
)

# --- One number -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("42", 42),
        (" 42. ", 42),
        ("+42", 42),
        ("- 42", -42),
        ("\N{MINUS SIGN}42", -42),
        ("-1,234.50", Fraction(-2469, 2)),
        (".5", Fraction(1, 2)),
        ("0.30000000000000004", Fraction(30000000000000004, 10**17)),
        ("1e3", 1000),
        ("1E+3", 1000),
        ("1e-999", Fraction(1, 10**999)),
        ("9" * 100, 10**100 - 1),
        ("1/2", Fraction(1, 2)),
        ("7 1/2", Fraction(15, 2)),
        ("-7 1/2", Fraction(-15, 2)),
        ("12.5 %", Fraction(1, 8)),
        ("$-5", -5),
        ("-€5", -5),
        (r"\boxed{42}", 42),
        (r"$\boxed{42}$", 42),
        (r"\(42\)", 42),
        (r"\frac{1}{2}", Fraction(1, 2)),
        (r"\dfrac{-3}{4}", Fraction(-3, 4)),
        (r"-\frac12", Fraction(-1, 2)),
        (r"3\frac{1}{2}", Fraction(7, 2)),
        (r"1{,}000", 1000),
        (r"1\,000", 1000),
        (r"50\%", Fraction(1, 2)),
        (r"1.5 \times 10^{3}", 1500),
        (r"12 \times 10^3", 12_000),
        (r"10 \cdot 10^3", 10_000),
        ("2.5*10^-1", Fraction(1, 4)),
        ("10^{-2}", Fraction(1, 100)),
        ("x = 7", 7),
    ],
)
def test_a_number_is_read_exactly(text, value):
    assert parse_number(text).value == value


@pytest.mark.parametrize(
    "text",
    ["42 or 43", "not 42", "42 perhaps", "42 or more", "42-43", "42, 43", "4 2", "1,00", "--42"],
)
@pytest.mark.parametrize("shape", ["{}", r"\boxed{{{}}}", "${}$"])
def test_a_doubt_or_a_choice_is_no_number(text, shape):
    assert parse_number(shape.format(text)) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        ".",
        "$",
        "-",
        "km",
        "nan",
        "inf",
        "-inf",
        "3/0",
        "٣",
        "4²",
        "0x2a",
        "1_000",
        "6*7",
        "9**9",
        "1e1000",
        "9" * 101,
    ],
)
def test_what_is_no_number_is_none(text):
    assert parse_number(text) is None


@pytest.mark.parametrize("text", [r"\frac{1}{2}3", r"\frac123"])
def test_a_digit_behind_a_fraction_does_not_join_its_denominator(text):
    number = parse_number(text)
    assert number is None or number.value != Fraction(1, 23)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("42", Number(42, "", "42", False, True)),
        ("1,000.0 Dollars", Number(1000, "$", "1000.0", False, False)),
        ("50%", Number(Fraction(1, 2), "", "50", True, True)),
        ("5 km/h.", Number(5, "km/h", "5", False, True)),
        ("5 cm^2", Number(5, "cm^2", "5", False, True)),
        ("-3/4", Number(Fraction(-3, 4), "", "3", False, False)),
    ],
)
def test_how_a_number_was_written_is_kept(text, number):
    assert parse_number(text)._replace(numeral=number.numeral) == number


# --- The same answer ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "gold"),
    [
        ("5 KM", "5 km."),
        ("5 km", "5"),
        ("5", "5 km"),
        ("1 hour", "1 hours"),
        ("3.50 €", "3.5"),
        ("50%", "0.5"),
        ("50%", "50"),
        ("50", "50%"),
        ("-50", "-50%"),
        ("12.5", "12.5%"),
        ("0.333333", "1/3"),
        ("0.1234564", "0.1234561"),
        ("2.0000000", "2"),
        ("Paris.", " paris"),
        (r"\boxed{Paris}", "Paris"),
        ("x = 3", "3"),
        ("y + x", "x+y"),
        (r"\{1,2\}", r"\{2, 1\}"),
        (r"\frac{\sqrt{3}}{2}", r"\frac{3}{2\sqrt{3}}"),
    ],
)
def test_the_same_answer(given, gold):
    assert same_answer(given, gold)


@pytest.mark.parametrize(
    ("given", "gold"),
    [
        ("5 km", "5 m"),
        ("-50%", "50"),
        ("-50%", "-50"),
        ("50%", "5000"),
        ("0.5%", "0.5"),
        ("1/2%", "1"),
        ("1", "1/200%"),
        ("5e3%", "5"),
        ("0.33333", "1/3"),
        ("0.123457", "0.123459"),
        ("2.0000001", "2"),
        ("2", "2.0000001"),
        ("9007199254740993", "9007199254740992"),
        ("2 million", "2"),
        ("2 hopefully", "2"),
        ("2y", "2"),
        ("2pi", "2"),
        ("", ""),
        (" ", ""),
        ("nan", "nan"),
        ("NaN", "nan"),
        ("-inf", "-inf"),
        ("x - y", "x+y"),
        ("Paris or London", "Paris"),
        ("[1,2)", "(1,2]"),
    ],
)
def test_not_the_same_answer(given, gold):
    assert not same_answer(given, gold)


@pytest.mark.parametrize(
    "given",
    ["17 + 25", "17+25", "(17)+(25)", "6*7", r"6 \times 7", "6 × 7", "50 - 8", r"84 \div 2"],
)
def test_arithmetic_that_was_not_carried_out_is_no_answer(given):
    assert not same_answer(given, "42")
    assert quick_verdict(given, "42") is False


@pytest.mark.parametrize(
    ("given", "gold", "question"),
    [
        ("(x+1)^2", "x^2+2x+1", "Expand (x+1)^2."),
        ("(x + 1)^2", "x^2+2x+1", "Expand $(x+1)^2$."),
        (r"\boxed{\sqrt{16}}", "4", r"What is $\sqrt{16}$?"),
        ("5^2", "25", "What is 5^2?"),
        ("2^{10}", "1024", "What is $2^{10}$?"),
        ("5!", "120", "What is 5!?"),
        ("|-7|", "7", "What is |-7|?"),
        ("84/12", "7", "What is 84/12?"),
        (r"\frac{84}{12}", "7", r"Compute $\frac{84}{12}$."),
        ("5*10^2", "500", "What is 5*10^2?"),
    ],
)
def test_an_expression_copied_from_the_question_is_no_answer(given, gold, question):
    assert not same_answer(given, gold, question)


@pytest.mark.parametrize(
    ("given", "gold", "question"),
    [
        ("7", "7", "What is 7 + 0?"),
        ("1/2", "1/2", "Which is larger, 1/2 or 1/3?"),
        ("x^2", "x^2", "Which is even, x^2 or x^3?"),
        ("Paris", "Paris", "Paris or London?"),
        ("x^2+2x+1", "(x+1)^2", "Expand (x+1)^2."),
    ],
)
def test_an_answer_that_the_question_names_is_an_answer(given, gold, question):
    assert same_answer(given, gold, question)


@pytest.mark.parametrize(
    ("given", "gold", "verdict"),
    [
        ("42", "42", True),
        ("42.0", "42", True),
        ("43", "42", False),
        ("Paris", "paris", True),
        ("London", "Paris", False),
        ("x+1", "x + 1", True),
        ("x+1", "1 + x", None),
        ("x^2", "x^3", None),
        ("x + 1", "Paris", False),
        ("Paris", "x+1", False),
        ("", "x+1", False),
    ],
)
def test_only_mathematics_is_left_to_math_verify(given, gold, verdict):
    assert quick_verdict(given, gold) is verdict


@pytest.mark.parametrize(
    "text",
    ["x+1", r"\frac{1}{2}", "[0, 1)", r"\{1, 2\}", "sqrt(2)", r"\sin x", "x > 3", "2", r"90^\circ"],
)
def test_it_looks_mathematical(text):
    assert looks_mathematical(text)


DEEP = "{" * 40 + "x+1" + "}" * 40
PROSE = [
    "",
    "Paris",
    "x",
    "the sum of 2 and 3",
    "2 or 3",
    "not 2",
    "__import__('os')",
    "os.system('ls')",
]
BOMBS = [
    DEEP,
    "{" * 10_000,
    "(" * 10_000 + ")" * 10_000,
    "}{",
    "(]" * 2 + "]",
    "x+" * 200 + "1",
    "\x00",
    "\ud800",
]


@pytest.mark.parametrize("text", [*PROSE, *BOMBS], ids=range(len(PROSE + BOMBS)))
def test_it_does_not_look_mathematical(text):
    assert not looks_mathematical(text)


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        (r"\boxed{42}", "42"),
        (r" $\boxed{ \frac{1}{2} }$ ", r"\frac{1}{2}"),
        (r"\[ x \]", "x"),
        ("$$x$$", "x"),
        (r"\boxed{1}, \boxed{2}", r"\boxed{1}, \boxed{2}"),
        ("$1 and $", "1 and"),
        ("$1$, $2$", "$1$, $2$"),
        ("$5", "$5"),
        ("$", "$"),
        ("", ""),
    ],
)
def test_only_what_surrounds_the_whole_text_is_taken_off(text, inside):
    assert unboxed(text) == inside


# --- As TRL judges --------------------------------------------------------------------------------


def trl_verdicts(pairs: list[tuple[str, str]]) -> list[bool | None]:
    from trl.rewards import accuracy_reward

    completions = [[{"role": "assistant", "content": f"\\boxed{{{given}}}"}] for given, _ in pairs]
    return [
        None if score is None else bool(score)
        for score in accuracy_reward(completions, [gold for _, gold in pairs])
    ]


def golds(value: Fraction) -> list[str]:
    """Spellings of a value, exact or rounded, that TRL reads in a gold answer."""
    sign, size = "-" if value < 0 else "", abs(value)
    if value.denominator == 1:
        texts = [
            f"{size}",
            f"{int(size):,}",
            f"{size}.0",
            f"\\boxed{{{sign}{size}}}",
            f"${sign}{size}$",
            f"{100 * size}%",
        ]
        return [text if text[0] in "\\$" else sign + text for text in texts] + (
            [] if sign else [f"${int(size):,}"]
        )
    fraction = (
        f"{size.numerator}/{size.denominator}",
        f"\\frac{{{size.numerator}}}{{{size.denominator}}}",
    )
    decimals = [f"{float(size):.{places}f}" for places in (2, 4, 6, 8)]
    percent = (
        [f"{float(100 * size):.6f}".rstrip("0").rstrip(".") + "%"]
        if (size * 10**8).denominator == 1
        else []
    )
    return [sign + text for text in (*fraction, *decimals, *percent)]


def givens(value: Fraction) -> list[str]:
    """Those, and spellings that TRL reads in a completion alone."""
    sign, texts = "-" if value < 0 else "", golds(value)
    percents = [text.replace("%", mark) for text in texts for mark in (r"\%", " %") if "%" in text]
    dollars = [
        f"{sign}${text.removeprefix(sign)}" for text in texts if set(text) <= set("-0123456789.,")
    ]
    point = [text.replace("0.", ".", 1) for text in texts if text.startswith((f"{sign}0.",))]
    dfrac = [text.replace(r"\frac", r"\dfrac") for text in texts if r"\frac" in text]
    return [*texts, *percents, *dollars, *point, *dfrac]


def grid(rng: random.Random, size: int) -> list[tuple[str, str]]:
    """Pairs of (given, gold) whose values are equal, or nearly, or a hundred times each other."""
    shares = [(50, 1), (10**7, 1), (1000, 100), (10**9, 10**8), (20, 7), (20, 11), (10**6, 10**4)]
    pairs = {}
    while len(pairs) < size:
        most, denominator = rng.choice(shares)
        value = Fraction(rng.randrange(-most, most), denominator)
        steps = [
            1,
            Fraction(1, 10**4),
            Fraction(3, 10**7),
            Fraction(2, 10**8),
            -2 * value,
            99 * value,
            value * Fraction(-99, 100),
        ]
        other = value + rng.choice([0] * len(steps) + steps)
        given, gold = rng.choice(givens(value)), rng.choice(golds(other))
        if not (given.startswith("-") and "%" in given):  # see NEGATIVE
            pairs[given, gold] = None
    return list(pairs)


# Against a fraction they round every decimal but a negative percentage: so these are held against
# quite other values alone.
NEGATIVE = [
    (given, gold)
    for given in ("-50%", r"-50\%", "-50 %")
    for gold in ("-50", "-0.5", "-1/2", "-50%", "50", "0.5", "-5%")
]


def test_plain_numbers_get_the_verdicts_of_trl():
    pairs = grid(random.Random(0), 600) + NEGATIVE
    theirs = trl_verdicts(pairs)
    assert 200 < theirs.count(True) < 400 and None not in theirs
    ours = [same_answer(given, gold) for given, gold in pairs]
    assert [(pair, a) for pair, a, b in zip(pairs, ours, theirs, strict=True) if a is not b] == []


@pytest.mark.parametrize(
    ("given", "gold", "ours", "theirs"),
    [
        # Units that differ: they drop them.
        ("5 km", "5 m", False, True),
        # Arithmetic that was not carried out.
        ("6*7", "42", False, True),
        ("17 + 25", "42", False, True),
        # A negative percentage is rounded like any other decimal.
        ("-12.5%", "-1249997/10000000", True, False),
        # What they cannot read in a completion, or (None) in a gold answer.
        ("1e3", "1000", True, False),
        ("1000.", "1000", True, False),
        ("1000 dollars", "1000", True, False),
        ("7 1/2", "7.5", True, False),
        ("1000", "-$1000", False, None),
        ("Paris", "Paris", True, None),
    ],
)
def test_where_the_verdict_is_meant_to_be_another_than_trls(given, gold, ours, theirs):
    assert same_answer(given, gold) is ours
    assert trl_verdicts([(given, gold)]) == [theirs]


def test_the_examples_in_the_docstrings_hold():
    result = doctest.testmod(answers)
    assert result.attempted >= 2 and result.failed == 0


# --- What may not cost, and what may not count ----------------------------------------------------


@pytest.mark.parametrize(
    "given", ["1e400 m", "1e999 km", "1e-400 km", "1e400 °F", "1e400 ft 10 in", "$1e400"]
)
@pytest.mark.parametrize("gold", ["5 km", "5 ft 10 in", "25 °C", "$3.50", "3 hours"])
def test_a_quantity_that_no_float_holds_is_wrong_and_no_error(given, gold):
    assert not same_answer(given, gold)


def test_quantities_beyond_a_float_are_converted_exactly():
    assert same_answer("1e403 m", "1e400 km")
    assert not same_answer("1.000001e403 m", "1e400 km")


@pytest.mark.parametrize("given", ["11^{11^{11}}", "10^{10^{10}}", "2^{3^22}", "9" * 1_000_000])
def test_a_tower_and_a_text_of_digits_are_refused_at_once(given):
    assert quick_verdict(given, "42") is False


@pytest.mark.parametrize(
    ("given", "gold"),
    [
        (r"\mathbf{B}\mathbf{A}", r"\mathbf{A}\mathbf{B}"),
        ("C(A+B)", "(A+B)C"),
        (r"B A^\top", r"A^\top B"),
        (r"\frac{\mathrm{d}x}{\mathrm{d}y}", r"\frac{\mathrm{d}y}{\mathrm{d}x}"),
        (r"\int y\,dx", r"\int x\,dy"),
        (r"\{f, g\}", r"\{f', g\}"),
        ("LINE AB", "line ab"),
        ("The answer is not 18", "18"),
        ("10 and 20", "10-20"),
    ],
)
def test_order_case_and_marks_that_may_count_do(given, gold):
    assert not same_answer(given, gold)
