"""Files as users have them: encodings, delimiters, quotes and headers; and the errors for files that
cannot be read.
"""

import csv
import io
import json
import random
import re
from pathlib import Path

import pandas as pd
import pytest

from helpers.data.files import Broken, file_rows

TWO = [{"question": "1 + 1", "answer": "2"}, {"question": "1 + 2", "answer": "3"}]
PLAIN = "question,answer\n1 + 1,2\n1 + 2,3\n"
QUOTES = "A field that holds a delimiter needs double quotes around it."


@pytest.fixture
def read(tmp_path):
    """Return a function that writes a file with this content and returns its rows."""

    def rows(content: str | bytes, name: str = "a.csv", **wanted) -> list:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return list(file_rows(path, **wanted))

    return rows


# --- Encodings ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_byte_order_mark_is_not_part_of_the_header(read, mark):
    row = {"question": "größer? ✓\u0a0d", "answer": "ja"}
    assert read(f"{mark}question\tanswer\r\ngrößer? ✓\u0a0d\tja\r\n") == [row]
    assert read(mark + json.dumps(row, ensure_ascii=False), "a.jsonl") == [row]


def test_excels_unicode_text_is_read(read):
    assert read(PLAIN.encode("utf-16")) == TWO  # Python adds the byte order mark
    assert read(f"\ufeff{PLAIN}".encode("utf-16-be")) == TWO


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"question,answer\n1,2\ncaf\xe9,3\n", "line 3 is not UTF-8"),
        (b"\xef\xbb\xbfquestion,caf\xe9,answer\n1,2,3\n", "line 1 is not UTF-8"),
        ("question,answer\n“why”,2\n".encode("cp1252"), "line 2 is not UTF-8"),
    ],
)
def test_the_error_for_another_encoding_names_the_line_and_a_command(read, content, said):
    with pytest.raises(ValueError, match=rf"a\.csv: {said} .*`iconv .* a\.csv > "):
        read(content)


# --- Delimiters -----------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["unix", "windows", "old mac"])
@pytest.mark.parametrize("delimiter", list(",;\t|"))
def test_a_csv_is_read_with_any_common_delimiter_and_line_end(read, end, delimiter):
    lines = [f"question{delimiter} answer ", f"1 + 1{delimiter}2", "", f"1 + 2{delimiter}3", ""]
    assert read(end.join(lines), "ROWS.CSV") == TWO


def test_random_rows_are_read_back_from_csv(read):
    rng = random.Random(59)

    def text() -> str:
        return "".join(rng.choices(',;|\t"\n 5aé', k=rng.randrange(12)))

    for _ in range(200):
        names = rng.sample(["question", "answer", f"a{text()}b"], k=3)
        rows = [[f"{text()}.", text(), text()] for _ in range(rng.randint(1, 5))]
        quoting, delimiter = rng.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]), rng.choice(",;|\t")
        file = io.StringIO(newline="")
        writer = csv.writer(file, quoting=quoting, delimiter=delimiter)
        writer.writerows([names, *rows])
        assert read(file.getvalue()) == [dict(zip(names, row, strict=True)) for row in rows]


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        ("question;answer;note (a, b, c, or d)\n1 + 1;2;x, y, z\n1 + 2;3;\n", {}),
        ('"question";"answer";"a, b | c, d"\n1 + 1;2;x, y\n1 + 2;3;\n', {}),
        ("question;answer;a|b|c|d\n1 + 1;2;x|y\n1 + 2;3;\n", {}),
        # Excel's own line
        ("sep=;\nquestion;answer;a,b,c,d\n1 + 1;2;x\n1 + 2;3;\n", {}),
        ("sep=|\r\nquestion|answer\r\n1 + 1|2\r\n1 + 2|3\r\n", {"wanted": {"a;b"}}),
        # without a wanted column, the delimiter with the most columns is used
        ("question;answer;Frage (a, b)\n1 + 1;2;\n1 + 2;3;\n", {"wanted": {"Question"}}),
    ],
)
def test_the_wanted_columns_decide_the_delimiter(read, content, wanted):
    rows = read(content, **wanted)
    assert [{name: row[name] for name in ("question", "answer")} for row in rows] == TWO


# --- Rows -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        ("\nquestion,answer\n\n1 + 1,2\n   \n, ,\n1 + 2,3\n", TWO),
        (
            "question,answer\n1 + 1,2\n1 + 3,4,,5\nlonely\n",
            [
                TWO[0],
                Broken("not 2 fields", "line 3: 4 fields", QUOTES),
                Broken("not 2 fields", "line 4: 1 fields", QUOTES),
            ],
        ),
        (
            'question,answer\n"one,\n\ntwo ""three""",4\nlonely\n',
            [
                {"question": 'one,\n\ntwo "three"', "answer": "4"},
                Broken("not 2 fields", "line 5: 1 fields", QUOTES),
            ],
        ),
        ('question,answer\n5" or 6"?,6"\n', [{"question": '5" or 6"?', "answer": '6"'}]),
        (f"question,answer\n{'x' * 10**6},4\n", [{"question": "x" * 10**6, "answer": "4"}]),
        # columns without a name are left out
        (
            ",question,answer,,\n0,1 + 1,2,,\n1,1 + 2,3,x,\n2,1 + 3\n",
            [*TWO, Broken("not 5 fields", "line 4: 2 fields", QUOTES)],
        ),
    ],
)
def test_a_row_with_the_wrong_number_of_fields_is_broken_at_its_line(read, content, rows):
    assert read(content) == rows


@pytest.mark.parametrize("bad", ['"so "it" goes",4', '"so \\"it\\" goes",4', '"open\n1,2\n3,4'])
def test_a_quote_that_would_misread_the_rest_of_a_file_is_refused(read, bad):
    with pytest.raises(ValueError, match=r"a\.csv: .*line 2 .*\"\""):
        read(f"question,answer\n1 + 1,2\n{bad}\n1 + 2,3\n")


def test_jsonl_lines_that_are_not_objects_are_broken(read):
    one, two = map(json.dumps, TWO)
    lines = [one, '{"question": ', "", '["a", "list"]', "7", "[" * 100_000, two]
    first, *broken, last = read("\ufeff" + "\n".join(lines), "a.jsonl")
    assert [first, last] == TWO
    assert {row.reason for row in broken} == {"not a JSON object"}
    assert [row.where.partition(":")[0] for row in broken] == [f"row {n}" for n in (2, 3, 4, 5)]


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(TWO, indent=1),
        json.dumps({"data": TWO}),
        json.dumps({"version": "1.1", "licenses": [], "data": TWO}),
        json.dumps({"id1": TWO[0], "id2": TWO[1]}),
        pd.DataFrame(TWO).to_json(orient="index"),
        pd.DataFrame(TWO).to_json(),
        pd.DataFrame(TWO).to_json(orient="columns", indent=1),
        json.dumps(pd.DataFrame(TWO).to_dict("list")),
        "\n".join(map(json.dumps, TWO)),
    ],
    ids=[
        "array",
        "array in an object",
        "array beside others",
        "rows by id",
        "pandas, by index",
        "pandas, by column",
        "pandas, indented",
        "lists by column",
        "lines",
    ],
)
@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_every_layout_of_json_is_read_with_either_extension(read, name, content):
    assert read(content, name) == TWO


def test_a_parquet_file_keeps_its_other_columns_and_types(tmp_path):
    pd.DataFrame(TWO).assign(level=[1, 2], parts=[["a"], ["b", "c"]]).to_parquet(
        tmp_path / "a.parquet"
    )
    assert list(file_rows(tmp_path / "a.parquet")) == [
        TWO[0] | {"level": 1, "parts": ["a"]},
        TWO[1] | {"level": 2, "parts": ["b", "c"]},
    ]


# --- Headers --------------------------------------------------------------------------------------


def test_a_wanted_column_that_is_there_twice_is_refused(read):
    twice = "question,note,answer, answer,note\n1 + 1,x,2,3,y\n"
    with pytest.raises(ValueError, match=r"a\.csv: .*'answer'"):
        read(twice)
    assert read(twice, wanted={"question"}) == [{"question": "1 + 1", "note": "y", "answer": "3"}]


# --- Files without rows ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", "", "a.csv: the file is empty"),
        ("a.jsonl", "", "a.jsonl: the file is empty"),
        ("a.parquet", "", "a.parquet: the file is empty"),
        ("a.parquet", PLAIN, "a.parquet: cannot be read as a Parquet file"),
        (
            "a.json",
            json.dumps({"train": TWO, "test": TWO}),
            "a.json: there are rows in 'train' and in 'test'. Put each list in its own file",
        ),
    ],
)
def test_a_file_without_rows_is_refused_by_name(read, name, content, said):
    with pytest.raises(ValueError, match=said):
        read(content, name)


def test_a_missing_file_is_named_with_the_current_folder(tmp_path):
    with pytest.raises(ValueError, match=rf"b\.csv .*{re.escape(str(Path.cwd()))}"):
        file_rows(tmp_path / "b.csv")


@pytest.mark.parametrize("indent", [None, 1])
def test_a_file_of_one_row_with_chat_messages_is_that_row(read, indent):
    row = {"question": [{"role": "user", "content": "1 + 1"}], "answer": "2"}
    assert read(json.dumps(row, indent=indent), "a.jsonl") == [row]
