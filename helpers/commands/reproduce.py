"""`python -m helpers reproduce`: rerun a run from what it recorded, and compare number for number:
the data, then every step of the training.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import pandas as pd

from helpers.commands import arguments, pipeline
from helpers.metrics.history import read_metrics
from helpers.presets import SETTINGS
from helpers.runs import FILES, LESSONS, Run, empty, held, is_free, write_json
from helpers.tags import TagFormat

_MARK = "reproduction.json"  # in the new run: which run it repeats, and in the end what was found
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
    what was found.

    An earlier reproduction of the same run is replaced. What was found is kept in the new run's
    reproduction.json.

    Returns 0 where the data and every value of metrics.csv but times are the same, else 1.
    ValueError or FileNotFoundError, before anything runs, where the run was not trained, cannot run
    here, or the new folder is something else's.
    """
    run, only = Run(parsed.run), parsed.only
    read_metrics(run.require("metrics.csv"))
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
    used = arguments.last(run)["used"]
    done = {number for number, section in FILES.values() if section in run.manifest}
    done |= set(used) & set(arguments.PIPELINE)
    numbers = sorted(done) if only is None else arguments.numbers(only)
    if not {"01", "03"} <= set(numbers) <= done:
        raise ValueError(
            f"--only {only}: give some of {', '.join(sorted(done))}, which are done; 01 and 03 "
            "among them."
        )
    again = Run(f"{run.name}-again")
    if not is_free(again.folder) and again.read_object(_MARK).get("of") != run.name:
        raise ValueError(
            f"{again.show()} is there and is no reproduction of {run.name!r}: rename it or "
            "remove it first."
        )
    given = pipeline.taken(parameters(run), numbers)
    pipeline.check(again.name, numbers, given)
    # all that can be refused has been: the earlier reproduction may go
    with held(again.folder, f"run {again.name!r}"):
        empty(again.folder)
        write_json(again.path(_MARK), {"of": run.name})
        # 01 by itself: its data may have been drawn with another seed than the training's
        others = [number for number in numbers if number != "01"]
        for part, seed in ((["01"], data["seed"]), (others, training["seed"])):
            values = pipeline.taken(given, part) | {"seed": seed}
            if code := pipeline.execute(again.name, part, values):
                return code
        return compare(run, again)


def parameters(run: Run) -> dict:
    """What to give the notebooks for such a run: what it was asked for, and over that what its
    manifest records as used.

    Without asked.json (a run by hand) `columns` is lost, and so is what 02, 04 and 05 were given;
    the data's fingerprint then tells.
    """
    data, training = run.section("data"), run.section("training")
    settings = training["settings"]
    # of 01 to 05 last: where a lesson was given another value, theirs counts
    used, given = arguments.last(run)["used"], {}
    for number in sorted(used, key=lambda number: (number in arguments.PIPELINE, number)):
        given |= used[number]
    given = {name: value for name, value in given.items() if name not in (*SETTINGS, *_LEFT_OUT)}
    given |= {name: settings[name] for name in SETTINGS if settings.get(name) is not None}
    given |= {"preset": settings["name"], "source": data["source"], "tags": data["tags"]}
    given["seed"] = training["seed"]
    prompt = run.read_object("data_report.json").get("system_prompt")
    if prompt not in (None, TagFormat.parse(data["tags"]).system_prompt):
        given["system_prompt"] = prompt
    return given


# --- Comparing ------------------------------------------------------------------------------------


def first_difference(before: Path, after: Path) -> dict | None:
    """The first step, and at it the first column, in which two metrics.csv differ, and the two
    values, None for none; None where all is equal to the last digit.

    Columns of times are left aside. A step or a column that only one of the two has is a
    difference.
    """
    one, other = (
        pd.read_csv(path, index_col="step", float_precision="round_trip")
        for path in (before, after)
    )
    steps = one.index.union(other.index)
    columns = [name for name in dict.fromkeys([*one, *other]) if not name.endswith(_TIMES)]
    one, other = (table.reindex(index=steps, columns=columns) for table in (one, other))
    differ = (one != other) & ~(one.isna() & other.isna())
    if not differ.any(axis=None):
        return None
    step = differ.any(axis=1).idxmax()
    column = differ.loc[step].idxmax()
    values = [float(table.at[step, column]) for table in (one, other)]
    found = [None if math.isnan(value) else value for value in values]
    return {"step": int(step), "column": column, "before": found[0], "after": found[1]}


def circumstances(training: dict) -> dict:
    """Of a training's section, what may change its numbers beside settings and seed, by name:
    rewards, packages, switches, revision, machine.
    """
    found = {name: training[name] for name in ("rewards", "weights", "machine") if name in training}
    found |= training.get("versions", {}) | training.get("switches", {})
    return found | {f"git {name}": value for name, value in training.get("git", {}).items()}


def compare(run: Run, again: Run) -> int:
    """Compare two trained runs as `reproduce` does; prints what was found, keeps it in the second's
    reproduction.json, and returns the exit code.
    """
    there, here = (one.section("data")["fingerprint"] for one in (run, again))
    metrics = again.require("metrics.csv")
    difference = first_difference(run.require("metrics.csv"), metrics)
    before, after = (circumstances(one.section("training")) for one in (run, again))
    around = [
        f"{name}: {before.get(name, 'absent')} there, {after.get(name, 'absent')} here"
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    ]
    found = {
        "of": run.name,
        "reproduced": there == here and difference is None,
        "steps": len(pd.read_csv(metrics)),
        "data": there == here,
        "circumstances": around,
        "first_difference": difference,
    }
    write_json(again.path(_MARK), found)
    data = "are the same" if there == here else f"differ ({there[:16]} there, {here[:16]} here)"
    steps = f"{found['steps']} steps, every column equal to the last digit (times left aside)"
    if difference:
        steps = "first difference: step {step}, {column}: {before} there, {after} here".format(
            **difference
        )
    print(f"\n{'reproduced' if found['reproduced'] else 'not reproduced'}: {steps}")
    print(f"the data {data}")
    if around:
        print(f"what was not the same around them: {'; '.join(around)}")
    if found["reproduced"]:
        return 0
    print(
        "Not recorded, and reasons too: the processor, the threads (OMP_NUM_THREADS), a training "
        "resumed midway."
    )
    return 1
