"""Built-in arithmetic: correct answers, a reserved tenth, and the two ways to work out a sum."""

import hashlib
import json
import random

import pytest

from helpers.data import arithmetic
from helpers.data.sources import read_source

each_family = pytest.mark.parametrize("family", ["sums", "pairs", "differences"])


def drawn(family, count=2000):
    """Yield problems of a family: the numbers, the operators, and the true result."""
    rng = random.Random(7)
    for _ in range(count):
        numbers, operators = arithmetic.FAMILIES[family](rng)
        terms = zip(numbers, [*operators, ""], strict=True)
        yield numbers, operators, eval(" ".join(f"{number} {sign}" for number, sign in terms))


# --- Two ways to work -----------------------------------------------------------------------------


@each_family
def test_careful_working_is_right_line_by_line(family):
    for numbers, operators, true in drawn(family):
        text, result = arithmetic.careful(numbers, operators)
        assert result == true and text.endswith(f", {result}")
        for line in text.split(", "):
            left, _, right = line.rpartition(": ")[2].partition(" = ")
            assert not right or eval(left) == int(right), text
        assert text.count(":") == len(operators) and arithmetic.is_careful(text)


@each_family
def test_careless_working_is_wrong_exactly_if_the_units_carry_or_borrow(family):
    for numbers, operators, true in drawn(family):
        text, result = arithmetic.careless(numbers, operators)
        assert text.endswith(f"= {result}") and not arithmetic.is_careful(text)
        assert (result == true) == (arithmetic.carries(numbers, operators) == 0)


# --- Families -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "digest"),
    [
        ("sums", "9546532e993e8776"),
        ("differences", "3e4ec5d45195e2b7"),
    ],
)
def test_the_rows_of_a_seed_never_change(family, digest):
    """So that runs of earlier versions can be reproduced."""
    rows = list(read_source(f"arithmetic/{family}", None, 500, 60, 1))
    assert hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16] == digest
    assert len({row["question"] for row in rows}) == 560
    assert [row["split"] for row in rows].count("holdout") == 60
    for row in rows:
        assert row["answer"] == str(eval(row["question"].removeprefix("What is ")[:-1]))


@pytest.mark.parametrize(
    ("family", "question", "difficulty"),
    [
        ("sums", "12 + 34", 1),
        ("sums", "46 + 75", 2),
        ("sums", "12 + 34 + 21", 2),
        ("sums", "46 + 75 + 28", 3),
        ("sums", "46 + 75 + 29", 4),
        ("differences", "52 - 21", 1),
        ("differences", "52 - 17", 2),
        ("differences", "17 - 52", 2),
    ],
)
def test_difficulty_counts_operators_and_carries_or_borrows(family, question, difficulty):
    pieces = question.split()
    row = arithmetic.problem(family, [int(number) for number in pieces[::2]], pieces[1::2])
    assert row["difficulty"] == difficulty
