"""Every way in takes the same steps: image, dev container, Binder, documents.

And each says where the project really is.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml

from helpers import PROJECT

# devContainer.base.schema.json of devcontainers/spec (MIT)
SCHEMA = Path(__file__).with_name("devcontainer_schema.json")
PAGE = (PROJECT / "docs/ways-in.md").read_text(encoding="utf-8")


def told() -> set[str]:
    """The commands that the README and the page about the ways in give, one a line, without what is
    said beside them.
    """
    text = PAGE + (PROJECT / "README.md").read_text(encoding="utf-8")
    lines = "\n".join(re.findall(r"```(?:bash|sh)\n(.*?)```", text, re.DOTALL)).splitlines()
    return {re.split(r"\s{2,}#", line)[0].strip() for line in lines}


def stages() -> dict[str, list[str]]:
    """The instructions of each stage of the Dockerfile, in their order."""
    text = re.sub(r"\\\n", " ", (PROJECT / "Dockerfile").read_text(encoding="utf-8"))
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if match := re.fullmatch(r"FROM (\S+) AS (\w+)", line):
            # a stage begins with what the one it is made from did
            found[name := match[2]] = list(found.get(match[1], []))
        elif line.strip() and not line.startswith("#"):
            found[name].append(line)
    return found


# --- The steps ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stage", "step"), [("cpu", "./install.sh"), ("gpu", "./install.sh --gpu")]
)
def test_the_image_is_built_by_the_steps_that_a_reader_is_told(stage, step):
    instructions = stages()[stage]
    ours = [
        line.removeprefix("RUN ")
        for line in instructions
        if line.startswith("RUN ") and "apt-get" not in line
    ]
    assert ours[-1] == step and step in told() and len(ours) == 2, (
        "a user of its own, and the install"
    )
    copied = next(n for n, line in enumerate(instructions) if line.startswith("COPY"))
    assert (
        instructions.index(f"RUN {step}") > copied
        and "ARG PIP_EXTRA_INDEX_URL" in instructions[copied:]
    )
    assert [line for line in instructions if line.startswith("USER")][-1] == "USER learner", (
        "not as root"
    )


def test_where_no_target_is_named_the_image_is_for_a_cpu_and_the_commands_beside_it_are_told():
    assert list(stages())[-1] == "cpu"
    said = re.findall(
        r"^# +(docker build .*)$",
        (PROJECT / "Dockerfile").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert len(said) == 2 and set(said) <= told() and "--target gpu" in said[1]


def test_what_an_image_would_carry_for_nothing_is_left_out():
    ignored = (PROJECT / ".dockerignore").read_text(encoding="utf-8").split()
    assert (
        {".venv", "runs", "build", "dist"} <= set(ignored)
        and ".git" not in ignored
        and "wheels" not in ignored
    )


def test_make_and_the_dev_container_call_the_same_script():
    described = json.loads(
        (PROJECT / ".devcontainer/devcontainer.json").read_text(encoding="utf-8")
    )
    jsonschema.validate(described, json.loads(SCHEMA.read_text(encoding="utf-8")))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(
            described | {"postCreate": "x"}, json.loads(SCHEMA.read_text(encoding="utf-8"))
        )
    assert described["postCreateCommand"] == "./install.sh"
    assert (
        "./install.sh\n"
        in (PROJECT / "Makefile").read_text(encoding="utf-8").partition("$(READY):")[2][:120]
    )
    assert os.access(PROJECT / "install.sh", os.X_OK)


def test_binder_takes_the_same_environment_and_the_same_last_step():
    """Beside a Dockerfile, Binder would build that one; so it has a folder of its own, and reads no
    other.
    """
    root, binder = (PROJECT / "environment.yml").read_text(encoding="utf-8"), PROJECT / "binder"
    assert yaml.safe_load(
        (binder / "environment.yml").read_text(encoding="utf-8")
    ) == yaml.safe_load(root)
    *_, last = (binder / "postBuild").read_text(encoding="utf-8").splitlines()
    assert last == "python -m helpers install" and f"&& {last}" in root.splitlines()[0]
    assert os.access(binder / "postBuild", os.X_OK) and sorted(os.listdir(binder)) == [
        "environment.yml",
        "postBuild",
    ]


def stand_in(path: Path, version: str) -> Path:
    """What stands for a Python: tells its version, and notes what else it is asked to do."""
    old = int(version == "3.9")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f'#!/bin/sh\ncase "$*" in *print*) echo {version};; -c*) exit {old};; *) echo "$@" >> '
        '"$0.asked";; esac\n'
    )
    path.chmod(0o755)
    return path


@pytest.fixture
def install(tmp_path):
    """install(version of the Python named, version of the one in .venv or None): what install.sh
    says, through a link.
    """
    (tmp_path / "project").mkdir()
    shutil.copy(PROJECT / "install.sh", tmp_path / "project")
    (tmp_path / "link").symlink_to("project/install.sh")

    def run(named: str, has: str | None, given: bool = True) -> subprocess.CompletedProcess:
        python = stand_in(tmp_path / "bin/python3", named)
        venv = tmp_path / "project/.venv/bin"
        if has:
            stand_in(venv / "pip", has)
        if has not in (None, "gone"):
            stand_in(venv / "python", has)
        own = os.environ | {
            "PATH": f"{python.parent}:{os.environ['PATH']}",
            "PYTHON": str(python) if given else "",
        }
        return subprocess.run(["sh", "link"], cwd=tmp_path, env=own, capture_output=True, text=True)

    return run


def test_a_python_that_is_too_old_is_told_what_to_do(install, tmp_path):
    done = install("3.9", None)
    assert (
        done.returncode == 1
        and "Python 3.11 or newer is needed" in done.stderr
        and "PYTHON=python3.12" in done.stderr
    )
    assert (
        not (tmp_path / "bin/python3.asked").exists() and not (tmp_path / "project/.venv").exists()
    )


@pytest.mark.parametrize("has", ["3.9", "gone"])
def test_a_venv_whose_python_is_too_old_or_gone_is_to_be_deleted(install, has):
    done = install("3.12", has)
    assert (
        done.returncode == 1
        and "older than 3.11. Delete it (rm -r .venv), then run this again." in done.stderr
    )


@pytest.mark.parametrize("given", [True, False])
def test_a_venv_of_another_python_is_used_and_that_is_said(install, tmp_path, given):
    done = install("3.9", "3.11", given)
    assert (
        done.returncode == 0 and ("note: .venv is there, with Python 3.11" in done.stderr) == given
    ), done.stderr
    assert (tmp_path / "project/.venv/bin/python.asked").read_text() == "-m helpers install\n", (
        "beside the file, not the link"
    )
    assert install("3.11", "3.11").stderr == ""


@pytest.mark.parametrize("command", ["install", "doctor", "run"])
def test_the_command_line_of_a_python_that_is_too_old_says_so(command, cli, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(sys, "version_info", (3, 10, 13))
        code, out, err = cli(command)
    assert code == 2 and "is too old: 3.11 or newer is needed" in err and out == ""


# --- Where there is no POSIX ----------------------------------------------------------------------

WITHOUT_POSIX = """
import os, runpy, signal, sys
for name in ("fcntl", "resource", "pwd", "grp", "termios", "pty", "sandlock"):
    sys.modules[name] = None
for module, names in (
    (signal, ("SIGKILL", "SIGHUP", "SIGPROF", "SIGALRM", "setitimer", "alarm")),
    (os, ("fork", "killpg", "setsid", "getuid", "geteuid", "sched_getaffinity", "sysconf")),
):
    for name in names:
        vars(module).pop(name, None)
sys.argv = ["helpers", *sys.argv[1:]]
runpy.run_module("helpers", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize(
    "command",
    ["doctor --preset pocket", "checkpoint --fetch-demo --run late", "install"],
)
def test_the_command_line_answers_where_the_modules_of_posix_are_missing(command, python, tmp_path):
    """As far as that shows anything about Windows: no module or call that it lacks is in
    the way.
    """
    own = os.environ | {
        "GRPO_RUNS_DIR": str(tmp_path),
        "PYTHONPATH": str(PROJECT),
        "CUDA_VISIBLE_DEVICES": "",
    }
    done = subprocess.run(
        [python, "-c", WITHOUT_POSIX, *command.split()],
        cwd=tmp_path,
        env=own,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


# --- Where the project is -------------------------------------------------------------------------


@pytest.fixture
def published(tmp_path):
    """A small project with all that holds the address: published(*arguments, tag=…) commits, tags
    and checks it.
    """
    for name in ("docs", "notebooks", "tests"):
        (tmp_path / name).mkdir()
    shutil.copy(PROJECT / "tests/check_address.py", tmp_path / "tests")
    shutil.copy(PROJECT / "notebooks/01_data_preparation.ipynb", tmp_path / "notebooks")
    for name in ("CITATION.cff", "docs/ways-in.md", "pyproject.toml"):
        shutil.copy(PROJECT / name, tmp_path / name)
    (tmp_path / "README.md").write_bytes(b"[Unsloth](https://github.com/unslothai/unsloth)\r\n")

    def git(*arguments: str) -> None:
        own = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
        subprocess.run(["git", *own, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q")

    def check(*arguments: str, tag: str | None = None) -> tuple[int, str]:
        git("add", ".")
        git("commit", "-q", "--allow-empty", "-m", "x")
        if tag:
            git("tag", tag)
        script = [sys.executable, str(tmp_path / "tests/check_address.py"), *arguments]
        done = subprocess.run(script, capture_output=True, text=True, cwd="/")
        return done.returncode, done.stdout + done.stderr

    return check


def test_every_copy_of_the_address_is_the_constant(python):
    if not (PROJECT / ".git").exists():
        pytest.skip(
            "the project is not a git checkout here, so it is not known which files belong to it"
        )
    done = subprocess.run(
        [python, PROJECT / "tests/check_address.py"], capture_output=True, text=True
    )
    assert (done.stdout, done.returncode) == ("", 0)


def test_the_placeholder_is_fine_until_it_is_released(published, tmp_path):
    assert published() == (0, "")
    assert published(tag="draft") == (0, ""), "no release"
    assert "vnext is a release" in published(tag="vnext")[1], "release.yml runs for every v*"
    code, said = published(tag="v1.2.0")
    assert code == 1 and "v1.2.0 is a release, and the address is still OWNER/" in said
    code, said = published("--set", "https://github.com/ada/rewards.git")
    assert "v1.2.0" not in said and said == "4 files changed\n" and code == 0
    assert published(tag="v1.2.1") == (0, "")
    for name in (
        "notebooks/01_data_preparation.ipynb",
        "CITATION.cff",
        "docs/ways-in.md",
        "pyproject.toml",
    ):
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert "ada/rewards" in text and "OWNER/" not in text, name
    assert (
        tmp_path / "README.md"
    ).read_bytes() == b"[Unsloth](https://github.com/unslothai/unsloth)\r\n"
    json.loads((tmp_path / "notebooks/01_data_preparation.ipynb").read_text(encoding="utf-8"))
    assert published("--set", "https://github.com/bo/rewards") == (0, "4 files changed\n"), (
        "and once more, under that name"
    )


def test_a_copy_that_differs_and_one_that_is_missing_are_named(published, tmp_path):
    (tmp_path / "README.md").write_text(
        "\n[open](https://colab.research.google.com/github/Ada/grpo-notebooks/blob/main/x)\n"
    )
    (tmp_path / "CITATION.cff").write_text("title: none\n")
    code, said = published()
    assert code == 1 and "README.md:2: Ada/grpo-notebooks is not OWNER/grpo-notebooks" in said
    assert "CITATION.cff does not say where the project is" in said and "mend with" in said


NO_ADDRESSES = ["https://gitlab.com/a/b", "git@github.com:a/b", "https://github.com/a", "a/b"]
NO_ADDRESSES += ["https://github.com/../..", "https://github.com/a/..", "https://github.com/ü/b"]


@pytest.mark.parametrize("address", NO_ADDRESSES)
def test_an_address_that_the_links_cannot_have_is_refused(published, tmp_path, address):
    code, said = published("--set", address)
    assert code == 1 and f"--set {address}" in said
    (tmp_path / "pyproject.toml").write_text(f'[project.urls]\nRepository = "{address}"\n')
    code, said = published()
    assert code == 1 and repr(address) in said and "Traceback" not in said


def test_the_name_of_another_repository_that_is_linked_to_is_refused(published, tmp_path):
    code, said = published("--set", "https://github.com/me/unsloth")
    assert (
        code == 1
        and "README.md links to unslothai/unsloth, another repository of this name" in said
    )
    assert "me/unsloth" not in (tmp_path / "pyproject.toml").read_text(encoding="utf-8")


def test_a_week_in_which_every_pin_is_the_newest_is_green(tmp_path):
    workflow = yaml.safe_load(
        (PROJECT / ".github/workflows/weekly.yml").read_text(encoding="utf-8")
    )
    (step,) = [
        step["run"]
        for step in workflow["jobs"]["newest"]["steps"]
        if "commit" in step.get("run", "")
    ]
    lines = "\n".join(line for line in step.splitlines() if line.startswith("git "))
    pins = tmp_path / "requirements.txt"
    pins.write_text("a==1\n")
    first = (
        "git init -q; git add .; git -c user.name=Ada -c user.email=ada@example.org commit "
        "-qm first"
    )
    # the second time nothing is left to commit
    for script in (first, f"echo a==2 > requirements.txt\n{lines}", lines):
        done = subprocess.run(["bash", "-ec", script], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    log = subprocess.run(
        ["git", "log", "--format=%s"], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    assert log.splitlines() == ["The newest releases", "first"]


def test_a_tag_is_checked_where_it_is_pushed():
    workflow = yaml.safe_load(
        (PROJECT / ".github/workflows/release.yml").read_text(encoding="utf-8")
    )
    assert workflow[True]["push"]["tags"] == ["v*"]  # YAML 1.1 reads `on` as true
    assert {"run": "python tests/check_address.py"} in workflow["jobs"]["address"]["steps"]
