"""The run folder: its name, its locks, its files, and that nothing in it is ever half written."""

import json
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
from helpers import runs as runs_module
from helpers.environment import package_versions, unsloth_switches
from helpers.runs import (
    Run,
    atomic_folder,
    atomic_write,
    empty,
    held,
    is_free,
    runs_folder,
    seed_everything,
    write_json,
)


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch) -> Path:
    """Every test has its own runs folder."""
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path / "runs"))
    return tmp_path / "runs"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- Names and paths ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "7", "pocket", "2026-08_try.1", "A" * 64, "run.", "a.b.c"])
def test_a_good_name_is_a_folder_in_the_runs_folder(runs, name):
    run = Run(name)
    assert run.folder == runs.resolve() / name


BAD_NAMES = [
    "",
    " ",
    "a b",
    "a/b",
    "/a",
    "a\\b",
    "..",
    ".",
    "a..b",
    ".hidden",
    "-a",
    "~",
    "é",
    "a\n",
]


@pytest.mark.parametrize("name", [*BAD_NAMES, "A" * 65, None, 3, Path("a"), "sweeps", "Sweeps"])
def test_a_bad_name_is_refused_before_anything_is_made(runs, name):
    with pytest.raises(ValueError, match="is not a run name") as error:
        Run(name)
    assert f"run={name!r}" in str(error.value)
    assert not runs.exists()


@pytest.mark.parametrize("named", [None, "", str(PROJECT / "runs"), f"{PROJECT}/helpers/../runs/"])
def test_what_is_printed_never_holds_the_path_of_this_machine(monkeypatch, named):
    if named is None:
        monkeypatch.delenv("GRPO_RUNS_DIR")
    else:  # as a sweep gives it on to its runs
        monkeypatch.setenv("GRPO_RUNS_DIR", named)
    name = "no-such-run-as-this"
    assert runs_folder() == PROJECT / "runs"
    assert Run(name).show("data/train.parquet") == f"runs/{name}/data/train.parquet"
    assert Run(name).show() == f"runs/{name}"
    with pytest.raises(FileNotFoundError) as error:
        Run(name).require("adapter")
    assert str(PROJECT) not in str(error.value)


def test_a_folder_that_somebody_named_is_printed_as_it_is_found(runs):
    assert Run("a").show("adapter") == f"{runs.as_posix()}/a/adapter"


WHERE = (
    "import os, helpers; os.chdir('/'); from helpers.runs import Run; "
    "print(os.environ['GRPO_RUNS_DIR'], Run('a').folder)"
)


@pytest.mark.parametrize(
    ("named", "meant"),
    [("mine", "{here}/mine"), ("~/mine", "{home}/mine"), ("../x{y}", "{above}/x{{y}}")],
)
def test_the_runs_folder_is_made_absolute_where_the_process_starts(tmp_path, python, named, meant):
    here, home = tmp_path / "here", tmp_path / "home"
    here.mkdir()
    environment = os.environ | {
        "GRPO_RUNS_DIR": named,
        "HOME": str(home),
        "PYTHONPATH": str(PROJECT),
    }
    done = subprocess.run(
        [python, "-c", WHERE], cwd=here, env=environment, capture_output=True, text=True, check=True
    )
    folder = meant.format(here=here, home=home, above=tmp_path)
    assert done.stdout.split() == [folder, f"{folder}/a"], "what it hands on, and where it writes"


@pytest.mark.parametrize(
    ("relative", "notebook"),
    [
        ("data/train.parquet", "01_data_preparation"),
        ("reward_report.json", "02_reward_functions"),
        ("metrics.csv", "03_grpo_training"),
        ("merged", "05_merge_and_inference"),
    ],
)
def test_an_absent_file_names_the_notebook_and_the_command(relative, notebook):
    with pytest.raises(FileNotFoundError) as error:
        Run("mine").require(relative)
    message = str(error.value)
    assert (
        message.startswith(f"{Run('mine').folder.as_posix()}/{relative} is not there")
        and notebook in message
    )
    assert f"--run mine --only {notebook[:2]}`" in message


# --- Locks ----------------------------------------------------------------------------------------

HOLD = """
import sys
from helpers.runs import Run, held
with held(Run("a").folder, "run 'a'"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(python):
    """Another process that holds run `a`; it lets go when its standard input ends."""
    process = subprocess.Popen(
        [python, "-c", HOLD], cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_what_another_process_holds_is_refused_with_who_and_since_when(holder):
    who = rf"process {holder.pid} on {re.escape(platform.node())} since \d{{4}}-\d\d-\d\d \d\d:"
    with (
        pytest.raises(ValueError, match=f"run 'a' is being executed by {who}"),
        held(Run("a").folder, "run 'a'"),
    ):
        pytest.fail("it was let in")
    assert re.match(who, runs_module.holder(Run("a").folder))
    with held(Run("b").folder, "run 'b'"):
        assert runs_module.holder(Run("b").folder) is None, "no other process"


@pytest.mark.parametrize("end", ["kill", "leave"])
def test_a_process_that_has_ended_holds_nothing(holder, end):
    if end == "kill":
        holder.kill()
    holder.communicate()
    assert runs_module.holder(Run("a").folder) is None
    with held(Run("a").folder, "run 'a'"):
        assert f"process {os.getpid()} " in Run("a").path(".lock").read_text()


def test_one_process_may_hold_a_folder_twice_and_others_wait_for_the_outer(python):
    with held(Run("a").folder, "run 'a'"):
        with held(Run("a").folder, "run 'a'"):
            pass
        other = subprocess.run(
            [python, "-c", HOLD], cwd=PROJECT, input="", capture_output=True, text=True
        )
        assert other.returncode == 1 and "is being executed by process" in other.stderr
    assert (
        subprocess.run([python, "-c", HOLD], cwd=PROJECT, input="", capture_output=True).returncode
        == 0
    )


def test_a_held_folder_is_emptied_but_for_its_lock(runs):
    Run("a").path("data/x").touch()
    Run("a").path("y").touch()
    assert is_free(Run("b").folder) and not is_free(Run("a").folder)
    with held(Run("a").folder, "run 'a'"):
        empty(Run("a").folder)
        assert names(runs / "a") == [".lock"] and is_free(runs / "a")


# --- Atomic writes --------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failed_write_keeps_the_old_content_and_leaves_nothing_else(tmp_path, error):
    path, folder = tmp_path / "a.txt", tmp_path / "adapter"
    path.write_text("old")
    folder.mkdir()
    (folder / "weights").write_text("old")
    with pytest.raises(error), atomic_write(path) as temporary:
        temporary.write_text("half")
        assert path.read_text() == "old"
        raise error
    with pytest.raises(error), atomic_folder(folder) as temporary:
        (temporary / "weights").write_text("half")
        raise error
    assert path.read_text() == (folder / "weights").read_text() == "old"
    assert names(tmp_path) == ["a.txt", "adapter"] and names(folder) == ["weights"]


@pytest.mark.parametrize("old", [False, True])
def test_a_finished_write_takes_the_whole_place(tmp_path, old):
    path, folder = tmp_path / "a.txt", tmp_path / "deep" / "adapter"
    if old:
        path.write_text("old")
        folder.mkdir(parents=True)
        (folder / "stale").write_text("old")
    with atomic_write(path) as temporary:
        # A rename is atomic only inside one folder.
        assert temporary.parent == path.parent
        temporary.write_text("new")
    with atomic_folder(folder) as temporary:
        (temporary / "weights").write_text("new")
    assert path.read_text() == "new" and names(tmp_path) == ["a.txt", "deep"]
    assert names(folder) == ["weights"] and names(folder.parent) == ["adapter"]


def test_what_a_crash_left_behind_does_not_get_into_the_new_folder(tmp_path):
    folder = tmp_path / "adapter"
    with atomic_folder(folder) as temporary:
        (temporary / "weights").write_text("1")
    temporary.mkdir()
    (temporary / "rubbish").write_text("of a crash")
    with atomic_folder(folder) as again:
        (again / "weights").write_text("2")
    assert names(folder) == ["weights"] and names(tmp_path) == ["adapter"]


def test_json_is_written_readably_and_in_utf8(tmp_path):
    write_json(tmp_path / "a.json", {"b": [1, "é"], "a": None})
    text = (tmp_path / "a.json").read_bytes().decode("utf-8")
    assert "é" in text and text.endswith("}\n") and text.index('"b"') < text.index('"a"')
    assert json.loads(text) == {"b": [1, "é"], "a": None}


# --- The manifest ---------------------------------------------------------------------------------


def test_a_fresh_run_has_an_empty_manifest():
    assert Run("a").manifest == {}


def test_sections_are_replaced_one_at_a_time():
    run = Run("a")
    run.record("data", rows=3, source="x")
    run.record("training", steps=5)
    data = run.section("data")
    run.record("training", reward=0.5)
    assert run.section("data") == data
    assert run.section("training")["reward"] == 0.5 and "steps" not in run.section("training")
    assert list(run.manifest) == ["name", "data", "training"] and run.manifest["name"] == "a"
    assert names(run.folder) == ["manifest.json"]


def test_a_record_says_when_with_which_packages_and_from_which_commit():
    before = datetime.now(UTC) - timedelta(seconds=1)
    run = Run("a")
    run.record("data", rows=3, written="never")
    section = run.section("data")
    assert section["rows"] == 3
    assert before <= datetime.fromisoformat(section["written"]) <= datetime.now(UTC)
    assert section["versions"] == package_versions()
    git = section["git"]
    assert git == {} or (
        re.fullmatch("[0-9a-f]{40}", git["revision"]) and isinstance(git["dirty"], bool)
    )


def test_a_record_says_which_switches_of_unsloth_were_set(monkeypatch):
    run = Run("a")
    run.record("data")
    assert "switches" not in run.section("data") or unsloth_switches()
    monkeypatch.setenv("UNSLOTH_GRPO_ZERO_VARIANCE_EXCLUDE", "1")
    run.record("data")
    assert run.section("data")["switches"]["UNSLOTH_GRPO_ZERO_VARIANCE_EXCLUDE"] == "1"


@pytest.mark.parametrize("content", [b"", b'{"name": "a"', b"[]", b"null", b"\xff\xfe", b'"text"'])
def test_a_damaged_manifest_is_told_and_nothing_is_lost(content):
    run = Run("a")
    run.path("manifest.json").write_bytes(content)
    for call in (
        lambda: run.manifest,
        lambda: run.section("data"),
        lambda: run.record("data", rows=1),
    ):
        with pytest.raises(ValueError, match=r"runs/a/manifest.json is damaged"):
            call()
    assert run.path("manifest.json").read_bytes() == content
    assert names(run.folder) == ["manifest.json"]


@pytest.mark.parametrize("value", [object(), {1, 2}, "\ud800"], ids=["object", "set", "surrogate"])
def test_a_record_that_cannot_be_written_leaves_the_manifest_as_it_was(value):
    run = Run("a")
    run.record("data", rows=3)
    before = run.path("manifest.json").read_bytes()
    with pytest.raises((TypeError, ValueError)):
        run.record("training", bad=value)
    assert run.path("manifest.json").read_bytes() == before
    assert names(run.folder) == ["manifest.json"]


@pytest.mark.parametrize(
    ("section", "notebook"),
    [("data", "01_data_prep"), ("training", "03_grpo"), ("evaluation", "05_merge")],
)
def test_an_absent_section_names_the_notebook_that_writes_it(section, notebook):
    said = rf"a/manifest\.json has no section '{section}'\. Run notebook {notebook}.* first"
    with pytest.raises(FileNotFoundError, match=said):
        Run("a").section(section)


ENTRY = {"accuracy": 0.5, "ci95": [0.4, 0.6], "n": 100}


def test_an_evaluation_replaces_the_last_whole_and_names_its_training():
    run = Run("a")
    assert run.evaluation == {}
    run.record("training")
    run.record_evaluation(run.section("training"), {"baseline": ENTRY}, {})
    run.record_evaluation(run.section("training"), {"trained": ENTRY}, {"x": 1})
    assert run.evaluation == {"trained": ENTRY}
    assert json.loads(run.require("comparison.json").read_text()) == {"x": 1}
    assert run.section("evaluation")["training"] == run.section("training")["written"]


class Figure:
    """What save_figure needs of a Matplotlib figure."""

    def savefig(self, path, **options):
        Path(path).write_text(options["format"])


def test_a_figure_is_saved_under_its_name():
    run = Run("a")
    assert run.save_figure(Figure(), "reward") == f"{run.folder.as_posix()}/figures/reward.png"
    assert run.require("figures/reward.png").read_text() == "png"
    assert names(run.folder / "figures") == ["reward.png"]


# --- Seeds ----------------------------------------------------------------------------------------


def draw(seed: int) -> tuple:
    seed_everything(seed)
    return random.random(), float(np.random.random())


def test_a_seed_gives_the_same_numbers_again_and_another_gives_others():
    for seed in (0, 3407, 2**32 - 1):
        assert draw(seed) == draw(seed)
    assert all(one != other for one, other in zip(draw(1), draw(2), strict=True))


def test_a_training_on_other_data_than_the_run_holds_is_refused():
    run = Run("a")
    run.record("data", fingerprint="one")
    run.record("training", data="one")
    assert run.section("training")["data"] == "one"
    run.record("data", fingerprint="two")
    with pytest.raises(ValueError, match=r"trained on other data.*--run a --only 03,04,05"):
        run.section("training")


@pytest.mark.parametrize("seed", [-1, 2**32, "abc", 1.5, True, None])
def test_what_is_no_seed_is_named(seed):
    with pytest.raises(ValueError, match=re.escape(f"seed={seed!r} is not a seed")):
        seed_everything(seed)


def test_a_runs_folder_that_cannot_be_made_is_named_with_what_names_it(tmp_path):
    (tmp_path / "a file").touch()
    why = r"a file/demo cannot be written \(Not a directory\); GRPO_RUNS_DIR names the runs folder"
    with pytest.raises(ValueError, match=why), held(tmp_path / "a file" / "demo", "run 'demo'"):
        raise AssertionError("it must not get here")
