"""Figures of an evaluation, and of what is left of a change once it is stored."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.figures import BLUE, ORANGE, PAGE, RED, figure_with_panels, panel

BAR = 0.36  # the width of a bar; two stand side by side at each model


def accuracy(evaluation: dict[str, dict]) -> Figure:
    """Draw the holdout accuracy of each model in evaluation.json, sampled and greedy, with 95%
    intervals.
    """
    axes = panel("Holdout accuracy, with 95% intervals", "accuracy", xlabel="")
    models = list(evaluation.values())

    # left bars: every model has been sampled
    places = [at - BAR / 2 for at in range(len(models))]
    _draw_bars(axes, places, models, label="sampled", color=BLUE, hatch="")

    # right bars: not every model has been asked greedily as well
    places = [at + BAR / 2 for at, model in enumerate(models) if "greedy" in model]
    greedy = [model["greedy"] for model in models if "greedy" in model]
    _draw_bars(axes, places, greedy, label="greedy", color=ORANGE, hatch="//")

    axes.set_xticks(range(len(models)), [name.replace("_", " ") for name in evaluation])
    axes.set_ylim(0, 1.12)
    axes.figure.legend(loc="outside upper right", ncols=2)  # inside, it could hide a bar
    return axes.figure


def _draw_bars(axes: Axes, places: list[float], entries: list[dict], **look) -> None:
    """Draw a bar at each place: the accuracy of an entry, with its interval and in percent."""
    values = [entry["accuracy"] for entry in entries]
    below = [entry["accuracy"] - entry["ci95"][0] for entry in entries]
    above = [entry["ci95"][1] - entry["accuracy"] for entry in entries]
    bars = axes.bar(places, values, BAR, yerr=[below, above], capsize=4, alpha=0.85, **look)
    axes.bar_label(bars, [f"{value:.0%}" for value in values], padding=3, fontsize=9)


def pass_at_k(evaluation: dict[str, dict]) -> Figure:
    """Draw pass@k of the base model and of the trained model with 95% intervals.

    A dashed line marks the trained model's pass@1. A star at the largest k marks the base
    model's majority vote, in which all samples of a question vote, even if they are more than k.
    """
    axes = panel("How often is at least one of k samples correct?", "pass@k", xlabel="k samples")
    base = evaluation["baseline"]
    trained = evaluation["trained"]
    ks = [int(k) for k in trained["pass_at_k"]]

    # the curves
    _draw_curve(axes, base["pass_at_k"], "base model, pass@k", color=ORANGE, marker="s")
    _draw_curve(axes, trained["pass_at_k"], "trained, pass@k", color=BLUE, marker="o")

    # what to compare them with
    once = trained["pass_at_k"]["1"]["value"]
    axes.axhline(once, color=BLUE, linestyle="--", linewidth=1, label="trained, pass@1")
    vote = base["majority"]["accuracy"]
    star = {"marker": "*", "markersize": 14, "linestyle": "", "color": RED}
    axes.plot([max(ks)], [vote], **star, label="base model, majority vote")

    axes.set_xscale("log", base=2)
    axes.set_xticks(ks, ks)
    axes.set_ylim(0, 1.05)
    axes.yaxis.set_major_formatter("{x:.0%}")
    axes.figure.legend(loc="outside upper right", ncols=2, fontsize=9)
    return axes.figure


def _draw_curve(axes: Axes, points: dict[str, dict], label: str, color: str, marker: str) -> None:
    """Draw the value of each k, and the band of its intervals."""
    ks = [int(k) for k in points]
    lows = [point["ci95"][0] for point in points.values()]
    highs = [point["ci95"][1] for point in points.values()]
    axes.fill_between(ks, lows, highs, color=color, alpha=0.15, linewidth=0)
    values = [point["value"] for point in points.values()]
    axes.plot(ks, values, color=color, marker=marker, label=label)


def stored_changes(change, stored: dict) -> Figure:
    """Draw how much of a training update is left after the weights were stored in a number format:
    one panel per format. On the dashed diagonal, nothing is lost.

    change: the matrix of weight changes made by training.
    stored: for each format, the matrix of changes after the weights were stored and read back.
    """
    figure, panels = figure_with_panels(1, len(stored), (PAGE, 3.0), sharex=True, sharey=True)
    for axes, (name, read_back) in zip(panels, stored.items(), strict=True):
        panel(name, "", axes, xlabel="change by training")
        dots = {"s": 2, "alpha": 0.4, "color": BLUE, "linewidths": 0, "rasterized": True}
        axes.scatter(change.flatten(), read_back.flatten(), **dots)
        axes.axline(
            (0, 0), slope=1, color="black", linestyle="--", linewidth=1, label="as asked for"
        )
        axes.locator_params(axis="x", nbins=5)
    panels[0].set_ylabel("change stored")
    panels[0].legend(loc="upper left")
    return figure
