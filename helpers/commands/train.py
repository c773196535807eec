"""Notebook 03 as a plain process, so that torchrun and accelerate can start it several times over:
one training, many GPUs.

There is no second copy of the training: the notebook's own code cells are executed here, in order,
with parameters put in as papermill does. Exercises are left out. Every rank executes them; rank 0
alone prints, tracks and writes the run folder (but for one file a rank in each checkpoint,
`rng_state_<rank>.pth`, which Transformers needs to go on from it).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import linecache
import os
import sys
import time
import traceback
from pathlib import Path

from IPython.display import display
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook

from helpers.commands import arguments, pipeline
from helpers.runs import Run
from helpers.training import ranks

_NOT_TRAINING = {"check", "exercise", "solution"}


def train(
    run: str,
    parameters: list[str],
    fresh: bool = False,
    resume: bool = False,
    processes: int | None = None,
) -> int:
    """Train what notebook 03 trains, in this process and those that a launcher has started beside
    it. Returns the exit code.

    What `run --only 03` would refuse is refused here, and what was asked for is noted alike, so
    that `run --resume`, 04 and 05 go on from it. In one sentence, before anything is loaded: ranks
    that do not fit together, and, unless it is None, another number of `processes` than these.
    """
    try:
        rank, started = ranks.started()
        if processes is not None and processes < 1:
            raise ValueError(
                f"--processes {processes} is not a number of processes: give an integer of at "
                "least 1."
            )
        if processes not in (None, started):
            if rank > 0:
                return 2  # rank 0 says it
            raise ValueError(_other_number(processes, started))
        ranks.join()
        code = _train(Run(run), arguments.parameters(parameters), fresh, resume)
    except KeyboardInterrupt:
        code = 130
    except Exception as error:
        if ranks.world() == 1:
            raise
        code = _tell(error, "error")
    if code == 0:
        ranks.leave()
    elif ranks.world() > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        # at once: an orderly end would wait for the other ranks, which wait for this one
        os._exit(code)
    return code


def _train(folder: Run, given: dict, fresh: bool, resume: bool) -> int:
    if not ranks.is_first():
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (as long as the process lasts)
    _check_alike(folder)
    print(_processes())
    asked = ranks.from_first(lambda: arguments.last(folder)) if resume else None
    if resume and "03" not in arguments.left(asked):
        raise ValueError(
            f"there is no training to resume in {folder.show()}. Start one without --resume."
        )
    if resume and "01" in arguments.left(asked):
        raise ValueError(
            f"its data is not prepared yet: go on with `python -m helpers run --run {folder.name} "
            "--resume`."
        )
    if asked:
        given = {
            name: value
            for name, value in asked["parameters"].items()
            if name in pipeline.defaults(["03"])
        }
    pipeline.check(folder.name, ["03"], given)
    folder.section("data")  # FileNotFoundError where 01 has not prepared the run
    if ranks.is_first():
        return pipeline.execute_here(folder, ["03"], given, execute, fresh, asked)
    return (
        0
        if execute(
            next(pipeline.NOTEBOOKS.glob("03_*.ipynb")), folder, {"run": folder.name} | given
        )
        else 1
    )


def _check_alike(folder: Run) -> None:
    """ValueError where the ranks see other runs, other data or other packages."""
    data = folder.manifest.get("data", {}).get("fingerprint")
    unseen = [number for number, found in enumerate(ranks.gathered(data is not None)) if not found]
    if unseen and len(unseen) < ranks.world():
        raise ValueError(
            f"rank {unseen[0]} does not see the data of {folder.show()}: all machines of a "
            "training need one runs folder, on a "
            "disk that they share. GRPO_RUNS_DIR names it."
        )
    ranks.check_alike(data=data)


def _processes() -> str:
    """How many processes train, and how to start more where there are GPUs for them."""
    if ranks.world() > 1:
        return f"{ranks.world()} processes"
    import torch

    cards = torch.cuda.device_count()
    more = (
        f"; this machine has {cards} GPUs: `torchrun --nproc-per-node {cards} -m helpers train …`"
        if cards > 1
        else ""
    )
    by_accelerate = (
        "; accelerate launch starts several only with GPUs, torchrun also without"
        if _of_accelerate()
        else ""
    )
    return f"1 process{more or by_accelerate}"


def _of_accelerate() -> bool:
    return "ACCELERATE_MIXED_PRECISION" in os.environ


def _other_number(asked: int, started: int) -> str:
    said = f"--processes {asked}, and {started} {'was' if started == 1 else 'were'} started."
    if started == 1 and _of_accelerate():
        said += " Without GPUs accelerate launch starts one process, whatever --num_processes says."
    return f"{said} Start them with `torchrun --nproc-per-node {asked} -m helpers train …`."


def execute(path: Path, run: Run, parameters: dict, in_place: bool = False) -> bool:
    """Execute a notebook's code cells, but for its exercises, in this process; whether they went
    through.

    One namespace, as a kernel has it. What a cell raises is printed with the notebook and the cell
    in its traceback. There is no executed copy, and an earlier one goes: it would tell of another
    training. in_place: not supported.
    """
    ranks.gathered(None)  # rank 0 may have refused the call by now
    if ranks.is_first():
        (run.folder / "notebooks" / path.name).unlink(missing_ok=True)
    notebook = parameterize_notebook(load_notebook_node(str(path)), parameters)
    names, number, where = {"__name__": "__main__", "display": display}, 0, ""
    with contextlib.chdir(path.parent):  # where papermill has a kernel start
        try:
            for cell in notebook.cells:
                tags = set(cell.metadata.get("tags", []))
                number += "injected-parameters" not in tags  # as the notebook's reader counts
                if cell.cell_type == "code" and not tags & _NOT_TRAINING:
                    where = f"{path.name}, cell {number}"
                    _execute_cell(cell.source, where, names)
        except Exception as error:
            _tell(error, f"{where}: {type(error).__name__}", run)
            return False
    return True


def _execute_cell(source: str, where: str, names: dict) -> None:
    # for tracebacks, and inspect
    linecache.cache[where] = (len(source), None, source.splitlines(keepends=True), where)
    exec(compile(source, where, "exec"), names)


def _tell(error: BaseException, what: str, run: Run | None = None) -> int:
    """Say what ended this rank, unless another was first, to whom that is owed; the exit code."""
    whose = f"rank {ranks.rank()}: " if ranks.world() > 1 else ""
    message = f"{what}: {whose}{error}"
    if ranks.lost(error):
        message = (
            f"error: {whose}the connection to another rank broke: its process was killed, or ran "
            "out of memory. What was saved "
            "is whole; give the same command again to go on from the last checkpoint."
        )
    if ranks.rank() and isinstance(error, (ValueError, OSError)):
        # what every rank refuses, rank 0 says: the one that torchrun then shows as the cause
        time.sleep(1)
    if ranks.fails_first():
        if run is not None and not ranks.lost(error):
            traceback.print_exception(error)
        print(f"\n{message}", file=sys.stderr, flush=True)
        # torchrun repeats it below its own list of what it has ended
        if report := os.environ.get("TORCHELASTIC_ERROR_FILE"):
            told = {"message": message, "extraInfo": {"timestamp": str(int(time.time()))}}
            Path(report).write_text(json.dumps({"message": told}), encoding="utf-8")
    return 2 if isinstance(error, (ValueError, OSError)) else 1


# --- The command ----------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `train` takes."""
    parser.add_argument(
        "--run", metavar="NAME", help="the run that 01 has prepared (default: demo)"
    )
    # torchrun takes `--run` for an abbreviation of its own `--run-path`, wherever it stands.
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="the same, as torchrun lets it through"
    )
    arguments.add_parameters(
        parser, "a parameter of notebook 03, e.g. -p max_steps=20; may be repeated"
    )
    parser.add_argument(
        "--vllm-server", metavar="URL", help="let `trl vllm-serve` sample, at http://HOST:PORT"
    )
    parser.add_argument(
        "--processes",
        type=int,
        metavar="N",
        help="refuse to train with another number of processes",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on with an interrupted training, with the parameters it had",
    )
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="start anew where an interrupted training would be given up",
    )


def main(parsed: argparse.Namespace) -> int:
    """Train; the exit code."""
    given = list(parsed.parameters)
    if parsed.vllm_server:
        given.append(f"vllm_server={parsed.vllm_server}")
    if parsed.resume and (given or parsed.fresh):
        raise ValueError(
            "--resume takes up what was asked for last time; give no parameter and no --fresh "
            "beside it."
        )
    if parsed.run and parsed.name:
        raise ValueError(f"name one run: {parsed.run!r} or {parsed.name!r}.")
    run = parsed.run or parsed.name or "demo"
    return train(run, given, parsed.fresh, parsed.resume, parsed.processes)
