"""What is typed for a run, notebooks and parameters, as values.

Needs no installed package, so `doctor` can read parameters before the install.
"""

import argparse
import ast
import json
import os

PIPELINE = ("01", "02", "03", "04", "05")


def add_parameters(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the option `-p KEY=VALUE` to a command; see `parameters` for its texts."""
    parser.add_argument(
        "-p", dest="parameters", action="append", default=[], metavar="KEY=VALUE", help=what
    )


def numbers(only: str) -> list[str]:
    """Return the notebooks that `--only` names: two digits each, in order, once. Whether there are
    such notebooks is not known here. Raise ValueError if a number is blank.

    >>> numbers("4, 03,4")
    ['03', '04']
    """
    named = [number.strip() for number in only.split(",")]
    if not all(named):
        raise ValueError(f"--only {only!r}: name notebooks by their numbers, such as 03,04.")
    return sorted({number.zfill(2) for number in named})


def parameters(given: list[str]) -> dict:
    """Return KEY=VALUE texts as a dictionary; the last of a repeated key wins.

    Raise ValueError for any other text.
    """
    values = {}
    for parameter in given:
        key, equals, text = parameter.partition("=")
        key = key.strip()
        if not equals or not key.isidentifier():
            raise ValueError(f"-p {parameter}: write it as KEY=VALUE, for example -p max_steps=20.")
        if key == "run":
            raise ValueError("-p run=…: name the run with --run NAME.")
        values[key] = value(text.strip())
    return values


def value(text: str) -> object:
    """Return the Python or JSON literal if the text is one (20, 1e-3, True, null,
    {"question": "q"}), otherwise the text itself.
    """
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text)
        except (ValueError, SyntaxError, TypeError):
            continue
    return absolute(text)


def absolute(text: str) -> str:
    """Return a file, each function in a file (`file.py:function`) of a list, or a model's folder as
    an absolute path; any other text as it is. The notebooks run in another folder than the command.
    """
    if ".py:" in text and "," in text:
        return ",".join(absolute(part.strip()) for part in text.split(","))
    file, colon, function = text.rpartition(":") if ".py:" in text else (text, "", "")
    if os.path.isfile(file) or os.path.isfile(os.path.join(file, "config.json")):
        return f"{os.path.abspath(file)}{colon}{function}"
    return text
