"""The notebooks as tests take them: read as they are committed, or executed as a batch user would."""

from pathlib import Path

import nbformat
import papermill
import pytest

from helpers.commands.pipeline import NOTEBOOKS
from helpers.runs import Run

# the few steps of a lesson, unless a test asks for others
SMALL = {
    "07": {"max_steps": 6, "holdout_size": 64, "early_stopping": 6},
    "09": {"max_steps": 4, "holdout_size": 24, "samples": 4},
    "10": {
        "max_steps": 2,
        "train_size": 16,
        "holdout_size": 24,
        "per_device_train_batch_size": 16,
    },
}


@pytest.fixture(scope="session")
def notebook():
    """A function from a notebook's number to its path."""

    def notebook(number: str) -> Path:
        (path,) = NOTEBOOKS.glob(f"{number}_*.ipynb")
        return path

    return notebook


@pytest.fixture(scope="session")
def cells():
    """A function from a notebook's path to its cells of code."""

    def cells(path: Path) -> list:
        return [
            cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"
        ]

    return cells


@pytest.fixture(scope="session")
def said(cells):
    """What a notebook printed, with its tables as text; or what the one cell with a line did."""

    def said(path: Path, line: str = "") -> str:
        chosen = [cell for cell in cells(path) if line in cell.source]
        assert not line or len(chosen) == 1, line
        outputs = [output for cell in chosen for output in cell.outputs]
        return "\n".join(
            output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs
        )

    return said


@pytest.fixture(scope="session")
def defined(notebook, cells):
    """A function to what the cells with these lines of a notebook define, given the names that they
    take over from its other cells.
    """

    def defined(number: str, *lines: str, **names) -> dict:
        for cell in cells(notebook(number)):
            if any(line in cell.source for line in lines):
                exec(cell.source, names)
        return names

    return defined


@pytest.fixture(scope="session")
def execute(notebook, cells):
    """Executes a notebook through papermill, no helper of ours around it, and returns what it
    printed.

    instead: another file in its place.
    """

    def execute(number: str, run: Run, instead: Path | None = None, **parameters) -> str:
        copy = run.path(f"notebooks/{notebook(number).name}")
        papermill.execute_notebook(
            str(instead or notebook(number)),
            str(copy),
            {"run": run.name} | SMALL.get(number, {}) | parameters,
            cwd=str(NOTEBOOKS),
            progress_bar=False,
        )
        outputs = [output for cell in cells(copy) for output in cell.outputs]
        assert not [output for output in outputs if output.get("name") == "stderr"]
        return "".join(output.text for output in outputs if output.output_type == "stream")

    return execute


@pytest.fixture(scope="session")
def executed_lessons(tmp_path_factory):
    """The folder of the lessons' runs, and what each has printed."""
    return tmp_path_factory.mktemp("lessons"), {}


@pytest.fixture
def lesson(executed_lessons, execute, monkeypatch):
    """A function from 07, 09 or 10 to its run with few steps, executed once, and what it printed."""
    folder, printed = executed_lessons
    monkeypatch.setenv("GRPO_RUNS_DIR", str(folder))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    def lesson(number: str) -> tuple[Run, str]:
        run = Run(f"lesson{number}")
        if number not in printed:
            printed[number] = execute(number, run)
        return run, printed[number]

    return lesson
