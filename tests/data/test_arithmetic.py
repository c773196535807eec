"""The built-in arithmetic: right answers, a reserved tenth, and the two ways to work a sum out."""

import random

import pytest

from helpers.data import arithmetic
from helpers.data.sources import read_source

each_family = pytest.mark.parametrize("family", arithmetic.FAMILIES)
by_columns = pytest.mark.parametrize("family", ["sums", "differences"])


def read(source, train_size=None, holdout_size=1, seed=1) -> list:
    return list(read_source(source, None, train_size, holdout_size, seed))


def drawn(family, count=2000):
    rng = random.Random(7)
    return [arithmetic.FAMILIES[family](rng) for _ in range(count)]


def true_result(numbers, operators) -> int:
    return eval(" ".join(f"{n} {op}" for n, op in zip(numbers, [*operators, ""], strict=True)))


# --- Two ways to work -----------------------------------------------------------------------------


@by_columns
def test_careful_working_is_right_line_by_line(family):
    for numbers, operators in drawn(family):
        text, result = arithmetic.careful(numbers, operators)
        assert result == true_result(numbers, operators) and text.endswith(f", {result}")
        lines = [line.rpartition(": ")[2] for line in text.split(", ")]
        assert all(
            eval(left) == int(right)
            for left, _, right in (line.partition(" = ") for line in lines)
            if right
        ), text
        assert text.count(":") == len(operators) and arithmetic.is_careful(text)


@by_columns
def test_careless_working_is_wrong_exactly_where_the_units_carry_or_borrow(family):
    for numbers, operators in drawn(family):
        text, result = arithmetic.careless(numbers, operators)
        assert text.endswith(f"= {result}") and not arithmetic.is_careful(text)
        assert (result == true_result(numbers, operators)) == (
            arithmetic.carries(numbers, operators) == 0
        )


# --- Families -------------------------------------------------------------------------------------


def expression(row: dict) -> str:
    assert row["question"].startswith("What is ") and row["question"].endswith("?")
    return row["question"].removeprefix("What is ").removesuffix("?")


@each_family
def test_every_family_gives_right_answers_and_workings(family):
    for row in read(f"arithmetic/{family}", train_size=300, holdout_size=40):
        assert row["answer"] == str(eval(expression(row))) and row["family"] == family, row
        steps = row["working"].split(", ")
        if family in ("sums", "differences"):
            assert arithmetic.is_careful(row["working"]) and steps[-1] == row["answer"]
        else:
            assert all(
                eval(left) == int(right) for left, right in (step.split(" = ") for step in steps)
            )
            assert steps[-1].endswith(f"= {row['answer']}")
            assert len(steps) == sum(piece in "+-*" for piece in expression(row).split())


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
        ("products", "2 * 9", 1),
        ("products", "2 * 10", 2),
        ("products", "99 * 10", 3),
        ("chains", "2 + 9 - 11", 2),
        ("chains", "2 + 9 - 12", 3),
        ("chains", "2 - 9 + 12 + 1", 3),
    ],
)
def test_difficulty_counts_operators_and_what_makes_them_hard(family, question, difficulty):
    pieces = question.split()
    row = arithmetic.problem(family, [int(number) for number in pieces[::2]], pieces[1::2])
    assert row["difficulty"] == difficulty


@each_family
def test_questions_are_distinct_as_many_as_asked_for_and_drawn_by_the_seed(family):
    rows, again, others = (
        read(f"arithmetic/{family}", train_size=500, holdout_size=60, seed=seed)
        for seed in (1, 1, 2)
    )
    assert len({row["question"] for row in rows}) == 560
    assert [row["split"] for row in rows].count("holdout") == 60
    assert rows == again and rows != others


@each_family
def test_the_same_numbers_in_another_order_stay_on_one_side(family):
    sides, orders = {}, {}
    rng = random.Random(5)
    for _ in range(6000):
        row = arithmetic.problem(family, *arithmetic.FAMILIES[family](rng))
        pieces = expression(row).split()
        key = tuple(sorted(pieces))
        orders.setdefault(key, set()).add(row["question"])
        assert sides.setdefault(key, row["split"]) == row["split"], row
    assert sum(len(questions) > 1 for questions in orders.values()) > 5
    assert 0.07 < list(sides.values()).count("holdout") / len(sides) < 0.14


def test_an_arithmetic_source_without_a_size_has_1000_rows_to_train_on():
    assert [row["split"] for row in read("arithmetic/sums")].count("train") == 1000


@pytest.mark.parametrize(
    ("family", "said"),
    [
        ("sum", r"Did you mean sums\?"),
        ("zzz", r"Did you mean sums, differences, products, chains\?"),
    ],
)
def test_an_unknown_family_names_those_there_are(family, said):
    with pytest.raises(ValueError, match=said):
        read(f"arithmetic/{family}")


@pytest.mark.parametrize(
    ("family", "counts", "operators", "least"),
    [
        ("sums", {2, 3}, "+", 1),
        ("differences", {2}, "-", 1),
        ("products", {2}, "*", 2),
        ("chains", {3, 4}, "+-", 1),
    ],
)
def test_a_family_draws_from_its_numbers_and_operators(family, counts, operators, least):
    pieces = [expression(row).split() for row in read(f"arithmetic/{family}", train_size=3000)]
    numbers = {int(number) for piece in pieces for number in piece[::2]}
    assert {len(piece[::2]) for piece in pieces} == counts
    assert {sign for piece in pieces for sign in piece[1::2]} == set(operators)
    assert (min(numbers), max(numbers)) == (least, 99)
