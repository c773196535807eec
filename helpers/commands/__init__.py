"""The commands of `python -m helpers`, one file each, with its `add_arguments` and its `main`.

In: a command line. Out: executed notebooks and files under `runs/`, printed tables, pages.

This file has the options that several commands share, such as `-p KEY=VALUE` and `--only`. It
imports no installed package, so `doctor` can read parameters before the installation.
"""

import argparse
import ast
import json
import os


def add_parameters(parser: argparse.ArgumentParser, about: str) -> None:
    """Add the option `-p KEY=VALUE`, whose values `parameters` reads; `about` is its help text."""
    parser.add_argument(
        "-p", dest="parameters", action="append", default=[], metavar="KEY=VALUE", help=about
    )


def add_format(parser: argparse.ArgumentParser) -> None:
    """Add `--columns`, `--kind` and `--tags`: how a file of questions is read and judged."""
    from helpers.judging.answers import DECLARED_KINDS  # not needed by `doctor`

    parser.add_argument(
        "--columns",
        type=read_value,
        metavar="JSON",
        help='other names of its columns: \'{"question": "problem", "answer": "solution"}\'',
    )
    parser.add_argument(
        "--kind",
        choices=DECLARED_KINDS,
        help="how answers are judged, as in notebook 01 (default: by the form of each answer)",
    )
    parser.add_argument(
        "--tags",
        default="think/answer",
        metavar="NAME/NAME",
        help="the tags around reasoning and answer (default: think/answer)",
    )


def notebook_numbers(only: str) -> list[str]:
    """Return the numbers in `--only`, with two digits, sorted, without duplicates.

    Raise ValueError if a number is blank. Whether the notebooks exist is not checked here.

    >>> notebook_numbers("4, 03,4")
    ['03', '04']
    """
    named = [number.strip() for number in only.split(",")]
    if not all(named):
        raise ValueError(f"--only {only!r}: name notebooks by their numbers, such as 03,04.")
    return sorted({number.zfill(2) for number in named})


def parameters(texts: list[str]) -> dict:
    """Return KEY=VALUE texts as a dictionary. If a key is repeated, its last value counts.

    Raise ValueError for a text of another form and for the key `run`.

    >>> parameters(["max_steps=20", "source=arithmetic/sums"])
    {'max_steps': 20, 'source': 'arithmetic/sums'}
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
    """Return the value of a JSON or Python literal, and any other text as it is.

    The path of an existing file or model is made absolute, because the notebooks run in another
    folder than the command.

    >>> read_value("1e-3"), read_value("null"), read_value("{'question': 'q'}"), read_value("text")
    (0.001, None, {'question': 'q'}, 'text')
    """
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text)
        except (ValueError, SyntaxError, TypeError):
            continue
    if ".py:" not in text:
        return absolute(text)
    # a list of functions, such as one.py:first*0.5, correctness
    functions = []
    for function in text.split(","):
        file, colon, name = function.strip().rpartition(":")
        functions.append(f"{absolute(file) if file else ''}{colon}{name}")
    return ",".join(functions)


def absolute(path: str) -> str:
    """Return the absolute path of a file or a model's folder, and any other text as it is."""
    if os.path.isfile(path) or os.path.isfile(os.path.join(path, "config.json")):
        return os.path.abspath(path)
    return path
