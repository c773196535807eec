"""A class of thirty folders, made of the files of one real run: finished, on the way, failed,
corrupt, and strangely named.
"""

import contextlib
import io
import json
import os
import random
import shutil
from pathlib import Path

import pandas as pd

SCRIPT = "<script>console.log('pwned')<x>"
PLAIN = [
    "ada",
    "ben",
    "carla",
    "dilek",
    "emil",
    "fatma",
    "greta",
    "hugo",
    "ines",
    "jan",
    "kofi",
    "lena",
    "mia",
    "noor",
    "otto",
]
PLAIN += ["pia", "quentin", "rosa", "sami", "tom", "uwe"]
NAMED = [
    "Jörg Müller",
    "Zoë with space",
    SCRIPT,
    "wrong",
    "failed",
    "corrupt",
    "training",
    "scaled",
    "link",
]
LEAVES = {  # what each notebook of the run leaves, beside its copy
    "01": ("data_report.json",),
    "02": ("reward_report.json",),
    "03": ("metrics.csv",),
    "04": ("figures/loss.png",),
    "05": ("evaluation.json",),
}
SECTIONS = {
    "01": ["data"],
    "02": ["rewards"],
    "03": ["training"],
    "04": [],
    "05": ["merge", "served"],
}


def copy_until(run: Path, to: Path, last: str) -> Path:
    """The run as it is after one of its notebooks."""
    numbers = [number for number in LEAVES if number <= last]
    names = [name for number in numbers for name in LEAVES[number]]
    names += [
        f"notebooks/{path.name}"
        for path in (run / "notebooks").iterdir()
        if path.name[:2] in numbers
    ]
    for name in names:
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(run / name, to / name)
    manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    kept = {key: manifest[key] for number in numbers for key in SECTIONS[number] if key in manifest}
    (to / "manifest.json").write_text(json.dumps(kept))
    return to


def edit(path: Path, change) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content["cells"])
    path.write_text(json.dumps(content), encoding="utf-8")


def source(cell: dict) -> str:
    return "".join(cell["source"])


def fail_at(number: int, name: str, message: str):
    """A change: a cell raises, and what comes after it has not run."""

    def change(cells):
        ran = [
            cell
            for cell in cells
            if cell["cell_type"] == "code" and cell["execution_count"] is not None
        ]
        ran[number]["outputs"] = [
            {"output_type": "error", "ename": name, "evalue": message, "traceback": ["\x1b[31mno"]}
        ]
        for cell in ran[number + 1 :]:
            cell["outputs"], cell["execution_count"] = [], None

    return change


def answer(name: str, value: object):
    """A change: an exercise answered so, with what its own check says to that."""

    def change(cells):
        (check,) = (source(cell) for cell in cells if f"def check_{name}(" in source(cell))
        (cell,) = (
            c
            for c in cells
            if "exercise" in c["metadata"].get("tags", []) and f"check_{name}(" in source(c)
        )
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            names: dict = {}
            exec(check, names)
            print(names[f"check_{name}"](value))
        cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": said.getvalue()}]

    return change


def wobble(path: Path, dice: random.Random, factor: float = 1.0) -> None:
    """Another curve of the same length: no two students have the same."""
    table = pd.read_csv(path)
    late = dice.uniform(-0.25, 0.1)
    table["reward"] = [
        factor * (r + late * n / len(table) + dice.gauss(0, 0.05))
        for n, r in enumerate(table["reward"])
    ]
    table.to_csv(path, index=False)


def make_class(run: Path, folder: Path, outside: Path) -> Path:
    """Thirty entries in `folder`: 21 ordinary ones, and those of NAMED; `link` points to `outside`.
    Returns the folder.
    """
    dice = random.Random(7)
    for at, name in enumerate(PLAIN):
        made = copy_until(run, folder / name / "demo", "05" if at % 4 == 0 else f"0{1 + at % 5}")
        if (made / "metrics.csv").exists():
            wobble(made / "metrics.csv", dice)
    for name in NAMED[:6]:
        copy_until(run, folder / name / "runs" / "demo", "04")
    copies = {name: folder / name / "runs" / "demo" / "notebooks" for name in NAMED[:6]}
    edit(copies["wrong"] / "01_data_preparation.ipynb", answer("leak", 0.5))
    edit(copies["Jörg Müller"] / "01_data_preparation.ipynb", answer("leak", 900 / 999))
    edit(
        copies["failed"] / "04_training_metrics.ipynb",
        fail_at(5, "KeyError", f"\x1b[31m'reward'\x1b[0m {SCRIPT}"),
    )
    (folder / "failed/runs/demo/figures/loss.png").unlink()
    corrupt(folder / "corrupt" / "runs" / "demo")
    training = copy_until(run, folder / "training" / "demo", "02")
    (training / "checkpoints").mkdir()
    pd.read_csv(run / "metrics.csv").head(5).to_csv(
        training / "checkpoints/metrics.csv", index=False
    )
    (training / "checkpoints/settings.json").write_text('{"settings": {"max_steps": 12}}')
    wobble(copy_until(run, folder / "scaled", "03") / "metrics.csv", dice, 100)
    os.symlink(outside, folder / "link")
    return folder


def corrupt(run: Path) -> None:
    """Half-written files, bytes that are no text, a nesting without end, a link to elsewhere, a
    pipe that nobody writes to.
    """
    notebook = run / "notebooks/02_reward_functions.ipynb"
    notebook.write_bytes(notebook.read_bytes()[:5000])
    (run / "notebooks/01_data_preparation.ipynb").write_text("[" * 200_000)
    (run / "notebooks/03_grpo_training.ipynb").write_text('{"cells": [3]}')
    (run / "metrics.csv").write_bytes(bytes(range(256)) * 100)
    (run / "manifest.json").write_text('{"data": {"written": "yesterday"}}')
    (run / "reward_report.json").unlink()
    os.symlink("/etc/passwd", run / "reward_report.json")
    (run / "notebooks/04_training_metrics.ipynb").unlink()
    if hasattr(os, "mkfifo"):
        os.mkfifo(run / "notebooks/04_training_metrics.ipynb")
