"""The notebooks through papermill, on the real libraries and the pocket model: what they write, and
how they refuse.
"""

import ast
import importlib
import json
import os
import re
import subprocess
from pathlib import Path

import nbformat
import pandas as pd
import pytest
from papermill.exceptions import PapermillExecutionError
from reading import cells, notebook

import helpers
from helpers import PROJECT
from helpers.commands.notebooks import NOTEBOOKS, PARAMETER_TAGS, defaults
from helpers.rewards.correctness import correctness_reward
from helpers.runs import Run
from helpers.settings import SETTINGS, settings_of

PATHS = sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))
each_notebook = pytest.mark.parametrize("path", PATHS, ids=[path.stem for path in PATHS])


# --- As committed ---------------------------------------------------------------------------------


@each_notebook
def test_the_structure_of_a_committed_notebook(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert notebook.metadata.language_info.name == "python"
    assert "**You will learn**" in notebook.cells[0].source
    tagged = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    assert len(tagged) == 1
    first = [cell for cell in notebook.cells if "first-parameters" in cell.metadata.get("tags", [])]
    # papermill's cell follows the tagged one; a default after that would replace what it sets
    assert all(notebook.cells.index(cell) < notebook.cells.index(tagged[0]) for cell in first)
    folded = tagged[0].metadata.get("jupyter") == {"source_hidden": True}
    assert folded == bool(first), "only seldom-used parameters are folded, after the first ones"
    assert cells(path)[0].source == cells(PATHS[0])[0].source, "the Colab cell is the same in all"
    for before, cell in zip(notebook.cells, notebook.cells[1:], strict=False):
        solution = "solution" in cell.metadata.get("tags", [])  # is folded, behind its exercise
        reads_parameters = before is tagged[0]
        introduced = "markdown" in (before.cell_type, cell.cell_type) or solution
        assert introduced or reads_parameters, f"no sentence: {cell.source[:60]}"


@each_notebook
def test_what_is_committed_is_one_clean_run_on_no_ones_machine(path):
    code = cells(path)
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    for output in [output for cell in code for output in cell.outputs]:
        assert output.output_type != "error" and output.get("name") != "stderr", output
        # JupyterLab shows an image without alt text; helpers.figures' `view` writes HTML with one
        data = output.get("data", {})
        assert not any(kind.startswith("image/") for kind in data)
        for image in re.findall(r"<img\b[^>]*>", data.get("text/html", "")):
            assert re.search(r'\balt="[^"\s]', image), image[:80]
    # chance may spell a path in the base64 of a picture
    written = re.sub(r"data:image/[\w+]+;base64,[\w+/=]*", "", path.read_text(encoding="utf-8"))
    somebodys = (
        r"(?<![\w.~-])/(?:root|home/\w+|Users/\w+|tmp|content)/[^\s\"'<>]+|[A-Z]:[\\/]+Users"
    )
    assert str(PROJECT) not in written
    assert re.findall(somebodys, written.replace(r"\n", "\n")) == []


def test_every_setting_is_a_parameter_where_its_table_says_so():
    # the cells show only the most important ones
    taken = {number: defaults([number]) for number in ("01", "03")}
    for number in ("01", "03"):
        for name, setting in SETTINGS.items():
            assert (number in setting.metadata["of"]) == (name in taken[number]), (number, name)
    assert {"max_steps", "early_stopping"} <= taken["03"].keys(), "the folded cell's, too"
    # 00 prepares and trains, through Unsloth alone
    of_both = {name for name in SETTINGS if name in taken["01"] or name in taken["03"]}
    assert SETTINGS.keys() & defaults(["00"]).keys() == of_both - {"backend"}


@pytest.mark.parametrize("number", ["00", "03", "07", "11"])
def test_a_variable_named_like_a_setting_is_reset_by_the_cell_of_parameters(number):
    """The first cells can be run again: no model of a later cell is taken for the setting `model`."""
    taken = set(settings_of("03") if number == "03" else SETTINGS)
    code = [cell for cell in cells(notebook(number)) if cell.cell_type == "code"]
    assigned = {
        index: {
            node.id
            for node in ast.walk(ast.parse(cell.source))
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        for index, cell in enumerate(code)
    }
    first = [i for i, cell in enumerate(code) if PARAMETER_TAGS & {*cell.metadata.get("tags", [])}]
    later = set().union(*(names for index, names in assigned.items() if index > first[-1]))
    assert later & taken <= set().union(*(assigned[index] for index in first))


def test_03_shows_the_lines_a_reader_came_for_and_the_rewards_that_02_has_tested():
    tested, text = ("\n".join(cell.source for cell in cells(notebook(n))) for n in ("02", "03"))
    lines = ["from_pretrained(", "get_peft_model(", "GRPOConfig(", "GRPOTrainer(", "trainer.train("]
    assert all(line in text for line in lines)
    rewards = r"reward_functions = \[.*?\]\n|reward_weights = \[.*?\]"
    shown = re.findall(rewards, text, re.DOTALL)
    assert shown == re.findall(rewards, tested, re.DOTALL) and len(shown) == 2


def names_of_a_door(package: str) -> dict[str, str]:
    """What a package of helpers gives to `door`: the names that each module offers."""
    source = (PROJECT / package.replace(".", "/") / "__init__.py").read_text(encoding="utf-8")
    (door,) = [
        call
        for call in ast.walk(ast.parse(source))
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "door"
    ]
    return ast.literal_eval(door.args[1])


STAGES = ("judging", "data", "rewards", "training", "metrics", "results", "agents", "laboratory")
DOORS = ("helpers", *(f"helpers.{stage}" for stage in STAGES))
# From `helpers`, notebooks also take the stages, two of the common modules, and the checkout.
OFFERED = {("helpers", name) for name in (*STAGES, "figures", "templates", "PROJECT")}
for door in DOORS:
    for module, names in names_of_a_door(door).items():
        OFFERED |= {(door, each.partition("=")[0]) for each in names.split() or [module]}


def taken_from_helpers(path) -> set[tuple[str, str]]:
    """The names that a notebook imports, each with its package; "" for `import helpers…`."""
    source = "\n".join(cell.source for cell in cells(path)[1:])  # the first one is for Colab
    taken = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            taken |= {("", one.name) for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            taken |= {(node.module, one.name) for one in node.names}
    return {pair for pair in taken if next(filter(None, pair)).partition(".")[0] == "helpers"}


@each_notebook
def test_a_notebook_takes_what_it_needs_through_the_doors_of_helpers(path):
    taken = taken_from_helpers(path)
    assert taken <= OFFERED
    assert len({module for module, _ in taken}) <= 6 and len(taken) <= 14


def test_the_table_of_helpers_names_the_notebooks_that_use_each_stage():
    users = {stage: [] for stage in STAGES}
    for path in PATHS:
        words = {word for pair in taken_from_helpers(path) for word in ".".join(pair).split(".")}
        for stage in words & users.keys():
            users[stage].append(path.name[:2])
    for stage, numbers in users.items():
        _, row = helpers.__doc__.split(f"| `helpers/{stage}/` |")
        said = row.split("|")[1]
        for first, last in re.findall(r"(\d\d) to (\d\d)", said):
            between = [f"{number:02}" for number in range(int(first), int(last) + 1)]
            said = said.replace(f"{first} to {last}", ", ".join(between))
        assert said.strip() == ", ".join(numbers), stage


def test_each_name_of_a_door_is_there():
    for door in DOORS:
        package = importlib.import_module(door)
        for module, offered in names_of_a_door(door).items():
            assert module.startswith("helpers.") or getattr(package, module)
            for each in offered.split():
                assert getattr(package, each.partition("=")[0]) is not None, each


# --- What a run leaves ----------------------------------------------------------------------------


def test_the_curves_have_trls_columns(executed):
    history = pd.read_csv(executed.require("metrics.csv"))
    assert list(history["step"]) == list(range(1, 13))
    named = ["reward_std", "frac_reward_zero_std", "loss", "grad_norm", "completions/mean_length"]
    assert history[["kl", *named]].notna().all(axis=None)
    # The logged reward is the weighted sum of the single ones, with the weights that the notebook
    # shows.
    rewards = ("correctness", "substantial_format")
    single = [history[f"rewards/{name}_reward/mean"] for name in rewards]
    assert (history["reward"] - (single[0] + 0.25 * single[1])).abs().max() < 1e-4


def test_completions_are_kept_with_their_rewards(executed):
    table = pd.read_parquet(executed.require("completions.parquet"))
    assert len(table) == 12 * 64 and set(table["step"]) == set(range(1, 13))
    again = correctness_reward(list(table["completion"]), answer=list(table["answer"]))
    assert again == list(table["correctness_reward"])


def test_the_evaluation_has_intervals_that_contain_the_point(executed):
    evaluation = json.loads(executed.require("evaluation.json").read_text())
    assert list(evaluation) == ["baseline", "trained", "merged"]
    for entry in (*evaluation.values(), *(entry["greedy"] for entry in evaluation.values())):
        low, high = entry["ci95"]
        assert entry["n"] == 128 and 0 <= low <= entry["accuracy"] <= high <= 1 and low < high
    # 12 steps are few, but the format is learned by then
    before, after = evaluation["baseline"], evaluation["trained"]
    assert after["accuracy"] > before["accuracy"] and after["in_format"] > 0.8 > before["in_format"]


def test_the_manifest_says_what_was_made_of_what_and_that_the_merge_is_proven(executed):
    manifest = executed.manifest
    assert list(manifest) == ["name", "call", "data", "rewards", "training", "evaluation", "merge"]
    call, data, rewards, training, evaluation, merge = list(manifest.values())[1:]
    assert call["done"] == ["01", "02", "03", "04", "05"]
    assert call["given"]["03"] == {"max_steps": 12, "save_steps": 4}
    assert training["data"] == rewards["data"] == data["fingerprint"]
    assert evaluation["training"] == merge["training"] == training["written"]
    assert {"torch", "trl", "unsloth", "transformers"} <= set(training["versions"])
    assert training["base"]["quantised"] == "here" and len(training["base"]["revision"]) == 40
    assert abs(merge["kept"] - 1) < 1e-3 and merge["unexplained"] < 1e-3
    gap = merge["quantisation_gap"]
    assert merge["logit_difference"] <= 1e-3 < gap["original"]
    assert gap["dequantised"] < gap["original"], "0 where the policy computes in 32 bits, too"


# --- Refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "needed"), [("02", "01_d"), ("03", "01_d"), ("04", "03_g"), ("05", "03_g")]
)
def test_a_notebook_before_the_one_it_needs_names_that_one(machine, execute, number, needed):
    with pytest.raises(PapermillExecutionError, match=rf"Run notebook {needed}\w+ first") as error:
        execute(number, Run("early"))
    assert error.value.ename == "FileNotFoundError"


# --- Colab ----------------------------------------------------------------------------------------


@pytest.fixture
def colab(tmp_path, python):
    """Run the notebooks' first cell, then more, in a process in an empty folder."""

    def run(
        more: str = "", typed: str = "", folder: Path = tmp_path, **environment
    ) -> subprocess.CompletedProcess:
        return subprocess.run(
            [python, "-c", cells(PATHS[0])[0].source + more],
            cwd=folder,
            env=os.environ | environment,
            input=typed,
            capture_output=True,
            text=True,
        )

    return run


@pytest.mark.needs("git")
def test_the_colab_cell_clones_and_installs_there_and_does_nothing_elsewhere(tmp_path, colab):
    elsewhere = colab()
    assert elsewhere.returncode == 0 and list(tmp_path.iterdir()) == [], elsewhere.stderr
    shown = "\nimport helpers, os; print(os.getcwd(), helpers.__file__, sep='\\n')"
    for _ in range(2):  # the second time everything is there
        there = colab(shown, COLAB_RELEASE_TAG="test", GRPO_REPOSITORY=PROJECT.as_uri())
        assert there.returncode == 0, there.stderr
        folder, module = there.stdout.splitlines()[-2:]
        assert folder == str(tmp_path / "grpo-notebooks") and module.startswith(folder)
        assert "everything is installed already" in there.stdout


@pytest.mark.needs("git")
@pytest.mark.parametrize("typed", ["", "my-grpo"])
def test_the_colab_cell_names_an_address_that_is_not_the_projects(tmp_path, colab, typed):
    done = colab(typed=f"{typed}\n", COLAB_RELEASE_TAG="test", GRPO_REPOSITORY="")
    assert f"repository '{typed}' does not exist" in done.stderr  # git's own words
    assert done.returncode and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("inside", ["", "notebooks"])
def test_the_colab_cell_clones_nothing_into_a_clone(tmp_path, colab, inside):
    """In Colab, too, `python -m helpers run` executes notebooks in the clone's notebooks/."""
    (tmp_path / "helpers").mkdir()
    (tmp_path / "notebooks").mkdir()
    done = colab(folder=tmp_path / inside, COLAB_RELEASE_TAG="test", GRPO_REPOSITORY="nowhere")
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.rglob("*")} == {"helpers", "notebooks"}
