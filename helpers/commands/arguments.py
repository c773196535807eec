"""What a run is asked for: notebooks and parameters as they are typed, and `asked.json`, which
remembers them.

Needs no installed package, so `doctor` can read parameters before the install.
"""

import argparse
import ast
import json
import os

from helpers.runs import Run

PIPELINE = ("01", "02", "03", "04", "05")
ASKED = "asked.json"
# this folder and the names in it are training.checkpoints', which would import torch
_CHECKPOINTS = "checkpoints"


def add_parameters(parser: argparse.ArgumentParser, what: str) -> None:
    """The option `-p KEY=VALUE` of a command; see `parameters` for its texts."""
    parser.add_argument(
        "-p", dest="parameters", action="append", default=[], metavar="KEY=VALUE", help=what
    )


def numbers(only: str) -> list[str]:
    """The notebooks that `--only` names: two digits each, in order, once. Whether there are such
    notebooks is not known here. ValueError if a number is blank.

    >>> numbers("4, 03,4")
    ['03', '04']
    """
    named = [number.strip() for number in only.split(",")]
    if not all(named):
        raise ValueError(f"--only {only!r}: name notebooks by their numbers, such as 03,04.")
    return sorted({number.zfill(2) for number in named})


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
        except (ValueError, SyntaxError, TypeError):
            continue
    return absolute(text)


def absolute(text: str) -> str:
    """A file, each function in a file (`file.py:function`) of a list, or a model's folder as an
    absolute path; any other text as it is. The notebooks run in another folder than the command.
    """
    if ".py:" in text and "," in text:
        return ",".join(absolute(part.strip()) for part in text.split(","))
    file, colon, function = text.rpartition(":") if ".py:" in text else (text, "", "")
    if os.path.isfile(file) or os.path.isfile(os.path.join(file, "config.json")):
        return f"{os.path.abspath(file)}{colon}{function}"
    return text


# --- asked.json -----------------------------------------------------------------------------------


def last(run: Run) -> dict:
    """What `run` was last asked for in this folder; all empty where nothing was.

    `parameters`, `notebooks` and, of these, `done`: the last call, which `--resume` goes on with.
    `used`: for each notebook that has gone through, in this call or an earlier one, the parameters
    it had then.
    """
    nothing = {"parameters": {}, "notebooks": [], "done": []}
    asked = nothing | run.read_object(ASKED)
    # a file of an earlier version of the project has no `used`
    return {"used": dict.fromkeys(asked["done"], asked["parameters"])} | asked


def is_for(asked: dict, parameters: dict, notebooks: list[str]) -> bool:
    """Whether these parameters and notebooks were asked for; compared as JSON, where True is
    not 1.
    """
    before, after = [asked["parameters"], asked["notebooks"]], [parameters, notebooks]
    return json.dumps(before, sort_keys=True) == json.dumps(after, sort_keys=True)


def left(asked: dict) -> list[str]:
    """The notebooks that `--resume` would execute."""
    return [number for number in asked["notebooks"] if number not in asked["done"]]


# --- What a new call would replace ----------------------------------------------------------------


def interrupted_training(run: Run) -> int | None:
    """The last saved step of a training that has not finished."""
    folder = run.folder / _CHECKPOINTS
    states = folder.glob("checkpoint-*/trainer_state.json")
    if (folder / "finished").exists():
        return None
    return max((int(path.parent.name.partition("-")[2]) for path in states), default=None)


def changes(before: dict, after: dict) -> list[str]:
    """What differs between two dictionaries, a few words each; compared as JSON.

    >>> changes({"beta": 0.1, "seed": 1}, {"beta": 0.2, "seed": 1})
    ['beta was 0.1 and is now 0.2']
    """
    return [
        f"{name} was {before.get(name)!r} and is now {after.get(name)!r}"
        for name in {**before, **after}
        if json.dumps(before.get(name), sort_keys=True)
        != json.dumps(after.get(name), sort_keys=True)
    ]


def refuse_to_lose(run: Run, chosen: list[str], given: dict, usual: dict) -> None:
    """ValueError where a call would give up an interrupted training that `--resume` goes on with,
    which is hours of work.

    chosen: the numbers of the call's notebooks. usual: what those of them that decide a training,
    01 and 03, take, with the values they have where none is given.
    """
    asked, step = last(run), interrupted_training(run)
    if step is None or "03" not in left(asked):
        return  # notebook 03 sets aside what it does not go on with
    before = {name: asked["parameters"].get(name, value) for name, value in usual.items()}
    why = changes(before, {name: given.get(name, value) for name, value in usual.items()})
    if not why and "03" not in chosen:
        why = ["`--resume` would go on with this call instead"]
    if why:
        raise ValueError(
            f"run {run.name!r} has a training that was interrupted after step {step}, and this "
            f"call would give it up: {'; '.join(why)}. Go on with it by `python -m helpers run "
            f"--run {run.name} --resume`, take another run name, or give --fresh as well to start "
            "anew."
        )


def give_up_training(run: Run) -> None:
    """Mark an interrupted training as over: notebook 03 then sets it aside, in
    `checkpoints_previous/`, and begins anew.
    """
    if interrupted_training(run) is not None:
        run.path(f"{_CHECKPOINTS}/finished").touch()
