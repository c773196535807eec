"""The finished run that travels with the project: put in place for a late start, or in the place of
a run that is broken.

`notebooks/data/demo.tar.xz` holds what notebooks 01 to 05 leave of the run `demo`, and a list of it
with sizes and hashes. Left out is what nobody needs after the training: checkpoints and executed
copies. `make demo` makes it again.
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
from helpers.commands import arguments
from helpers.commands.arguments import PIPELINE
from helpers.runs import (
    FILES,
    TRAINING_LOCK,
    Run,
    atomic_write,
    held,
    is_free,
    write_json,
    written_by,
)

ARCHIVE = PROJECT / "notebooks" / "data" / "demo.tar.xz"
CONTENTS = "contents.json"
# of the manifest
_SECTIONS = {section: number for number, section in FILES.values()} | {"served": "05"}
_HERE = b"@PROJECT@"  # in the archive, where a run names the folder of the project
_NAMES_PATHS = (".json", ".md", ".csv")


def fetch(name: str) -> int:
    """Put the whole demo into a run folder where nothing is, and print what it brought. Returns 0.

    ValueError where there is something, or the archive is damaged; FileNotFoundError without an
    archive.
    """
    run = Run(name)
    _check_free(run)
    return _put(run, "05", _check_free)


def _check_free(run: Run) -> None:
    if not is_free(run.folder):
        raise ValueError(
            f"{run.show()} is there already, and was not touched. Take another name, such as "
            "--run late, or set aside what is "
            f"there and put the demo in its place: `python -m helpers checkpoint --run {run.name} "
            "--from-demo 05`."
        )


def mend(name: str, last: str) -> int:
    """Make a run what the demo is after one of its notebooks, and print what it brought. Returns 0.

    What the run holds is moved to `set_aside/<number>/` in it, whole: half of one run and half of
    another would be neither.
    last: the number of a notebook from 01 to 05. ValueError for another, and where the run cannot
    be replaced: it is then as it was.
    """
    numbers = arguments.numbers(last)
    if len(numbers) != 1 or numbers[0] not in PIPELINE:
        raise ValueError(
            f"--from-demo {last}: the demo is of notebooks 01 to 05. Name the last that you want "
            "done, such as 03."
        )
    return _put(Run(name), numbers[0])


def _put(run: Run, last: str, check: Callable[[Run], None] = lambda run: None) -> int:
    """check: what must still hold once nobody else can write the run."""
    numbers = [number for number in PIPELINE if number <= last]
    stored = _read()  # what may fail comes first
    chosen = {name: content for name, content in stored.items() if written_by(name) in numbers}
    try:
        with (
            held(run.folder, f"run {run.name!r}"),
            held(run.folder, f"the training of run {run.name!r}", TRAINING_LOCK),
        ):
            check(run)
            before = _was(run)
            with tempfile.TemporaryDirectory(dir=run.folder.parent, prefix=".demo-") as folder:
                fresh = Run(run.name)
                fresh.folder = Path(folder)
                for name, content in chosen.items():
                    fresh.path(name).write_bytes(content)
                done = {
                    "parameters": {},
                    "notebooks": numbers,
                    "done": numbers,
                    "used": {number: {} for number in numbers},
                }
                arguments.write(fresh, done)
                write_json(fresh.path("manifest.json"), _manifest(stored, run.name, numbers))
                aside = run.set_aside()
                for path in fresh.folder.iterdir():
                    os.replace(path, run.folder / path.name)
    except OSError as error:
        raise ValueError(
            f"the demo could not be put into {run.show()} ({error}). What the run held is there, "
            "or in its set_aside/. Take "
            "another name: `python -m helpers checkpoint --fetch-demo --run late`."
        ) from None
    _tell(run, chosen, numbers, before, aside)
    return 0


def _manifest(stored: dict[str, bytes], name: str, numbers: list[str]) -> dict:
    """The demo's manifest under a run's name, without the sections of later notebooks, and with
    when it was put there.
    """
    manifest = json.loads(stored["manifest.json"])
    kept = {
        key: value for key, value in manifest.items() if _SECTIONS.get(key, numbers[0]) in numbers
    }
    # which a demo of an earlier version does not say
    kept["data"] = {"notebook": "01"} | kept["data"]
    put = datetime.now(UTC).isoformat(timespec="seconds")
    return kept | {"name": name, "demo": manifest["demo"] | {"notebooks": numbers, "written": put}}


def _was(run: Run) -> str:
    """On what a run was trained, by its manifest; empty where that is not known."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        settings = run.manifest["data"]["settings"]
        return f"{settings['model']} on {settings['source']}"
    return ""


def _tell(run: Run, chosen: dict[str, bytes], numbers: list[str], before: str, aside: str) -> None:
    if aside:
        print(f"set aside, whole: {aside}")
    print(f"{run.show()} is now the demo as notebook {numbers[-1]} left it:")
    for number in numbers:
        files = [name for name in chosen if written_by(name) == number]
        names = dict.fromkeys(name.partition("/")[0] + "/" * ("/" in name) for name in files)
        size = sum(len(chosen[name]) for name in files)
        print(f"  {number}  {', '.join(names)}  ({size / 1000:,.0f} kB)")
    now = _was(run)
    if before and before != now:
        print(f"note: the run was {before}; it is now {now}.")
    following = [number for number in PIPELINE if number > numbers[-1]]
    command = f"python -m helpers run --run {run.name} --only {','.join(following or ['06'])}"
    print(
        f"It was trained at seed {run.manifest['data']['seed']}. Go on in Jupyter with run = "
        f"{run.name!r}, or by `{command}`."
    )


# --- The archive ----------------------------------------------------------------------------------


def _read() -> dict[str, bytes]:
    """The files of the archive by name, checked against its list, with the folder of this project
    where they name one.
    """
    if not ARCHIVE.is_file():
        raise FileNotFoundError(
            f"{_shown()} is not there: it comes with a clone of the project. `make demo` makes it "
            "anew."
        )
    files = {}
    try:
        with tarfile.open(ARCHIVE, "r:xz") as archive:
            listed = json.load(archive.extractfile(CONTENTS))["files"]
            for name, about in listed.items():
                content = archive.extractfile(name).read()
                if (
                    len(content) != about["size"]
                    or hashlib.sha256(content).hexdigest() != about["sha256"]
                ):
                    raise ValueError(f"{name} is not as listed")
                files[name] = (
                    content.replace(_HERE, _project()) if name.endswith(_NAMES_PATHS) else content
                )
    except Exception as error:  # those of tarfile, lzma and json: damaged bytes provoke any
        raise ValueError(
            f"{_shown()} is damaged ({error}). Get it again: `git checkout -- {_shown()}`."
        ) from None
    return files


def _shown() -> str:
    return ARCHIVE.relative_to(PROJECT).as_posix()


def _project() -> bytes:
    return json.dumps(PROJECT.as_posix(), ensure_ascii=False)[1:-1].encode()


def store(name: str) -> int:
    """Pack a finished run as the demo, and print its size. Returns 0.

    The same run gives the same bytes. ValueError where it is not notebooks 01 to 05 with the
    parameters they have, on the pocket model, or where a file names a folder of this machine.
    """
    run = Run(name)
    asked = arguments.last(run) or {"used": {}}
    used = {number: asked["used"].get(number) for number in PIPELINE}
    settings = run.section("data")["settings"]
    if any(parameters != {} for parameters in used.values()) or settings["name"] != "pocket":
        raise ValueError(
            f"{run.show()} is not what notebooks 01 to 05 make on the pocket model by themselves. "
            "`make demo` runs them so."
        )
    for part in FILES:
        run.require(part)
    found = sorted(path for path in run.folder.rglob("*") if path.is_file())
    names = {path.relative_to(run.folder).as_posix(): path for path in found}
    files = {
        name: _portable(name, path.read_bytes()) for name, path in names.items() if written_by(name)
    }
    manifest = run.manifest | {
        "demo": {"what": "the run that travels with the project, put here by `checkpoint`"}
    }
    files["manifest.json"] = _portable("manifest.json", _bytes(manifest))
    listed = {
        name: {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in files.items()
    }
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
    """A file without the folder of the project.

    ValueError where a folder of this machine is left in it.
    """
    content = content.replace(_project(), _HERE) if name.endswith(_NAMES_PATHS) else content
    for folder in {str(PROJECT), str(Path.home()), tempfile.gettempdir()} - {"/"}:
        if folder.encode() + os.sep.encode() in content:
            raise ValueError(
                f"{name} names a folder of this machine ({folder}), so it is not packed."
            )
    return content
