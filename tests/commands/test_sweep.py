"""Sweeps: what a grid is refused for, what is run and what is not run again, and the numbers of the
table.
"""

import math
import re
import signal
import subprocess
import time

import pandas as pd
import psutil
import pytest
import yaml

from helpers import PROJECT
from helpers.commands import sweep
from helpers.commands.sweep import read_grid
from helpers.runs import Run, runs_folder, write_json

pytestmark = pytest.mark.usefixtures("machine")
GOOD = {
    "name": "tiny",
    "preset": "pocket",
    "seeds": [1, 2],
    "one_at_a_time": {"beta": [0, 0.1], "lora_rank": [8, 16]},
}


@pytest.fixture
def grid_file(tmp_path):
    """Writes a grid: the good one with some keys replaced (None leaves one out), or a text as it
    stands.
    """

    def write(text: str | None = None, **changes):
        content = {key: value for key, value in (GOOD | changes).items() if value is not None}
        (tmp_path / "grid.yaml").write_text(
            yaml.safe_dump(content, sort_keys=False) if text is None else text
        )
        return tmp_path / "grid.yaml"

    return write


# --- The grid -------------------------------------------------------------------------------------


def test_each_knob_alone_shares_one_base_point(grid_file):
    _, tasks = read_grid(grid_file(fixed={"max_steps": 5}, notebooks=[3, "01", 1]))
    assert [(task.run, task.knobs) for task in tasks[::2]] == [
        ("tiny-base-seed-1", {"beta": 0.01, "lora_rank": 16}),
        ("tiny-beta-0-seed-1", {"beta": 0, "lora_rank": 16}),
        ("tiny-beta-0.1-seed-1", {"beta": 0.1, "lora_rank": 16}),
        ("tiny-lora_rank-8-seed-1", {"beta": 0.01, "lora_rank": 8}),
    ]
    assert tasks[-1].parameters == {"max_steps": 5, "preset": "pocket", "lora_rank": 8, "seed": 2}
    command = "run --once --fresh --run tiny-lora_rank-8-seed-2 --only 01,03"
    command += ' -p max_steps=5 -p lora_rank=8 -p preset="pocket" -p seed=2'
    assert tasks[-1].command() == command.split()


PRODUCT = {"beta": [0, 0.02], "lora_rank": [8, 16]}
SHARED = {"beta": [0.01, None, 0.1], "lora_rank": [8, 16], "loss_type": ["dapo"]}
MOVED = {"fixed": {"loss_type": "grpo"}, "one_at_a_time": {"beta": [0.01, 0.1]}}
READ = {"learning_rate": ["2e-3"], "num_generations": [8]}  # YAML 1.1 reads 2e-3 as text
POINTS = [
    (
        {"one_at_a_time": None, "product": PRODUCT},
        [f"beta-{beta}-lora_rank-{rank}" for beta in (0, 0.02) for rank in (8, 16)],
    ),
    ({"one_at_a_time": SHARED}, ["base", "beta-0.1", "lora_rank-8"]),
    (MOVED, ["base", "beta-0.1"]),
    ({"one_at_a_time": READ, "seeds": [0]}, ["base", "learning_rate-0.002"]),
    (
        {"one_at_a_time": None, "product": {"beta": [None, 0.1]}},
        ["beta-none", "beta-0.1"],
    ),
]


@pytest.mark.parametrize(
    ("changes", "points"), POINTS, ids=["product", "shared base", "moved", "an exponent", "none"]
)
def test_points_are_every_combination_or_each_value_that_is_not_the_base(
    grid_file, changes, points
):
    grid, tasks = read_grid(grid_file(**changes))
    assert [task.point for task in tasks if task.seed == grid.seeds[0]] == points


def test_names_stay_run_names_and_tell_points_apart(grid_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for file in ("a/b.csv", "a b.csv"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text("question,answer\nWhat is 1 + 1?,2\n")
    product = {
        "source": ["a/b.csv", "a b.csv"],
        "per_device_train_batch_size": [32, 64],
        "lr_scheduler_type": ["cosine"],
    }
    changes = {"name": "x" * 32, "one_at_a_time": None, "product": product, "seeds": [2**32 - 1]}
    _, (task, *others) = read_grid(grid_file(**changes))
    # as earlier versions named them, so that their sweeps go on
    assert task.run == f"{'x' * 32}-source-71b4c8d8-seed-4294967295"
    found = {Run(one.run).name for one in others}
    assert len(found) == 3 and task.run not in found and max(map(len, found)) <= 64
    assert task.parameters["source"] == str(tmp_path / "a/b.csv"), "as it holds from elsewhere, too"
    assert task.knobs["source"] == "a/b.csv"


REFUSED = {
    "a list": ("[1, 2]", "Input should be a valid dictionary.*A grid has the keys name, preset"),
    "empty": ("", "Input should be a valid dictionary"),
    "syntax": ("name: x\nseeds: [1, 2\nfixed: {}\n", "line 3, column 6"),
    "an object": ("name: !!python/object:os.system x\n", "could not determine a constructor"),
    "key": ({"seed": [1]}, "seed: Extra inputs are not permitted"),
    "no name": ({"name": None}, "name: Field required"),
    "name": ({"name": "../x"}, "'../x' is not a run name"),
    "long name": ({"name": "x" * 33}, "name: String should have at most 32"),
    "preset": ({"preset": "poket"}, "preset 'poket' is not known.*Known: auto, pocket"),
    "gpu": ({"preset": "h200"}, "preset 'h200' needs an NVIDIA GPU"),
    "notebook": ({"notebooks": [1, 3, 99]}, "there is no notebook 99. There are: 00, 01, 02"),
    "untrained": ({"notebooks": [1, 4]}, "notebooks: 01, 04: a sweep trains each run anew"),
    "notebooks": ({"notebooks": "01,03"}, "notebooks: Input should be a valid list"),
    "no seeds": ({"seeds": None}, "seeds: Field required"),
    "empty seeds": ({"seeds": []}, "seeds: List should have at least 1 item"),
    "repeated seeds": ({"seeds": [1, 2, 1]}, "given twice: there are two runs tiny-base-seed-1"),
    "a seed": ({"seeds": [1, -2]}, "seeds: 1: Input should be greater than or equal to 0"),
    "no knobs": ({"one_at_a_time": None}, "give the knobs under one_at_a_time"),
    "both": ({"product": {"beta": [0]}}, "one of the two"),
    "empty knobs": ({"one_at_a_time": {}}, "one_at_a_time: Dictionary should have at least 1"),
    "no values": ({"one_at_a_time": {"beta": []}}, "beta: List should have at least 1 item"),
    "one value": ({"one_at_a_time": {"beta": 0.1}}, "beta: Input should be a valid list"),
    "parameter": (
        {"one_at_a_time": {"num_generation": [4]}},
        "point num_generation-4: .*Did you mean 'num_generations'",
    ),
    "fixed parameter": ({"fixed": {"steps": 4}}, "no chosen notebook has a parameter 'steps'"),
    "elsewhere": ({"one_at_a_time": {"seed": [1, 2]}}, "seed has a place of its own, `seeds:`"),
    "fixed knob": (
        {"fixed": {"beta": 0.1}, "one_at_a_time": {"beta": [None]}},
        "beta has a place of its own, `fixed:`",
    ),
    "fixed preset": ({"fixed": {"preset": "l4"}}, "preset has a place of its own"),
    "a knob of 05": (
        {"one_at_a_time": {"samples": [4, 8]}},
        "no chosen notebook has a parameter 'samples'",
    ),
    "a value": (
        {"one_at_a_time": {"num_generations": [8, 7]}},
        "point num_generations-7: .*not whole groups of num_gen",
    ),
    "a type": (
        {"one_at_a_time": {"lora_rank": ["8"]}},
        "point lora_rank-8: .*lora_rank='8' is not of type int",
    ),
    "a date": (
        "name: x\nseeds: [1]\nproduct: {source: [2026-08-01]}\n",
        "product: source: 0: input was not a valid JSON value",
    ),
    "a truth": ("name: x\nseeds: [1]\nproduct: {on: [1]}\n", "product: .*valid string"),
    "no number": ({"fixed": {"learning_rate": math.inf}}, "learning_rate=inf must be between"),
    "a source": ({"fixed": {"source": "missing.csv"}}, "point base: .*No such file.*missing.csv"),
    "the base": ({"fixed": {"num_generations": 7}}, "point base: preset 'pocket' cannot run"),
    "twice": ({"one_at_a_time": {"beta": [0, 0]}}, "two runs tiny-beta-0-seed-1"),
}


@pytest.mark.parametrize(("content", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_a_grid_is_refused_with_a_reason_before_anything_runs(cli, grid_file, content, why):
    path = grid_file(content) if isinstance(content, str) else grid_file(**content)
    with pytest.raises(ValueError, match=rf"(?s)^grid\.yaml: .*{why}") as error:
        read_grid(path)
    code, out, err = cli("sweep", "--grid", str(path))
    assert (code, out, err) == (2, "", f"error: {error.value}\n") and not runs_folder().exists()


def test_the_grid_that_is_shipped_is_accepted(cli):
    path = PROJECT / "benchmarks" / "grids" / "knobs.yaml"
    code, out, _ = cli("sweep", "--grid", str(path), "--emit", "commands")
    assert code == 0 and out.count("python -m helpers run") == 18
    assert not runs_folder().exists()


# --- Running --------------------------------------------------------------------------------------


@pytest.fixture
def two_sources(tmp_path, grid_file):
    """A grid of two points, one of which passes every check and fails in notebook 01: its file has
    too few rows.
    """
    for name, rows in (("enough", 40), ("few", 4)):
        lines = [f"What is {n} + {n + 1}?,{2 * n + 1}" for n in range(rows)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["question,answer", *lines]))
    sources = [str(tmp_path / "enough.csv"), str(tmp_path / "few.csv")]
    fixed = {"max_steps": 2, "holdout_size": 8, "num_generations": 4}
    return grid_file(seeds=[1], fixed=fixed, one_at_a_time=None, product={"source": sources})


def table_of(name: str) -> pd.DataFrame:
    return pd.read_csv(runs_folder() / "sweeps" / name / "table.csv")


@pytest.mark.slow
def test_what_failed_stops_nothing_else_and_alone_is_tried_again(cli, two_sources):
    good, bad = (task.run for task in read_grid(two_sources)[1])
    command = ["sweep", "--grid", str(two_sources)]
    code, out, _ = cli(*command)
    assert code == 1 and f"{good}  done" in out
    why = r"failed: 01_data_preparation.ipynb, cell \d+ \(.*\): ValueError: .*few.csv"
    logs = runs_folder() / "sweeps/tiny/logs"
    assert re.search(rf"{bad}  {why}.* \(the whole output: {logs}/{bad}.log\)", out)
    assert "step    2/2" in (logs / f"{good}.log").read_text()
    assert list(table_of("tiny")["seeds"]) == [1, 0]
    code, out, _ = cli(*command)
    assert code == 1 and "1 runs done, 1 to run" in out and good not in out.partition("\n\n")[0]
    changed = two_sources.read_text().replace("max_steps: 2", "max_steps: 3")
    two_sources.write_text(changed)
    _, out, _ = cli(*command, "--collect")
    assert "0 runs done, 2 to run" in out and good in out, "the same name, other parameters"


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "kill"])
def test_an_interrupt_ends_the_run(two_sources, python, sent):
    command = [python, "-m", "helpers", "sweep", "--grid", str(two_sources)]
    process = subprocess.Popen(
        command, cwd=PROJECT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    logs = runs_folder() / "sweeps" / "tiny" / "logs"
    kernels = []
    while not kernels:
        assert process.poll() is None
        time.sleep(0.1)
        kernels = psutil.Process(process.pid).children(recursive=True)
    time.sleep(1)
    process.send_signal(sent)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 130
    assert "ive the same command again" in err and "Traceback" not in err
    gone, alive = psutil.wait_procs(kernels, timeout=300)
    assert gone and not alive
    (log,) = logs.glob("*.log")
    assert "go on with" in log.read_text() and "pipeline.py" not in log.read_text()


# --- Elsewhere ------------------------------------------------------------------------------------


def test_what_runs_elsewhere_is_not_judged_by_this_machine(cli, grid_file):
    gpu = {"preset": "h200", "seeds": [1, 2], "one_at_a_time": {"beta": [0.1]}}
    code, out, _ = cli("sweep", "--grid", str(grid_file(**gpu)), "--emit", "commands")
    assert code == 0 and out.count('preset="h200"') == out.count("\n") == 4
    for preset in (None, "auto"):
        code, out, err = cli("sweep", "--grid", str(grid_file(preset=preset)), "--emit", "commands")
        assert code == 2 and out == "" and "`preset:` must name one" in err


# --- The table ------------------------------------------------------------------------------------


def finish(task: sweep.Task, accuracy: float, **asked) -> None:
    """A finished run as the notebooks leave one; asked: other parameters than the grid's."""
    run, seed = Run(task.run), task.seed
    given = {"parameters": task.parameters | asked}
    given |= {"notebooks": task.notebooks, "done": task.notebooks}
    write_json(run.path("asked.json"), given)
    history = pd.DataFrame({"step": range(1, 11), "reward_std": 0.5, "loss": 0.0, "step_time": 0.5})
    history["reward"] = [0.0] * 8 + [1.0, 1.0 + seed]
    history["kl"] = [0.5] * 9 + [seed / 100]
    history.to_csv(run.path("metrics.csv"), index=False)
    entry = {"accuracy": accuracy, "n": 100, "ci95": [0.0, 1.0], "in_format": 1.0}
    write_json(run.path("evaluation.json"), {"trained": entry})


@pytest.fixture
def finished(grid_file):
    """A sweep of four points: the base with three seeds, beta=0 with one, beta=0.1 with two,
    lora_rank=8 with none.
    """
    _, tasks = read_grid(grid_file(seeds=[1, 2, 3], notebooks=[1, 3, 5]))
    base, none, some = tasks[:3], tasks[3:6], tasks[6:9]
    for task, accuracy in zip(base, (0.8, 0.9, 1.0), strict=True):
        finish(task, accuracy)
    finish(none[1], 0.9)
    finish(none[2], 0.5, max_steps=7)  # asked for otherwise, so not of this sweep
    finish(some[0], 0.75)
    finish(some[1], 0.75)
    return tasks


@pytest.fixture
def table(finished):
    return sweep.table(finished, sweep.each_run(finished)).set_index("point")


def test_the_table_has_means_and_intervals_worked_out_by_hand(table):
    assert list(table["seeds"]) == [3, 1, 2, 0]
    base = table.loc["base"]
    # Mean 0.9, standard deviation 0.1, t(2) = 4.303: 0.9 ± 4.303 * 0.1 / sqrt(3) = 0.9 ± 0.24843.
    assert base[["accuracy", "accuracy_low", "accuracy_high"]].tolist() == pytest.approx(
        [0.9, 0.65157, 1.14843], abs=1e-5
    )
    # The last fifth are two steps, 1 and 1 + seed: 1.5, 2, 2.5; standard deviation 0.5.
    assert base[
        ["final_reward", "final_reward_low", "final_reward_high"]
    ].tolist() == pytest.approx([2, 0.75785, 3.24215], abs=1e-4)
    assert base["kl"] == pytest.approx(0.02) and base["training_seconds"] == 5.0
    assert base["training_seconds_low"] == base["training_seconds_high"] == 5.0
    # One seed says nothing of the others.
    one = table.loc["beta-0"]
    assert (one["accuracy"], one["final_reward"]) == (0.9, 2.0)
    assert math.isnan(one["accuracy_low"]) and math.isnan(one["final_reward_high"])
    assert table.loc["beta-0.1"]["accuracy"] == 0.75
    assert math.isnan(table.loc["lora_rank-8"]["accuracy"])


def test_the_table_is_written_and_shown_whatever_fails(cli, finished, table, tmp_path, monkeypatch):
    first = "tiny-beta-0-seed-1"

    def quick(name, *asked, **how):
        if name == first:
            raise ValueError("preset 'x' is not known")
        return 0

    monkeypatch.setattr(sweep.pipeline, "run", quick)
    code, out, err = cli("sweep", "--grid", str(tmp_path / "grid.yaml"))
    assert (code, err) == (1, "") and "6 runs done, 6 to run" in out
    assert f"1/6  {first}  failed: error: preset 'x' is not known" in out
    assert "(the whole output: " in out and "2/6  tiny-beta-0-seed-3  done\n" in out
    pd.testing.assert_frame_equal(table_of("tiny"), table.reset_index(), check_dtype=False)
    code, shown, _ = cli("sweep", "--grid", str(tmp_path / "grid.yaml"), "--collect")
    assert code == 0 and "0.9 (0.652 to 1.15)" in shown and " 3/3 " in shown and " 0/3" in shown
    assert out.partition("\n\n")[2] == shown.partition("\n\n")[2], "the same table"
    left = "beta-0-seed-1, tiny-beta-0-seed-3, tiny-beta-0.1-seed-3, tiny-lora_rank-8-seed-1"
    assert f"not finished: tiny-{left}" in shown
    runs = pd.read_csv(runs_folder() / "sweeps/tiny/runs.csv")
    assert list(runs["seed"]) == [1, 2, 3, 2, 1, 2]
    assert list(runs["accuracy"]) == [0.8, 0.9, 1.0, 0.9, 0.75, 0.75]
    assert list(runs["final_reward"][:3]) == [1.5, 2.0, 2.5]
