"""`python -m helpers report`: one page of HTML about a run. See `results/report.py`."""

import argparse

from helpers.results import report
from helpers.runs import Run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `report` takes."""
    parser.add_argument("--run", default="demo", metavar="NAME", help="the run (default: demo)")


def main(parsed: argparse.Namespace) -> int:
    """Write the page and print where it is; 0."""
    run = Run(parsed.run)
    print(run.show(report.write(run).name))
    return 0
