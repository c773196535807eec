"""`python -m helpers run`: execute notebooks through papermill, into `runs/NAME/`.

`run_notebooks` reads the command and groups the notebooks by run, and `execute` executes those of
one run in order. Whatever can be refused is refused before the first notebook starts (`checks.py`).
While a notebook runs, its progress is printed (`papermill_engine.py`).
"""

import argparse
import json
import logging
import os
import signal
import sys
import time

from helpers import commands, presets
from helpers.commands.checks import check_call, check_names, check_parameters
from helpers.commands.notebooks import defaults, notebook_paths, parameters_of, run_notebook
from helpers.parameters import read_parameters
from helpers.results.tables import summary
from helpers.runs import GIVEN, LESSONS, MAKERS, PARTS, PIPELINE, TRAINING_LOCK, Run, lock
from helpers.settings import SETTINGS

_PIPELINE_RUN = "demo"  # the default run of notebooks 01 to 05; --resume without --run continues it
_MEASURES = {"05", *LESSONS}  # the notebooks that measure accuracies


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `run`."""
    parser.add_argument(
        "--run",
        metavar="NAME",
        help="the run folder under runs/ (default: the notebooks' own; "
        f"{_PIPELINE_RUN} for 01 to 05)",
    )
    parser.add_argument(
        "--preset",
        metavar="PRESET",
        help="settings for a kind of machine: auto, the default, picks by GPU memory; "
        f"{', '.join(presets.PRESETS)}",
    )
    parser.add_argument(
        "--only", metavar="NN,NN", help="only these notebooks, e.g. 03,04 (default: 01 to 05)"
    )
    commands.add_parameters(
        parser, "a parameter of a notebook, e.g. -p max_steps=20; may be repeated"
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="continue the run where it stopped, with the parameters it had",
    )
    parser.add_argument(
        "--once",
        action="store_true",
        help="if the same command ran before, execute only the notebooks it did not finish",
    )
    choices = [
        f"{name}: {', '.join(setting.metadata['may_be'])}"
        for name, setting in SETTINGS.items()
        if isinstance(setting.metadata["may_be"], list)
    ]
    parser.epilog = f"Values for -p: {'; '.join(choices)}. docs/settings.md has every setting."


def main(parsed: argparse.Namespace) -> int:
    """Execute the notebooks, or continue a run that stopped; return the exit code."""
    if not parsed.resume:
        return run_notebooks(
            parsed.run, parsed.preset, parsed.only, parsed.parameters, once=parsed.once
        )
    if parsed.preset or parsed.only or parsed.parameters or parsed.once:
        raise ValueError(
            "--resume repeats the run's last command. The only other option it accepts is --run "
            "NAME. To change a parameter, type the command again with the notebooks that are left, "
            "such as --only 03,04,05."
        )
    return resume(parsed.run or _PIPELINE_RUN)


def run_notebooks(
    given_name: str | None,
    preset: str | None,
    only: str | None,
    parameters: list[str],
    once: bool = False,
) -> int:
    """Execute the notebooks named on the command line; return the exit code, as `execute`.

    given_name: the run; with None, each notebook writes to its own default run.
    preset, only, parameters: the texts of `--preset`, `--only` and each `-p`.
    once: if the last command of a run was the same, execute only the notebooks it did not finish.
    """
    numbers = list(PIPELINE) if only is None else commands.notebook_numbers(only)
    values = read_parameters(parameters)
    if preset is not None:
        values["preset"] = preset
    check_names(numbers, values)

    # 1. Group the notebooks by run, because each lesson has its own default run.
    notebooks_of_run: dict[str, list[str]] = {}
    for number in numbers:
        name = given_name or defaults([number])["run"]
        notebooks_of_run.setdefault(name, []).append(number)

    # 2. Check every later run before the first one starts; `execute` checks the first.
    for name, notebooks in list(notebooks_of_run.items())[1:]:
        given = parameters_of(notebooks, values)
        settings = check_call(name, notebooks, given)
        check_parameters(given, settings)

    # 3. Execute one run after the other, until one fails.
    for name, notebooks in notebooks_of_run.items():
        given = parameters_of(notebooks, values)
        if once and Run(name).is_last_call(notebooks, given):
            code = resume(name)
        else:
            code = execute(name, notebooks, given)
        if code:
            return code
    return 0


def resume(name: str) -> int:
    """Execute the notebooks that a run's last command did not finish, with the same parameters;
    return the exit code.

    Raise ValueError if no command was started in this run.
    """
    run = Run(name)
    call = run.last_call
    if not call["notebooks"]:
        raise ValueError(
            f"there is nothing to resume in {run.show()}: no `python -m helpers run --run "
            f"{name}` was started there. Notebook 03 also continues from its last checkpoint if "
            "you run it again."
        )
    numbers = run.notebooks_left()
    if not numbers:
        print(
            f"run {name!r} is finished: {', '.join(call['done'])} are done. A call without "
            "--resume and --once starts it again."
        )
        _print_result(run, call["done"])
        return 0
    # the parameters may include some that only the finished notebooks have
    return execute(name, numbers, parameters_of(numbers, call["parameters"]), resumed=True)


def execute(name: str, numbers: list[str], parameters: dict, resumed: bool = False) -> int:
    """Execute notebooks in order, and print the accuracies of the run; return 0, or 1 if a notebook
    failed, which is then the last. The executed copies are in runs/<name>/notebooks/.

    resumed: whether the notebooks are the rest of the run's last command.

    Raise ValueError or OSError, before the first notebook, if `checks.py` refuses the call, if the
    notebooks need the data of a run that does not exist, or if another process executes or trains
    the run. Nothing of the run has changed then.
    """
    # 1. Refuse what cannot run, and notebooks that need prepared data, if the run does not exist:
    # `section` then raises FileNotFoundError, with the names of the runs that do.
    run = Run(name)
    settings = check_call(name, numbers, parameters)
    check_parameters(parameters, settings)
    needs_data = numbers[0] not in PARTS["data"].notebooks
    if needs_data and not run.folder.is_dir():
        run.section("data")

    end_like_ctrl_c()
    with lock(run.folder, f"run {name!r}"):
        # 2. Refuse a run that a kernel in Jupyter is training.
        if set(numbers) & set(MAKERS):
            with lock(run.folder, f"the training of run {name!r}", TRAINING_LOCK):
                pass

        # 3. Record the call for --resume, and execute one notebook after the other.
        if resumed:
            _print_resumed(run, numbers, parameters)
        else:
            _record_call(run, numbers, parameters)
        _let_kernels_import()
        began = time.monotonic()
        for number in numbers:
            if not _execute_one(run, number, parameters_of([number], parameters)):
                return 1
        plural = "s" if len(numbers) > 1 else ""
        print(f"\n{len(numbers)} notebook{plural} in {time.monotonic() - began:.0f} s")
        _print_result(run, numbers)
    return 0


def _print_resumed(run: Run, numbers: list[str], parameters: dict) -> None:
    """Print what is left of the run's last command, and whether its training begins anew."""
    print(f"resuming run {run.name!r} with {', '.join(numbers)}, {parameters or 'no parameters'}")
    saved = run.folder.glob("checkpoints/checkpoint-*/trainer_state.json")
    if numbers[0] == "03" and not any(saved):
        print("no checkpoint was saved, so notebook 03 starts from the beginning")


def _record_call(run: Run, numbers: list[str], parameters: dict) -> None:
    """Record what a command asks of a run, for --resume; say so if it is what the last one did."""
    if run.is_last_call(numbers, parameters) and not run.notebooks_left():
        print(
            f"note: this command was finished in run {run.name!r}; it executes "
            f"{', '.join(numbers)} again. With --once, it would not."
        )
    asked = {"parameters": parameters, "notebooks": numbers, "done": []}
    run.record("call", **run.last_call | asked)


def _let_kernels_import() -> None:
    """Let kernels, which start in notebooks/, also import modules from the command's folder."""
    paths = [os.getcwd(), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    # the dictionary drops paths that are there twice
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, paths)))


def _execute_one(run: Run, number: str, values: dict) -> bool:
    """Execute one notebook with these parameters, and record it as done if it succeeded; return
    whether it did.
    """
    # 1. Note the parameters that were given. The kernel cannot tell them from the defaults; GIVEN
    # tells it, for the manifest.
    call = run.last_call
    call["given"][number] = values
    run.record("call", **call)
    os.environ[GIVEN] = json.dumps(values)

    # 2. Execute the notebook. If it does not finish, say how to continue.
    again = f"`python -m helpers run --run {run.name} --resume`"
    try:
        succeeded = run_notebook(notebook_paths()[number], run, {"run": run.name} | values)
    except KeyboardInterrupt:
        # hide the errors that asyncio would print about the stopped kernel
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)
        print(f"\nEverything saved so far is intact; continue with {again}.", file=sys.stderr)
        raise
    if not succeeded:
        print(
            f"Once the cause is gone, continue with {again}. If a parameter is the cause, type "
            "the command again with another value.",
            file=sys.stderr,
        )
        return False

    # 3. Record that it is done.
    call["done"].append(number)
    run.record("call", **call)
    return True


def end_like_ctrl_c() -> None:
    """Let SIGTERM and SIGHUP end this process as Ctrl-C does, so that a kernel is ended and waited
    for: one that still runs could write while the next call does. An ignored signal (nohup) stays
    ignored.
    """
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number and signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)


def _print_result(run: Run, numbers: list[str]) -> None:
    """Print the accuracies if one of these notebooks measured them, the folder of the run, and a
    note about each file that an earlier training or earlier data left behind.
    """
    if run.evaluation and _MEASURES & set(numbers):
        print("\n".join(["", *summary(run.evaluation), ""]))
    print(f"everything is in {run.show()}")
    for part in ("reward_report.json", "evaluation.json", "merged"):
        if why := run.outdated(part):
            print(f"note: {why}")
