"""The command `generate`: it answers questions in order, continues after an interruption, and
refuses unusable files.
"""

import json
import re
import shutil
from dataclasses import asdict

import pandas as pd
import pytest
from finished import change
from transformers import AutoModelForCausalLM, AutoTokenizer

from helpers.commands import generate
from helpers.data.prompts import example_turns
from helpers.presets import PRESETS
from helpers.runs import Run, write_json
from helpers.training import sampling

pytestmark = pytest.mark.usefixtures("one_thread")
POCKET = PRESETS["pocket"]
# settings that cannot go together with engine="transformers"
REFUSED = {"loss_type": "cispo", "vllm_importance_sampling_correction": True}
QUESTIONS = [f"What is {a} + {b}?" for a, b in ((1, 2), (45, 36), (9, 9), (20, 31), (7, 80))]


@pytest.fixture
def run(runs) -> Run:
    """A run whose merged model is the pocket model. Its recorded settings are no longer allowed."""
    run = Run("a")
    shutil.copytree(POCKET.model_path, run.path("merged"))
    run.path("adapter").mkdir()
    run.record("data", tags="think/answer", fingerprint="f")
    run.record("training", settings=asdict(POCKET) | REFUSED, seed=1, data="f")
    write_json(run.path("data_report.json"), {"system_prompt": "Think step by step."})
    return run


@pytest.fixture
def questions(tmp_path):
    file = tmp_path / "questions.jsonl"
    file.write_text(
        "".join(json.dumps({"question": q, "id": i}) + "\n" for i, q in enumerate(QUESTIONS))
    )
    return file


def test_the_runs_own_names_of_columns_are_remembered_where_the_file_has_them(
    answer, run, questions, tmp_path
):
    report = {"system_prompt": "Think.", "columns": {"question": "problem", "answer": "left"}}
    write_json(run.path("data_report.json"), report)
    file, target = tmp_path / "new.jsonl", tmp_path / "new-answers.jsonl"
    file.write_text(json.dumps({"problem": QUESTIONS[0]}) + "\n")
    assert answer(source=file, target=target)[0] == 0 and lines(target)[0]["completion"]
    assert answer()[0] == 0, "a file with a column `question` is read as before"


def lines(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def alone(question: str) -> str:
    """Return the answer of plain Transformers to one question, without batch or padding."""
    model, tokenizer = (
        c.from_pretrained(POCKET.model_path) for c in (AutoModelForCausalLM, AutoTokenizer)
    )
    messages = [
        {"role": "system", "content": "Think step by step."},
        {"role": "user", "content": question},
    ]
    inputs = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    output = model.generate(**inputs, max_new_tokens=POCKET.max_completion_length, do_sample=False)
    return tokenizer.decode(output[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)


@pytest.fixture
def answer(cli, run, questions, tmp_path):
    """A function that answers the questions, such as answer("--engine", "vllm"), and returns the
    exit code, standard output and standard error.
    """

    def call(*more, source=questions, target=tmp_path / "answers.jsonl"):
        files = ("--input", str(source), "--output", str(target))
        return cli("generate", "--run", run.name, *files, *more)

    return call


def test_without_a_gpu_vllm_is_refused(answer, machine, tmp_path):
    code, out, err = answer("--engine", "vllm")
    assert (code, out) == (2, "") and not (tmp_path / "answers.jsonl").exists()
    assert err.startswith("error: --engine vllm: ")


def test_every_question_is_answered_in_order_and_an_interrupted_run_goes_on(
    answer, tmp_path, monkeypatch
):
    monkeypatch.setattr(generate, "_BATCH", 2)
    target = tmp_path / "deep" / "answers.jsonl"
    code, out, _ = answer(target=target)
    assert code == 0 and out.splitlines()[-2].startswith("5 answers written")
    answered = lines(target)
    assert [(row["id"], row["question"]) for row in answered] == list(enumerate(QUESTIONS))
    assert answered[1]["completion"] == alone(QUESTIONS[1])
    assert set(answered[0]) == {"question", "id", "completion", "answer", "model"}
    # as if it had been killed while it wrote the third line
    content = target.read_bytes()
    written = content.splitlines(keepends=True)
    target.write_bytes(b"".join(written[:2]) + written[2][:20])
    assert "3 answers written" in answer(target=target)[1]
    assert target.read_bytes() == content, "as if it had never stopped"
    assert "already holds the answers" in answer(target=target)[1]


def test_the_worked_examples_of_the_training_are_in_every_prompt(answer, run, monkeypatch):
    asked = []
    sample = sampling.sample

    def recording(model, tokenizer, prompts, **how):
        asked.extend(prompts)
        return sample(model, tokenizer, prompts, **how)

    monkeypatch.setattr(sampling, "sample", recording)
    turns = example_turns([{"question": "What is 1 + 1?", "completion": "<answer>2</answer>"}])
    change(run, "data_report.json", lambda report: report.update(few_shot=turns))
    assert answer()[0] == 0
    assert [prompt[1:-1] for prompt in asked] == [turns] * len(QUESTIONS)
    assert [prompt[-1]["content"] for prompt in asked] == QUESTIONS


def test_a_rows_own_columns_and_missing_values_are_kept(answer, tmp_path):
    """The columns include a gold answer and the output of an earlier call. A blank and an endless
    question get no answer.
    """
    source, target = tmp_path / "q.parquet", tmp_path / "answers.jsonl"
    asked = [QUESTIONS[0], None, QUESTIONS[1], "1 + " * 2000, QUESTIONS[2]]
    pd.DataFrame(
        {
            "problem": asked,
            "answer": ["3", "4", "81", "5", "18"],
            "source_answer": ["a", "b", "c", "d", "e"],
            "completion": "mine",
            "weight": [0.5, float("nan"), None, 1.0, 2.0],
        }
    ).to_parquet(source)
    columns = ("--columns", '{"question": "problem"}')
    code, out, err = answer(*columns, source=source, target=target)
    assert code == 0 and "5 answers written" in out
    assert re.search(r"\b0 are null .*\b2 because", out)
    assert err.count("note: ") == 1 and "row 4 " in err
    rows, content = lines(target), target.read_bytes()
    assert [row["question"] for row in rows] == ["" if one is None else one for one in asked]
    assert rows[2]["completion"] == alone(QUESTIONS[1])
    assert [bool(row["completion"]) for row in rows] == [True, False, True, False, True]
    assert rows[1]["answer"] is None and rows[1]["weight"] is None and b"NaN" not in content
    kept = [(row["source_answer"], row["source_source_answer"]) for row in rows]
    assert kept[0] == ("3", "a") and rows[0]["source_completion"] == "mine"


def test_answers_without_a_block_are_counted(answer, run):
    change(run, "manifest.json", lambda manifest: manifest["data"].update(tags="work/result"))
    assert re.search(r"\b5 are null .*\b0 because", answer()[1])


def test_answers_of_another_run_or_model_are_not_mixed(answer, run, tmp_path):
    target = tmp_path / "answers.jsonl"
    assert answer()[0] == 0
    before = target.read_bytes()

    shutil.copytree(run.folder, run.folder.parent / "b")
    run.record("merge", dtype="torch.float32")
    for other in ([], ["--run", "b"]):
        code, _, err = answer(*other)
        assert code == 2 and target.name in err
        assert target.read_bytes() == before


def test_a_merged_model_of_an_earlier_training_is_named(answer, run):
    run.record("merge", training="before")
    # refused without a GPU, but only after the note
    assert "is from an earlier training" in answer("--engine", "vllm")[2]


def test_a_run_of_agents_answers_no_file_of_questions(answer, run):
    change(run, "manifest.json", lambda manifest: manifest["data"].update(notebook="10"))
    code, _, err = answer()
    assert code == 2 and "'a'" in err and "notebook 10" in err


@pytest.mark.parametrize(
    "line",
    [
        '{"question": "another", "completion": "x", "answer": null}\n',
        json.dumps({"question": QUESTIONS[0], "id": 0}) + "\n",
        "notes\n",
        "notes",
        "[]\n",
    ],
)
def test_an_output_file_with_other_content_is_refused_and_kept(answer, tmp_path, line):
    target = tmp_path / "answers.jsonl"
    target.write_text(line)
    code, _, err = answer()
    assert code == 2 and target.name in err
    assert target.read_text() == line


@pytest.mark.parametrize(
    ("content", "more", "said"),
    [
        ('{"problem": "q"}\n', [], "no column 'question'. It has: problem. Map them with col"),
        ('{"question": "q"}\n', ["--columns", '{"question": "q"}'], "no column 'q'. It has: que"),
        ('{"question": "q"}\n', ["--columns", "q"], "columns='q' is not a mapping"),
        ('{"question": "q"}\nnonsense\n', [], "row 2 cannot be read: not a JSON"),
        ("", [], "the file is empty"),
        (
            '{"question": "q"}\n',
            ["--input", "x.txt"],
            "x.txt: give a .csv, .json, .jsonl, .parquet file",
        ),
        ('{"question": "q"}\n', ["--output", "o.csv"], "name a .jsonl file"),
        ('{"question": "q"}\n', ["--run", "other"], "There is no run 'other'"),
    ],
)
def test_a_call_is_refused_before_the_model_loads(answer, tmp_path, content, more, said):
    source = tmp_path / "bad.jsonl"
    source.write_text(content)
    code, _, err = answer(*more, source=source)
    assert code == 2 and said in err
