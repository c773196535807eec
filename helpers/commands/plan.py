"""`python -m helpers plan`: how many questions and seeds show a gain, and what that takes."""

import argparse
import statistics

from helpers.metrics.history import read_metrics
from helpers.results import planning
from helpers.runs import Run
from helpers.settling import settle

# Shares that are assumed if they are neither given nor measured.
_LOST = 0.03  # of the questions; the demo lost 3 of 256
_SPREAD = 0.03  # between seeds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `plan`."""
    parser.add_argument(
        "--baseline", type=float, metavar="SHARE", help="accuracy before training, such as 0.31"
    )
    parser.add_argument("--gain", type=float, metavar="SHARE", help="the rise to show, such as 0.1")
    parser.add_argument(
        "--lost",
        type=float,
        metavar="SHARE",
        help=f"questions answered correctly before and wrongly after training (default: {_LOST})",
    )
    parser.add_argument(
        "--spread",
        type=float,
        metavar="SHARE",
        help=f"standard deviation of the gain between seeds (default: {_SPREAD})",
    )
    parser.add_argument(
        "--steps", type=int, metavar="N", help="steps of a training (default: those of the run)"
    )
    parser.add_argument(
        "--run",
        nargs="+",
        default=[],
        metavar="NAME",
        help=(
            "runs that 03 and 05 have finished: they supply the values not given, the spread "
            "between several seeds, the time and the tokens"
        ),
    )


def main(parsed: argparse.Namespace) -> int:
    """Print the questions, the seeds and the cost, with what was assumed; return 0.

    Raise ValueError if the shares cannot be, and FileNotFoundError if a run has no measurement.
    """
    runs = [Run(name) for name in parsed.run]

    # 1. each share with its source: given, else measured by the runs, else assumed
    known = {"lost": (_LOST, "assumed"), "spread": (_SPREAD, "assumed")} | measured_shares(runs)
    shares = {}
    for name in ("baseline", "gain", "lost", "spread"):
        given = getattr(parsed, name)
        if given is not None:
            shares[name] = (given, "given")
        elif name in known:
            shares[name] = known[name]
        else:
            raise ValueError(f"--{name} is not given: give it, or a run that measured it.")

    # 2. refuse shares that cannot be
    baseline, gain, lost, spread = (share for share, _ in shares.values())
    if not 0 <= baseline < 1 or not 0 < gain <= 1 - baseline or spread < 0:
        raise ValueError(
            f"baseline {baseline:g}, gain {gain:g}, spread {spread:g}: the first two must be "
            "shares above 0 whose sum is at most 1, and the spread must not be negative."
        )
    # no more can be lost than was correct before, and lost + gain, the share won, was wrong before
    most_lost = min(baseline, 1 - baseline - gain)
    if not 0 <= lost <= most_lost:
        raise ValueError(
            f"lost {lost:g}: a share of at most {most_lost:g} of the "
            f"questions can be lost, and others won, between {baseline:.0%} and "
            f"{baseline + gain:.0%}."
        )

    # 3. print the plan, and what it assumes
    print(
        f"to show a rise in accuracy from {baseline:.1%} to {baseline + gain:.1%}, with 80% power:"
    )
    questions = planning.questions_for(gain, lost)
    print(f"one training: {questions:,} held-out questions, by McNemar's exact test (level 0.05)")
    seeds = planning.seeds_for(gain, lost, spread, questions)
    print(
        f"the recipe, not one training of it: {seeds} seeds with these questions, by the 95% "
        "interval of their mean gain (Student's t)"
    )
    print("assumed:")
    for name, (share, source) in shares.items():
        print(f"  {name:<9}{share:.3f}  {source}")
    print("  the questions are like those of the training, and each is answered once by each model")

    # 4. print what other numbers of questions would show, and the cost
    print(planning.widths(baseline, lost).to_string())
    if runs:
        print(cost(runs[0], seeds, questions, parsed.steps))
    else:
        print("time and tokens: give --run NAME, a run on this machine; a few steps are enough")
    return 0


def measured_shares(runs: list[Run]) -> dict[str, tuple[float, str]]:
    """Return the shares that the runs measured, by name, each with its source in words: means over
    the runs, and with two runs or more the spread between their gains.

    Raise ValueError if a comparison is older than its run's training, and FileNotFoundError if a
    run has not been trained or compared.
    """
    if not runs:
        return {}
    comparisons = []
    for run in runs:
        run.section("training")
        if why := run.outdated("comparison.json"):
            raise ValueError(why)
        run.require("comparison.json")
        comparisons.append(run.read_object("comparison.json")["sampled"])

    names = ", ".join(run.name for run in runs)
    source = f"measured in {names}"
    baselines = [(each["both_right"] + each["lost"]) / each["n"] for each in comparisons]
    gains = [each["difference"] for each in comparisons]
    losses = [each["lost"] / each["n"] for each in comparisons]
    measured = {
        "baseline": (statistics.mean(baselines), source),
        "gain": (statistics.mean(gains), source),
        "lost": (statistics.mean(losses), source),
    }
    if len(runs) > 1:
        # Each gain also varies by the chance among its questions, so the variance between the gains
        # is that of the seeds plus this one. Per question, the gain is 1 (won), -1 (lost) or 0.
        chance = statistics.mean(
            ((each["won"] + each["lost"]) / each["n"] - each["difference"] ** 2) / each["n"]
            for each in comparisons
        )
        spread = max(0.0, statistics.variance(gains) - chance) ** 0.5
        measured["spread"] = (spread, f"between {names}, without the chance among the questions")
    return measured


def cost(run: Run, seeds: int, questions: int, steps: int | None = None) -> str:
    """Return a sentence: the minutes and tokens of this many trainings like the run's.

    steps: of each training; None: as many as the run's. A run of a few steps tells a step's cost.
    """
    settings = settle(run.section("training")["settings"])
    history = read_metrics(run.require("metrics.csv"))
    steps = steps or settings.max_steps
    length = history["completions/mean_length"].mean()
    trained = steps * settings.completions_per_step * length
    minutes = history["step_time"].median() * steps / 60
    sampled = 2 * questions * length
    return (
        f"as run {run.name!r} was trained, on its machine: {seeds} x {steps} steps, about "
        f"{seeds * minutes:,.0f} minutes and {seeds * trained:,.0f} sampled tokens; "
        f"the evaluation samples about {seeds * sampled:,.0f} tokens more"
    )
