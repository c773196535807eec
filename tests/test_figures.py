"""Diagrams: what they say, in letters large enough, inside the picture, none over another; and the
alt text of figures.
"""

import base64
import html
import io
import itertools
import re
import statistics

import matplotlib.pyplot as plt
import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from PIL import Image

from helpers import figures

plt.switch_backend("agg")
REWARDS = [1.3, 0.3, 0.0, 0.3, 1.3, 0.3, 0.0, 1.0]
LABELS = [f"completion {n}" for n in range(8)]
DRAWN = {
    "grpo_loop": figures.grpo_loop(),
    "group_advantages": figures.group_advantages(REWARDS, LABELS),
    "merge": figures.merge(),
}


def texts(figure: Figure) -> list:
    """Everything written in a figure, with its box in pixels."""
    figure.draw_without_rendering()
    return [
        (text, text.get_window_extent())
        for text in figure.findobj(lambda artist: hasattr(artist, "get_fontsize"))
        if text.get_text().strip() and text.get_visible()
    ]


@pytest.mark.parametrize("name", DRAWN)
def test_every_word_is_large_enough_in_the_picture_and_over_no_other(name):
    figure = DRAWN[name]
    (width, height), written = figure.bbox.size, texts(figure)
    for text, box in written:
        assert text.get_fontsize() >= 9, text
        assert box.x0 >= -1 and box.y0 >= -1 and box.x1 <= width + 1 and box.y1 <= height + 1, text
    # the ticks of a group's two panels may share a place
    for (one, box), (other, another) in itertools.combinations(written, 2):
        assert name == "group_advantages" or not box.overlaps(another), f"{one} and {other}"
    assert figure.get_figwidth() <= 8.6, "wider, and a page would shrink its letters"
    assert plt.get_fignums() == []


def test_a_group_shows_its_mean_and_trls_advantages_with_an_arrow_each():
    rewards = torch.tensor(REWARDS)
    # trl.GRPOTrainer, scale_rewards="group"
    expected = ((rewards - rewards.mean()) / (rewards.std() + 1e-4)).tolist()
    left, right = DRAWN["group_advantages"].axes
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


def test_what_is_shown_carries_its_alt_text_and_is_as_wide_as_it_was_drawn():
    alt = 'Rewards "rise"\n   & advantages < 1.'
    bundle = figures.shown(DRAWN["merge"], alt)._repr_mimebundle_()
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
