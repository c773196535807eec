"""The run folder: the one thing that passes between notebooks.

Paths, manifest, locks, atomic writes, seeds. A file is written beside its place and then renamed,
so a crash or a Ctrl-C leaves what was there before.
"""

import contextlib
import json
import os
import platform
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from helpers import PROJECT
from helpers.environment import package_versions, unsloth_switches

SWEEPS = "sweeps"  # in the runs folder: what sweeps keep; so no run can have this name
TRAINING_LOCK = ".training.lock"
_LOCK = ".lock"


class Part(NamedTuple):
    """A part of a run.

    notebooks: those that write it, first the one of the pipeline. made_from: the part that it is
    made from; its section names that part's fingerprint or time. files: what they write.
    """

    notebooks: tuple[str, ...]
    made_from: str | None
    files: tuple[str, ...]


# What a run holds, by the section of the manifest that tells of it: which notebook writes what.
PARTS = {
    "data": Part(
        notebooks=("01", "00", "07", "09", "10", "11"),
        made_from=None,
        files=("data", "data_report.json"),
    ),
    "rewards": Part(
        notebooks=("02", "07", "09", "10", "11"),
        made_from="data",
        files=("reward_report.json", "figures/reward_signal.png"),
    ),
    "training": Part(
        notebooks=("03", "00", "07", "09", "10", "11"),
        made_from="data",
        files=("metrics.csv", "completions.parquet", "adapter"),
    ),
    "curves": Part(
        notebooks=("04",),
        made_from=None,
        files=(
            "figures/reasoning.png",
            "figures/reward.png",
            "figures/each_reward.png",
            "figures/spread.png",
            "figures/kl.png",
            "figures/completion_length.png",
            "figures/loss.png",
        ),
    ),
    "evaluation": Part(
        notebooks=("05", "10", "11"),
        made_from="training",
        files=("evaluation.json", "comparison.json", "evaluation", "figures/accuracy.png"),
    ),
    "merge": Part(notebooks=("05", "10", "11"), made_from="training", files=("merged",)),
}
FILES = {file: section for section, part in PARTS.items() for file in part.files}
# The notebooks that prepare data of their own and train on it; each has a run name of its own.
LESSONS = PARTS["data"].notebooks[1:]


def runs_folder() -> Path:
    """Return the folder of all runs: `runs/` in the project, or what GRPO_RUNS_DIR names."""
    return Path(os.environ.get("GRPO_RUNS_DIR") or PROJECT / "runs").resolve()


def show_in_runs(relative: str) -> str:
    """Return how to print a path in the runs folder: beginning with `runs/`, so that no output
    names a folder of this machine.

    Outside the project, and if GRPO_RUNS_DIR names another folder, it is whole, to be found.
    """
    folder = runs_folder()
    if Path.cwd().is_relative_to(PROJECT) and folder == (PROJECT / "runs").resolve():
        folder = Path("runs")
    return (folder / relative).as_posix()


class Run:
    """One run folder, `runs/<name>/`, created with the first file in it.

    name: letters, digits, `.`, `_` and `-`, starting with a letter or digit, at most 64 characters.
    Raise ValueError for any other, because a folder outside `runs/` must not be overwritten, and
    for the name of the folder that holds the sweeps.
    """

    def __init__(self, name: str):
        pattern = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
        allowed = isinstance(name, str) and re.fullmatch(pattern, name) and ".." not in name
        if not allowed or name.lower() == SWEEPS:
            raise ValueError(
                f"run={name!r} is not a run name. Use letters, digits, '.', '_' and '-', starting "
                "with a letter or digit, at most 64 characters; no slash, no '..', and not "
                f"{SWEEPS!r}, the folder of the sweeps."
            )
        self.name = name
        self.folder = runs_folder() / name
        self.notebook: str | None = None  # which notebook writes here; see `made_by`

    def path(self, relative: str) -> Path:
        """Return the full path of a file to write; make its folder."""
        path = self.folder / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def show(self, relative: str = "") -> str:
        """Return how to print a path in this run folder: see `show_in_runs`."""
        return show_in_runs(f"{self.name}/{relative}")

    def require(self, relative: str) -> Path:
        """Return the full path of a file or folder to read.

        Raise FileNotFoundError, with the notebook that writes it, if it is not there.
        """
        path = self.folder / relative
        if path.exists():
            return path
        raise FileNotFoundError(f"{self.show(relative)} is not there. {self._remedy(relative)}")

    def _remedy(self, relative: str, when: str = "first, with the same run name") -> str:
        """Return a sentence that says how to make a file of this run."""
        notebook = self.notebook_of(relative)
        command = f"python -m helpers run --run {self.name}"
        if notebook is None:
            return f"Run the notebooks before this one {when}: `{command}`."
        return f"Run notebook {notebook} {when}: `{command} --only {notebook[:2]}`."

    def notebook_of(self, relative: str) -> str | None:
        """Return the whole name of the notebook that writes a file of this run, which may be a
        lesson; None for a file that PARTS does not name.
        """
        if written_by(relative) is None:
            return None
        number = written_by(relative, self._maker())
        return next((PROJECT / "notebooks").glob(f"{number}_*.ipynb")).stem

    def _maker(self) -> str:
        """Return the notebook that made the data: 01, or a lesson."""
        return self.manifest.get("data", {}).get("notebook", "01")

    @property
    def manifest(self) -> dict:
        """What is recorded of this run so far; empty before the first notebook."""
        return self.read_object("manifest.json")

    @property
    def evaluation(self) -> dict:
        """evaluation.json, one entry per model; empty before notebook 05."""
        return self.read_object("evaluation.json")

    def read_object(self, relative: str) -> dict:
        """Return a JSON object of the run; empty if there is no file.

        Raise ValueError, with the file's name, if it holds no JSON object.
        """
        path = self.folder / relative
        if not path.exists():
            return {}
        try:
            return dict(json.loads(path.read_bytes()))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{self.show(relative)} is no JSON object: {error}.") from None

    def made_by(self, notebook: str) -> "Run":
        """Return this run, for a notebook that writes its data or its training: 01, 03 or a lesson.

        What it records carries the notebook's number. Raise ValueError, before anything is written,
        if another lesson made the data that the run holds.
        """
        if "data" in self.manifest and self._maker() != notebook.replace("03", "01"):
            raise ValueError(
                f"{self.show()} holds data and a training that notebook {self._maker()} made, and "
                f"notebook {notebook} would replace them. Take another run name, or rename or "
                "delete that folder."
            )
        self.notebook = notebook
        return self

    def check_evaluable(self) -> None:
        """Raise ValueError if notebook 05 cannot evaluate this run: a lesson made it that writes
        the evaluation itself, of episodes or of pictures.
        """
        maker = self._maker()
        if maker in PARTS["evaluation"].notebooks:
            raise ValueError(
                f"run {self.name!r} is notebook {maker}'s, which measures and merges its policy "
                "itself: notebook 05 measures answers to questions of text."
            )

    def outdated(self, relative: str) -> str | None:
        """Return a sentence that says why a file or folder is older than what it was made from;
        None if it is not.

        relative: a key of FILES. If its section does not name what it was made from, as in runs of
        earlier versions, nothing is known.
        """
        section = FILES[relative]
        source = PARTS[section].made_from
        version = "fingerprint" if source == "data" else "written"
        then = self.manifest.get(section, {}).get(source)
        now = self.manifest.get(source, {}).get(version)
        if None in (then, now) or then == now or not (self.folder / relative).exists():
            return None
        earlier = "earlier data" if source == "data" else "an earlier training"
        return (
            f"{self.show(relative)} is of {earlier} than the run now holds. "
            f"{self._remedy(relative, 'again')}"
        )

    def record(self, section: str, **values) -> None:
        """Replace one section of the manifest.

        Added to the values: when and by which notebook it was written (see `made_by`), with which
        packages and revision, and with which of Unsloth's switches (see SWITCHES.md).
        """
        values |= {
            "written": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": package_versions(),
            "git": git_revision(),
        }
        if self.notebook:
            values["notebook"] = self.notebook
        if switches := unsloth_switches():
            values["switches"] = switches
        manifest = {"name": self.name} | self.manifest | {section: values}
        write_json(self.path("manifest.json"), manifest)

    def section(self, name: str) -> dict:
        """Return one section of the manifest. Raise FileNotFoundError, with the notebook that
        writes it, if it is not there.

        Raise ValueError for a training on other data than the run holds now: its holdout may hold
        rows that the model was trained on.
        """
        manifest = self.manifest
        if name == "training" and self.outdated("metrics.csv"):
            maker = self._maker()
            raise ValueError(
                f"the adapter of run {self.name!r} was trained on other data than notebook {maker} "
                "has since prepared, so the holdout may hold questions it was trained on. Train "
                f"again: `python -m helpers run --run {self.name} --only "
                f"{'03,04,05' if maker == '01' else maker}`."
            )
        if name not in manifest:
            written = PARTS[name].files[0] if name in PARTS else name
            raise FileNotFoundError(
                f"{self.show('manifest.json')} has no section {name!r}. {self._remedy(written)}"
            )
        return manifest[name]

    def record_evaluation(self, training: dict, evaluation: dict, comparison: dict) -> None:
        """Replace evaluation.json and comparison.json.

        training: the section of the training that was evaluated.
        """
        write_json(self.path("evaluation.json"), evaluation)
        write_json(self.path("comparison.json"), comparison)
        self.record("evaluation", training=training["written"])

    @property
    def last_call(self) -> dict:
        """What `python -m helpers run` was last asked for in this folder; all empty if nothing was.

        `parameters`, `notebooks` and, of these, `done`: the last call, which `--resume` goes on
        with. `given`: for each notebook that has gone through, in this call or an earlier one, the
        parameters it had then.
        """
        nothing = {"parameters": {}, "notebooks": [], "done": [], "given": {}}
        return nothing | self.manifest.get("call", {})

    def notebooks_left(self) -> list[str]:
        """Return the notebooks of the last call that `--resume` would execute."""
        call = self.last_call
        return [number for number in call["notebooks"] if number not in call["done"]]

    def is_last_call(self, notebooks: list[str], parameters: dict) -> bool:
        """Return whether these notebooks and parameters are those of the last call; compared as
        JSON, in which True is not 1.
        """
        call = self.last_call
        before = json.dumps([call["notebooks"], call["parameters"]], sort_keys=True)
        return before == json.dumps([notebooks, parameters], sort_keys=True)

    def save_figure(self, figure, name: str) -> str:
        """Save a Matplotlib figure as figures/<name>.png; return how to print its path."""
        figure.savefig(self.path(f"figures/{name}.png"), dpi=120, bbox_inches="tight")
        return self.show(f"figures/{name}.png")


def written_by(relative: str, maker: str = "01") -> str | None:
    """Return the number of the notebook that writes a file, in a run whose data notebook `maker`
    has made; None for a file that PARTS does not name.

    >>> written_by("adapter/adapter_config.json"), written_by("adapter", "07")
    ('03', '07')
    """
    for file, section in FILES.items():
        if f"{relative}/".startswith(f"{file}/"):
            notebooks = PARTS[section].notebooks
            return maker if maker in notebooks else notebooks[0]
    return None


@contextlib.contextmanager
def lock(folder: Path, what: str, name: str = _LOCK) -> Iterator[None]:
    """Keep other processes out of a folder, which is created, for the length of a block.

    The same process may hold it twice. Raise ValueError if another process has it, with its number,
    its machine, and since when. The lock on the file `name` is the system's own: it ends with its
    process, however that ends. Between machines it holds on a disk that passes locks on (NFS 4,
    Lustre mounted with `flock`, CephFS, GPFS).
    """
    from filelock import FileLock, Timeout  # missing before the install

    # one object per file in this process, whatever the thread: so it may be taken twice
    file_lock = FileLock(folder / name, is_singleton=True, thread_local=False)
    try:
        file_lock.acquire(timeout=0.25)  # some take it for a moment, to see who has it
    except Timeout:
        raise ValueError(
            f"{what} is being executed by {(folder / name).read_text() or 'another process'}. Wait "
            "for its end, shut the kernel down if it is a notebook's, or take another name."
        ) from None
    try:
        since = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
        holder = f"process {os.getpid()} on {platform.node()} since {since}"
        (folder / name).write_text(holder)
        yield
    finally:
        file_lock.release()


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a file beside `path` to write to; it replaces `path` if the block ends without an
    error.
    """
    # with the process's number, for two processes may write the same file
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder beside `path` to fill; it replaces `path` if the block ends without an
    error.

    A folder cannot be replaced in one step, so for a moment the old one is beside its place.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    old = path.with_name(f".{path.name}.old")
    shutil.rmtree(temporary, ignore_errors=True)  # of a process that was killed
    temporary.mkdir()
    try:
        yield temporary
        if path.exists():
            shutil.rmtree(old, ignore_errors=True)
            os.replace(path, old)
        os.replace(temporary, path)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_json(path: Path, value: object) -> None:
    """Write JSON atomically, indented, in UTF-8."""
    with atomic_write(path) as temporary:
        temporary.write_text(
            json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
        )


def check_seed(seed: object) -> None:
    """Raise ValueError unless this is an integer from 0 to 2**32 - 1, as NumPy takes it."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise ValueError(f"seed={seed!r} is not a seed: give an integer from 0 to {2**32 - 1}.")


def seed_everything(seed: int) -> None:
    """Seed the random numbers of Python, of NumPy and, if it is imported already, of torch."""
    check_seed(seed)
    import numpy as np

    random.seed(seed)
    np.random.seed(seed)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)


def git_revision() -> dict[str, object]:
    """Return the project's commit, and whether the working tree differs from it; nothing outside
    a git checkout.
    """
    options = {"cwd": PROJECT, "capture_output": True, "text": True, "check": True, "timeout": 10}
    try:
        revision = subprocess.run(["git", "rev-parse", "HEAD"], **options).stdout.strip()
        changed = subprocess.run(["git", "status", "--porcelain", "-uno"], **options).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return {}
    return {"revision": revision, "dirty": bool(changed)}
