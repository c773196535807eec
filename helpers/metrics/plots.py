"""Figures of a training history, an evaluation, and a reward signal.

    plots.dashboard(read_metrics(run.folder / "metrics.csv"))

Each function that draws returns a Matplotlib Figure; with the argument `axes`, it draws into these
axes. Figures fit the width of a page, text is at least 9 points, and lines differ in stroke or
marker as well as in colour.
"""

from itertools import cycle

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.figures import BLUE, GREEN, GREY, ORANGE, PURPLE, RED
from helpers.metrics.history import reward_names, smooth

# --- One curve per figure -------------------------------------------------------------------------


def reward(history: pd.DataFrame, axes: Axes | None = None) -> Figure:
    """Draw the weighted reward of each step, smoothed, with a band of one `reward_std` (the spread
    over the whole batch).
    """
    axes = _panel("Reward: weighted sum, mean of the batch", "reward", axes, history=history)
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
    """Draw `frac_reward_zero_std`: the share of groups whose completions all score the same."""
    title = "Dead groups: all completions score the same"
    axes = _panel(title, "share of groups", axes, history=history)
    _line(axes, history, "frac_reward_zero_std", "dead groups", ORANGE)
    axes.set_ylim(-0.02, 1.05)
    return axes.figure


def kl(history: pd.DataFrame, axes: Axes | None = None) -> Figure:
    """Draw the KL divergence from the reference policy, in nats per token, with its running median;
    or a note if it was not logged because beta is 0.
    """
    title = "KL: how far the policy has moved from where it began"
    axes = _panel(title, "nats per token", axes, history=history)
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
    title = "Each reward by itself, unweighted"
    axes = _panel(title, "mean of the batch", axes, history=history)
    names = reward_names(history)
    _lines(axes, history, {f"rewards/{name}/mean": name for name in names})
    for (color, _), name in zip(cycle(LOOKS), names, strict=False):
        if (column := f"eval_rewards/{name}/mean") in history:
            held_out = history.set_index("step")[column].dropna()
            # the legend explains the markers once
            label = "on held-out questions" if name == names[0] else None
            axes.plot(held_out, color=color, linestyle=":", marker="o", label=label)
    if names:
        # Leave room below the curves for the legend.
        low, high = axes.get_ylim()
        ticks = [tick for tick in axes.get_yticks() if low <= tick <= high]
        entries = len(axes.get_legend_handles_labels()[1])
        axes.set(ylim=(low - 0.17 * entries * (high - low), high), yticks=ticks)
        axes.legend(loc="lower right")
    return axes.figure


def completion_length(history: pd.DataFrame, axes: Axes | None = None) -> Figure:
    """Draw the mean completion length in tokens, and the share cut off at the limit."""
    axes = _panel("Completion length", "tokens", axes, history=history)
    left = {"completions/mean_length": "mean length (left)"}
    shares = {"completions/clipped_ratio": "share cut off (right)"}
    return _with_shares(history, axes, left, "share of completions", shares)


def tools(history: pd.DataFrame, axes: Axes | None = None) -> Figure:
    """Draw the tool calls per episode, the share of calls that fail, and the share of episodes
    whose last call is not answered.

    The last share is computed from the reward `finished`, if it was logged (see `tool_rules`).
    """
    title = "Tools: calls, failures, unfinished episodes"
    axes = _panel(title, "calls per episode", axes, history=history)
    finished = history.get("rewards/finished/mean", float("nan"))
    left = {"tools/call_frequency": "calls per episode (left)"}
    shares = {
        "tools/failure_frequency": "calls that fail (right)",
        "unfinished": "unfinished episodes (right)",
    }
    history = history.assign(unfinished=1 - finished).dropna(axis=1, how="all")
    return _with_shares(history, axes, left, "share", shares)


def has_tools(history: pd.DataFrame) -> bool:
    """Return whether the history is of an agent: whether TRL logged tool calls."""
    return "tools/call_frequency" in history and bool(history["tools/call_frequency"].notna().any())


def loss(history: pd.DataFrame, axes: Axes | None = None) -> Figure:
    """Draw the loss.

    It stays near 0 because advantages sum to zero in each group. They do not cancel entirely,
    because completions differ in length.
    """
    axes = _panel("Loss: not a measure of progress", "loss", axes, history=history)
    _line(axes, history, "loss", "loss", GREY)
    axes.axhline(0, color="black", linewidth=0.8)
    return axes.figure


# --- Several curves -------------------------------------------------------------------------------


def dashboard(history: pd.DataFrame) -> Figure:
    """Draw all curves of a training run in one figure: six, or seven with tools.

    Notebook 03 redraws it while it trains.
    """
    panels = [["reward", "each_reward"], ["spread", "completion_length"], ["kl", "loss"]]
    panels += [["tools", "tools"]] if has_tools(history) else []
    figure = Figure((_PAGE, 2.8 * len(panels)), layout="constrained")
    grid = figure.subplot_mosaic(panels)
    for draw in (reward, each_reward, spread, completion_length, kl, loss, tools):
        if draw.__name__ in grid:
            axes = grid[draw.__name__]
            draw(history, axes)
            axes.set_title(axes.get_title(loc="left").partition(":")[0])
    return figure


def overlay(histories: dict[str, pd.DataFrame]) -> Figure:
    """Draw several runs, given by name, in the same panels: reward, KL, completion length, and the
    share of dead groups.
    """
    figure, grid = _figure(2, 2, (_PAGE, 6.2))
    panels = {
        "reward": "reward",
        "kl": "KL, nats per token",
        "completions/mean_length": "completion length, tokens",
        "frac_reward_zero_std": "share of dead groups",
    }
    for (column, label), axes in zip(panels.items(), grid.flat, strict=True):
        _panel(label, "", axes)
        for (color, stroke), (name, history) in zip(cycle(LOOKS), histories.items(), strict=False):
            _line(axes, history, column, name, color, stroke)
    lines, names = grid.flat[0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside upper center", ncols=min(4, len(histories)))
    return figure


def gallery(histories: dict[str, pd.DataFrame]) -> Figure:
    """Draw several runs, given by name, one row per run, with the curves that show whether a run is
    healthy.
    """
    figure, grid = _figure(
        len(histories), 4, (_PAGE, 0.6 + 1.55 * len(histories)), sharex=True, squeeze=False
    )
    lines = {
        "reward": {"reward": "weighted sum", "rewards/correctness_reward/mean": "correctness"},
        "shares": {
            "frac_reward_zero_std": "dead groups",
            "completions/clipped_ratio": "cut off",
        },
        "KL, nats per token": {"kl": "kl"},
        "length, tokens": {"completions/mean_length": "mean length"},
    }
    last = len(histories) - 1
    for row, (name, history) in enumerate(histories.items()):
        for axes, (title, columns) in zip(grid[row], lines.items(), strict=True):
            # Put titles above the first row only, and the label of the steps below the last.
            _panel(title if row == 0 else "", "", axes, xlabel="step" if row == last else "")
            # Use different looks for the shares than for the rewards beside them.
            _lines(axes, history, columns, LOOKS[2:] if title == "shares" else LOOKS)
            axes.set_ylim((-0.05, 1.05) if title == "shares" else (0, axes.get_ylim()[1]))
            axes.tick_params(labelsize=9)
        grid[row, 0].set_ylabel(
            name, fontsize=11, weight="bold", rotation=0, ha="right", va="center"
        )
    for axes in grid[-1, :2]:  # the other panels have one line each
        axes.legend(fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.28))
    return figure


def reasoning(history: pd.DataFrame, careful: pd.Series) -> Figure:
    """Draw accuracy and the share of careful workings on the left, and the completion length in
    tokens on the right, to show whether longer reasoning is right more often.

    history: with the reward `correctness_reward`.
    careful: by step, the share of completions that write out every column of a sum
        (`helpers.data.arithmetic.is_careful`).
    """
    figure, (left, right) = _figure(1, 2, (_PAGE, 3.5))
    _panel("Right answers, and careful workings", "share of completions", left)
    _line(left, history, "rewards/correctness_reward/mean", "right", BLUE)
    left.plot(
        careful.index, careful, color=ORANGE, linestyle="--", marker="o", label="worked carefully"
    )
    left.set_ylim(-0.02, 1.05)
    left.yaxis.set_major_formatter("{x:.0%}")
    left.legend(loc="lower right")
    _panel("Length of a completion", "tokens", right)
    _line(right, history, "completions/mean_length", "mean length", PURPLE)
    right.set_ylim(bottom=0)
    return figure


# --- Evaluations and reward signals ---------------------------------------------------------------


def accuracy(evaluation: dict[str, dict]) -> Figure:
    """Draw the holdout accuracy of each model in evaluation.json, sampled and greedy, with 95 %
    intervals.
    """
    axes = _panel("Holdout accuracy, with 95 % intervals", "accuracy", xlabel="")
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
    """Draw pass@k of the untrained and of the trained model with 95 % intervals.

    A dashed line marks the trained model's pass@1, a star the untrained model's majority vote.
    """
    axes = _panel("How often is at least one of k samples right?", "pass@k", xlabel="k samples")
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
    figure, panels = _figure(1, len(stored), (_PAGE, 3.0), sharex=True, sharey=True)
    for axes, (name, read_back) in zip(panels, stored.items(), strict=True):
        _panel(name, "", axes, xlabel="change by training")
        dots = {"s": 2, "alpha": 0.4, "color": BLUE, "linewidths": 0, "rasterized": True}
        axes.scatter(change.flatten(), read_back.flatten(), **dots)
        axes.axline(
            (0, 0), slope=1, color="black", linestyle="--", linewidth=1, label="as asked for"
        )
        axes.locator_params(axis="x", nbins=5)
    panels[0].set_ylabel("change stored")
    panels[0].legend(loc="upper left")
    return figure


def reward_signal(signal: dict) -> Figure:
    """Draw what GRPO would learn from, in three panels: each reward's share of the advantage, the
    pass rates of the questions, and the rank correlations between rewards.

    signal: the result of `laboratory.measures.Lab.signal`.
    """
    figure, (shares, passes, ranks) = _figure(1, 3, (_PAGE, 3.5), width_ratios=[1.1, 1, 1])
    rewards = signal["rewards"]
    names = list(rewards)
    labels = [name.removesuffix("_reward").replace("_", "\n") for name in names]

    # Draw a bar for each reward.
    _panel("Who drives the advantage\n(dark: judges the answer)", "", shares, xlabel="")
    values = [rewards[name]["advantage_share"] for name in names]
    colors = [BLUE if name in signal["judges"] else "lightgrey" for name in names]
    bars = shares.barh(labels, values, color=colors, edgecolor="black", linewidth=0.8)
    shares.bar_label(bars, [f"{value:.0%}" for value in values], padding=3)
    shares.set_xlim(min(0, *values) * 1.25, max(0.01, *values) * 1.25)
    shares.invert_yaxis()
    shares.xaxis.set_major_formatter("{x:.0%}")

    # Count the questions with each possible pass rate: 0, 1/size, 2/size, …
    size = signal["group_size"]
    title = f"Pass rate of each question\n({signal['total']['zero_spread']:.0%} of groups are dead)"
    _panel(title, "questions", passes, xlabel=f"share of {size} completions that are right")
    rates = [rate for rate in signal["pass_rate"] if rate is not None]
    bins = [(right - 0.5) / size for right in range(size + 2)]
    passes.hist(rates, bins=bins, color=BLUE, edgecolor="white")
    passes.yaxis.get_major_locator().set_params(integer=True)

    # Draw a square for each pair of rewards, with a dash if one of them is constant.
    matrix = [[1.0 if a == b else rewards[a]["rank_correlation"][b] for b in names] for a in names]
    shades = [[value or 0.0 for value in row] for row in matrix]
    ranks.imshow(shades, cmap="PuOr", vmin=-1, vmax=1)
    for y, row in enumerate(matrix):
        for x, value in enumerate(row):
            text = "–" if value is None else f"{value:.2f}"
            color = "black" if abs(shades[y][x]) <= 0.7 else "white"
            ranks.text(x, y, text, color=color, ha="center", va="center", fontsize=9)
    ranks.set_xticks(range(len(names)), labels, fontsize=9, rotation=90)
    ranks.set_yticks(range(len(names)), labels, fontsize=9)
    ranks.set_title("Rank correlation\n(Spearman)")
    ranks.grid(False)
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
_PAGE = 8.6  # inches; a page would shrink a wider figure, and its text


def _figure(rows: int, columns: int, size: tuple[float, float], **options):
    """Return a figure and its panels, made without pyplot, so that Jupyter shows it only once."""
    figure = Figure(size, layout="constrained")
    return figure, figure.subplots(rows, columns, **options)


def _panel(
    title: str,
    ylabel: str,
    axes: Axes | None = None,
    xlabel: str = "step",
    history: pd.DataFrame | None = None,
) -> Axes:
    """Return a panel to draw in, with its title and labels.

    If the history has stages (`history.join_stages`), each is marked with its name, and separated
    from the one before by a dotted line.
    """
    if axes is None:
        _, axes = _figure(1, 1, (7.0, 3.6))
    axes.set(title=title, xlabel=xlabel, ylabel=ylabel)
    if xlabel == "step":
        axes.xaxis.get_major_locator().set_params(integer=True)
    if history is not None and "stage" in history:
        begins = history[history["stage"] != history["stage"].shift()]
        for step, name in zip(begins["step"], begins["stage"], strict=True):
            if step > begins["step"].iloc[0]:
                axes.axvline(step, color=GREY, linewidth=0.8, linestyle=":")
            place = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
            axes.annotate(name, (step, 1.0), (3, -2), **place, va="top", fontsize=9, color=GREY)
    return axes


def _line(axes: Axes, history: pd.DataFrame, column: str, label: str, color: str, stroke="-"):
    """Draw a column: raw values as a thin line, the running mean as a thick one. For the KL, the
    running median is used, which single spikes do not affect. A missing column draws nothing.
    """
    if column not in history:
        return
    axes.plot(history["step"], history[column], color=color, alpha=0.3, linewidth=1)
    axes.plot(
        history["step"],
        smooth(history[column], median=column == "kl"),
        color=color,
        linestyle=stroke,
        linewidth=2,
        label=label,
    )


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
    right = axes.twinx()
    right.spines["right"].set_visible(True)
    right.grid(False)
    _lines(axes, history, left)
    _lines(right, history, shares, LOOKS[1:])
    lines = [*axes.get_lines(), *right.get_lines()]
    handles = [line for line in lines if not line.get_label().startswith("_")]
    # Leave room above the curves for the legend.
    room = 1.1 + 0.2 * len(handles)
    top = axes.get_ylim()[1]
    axes.set_ylim(-0.02 * top, room * top)
    right.set(ylabel=ylabel, ylim=(-0.02, room), yticks=(0, 0.25, 0.5, 0.75, 1))
    axes.legend(handles=handles, loc="upper right")
    return axes.figure
