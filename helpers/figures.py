"""Diagrams of what the notebooks explain, the palette of all figures, and `shown`, which shows a
figure with its alt text.

Every function returns a Matplotlib Figure. All text is 9 points or more at the size at
which `shown` shows it, and nothing is told by colour alone.
"""

import base64
import html
import io
import statistics

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

# Okabe and Ito's palette: told apart by colour-blind readers too.
BLUE, ORANGE, GREEN, RED, PURPLE, GREY = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#6B6B6B",
)
_TINTS = {BLUE: "#E3F0F8", ORANGE: "#FDF3DC", GREEN: "#E0F3ED", GREY: "#F0F0F0"}


# --- On the page ----------------------------------------------------------------------------------


class shown:
    """What to end a cell with, or to give to `display`, in place of a figure: an HTML image with
    its alt text, which JupyterLab reads nowhere else.

    alt: one to three sentences for a reader who cannot see it: the kind of figure, and what it
    shows.
    """

    def __init__(self, figure: Figure, alt: str):
        self.figure, self.alt = figure, " ".join(alt.split())

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, str]:
        from PIL import Image

        picture, small = io.BytesIO(), io.BytesIO()
        dots = 1.5  # per CSS pixel: sharp on a dense screen, and still small in a notebook
        # a layout has fitted all in; cutting draws it once more
        cut = None if self.figure.get_layout_engine() else "tight"
        self.figure.savefig(picture, dpi=96 * dots, bbox_inches=cut, format="png")
        image = Image.open(picture)
        # 128 colours are enough for a drawing and make the file a third of the size.
        image.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(
            small, format="png", optimize=True
        )
        source = base64.b64encode(small.getvalue()).decode()
        alt, width = html.escape(self.alt), round(image.width / dots)
        return {
            "text/html": f'<img alt="{alt}" width="{width}" src="data:image/png;base64,{source}">',
            "text/plain": self.alt,
        }


# --- Boxes and arrows -----------------------------------------------------------------------------


def _canvas(width: float, height: float):
    """Axes in inches, without a frame."""
    figure = plt.figure(figsize=(width, height))
    plt.close(figure)  # the caller shows it; left open, Jupyter would draw it twice
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(0, height))
    axes.axis("off")
    return figure, axes


def _arrow(
    axes, start: tuple, end: tuple, text: str = "", place: tuple = (0, 0.14), **style
) -> None:
    """An arrow, and what happens along it at `place` from its middle."""
    arrow = {
        "arrowstyle": "-|>",
        "color": "black",
        "linewidth": 1.5,
        "mutation_scale": 16,
        "shrinkA": 2,
        "shrinkB": 2,
    } | style
    axes.annotate("", end, start, arrowprops=arrow)
    middle = ((start[0] + end[0]) / 2 + place[0], (start[1] + end[1]) / 2 + place[1])
    axes.text(
        *middle,
        text,
        ha="center" if not place[0] else "left",
        va="center",
        fontsize=9.5,
        style="italic",
    )


def grpo_loop() -> Figure:
    """One step of GRPO as a circle: question, group of completions, rewards, advantages, update,
    and the policy again.

    DeepSeekMath (arXiv 2402.03300), figure 4, without what this project does not use.
    """
    figure, axes = _canvas(8.4, 3.4)
    top, bottom, half, wide = 2.8, 0.6, 0.75, 1.35  # the rows, and half the widths of a box
    compared = "reward minus the group's mean,\ndivided by the group's spread"
    boxes = (
        (0.8, top, half, "Question", "What is 46 + 75?", GREY),
        (3.0, top, half, "Policy", "the model with its\nadapter: it learns", BLUE),
        (5.25, top, half, "Group", "several completions\nof one question", GREEN),
        (7.55, top, half, "Rewards", "a number for each\ncompletion", GREEN),
        (6.95, bottom, wide, "Advantages", compared, ORANGE),
        (3.0, bottom, half, "Update", "of the adapter:\none gradient step", BLUE),
        (0.8, bottom, half, "Reference", "the policy as it\nbegan: frozen", GREY),
    )
    for x, y, reach, title, text, color in boxes:
        # dashed: what never changes
        line = (0, (4, 2)) if title == "Reference" else "-"
        axes.add_patch(
            FancyBboxPatch(
                (x - reach, y - 0.525),
                2 * reach,
                1.05,
                boxstyle="round,pad=0,rounding_size=0.08",
                edgecolor=color,
                facecolor=_TINTS[color],
                linestyle=line,
                linewidth=2 if line == "-" else 1.5,
            )
        )
        centred = {"ha": "center", "va": "center"}
        axes.text(x, y + 0.305, title, fontsize=11, weight="bold", **centred)
        axes.text(x, y - 0.14, text, fontsize=9.5, linespacing=1.25, **centred)
    _arrow(axes, (0.8 + half, top), (3.0 - half, top), "ask")
    _arrow(axes, (3.0 + half, top), (5.25 - half, top), "1 sample")
    _arrow(axes, (5.25 + half, top), (7.55 - half, top), "2 score")
    _arrow(axes, (7.55, top - 0.53), (7.55, bottom + 0.53), "3 compare", (-0.82, 0))
    better = "4 better more likely,\nworse less likely"
    _arrow(axes, (6.95 - wide, bottom), (3.0 + half, bottom), better, (0, 0.27))
    _arrow(axes, (3.0, bottom + 0.53), (3.0, top - 0.53), "5 sample again", (0.1, 0))
    back = "KL holds\nback"
    _arrow(axes, (0.8 + half, bottom), (3.0 - half, bottom), back, (0, 0.27), linestyle="--")
    return figure


# --- One group's advantages -----------------------------------------------------------------------


def group_advantages(rewards: list[float], labels: list[str]) -> Figure:
    """One group: its rewards as bars with their mean, and beside each the advantage, with an arrow
    up or down.

    The advantage is GRPO's as TRL computes it: (reward - mean) / (standard deviation of the sample
    + 1e-4), so 0 in a dead group. rewards: one for each completion, weighted and summed.
    labels: what is written before each bar.
    """
    mean, spread = statistics.fmean(rewards), statistics.stdev(rewards)
    values = [(reward - mean) / (spread + 1e-4) for reward in rewards]
    figure, (left, right) = plt.subplots(
        1,
        2,
        figsize=(8.4, 0.9 + 0.32 * len(rewards)),
        sharey=True,
        layout="constrained",
        width_ratios=[1, 1.2],
    )
    plt.close(figure)
    places = range(len(rewards))
    left.barh(places, rewards, color=GREY, height=0.6)
    left.axvline(mean, color="black", linestyle="--", linewidth=1.5)
    left.set_yticks(places, labels, fontsize=9)
    left.invert_yaxis()
    left.set_title(f"Rewards; dashed: their mean, {mean:.2f}", loc="left", fontsize=10)
    colors = [BLUE if value > 0 else ORANGE for value in values]
    bars = right.barh(places, values, height=0.6, color=colors)
    signs = [f"▲ {value:+.2f}" if value > 0 else f"▼ {value:+.2f}" for value in values]
    texts = [
        "0, nothing to learn" if abs(value) < 0.005 else sign
        for value, sign in zip(values, signs, strict=True)
    ]
    right.bar_label(bars, texts, padding=4, fontsize=9)
    right.axvline(0, color="black", linewidth=1)
    reach = max(1.0, *map(abs, values))
    right.set_xlim(-1.6 * reach, 1.6 * reach)
    right.set_xticks([])  # each bar says its number
    right.set_title("Advantages: ▲ more likely, ▼ less likely", loc="left", fontsize=10)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=9)
    return figure


# --- Merging --------------------------------------------------------------------------------------


def merge() -> Figure:
    """What merging does to one matrix: W and the adapter's product B·A become one matrix of the
    same shape as W.
    """
    figure, axes = _canvas(8.4, 2.9)
    middle, side, thin = 1.55, 1.5, 0.34

    def matrix(
        x: float, width: float, height: float, name: str, color: str, line: object = "-"
    ) -> None:
        corner = (x - width / 2, middle - height / 2)
        look = {"facecolor": _TINTS[color], "edgecolor": color, "linewidth": 2, "linestyle": line}
        axes.add_patch(Rectangle(corner, width, height, **look))
        axes.text(x, middle, name, ha="center", va="center", fontsize=14, weight="bold")

    matrix(1.15, side, side, "W", GREY, line=(0, (4, 2)))  # frozen
    matrix(3.35, thin, side, "B", BLUE)
    matrix(4.65, side, thin, "A", BLUE)
    matrix(7.2, side, side, "W′", GREEN)
    for x, sign in ((2.25, "+"), (2.8, "α⁄r ×"), (3.72, "·")):
        axes.text(x, middle, sign, ha="center", va="center", fontsize=14)
    _arrow(axes, (5.6, middle), (6.35, middle), "merge")
    for x, title, text in (
        (1.15, "the frozen weights", "16 bits, or 4 bits (NF4)"),
        (4.0, "the adapter: two thin matrices", "trained; r columns and r rows"),
        (7.2, "the merged weights", "one matrix, 16 or 32 bits"),
    ):
        axes.text(x, 0.48, title, ha="center", va="center", fontsize=10, weight="bold")
        axes.text(x, 0.2, text, ha="center", va="center", fontsize=9.5)
    axes.text(2.9, 2.6, "before: two paths,  W·x + α⁄r · B·(A·x)", ha="center", fontsize=10)
    axes.text(7.2, 2.6, "after: one path,  W′·x", ha="center", fontsize=10)
    return figure
