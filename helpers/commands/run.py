"""`python -m helpers run`: execute notebooks through papermill, into `runs/NAME/`.

`run_notebooks` reads the command, `execute` executes the notebooks of one run in order, and
`run_notebook` executes one. Whatever can be refused is refused before the first notebook starts
(`check_call`): papermill would only warn. While a notebook runs, its progress is printed (see
`engine`).
"""

import argparse
import json
import logging
import os
import signal
import sys
import time
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import papermill
from nbclient.exceptions import DeadKernelError
from papermill.exceptions import PapermillExecutionError
from papermill.iorw import load_notebook_node
from papermill.translators import PythonTranslator

from helpers import PROJECT, commands, presets
from helpers.commands import engine  # noqa: F401  # registers the engine that papermill uses
from helpers.data.prompts import example_turns
from helpers.data.sources import check_columns, check_source
from helpers.data.tasks import check_model
from helpers.environment import this_machine
from helpers.judging.answers import check_kind
from helpers.rewards import own
from helpers.rewards.controls import check_control
from helpers.runs import GIVEN, LESSONS, PARTS, TRAINING_LOCK, Run, check_seed, lock
from helpers.settings import (
    OF_TRAINING,
    SETTINGS,
    check_early_stopping,
    check_report_to,
    check_sampling_seconds,
    did_you_mean,
    problems,
)
from helpers.tags import THINK_ANSWER, TagFormat, escaped
from helpers.training import memory

PIPELINE = ("01", "02", "03", "04", "05")
NOTEBOOKS = PROJECT / "notebooks"
_MAKERS = ("01", "03", *LESSONS)  # write the data or the training of a run
_LOADERS = ("00", "02", "03", "05")  # load a model, as every lesson does
_EVALUATION = "05"
# The kernel of this interpreter. A notebook may name another one, from the editor that saved it.
KERNEL = {"kernel_name": "python3", "language": "python"}


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
    values = commands.parameters(parameters)
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
        if set(numbers) & set(_MAKERS):
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

        # 4. Execute one notebook after the other, and record each that is done.
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


# --- The notebooks and their parameters -----------------------------------------------------------


def notebook_paths() -> dict[str, Path]:
    """Return the path of every notebook by its number."""
    return {path.name[:2]: path for path in sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))}


@lru_cache  # reads each notebook once
def _shown_parameters(path: str) -> dict[str, str]:
    """Return the parameters that a notebook's cell shows, by name, with their default values as
    Python code. A notebook without such a cell shows none.
    """
    for cell in load_notebook_node(path).cells:
        if "parameters" in cell.metadata.tags:
            return {shown.name: shown.default for shown in PythonTranslator.inspect(cell)}
    return {}


def defaults(numbers: list[str]) -> dict[str, object]:
    """Return the parameters of these notebooks with their default values. If two notebooks have one
    parameter, the value of the later one counts, unless it is None.

    Raise ValueError for a number that no notebook has.
    """
    paths = notebook_paths()
    values = {}
    for number in numbers:
        if number not in paths:
            raise ValueError(f"there is no notebook {number}. There are: {', '.join(paths)}.")
        # A notebook takes its settings also if its cell does not show them: that of 03 shows few.
        # 00 prepares and trains, so it takes those of both, but always through Unsloth.
        parts = {"01", "03"} if number == "00" else {number}
        taken = {}
        for name, setting in SETTINGS.items():
            if parts & set(setting.metadata["of"]):
                taken[name] = None
        if number == "00":
            del taken["backend"]
        for name, code in _shown_parameters(str(paths[number])).items():
            taken[name] = commands.read_value(code)
        for name, default in taken.items():
            if default is not None or name not in values:
                values[name] = default
    return values


def parameters_of(numbers: list[str], parameters: dict) -> dict:
    """Return the given parameters that these notebooks have."""
    known = defaults(numbers)
    return {name: value for name, value in parameters.items() if name in known}


# --- What is refused ------------------------------------------------------------------------------


def check_names(numbers: list[str], parameters: dict) -> None:
    """Raise ValueError for a parameter that none of these notebooks has.

    The message names the notebooks that have it, or a parameter of a similar name.
    """
    known = defaults(numbers)
    for name in parameters:
        if name in known:
            continue
        takers = [number for number in notebook_paths() if name in defaults([number])]
        if name == "preset":
            raise ValueError(
                f"--preset is for notebooks {', '.join(takers)}. The others continue with the "
                "run's settings, so omit it."
            )
        if takers:
            hint = f"It is a parameter of {', '.join(takers)}. "
        else:
            hint = did_you_mean(name, defaults(list(notebook_paths())))
        if not hint:  # dozens of names help only somebody who is not near any of them
            hint = f"Their parameters: {', '.join(sorted(known.keys() - {'run'}))}."
        raise ValueError(f"no chosen notebook has a parameter {name!r}. {hint.strip()}")


def check_call(
    name: str, numbers: list[str], parameters: dict, another_machine: bool = False
) -> None:
    """Raise ValueError or OSError if these notebooks cannot run with these parameters; change
    nothing.

    another_machine: whether they will run on another machine; then this machine's GPU and memory do
        not matter.
    """
    check_names(numbers, parameters)

    # 1. A run holds one training, and belongs to the notebooks that made it.
    run = Run(name)
    makers = [number for number in numbers if number in _MAKERS]
    if len(makers) > 1 and makers != ["01", "03"]:
        raise ValueError(
            f"notebooks {', '.join(numbers)} would overwrite one another's run. Give each lesson "
            "its own --run, or none."
        )
    if makers:
        run.made_by(makers[0])
    if _EVALUATION in numbers:
        run.check_evaluable()

    # 2. Find where the settings start: from a preset, or from what the data was prepared with.
    lessons = set(LESSONS) & set(numbers)
    start = parameters.get("preset", defaults(numbers).get("preset"))
    if start is None and not lessons:
        start = run.manifest.get("data", {}).get("settings")

    # 3. Only notebooks that load a model need a machine for it; 02 may read completions instead.
    loading = set(_LOADERS) & set(numbers)
    if "completions" in parameters:
        loading.discard("02")
    loads = bool(loading | lessons) and not another_machine

    # 4. Check the settings.
    machine = this_machine()
    backend = "unsloth"
    given = {key: value for key, value in parameters.items() if key in SETTINGS}
    if start:
        # Of the lessons' small models, only that of 00 is known outside its notebook.
        settings = presets.settle(
            start,
            machine if loads else None,
            small={"model": "pocket"} if "00" in numbers else None,
            sees="11" in numbers,
            **given,
        )
        backend = settings.backend
        if loads and loading:
            memory.check(settings, machine)
    else:
        # The preset is not known: 07 chooses it by its source, and a run may not be prepared yet.
        # Types and ranges are the same for every preset.
        given = {key: value for key, value in given.items() if value is not None}
        if sentences := problems(replace(presets.PRESETS["pocket"], **given)):
            raise ValueError("these settings cannot run: " + " ".join(sentences))

    # 5. Check all other parameters, each by its own rule.
    others = {name: value for name, value in parameters.items() if name not in OF_TRAINING}
    check_parameters(others, backend)


def check_parameters(parameters: dict, backend: str = "unsloth") -> None:
    """Raise ValueError or OSError for a parameter that its notebook would refuse, without loading a
    model: a misspelt word must not end a run of hours in its last notebook.

    parameters: by name; a value of None is not checked. Settings of a preset are checked by
    `presets.settle`. Parameters that a notebook checks within seconds, such as
    10's `environment`, are left to it.
    backend: the library that trains, "unsloth" or "transformers".
    """
    parameters = {name: value for name, value in parameters.items() if value is not None}
    for name, value in parameters.items():
        if name in _RULES:
            _RULES[name](value)
        if name in _COUNTS and (type(value) is not int or value < 1):
            raise ValueError(
                f"{name}={value!r} is not a number of completions or questions: give an integer of "
                "at least 1."
            )
    if "source" in parameters:
        check_source(parameters["source"], parameters.get("columns"))
    wishes = {key: parameters[key] for key in ("merge", "gguf", "push_to_hub") if key in parameters}
    if wishes:
        from helpers.results.merging import check_merge  # takes seconds

        check_merge(backend, this_machine(), **wishes)


# Each function raises for a bad value of its parameter.
_RULES = {
    "seed": check_seed,
    "sampling_seconds": check_sampling_seconds,
    "early_stopping": check_early_stopping,
    "report_to": check_report_to,
    "tags": TagFormat.parse,
    "kind": check_kind,
    "control": check_control,
    "other_source": check_source,
    "rewards": lambda rewards: own.read_rewards(rewards, THINK_ANSWER),
    "judge": lambda judge: own.load_reward(str(judge), THINK_ANSWER, "judge"),
    "columns": check_columns,
    "examples": example_turns,
    "warm_start": example_turns,
    "model": check_model,
    "cases": os.stat,  # a FileNotFoundError names the file
    "completions": os.stat,
}
_COUNTS = {"groups", "batch_size", "samples", "sampled_questions"}


# --- One notebook, by papermill -------------------------------------------------------------------


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


def _print_result(run: Run, numbers: list[str]) -> None:
    """Print the accuracies if one of these notebooks measured them, the folder of the run, and a
    note about each file that an earlier training or earlier data left behind.
    """
    if run.evaluation and {_EVALUATION, *LESSONS} & set(numbers):
        from helpers.results.tables import summary

        print("\n".join(["", *summary(run.evaluation), ""]))
    print(f"everything is in {run.show()}")
    for part in ("reward_report.json", "evaluation.json", "merged"):
        if why := run.outdated(part):
            print(f"note: {why}")
