"""Notebook 03 as a plain process, so that torchrun and accelerate can start it several times over:
one training, many GPUs.

There is no second copy of the training: the notebook's own code cells are executed here, in order,
with parameters put in as papermill does. Exercises are left out. Every rank executes them; rank 0
alone prints, tracks and writes the run folder (but for one file a rank in each checkpoint,
`rng_state_<rank>.pth`, which Transformers needs to go on from it).
"""

import argparse
import contextlib
import linecache
import os
import sys
import traceback
from pathlib import Path

import pandas as pd
from IPython.display import display

from helpers.commands import arguments, pipeline
from helpers.runs import Run
from helpers.training import ranks

_NOT_TRAINING = {"check", "exercise", "solution"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `train` takes."""
    # torchrun takes `--run` for an abbreviation of its own `--run-path`, wherever it stands.
    named = parser.add_mutually_exclusive_group()
    named.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="the run that 01 has prepared (default: demo)",
    )
    named.add_argument("--run", metavar="NAME", help="the same, without torchrun")
    arguments.add_parameters(
        parser, "a parameter of notebook 03, e.g. -p max_steps=20; may be repeated"
    )
    parser.add_argument(
        "--vllm-server",
        dest="parameters",
        action="append",
        type=lambda url: f"vllm_server={url}",
        metavar="URL",
        help="let a vLLM server sample, at http://HOST:PORT",
    )
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="start anew where an interrupted training would be given up",
    )


def main(parsed: argparse.Namespace) -> int:
    """Train what notebook 03 trains, in this process and those that a launcher has started beside
    it; the exit code.

    What `run --only 03` would refuse is refused here, and what was asked for is noted alike, so
    that 04 and 05 go on from it, and the same command from where an interrupted training was. Ranks
    that do not fit together are refused before anything is loaded.
    """
    ranks.join()
    alone = ranks.world() == 1
    try:
        code = _train(
            Run(parsed.name or parsed.run or "demo"),
            arguments.parameters(parsed.parameters),
            parsed.fresh,
        )
    except KeyboardInterrupt:
        code = 130
    except Exception as error:
        if alone:
            raise
        code = _tell(error, "error")
    if code == 0:
        ranks.leave()
    elif not alone:
        sys.stdout.flush()
        # at once: an orderly end would wait for the other ranks, which wait for this one
        os._exit(code)
    return code


def _train(folder: Run, given: dict, fresh: bool) -> int:
    if not ranks.is_first():
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (for good)
    print(f"{ranks.world()} process{'es' * (ranks.world() > 1)}")
    pipeline.check(folder.name, ["03"], given)
    folder.section("data")  # FileNotFoundError where 01 has not prepared the run
    (notebook,) = pipeline.NOTEBOOKS.glob("03_*.ipynb")
    return 0 if execute(notebook, folder, {"run": folder.name} | given) else 1


def execute(path: Path, run: Run, parameters: dict) -> bool:
    """Execute a notebook's code cells, but for its exercises, in this process; whether they went
    through.

    One namespace, as a kernel has it. What a cell raises is printed with the notebook and the cell
    in its traceback. There is no executed copy, and an earlier one is removed, because it would
    show another training.
    """
    ranks.gathered(None)  # rank 0 may have refused the call by now
    if ranks.is_first():
        (run.folder / "notebooks" / path.name).unlink(missing_ok=True)
    # a table is printed here, and a terminal's width would cut it to "..."
    pd.set_option("display.max_columns", None, "display.width", 1_000)
    cells = pipeline.parameterized(path, parameters)
    names, where = {"__name__": "__main__", "display": display}, ""
    with contextlib.chdir(path.parent):  # where papermill has a kernel start
        try:
            for index, cell in enumerate(cells):
                tags = set(cell.metadata.get("tags", []))
                if cell.cell_type == "code" and not tags & _NOT_TRAINING:
                    where, source = pipeline.place(path, cells[: index + 1]), cell.source
                    # for tracebacks, and inspect
                    linecache.cache[where] = (len(source), None, source.splitlines(True), where)
                    exec(compile(source, where, "exec"), names)
        except Exception as error:
            _tell(error, f"{where}: {type(error).__name__}")
            return False
    return True


def _tell(error: Exception, what: str) -> int:
    """Print why this rank failed, unless another failed before it; the exit code.

    Another failure is the cause of this one, or the same as this one: this rank then waits until
    the other is gone, so that torchrun shows that one's error as the cause.
    """
    if ranks.fails_first():
        whose = f"rank {ranks.rank()}: " if ranks.world() > 1 else ""
        if what != "error":
            traceback.print_exception(error)
        print(f"\n{what}: {whose}{error}", file=sys.stderr, flush=True)
        if ranks.world() > 1:
            from torch.distributed.elastic.multiprocessing.errors import get_error_handler

            get_error_handler().record_exception(error)  # torchrun repeats it below its own list
    else:
        with contextlib.suppress(RuntimeError):
            ranks.gathered(None)  # breaks off as soon as the other has ended
    return 2 if isinstance(error, ValueError | OSError) else 1
