"""The notebooks executed in a process that has Unsloth's GPU patches; see stand_in.py."""

from pathlib import Path

import nbformat
import papermill
import pytest

from helpers import PROJECT
from helpers.commands.pipeline import NOTEBOOKS


@pytest.fixture(scope="session")
def execute(tmp_path_factory):
    """A function that executes a notebook through papermill, its cells unchanged after the one that
    imports the stand-in, and returns what it printed.
    """
    folder = tmp_path_factory.mktemp("gpu")
    given = {
        "UNSLOTH_ALLOW_CPU": "1",
        "TORCHDYNAMO_DISABLE": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": f"{Path(__file__).parent}:{PROJECT}",
        "GRPO_RUNS_DIR": str(folder / "runs"),
    }

    def execute(number: str, run: str, **parameters) -> str:
        (path,) = NOTEBOOKS.glob(f"{number}_*.ipynb")
        book = nbformat.read(path, as_version=4)
        book.cells.insert(0, nbformat.v4.new_code_cell("import stand_in"))
        copy = folder / f"{run}_{path.name}"
        nbformat.write(book, copy)
        # the kernel's working directory: Unsloth writes its trainer there
        papermill.execute_notebook(
            str(copy), str(copy), {"run": run} | parameters, cwd=str(folder), progress_bar=False
        )
        cells = nbformat.read(copy, as_version=4).cells
        outputs = [output for cell in cells for output in cell.get("outputs", ())]
        return "".join(output.text for output in outputs if output.output_type == "stream")

    with pytest.MonkeyPatch.context() as patch:
        for name, value in given.items():
            patch.setenv(name, value)
        yield execute
