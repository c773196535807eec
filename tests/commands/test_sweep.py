"""The command `sweep`: which grids it refuses, which runs it executes, and the numbers of its
table.
"""

import math
import re

import pandas as pd
import pytest
import yaml

from helpers import PROJECT
from helpers.commands import sweep
from helpers.commands.sweep import Grid, runs_of
from helpers.presets import PRESETS
from helpers.runs import Run, runs_folder, write_json

pytestmark = pytest.mark.usefixtures("machine")
GOOD = {
    "name": "tiny",
    "seeds": [1, 2],
    "fixed": {"preset": "pocket"},
    "points": [{}, {"beta": 0}, {"beta": "1e-1"}, {"lora_rank": 8}],
}


def sweep_runs(**changes) -> list[sweep.SweepRun]:
    return runs_of(Grid(**GOOD | changes), another_machine=False)


@pytest.fixture
def grid_file(tmp_path):
    """A function that writes a grid file and returns its path.

    Its arguments are a whole text, or keys to replace in the good grid; None leaves a key out.
    """

    def write(text: str | None = None, **changes):
        content = {key: value for key, value in (GOOD | changes).items() if value is not None}
        text = yaml.safe_dump(content, sort_keys=False) if text is None else text
        (tmp_path / "grid.yaml").write_text(text)
        return tmp_path / "grid.yaml"

    return write


# --- The grid -------------------------------------------------------------------------------------


def test_each_point_is_a_run_for_each_seed(grid_file, cli):
    found = sweep_runs(notebooks=[3, "01", 1])
    assert [
        (each.run, each.first_columns["beta"], each.first_columns["lora_rank"])
        for each in found[::2]
    ] == [
        ("tiny-base-seed-1", 0.01, 16),
        ("tiny-beta-0-seed-1", 0, 16),
        ("tiny-beta-0.1-seed-1", 0.1, 16),
        ("tiny-lora_rank-8-seed-1", 0.01, 8),
    ]
    assert found[-1].parameters == {"preset": "pocket", "lora_rank": 8, "seed": 2}
    _, out, _ = cli("sweep", "--grid", str(grid_file()), "--emit", "commands")
    command = "python -m helpers run --once --run tiny-lora_rank-8-seed-2 --only 01,03"
    command += " -p 'preset=\"pocket\"' -p lora_rank=8 -p seed=2"
    assert len(out.splitlines()) == len(found) and out.splitlines()[-1] == command


def test_a_value_that_a_point_leaves_out_comes_from_its_notebook_or_preset():
    points = [{"preset": "small"}, {"preset": "t4", "max_steps": 50}, {"max_steps": None}]
    grid = GOOD | {"points": points, "seeds": [1]}
    found = runs_of(Grid(**grid), another_machine=True)
    expected = [PRESETS["small"].max_steps, 50, PRESETS["pocket"].max_steps]
    assert [each.first_columns["max_steps"] for each in found] == expected
    found = runs_of(Grid(**grid | {"notebooks": [0]}), another_machine=True)
    assert [each.first_columns["max_steps"] for each in found] == [
        20,
        50,
        PRESETS["pocket"].max_steps,
    ]


def test_a_grid_is_checked_against_the_folders_of_its_own_runs_alone():
    Run("sweep").record("data", notebook="07")
    found = sweep_runs()
    Run(found[-1].run).record("data", notebook="07")
    with pytest.raises(ValueError, match=r"lora_rank-8: .*07"):
        sweep_runs()


def test_names_stay_run_names_and_tell_points_apart():
    long = [{"temperature": heat, "top_p": 0.987654321} for heat in (0.123456789, 0.123456788)]
    assert len({Run(task.run).name for task in sweep_runs(name="x" * 32, points=long)}) == 4


REFUSED = {
    "syntax": ("name: x\nseeds: [1, 2\nfixed: {}\n", "line 3, column 6"),
    "key": ({"seed": [1]}, "seed\n.*Extra inputs are not permitted"),
    "no name": ({"name": None}, "name\n.*Field required"),
    "name": ({"name": "../x"}, "'../x.*' is not a run name"),
    "preset": ({"fixed": {"preset": "poket"}}, "preset 'poket' is not known.*Known: auto, pocket"),
    "gpu": ({"fixed": {"preset": "h200"}}, "preset 'h200' needs an NVIDIA GPU"),
    "notebook": ({"notebooks": [1, 3, 99]}, "there is no notebook 99. There are: 00, 01, 02"),
    "repeated seeds": ({"seeds": [1, 2, 1]}, "two runs are called tiny-base-seed-1"),
    "no point": ({"points": {"beta": 0.1}}, "points\n.*Input should be a valid list"),
    "parameter": (
        {"points": [{"num_generation": 4}]},
        "point num_generation-4: .*Did you mean 'num_generations'",
    ),
    "a value": (
        {"points": [{"num_generations": 7}]},
        "point num_generations-7: .*not whole groups of num_gen",
    ),
    "a source": (
        {"fixed": {"preset": "pocket", "source": "missing.csv"}},
        "point base: .*No such file.*missing.csv",
    ),
}


@pytest.mark.parametrize(("content", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_a_grid_is_refused_with_a_reason_before_anything_runs(cli, grid_file, content, why):
    path = grid_file(content) if isinstance(content, str) else grid_file(**content)
    code, out, err = cli("sweep", "--grid", str(path))
    assert (code, out) == (2, "") and not runs_folder().exists()
    assert re.match(rf"(?s)error: grid\.yaml: .*{why}", err)


def test_the_grid_that_is_shipped_is_accepted(cli):
    path = PROJECT / "benchmarks" / "grids" / "knobs.yaml"
    code, out, _ = cli("sweep", "--grid", str(path), "--emit", "commands")
    assert code == 0 and out.count("python -m helpers run") == 18
    assert not runs_folder().exists()


def test_emit_accepts_a_grid_for_a_larger_machine(cli, grid_file):
    path = grid_file(fixed={"preset": "h200"})
    code, out, _ = cli("sweep", "--grid", str(path), "--emit", "commands")
    assert code == 0 and out.count('preset="h200"') == out.count("\n") == 8


# --- The table ------------------------------------------------------------------------------------


def finish(task: sweep.SweepRun, accuracy: float, **asked) -> None:
    """Write the files of a finished run; `asked` changes the parameters that it records."""
    run = Run(task.run)
    seed = task.first_columns["seed"]
    done = {"notebooks": task.notebooks, "done": task.notebooks}
    run.record("call", parameters=task.parameters | asked, **done)
    history = pd.DataFrame({"step": range(1, 11), "reward_std": 0.5, "loss": 0.0, "step_time": 0.5})
    history["reward"] = [0.0] * 8 + [1.0, 1.0 + seed]
    history["kl"] = [0.5] * 9 + [seed / 100]
    history.to_csv(run.path("metrics.csv"), index=False)
    entry = {"accuracy": accuracy, "n": 100, "ci95": [0.0, 1.0], "in_format": 1.0}
    write_json(run.path("evaluation.json"), {"trained": entry})


@pytest.fixture
def finished():
    """A sweep of four points. The base has three finished seeds, beta=0 has one, beta=0.1 has two,
    and lora_rank=8 has none.
    """
    grid = {"seeds": [1, 2, 3], "notebooks": [1, 3, 5]}
    found = sweep_runs(**grid)
    for task, accuracy in zip(found[:3], (0.8, 0.9, 1.0), strict=True):
        finish(task, accuracy)
    finish(found[4], 0.9)
    finish(found[5], 0.5, max_steps=7)  # other parameters: not finished
    finish(found[6], 0.75)
    finish(found[7], 0.75)
    return grid


def test_the_table_is_written_and_shown_even_if_a_run_fails(cli, finished, grid_file, monkeypatch):
    first = "tiny-beta-0-seed-1"
    tried = []

    def quick(name, *asked, **how):
        tried.append(name)
        if name == first:
            raise ValueError("preset 'x' is not known")
        return 1

    monkeypatch.setattr(sweep, "run_notebooks", quick)
    command = ["sweep", "--grid", str(grid_file(**finished))]
    code, out, err = cli(*command)
    assert (code, err) == (1, "") and f"4/12  {first}\nerror: preset 'x' is not known" in out
    assert tried[:2] == [first, "tiny-beta-0-seed-3"], (
        "a failure stops nothing; what is done is not"
    )
    code, shown, _ = cli(*command, "--collect")
    assert code == 0 and re.search(r"base .* 0.9 +0.6516 +1.148 ", shown)
    left = "beta-0-seed-1, tiny-beta-0-seed-3, tiny-beta-0.1-seed-3, tiny-lora_rank-8-seed-1"
    assert f"not finished: tiny-{left}" in shown
    runs = pd.read_csv(runs_folder() / "sweeps/tiny/runs.csv")
    assert list(runs["seed"]) == [1, 2, 3, 2, 1, 2]
    assert list(runs["accuracy"]) == [0.8, 0.9, 1.0, 0.9, 0.75, 0.75]
    assert list(runs["final_reward"][:3]) == [1.5, 2.0, 2.5]

    table = pd.read_csv(runs_folder() / "sweeps/tiny/table.csv").set_index("point")
    assert list(table["seeds"]) == [3, 1, 2] and list(table["beta"]) == [0.01, 0, 0.1]
    base = table.loc["base"]
    # Mean 0.9, standard deviation 0.1, t(2) = 4.303: 0.9 ± 4.303 * 0.1 / sqrt(3) = 0.9 ± 0.24843.
    interval = base[["accuracy", "accuracy_low", "accuracy_high"]].tolist()
    assert interval == pytest.approx([0.9, 0.65157, 1.14843], abs=1e-5)
    # The last fifth are two steps, 1 and 1 + seed: 1.5, 2, 2.5; standard deviation 0.5.
    interval = base[["final_reward", "final_reward_low", "final_reward_high"]].tolist()
    assert interval == pytest.approx([2, 0.75785, 3.24215], abs=1e-4)
    assert base["kl"] == pytest.approx(0.02) and base["training_seconds"] == 5.0
    assert base["training_seconds_low"] == base["training_seconds_high"] == 5.0
    # One seed has no interval.
    one = table.loc["beta-0"]
    assert (one["accuracy"], one["final_reward"]) == (0.9, 2.0)
    assert math.isnan(one["accuracy_low"]) and math.isnan(one["final_reward_high"])
