"""Files as people really have them: encodings, delimiters, quotes, headers, and what is said of
those that cannot be read.
"""

import json

import pandas as pd
import pytest

from helpers.data.files import Broken, file_rows

TWO = [{"question": "1 + 1", "answer": "2"}, {"question": "1 + 2", "answer": "3"}]
PLAIN = "question,answer\n1 + 1,2\n1 + 2,3\n"
QUOTES = "A field that holds a delimiter needs double quotes around it."


@pytest.fixture
def read(tmp_path):
    """The rows of a file with this content, text or bytes."""

    def rows(content: str | bytes, name: str = "a.csv", **wanted) -> list:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return list(file_rows(path, **wanted))

    return rows


# --- Encodings ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_byte_order_mark_is_no_part_of_the_header(read, mark):
    row = {"question": "größer? ✓\u0a0d", "answer": "ja"}
    assert read(f"{mark}question\tanswer\r\ngrößer? ✓\u0a0d\tja\r\n") == [row]
    assert read(mark + json.dumps(row, ensure_ascii=False), "a.jsonl") == [row]
    for encoding in ("utf-16", "utf-16-le"):  # Excel's "Unicode text"
        text = ("\ufeff" if encoding == "utf-16-le" else "") + PLAIN
        assert read(text.encode(encoding)) == TWO


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"question,answer\n1,2\ncaf\xe9,3\n", "line 3 is not UTF-8"),
        (b"\xef\xbb\xbfquestion,caf\xe9,answer\n1,2,3\n", "line 1 is not UTF-8"),
        ("question,answer\n“why”,2\n".encode("cp1252"), "line 2 is not UTF-8"),
    ],
)
def test_the_line_of_another_encoding_is_named_with_a_way_out(read, content, said):
    with pytest.raises(ValueError, match=rf"a\.csv: {said} .*`iconv .* a\.csv > "):
        read(content)


# --- Delimiters -----------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["unix", "windows", "old mac"])
@pytest.mark.parametrize("delimiter", list(",;\t|"))
def test_a_csv_is_read_with_any_usual_delimiter(read, end, delimiter):
    lines = [f"question{delimiter} answer ", f"1 + 1{delimiter}2", "", f"1 + 2{delimiter}3", ""]
    assert read(end.join(lines), "ROWS.CSV") == TWO


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        ("question;answer;note (a, b, c, or d)\n1 + 1;2;x, y, z\n1 + 2;3;\n", {}),
        ('"question";"answer";"a, b | c, d"\n1 + 1;2;x, y\n1 + 2;3;\n', {}),
        ("question;answer;a|b|c|d\n1 + 1;2;x|y\n1 + 2;3;\n", {}),
        # Excel's own line
        ("sep=;\nquestion;answer;a,b,c,d\n1 + 1;2;x\n1 + 2;3;\n", {}),
        ("sep=|\r\nquestion|answer\r\n1 + 1|2\r\n1 + 2|3\r\n", {"wanted": {"a;b"}}),
        # no wanted column is there: most columns win
        ("question;answer;Frage (a, b)\n1 + 1;2;\n1 + 2;3;\n", {"wanted": {"Question"}}),
    ],
)
def test_the_columns_asked_for_choose_the_delimiter(read, content, wanted):
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
def test_rows_are_read_or_set_aside_with_their_line(read, content, rows):
    assert read(content) == rows


@pytest.mark.parametrize("bad", ['"so "it" goes",4', '"so \\"it\\" goes",4', '"open\n1,2\n3,4'])
def test_quotes_that_would_misread_the_rest_are_refused_with_the_line_before(read, bad):
    with pytest.raises(ValueError, match=r"a\.csv: what follows line 2 cannot be .*written twice"):
        read(f"question,answer\n1 + 1,2\n{bad}\n1 + 2,3\n")


def test_jsonl_lines_that_hold_no_row_are_set_aside(read):
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
        *("array", "array in an object", "beside others", "by id", "index"),
        *("pandas", "indented", "columns", "lines"),
    ],
)
@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_json_is_an_array_or_lines_whatever_its_name(read, name, content):
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


def test_a_column_that_is_there_twice_is_refused_where_it_is_asked_for(read):
    twice = "question,note,answer, answer,note\n1 + 1,x,2,3,y\n"
    with pytest.raises(ValueError, match=r"a\.csv: the header names 'answer' more than once"):
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
            "a.json: there are rows in 'train' and in 'test'. Give each list a file of its own",
        ),
    ],
)
def test_a_file_without_its_rows_is_named(read, name, content, said):
    with pytest.raises(ValueError, match=said):
        read(content, name)


def test_a_file_that_is_not_there_is_named_with_the_folder_that_was_looked_in(tmp_path):
    with pytest.raises(ValueError, match=r"No such file: .*b\.csv \(looked for from .+\)"):
        file_rows(tmp_path / "b.csv")


@pytest.mark.parametrize("indent", [None, 1])
def test_a_row_of_messages_in_a_file_of_one_row_is_a_row(read, indent):
    row = {"question": [{"role": "user", "content": "1 + 1"}], "answer": "2"}
    assert read(json.dumps(row, indent=indent), "a.jsonl") == [row]
