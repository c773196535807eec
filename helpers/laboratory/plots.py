"""The figure of what GRPO would learn from."""

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
    names = list(rewards)
    labels = [name.removesuffix("_reward").replace("_", "\n") for name in names]

    # Draw a bar for each reward.
    panel("Who drives the advantage\n(dark: judges the answer)", "", shares, xlabel="")
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
    panel(title, "questions", passes, xlabel=f"share of {size} completions that are right")
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
