"""The example scripts for clusters: both are valid bash, and each SLURM array task runs its own line."""

import json
import os
import shlex
import subprocess
import sys

import pytest

from helpers import PROJECT

EXAMPLES = PROJECT / "helpers" / "commands" / "clusters"
GIVEN = shlex.split("-m helpers run --once --run a -p 'preset=\"pocket\"'")
GIVEN += ["-p", 'source="it\'s a file; $HOME"']


@pytest.mark.parametrize("name", ["slurm.sbatch", "hf_jobs.sh"])
def test_a_script_is_valid_bash(name):
    assert subprocess.run(["bash", "-n", EXAMPLES / name]).returncode == 0


def test_a_task_of_the_slurm_array_runs_its_own_line(tmp_path):
    lines = ["python -m helpers run --run other", shlex.join(["python", *GIVEN])]
    (tmp_path / "points.txt").write_text("\n".join(lines) + "\n")
    # an environment whose `python` prints its own arguments
    tools = tmp_path / ".venv/bin"
    tools.mkdir(parents=True)
    (tools / "activate").write_text(f'PATH="{tools}:$PATH"\n')
    tells = f"exec {sys.executable} -c 'import json, sys; print(json.dumps(sys.argv[1:]))' \"$@\"\n"
    (tools / "python").write_text(f"#!/bin/sh\n{tells}")
    (tools / "python").chmod(0o755)
    slurm = {"SLURM_SUBMIT_DIR": str(tmp_path), "SLURM_ARRAY_TASK_ID": "2"}
    command = ["bash", EXAMPLES / "slurm.sbatch", "points.txt"]
    ran = subprocess.run(command, env=os.environ | slurm, capture_output=True, text=True)
    assert ran.returncode == 0 and json.loads(ran.stdout) == GIVEN
