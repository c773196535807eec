"""Notebook 09 on the real libraries: two small trainings, what they leave, what they are judged by,
and a file of one's own.
"""

import json

import pandas as pd
import pytest
from papermill.exceptions import PapermillExecutionError
from reading import notebook, said

from helpers.rewards.programs import tests_reward
from helpers.runs import Run
from tools.pocket import functions

pytestmark = pytest.mark.slow


def test_both_begin_with_the_same_programs_and_only_the_reward_differs(lesson):
    run, _ = lesson("09")
    runs = run, Run(f"{run.name}-visible")
    tables = [pd.read_parquet(each.require("completions.parquet")) for each in runs]
    hidden, visible = (table[table["step"] == 1] for table in tables)
    assert list(hidden["completion"]) == list(visible["completion"])
    assert list(hidden["hidden_reward"]) != list(visible["visible_reward"])
    train = pd.read_parquet(run.require("data/train.parquet")).set_index("question")
    given = {"hidden_reward": (hidden, "answer"), "visible_reward": (visible, "visible")}
    for reward, (table, column) in given.items():
        tests = [train.loc[question, column] for question in table["question"]]
        again = tests_reward(list(table["completion"]), tests=tests, share=False)
        assert list(table[reward]) == again
    first, second = (each.section("training")["settings"] for each in runs)
    assert first == second
    row = train.reset_index().iloc[0]  # the prompt shows the visible tests alone
    assert all(test in row["question"] for test in json.loads(row["visible"]))
    assert not any(test in row["question"] for test in json.loads(row["answer"]))


def test_a_file_without_hidden_tests_hides_all_but_the_first_and_unsound_tasks_are_left_out(
    machine, tmp_path, execute
):
    rows = [
        {"text": row["text"], "code": row["code"], "test_list": row["challenge_test_list"]}
        for row in functions.functions()[:40]
    ]
    rows[3]["code"] = "def f(xs): return None"
    rows[5]["test_list"] = rows[5]["test_list"][:1]
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    # ends before a model is loaded
    with pytest.raises(PapermillExecutionError, match="holdout_size"):
        execute("09", Run("mine"), tasks_file=str(tmp_path / "mine.jsonl"), holdout_size=60)
    copy = Run("mine").path(f"notebooks/{notebook('09').name}")
    assert "40 tasks, 2 of them left out" in said(copy)
    lines = Run("mine").require("tasks.jsonl").read_text(encoding="utf-8").splitlines()
    visible, hidden = (json.loads(json.loads(lines[0])[part]) for part in ("visible", "answer"))
    assert len(visible) == 1 and visible + hidden == rows[0]["test_list"]
