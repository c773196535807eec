"""The run folder `runs/<name>/`: everything that one notebook leaves for the next.

    run = Run("demo")
    run.require("adapter")  # the path, or an error that names the notebook that writes it
    run.record("data", rows=1000)  # a section of manifest.json

PARTS says which notebook writes which files, and `Run` reads and writes them. `lock` keeps other
processes out of a run. `atomic_write` and `atomic_folder` write beside the place of a file and then
rename, so a crash or Ctrl-C leaves the old file whole.
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

SWEEPS = "sweeps"  # the folder of the sweeps' tables, beside the runs
TRAINING_LOCK = ".training.lock"
GIVEN = "GRPO_GIVEN"  # environment variable: what a command gives the notebook it runs, in JSON


class Part(NamedTuple):
    """A part of a run, with a section of its own in the manifest.

    notebooks: the notebooks that write the part; the first belongs to the pipeline 01 to 05.
    made_from: the part from which it is computed. The manifest records under this key the data's
    fingerprint, or the time when the training was written.
    files: the files and folders of the part.
    """

    notebooks: tuple[str, ...]
    made_from: str | None
    files: tuple[str, ...]


# Which notebook writes which files, by section of the manifest.
PARTS = {
    "data": Part(
        notebooks=("01", "00", "07", "09", "10", "11"),
        made_from=None,
        files=("data", "data_report.json"),
    ),
    "rewards": Part(
        notebooks=("02", "07", "09", "10", "11"),
        made_from="data",
        files=("reward_report.json", "figures/reward_signal.png", "pass_rates.parquet"),
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
# The notebooks that `python -m helpers run` executes by default, all in one run.
PIPELINE = ("01", "02", "03", "04", "05")
# The notebooks that prepare their own data and train on it, each in its own run.
LESSONS = PARTS["data"].notebooks[1:]
# The notebooks that write the data or the training of a run.
MAKERS = ("01", "03", *LESSONS)


def runs_folder() -> Path:
    """Return the folder of all runs: GRPO_RUNS_DIR, or else `runs/` in the project."""
    return Path(os.environ.get("GRPO_RUNS_DIR") or PROJECT / "runs").resolve()


def show_in_runs(relative: str) -> str:
    """Return a path in the runs folder as text to print.

    The text begins with `runs/`, so outputs of notebooks name no folder of this machine. It is the
    absolute path if GRPO_RUNS_DIR names another folder or the working directory is outside the
    project.
    """
    folder = runs_folder()
    if Path.cwd().is_relative_to(PROJECT) and folder == (PROJECT / "runs").resolve():
        folder = Path("runs")
    return (folder / relative).as_posix()


class Run:
    """The run folder `runs/<name>/`, created with its first file.

    name: letters, digits, `.`, `_` and `-`, starting with a letter or digit, at most 64 characters.
    Raise ValueError if it is another name, which could lead outside `runs/`, or `sweeps`.
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
        self.notebook: str | None = None  # the notebook that writes here; set by `made_by`

    def path(self, relative: str) -> Path:
        """Return the full path of a file to write, and create the folder it goes into."""
        path = self.folder / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def show(self, relative: str = "") -> str:
        """Return a path in this run folder as text to print; see `show_in_runs`."""
        return show_in_runs(f"{self.name}/{relative}")

    def require(self, relative: str) -> Path:
        """Return the full path of a file or folder to read.

        Raise FileNotFoundError if it does not exist; the message names the notebook that writes it.
        """
        path = self.folder / relative
        if path.exists():
            return path
        raise FileNotFoundError(f"{self.show(relative)} is not there. {self._remedy(relative)}")

    def rows(self, side: str):
        """Return a DataFrame of the questions of a side, "train" or "holdout", one per row."""
        import pandas as pd

        return pd.read_parquet(self.require(f"data/{side}.parquet"))

    def _remedy(self, relative: str, when: str = "first, with the same run name") -> str:
        """Return a sentence that tells which notebook to run for a file of this run, and how."""
        others = sorted(path.parent.name for path in runs_folder().glob("*/manifest.json"))
        if others and not (self.folder / "manifest.json").exists():
            return f"There is no run {self.name!r}; the runs are: {', '.join(others)}."
        command = f"python -m helpers run --run {self.name}"
        number = written_by(relative, self._maker())
        if number is None:
            return f"Run the notebooks before this one {when}: `{command}`."
        if number in self.notebooks_left():
            return (
                f"The run's last command has not finished; continue it with `{command} --resume`."
            )
        notebook = next((PROJECT / "notebooks").glob(f"{number}_*.ipynb")).stem
        return f"Run notebook {notebook} {when}: `{command} --only {number}`."

    def _maker(self) -> str:
        """Return the number of the notebook that prepared the data: 01 or a lesson."""
        return self.manifest.get("data", {}).get("notebook", "01")

    @property
    def manifest(self) -> dict:
        """manifest.json, one entry per section; empty before the first notebook."""
        return self.read_object("manifest.json")

    @property
    def evaluation(self) -> dict:
        """evaluation.json, one entry per model; empty before notebook 05."""
        return self.read_object("evaluation.json")

    def read_object(self, relative: str) -> dict:
        """Return the JSON object in a file of the run; empty if the file does not exist.

        Raise ValueError, with the file's name, if the file holds anything else.
        """
        path = self.folder / relative
        if not path.exists():
            return {}
        try:
            return dict(json.loads(path.read_bytes()))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{self.show(relative)} is not a JSON object: {error}.") from None

    def write_object(self, relative: str, value: dict) -> None:
        """Write a file of the run that `read_object` reads."""
        write_json(self.path(relative), value)

    def made_by(self, notebook: str) -> "Run":
        """Return this run, for a notebook that will write its data or training.

        notebook: "01", "03" or a lesson's number; later records carry it. Raise ValueError if the
        run holds another lesson's data.
        """
        maker = "01" if notebook == "03" else notebook  # 03 trains on the data of 01
        if "data" in self.manifest and self._maker() != maker:
            raise ValueError(
                f"{self.show()} already holds the data and training run of notebook "
                f"{self._maker()}, and notebook {notebook} would overwrite them. Choose another "
                "run name, or rename or delete that folder."
            )
        self.notebook = notebook
        return self

    def check_evaluable(self) -> None:
        """Raise ValueError if a lesson made this run and evaluates its episodes or pictures itself;
        notebook 05 evaluates answers to text questions.
        """
        maker = self._maker()
        if maker in PARTS["evaluation"].notebooks:
            raise ValueError(
                f"run {self.name!r} is notebook {maker}'s, which measures and merges its policy "
                "itself: notebook 05 measures answers to questions of text."
            )

    def outdated(self, relative: str) -> str | None:
        """Return a sentence if a file or folder was made from data, or a training, that the run no
        longer holds; otherwise None.

        relative: a key of FILES. Runs of earlier versions did not record what a file was made from;
        for them the answer is None.
        """
        section = FILES[relative]
        source = PARTS[section].made_from
        if source == "data":
            version = "fingerprint"
            earlier = "earlier data"
        else:
            version = "written"
            earlier = "an earlier training"
        made_from = self.manifest.get(section, {}).get(source)
        now = self.manifest.get(source, {}).get(version)
        if made_from is None or now is None or made_from == now:
            return None
        if not (self.folder / relative).exists():
            return None
        return (
            f"{self.show(relative)} is from {earlier} than the run now holds. "
            f"{self._remedy(relative, 'again')}"
        )

    def record(self, section: str, **values) -> None:
        """Replace one section of the manifest.

        The time, the package versions, the git revision and Unsloth's environment variables (see
        docs/switches.md) are added to the values; in a notebook (see `made_by`) also its number and
        the parameters that a command gave it, None if it was opened in Jupyter.
        """
        values |= {
            "written": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": package_versions(),
            "git": git_revision(),
        }
        if self.notebook:
            values["notebook"] = self.notebook
            values["given"] = json.loads(os.environ.get(GIVEN, "null"))
        if switches := unsloth_switches():
            values["switches"] = switches
        manifest = {"name": self.name} | self.manifest | {section: values}
        write_json(self.path("manifest.json"), manifest)

    def section(self, name: str) -> dict:
        """Return one section of the manifest.

        Raise FileNotFoundError if it does not exist; the message names the notebook that writes it.
        Raise ValueError if the training was on other data than the run now holds: the new holdout
        may contain rows the model was trained on.
        """
        manifest = self.manifest
        if name == "training" and self.outdated("metrics.csv"):
            maker = self._maker()
            notebooks = "03,04,05" if maker == "01" else maker
            raise ValueError(
                f"the adapter of run {self.name!r} was trained on other data than notebook {maker} "
                "has since prepared, so the holdout may hold questions it was trained on. Train "
                f"again: `python -m helpers run --run {self.name} --only {notebooks}`."
            )
        if name not in manifest:
            written = PARTS[name].files[0] if name in PARTS else name
            raise FileNotFoundError(
                f"{self.show('manifest.json')} has no section {name!r}. {self._remedy(written)}"
            )
        return manifest[name]

    def record_evaluation(self, training: dict, evaluation: dict, comparison: dict) -> None:
        """Replace evaluation.json and comparison.json.

        training: the manifest's section of the training that was evaluated.
        """
        write_json(self.path("evaluation.json"), evaluation)
        write_json(self.path("comparison.json"), comparison)
        self.record("evaluation", training=training["written"])

    @property
    def last_call(self) -> dict:
        """The last `python -m helpers run` in this folder, which `--resume` continues; every entry
        is empty if there was none.

        parameters, notebooks: what the command asked for. done: the notebooks it has finished.
        given: the parameters each notebook was last started with, in this or an earlier call.
        """
        nothing = {"parameters": {}, "notebooks": [], "done": [], "given": {}}
        return nothing | self.manifest.get("call", {})

    def notebooks_left(self) -> list[str]:
        """Return the notebooks that the last call has not finished."""
        call = self.last_call
        return [number for number in call["notebooks"] if number not in call["done"]]

    def is_last_call(self, notebooks: list[str], parameters: dict) -> bool:
        """Return whether the last call had these notebooks and parameters."""
        call = self.last_call
        # compare them as JSON, because in Python True equals 1
        before = json.dumps([call["notebooks"], call["parameters"]], sort_keys=True)
        return before == json.dumps([notebooks, parameters], sort_keys=True)

    def save_figure(self, figure, name: str) -> str:
        """Save a Matplotlib figure as figures/<name>.png; return its path as `show` does."""
        figure.savefig(self.path(f"figures/{name}.png"), dpi=120, bbox_inches="tight")
        return self.show(f"figures/{name}.png")


def written_by(relative: str, maker: str = "01") -> str | None:
    """Return the number of the notebook that writes a file; None for a file outside PARTS.

    maker: the notebook that prepared the run's data.

    >>> written_by("adapter/adapter_config.json"), written_by("adapter", "07")
    ('03', '07')
    """
    for file, section in FILES.items():
        if f"{relative}/".startswith(f"{file}/"):
            notebooks = PARTS[section].notebooks
            return maker if maker in notebooks else notebooks[0]
    return None


@contextlib.contextmanager
def lock(folder: Path, what: str, name: str = ".lock") -> Iterator[None]:
    """Keep other processes out of a folder during a `with` block; create the folder if needed.

    folder, name: the lock is held on the file `name` in the folder. The operating system releases
    it when the process ends, however it ends. Between machines the lock works on disks that pass
    locks on: NFS 4, Lustre mounted with `flock`, CephFS, GPFS.
    what: the subject of the error message, such as "run 'demo'".

    One process may hold the lock twice. Raise ValueError if another process holds it; the message
    names the process, its machine and the time.
    """
    from filelock import FileLock, Timeout  # missing before the install

    # share one lock object between all callers and threads, so that this process may take it twice
    file_lock = FileLock(folder / name, is_singleton=True, thread_local=False)
    try:
        file_lock.acquire(timeout=0.25)  # another process may hold it for a moment, only to test it
    except Timeout:
        holder = (folder / name).read_text() or "another process"
        raise ValueError(
            f"{what} is being executed by {holder}. Wait until it ends, shut down its kernel if it "
            "is a notebook, or use another name."
        ) from None
    try:
        since = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
        this_process = f"process {os.getpid()} on {platform.node()} since {since}"
        (folder / name).write_text(this_process)
        yield
    finally:
        file_lock.release()


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary file to write; it replaces `path` if the block ends without an error."""
    # two processes may write the same file, so each has a temporary file of its own
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder to fill; it replaces `path` if the block ends without an error.

    A folder cannot be replaced in one step, so the old folder is moved aside first.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    old = path.with_name(f".{path.name}.old")
    shutil.rmtree(temporary, ignore_errors=True)  # left by a process that was killed
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
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    with atomic_write(path) as temporary:
        # a completion may contain half a surrogate pair, which becomes an escape of JSON's
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


def check_seed(seed: object) -> None:
    """Raise ValueError unless the seed is an integer from 0 to 2**32 - 1, NumPy's range."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise ValueError(f"seed={seed!r} is not a seed: give an integer from 0 to {2**32 - 1}.")


def seed_everything(seed: int) -> None:
    """Seed Python's and NumPy's random numbers, and torch's if torch has been imported."""
    check_seed(seed)
    import numpy as np

    random.seed(seed)
    np.random.seed(seed)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)


def git_revision() -> dict[str, object]:
    """Return the project's `revision` (a commit) and whether the working tree is `dirty`; an empty
    dictionary outside a git checkout.
    """
    options = {"cwd": PROJECT, "capture_output": True, "text": True, "check": True, "timeout": 10}
    try:
        revision = subprocess.run(["git", "rev-parse", "HEAD"], **options).stdout.strip()
        changed = subprocess.run(["git", "status", "--porcelain", "-uno"], **options).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return {}
    return {"revision": revision, "dirty": bool(changed)}
