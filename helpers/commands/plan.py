"""`python -m helpers plan`: how many questions and seeds show a gain, and what that takes."""

import argparse
import statistics

from helpers.metrics.history import read_metrics
from helpers.presets import settle
from helpers.results import planning
from helpers.runs import Run

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

    Raise ValueError for shares that cannot be, and FileNotFoundError for a run without a
    measurement.
    """
    runs = [Run(name) for name in parsed.run]
    measured = []
    for run in runs:
        run.section("training")
        if why := run.outdated("comparison.json"):
            raise ValueError(why)
        run.require("comparison.json")
        measured.append(run.read_object("comparison.json")["sampled"])

    # 1. what is given, what the runs measured, and what is left to assume
    names = ", ".join(parsed.run)
    shares = ("baseline", "gain", "lost", "spread")
    values = {name: (getattr(parsed, name), "given") for name in shares}
    found = {"lost": _LOST, "spread": _SPREAD}
    source = dict.fromkeys(found, "assumed")
    if measured:
        gains = [each["difference"] for each in measured]
        found["baseline"] = statistics.mean(
            (m["both_right"] + m["lost"]) / m["n"] for m in measured
        )
        found["gain"] = statistics.mean(gains)
        found["lost"] = statistics.mean(m["lost"] / m["n"] for m in measured)
        source |= dict.fromkeys(shares[:3], f"measured in {names}")
    if len(measured) > 1:
        # the spread of the measured gains is also of the chance among the questions
        chance = statistics.mean(
            ((m["won"] + m["lost"]) / m["n"] - m["difference"] ** 2) / m["n"] for m in measured
        )
        found["spread"] = max(0.0, statistics.variance(gains) - chance) ** 0.5
        source["spread"] = f"between {names}, without the chance among the questions"
    for name, (value, _) in values.items():
        if value is None:
            if name not in found:
                raise ValueError(f"--{name} is not given: give it, or a run that measured it.")
            values[name] = (found[name], source[name])
    baseline, gain, lost, spread = (value for value, _ in values.values())
    if not 0 <= baseline < 1 or not 0 < gain <= 1 - baseline or spread < 0:
        raise ValueError(
            f"baseline {baseline:g}, gain {gain:g}, spread {spread:g}: the first two must be "
            "shares above 0 whose sum is at most 1, and the spread must not be negative."
        )
    if not 0 <= lost <= min(baseline, 1 - baseline - gain):
        raise ValueError(
            f"lost {lost:g}: a share of at most {min(baseline, 1 - baseline - gain):g} of the "
            f"questions can be lost, and others won, between {baseline:.0%} and "
            f"{baseline + gain:.0%}."
        )

    # 2. the plan
    print(
        f"to show a rise in accuracy from {baseline:.1%} to {baseline + gain:.1%}, with 80 % power:"
    )
    questions = planning.questions_for(gain, lost)
    print(f"one training: {questions:,} held-out questions, by McNemar's exact test (level 0.05)")
    seeds = planning.seeds_for(gain, lost, spread, questions)
    print(
        f"the recipe, not one training of it: {seeds} seeds with these questions, by the 95 % "
        "interval of their mean gain (Student's t)"
    )
    print("assumed:")
    for name, (value, why) in values.items():
        print(f"  {name:<9}{value:.3f}  {why}")
    print("  the questions are like those of the training, and each is answered once by each model")

    # 3. the cost
    print(planning.widths(baseline, lost).to_string())
    for run in runs[:1]:
        print(cost(run, seeds, questions, parsed.steps))
    if not runs:
        print("time and tokens: give --run NAME, a run on this machine; a few steps are enough")
    return 0


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
