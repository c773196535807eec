"""The commands of `python -m helpers`, one file each, with its `add_arguments` and its `main`.

In: a command line. Out: executed notebooks and files under `runs/`, printed tables, pages.

This file has the options that several commands share, such as `-p KEY=VALUE` and `--only`. It
imports no installed package, because `doctor` and `install` run before the installation.
"""

import argparse

from helpers.parameters import read_value


def add_parameters(parser: argparse.ArgumentParser, about: str) -> None:
    """Add the option `-p KEY=VALUE`, which `read_parameters` reads; `about` is its help text."""
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
