"""The table: found by its tools alone, drawn from the seed or read from a CSV file."""

import functools
import re

import pytest

from helpers.agents import Table, ToolError, check_environment


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


def test_a_csv_of_ones_own_is_asked_about(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text(
        'name,town,"born in"\nAda,London,1815\n"Gauß, Carl",Brunswick,1777\n', encoding="utf-8-sig"
    )
    kind = functools.partial(Table, path)
    assert check_environment(kind, ["seed"]) == []
    environment = kind()
    asked = {
        environment.reset(seed=seed).split("columns name, town, born in. ")[1] for seed in range(40)
    }
    assert asked == {
        f"What is the {what} where name is {who}?"
        for what in ("town", "born in")
        for who in ("Ada", "Gauß, Carl")
    }
    assert (
        environment.read_cell(2, "born in") == "1777"
        and environment.find_row("town", " london ") == "Row 1."
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "needs a header"),
        ("a,b\n1,2\n", "at least two rows"),
        ("a\n1\n2\n", "two columns"),
        ("a,b\n1,2\n3\n", "line 3 of the table has 1 cells, and the header 2"),
        ("a,b\n1,2\n1,3\n", "'1' names two rows"),
        ("a,a\n1,2\n2,3\n", "different names; they are 'a', 'a'"),
    ],
)
def test_a_file_that_is_no_such_table_is_refused(text, says, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=says):
        Table(path)


def test_so_many_rows_there_are_not():
    with pytest.raises(ValueError, match="rows=40 must be 2 to 12"):
        Table(rows=40)
