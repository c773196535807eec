"""Where rows come from: arithmetic, reasoning-gym, files and hub data sets, and what is said where
they cannot be read.
"""

import importlib.util
import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from helpers.data.sources import Broken, model_files, read_source
from helpers.presets import PRESETS


def read(source, columns=None, train_size=None, holdout_size=1, seed=1) -> list:
    return list(read_source(str(source), columns, train_size, holdout_size, seed))


@pytest.fixture
def file(tmp_path):
    """Write a file of this name with these bytes or this text; returns its path."""

    def write(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


# --- reasoning-gym --------------------------------------------------------------------------------

has_gym = importlib.util.find_spec("reasoning_gym") is not None


@pytest.mark.skipif(has_gym, reason="reasoning-gym is installed")
def test_without_reasoning_gym_the_error_says_how_to_get_it():
    with pytest.raises(
        ValueError,
        match=r"reasoning-gym/leg_counting.*pip install reasoning-gym.*requirements-optional\.txt",
    ):
        read("reasoning-gym/leg_counting")


@pytest.mark.skipif(not has_gym, reason="reasoning-gym is not installed")
def test_reasoning_gym_rows_carry_the_entry_that_scores_them():
    rows = read("reasoning-gym/leg_counting", train_size=5, holdout_size=2)
    assert len(rows) == 7
    for row in rows:
        entry = json.loads(row["entry"])
        assert (entry["question"], entry["answer"]) == (row["question"], row["answer"])
        assert row["family"] == "leg_counting"


@pytest.mark.skipif(not has_gym, reason="reasoning-gym is not installed")
def test_an_unknown_reasoning_gym_family_suggests_a_known_one():
    with pytest.raises(ValueError, match=r"Did you mean .*leg_counting"):
        read("reasoning-gym/leg_countin")


# --- Names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [None, 3, "", "  "])
def test_what_names_no_source_is_refused(source):
    with pytest.raises(ValueError, match="is not a data source"):
        read_source(source, None, None, 1, 1)


@pytest.mark.parametrize("source", ["gsm8k", "rows.json", "rows"])
def test_an_unknown_name_gets_the_kinds_of_source(source):
    with pytest.raises(
        ValueError,
        match=r"is not known.*sums.*reasoning-gym.*openai/gsm8k.*\.csv, \.jsonl, \.parquet",
    ):
        read(source)


# --- Files ----------------------------------------------------------------------------------------

TWO = [{"question": "1 + 1", "answer": "2"}, {"question": "1 + 2", "answer": "3"}]


def test_a_missing_file_gets_a_near_name(file):
    path = file("train.csv", "question,answer\n")
    with pytest.raises(ValueError, match=r"trian\.csv: no such file\. Did you mean .*train\.csv\?"):
        read(path.with_name("trian.csv"))


@pytest.mark.parametrize("name", ["nothing/like/it.csv", "zzz.parquet"])
def test_a_missing_file_without_a_neighbour_is_just_missing(tmp_path, name):
    with pytest.raises(ValueError, match=r"no such file.$"):
        read(tmp_path / name)


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
def test_an_empty_file_is_named(file, name):
    with pytest.raises(ValueError, match=f"{name}: the file is empty"):
        read(file(name, ""))


@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["unix", "windows"])
@pytest.mark.parametrize("delimiter", list(",;\t|"))
@pytest.mark.parametrize("bom", ["", "\ufeff"], ids=["plain", "bom"])
def test_a_csv_is_read_with_any_usual_delimiter(file, end, delimiter, bom):
    lines = [f"question{delimiter} answer ", f"1 + 1{delimiter}2", "", f"1 + 2{delimiter}3", ""]
    assert read(file("ROWS.CSV", bom + end.join(lines))) == TWO


def test_a_quoted_field_may_hold_newlines_delimiters_and_quotes(file):
    rows = read(file("a.csv", 'question,answer\n"one,\ntwo ""three""",4\n5,6\n'))
    assert rows == [
        {"question": 'one,\ntwo "three"', "answer": "4"},
        {"question": "5", "answer": "6"},
    ]


def test_a_field_may_be_a_million_characters_long(file):
    assert read(file("a.csv", f"question,answer\n{'x' * 10**6},4\n"))[0]["question"] == "x" * 10**6


def test_rows_of_another_length_are_set_aside_with_their_line(file):
    rows = read(file("a.csv", "question,answer\n1 + 1,2\nlonely\n1,2,3\n1 + 2,3\n"))
    assert [row for row in rows if isinstance(row, dict)] == TWO
    broken = [row for row in rows if isinstance(row, Broken)]
    assert {row.reason for row in broken} == {"not 2 fields"}
    assert [row.where for row in broken] == ["line 3: 1 fields", "line 4: 3 fields"]


def test_a_header_that_names_a_column_twice_is_refused(file):
    with pytest.raises(ValueError, match="names 'answer' more than once"):
        read(file("a.csv", "question,answer, answer\n1,2,3\n"))


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_the_line_that_is_not_utf8_is_named(file, name):
    good = {
        "a.csv": b"question,answer\n1,2\n",
        "a.jsonl": b"".join(json.dumps(row).encode() + b"\n" for row in TWO),
    }
    with pytest.raises(
        ValueError, match=rf"{name}: line 3 is not UTF-8 \(byte 0xe9 at column 4\).*iconv"
    ):
        read(file(name, good[name] + b"caf\xe9,3\n"))


def test_a_byte_order_mark_does_not_shift_the_byte_that_is_not_utf8(file):
    with pytest.raises(ValueError, match=r"line 1 is not UTF-8 \(byte 0xe9"):
        read(file("a.csv", b"\xef\xbb\xbfquestion,caf\xe9,answer\n1,2,3\n"))


def test_an_unclosed_quote_does_not_swallow_the_rows_behind_it(file):
    with pytest.raises(ValueError, match="line"):
        read(file("a.csv", 'question,answer\n1 + 1,2\n1 + 2,"3\n1 + 3,4\n1 + 4,5\n'))


def test_old_macintosh_line_ends_are_read_or_named_with_the_file(file):
    path = file("a.csv", "question,answer\r1 + 1,2\r1 + 2,3\r")
    try:
        assert read(path) == TWO
    except ValueError as error:
        assert "a.csv" in str(error)


def test_a_blank_line_above_the_header_is_skipped(file):
    assert read(file("a.csv", "\nquestion,answer\n1 + 1,2\n1 + 2,3\n")) == TWO


def test_jsonl_lines_that_hold_no_row_are_set_aside(file):
    one, two = map(json.dumps, TWO)
    lines = [
        one,
        '{"question": ',
        "",
        '["a", "list"]',
        "7",
        "[" * 100_000,
        two,
        '{"question": "q"}',
    ]
    rows = read(file("a.jsonl", "\ufeff" + "\n".join(lines)))
    assert [row for row in rows if isinstance(row, dict)] == TWO
    broken = [row for row in rows if isinstance(row, Broken)]
    reasons = ["not JSON", "not a JSON object", "not a JSON object", "not JSON", "no answer"]
    assert [row.reason for row in broken] == reasons
    assert [row.where.partition(":")[0] for row in broken[:4]] == [
        "line 2",
        "line 4",
        "line 5",
        "line 6",
    ]


def test_a_parquet_file_keeps_its_other_columns_and_types(tmp_path):
    pd.DataFrame(TWO).assign(level=[1, 2], parts=[["a"], ["b", "c"]]).to_parquet(
        tmp_path / "a.parquet"
    )
    rows = read(tmp_path / "a.parquet")
    assert rows == [
        TWO[0] | {"level": 1, "parts": ["a"]},
        TWO[1] | {"level": 2, "parts": ["b", "c"]},
    ]


@pytest.mark.parametrize("damage", ["not parquet", "cut off", "data", "footer"])
def test_a_corrupt_parquet_file_is_named(tmp_path, damage):
    path = tmp_path / "a.parquet"
    pd.DataFrame(
        {"question": [f"q{n}" for n in range(5000)], "answer": [str(n) for n in range(5000)]}
    ).to_parquet(path)
    whole = path.read_bytes()
    zap = b"Z" * 190
    path.write_bytes(
        {
            "not parquet": b"question,answer\n1,2\n",
            "cut off": whole[: len(whole) // 2],
            "data": whole[:100] + zap * 10 + whole[100 + len(zap * 10) :],
            "footer": whole[:-200] + zap + whole[-10:],
        }[damage]
    )
    with pytest.raises(ValueError, match=r"a\.parquet"):
        read(path)


# --- Columns --------------------------------------------------------------------------------------

PROBLEMS = (
    '{"problem": "1 + 1", "solution": "2", "answer": "no", "split": "x", "prompt": "y", '
    '"level": 1}\n'
)


def test_columns_of_other_names_are_mapped_and_the_rest_is_kept(file):
    rows = read(file("a.jsonl", PROBLEMS), {"question": "problem", "answer": "solution"})
    renamed = {"source_answer": "no", "source_split": "x", "source_prompt": "y"}
    assert rows == [{"question": "1 + 1", "answer": "2", "level": 1} | renamed]


def test_one_column_can_be_mapped_alone(file):
    assert read(file("a.jsonl", PROBLEMS), {"question": "problem"})[0]["answer"] == "no"


@pytest.mark.parametrize("columns", [None, {"question": "qestion"}])
def test_a_missing_column_names_those_there_are(file, columns):
    with pytest.raises(
        ValueError, match=r"no column 'q.*It has: problem, solution, answer.*columns="
    ):
        read(file("a.jsonl", PROBLEMS), columns)


def test_only_question_and_answer_can_be_mapped(file):
    with pytest.raises(ValueError, match="maps level, but only 'question' and 'answer'"):
        read(file("a.jsonl", PROBLEMS), {"level": "answer"})


# --- A model's files ------------------------------------------------------------------------------

POCKET = Path(PRESETS["pocket"].model_path)


@pytest.fixture
def model(tmp_path) -> Path:
    return Path(
        shutil.copytree(POCKET, tmp_path / "model", ignore=shutil.ignore_patterns("*.safetensors"))
    )


def test_the_embedded_models_files_are_found():
    tokenizer, template, special = model_files(str(POCKET))
    assert tokenizer == POCKET / "tokenizer.json"
    assert template == (POCKET / "chat_template.jinja").read_text(encoding="utf-8")
    assert special == {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}


def test_the_template_and_the_tokens_may_stand_in_the_config(model):
    (model / "chat_template.jinja").unlink()
    config = {
        "chat_template": "{{ bos_token }}",
        "bos_token": {"content": "<s>"},
        "unk_token": None,
        "x": 1,
    }
    (model / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    assert model_files(str(model))[1:] == ("{{ bos_token }}", {"bos_token": "<s>"})


@pytest.mark.parametrize(
    ("file_name", "said"),
    [
        ("tokenizer.json", "tokenizer.json or tokenizer_config.json is missing"),
        ("tokenizer_config.json", "tokenizer.json or tokenizer_config.json is missing"),
        ("chat_template.jinja", "has no chat template.*-Instruct"),
    ],
)
def test_a_missing_model_file_is_named(model, file_name, said):
    (model / file_name).unlink()
    with pytest.raises(ValueError, match=said):
        model_files(str(model))
