"""papermill over the notebooks, with progress, refusing what papermill would only warn about."""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

import nbformat
import papermill
from nbclient.exceptions import DeadKernelError
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NBClientEngine, papermill_engines
from papermill.exceptions import PapermillExecutionError
from tqdm import tqdm

from helpers import PROJECT, presets
from helpers.commands import arguments
from helpers.data.files import shortened
from helpers.data.sources import check_columns, check_source
from helpers.environment import this_machine
from helpers.rewards.answers import kinds
from helpers.runs import LESSONS, Run, atomic_write, check_seed, held
from helpers.tags import TagFormat
from helpers.training import memory, ranks, server, trackers

NOTEBOOKS = PROJECT / "notebooks"


def run(
    name: str | None,
    preset: str | None,
    only: str | None,
    parameters: list[str],
    in_place: bool = False,
    fresh: bool = False,
    once: bool = False,
) -> int:
    """Execute the chosen notebooks into runs/<name>/notebooks/ and print what came out.

    Returns the exit code.

    Everything that can be refused is refused before the first notebook starts and before anything
    is written: ValueError for a bad run name, preset, notebook number or parameter, for a run that
    another process holds, and, unless `fresh`, for a call that would give up an interrupted
    training or replace another lesson's. fresh: such a training is set aside, in
    `checkpoints_previous/`, and all that another lesson made, in `set_aside/`. name: None is the
    notebooks' own. once: if the same was asked for last time, what is done of it is not done again,
    as with `resume`.
    """
    paths = _chosen(None if only is None else arguments.numbers(only))
    given = arguments.parameters(parameters)
    if in_place:
        if name not in (None, "demo") or preset is not None or given:
            raise ValueError(
                "--in-place runs the notebooks with the parameters they are committed with; give "
                "none beside it."
            )
        # for the executed copies; each notebook takes the run that it names itself
        return _run(Run("demo"), paths, {}, in_place=True)
    if name is None:
        own = {path.name[:2]: defaults([path.name[:2]])["run"] for path in paths}
        if len(set(own.values())) > 1:
            named = ", ".join(f"{number}: {default}" for number, default in own.items())
            raise ValueError(
                f"these notebooks have runs of their own ({named}). Call them one at a time, or "
                "give --run NAME."
            )
        name = own[paths[0].name[:2]]
    if preset is not None:
        if not any("preset" in _parameters_of(path) for path in paths):
            raise ValueError(
                "--preset is notebook 01's to set, and 01 is not among --only. Later notebooks "
                "use the run's own."
            )
        given["preset"] = preset
    if once and arguments.asked_alike(Run(name), given, [path.name[:2] for path in paths]):
        return resume(name)
    return _run(Run(name), paths, given, fresh=fresh)


def execute(name: str, numbers: list[str], given: dict) -> int:
    """`run` for a program: the numbers of the notebooks, and parameters by name with their
    values.
    """
    return _run(Run(name), _chosen(numbers), given)


def execute_here(
    folder: Run,
    numbers: list[str],
    given: dict,
    how: Callable,
    fresh: bool = False,
    resumed: dict | None = None,
) -> int:
    """`execute` with another way to execute one notebook: a function as `_execute` is.

    resumed: the call to go on with.
    """
    return _run(folder, _chosen(numbers), given, fresh=fresh, resumed=resumed, how=how)


def check(name: str, numbers: list[str], given: dict, elsewhere: bool = False) -> None:
    """Refuse what `execute` would refuse before it starts, and do nothing else.

    ValueError says what and why.

    elsewhere: it will run on another machine, so what this one lacks is no reason.
    """
    arguments.refuse_unknown(given, defaults(numbers))
    _refuse_impossible(given, Run(name), set(numbers), elsewhere)
    _refuse_to_mix(Run(name), numbers)


def defaults(numbers: list[str] | None) -> dict[str, object]:
    """The parameters that these notebooks (None: 01 to 05) take, by name, each with the value it
    has where none is given.
    """
    found = {}
    for path in _chosen(numbers):
        for name, about in _parameters_of(path).items():
            found[name] = arguments.value(about["default"])
    return found


def resume(name: str) -> int:
    """Go on with what `run` was last asked for, where it stopped: the notebooks not yet done, with
    the same parameters.

    ValueError where there is nothing to go on with.
    """
    folder = Run(name)
    last = arguments.last(folder)
    if last is None:
        raise ValueError(
            f"there is nothing to resume in {folder.show()}: no `python -m helpers run --run "
            f"{name}` was started there. Rerunning notebook 03 itself goes on from its last "
            "checkpoint, too."
        )
    left = arguments.left(last)
    if not left:
        done = ", ".join(last["notebooks"])
        print(
            f"run {name!r} is finished: {done} are done. A call without --resume and --once "
            "starts it anew."
        )
        _print_result(folder, evaluated="05" in last["notebooks"])
        return 0
    return _run(folder, _chosen(left), last["parameters"], resumed=last)


def _run(
    folder: Run,
    paths: list[Path],
    given: dict,
    in_place: bool = False,
    fresh: bool = False,
    resumed: dict | None = None,
    how: Callable | None = None,
) -> int:
    numbers = [path.name[:2] for path in paths]
    if not resumed:  # what was done took its parameters, which those that are left need not know
        arguments.refuse_unknown(given, defaults(numbers))
    _refuse_impossible(given, folder, set(numbers))
    if not in_place:
        _refuse_to_mix(folder, numbers, fresh)
    # Of several processes, what a signal ends is left to the launcher: one that waits for another
    # cannot end itself.
    alone = ranks.world() == 1
    with (
        held(folder.folder, f"run {folder.name!r}"),
        ended_like_ctrl_c() if alone else contextlib.nullcontext(),
    ):
        for number in numbers:
            folder.check_not_trained(number)
        if resumed:
            print(
                f"resuming run {folder.name!r} with {', '.join(numbers)}"
                + (f" and {given}" if given else "")
            )
            return _execute_all(folder, paths, given, resumed, in_place, how or _execute)
        if fresh:
            if any(map(folder.is_of_another_lesson, numbers)):
                print(f"set aside, whole: {folder.set_aside()}")
            arguments.set_training_aside(folder, numbers)
        else:
            usual = defaults([number for number in numbers if number in ("01", "03")])
            arguments.refuse_to_lose(folder, numbers, given, usual)
        used = arguments.used(folder)
        call = {"parameters": given, "notebooks": numbers, "done": [], "used": used}
        return _execute_all(folder, paths, given, call, in_place, how or _execute)


def _execute_all(
    folder: Run, paths: list[Path], given: dict, call: dict, in_place: bool, how: Callable
) -> int:
    """Execute the notebooks in order, noting in asked.json what is done; the exit code."""
    started = time.monotonic()
    for path in paths:
        arguments.write(folder, call)
        values = {key: value for key, value in given.items() if key in _parameters_of(path)}
        try:
            succeeded = how(path, folder, {"run": folder.name} | values, in_place)
        except KeyboardInterrupt:
            # asyncio would print what a task of the ended kernel still raises
            logging.getLogger("asyncio").setLevel(logging.CRITICAL)
            again = "the same command goes on from there"
            if how is _execute:
                again = f"go on with `python -m helpers run --run {folder.name} --resume`"
            print(f"\nWhat was saved is whole; {again}.", file=sys.stderr)
            if path.name.startswith("03") and not arguments.interrupted_training(folder):
                print(
                    "The training had saved no checkpoint yet, so it will begin anew.",
                    file=sys.stderr,
                )
            raise
        if not succeeded:
            return 1
        call["done"].append(path.name[:2])
        call["used"][path.name[:2]] = values
    arguments.write(folder, call)
    seconds = time.monotonic() - started
    print(f"\n{len(paths)} notebook{'s' * (len(paths) > 1)} in {seconds:.0f} s")
    _print_result(folder, evaluated=any(path.name.startswith("05") for path in paths))
    return 0


@contextlib.contextmanager
def ended_like_ctrl_c() -> Iterator[None]:
    """A kill or a closed terminal ends the block as Ctrl-C does, so that kernels and runs are
    ended, and waited for.

    Whatever was left running would write where the next call does. A signal that is ignored (nohup)
    stays so.
    """

    def end(number, frame):
        raise KeyboardInterrupt

    known = [signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)]
    before = {number: signal.getsignal(number) for number in known}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:
            signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _chosen(numbers: list[str] | None) -> list[Path]:
    known = {path.name[:2]: path for path in sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))}
    numbers = arguments.PIPELINE if numbers is None else numbers
    if unknown := [number for number in numbers if number not in known]:
        raise ValueError(
            f"there is no notebook {', '.join(unknown)}. There are: {', '.join(known)}."
        )
    return [known[number] for number in numbers]


@lru_cache
def _parameters_of(path: Path) -> dict[str, dict]:
    return papermill.inspect_notebook(_literal(path))


def _literal(path: Path) -> str:
    """A path for papermill, which fills parameters into braces."""
    return str(path).replace("{", "{{").replace("}", "}}")


# --- What is refused ------------------------------------------------------------------------------


def _refuse_impossible(
    given: dict, folder: Run, numbers: set[str], elsewhere: bool = False
) -> None:
    """ValueError for parameters that no notebook could run with: settings of the preset, or of the
    run as it was prepared, and all others by the rule of the notebook that takes them.
    """
    machine = this_machine()
    overrides = {name: value for name, value in given.items() if name in presets.SETTINGS}
    settings = None
    if "01" in numbers:
        settings = presets.resolve(given.get("preset", "auto"), machine, **overrides)
    elif "data" in folder.manifest:
        read = ranks.from_manifest if "03" in numbers else presets.for_sampling
        settings = read(folder.manifest["data"]["settings"], **overrides)
    check_parameters(given, folder.name, settings.backend if settings else "unsloth")
    if settings is None or elsewhere:
        return  # the first notebook names what is missing
    server.check(given.get("vllm_server"), settings, machine)
    # 02 loads no model for stored completions
    loading = {"03", "05"} if "completions" in given else {"02", "03", "05"}
    if numbers & loading:
        memory.check(presets.check_machine(settings, machine), machine)


def check_parameters(given: dict, run: str | None = None, backend: str = "unsloth") -> None:
    """ValueError or FileNotFoundError for a parameter that its notebook would refuse, so that a run
    of hours does not end in its last notebook over a misspelt word; nothing is loaded for it.

    given: parameters by name, as `run -p` takes them; None leaves one out. Settings of a preset are
    `presets.resolve`'s to check. run: the name of the run, which must not be compared with itself.
    backend: what it trains with.
    """
    given = {name: value for name, value in given.items() if value is not None}
    trackers.check(given.get("report_to", "none"))
    check_seed(given.get("seed", 0))
    presets.check_early_stopping(given.get("early_stopping"))
    for name in ("groups", "batch_size", "samples", "sampled_questions"):
        if name in given and (type(given[name]) is not int or given[name] < 1):
            raise ValueError(
                f"{name}={given[name]!r} is not a number of completions or questions: give an "
                "integer of at least 1."
            )
    for name in ("system_prompt", "question"):
        if name in given and not isinstance(given[name], str):
            raise ValueError(f"{name}={shortened(repr(given[name]))} is not a text.")
    if "tags" in given:
        TagFormat.parse(given["tags"])
    if "kind" in given:
        kinds.checked(given["kind"])
    if "source" in given:
        check_source(given["source"], given.get("columns"))
    elif "columns" in given:
        check_columns(given["columns"])
    if "rows_file" in given and not Path(str(given["rows_file"])).is_file():
        raise FileNotFoundError(f"rows_file={given['rows_file']!r}: there is no such file.")
    _check_by_their_stages(given, run, backend)


def _check_by_their_stages(given: dict, run: str | None, backend: str) -> None:
    """The parameters whose rule needs a stage that takes seconds to import; each is imported only
    for a parameter that is given.
    """
    if "cases" in given or "completions" in given:
        from helpers.rewards.lab.measures import load_cases, stored_groups

        if "cases" in given:
            load_cases(given["cases"])
        if "completions" in given:
            stored_groups(given["completions"])
    if "environment" in given:
        from helpers.agents.protocol import check_environment, named

        environment = named("environment", given["environment"], "my_game.py:MyGame")
        if problems := check_environment(environment):
            raise ValueError(" ".join(problems))
    if "compare" in given:
        from helpers.metrics.comparing import check_names

        check_names(given["compare"], run)
    if "judge" in given:
        from helpers.results.evaluation import judge_named

        judge_named(given["judge"])
    if "serve" in given:
        from helpers.results.serving import obstacle

        obstacle(given["serve"], this_machine())
    wishes = {name: given[name] for name in ("merge", "gguf", "push_to_hub") if name in given}
    if wishes:
        from helpers.results.merging import check_wishes

        check_wishes(backend, this_machine(), **wishes)


def _refuse_to_mix(folder: Run, numbers: list[str], fresh: bool = False) -> None:
    """ValueError where a run would hold data and trainings of two lessons."""
    lessons = [number for number in numbers if number in LESSONS]
    if len(lessons) + bool({"01", "03"} & set(numbers)) > 1:
        raise ValueError(
            f"notebooks {', '.join(numbers)} would write one run over one another. Give each "
            "lesson its own --run."
        )
    prepares = "01" in numbers or bool(lessons)  # else --fresh would leave 03 without data
    for number in [] if fresh and prepares else numbers:
        folder.check_maker(number)


# --- One notebook, by papermill -------------------------------------------------------------------


class _Client(PapermillNotebookClient):
    """papermill's own client, which also prints the line of a training step: it is displayed, each
    in place of the last.
    """

    def process_message(self, msg, cell, cell_index):
        """See nbclient's NotebookClient."""
        if msg["msg_type"] in ("display_data", "update_display_data"):
            text = msg["content"]["data"].get("text/plain", "")
            if text.startswith("step "):
                tqdm.write(f"    {text}")
                sys.stdout.flush()
        return super().process_message(msg, cell, cell_index)


class _Engine(NBClientEngine):
    """papermill's own engine with our client, leaving no kernel behind."""

    @classmethod
    def execute_managed_notebook(cls, nb_man, kernel_name, **kwargs):
        """See papermill's Engine."""
        client = _Client(
            nb_man,
            kernel_name=kernel_name,
            log=logging.getLogger("papermill"),
            # its notices would land in the middle of the progress
            extra_arguments=["--IPKernelApp.log_level=50"],
        )
        try:
            client.execute()
        finally:
            # nbclient ends its kernel itself, except if it is interrupted while the kernel starts
            if client.km is not None and client.km.has_kernel:
                client._cleanup_kernel()


papermill_engines.register("helpers", _Engine)


def _execute(path: Path, run: Run, parameters: dict, in_place: bool) -> bool:
    """Execute one notebook; whether it went through. The executed copy is saved cell by cell."""
    copy, began, outcome = run.path(f"notebooks/{path.name}"), time.monotonic(), "interrupted"
    logging.getLogger("papermill").setLevel(logging.ERROR)
    print(f"{path.stem} …", flush=True)
    try:
        papermill.execute_notebook(
            _literal(path),
            _literal(copy),
            parameters={} if in_place else parameters,
            engine_name="helpers",
            # on a terminal alone, as disable=None means
            progress_bar={"desc": path.stem, "leave": False, "disable": None},
            cwd=str(path.parent),
        )
        outcome = "done"
    except PapermillExecutionError as error:
        outcome = "failed"
        print(
            f"\n{path.name}, cell {error.cell_index + 1}: {error.ename}: {error.evalue}\n"
            f"The whole traceback is in {run.show(f'notebooks/{path.name}')}; what was saved "
            "before is as it was.",
            file=sys.stderr,
        )
    except DeadKernelError:
        outcome = "died"
        print(
            f"\n{path.name}: the kernel died, most often because memory ran out. Try smaller "
            "settings.",
            file=sys.stderr,
        )
    finally:
        print(f"{path.stem:<28}{outcome}  {time.monotonic() - began:5.1f} s", flush=True)
    if in_place and outcome == "done":
        _write_back(copy, path)
    return outcome == "done"


def _write_back(executed: Path, notebook: Path) -> None:
    """Put an executed copy's outputs into the notebook itself, without papermill's bookkeeping."""
    content = nbformat.read(executed, as_version=4)
    content.metadata.pop("papermill", None)
    content.metadata.pop("widgets", None)
    for cell in content.cells:
        cell.metadata.pop("papermill", None)
        cell.metadata.pop("execution", None)
    with atomic_write(notebook) as temporary:
        nbformat.write(content, temporary)


def _print_result(run: Run, evaluated: bool) -> None:
    """Where everything is, and what of it is older than what it was made from; the accuracies where
    they were measured now.
    """
    if evaluated and run.evaluation:
        from helpers.results.evaluation import summary

        print("\n".join(["", *summary(run.evaluation), ""]))
    parts = {"figures": "figures", "merged model": "merged", "notebooks": "notebooks"}
    for what, relative in parts.items():
        if (run.folder / relative).exists():
            print(f"{what:<13} {run.show(relative)}/")
    for part in ("reward_report.json", "evaluation.json", "merged"):
        if why := run.outdated(part):
            print(f"note: {why}")
