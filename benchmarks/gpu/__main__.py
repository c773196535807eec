"""All parts in order of worth, each in a process and with a budget of its own: `make gpu-check`.

    python -m benchmarks.gpu                # goes on: what has passed is not done again
    python -m benchmarks.gpu nf4 decode     # these, again
    python -m benchmarks.gpu --rehearse     # on the CPU at pocket shapes, without the notebooks

No network is asked for, and no version is insisted on. After each part the page of results is
written: benchmarks/results/gpu.md, or runs/gpu-rehearsal.md. Logs are in runs/gpu-check/.
"""

import argparse
import ast
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.gpu import common
from helpers import PROJECT
from helpers.runs import runs_folder

# The seconds that each may take. Only notebooks, engine and beside need vLLM. On an H200 nf4, merge_proof and memory
# took 45 to 57 s, trl_step 74 s, and unsloth_step, beside other work, more than 120 s.
PARTS = {
    "nf4": 120,
    "unsloth_step": 200,
    "trl_step": 120,
    "pocket": 160,
    "merge_proof": 120,
    "memory": 120,
    "sampling": 120,
    "learning": 120,
    "decode": 120,
    "notebooks": 1500,
    # what has not met a card yet, in this order in six minutes: benchmarks/gpu/README.md
    "engine": 60,
    "continued": 70,
    "lessons": 150,
    "checkpointing": 60,
    "beside": 120,
}
_NOT_REHEARSED = ("pocket", "notebooks", "beside")  # tests/gpu_path executes these notebooks
_SLOWER = 4  # times as long a part may take in a rehearsal
_WHY = re.compile(r"^(?:[\w.]*(?:Error|Exception|Interrupt)\b|error: ).*", re.M)


def main() -> int:
    """0 if no part failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument(
        "--minutes", type=float, default=60, help="begin no part that may take longer"
    )
    common.add_arguments(parser)
    args = parser.parse_args()
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; known: {', '.join(PARTS)}")
    folder, ends = common.folder_of(args), time.monotonic() + 60 * args.minutes
    # a kill ends the part that runs, too, as Ctrl-C does
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    for part in args.parts or PARTS:
        if part in _NOT_REHEARSED and args.rehearse:
            print(f"{part:<14} is not rehearsed: tests/gpu_path executes its notebooks")
            continue
        budget = PARTS[part] * (_SLOWER if args.rehearse else 1)
        if not args.parts and read(folder, part).get("outcome") == "passed":
            print(f"{part:<14} has passed before")
        elif ends - time.monotonic() < budget:
            print(f"{part:<14} may take {budget} s: left for the next call")
        else:
            print(f"{part:<14} …", flush=True)
            found = run(part, folder, args.rehearse, budget)
            print(f"{part:<14} {found['outcome']}, {found['seconds']:.0f} s", *found["problems"])
            folder.with_suffix(".md").write_text(page(folder, args.rehearse), encoding="utf-8")
    print(f"written to {folder.with_suffix('.md')}")
    return int(any(read(folder, part).get("outcome") == "failed" for part in PARTS))


def run(part: str, folder: Path, rehearse: bool, budget: float) -> dict:
    """Return what came of a part. One that is cut short has failed, and the next call does it again."""
    log = runs_folder() / "gpu-check" / f"{part}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    (folder / f"{part}.json").unlink(missing_ok=True)
    options = ["--to", str(folder), *["--rehearse"] * rehearse]
    began = time.monotonic()
    with log.open("w", encoding="utf-8") as output:
        # with a session of its own, which can be ended as a whole
        process = subprocess.Popen(
            [sys.executable, "-m", f"benchmarks.gpu.{part}", *options],
            cwd=PROJECT,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            process.wait(budget)
        except subprocess.TimeoutExpired:
            pass
        finally:
            ended = process.returncode is not None
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with whatever it has left
            process.wait()
    if not read(folder, part):
        # why it failed, by its log: what _WHY finds last, or else the last line
        text = log.read_text(encoding="utf-8", errors="replace")
        why = _WHY.findall(text) or [line for line in text.splitlines() if line.strip()]
        problem = why[-1].strip() if why else "it ended without a word"
        if not ended:
            problem = f"It was ended after {budget} s, its budget."
        found = {"outcome": "failed", "seconds": time.monotonic() - began, "on": common.machine()}
        found |= {"found": {}, "problems": [problem], "left_out": []}
        common.write(folder, part, found)
    return read(folder, part)


def read(folder: Path, part: str) -> dict:
    """What a part has written; empty if it has not been run."""
    path = folder / f"{part}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def page(folder: Path, rehearse: bool) -> str:
    """The results in Markdown, a row for each part."""
    lines = [
        f"# {'A rehearsal on a CPU of what' if rehearse else 'What'} is measured on a GPU",
        "",
        "`make gpu-check` runs all parts and writes this page. `python -m benchmarks.gpu.nf4` runs one",
        "part alone. Each part is a file in `benchmarks/gpu/`.",
        "",
        "| part | what it shows | outcome | found | on |",
        "|---|---|---|---|---|",
    ]
    for part in PARTS:
        source = Path(__file__).with_name(f"{part}.py").read_text(encoding="utf-8")
        title = ast.get_docstring(ast.parse(source)).splitlines()[0].rstrip(".")
        report = read(folder, part)
        if not report:
            outcome = "not rehearsed" if rehearse and part in _NOT_REHEARSED else "not run"
            lines.append(f"| `{part}` | {title} | {outcome} | | |")
            continue
        cells = list(report["problems"])
        for name, value in report["found"].items():
            digits = f"{value:.3g}" if isinstance(value, float) else value
            cells.append(f"{name}: {digits}")
        cells += [f"not measured: {reason}" for reason in report["left_out"]]
        outcome = f"{report['outcome']}, {report['seconds']:.0f} s"
        lines.append(f"| `{part}` | {title} | {outcome} | {'<br>'.join(cells)} | {report['on']} |")
    history = folder / "history.md"
    if history.exists():  # what earlier runs gave
        lines += ["", history.read_text(encoding="utf-8").rstrip()]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.exit(main())
