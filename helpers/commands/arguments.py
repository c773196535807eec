"""What a run is asked for: notebooks and parameters as they are typed, and `asked.json`, which
remembers them.

Needs no installed package, so `doctor` can read parameters before the install.
"""

from __future__ import annotations

import ast
import difflib
import json
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from helpers.runs import Run, write_json

PIPELINE = ("01", "02", "03", "04", "05")
_ASKED = "asked.json"
_NUMBERS = re.compile(r"\s*[0-9]{1,2}\s*(,\s*[0-9]{1,2}\s*)*")
_RENAMED = {"fast_inference": "engine", "use_vllm": "engine"}  # as Unsloth and TRL call it
# this folder and the names in it are training.checkpoints', which would import torch
_CHECKPOINTS = "checkpoints"


def numbers(only: str) -> list[str]:
    """The notebooks that `--only` names: two digits each, in order, once.

    ValueError for anything but numbers and commas.

    >>> numbers("4, 03,4")
    ['03', '04']
    """
    if not _NUMBERS.fullmatch(only):
        raise ValueError(
            f"--only {only!r} is not a list of notebooks. Give their numbers with commas between "
            "them, such as --only 03,04."
        )
    return sorted({number.strip().zfill(2) for number in only.split(",")})


def parameters(given: list[str]) -> dict:
    """KEY=VALUE texts as a dictionary; the last of a repeated key wins.

    ValueError for any other text.
    """
    values = {}
    for parameter in given:
        key, equals, text = parameter.partition("=")
        if not equals or not key.strip().isidentifier():
            raise ValueError(f"-p {parameter}: write it as KEY=VALUE, for example -p max_steps=20.")
        if key.strip() == "run":
            raise ValueError("-p run=…: name the run with --run NAME.")
        values[key.strip()] = value(text.strip())
    return values


def value(text: str) -> object:
    """A Python or JSON literal where the text is one (20, 1e-3, True, null, {"question": "q"});
    otherwise the text itself.
    """
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text)
        # all that literal_eval raises
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
    return absolute(text)


def absolute(text: str) -> str:
    """A file, a function in a file (`file.py:function`) or a model's folder, named from where the
    command was given.

    The notebooks run in a folder of their own.
    """
    file, colon, function = text.rpartition(":") if ".py:" in text else (text, "", "")
    try:
        here = Path(file)
        return (
            f"{here.resolve()}{colon}{function}"
            if here.is_file() or (here / "config.json").is_file()
            else text
        )
    except (OSError, ValueError):  # no path at all: a long question, for example
        return text


def refuse_unknown(given: Iterable[str], known: Iterable[str]) -> None:
    """ValueError for the first parameter that is not among the known ones, with the one it may be
    meant for.
    """
    known = set(known)
    for name in given:
        if name not in known:
            near = (
                [_RENAMED[name]] if name in _RENAMED else difflib.get_close_matches(name, known, 1)
            )
            hint = f"Did you mean {near[0]!r}? " if near else ""
            raise ValueError(
                f"no chosen notebook has a parameter {name!r}. {hint}They take: "
                f"{', '.join(sorted(known - {'run'}))}."
            )


# --- asked.json -----------------------------------------------------------------------------------


def last(run: Run) -> dict | None:
    """What `run` was last asked for in this folder; None where nothing was, or the file cannot be
    read.

    `parameters`, `notebooks` and, of these, `done`: the last call, which `--resume` goes on with.
    `used`: for each notebook that has gone through, in this call or an earlier one, the parameters
    it had then.
    """
    try:
        asked = json.loads((run.folder / _ASKED).read_text(encoding="utf-8"))
        found = {key: asked[key] for key in ("parameters", "notebooks", "done")}
        used = asked.get("used")
        # A file of an earlier version of the project has no `used`.
        return found | {
            "used": {number: found["parameters"] for number in found["done"]}
            if used is None
            else used
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def asked_alike(run: Run, parameters: dict, notebooks: list[str]) -> dict | None:
    """What `last` says, if it is these parameters and notebooks.

    Compared as JSON, where True is not 1.
    """
    found, wanted = last(run), json.dumps([parameters, notebooks], sort_keys=True)
    return (
        found
        if found and json.dumps([found["parameters"], found["notebooks"]], sort_keys=True) == wanted
        else None
    )


def write(run: Run, asked: dict) -> None:
    """Replace asked.json; for its keys see `last`."""
    write_json(run.path(_ASKED), asked)


def used(run: Run) -> dict[str, dict]:
    """For each notebook that has gone through, the parameters it had; empty where nothing
    is known.
    """
    return (last(run) or {"used": {}})["used"]


def left(asked: dict | None) -> list[str]:
    """The notebooks that `--resume` would execute."""
    return [number for number in asked["notebooks"] if number not in asked["done"]] if asked else []


# --- What a new call would replace ----------------------------------------------------------------


def interrupted_training(run: Run) -> tuple[int, dict] | None:
    """The last saved step of a training that has not finished and can be gone on with, and its
    settings, seed and data.
    """
    folder = run.folder / _CHECKPOINTS
    steps = [
        path.parent.name.partition("-")[2]
        for path in folder.glob("checkpoint-*/trainer_state.json")
    ]
    steps = [int(step) for step in steps if step.isdigit()]
    if not steps or (folder / "finished").exists():
        return None
    try:
        started = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
        if started["data"] != run.manifest["data"]["fingerprint"]:
            return None  # notebook 01 has prepared other data since
        return max(steps), {key: started[key] for key in ("settings", "seed", "data")}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def changes(before: dict, after: dict) -> list[str]:
    """What differs between two dictionaries, a few words each.

    Compared as JSON, where True is not 1.

    >>> changes({"beta": 0.1, "seed": 1}, {"beta": 0.2, "seed": 1})
    ['beta was 0.1 and would be 0.2']
    """
    names = [
        name
        for name in {**before, **after}
        if json.dumps(before.get(name)) != json.dumps(after.get(name))
    ]
    return [f"{name} was {before.get(name)!r} and would be {after.get(name)!r}" for name in names]


def refuse_to_lose(run: Run, chosen: list[str], differences: list[str]) -> None:
    """ValueError where a call would put an interrupted training out of reach, which is hours of
    work.

    chosen: the numbers of the call's notebooks. differences: why its training, if it has one, would
    not be the interrupted one.
    """
    found, resumable = interrupted_training(run), "03" in left(last(run))
    why = "; ".join(differences)
    if found and not why and "03" not in chosen and resumable:
        why = "`--resume` would go on with this call instead"
    if not found or not why:
        return
    step, started = found
    again = (
        "`python -m helpers run --run "
        f"{run.name}{' --resume`' if resumable else '` with the parameters it had'}"
    )
    raise ValueError(
        f"run {run.name!r} has a training that was interrupted after step {step} of "
        f"{started['settings'].get('max_steps')}, "
        f"and this call would give it up: {why}. Go on with it by {again}, take another run name, "
        "or give --fresh as well to "
        "start anew."
    )


def set_training_aside(run: Run, chosen: list[str]) -> None:
    """Before a new training: move an interrupted one to `checkpoints_previous/`, in place of what
    was set aside before.
    """
    if "03" in chosen and interrupted_training(run):
        previous = run.folder / "checkpoints_previous"
        shutil.rmtree(previous, ignore_errors=True)
        os.replace(run.folder / _CHECKPOINTS, previous)


def tell_replaced(run: Run, chosen: list[str], given: dict) -> None:
    """Print what `--resume` would have taken up and this call replaces, if it asks for less or for
    something else.
    """
    asked = last(run)
    waiting = left(asked)
    if waiting and not (set(waiting) <= set(chosen) and not changes(asked["parameters"], given)):
        had = f" with {asked['parameters']}" if asked["parameters"] else ""
        print(
            f"note: run {run.name!r} was asked for {', '.join(asked['notebooks'])}{had} and did "
            f"not finish {waiting[0]}. "
            "This call takes its place: --resume will go on with this one."
        )
