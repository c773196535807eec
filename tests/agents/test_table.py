"""The table: its cells are found by its tools alone, and drawn from the seed."""

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


def test_the_first_answer_counts_and_a_wrong_one_earns_a_little():
    environment = Table()
    environment.reset(seed=1)
    assert environment.get_reward() == 0.0
    assert environment.answer("7") == "Thank you."
    with pytest.raises(ToolError, match="answered already"):
        environment.answer(environment._right)
    assert environment.get_reward() == 0.1
    environment.reset(seed=1)
    environment.answer(f" {environment._right.upper()}")
    assert environment.get_reward() == 1.0


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
