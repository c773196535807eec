"""Every way in takes the same steps: image, dev container, conda, documents.

And each says where the project really is.
"""

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from helpers import PROJECT

# --- The steps ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stage", "step"), [("cpu", "./install.sh"), ("gpu", "./install.sh --gpu")]
)
def test_the_image_is_built_by_the_steps_that_a_reader_is_told(stage, step):
    """Not as root; and the stage for a CPU is the last, which is built where no target is named."""
    base, *stages = (
        (PROJECT / "deploy/Dockerfile").read_text(encoding="utf-8").split("\nFROM base AS ")
    )
    instructions = next(text for text in stages if text.startswith(f"{stage}\n"))
    told = (PROJECT / "docs/installation.md").read_text(encoding="utf-8")
    assert f"RUN {step}\n" in instructions and f"\n{step}  " in told
    assert re.findall("^USER (.+)$", base + instructions, re.MULTILINE)[-1] == "learner"
    assert stages[-1].startswith("cpu\n")


def test_make_the_dev_container_and_conda_take_the_same_steps():
    described = (PROJECT / ".devcontainer/devcontainer.json").read_text(encoding="utf-8")
    assert json.loads(described)["postCreateCommand"] == "./install.sh"
    makefile = (PROJECT / "Makefile").read_text(encoding="utf-8")
    assert "./install.sh\n" in makefile.partition("$(READY):")[2][:120]
    conda = (PROJECT / "environment.yml").read_text(encoding="utf-8")
    assert "&& python -m helpers install" in conda.splitlines()[0]
    assert os.access(PROJECT / "install.sh", os.X_OK)


@pytest.mark.needs("git")  # which knows the files that are ours
def test_the_front_of_the_house_is_seen_at_a_glance():
    command = ["git", "ls-tree", "--name-only", "HEAD"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
    visible = [name for name in done.stdout.split() if not name.startswith(".")]
    assert len(visible) <= 18, visible


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


NEWER = "Python 3.11 to 3.13 is needed"
DELETE = "not 3.11 to 3.13. Delete it (rm -r .venv), then run this again."
NOTE = "note: .venv is there, with Python 3.11"


@pytest.mark.parametrize(
    ("named", "has", "given", "said"),
    [
        ("3.9", None, True, NEWER),
        ("3.12", "3.9", True, DELETE),
        ("3.9", "3.11", True, NOTE),
        ("3.9", "3.11", False, ""),
        ("3.11", "3.11", True, ""),
    ],
)
def test_install_sh_takes_a_python_that_is_new_enough(tmp_path, named, has, given, said):
    """named: the version of the Python that is named or found; has: that of the one in .venv."""
    shutil.copy(PROJECT / "install.sh", tmp_path)
    python, venv = stand_in(tmp_path / "bin/python3", named), tmp_path / ".venv/bin"
    if has:
        stand_in(venv / "pip", has)
        stand_in(venv / "python", has)
    own = {"PATH": f"{python.parent}:{os.environ['PATH']}", "PYTHON": str(python) if given else ""}
    command, environment = ["sh", tmp_path / "install.sh"], os.environ | own
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert said in done.stderr and done.returncode == int(said in (NEWER, DELETE))
    if done.returncode == 0:
        assert (venv / "python.asked").read_text() == "-m helpers install\n"
        assert bool(done.stderr) == bool(said)


def test_version_and_citation_are_those_of_the_newest_changes():
    """What .github/workflows/release.yml asks of a tag."""
    page = (PROJECT / "docs/changelog.md").read_text(encoding="utf-8")
    version = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"]
    cited = yaml.safe_load((PROJECT / "CITATION.cff").read_text(encoding="utf-8"))
    assert re.findall(r"^## (\d.*)$", page, re.MULTILINE)[0] == version == cited["version"]


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


@pytest.mark.parametrize("command", ["doctor --preset pocket", "install"])
def test_the_command_line_answers_where_the_modules_of_posix_are_missing(command, python, tmp_path):
    """As far as that shows anything about Windows: no module or call that it lacks is in
    the way.
    """
    own = os.environ | {
        "GRPO_RUNS_DIR": str(tmp_path),
        "PYTHONPATH": str(PROJECT),
        "CUDA_VISIBLE_DEVICES": "",
    }
    asked = [python, "-c", WITHOUT_POSIX, *command.split()]
    done = subprocess.run(asked, cwd=tmp_path, env=own, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


# --- Where the project is -------------------------------------------------------------------------


@pytest.mark.needs("git")  # which knows the files that are ours
def test_every_copy_of_the_address_is_that_of_the_project():
    settings = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    slug = settings["project"]["urls"]["Repository"].removeprefix("https://github.com/")
    link = rf"(github\.com|/github|/gh|codespaces\.new)/[A-Za-z0-9_.-]+/{Path(slug).name}"
    command = ["git", "grep", "-oE", link, "--", ".", ":!tests"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
    found = done.stdout.splitlines()
    assert all(line.endswith(f"/{slug}") for line in found), found
