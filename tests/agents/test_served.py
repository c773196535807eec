"""An environment behind OpenEnv's own server, in a Python of its own: for a policy, the laboratory
and a training it is what it is at home.
"""

import json
import os
import subprocess
import sys
import time
from functools import partial

import pandas as pd
import pytest
from transformers.utils import get_json_schema

from helpers import PROJECT
from helpers.__main__ import main
from helpers.agents import Guarded, Guessing, Laboratory, environment_named
from helpers.commands import pipeline
from helpers.runs import Run

PORT = 18731
GAME = "from helpers.agents import Guessing\n\n\ndef game():\n    return Guessing(span=63)\n"
# What OpenEnv's own client is told: a step of the game, a call that does not fit, a tool that is not.
CLIENT = """
import json, sys
from openenv import GenericEnvClient

def call(name, **arguments):
    result = env.step({"type": "call_tool", "tool_name": name, "arguments": arguments})
    return [result.observation["result"], result.observation["error"], result.reward, result.done]

with GenericEnvClient(base_url=sys.argv[1]).sync() as env:
    asked = env.reset(seed=18)
    told = [call("guess", number=32), call("guess", number="8"), call("look"), call("guess", number=8)]
print(json.dumps([asked.observation["result"], asked.reward, told]))
"""


@pytest.fixture(scope="module")
def openenv(tmp_path_factory) -> str:
    """A Python that has openenv, and no package of the suite."""
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
    """Number guessing on a server; its address."""
    file = tmp_path_factory.mktemp("game") / "game.py"
    file.write_text(GAME, encoding="utf-8")
    command = [openenv, "-m", "helpers", "serve-environment", f"{file}:game", "--port", str(PORT)]
    server = subprocess.Popen(
        command,
        cwd=PROJECT,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    said = server.stdout.readline()
    assert said == f'environment="openenv:http://127.0.0.1:{PORT}" in notebook 10\n'
    address = f"openenv:http://127.0.0.1:{PORT}"
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            environment_named(address)
            break
        except ValueError:
            time.sleep(0.2)
    yield address
    server.terminate()
    server.wait()


@pytest.mark.slow
def test_the_laboratory_finds_of_a_served_game_what_it_finds_at_home(served):
    kind = environment_named(served)
    assert get_json_schema(kind().guess) == get_json_schema(Guessing().guess)
    labs = [
        Laboratory(Guarded(factory), oracle=Guessing._oracle)
        for factory in (kind, partial(Guessing, span=63))
    ]
    assert labs[0].episodes == labs[1].episodes and labs[0].verdict.go
    pd.testing.assert_frame_equal(labs[0].checks, labs[1].checks)


@pytest.mark.slow
def test_openenvs_own_client_plays_it(served, openenv):
    command = [openenv, "-c", CLIENT, served.removeprefix("openenv:")]
    said = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    game = Guessing(span=63)
    asked, (lower, misfit, unknown, found) = said[0], said[2]
    assert [asked, said[1]] == [game.reset(seed=18), 0.0]
    assert lower == ["Lower than 32.", None, 0.1, False] and found == [
        "Yes, it is 8.",
        None,
        1.0,
        False,
    ]
    assert "valid integer" in misfit[1]["message"] and misfit[0] is None
    assert unknown[1]["message"] == "Tool look not found."


@pytest.mark.slow
def test_notebook_10_trains_on_it_as_at_home_step_by_step(served):
    given = ["max_steps=4", "train_size=64", "holdout_size=32"]
    metrics = []
    for name, environment in (("served", [f"environment={served}"]), ("local", [])):
        assert pipeline.run(name, None, "10", [*given, *environment]) == 0
        metrics.append(pd.read_csv(Run(name).require("metrics.csv")))
    assert metrics[0]["reward"].nunique() > 1
    columns = ["step", "reward", "reward_std", "loss", "kl", "completions/mean_length"]
    pd.testing.assert_frame_equal(metrics[0][columns], metrics[1][columns], check_exact=True)


def test_without_openenv_the_command_says_how_to_install_it(capsys):
    assert main(["serve-environment", "helpers.agents:Guessing"]) == 2
    assert "openenv/bin/pip install openenv==0.10.0" in capsys.readouterr().err
    assert main(["serve-environment", "helpers.agents:ToolError"]) == 2
