"""A bundle of a project with tiny packages: made, carried, unpacked and installed by the code that
does it for the real one.
"""

import base64
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from helpers import PROJECT, bundle, environment

pytestmark = pytest.mark.slow

# What pip builds the tiny packages with, itself in a wheel: a module, or for an editable one the
# path of its folder.
BACKEND = """
import pathlib, tomllib, zipfile

def _write(to, name, content):
    about = tomllib.loads(pathlib.Path("pyproject.toml").read_text())["project"]
    stem = f"{about['name'].replace('-', '_')}-{about['version']}"
    metadata = f"Metadata-Version: 2.1\\nName: {about['name']}\\nVersion: {about['version']}\\n"
    with zipfile.ZipFile(pathlib.Path(to, stem + "-py3-none-any.whl"), "w") as file:
        file.writestr(name, content)
        file.writestr(stem + ".dist-info/METADATA", metadata)
        file.writestr(stem + ".dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        file.writestr(stem + ".dist-info/RECORD", "")
    return stem + "-py3-none-any.whl"

def build_wheel(to, config_settings=None, metadata_directory=None):
    return _write(to, "sourced.py", "")

def build_editable(to, config_settings=None, metadata_directory=None):
    return _write(to, "here.pth", str(pathlib.Path.cwd()))
"""
BUILD = (
    '[build-system]\nrequires = ["tinybuild"]\nbuild-backend = "tinybuild"\n[project]\nname = '
    '"{}"\nversion = "1.0"\n'
)
WANTED = ["tiny==1.0", "sourced==1.0", "unsloth==1.0", "unsloth_zoo==1.0"]
URLS = '[project.urls]\nRepository = "https://github.com/{}/grpo-notebooks"\n'


def write_wheel(folder: Path, name: str, code: str = "", needs: str = "") -> None:
    stem, listed = f"{name}-1.0", []
    files = {
        f"{name}.py": code,
        f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{needs}",
        f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as file:
        for path, text in files.items():
            digest = (
                base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
                .rstrip(b"=")
                .decode()
            )
            listed.append(f"{path},sha256={digest},{len(text.encode())}")
            file.writestr(path, text)
        file.writestr(
            f"{stem}.dist-info/RECORD", "\n".join([*listed, f"{stem}.dist-info/RECORD,,"])
        )


def git(folder: Path, *arguments: str) -> str:
    own = [
        "-c",
        "user.name=Ada",
        "-c",
        "user.email=ada@example.org",
        "-c",
        "init.defaultBranch=main",
    ]
    return subprocess.run(
        ["git", "-C", folder, *own, *arguments], capture_output=True, text=True, check=True
    ).stdout


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """What stands for the package index: wheels, and one package that is published as
    source only.
    """
    folder = tmp_path_factory.mktemp("index")
    write_wheel(folder, "tinybuild", BACKEND)
    needs = 'Requires-Dist: needed\nRequires-Dist: windows_only; sys_platform == "win32"\n'
    write_wheel(folder, "tiny", "import needed", needs)
    for name in ("needed", "windows_only", "unsloth", "unsloth_zoo"):
        write_wheel(
            folder, name, needs="Requires-Dist: not-to-be-had\n" if name == "unsloth" else ""
        )
    with tarfile.open(folder / "sourced-1.0.tar.gz", "w:gz") as file:
        text = BUILD.format("sourced").encode()
        about = tarfile.TarInfo("sourced-1.0/pyproject.toml")
        about.size = len(text)
        file.addfile(about, io.BytesIO(text))
    return folder


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A clone of such a project: our installer, four pins."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "helpers").mkdir()
    for name in ("__init__", "__main__", "environment", "bundle", "cards"):
        shutil.copy(PROJECT / f"helpers/{name}.py", folder / "helpers")
    for name in ("install.sh", ".gitignore", "Makefile"):
        shutil.copy(PROJECT / name, folder)
    for name, more in (
        ("requirements.txt", "unsloth==1.0\nunsloth_zoo==1.0\n"),
        ("requirements-cpu.txt", ""),
    ):
        (folder / name).write_text(f"tiny==1.0  # with what it needs\nsourced==1.0\n{more}")
    (folder / "pyproject.toml").write_text(BUILD.format("grpo-notebooks") + URLS.format("OWNER"))
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "all")
    git(folder, "branch", "of-no-concern")
    (folder / "not-committed.txt").touch()
    return folder


def helpers(
    project: Path, *arguments: str, index: Path | None, before: tuple = ()
) -> subprocess.CompletedProcess:
    """`python -m helpers …` in a project, with this index, or with none that answers."""
    own = {
        name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))
    }
    own |= {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index)}
    own |= {
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHON": sys.executable,
        "UV_NO_INDEX": "1",
        "UV_FIND_LINKS": str(index),
    }
    if index is None:
        own |= {
            "PIP_NO_INDEX": "0",
            "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
            "PIP_RETRIES": "0",
        }
        del own["PIP_FIND_LINKS"]
    command = (
        arguments
        if before or arguments[0] == "sh"
        else (sys.executable, "-m", "helpers", *arguments)
    )
    return subprocess.run([*before, *command], cwd=project, env=own, capture_output=True, text=True)


@pytest.fixture(scope="module")
def archive(project, index, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stick")
    done = helpers(project, "bundle", "--to", str(folder), index=index)
    assert done.returncode == 0, done.stderr
    assert "6 wheels" in done.stdout and "1 changed or new files here are not in it" in done.stdout
    (made,) = folder.iterdir()
    assert (
        made.name
        == f"grpo-notebooks-0.1.0-{bundle.kind().lower().replace(' on ', '-').replace(' ', '-')}.tar"
    )
    return made


def unpack(archive: Path, to: Path) -> Path:
    """As a person would; tar goes as far as it can."""
    to.mkdir(parents=True)
    subprocess.run(["tar", "xf", archive, "-C", to], capture_output=True)
    return to / "grpo-notebooks"


def without_a_network() -> tuple[str, ...]:
    """A namespace that has none, where this machine lets us have one; the index that does not
    answer does the rest.
    """
    ours = ("unshare", "--map-root-user", "--net")
    return (
        ours
        if shutil.which("unshare")
        and subprocess.run([*ours, "true"], capture_output=True).returncode == 0
        else ()
    )


# --- The way that a bundle goes -------------------------------------------------------------------


def test_it_installs_without_a_network_in_a_folder_with_a_space_and_an_umlaut(archive, tmp_path):
    there = unpack(archive, tmp_path / "Übung mit Leerzeichen")
    first = helpers(
        tmp_path, "sh", str(there / "install.sh"), index=None, before=without_a_network()
    )
    assert first.returncode == 0, first.stderr
    assert "from the wheels in wheels/: 4 pinned packages" in first.stdout
    code = "import tiny, needed, sourced, unsloth, unsloth_zoo, helpers; print(helpers.__file__)"
    python = there / ".venv/bin/python"
    found = subprocess.run([python, "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert found.stdout.strip() == str(there / "helpers/__init__.py"), found.stderr
    again = helpers(tmp_path, "sh", str(there / "install.sh"), index=None)
    assert "everything is installed already" in again.stdout and (there / ".venv/.ready").exists()
    nothing_to_do = subprocess.run(
        ["make", "-n", "setup"], cwd=there, capture_output=True, text=True
    ).stdout
    assert "install.sh" not in nothing_to_do, "`make run` goes on where install.sh stopped"


def test_it_holds_the_last_commit_as_a_clone_that_names_nobodys_machine(archive, project, tmp_path):
    there = unpack(archive, tmp_path / "x")
    assert (
        git(there, "rev-parse", "HEAD") == git(project, "rev-parse", "HEAD")
        and git(there, "status", "--porcelain") == ""
    )
    assert (
        git(there, "branch", "--all", "--format=%(refname:short)").split() == ["main"]
        and git(there, "remote") == ""
    )
    assert (
        "logallrefupdates" not in git(there, "config", "--local", "--list")
        and not (there / ".git/hooks").exists()
    )
    for path in (there / ".git").rglob("*"):
        assert path.is_dir() or os.fsencode(project) not in path.read_bytes(), path
    with tarfile.open(archive) as file:
        assert {(member.uid, member.gid, member.uname, member.gname) for member in file} == {
            (0, 0, "", "")
        }
        names = [member.name for member in file]
    assert (
        names.index("grpo-notebooks/install.sh")
        < names.index("grpo-notebooks/wheels/contents.json")
        == len(names) - 7
    )


def test_with_an_address_the_clone_can_be_updated_from_it(project, tmp_path, monkeypatch):
    monkeypatch.setattr(bundle, "PROJECT", project)
    monkeypatch.setattr(bundle, "address", lambda: "https://github.com/ada/grpo-notebooks")
    bundle._clone(tmp_path / "clone")
    assert (
        git(tmp_path / "clone", "remote", "get-url", "origin").strip()
        == "https://github.com/ada/grpo-notebooks"
    )


def test_an_archive_that_was_cut_short_is_named_and_installs_nothing(archive, tmp_path):
    short = tmp_path / "short.tar"
    with tarfile.open(archive) as file:
        last = max(file, key=lambda member: member.offset)
    short.write_bytes(archive.read_bytes()[: last.offset_data + 100])
    there = unpack(short, tmp_path / "x")
    done = helpers(there, "install", index=None)
    assert done.returncode == 2 and done.stderr.startswith(
        "error: 1 of 6 wheels did not come whole"
    ), done.stderr
    assert "bytes. Copy and unpack the bundle again" in done.stderr and "pip" not in done.stderr


def test_another_system_is_served_from_the_same_archive_with_what_its_packages_need_there(
    project, index, tmp_path
):
    pytest.importorskip(
        "uv", reason="uv is optional: it judges what a package needs on another system"
    )
    shutil.copytree(index, wheels := tmp_path / "index")
    write_wheel(wheels, "sourced")  # for another system nothing is built
    done = helpers(
        project,
        "bundle",
        "--to",
        str(tmp_path / "both.tar"),
        "--also",
        "windows,macos",
        index=wheels,
    )
    assert done.returncode == 0 and "gathering the wheels for CPython" in done.stdout, done.stderr
    there = unpack(tmp_path / "both.tar", tmp_path / "x")
    contents = json.loads((there / "wheels/contents.json").read_text())
    assert [kind.partition(" on ")[2] for kind in contents["for"]][1:] == [
        "Windows AMD64",
        "Darwin arm64",
    ]
    assert (
        sum("windows_only" in name for name in contents["files"]) == 1
        and len(contents["files"]) == 7
    )
    assert bundle.options(WANTED, there)


def test_a_system_that_is_not_known_is_refused(project, index):
    done = helpers(project, "bundle", "--also", "windows,amiga", index=index)
    assert (
        done.returncode == 2 and "--also amiga is not known. Known: macos, windows." in done.stderr
    )


# --- Wheels that are not what they should be ------------------------------------------------------


@pytest.fixture(scope="module")
def unpacked(archive, tmp_path_factory):
    return unpack(archive, tmp_path_factory.mktemp("unpacked") / "x")


@pytest.fixture
def options(unpacked, tmp_path):
    """bundle.options of the unpacked wheels after `change(wheels folder, contents)`."""

    def after(change, wanted=WANTED) -> list[str]:
        shutil.copytree(unpacked / "wheels", tmp_path / "wheels")
        file = tmp_path / "wheels/contents.json"
        contents = json.loads(file.read_text())
        change(tmp_path / "wheels", contents)
        file.write_text(contents if isinstance(contents, str) else json.dumps(contents))
        return bundle.options(wanted, tmp_path)

    return after


def test_whole_wheels_are_taken_from_their_folder_and_from_nowhere_else(options, tmp_path):
    assert options(lambda folder, contents: None) == [
        "--isolated",
        "--no-index",
        "--find-links",
        str(tmp_path / "wheels"),
    ]


def test_without_a_bundle_everything_is_as_it_was(tmp_path):
    assert bundle.options(WANTED, tmp_path) == []


THIS = f"{sys.version_info.major}.{sys.version_info.minor}"
OTHER = {
    "another Python": (
        bundle.kind().replace(THIS, "3.99"),
        r"are for CPython 3\.99 on .*Delete \.venv, then .*`PYTHON=python3\.99 \./install\.sh`",
    ),
    "another machine": (
        "CPython 3.11 on Plan9 mips",
        "on Plan9 mips, and this is .*Make a bundle for this one",
    ),
    "no sense": ("7", "are for 7, and this is"),
}


@pytest.mark.parametrize("case", OTHER)
def test_a_bundle_for_another_python_or_machine_is_refused(options, case):
    with pytest.raises(ValueError, match=OTHER[case][1]) as said:
        options(lambda folder, contents: contents.update({"for": {OTHER[case][0]: WANTED}}))
    assert bundle.kind() in str(said.value) and "With a network, delete wheels/" in str(said.value)


def test_a_bundle_for_other_pins_is_refused(options):
    with pytest.raises(ValueError, match=r"differs in tiny==1.0, tiny==2.0: .*hides the GPU"):
        options(lambda folder, contents: None, ["tiny==2.0", *WANTED[1:]])


def test_what_this_project_asks_for_is_what_its_bundle_says():
    cpu = environment.Machine(None, 0.0, 0.0, 2, 8.0, "3.11.7", "Linux x86_64", False)
    listed, last = environment.steps(cpu)
    assert [line.partition("==")[0] for line in last] == [
        "unsloth",
        "unsloth_zoo",
    ] and "torch==2.13.0" in listed
    assert all("#" not in line for line in listed)


@pytest.mark.parametrize(
    ("name", "damage", "said"),
    [
        (
            "tiny-1.0",
            lambda path: path.write_bytes(path.read_bytes()[:100]),
            r"1 of 6 .*tiny-1.0-py3-none-any.whl has 100 of",
        ),
        ("tiny-1.0", lambda path: path.unlink(), "tiny-1.0-py3-none-any.whl is missing"),
        (
            "sourced",
            lambda path: path.write_bytes(path.read_bytes()[::-1]),
            "sourced-1.0-py3-none-any.whl has changed",
        ),
    ],
)
def test_a_wheel_that_did_not_come_whole_is_named(options, name, damage, said):
    with pytest.raises(ValueError, match=said):
        options(lambda folder, contents: damage(next(folder.glob(f"{name}*.whl"))))


def test_a_wheel_that_is_not_of_the_bundle_is_refused_because_pip_would_take_it(options):
    with pytest.raises(
        ValueError,
        match=r"did not come with the bundle, .*: tiny-2\.0-py3-none-any\.whl\. Delete it",
    ):
        options(lambda folder, contents: (folder / "tiny-2.0-py3-none-any.whl").touch())


SIZED = '{{"for": {{"x": []}}, "files": {}}}'
NO_LISTS = [
    "",
    '{"for": "CPython',
    "[]",
    "7",
    "[" * 100_000,
    SIZED.format("{}"),
    SIZED.format('{"a": 3}'),
]
NO_LISTS.append(SIZED.format('{"a": {"size": "big", "sha256": ""}}'))


@pytest.mark.parametrize("text", NO_LISTS, ids=lambda text: text[:50])
def test_a_list_that_cannot_be_read_is_said(unpacked, tmp_path, text):
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels/contents.json").write_text(text)
    with pytest.raises(
        ValueError, match=r"contents\.json cannot be read .*Copy and unpack it again"
    ):
        bundle.options(WANTED, tmp_path)


# --- Making one that cannot be made ---------------------------------------------------------------


def test_what_is_there_is_not_touched_and_a_folder_that_is_not_is_named(project, index, tmp_path):
    (tmp_path / "mine.tar").write_text("!")
    done = helpers(project, "bundle", "--to", str(tmp_path / "mine.tar"), index=index)
    assert done.returncode == 2 and "is there already and was not touched" in done.stderr
    assert (tmp_path / "mine.tar").read_text() == "!"
    done = helpers(project, "bundle", "--to", str(tmp_path / "none/x.tar"), index=index)
    assert done.returncode == 2 and f"there is no folder {tmp_path / 'none'}" in done.stderr


def test_a_folder_that_cannot_be_written_is_said_before_wheels_are_gathered(project, index):
    # where nobody can write, not even root
    done = helpers(project, "bundle", "--to", "/proc/x.tar", index=index)
    assert (
        done.returncode == 2
        and "error: /proc cannot be written" in done.stderr
        and "--to" in done.stderr
    )
    assert done.stdout == "" and not list((project / "build").iterdir())


def test_what_a_killed_one_left_is_named_and_left_alone_as_another_may_be_at_work(
    project, tmp_path
):
    left = project / "build/bundle"
    left.mkdir(parents=True)
    done = helpers(project, "bundle", "--to", str(tmp_path), index=tmp_path)
    assert left.is_dir() and list(tmp_path.iterdir()) == []
    left.rmdir()
    assert (
        done.returncode == 2
        and f"{left} is there: another bundle is being made" in done.stderr
        and done.stdout == ""
    )


def test_a_project_that_is_no_clone_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(bundle, "PROJECT", tmp_path)
    with pytest.raises(ValueError, match="is no git clone"):
        bundle.make(tmp_path / "x.tar", {"Linux x86_64": ([], [])})


def test_a_package_that_cannot_be_had_ends_it_and_leaves_nothing(project, tmp_path):
    done = helpers(project, "bundle", "--to", str(tmp_path), index=tmp_path)
    assert (
        done.returncode == 2
        and "pip could not gather the wheels" in done.stderr
        and "Nothing was kept" in done.stderr
    )
    assert list(tmp_path.iterdir()) == [] == list((project / "build").iterdir())


def test_a_full_disk_is_said_and_leaves_nothing(project, index, tmp_path):
    script = 'mount -t tmpfs -o size=64k none "$0" && "$@"; code=$?; ls -A "$0"; exit $code'
    ours = ("unshare", "--map-root-user", "--mount", "sh", "-c", script, str(tmp_path))
    if (
        not shutil.which("unshare")
        or subprocess.run([*ours, "true"], capture_output=True).returncode
    ):
        pytest.skip(
            "a disk of its own size takes a mount namespace, which this machine does not allow"
        )
    made = (sys.executable, "-m", "helpers", "bundle", "--to", str(tmp_path))
    done = helpers(project, *made, index=index, before=ours)
    assert (
        done.returncode == 2
        and "no space is left" in done.stderr
        and "Traceback" not in done.stderr
    ), done.stderr
    assert (
        ".partial" not in done.stdout
        and ".tar" not in done.stdout
        and list((project / "build").iterdir()) == []
    )
