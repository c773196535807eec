"""The style of all figures, those of notebooks' cells too, and `view`, which shows a figure or a
drawing with its alt text.

All text is 9 points or more at the size at which `view` shows it, and nothing is told by colour
alone.
"""

import base64
import html
import io
import statistics
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from helpers import PROJECT

DRAWINGS = PROJECT / "notebooks" / "images"  # SVG, drawn by hand
# Okabe and Ito's palette: told apart by colour-blind readers too.
BLUE, ORANGE, GREEN, RED, PURPLE, GREY = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#6B6B6B",
)
# Importing this module sets the style: titles on the left, no frame, a faint grid, the palette.
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


# --- On the page ----------------------------------------------------------------------------------


class view:
    """What to end a cell with, or to give to `display`, in place of a figure: an HTML image with
    its alt text, which JupyterLab reads nowhere else.

    figure: of Matplotlib's, or the path of a drawing in SVG. The image is in the HTML, so it is
    there in Colab, on a slide and in an edition in another folder too. alt: one to three sentences
    for a reader who cannot see it: the kind of figure, and what it shows.
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
        """Return the attributes of the image: the width on the page, and the picture itself."""
        from PIL import Image

        dots = 1.5  # per CSS pixel: sharp on a dense screen, and still small in a notebook
        drawn = io.BytesIO()
        # a layout has fitted all in; cutting draws it once more
        cut = None if self.figure.get_layout_engine() else "tight"
        self.figure.savefig(drawn, dpi=96 * dots, bbox_inches=cut, format="png")
        image = Image.open(drawn)
        # 128 colours are enough for a drawing and make the file a third of the size.
        small = io.BytesIO()
        colours = image.convert("RGB").quantize(128, dither=Image.Dither.NONE)
        colours.save(small, format="png", optimize=True)
        source = base64.b64encode(small.getvalue()).decode()
        return f'width="{round(image.width / dots)}" src="data:image/png;base64,{source}"'


# --- One group's advantages -----------------------------------------------------------------------


def group_advantages(rewards: list[float], labels: list[str]) -> Figure:
    """Draw one group: its rewards as bars with their mean, and beside each the advantage, with an
    arrow up or down.

    The advantage is GRPO's as TRL computes it: (reward - mean) / (standard deviation of the sample
    + 1e-4), so 0 in a dead group. rewards: one for each completion, weighted and summed.
    labels: what is written before each bar.
    """
    mean = statistics.fmean(rewards)
    spread = statistics.stdev(rewards)
    advantages = [(reward - mean) / (spread + 1e-4) for reward in rewards]
    # pyplot does not know the figure, or Jupyter would show it twice
    figure = Figure((8.4, 0.9 + 0.32 * len(rewards)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=[1, 1.2])

    # On the left the rewards, and their mean.
    places = range(len(rewards))
    left.barh(places, rewards, color=GREY, height=0.6)
    left.axvline(mean, color="black", linestyle="--", linewidth=1.5)
    left.set_yticks(places, labels, fontsize=9)
    left.invert_yaxis()
    left.set_title(f"Rewards; dashed: their mean, {mean:.2f}")

    # On the right the advantages. A colour and an arrow say which way the policy is pushed.
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
    right.set_xticks([])  # each bar says its number
    right.set_title("Advantages: ▲ more likely, ▼ less likely")
    for axes in (left, right):
        axes.grid(False)
        axes.tick_params(labelsize=9)
    return figure
