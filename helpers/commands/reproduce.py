"""`python -m helpers reproduce`: rerun a run from what it recorded, and compare number for number:
the data, then every step of the training.
"""

import argparse
from pathlib import Path

import pandas as pd

from helpers.commands import arguments, pipeline
from helpers.presets import SETTINGS
from helpers.rewards import own
from helpers.runs import FILES, LESSONS, Run, held
from helpers.tags import TagFormat

_TIMES = ("_time", "_runtime", "_per_second")  # ends of the names of columns that no two runs share
# They change no number, and a rerun should neither upload nor convert.
_LEFT_OUT = ("report_to", "push_to_hub", "gguf")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `reproduce` takes."""
    parser.add_argument(
        "--run",
        default="demo",
        metavar="NAME",
        help="the run (default: demo); the new one is NAME-again",
    )
    parser.add_argument(
        "--only",
        metavar="NN,NN",
        help="only these of its notebooks, e.g. 01,03 (default: all it has done)",
    )


def main(parsed: argparse.Namespace) -> int:
    """Rerun a run's notebooks with its settings and seeds as `<name>-again`, compare, and print
    what was found. What the new folder holds, such as an earlier reproduction, is set aside in it.

    Returns 0 where the data and every value of metrics.csv but times are the same, else 1.
    ValueError or FileNotFoundError, before anything runs, where the run was not trained or cannot
    run here.
    """
    run, again = Run(parsed.run), Run(f"{parsed.run}-again")
    run.require("metrics.csv")
    data, training = run.section("data"), run.section("training")
    if (lesson := data.get("notebook")) in LESSONS:
        raise ValueError(
            f"run {run.name!r} is notebook {lesson}'s, and reproduce repeats 01 to 05. Run "
            f"{lesson} under another name."
        )
    if (processes := training["settings"].get("processes", 1)) > 1:
        raise ValueError(
            f"run {run.name!r} was trained by {processes} processes, each with random numbers of "
            "its own, and reproduce has one. Train it again under another name, as it was "
            "launched, and look at both with `python -m helpers compare`."
        )
    # the notebooks that it has done, by its manifest and by what was asked for
    done = {number for number, section in FILES.values() if section in run.manifest}
    done |= set(arguments.last(run)["used"]) & set(arguments.PIPELINE)
    numbers = sorted(done) if parsed.only is None else arguments.numbers(parsed.only)
    if not {"01", "03"} <= set(numbers) <= done:
        raise ValueError(
            f"--only {parsed.only}: give some of {', '.join(sorted(done))}, which are done; 01 and "
            "03 among them."
        )
    given = pipeline.taken(parameters(run), numbers)
    pipeline.check(again.name, numbers, given, fresh=True)
    with held(again.folder, f"run {again.name!r}"):
        if aside := again.set_aside():
            print(f"set aside, whole: {aside}")
        # 01 by itself: its data may have been drawn with another seed than the training's
        others = [number for number in numbers if number != "01"]
        for part, seed in ((["01"], data["seed"]), (others, training["seed"])):
            values = pipeline.taken(given, part) | {"seed": seed}
            if code := pipeline.execute(again.name, part, values):
                return code
        return compare(run, again)


def parameters(run: Run) -> dict:
    """What to give the notebooks for such a run: what it was asked for, and over that what its
    manifest records as used. The seeds of 01 and 03, which may differ, are left to `main`.

    Without asked.json (a run by hand) `columns` is lost, and so is what 02, 04 and 05 were given;
    the data's fingerprint then tells.
    """
    data, settings = run.section("data"), run.section("training")["settings"]
    used, given = arguments.last(run)["used"], {}
    for number in arguments.PIPELINE:
        given |= used.get(number, {})
    given = {name: value for name, value in given.items() if name not in (*SETTINGS, *_LEFT_OUT)}
    given |= {name: settings[name] for name in SETTINGS if settings.get(name) is not None}
    given |= {"preset": settings["name"], "source": data["source"], "tags": data["tags"]}
    if rewards := run.section("training").get("own_rewards"):
        given["rewards"] = own.copies_of(rewards, run)  # the files as they were
    prompt = run.read_object("data_report.json").get("system_prompt")
    if prompt not in (None, TagFormat.parse(data["tags"]).system_prompt):
        given["system_prompt"] = prompt
    return given


# --- Comparing ------------------------------------------------------------------------------------


def first_difference(before: Path, after: Path) -> str | None:
    """The first step, and at it the first column, in which two metrics.csv differ, with both
    values; None where all is equal to the last digit.

    Columns of times are left aside. A step or a column that only one of the two has is a
    difference.
    """
    one, other = (
        pd.read_csv(path, index_col="step", float_precision="round_trip").stack().dropna()
        for path in (before, after)
    )
    both = pd.concat({"there": one, "here": other}, axis="columns")
    both = both.sort_index(level="step", sort_remaining=False)
    for (step, name), (there, here) in both.iterrows():
        if there != here and not name.endswith(_TIMES):
            return f"step {step}, {name}: {there} there, {here} here"
    return None


def circumstances(training: dict) -> dict:
    """Of a training's section, what may change its numbers beside settings and seed, by name:
    rewards, packages, switches, revision, machine.
    """
    found = {name: training[name] for name in ("rewards", "weights", "machine") if name in training}
    found |= training.get("versions", {}) | training.get("switches", {})
    return found | {f"git {name}": value for name, value in training.get("git", {}).items()}


def compare(run: Run, again: Run) -> int:
    """Compare two trained runs as `reproduce` does and print what was found; the exit code."""
    there, here = (one.section("data")["fingerprint"] for one in (run, again))
    metrics = again.require("metrics.csv")
    difference = first_difference(run.require("metrics.csv"), metrics)
    before, after = (circumstances(one.section("training")) for one in (run, again))
    around = arguments.changes(before, after)
    reproduced = there == here and difference is None
    steps = f"{len(pd.read_csv(metrics))} steps, every column equal to the last digit (times aside)"
    found = f"first difference: {difference}" if difference else steps
    print(f"\n{'reproduced' if reproduced else 'not reproduced'}: {found}")
    differ = f"the data differ ({there[:16]} there, {here[:16]} here)"
    print("the data are the same" if there == here else differ)
    if around:
        print(f"what was not the same around them: {'; '.join(around)}")
    if reproduced:
        return 0
    print(
        "Not recorded, and reasons too: the processor, the threads (OMP_NUM_THREADS), a training "
        "resumed midway."
    )
    return 1
