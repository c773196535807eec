"""The style of all figures, and `view`, which shows a figure in a notebook with its alt text.

Importing this module sets Matplotlib's style, also for figures drawn in a notebook's cells. Text is
at least 9 points large at the size at which `view` shows it, and no information is in colour alone.
"""

import base64
import html
import io
import statistics
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers import PROJECT

DRAWINGS = PROJECT / "notebooks" / "images"  # SVG, drawn by hand

# Okabe and Ito's palette, which colour-blind readers can tell apart.
BLUE = "#0072B2"
ORANGE = "#E69F00"
GREEN = "#009E73"
RED = "#D55E00"
PURPLE = "#CC79A7"
GREY = "#6B6B6B"

# The style: titles on the left, no frame, a faint grid.
plt.rcParams.update(
    {
        "axes.prop_cycle": plt.cycler(color=[BLUE, ORANGE, GREEN, RED, PURPLE, GREY]),
        "axes.titlelocation": "left",
        "axes.titlesize": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.alpha": 0.25,
        "legend.frameon": False,
        "legend.handlelength": 2.8,
    }
)


class view:
    """A figure as an HTML image with alt text: end a cell with it, or pass it to `display`.

    figure: a Matplotlib figure, or the path of an SVG drawing. The image is embedded in the HTML,
    so it appears in Colab, on slides and in copies of the notebook in other folders.
    alt: one to three sentences for a reader who cannot see the figure: its kind, and what it shows.
    JupyterLab reads alt text only from HTML.
    """

    def __init__(self, figure: Figure | Path, alt: str):
        self.figure = figure
        self.alt = " ".join(alt.split())

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, str]:
        if isinstance(self.figure, Path):
            source = base64.b64encode(self.figure.read_bytes()).decode()
            image = f'src="data:image/svg+xml;base64,{source}"'
        else:
            image = self._as_png()
        alt = html.escape(self.alt)
        return {"text/html": f'<img alt="{alt}" {image}>', "text/plain": self.alt}

    def _as_png(self) -> str:
        """Return the width and the PNG itself as attributes of the HTML image."""
        from PIL import Image

        # draw at 1.5 dots per CSS pixel: sharp on a dense screen, and still a small file
        dots = 1.5
        drawn = io.BytesIO()
        # a figure with a layout engine already fits; cropping would draw it a second time
        cut = None if self.figure.get_layout_engine() else "tight"
        self.figure.savefig(drawn, dpi=96 * dots, bbox_inches=cut, format="png")
        image = Image.open(drawn)

        # reduce it to 128 colours, which are enough for a figure and make the file a third as large
        small = io.BytesIO()
        colours = image.convert("RGB").quantize(128, dither=Image.Dither.NONE)
        colours.save(small, format="png", optimize=True)
        source = base64.b64encode(small.getvalue()).decode()
        return f'width="{round(image.width / dots)}" src="data:image/png;base64,{source}"'


def group_advantages(rewards: list[float], labels: list[str]) -> Figure:
    """Draw the rewards of one group as bars, with their mean, and beside them the advantages.

    rewards: the weighted sum of rewards of each completion. labels: the text before each bar.

    The advantage is the one TRL computes: (reward - mean) / (sample standard deviation + 1e-4). It
    is 0 for every completion of a dead group.
    """
    mean = statistics.fmean(rewards)
    spread = statistics.stdev(rewards)
    advantages = [(reward - mean) / (spread + 1e-4) for reward in rewards]

    # without pyplot, because Jupyter would show the figure a second time
    figure = Figure((8.4, 0.9 + 0.32 * len(rewards)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=[1, 1.2])

    # left: the rewards and their mean
    places = range(len(rewards))
    left.barh(places, rewards, color=GREY, height=0.6)
    left.axvline(mean, color="black", linestyle="--", linewidth=1.5)
    left.set_yticks(places, labels, fontsize=9)
    left.invert_yaxis()
    left.set_title(f"Rewards; dashed: their mean, {mean:.2f}")

    # right: the advantages; colour and arrow show which way the policy is pushed
    texts = []
    for value in advantages:
        arrow = "▲" if value > 0 else "▼"
        texts.append("0, nothing to learn" if abs(value) < 0.005 else f"{arrow} {value:+.2f}")
    colors = [BLUE if value > 0 else ORANGE for value in advantages]
    bars = right.barh(places, advantages, height=0.6, color=colors)
    right.bar_label(bars, texts, padding=4, fontsize=9)
    right.axvline(0, color="black", linewidth=1)
    reach = max(1.0, *map(abs, advantages))
    right.set_xlim(-1.6 * reach, 1.6 * reach)
    right.set_xticks([])  # the number is written at each bar
    right.set_title("Advantages: ▲ more likely, ▼ less likely")
    for axes in (left, right):
        axes.grid(False)
        axes.tick_params(labelsize=9)
    return figure


PAGE = 8.6  # inches; a page would shrink a wider figure, and its text


def figure_with_panels(rows: int, columns: int, size: tuple[float, float], **options):
    """Return a figure and its panels, made without pyplot, so that Jupyter shows it only once."""
    figure = Figure(size, layout="constrained")
    return figure, figure.subplots(rows, columns, **options)


def panel(
    title: str,
    ylabel: str,
    axes: Axes | None = None,
    xlabel: str = "step",
    history=None,
) -> Axes:
    """Return a panel to draw in, with its title and labels.

    history: a table with a row per step.

    If the history has stages (`history.join_stages`), each is marked with its name, and separated
    from the one before by a dotted line.
    """
    if axes is None:
        _, axes = figure_with_panels(1, 1, (7.0, 3.6))
    axes.set(title=title, xlabel=xlabel, ylabel=ylabel)
    if xlabel == "step":
        axes.xaxis.get_major_locator().set_params(integer=True)  # ty: ignore[unknown-argument]
    if history is not None and "stage" in history:
        begins = history[history["stage"] != history["stage"].shift()]
        for step, name in zip(begins["step"], begins["stage"], strict=True):
            if step > begins["step"].iloc[0]:
                axes.axvline(step, color=GREY, linewidth=0.8, linestyle=":")
            place = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
            axes.annotate(name, (step, 1.0), (3, -2), **place, va="top", fontsize=9, color=GREY)
    return axes
