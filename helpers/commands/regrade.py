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
from helpers.rewards.own import read_rewards
from helpers.runs import Run
from helpers.tags import TagFormat, on_one_line, shorten

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

    What the rewards print goes to standard error. Raise FileNotFoundError for a run that has not
    been trained, and ValueError for rewards that cannot be read or that fail.
    """
    run = Run(parsed.run)
    training = run.section("training")
    tags = TagFormat.parse(run.section("data")["tags"])
    table = pd.read_parquet(run.require("completions.parquet"))
    train = pd.read_parquet(run.require("data/train.parquet")).drop_duplicates("question")
    with contextlib.redirect_stdout(sys.stderr):
        functions, weights = read_rewards(parsed.rewards, tags)
        lab = Lab(functions, weights, tags, training["settings"]["max_steps"])
        table = judged_again(lab, table, train, training)
        lab.signal(*stored_groups(table[["step", "question", "completion"]], train))
    if lab.faults:
        raise ValueError(f"{lab.faults[0]}. {lab.faults[0].advice}")
    if parsed.output:
        table.to_parquet(Path(parsed.output), index=False)

    earlier = zip(training["rewards"], training["weights"], strict=True)
    print(f"trained with: {', '.join(f'{name} x {weight:g}' for name, weight in earlier)}")
    judged = ", ".join(f"{name} x {w:g}" for name, w in zip(lab.names, weights, strict=True))
    print(f"judged again: {judged}\n")
    print(what_changes(table).to_string(), "\n")
    print("\n".join(signal_lines(lab)))
    change = (table["after"] - table["before"]).abs()[~table["completion"].duplicated()]
    for number in change[change > _SAME].nlargest(_SHOWN).index:
        row = table.loc[number]
        asked, text = on_one_line(shorten(row["question"], 80)), shorten(row["completion"])
        totals = f"{row['before']:.2f} -> {row['after']:.2f}"
        print(f"step {row['step']}, {totals}: {asked} | {on_one_line(text)}")
    return 0


def judged_again(
    lab: Lab, table: pd.DataFrame, train: pd.DataFrame, training: dict
) -> pd.DataFrame:
    """Return a run's completions with the weighted sum of the rewards that they were trained with
    (`before`) and of a laboratory's (`after`), each completion judged at its step.

    train: the rows of the data, one of each question; the rewards get their columns.
    """
    names = training["rewards"]
    weighted = table[names].astype(float).mul(training["weights"])
    table = table.assign(before=weighted.sum(axis=1, min_count=1))
    rows = train.drop(columns="prompt", errors="ignore").set_index("question")
    known = table["question"].isin(rows.index)
    if not known.all():
        raise ValueError(
            f"{(~known).sum()} of {len(table)} completions answer questions that the run's data no "
            "longer contain: the data have been prepared again since."
        )
    after = []
    for step, part in table.groupby("step", sort=False):
        columns = rows.loc[part["question"]].reset_index().to_dict("list")
        totals = lab.scores(list(part["completion"]), int(step), **columns)["total"]
        after.append(pd.Series(totals.to_numpy(), part.index))
    return table.assign(after=pd.concat(after))


def what_changes(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table of what GRPO learned from the totals `before`, and would learn from `after`.

    The completions of one question in one step are a group. A completion's push is up if its total
    is above the mean of its group, and down if it is below.
    """
    groups = table.groupby(["step", "question"])[["before", "after"]]
    spread = groups.max() - groups.min()
    push = table[["before", "after"]] - groups.transform("mean")
    up, down = push > _SAME, push < -_SAME
    rows = {
        "mean total": table[["before", "after"]].mean().map("{:.3f}".format),
        "dead groups": (~(spread > _SAME)).mean().map("{:.1%}".format),
        "pushed up": up.mean().map("{:.1%}".format),
        "pushed down": down.mean().map("{:.1%}".format),
    }
    turned = (up["before"] & down["after"]) | (down["before"] & up["after"])
    other = (table["after"] - table["before"]).abs() > _SAME
    rows["another total"] = pd.Series({"before": "", "after": f"{other.mean():.1%}"})
    rows["pushed the other way"] = pd.Series({"before": "", "after": f"{turned.mean():.1%}"})
    return pd.DataFrame(rows).T.rename_axis("of the completions")
