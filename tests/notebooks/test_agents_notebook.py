"""Notebook 10 on the real libraries: a short training, what it leaves, an environment of one's own,
and what is refused.
"""

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
from helpers.presets import PRESETS
from helpers.results.intervals import wilson_interval
from helpers.runs import Run

pytestmark = pytest.mark.slow

NOTEBOOK = pipeline.NOTEBOOKS / "10_agents.ipynb"
SMALL = {"max_steps": 2, "train_size": 16, "holdout_size": 24, "per_device_train_batch_size": 16}


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
def played(tmp_path_factory):
    """Notebook 10, executed once with few steps: the run and what was printed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRPO_RUNS_DIR", str(tmp_path_factory.mktemp("runs")))
        patch.setenv("OMP_NUM_THREADS", "1")
        run = Run("agents")
        yield run, execute(run)


def test_the_run_is_one_that_notebook_4_reads_and_has_the_tools_columns(played):
    run, _ = played
    history = pd.read_csv(run.require("metrics.csv"))
    assert list(history["step"]) == [1, 2]
    assert (history["tools/call_frequency"] > 1).all() and history[
        "tools/failure_frequency"
    ].between(0, 1).all()
    # `finished` earns nothing
    assert history["reward"].tolist() == pytest.approx(history["rewards/Guessing/mean"].tolist())
    assert run.section("training")["rewards"] == ["Guessing"]
    assert pipeline.run(run.name, None, "04", []) == 0


def test_the_completions_are_whole_episodes_with_what_the_tools_said(played):
    table = pd.read_parquet(played[0].require("completions.parquet"))
    assert len(table) == 2 * 16 and set(table["Guessing"].round(1)) <= {
        0.0,
        0.1,
        0.4,
        0.5,
        0.6,
        0.7,
        0.8,
        0.9,
        1.0,
    }
    found = table[table["Guessing"] >= 0.4]["completion"]
    assert len(found) and found.str.contains(r"guess\(number=\d+\)\n    Yes, it is \d+\.").all()
    assert table["question"].str.match(r"Game \d+\. I am thinking of a number from 1 to 63").all()


def test_no_game_is_on_both_sides(played):
    train, holdout = (
        pd.read_parquet(played[0].require(f"data/{side}.parquet")) for side in ("train", "holdout")
    )
    assert (len(train), len(holdout)) == (16, 24) and not set(train["seed"]) & set(holdout["seed"])


def test_both_of_trls_slots_give_the_same_tokens_and_the_exercises_are_solved(played):
    printed = played[1]
    assert "token for token the same: True" in printed
    assert "10 of 10 checks hold" in printed and printed.count("NO GO:") == 1
    assert printed.count("Not answered yet") == 2 and printed.count("Right: ") == 2


def test_the_comparison_is_of_the_same_held_out_games(played):
    found = json.loads(played[0].require("policies.json").read_text(encoding="utf-8"))
    wins = {}
    for name, said in found["table"].items():
        share, low, high = (
            float(number) / 100 for number in re.findall(r"([\d.]+)%", said["success"])
        )
        wins[name] = round(24 * share)
        assert (low, high) == pytest.approx(wilson_interval(wins[name], 24), abs=6e-4)
    assert (
        found["won"] - found["lost"]
        == wins["trained"] - wins["untrained"]
        == round(24 * found["difference"])
    )


def test_an_environment_of_ones_own_with_rows_of_its_own(machine, tmp_path):
    (tmp_path / "mine.py").write_text(
        "class Echo:\n"
        "    def reset(self, word, **columns):\n"
        "        self._word, self._said = word, None\n"
        '        return f"Say {word}."\n\n'
        "    def guess(self, number: int) -> str:\n"
        '        """Say a number.\n\n        Args:\n            number: The number.\n        """\n'
        "        self._said = number\n"
        '        return "Yes, it is. " * 12\n\n'
        "    def get_reward(self):\n"
        "        return float(self._said == self._word)\n",
        encoding="utf-8",
    )
    rows = [json.dumps({"word": number, "seed": number % 20}) for number in [*range(1, 41), 7]]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows), encoding="utf-8")
    mine = {
        "environment": f"{tmp_path / 'mine.py'}:Echo",
        "rows_file": str(tmp_path / "rows.jsonl"),
    }
    printed = execute(Run("mine"), **mine, max_steps=1, result_characters=100)
    assert re.search(r"faults of the environment: 0, texts cut short: [1-9]", printed)
    assert (
        "your environment was not attacked" in printed
        and "token for token the same: True" in printed
    )
    holdout = pd.read_parquet(Run("mine").require("data/holdout.parquet"))
    train = pd.read_parquet(Run("mine").require("data/train.parquet"))
    assert "40 rows; dropped: {'duplicate': 1}" in printed
    assert sorted([*holdout["word"], *train["word"]]) == list(range(1, 41)) and list(
        holdout["word"]
    ) != list(range(1, 25))
    assert holdout["question"][0] == f"Game 1. Say {holdout['word'][0]}."
    assert "guesses given away" not in Run("mine").require("policies.json").read_text(
        encoding="utf-8"
    )


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"environment": "nowhere.py:Game"}, "nowhere.py cannot be read"),
        ({"system_prompt": 5}, "system_prompt=5 must be a text"),
        ({"environment": "helpers.agents:ToolError"}, "has no method `reset`"),
        ({"turns": 0}, "turns=0 must be a whole number of at least 1"),
        ({"rows_file": "ROWS"}, "Guessing.reset: missing a required argument: 'seed'"),
        ({"rows_file": "ROWS", "holdout_size": 50}, "40 rows are too few to hold 50 out"),
        ({"rows_file": "OF TEXT"}, "row 1 cannot be played: Guessing.reset"),
        ({"success": "0.4"}, "success='0.4' must be a number"),
        ({"engine": "vllm"}, "vllm"),
    ],
    ids=[
        "no file",
        "no prompt",
        "no environment",
        "no turns",
        "other columns",
        "few rows",
        "seeds of text",
        "no number",
        "vllm without a GPU",
    ],
)
def test_what_cannot_be_played_is_said_before_a_model_is_loaded(machine, tmp_path, given, says):
    rows = [json.dumps({"word": number}) for number in range(40)]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows), encoding="utf-8")
    (tmp_path / "text.jsonl").write_text(
        "".join(f'{{"seed": "number {number}"}}\n' for number in range(40)), encoding="utf-8"
    )
    files = {"ROWS": "rows.jsonl", "OF TEXT": "text.jsonl"}
    given = {
        name: str(tmp_path / files[value]) if value in files else value
        for name, value in given.items()
    }
    with pytest.raises(PapermillExecutionError) as caught:
        execute(Run("mine"), **given)
    assert caught.value.ename == "ValueError" and says in caught.value.evalue


def test_a_no_go_of_the_laboratory_stops_the_notebook(machine):
    with pytest.raises(PapermillExecutionError) as caught:
        execute(Run("mine"), turns=1)
    assert caught.value.ename == "AssertionError" and "NO GO" in caught.value.evalue


def test_the_command_line_refuses_an_environment_that_cannot_be_used():
    given = {"environment": "helpers.agents:Calculator", "turns": 8, "success": 0.9}
    assert set(given) < set(pipeline.defaults(["10"]))
    pipeline.check("agents", ["10"], given)
    for wrong, says in (
        ("helpers.agents:Nothing", "no class or function Nothing"),
        ("Calculator", "file.py:Class"),
    ):
        with pytest.raises(ValueError, match=says):
            pipeline.check("agents", ["10"], {"environment": wrong})
    with pytest.raises(FileNotFoundError, match=r"rows_file='absent\.jsonl'"):
        pipeline.check("agents", ["10"], {"rows_file": "absent.jsonl"})


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
    assert example and settings.model == "pocket-games" and settings.max_completion_length == 288
    settings, example = resolved(
        monkeypatch, H100, preset="h100", model="org/player", max_completion_length=4096
    )
    assert not example and settings.model == "org/player" and settings.max_completion_length == 4096
    assert (
        settings.learning_rate == PRESETS["h100"].learning_rate
        and settings.max_steps == PRESETS["h100"].max_steps
    )
    with pytest.raises(ValueError, match="would ruin 'org/player': take preset='auto'"):
        resolved(monkeypatch, here, model="org/player")


# --- As committed ---------------------------------------------------------------------------------


def committed():
    """What the committed notebook printed: text, and tables as text."""
    outputs = [
        o for cell in nbformat.read(NOTEBOOK, as_version=4).cells for o in cell.get("outputs", [])
    ]
    return "\n".join(o.get("text", "") or o.get("data", {}).get("text/plain", "") for o in outputs)


def row(name):
    """A row of the last table with both policies, without the intervals."""
    lines = [
        re.sub(r"\([^)]*\)", "", line) for line in committed().splitlines() if line.startswith(name)
    ]
    return [float(number) for number in re.findall(r"([\d.]+)%?", lines[-1].removeprefix(name))]


def test_what_is_said_beside_the_numbers_holds_in_the_committed_outputs():
    untrained, trained = row("success")
    assert untrained < 40 and trained > 85
    assert row("calls until found")[1] < row("calls until found")[0]
    assert row("guesses given away")[1] < row("guesses given away")[0] / 2
    assert row("calls that failed")[1] < row("calls that failed")[0]
