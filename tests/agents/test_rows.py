"""Rows of a file for an environment: what is dropped is counted, and what `reset` could not take is
said with its row.
"""

import json

import pandas as pd
import pytest

from helpers.agents.rows import episode_rows


@pytest.fixture
def written(tmp_path):
    """A function that writes lines, JSON objects or text, and returns the file."""

    def write(*lines):
        path = tmp_path / "rows.jsonl"
        path.write_text(
            "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines),
            encoding="utf-8",
        )
        return path

    return write


def test_duplicates_and_unreadable_lines_are_dropped_and_counted(written):
    rows, dropped = episode_rows(
        written({"seed": 1}, {"seed": 2}, "{", {"seed": 1}, "[3]", {"seed": 1}), seed=0
    )
    assert sorted(row["seed"] for row in rows) == [1, 2]
    assert dropped == {"duplicate": 2, "not JSON": 1, "not a JSON object": 1}


def test_the_order_is_drawn_from_the_seed(written):
    path = written(*({"seed": number} for number in range(100)))
    orders = [[row["seed"] for row in episode_rows(path, seed)[0]] for seed in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2] and sorted(orders[2]) == list(range(100))
    assert orders[0] != list(range(100))


def test_rows_with_lists_and_objects_are_kept_whole(written, tmp_path):
    row = {"seed": 1, "board": [[1, 2], [3, 4]], "player": {"name": "a"}}
    assert episode_rows(written(row, row), seed=0) == ([row], {"duplicate": 1})
    pd.DataFrame([row]).to_parquet(tmp_path / "rows.parquet")
    assert episode_rows(tmp_path / "rows.parquet", seed=0)[0] == [row]


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (
            [{"seed": 1}, {"sead": 2}],
            "row 2: every row needs the columns seed, and a value in each",
        ),
        ([{"seed": 1}, {"seed": 2, "level": 1}], "row 2: every row needs the columns seed"),
        ([{"seed": 1}, "{", {"seed": None}], "row 3: every row needs"),
        ([{"seed": 1}, {"seed": "2"}], "the values of column 'seed' must be of one kind"),
        ([{"board": [1]}, {"board": [1, "x"]}], "the values of column 'board' must be of one kind"),
        (
            [{"seed": 1, "question": "Which?"}],
            "notebook 10 writes the column 'question' itself: give yours another name",
        ),
    ],
    ids=[
        "another name",
        "one more",
        "nothing",
        "numbers and texts",
        "a mixed list",
        "a column of ours",
    ],
)
def test_rows_that_no_reset_could_take_are_named(written, lines, says):
    with pytest.raises(ValueError, match=r"rows\.jsonl") as caught:
        episode_rows(written(*lines), seed=0)
    assert says in str(caught.value)


def test_a_file_that_is_not_there_or_of_another_kind_is_named(tmp_path):
    for path in (tmp_path / "absent.jsonl", 5):
        with pytest.raises((ValueError, OSError), match=str(getattr(path, "name", path))):
            episode_rows(path, seed=0)
