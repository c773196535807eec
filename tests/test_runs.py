"""The run folder: its name, its paths, its locks, atomic writes, its manifest, and seeds."""

import os
import platform
import random
import re
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from helpers import PROJECT
from helpers.environment import package_versions
from helpers.runs import (
    Run,
    atomic_folder,
    atomic_write,
    lock,
    runs_folder,
    seed_everything,
    write_json,
)

pytestmark = pytest.mark.usefixtures("runs")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- Names and paths ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "7", "2026-08_try.1", "A" * 64, "run."])
def test_a_good_name_is_a_folder_in_the_runs_folder(runs, name):
    """With GRPO_RUNS_DIR, the printed path is absolute."""
    assert Run(name).folder == runs.resolve() / name
    assert Run(name).show("adapter") == f"{runs.as_posix()}/{name}/adapter"


@pytest.mark.parametrize(
    "name",
    [
        *("", "a b", "a/b", "/a", "a\\b", "..", "a..b", ".hidden", "-a", "~", "é", "a\n"),
        *("A" * 65, None, Path("a"), "sweeps", "Sweeps"),
    ],
)
def test_a_bad_name_is_refused_before_anything_is_made(runs, name):
    with pytest.raises(ValueError, match=re.escape(f"run={name!r}")):
        Run(name)
    assert not runs.exists()


@pytest.mark.parametrize("named", ["", f"{PROJECT}/helpers/../runs/"])
def test_a_printed_path_names_no_folder_of_this_machine(monkeypatch, named):
    monkeypatch.setenv("GRPO_RUNS_DIR", named)
    run = Run("no-such-run-as-this")
    assert runs_folder() == PROJECT / "runs" and run.show() == f"runs/{run.name}"
    assert run.show("data/train.parquet") == f"runs/{run.name}/data/train.parquet"
    with pytest.raises(FileNotFoundError) as error:
        run.require("adapter")
    assert str(PROJECT) not in str(error.value)
    monkeypatch.chdir("/")  # there, `runs/` would be another folder
    assert run.show("adapter") == f"{PROJECT.as_posix()}/runs/{run.name}/adapter"


@pytest.mark.parametrize(
    ("named", "meant"), [("~/mine", "{home}/mine"), ("../x{y}", "{above}/x{{y}}")]
)
def test_a_relative_runs_folder_is_made_absolute(tmp_path, python, named, meant):
    here, home = tmp_path / "here", tmp_path / "home"
    here.mkdir()
    own = {"GRPO_RUNS_DIR": named, "HOME": str(home), "PYTHONPATH": str(PROJECT)}
    code = "import os, helpers; os.chdir('/'); from helpers.runs import Run; "
    code += "print(os.environ['GRPO_RUNS_DIR'], Run('a').folder)"
    done = subprocess.run([python, "-c", code], cwd=here, env=os.environ | own, capture_output=True)
    folder = meant.format(home=home, above=tmp_path)
    assert done.stdout.decode().split() == [folder, f"{folder}/a"]


@pytest.mark.parametrize(
    ("ask", "name", "notebook"),
    [
        (Run.require, "data/train.parquet", "01_data_preparation"),
        (Run.require, "reward_report.json", "02_reward_functions"),
        (Run.require, "completions.parquet", "03_grpo_training"),
        (Run.require, "merged", "05_merge_and_inference"),
        (Run.section, "data", "01_data_preparation"),
        (Run.section, "training", "03_grpo_training"),
        (Run.section, "evaluation", "05_merge_and_inference"),
    ],
)
def test_a_missing_file_or_section_names_its_notebook_and_command(ask, name, notebook):
    with pytest.raises(FileNotFoundError) as error:
        ask(Run("mine"), name)
    message, file = str(error.value), "manifest.json" if ask is Run.section else name
    assert message.startswith(f"{Run('mine').folder.as_posix()}/{file} ") and name in message
    assert f"Run notebook {notebook} first" in message
    assert f"--run mine --only {notebook[:2]}`" in message


@pytest.mark.parametrize("maker", ["01", "07", "09", "10", "11"])
def test_notebook_05_refuses_runs_that_evaluate_themselves(maker):
    run = Run("a")
    run.record("data", notebook=maker)
    if maker in ("10", "11"):
        with pytest.raises(ValueError, match=f"run 'a' .* {maker}"):
            run.check_evaluable()
    else:
        run.check_evaluable()
    notebook = PROJECT / "notebooks" / "05_merge_and_inference.ipynb"
    assert "folder.check_evaluable()" in notebook.read_text(encoding="utf-8")


# --- Locks ----------------------------------------------------------------------------------------

HOLD = """
import sys
from helpers.runs import Run, lock
with lock(Run("a").folder, "run 'a'"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(python):
    """Another process that holds the lock of run `a` until its standard input ends."""
    process = subprocess.Popen(
        [python, "-c", HOLD], cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_lock_of_another_process_is_refused_until_that_process_is_dead(holder):
    who = rf"process {holder.pid} on {re.escape(platform.node())} since \d{{4}}-\d\d-\d\d \d\d:"
    folder = Run("a").folder
    with (
        pytest.raises(ValueError, match=f"run 'a' .*{who}"),
        lock(folder, "run 'a'"),
    ):
        pytest.fail("it was let in")
    holder.kill()
    holder.communicate()
    with lock(folder, "run 'a'"):
        assert f"process {os.getpid()} " in Run("a").path(".lock").read_text()


def test_a_process_may_hold_a_lock_twice_and_frees_it_with_the_outer_block(python):
    other = {"args": [python, "-c", HOLD], "cwd": PROJECT, "input": "", "text": True}
    with lock(Run("a").folder, "run 'a'"):
        with lock(Run("a").folder, "run 'a'"):
            pass
        refused = subprocess.run(**other, capture_output=True)
        assert "is being executed by process" in refused.stderr
    assert subprocess.run(**other, capture_output=True).stderr == ""


# --- Atomic writes --------------------------------------------------------------------------------


def test_a_failed_write_keeps_the_old_content_and_leaves_nothing_else(tmp_path):
    path, folder = tmp_path / "a.txt", tmp_path / "adapter"
    path.write_text("old")
    folder.mkdir()
    (folder / "weights").write_text("old")
    with pytest.raises(KeyboardInterrupt), atomic_write(path) as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt), atomic_folder(folder) as temporary:
        (temporary / "weights").write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == (folder / "weights").read_text() == "old"
    assert names(tmp_path) == ["a.txt", "adapter"] and names(folder) == ["weights"]


@pytest.mark.parametrize("old", [False, True])
def test_a_finished_write_replaces_the_old_content_completely(tmp_path, old):
    path, folder = tmp_path / "a.txt", tmp_path / "deep" / "adapter"
    if old:
        path.write_text("old")
        # an old folder, and what a killed process has left beside it
        for name in ("adapter", ".adapter.tmp", ".adapter.old"):
            (tmp_path / "deep" / name).mkdir(parents=True)
            (tmp_path / "deep" / name / "stale").write_text("old")
    write_json(path, {"b": [1, "é"]})  # indented, in UTF-8
    with atomic_folder(folder) as temporary:
        (temporary / "weights").write_text("new")
    text = path.read_bytes().decode("utf-8")
    assert text == '{\n  "b": [\n    1,\n    "é"\n  ]\n}\n' and names(tmp_path) == ["a.txt", "deep"]
    assert names(folder) == ["weights"] and names(folder.parent) == ["adapter"]


# --- The manifest ---------------------------------------------------------------------------------


def test_a_section_is_replaced_whole_and_records_time_versions_and_commit(monkeypatch):
    monkeypatch.setenv("UNSLOTH_GRPO_ZERO_VARIANCE_EXCLUDE", "1")
    before, run = datetime.now(UTC) - timedelta(seconds=1), Run("a")
    assert run.manifest == {}
    run.record("data", rows=3, written="never")
    section = run.section("data")
    run.record("training", steps=5)
    run.record("training", reward=0.5)
    assert list(run.manifest) == ["name", "data", "training"] and run.manifest["name"] == "a"
    assert run.section("training")["reward"] == 0.5 and "steps" not in run.section("training")
    assert run.section("data") == section and names(run.folder) == ["manifest.json"]
    assert before <= datetime.fromisoformat(section["written"]) <= datetime.now(UTC)
    assert section["rows"] == 3 and section["versions"] == package_versions()
    assert section["switches"]["UNSLOTH_GRPO_ZERO_VARIANCE_EXCLUDE"] == "1"
    if git := section["git"]:
        assert re.fullmatch("[0-9a-f]{40}", git["revision"]) and isinstance(git["dirty"], bool)


def test_a_damaged_manifest_is_named_and_nothing_is_lost():
    run = Run("a")
    run.path("manifest.json").write_text('{"name": "a"')
    with pytest.raises(ValueError, match=r"runs/a/manifest\.json"):
        run.record("data", rows=1)
    assert run.path("manifest.json").read_text() == '{"name": "a"'
    assert names(run.folder) == ["manifest.json"]


# --- Seeds ----------------------------------------------------------------------------------------


def test_equal_seeds_give_equal_numbers_and_different_seeds_different_ones():
    drawn = []
    for seed in (0, 0, 2**32 - 1, 2**32 - 1, 1):
        seed_everything(seed)
        drawn.append((random.random(), np.random.random()))
    assert drawn[0] == drawn[1] and drawn[2] == drawn[3] and len({*drawn}) == 3


@pytest.mark.parametrize("seed", [-1, 2**32, "abc", 1.5, True, None])
def test_a_bad_seed_is_refused(seed):
    with pytest.raises(ValueError, match=re.escape(f"seed={seed!r} is not a seed")):
        seed_everything(seed)
