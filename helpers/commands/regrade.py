"""`python -m helpers regrade`: judge a run's stored completions again with other rewards, without a
model.
"""

import argparse
import contextlib
import sys
from pathlib import Path

import pandas as pd

from helpers.laboratory.cases import stored_groups
from helpers.laboratory.measures import Lab, signal_lines
from helpers.printing import on_one_line, shorten
from helpers.rewards.own import read_rewards
from helpers.runs import Run
from helpers.tags import TagFormat

_SHOWN = 3  # completions whose total changes most
_SAME = 1e-6  # totals closer than this differ only by rounding


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `regrade`."""
    parser.add_argument("run", metavar="RUN")
    parser.add_argument(
        "--rewards",
        required=True,
        help='rewards with weights, such as "my_rewards.py:brevity*0.5,correctness"',
    )
    parser.add_argument(
        "--output", metavar="FILE", help="a .parquet file for the completions with both totals"
    )


def main(parsed: argparse.Namespace) -> int:
    """Print what other rewards would have said about a training's completions; return 0.

    What the rewards print goes to standard error. Raise FileNotFoundError if the run has not
    been trained, and ValueError if rewards cannot be read or if they fail.
    """
    # 1. Read the run's completions and its training questions.
    run = Run(parsed.run)
    training = run.section("training")
    tags = TagFormat.parse(run.section("data")["tags"])
    table = pd.read_parquet(run.require("completions.parquet"))
    train = run.rows("train").drop_duplicates("question")

    # 2. Judge the completions again, and measure what GRPO would learn from the new totals.
    with contextlib.redirect_stdout(sys.stderr):
        functions, weights = read_rewards(parsed.rewards, tags)
        lab = Lab(functions, weights, tags, training["settings"]["max_steps"])
        table = judged_again(lab, table, train, training)
        rows, groups = stored_groups(table[["step", "question", "completion"]], train)
        lab.signal(rows, groups)  # the result stays in `lab`, where `signal_lines` reads it
    if lab.faults:
        raise ValueError(f"{lab.faults[0]}. {lab.faults[0].advice}")
    if parsed.output:
        table.to_parquet(Path(parsed.output), index=False)

    # 3. Print the rewards before and after, and what changes.
    print(f"trained with: {_with_weights(training['rewards'], training['weights'])}")
    print(f"judged again: {_with_weights(lab.names, weights)}\n")
    print(what_changes(table).to_string(), "\n")
    # Both print a share of dead groups. `what_changes` counts the totals of each group's own step;
    # `signal_lines` counts groups of at least two completions, all judged at step 0.
    print("\n".join(signal_lines(lab)))

    # 4. Print the completions whose total changes most; equal texts once.
    different = table.drop_duplicates("completion")
    change = (different["after"] - different["before"]).abs()
    largest = change[change > _SAME].nlargest(_SHOWN)
    for _, row in different.loc[largest.index].iterrows():
        question = on_one_line(shorten(row["question"], 80))
        completion = on_one_line(shorten(row["completion"]))
        totals = f"{row['before']:.2f} -> {row['after']:.2f}"
        print(f"step {row['step']}, {totals}: {question} | {completion}")
    return 0


def _with_weights(names: list[str], weights: list[float]) -> str:
    """Return rewards with their weights as text, such as `brevity x 0.5, correctness x 1`."""
    return ", ".join(f"{name} x {weight:g}" for name, weight in zip(names, weights, strict=True))


def judged_again(
    lab: Lab, table: pd.DataFrame, train: pd.DataFrame, training: dict
) -> pd.DataFrame:
    """Return a run's completions with two more columns, both weighted sums of rewards: `before` of
    those that the policy was trained with, and `after` of the laboratory's.

    table: the completions, with a column for each reward of the training.
    train: the training rows, one per question. The laboratory's rewards get their columns.
    training: the manifest's section.

    Raise ValueError if a completion's question is not among the training rows.
    """
    # 1. Add up the scores of the training. A missing score adds nothing; without any score, the
    # total is NaN.
    scores = table[training["rewards"]].astype(float)
    table = table.assign(before=scores.mul(training["weights"]).sum(axis=1, min_count=1))

    # 2. Every question must still have its row.
    rows = train.drop(columns="prompt", errors="ignore").set_index("question")
    known = table["question"].isin(rows.index)
    if not known.all():
        raise ValueError(
            f"{(~known).sum()} of {len(table)} completions answer questions that the run's data no "
            "longer contain: the data have been prepared again since."
        )

    # 3. Judge the completions of one step after the other, because a reward may depend on the step.
    after = []
    for step, of_step in table.groupby("step", sort=False):
        columns = rows.loc[of_step["question"]].reset_index().to_dict("list")
        scores = lab.scores(list(of_step["completion"]), int(step), **columns)
        after.append(pd.Series(scores["total"].to_numpy(), of_step.index))
    return table.assign(after=pd.concat(after))


def what_changes(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table of what GRPO learned from the totals `before`, and would learn from `after`:
    two columns, with a row per measure, as text.

    The completions of one question in one step are a group. A completion's push is up if its total
    is above the mean of its group, and down if it is below.
    """
    totals = table[["before", "after"]]
    groups = table.groupby(["step", "question"])[["before", "after"]]

    # 1. A group is alive if its totals differ. A group without any score is dead: its totals are
    # NaN, and no comparison with NaN is true.
    is_alive = groups.max() - groups.min() > _SAME

    # 2. Which way each completion is pushed, and whether that changes.
    push = totals - groups.transform("mean")
    up = push > _SAME
    down = push < -_SAME
    turned = (up["before"] & down["after"]) | (down["before"] & up["after"])
    changed = (totals["after"] - totals["before"]).abs() > _SAME

    # 3. The measures. All but the dead groups are means over the completions, as the header says.
    # The last two compare before and after, so they are one number each.
    rows = {
        "mean total": totals.mean().map("{:.3f}".format),
        "dead groups": (~is_alive).mean().map("{:.1%}".format),
        "pushed up": up.mean().map("{:.1%}".format),
        "pushed down": down.mean().map("{:.1%}".format),
        "another total": pd.Series({"before": "", "after": f"{changed.mean():.1%}"}),
        "pushed the other way": pd.Series({"before": "", "after": f"{turned.mean():.1%}"}),
    }
    return pd.DataFrame(rows).T.rename_axis("of the completions")
