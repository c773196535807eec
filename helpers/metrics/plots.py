"""Figures of a training history.

    plots.dashboard(read_metrics(run.folder / "metrics.csv"))

Each function that draws returns a Matplotlib Figure; with the argument `axes`, it draws into these
axes. Figures fit the width of a page, text is at least 9 points, and lines differ in stroke or
marker as well as in colour.

The first part has one function per curve, and the second part puts several curves into one figure.
Both draw with `_line` and `_lines`, at the end.
"""

from itertools import cycle

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.figures import BLUE, GREEN, GREY, ORANGE, PAGE, PURPLE, RED, figure_with_panels, panel
from helpers.metrics.history import WITH_SPIKES, reward_names, smooth

# --- One curve per figure -------------------------------------------------------------------------


def reward(history: pd.DataFrame, axes: Axes | None = None) -> Figure:
    """Draw the weighted reward of each step, smoothed, with a band of one `reward_std` (the spread
    over the whole batch).
    """
    axes = panel("Reward: weighted sum, mean of the batch", "reward", axes, history=history)
    mean = smooth(history["reward"])
    std = smooth(history["reward_std"])
    axes.fill_between(
        history["step"],
        mean - std,
        mean + std,
        color=BLUE,
        alpha=0.12,
        linewidth=0,
        label="± reward_std",
    )
    _line(axes, history, "reward", "reward", BLUE)
    axes.legend(loc="lower right")
    return axes.figure


def spread(history: pd.DataFrame, axes: Axes | None = None) -> Figure:
    """Draw `frac_reward_zero_std`: the share of groups whose completions all score the same, that
    is, whose rewards have no spread. Runs store the figure as figures/spread.png.
    """
    title = "Dead groups: all completions score the same"
    axes = panel(title, "share of groups", axes, history=history)
    _line(axes, history, "frac_reward_zero_std", "dead groups", ORANGE)
    axes.set_ylim(-0.02, 1.05)
    return axes.figure


def kl(history: pd.DataFrame, axes: Axes | None = None) -> Figure:
    """Draw the KL divergence from the reference policy, in nats per token, with its running median;
    or a note if it was not logged because beta is 0.
    """
    title = "KL: how far the policy has moved from where it began"
    axes = panel(title, "nats per token", axes, history=history)
    if "kl" in history and history["kl"].notna().any():
        _line(axes, history, "kl", "running median", GREEN)
        axes.set_ylim(0, 1.25 * axes.get_ylim()[1])  # leaves room for the legend
        axes.legend(loc="upper left")
    else:
        axes.text(0.5, 0.5, "no KL: beta is 0", ha="center", transform=axes.transAxes, color=GREY)
    return axes.figure


def each_reward(history: pd.DataFrame, axes: Axes | None = None) -> Figure:
    """Draw the batch mean of each reward, without its weight. If held-out questions were asked
    during the training, a marker shows their mean each time; it is not smoothed.
    """
    axes = panel("Each reward by itself, unweighted", "mean of the batch", axes, history=history)
    names = reward_names(history)

    # Draw the training batches, then the held-out questions in the same colours.
    _lines(axes, history, {f"rewards/{name}/mean": name for name in names})
    for (color, _stroke), name in zip(cycle(LOOKS), names, strict=False):
        column = f"eval_rewards/{name}/mean"
        if column in history:
            held_out = history.set_index("step")[column].dropna()
            # the legend explains the markers once
            label = "on held-out questions" if name == names[0] else None
            axes.plot(held_out, color=color, linestyle=":", marker="o", label=label)
    if not names:
        return axes.figure

    # Show 0, and leave room below it for the legend, whose entries need 17% of the height each.
    low, high = axes.get_ylim()
    low = min(low, 0.0)
    axes.set_ylim(low, high)
    ticks = [tick for tick in axes.get_yticks() if low <= tick <= high]
    _handles, entries = axes.get_legend_handles_labels()
    room = 0.17 * len(entries) * (high - low)
    axes.set(ylim=(low - room, high), yticks=ticks)
    axes.legend(loc="lower right")
    return axes.figure


def completion_length(history: pd.DataFrame, axes: Axes | None = None) -> Figure:
    """Draw the mean completion length in tokens, and the share cut off at the limit."""
    axes = panel("Completion length", "tokens", axes, history=history)
    return _with_shares(
        history,
        axes,
        left={"completions/mean_length": "mean length (left)"},
        ylabel="share of completions",
        shares={"completions/clipped_ratio": "share cut off (right)"},
    )


def tools(history: pd.DataFrame, axes: Axes | None = None) -> Figure:
    """Draw the tool calls per episode, the share of calls that fail, and the share of episodes
    whose last call is not answered.

    The last share is computed from the reward `finished`, if it was logged (see `tool_rules`).
    """
    title = "Tools: calls, failures, unfinished episodes"
    axes = panel(title, "calls per episode", axes, history=history)
    finished = history.get("rewards/finished/mean", float("nan"))
    history = history.assign(unfinished=1 - finished)
    logged = history.dropna(axis=1, how="all")  # a column without a number has no line
    return _with_shares(
        logged,
        axes,
        left={"tools/call_frequency": "calls per episode (left)"},
        ylabel="share",
        shares={
            "tools/failure_frequency": "calls that fail (right)",
            "unfinished": "unfinished episodes (right)",
        },
    )


def has_tools(history: pd.DataFrame) -> bool:
    """Return whether the history is of an agent: whether TRL logged tool calls."""
    return "tools/call_frequency" in history and bool(history["tools/call_frequency"].notna().any())


def loss(history: pd.DataFrame, axes: Axes | None = None) -> Figure:
    """Draw the loss.

    It stays near 0 because advantages sum to zero in each group. They do not cancel entirely,
    because completions differ in length.
    """
    axes = panel("Loss: not a measure of progress", "loss", axes, history=history)
    _line(axes, history, "loss", "loss", GREY)
    axes.axhline(0, color="black", linewidth=0.8)
    return axes.figure


# --- Several curves -------------------------------------------------------------------------------


def dashboard(history: pd.DataFrame) -> Figure:
    """Draw all curves of a training run in one figure: six, or seven with tools.

    Notebook 03 redraws it while it trains.
    """
    panels = [[reward, each_reward], [spread, completion_length], [kl, loss]]
    panels += [[tools, tools]] if has_tools(history) else []
    figure = Figure((PAGE, 2.8 * len(panels)), layout="constrained")
    # each panel has the function that draws it as its key
    for draw, axes in figure.subplot_mosaic(panels).items():
        draw(history, axes)
        short_title, _, _explanation = axes.get_title(loc="left").partition(":")
        axes.set_title(short_title)
    return figure


def overlay(histories: dict[str, pd.DataFrame]) -> Figure:
    """Draw several runs, given by name, in the same panels: reward, KL, completion length, and the
    share of dead groups.
    """
    figure, grid = figure_with_panels(2, 2, (PAGE, 6.2))
    panels = {
        "reward": "reward",
        "kl": "KL, nats per token",
        "completions/mean_length": "completion length, tokens",
        "frac_reward_zero_std": "share of dead groups",
    }
    for (column, label), axes in zip(panels.items(), grid.flat, strict=True):
        panel(label, "", axes)
        for (color, stroke), (name, history) in zip(cycle(LOOKS), histories.items(), strict=False):
            _line(axes, history, column, name, color, stroke)
    lines, names = grid.flat[0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside upper center", ncols=min(4, len(histories)))
    return figure


def gallery(histories: dict[str, pd.DataFrame]) -> Figure:
    """Draw several runs, given by name, one row per run, with the curves that show whether a run is
    healthy.
    """
    figure, grid = figure_with_panels(
        len(histories), 4, (PAGE, 0.6 + 1.55 * len(histories)), sharex=True, squeeze=False
    )
    # The panels of a row, by title: the label of each column.
    panels = {
        "reward": {"reward": "weighted sum", "rewards/correctness_reward/mean": "correctness"},
        "shares": {"frac_reward_zero_std": "dead groups", "completions/clipped_ratio": "cut off"},
        "KL, nats per token": {"kl": "kl"},
        "length, tokens": {"completions/mean_length": "mean length"},
    }
    last = len(histories) - 1
    for row, (name, history) in enumerate(histories.items()):
        for axes, (title, labels) in zip(grid[row], panels.items(), strict=True):
            # Put titles above the first row only, and the label of the steps below the last.
            panel(title if row == 0 else "", "", axes, xlabel="step" if row == last else "")
            if title == "shares":
                # other looks than those of the rewards beside them
                _lines(axes, history, labels, LOOKS[2:])
                axes.set_ylim(-0.05, 1.05)
            else:
                _lines(axes, history, labels)
                axes.set_ylim(bottom=0)
            axes.tick_params(labelsize=9)
        grid[row, 0].set_ylabel(
            name, fontsize=11, weight="bold", rotation=0, ha="right", va="center"
        )
    for axes in grid[-1, :2]:  # the other panels have one line each
        axes.legend(fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.28))
    return figure


def reasoning(history: pd.DataFrame, careful: pd.Series) -> Figure:
    """Draw accuracy and the share of careful workings on the left, and the completion length in
    tokens on the right, to show whether longer reasoning is correct more often.

    history: with the reward `correctness_reward`.
    careful: by step, the share of completions that write out every column of a sum
        (`helpers.data.arithmetic.is_careful`).
    """
    figure, (left, right) = figure_with_panels(1, 2, (PAGE, 3.5))
    panel("Correct answers, and careful workings", "share of completions", left)
    _line(left, history, "rewards/correctness_reward/mean", "correct", BLUE)
    left.plot(
        careful.index, careful, color=ORANGE, linestyle="--", marker="o", label="worked carefully"
    )
    left.set_ylim(-0.02, 1.05)
    left.yaxis.set_major_formatter("{x:.0%}")
    left.legend(loc="lower right")
    panel("Length of a completion", "tokens", right)
    _line(right, history, "completions/mean_length", "mean length", PURPLE)
    right.set_ylim(bottom=0)
    return figure


# --- Panels and lines ----------------------------------------------------------------------------

# Colour and stroke of the first line, the second, and so on.
LOOKS = (
    (BLUE, "-"),
    (ORANGE, "--"),
    (GREEN, "-."),
    (RED, ":"),
    (PURPLE, (0, (6, 1))),
    (GREY, (0, (3, 1, 1, 1, 1, 1))),
)


def _line(axes: Axes, history: pd.DataFrame, column: str, label: str, color: str, stroke="-"):
    """Draw a column: raw values as a thin line, the running mean as a thick one, or the running
    median of a column in `WITH_SPIKES`. A missing column draws nothing.
    """
    if column not in history:
        return
    steps = history["step"]
    values = history[column]
    smoothed = smooth(values, median=column in WITH_SPIKES)
    axes.plot(steps, values, color=color, alpha=0.3, linewidth=1)
    axes.plot(steps, smoothed, color=color, linestyle=stroke, linewidth=2, label=label)


def _lines(axes: Axes, history: pd.DataFrame, labels: dict[str, str], looks=LOOKS) -> None:
    """Draw a line for each column that was logged. `labels` has the label of each column."""
    for (color, stroke), (column, label) in zip(cycle(looks), labels.items(), strict=False):
        _line(axes, history, column, label, color, stroke)


def _with_shares(
    history: pd.DataFrame, axes: Axes, left: dict[str, str], ylabel: str, shares: dict[str, str]
) -> Figure:
    """Draw lines on the left axis and shares on the right axis, with one legend.

    left, shares: the label of each column.
    ylabel: the label of the right axis.
    """
    # Draw the lines. Only the right axis shows a spine there, and only the left one a grid.
    right = axes.twinx()
    right.spines["right"].set_visible(True)
    right.grid(False)
    _lines(axes, history, left)
    _lines(right, history, shares, LOOKS[1:])

    # List the lines of both axes in one legend. Raw values have a label of Matplotlib: "_child0".
    lines = [*axes.get_lines(), *right.get_lines()]
    handles = [line for line in lines if not line.get_label().startswith("_")]
    axes.legend(handles=handles, loc="upper right")

    # Leave room above the curves for the legend. Both axes get the same share of it.
    height = 1.1 + 0.2 * len(handles)
    _bottom, top = axes.get_ylim()
    axes.set_ylim(-0.02 * top, height * top)
    right.set(ylabel=ylabel, ylim=(-0.02, height), yticks=(0, 0.25, 0.5, 0.75, 1))
    return axes.figure
