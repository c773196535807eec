"""load_task: which rows are kept or dropped, how they are split, and how prompts are measured."""

import json
import os
import re
import subprocess
import sys

import pandas as pd
import pytest

from helpers import PROJECT
from helpers.data import tasks
from helpers.data.prompts import example_turns
from helpers.data.tasks import fingerprint, load_task, prompt_token_counter
from helpers.presets import PRESETS
from helpers.runs import Run
from helpers.tags import THINK_ANSWER, TagFormat


def numbered(count: int) -> list[dict]:
    return [{"question": f"What is {n} + 0?", "answer": str(n)} for n in range(count)]


@pytest.fixture
def load(tmp_path):
    """Return a function that calls load_task on a JSONL file of these rows."""

    def load_rows(rows: list, **arguments) -> tasks.Task:
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return load_task(str(path), **{"holdout_size": 1} | arguments)

    return load_rows


def both(task) -> pd.DataFrame:
    return pd.concat([task.train, task.holdout])


# --- What is dropped ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"question": " ", "answer": "1"}, "question is blank"),
        ({"question": None, "answer": "1"}, "question is blank"),
        ({"question": float("nan"), "answer": "1"}, "question is blank"),
        ({"question": "q", "answer": "\n"}, "answer is blank"),
        ({"question": "q", "answer": None}, "answer is blank"),
        ({"question": "q", "answer": float("nan")}, "answer is blank"),
        ({"question": "q", "answer": "so #### "}, "there is not exactly one answer in ####"),
        ({"question": "q", "answer": ["1", "2"]}, "answer is a list, not text"),
        ({"question": {"text": "q"}, "answer": "1"}, "question is a dict, not text"),
        ({"question": " what is  0 + 0? ", "answer": "0"}, "duplicate question"),
        ({"question": "nan", "answer": "1"}, "question is a missing value"),
        *(
            ({"question": f"q{word}", "answer": word}, "answer is a missing value")
            for word in ("NaN", "None", " N/A", "-", "#### n/a", "NULL", "NA", "#DIV/0!", "#N/A")
        ),
        ({"question": "Ｗhat is ０ + 0?", "answer": "0"}, "duplicate question"),
        ({"question": "What is 0\u200b + 0?", "answer": "0"}, "duplicate question"),
        ({"question": "q"}, "answer is blank"),
        (["q", "1"], "not a JSON object"),
        # half of a character cannot be tokenised
        (
            {"question": "q \ud800", "answer": "1"},
            "question has a lone surrogate, which is not text",
        ),
    ],
)
def test_a_bad_row_is_dropped_and_counted_with_its_reason(load, bad, reason):
    task = load([*numbered(3), *[bad] * 5])
    assert task.report["dropped"] == {reason: 5}
    assert len(task.report["dropped_examples"][reason]) == 3
    assert sorted(both(task)["answer"]) == ["0", "1", "2"]


def test_a_missing_value_is_an_answer_if_the_kind_is_text_or_exact(load):
    rows = [{"question": f"q{word}", "answer": word} for word in ("None", "-", "nan")]
    for kind in ("text", "exact"):
        assert sorted(both(load(rows, kind=kind))["answer"]) == ["-", "None", "nan"]
        assert len(both(load([row | {"kind": kind} for row in rows]))) == 3
    with pytest.raises(ValueError, match="3 × answer"):
        load(rows, kind="number")


def test_all_rows_of_a_question_with_two_answers_are_dropped(load):
    twice = {"question": " what is  0 + 0? ", "answer": "7"}
    task = load([*numbered(4), twice, numbered(1)[0]])
    assert sorted(both(task)["answer"]) == ["1", "2", "3"]
    assert task.report["dropped"] == {"question with two answers": 3}
    assert task.report["dropped_examples"]["question with two answers"] == [
        "row 1: 'What is 0 + 0?' -> '0'",
        "row 5: 'what is  0 + 0?' -> '7'",
        "row 6: 'What is 0 + 0?' -> '0'",
    ]


def test_all_rows_are_accounted_for(tmp_path):
    """Each row is dropped for one reason, unused, trained on, or held out."""
    sums = [f"What is {n} + 1?,{n + 1}" for n in range(50)]
    lines = ["question,answer", *sums, *sums[:5], "lonely", ",1", ""]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    task = load_task(str(tmp_path / "a.csv"), train_size=30, holdout_size=8, seed=5)
    expected = {"rows_read": 57, "rows_train": 30, "rows_holdout": 8, "rows_unused": 12, "seed": 5}
    assert expected.items() <= json.loads(json.dumps(task.report)).items()
    assert re.findall(r"\d+", task.line) == ["50", "57", "1", "2", "1", "5", "30", "8", "12"]
    assert all(f"{n} × {reason}" in task.line for reason, n in task.report["dropped"].items())


# --- Columns --------------------------------------------------------------------------------------

ODD = {
    "mixed types": [1, "a", [1], {}],
    "beyond 64 bits": [2**70],
    "a lone surrogate": ["\ud800"],
    "an empty object": [{}],
    "an empty object inside": [[{"y": {}}]],
}


@pytest.mark.parametrize("values", ODD.values(), ids=ODD)
def test_a_column_that_cannot_be_stored_is_left_out_by_name(load, capsys, machine, values):
    more = {"kept": 1, "no name \ud800": 2}
    rows = [row | more | {"odd": values[n % len(values)]} for n, row in enumerate(numbered(9))]
    task = load(rows, holdout_size=3)
    left_out = task.report["columns_dropped"]
    assert set(left_out) == {"odd", "no name \\ud800"}
    assert "Parquet" in left_out["odd"]
    assert "column left out: odd" in capsys.readouterr().out
    run = Run("odd")
    tasks.save(run, task, PRESETS["pocket"])
    assert list(pd.read_parquet(run.require("data/train.parquet"))) == [
        "prompt",
        "question",
        "answer",
        "kept",
    ]
    assert run.section("data")["fingerprint"] == run.read_object("data_report.json")["fingerprint"]


def test_the_name_of_a_column_that_is_left_out_is_printed_escaped(load, capsys):
    load([row | {"odd\x1b[31m": {}} for row in numbered(9)], holdout_size=3)
    assert r"column left out: odd\x1b[31m (" in capsys.readouterr().out


# --- The split ------------------------------------------------------------------------------------


def test_a_question_is_never_on_both_sides(load):
    sizes = {"train_size": 200, "holdout_size": 50, "seed": 9}
    for task in (load(numbered(400) * 2, **sizes), load_task("arithmetic/sums", **sizes)):
        assert (len(task.train), len(task.holdout)) == (200, 50)
        assert both(task)["question"].is_unique
        assert "split" not in both(task)


def test_without_a_train_size_there_is_a_maximum_and_the_line_names_it(load, monkeypatch):
    monkeypatch.setattr("helpers.data.rows.DEFAULT_TRAIN_LIMIT", 20)
    limited = load(numbered(40), holdout_size=8)
    whole = load(numbered(40), holdout_size=8, train_size=32)
    assert re.findall(r"\d+", limited.line)[-3:] == ["20", "8", "12"]
    assert limited.train.equals(whole.train[:20])
    assert limited.holdout.equals(whole.holdout)


@pytest.mark.parametrize(
    ("rows", "train_size", "sizes"),
    [
        (300, None, (225, 75)),
        (300, 250, (250, 50)),
        (300, 100, (100, 75)),
        (1024, None, (768, 256)),
        (1200, None, (944, 256)),
        (3, None, (2, 1)),
    ],
)
def test_without_a_holdout_size_at_most_a_quarter_is_held_out(load, rows, train_size, sizes):
    task = load([*numbered(rows), *numbered(2)], holdout_size=None, train_size=train_size)
    assert (len(task.train), len(task.holdout)) == sizes


def test_the_split_of_a_seed_is_the_one_it_always_was(load):
    """In any order of the rows, so that runs of earlier versions can be reproduced."""
    task = load(numbered(10)[::-1], holdout_size=3, seed=7)
    assert "".join(task.holdout["answer"]) == "806"
    assert "".join(task.train["answer"]) == "4752319"


def test_a_fingerprint_changes_with_every_question_and_answer():
    first = {"question": "q", "answer": "1"}
    second = {"question": "r", "answer": "1"}
    changed = [
        [second, first],
        [first | {"question": "Q"}, second],
        [first | {"answer": "2"}, second],
        [{"question": "q1", "answer": ""}, second],
    ]
    assert fingerprint([first, second]) not in map(fingerprint, changed)
    assert fingerprint([first, second]) == fingerprint([first | {"level": 3}, second])


@pytest.mark.parametrize(
    ("rows", "sizes", "said"),
    [
        (
            numbered(10),
            {"train_size": 8, "holdout_size": 3},
            "10 usable rows give 7 to train on and 3 to hold out.*train_size=8.*Add more rows",
        ),
        (numbered(10), {"holdout_size": 11}, "give 0 to train on and 10 to hold.*holdout_size=11"),
        (numbered(10), {"holdout_size": 10}, "give 0 to train on and 10 to hold out"),
        (
            [{"question": "", "answer": "1"}, {"question": "q", "answer": ""}],
            {},
            "0 usable.*1 × question is blank, 1 × answer is blank. For example, question is blank: row 1: '' -> '1'",
        ),
    ],
)
def test_too_few_rows_are_an_error_with_the_numbers(load, rows, sizes, said):
    with pytest.raises(ValueError, match=said):
        load(rows, **sizes)


# --- Rows -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "system"),
    [
        ({}, THINK_ANSWER.system_prompt),
        ({"tags": TagFormat("reasoning", "final")}, TagFormat("reasoning", "final").system_prompt),
        ({"system_prompt": "Be brief."}, "Be brief."),
        ({"system_prompt": ""}, None),
    ],
    ids=["default", "tags", "own", "none"],
)
def test_a_prompt_is_the_system_message_and_the_question(load, arguments, system):
    task = load([{"level": 3, "answer": 7, "question": " q "}, *numbered(1)], **arguments)
    row = both(task).set_index("question").loc["q"]
    user = {"role": "user", "content": "q"}
    assert row["prompt"] == (
        [user] if system is None else [{"role": "system", "content": system}, user]
    )
    assert (row["answer"], row["level"]) == ("7", 3)
    assert list(task.train.columns)[:3] == ["prompt", "question", "answer"]
    assert task.report["system_prompt"] == (system or "")


EXAMPLES = [{"question": "What is 1 + 0?", "completion": " <think>1</think><answer>1</answer>"}]


@pytest.mark.parametrize("way", ["list", "file"])
def test_worked_examples_are_in_every_prompt_and_their_questions_are_dropped(load, tmp_path, way):
    file = tmp_path / "examples.jsonl"
    file.write_text(json.dumps(EXAMPLES[0]) + "\n")
    examples = EXAMPLES if way == "list" else str(file)
    task = load(
        [*numbered(3), {"question": "what is 1  + 0?", "answer": "1"}],
        few_shot=examples,
        system_prompt="Add.",
        count_tokens=words,
    )
    turns = [
        {"role": "user", "content": "What is 1 + 0?"},
        {"role": "assistant", "content": "<think>1</think><answer>1</answer>"},
    ]
    assert task.report["few_shot"] == turns and "note:" not in task.line
    assert task.report["dropped"] == {"question is a worked example": 2}
    assert task.report["prompt_tokens"]["max"] == 1 + 5 + 1 + 5
    for row in both(task).to_dict("records"):
        question = {"role": "user", "content": row["question"]}
        assert row["prompt"] == [{"role": "system", "content": "Add."}, *turns, question]
    assert (
        task.report["fingerprint"] != load([numbered(1)[0], numbered(3)[2]]).report["fingerprint"]
    )


@pytest.mark.parametrize(
    ("tags", "completion", "is_named"),
    [
        ("think/answer", "1", True),
        ("reasoning/answer", EXAMPLES[0]["completion"], True),
        ("think/answer/open", EXAMPLES[0]["completion"], False),
    ],
)
def test_worked_examples_in_another_format_are_named(load, tags, completion, is_named):
    examples = [{"question": "What is 1 + 0?", "completion": completion}]
    line = load(numbered(5), few_shot=examples, tags=TagFormat.parse(tags)).line
    assert ("note: worked examples" in line) == is_named


def test_worked_examples_that_the_limit_would_cut_off_are_named_with_a_limit_that_holds_them(load):
    """The answers fit: it is the reasoning of the example that does not."""
    examples = [
        {"question": f"What is {n} + 0?", "completion": "<think>" + "a " * 9 + n} for n in "18"
    ]
    asked = {
        "few_shot": examples,
        "count_tokens": lambda text: len(text.split()) if isinstance(text, str) else 1,
    }
    note = load(numbered(9), **asked, max_completion_tokens=8).report["notes"][-1]
    assert re.search("max_completion_length=8: 2 of 2", note)
    enough = int(re.search("to ([0-9]+) or more", note)[1])
    told = [
        "cut off" in load(numbered(9), **asked, max_completion_tokens=limit).line
        for limit in (enough - 1, enough)
    ]
    assert told == [True, False]


def test_generated_rows_make_up_for_those_that_are_worked_examples():
    arguments = {"train_size": 20, "holdout_size": 10}
    plain = load_task("arithmetic/sums", **arguments)
    questions = {*plain.train["question"][:2], *plain.holdout["question"][:2]}
    examples = [{"question": question, "completion": "?"} for question in questions]
    task = load_task("arithmetic/sums", **arguments, few_shot=examples)
    assert (len(task.train), len(task.holdout)) == (20, 10)
    assert not set(both(task)["question"]) & questions


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "the file is empty"),
        ("\n", "the file has no worked examples"),
        ('{"question": "q", "answer": "1"}', "This one is not: row 2: {'question': 'q', 'answer'"),
        ('{"question": "q", "completion": " "}', "both texts that are not blank"),
        ('{"question": "q", "completion": 5}', "This one is not: row 2"),
        ("[1", "This one is not: row 2: "),
    ],
)
def test_an_invalid_worked_example_is_refused_with_its_row(tmp_path, line, said):
    file = tmp_path / "examples.jsonl"
    file.write_text(json.dumps(EXAMPLES[0]) + "\n" + line if line.strip() else line)
    with pytest.raises(ValueError, match=re.escape(said)):
        example_turns(str(file))


# --- Tokens ---------------------------------------------------------------------------------------


def words(messages: list[dict]) -> int:
    return sum(len(message["content"].split()) for message in messages)


def test_prompts_over_the_limit_are_dropped_and_counted(load):
    rows = [{"question": f"q{n} " * n, "answer": "1"} for n in range(1, 21)]
    # with the holdout, all 15 rows that fit are needed
    task = load(rows, train_size=14, system_prompt="", count_tokens=words, max_prompt_tokens=15)
    assert task.report["dropped"] == {"prompt over 15 tokens": 5}
    assert sorted(map(words, both(task)["prompt"])) == list(range(1, 16))
    assert task.report["prompt_tokens"] == {"min": 1, "p50": 10, "p90": 18, "p99": 19, "max": 20}


def test_fewer_rows_are_the_first_of_the_same_draw_and_few_are_measured(load):
    rows = numbered(2000)
    everything = load(rows, holdout_size=20)
    measured = []
    few = load(
        rows, train_size=30, holdout_size=20, count_tokens=lambda text: measured.append(text) or 2
    )
    assert few.train.equals(everything.train[:30]) and few.holdout.equals(everything.holdout)
    assert 50 <= len(measured) < 800, "two texts a row"


def test_an_answer_that_does_not_fit_into_a_completion_is_dropped(load):
    count = prompt_token_counter(PRESETS["pocket"].model_path)
    room = count("<think></think><answer>1234</answer>")  # four tags and four digits
    rows = [{"question": f"What is {n} + 0?", "answer": str(n)} for n in (2, 1234, 12345)]
    task = load(rows, count_tokens=count, max_completion_tokens=room)
    assert task.report["dropped_examples"] == {
        "answer over 8 tokens": ["row 3: 'What is 12345 + 0?' -> '12345'"]
    }


# --- The hub --------------------------------------------------------------------------------------

HUB_SCRIPT = """
import json
from helpers.data.tasks import load_task, prompt_token_counter

def error(call, *arguments, **named):
    try:
        call(*arguments, **named)
    except ValueError as error:
        return str(error)

task = load_task("openai/gsm8k")
other = load_task("other", holdout_size=1, columns={"question": "problem", "answer": "solution"})
print(json.dumps({
    "train": sorted(task.train["answer"]), "holdout": sorted(task.holdout["question"]),
    "dropped": task.report["dropped"],
    "other": sorted([*other.train["question"], *other.holdout["question"]]),
    "unreachable": error(load_task, "nobody/nothing-there"),
    "config": error(load_task, "openai/gsm8k:nope"),
    "too many": error(load_task, "openai/gsm8k", holdout_size=256),
    "model": error(prompt_token_counter, "nobody/no-model"),
}))
"""
CARD = """---
configs:
- config_name: main
  data_files:
  - split: train
    path: train.jsonl
  - split: test
    path: test.jsonl
---
"""


def test_gsm8k_keeps_its_split_and_a_missing_data_set_is_an_error(tmp_path):
    """GSM8K is a local folder of the same name here, and there is no network."""
    data = tmp_path / "openai" / "gsm8k"
    data.mkdir(parents=True)
    (data / "README.md").write_text(CARD, encoding="utf-8")
    (tmp_path / "other").mkdir()
    splits = {
        data / "train.jsonl": [("question", "answer", n) for n in (1000, 2000, 3000, 4000)],
        data / "test.jsonl": [("question", "answer", n) for n in (5, 6, 4000)],
        tmp_path / "other/validation.jsonl": [("problem", "solution", n) for n in range(3)],
    }
    for path, rows in splits.items():
        lines = [{asked: f"q{n}", gold: f"working\n#### {n:,}"} for asked, gold, n in rows]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    # the hub's libraries read these variables once, when they are imported
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf"), "PYTHONPATH": str(PROJECT)}
    environment = os.environ | offline
    environment.pop("HF_DATASETS_CACHE", None)
    command = [sys.executable, "-c", HUB_SCRIPT]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    hub = json.loads(done.stdout.splitlines()[-1])
    assert hub["train"] == ["1000", "2000", "3000", "4000"]
    assert hub["holdout"] == ["q5", "q6"], "its whole test split"
    assert hub["dropped"] == {"duplicate question": 1}
    assert hub["other"] == ["q0", "q1", "q2"], "it has no test split"
    said = [
        ("unreachable", "'nobody/nothing-there' could not be fetched (ConnectionError"),
        ("config", "Available: ['main']"),
        ("too many", "2 to hold out, but train_size=None and holdout_size=256 were asked for"),
        ("model", "the tokenizer of 'nobody/no-model' could not be fetched"),
        ("model", "HF_TOKEN"),
    ]
    for case, sentence in said:
        assert sentence in hub[case]


# --- Kinds of answers -----------------------------------------------------------------------------


def test_a_declared_kind_is_written_to_a_column_and_an_own_column_is_kept(load):
    assert list(both(load(numbered(5), kind="text"))["kind"]) == ["text"] * 5
    assert "kind" not in both(load(numbered(5)))
    rows = [row | {"kind": "text" if n % 2 else None} for n, row in enumerate(numbered(6))]
    assert list(both(load(rows))["kind"].fillna("")).count("text") == 3


@pytest.mark.parametrize("kind", ["set", "mathematics"])
def test_a_list_in_json_lines_is_the_answer_of_a_set(kind, tmp_path):
    rows = [{"question": f"Roots of {n}?", "answer": [n, f"-{n}"]} for n in range(1, 7)]
    rows.append({"question": "Which colours?", "answer": ["red", "blue"]})
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = load_task(str(file), kind=kind, holdout_size=2)
    answers = {*task.train["answer"], *task.holdout["answer"]}
    assert answers == {f"{n}, -{n}" for n in range(1, 7)}
