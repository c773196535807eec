"""Notebook 03 as a script, so that torchrun and accelerate can start it several times over: one
training on many GPUs.

There is no second copy of the training: the script is the notebook's own code cells, with the
parameters put in as papermill does, and without the exercises.
"""

import argparse
import contextlib
import os
import sys

import pandas as pd
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook

from helpers import commands
from helpers.commands.run import check_call, notebook_paths
from helpers.runs import Run
from helpers.training import processes

_NOT_TRAINING = {"check", "exercise", "solution"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `train` takes; the name has no `--run`, which torchrun would take for its own."""
    parser.add_argument(
        "name",
        nargs="?",
        default="demo",
        metavar="NAME",
        help="the run that 01 has prepared (default: demo)",
    )
    commands.add_parameters(
        parser, "a parameter of notebook 03, e.g. -p max_steps=20; may be repeated"
    )


def main(parsed: argparse.Namespace) -> int:
    """Train what notebook 03 trains, together with the processes that a launcher has started beside
    this one; return 0.

    What `run --only 03` would refuse is refused before anything is loaded. A process that fails
    ends with its own error, and its launcher ends the others.
    """
    processes.join()
    run = Run(parsed.name)
    parameters = commands.parameters(parsed.parameters)
    # of several processes only the first prints
    if not processes.is_first():
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (for good)
    print(f"processes: {processes.count()}")
    check_call(run.name, ["03"], parameters)
    run.section("data")  # FileNotFoundError if 01 has not prepared the run

    # export the notebook, in place of an earlier copy, which shows another training
    notebook = notebook_paths()["03"]
    whole = parameterize_notebook(load_notebook_node(str(notebook)), {"run": run.name} | parameters)
    cells = [
        cell.source
        for cell in whole.cells
        if cell.cell_type == "code" and not _NOT_TRAINING & set(cell.metadata.get("tags", []))
    ]
    script = run.folder / "notebooks" / f"{notebook.stem}.py"
    source = "\n\n# %%\n".join(["from IPython.display import display", *cells])
    if processes.is_first():
        run.path(f"notebooks/{notebook.name}").unlink(missing_ok=True)
        script.write_text(source, encoding="utf-8")

    # execute it in the folder in which papermill starts a kernel
    # a table is printed here, and a terminal's width would cut it to "..."
    pd.set_option("display.max_columns", None, "display.width", 1_000)
    with contextlib.chdir(notebook.parent):
        exec(compile(source, str(script), "exec"), {"__name__": "__main__"})
    processes.leave()
    return 0
