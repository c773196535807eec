"""Sweeps: what a grid is refused for, what is run and what is not run again, and the numbers of the
table.
"""

import contextlib
import math
import os
import pty
import re
import signal
import subprocess
import time
from pathlib import Path

import pandas as pd
import psutil
import pytest
import yaml

from helpers import PROJECT
from helpers.commands import sweep, watch
from helpers.commands.grid import read_grid
from helpers.metrics import plots
from helpers.presets import PRESETS, as_settings
from helpers.results.intervals import student_interval, wilson_interval
from helpers.runs import Run, held, holder, runs_folder, write_json

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


def names(grid) -> list[str]:
    return [grid.run_name(point, seed) for point in grid.points for seed in grid.seeds[:1]]


def test_each_knob_alone_shares_one_base_point(grid_file):
    grid = read_grid(grid_file(fixed={"max_steps": 5}))
    assert names(grid) == [
        "tiny-base-seed-1",
        "tiny-beta-0-seed-1",
        "tiny-beta-0.1-seed-1",
        "tiny-lora_rank-8-seed-1",
    ]
    assert [point.knobs for point in grid.points] == [
        {"beta": 0.01, "lora_rank": 16},
        {"beta": 0, "lora_rank": 16},
        {"beta": 0.1, "lora_rank": 16},
        {"beta": 0.01, "lora_rank": 8},
    ]
    assert grid.notebooks == ["01", "03"]
    assert grid.parameters(grid.points[3], 2) == {
        "max_steps": 5,
        "preset": "pocket",
        "lora_rank": 8,
        "seed": 2,
    }


def test_several_knobs_may_name_the_base_and_what_is_fixed_moves_it(grid_file):
    knobs = {"beta": [0.01, 0.1], "lora_rank": [8, 16], "loss_type": ["dapo"]}
    assert names(read_grid(grid_file(one_at_a_time=knobs)))[1:] == [
        "tiny-beta-0.1-seed-1",
        "tiny-lora_rank-8-seed-1",
    ]
    moved = read_grid(grid_file(fixed={"loss_type": "grpo"}, one_at_a_time={"beta": [0.01, 0.1]}))
    assert [point.name for point in moved.points] == ["base", "beta-0.1"]


def test_a_product_is_every_combination(grid_file):
    grid = read_grid(
        grid_file(one_at_a_time=None, product={"beta": [0, 0.02], "lora_rank": [8, 16]})
    )
    assert [point.name for point in grid.points] == [
        f"beta-{beta}-lora_rank-{rank}" for beta in (0, 0.02) for rank in (8, 16)
    ]


@pytest.mark.parametrize(
    "written", ["[01, 03, 05]", '["01", "03", "05"]', "[5, 3, 1]", "[01, 3, '5', 1]"]
)
def test_notebooks_may_be_written_in_any_way_yaml_reads_them(grid_file, written):
    path = grid_file()
    path.write_text(path.read_text() + f"notebooks: {written}\n")
    assert read_grid(path).notebooks == ["01", "03", "05"]


def test_an_exponent_that_yaml_reads_as_text_is_the_number(grid_file):
    text = (
        "name: t\npreset: pocket\nseeds: [1]\nfixed: {weight_decay: 1e-2}\none_at_a_time:\n  "
        "learning_rate: [2e-3, 3E-4]\n"
    )
    grid = read_grid(grid_file(text))
    assert [point.given for point in grid.points[1:]] == [
        {"learning_rate": 2e-3},
        {"learning_rate": 3e-4},
    ]
    assert grid.fixed["weight_decay"] == 0.01


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
    grid = read_grid(
        grid_file(name="x" * 32, one_at_a_time=None, product=product, seeds=[2**32 - 1])
    )
    found = names(grid)
    assert len(set(found)) == 4 and all(
        len(Run(name).name) <= 64 and name.endswith("-seed-4294967295") for name in found
    )
    assert names(read_grid(tmp_path / "grid.yaml")) == found
    assert grid.points[0].given["source"] == str(tmp_path / "a/b.csv"), (
        "it holds from the notebooks' folder too"
    )
    assert grid.points[0].knobs["source"] == "a/b.csv" and not any(
        "pytest" in name for name in found
    )


REFUSED = {
    "a list": ("[1, 2]", "a grid is a mapping with the keys name, preset"),
    "empty": ("", "this is empty"),
    "syntax": (
        "name: x\nseeds: [1, 2\nfixed: {}\n",
        r"grid.yaml: line 3: this is not YAML: .*expected ',' or ']'",
    ),
    "a tab": ("name: x\n\tseeds: [1]\n", "line 2: this is not YAML"),
    "an object": (
        "name: !!python/object:os.system x\n",
        "line 1: the tag tag:yaml.org,2002:python/object",
    ),
    "a key twice": (
        "name: x\nseeds: [1]\nfixed:\n  beta: 0\n  beta: 1\n",
        "line 5: 'beta' is there twice",
    ),
    "key": ({"seed": [1]}, "there is no key 'seed'. Did you mean 'seeds'"),
    "no name": ({"name": None}, "`name:` is missing"),
    "name": ({"name": "../x"}, "'../x' is not a run name"),
    "long name": ({"name": "x" * 33}, "has 33 characters; 32 leave room"),
    "preset": ({"preset": "poket"}, "preset 'poket' is not known.*Did you mean 'pocket'"),
    "gpu": ({"preset": "h200"}, "preset 'h200' needs an NVIDIA GPU"),
    "notebook": ({"notebooks": [1, 3, 99]}, "there is no notebook 99. There are: 01, 02, 03"),
    "untrained": (
        {"notebooks": [1, 4]},
        "notebooks: 01, 04: a sweep trains each run anew, which takes 01 and 03",
    ),
    "notebooks": ({"notebooks": "01,03"}, "'01,03' is not a list of their numbers"),
    "no seeds": ({"seeds": None}, "seeds: missing: give a list"),
    "empty seeds": ({"seeds": []}, r"seeds: \[\]: give a list"),
    "repeated seeds": ({"seeds": [1, 2, 1]}, "seeds: 1 is there twice"),
    "a seed": ({"seeds": [1, -2]}, "seed=-2 is not a seed"),
    "no knobs": ({"one_at_a_time": None}, "give the knobs under one_at_a_time"),
    "both": ({"product": {"beta": [0]}}, "one of the two"),
    "empty knobs": ({"one_at_a_time": {}}, "one_at_a_time: give knobs, each with its values"),
    "no values": (
        {"one_at_a_time": {"beta": []}},
        "beta: give a list of the values to try.*it has none",
    ),
    "one value": (
        {"one_at_a_time": {"beta": 0.1}},
        "beta: give a list of the values to try.*this is 0.1",
    ),
    "parameter": (
        {"one_at_a_time": {"num_generation": [4]}},
        "point num_generation=4: .*Did you mean 'num_generations'",
    ),
    "fixed parameter": ({"fixed": {"steps": 4}}, "no chosen notebook has a parameter 'steps'"),
    "elsewhere": ({"one_at_a_time": {"seed": [1, 2]}}, "seed has a place of its own, `seeds:`"),
    "fixed preset": ({"fixed": {"preset": "l4"}}, "preset has a place of its own"),
    "a knob of 05": (
        {"one_at_a_time": {"samples": [4, 8]}},
        "no chosen notebook has a parameter 'samples'",
    ),
    "a value": (
        {"one_at_a_time": {"num_generations": [8, 7]}},
        "point num_generations=7: .*not whole groups of num_gen",
    ),
    "a type": (
        {"one_at_a_time": {"lora_rank": ["8"]}},
        "point lora_rank=8: .*lora_rank='8' is not of type int",
    ),
    "a date": (
        "name: x\nseeds: [1]\nproduct: {source: [2026-08-01]}\n",
        "source: 2026-08-01 is a date to YAML",
    ),
    "a truth": (
        "name: x\nseeds: [1]\nproduct: {on: [1]}\n",
        "product: True is not the name of a parameter",
    ),
    "the base": ({"fixed": {"num_generations": 7}}, "grid.yaml: preset 'pocket' cannot run"),
    "fixed and varied": ({"fixed": {"beta": 0.1}}, "beta is both fixed and varied"),
    "twice": ({"one_at_a_time": {"beta": [0, 0.0]}}, "point beta=0.0 is the same as beta=0"),
    "the base twice": (
        {"one_at_a_time": {"beta": [0.01, None]}},
        "point beta=None is the same as beta=0.01",
    ),
    "a point twice": (
        {"one_at_a_time": None, "product": {"beta": [0, None, 0.01]}},
        "beta=0.01 is the same as beta=None",
    ),
}


@pytest.mark.parametrize(("content", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_a_grid_is_refused_with_a_reason_before_anything_runs(cli, grid_file, content, why):
    path = grid_file(content) if isinstance(content, str) else grid_file(**content)
    with pytest.raises(
        ValueError,
        match=rf"(?s)^grid\.yaml: .*{why}" if not why.startswith("grid") else f"(?s){why}",
    ):
        read_grid(path)
    code, out, err = cli("sweep", "--grid", str(path))
    assert (
        code == 2
        and out == ""
        and err.startswith("error: grid.yaml: ")
        and not runs_folder().exists()
    )


def test_no_file_and_no_jobs_are_refused(cli, grid_file):
    code, _, err = cli("sweep", "--grid", "nowhere.yaml")
    assert code == 2 and "there is no grid file: nowhere.yaml: no such file" in err
    code, _, err = cli("sweep", "--grid", str(grid_file()), "--jobs", "0")
    assert code == 2 and "--jobs 0 is not a number of runs at a time" in err
    assert cli("sweep", "--grid", str(PROJECT))[0] == 2


def test_the_grid_that_is_shipped_is_accepted(cli):
    code, out, _ = cli(
        "sweep", "--grid", str(PROJECT / "benchmarks" / "grids" / "knobs.yaml"), "--dry-run"
    )
    assert (
        code == 0
        and "sweep knobs: 6 points, 3 seeds; 0 runs done, 18 to run" in out
        and not runs_folder().exists()
    )


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


@pytest.mark.slow
def test_what_failed_stops_nothing_else_and_alone_is_tried_again(cli, two_sources):
    (good, bad) = names(read_grid(two_sources))
    command = ["sweep", "--grid", str(two_sources), "--jobs", "2"]
    code, out, err = cli(*command)
    assert code == 1 and f"{good}  done" in out and f"{bad}  failed" in out
    assert re.search(
        rf"failed: {bad}: 01_data_preparation.ipynb, cell \d+: ValueError: .*few.csv", err
    )
    assert f"{runs_folder().as_posix()}/sweeps/tiny/logs/{bad}.log" in err and "step    2/2" in (
        (runs_folder() / "sweeps" / "tiny" / "logs" / f"{good}.log").read_text()
    )
    table = sweep.read("tiny")
    assert list(table["seeds"]) == [1, 0] and table["final_reward"].notna().tolist() == [
        True,
        False,
    ]
    trained = (Run(good).folder / "metrics.csv").stat().st_mtime_ns
    code, out, _ = cli(*command)
    assert code == 1 and "1 runs done, 1 to run" in out and good not in out.partition("\n\n")[0]
    assert "resuming run" in (runs_folder() / "sweeps" / "tiny" / "logs" / f"{bad}.log").read_text()
    assert (Run(good).folder / "metrics.csv").stat().st_mtime_ns == trained
    changed = two_sources.read_text().replace("max_steps: 2", "max_steps: 3")
    two_sources.write_text(changed)
    _, out, _ = cli(*command, "--dry-run")
    assert "0 runs done, 2 to run" in out and good in out, "the same name, other parameters"


@pytest.mark.slow
@pytest.mark.parametrize(
    "sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=["Ctrl-C", "kill", "kill -9"]
)
def test_an_interrupt_ends_the_runs(two_sources, python, sent):
    command = [python, "-m", "helpers", "sweep", "--grid", str(two_sources)]
    process = subprocess.Popen(
        command, cwd=PROJECT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    logs = runs_folder() / "sweeps" / "tiny" / "logs"
    while not any("01_data_preparation" in log.read_text() for log in logs.glob("*.log")):
        assert process.poll() is None
        time.sleep(0.1)
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(sent)
    _, err = process.communicate(timeout=600)
    if sent == signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
    else:
        assert (
            process.returncode == 130
            and "give the same command again" in err
            and "Traceback" not in err
        )
    gone, alive = psutil.wait_procs(children, timeout=300)
    assert gone and not alive
    (log,) = logs.glob("*.log")
    assert "go on with" in log.read_text(), "the run was interrupted, not killed"
    assert (
        holder(runs_folder() / "sweeps" / "tiny") is None
        and holder(runs_folder() / log.stem) is None
    )


def test_a_sweep_that_another_process_runs_is_refused(cli, two_sources, python):
    hold = (
        "import sys; from helpers.runs import held, runs_folder\nwith held(runs_folder() / "
        "'sweeps' / 'tiny', 'it'):\n"
    )
    hold += "    print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [python, "-c", hold], cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "held\n"
        code, _, err = cli("sweep", "--grid", str(two_sources))
        other.stdin.close()
    assert code == 2 and f"sweep 'tiny' is being executed by process {other.pid} on " in err
    assert [path.name for path in runs_folder().iterdir()] == ["sweeps"], "no run was started"


# --- Elsewhere ------------------------------------------------------------------------------------


ONE = {"max_steps": 4, "holdout_size": 8, "num_generations": 4, "per_device_train_batch_size": 8}


@pytest.mark.slow
def test_an_emitted_line_is_done_once_whatever_happens_to_it(cli, grid_file, python, monkeypatch):
    grid = str(grid_file(seeds=[7], one_at_a_time=None, product={"lora_rank": [8]}, fixed=ONE))
    code, line, _ = cli("sweep", "--grid", grid, "--emit", "commands")
    name = "tiny-lora_rank-8-seed-7"
    assert (
        code == 0
        and line.startswith(f"python -m helpers run --once --fresh --run {name} ")
        and line.count("\n") == 1
    )
    monkeypatch.setenv("PATH", f"{Path(python).parent}:{os.environ['PATH']}")
    shell = {
        "shell": True,
        "cwd": PROJECT,
        "text": True,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
    }
    assert cli("sweep", "--grid", grid, "--collect")[0] == 2, "nothing has finished"
    with subprocess.Popen(f"exec {line}", **shell) as first:
        while not re.match(r" *step +1/4", printed := first.stdout.readline()):
            assert printed, "it ended"
        first.send_signal(signal.SIGSTOP)  # it is at work, and stays so, while the others look
        watched = cli("sweep", "--grid", grid, "--watch")[1]
        assert "0 done, 1 running, 0 failed, 0 waiting" in watched
        assert re.search(rf"{name}  running .* step [1-4]/4, process {first.pid} on ", watched)
        second = subprocess.run(line, **shell)
        assert (
            second.returncode == 2
            and f"run {name!r} is being executed by process {first.pid} on " in second.stdout
        )
        first.kill()
    assert "1 failed" in cli("sweep", "--grid", grid, "--watch")[1]
    third = subprocess.run(line, **shell)
    assert third.returncode == 0 and "resuming run" in third.stdout and "with 03" in third.stdout
    trained = (Run(name).folder / "metrics.csv").stat().st_mtime_ns
    fourth = subprocess.run(line, **shell)
    assert fourth.returncode == 0 and f"run {name!r} is finished" in fourth.stdout
    assert (Run(name).folder / "metrics.csv").stat().st_mtime_ns == trained
    code, out, _ = cli("sweep", "--grid", grid, "--collect")
    assert code == 0 and " 1/1 " in out and sweep.read("tiny")["final_reward"].notna().all()


def test_what_runs_elsewhere_is_not_judged_by_this_machine(cli, grid_file):
    gpu = {"preset": "h200", "seeds": [1, 2], "one_at_a_time": {"beta": [0.1]}}
    code, out, _ = cli("sweep", "--grid", str(grid_file(**gpu)), "--emit", "commands")
    assert code == 0 and out.count('preset="h200"') == out.count("\n") == 4
    for preset in (None, "auto"):
        code, out, err = cli("sweep", "--grid", str(grid_file(preset=preset)), "--emit", "commands")
        assert code == 2 and out == "" and "`preset:` must name one" in err
        assert cli("sweep", "--grid", str(grid_file(preset=preset)), "--watch")[0] == 0, (
            "what runs here may leave it to here"
        )


def test_collecting_takes_what_has_finished_and_names_the_rest(cli, finished, tmp_path):
    code, out, _ = cli("sweep", "--grid", str(tmp_path / "grid.yaml"), "--collect")
    assert code == 0 and "6 runs done, 6 to run" in out and "0.9 (0.652 to 1.15)" in out
    assert (
        "not finished: tiny-beta-0-seed-1, tiny-beta-0-seed-3, tiny-beta-0.1-seed-3, "
        "tiny-lora_rank-8-seed-1" in out
    )
    pd.testing.assert_frame_equal(sweep.read("tiny"), sweep.table(finished), check_dtype=False)


@pytest.mark.parametrize("other", ["--emit=commands", "--collect", "--watch"])
def test_what_runs_nothing_takes_no_place_to_run(cli, grid_file, other):
    for place in (["--jobs", "2"], ["--on", "ray"]):
        code, _, err = cli("sweep", "--grid", str(grid_file()), other, *place)
        assert code == 2 and f"{other.partition('=')[0]} runs nothing" in err
    code, _, err = cli("sweep", "--grid", str(grid_file()), "--address", "there:6379")
    assert code == 2 and "--address there:6379 is for --on ray" in err


# --- Watching -------------------------------------------------------------------------------------


def test_watching_tells_what_is_done_running_failed_and_waiting(cli, finished, tmp_path):
    grid = finished
    running, failed = (Run(grid.run_name(grid.points[3], seed)) for seed in (1, 2))
    for run, seed in ((running, 1), (failed, 2)):
        asked = {
            "parameters": grid.parameters(grid.points[3], seed),
            "notebooks": grid.notebooks,
            "done": ["01"],
        }
        write_json(run.path("asked.json"), asked)
    write_json(running.path("checkpoints/settings.json"), {"settings": {"max_steps": 50}})
    pd.DataFrame({"step": [1, 2, 10], "reward": 0.5}).to_csv(
        running.path("checkpoints/metrics.csv"), index=False
    )
    log = runs_folder() / "sweeps" / "tiny" / "logs" / f"{failed.name}.log"
    log.parent.mkdir(parents=True)
    log.write_text(
        "01_data_preparation …\n03_grpo_training.ipynb, cell 9: OutOfMemoryError: CUDA\nThe whole "
        "traceback\n"
    )
    with held(running.folder, "it"):
        code, out, _ = cli("sweep", "--grid", str(tmp_path / "grid.yaml"), "--watch")
    assert code == 0 and "6 done, 1 running, 1 failed, 4 waiting" in out and "\x1b" not in out
    lines = out.splitlines()
    assert re.search(rf"{running.name} +running .* step 10/50, process {os.getpid()} on ", lines[1])
    assert lines[2].split()[:2] == [failed.name, "failed"] and lines[2].endswith(
        "cell 9: OutOfMemoryError: CUDA"
    )


def test_the_time_left_is_that_of_the_runs_that_are_done_or_else_of_the_steps():
    run = watch.State
    going, waiting = run("r", "running", "", 10.0, 0.25), run("w", "waiting")
    assert watch.seconds_left([run("d", "done", "", 30.0), going, waiting]) == (30 - 10) + 30
    assert watch.seconds_left([going, going, waiting, waiting]) == 30 + 40, (
        "four times 10 s each, two at a time"
    )
    assert watch.seconds_left([run("d", "done", "", 5.0), going]) == 0, (
        "it takes longer than the others"
    )
    assert watch.seconds_left([waiting, run("d", "done", "", 5.0)]) is None, "nothing goes on"
    assert watch.seconds_left([run("r", "running", "", 3.0)]) is None


@pytest.mark.slow
def test_a_terminal_is_redrawn_in_place_until_all_have_ended(finished, tmp_path, python):
    for seed in (1, 3):
        finish(finished, 1, seed, 0.5, [])
    finish(finished, 2, 3, 0.5, [])
    for seed in (1, 2):
        finish(finished, 3, seed, 0.5, [])
    last = Run(finished.run_name(finished.points[3], 3))
    ours, theirs = pty.openpty()
    with held(last.folder, "it"):
        command = [
            python,
            "-m",
            "helpers",
            "sweep",
            "--grid",
            str(tmp_path / "grid.yaml"),
            "--watch",
        ]
        process = subprocess.Popen(
            command, cwd=PROJECT, stdout=theirs, env=os.environ | {"COLUMNS": "100", "LINES": "6"}
        )
        os.close(theirs)
        seen = b""
        while b"1 running" not in seen:
            seen += os.read(ours, 4096)
    finish(finished, 3, 3, 0.5, [])
    while process.poll() is None:
        with contextlib.suppress(OSError):  # the other end is closed
            seen += os.read(ours, 65536)
    screens = seen.decode().split("\x1b[J")
    assert process.returncode == 0 and "12 done, 0 running" in screens[-1]
    assert re.search(r"\x1b\[\d+A$", screens[-2]) and all(
        screen.count("\n") <= 6 for screen in screens
    )


# --- The table ------------------------------------------------------------------------------------


def finish(grid, point: int, seed: int, accuracy: float, correctness: list[float], **asked) -> None:
    """A finished run as the notebooks leave one; asked: other parameters than the grid's."""
    run = Run(grid.run_name(grid.points[point], seed))
    given = grid.parameters(grid.points[point], seed)
    write_json(
        run.path("asked.json"),
        {"parameters": given | asked, "notebooks": grid.notebooks, "done": grid.notebooks},
    )
    history = pd.DataFrame({"step": range(1, 11), "reward_std": 0.5, "loss": 0.0, "step_time": 0.5})
    history["reward"] = [0.0] * 8 + [1.0, 1.0 + seed]
    history["kl"] = [0.5] * 9 + [seed / 100]
    history["rewards/correctness_reward/mean"] = correctness + [0.0] * (10 - len(correctness))
    history.to_csv(run.path("metrics.csv"), index=False)
    run.record("data", fingerprint="f")
    run.record("training", settings=as_settings(PRESETS["pocket"]), data="f", seed=seed)
    entry = {
        "accuracy": accuracy,
        "n": 100,
        "ci95": list(wilson_interval(round(100 * accuracy), 100)),
        "in_format": 1.0,
    }
    run.record_evaluation(run.section("training"), {"trained": entry}, {})


@pytest.fixture
def finished(grid_file):
    """A sweep of four points: the base with three seeds, beta=0 with one, beta=0.1 with two,
    lora_rank=8 with none.
    """
    grid = read_grid(grid_file(seeds=[1, 2, 3], notebooks=[1, 3, 5]))
    late, soon = [0, 0.75, 0.75, 1.0], [0.9, 0.9, 0.9]
    for seed, accuracy in ((1, 0.8), (2, 0.9), (3, 1.0)):
        finish(grid, 0, seed, accuracy, soon if seed == 1 else late)
    finish(grid, 1, 2, 0.9, late)
    finish(grid, 1, 3, 0.5, late, max_steps=7)  # asked for otherwise, so not of this sweep
    for seed in (1, 2):
        finish(grid, 2, seed, 0.75, late if seed == 1 else [0.9, 0.9])
    return grid


def test_the_table_has_means_and_intervals_worked_out_by_hand(finished):
    table = sweep.table(finished).set_index("point")
    assert list(table["seeds"]) == [3, 1, 2, 0] and list(table["reached_target"]) == [3, 1, 1, 0]
    base = table.loc["base"]
    # Mean 0.9, standard deviation 0.1, t(2) = 4.303: 0.9 ± 4.303 * 0.1 / sqrt(3) = 0.9 ± 0.24843.
    assert base[["accuracy", "accuracy_low", "accuracy_high"]].tolist() == pytest.approx(
        [0.9, 0.65157, 1.14843], abs=1e-5
    )
    # The last fifth are two steps, 1 and 1 + seed: 1.5, 2, 2.5; standard deviation 0.5.
    assert base[
        ["final_reward", "final_reward_low", "final_reward_high"]
    ].tolist() == pytest.approx([2, 0.75785, 3.24215], abs=1e-4)
    # The mean of three steps passes 0.8 at step 3 (192 completions) for one seed, at step 4 (256)
    # for two.
    assert base["completions_to_target"] == pytest.approx((192 + 256 + 256) / 3)
    assert base["kl"] == pytest.approx(0.02) and base["training_seconds"] == 5.0
    assert base["training_seconds_low"] == base["training_seconds_high"] == 5.0


def test_one_seed_has_the_interval_of_its_questions_alone(finished):
    row = sweep.table(finished).set_index("point").loc["beta-0"]
    assert row[["accuracy", "accuracy_low", "accuracy_high"]].tolist() == pytest.approx(
        [0.9, *wilson_interval(90, 100)]
    )
    assert row["final_reward"] == 2.0 and math.isnan(row["final_reward_low"])


def test_a_target_that_one_seed_never_reached_has_no_mean(finished):
    row = sweep.table(finished).set_index("point").loc["beta-0.1"]
    assert (
        math.isnan(row["completions_to_target"])
        and row["reached_target"] == 1
        and row["accuracy"] == 0.75
    )


def test_completions_are_counted_by_rounds_of_sampling():
    history = pd.DataFrame({"step": [1, 2, 3], sweep._CORRECTNESS: 0.9})
    settings = as_settings(PRESETS["memory_optimized"])
    assert sweep._completions_to_target(history, settings) == 2 * 8, (
        "three steps of four, rounds of eight"
    )
    assert sweep._completions_to_target(history, settings | {"num_iterations": 2}) == 8, (
        "each round for twice as many steps"
    )
    assert sweep._completions_to_target(history, settings | {"processes": 2}) == 2 * 2 * 8
    assert math.isnan(
        sweep._completions_to_target(history.drop(columns=sweep._CORRECTNESS), settings)
    )


@pytest.mark.parametrize(
    ("n", "quantile"), [(2, 12.7062), (3, 4.3027), (11, 2.2281), (31, 2.0423), (32, 1.96)]
)
def test_the_interval_is_students(n, quantile):
    values = [0.0] * (n - 1) + [1.0]
    mean, spread = 1 / n, math.sqrt(1 / n)  # s² = (1 - 1/n) / (n - 1) = 1/n
    low, high = student_interval(values)
    half = quantile * spread / math.sqrt(n)
    assert (low, high) == pytest.approx((mean - half, mean + half), abs=2e-4)
    assert all(math.isnan(bound) for bound in student_interval([1.0]))


def test_a_finished_sweep_is_shown_read_and_drawn(cli, finished, tmp_path, monkeypatch):
    monkeypatch.setattr(sweep, "_run_here", lambda runs, logs, jobs: {})
    code, out, err = cli("sweep", "--grid", str(tmp_path / "grid.yaml"))
    assert code == 1 and err.count("it ended well, but without metrics.csv") == 6, (
        "nothing ran, so six are still not there"
    )
    assert (
        "6 runs done, 6 to run" in out
        and "0.9 (0.652 to 1.15)" in out
        and " 3/3 " in out
        and " 0/3" in out
    )
    folder = runs_folder() / "sweeps" / "tiny"
    assert sorted(path.name for path in folder.iterdir()) == [
        ".lock",
        "beta.png",
        "lora_rank.png",
        "runs.csv",
        "table.csv",
    ]
    pd.testing.assert_frame_equal(sweep.read("tiny"), sweep.table(finished), check_dtype=False)
    runs = pd.read_csv(folder / "runs.csv")
    assert list(zip(runs["point"], runs["seed"], strict=True))[2:] == [
        ("base", 3),
        ("beta-0", 2),
        ("beta-0.1", 1),
        ("beta-0.1", 2),
    ]
    assert list(runs["accuracy"]) == [0.8, 0.9, 1.0, 0.9, 0.75, 0.75] and list(
        runs["final_reward"][:3]
    ) == [1.5, 2.0, 2.5]
    with pytest.raises(
        FileNotFoundError, match=r"/sweeps/other/table\.csv is not there\. Run the sweep first"
    ):
        sweep.read("other")


def test_a_figure_shows_one_knob_with_the_others_at_the_base(finished):
    axes = plots.sweep(sweep.table(finished), "beta", "accuracy").axes[0]
    (line,) = axes.containers
    assert line.lines[0].get_ydata().tolist() == pytest.approx([0.9, 0.9, 0.75])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0.0", "0.01", "0.1"]
    (bars,) = line.lines[2]
    assert bars.get_segments()[1][:, 1].tolist() == pytest.approx([0.65157, 1.14843], abs=1e-5)
    for knob, measure in (("gamma", "accuracy"), ("beta", "speed")):
        with pytest.raises(ValueError, match=r"is not in the table of this sweep\. It has: "):
            plots.sweep(sweep.table(finished), knob, measure)


def test_a_figure_of_a_product_has_a_line_for_each_setting_of_the_other_knob():
    rows = [
        {"point": "p", "beta": b, "loss": k, "seeds": 2, "kl": b, "kl_low": b, "kl_high": b}
        for b in (0, 1)
        for k in "xy"
    ]
    axes = plots.sweep(pd.DataFrame(rows), "beta", "kl").axes[0]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "loss x",
        "loss y",
    ] and len(axes.containers) == 2
