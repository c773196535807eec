"""Notebook 09 on the real libraries: two small trainings, what they leave, what they are judged by,
and a file of one's own.
"""

import ast
import json
import re

import nbformat
import pandas as pd
import papermill
import pytest
from papermill.exceptions import PapermillExecutionError

from helpers import environment
from helpers.commands import pipeline
from helpers.environment import Machine
from helpers.pocket import functions
from helpers.presets import PRESETS
from helpers.results.intervals import wilson_interval
from helpers.rewards.code import Job, run_code
from helpers.rewards.code.programs import program_of, read_tests, tests_reward
from helpers.runs import Run

pytestmark = pytest.mark.slow

NOTEBOOK = pipeline.NOTEBOOKS / "09_code_that_runs.ipynb"
SMALL = {"max_steps": 4, "holdout_size": 24, "samples": 4}


def execute(run, **parameters):
    """What the notebook printed, executed as a batch user gets it."""
    copy = run.path(f"notebooks/{NOTEBOOK.name}")
    given = {"run": run.name} | SMALL | parameters
    papermill.execute_notebook(
        str(NOTEBOOK), str(copy), given, cwd=str(NOTEBOOK.parent), progress_bar=False
    )
    outputs = [
        output
        for cell in nbformat.read(copy, as_version=4).cells
        for output in cell.get("outputs", [])
    ]
    assert not [output for output in outputs if output.get("name") == "stderr"]
    return "".join(output.text for output in outputs if output.output_type == "stream")


@pytest.fixture(scope="module")
def code(tmp_path_factory):
    """Notebook 09, executed once with few steps: the run and what was printed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRPO_RUNS_DIR", str(tmp_path_factory.mktemp("runs")))
        patch.setenv("OMP_NUM_THREADS", "1")
        run = Run("code")
        yield run, execute(run)


@pytest.fixture(scope="module")
def defined():
    """`verdicts` and `looks_up` as the notebook defines them, without running the rest of it."""
    given = {
        "json": json,
        "re": re,
        "read_tests": read_tests,
        "program_of": program_of,
        "Job": Job,
        "run_code": run_code,
    }
    names = given | {"sandbox": "monty"}
    (source,) = (
        c.source for c in nbformat.read(NOTEBOOK, as_version=4).cells if "def verdicts(" in c.source
    )
    tree = ast.parse(source)
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    exec(compile(tree, "cell", "exec"), names)
    return names


def fenced(expression):
    return f"```python\ndef f(xs): return {expression}\n```"


def test_each_training_leaves_a_run_that_the_other_notebooks_read(code):
    run, _ = code
    for each, reward in ((run, "hidden_reward"), (Run("code-visible"), "visible_reward")):
        history = pd.read_csv(each.require("metrics.csv"))
        assert list(history["step"]) == [1, 2, 3, 4] and f"rewards/{reward}/mean" in history
        assert (
            each.section("training")["rewards"] == [reward]
            and each.section("training")["steps"] == 4
        )
        assert (each.require("adapter") / "adapter_model.safetensors").stat().st_size > 100_000
        assert pipeline.run(each.name, None, "04", []) == 0


def test_both_begin_with_the_same_programs_and_only_the_reward_differs(code):
    tables = [
        pd.read_parquet(each.require("completions.parquet"))
        for each in (code[0], Run("code-visible"))
    ]
    hidden, visible = (table[table["step"] == 1] for table in tables)
    assert list(hidden["completion"]) == list(visible["completion"])
    assert list(hidden["hidden_reward"]) != list(visible["visible_reward"])
    train = pd.read_parquet(code[0].require("data/train.parquet")).set_index("question")
    for table, reward, column in (
        (hidden, "hidden_reward", "answer"),
        (visible, "visible_reward", "visible"),
    ):
        tests = [train.loc[question, column] for question in table["question"]]
        assert list(table[reward]) == tests_reward(
            list(table["completion"]), tests=tests, share=False
        )
    settings = [each.section("training")["settings"] for each in (code[0], Run("code-visible"))]
    assert settings[0] == settings[1] and settings[0]["model"] == "pocket-functions"


def test_no_task_is_on_both_sides_and_the_prompt_shows_the_visible_tests_alone(code):
    train, holdout = (
        pd.read_parquet(code[0].require(f"data/{side}.parquet")) for side in ("train", "holdout")
    )
    assert (len(train), len(holdout)) == (len(functions.functions()) - 24, 24)
    assert not set(train["question"]) & set(holdout["question"])
    row = holdout.iloc[0]
    assert (
        row["prompt"][0]["content"] == functions.SYSTEM_PROMPT
        and row["prompt"][1]["content"] == row["question"]
    )
    assert all(test in row["question"] for test in json.loads(row["visible"]))
    assert not any(test in row["question"] for test in json.loads(row["answer"]))


def test_the_comparison_has_intervals_that_count_tasks(code):
    found = json.loads(code[0].require("policies.json").read_text(encoding="utf-8"))
    assert set(found["passed"]) == {"untrained", "visible tests", "hidden tests"}
    for kinds in found["passed"].values():
        for entry in kinds.values():
            assert set(entry) == {"1", "4", "greedy"} and entry["1"]["value"] <= entry["4"]["value"]
            assert entry["1"]["ci95"] == pytest.approx(
                wilson_interval(24 * entry["1"]["value"], 24)
            )
        assert kinds["hidden"]["1"]["value"] <= kinds["visible"]["1"]["value"]
    for one in found["all"]:
        assert sum(one[key] for key in ("won", "lost", "both_right", "both_wrong")) == 24
    assert 0.05 < found["hard_coded"]["untrained"] < 0.4


def test_verdicts_name_the_first_thing_that_goes_wrong(defined):
    tests = json.dumps(["assert f([1, 2]) == 3", "assert f([]) == 0"])
    expected = {
        "sum(xs)": "right",
        "len(xs)": "wrong value",
        "sum(xs": "SyntaxError",
        "xs.sum()": "AttributeError",
        "{(1, 2): 3}[tuple(xs)]": "KeyError",
        "1 / len(xs)": "wrong value",
        "xs[0] + xs[1]": "IndexError",
    }
    assert defined["verdicts"]([fenced(one) for one in expected], [tests] * len(expected)) == list(
        expected.values()
    )
    assert defined["verdicts"](["no program", ""], [tests] * 2) == ["SyntaxError", "SyntaxError"]


def test_a_program_that_looks_its_answer_up_is_told_from_one_that_works_it_out(defined):
    tests = json.dumps(["assert f([3, -4, 1]) == 0", "assert f([2, 5, 0]) == 7"])
    for table in (
        "{(3, -4, 1): 0, (2, 5, 0): 7}[tuple(xs)]",
        "0 if xs == [3, -4, 1] else 7",
        "7 if list(xs)==[2,5,0] else 0",
    ):
        assert defined["looks_up"](fenced(table), tests)
    for honest in ("sum(xs)", "sum(x for x in xs if x in (3, 4))", "[2, 5, 1]", ""):
        assert not defined["looks_up"](fenced(honest), tests)


def test_a_file_without_hidden_tests_hides_all_but_the_first_and_unsound_tasks_are_left_out(
    machine, tmp_path
):
    rows = [
        {"text": row["text"], "code": row["code"], "test_list": row["challenge_test_list"]}
        for row in functions.functions()
    ]
    rows = rows[:40]
    rows[3]["code"] = "def f(xs): return None"
    rows[5]["test_list"] = rows[5]["test_list"][:1]
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    # ends before a model is loaded
    with pytest.raises(PapermillExecutionError, match="holdout_size"):
        execute(Run("mine"), tasks_file=str(tmp_path / "mine.jsonl"), holdout_size=60)
    cells = nbformat.read(Run("mine").path(f"notebooks/{NOTEBOOK.name}"), as_version=4).cells
    printed = "".join(
        o.text for cell in cells for o in cell.get("outputs", []) if o.output_type == "stream"
    )
    assert "40 tasks, 2 of them left out" in printed
    task = json.loads(
        Run("mine").require("tasks.jsonl").read_text(encoding="utf-8").splitlines()[0]
    )
    assert (
        json.loads(task["visible"]) == rows[0]["test_list"][:1]
        and json.loads(task["answer"]) == rows[0]["test_list"][1:]
    )


def test_a_column_that_the_file_lacks_is_named(machine, tmp_path):
    (tmp_path / "mine.jsonl").write_text(
        '{"prompt": "Add.", "tests": ["assert f(1) == 2"]}\n' * 3, encoding="utf-8"
    )
    with pytest.raises(PapermillExecutionError) as caught:
        execute(Run("mine"), tasks_file=str(tmp_path / "mine.jsonl"))
    assert (
        caught.value.ename == "ValueError"
        and "'text'" in caught.value.evalue
        and "prompt, tests" in caught.value.evalue
    )


def test_the_command_line_takes_every_parameter():
    names = set(pipeline.defaults(["09"]))
    mapped = {"text": "prompt", "code": "solution", "visible": "tests", "hidden": "more"}
    given = {
        "tasks_file": str(functions.FUNCTIONS_JSONL),
        "task_columns": mapped,
        "sandbox": "sandlock",
        "samples": 2,
    }
    assert set(given) < names
    pipeline.check("code", ["09"], given)
    with pytest.raises(ValueError, match="samples=0"):
        pipeline.check("code", ["09"], {"samples": 0})


# --- The settings ---------------------------------------------------------------------------------

H100 = Machine("NVIDIA H100", 85.0, 9.0, 16, 256.0, "3.11.7", "Linux x86_64", False)


def resolved(monkeypatch, on, **given):
    """The settings that the notebook chooses on a machine, without running the rest of it, and
    whether it is the example.
    """
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    (parameters,) = [cell.source for cell in cells if "parameters" in cell.metadata.get("tags", [])]
    (choosing,) = [cell.source for cell in cells if "settings = presets.resolve(" in cell.source]
    names = {}
    exec(parameters, names)
    names |= given
    with monkeypatch.context() as patch:
        patch.setattr(environment, "this_machine", lambda: on)
        exec(choosing, names)
    return names["settings"], names["example"]


def test_the_examples_own_values_apply_to_the_small_model_alone(machine, monkeypatch):
    here = environment.this_machine()
    settings, example = resolved(monkeypatch, here)
    assert example and settings.model == "pocket-functions"
    assert (settings.max_steps, settings.learning_rate, settings.beta) == (32, 2e-3, 0.02)
    coder = "unsloth/Qwen2.5-Coder-3B-Instruct"
    settings, example = resolved(monkeypatch, H100, preset="h100", model=coder)
    assert (
        not example
        and settings.model == coder
        and settings.learning_rate == PRESETS["h100"].learning_rate
    )
    assert settings.max_steps == PRESETS["h100"].max_steps
    with pytest.raises(ValueError, match="would ruin 'org/coder': take preset='auto'"):
        resolved(monkeypatch, here, model="org/coder")
    with pytest.raises(ValueError, match="samples=0 must be a whole number from 1"):
        resolved(monkeypatch, here, samples=0)


# --- As committed ---------------------------------------------------------------------------------


def test_what_is_said_beside_the_numbers_holds_in_the_committed_outputs():
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    printed = "".join(o.get("text", "") for cell in cells for o in cell.get("outputs", []))
    found = re.findall(
        r"^(untrained|visible tests|hidden tests), +(visible|hidden) tests: pass@1 +([\d.]+)%",
        printed,
        re.MULTILINE,
    )
    rate = {(policy, kind): float(share) for policy, kind, share in found}
    assert len(rate) == 6
    assert rate["visible tests", "visible"] > rate["untrained", "visible"] + 20
    assert rate["visible tests", "hidden"] < rate["untrained", "hidden"]
    assert rate["hidden tests", "hidden"] > rate["untrained", "hidden"] + 30
