"""The finished run that comes with the project: what is in it, and that one command puts it in
place.
"""

import json
import re
import subprocess
import tarfile
from dataclasses import asdict

import pandas as pd
import pytest

from helpers import PROJECT
from helpers.commands.checks import check_call
from helpers.commands.notebooks import defaults
from helpers.presets import PRESETS
from helpers.runs import FILES, PIPELINE, Run, runs_folder, written_by
from helpers.settling import settle
from helpers.training.base import base_of
from tools import demo

COMMAND = "python -m tarfile -e notebooks/data/demo.tar.xz runs"
A_PATH = re.compile(
    rb"(?<![\w.:/@])(/(home|root|Users|tmp|work|mnt|opt|var|content|workspace)/[\w.]|[A-Z]:\\\\)"
)

pytestmark = pytest.mark.usefixtures("machine")


@pytest.fixture(scope="module")
def stored() -> dict[str, bytes]:
    with tarfile.open(demo.ARCHIVE) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}


@pytest.fixture
def installed(python):
    """The run, as the command of the pages puts it into this test's folder of runs."""
    command = [python, *COMMAND.split()[1:-1], str(runs_folder())]
    subprocess.run(command, cwd=PROJECT, check=True)
    return Run("demo")


# --- What is in it --------------------------------------------------------------------------------


def test_the_archive_is_small_and_holds_the_demo_and_nothing_of_a_machine(stored):
    assert demo.ARCHIVE.stat().st_size <= 5_000_000
    others = {name for name in stored if not written_by(name.removeprefix("demo/"))}
    assert others == {"demo/manifest.json"}
    assert json.loads(stored["demo/evaluation.json"])["trained"]["accuracy"] > 0.8
    for name, content in stored.items():
        assert not A_PATH.search(content), (name, A_PATH.search(content))
        assert b"PRIVATE" not in content and b"hf_" not in content.replace(b"hf_quant", b""), name


def test_everything_that_the_notebooks_leave_is_kept_or_known_to_be_left_out(executed):
    """A file that a notebook begins to write belongs into the table, or here."""
    left_out = (
        "checkpoints/",
        "notebooks/",
        ".lock",
        ".training",
        "manifest.json",
    )
    paths = [path for path in executed.folder.rglob("*") if path.is_file()]
    found = {path.relative_to(executed.folder).as_posix() for path in paths}
    unknown = [name for name in found if not (written_by(name) or name.startswith(left_out))]
    assert unknown == []
    kept = set(FILES) - {"pass_rates.parquet"}  # which 02 writes only if it is asked to
    assert all(any(f"{name}/".startswith(f"{part}/") for name in found) for part in kept)


def test_the_parameters_of_the_notebooks_are_those_it_was_made_with(stored):
    """Where 01 or 03 has got another default, `make demo` is due."""
    known = defaults(list(PIPELINE))
    manifest = json.loads(stored["demo/manifest.json"])
    assert manifest["training"]["seed"] == manifest["data"]["seed"] == known["seed"]
    settings = manifest["training"]["settings"]
    given = {name: value for name, value in known.items() if name in settings and value is not None}
    assert asdict(settle(settings)) == asdict(PRESETS["pocket"]) | given


# --- A late start ---------------------------------------------------------------------------------


def test_it_is_a_run_like_any_other_and_names_the_model_of_this_checkout(installed, cli):
    written = (installed.require("adapter") / "adapter_config.json").read_text(encoding="utf-8")
    named = PROJECT / "notebooks" / json.loads(written)["base_model_name_or_path"]
    settings = PRESETS["pocket"]
    assert named.resolve().samefile(base_of(installed, settings).name)
    assert len(pd.read_parquet(installed.require("completions.parquet"))) > 1000
    check_call("demo", ["03", "04", "05", "06", "08"], {})
    assert cli("report", "--run", "demo")[0] == 0


# --- Making it ------------------------------------------------------------------------------------


def test_an_installed_run_packs_to_the_same_bytes(installed, tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "ARCHIVE", tmp_path / "demo.tar.xz")
    installed.path("checkpoints/trainer_state.json").write_text("{}")
    demo.main()
    packed = (tmp_path / "demo.tar.xz").read_bytes()
    assert packed == (PROJECT / "notebooks/data/demo.tar.xz").read_bytes()
