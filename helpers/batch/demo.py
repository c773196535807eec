"""The finished run that travels with the project: put in place for a late start, or in the place of a run that is broken.

`notebooks/data/demo.tar.xz` holds what notebooks 01 to 05 leave of the run `demo`, and a list of it with sizes and hashes. Left
out is what nobody needs after the training: checkpoints and executed copies. `make demo` makes it again.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import tarfile
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from helpers import PROJECT
from helpers.batch import arguments
from helpers.runs import ASIDE, LOCKS, TRAINING_LOCK, Run, atomic_write, held, holder, is_free, write_json

ARCHIVE = PROJECT / "notebooks" / "data" / "demo.tar.xz"
CONTENTS = "contents.json"
_CURVES = ("reasoning", "reward", "each_reward", "spread", "kl", "completion_length", "loss")
LEFT_BY = {  # each notebook's files and folders
    "01": ("data_report.json", "data/", "figures/prompt_lengths.png"),
    "02": ("reward_report.json", "figures/reward_signal.png"),
    "03": ("metrics.csv", "completions.parquet", "adapter/"),
    "04": tuple(f"figures/{name}.png" for name in _CURVES),
    "05": ("evaluation.json", "comparison.json", "evaluation/", "merged/", "figures/accuracy.png"),
}
_SECTIONS = {"data": "01", "rewards": "02", "training": "03", "merge": "05", "served": "05"}  # of the manifest
_HERE = b"@PROJECT@"  # in the archive, where a run names the folder of the project
_NAMES_PATHS = (".json", ".md", ".csv")


def fetch(name: str) -> int:
    """Put the whole demo into a run folder where nothing is, and print what it brought. Returns 0.

    ValueError where there is something, or the archive is damaged; FileNotFoundError without an archive.
    """
    run = Run(name)
    _check_free(run)
    return _put(run, "05", _check_free)


def _check_free(run: Run) -> None:
    if not is_free(run.folder):
        raise ValueError(
            f"{run.show()} is there already, and was not touched. Take another name, such as --run late, or set aside what is "
            f"there and put the demo in its place: `python -m helpers checkpoint --run {run.name} --from-demo 05`."
        )


def mend(name: str, last: str) -> int:
    """Make a run what the demo is after one of its notebooks, and print what it brought. Returns 0.

    What the run holds is moved to `set_aside/<number>/` in it, whole: half of one run and half of another would be neither.
    last: the number of a notebook from 01 to 05. ValueError for another, and where the run cannot be replaced: it is then as
    it was.
    """
    numbers = arguments.numbers(last)
    if len(numbers) != 1 or numbers[0] not in LEFT_BY:
        raise ValueError(
            f"--from-demo {last}: the demo is of notebooks 01 to 05. Name the last that you want done, such as 03."
        )
    return _put(Run(name), numbers[0])


def _put(run: Run, last: str, check: Callable[[Run], None] = lambda run: None) -> int:
    """check: what must still hold once nobody else can write the run."""
    numbers = [number for number in LEFT_BY if number <= last]
    stored = _read()  # what may fail comes first
    chosen = {name: content for name, content in stored.items() if left_by(name) in numbers}
    try:
        with held(run.folder, f"run {run.name!r}"):
            check(run)
            before = _was(run)
            with tempfile.TemporaryDirectory(dir=run.folder, prefix=".demo-") as folder:
                fresh = Run(run.name)
                fresh.folder = Path(folder)
                for name, content in chosen.items():
                    fresh.path(name).write_bytes(content)
                done = {"parameters": {}, "notebooks": numbers, "done": numbers, "used": {number: {} for number in numbers}}
                arguments.write(fresh, done)
                write_json(fresh.path("manifest.json"), _manifest(stored, run.name, numbers))
                aside = _exchange(run, fresh.folder)
    except OSError as error:
        raise ValueError(
            f"the demo could not be put into {run.show()}, which is as it was ({error}). Mend that, or take another name: "
            "`python -m helpers checkpoint --fetch-demo --run late`."
        ) from None
    _tell(run, chosen, numbers, before, aside)
    return 0


def left_by(name: str) -> str | None:
    """The notebook that leaves a file of a run; None for a file that the archive does not hold.

    >>> left_by("adapter/adapter_config.json"), left_by("checkpoints/metrics.csv")
    ('03', None)
    """
    return next((number for number, parts in LEFT_BY.items() if name.startswith(parts)), None)


def _manifest(stored: dict[str, bytes], name: str, numbers: list[str]) -> dict:
    """The demo's manifest under a run's name, without the sections of later notebooks, and with when it was put there."""
    manifest = json.loads(stored["manifest.json"])
    kept = {key: value for key, value in manifest.items() if _SECTIONS.get(key, numbers[0]) in numbers}
    put = datetime.now(UTC).isoformat(timespec="seconds")
    return kept | {"name": name, "demo": manifest["demo"] | {"notebooks": numbers, "written": put}}


def _was(run: Run) -> str:
    """On what a run was trained, by its manifest; empty where that is not known."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        settings = run.manifest["data"]["settings"]
        return f"{settings['model']} on {settings['source']}"
    return ""


def _exchange(run: Run, fresh: Path) -> str:
    """Move all that a run holds into a folder of its own within it, and what is fresh into its place, or nothing at all.

    Returns how to print the folder; empty where there was nothing. OSError where nothing was moved, or all was moved back;
    ValueError, with the place, where some could not be.
    """
    found = [path for path in run.folder.iterdir() if path.name not in (*LOCKS, ASIDE, fresh.name)]
    number = next(n for n in range(1, 10_000) if not (run.folder / ASIDE / str(n)).exists())
    aside = run.folder / ASIDE / str(number)
    # Half a run has no manifest: the old one goes first, and the new one comes last.
    moves = [(path, aside / path.name) for path in sorted(found, key=lambda path: path.name != "manifest.json")]
    moves += [(path, run.folder / path.name) for path in sorted(fresh.iterdir(), key=lambda path: path.name == "manifest.json")]
    if found:
        aside.mkdir(parents=True)
    shown, moved = run.show(f"{ASIDE}/{number}") + "/", []
    try:
        for path, to in moves:
            os.replace(path, to)
            moved.append((path, to))
    except (OSError, KeyboardInterrupt) as error:
        for path, to in reversed(moved):
            with contextlib.suppress(OSError):
                os.replace(to, path)
        with contextlib.suppress(OSError):
            aside.rmdir()
            aside.parent.rmdir()
        if aside.exists():
            raise ValueError(f"{run.show()} could not be replaced ({error}). Move back what is in {shown}") from error
        raise
    return shown if found else ""


def _tell(run: Run, chosen: dict[str, bytes], numbers: list[str], before: str, aside: str) -> None:
    if aside:
        print(f"set aside, whole: {aside}")
    print(f"{run.show()} is now the demo as notebook {numbers[-1]} left it:")
    for number in numbers:
        names = dict.fromkeys(part.partition("/")[0] + "/" * ("/" in part) for part in LEFT_BY[number])
        size = sum(len(content) for name, content in chosen.items() if left_by(name) == number)
        print(f"  {number}  {', '.join(names)}  ({size / 1000:,.0f} kB)")
    if who := holder(run.folder, TRAINING_LOCK):  # an interrupted kernel holds it, too, so this is no reason to refuse
        print(f"note: {who} still holds the training of this run. Shut its kernel down, or what it saves replaces the demo's.")
    now = _was(run)
    if before and before != now:
        print(f"note: the run was {before}; it is now {now}.")
    following = [number for number in LEFT_BY if number > numbers[-1]]
    command = f"python -m helpers run --run {run.name} --only {','.join(following or ['06'])}"
    print(
        f"It was trained at seed {run.manifest['data']['seed']}. Go on in Jupyter with run = {run.name!r}, or by `{command}`."
    )


# --- The archive -------------------------------------------------------------------------------------------------------


def _read() -> dict[str, bytes]:
    """The files of the archive by name, checked against its list, with the folder of this project where they name one."""
    if not ARCHIVE.is_file():
        raise FileNotFoundError(f"{_shown()} is not there: it comes with a clone of the project. `make demo` makes it anew.")
    files = {}
    try:
        with tarfile.open(ARCHIVE, "r:xz") as archive:
            listed = json.load(archive.extractfile(CONTENTS))["files"]
            for name, about in listed.items():
                content = archive.extractfile(name).read()
                if len(content) != about["size"] or hashlib.sha256(content).hexdigest() != about["sha256"]:
                    raise ValueError(f"{name} is not as listed")
                files[name] = content.replace(_HERE, _project()) if name.endswith(_NAMES_PATHS) else content
    except Exception as error:  # those of tarfile, lzma and json: damaged bytes provoke any
        raise ValueError(f"{_shown()} is damaged ({error}). Get it again: `git checkout -- {_shown()}`.") from None
    return files


def _shown() -> str:
    return ARCHIVE.relative_to(PROJECT).as_posix()


def _project() -> bytes:
    return json.dumps(PROJECT.as_posix(), ensure_ascii=False)[1:-1].encode()


def store(name: str) -> int:
    """Pack a finished run as the demo, and print its size. Returns 0.

    The same run gives the same bytes. ValueError where it is not notebooks 01 to 05 with the parameters they have, on the
    pocket model, or where a file names a folder of this machine.
    """
    run = Run(name)
    asked = arguments.last(run) or {"used": {}}
    used = {number: asked["used"].get(number) for number in LEFT_BY}
    settings = run.section("data")["settings"]
    if any(parameters != {} for parameters in used.values()) or settings["name"] != "pocket":
        raise ValueError(
            f"{run.show()} is not what notebooks 01 to 05 make on the pocket model by themselves. `make demo` runs them so."
        )
    for parts in LEFT_BY.values():
        for part in parts:
            run.require(part.rstrip("/"))
    found = sorted(path for path in run.folder.rglob("*") if path.is_file())
    names = {path.relative_to(run.folder).as_posix(): path for path in found}
    files = {name: _portable(name, path.read_bytes()) for name, path in names.items() if left_by(name)}
    manifest = run.manifest | {"demo": {"what": "the run that travels with the project, put here by `checkpoint`"}}
    files["manifest.json"] = _portable("manifest.json", _bytes(manifest))
    listed = {name: {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()} for name, content in files.items()}
    with atomic_write(ARCHIVE) as temporary, tarfile.open(temporary, "w:xz", preset=9) as archive:
        for name, content in ({CONTENTS: _bytes({"files": listed})} | files).items():
            about = tarfile.TarInfo(name)  # with the time 0 and nobody's name
            about.size, about.mode = len(content), 0o644
            archive.addfile(about, io.BytesIO(content))
    print(f"{_shown()}: {len(files)} files, {ARCHIVE.stat().st_size / 1e6:.1f} MB")
    return 0


def _bytes(value: dict) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def _portable(name: str, content: bytes) -> bytes:
    """A file without the folder of the project. ValueError where a folder of this machine is left in it."""
    content = content.replace(_project(), _HERE) if name.endswith(_NAMES_PATHS) else content
    for folder in {str(PROJECT), str(Path.home()), tempfile.gettempdir()} - {"/"}:
        if folder.encode() + os.sep.encode() in content:
            raise ValueError(f"{name} names a folder of this machine ({folder}), so it is not packed.")
    return content
