"""A bundle: one archive with the project and the wheels that `install` takes, for a room without a
network.

`make` writes it where there is a network; `options` makes the install take the wheels where they
lie beside the project, after each was compared with the list that came with it. Standard library
only; `environment` knows the pins. Left out: Python itself.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import operator
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from helpers import PROJECT, __version__

WHEELS, CONTENTS = "wheels", "contents.json"
# What else a bundle can be for: the system as Python calls it, as uv does, and as wheels do. Older
# ones than macOS 14, and Macs with an Intel processor, have no wheel of the pinned torch.
SYSTEMS = {
    "macos": ("Darwin arm64", "aarch64-apple-darwin", "macosx_14_0_arm64"),
    "windows": ("Windows AMD64", "x86_64-pc-windows-msvc", "win_amd64"),
}
_TOP = "grpo-notebooks"  # the folder that the archive unpacks to
_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def kind(system: str | None = None) -> str:
    """What a wheel has to fit: the Python and the machine, as in "CPython 3.11 on Linux x86_64".

    system: another than this.
    """
    return (
        f"{platform.python_implementation()} {_PYTHON} on "
        f"{system or f'{platform.system()} {platform.machine()}'}"
    )


def options(wanted: list[str], project: Path = PROJECT) -> list[str]:
    """pip's options to install from the wheels beside the project, all of them checked; [] where
    none lie there.

    wanted: the pins to install. ValueError, with the way out, where the wheels are for another
    Python, machine or list of pins, and where one is missing, cut short, changed or not of the
    bundle.
    """
    folder = project / WHEELS
    if not folder.is_dir():
        return []
    network = f"With a network, delete {WHEELS}/ and run it again."
    try:
        contents = json.loads((folder / CONTENTS).read_text(encoding="utf-8"))
        made_for = {key: set(map(str, pins)) for key, pins in contents["for"].items()}
        files = {
            name: (operator.index(about["size"]), about["sha256"])
            for name, about in contents["files"].items()
        }
        if not files:
            raise ValueError("it lists no wheel")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"{WHEELS}/{CONTENTS} cannot be read ({error}): the bundle did not come whole. Copy "
            f"and unpack it again. {network}"
        ) from None
    if kind() not in made_for:
        there = {
            machine: python for python, _, machine in (key.partition(" on ") for key in made_for)
        }
        way = "Make a bundle for this one: on a machine like it, or with --also."
        if python := there.get(kind().partition(" on ")[2]):
            way = (
                "Delete .venv, then take that Python: "
                f"`PYTHON={python.replace('CPython ', 'python')} ./install.sh`."
            )
        raise ValueError(
            f"the wheels in {WHEELS}/ are for {', '.join(made_for)}, and this is {kind()}. {way} "
            f"{network}"
        )
    if other := sorted(set(wanted) ^ made_for[kind()]):
        raise ValueError(
            f"the wheels in {WHEELS}/ are for another list of packages, which differs in "
            f"{', '.join(other[:5])}: the pins have "
            "changed since, or there is a GPU here, and a bundle holds the set for a CPU "
            "(`CUDA_VISIBLE_DEVICES= ./install.sh` "
            f"hides the GPU). {network}"
        )
    if damaged := [
        said for name, about in files.items() if (said := _damage(folder / name, *about))
    ]:
        raise ValueError(
            f"{len(damaged)} of {len(files)} wheels did not come whole: {'; '.join(damaged[:3])}. "
            "Copy and unpack the "
            f"bundle again. {network}"
        )
    if others := sorted({path.name for path in folder.glob("[!.]*")} - files.keys() - {CONTENTS}):
        raise ValueError(
            f"{WHEELS}/ holds what did not come with the bundle, and pip would take it: "
            f"{', '.join(others[:3])}"
            f"{', …' * (len(others) > 3)}. Delete it. {network}"
        )
    return ["--isolated", "--no-index", "--find-links", str(folder)]


def _damage(path: Path, size: int, sha256: str) -> str:
    """What is wrong with a file, in a few words; empty where nothing is."""
    if not path.is_file():
        return f"{path.name} is missing"
    if path.stat().st_size != size:
        return f"{path.name} has {path.stat().st_size:,} of {size:,} bytes"
    return "" if _sha256(path) == sha256 else f"{path.name} has changed"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# --- Making one -----------------------------------------------------------------------------------


def make(to: Path, asked: dict[str, tuple[list[str], list[str]]]) -> Path:
    """Write the last commit, and the wheels for this Python and machine, into one archive; returns
    its path.

    to: a new file, or a folder, in which the file's name says what it is for. asked: for each
    system what pip is asked for, and what it is asked for without dependencies; this system comes
    first. ValueError where there is no clone, no room, or no wheel; nothing is left behind then.
    """
    to = target(to)
    if not (PROJECT / ".git").exists():
        raise ValueError(
            f"{PROJECT} is no git clone, and a bundle holds one. Clone the project first."
        )
    partial, build = to.with_name(f".{to.name}.partial"), PROJECT / "build" / "bundle"
    try:
        build.mkdir(parents=True)
    except FileExistsError:
        raise ValueError(
            f"{build} is there: another bundle is being made, or its making was killed. Wait for "
            "its end, or delete the folder."
        ) from None
    try:
        _check_writable(partial)
        _clone(build / _TOP)
        _gather(build / WHEELS, asked)
        made_for = {kind(system): steps[0] + steps[1] for system, steps in asked.items()}
        _pack(partial, build / _TOP, build / WHEELS, made_for)
        os.replace(partial, to)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise ValueError(
            f"no space is left: some 600 MB a system are needed in {PROJECT} and again in "
            f"{to.parent}, where "
            f"{shutil.disk_usage(to.parent).free / 1e6:,.0f} MB are free. Nothing was kept."
        ) from None
    finally:
        shutil.rmtree(build, ignore_errors=True)
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
    return to


def _check_writable(path: Path) -> None:
    """ValueError at once where a file cannot be written: gathering the wheels takes minutes."""
    try:
        path.touch()
    except OSError as error:
        raise ValueError(
            f"{path.parent} cannot be written ({error.strerror}). Name another place with --to."
        ) from None


def target(to: Path) -> Path:
    """The file to write. ValueError where it is there already or its folder is not."""
    if to.is_dir():
        to /= f"{_TOP}-{__version__}-{kind().lower().replace(' on ', '-').replace(' ', '-')}.tar"
    if to.exists():
        raise ValueError(
            f"{to} is there already and was not touched. Delete it, or name another with --to."
        )
    if not to.parent.is_dir():
        raise ValueError(
            f"there is no folder {to.parent} to write {to.name} into. Make it first, or name "
            "another with --to."
        )
    return to.absolute()


def address() -> str:
    """Where the project is published: the one constant, in pyproject.toml."""
    import tomllib

    return tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "urls"
    ]["Repository"]


def _clone(folder: Path) -> None:
    """A clone of the last commit's branch that can be updated later, and names no folder of this
    machine.
    """
    if changed := _git("status", "--porcelain").splitlines():
        print(
            f"note: the bundle holds the last commit; {len(changed)} changed or new files here "
            "are not in it",
            flush=True,
        )
    # No reflog and no template: they would hold this machine's paths and name, and hooks.
    bare = (
        "-c",
        "core.logAllRefUpdates=false",
        "--template=",
        "--quiet",
        "--single-branch",
        "--no-local",
    )
    _git("clone", *bare, str(PROJECT), str(folder))
    _git("-C", str(folder), "config", "--unset-all", "core.logAllRefUpdates")
    where = address()
    _git(
        "-C",
        str(folder),
        "remote",
        *(["remove", "origin"] if "/OWNER/" in where else ["set-url", "origin", where]),
    )


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=PROJECT, capture_output=True, text=True)
    if done.returncode:
        raise ValueError(
            f"git {arguments[0]} failed: "
            f"{(done.stderr.strip().splitlines() or ['it said nothing'])[-1]}"
        )
    return done.stdout.strip()


def _gather(folder: Path, asked: dict[str, tuple[list[str], list[str]]]) -> None:
    """Every wheel of the two steps; what is published as source only is built here, so that nobody
    needs a compiler there.
    """
    import tomllib

    builds = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))[
        "build-system"
    ]["requires"]
    (_, steps), *others = asked.items()
    pip, quietly = [sys.executable, "-m", "pip"], ["--quiet", "--disable-pip-version-check"]
    wheel = [*pip, "wheel", *quietly, "--wheel-dir", str(folder)]
    print(f"gathering the wheels for {kind()}", flush=True)
    _run([*wheel, *steps[0], *builds])
    _run([*wheel, "--no-deps", *steps[1]])
    for system, (first, last) in others:
        _, target, tag = next(names for names in SYSTEMS.values() if names[0] == system)
        print(f"gathering the wheels for {kind(system)}", flush=True)
        which = f"--only-binary :all: --python-version {_PYTHON}".split()
        # What those packages need there: pip would judge that by this machine.
        resolve = (
            f"uv pip compile --quiet --no-header --no-annotate --python-platform {target}".split()
        )
        with tempfile.TemporaryDirectory() as there:
            Path(there, "asked").write_text("\n".join([*first, *builds]), encoding="utf-8")
            _run(
                [sys.executable, "-m", *resolve, *which, "-o", f"{there}/needed", f"{there}/asked"]
            )
            fetch = [
                *pip,
                "download",
                *quietly,
                "--no-deps",
                "--platform",
                tag,
                *which,
                "--dest",
                str(folder),
            ]
            _run([*fetch, "-r", f"{there}/needed", *last])
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    print(f"{len(sizes)} wheels, {sum(sizes.values()) / 1e6:,.0f} MB", flush=True)
    if cuda := sum(
        size for name, size in sizes.items() if name.startswith(("nvidia", "cuda", "triton"))
    ):
        print(
            f"note: {cuda / 1e6:,.0f} MB of it are CUDA's, which a CPU does not use: pip's index "
            "holds torch's build for it. "
            "With PIP_EXTRA_INDEX_URL set to PyTorch's index of CPU wheels they are not fetched.",
            flush=True,
        )


def _run(command: list[str]) -> None:
    # from which on torch has wheels; uv would ask for 13
    own = os.environ | {"MACOSX_DEPLOYMENT_TARGET": "14.0"}
    if code := subprocess.run(command, env=own).returncode:
        raise ValueError(
            f"{command[2]} could not gather the wheels (exit code {code}; its own message is "
            "above). Check the network and the "
            f"free disk space ({shutil.disk_usage(PROJECT).free / 1e9:.1f} GB here), then run it "
            "again. Nothing was kept."
        )


def _pack(to: Path, clone: Path, wheels: Path, made_for: dict[str, list[str]]) -> None:
    found = sorted(wheels.iterdir(), key=lambda path: path.stat().st_size)
    files = {path.name: {"size": path.stat().st_size, "sha256": _sha256(path)} for path in found}
    with tarfile.open(to, "w") as archive:
        archive.add(clone, _TOP, filter=_nobodys)
        # The list before the wheels: of an archive that was cut short, the install can say what is
        # missing.
        text = json.dumps({"for": made_for, "files": files}, indent=1).encode()
        about = tarfile.TarInfo(f"{_TOP}/{WHEELS}/{CONTENTS}")
        about.size, about.mode = len(text), 0o644
        archive.addfile(about, io.BytesIO(text))
        for path in found:
            archive.add(path, f"{_TOP}/{WHEELS}/{path.name}", filter=_nobodys)


def _nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without the name and number of whoever made the archive."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
