"""Figures of an evaluation, and of what is left of a change once it is stored."""

from matplotlib.figure import Figure

from helpers.figures import BLUE, ORANGE, PAGE, RED, figure_with_panels, panel


def accuracy(evaluation: dict[str, dict]) -> Figure:
    """Draw the holdout accuracy of each model in evaluation.json, sampled and greedy, with 95%
    intervals.
    """
    axes = panel("Holdout accuracy, with 95% intervals", "accuracy", xlabel="")
    width = 0.36
    sampled = dict(enumerate(evaluation.values()))
    greedy = {at: entry["greedy"] for at, entry in sampled.items() if "greedy" in entry}
    for entries, label, shift, color, hatch in (
        (sampled, "sampled", -width / 2, BLUE, ""),
        (greedy, "greedy", width / 2, ORANGE, "//"),
    ):
        values = [entry["accuracy"] for entry in entries.values()]
        below = [entry["accuracy"] - entry["ci95"][0] for entry in entries.values()]
        above = [entry["ci95"][1] - entry["accuracy"] for entry in entries.values()]
        bars = axes.bar(
            [at + shift for at in entries],
            values,
            width,
            yerr=[below, above],
            capsize=4,
            color=color,
            hatch=hatch,
            alpha=0.85,
            label=label,
        )
        axes.bar_label(bars, [f"{value:.0%}" for value in values], padding=3, fontsize=9)
    axes.set_xticks(range(len(evaluation)), [name.replace("_", " ") for name in evaluation])
    axes.set_ylim(0, 1.12)
    axes.figure.legend(loc="outside upper right", ncols=2)  # inside, it could hide a bar
    return axes.figure


def pass_at_k(evaluation: dict[str, dict]) -> Figure:
    """Draw pass@k of the untrained and of the trained model with 95% intervals.

    A dashed line marks the trained model's pass@1, a star the untrained model's majority vote.
    """
    axes = panel("How often is at least one of k samples right?", "pass@k", xlabel="k samples")
    for name, label, color, marker in (
        ("baseline", "untrained, pass@k", ORANGE, "s"),
        ("trained", "trained, pass@k", BLUE, "o"),
    ):
        points = evaluation[name]["pass_at_k"]
        ks = [int(k) for k in points]
        lows = [point["ci95"][0] for point in points.values()]
        highs = [point["ci95"][1] for point in points.values()]
        axes.fill_between(ks, lows, highs, color=color, alpha=0.15, linewidth=0)
        values = [point["value"] for point in points.values()]
        axes.plot(ks, values, color=color, marker=marker, label=label)
    once = evaluation["trained"]["pass_at_k"]["1"]["value"]
    axes.axhline(once, color=BLUE, linestyle="--", linewidth=1, label="trained, pass@1")
    vote = evaluation["baseline"]["majority"]["accuracy"]
    star = {"marker": "*", "markersize": 14, "linestyle": "", "color": RED}
    axes.plot([max(ks)], [vote], **star, label="untrained, majority vote")
    axes.set_xscale("log", base=2)
    axes.set_xticks(ks, ks)
    axes.set_ylim(0, 1.05)
    axes.yaxis.set_major_formatter("{x:.0%}")
    axes.figure.legend(loc="outside upper right", ncols=2, fontsize=9)
    return axes.figure


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
