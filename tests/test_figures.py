"""The figure of a group's advantages, the SVG drawings, and the alt text of both."""

import base64
import html
import io
import re
import statistics
from xml.etree import ElementTree

import matplotlib.pyplot as plt
import pytest
import torch
from matplotlib.colors import to_hex
from PIL import Image

from helpers import figures

plt.switch_backend("agg")
REWARDS = [1.3, 0.3, 0.0, 0.3, 1.3, 0.3, 0.0, 1.0]
LABELS = [f"completion {n}" for n in range(8)]
GROUP = figures.group_advantages(REWARDS, LABELS)


def test_a_group_shows_its_mean_and_the_advantages_of_trl():
    rewards = torch.tensor(REWARDS)
    # trl.GRPOTrainer, scale_rewards="group"
    expected = ((rewards - rewards.mean()) / (rewards.std() + 1e-4)).tolist()
    left, right = GROUP.axes
    assert [bar.get_width() for bar in left.patches] == REWARDS
    assert list(left.get_lines()[0].get_xdata()) == [statistics.fmean(REWARDS)] * 2
    assert [label.get_text() for label in left.get_yticklabels()] == LABELS
    assert [bar.get_width() for bar in right.patches] == pytest.approx(expected, abs=1e-6)
    arrows = [f"{'▲' if value > 0 else '▼'} {value:+.2f}" for value in expected]
    assert [text.get_text() for text in right.texts] == arrows
    colors = {(bar.get_width() > 0, to_hex(bar.get_facecolor())) for bar in right.patches}
    assert len(colors) == len({color for _, color in colors}) == 2, "a colour for each direction"
    _, agreed = figures.group_advantages([1.0] * 4, ["a", "b", "c", "d"]).axes
    assert [text.get_text() for text in agreed.texts] == ["0, nothing to learn"] * 4
    assert [bar.get_width() for bar in agreed.patches] == [0.0] * 4


def test_a_shown_figure_has_alt_text_and_the_width_it_was_drawn_at():
    alt = 'Rewards "rise"\n   & advantages < 1.'
    bundle = figures.view(GROUP, alt)._repr_mimebundle_()
    assert bundle["text/plain"] == 'Rewards "rise" & advantages < 1.'
    found = re.fullmatch(
        r'<img alt="([^"]+)" width="(\d+)" src="data:image/png;base64,([^"]+)">',
        bundle["text/html"],
    )
    assert html.unescape(found[1]) == bundle["text/plain"]
    picture = Image.open(io.BytesIO(base64.b64decode(found[3])))
    assert picture.width == pytest.approx(1.5 * int(found[2]), abs=2), (
        "sharper than the page by half"
    )
    assert int(found[2]) == pytest.approx(8.4 * 96, abs=40), "a point is a point on the page"


@pytest.mark.parametrize("path", sorted(figures.DRAWINGS.glob("*.svg")), ids=lambda path: path.stem)
def test_a_drawing_is_embedded_with_alt_text_and_links_to_nothing(path):
    bundle = figures.view(path, "A <drawing>.")._repr_mimebundle_()
    found = re.fullmatch(
        r'<img alt="A &lt;drawing&gt;." src="data:image/svg\+xml;base64,([^"]+)">',
        bundle["text/html"],
    )
    drawing = ElementTree.fromstring(base64.b64decode(found[1]))
    assert float(drawing.get("width")) <= 8.6 * 96 and bundle["text/plain"] == "A <drawing>."
    assert "href" not in path.read_text(encoding="utf-8") and path.stat().st_size < 5000
