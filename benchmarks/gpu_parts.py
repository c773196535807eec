"""The parts of `make gpu-check`, in order of worth.

`benchmarks.gpu_check` runs each in a process of its own.

    python -m benchmarks.gpu_parts NAME RESULTS WORK [rehearse]

What a part finds is written to WORK/logs/NAME.json as it comes, so that of a part that is ended
early something is left. A part ends as soon as its standard input does, which whoever starts it
holds open. In a rehearsal the same lines run with the pocket model's sizes, and what they cannot
show is noted as `needs_gpu`.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import psutil

from benchmarks import gpu
from helpers import PROJECT
from helpers.commands import arguments
from helpers.environment import this_machine, vllm_obstacle
from helpers.presets import POCKET_MODEL, PRESETS
from helpers.runs import Run, write_json

# parts, and runs of the same names
REAL, POCKET, OBJECTIVE = "notebooks-real", "notebooks-pocket", "objective"
TOLERANCE = 0.15  # of an estimate, as a share of what is measured


@dataclass
class Check:
    """One part at work: where things lie, and what it has found so far.

    lines: Markdown. problems: what is wrong, a sentence each. needs_gpu: what was left out without
    one. data: for other parts.
    """

    name: str
    results: Path  # what earlier parts have found, as gpu_check wrote it
    work: Path
    rehearse: bool
    lines: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    needs_gpu: list[str] = field(default_factory=list)
    data: dict = field(default_factory=dict)

    def write(self) -> None:
        """Keep what was found so far."""
        found = {
            key: value
            for key, value in asdict(self).items()
            if key in ("lines", "problems", "needs_gpu", "data")
        }
        write_json(self.work / "logs" / f"{self.name}.json", found)

    def say(self, line: str) -> None:
        """One more line of Markdown."""
        self.lines.append(line)
        self.write()

    def earlier(self) -> dict[str, dict]:
        """The `data` of the parts that are written already, by name."""
        if not self.results.exists():
            return {}
        return {
            name: part["data"]
            for name, part in json.loads(self.results.read_text(encoding="utf-8")).items()
        }

    def model(self, name: str) -> str:
        """The folder of a random model of this shape; in a rehearsal of the pocket model's."""
        name = PRESETS[POCKET_MODEL].model_path if self.rehearse else name
        folder = self.work / "models" / Path(name).name
        # In a process of its own, which gives the card back.
        subprocess.run(
            [sys.executable, "-m", "benchmarks.gpu", name, str(folder)], cwd=PROJECT, check=True
        )
        return str(folder)


@dataclass(frozen=True)
class Part:
    """A part: `number` is the section it stands in, `seconds` the most it may take, `reads` the
    parts whose data it takes.
    """

    name: str
    number: int
    title: str
    seconds: int
    does: Callable[[Check], None]
    reads: tuple[str, ...] = ()


# --- 1. The notebooks -----------------------------------------------------------------------------


def _helpers(*words: object) -> int:
    return subprocess.run(
        [sys.executable, "-m", "helpers", "run", *map(str, words)], cwd=PROJECT
    ).returncode


def _execute(run: str, only: str, *words: object) -> bool:
    """Notebooks of a run, gone on with where an earlier call was cut short; whether they
    went through.
    """
    numbers, asked = only.split(","), arguments.last(Run(run))
    if set(numbers) <= set(asked["used"]):
        return True
    if asked["notebooks"] == numbers:
        return _helpers("--run", run, "--resume") == 0
    return _helpers("--run", run, "--only", only, *words) == 0


def _or_end(succeeded: bool) -> None:
    if not succeeded:
        sys.exit(1)  # the pipeline has said why


def _prepare(check: Check, run: str) -> None:
    """Notebook 01 for random weights, with which nothing can be learned, so everything is short."""
    if "01" in arguments.last(Run(run))["used"]:
        return
    preset, model = gpu.preset_for(this_machine()).name, check.model(gpu.SMALLEST)
    sizes = {
        "source": "arithmetic/sums",
        "train_size": 64,
        "holdout_size": 16,
        "max_completion_length": 64,
    }
    if check.rehearse:
        sizes |= {"holdout_size": 8, "max_completion_length": 32}
    _or_end(
        _helpers("--run", run, "--only", "01", "--preset", preset, *_given(model=model, **sizes))
        == 0
    )


def _given(**values: object) -> list[str]:
    return [word for name, value in values.items() for word in ("-p", f"{name}={value}")]


def _short_training(check: Check) -> list[str]:
    small = {"per_device_train_batch_size": 8} if check.rehearse else {}
    return _given(max_steps=3, learning_rate=1e-3, **small)


def notebooks_on_random_weights(check: Check) -> None:
    """01 to 05 unchanged. 02 says no go, as it should: rewards that never differ teach nothing."""
    run = Run(REAL)
    _prepare(check, REAL)
    _execute(REAL, "02", *_given(groups=4))
    run.require("reward_report.json")
    evaluating = _given(serve=False, sampled_questions=4)
    _or_end(_execute(REAL, "03,04,05", *_short_training(check), *evaluating))
    _outcome(check, run)


def notebooks_on_the_pocket_model(check: Check) -> None:
    """01 to 05 unchanged, and that it learns."""
    sizes = (
        {"train_size": 200, "holdout_size": 64, "sampled_questions": 8, "max_steps": 4}
        if check.rehearse
        else {}
    )
    _or_end(_execute(POCKET, "01,02,03,04,05", "--preset", "pocket", *_given(serve=False, **sizes)))
    evaluation = _outcome(check, Run(POCKET))
    if not check.rehearse and evaluation["baseline"]["ci95"][1] >= evaluation["trained"]["ci95"][0]:
        check.problems.append(
            "the pocket model did not learn: the intervals before and after training overlap."
        )


def _outcome(check: Check, run: Run) -> dict:
    """Say what the run came to, and check that its history and its evaluation are whole; the
    evaluation.
    """
    import pandas as pd

    from helpers.results.evaluation import summary

    history = pd.read_csv(run.require("metrics.csv"))
    evaluation = json.loads(run.require("evaluation.json").read_text(encoding="utf-8"))
    settings = run.section("training")["settings"]
    check.data["merge"] = _proof(run)
    shape = "the pocket model's shapes" if check.rehearse else Path(settings["model"]).name
    check.say(
        f"- {shape}: {len(history)} steps, sampled by {settings['engine']}, trained by "
        f"{settings['backend']}"
    )
    check.say("\n".join(["", "```", *summary(evaluation), "```"]))
    if (
        list(history["step"]) != list(range(1, settings["max_steps"] + 1))
        or history["grad_norm"].isna().any()
    ):
        check.problems.append(
            f"{run.show('metrics.csv')} lacks steps, or a gradient was not a number."
        )
    if missing := {"baseline", "trained", "merged"} - set(evaluation):
        check.problems.append(
            f"{run.show('evaluation.json')} has no {' and no '.join(sorted(missing))}."
        )
    return evaluation


# --- 2. The objective -----------------------------------------------------------------------------


def objective(check: Check) -> None:
    """Notebook 03 unchanged but for one cell at its end, which writes down what its trainer really
    has.
    """
    import nbformat
    import papermill

    from benchmarks import gpu_objective

    _prepare(check, OBJECTIVE)
    run, (source,) = Run(OBJECTIVE), (PROJECT / "notebooks").glob("03_*.ipynb")
    notebook = nbformat.read(source, as_version=4)
    cell = "from benchmarks import gpu_objective\n\ngpu_objective.write(trainer, folder)"
    notebook.cells.append(nbformat.v4.new_code_cell(cell))
    copy = run.path(f"notebooks/{source.name}")
    nbformat.write(notebook, copy)
    smaller = (
        {"per_device_train_batch_size": 8, "max_completion_length": 24} if check.rehearse else {}
    )
    given = {"run": OBJECTIVE, "max_steps": 1} | smaller
    papermill.execute_notebook(copy, copy, given, cwd=source.parent, progress_bar=False)
    rows = gpu_objective.compare(run)
    check.say(f"- {len(rows)} settings of the objective, as the live trainer has them:")
    check.say("")
    for line in gpu_objective.table(rows):
        check.say(line)
    check.problems += [row.problem for row in rows if row.problem]
    if check.rehearse:
        check.needs_gpu.append("the trainer that Unsloth generates for a GPU")


# --- 3 and 4. Speed, memory, estimates ------------------------------------------------------------


def speed(case: str) -> Callable[[Check], None]:
    """The part that measures a case of `gpu.CASES`."""

    def measure(check: Check) -> None:
        machine = this_machine()
        if machine.gpu is None and (
            case == "TRL + vLLM" or ("vLLM" in case and vllm_obstacle(machine))
        ):
            check.needs_gpu.append(f"{case}, its speed and its memory")
            return
        preset = gpu.preset_for(machine)
        model = POCKET_MODEL if check.rehearse else check.model(preset.model)
        settings = gpu.settings_of(case, preset, model)
        if check.rehearse:
            settings = replace(settings, per_device_train_batch_size=8, max_completion_length=16)
            check.needs_gpu.append("the memory in use")
        check.data["row"] = gpu.measure(case, settings, steps=1 if check.rehearse else 3)
        sizes = (
            f"{settings.completions_per_step} completions of {settings.max_completion_length} "
            "tokens a step"
        )
        check.say(
            f"- {preset.model if not check.rehearse else POCKET_MODEL}, {sizes}, preset "
            f"{preset.name}"
        )

    return measure


def estimates(check: Check) -> None:
    """The estimated memory of each measured case against the measured."""
    rows = [data["row"] for data in check.earlier().values() if "row" in data]
    ratios = {row["case"]: ratio for row in rows if (ratio := gpu.estimate_to_peak(row))}
    for case, ratio in ratios.items():
        check.say(f"- {case}: estimate / measured = {ratio:.2f}")
        if abs(ratio - 1) > TOLERANCE:
            check.problems.append(
                f"the estimate for {case} is {ratio:.2f} of what was measured, not within "
                f"{TOLERANCE:.0%}."
            )
    if not ratios and check.rehearse:
        check.needs_gpu.append("estimates against measured memory")
    elif not ratios:
        check.problems.append("no case was measured, so there is nothing to hold the estimates to.")


# --- 5. The merge ---------------------------------------------------------------------------------


def merge(check: Check) -> None:
    """What notebook 05's proof measured in 16 bits, merging into either base; a refusal is 05's own
    message.
    """
    run = Run(REAL)
    _prepare(check, REAL)
    _or_end(_execute(REAL, "03", *_short_training(check)))
    proofs = {name: data["merge"] for name, data in check.earlier().items() if data.get("merge")}
    for name, proof in proofs.items():
        _say_proof(check, name, proof)
    if check.rehearse:
        check.needs_gpu.append("the proof at bf16, and Unsloth's own merge")
        return
    for base in ("original", "dequantised"):
        if proofs.get(REAL, {}).get("into") != base:
            _or_end(
                _helpers(
                    "--run",
                    REAL,
                    "--only",
                    "05",
                    *_given(merge=base, serve=False, sampled_questions=4),
                )
                == 0
            )
            _say_proof(check, REAL, _proof(run))


def _proof(run: Run) -> dict:
    """What notebook 05 recorded of its merge, without when and with what."""
    return {
        key: value
        for key, value in run.manifest.get("merge", {}).items()
        if key not in ("written", "versions", "git")
    }


def _say_proof(check: Check, name: str, proof: dict) -> None:
    said = (
        f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}"
        for key, value in proof.items()
    )
    check.say(f"- {name}: {', '.join(said)}")


# --- 6. The rest ----------------------------------------------------------------------------------


def rest(check: Check) -> None:
    """The tests in tests/gpu."""
    command = [sys.executable, "-m", "pytest", "-v", "-rfE", "-p", "no:cacheprovider", "tests/gpu"]
    command += ["--noconftest"] * check.rehearse  # which imports Unsloth, and here all is skipped
    skipped = 0
    with subprocess.Popen(
        command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        for line in process.stdout:
            print(line, end="", flush=True)
            if test := re.match(r"tests/\S+::(\S+) (PASSED|FAILED|SKIPPED|ERROR)", line):
                skipped += test[2] == "SKIPPED"
                check.say(f"- {test[1]}: {test[2].lower()}")
            elif failure := re.match(r"(?:FAILED|ERROR) tests/\S+::(.*)", line):
                check.problems.append(f"{failure[1]}.")
    if skipped:
        check.needs_gpu.append(
            f"{skipped} tests" if check.rehearse else f"{skipped} tests: vLLM does not serve here"
        )
    if process.returncode and not check.problems:
        sys.exit(process.returncode)


_SPEEDS = {case: f"speed-{case.lower().replace(' + ', '-')}" for case in gpu.CASES}
PARTS = (
    Part(
        REAL,
        1,
        f"Notebooks 01 to 05 on random weights of {Path(gpu.SMALLEST).name}'s shapes",
        420,
        notebooks_on_random_weights,
    ),
    Part(POCKET, 1, "Notebooks 01 to 05 on the pocket model", 300, notebooks_on_the_pocket_model),
    Part(
        OBJECTIVE, 2, "The objective that is trained is the one that was recorded", 240, objective
    ),
    *(Part(name, 3, f"A step of GRPO: {case}", 240, speed(case)) for case, name in _SPEEDS.items()),
    Part(
        "estimates",
        4,
        f"Estimated memory within {TOLERANCE:.0%} of measured",
        30,
        estimates,
        tuple(_SPEEDS.values()),
    ),
    Part("merge", 5, "What the proof of a merge measures", 240, merge, (REAL, POCKET)),
    Part("rest", 6, "The rest: tests/gpu", 420, rest),
)


def _end_with_parent() -> None:
    os.read(0, 1)  # returns when the pipe is closed, and with kill -9 the system closes it
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()  # at once: the next check may start the same part
    os._exit(1)


def main(name: str, results: str, work: str, *mode: str) -> None:
    """Do one part. A problem that ends it goes through as it was raised."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    check = Check(name, Path(results), Path(work), "rehearse" in mode)
    try:
        next(part for part in PARTS if part.name == name).does(check)
    finally:
        check.write()


if __name__ == "__main__":
    main(*sys.argv[1:])
