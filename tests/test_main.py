"""The command line itself: its usage, how it refuses, and what it needs."""

import subprocess
import sys

import pytest

from helpers import PROJECT
from helpers.__main__ import COMMANDS

pytestmark = pytest.mark.usefixtures("machine")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--help"], 0, list(COMMANDS)),
        *(([command, "--help"], 0, [f"helpers {command} [-h]"]) for command in COMMANDS),
        ([], 2, ["usage: python -m helpers"]),
        (["learn"], 2, ["invalid choice: 'learn'"]),
        (["run", "--step", "3"], 2, ["unrecognized arguments: --step"]),
    ],
)
def test_usage(cli, capsys, arguments, code, said):
    with pytest.raises(SystemExit) as stop:
        cli(*arguments)
    text = "".join(capsys.readouterr())
    assert stop.value.code == code and all(part in text for part in said)


def test_the_module_is_a_program_whose_exit_code_is_the_commands(python):
    command = [python, "-m", "helpers", "doctor", "--preset", "x"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: preset 'x' is not known")


def test_without_the_packages_a_command_says_how_to_install_them(cli, monkeypatch):
    monkeypatch.setitem(sys.modules, "papermill", None)
    for module in ("helpers.commands.notebooks", "helpers.commands.run"):
        monkeypatch.delitem(sys.modules, module, raising=False)
        monkeypatch.delattr(module, raising=False)
    code, _, err = cli("run")
    assert code == 2 and "papermill" in err and "-m helpers install" in err


def test_an_old_python_is_told_what_to_do(cli, monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 10, 4))
    code, _, err = cli("doctor")
    assert code == 2 and "3.11" in err and "./install.sh" in err
