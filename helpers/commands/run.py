"""`python -m helpers run`: the notebooks through papermill, into runs/NAME/, with progress, and
refusing what papermill would only warn about.
"""

import argparse
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

from helpers import PROJECT, commands, presets
from helpers.commands import engine  # noqa: F401  # which papermill finds by its name
from helpers.data.sources import check_columns, check_model, check_source
from helpers.data.tasks import example_turns
from helpers.environment import this_machine
from helpers.rewards import own
from helpers.rewards.answers import kinds
from helpers.runs import LESSONS, TRAINING_LOCK, Run, check_seed, lock
from helpers.setting_rules import problems_alone
from helpers.tags import THINK_ANSWER, TagFormat
from helpers.training import memory
from helpers.training.run_settings import (
    check_early_stopping,
    check_sampling_seconds,
    settings_for,
)

PIPELINE = ("01", "02", "03", "04", "05")
NOTEBOOKS = PROJECT / "notebooks"
_MAKERS = ("01", "03", *LESSONS)  # they write the data or the training of a run
_LOADERS = ("00", "02", "03", "05")  # they load a model, as each lesson does
# the notebooks that have a rule of their own below
_QUICKSTART = "00"
_REWARDS = "02"
_TRAINING = "03"
_EVALUATION = "05"
_VISION = "11"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `run` takes."""
    parser.add_argument(
        "--run",
        metavar="NAME",
        help="the run folder under runs/ (default: the notebooks' own; demo for 01 to 05)",
    )
    parser.add_argument(
        "--preset",
        metavar="PRESET",
        help="settings for a kind of machine; auto, the default, picks by GPU memory",
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
        help="go on with the run where it stopped, with the parameters it had",
    )
    parser.add_argument(
        "--once",
        action="store_true",
        help="if the same was asked for before, only what is left of it",
    )


def main(parsed: argparse.Namespace) -> int:
    """Execute the notebooks, or go on with them; return the exit code."""
    typed = (parsed.preset, parsed.only, parsed.parameters, parsed.once)
    if not parsed.resume:
        return run_notebooks(parsed.run, *typed)
    if any(typed):
        raise ValueError(
            "--resume takes up what was asked for last time; give nothing beside it but --run NAME."
        )
    return resume(parsed.run or "demo")


def run_notebooks(
    name: str | None,
    preset: str | None,
    only: str | None,
    parameters: list[str],
    once: bool = False,
) -> int:
    """Execute the notebooks that the command line names; return the exit code, as `execute`.

    name: None is each notebook's own run, and a lesson has another than the pipeline. once: if the
    same was asked for last time, what is done of it is not done again, as with `resume`.
    """
    numbers = list(PIPELINE) if only is None else commands.notebook_numbers(only)
    values = commands.parameters(parameters)
    if preset is not None:
        values["preset"] = preset
    check_names(numbers, values)

    # each run gets the parameters that its notebooks take
    runs = {}
    for number in numbers:
        runs.setdefault(name or defaults([number])["run"], []).append(number)
    calls = [(run, part, parameters_of(part, values)) for run, part in runs.items()]
    for call in calls[1:]:  # before the first starts, which checks itself
        check_call(*call)
    for run, part, parameters_of_part in calls:
        asked_before = once and Run(run).is_last_call(part, parameters_of_part)
        code = resume(run) if asked_before else execute(run, part, parameters_of_part)
        if code:
            return code
    return 0


def resume(name: str) -> int:
    """Go on with the last call of a run where it stopped: the notebooks not yet done, with the same
    parameters; return the exit code.

    Raise ValueError if there is nothing to go on with.
    """
    run = Run(name)
    call = run.last_call
    if not call["notebooks"]:
        raise ValueError(
            f"there is nothing to resume in {run.show()}: no `python -m helpers run --run "
            f"{name}` was started there. Rerunning notebook 03 itself goes on from its last "
            "checkpoint, too."
        )
    numbers = run.notebooks_left()
    if not numbers:
        print(
            f"run {name!r} is finished: {', '.join(call['done'])} are done. A call without "
            "--resume and --once starts it anew."
        )
        _print_result(run, call["done"])
        return 0
    # what is done took parameters that these need not know
    return execute(name, numbers, parameters_of(numbers, call["parameters"]), resumed=True)


def execute(name: str, numbers: list[str], parameters: dict, resumed: bool = False) -> int:
    """Execute notebooks in order into runs/<name>/notebooks/ and print what came out; return the
    exit code.

    Everything that can be refused is refused before the first notebook starts and before anything
    is written: what `check_call` refuses, and a run that another process holds. resumed: these
    notebooks are what is left of the last call.
    """
    run = Run(name)
    check_call(name, numbers, parameters)
    end_like_ctrl_c()
    with lock(run.folder, f"run {name!r}"):
        # a kernel in Jupyter may be training it
        if set(numbers) & set(_MAKERS):
            with lock(run.folder, f"the training of run {name!r}", TRAINING_LOCK):
                pass

        # record the call, for --resume, before the first notebook starts
        call = run.last_call
        if resumed:
            print(
                f"resuming run {name!r} with {', '.join(numbers)}, {parameters or 'no parameters'}"
            )
            saved = run.folder.glob("checkpoints/checkpoint-*/trainer_state.json")
            if numbers[0] in (_TRAINING, *LESSONS) and not any(saved):
                print(f"no checkpoint was saved, so notebook {numbers[0]} begins anew")
        else:
            call |= {"parameters": parameters, "notebooks": numbers, "done": []}
        run.record("call", **call)

        # a kernel runs in notebooks/, and finds modules where the command was typed
        paths = [os.getcwd(), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, paths)))

        began = time.monotonic()
        for number in numbers:
            values = parameters_of([number], parameters)
            try:
                succeeded = run_notebook(notebook_paths()[number], run, {"run": name} | values)
            except KeyboardInterrupt:
                # asyncio would print what a task of the ended kernel still raises
                logging.getLogger("asyncio").setLevel(logging.CRITICAL)
                again = f"`python -m helpers run --run {name} --resume`"
                print(f"\nWhat was saved is whole; go on with {again}.", file=sys.stderr)
                raise
            if not succeeded:
                return 1
            call["done"].append(number)
            call["given"][number] = values
            run.record("call", **call)
        several = "s" * (len(numbers) > 1)
        print(f"\n{len(numbers)} notebook{several} in {time.monotonic() - began:.0f} s")
        _print_result(run, numbers)
    return 0


# --- The notebooks --------------------------------------------------------------------------------


def notebook_paths() -> dict[str, Path]:
    """Return all notebooks by their number."""
    return {path.name[:2]: path for path in sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))}


_inspect = lru_cache(papermill.inspect_notebook)


def defaults(numbers: list[str]) -> dict[str, object]:
    """Return the parameters that these notebooks take, by name, each with the value it has if none
    is given. Raise ValueError for a number that no notebook has.
    """
    paths = notebook_paths()
    values = {}
    for number in numbers:
        if number not in paths:
            raise ValueError(f"there is no notebook {number}. There are: {', '.join(paths)}.")
        for name, parameter in _inspect(str(paths[number])).items():
            values[name] = commands.read_value(parameter["default"])
    return values


def parameters_of(numbers: list[str], parameters: dict) -> dict:
    """Return those of the parameters that these notebooks take."""
    known = defaults(numbers)
    return {name: value for name, value in parameters.items() if name in known}


def end_like_ctrl_c() -> None:
    """From now on a kill or a closed terminal ends this process as Ctrl-C does, so that kernels and
    runs are ended, and waited for.

    Whatever was left running would write where the next call does. A signal that is ignored (nohup)
    stays so.
    """
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number and signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)


# --- What is refused ------------------------------------------------------------------------------


def check_names(numbers: list[str], parameters: dict) -> None:
    """Raise ValueError for a parameter that none of these notebooks takes, with the notebooks that
    take it, or with the name that was probably meant.
    """
    known = defaults(numbers)
    unknown = [name for name in parameters if name not in known]
    if not unknown:
        return
    name = unknown[0]
    takers = [number for number in notebook_paths() if name in defaults([number])]
    if name == "preset":
        raise ValueError(
            f"--preset is for notebooks {', '.join(takers)}. The others go on with the settings "
            "that the run has, so leave it out."
        )
    hint = f"It is a parameter of {', '.join(takers)}. " if takers else ""
    hint = hint or presets.hint(name, defaults(list(notebook_paths())))
    raise ValueError(
        f"no chosen notebook has a parameter {name!r}. {hint}They take: "
        f"{', '.join(sorted(known.keys() - {'run'}))}."
    )


def check_call(name: str, numbers: list[str], parameters: dict, elsewhere: bool = False) -> None:
    """Raise ValueError for what no notebook could run with, and do nothing else.

    Settings are checked with the preset, or with those of the run as it was prepared; all other
    parameters by the rule of the notebook that takes them. elsewhere: it will run on another
    machine, so what this one lacks is no reason.
    """
    check_names(numbers, parameters)

    # a run is one training
    run = Run(name)
    makers = [number for number in numbers if number in _MAKERS]
    if len(makers) > 1 and makers != ["01", "03"]:
        raise ValueError(
            f"notebooks {', '.join(numbers)} would write one run over one another. Give each "
            "lesson its own --run, or none."
        )
    if makers:
        run.made_by(makers[0])
    if _EVALUATION in numbers:
        run.check_evaluable()

    # Where the settings start, as far as that is known here: of the lessons' own small models only
    # the quickstart's is, and 07 chooses its preset by its source.
    lessons = set(LESSONS) & set(numbers)
    start = parameters.get("preset", defaults(numbers).get("preset"))
    if start is None and not lessons:
        start = run.manifest.get("data", {}).get("settings")

    # only what loads a model needs the machine for it: 02 reads completions if it is given some
    loading = set(_LOADERS) & set(numbers)
    if "completions" in parameters:
        loading.discard(_REWARDS)
    loads = bool(loading | lessons) and not elsewhere

    # the settings that the notebooks will have
    machine = this_machine()
    backend = "unsloth"
    given = {key: value for key, value in parameters.items() if key in presets.SETTINGS}
    if not start:
        # their types and ranges do not depend on the preset
        given = {key: value for key, value in given.items() if value is not None}
        if sentences := problems_alone(replace(presets.PRESETS["pocket"], **given)):
            raise ValueError("these settings cannot run: " + " ".join(sentences))
    else:
        settings = settings_for(
            start,
            machine,
            given,
            small={"model": "pocket"} if _QUICKSTART in numbers else None,
            sees=_VISION in numbers,
            trains=_TRAINING in numbers,
            loads=loads,
        )
        backend = settings.backend
        if loads and loading:
            memory.check(settings, machine)

    # all other parameters, each by its own rule
    others = {name: value for name, value in parameters.items() if name not in presets.OF_TRAINING}
    check_parameters(others, backend)


# Parameters whose value alone can be refused. The settings of a training are `presets`'.
_RULES = {
    "seed": check_seed,
    "sampling_seconds": check_sampling_seconds,
    "early_stopping": check_early_stopping,
    "tags": TagFormat.parse,
    "kind": kinds.check_kind,
    "rewards": lambda rewards: own.read_rewards(rewards, THINK_ANSWER),
    "judge": lambda judge: own.load_reward(str(judge), THINK_ANSWER, "judge"),
    "columns": check_columns,
    "examples": example_turns,
    "warm_start": example_turns,
    "model": check_model,
}
_COUNTS = {"groups", "batch_size", "samples", "sampled_questions"}


def check_parameters(parameters: dict, backend: str = "unsloth") -> None:
    """Raise ValueError or OSError for a parameter that its notebook would refuse, so that a run of
    hours does not end in its last notebook over a misspelt word; no model is loaded for it.

    parameters: by name, as `run -p` takes them; None leaves one out. Settings of a preset are
    `presets.resolve`'s to check, and what a notebook refuses before it has spent time, such as
    02's `cases` and 10's `environment`, is that notebook's. backend: what it trains with.
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


# --- One notebook, by papermill -------------------------------------------------------------------


def run_notebook(path: Path, run: Run, parameters: dict) -> bool:
    """Execute one notebook; return whether it went through. The executed copy is saved cell by
    cell.
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
            # on a terminal alone, as disable=None means
            progress_bar={"desc": path.stem, "leave": False, "disable": None},
            cwd=str(path.parent),
        )
    except PapermillExecutionError as error:
        print(
            f"\n{path.name}, In [{error.exec_count}]: {error.ename}: {error.evalue}\n"
            f"The whole traceback is in {run.show(f'notebooks/{path.name}')}; what was saved "
            "before is as it was.",
            file=sys.stderr,
        )
        return False
    except DeadKernelError:
        print(
            f"\n{path.name}: the kernel died, most often because memory ran out. Try smaller "
            "settings.",
            file=sys.stderr,
        )
        return False
    print(f"{path.stem:<28}done  {time.monotonic() - began:5.1f} s", flush=True)
    return True


def _print_result(run: Run, numbers: list[str]) -> None:
    """Print where everything is, and what of it is older than what it was made from; the accuracies
    if one of these notebooks has measured them now.
    """
    if run.evaluation and {_EVALUATION, *LESSONS} & set(numbers):
        from helpers.results.tables import summary

        print("\n".join(["", *summary(run.evaluation), ""]))
    print(f"all of it is in {run.show()}")
    for part in ("reward_report.json", "evaluation.json", "merged"):
        if why := run.outdated(part):
            print(f"note: {why}")
