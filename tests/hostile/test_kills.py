"""Writers killed with SIGKILL at the worst moments, and what the next one finds."""

import os
import subprocess

import pytest

from helpers import PROJECT
from helpers.runs import Run, atomic_folder, atomic_write, write_json

# Replaces the folder `adapter`, and kills itself where the test says: while it fills it, or around
# one of the renames.
WRITER = """
import os, signal, sys
from pathlib import Path
from helpers import runs
folder, moment = Path(sys.argv[1]), sys.argv[2]
die = lambda: os.kill(os.getpid(), signal.SIGKILL)
rename, renames = os.replace, []
def counted(source, target):
    renames.append(source)
    rename(source, target)
    if moment == f"after rename {len(renames)}":
        die()
os.replace = counted
with runs.atomic_folder(folder / "adapter") as temporary:
    (temporary / "weights").write_text("new")
    if moment == "filling":
        die()
"""

WAITING = """
import sys
from pathlib import Path
from helpers.runs import atomic_folder
with atomic_folder(Path(sys.argv[1])) as folder:
    print(folder.name, flush=True)
    sys.stdin.read()
"""
HERE = os.environ | {"PYTHONPATH": str(PROJECT)}


def killed(python, folder, moment: str) -> None:
    done = subprocess.run(
        [python, "-c", WRITER, str(folder), moment],
        cwd=PROJECT,
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
    )
    assert done.returncode == -9


@pytest.fixture
def run(tmp_path, monkeypatch) -> Run:
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path))
    run = Run("a")
    with atomic_folder(run.path("adapter")) as folder:
        (folder / "weights").write_text("old")
    return run


def names(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("moment", "left"), [("filling", 2), ("after rename 1", 2), ("after rename 2", 2)]
)
@pytest.mark.parametrize("how", ["write", "folder", "read"])
def test_the_next_one_clears_and_restores(python, run, moment, left, how):
    killed(python, run.folder, moment)
    assert len(names(run.folder)) == left and any(
        name.startswith(".adapter.") for name in names(run.folder)
    )
    if how == "write":
        write_json(run.path("manifest.json"), {})
    elif how == "folder":
        with atomic_folder(run.path("merged")):
            pass
    else:
        weights = run.require("adapter") / "weights"
    weights = run.folder / "adapter" / "weights"
    assert weights.read_text() == ("new" if moment == "after rename 2" else "old"), (
        "whole, as it was before or is after"
    )
    if how != "read":
        assert names(run.folder) == sorted(
            ["adapter", {"write": "manifest.json", "folder": "merged"}[how]]
        )


def test_a_writer_that_is_alive_keeps_its_own_and_so_does_another_machine(run, python):
    other = subprocess.Popen(
        [python, "-c", WAITING, str(run.folder / "merged")],
        cwd=PROJECT, env=HERE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    theirs = other.stdout.readline().strip()
    (run.folder / ".merged.1@elsewhere.tmp").mkdir()
    with atomic_write(run.path("x.json")) as mine:
        mine.write_text("1")
        write_json(run.path("manifest.json"), {})
        assert mine.exists() and (run.folder / theirs).is_dir()
    other.communicate("")
    assert names(run.folder) == [
        ".merged.1@elsewhere.tmp",
        "adapter",
        "manifest.json",
        "merged",
        "x.json",
    ]


def test_a_number_that_went_to_another_process_protects_nothing(run):
    # of an earlier process of this number, and of an earlier version
    (run.folder / f".adapter.{os.getpid()}.tmp").mkdir()
    write_json(run.path("manifest.json"), {})
    assert names(run.folder) == ["adapter", "manifest.json"]


def test_an_error_between_the_two_renames_puts_the_old_one_back(run, monkeypatch):
    rename, calls = os.replace, []

    def full(source, target):
        calls.append(source)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        rename(source, target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"), atomic_folder(run.path("adapter")) as folder:
        (folder / "weights").write_text("new")
    assert (run.folder / "adapter" / "weights").read_text() == "old" and names(run.folder) == [
        "adapter"
    ]
