"""The finished run that comes with the project: what is in it, that it is put in place, and that it
replaces a broken one.
"""

import json
import re
import tarfile
from dataclasses import asdict

import pytest

from helpers import PROJECT
from helpers.commands import arguments, checkpoint, pipeline
from helpers.presets import PRESETS, completed
from helpers.runs import FILES, Run, written_by

SECTIONS = {"02": {"data", "rewards"}, "03": {"data", "rewards", "training"}}
A_PATH = re.compile(
    rb"(?<![\w.:/@])(/(home|root|Users|tmp|work|mnt|opt|var|content|workspace)/[\w.]|[A-Z]:\\\\)"
)

pytestmark = pytest.mark.usefixtures("machine")


@pytest.fixture(scope="module")
def stored() -> dict[str, bytes]:
    with tarfile.open(checkpoint.ARCHIVE) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}


# --- What is in it --------------------------------------------------------------------------------


def test_the_archive_is_small_and_holds_the_demo_and_nothing_of_a_machine(stored):
    assert checkpoint.ARCHIVE.stat().st_size <= 5_000_000
    others = {name for name in stored if not written_by(name)}
    assert others <= {"manifest.json", "contents.json"}  # the latter as earlier versions packed it
    assert json.loads(stored["evaluation.json"])["trained"]["accuracy"] > 0.8
    with tarfile.open(checkpoint.ARCHIVE) as archive:
        assert {(member.mtime, member.uid, member.uname) for member in archive} == {(0, 0, "")}
    for name, content in stored.items():
        assert not A_PATH.search(content), (name, A_PATH.search(content))
        assert b"PRIVATE" not in content and b"hf_" not in content.replace(b"hf_quant", b""), name


def test_everything_that_the_notebooks_leave_is_kept_or_known_to_be_left_out(executed):
    """A file that a notebook begins to write belongs into the table, or here."""
    left_out = ("checkpoints/", "notebooks/", "asked.json", ".lock", ".training", "manifest.json")
    paths = [path for path in executed.folder.rglob("*") if path.is_file()]
    found = {path.relative_to(executed.folder).as_posix() for path in paths}
    assert all(written_by(name) or name.startswith(left_out) for name in found), found
    assert all(any(f"{name}/".startswith(f"{part}/") for name in found) for part in FILES)


def test_the_parameters_of_the_notebooks_are_those_it_was_made_with(stored):
    """Where 01 or 03 has got another default, `make demo` is due."""
    known = pipeline.defaults(list(arguments.PIPELINE))
    manifest = json.loads(stored["manifest.json"])
    assert manifest["training"]["seed"] == manifest["data"]["seed"] == known["seed"]
    settings = manifest["training"]["settings"]
    given = {name: value for name, value in known.items() if name in settings and value is not None}
    assert completed(settings) == asdict(PRESETS["pocket"]) | given


# --- A late start ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_in_an_empty_runs_folder_04_and_05_go_on_with_it(cli):
    checkpoint.fetch("late", "05")
    before = Run("late").evaluation
    assert pipeline.run("late", None, "04,05", ["serve=false"]) == 0
    # on another processor a token may fall otherwise
    for model in ("baseline", "trained", "merged"):
        assert abs(Run("late").evaluation[model]["accuracy"] - before[model]["accuracy"]) < 0.05


def test_it_is_a_run_like_any_other_with_the_paths_of_this_machine(cli):
    code, out, _ = cli("checkpoint", "--from-demo", "05", "--run", "late")
    assert code == 0 and "is now the demo as notebook 05 left it" in out and "--only 06" in out
    run = Run("late")
    assert run.manifest["name"] == "late"
    config = (run.require("adapter") / "adapter_config.json").read_text(encoding="utf-8")
    model = (PROJECT / "helpers/pocket/model").as_posix()
    assert json.loads(config)["base_model_name_or_path"] == model
    assert len(run.table("completions.parquet")) > 1000
    pipeline.check("late", ["03", "04", "05", "06", "08"], {})
    assert cli("report", "--run", "late")[0] == 0


# --- In place of a broken run ---------------------------------------------------------------------


@pytest.mark.parametrize("last", ["02", "03"])
def test_a_broken_run_becomes_the_demo_after_a_notebook_and_what_it_was_is_kept(cli, last):
    run = Run("mine")
    broken = {
        "manifest.json": "{",
        "metrics.csv": "x",
        "checkpoints/finished": "",
        "merged/model.safetensors": "?",
        "own.txt": "!",
    }
    for name, content in broken.items():
        run.path(name).write_text(content)
    code, out, _ = cli("checkpoint", "--run", "mine", "--from-demo", last)
    assert code == 0 and "set_aside/1/" in out and f"as notebook {last} left it" in out
    kept = run.folder / "set_aside/1"
    assert {name: (kept / name).read_text() for name in broken} == broken
    assert run.manifest.keys() == {"name"} | SECTIONS[last]
    there = {path.name for path in run.folder.iterdir()}
    assert ("adapter" in there) == (last >= "03")
    assert not {"merged", "evaluation.json", "checkpoints"} & there
    assert arguments.left(arguments.last(run)) == [] and arguments.last(run)["done"][-1] == last
    pipeline.check("mine", ["03"] if last == "02" else ["04", "05"], {})


# --- Making it ------------------------------------------------------------------------------------


def test_a_fetched_run_packs_to_the_same_files_and_an_unfinished_one_is_refused(
    cli, tmp_path, monkeypatch, stored
):
    cli("checkpoint", "--from-demo", "05")
    copy = tmp_path / "demo.tar.xz"
    monkeypatch.setattr(checkpoint, "ARCHIVE", copy)
    assert cli("checkpoint", "--store-demo")[0] == 0
    with tarfile.open(copy) as archive:
        packed = {member.name: archive.extractfile(member).read() for member in archive}
    others = {"contents.json", "manifest.json"}
    assert packed.keys() - others == stored.keys() - others
    assert all(packed[name] == stored[name] for name in stored.keys() - others)
    code, _, err = cli("checkpoint", "--store-demo", "--run", "late")
    assert code == 2 and "Run notebook 05" in err
