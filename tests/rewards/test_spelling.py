"""Answers as people and policies write them: other spellings, other units, and tasks
handed back.
"""

import pytest

from helpers.rewards.answers import quick_verdict, same_answer


@pytest.mark.parametrize(
    ("given", "gold", "question"),
    [
        ("48 27/1", "75", "What is 48 + 27?"),
        (r"48\frac{27}{1}", "75", ""),
        (r"\frac{12}{\frac{1}{12}}", "144", ""),
        ("84/2", "42", "What is 84 ÷ 2?"),
        ("168/4", "42", "What is 84/2?"),
        ("2^{3}", "8", "What is 2^3?"),
        ("3 dozen", "36", "What is 3 dozen?"),
        (r"\sqrt{16}", "4", "What is sqrt(16)?"),
        (r"\sum_{i=1}^{2} 21", "42", ""),
        (r"\max(41,42)", "42", ""),
        (r"\lfloor 42.9 \rfloor", "42", ""),
        (r"\int_0^{42} dx", "42", ""),
    ],
)
def test_a_task_handed_back_is_no_answer(given, gold, question):
    assert quick_verdict(given, gold, question) is False


WORDS = [
    "k",
    "bn",
    "mil",
    "lakh",
    "squared",
    "cubed",
    "factorial",
    "halves",
    "hundredths",
    "point five",
    "base eight",
]
WORDS += [
    "negative",
    "degrees below zero",
    "no wait",
    "incorrect",
    "thirds",
    "hopefully",
    "million",
]


@pytest.mark.parametrize("words", WORDS)
def test_words_that_change_a_number_are_no_unit(words):
    assert not same_answer(f"42 {words}", "42")


@pytest.mark.parametrize(
    ("given", "gold"),
    [("42K", "42"), ("$42", "42 cents"), ("42 €", "$42"), ("3 months", "3 years")],
)
def test_another_unit_is_another_answer(given, gold):
    assert not same_answer(given, gold)


SPELT = [
    ("**42**", "42"),
    ("`42`", "42"),
    ("\u20135", "-5"),
    ("\uff0d5", "-5"),
    ("½", "0.5"),
    ("1½", "1.5"),
    ("1 000", "1000"),
]
SPELT += [
    ("1\u00a0000", "1000"),
    ("1\u2009000", "1000"),
    ("42\u200b", "42"),
    ("(A)", "A"),
    ("A)", "A"),
    ("**A**", "A"),
]
SPELT += [
    ("**Paris**", "Paris"),
    ("5 m", "5 meters"),
    ("5 kilometers", "5 km"),
    ("$42", "42 dollars"),
    ("42 usd", "$42"),
]
SPELT += [
    ("90^\\circ", "90 degrees"),
    ("5 inches", "5 inch"),
    ("5 percent", "0.05"),
    ("2 months", "2"),
    ("2 million", "2000000"),
]


@pytest.mark.parametrize(("given", "gold"), SPELT)
def test_ordinary_spellings_are_understood(given, gold):
    assert same_answer(given, gold)


@pytest.mark.parametrize(
    ("given", "gold", "question"),
    [
        ("1/2", "0.5", "1/2 cup"),
        ("-7", "-7", "What is -7 + 0"),
        ("3/6", "0.5", "Halve 1"),
        ("1/2", "1/2", "Is 1/2 1/2?"),
    ],
)
def test_an_answer_may_stand_in_the_question(given, gold, question):
    assert same_answer(given, gold, question)


FALSE = [
    "13 = 12",
    "11 = 13 = 12",
    "x=13=12",
    r"13 = \boxed{12}",
    "1 = 12%",
    "12 = 13",
    "--12",
    "~12",
    "5 + 7 = 12",
]


@pytest.mark.parametrize("given", FALSE)
def test_two_sides_are_two_answers(given):
    assert not same_answer(given, "12")


@pytest.mark.parametrize(
    ("given", "gold", "same"),
    [
        ("y = x^2+1", "1+x^2", True),
        ("f(x) = x^2+1", "1+x^2", True),
        (r"x = \sqrt{16}", "4", True),
        ("x^2 = x^2+1", "1+x^2", False),
        ("y = 5 = x^2+1", "1+x^2", False),
        ("x = 4", "x=4", True),
    ],
)
def test_a_name_before_the_answer_is_none(given, gold, same):
    assert same_answer(given, gold) is same
