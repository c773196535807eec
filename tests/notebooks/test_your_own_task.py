"""Notebook 07: one small run on real libraries, what it leaves for the others, its reward, and how
it refuses bad input.
"""

import json
import os
import re
import shlex
import subprocess
import sys

import nbformat
import pandas as pd
import pytest
from reading import defined, notebook, said

from helpers import PROJECT
from helpers.commands import pipeline
from helpers.pocket import extraction
from helpers.results.evaluation import right
from helpers.rewards import own
from helpers.runs import Run
from helpers.tags import THINK_ANSWER, completion_text

pytestmark = pytest.mark.slow

GOLD = '{"item": "green tea", "quantity": 3, "city": "Lyon"}'


@pytest.fixture(scope="module")
def rewards():
    """The rewards that the notebook defines, without running the rest of it."""
    given = {"json": json, "fmt": THINK_ANSWER, "completion_text": completion_text}
    # with a reward of one's own the answers of the file are not checked
    given["reward"] = "helpers.rewards:correctness_reward"
    lines = ("SCHEMA =", "def read_record(", "def extraction_reward(", "def values_found_reward(")
    return defined("07", *lines, **given)


# --- A run ----------------------------------------------------------------------------------------


def test_the_rows_are_hers_and_the_limits_come_from_the_data(lesson):
    run, printed = lesson("07")
    train = pd.read_parquet(run.require("data/train.parquet"))
    assert {"received", "customer"} <= set(train.columns)
    assert train["prompt"].iloc[0][0]["content"] == extraction.SYSTEM_PROMPT
    assert "'prompt over 64 tokens': 3" in printed
    limit = run.section("data")["settings"]["max_prompt_length"]
    report = json.loads(run.require("data_report.json").read_text(encoding="utf-8"))
    assert 1.1 * report["prompt_tokens"]["p99"] <= limit < report["prompt_tokens"]["max"]
    assert pd.read_csv(run.require("metrics.csv"))["completions/clipped_ratio"].max() < 0.1
    verdict = json.loads(run.require("reward_report.json").read_text(encoding="utf-8"))["verdict"]
    assert verdict["go"] is True


# --- A file and a reward of one's own --------------------------------------------------------------


def test_the_first_cells_lead_from_an_own_file_and_an_own_reward_to_a_merged_model(
    machine, tmp_path
):
    text = "\n".join(cell.source for cell in nbformat.read(notebook("07"), as_version=4).cells)
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (command,) = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    # a reward may ask for the file's other columns
    program = program.replace("answer, **columns", "answer, customer, **columns")
    (tmp_path / "mine.py").write_text(program, encoding="utf-8")
    orders = pd.read_csv(extraction.ORDERS_CSV).head(400)
    orders = orders.rename(columns={"message": "q", "expert_answer": "a"})
    orders.to_csv(tmp_path / "mine.csv", index=False)
    typed = shlex.split(command.replace("\\\n", " ").replace("preset=auto", "preset=pocket"))
    few = ["max_steps=2", "holdout_size=32", "early_stopping=2"]
    called = [sys.executable, *typed[1:], *(word for one in few for word in ("-p", one))]
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    done = subprocess.run(called, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    run = Run("mine")
    assert list(pd.read_csv(run.require("metrics.csv"))["step"]) == [1, 2]
    assert run.section("training")["rewards"] == ["my_reward"]
    printed = said(run.require("notebooks/07_your_own_task.ipynb"))
    judge = re.search(r"--run mine --only 04,05 -p (judge=\S+)", printed)[1]
    assert judge == f"judge={tmp_path / 'mine.py'}:my_reward"
    small = ["samples=2", "sampled_questions=8", "serve=false"]
    assert pipeline.run("mine", None, "04,05", [judge, *small]) == 0
    assert run.evaluation["merged"]["n"] == 32


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


# --- The reward goes on to notebook 05; last, because 05 replaces the evaluation ------------------


def test_notebook_05_merges_and_judges_by_the_same_reward(lesson):
    run, printed = lesson("07")
    assert f"-p judge={run.show('reward.py')}:extraction_reward" in printed
    judge = f"{run.require('reward.py')}:extraction_reward"
    records = [GOLD, GOLD.replace("3", "3.0")]
    texts = [*(THINK_ANSWER.render("so", record) for record in records), GOLD]
    assert right(texts, [GOLD] * 3) == [True, False, False], "for it, a record is a text"
    assert right(texts, [GOLD] * 3, judge=own.reward_named(judge, THINK_ANSWER, "judge")) == [
        True,
        True,
        False,
    ]
    before = run.evaluation["trained"]
    options = [f"judge={judge}", "samples=2", "sampled_questions=8", "serve=false"]
    assert pipeline.run(run.name, None, "05", options) == 0
    trained, merged = run.evaluation["trained"], run.evaluation["merged"]
    assert trained["ci95"][0] <= before["accuracy"] <= trained["ci95"][1] and merged["n"] == 64
