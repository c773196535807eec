"""`python -m helpers train`: notebook 03 as a script, for training on several GPUs.

torchrun or accelerate starts this command once per GPU. The script consists of the notebook's own
code cells without the exercises, with the parameters put in as papermill does, so the training code
exists only once.
"""

import argparse
import contextlib
import json
import os
import sys

import pandas as pd
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook

from helpers import commands, processes
from helpers.commands.checks import check_call, check_names, check_parameters
from helpers.commands.notebooks import KERNEL, notebook_paths
from helpers.parameters import read_parameters
from helpers.runs import GIVEN, Run

_NOT_TRAINING = {"check", "exercise", "solution"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `train`. The run is not `--run NAME`, an option that torchrun would take
    for its own.
    """
    parser.add_argument(
        "name",
        nargs="?",
        default="demo",
        metavar="NAME",
        help="the run prepared by notebook 01 (default: demo)",
    )
    commands.add_parameters(
        parser, "a parameter of notebook 03, e.g. -p max_steps=20; may be repeated"
    )


def main(parsed: argparse.Namespace) -> int:
    """Train as notebook 03 does, together with the launcher's other processes; return 0.

    Raise ValueError, before anything is loaded, if `run --only 03` would refuse the call. If a
    process fails, its launcher ends the others.
    """
    processes.join()
    run = Run(parsed.name)
    parameters = read_parameters(parsed.parameters)
    # let only the first process print
    if not processes.is_first():
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (for good)
    print(f"processes: {processes.count()}")
    check_names(["03"], parameters)
    settings = check_call(run.name, ["03"], parameters)
    check_parameters(parameters, settings)
    run.section("data")  # FileNotFoundError if 01 has not prepared the run

    # export the notebook as a script; an executed copy would show an earlier training
    notebook = notebook_paths()["03"]
    whole = parameterize_notebook(
        load_notebook_node(str(notebook)), {"run": run.name} | parameters, **KERNEL
    )
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

    os.environ[GIVEN] = json.dumps(parameters)
    # execute the script in the folder where papermill starts a kernel; print tables at full width
    pd.set_option("display.max_columns", None, "display.width", 1_000)
    with contextlib.chdir(notebook.parent):
        exec(compile(source, str(script), "exec"), {"__name__": "__main__"})
    processes.leave()
    return 0
