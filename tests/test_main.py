"""The command line itself: its usage, how it refuses, and what it needs."""

import os
import subprocess
import sys

import pytest

from helpers import PROJECT
from helpers.__main__ import COMMANDS, parse

pytestmark = pytest.mark.usefixtures("machine")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--help"], 0, list(COMMANDS)),
        (["run", "--help"], 0, ["--preset", "--only", "KEY=VALUE"]),
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


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_is_a_module_with_its_arguments(command, capsys):
    with pytest.raises(SystemExit) as stop:
        parse([command, "--help"])
    assert stop.value.code == 0 and f"helpers {command} [-h]" in capsys.readouterr().out


def test_the_module_is_a_program_whose_exit_code_is_the_commands(python):
    command = [python, "-m", "helpers", "doctor", "--preset", "x"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: preset 'x' is not known")


def test_without_the_packages_a_command_says_how_to_install_them(cli, monkeypatch):
    monkeypatch.setitem(sys.modules, "papermill", None)
    monkeypatch.delitem(sys.modules, "helpers.commands.pipeline", raising=False)
    monkeypatch.delattr("helpers.commands.pipeline", raising=False)
    code, _, err = cli("run")
    assert code == 2 and "papermill is not installed" in err and "-m helpers install" in err


def test_an_old_python_is_told_what_to_do(cli, monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 10, 4))
    code, _, err = cli("doctor")
    assert code == 2 and "3.11 or newer is needed" in err and "./install.sh" in err


@pytest.mark.parametrize("buffered", [False, True], ids=["at once", "buffered"])
def test_a_pipe_that_nobody_reads_ends_a_command_quietly(python, buffered):
    reading, writing = os.pipe()
    os.close(reading)  # before anything is written, where `| head -1` may be late
    done = subprocess.run(
        [python, "-m", "helpers", "doctor"],
        cwd=PROJECT,
        env=os.environ | {"PYTHONUNBUFFERED": "" if buffered else "1"},
        stdout=writing,
        stderr=subprocess.PIPE,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")
