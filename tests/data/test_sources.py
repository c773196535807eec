"""Reading a source by its name, mapping its columns, and refusing what is not a chat model."""

import json
import sys
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from helpers.data.sources import check_source, read_source
from helpers.data.tasks import prompt_token_counter
from helpers.families import config_of
from helpers.presets import PRESETS


def read(source, columns=None, train_size=None, holdout_size=1, seed=1) -> list:
    return list(read_source(str(source), columns, train_size, holdout_size, seed))


# --- reasoning-gym --------------------------------------------------------------------------------


@pytest.mark.parametrize("door", [read, check_source])
def test_without_reasoning_gym_the_error_says_how_to_get_it(monkeypatch, door):
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(
        ValueError,
        match=r"reasoning-gym/leg_counting.*pip install reasoning-gym.*deploy/requirements-optional\.txt",
    ):
        door("reasoning-gym/leg_counting")


@pytest.mark.needs("reasoning_gym")
def test_reasoning_gym_rows_carry_the_entry_that_scores_them():
    rows = read("reasoning-gym/leg_counting", train_size=5, holdout_size=2)
    assert len(rows) == 7
    for row in rows:
        entry = json.loads(row["entry"])
        assert (entry["question"], entry["answer"]) == (row["question"], row["answer"])
        assert row["family"] == "leg_counting"


@pytest.mark.needs("reasoning_gym")
@pytest.mark.parametrize("door", [read, check_source])
def test_a_family_that_reasoning_gym_does_not_have_is_refused(door):
    with pytest.raises(ValueError, match=r"Did you mean .*leg_counting"):
        door("reasoning-gym/leg_countin")


# --- Names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["gsm8k", "rows.txt", "rows", "./no/such", "", 3])
def test_an_unknown_source_is_refused_with_the_known_kinds(source):
    with pytest.raises(ValueError, match=r"is not known.*sums.*reasoning-gym.*gsm8k.*\.csv, "):
        read(source)


# --- Columns --------------------------------------------------------------------------------------

PROBLEM = {"problem": "1 + 1", "solution": "2", "answer": "no", "split": "x", "prompt": "y"}


def file_of(folder: Path, *rows: dict) -> str:
    path = folder / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.mark.parametrize(
    ("rows", "columns", "found"),
    [
        (
            [PROBLEM | {"level": 1}],
            {"question": "problem", "answer": "solution"},
            [
                {"question": "1 + 1", "answer": "2", "level": 1}
                | {"source_answer": "no", "source_split": "x", "source_prompt": "y"}
                # mapped columns keep their names, too, for rewards that ask for them
                | {"problem": "1 + 1", "solution": "2"}
            ],
        ),
        (
            [{"prompt": "1 + 1", "target": "2", "photo": "a.png"}],
            {"question": "prompt", "answer": "target", "image": "photo"},
            [
                {"question": "1 + 1", "answer": "2", "image": "a.png"}
                | {"source_prompt": "1 + 1", "source_target": "2"}
            ],
        ),
        (
            [{"Question": "1 + 1", "ANSWER ": "2"}],
            None,
            [{"question": "1 + 1", "answer": "2", "Question": "1 + 1", "ANSWER ": "2"}],
        ),
        (
            [{"problem": "1 + 1", "answer": "2"}],
            {"question": "problem"},
            [{"question": "1 + 1", "answer": "2", "problem": "1 + 1"}],
        ),
        (
            # unit is an option of a reward, language is not
            [{"question": "q", "answer": "1", "language": "en", "unit": "m"}],
            None,
            [{"question": "q", "answer": "1", "language": "en", "source_unit": "m"}],
        ),
        (
            [{"question": "q", "answer": "1"}, {"question": "q"}],
            None,
            [{"question": "q", "answer": "1"}, {"question": "q", "answer": None}],
        ),
    ],
)
def test_columns_are_mapped_and_all_columns_are_kept(tmp_path, rows, columns, found):
    assert read(file_of(tmp_path, *rows), columns) == found


@pytest.mark.parametrize(
    ("names", "columns", "said"),
    [
        (["question", "answers"], None, "no column 'answer'. It has: question, answers. Map them"),
        (
            ["prompt", "reward_model"],
            None,
            'Map them with columns={"question": "prompt", "answer": "reward_model"}.',
        ),
        (["problem", "answer"], {"question": "problme"}, "no column 'problme'. It has: problem, "),
        ([f"column {n}" for n in range(99)], None, "column 8, column 9, column 10,"),
        (
            {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]},
            None,
            'columns={"question": "messages", "answer": "messages.-1.content"}.',
        ),
        (
            {"conversations": '[{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]'},
            None,
            'columns={"question": "conversations", "answer": "conversations.-1.value"}.',
        ),
        ([], {"question": [1]}, "is not a mapping of names to question and answer"),
        ([], ["question"], "is not a mapping of names to question and answer"),
        ([], {"level": "answer"}, "is not a mapping of names to question and answer"),
        (
            ["question", "answer"],
            {"image": "photo"},
            "no column 'photo'. It has: question, answer. Map them with columns="
            '{"question": "question", "answer": "answer", "image": "…"}',
        ),
    ],
)
def test_missing_columns_are_refused_with_a_proposal(tmp_path, names, columns, said):
    row = names if isinstance(names, dict) else dict.fromkeys(names, "x")
    path = file_of(tmp_path, row, row)
    with pytest.raises(ValueError) as error:
        read(path, columns)
    assert said in str(error.value)


@pytest.mark.parametrize("door", [read, check_source])
def test_a_folder_with_files_of_two_types_is_refused_with_these_types(tmp_path, door):
    file_of(tmp_path, PROBLEM)
    (tmp_path / "b.csv").touch()
    with pytest.raises(ValueError, match=r"\(\.csv, \.jsonl\)"):
        door(tmp_path)


# --- Models ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["runs/a/adapter", "runs/a/checkpoints/checkpoint-8", "{here}"])
def test_an_adapter_is_refused_as_a_model(tmp_path, model):
    (tmp_path / "adapter_config.json").touch()
    for door in (prompt_token_counter, config_of):
        with pytest.raises(ValueError, match="model=runs/NAME/merged"):
            door(model.replace("{here}", str(tmp_path)))


def test_a_checkpoint_of_a_whole_model_is_a_model(tmp_path):
    folder = tmp_path / "checkpoint-500"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "llama"}')
    assert config_of(str(folder)) == {"model_type": "llama"}


def test_a_model_without_a_chat_template_is_refused(tmp_path):
    AutoTokenizer.from_pretrained(PRESETS["pocket"].model_path).save_pretrained(tmp_path)
    (tmp_path / "chat_template.jinja").unlink()
    with pytest.raises(ValueError, match="-Instruct"):
        prompt_token_counter(str(tmp_path))
