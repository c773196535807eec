"""The run folder: the one thing that passes between notebooks.

Paths, manifest, atomic writes, seeds.

Whatever is written here is written whole or not at all: into a neighbour first, then renamed. A
crash or a Ctrl-C leaves what was there before.
"""

from __future__ import annotations

import contextlib
import getpass
import itertools
import json
import os
import platform
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

from helpers import PROJECT, shapes
from helpers.environment import package_versions, unsloth_switches

SWEEPS = "sweeps"  # in the runs folder: what sweeps keep; so no run can have this name
_LOCK = ".lock"
TRAINING_LOCK = ".training.lock"
LOCKS = (_LOCK, TRAINING_LOCK)
ASIDE = "set_aside"  # in a run that the demo was put in the place of: what it held
_MEND = "Wait for its end, shut the kernel down if it is a notebook's, or take another name."
_held: set[Path] = set()  # the locks of this process
_RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
LESSONS = ("07", "09", "10")  # notebooks that prepare data of their own and train on it
MAKERS = ("01", "03", *LESSONS)
# what a run holds: file or folder, the notebook that writes it, the section of the manifest about
# it
FILES = {
    "data": ("01", "data"),
    "data_report.json": ("01", "data"),
    "figures/prompt_lengths.png": ("01", "data"),
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
    "curves": "training",
    "evaluation": "training",
    "merge": "training",
}


def runs_folder() -> Path:
    """Where the runs lie: `runs/` in the project, or the folder that GRPO_RUNS_DIR names."""
    named = os.environ.get("GRPO_RUNS_DIR")
    return Path(os.path.expanduser(named)).resolve() if named else (PROJECT / "runs").resolve()


def show_in_runs(relative: str) -> str:
    """How to print a path in the runs folder: from `runs/` on, so that no output holds the path of
    one machine.

    A folder that GRPO_RUNS_DIR names is printed whole: whoever named it has to find it.
    """
    folder = runs_folder()
    return (
        Path("runs") / relative if folder == (PROJECT / "runs").resolve() else folder / relative
    ).as_posix()


class Run:
    """One run folder, `runs/<name>/`, made when the first file is written to it.

    name: letters, digits, `.`, `_` and `-`, starting with a letter or digit, at most 64 characters.
    Raises ValueError for any
    other: a name is a folder, and a folder outside `runs/` is nobody's to overwrite.
    """

    def __init__(self, name: str):
        if not isinstance(name, str) or not _RUN_NAME.fullmatch(name) or ".." in name:
            shown = repr(name) if len(repr(name)) <= 100 else f"{repr(name)[:100]}…"
            raise ValueError(
                f"run={shown} is not a run name. Use letters, digits, '.', '_' and '-', starting "
                "with a letter or digit, "
                "at most 64 characters; no slash and no '..'."
            )
        if name.lower() == SWEEPS:
            raise ValueError(
                f"run={name!r} is not a run name: {show_in_runs(SWEEPS)}/ holds the sweeps. Take "
                "another one."
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

        FileNotFoundError names the notebook to run first.

        ValueError for a Parquet file, or a folder with weights, that was cut off.
        """
        path = self.folder / relative
        if not path.exists() and path.parent.is_dir():
            clear_leftovers(path.parent)
        if path.exists():
            why = _cut_off(path)
            if why:
                raise ValueError(self._damaged(relative, why))
            return path
        notebook = self.notebook_of(relative)
        which, only = (
            (f"notebook {notebook}", f" --only {notebook[:2]}")
            if notebook
            else ("the notebooks before this one", "")
        )
        raise FileNotFoundError(
            f"{self.show(relative)} is not there. Run {which} first, with the same run name: "
            f"`python -m helpers run --run {self.name}{only}`."
        )

    @property
    def manifest(self) -> dict:
        """What is recorded of this run so far; empty before the first notebook.

        ValueError where the file is damaged.
        """
        return self.read_object("manifest.json", shapes.MANIFEST)

    def read_object(self, relative: str, shape: shapes.Shape = None) -> dict:
        """A JSON object of the run; empty where the file is not there.

        ValueError where it is damaged, or of another shape.
        """
        path = self.folder / relative
        if not path.exists():
            return {}
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            why = shapes.misfit(content, shape or {})
        except (ValueError, RecursionError, OSError) as error:
            why = str(error)
        if why:
            raise ValueError(
                f"{self.show(relative)} is damaged ({why}). Nothing else in the run was touched. "
                "Delete that file and rerun "
                "the notebooks, or take another run name; the adapter and the merged model do not "
                "depend on it."
            )
        return content

    def table(self, relative: str, columns: tuple[str, ...] = ()):
        """A Parquet file of the run as a DataFrame.

        FileNotFoundError as `require`; ValueError where it is damaged.

        columns: those that it must have; one without a row is damaged, too.
        """
        import pandas as pd

        try:
            table = pd.read_parquet(self.require(relative))
            absent = [name for name in columns if name not in table.columns]
            why = (
                f"it has no column {', '.join(absent)}"
                if absent
                else None
                if len(table)
                else "it has no row"
            )
        except FileNotFoundError:
            raise
        # Arrow's own, OSError, ValueError: whatever damaged bytes provoke
        except Exception as error:
            if "is damaged" in str(error):
                raise
            why = str(error).splitlines()[0][:200]
        if why:
            raise ValueError(self._damaged(relative, why))
        return table

    def _damaged(self, relative: str, why: str) -> str:
        notebook = self.notebook_of(relative)
        only = f" --only {notebook[:2]}" if notebook else ""
        again = (
            f"Run notebook {notebook or 'which wrote it'} again: `python -m helpers run --run "
            f"{self.name}{only}`."
        )
        return f"{self.show(relative)} is damaged ({why}). {again}"

    def notebook_of(self, relative: str) -> str | None:
        """The notebook that writes a file of this run, which may be a lesson's, by its
        whole name.
        """
        number = written_by(relative)
        try:
            maker = self.manifest.get("data", {}).get("notebook")
        except ValueError:  # a damaged manifest; the caller has something else to tell
            maker = None
        number = maker if number and maker in LESSONS else number
        return next((path.stem for path in (PROJECT / "notebooks").glob(f"{number}_*.ipynb")), None)

    def made_by(self, notebook: str) -> Run:
        """This run, for a notebook that writes its data or its training: 01, 03 or one of LESSONS.

        What it records carries the notebook's number. ValueError, before anything is written, where
        another lesson made what the run holds, or where the run is being trained by another
        process.
        """
        self.check_maker(notebook)
        # Of several ranks the first holds the lock for all, and the others may come here after it.
        if os.environ.get("RANK", "0") == "0":
            self.check_not_trained(notebook)
        self.notebook = notebook
        return self

    def check_maker(self, notebook: str) -> None:
        """ValueError where this notebook would replace data and a training that another
        lesson made.
        """
        if self.is_of_another_lesson(notebook):
            maker = self.manifest.get("data", {}).get("notebook")
            by = (
                f"notebook {maker}"
                if maker
                else "an earlier version of these notebooks, which did not record which one,"
            )
            raise ValueError(
                f"{self.show()} holds data and a training that {by} made, and notebook {notebook} "
                "would replace them. Take "
                "another run name, or set aside what is there: `python -m helpers run --run "
                f"{self.name} --only "
                f"{'01,03' if notebook == '03' else notebook} --fresh`."
            )

    def check_not_trained(self, notebook: str) -> None:
        """ValueError where another process trains this run, and the notebook would replace its data
        or its training.
        """
        if notebook not in MAKERS or self.folder / TRAINING_LOCK in _held:
            return
        if who := holder(self.folder, TRAINING_LOCK):
            raise ValueError(
                f"run {self.name!r} is being trained by {who}, and notebook {notebook} would "
                "replace its data or its training. "
                f"{_MEND}"
            )

    def is_of_another_lesson(self, notebook: str) -> bool:
        """Whether this notebook's data and training have no place beside what the run holds."""
        manifest = self.manifest
        if notebook not in MAKERS or not {"data", "training"} & set(manifest):
            return False
        maker = manifest.get("data", {}).get("notebook")  # None: recorded by an earlier version
        return maker != notebook if notebook in LESSONS else maker in LESSONS

    def outdated(self, relative: str) -> str | None:
        """Why a file or folder is of something earlier than what it was made from, in a sentence;
        None where it is not.

        relative: a key of FILES. By what its section of the manifest names; in runs of earlier
        versions, which name nothing, by the times.
        """
        number, section = FILES[relative]
        manifest, path, source = self.manifest, self.folder / relative, MADE_FROM.get(section)
        if source not in manifest or not path.exists():
            return None
        made, found = manifest.get(section, {}), manifest[source]
        key = "fingerprint" if source == "data" else "written"
        if source in made:
            old = made[source] != found.get(key, made[source])
        else:
            changed = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(
                timespec="seconds"
            )
            old = made.get("written", changed) < found.get("written", "")
        if not old:
            return None
        again = f"`python -m helpers run --run {self.name} --only {number}`"
        earlier = "earlier data" if source == "data" else "an earlier training"
        return (
            f"{self.show(relative)} is of {earlier} than the run now holds; make it again: {again}."
        )

    def set_aside(self) -> str:
        """Move all that the run holds into `set_aside/<number>/` in it; returns how to print that,
        empty for an empty run.
        """
        found = [path for path in self.folder.iterdir() if path.name not in (*LOCKS, ASIDE)]
        if not found:
            return ""
        number = next(n for n in itertools.count(1) if not (self.folder / ASIDE / str(n)).exists())
        for path in found:
            os.replace(path, self.path(f"{ASIDE}/{number}/{path.name}"))
        return self.show(f"{ASIDE}/{number}") + "/"

    def record(self, section: str, **values) -> None:
        """Replace one section of the manifest, adding when and with which packages and revision it
        was written.

        And by which notebook, if `made_by` said so; and with which of Unsloth's switches, where any
        is set: see SWITCHES.md.
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

        ValueError for a training on other data than the run holds now: its holdout may have been
        trained on.
        """
        manifest = self.manifest
        trained_on = manifest.get("training", {}).get("data")
        if (
            name == "training"
            and trained_on
            and trained_on != manifest.get("data", {}).get("fingerprint", trained_on)
        ):
            raise ValueError(
                f"the adapter of run {self.name!r} was trained on other data than notebook 01 has "
                "since prepared, so the "
                "holdout may hold questions it was trained on. Train again: "
                f"`python -m helpers run --run {self.name} --only 03,04,05`."
            )
        if name not in manifest:
            self.require({"data": "data_report.json", "training": "adapter"}.get(name, name))
            raise FileNotFoundError(
                f"{self.show('manifest.json')} has no section {name!r}, though the files are "
                "there. Rerun the notebook that "
                f"writes it: `python -m helpers run --run {self.name}`."
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
    def evaluation(self) -> dict:
        """evaluation.json: an entry a model evaluated; empty before notebook 05."""
        return self.read_object("evaluation.json", shapes.EVALUATION_SO_FAR)

    def save_figure(self, figure, name: str) -> str:
        """Save a Matplotlib figure as figures/<name>.png; returns how to print its path."""
        with atomic_write(self.path(f"figures/{name}.png")) as path:
            figure.savefig(path, dpi=120, bbox_inches="tight", format="png")
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


def _cut_off(path: Path) -> str | None:
    """Why a Parquet file, or the weights in a folder, cannot be whole, by what their ends say; None
    where they may be.
    """
    if path.is_dir():
        found = ((file, _cut_off(file)) for file in sorted(path.glob("*.safetensors")))
        return next((f"{file.name}: {why}" for file, why in found if why), None)
    if path.suffix not in (".parquet", ".safetensors") or not path.is_file():
        return None
    size = path.stat().st_size
    with path.open("rb") as file:
        if path.suffix == ".parquet":
            whole = (
                size >= 12
                and file.read(4) == b"PAR1"
                and file.seek(-4, os.SEEK_END)
                and file.read(4) == b"PAR1"
            )
            return None if whole else "it is cut off, or no Parquet file"
        # The format: the length of a JSON header in 8 bytes, the header, the tensors it lists with
        # their ends.
        length = int.from_bytes(file.read(8), "little")
        try:
            header = json.loads(file.read(length)) if length < size else None
            ends = [
                about["data_offsets"][1] for name, about in header.items() if name != "__metadata__"
            ]
        except (ValueError, TypeError, AttributeError, LookupError, RecursionError):
            return "it is cut off, or no safetensors file"
    return None if size == 8 + length + max(ends, default=0) else "it is cut off"


_LEFTOVER = re.compile(r"\.(?P<name>.+)\.(?P<pid>\d+)(@(?P<host>[^@]+))?\.(?P<kind>tmp|old)")
_in_use: set[Path] = set()  # this process's own


def _neighbour(path: Path, kind: str) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}@{platform.node() or 'host'}.{kind}")


def clear_leftovers(folder: Path) -> None:
    """Of writers that were killed, in this folder: what they replaced is restored where nothing
    took its place; the rest goes.

    A process on this machine that still runs keeps its own, and so does one on another machine that
    shares the disk.
    """
    with os.scandir(folder) as entries:  # listed whole before anything is renamed
        left = [
            (match, folder / entry.name)
            for entry in entries
            if (match := _LEFTOVER.fullmatch(entry.name))
        ]
    for match, path in left:
        if (
            path in _in_use
            or (match["host"] or platform.node()) != platform.node()
            or _writing(int(match["pid"]), path)
        ):
            continue
        target = folder / match["name"]
        with contextlib.suppress(FileNotFoundError):  # another process clears, too
            if match["kind"] == "old" and not target.exists():
                os.replace(path, target)
                print(f"restored {target.name}: a process was killed while it was being replaced")
            elif path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()


def _writing(pid: int, path: Path) -> bool:
    """Whether the process that left this is still there, and not another one that has been given
    its number.
    """
    if pid == os.getpid():
        return False  # and not in use: left by an earlier process of this number
    import psutil

    try:
        process = psutil.Process(pid)
        return (
            process.status() != psutil.STATUS_ZOMBIE
            and process.create_time() < path.stat().st_ctime
        )
    except (psutil.NoSuchProcess, FileNotFoundError):
        return False
    except psutil.AccessDenied:
        return True


@contextlib.contextmanager
def held(folder: Path, what: str, name: str = _LOCK, mend: str = _MEND) -> Iterator[None]:
    """Keep other processes out of a folder, which is made, for the length of a block; the same
    process may hold it twice.

    ValueError where another process has it, with its number, machine and user, since when, and how
    to `mend` that. The lock is the system's own (flock), on the file `name`: it ends with its
    process, however that ends. On a disk that several machines share it holds between them where
    the disk passes locks on: NFS 4, Lustre mounted with `flock`, CephFS, GPFS; a machine that drops
    off loses its locks when its lease ends (NFS: 90 s). Where the system or the disk has none
    (Windows, some network disks), nothing is held and nothing refused; a mount with locks of its
    own (NFS with `nolock`, Lustre with `localflock`) does not see other machines.
    """
    path = folder / name
    if fcntl is None:
        folder.mkdir(parents=True, exist_ok=True)
    if fcntl is None or path in _held:
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        opened = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise ValueError(
            f"{folder} cannot be written ({error.strerror}); GRPO_RUNS_DIR names the runs folder."
        ) from None
    with opened as file:
        try:
            for _ in range(5):  # `holder` may be looking, for a moment
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                time.sleep(0.05)
            else:
                file.seek(0)
                who = file.read().strip() or "another process"
                raise ValueError(f"{what} is being executed by {who}. {mend}")
        except OSError as error:
            print(
                f"{what}: this disk has no locks ({error}), so see to it that nothing else "
                "executes it.",
                file=sys.stderr,
            )
        file.truncate(0)
        since = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
        print(
            f"process {os.getpid()} on {platform.node()} (user {_user()}) since {since}",
            file=file,
            flush=True,
        )
        _held.add(path)
        try:
            yield
        finally:
            _held.discard(path)


def holder(folder: Path, name: str = _LOCK) -> str | None:
    """Which process holds a folder's lock `name`, on which machine, by which user, since when.

    None where none does, or nobody can tell.
    """
    try:
        with (folder / name).open(encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return file.read().strip() or "another process"
    except (OSError, AttributeError):  # no such file, no locks, no fcntl
        return None
    return None


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a number without a name, as in some containers
        return str(os.getuid())


def empty(folder: Path) -> None:
    """Remove what is in a folder that this process holds, and keep its lock."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name not in LOCKS:
            path.unlink()


def is_free(folder: Path) -> bool:
    """Whether there is nothing in a folder, or nothing but a lock."""
    return not folder.exists() or all(path.name in LOCKS for path in folder.iterdir())


@contextlib.contextmanager
def _named(path: Path, temporary: Path) -> Iterator[None]:
    """Of an error, the name that was asked for in place of its temporary neighbour's."""
    try:
        yield
    except OSError as error:
        if str(error.filename).startswith(str(temporary)):
            error.filename = f"{path}{str(error.filename).removeprefix(str(temporary))}"
            del error.filename2  # of a renaming; None would be printed
        raise


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A temporary neighbour to write to; it takes the file's place when the block ends without an
    error.

    What a killed process has left beside it is cleared first: see `clear_leftovers`.
    """
    clear_leftovers(path.parent)
    temporary = _neighbour(path, "tmp")
    _in_use.add(temporary)
    try:
        with _named(path, temporary):
            yield temporary
            os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
        _in_use.discard(temporary)


@contextlib.contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """A fresh neighbour folder to fill; it takes the folder's place when the block ends without an
    error.

    A folder cannot be replaced in one step: between two renames only the neighbour `.old` holds
    what was there. A kill just then is mended by the next writer or reader, see `clear_leftovers`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    clear_leftovers(path.parent)
    temporary, replaced = (_neighbour(path, kind) for kind in ("tmp", "old"))
    _in_use.update((temporary, replaced))
    with _named(path, temporary):
        temporary.mkdir()
    try:
        with _named(path, temporary):
            yield temporary
            if path.exists():
                os.replace(path, replaced)
            os.replace(temporary, path)
        shutil.rmtree(replaced, ignore_errors=True)
    finally:
        if replaced.exists() and not path.exists():
            os.replace(replaced, path)
        shutil.rmtree(temporary, ignore_errors=True)
        _in_use.difference_update((temporary, replaced))


def refuse_to_replace(path: Path, mark: str) -> None:
    """ValueError where a file is there that does not carry the mark near its beginning: it is
    somebody's, not ours.
    """
    if path.is_file():
        with path.open("rb") as file:
            begins = file.read(1000)
    else:
        begins = b"no plain file" if path.exists() else b""
    if begins and mark.encode() not in begins:
        raise ValueError(
            f"{path} is there and has another content: name another file, or remove it first."
        )


def write_json(path: Path, value: object) -> None:
    """Write JSON atomically, indented, in UTF-8."""
    with atomic_write(path) as temporary:
        temporary.write_text(
            json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
        )


def check_seed(seed: object) -> None:
    """ValueError for what is no seed: an integer from 0 to 2**32 - 1, as NumPy takes it."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise ValueError(f"seed={seed!r} is not a seed: give an integer from 0 to {2**32 - 1}.")


def seed_everything(seed: int) -> None:
    """Seed Python's, NumPy's and, where it is already imported, torch's random numbers.

    ValueError for what is no seed.
    """
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
