"""Notebook 07: one small run on real libraries, what it leaves for the others, its reward, and how
it refuses bad input.
"""

import ast
import json
import os
import re
import subprocess
import sys

import nbformat
import pandas as pd
import papermill
import pytest
from papermill.exceptions import PapermillExecutionError

from helpers import PROJECT, environment
from helpers.commands import pipeline
from helpers.environment import Machine
from helpers.pocket import extraction
from helpers.presets import PRESETS
from helpers.results.evaluation import judge_named, right
from helpers.results.intervals import wilson_interval
from helpers.runs import Run
from helpers.tags import THINK_ANSWER, completion_text

pytestmark = pytest.mark.slow

NOTEBOOK = pipeline.NOTEBOOKS / "07_your_own_task.ipynb"
GOLD = '{"item": "green tea", "quantity": 3, "city": "Lyon"}'


def execute(run, **parameters):
    """The executed notebook, as a batch user gets it."""
    copy = run.path("notebooks/07_your_own_task.ipynb")
    given = {"run": run.name} | parameters
    papermill.execute_notebook(
        str(NOTEBOOK), str(copy), given, cwd=str(NOTEBOOK.parent), progress_bar=False
    )
    return nbformat.read(copy, as_version=4)


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """Notebook 07, executed once with few steps: the run and what was printed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRPO_RUNS_DIR", str(tmp_path_factory.mktemp("runs")))
        patch.setenv("OMP_NUM_THREADS", "1")
        run = Run("own")
        notebook = execute(run, max_steps=6, holdout_size=64, early_stopping=6)
        outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
        assert not [output for output in outputs if output.get("name") == "stderr"]
        yield run, "".join(output.text for output in outputs if output.output_type == "stream")


@pytest.fixture(scope="module")
def rewards():
    """The functions that the notebook defines, without running the rest of it."""
    from jsonschema import Draft202012Validator

    names = {
        "json": json,
        "fmt": THINK_ANSWER,
        "completion_text": completion_text,
        "Draft202012Validator": Draft202012Validator,
    }
    for cell in nbformat.read(NOTEBOOK, as_version=4).cells:
        if any(
            f"def {name}(" in cell.source
            for name in ("read_record", "extraction_reward", "values_found_reward")
        ):
            tree = ast.parse(cell.source)
            tree.body = [node for node in tree.body if not isinstance(node, ast.ImportFrom)]
            exec(compile(tree, "cell", "exec"), names)
    return names


# --- A run ----------------------------------------------------------------------------------------


def test_it_leaves_what_the_other_notebooks_read(own):
    run, _ = own
    history = pd.read_csv(run.require("metrics.csv"))
    assert (
        list(history["step"]) == [1, 2, 3, 4, 5, 6] and "rewards/extraction_reward/mean" in history
    )
    assert set(pd.read_parquet(run.require("completions.parquet"))) >= {
        "step",
        "question",
        "answer",
        "completion",
    }
    assert (run.require("adapter") / "adapter_model.safetensors").stat().st_size > 100_000
    data, training = run.section("data"), run.section("training")
    assert data["settings"]["model"] == "pocket-extraction" and training["steps"] == 6
    assert (
        json.loads(run.require("reward_report.json").read_text(encoding="utf-8"))["verdict"]["go"]
        is True
    )
    assert pipeline.run(run.name, None, "04", []) == 0


def test_the_rows_are_hers_and_no_message_is_on_both_sides(own):
    run, printed = own
    train, holdout = (
        pd.read_parquet(run.require(f"data/{side}.parquet")) for side in ("train", "holdout")
    )
    # 700 usable rows; 64 are held out, and three became worked examples. The forwarded ones were
    # too long.
    assert (len(train), len(holdout)) == (700 - 64 - 3, 64)
    assert not set(train["question"]) & set(holdout["question"])
    assert {"received", "customer"} <= set(train.columns)
    assert train["prompt"].iloc[0][0]["content"] == extraction.SYSTEM_PROMPT
    assert "'prompt over 64 tokens': 3" in printed
    assert (
        "no column 'experts answer'. It has: received, customer, message, expert_answer" in printed
    )


def test_the_limits_come_from_the_data(own):
    settings = own[0].section("data")["settings"]
    tokens = json.loads(own[0].require("data_report.json").read_text(encoding="utf-8"))[
        "prompt_tokens"
    ]
    assert 1.1 * tokens["p99"] <= settings["max_prompt_length"] < tokens["max"]
    assert settings["max_prompt_length"] % 8 == settings["max_completion_length"] % 8 == 0
    assert pd.read_csv(own[0].require("metrics.csv"))["completions/clipped_ratio"].max() < 0.1


def test_the_evaluation_has_intervals_and_a_paired_test(own):
    run, _ = own
    comparison = json.loads(run.require("comparison.json").read_text(encoding="utf-8"))["sampled"]
    for entry in run.evaluation.values():
        assert (
            entry["ci95"] == pytest.approx(wilson_interval(round(entry["accuracy"] * 64), 64))
            and entry["n"] == 64
        )
    baseline, trained = run.evaluation["baseline"], run.evaluation["trained"]
    assert 0.1 < baseline["accuracy"] < 0.45
    assert comparison["won"] - comparison["lost"] == round(
        64 * (trained["accuracy"] - baseline["accuracy"])
    )
    assert sum(comparison[key] for key in ("won", "lost", "both_right", "both_wrong")) == 64


def test_it_tries_a_step_and_measures_the_holdout_as_notebook_03_does(own):
    run, printed = own
    assert "every completion at its limit: first step" in printed and "6 steps: at most" in printed
    measured = pd.read_csv(run.path("checkpoints/holdout.csv"))
    assert list(measured["step"]) == [3, 6] and measured["accuracy"].between(0, 1).all()
    assert list(re.findall(r"(\d)-shot: [\d.]+% right", printed)) == ["0", "1", "3"]


# --- The settings ---------------------------------------------------------------------------------

H100 = Machine("NVIDIA H100", 85.0, 9.0, 16, 256.0, "3.11.7", "Linux x86_64", False)


@pytest.fixture
def resolved(machine, monkeypatch):
    """The settings that the notebook chooses on a machine, without running the rest of it:
    resolved(machine, model=…).
    """
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    (parameters,) = [cell.source for cell in cells if "parameters" in cell.metadata.get("tags", [])]
    (choosing,) = [
        cell.source
        for cell in cells
        if "settings = presets.resolve(" in cell.source and cell.cell_type == "code"
    ]

    def resolved(machine, **given):
        names = {"path": "orders.csv"}
        exec(parameters, names)
        names |= given
        with monkeypatch.context() as patch:
            patch.setattr(environment, "this_machine", lambda: machine)
            exec(choosing, names)
        return names["settings"], names["example"]

    return resolved


def test_the_examples_own_values_apply_to_the_small_model_alone(resolved):
    here = environment.this_machine()
    settings, example = resolved(here)
    assert example and settings.model == "pocket-extraction"
    assert (settings.max_steps, settings.learning_rate, settings.beta) == (50, 1e-3, 0.02)
    assert resolved(here, max_steps=7, learning_rate=2e-4)[0].learning_rate == 2e-4
    for given in ({"preset": "auto"}, {"preset": "h100", "model": "unsloth/Qwen3-8B"}):
        settings, example = resolved(H100, **given)
        assert (settings.max_steps, settings.learning_rate) == (
            PRESETS["h100"].max_steps,
            PRESETS["h100"].learning_rate,
        )
        assert (
            settings.model == "unsloth/Qwen3-8B" and settings.max_seq_length is None and not example
        )
    settings, _ = resolved(
        H100, preset="auto", num_generations=4, lora_rank=8, beta=0.0, learning_rate=3e-6
    )
    assert (
        settings.num_generations,
        settings.lora_rank,
        settings.beta,
        settings.learning_rate,
    ) == (4, 8, 0.0, 3e-6)


def test_the_small_models_preset_is_refused_for_another_model(resolved):
    with pytest.raises(ValueError, match="would ruin 'unsloth/Qwen3-8B': take preset='auto'"):
        resolved(environment.this_machine(), model="unsloth/Qwen3-8B")
    assert (
        resolved(environment.this_machine(), model="org/tiny", learning_rate=1e-4)[0].model
        == "org/tiny"
    )


# --- The program to copy --------------------------------------------------------------------------


def test_the_program_trains_as_it_stands_but_for_model_and_size(machine, tmp_path, monkeypatch):
    cells = [
        cell.source
        for cell in nbformat.read(NOTEBOOK, as_version=4).cells
        if cell.cell_type == "markdown"
    ]
    (program,) = re.findall(r"```python\n(.*?)```", "\n".join(cells), re.DOTALL)
    # What the small model on a CPU needs instead; everything else runs as a reader would copy it.
    here = {'"a100"': '"pocket"', '"unsloth/Qwen3-8B"': '"pocket-extraction"'}
    here |= {
        "max_completion_length=1024": "max_completion_length=40",
        "max_steps=300": "max_steps=2",
    }
    for there, instead in here.items():
        assert program.count(there) == 1
        program = program.replace(there, instead)
    (tmp_path / "mine.py").write_text(program, encoding="utf-8")
    pd.read_csv(extraction.ORDERS_CSV).head(400).to_csv(tmp_path / "mine.csv", index=False)
    called = [sys.executable, "mine.py"]
    done = subprocess.run(
        called,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    run = Run("mine")
    assert list(pd.read_csv(run.require("metrics.csv"))["step"]) == [1, 2]
    settings = run.section("training")["settings"]
    assert (settings["learning_rate"], settings["beta"], settings["num_generations"]) == (
        1e-5,
        0.02,
        8,
    )
    judge = judge_named(f"{tmp_path / 'mine.py'}:my_reward")
    texts = [THINK_ANSWER.render("so", GOLD), THINK_ANSWER.render("so", "no"), "no block"]
    assert judge(texts, answer=[GOLD] * 3) == pytest.approx([1.0, 0.1, 0.0])
    assert (
        "--run mine --only 04,05 -p judge=mine.py:my_reward" in program
        and pipeline.run("mine", None, "04", []) == 0
    )


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


def test_what_is_said_beside_the_numbers_holds_in_the_committed_outputs():
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    printed = "".join(o.get("text", "") for cell in cells for o in cell.get("outputs", []))
    right = {
        int(shots): float(share)
        for shots, share in re.findall(r"(\d)-shot: ([\d.]+)% right", printed)
    }
    assert right[0] > 25 and round(right[1]) == 9 and right[3] == 0
    (baseline,) = re.findall(r"^baseline .*$", printed, re.MULTILINE)
    assert re.findall(r"[\d.]+%", baseline)[3] == "0.0%", (
        "greedily the untrained model was never right"
    )
    assert re.search(r"^prompt tokens: .* p50 46.* max 312$", printed, re.MULTILINE), (
        "six times as long as the rest"
    )


# --- Bad input ------------------------------------------------------------------------------------


def test_a_wrong_column_is_named_and_nothing_is_written(machine):
    run = Run("wrong")
    with pytest.raises(PapermillExecutionError) as caught:
        execute(run, columns={"question": "text", "answer": "expert_answer"})
    assert caught.value.ename == "ValueError" and "no column 'text'" in caught.value.evalue
    assert "received, customer, message, expert_answer" in caught.value.evalue
    assert not (run.folder / "data").exists() and not run.manifest


def few(folder, answers):
    """A CSV like the example, with these answers."""
    path = folder / "few.csv"
    rows = [
        {"message": f"Please send {n} boxes of green tea to Lyon.", "expert_answer": answer}
        for n, answer in enumerate(answers)
    ]
    pd.DataFrame(rows).to_csv(path, index=False)
    return str(path)


@pytest.mark.parametrize(
    ("answers", "parameters", "message"),
    [
        (None, {"shots": -1}, "shots=-1 must be a whole number from 0 to 3"),
        (
            [*[GOLD] * 19, "Lyon"],
            {"holdout_size": 4},
            "1 of 20 answers are no JSON object with item, quantity, city; the first is 'Lyon'",
        ),
        (
            [GOLD] * 12,
            {"holdout_size": 4},
            "8 rows to train on: 3 become examples, and a step takes 8 more",
        ),
    ],
    ids=["shots", "an answer that is no record", "too few rows"],
)
def test_what_cannot_be_trained_on_is_refused_before_a_model_is_loaded(
    machine, tmp_path, answers, parameters, message
):
    source = few(tmp_path, answers) if answers else None
    with pytest.raises(PapermillExecutionError) as caught:
        execute(Run("few"), source=source, **parameters)
    assert message in caught.value.evalue


def test_an_answer_without_room_is_dropped_and_counted(own, machine, tmp_path):
    long = GOLD.replace("green tea", "green tea, " * 400)
    with pytest.raises(PapermillExecutionError, match="8 rows to train on"):
        execute(Run("long"), source=few(tmp_path, [*[GOLD] * 12, long]), holdout_size=4)
    notebook = nbformat.read(Run("long").path("notebooks/07_your_own_task.ipynb"), as_version=4)
    printed = "".join(
        o.text for c in notebook.cells for o in c.get("outputs", []) if o.output_type == "stream"
    )
    assert "'answer over" in printed


# --- The reward goes on to notebook 05; last, because 05 replaces the evaluation ------------------


def test_notebook_05_merges_and_judges_by_the_same_reward(own):
    run, printed = own
    file = run.require("reward.py")
    assert f"-p judge={run.show('reward.py')}:extraction_reward" in printed
    records = [GOLD, GOLD.replace("3", "3.0")]
    texts = [*(THINK_ANSWER.render("so", record) for record in records), GOLD]
    assert right(texts, [GOLD] * 3) == [True, False, False], (
        "to the general judge a record is no JSON"
    )
    assert right(texts, [GOLD] * 3, judge=judge_named(f"{file}:extraction_reward")) == [
        True,
        True,
        False,
    ]
    before = run.evaluation["trained"]
    assert (
        pipeline.run(
            run.name,
            None,
            "05",
            [f"judge={file}:extraction_reward", "samples=2", "sampled_questions=8", "serve=false"],
        )
        == 0
    )
    trained, merged = run.evaluation["trained"], run.evaluation["merged"]
    assert trained["ci95"][0] <= before["accuracy"] <= trained["ci95"][1] and merged["n"] == 64
