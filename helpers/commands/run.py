"""`python -m helpers run`: execute notebooks through papermill, into `runs/NAME/`.

`run_notebooks` reads the command and groups the notebooks by run, and `execute` executes those of
one run in order. Whatever can be refused is refused before the first notebook starts (`checks.py`).
While a notebook runs, its progress is printed (`engine.py`).
"""

import argparse
import json
import logging
import os
import signal
import sys
import time

from helpers import commands, presets
from helpers.commands.checks import check_call, check_names
from helpers.commands.notebooks import defaults, notebook_paths, parameters_of, run_notebook
from helpers.parameters import read_parameters
from helpers.runs import GIVEN, LESSONS, MAKERS, PARTS, PIPELINE, TRAINING_LOCK, Run, lock
from helpers.settings import SETTINGS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `run`."""
    parser.add_argument(
        "--run",
        metavar="NAME",
        help="the run folder under runs/ (default: the notebooks' own; demo for 01 to 05)",
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
    return resume(parsed.run or "demo")


def run_notebooks(
    name: str | None,
    preset: str | None,
    only: str | None,
    parameters: list[str],
    once: bool = False,
) -> int:
    """Execute the notebooks named on the command line; return the exit code, as `execute`.

    name: the run; with None, each notebook writes to its own default run.
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
        run = name or defaults([number])["run"]
        notebooks_of_run.setdefault(run, []).append(number)

    # 2. Check every later run before the first one starts; `execute` checks the first.
    for run, notebooks in list(notebooks_of_run.items())[1:]:
        check_call(run, notebooks, parameters_of(notebooks, values))

    # 3. Execute one run after the other, until one fails.
    for run, notebooks in notebooks_of_run.items():
        given = parameters_of(notebooks, values)
        if once and Run(run).is_last_call(notebooks, given):
            code = resume(run)
        else:
            code = execute(run, notebooks, given)
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
    """Execute notebooks in order into runs/<name>/notebooks/ and print the results; return 0, or 1
    if a notebook failed.

    resumed: whether the notebooks are the rest of the run's last command. Raise ValueError or
    OSError for a call that `check_call` refuses, and for a run that another process executes;
    nothing is written then.
    """
    run = Run(name)
    check_call(name, numbers, parameters)
    if numbers[0] not in PARTS["data"].notebooks and not run.folder.is_dir():
        run.section("data")  # raises, and names the runs that are there
    end_like_ctrl_c()
    with lock(run.folder, f"run {name!r}"):
        # 1. Refuse a run that a kernel in Jupyter is training.
        if set(numbers) & set(MAKERS):
            with lock(run.folder, f"the training of run {name!r}", TRAINING_LOCK):
                pass

        # 2. Record the call, for --resume, before the first notebook starts.
        call = run.last_call
        if resumed:
            print(
                f"resuming run {name!r} with {', '.join(numbers)}, {parameters or 'no parameters'}"
            )
            saved = run.folder.glob("checkpoints/checkpoint-*/trainer_state.json")
            if numbers[0] == "03" and not any(saved):
                print("no checkpoint was saved, so notebook 03 starts from the beginning")
        else:
            if run.is_last_call(numbers, parameters) and not run.notebooks_left():
                print(
                    f"note: this command was finished in run {name!r}; it executes "
                    f"{', '.join(numbers)} again. With --once, it would not."
                )
            call |= {"parameters": parameters, "notebooks": numbers, "done": []}
        run.record("call", **call)

        # 3. Kernels start in notebooks/; let them import modules from the folder of the command,
        # too. The dictionary drops paths that are there twice.
        paths = [os.getcwd(), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, paths)))

        # 4. Execute one notebook after the other, and record each that is done. Its kernel cannot
        # tell a parameter that was given from its default; GIVEN tells it, for the manifest.
        again = f"`python -m helpers run --run {name} --resume`"
        began = time.monotonic()
        for number in numbers:
            values = parameters_of([number], parameters)
            call["given"][number] = values
            run.record("call", **call)
            os.environ[GIVEN] = json.dumps(values)
            try:
                succeeded = run_notebook(notebook_paths()[number], run, {"run": name} | values)
            except KeyboardInterrupt:
                # hide the errors that asyncio would print about the stopped kernel
                logging.getLogger("asyncio").setLevel(logging.CRITICAL)
                print(
                    f"\nEverything saved so far is intact; continue with {again}.", file=sys.stderr
                )
                raise
            if not succeeded:
                print(
                    f"Once the cause is gone, continue with {again}. If a parameter is the cause, "
                    "type the command again with another value.",
                    file=sys.stderr,
                )
                return 1
            call["done"].append(number)
            run.record("call", **call)
        plural = "s" if len(numbers) > 1 else ""
        print(f"\n{len(numbers)} notebook{plural} in {time.monotonic() - began:.0f} s")
        _print_result(run, numbers)
    return 0


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
    if run.evaluation and {"05", *LESSONS} & set(numbers):
        from helpers.results.tables import summary

        print("\n".join(["", *summary(run.evaluation), ""]))
    print(f"everything is in {run.show()}")
    for part in ("reward_report.json", "evaluation.json", "merged"):
        if why := run.outdated(part):
            print(f"note: {why}")
