"""The figure of what GRPO would learn from."""

from collections.abc import Iterable

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.figures import BLUE, PAGE, figure_with_panels, panel


def reward_signal(signal: dict) -> Figure:
    """Draw what GRPO would learn from, in three panels: each reward's share of the advantage, the
    pass rates of the questions, and the rank correlations between rewards.

    signal: the result of `laboratory.measures.Lab.signal`.
    """
    figure, (shares, passes, ranks) = figure_with_panels(
        1, 3, (PAGE, 3.5), width_ratios=[1.1, 1, 1]
    )
    rewards = signal["rewards"]
    _draw_shares(shares, rewards, signal["judges"])
    _draw_pass_rates(
        passes, signal["pass_rate"], signal["group_size"], signal["total"]["zero_spread"]
    )
    _draw_correlations(ranks, rewards)
    return figure


def _draw_shares(axes: Axes, rewards: dict[str, dict], judges: list[str]) -> None:
    """Draw a bar for each reward's share of the advantage, dark for those that judge the answer."""
    panel("Who drives the advantage\n(dark: judges the answer)", "", axes, xlabel="")
    values = [reward["advantage_share"] for reward in rewards.values()]
    colors = [BLUE if name in judges else "lightgrey" for name in rewards]
    bars = axes.barh(_labels(rewards), values, color=colors, edgecolor="black", linewidth=0.8)
    axes.bar_label(bars, [f"{value:.0%}" for value in values], padding=3)
    axes.set_xlim(min(0, *values) * 1.25, max(0.01, *values) * 1.25)
    axes.invert_yaxis()
    axes.xaxis.set_major_formatter("{x:.0%}")


def _draw_pass_rates(
    axes: Axes, pass_rates: list[float | None], size: int, dead_share: float
) -> None:
    """Draw how many questions have each possible pass rate: 0, 1/size, 2/size, …

    pass_rates: one per group, which has one question; None if it could not be judged.
    size: completions in a group.
    dead_share: the share of groups whose completions all have the same reward.
    """
    title = f"Pass rate of each question\n({dead_share:.0%} of groups are dead)"
    panel(title, "questions", axes, xlabel=f"share of {size} completions that are correct")
    rates = [rate for rate in pass_rates if rate is not None]
    bins = [(right - 0.5) / size for right in range(size + 2)]
    axes.hist(rates, bins=bins, color=BLUE, edgecolor="white")
    axes.yaxis.get_major_locator().set_params(integer=True)  # ty: ignore[unknown-argument]


def _draw_correlations(axes: Axes, rewards: dict[str, dict]) -> None:
    """Draw a square for each pair of rewards, with a dash if one of them is constant."""
    names = list(rewards)
    matrix = [[1.0 if a == b else rewards[a]["rank_correlation"][b] for b in names] for a in names]
    shades = [[value or 0.0 for value in row] for row in matrix]
    axes.imshow(shades, cmap="PuOr", vmin=-1, vmax=1)
    for y, row in enumerate(matrix):
        for x, value in enumerate(row):
            text = "–" if value is None else f"{value:.2f}"
            color = "black" if abs(shades[y][x]) <= 0.7 else "white"
            axes.text(x, y, text, color=color, ha="center", va="center", fontsize=9)
    axes.set_xticks(range(len(names)), _labels(names), fontsize=9, rotation=90)
    axes.set_yticks(range(len(names)), _labels(names), fontsize=9)
    axes.set_title("Rank correlation\n(Spearman)")
    axes.grid(False)


def _labels(names: Iterable[str]) -> list[str]:
    """Return the names of rewards, a word on a line: `right_format_reward` is right, format."""
    return [name.removesuffix("_reward").replace("_", "\n") for name in names]
