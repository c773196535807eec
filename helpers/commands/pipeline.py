"""papermill over the notebooks, with progress, refusing what papermill would only warn about."""

import logging
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import papermill
from nbclient.exceptions import DeadKernelError
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NBClientEngine, papermill_engines
from papermill.exceptions import PapermillExecutionError
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook
from tqdm import tqdm

from helpers import PROJECT, presets
from helpers.commands import arguments
from helpers.data.files import shortened
from helpers.data.sources import check_columns, check_source
from helpers.environment import this_machine
from helpers.rewards import own
from helpers.rewards.answers import kinds
from helpers.runs import (
    LESSONS,
    MAKERS,
    TRAINING_LOCK,
    Run,
    check_seed,
    held,
    named_if_full,
    write_json,
)
from helpers.tags import THINK_ANSWER, TagFormat
from helpers.training import memory, ranks, trackers

NOTEBOOKS = PROJECT / "notebooks"


def run(
    name: str | None,
    preset: str | None,
    only: str | None,
    parameters: list[str],
    fresh: bool = False,
    once: bool = False,
) -> int:
    """Execute the notebooks that were asked for on the command line; the exit code, as `execute`.

    name: None is the notebooks' own run. once: if the same was asked for last time, what is done of
    it is not done again, as with `resume`.
    """
    numbers = list(arguments.PIPELINE) if only is None else arguments.numbers(only)
    given = arguments.parameters(parameters)
    if name is None:
        own = {number: defaults([number])["run"] for number in numbers}
        name = own[numbers[0]]
        if len(set(own.values())) > 1:
            named = ", ".join(f"{number}: {default}" for number, default in own.items())
            raise ValueError(
                f"these notebooks have runs of their own ({named}). Call them one at a time, or "
                "give --run NAME."
            )
    if preset is not None:
        given["preset"] = preset
    if once and arguments.is_for(arguments.last(Run(name)), given, numbers):
        return resume(name)
    return execute(name, numbers, given, fresh)


def resume(name: str) -> int:
    """Go on with what was last asked for, where it stopped: the notebooks not yet done, with the
    same parameters.

    ValueError where there is nothing to go on with.
    """
    folder = Run(name)
    last = arguments.last(folder)
    if not last["notebooks"]:
        raise ValueError(
            f"there is nothing to resume in {folder.show()}: no `python -m helpers run --run "
            f"{name}` was started there. Rerunning notebook 03 itself goes on from its last "
            "checkpoint, too."
        )
    if left := arguments.left(last):
        # what is done took parameters that these need not know
        given = taken(last["parameters"], left)
        if given.get("rewards"):
            for file in own.edited(given["rewards"], folder):
                print(
                    f"note: {file} has changed since this run began, which goes on with its copy, "
                    f"{folder.show(f'rewards/{file.name}')}. To train with the file as it is now, "
                    "call without --resume and --once."
                )
            given["rewards"] = own.copies_of(given["rewards"], folder)
        return execute(name, left, given, resumed=last)
    print(
        f"run {name!r} is finished: {', '.join(last['done'])} are done. A call without --resume "
        "and --once starts it anew."
    )
    _print_result(folder, last["done"])
    return 0


def execute(
    name: str,
    numbers: list[str],
    given: dict,
    fresh: bool = False,
    resumed: dict | None = None,
    how: Callable | None = None,
) -> int:
    """Execute notebooks in order into runs/<name>/notebooks/, noting in asked.json what is done,
    and print what came out; the exit code.

    Everything that can be refused is refused before the first notebook starts and before anything
    is written: what `check` refuses, a run that another process holds, and, unless `fresh`, a call
    that would give up an interrupted training. fresh: such a training is given up, and all that
    another lesson made is set aside, in `set_aside/`. resumed: the call to go on with. how: another
    way to execute one notebook, a function as `_execute` is.
    """
    folder, how = Run(name), how or _execute
    check(name, numbers, given, fresh)
    # With several processes, a signal is left to the launcher: a process that waits for another
    # cannot end itself.
    if ranks.world() == 1:
        end_like_ctrl_c()
    with named_if_full(folder.folder), held(folder.folder, f"run {name!r}"):
        if set(numbers) & set(MAKERS):  # a notebook may be training it
            with held(folder.folder, f"the training of run {name!r}", TRAINING_LOCK):
                pass
        if resumed:
            print(f"resuming run {name!r} with {', '.join(numbers)}, {given or 'no parameters'}")
        elif fresh:
            if any(map(folder.is_of_another_lesson, numbers)):
                print(f"set aside, whole: {folder.set_aside()}")
            if "03" in numbers:
                arguments.give_up_training(folder)
        else:
            usual = defaults([number for number in numbers if number in ("01", "03")])
            arguments.refuse_to_lose(folder, numbers, given, usual)
        used = arguments.last(folder)["used"]
        # so that a kernel, which runs in notebooks/, finds modules where the command was typed
        paths = [os.getcwd(), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, paths)))
        call = resumed or {"parameters": given, "notebooks": numbers, "done": [], "used": used}
        write_json(folder.path(arguments.ASKED), call)
        began = time.monotonic()
        for number in numbers:
            values = taken(given, [number])
            try:
                succeeded = how(_notebooks()[number], folder, {"run": name} | values)
            except KeyboardInterrupt:
                # asyncio would print what a task of the ended kernel still raises
                logging.getLogger("asyncio").setLevel(logging.CRITICAL)
                resuming = f"`python -m helpers run --run {name} --resume`"
                again = resuming if how is _execute else "the same command"
                print(f"\nWhat was saved is whole; go on with {again}.", file=sys.stderr)
                raise
            if not succeeded:
                return 1
            call["done"].append(number)
            call["used"][number] = values
            write_json(folder.path(arguments.ASKED), call)
        several = "s" * (len(numbers) > 1)
        print(f"\n{len(numbers)} notebook{several} in {time.monotonic() - began:.0f} s")
        _print_result(folder, numbers)
    return 0


def _notebooks() -> dict[str, Path]:
    """All notebooks by their number."""
    return {path.name[:2]: path for path in sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))}


_inspected = lru_cache(papermill.inspect_notebook)


def defaults(numbers: list[str]) -> dict[str, object]:
    """The parameters that these notebooks take, by name, each with the value it has where none is
    given. ValueError for a number that no notebook has.
    """
    known = _notebooks()
    if missing := [number for number in numbers if number not in known]:
        raise ValueError(f"there is no notebook {missing[0]}. There are: {', '.join(known)}.")
    return {
        name: arguments.value(about["default"])
        for number in numbers
        for name, about in _inspected(str(known[number])).items()
    }


def taken(given: dict, numbers: list[str]) -> dict:
    """Those of the parameters that these notebooks take."""
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


def check(
    name: str, numbers: list[str], given: dict, fresh: bool = False, elsewhere: bool = False
) -> None:
    """Refuse what no notebook could run with, and do nothing else: ValueError says what and why.

    Settings are checked with the preset, or with those of the run as it was prepared; all other
    parameters by the rule of the notebook that takes them. elsewhere: it will run on another
    machine, so what this one lacks is no reason.
    """
    known = defaults(numbers)
    for parameter in [name for name in given if name not in known]:
        hint = presets.hint(parameter, known)
        if takers := [number for number in _notebooks() if parameter in defaults([number])]:
            hint = f"It is a parameter of {', '.join(takers)}. "
        raise ValueError(
            f"no chosen notebook has a parameter {parameter!r}. {hint}They take: "
            f"{', '.join(sorted(known.keys() - {'run'}))}."
        )
    folder, machine, settings = Run(name), this_machine(), None
    overrides = {key: value for key, value in given.items() if key in presets.SETTINGS}
    lessons = [number for number in numbers if number in LESSONS]
    if len(lessons) + bool({"01", "03"} & set(numbers)) > 1:
        raise ValueError(
            f"notebooks {', '.join(numbers)} would write one run over one another. Give each "
            "lesson its own --run."
        )
    if "01" in numbers:
        settings = presets.resolve(given.get("preset", "auto"), machine, **overrides)
    elif "data" in folder.manifest:
        read = ranks.from_manifest if "03" in numbers else presets.for_sampling
        settings = read(folder.manifest["data"]["settings"], **overrides)
    if "05" in numbers and folder.manifest.get("data", {}).get("notebook") == "11":
        raise ValueError(
            f"run {name!r} is notebook 11's, which measures and merges its policy itself: notebook "
            "05 reads no pictures."
        )
    check_parameters(given, settings.backend if settings else "unsloth")
    # 02 loads no model for stored completions
    loading = {"03", "05"} if "completions" in given else {"02", "03", "05"}
    if settings and not elsewhere and loading & set(numbers):
        memory.check(presets.check_machine(settings, machine), machine)
    prepares = "01" in numbers or bool(lessons)  # else --fresh would leave 03 without data
    for number in [] if fresh and prepares else numbers:
        folder.check_maker(number)


# The parameters whose rule needs nothing but the value.
_RULES = {
    "report_to": trackers.check,
    "seed": check_seed,
    "sampling_seconds": presets.check_sampling_seconds,
    "early_stopping": presets.check_early_stopping,
    "tags": TagFormat.parse,
    "kind": kinds.checked,
    "rewards": lambda rewards: own.read_rewards(rewards, THINK_ANSWER),
    "judge": lambda judge: own.reward_named(str(judge), THINK_ANSWER, "judge"),
}


def check_parameters(given: dict, backend: str = "unsloth") -> None:
    """ValueError or OSError for a parameter that its notebook would refuse, so that a run of hours
    does not end in its last notebook over a misspelt word; no model is loaded for it.

    given: parameters by name, as `run -p` takes them; None leaves one out. Settings of a preset are
    `presets.resolve`'s to check, and what a notebook refuses before it has spent time, such as
    02's `cases` and 10's `rows_file`, is that notebook's. backend: what it trains with.
    """
    given = {name: value for name, value in given.items() if value is not None}
    for name, value in given.items():
        if name in _RULES:
            _RULES[name](value)
        elif name in ("groups", "batch_size", "samples", "sampled_questions"):
            if type(value) is not int or value < 1:
                raise ValueError(
                    f"{name}={value!r} is not a number of completions or questions: give an "
                    "integer of at least 1."
                )
        elif name in ("system_prompt", "question") and not isinstance(value, str):
            raise ValueError(f"{name}={shortened(repr(value))} is not a text.")
    if "source" in given:
        check_source(given["source"], given.get("columns"))
    elif "columns" in given:
        check_columns(given["columns"])
    if given.get("environment"):
        from helpers.agents import check_environment, environment_named

        if problems := check_environment(environment_named(given["environment"])):
            raise ValueError(f"environment={given['environment']!r}: {' '.join(problems)}")
    wishes = {name: given[name] for name in ("merge", "gguf", "push_to_hub") if name in given}
    if wishes:
        from helpers.results.merging import check_wishes  # takes seconds

        check_wishes(backend, this_machine(), **wishes)


# --- One notebook, by papermill -------------------------------------------------------------------


# Lines that begin so are shown on the terminal, too; NOT is what 03 says of untested rewards.
_TOLD = ("step ", "data: ", "note: ", "NOT ")


class _Client(PapermillNotebookClient):
    """papermill's own client, which also prints the lines of `_TOLD`."""

    def process_message(self, msg, cell, cell_index):
        """See nbclient's NotebookClient."""
        content = msg["content"]
        if msg["msg_type"] in ("stream", "display_data", "update_display_data"):
            text = content.get("text") or content.get("data", {}).get("text/plain", "")
            for line in text.splitlines():
                if line.startswith(_TOLD):
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
    """Execute one notebook; whether it went through. The executed copy is saved cell by cell."""
    copy, began = run.path(f"notebooks/{path.name}"), time.monotonic()
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
        where = place(path, parameterized(path, parameters)[: error.cell_index + 1])
        print(
            f"\n{where}: {error.ename}: {error.evalue}\n"
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


def parameterized(path: Path, parameters: dict) -> list:
    """The cells of a notebook as papermill executes them, with one that sets the parameters."""
    return parameterize_notebook(load_notebook_node(str(path)), parameters).cells


def place(path: Path, cells: list) -> str:
    """Where the last of these cells is: its number as the notebook's reader counts, without the
    cell of parameters that papermill puts in, and the heading above it.
    """
    own = [cell for cell in cells if "injected-parameters" not in cell.metadata.get("tags", [])]
    text = "\n".join(cell.source for cell in own if cell.cell_type == "markdown")
    headings = re.findall(r"^##+ (.+)", text, re.MULTILINE)
    return f"{path.name}, cell {len(own)}" + "".join(f" ({last})" for last in headings[-1:])


def _print_result(run: Run, numbers: list[str]) -> None:
    """Where everything is, and what of it is older than what it was made from; the accuracies if
    05 has measured them now.
    """
    if "05" in numbers and run.evaluation:
        from helpers.results.evaluation import summary

        print("\n".join(["", *summary(run.evaluation), ""]))
    print(f"all of it is in {run.show()}")
    for part in ("reward_report.json", "evaluation.json", "merged"):
        if why := run.outdated(part):
            print(f"note: {why}")
