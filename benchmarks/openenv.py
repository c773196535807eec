"""Notebook 10 on number guessing here, and on the same game behind OpenEnv's own server.

    python -m benchmarks.openenv --python openenv/bin/python

`--python` is a Python that has openenv==0.10.0. Rewards by step go to benchmarks/results/openenv.csv,
and the rest to openenv.md.
"""

import argparse
import os
import shutil
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd

from helpers import PROJECT
from helpers.agents import environment_named
from helpers.commands import pipeline
from helpers.runs import Run

RESULTS = PROJECT / "benchmarks" / "results" / "openenv.csv"
GAME = "from helpers.agents import Guessing\n\n\ndef game():\n    return Guessing(span=63)\n"
GUESSES, AT_ONCE = 1000, 16


def rewards(name: str, environment: list[str]) -> pd.Series:
    """The mean reward of each step of notebook 10's training."""
    run = Run(f"openenv-{name}")
    shutil.rmtree(run.folder, ignore_errors=True)
    if pipeline.run(run.name, None, "10", environment):
        raise SystemExit(f"notebook 10 failed; see {run.show('notebooks')}")
    return pd.read_csv(run.require("metrics.csv"), index_col="step")["reward"].dropna()


def guesses_a_second(kind: type, at_once: int) -> float:
    """Of so many sessions that guess at once; a new episode after each dozen."""

    def play(seed: int) -> None:
        game = kind()
        for number in range(GUESSES):
            if number % 12 == 0:
                game.reset(seed=seed)
            game.guess(number=64)

    began = time.perf_counter()
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(play, range(at_once)))
    return at_once * GUESSES / (time.perf_counter() - began)


def main() -> None:
    """Serve the game, train twice, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", required=True, help="a Python that has openenv")
    parser.add_argument("--port", type=int, default=8001)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "game.py")
        file.write_text(GAME, encoding="utf-8")
        command = [given.python, "-m", "helpers", "serve-environment", f"{file}:game"]
        server = subprocess.Popen([*command, "--port", str(given.port)], cwd=PROJECT)
        try:
            time.sleep(20)
            address = f"openenv:http://127.0.0.1:{given.port}"
            kind = environment_named(address)
            speeds = {f"{count}": guesses_a_second(kind, count) for count in (1, AT_ONCE)}
            served = rewards("served", [f"environment={address}"])
        finally:
            server.terminate()
    table = pd.DataFrame({"local": rewards("local", []), "served": served})
    table.to_csv(RESULTS)
    text = f"""# Number guessing behind OpenEnv's server

`python -m benchmarks.openenv --python openenv/bin/python`, with openenv 0.10.0, server and trainer on the same {os.cpu_count()} cores.

- Notebook 10, seed 3407, {len(table)} steps of 64 episodes: the mean reward of a step is the same in {(table["local"] == table["served"]).sum()} of {len(table)} steps
  (`openenv.csv`); it went from {table["served"].iloc[0]:.3f} to {table["served"].iloc[-1]:.3f}.
- Guesses per second, a new session for each dozen: {speeds["1"]:,.0f} one session at a time, {speeds[str(AT_ONCE)]:,.0f} with {AT_ONCE} sessions at once, measured beside other work.
"""
    RESULTS.with_suffix(".md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
