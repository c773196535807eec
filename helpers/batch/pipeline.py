"""papermill over the notebooks, with progress, refusing what papermill would only warn about."""

from __future__ import annotations

import ast
import difflib
import json
import logging
import sys
import time
from pathlib import Path

import nbformat
import papermill
from nbclient.exceptions import DeadKernelError
from papermill.engines import NBClientEngine, papermill_engines
from papermill.exceptions import PapermillExecutionError

from helpers import PROJECT, presets
from helpers.environment import pairs_that_disagree, this_machine
from helpers.runs import Run, atomic_write, check_seed, write_json
from helpers.training import memory, trackers

NOTEBOOKS = PROJECT / "notebooks"
_PIPELINE = ("01", "02", "03", "04", "05")
_ASKED = "asked.json"  # in the run folder: what was asked for, and which notebooks are done
_SLOW_CELL = 3.0  # seconds; where the output is no terminal, only cells slower than this get a line


def run(name: str, preset: str | None, only: str | None, parameters: list[str], in_place: bool = False) -> int:
    """Execute the chosen notebooks into runs/<name>/notebooks/ and print what came out. Returns the exit code.

    Everything that can be refused is refused before the first notebook starts: ValueError for a bad run name, preset,
    notebook number or parameter.
    """
    if in_place and (name != "demo" or preset is not None or parameters):
        raise ValueError("--in-place runs the notebooks with the parameters they are committed with; give none beside it.")
    paths = _chosen(only)
    given = _parsed(parameters)
    if preset is not None:
        if not any("preset" in _accepted(path) for path in paths):
            raise ValueError("--preset is notebook 01's to set, and 01 is not among --only. Later notebooks use the run's own.")
        given["preset"] = preset
    return _run(Run(name), paths, given, in_place)


def execute(name: str, numbers: list[str], given: dict) -> int:
    """`run` for a program: the numbers of the notebooks, and parameters by name with their values."""
    return _run(Run(name), _chosen(",".join(numbers)), given)


def check(name: str, numbers: list[str], given: dict) -> None:
    """Refuse what `execute` would refuse before it starts, and do nothing else. ValueError says what and why."""
    paths = _chosen(",".join(numbers))
    _refuse_unknown(given, {path: _accepted(path) for path in paths})
    _refuse_impossible(given, Run(name), set(numbers))


def defaults(numbers: list[str]) -> dict[str, object]:
    """The parameters that these notebooks take, by name, each with the value it has where none is given."""
    found = {}
    for path in _chosen(",".join(numbers)):
        found |= {name: _value(about["default"]) for name, about in papermill.inspect_notebook(str(path)).items()}
    return found


def last_asked(folder: Run) -> dict | None:
    """What `run` was last asked for in this folder: `parameters`, `notebooks` and, of these, `done`; None where nothing was."""
    try:
        asked = json.loads((folder.folder / _ASKED).read_text(encoding="utf-8"))
        return {key: asked[key] for key in ("parameters", "notebooks", "done")}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def resume(name: str) -> int:
    """Go on with what `run` was last asked for, where it stopped: the notebooks not yet done, with the same parameters.

    ValueError where there is nothing to go on with.
    """
    folder = Run(name)
    asked = last_asked(folder)
    if asked is None:
        raise ValueError(
            f"there is nothing to resume in {folder.show()}: no `python -m helpers run --run {name}` was started there. "
            "Rerunning notebook 03 itself goes on from its last checkpoint, too."
        )
    given, done, numbers = asked["parameters"], asked["done"], asked["notebooks"]
    left = [number for number in numbers if number not in done]
    if not left:
        print(f"run {name!r} is finished: {', '.join(numbers)} are done. Start it anew without --resume.")
        _print_result(folder, evaluated="05" in numbers)
        return 0
    print(f"resuming run {name!r} with {', '.join(left)}" + (f" and {given}" if given else ""))
    return _run(folder, _chosen(",".join(left)), given, done=done)


def _run(folder: Run, paths: list[Path], given: dict, in_place: bool = False, done: list[str] = ()) -> int:
    accepted = {path: _accepted(path) for path in paths}
    if not done:  # what was done took its parameters, which those that are left need not know
        _refuse_unknown(given, accepted)
    _refuse_impossible(given, folder, {path.name[:2] for path in paths})
    asked = {"parameters": given, "notebooks": [*done, *(path.name[:2] for path in paths)], "done": list(done)}
    started = time.monotonic()
    for path in paths:
        write_json(folder.path(_ASKED), asked)
        values = {key: value for key, value in given.items() if key in accepted[path]}
        try:
            succeeded = _execute(path, folder, {"run": folder.name} | values, in_place)
        except KeyboardInterrupt:
            again = f"python -m helpers run --run {folder.name} --resume"
            print(f"\nWhat was saved is whole; go on with `{again}`.", file=sys.stderr)
            raise
        if not succeeded:
            return 1
        asked["done"].append(path.name[:2])
    write_json(folder.path(_ASKED), asked)
    print(f"\n{len(paths)} notebook{'s' * (len(paths) > 1)} in {time.monotonic() - started:.0f} s")
    _print_result(folder, evaluated=any(path.name.startswith("05") for path in paths))
    return 0


def _chosen(only: str | None) -> list[Path]:
    known = {path.name[:2]: path for path in sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))}
    numbers = [part.strip().zfill(2) for part in only.split(",")] if only else [n for n in _PIPELINE if n in known]
    unknown = [number for number in numbers if number not in known]
    if unknown:
        raise ValueError(f"there is no notebook {', '.join(unknown)}. There are: {', '.join(known)}.")
    return [known[number] for number in sorted(set(numbers))]


def _parsed(parameters: list[str]) -> dict:
    values = {}
    for parameter in parameters:
        key, equals, text = parameter.partition("=")
        if not equals or not key.strip().isidentifier():
            raise ValueError(f"-p {parameter}: write it as KEY=VALUE, for example -p max_steps=20.")
        if key.strip() == "run":
            raise ValueError("-p run=…: name the run with --run NAME.")
        values[key.strip()] = _value(text.strip())
    return values


def _value(text: str) -> object:
    """A Python or JSON literal where the text is one (20, 1e-3, True, null, {"question": "q"}); otherwise the text itself."""
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):  # all that literal_eval raises
            continue
    return absolute(text)


def absolute(text: str) -> str:
    """A file, a function in a file (`file.py:function`) or a model's folder, named from where the command was given.

    The notebooks run in a folder of their own.
    """
    file, colon, function = text.rpartition(":") if ".py:" in text else (text, "", "")
    try:
        here = Path(file)
        return f"{here.resolve()}{colon}{function}" if here.is_file() or (here / "config.json").is_file() else text
    except (OSError, ValueError):  # no path at all: a long question, for example
        return text


def _accepted(path: Path) -> set[str]:
    return set(papermill.inspect_notebook(str(path)))


def _refuse_unknown(given: dict, accepted: dict[Path, set[str]]) -> None:
    known = set().union(*accepted.values())
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"Did you mean {near[0]!r}? " if near else ""
            raise ValueError(
                f"no chosen notebook has a parameter {name!r}. {hint}They take: {', '.join(sorted(known - {'run'}))}."
            )


def _refuse_impossible(given: dict, folder: Run, numbers: set[str]) -> None:
    """ValueError for settings that no notebook could run with: those of the preset, or of the run as it was prepared."""
    overrides = {name: value for name, value in given.items() if name in presets.SETTINGS}
    trackers.check(given.get("report_to", "none"))
    check_seed(given.get("seed", 0))
    for name in ("groups", "batch_size", "samples", "sampled_questions"):
        value = given.get(name)
        if value is not None and (type(value) is not int or value < 1):
            raise ValueError(f"{name}={value!r} is not a number of completions or questions: give an integer of at least 1.")
    if "01" in numbers:
        settings = presets.resolve(given.get("preset", "auto"), this_machine(), **overrides)
    elif "data" in folder.manifest:
        settings = presets.from_manifest(folder.manifest["data"]["settings"], **overrides)
    else:
        return  # the first notebook says what is missing
    loading = {"03", "05"} if "completions" in given else {"02", "03", "05"}  # 02 loads no model for stored completions
    if numbers & loading:
        memory.check(presets.check_machine(settings, this_machine()), this_machine())
        disagree = pairs_that_disagree(this_machine()) if settings.needs_gb else []
        if disagree:
            raise ValueError(f"{' '.join(disagree)} Mend it with `python -m helpers install`, or take `--preset pocket`.")


class _ProgressEngine(NBClientEngine):
    """papermill's own engine, telling a `_Progress` which cell it is in."""

    @classmethod
    def execute_managed_notebook(cls, nb_man, kernel_name, progress=None, **kwargs):
        """See papermill's Engine; `progress` is the one addition."""
        start, complete = nb_man.cell_start, nb_man.cell_complete

        def cell_start(cell, cell_index=None, **more):
            progress.start(cell_index, cell)
            start(cell, cell_index, **more)

        def cell_complete(cell, cell_index=None, **more):
            complete(cell, cell_index, **more)
            progress.complete()

        nb_man.cell_start, nb_man.cell_complete = cell_start, cell_complete
        progress.headings = _headings(nb_man.nb)  # with the cell of parameters that papermill has put in
        super().execute_managed_notebook(nb_man, kernel_name, **kwargs)


papermill_engines.register("progress", _ProgressEngine)


class _Progress:
    """One line that says which notebook, which cell, how long; on a terminal it is redrawn in place.

    Also stands in as the file that papermill copies the cells' standard output to, to show its last line live.
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
            titles = [line.lstrip("# ").strip() for line in cell.source.splitlines() if line.startswith("#")]
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
            str(path),
            str(copy),
            parameters={} if in_place else parameters,
            engine_name="progress",
            progress_bar=False,
            cwd=str(path.parent),
            stdout_file=progress,
            progress=progress,
            extra_arguments=["--IPKernelApp.log_level=50"],  # its notices would land in the middle of the progress
        )
    except PapermillExecutionError as error:
        progress.close("failed")
        print(f"\n{path.name}, cell {error.cell_index + 1}: {error.ename}: {error.evalue}", file=sys.stderr)
        print(
            f"The whole traceback is in {run.show(f'notebooks/{path.name}')}; what was saved before is as it was.",
            file=sys.stderr,
        )
        return False
    except DeadKernelError:
        progress.close("died")
        print(f"\n{path.name}: the kernel died, most often for want of memory. Try smaller settings.", file=sys.stderr)
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
    """Where everything lies; and the accuracies, if they were measured just now rather than of an earlier adapter."""
    evaluation = run.folder / "evaluation.json"
    if evaluated and evaluation.exists():
        from helpers.results.evaluation import summary

        print("\n".join(["", *summary(json.loads(evaluation.read_text(encoding="utf-8"))), ""]))
    for what, relative in (("figures", "figures"), ("merged model", "merged"), ("notebooks", "notebooks")):
        if (run.folder / relative).exists():
            print(f"{what:<13} {run.show(relative)}/")
