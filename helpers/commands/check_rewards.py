"""`python -m helpers check-rewards`: the verdict of notebook 02 on a list of rewards and a file of
data, without a run and without a model.
"""

import argparse
import contextlib
import json
import sys

import pandas as pd

from helpers import commands
from helpers.data.tasks import load_task
from helpers.laboratory.cases import stored_groups
from helpers.laboratory.measures import Lab, signal_lines
from helpers.printing import on_one_line, shorten
from helpers.rewards.own import read_rewards
from helpers.tags import TagFormat

_SHOWN = 3  # attacks whose text is printed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `check-rewards`."""
    parser.add_argument(
        "rewards",
        help='rewards with weights, such as "my_rewards.py:brevity,correctness*1.0"',
    )
    parser.add_argument(
        "--source", required=True, help="the data, as in notebook 01: a file, a folder or a name"
    )
    commands.add_format(parser)
    parser.add_argument(
        "--completions",
        metavar="FILE",
        help="stored completions, several per question: what GRPO would learn from them",
    )
    parser.add_argument(
        "--max-steps",
        type=int,
        default=Lab.max_steps,
        metavar="N",
        help=f"steps of the training, for rewards with a schedule (default: {Lab.max_steps})",
    )
    parser.add_argument("--json", action="store_true", help="print everything found, as JSON")


def main(parsed: argparse.Namespace) -> int:
    """Print the verdict and the three attacks that win most; return 0 for go and 1 for no go.

    What the rewards print goes to standard error. Raise ValueError or OSError if the rewards, the
    data or the completions cannot be read.
    """
    if parsed.max_steps < 1:
        raise ValueError(f"--max-steps {parsed.max_steps}: give 1 or more.")
    tags = TagFormat.parse(parsed.tags)
    with contextlib.redirect_stdout(sys.stderr):
        functions, weights = read_rewards(parsed.rewards, tags)
        task = load_task(parsed.source, columns=parsed.columns, kind=parsed.kind, tags=tags)
        lab = Lab(functions, weights, tags, parsed.max_steps)
        lab.give_texts(task.train)
        groups = None
        if parsed.completions is not None:
            rows = pd.concat([task.train, task.holdout])
            groups = stored_groups(parsed.completions, rows, parsed.columns)
        verdict = lab.examine(task.train, groups=groups)
    table = lab.results.attacks
    worst = table[table["wins"] > 0].head(_SHOWN)

    if parsed.json:
        shown = worst[["total", "wins", "gain", "paid_by", "example"]]
        report = lab.report() | {
            "worst_attacks": shown.reset_index(names="name").to_dict("records")
        }
        print(json.dumps(report, indent=1))
        return int(not verdict.go)

    print(task.line)
    print(verdict)
    for name, row in worst.iterrows():
        text = on_one_line(shorten(row["example"])) or "(no text)"
        print(f"attack '{name}' earns {row['total']:.2f}: {text}")
    if lab.results.signal is not None:
        print("\n".join(signal_lines(lab)))
    return int(not verdict.go)
