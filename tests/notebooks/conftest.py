"""The notebooks executed as a batch user would."""

import os
import shutil

import papermill
import pytest
from filelock import FileLock
from reading import cells, notebook

from helpers.commands.notebooks import NOTEBOOKS
from helpers.runs import Run

# the few steps of a lesson, unless a test asks for others
SMALL = {
    "00": {"max_steps": 4, "holdout_size": 16, "rewards": "correctness,format*0.25"},
    "07": {"max_steps": 6, "holdout_size": 64, "early_stopping": 6},
    "09": {"max_steps": 4, "holdout_size": 24, "samples": 4},
    "10": {
        "max_steps": 2,
        "train_size": 16,
        "holdout_size": 24,
        "per_device_train_batch_size": 16,
    },
    "11": {
        "max_steps": 4,
        "train_size": 64,
        "holdout_size": 24,
        "per_device_train_batch_size": 16,
        "shortcut_steps": 3,
    },
}


@pytest.fixture(scope="session")
def execute():
    """Executes a notebook through papermill, no helper of ours around it, and returns what it
    printed.
    """

    def execute(number: str, run: Run, **parameters) -> str:
        copy = run.path(f"notebooks/{notebook(number).name}")
        papermill.execute_notebook(
            str(notebook(number)),
            str(copy),
            {"run": run.name} | SMALL.get(number, {}) | parameters,
            cwd=str(NOTEBOOKS),
            progress_bar=False,
        )
        outputs = [output for cell in cells(copy) for output in cell.outputs]
        assert not [output for output in outputs if output.get("name") == "stderr"]
        return "".join(output.text for output in outputs if output.output_type == "stream")

    return execute


@pytest.fixture
def lesson(tmp_path_factory, tmp_path, execute, monkeypatch):
    """A function from 00, 07, 09, 10 or 11 to a copy of its run of few steps, which is executed once
    for all processes of the session, and what it printed.
    """
    together = tmp_path_factory.getbasetemp()
    together = (together.parent if "PYTEST_XDIST_WORKER" in os.environ else together) / "lessons"
    together.mkdir(exist_ok=True)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    def lesson(number: str) -> tuple[Run, str]:
        name = f"lesson{number}"
        printed = together / f"{name}.txt"
        with FileLock(f"{printed}.lock"):
            if not printed.exists():
                monkeypatch.setenv("GRPO_RUNS_DIR", str(together))
                printed.write_text(execute(number, Run(name)), encoding="utf-8")
        monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path / "lessons"))
        for folder in together.glob(f"{name}*/"):  # 09 makes two runs
            shutil.copytree(folder, Run(folder.name).folder, dirs_exist_ok=True)
        return Run(name), printed.read_text(encoding="utf-8")

    return lesson
