"""Number guessing on OpenEnv's own server, in a virtual environment of its own."""

import json
import os
import random
import subprocess
import sys
from functools import partial

import pytest

from helpers import PROJECT
from helpers.agents import Guarded, Guessing
from helpers.laboratory.environments import attack
from helpers.own_code import load_own

GAME = "from helpers.agents import Guessing\n\n\ndef game():\n    return Guessing(span=63)\n"
NUMBER = random.Random(18).randint(1, 63)
# OpenEnv's own client guesses twice, with a quoted guess and an unknown tool in between.
CLIENT = """
import json, sys
from openenv import GenericEnvClient

def read(said):
    return [said.observation["result"], said.observation["error"], said.reward, said.done]

with GenericEnvClient(base_url=sys.argv[1]).sync() as env:
    told = [read(env.reset(seed=18))]
    for name, arguments in json.loads(sys.argv[2]):
        told.append(read(env.step({"type": "call_tool", "tool_name": name, "arguments": arguments})))
print(json.dumps(told))
"""
CALLS = [
    ("guess", {"number": 32}),
    ("guess", {"number": "8"}),
    ("look", {}),
    ("guess", {"number": NUMBER}),
]


@pytest.fixture(scope="module")
def openenv(tmp_path_factory) -> str:
    """Return a Python with openenv and without our packages."""
    folder = tmp_path_factory.mktemp("openenv")
    python = str(folder / "bin" / "python")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    install = [python, "-m", "pip", "install", "-q", "openenv==0.10.0"]
    installed = subprocess.run(install, capture_output=True, text=True)
    if installed.returncode:
        pytest.skip(f"openenv cannot be installed here: {installed.stderr[-200:]}")
    return python


@pytest.fixture(scope="module")
def served(openenv, tmp_path_factory):
    """Serve number guessing, and return the address."""
    file = tmp_path_factory.mktemp("game") / "game.py"
    file.write_text(GAME, encoding="utf-8")
    port = str(18_000 + os.getpid() % 2_000)  # below those that kernels are given
    command = [openenv, "-m", "examples.serve_environment", f"{file}:game", "--port", port]
    server = subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True)
    assert server.stdout.readline() == f"export OPENENV_URL=http://127.0.0.1:{port}\n"
    yield f"http://127.0.0.1:{port}"
    server.terminate()
    server.wait()


@pytest.mark.slow
def test_openenvs_own_client_plays_it(served, openenv):
    command = [openenv, "-c", CLIENT, served, json.dumps(CALLS)]
    said = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    game = Guessing(span=63)
    asked, first, misfit, unknown, second = said
    assert asked == [game.reset(seed=18), None, 0.0, False]
    assert first == [game.guess(32), None, 0.1, False]
    assert second == [game.guess(NUMBER), None, 1.0, False]
    assert "valid integer" in misfit[1]["message"] and misfit[0] is None
    assert unknown[1]["message"] == "Tool look not found."


@pytest.mark.slow
@pytest.mark.needs("websockets")
def test_the_environment_of_notebook_10_plays_the_same_game(served, monkeypatch):
    monkeypatch.setenv("OPENENV_URL", served)
    file = PROJECT / "examples" / "openenv_environment.py"
    remote = load_own("environment", f"{file}:RemoteGuessing", "")
    games = (remote, partial(Guessing, span=63))
    there, here = (attack(Guarded(game), [{"seed": 1}, {"seed": 2}]) for game in games)
    assert there.played.equals(here.played) and there.verdict.go
