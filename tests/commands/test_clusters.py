"""The examples for clusters, each read by the tool it is for, and each line reaching `python` as it
was emitted.
"""

import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub.cli._cli_utils import parse_volumes

from helpers import PROJECT

EXAMPLES = PROJECT / "helpers" / "commands" / "clusters"
GIVEN = shlex.split("-m helpers run --once --run a -p 'preset=\"pocket\"'")
GIVEN += ["-p", 'source="it\'s a file; $HOME"']
LINES = [
    "python -m helpers run --run other",
    shlex.join(["python", *GIVEN]),
    "python -m helpers run --run third",
]
HF = shutil.which("hf", path=Path(sys.executable).parent)


@pytest.fixture
def checkout(tmp_path):
    """A folder with points.txt and an environment whose `python` writes down what it is given, as
    JSON.
    """
    (tmp_path / "points.txt").write_text("\n".join(LINES) + "\n")
    tools = tmp_path / ".venv" / "bin"
    tools.mkdir(parents=True)
    (tools / "activate").write_text(f'PATH="{tools}:$PATH"\n')
    executable(
        tools / "python",
        f'exec {sys.executable} -c "import json, sys; print(json.dumps(sys.argv[1:]))" "$@"',
    )
    return tmp_path


def executable(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def bash(*arguments, folder: Path, **environment) -> subprocess.CompletedProcess:
    environment = {name: str(value) for name, value in environment.items()}
    command = ["bash", *map(str, arguments)]
    return subprocess.run(
        command, cwd=folder, env=os.environ | environment, capture_output=True, text=True
    )


def test_a_task_of_the_slurm_array_runs_its_own_line(checkout):
    slurm = {"SLURM_SUBMIT_DIR": checkout, "SLURM_ARRAY_TASK_ID": 2}
    ran = bash(EXAMPLES / "slurm.sbatch", "points.txt", folder="/", **slurm)
    assert ran.returncode == 0 and json.loads(ran.stdout) == GIVEN


def test_each_line_is_a_job_by_the_parser_of_hf(checkout):
    executable(checkout / ".venv" / "bin" / "hf", f'shift 2; exec {HF} jobs run --dry-run "$@"')
    tools = f"{checkout / '.venv' / 'bin'}:{os.environ['PATH']}"
    ours = {
        "PATH": tools,
        "NAMESPACE": "me",
        "REPOSITORY": "https://host/suite",
        "HF_HUB_OFFLINE": 1,
        "NO_COLOR": 1,
    }
    ran = bash(EXAMPLES / "hf_jobs.sh", "points.txt", folder=checkout, **ours)
    assert ran.returncode == 0, ran.stderr
    jobs = [
        shlex.split(found)[2]
        for found in re.findall(r"^ *command +(bash -c .*)$", ran.stdout, re.MULTILINE)
    ]
    assert [job.partition("install && exec ")[2] for job in jobs] == LINES
    volume = "hf://buckets/me/grpo-runs:/runs"
    assert ran.stdout.count(volume) == 3 and parse_volumes([volume])[0].mount_path == "/runs"
