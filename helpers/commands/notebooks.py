"""One notebook: which parameters it takes, and how papermill executes it.

papermill writes a copy of the notebook with one more cell, which sets the parameters, and runs it
in a kernel of its own. `defaults` lists the parameters, and `run_notebook` executes.
"""

import logging
import sys
import time
from functools import lru_cache
from pathlib import Path

import papermill
from nbclient.exceptions import DeadKernelError
from papermill.exceptions import PapermillExecutionError
from papermill.iorw import load_notebook_node
from papermill.translators import papermill_translators

from helpers import PROJECT
from helpers.commands import papermill_engine  # noqa: F401  # registers papermill's engine
from helpers.parameters import read_value
from helpers.printing import escaped
from helpers.runs import Run
from helpers.settings import settings_of

NOTEBOOKS = PROJECT / "notebooks"
# The kernel of this interpreter. A notebook may name another one, from the editor that saved it.
KERNEL = {"kernel_name": "python3", "language": "python"}
# The tags of the cells of parameters. papermill sets parameters after the cell tagged "parameters".
# In 03 that one is folded, with seldom-used parameters; the ten before it are "first-parameters".
PARAMETER_TAGS = {"parameters", "first-parameters"}


def notebook_paths() -> dict[str, Path]:
    """Return the path of every notebook by its number."""
    return {path.name[:2]: path for path in sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))}


# --- Its parameters -------------------------------------------------------------------------------


def defaults(numbers: list[str]) -> dict[str, object]:
    """Return the parameters of these notebooks with their default values. If two notebooks have one
    parameter, the value of the later one counts, unless it is None.

    Raise ValueError if no notebook has one of the numbers.
    """
    paths = notebook_paths()
    values = {}
    for number in numbers:
        if number not in paths:
            raise ValueError(f"there is no notebook {number}. There are: {', '.join(paths)}.")
        # A notebook takes its settings also if its cell does not show them: that of 03 shows few.
        taken = dict.fromkeys(settings_of(number))
        for name, code in _shown_parameters(str(paths[number])).items():
            taken[name] = read_value(code)
        for name, default in taken.items():
            if default is not None or name not in values:
                values[name] = default
    return values


@lru_cache  # reads each notebook once
def _shown_parameters(path: str) -> dict[str, str]:
    """Return the parameters that a notebook's cells show, by name, with their default values as
    Python code. A notebook without such cells shows none.
    """
    inspect = papermill_translators.find_translator(**KERNEL).inspect
    return {
        parameter.name: parameter.default
        for cell in load_notebook_node(path).cells
        if PARAMETER_TAGS & {*cell.metadata.tags}
        for parameter in inspect(cell)
    }


def parameters_of(numbers: list[str], parameters: dict) -> dict:
    """Return the given parameters that these notebooks have."""
    known = defaults(numbers)
    return {name: value for name, value in parameters.items() if name in known}


# --- Its execution --------------------------------------------------------------------------------


def run_notebook(path: Path, run: Run, parameters: dict) -> bool:
    """Execute one notebook, saving the executed copy after each cell; return whether it succeeded.

    A failed cell or a dead kernel is reported on standard error.
    """
    copy = run.path(f"notebooks/{path.name}")
    began = time.monotonic()
    logging.getLogger("papermill").setLevel(logging.ERROR)
    print(f"{path.stem} …", flush=True)
    try:
        papermill.execute_notebook(
            str(path),
            str(copy),
            parameters,
            engine_name="helpers",
            # disable=None shows the bar only on a terminal
            progress_bar={"desc": path.stem, "leave": False, "disable": None},
            cwd=str(path.parent),
            **KERNEL,
        )
    except PapermillExecutionError as error:
        print(
            f"\n{path.name}, In [{error.exec_count}]: {error.ename}: {escaped(error.evalue)}\n"
            f"The whole traceback is in {run.show(f'notebooks/{path.name}')}. Files saved before "
            "are unchanged.",
            file=sys.stderr,
        )
        return False
    except DeadKernelError:
        print(
            f"\n{path.name}: the kernel died, usually because memory ran out. Try smaller "
            "settings.",
            file=sys.stderr,
        )
        return False
    print(f"{path.stem:<28}done  {time.monotonic() - began:5.1f} s", flush=True)
    return True
