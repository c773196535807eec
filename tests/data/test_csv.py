"""Files as people really have them: encodings, delimiters, quotes and headers; millions of rows;
answers without room.
"""

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyarrow
import pyarrow.parquet
import pytest

from helpers import PROJECT
from helpers.data import tasks
from helpers.data.sources import Broken, read_source
from helpers.data.tasks import load_task, prompt_token_counter
from helpers.presets import PRESETS

TWO = [{"question": "1 + 1", "answer": "2"}, {"question": "1 + 2", "answer": "3"}]
PLAIN = "question,answer\n1 + 1,2\n1 + 2,3\n"


def read(path: Path, columns=None) -> list:
    return list(read_source(str(path), columns, None, 1, 1))


@pytest.fixture
def file(tmp_path):
    """Write a file of this name with these bytes or this text; returns its path."""

    def write(content: str | bytes, name: str = "a.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def sums(count: int) -> str:
    return "question,answer\n" + "".join(f"What is {n} + 1?,{n + 1}\n" for n in range(count))


# --- Encodings ------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_utf16_with_its_mark_is_read(file, encoding, name):
    rows = [{"question": "größer? ✓\u0a0d", "answer": "ja"}, *TWO]
    text = {
        "a.csv": "\r\n".join(
            ["question\tanswer", *(f"{row['question']}\t{row['answer']}" for row in rows), ""]
        ),
        "a.jsonl": "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows),
    }[name]
    assert read(file(("\ufeff" + text).encode(encoding), name)) == rows


def test_utf16_that_breaks_off_is_named(file):
    with pytest.raises(ValueError, match=r"a\.csv: starts as UTF-16, but cannot be read"):
        read(file(("\ufeff" + PLAIN).encode("utf-16-le")[:-1]))


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_utf16_without_its_mark_is_named(file, name):
    with pytest.raises(ValueError, match=rf"{name}: line 1 holds a NUL byte.*iconv -f UTF-16LE"):
        read(file(PLAIN.encode("utf-16-le"), name))


def test_the_way_out_of_an_older_encoding_can_be_pasted(file):
    with pytest.raises(
        ValueError,
        match=r"line 2 is not UTF-8 \(byte 0x93.*`iconv -f WINDOWS-1252 -t UTF-8 a\.csv > "
        r"utf8-a\.csv`",
    ):
        read(file("question,answer\n“why”,2\n".encode("cp1252")))


@pytest.mark.parametrize(
    ("name", "row"),
    [("a.csv", "why\0?,2\n"), ("a.jsonl", '{"question": "why\\u0000?", "answer": "2"}\n')],
    ids=["csv", "jsonl"],
)
def test_a_question_with_a_nul_is_dropped_and_named(file, name, row):
    good = {"a.csv": PLAIN, "a.jsonl": "".join(json.dumps(row) + "\n" for row in TWO)}[name]
    report = load_task(str(file(good + row, name)), holdout_size=1).report
    assert report["dropped"] == {"question has a NUL character, which is no text": 1}
    assert (
        "row 3" in report["dropped_examples"]["question has a NUL character, which is no text"][0]
    )


# --- Delimiters -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    [
        "question;answer;note (a, b, c, or d)",
        '"question";"answer";"a, b | c, d"',
        "question;answer;a|b|c|d",
    ],
)
def test_the_columns_asked_for_choose_the_delimiter(file, header):
    rows = read(file(f"{header}\n1 + 1;2;x, y, z\n1 + 2;3;\n"))
    assert [{"question": row["question"], "answer": row["answer"]} for row in rows] == TWO


def test_where_they_are_not_there_the_rows_choose_it(file):
    path = file("Frage (a, b, c);Antwort\n1 + 1;2\n1 + 2;3\n")
    with pytest.raises(ValueError, match=r"It has: Frage \(a, b, c\), Antwort\."):
        read(path)
    assert read(path, {"question": "Frage (a, b, c)", "answer": "Antwort"}) == TWO


def test_a_line_that_names_the_delimiter_is_believed(file):
    assert read(file("\ufeffsep=^\r\nquestion^answer\r\n1 + 1^2\r\n1 + 2^3\r\n")) == TWO


# --- Rows -----------------------------------------------------------------------------------------


def test_a_line_number_is_that_of_the_file(file):
    rows = read(file('\n\nquestion,answer\n"one\n\ntwo",2\n   \nlonely\n"a\nb",2,3\n1 + 1,2\n'))
    broken = [row.where for row in rows if isinstance(row, Broken)]
    assert broken == ["line 8: 1 fields", "line 9: 3 fields"]
    assert [row["question"] for row in rows if isinstance(row, dict)] == ["one\n\ntwo", "1 + 1"]


def test_blank_fields_behind_the_last_column_are_no_fields(file):
    rows = read(file("question,answer\n1 + 1,2,\n1 + 2,3, ,\n1 + 3,4,,5\n"))
    assert rows[:2] == TWO and isinstance(rows[2], Broken)


def test_columns_without_a_name_are_left_out(file):
    rows = read(file(",question,answer,,\n0,1 + 1,2\n1,1 + 2,3,x,\n2,1 + 3\n"))
    assert rows[:2] == TWO and rows[2] == Broken("not 5 fields", "line 4: 2 fields")


@pytest.mark.parametrize(
    ("bad", "line"),
    [
        ('"so "it" goes",4', 3),
        ('"so \\"it\\" goes",4', 3),
        ('"open\n1,2\n3,4', 3),
        (f'"{"x" * 2**24}\n",1', 3),
    ],
)
def test_quotes_that_would_misread_the_rest_are_refused_with_the_line_they_start_at(
    file, bad, line
):
    with pytest.raises(
        ValueError,
        match=rf"a\.csv: the row that starts at line {line} cannot be read as CSV.*written twice",
    ):
        read(file(f"question,answer\n1 + 1,2\n{bad}\n1 + 2,3\n"))


def test_quotes_inside_a_field_without_quotes_are_text(file):
    assert read(file('question,answer\n5" or 6"?,6"\n'))[0] == {
        "question": '5" or 6"?',
        "answer": '6"',
    }


# --- Headers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "columns", "said"),
    [
        ("Question,ANSWER", None, "Did you mean 'Question', 'ANSWER'?"),
        (
            "Question,ANSWER",
            None,
            '? Map them with columns={"question": "Question", "answer": "ANSWER"}.',
        ),
        (
            "question,answers",
            None,
            "no column 'answer'. It has: question, answers. Did you mean 'answers'?",
        ),
        ("question,answers", None, 'columns={"question": "question", "answer": "answers"}.'),
        (
            "Frage,Lösung",
            None,
            'It has: Frage, Lösung. Map them with columns={"question": "…", "answer": "…"}.',
        ),
        ("problem,solution", {"question": "problme"}, "Did you mean 'problem'?"),
        (",".join(f"c{n}" for n in range(50)), None, "c19 and 30 more."),
    ],
)
def test_a_missing_column_gets_a_mapping_to_paste(file, header, columns, said):
    with pytest.raises(ValueError) as error:
        read(file(f"{header}\n{header.upper()}!\n"), columns)
    assert said in str(error.value)


@pytest.mark.parametrize("columns", [{"question": ["a"]}, {"question": 3}, ["question"]])
def test_a_mapping_to_what_is_no_name_is_refused(file, columns):
    with pytest.raises(ValueError, match="is not a mapping"):
        read(file(PLAIN), columns)


@pytest.fixture(params=["csv", "parquet"])
def doubled(request, file, tmp_path) -> Path:
    """A file with two columns `note`, and two `answer`."""
    names = ["question", "note", "solution", "note", "answer", "answer"]
    if request.param == "csv":
        return file(",".join(names) + "\n1 + 1,x,2,y,8,9\n")
    table = pyarrow.table([["1 + 1"], ["x"], ["2"], ["y"], ["8"], ["9"]], names=names)
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    return tmp_path / "a.parquet"


def test_a_column_that_is_there_twice_is_refused_where_it_is_asked_for(doubled):
    with pytest.raises(ValueError, match="the header names 'answer' more than once"):
        read(doubled)


def test_and_otherwise_neither_of_the_two_is_lost(doubled):
    rest = {"note": "x", "note.1": "y", "source_answer": "8", "answer.1": "9"}
    assert read(doubled, {"answer": "solution"}) == [{"question": "1 + 1", "answer": "2"} | rest]


# --- Too few --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("question,answer\n", r"a\.csv: a header \(question, answer\) and no row below it"),
        ("question,answer", "and no row below it"),
        ("\n  \n\n", "nothing but blank lines"),
        (
            sums(1),
            r"1 usable row gives 0 to train on and 1 to hold out, .*which need 2\. Bring more "
            r"rows: 2 are the least",
        ),
    ],
)
def test_a_file_with_too_little_says_what_it_takes(file, content, said):
    with pytest.raises(ValueError, match=said):
        load_task(str(file(content)), holdout_size=1)


def test_a_parquet_file_without_rows_is_named(tmp_path):
    pd.DataFrame({"question": [], "answer": []}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"a\.parquet: no usable row\. Read 0"):
        load_task(str(tmp_path / "a.parquet"), holdout_size=1)


# --- Many -----------------------------------------------------------------------------------------


def test_all_rows_are_accounted_for(file):
    report = load_task(
        str(file(sums(50) + sums(5) + "lonely\n,1\n")), train_size=30, holdout_size=8
    ).report
    assert report["dropped"] == {
        "the header again": 1,
        "duplicate question": 5,
        "not 2 fields": 1,
        "question is blank": 1,
    }
    assert report["rows_unused"] == 50 - 38
    parts = (
        sum(report["dropped"].values())
        + report["rows_unused"]
        + report["rows_train"]
        + report["rows_holdout"]
    )
    assert report["rows_read"] == parts == 58


def test_without_a_train_size_there_is_a_bound_and_it_is_said(file, monkeypatch, capsys):
    monkeypatch.setattr(tasks, "MOST_TRAINED", 20)
    path = str(file(sums(28)))
    everything = load_task(path, holdout_size=8)
    assert capsys.readouterr().out == "" and everything.report["rows_unused"] == 0
    path = str(file(sums(40)))
    bounded, asked = load_task(path, holdout_size=8), load_task(path, holdout_size=8, train_size=32)
    said = (
        "has 40 usable rows. 20 of them, drawn by the seed, are to train on; set train_size to "
        "take more or fewer."
    )
    assert capsys.readouterr().out.strip().endswith(said)
    assert (len(bounded.train), bounded.report["rows_unused"]) == (20, 12)
    assert bounded.train.equals(asked.train[:20]) and bounded.holdout.equals(asked.holdout)


def test_fewer_rows_are_the_first_of_the_same_draw_and_few_are_measured(file):
    path = str(file(sums(2000)))
    measured = {"count_tokens": len, "max_prompt_tokens": 2}
    everything, few = (
        load_task(path, holdout_size=20),
        load_task(path, train_size=30, holdout_size=20, **measured),
    )
    assert few.train.equals(everything.train[:30]) and few.holdout.equals(everything.holdout)
    assert 50 <= few.report["rows_measured"] < 400 and few.report["prompt_tokens"]["max"] == 2


def test_rows_that_do_not_fit_give_way_to_the_next_of_the_draw(file):
    path = str(file(sums(400)))

    def odd(messages):
        return int(messages[-1]["content"].split()[2]) % 2 + 1

    everything = load_task(path, holdout_size=1)
    fitting = load_task(path, train_size=30, holdout_size=10, count_tokens=odd, max_prompt_tokens=1)
    order = [*everything.holdout["question"], *everything.train["question"]]
    even = [question for question in order if int(question.split()[2]) % 2 == 0]
    assert [*fitting.holdout["question"], *fitting.train["question"]] == even[:40]
    assert 0 < fitting.report["dropped"]["prompt over 1 tokens"] < 200


MEMORY_SCRIPT = """
import pathlib, sys
from helpers.data.tasks import load_task

def peak():
    # Not ru_maxrss, which a process inherits from the one that started it.
    (line,) = [line for line in pathlib.Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024

peaks = []
for count in (30_000, 300_000):
    with open(sys.argv[1], "w") as file:
        file.write("question,answer,note\\n")
        file.writelines(f"What is {n} + {n % 977}? Say it in words.,{n + n % 977},row {n}\\n" for n in range(count))
    task = load_task(sys.argv[1], train_size=5_000, holdout_size=500)
    assert task.report["rows_unused"] == count - 5_500
    peaks.append(peak())
print(*peaks)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="the peak is read from /proc")
def test_two_million_rows_fit_in_a_gigabyte(tmp_path):
    """Projected from 30,000 and 300,000 rows, to spare the suite the half minute that two million
    take.
    """
    command = [sys.executable, "-c", MEMORY_SCRIPT, str(tmp_path / "many.csv")]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    few, many = map(int, done.stdout.split())
    a_row = (many - few) / 270_000
    assert 20 < a_row < 400, "a digest and a short answer is what a row may leave behind"
    assert few + 2_000_000 * a_row < 1e9


# --- Answers without room -------------------------------------------------------------------------


def test_an_answer_that_no_completion_has_room_for_is_dropped_and_named(file):
    count = prompt_token_counter(PRESETS["pocket"].model_path)
    room = count("<think></think><answer>1234</answer>")
    assert room == 8, "four tags and four digits"
    lines = (
        "question,answer\nWhat is 1 + 1?,2\nWhat is 617 + 617?,1234\nWhat is 6170 + 6175?,12345\n"
    )
    task = load_task(
        str(file(lines)), holdout_size=1, count_tokens=count, max_completion_tokens=room
    )
    assert task.report["dropped"] == {"answer over 8 tokens": 1}
    assert task.report["dropped_examples"] == {
        "answer over 8 tokens": ["row 3: What is 6170 + 6175? -> 12345"]
    }
    assert sorted([*task.train["answer"], *task.holdout["answer"]]) == ["1234", "2"]


@pytest.mark.parametrize("limit", ["max_prompt_tokens", "max_completion_tokens"])
def test_a_limit_without_a_counter_is_refused(file, limit):
    with pytest.raises(ValueError, match=f"{limit} needs count_tokens"):
        load_task(str(file(sums(5))), **{limit: 5})
