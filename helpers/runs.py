"""The run folder: the one thing that passes between notebooks.

Paths, manifest, locks, atomic writes, seeds. A file is written beside its place and then renamed,
so a crash or a Ctrl-C leaves what was there before.
"""

import contextlib
import errno
import itertools
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

from helpers import PROJECT
from helpers.environment import package_versions, unsloth_switches

SWEEPS = "sweeps"  # in the runs folder: what sweeps keep; so no run can have this name
_LOCK = ".lock"
TRAINING_LOCK = ".training.lock"
LOCKS = (_LOCK, TRAINING_LOCK)
ASIDE = "set_aside"  # subfolder of a run for what a fresh start replaced
_REMEDY = "Wait for its end, shut the kernel down if it is a notebook's, or take another name."
# Notebooks that prepare data of their own and train on it, and those whose work they do or replace.
LESSONS = {
    "00": ("01", "03"),
    "07": ("01", "02", "03"),
    "09": ("01", "02", "03"),
    "10": ("01", "02", "03", "05"),
    "11": ("01", "02", "03", "05"),
}
MAKERS = ("01", "03", *LESSONS)
# What a run holds: file or folder, the notebook that writes it, its section of the manifest.
FILES = {
    "data": ("01", "data"),
    "data_report.json": ("01", "data"),
    "reward_report.json": ("02", "rewards"),
    "figures/reward_signal.png": ("02", "rewards"),
    "metrics.csv": ("03", "training"),
    "completions.parquet": ("03", "training"),
    "adapter": ("03", "training"),
    "figures/reasoning.png": ("04", "curves"),
    "figures/reward.png": ("04", "curves"),
    "figures/each_reward.png": ("04", "curves"),
    "figures/spread.png": ("04", "curves"),
    "figures/kl.png": ("04", "curves"),
    "figures/completion_length.png": ("04", "curves"),
    "figures/loss.png": ("04", "curves"),
    "evaluation.json": ("05", "evaluation"),
    "comparison.json": ("05", "evaluation"),
    "evaluation": ("05", "evaluation"),
    "figures/accuracy.png": ("05", "evaluation"),
    "merged": ("05", "merge"),
}
# What each section is made from. A section names it: the fingerprint of the data, when the training
# was written.
MADE_FROM = {
    "rewards": "data",
    "training": "data",
    "evaluation": "training",
    "merge": "training",
}


def runs_folder() -> Path:
    """The folder of all runs: `runs/` in the project, or the one that GRPO_RUNS_DIR names."""
    return Path(os.environ.get("GRPO_RUNS_DIR") or PROJECT / "runs").resolve()


def show_in_runs(relative: str) -> str:
    """How to print a path in the runs folder: beginning with `runs/`, so that no output names a
    folder of this machine.

    Outside the project, and where GRPO_RUNS_DIR names the folder, it is printed whole, to be found.
    """
    folder, here = runs_folder(), Path.cwd().is_relative_to(PROJECT)
    known = here and folder == (PROJECT / "runs").resolve()
    return (Path("runs") / relative if known else folder / relative).as_posix()


class Run:
    """One run folder, `runs/<name>/`, created with the first file in it.

    name: letters, digits, `.`, `_` and `-`, starting with a letter or digit, at most 64 characters.
    ValueError for any other, because a folder outside `runs/` must not be overwritten, and for the
    name of the folder that holds the sweeps.
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
        """The full path of a file to write; its folder is made."""
        path = self.folder / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def show(self, relative: str = "") -> str:
        """How to print a path in this run folder: see `show_in_runs`."""
        return show_in_runs(f"{self.name}/{relative}")

    def require(self, relative: str) -> Path:
        """The full path of a file or folder to read.

        FileNotFoundError names the notebook that writes it.
        """
        path = self.folder / relative
        if path.exists():
            return path
        raise FileNotFoundError(f"{self.show(relative)} is not there. {self._make(relative)}")

    def _make(self, relative: str, when: str = "first, with the same run name") -> str:
        """How to make a file of this run, in a sentence."""
        notebook, command = self.notebook_of(relative), f"python -m helpers run --run {self.name}"
        if notebook is None:
            return f"Run the notebooks before this one {when}: `{command}`."
        return f"Run notebook {notebook} {when}: `{command} --only {notebook[:2]}`."

    @property
    def manifest(self) -> dict:
        """What is recorded of this run so far; empty before the first notebook."""
        return self.read_object("manifest.json")

    @property
    def evaluation(self) -> dict:
        """evaluation.json, one entry per model; empty before notebook 05."""
        return self.read_object("evaluation.json")

    def read_object(self, relative: str) -> dict:
        """A JSON object of the run, checked by its model in `run_files`; empty if there is no file.

        ValueError names the file and what does not fit.
        """
        from helpers import run_files  # imports pydantic, which is missing before the install

        path = self.folder / relative
        if not path.exists():
            return {}
        try:
            return run_files.read(path)
        except ValueError as error:
            raise ValueError(self._damaged(relative, str(error))) from None

    def table(self, relative: str):
        """A Parquet file of the run as a DataFrame.

        FileNotFoundError as for `require`; ValueError names a file that cannot be read.
        """
        import pandas as pd

        path = self.require(relative)
        try:
            return pd.read_parquet(path)
        except (ValueError, OSError) as error:
            raise ValueError(self._damaged(relative, str(error).splitlines()[0])) from None

    def _damaged(self, relative: str, why: str) -> str:
        again = self._make(relative, "again")
        return f"{self.show(relative)} is damaged ({why}). Delete that file. {again}"

    def notebook_of(self, relative: str) -> str | None:
        """The notebook that writes a file of this run, by its whole name; it may be a lesson."""
        number = written_by(relative)
        if number is None:
            return None
        # a lesson that failed before it had data is known by what `run` was asked for
        asked = self.read_object("asked.json").get("notebooks") or [None]
        maker = self.manifest.get("data", {}).get("notebook", asked[0])
        number = maker if number in LESSONS.get(maker, ()) else number
        return next((path.stem for path in (PROJECT / "notebooks").glob(f"{number}_*.ipynb")), None)

    def made_by(self, notebook: str) -> "Run":
        """This run, for a notebook that writes its data or its training: 01, 03 or one of LESSONS.

        What it records carries the notebook's number. ValueError, before anything is written, if
        another lesson made what the run holds.
        """
        self.check_maker(notebook)
        self.notebook = notebook
        return self

    def check_maker(self, notebook: str) -> None:
        """ValueError if this notebook would replace data and a training that another lesson
        made.
        """
        if self.is_of_another_lesson(notebook):
            maker = self.manifest.get("data", {}).get("notebook", "01")
            only = "01,03" if notebook == "03" else notebook
            raise ValueError(
                f"{self.show()} holds data and a training that notebook {maker} made, and notebook "
                f"{notebook} would replace them. Take another run name, or set aside what is "
                f"there: `python -m helpers run --run {self.name} --only {only} --fresh`."
            )

    def is_of_another_lesson(self, notebook: str) -> bool:
        """Whether this notebook would replace data and a training that another lesson made."""
        manifest = self.manifest
        if notebook not in MAKERS or not {"data", "training"} & set(manifest):
            return False
        maker = manifest.get("data", {}).get("notebook")
        return maker != notebook if notebook in LESSONS else maker in LESSONS

    def outdated(self, relative: str) -> str | None:
        """Why a file or folder is older than what it was made from, in a sentence; else None.

        relative: a key of FILES. Its section of the manifest names what it was made from; where
        it names nothing, as in runs of earlier versions, nothing is known.
        """
        section = FILES[relative][1]
        if not self._is_older(section) or not (self.folder / relative).exists():
            return None
        number = self.notebook_of(relative)[:2]
        again = f"`python -m helpers run --run {self.name} --only {number}`"
        earlier = "earlier data" if MADE_FROM[section] == "data" else "an earlier training"
        return (
            f"{self.show(relative)} is of {earlier} than the run now holds; make it again: {again}."
        )

    def _is_older(self, section: str) -> bool:
        """Whether a section names other data, or another training, than the run holds now."""
        source = MADE_FROM.get(section)
        made = self.manifest.get(section, {}).get(source)
        now = self.manifest.get(source, {}).get("fingerprint" if source == "data" else "written")
        return None not in (made, now) and made != now

    def set_aside(self) -> str:
        """Move all that the run holds into `set_aside/<number>/` in it.

        Returns how to print that folder; empty if the run was empty.
        """
        found = [path for path in self.folder.iterdir() if path.name not in (*LOCKS, ASIDE)]
        if not found:
            return ""
        number = next(n for n in itertools.count(1) if not (self.folder / ASIDE / str(n)).exists())
        for path in found:
            os.replace(path, self.path(f"{ASIDE}/{number}/{path.name}"))
        return self.show(f"{ASIDE}/{number}") + "/"

    def record(self, section: str, **values) -> None:
        """Replace one section of the manifest.

        Added: when and by which notebook it was written (see `made_by`), with which packages and
        revision, and with which of Unsloth's switches (see SWITCHES.md).
        """
        manifest, switches = {"name": self.name} | self.manifest, unsloth_switches()
        manifest[section] = (
            values
            | {
                "written": datetime.now(UTC).isoformat(timespec="seconds"),
                "versions": package_versions(),
                "git": git_revision(),
            }
            | ({"notebook": self.notebook} if self.notebook else {})
            | ({"switches": switches} if switches else {})
        )
        write_json(self.path("manifest.json"), manifest)

    def section(self, name: str) -> dict:
        """One section of the manifest. FileNotFoundError names the notebook that writes it.

        ValueError for a training on other data than the run holds now: its holdout may hold rows
        that the model was trained on.
        """
        manifest = self.manifest
        if name == "training" and self._is_older(name):
            maker = self.notebook_of("data")[:2]
            raise ValueError(
                f"the adapter of run {self.name!r} was trained on other data than notebook {maker} "
                "has since prepared, so the holdout may hold questions it was trained on. Train "
                f"again: `python -m helpers run --run {self.name} --only "
                f"{maker if maker in LESSONS else '03,04,05'}`."
            )
        if name not in manifest:
            written = next((part for part, (_, section) in FILES.items() if section == name), name)
            raise FileNotFoundError(
                f"{self.show('manifest.json')} has no section {name!r}. {self._make(written)}"
            )
        return manifest[name]

    def record_evaluation(self, training: dict, evaluation: dict, comparison: dict) -> None:
        """Replace evaluation.json and comparison.json.

        training: the section of the training that was evaluated.
        """
        write_json(self.path("evaluation.json"), evaluation)
        write_json(self.path("comparison.json"), comparison)
        self.record("evaluation", training=training["written"])

    def save_figure(self, figure, name: str) -> str:
        """Save a Matplotlib figure as figures/<name>.png; returns how to print its path."""
        figure.savefig(self.path(f"figures/{name}.png"), dpi=120, bbox_inches="tight")
        return self.show(f"figures/{name}.png")


def written_by(relative: str) -> str | None:
    """The number of the notebook that writes a file of a run; None for a file that FILES does not
    name.

    >>> written_by("adapter/adapter_config.json"), written_by("checkpoints/metrics.csv")
    ('03', None)
    """
    return next(
        (number for part, (number, _) in FILES.items() if f"{relative}/".startswith(f"{part}/")),
        None,
    )


@contextlib.contextmanager
def held(folder: Path, what: str, name: str = _LOCK) -> Iterator[None]:
    """Keep other processes out of a folder, which is created, for the length of a block.

    The same process may hold it twice. ValueError if another process has it, with its number, its
    machine, and since when. The lock on the file `name` is the system's own: it ends with its
    process, however that ends. Between machines it holds on a disk that passes locks on (NFS 4,
    Lustre mounted with `flock`, CephFS, GPFS).
    """
    from filelock import FileLock, SoftFileLock, Timeout  # missing before the install

    # one object per file in this process, whatever the thread: so it may be taken twice
    lock = FileLock(folder / name, is_singleton=True, thread_local=False)
    try:
        lock.acquire(timeout=0.25)  # some take it for a moment, to see who has it
    except Timeout:
        who = ""
        with contextlib.suppress(OSError):  # Windows: nobody may write or read a locked file
            who = (folder / name).read_text(encoding="utf-8").strip()
        raise ValueError(
            f"{what} is being executed by {who or 'another process'}. {_REMEDY}"
        ) from None
    since = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
    who = f"process {os.getpid()} on {platform.node()} since {since}"
    try:
        if not isinstance(lock, SoftFileLock):  # on a disk without locks; it writes who itself
            with contextlib.suppress(OSError):
                (folder / name).write_text(who, encoding="utf-8")
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A file beside `path` to write to; it replaces `path` if the block ends without an error."""
    # with the process's number, for two processes may write the same file
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with named_if_full(path):
        try:
            yield temporary
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """A new folder beside `path` to fill; it replaces `path` if the block ends without an error.

    A folder cannot be replaced in one step, so for a moment the old one is beside its place.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary, old = path.with_name(f".{path.name}.tmp"), path.with_name(f".{path.name}.old")
    shutil.rmtree(temporary, ignore_errors=True)  # of a process that was killed
    temporary.mkdir()
    with named_if_full(path):
        try:
            yield temporary
            if path.exists():
                shutil.rmtree(old, ignore_errors=True)
                os.replace(path, old)
            os.replace(temporary, path)
            shutil.rmtree(old, ignore_errors=True)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@contextlib.contextmanager
def named_if_full(path: Path) -> Iterator[None]:
    """OSError names the file or folder, and what is free, if the block fails on a full disk."""
    try:
        yield
    except Exception as error:  # safetensors raises its own
        if "No space left on device" not in str(error):
            raise
        free = shutil.disk_usage(path.parent).free / 1e6
        raise OSError(errno.ENOSPC, f"the disk is full ({free:.0f} MB free)", str(path)) from error


def write_json(path: Path, value: object) -> None:
    """Write JSON atomically, indented, in UTF-8."""
    with atomic_write(path) as temporary:
        temporary.write_text(
            json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
        )


def check_seed(seed: object) -> None:
    """ValueError unless this is an integer from 0 to 2**32 - 1, as NumPy takes it."""
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
    """The project's commit and whether the working tree differs from it; empty outside a
    git checkout.
    """
    try:
        commands = (
            ["git", "rev-parse", "HEAD"],
            ["git", "status", "--porcelain", "--untracked-files=no"],
        )
        revision, changes = (
            subprocess.run(
                command, cwd=PROJECT, capture_output=True, text=True, check=True, timeout=10
            ).stdout.strip()
            for command in commands
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    return {"revision": revision, "dirty": bool(changes)}
