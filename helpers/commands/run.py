"""`python -m helpers run`: the notebooks through papermill, into runs/NAME/, with progress, and
refusing what papermill would only warn about.
"""

import argparse
import json
import logging
import os
import signal
import sys
import time
from functools import lru_cache
from pathlib import Path

import papermill
from nbclient.exceptions import DeadKernelError
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NBClientEngine, papermill_engines
from papermill.exceptions import PapermillExecutionError
from tqdm import tqdm

from helpers import PROJECT, commands, presets
from helpers.data.sources import check_columns, check_model, check_source
from helpers.data.tasks import example_turns
from helpers.environment import this_machine
from helpers.rewards import own
from helpers.rewards.answers import kinds
from helpers.runs import LESSONS, TRAINING_LOCK, Run, check_seed, lock
from helpers.tags import THINK_ANSWER, TagFormat
from helpers.training import memory, warm
from helpers.training.fitting import check_early_stopping, check_sampling_seconds, settings_for

PIPELINE = ("01", "02", "03", "04", "05")
NOTEBOOKS = PROJECT / "notebooks"
_MAKERS = ("01", "03", *LESSONS)  # they write the data or the training of a run


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
    asked = (parsed.preset, parsed.only, parsed.parameters, parsed.once)
    if not parsed.resume:
        return run_notebooks(parsed.run, *asked)
    if any(asked):
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
    """Execute the notebooks that were asked for on the command line; return the exit code, as
    `execute`.

    name: None is the first notebook's own run. once: if the same was asked for last time, what is
    done of it is not done again, as with `resume`.
    """
    numbers = list(PIPELINE) if only is None else commands.numbers(only)
    given = commands.parameters(parameters)
    if name is None:
        name = defaults(numbers[:1])["run"]
    if preset is not None:
        given["preset"] = preset
    if once and is_last_call(name, numbers, given):
        return resume(name)
    return execute(name, numbers, given)


def resume(name: str) -> int:
    """Go on with the last call of a run where it stopped: the notebooks not yet done, with the same
    parameters; return the exit code.

    Raise ValueError if there is nothing to go on with.
    """
    folder = Run(name)
    call = last_call(folder)
    if not call["notebooks"]:
        raise ValueError(
            f"there is nothing to resume in {folder.show()}: no `python -m helpers run --run "
            f"{name}` was started there. Rerunning notebook 03 itself goes on from its last "
            "checkpoint, too."
        )
    left = notebooks_left(call)
    if not left:
        print(
            f"run {name!r} is finished: {', '.join(call['done'])} are done. A call without "
            "--resume and --once starts it anew."
        )
        _print_result(folder, call["done"])
        return 0

    # what is done took parameters that these need not know
    return execute(name, left, taken(call["parameters"], left), resumed=True)


def execute(name: str, numbers: list[str], given: dict, resumed: bool = False) -> int:
    """Execute notebooks in order into runs/<name>/notebooks/ and print what came out; return the
    exit code.

    Everything that can be refused is refused before the first notebook starts and before anything
    is written: what `check` refuses, and a run that another process holds. resumed: these notebooks
    are what is left of the last call.
    """
    folder = Run(name)
    check(name, numbers, given)
    end_like_ctrl_c()
    with lock(folder.folder, f"run {name!r}"):
        # a kernel in Jupyter may be training it
        if set(numbers) & set(_MAKERS):
            with lock(folder.folder, f"the training of run {name!r}", TRAINING_LOCK):
                pass

        # the call, for --resume, before the first notebook starts
        call = last_call(folder)
        if resumed:
            print(f"resuming run {name!r} with {', '.join(numbers)}, {given or 'no parameters'}")
        else:
            call |= {"parameters": given, "notebooks": numbers, "done": []}
        folder.record("call", **call)

        # so that a kernel, which runs in notebooks/, finds modules where the command was typed
        paths = [os.getcwd(), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, paths)))
        began = time.monotonic()
        for number in numbers:
            values = taken(given, [number])
            try:
                succeeded = _execute(notebook_paths()[number], folder, {"run": name} | values)
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
            folder.record("call", **call)
        several = "s" * (len(numbers) > 1)
        print(f"\n{len(numbers)} notebook{several} in {time.monotonic() - began:.0f} s")
        _print_result(folder, numbers)
    return 0


# --- The last call --------------------------------------------------------------------------------


def last_call(run: Run) -> dict:
    """Return what `run` was last asked for in a folder, the section `call` of its manifest; all
    empty if nothing was.

    `parameters`, `notebooks` and, of these, `done`: the last call, which `--resume` goes on with.
    `given`: for each notebook that has gone through, in this call or an earlier one, the parameters
    it had then.
    """
    nothing = {"parameters": {}, "notebooks": [], "done": [], "given": {}}
    return nothing | run.manifest.get("call", {})


def notebooks_left(call: dict) -> list[str]:
    """Return the notebooks that `--resume` would execute."""
    return [number for number in call["notebooks"] if number not in call["done"]]


def is_last_call(name: str, numbers: list[str], given: dict) -> bool:
    """Return whether these notebooks and parameters are what a run was last asked for; compared as
    JSON, in which True is not 1.
    """
    call = last_call(Run(name))
    before = [call["notebooks"], call["parameters"]]
    return json.dumps(before, sort_keys=True) == json.dumps([numbers, given], sort_keys=True)


# --- The notebooks --------------------------------------------------------------------------------


def notebook_paths() -> dict[str, Path]:
    """Return all notebooks by their number."""
    return {path.name[:2]: path for path in sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))}


_inspected = lru_cache(papermill.inspect_notebook)


def defaults(numbers: list[str]) -> dict[str, object]:
    """Return the parameters that these notebooks take, by name, each with the value it has if none
    is given. Raise ValueError for a number that no notebook has.
    """
    known = notebook_paths()
    if missing := [number for number in numbers if number not in known]:
        raise ValueError(f"there is no notebook {missing[0]}. There are: {', '.join(known)}.")
    return {
        name: commands.value(about["default"])
        for number in numbers
        for name, about in _inspected(str(known[number])).items()
    }


def taken(given: dict, numbers: list[str]) -> dict:
    """Return those of the parameters that these notebooks take."""
    known = defaults(numbers)
    return {name: value for name, value in given.items() if name in known}


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


def check(name: str, numbers: list[str], given: dict, elsewhere: bool = False) -> None:
    """Raise ValueError for what no notebook could run with, and do nothing else.

    Settings are checked with the preset, or with those of the run as it was prepared; all other
    parameters by the rule of the notebook that takes them. elsewhere: it will run on another
    machine, so what this one lacks is no reason.
    """
    # each parameter is one of a chosen notebook
    known = defaults(numbers)
    for parameter in given:
        if parameter in known:
            continue
        hint = presets.hint(parameter, known)
        takers = [number for number in notebook_paths() if parameter in defaults([number])]
        if takers:
            hint = f"It is a parameter of {', '.join(takers)}. "
        raise ValueError(
            f"no chosen notebook has a parameter {parameter!r}. {hint}They take: "
            f"{', '.join(sorted(known.keys() - {'run'}))}."
        )

    # a run is one training
    folder = Run(name)
    data = folder.manifest.get("data", {})
    makers = [number for number in numbers if number in _MAKERS]
    if len(makers) > 1 and makers != ["01", "03"]:
        raise ValueError(
            f"notebooks {', '.join(numbers)} would write one run over one another. Give each "
            "lesson its own --run."
        )
    if makers:
        folder.made_by(makers[0])
    if "05" in numbers and data.get("notebook") == "11":
        raise ValueError(
            f"run {name!r} is notebook 11's, which measures and merges its policy itself: notebook "
            "05 reads no pictures."
        )

    # The settings that the notebooks will have, as far as they are known here: of the lessons' own
    # small models only the quickstart's is, and 07 chooses its preset by its source.
    lessons = set(LESSONS) & set(numbers)
    loading = {"00", "03", "05"} if "completions" in given else {"00", "02", "03", "05"}
    loads = not elsewhere and bool((loading | lessons) & set(numbers))
    machine = this_machine()
    start = given.get("preset", known.get("preset")) or (not lessons and data.get("settings"))
    settings = None
    if start:
        settings = settings_for(
            start,
            machine,
            {key: value for key, value in given.items() if key in presets.SETTINGS},
            small={"model": "pocket"} if "00" in numbers else None,
            sees="11" in numbers,
            trains="03" in numbers,
            loads=loads,
        )
    check_parameters(given, settings.backend if settings else "unsloth")
    if settings and loads and loading & set(numbers):
        memory.check(settings, machine)


# What a parameter's value alone shows, and its notebook would refuse, perhaps after hours.
_RULES = {
    "seed": check_seed,
    "sampling_seconds": check_sampling_seconds,
    "early_stopping": check_early_stopping,
    "tags": TagFormat.parse,
    "kind": kinds.checked,
    "rewards": lambda rewards: own.read_rewards(rewards, THINK_ANSWER),
    "judge": lambda judge: own.reward_named(str(judge), THINK_ANSWER, "judge"),
    "columns": check_columns,
    "examples": example_turns,
    "warm_start": warm.check,
    "model": check_model,
}
_COUNTS = {"groups", "batch_size", "samples", "sampled_questions"}


def check_parameters(given: dict, backend: str = "unsloth") -> None:
    """Raise ValueError or OSError for a parameter that its notebook would refuse, so that a run of
    hours does not end in its last notebook over a misspelt word; no model is loaded for it.

    given: parameters by name, as `run -p` takes them; None leaves one out. Settings of a preset are
    `presets.resolve`'s to check, and what a notebook refuses before it has spent time, such as
    02's `cases` and 10's `environment`, is that notebook's. backend: what it trains with.
    """
    given = {name: value for name, value in given.items() if value is not None}
    for name in _RULES.keys() & given:
        _RULES[name](given[name])
    for name in _COUNTS & given.keys():
        if type(given[name]) is not int or given[name] < 1:
            raise ValueError(
                f"{name}={given[name]!r} is not a number of completions or questions: give an "
                "integer of at least 1."
            )
    if "source" in given:
        check_source(given["source"], given.get("columns"))
    wishes = {name: given[name] for name in ("merge", "gguf", "push_to_hub") if name in given}
    if wishes:
        from helpers.results.merging import check_wishes  # takes seconds

        check_wishes(backend, this_machine(), **wishes)


# --- One notebook, by papermill -------------------------------------------------------------------


# Echo output lines with these prefixes; NOT begins what 03 says of untested rewards.
_ECHOED = ("step ", "data: ", "note: ", "NOT ")


class _Client(PapermillNotebookClient):
    """papermill's own client, which also prints the lines of `_ECHOED`."""

    def process_message(self, msg, cell, cell_index):
        """See nbclient's NotebookClient."""
        content = msg["content"]
        if msg["msg_type"] in ("stream", "display_data", "update_display_data"):
            text = content.get("text") or content.get("data", {}).get("text/plain", "")
            for line in text.splitlines():
                if line.startswith(_ECHOED):
                    tqdm.write(f"    {line}")
                    sys.stdout.flush()
        return super().process_message(msg, cell, cell_index)


class _Engine(NBClientEngine):
    """papermill's own engine with our client."""

    @classmethod
    def execute_managed_notebook(cls, nb_man, kernel_name, **kwargs):
        """See papermill's Engine."""
        quiet = ["--IPKernelApp.log_level=50"]  # its notices would land among the progress
        log = logging.getLogger("papermill")
        _Client(nb_man, kernel_name=kernel_name, log=log, extra_arguments=quiet).execute()


papermill_engines.register("helpers", _Engine)


def _execute(path: Path, run: Run, parameters: dict) -> bool:
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
    if run.evaluation and {"05", *LESSONS} & set(numbers):
        from helpers.results.evaluation import summary

        print("\n".join(["", *summary(run.evaluation), ""]))
    print(f"all of it is in {run.show()}")
    for part in ("reward_report.json", "evaluation.json", "merged"):
        if why := run.outdated(part):
            print(f"note: {why}")
