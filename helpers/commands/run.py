"""`python -m helpers run`: the notebooks through papermill, into runs/NAME/. See `pipeline.py`."""

import argparse

from helpers.commands import arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `run` takes."""
    parser.add_argument(
        "--run",
        metavar="NAME",
        help="the run folder under runs/ (default: the notebooks' own; demo for 01 to 05)",
    )
    parser.add_argument(
        "--preset",
        metavar="PRESET",
        help="settings for a kind of machine; auto, the default, picks by GPU memory",
    )
    parser.add_argument(
        "--only", metavar="NN,NN", help="only these notebooks, e.g. 03,04 (default: 01 to 05)"
    )
    arguments.add_parameters(
        parser, "a parameter of a notebook, e.g. -p max_steps=20; may be repeated"
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on with the run where it stopped, with the parameters it had",
    )
    parser.add_argument(
        "--once",
        action="store_true",
        help="if the same was asked for before, only what is left of it",
    )
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="start anew where a training would be given up or replaced",
    )


def main(parsed: argparse.Namespace) -> int:
    """Execute the notebooks, or go on with them; return the exit code."""
    from helpers.commands import pipeline

    asked = (parsed.preset, parsed.only, parsed.parameters, parsed.fresh, parsed.once)
    if not parsed.resume:
        return pipeline.run(parsed.run, *asked)
    if any(asked):
        raise ValueError(
            "--resume takes up what was asked for last time; give nothing beside it but --run NAME."
        )
    return pipeline.resume(parsed.run or "demo")
