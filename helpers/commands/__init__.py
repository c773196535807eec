"""The commands of `python -m helpers`, one file for each: its arguments and its `main`.

In: what is typed on the command line. Out: executed notebooks and their files under `runs/<name>/`,
tables under `runs/sweeps/<grid>/`, and pages. Here is what several of them read: `-p KEY=VALUE`
and `--only`. It needs no installed package, so `doctor` can read parameters before the install.
"""

import argparse
import ast
import json
import os


def add_parameters(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the option `-p KEY=VALUE` to a command; see `parameters` for its texts."""
    parser.add_argument(
        "-p", dest="parameters", action="append", default=[], metavar="KEY=VALUE", help=what
    )


def notebook_numbers(only: str) -> list[str]:
    """Return the notebooks that `--only` names: two digits each, in order, once. Whether there are
    such notebooks is not known here. Raise ValueError if a number is blank.

    >>> notebook_numbers("4, 03,4")
    ['03', '04']
    """
    named = [number.strip() for number in only.split(",")]
    if not all(named):
        raise ValueError(f"--only {only!r}: name notebooks by their numbers, such as 03,04.")
    return sorted({number.zfill(2) for number in named})


def parameters(texts: list[str]) -> dict:
    """Return KEY=VALUE texts as a dictionary; the last of a repeated key wins.

    Raise ValueError for any other text.
    """
    values = {}
    for parameter in texts:
        key, equals, text = parameter.partition("=")
        key = key.strip()
        if not equals or not key.isidentifier():
            raise ValueError(f"-p {parameter}: write it as KEY=VALUE, for example -p max_steps=20.")
        if key == "run":
            raise ValueError("-p run=…: name the run with --run NAME.")
        values[key] = read_value(text.strip())
    return values


def read_value(text: str) -> object:
    """Return the Python or JSON literal if the text is one (20, 1e-3, True, null,
    {"question": "q"}), otherwise the text itself, a path of it made absolute: the notebooks run in
    another folder than the command.
    """
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text)
        except (ValueError, SyntaxError, TypeError):
            continue
    # functions in files, as rewards are listed: one.py:first*0.5, two.py:second
    if ".py:" in text:
        places = [part.strip().rpartition(":") for part in text.split(",")]
        return ",".join(f"{file and absolute(file)}{colon}{name}" for file, colon, name in places)
    return absolute(text)


def absolute(path: str) -> str:
    """Return a file or a model's folder as an absolute path; any other text as it is."""
    if os.path.isfile(path) or os.path.isfile(os.path.join(path, "config.json")):
        return os.path.abspath(path)
    return path
