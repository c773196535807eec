"""`python -m helpers checkpoint`: the finished run that comes with the project, put in place for a
late start, or in the place of a run that is broken.

`notebooks/data/demo.tar.xz` holds what notebooks 01 to 05 leave of the run `demo`. Left out is what
nobody needs after the training: checkpoints and executed copies. `make demo` makes it again.
"""

import argparse
import io
import json
import tarfile

from helpers import PROJECT
from helpers.commands import arguments
from helpers.commands.arguments import PIPELINE
from helpers.runs import (
    FILES,
    TRAINING_LOCK,
    Run,
    atomic_write,
    held,
    named_if_full,
    write_json,
    written_by,
)

ARCHIVE = PROJECT / "notebooks" / "data" / "demo.tar.xz"
_HERE = b"@PROJECT@"  # in the archive, where a run names the folder of the project
_PROJECT = PROJECT.as_posix().encode()
_NAMES_PATHS = (".json", ".md", ".csv")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `checkpoint` takes."""
    parser.add_argument(
        "--run", default="demo", metavar="NAME", help="the run to put it into (default: demo)"
    )
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--from-demo",
        type=lambda number: number.zfill(2),
        choices=PIPELINE,
        metavar="NN",
        help="what it leaves after notebook NN, 05 for all; what the run holds is set aside",
    )
    which.add_argument(
        "--store-demo", action="store_true", help="pack the run as the demo (see `make demo`)"
    )


def main(parsed: argparse.Namespace) -> int:
    """Fetch or store the demo; 0."""
    if parsed.store_demo:
        store(parsed.run)
    else:
        fetch(parsed.run, parsed.from_demo)
    return 0


def fetch(name: str, last: str) -> None:
    """Put the demo into a run folder, as it is after the notebook `last`.

    What the run holds is moved to `set_aside/<number>/` in it, whole, because half of one run and
    half of another would be neither. FileNotFoundError without an archive.
    """
    run, numbers = Run(name), [number for number in PIPELINE if number <= last]
    stored = {}
    with tarfile.open(ARCHIVE, "r:xz") as archive:
        for member in archive:
            content = archive.extractfile(member).read()
            if member.name.endswith(_NAMES_PATHS):
                content = content.replace(_HERE, _PROJECT)
            stored[member.name] = content

    # the demo's manifest under the run's name, without the sections of later notebooks
    demo = json.loads(stored["manifest.json"])
    writers = {section: number for number, section in FILES.values()} | {"served": "05"}
    manifest = {key: value for key, value in demo.items() if writers.get(key, "01") in numbers}
    manifest["name"] = run.name
    manifest["data"]["notebook"] = "01"  # which the stored demo may not say
    with (
        named_if_full(run.folder),
        held(run.folder, f"run {run.name!r}"),
        held(run.folder, f"the training of run {run.name!r}", TRAINING_LOCK),
    ):
        if aside := run.set_aside():
            print(f"set aside, whole: {aside}")
        for path, content in stored.items():
            if written_by(path) in numbers:
                run.path(path).write_bytes(content)
        write_json(run.path("manifest.json"), manifest)
        asked = {"parameters": {}, "notebooks": numbers, "done": numbers}
        write_json(run.path(arguments.ASKED), asked)
    following = [number for number in PIPELINE if number not in numbers] or ["06"]
    print(
        f"{run.show()} is now the demo as notebook {numbers[-1]} left it, trained at seed "
        f"{manifest['data']['seed']}. Go on in Jupyter with run = {run.name!r}, or by `python -m "
        f"helpers run --run {run.name} --only {','.join(following)}`."
    )


def store(name: str) -> None:
    """Pack a finished run as the demo, and print its size.

    The same run gives the same bytes. FileNotFoundError where notebook 05 has not finished it. The
    tests hold what is in the archive against the parameters of the notebooks.
    """
    run = Run(name)
    run.require("merged")
    with atomic_write(ARCHIVE) as temporary, tarfile.open(temporary, "w:xz", preset=9) as archive:
        for path in sorted(path for path in run.folder.rglob("*") if path.is_file()):
            name = path.relative_to(run.folder).as_posix()
            if name == "manifest.json" or written_by(name):
                content = path.read_bytes()
                if name.endswith(_NAMES_PATHS):
                    content = content.replace(_PROJECT, _HERE)
                about = tarfile.TarInfo(name)  # with the time 0 and nobody's name
                about.size, about.mode = len(content), 0o644
                archive.addfile(about, io.BytesIO(content))
    print(f"{ARCHIVE.name}: {ARCHIVE.stat().st_size / 1e6:.1f} MB")
