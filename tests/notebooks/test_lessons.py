"""What is alike in 00, 07, 09, 10 and 11: what they leave, each executed once with few steps, and
what all refuse.
"""

import json
import shutil

import pandas as pd
import pytest
from papermill.exceptions import PapermillExecutionError
from reading import cells, notebook

from helpers.commands.run import run_notebooks
from helpers.runs import Run, write_json
from tools.pocket import functions

pytestmark = pytest.mark.slow

GOLD = '{"item": "green tea", "quantity": 3, "city": "Lyon"}'
LEFT = {  # its reward, its steps, its rows on both sides, and the column that tells them apart
    "00": ("correctness_reward", 4, (1000, 16), "question"),
    # 07: of 700 usable rows, three became worked examples; the forwarded ones were too long
    "07": ("extraction_reward", 6, (700 - 64 - 3, 64), "question"),
    "09": ("hidden_reward", 4, (len(functions.functions()) - 24, 24), "question"),
    "10": ("Guessing", 2, (16, 24), "seed"),
    "11": ("correctness_reward", 4, (64, 24), "image"),
}
MODELS = {
    "00": "pocket",
    "07": "pocket-extraction",
    "09": "pocket-functions",
    "10": "pocket-games",
    "11": "pocket-vision",
}


@pytest.mark.parametrize("number", LEFT)
def test_a_lesson_leaves_what_the_other_notebooks_read(lesson, number):
    run, _ = lesson(number)
    reward, steps, sizes, column = LEFT[number]
    history = pd.read_csv(run.require("metrics.csv"))
    assert list(history["step"]) == list(range(1, steps + 1))
    assert f"rewards/{reward}/mean" in history
    assert run.section("training")["steps"] == steps
    own = {"00": "correctness*1,format*0.25"}  # given as its parameter `rewards`
    assert run.section("training").get("own_rewards") == own.get(number)
    assert run.section("data")["settings"]["model"] == MODELS[number]
    run.require("adapter")
    train, holdout = (
        pd.read_parquet(run.require(f"data/{side}.parquet")) for side in ("train", "holdout")
    )
    assert (len(train), len(holdout)) == sizes
    assert not set(train[column]) & set(holdout[column])
    completions = pd.read_parquet(run.require("completions.parquet"))
    assert set(completions) >= {"step", "question", "answer", "completion"}
    assert ("trained" in run.evaluation) is (number != "09"), "for `compare` and `report`"
    assert run_notebooks(run.name, None, "04", []) == 0


def orders(*answers: str) -> list[dict]:
    order = "Please send {} boxes of green tea to Lyon."
    return [{"message": order.format(n), "expert_answer": one} for n, one in enumerate(answers)]


def mostly_nightly(cases: list[tuple]) -> list:
    """The cases, of which all but the first of each notebook are left to the nightly workflow: each
    starts a kernel.
    """
    firsts = {number: at for at, (number, *_) in reversed(list(enumerate(cases)))}
    nightly = pytest.mark.nightly
    return [
        case if firsts[case[0]] == at else pytest.param(*case, marks=nightly)
        for at, case in enumerate(cases)
    ]


FILES = {
    "words": [{"word": number} for number in range(40)],
    "text": [{"seed": f"number {number}"} for number in range(40)],
    "tasks": [{"prompt": "Add.", "tests": ["assert f(1) == 2"]}] * 3,
    "few": orders(*[GOLD] * 12),
    # the last answer has no room, and is dropped
    "long": orders(*[GOLD] * 12, GOLD.replace("green tea", "green tea, " * 400)),
}
FEW = "8 rows to train on: 1 become examples, and a step takes 8 more"
FEW_ROWS = {
    "columns": {"question": "message", "answer": "expert_answer"},
    "holdout_size": 4,
    "shots": 1,
}
OTHER_COLUMNS = {"question": "text", "answer": "expert_answer"}
OTHERS = "would ruin 'org/other': use preset='auto'"
REFUSED = [
    *((number, {"model": "org/other"}, OTHERS) for number in MODELS),
    ("07", {"columns": OTHER_COLUMNS}, "no column 'text'. It has: received, customer, message, ex"),
    ("07", {"few_shot": [{"question": "3 bags"}]}, "This one is not: row 1: {'question': '3 bags'"),
    ("07", {"shots": -1}, "shots=-1 must be a whole number from 0 to 3"),
    ("07", {"rewards": "nowhere.py:my_reward"}, "nowhere.py cannot be read"),
    ("07", FEW_ROWS | {"source": "{here}/few.jsonl"}, FEW),
    ("07", FEW_ROWS | {"source": "{here}/long.jsonl"}, FEW),
    ("09", {"tasks_file": "{here}/tasks.jsonl"}, "'text'"),
    ("10", {"environment": "nowhere.py:Game"}, "nowhere.py cannot be read"),
    ("10", {"system_prompt": 5}, "system_prompt=5 must be a text"),
    ("10", {"environment": "helpers.agents:ToolError"}, "has no method `reset`"),
    ("10", {"turns": 0}, "turns=0 must be a whole number of at least 1"),
    ("10", {"turns": 1}, "Guessing is not ready for a training: the oracle earns"),
    ("10", {"rows_file": "{here}/words.jsonl"}, "missing 1 required positional argument: 'seed"),
    ("10", {"rows_file": "{here}/words.jsonl", "holdout_size": 50}, "40 rows are too few to hold"),
    ("10", {"rows_file": "{here}/text.jsonl"}, "row 1 cannot be played: Guessing.reset"),
    ("10", {"success": "0.4"}, "success='0.4' must be a number"),
    ("11", {"image": "{here}/words.jsonl"}, "cannot identify image file"),  # Pillow's
    ("11", {"holdout_size": 0}, "holdout_size=0"),
]


@pytest.mark.parametrize(("number", "given", "says"), mostly_nightly(REFUSED))
def test_what_cannot_be_trained_on_is_refused_in_a_sentence(
    machine, tmp_path, execute, number, given, says
):
    for name, rows in FILES.items():
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    text = json.dumps(given).replace("{here}", str(tmp_path))
    run = Run("refused")
    with pytest.raises(PapermillExecutionError) as caught:
        execute(number, run, **json.loads(text))
    assert caught.value.ename in ("ValueError", "UnidentifiedImageError")
    assert says in caught.value.evalue
    assert not (run.folder / "adapter").exists()


OTHER = {"model": "unsloth/Qwen3-4B"}
REFUSED_ON_A_RUN = [  # what its manifest says else, the notebook's parameters, and the refusal
    ("06", {"training": OTHER}, {}, "used unsloth/Qwen3-4B; this notebook needs"),
    ("06", {"training": {"loss_type": "sapo"}}, {}, "with loss_type='sapo'; this notebook covers"),
    ("06", {}, {"trial_steps": 1}, "trial_steps=1: give a whole number of at least 2"),
    ("06", {}, {"holdout_questions": 0}, "holdout_questions=0: give a whole number of at least 1"),
    ("08", {"data": OTHER}, {}, "is not arithmetic/sums for the pocket model"),
    ("08", {}, {"target": 2}, "target=2 is a share of careful workings"),
    ("08", {}, {"warm_start_examples": 0}, "warm_start_examples=0: give a whole number of at l"),
    ("08", {}, {"holdout_questions": -8}, "holdout_questions=-8: give a whole number of at least"),
    ("08", {}, {"seeds": 3}, "seeds=3: give a list"),
]


@pytest.mark.parametrize(("number", "recorded", "given", "says"), mostly_nightly(REFUSED_ON_A_RUN))
def test_what_cannot_be_done_with_a_run_is_refused_before_anything_is_loaded(
    executed, tmp_path, monkeypatch, number, recorded, given, says
):
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path))
    run = Run("refused")
    shutil.copytree(executed.folder, run.folder)
    manifest = run.manifest
    for section, settings in recorded.items():
        manifest[section]["settings"] |= settings
    write_json(run.path("manifest.json"), manifest)
    code, names = cells(notebook(number)), {}
    exec(code[1].source, names)  # the parameters
    names |= {"run": run.name} | given
    with pytest.raises(ValueError, match=says):
        exec(code[2].source, names)
