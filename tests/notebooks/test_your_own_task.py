"""Notebook 07: one small run on real libraries, what it leaves for the others, its reward, and how
it refuses bad input.
"""

import json
import os
import re
import subprocess
import sys

import nbformat
import pandas as pd
import pytest
from reading import cells, defined, notebook

from helpers import PROJECT
from helpers.commands.run import run_notebooks
from helpers.data.tasks import load_task
from helpers.runs import Run
from helpers.tags import THINK_ANSWER, completion_text

pytestmark = pytest.mark.slow

GOLD = '{"item": "green tea", "quantity": 3, "city": "Lyon"}'


@pytest.fixture(scope="module")
def rewards():
    """The rewards that the notebook defines, without running the rest of it."""
    given = {"json": json, "fmt": THINK_ANSWER, "completion_text": completion_text}
    given |= {"example": False, "rewards": None}  # so that no file is read
    lines = ("SCHEMA =", "def extraction_reward(", "def values_found_reward(")
    return defined("07", *lines, **given)


# --- A run ----------------------------------------------------------------------------------------


def test_the_limits_come_from_the_data(lesson):
    run, printed = lesson("07")
    assert "data: 700 of 708 rows usable" in printed and "3 × prompt over 64 tokens" in printed
    limit = run.section("data")["settings"]["max_prompt_length"]
    lengths = run.read_object("data_report.json")["prompt_tokens"]
    assert 1.1 * lengths["p99"] <= limit < lengths["max"]
    assert run.read_object("reward_report.json")["verdict"]["go"] is True


def test_worked_examples_are_the_given_ones_and_then_rows(tmp_path, monkeypatch):
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    one = {"question": "7 bags of rice to Oslo", "completion": "<answer>{}</answer>"}
    code = [cell.source for cell in cells(notebook("07")) if cell.cell_type == "code"]
    names = {"display": lambda table: None}
    for source in code[1 : 1 + next(i for i, s in enumerate(code[1:], 1) if "save(folder" in s)]:
        exec(source, names)
        if "shots = 0" in source:
            names |= {"few_shot": [one], "shots": 1, "run": "worked"}
    run = Run("worked")
    examples = run.read_object("data_report.json")["few_shot"]
    assert [turn["content"] for turn in examples[:2]] == list(one.values())
    assert len(examples) == 4 and examples[2]["content"] not in set(names["train"]["question"])
    for table in ("train", "holdout"):
        prompts = pd.read_parquet(run.require(f"data/{table}.parquet"))["prompt"]
        assert all(list(prompt[1:-1]) == examples for prompt in prompts)
    lengths = [names["count_tokens"](list(prompt)) for prompt in prompts]
    assert max(lengths) <= run.section("data")["settings"]["max_prompt_length"]


# --- A file and a reward of one's own --------------------------------------------------------------


def test_the_first_cells_lead_from_an_own_file_and_an_own_reward_to_a_merged_model(
    machine, tmp_path
):
    text = "\n".join(cell.source for cell in nbformat.read(notebook("07"), as_version=4).cells)
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    # a reward may ask for the file's other columns
    program = program.replace("answer, **columns", "answer, customer, **columns")
    (tmp_path / "mine.py").write_text(program, encoding="utf-8")
    sums = load_task("arithmetic/sums", train_size=120, holdout_size=8).train
    sums = sums[["question", "answer"]].set_axis([*"qa"], axis=1).assign(customer="Emil")
    faulty = [{"q": "What is 1 + 1?", "a": "N/A"}, {"q": sums["q"][0], "a": "wrong"}]
    pd.concat([sums, pd.DataFrame(faulty)]).to_csv(tmp_path / "mine.csv", index=False)
    typed = [
        "python",
        *["-m", "helpers", "run", "--run", "my-task", "--only", "07", "-p", "source=mine.csv"],
    ]
    typed += ["-p", 'columns={"question": "q", "answer": "a"}', "-p", "rewards=mine.py:my_reward"]
    few = ["max_steps=2", "early_stopping=2", "grader=mine.py:my_reward"]
    called = [sys.executable, *typed[1:], *(word for one in few for word in ("-p", one))]
    environment = os.environ | {"PYTHONPATH": str(PROJECT), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(called, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = (
        "data: 119 of 122 rows usable (dropped: 1 × answer is a missing value, 2 × question with "
    )
    assert f"{told}two answers); 90 to train on, 29 held out" in done.stdout
    run = Run(typed[typed.index("--run") + 1])
    (tmp_path / "mine.py").unlink()  # from here on the run's copy is read
    assert list(pd.read_csv(run.require("metrics.csv"))["step"]) == [1, 2]
    recorded = run.section("training")
    assert recorded["own_rewards"] == "rewards/mine.py:my_reward*1"
    assert recorded["grader"] == "grader/mine.py:my_reward*1"
    small = ["samples=2", "sampled_questions=8"]
    assert run_notebooks(run.name, None, "04,05", small) == 0
    assert run.evaluation["merged"]["n"] == 29


# --- The reward -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "score"),
    [
        (GOLD, 1.0),
        ('{"city": "Lyon", "quantity": 3, "item": "green tea"}', 1.0),
        (GOLD.replace("Lyon", "Oslo"), 0.3 + 0.7 * 2 / 3),
        (GOLD.replace("3", '"3"'), 0.1),
        (GOLD.replace("3", "true"), 0.1),
        (GOLD[:-1] + ', "city": "Lyon"}', 0.0),
        (GOLD[:-1] + ', "or": "Oslo"}', 0.1),
        (f"[{GOLD}]", 0.0),
        ("NaN", 0.0),
        ("[" * 100_000, 0.0),
        ('{"quantity": ' + "9" * 100_000 + "}", 0.0),
        ("\ud800", 0.0),
    ],
)
def test_each_step_of_the_reward(rewards, block, score):
    text = THINK_ANSWER.render("so", block)
    for completion in (text, [{"role": "assistant", "content": text}]):
        assert rewards["extraction_reward"]([completion], answer=[GOLD]) == pytest.approx([score])


def test_the_first_idea_pays_for_copying_and_the_reward_does_not(rewards):
    copied = THINK_ANSWER.render("", "Hi, please send 3 boxes of green tea to Lyon.")
    assert rewards["values_found_reward"]([copied], answer=[GOLD]) == [1.0]
    assert (
        rewards["extraction_reward"](
            [copied, 2 * THINK_ANSWER.render("", GOLD), GOLD, ""], answer=[GOLD] * 4
        )
        == [0.0] * 4
    )
