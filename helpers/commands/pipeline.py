"""papermill over the notebooks, with progress, refusing what papermill would only warn about."""

from __future__ import annotations

import contextlib
import json
import logging
import signal
import sys
import threading
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
from papermill.iorw import LocalHandler, papermill_io

from helpers import PROJECT, presets
from helpers.commands import arguments, checks
from helpers.environment import this_machine
from helpers.runs import LESSONS, Run, atomic_write, held
from helpers.training import memory, ranks, server

NOTEBOOKS = PROJECT / "notebooks"
_SLOW_CELL = 3.0  # seconds; where the output is no terminal, only cells slower than this get a line


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
    notebooks' own.
    once: where the same was asked for last time, what is done of it is not done again, as with
    `resume`.
    """
    if in_place and (name not in (None, "demo") or preset is not None or parameters):
        raise ValueError(
            "--in-place runs the notebooks with the parameters they are committed with; give none "
            "beside it."
        )
    paths = _chosen(None if only is None else arguments.numbers(only))
    given = arguments.parameters(parameters)
    if in_place:
        name = "demo"  # for the executed copies; each notebook takes the run that it names itself
    elif name is None:
        own = {path.name[:2]: defaults([path.name[:2]])["run"] for path in paths}
        if len({*own.values()}) > 1:
            named = ", ".join(f"{number}: {default}" for number, default in own.items())
            raise ValueError(
                f"these notebooks have runs of their own ({named}). Call them one at a time, or "
                "give --run NAME."
            )
        name = own[paths[0].name[:2]]
    if preset is not None:
        if not any("preset" in _accepted(path) for path in paths):
            raise ValueError(
                "--preset is notebook 01's to set, and 01 is not among --only. Later notebooks "
                "use the run's own."
            )
        given["preset"] = preset
    if (
        once
        and not in_place
        and arguments.asked_alike(Run(name), given, [path.name[:2] for path in paths])
    ):
        return resume(name)
    return _run(Run(name), paths, given, in_place, fresh=fresh)


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
    arguments.refuse_unknown(given, set().union(*(_accepted(path) for path in _chosen(numbers))))
    _refuse_impossible(given, Run(name), set(numbers), elsewhere)
    _refuse_to_mix(Run(name), numbers)


def defaults(numbers: list[str] | None) -> dict[str, object]:
    """The parameters that these notebooks (None: 01 to 05) take, by name, each with the value it
    has where none is given.
    """
    found = {}
    for path in _chosen(numbers):
        found |= {
            name: arguments.value(about["default"]) for name, about in _parameters_of(path).items()
        }
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
            f"{name}` was started there. "
            "Rerunning notebook 03 itself goes on from its last checkpoint, too."
        )
    given, left = last["parameters"], arguments.left(last)
    if not left:
        done = ", ".join(last["notebooks"])
        print(
            f"run {name!r} is finished: {done} are done. A call without --resume and --once "
            "starts it anew."
        )
        _print_result(folder, evaluated="05" in last["notebooks"])
        return 0
    return _run(folder, _chosen(left), given, resumed=last)


def _run(
    folder: Run,
    paths: list[Path],
    given: dict,
    in_place: bool = False,
    fresh: bool = False,
    resumed: dict | None = None,
    how: Callable | None = None,
) -> int:
    numbers, accepted = [path.name[:2] for path in paths], {path: _accepted(path) for path in paths}
    if not resumed:  # what was done took its parameters, which those that are left need not know
        arguments.refuse_unknown(given, set().union(*accepted.values()))
    settings = _refuse_impossible(given, folder, set(numbers))
    if not in_place:
        _refuse_to_mix(folder, numbers, fresh)
    # Of several processes, what a signal ends is left to the launcher: one that waits for another
    # cannot end itself.
    with (
        held(folder.folder, f"run {folder.name!r}"),
        ended_like_ctrl_c() if ranks.world() == 1 else contextlib.nullcontext(),
    ):
        for number in numbers:
            folder.check_not_trained(number)
        if resumed:
            print(
                f"resuming run {folder.name!r} with {', '.join(numbers)}"
                + (f" and {given}" if given else "")
            )
        else:
            if fresh:
                if any(map(folder.is_of_another_lesson, numbers)):
                    print(f"set aside, whole: {folder.set_aside()}")
                arguments.set_training_aside(folder, numbers)
            else:
                arguments.refuse_to_lose(
                    folder, numbers, _differences(folder, numbers, given, settings)
                )
            arguments.tell_replaced(folder, numbers, given)
        call = resumed or {
            "parameters": given,
            "notebooks": numbers,
            "done": [],
            "used": arguments.used(folder),
        }
        return _execute_all(folder, accepted, given, call, in_place, how or _execute)


def _execute_all(
    folder: Run,
    accepted: dict[Path, set[str]],
    given: dict,
    call: dict,
    in_place: bool,
    how: Callable,
) -> int:
    """Execute the notebooks in order, noting in asked.json what is done; the exit code."""
    for left_by_a_kill in folder.folder.glob("notebooks/.*.tmp"):
        left_by_a_kill.unlink()
    started = time.monotonic()
    for path, known in accepted.items():
        arguments.write(folder, call)
        values = {key: value for key, value in given.items() if key in known}
        succeeded = False
        try:
            succeeded = how(path, folder, {"run": folder.name} | values, in_place)
        except KeyboardInterrupt:
            _end.asked = True
        except Exception:
            # else no failure of the notebook: a kernel that was ended while it started, for example
            if not _end.asked:
                raise
        if _end.asked:
            # What a task of the ended kernel still raises is no news; asyncio would print its
            # traceback.
            logging.getLogger("asyncio").setLevel(logging.CRITICAL)
            resume = f"go on with `python -m helpers run --run {folder.name} --resume`"
            again = resume if how is _execute else "the same command goes on from there"
            lost = path.name.startswith("03") and not arguments.interrupted_training(folder)
            told = (
                " The training had saved no checkpoint yet, so it will begin anew." if lost else ""
            )
            print(f"\nWhat was saved is whole; {again}.{told}", file=sys.stderr)
            raise KeyboardInterrupt
        if not succeeded:
            return 1
        call["done"].append(path.name[:2])
        call["used"][path.name[:2]] = values
    arguments.write(folder, call)
    print(
        f"\n{len(accepted)} notebook{'s' * (len(accepted) > 1)} in "
        f"{time.monotonic() - started:.0f} s"
    )
    _print_result(folder, evaluated=any(path.name.startswith("05") for path in accepted))
    return 0


class _End:
    """Whether the end was asked for, and whether a kernel is starting, which an interruption could
    leave behind.
    """

    asked = kernel_starts = False


_end = _End()


@contextlib.contextmanager
def ended_like_ctrl_c() -> Iterator[None]:
    """A kill or a closed terminal ends the block as Ctrl-C does, so that kernels and runs are
    ended, and waited for.

    Whatever was left running would write where the next call does. A signal that is ignored (nohup)
    stays so.
    """
    _end.asked = False

    def end(number, frame):
        _end.asked = True
        if not _end.kernel_starts:
            raise KeyboardInterrupt

    known = [
        getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
    ]
    main = threading.current_thread() is threading.main_thread()  # only there may handlers be set
    before = {
        number: signal.getsignal(number)
        for number in known
        if main and signal.getsignal(number) != signal.SIG_IGN
    }
    for number in before:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _chosen(numbers: list[str] | None) -> list[Path]:
    known = {path.name[:2]: path for path in sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))}
    numbers = arguments.PIPELINE if numbers is None else numbers
    unknown = [number for number in numbers if number not in known]
    if unknown:
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


def _accepted(path: Path) -> set[str]:
    return set(_parameters_of(path))


def _refuse_impossible(
    given: dict, folder: Run, numbers: set[str], elsewhere: bool = False
) -> presets.Preset | None:
    """ValueError for parameters that no notebook could run with: settings of the preset, or of the
    run as it was prepared, and all others by the rule of the notebook that takes them.

    Returns the settings that the notebooks will record; None where nothing was prepared.
    """
    overrides = {name: value for name, value in given.items() if name in presets.SETTINGS}
    settings = None
    if "01" in numbers:
        settings = presets.resolve(given.get("preset", "auto"), this_machine(), **overrides)
    elif "data" in folder.manifest:
        read = ranks.from_manifest if "03" in numbers else presets.for_sampling
        settings = read(folder.manifest["data"]["settings"], **overrides)
    checks.check(given, folder.name, settings.backend if settings else "unsloth")
    if settings is None or elsewhere:
        return settings  # the first notebook says what is missing
    server.check(given.get("vllm_server"), settings, this_machine())
    # 02 loads no model for stored completions
    loading = {"03", "05"} if "completions" in given else {"02", "03", "05"}
    if numbers & loading:
        checked = presets.check_machine(settings, this_machine())
        memory.check(checked, this_machine())
    return checked if "03" in numbers else settings


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


def _differences(
    folder: Run, numbers: list[str], given: dict, settings: presets.Preset | None
) -> list[str]:
    """In what the data and the training of this call would not be those of an interrupted training;
    empty without one.
    """
    found, data = arguments.interrupted_training(folder), folder.manifest.get("data", {})
    if not found or not settings or not {"01", "03"} & set(numbers):
        return []
    before = found[1] if "03" in numbers else data
    seed = given.get("seed", defaults(["03"])["seed"])
    said = arguments.changes(
        ranks.comparable(before["settings"]), ranks.comparable(presets.as_settings(settings))
    )
    said += arguments.changes({"seed": before.get("seed")}, {"seed": seed})
    if "01" in numbers:
        plain = {"run", "preset", "seed", *presets.SETTINGS}  # compared above
        usual = {name: value for name, value in defaults(["01"]).items() if name not in plain}
        had = arguments.used(folder).get("01", {"tags": data.get("tags", usual["tags"])})
        had, has = (
            {name: one.get(name, value) for name, value in usual.items()} for one in (had, given)
        )
        said += arguments.changes(
            {"seed of the data": data.get("seed")}, {"seed of the data": seed}
        ) + arguments.changes(had, has)
    return said


class _WholeFiles(LocalHandler):
    """papermill's files, each written whole or not at all: it rewrites the copy of a notebook at
    each cell.
    """

    def write(self, buf, path):
        """See papermill's LocalHandler."""
        with atomic_write(Path(path)) as temporary:
            temporary.write_text(buf, encoding="utf-8")


papermill_io.register(PROJECT.anchor, _WholeFiles())  # that is, for absolute paths


class _ProgressEngine(NBClientEngine):
    """papermill's own engine, telling a `_Progress` which cell it is in, and leaving no
    kernel behind.
    """

    @classmethod
    def execute_managed_notebook(cls, nb_man, kernel_name, progress=None, **kwargs):
        """See papermill's Engine; `progress` is the one addition."""
        start, complete = nb_man.cell_start, nb_man.cell_complete

        def cell_start(cell, cell_index=None, **more):
            _end.kernel_starts = False
            if _end.asked:
                raise KeyboardInterrupt
            progress.start(cell_index, cell)
            start(cell, cell_index, **more)

        def cell_complete(cell, cell_index=None, **more):
            complete(cell, cell_index, **more)
            progress.complete()

        nb_man.cell_start, nb_man.cell_complete = cell_start, cell_complete
        # with the cell of parameters that papermill has put in
        progress.headings = _headings(nb_man.nb)
        client = _Client(
            nb_man,
            kernel_name=kernel_name,
            log=logging.getLogger("papermill"),
            stdout_file=progress,
            # its notices would land in the middle of the progress
            extra_arguments=["--IPKernelApp.log_level=50"],
        )
        _end.kernel_starts = True
        try:
            client.execute()
        finally:
            _end.kernel_starts = False
            # nbclient ends its kernel itself, except where it is interrupted while the kernel
            # starts.
            if client.km is not None and client.km.has_kernel:
                client._cleanup_kernel()


papermill_engines.register("progress", _ProgressEngine)


class _Client(PapermillNotebookClient):
    """papermill's own client, which also passes on the line of a training step: it is displayed,
    each in place of the last.
    """

    def process_message(self, msg, cell, cell_index):
        """See nbclient's NotebookClient."""
        if msg["msg_type"] in ("display_data", "update_display_data"):
            text = msg["content"]["data"].get("text/plain", "")
            if text.startswith("step "):
                self.stdout_file.write(f"{text}\n")
        return super().process_message(msg, cell, cell_index)


class _Progress:
    """One line that says which notebook, which cell, how long; on a terminal it is redrawn in
    place.

    Also stands in as the file that papermill copies the cells' standard output to, to show its last
    line live.
    """

    def __init__(self, title: str):
        self.title = title
        self.headings: list[str] = []
        self.live = sys.stdout.isatty()
        self.began = self.cell_began = time.monotonic()
        self.where = ""
        if not self.live:
            print(f"{title} …", flush=True)

    def start(self, index: int, cell) -> None:
        """A cell starts; index counts from 0."""
        self.cell_began = time.monotonic()
        self.where = f"cell {index + 1}/{len(self.headings)}  {self.headings[index]}"
        self._draw("")

    def write(self, text: str) -> None:
        """Standard output of the running cell."""
        lines = [line for line in text.splitlines() if line.strip()]
        if lines and self.live:
            self._draw(lines[-1])
        elif lines and lines[-1].startswith("step "):
            print(f"    {lines[-1]}", flush=True)

    def flush(self) -> None:
        """Nothing is held back; papermill calls this on any file."""

    def complete(self) -> None:
        """The running cell is done."""
        seconds = time.monotonic() - self.cell_began
        if not self.live and seconds > _SLOW_CELL:
            print(f"    {self.where}  {seconds:.0f} s", flush=True)

    def close(self, outcome: str) -> None:
        """The notebook is done."""
        line = f"{self.title:<28}{outcome}  {time.monotonic() - self.began:5.1f} s"
        print(f"\r\x1b[K{line}" if self.live else line, flush=True)

    def _draw(self, output: str) -> None:
        if self.live:
            text = f"{self.title}  {self.where}  {time.monotonic() - self.began:.0f} s  {output}"
            print(f"\r\x1b[K{text[:118]}", end="", flush=True)


def _headings(notebook) -> list[str]:
    """For each cell the last Markdown heading above it."""
    headings, current = [], ""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            titles = [
                line.lstrip("# ").strip()
                for line in cell.source.splitlines()
                if line.startswith("#")
            ]
            current = titles[-1] if titles else current
        headings.append(current)
    return headings


def _execute(path: Path, run: Run, parameters: dict, in_place: bool) -> bool:
    """Execute one notebook; whether it went through. The executed copy is saved cell by cell."""
    copy = run.path(f"notebooks/{path.name}")
    progress = _Progress(path.stem)
    logging.getLogger("papermill").setLevel(logging.ERROR)
    try:
        papermill.execute_notebook(
            _literal(path),
            _literal(copy),
            parameters={} if in_place else parameters,
            engine_name="progress",
            progress_bar=False,
            cwd=str(path.parent),
            progress=progress,
        )
    except PapermillExecutionError as error:
        progress.close("failed")
        print(
            f"\n{path.name}, cell {error.cell_index + 1}: {error.ename}: {error.evalue}",
            file=sys.stderr,
        )
        print(
            f"The whole traceback is in {run.show(f'notebooks/{path.name}')}; what was saved "
            "before is as it was.",
            file=sys.stderr,
        )
        return False
    except DeadKernelError:
        progress.close("died")
        print(
            f"\n{path.name}: the kernel died, most often for want of memory. Try smaller settings.",
            file=sys.stderr,
        )
        return False
    except KeyboardInterrupt:
        progress.close("interrupted")
        raise
    progress.close("done")
    if in_place:
        _write_back(copy, path)
    return True


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
    evaluation = run.folder / "evaluation.json"
    if evaluated and evaluation.exists():
        from helpers.results.evaluation import summary

        print("\n".join(["", *summary(json.loads(evaluation.read_text(encoding="utf-8"))), ""]))
    for what, relative in (
        ("figures", "figures"),
        ("merged model", "merged"),
        ("notebooks", "notebooks"),
    ):
        if (run.folder / relative).exists():
            print(f"{what:<13} {run.show(relative)}/")
    for part in ("reward_report.json", "figures/reward.png", "evaluation.json", "merged"):
        if why := run.outdated(part):
            print(f"note: {why}")
