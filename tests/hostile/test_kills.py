"""Writers killed with SIGKILL at the worst moments, and what the next one finds."""

import subprocess

import pytest

from helpers import PROJECT
from helpers.runs import Run, atomic_folder

# Replaces the folder `adapter`, and kills itself where the test says: while it fills it, or after
# the last rename.
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


def killed(python, folder, moment: str) -> None:
    done = subprocess.run(
        [python, "-c", WRITER, str(folder), moment],
        cwd=PROJECT,
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


@pytest.mark.parametrize("moment", ["filling", "after rename 2"])
@pytest.mark.parametrize("how", ["write", "read"])
def test_the_next_one_finds_a_whole_folder_and_clears_the_rest(python, run, moment, how):
    killed(python, run.folder, moment)
    assert any(name.startswith(".adapter.") for name in names(run.folder))
    if how == "read":
        found = (run.require("adapter") / "weights").read_text()
        assert found == ("new" if moment == "after rename 2" else "old")
    with atomic_folder(run.path("adapter")) as folder:
        (folder / "weights").write_text("newest")
    assert (run.require("adapter") / "weights").read_text() == "newest"
    assert names(run.folder) == ["adapter"]
