"""Rerun a run from what it recorded, and compare number for number: the data, then every step of
the training.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from helpers.commands import arguments, pipeline
from helpers.metrics.history import read_metrics
from helpers.presets import PRESETS, SETTINGS
from helpers.runs import LESSONS, Run, check_seed, empty, held, is_free, write_json
from helpers.tags import TagFormat

_MARK = "reproduction.json"  # in the new run: which run it repeats, and in the end what was found
_TIMES = ("_time", "_runtime", "_per_second")  # how the names of columns end that no two runs share
# They change no number, and a rerun should neither upload nor convert.
_LEFT_OUT = ("report_to", "push_to_hub", "gguf")
# of the manifest, by the notebook that writes it
_SECTIONS = {"data": "01", "rewards": "02", "training": "03", "merge": "05"}


@dataclass(frozen=True)
class Difference:
    """The first value that is not the same: its step, its column, and the value in either run; None
    where there is none.
    """

    step: int
    column: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        before, after = (value or "nothing" for value in (self.before, self.after))
        return f"step {self.step}, {self.column}: {before} there, {after} here"


def reproduce(run: Run, only: str | None = None) -> int:
    """Rerun a run's notebooks with its settings and seeds as `<name>-again`, compare, and print
    what was found.

    only: notebook numbers as `run --only` takes them, 01 and 03 among them; None takes all that the
    run has done. An earlier reproduction of the same run is replaced. What was found is kept in the
    new run's reproduction.json.

    Returns 0 where the data and every value of metrics.csv but times are the same, else 1.
    ValueError or FileNotFoundError, before anything runs, where the run was not trained, cannot run
    here, or the new folder is something else's.
    """
    read_metrics(run.require("metrics.csv"))
    data, training = run.section("data"), run.section("training")
    if (lesson := data.get("notebook")) in LESSONS:
        raise ValueError(
            f"run {run.name!r} is notebook {lesson}'s, and reproduce repeats 01 to 05. Run "
            f"{lesson} under another name."
        )
    if not isinstance(training.get("settings"), dict):
        raise ValueError(
            f"{run.show('manifest.json')} is damaged: its training has no settings, so it cannot "
            "be repeated."
        )
    for name, section in (("data", data), ("training", training)):
        for key in (
            "seed",
            "versions",
            "git",
            *(("source", "tags", "fingerprint") if name == "data" else ()),
        ):
            if key not in section:
                raise ValueError(
                    f"{run.show('manifest.json')} is damaged: its {name} has no {key}, so it "
                    "cannot be repeated."
                )
        check_seed(section["seed"])
    if (processes := training["settings"].get("processes", 1)) > 1:
        raise ValueError(
            f"run {run.name!r} was trained by {processes} processes, each with random numbers of "
            "its own, and reproduce has "
            "one. Train it again under another name, as it was launched, and look at both with "
            "`python -m helpers compare`."
        )
    numbers, given = _notebooks(run, only), parameters(run)
    again = _new_run(run)
    known = pipeline.defaults(numbers)
    # of those that are not run none is asked
    given = {name: value for name, value in given.items() if name in known}
    pipeline.check(again.name, numbers, given)
    # all that can be refused has been: the earlier reproduction may go
    with held(again.folder, f"run {again.name!r}"):
        empty(again.folder)
        write_json(again.path(_MARK), {"of": run.name})
        if _execute(again, numbers, given, data["seed"], training["seed"]):
            return 1
        return compare(run, again)


def parameters(run: Run) -> dict:
    """What to give the notebooks for such a run: what it was asked for, and over that what its
    manifest records as used.

    ValueError for a preset that this version of the project does not have. Without asked.json (a
    run by hand) `columns` is lost, and so is what 02, 04 and 05 were given; the data's fingerprint
    then tells.
    """
    data, training = run.section("data"), run.section("training")
    preset = training["settings"]["name"]
    if preset not in PRESETS:
        raise ValueError(
            f"{run.show('manifest.json')} names a preset {preset!r}, which this version of the "
            "project has not."
        )
    # of 01 to 05 last: where a lesson was given another value, theirs counts
    used, given = arguments.used(run), {}
    for number in sorted(used, key=lambda number: (number in arguments.PIPELINE, number)):
        given |= used[number]
    given = {name: value for name, value in given.items() if name not in (*SETTINGS, *_LEFT_OUT)}
    given |= {
        name: value for name in SETTINGS if (value := training["settings"].get(name)) is not None
    }
    given |= {
        "preset": preset,
        "source": data["source"],
        "tags": data["tags"],
        "seed": training["seed"],
    }
    prompt = json.loads(run.require("data_report.json").read_text(encoding="utf-8")).get(
        "system_prompt"
    )
    if prompt is not None and prompt != TagFormat.parse(data["tags"]).system_prompt:
        given["system_prompt"] = prompt
    return given


def _notebooks(run: Run, only: str | None) -> list[str]:
    last = arguments.last(run) or {"done": [], "used": {}}
    done = {number for section, number in _SECTIONS.items() if section in run.manifest}
    done |= {*last["done"], *({*last["used"]} & {*arguments.PIPELINE})}
    if only is None:
        return sorted(done)
    chosen = arguments.numbers(only)
    if not {"01", "03"} <= set(chosen) or not set(chosen) <= done:
        raise ValueError(
            f"--only {only}: give some of {', '.join(sorted(done))}, which are done; 01 and 03 "
            "among them."
        )
    return chosen


def _new_run(run: Run) -> Run:
    """`<name>-again`, which may be there only as an earlier reproduction of this run."""
    again = Run(f"{run.name}-again")
    if not is_free(again.folder):
        try:
            made_for = json.loads((again.folder / _MARK).read_text(encoding="utf-8"))["of"]
        except (OSError, ValueError, KeyError, TypeError):
            made_for = None
        if made_for != run.name:
            raise ValueError(
                f"{again.show()} is there and is no reproduction of {run.name!r}: rename it or "
                "remove it first."
            )
    return again


def _execute(again: Run, numbers: list[str], given: dict, data_seed: int, seed: int) -> int:
    """The exit code of the notebooks, 01 by itself where its data were drawn with another seed than
    the training's.
    """
    if data_seed == seed:
        return pipeline.execute(again.name, numbers, given)
    for part, its_seed in (
        (["01"], data_seed),
        ([number for number in numbers if number != "01"], seed),
    ):
        known = pipeline.defaults(part)
        code = pipeline.execute(
            again.name, part, {k: v for k, v in given.items() if k in known} | {"seed": its_seed}
        )
        if code:
            return code
    return 0


# --- Comparing ------------------------------------------------------------------------------------


def first_difference(before: Path, after: Path) -> Difference | None:
    """The first step, and at it the first column, in which two metrics.csv differ; None where all
    is equal to the last digit.

    Columns of times are left aside. A step or a column that only one of the two has is a
    difference.
    """
    tables = [
        pd.read_csv(path, dtype=str, keep_default_na=False).set_index("step")
        for path in (before, after)
    ]
    rows = [{int(step): row for step, row in table.to_dict("index").items()} for table in tables]
    columns = [
        name for name in dict.fromkeys([*tables[0], *tables[1]]) if not name.endswith(_TIMES)
    ]
    for step in sorted({*rows[0], *rows[1]}):
        if step not in rows[0] or step not in rows[1]:
            values = ["logged" if step in table else None for table in rows]
            return Difference(step, "the whole row", *values)
        for column in columns:
            values = [table[step].get(column) for table in rows]
            if not _equal(*values):
                return Difference(step, column, *values)
    return None


def _equal(one: str | None, other: str | None) -> bool:
    try:
        return one == other or float(one) == float(other)  # 1.0 and 1 are one number
    except (TypeError, ValueError):
        return False


def circumstances(before: Run, after: Run) -> list[str]:
    """What was not the same around the two trainings, a line each: rewards, packages, switches,
    revision, machine.
    """
    one, two = before.section("training"), after.section("training")
    lines = []
    for name in ("rewards", "weights", "machine"):
        if name in one and one[name] != two.get(name):
            lines.append(f"{name}: {one[name]} there, {two.get(name, 'not recorded')} here")
    there, here = (section["versions"] | section.get("switches", {}) for section in (one, two))
    for name in dict.fromkeys([*there, *here]):
        if there.get(name) != here.get(name):
            lines.append(
                f"{name}: {there.get(name, 'absent')} there, {here.get(name, 'absent')} here"
            )
    revisions = [_revision(section["git"]) for section in (one, two)]
    if revisions[0] != revisions[1]:
        lines.append(f"git: {revisions[0]} there, {revisions[1]} here")
    return lines


def _revision(git: dict) -> str:
    return git.get("revision", "unknown")[:12] + (" with changes" if git.get("dirty") else "")


def compare(run: Run, again: Run) -> int:
    """Compare two trained runs as `reproduce` does; prints what was found, keeps it in the second's
    reproduction.json, and returns the exit code.
    """
    prints = [one.section("data")["fingerprint"] for one in (run, again)]
    metrics = again.require("metrics.csv")
    difference = first_difference(run.require("metrics.csv"), metrics)
    around = circumstances(run, again)
    steps = len(pd.read_csv(metrics))
    same = prints[0] == prints[1] and difference is None
    if same:
        print(
            f"\nreproduced: {steps} steps, every column equal to the last digit (times left "
            "aside); the data are the same"
        )
    else:
        data = (
            "are the same"
            if prints[0] == prints[1]
            else f"differ ({prints[0][:16]} there, {prints[1][:16]} here)"
        )
        print(f"\nnot reproduced: the data {data}")
        print(
            f"first difference: {difference}"
            if difference
            else f"the {steps} logged steps are the same"
        )
    accuracies = [one.evaluation.get("trained", {}).get("accuracy") for one in (run, again)]
    if None not in accuracies:
        print(
            f"accuracy of the trained policy: {accuracies[0]:.2%} there, {accuracies[1]:.2%} here"
        )
    if around or not same:
        print(
            "what was not the same around them: "
            + ("; ".join(around) or "nothing that is recorded")
        )
    if not same:
        print(
            "Not recorded, and reasons too: the processor, the threads (OMP_NUM_THREADS), a "
            "training resumed midway."
        )
    found = {
        "of": run.name,
        "reproduced": same,
        "steps": steps,
        "data": prints[0] == prints[1],
        "circumstances": around,
    }
    write_json(
        again.path(_MARK), found | {"first_difference": vars(difference) if difference else None}
    )
    return 0 if same else 1
