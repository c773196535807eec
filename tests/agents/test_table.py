"""The table: its cells are found by its tools alone, and drawn from the seed."""

import re

import pytest

from helpers.agents import Table, ToolError


def test_a_game_is_the_same_for_the_same_seed():
    environment = Table(rows=2)
    said = "A table has 2 rows and the columns name, price, stock, shelf. "
    assert environment.reset(seed=4) == said + "What is the price where name is date?"
    assert [tuple(row.values()) for row in environment._table] == [
        ("date", "24", "838", "middle"),
        ("fennel", "72", "258", "left"),
    ]


def test_the_answer_is_in_the_cell_that_is_asked_for():
    environment = Table()
    for seed in range(20):
        question = environment.reset(seed=seed, prompt=[])
        asked, column, value = re.search(
            r"What is the (\w+) where (\w+) is (\w+)\?", question
        ).groups()
        found = environment.find_row(column, value)
        assert re.fullmatch(r"Row \d+\.", found)
        assert (
            environment.answer(environment.read_cell(int(found[4:-1]), asked)) == "Thank you."
            and environment.get_reward() == 1.0
        )


def test_the_first_answer_counts_and_a_wrong_one_earns_a_little():
    environment = Table()
    environment.reset(seed=1)
    right = environment._right
    environment.answer("7")
    with pytest.raises(ToolError, match="answered already"):
        environment.answer(right)
    assert environment.get_reward() == 0.1


def test_what_is_not_there_is_said():
    environment = Table()
    environment.reset(seed=1)
    assert environment.find_row("name", "nobody") == "No row has 'nobody' in name."
    assert environment.find_row("name", f" {environment._table[2]['name'].upper()} ") == "Row 3."
    with pytest.raises(
        ToolError, match="no column 'colour': the columns are name, price, stock, shelf"
    ):
        environment.read_cell(1, "colour")
    for row in (0, 9, -1):
        with pytest.raises(ToolError, match=f"no row {row}: the rows are 1 to 8"):
            environment.read_cell(row, "name")


def test_tables_differ_so_there_is_nothing_to_learn_by_heart():
    environment, seen = Table(), set()
    for seed in range(50):
        environment.reset(seed=seed)
        seen.add(tuple(row["price"] for row in environment._table))
    assert len(seen) == 50


def test_so_many_rows_there_are_not():
    with pytest.raises(ValueError, match="rows=40 must be 2 to 12"):
        Table(rows=40)
