"""The figures show the data they are given, also if a history is incomplete."""

import numpy as np
import pandas as pd
import pytest
from finished import proportion
from matplotlib.colors import to_hex

from helpers.figures import group_advantages
from helpers.laboratory import plots as of_laboratory
from helpers.metrics import plots
from helpers.metrics.history import join_stages, smooth
from helpers.results import plots as of_results

CURVES = [
    plots.reward,
    plots.spread,
    plots.kl,
    plots.each_reward,
    plots.completion_length,
    plots.tools,
    plots.loss,
    plots.dashboard,
]
each_figure = pytest.mark.parametrize("draw", CURVES, ids=lambda draw: draw.__name__)
REQUIRED = ["step", "loss", "reward", "reward_std"]
DEAD, LENGTH, CUT = (
    "frac_reward_zero_std",
    "completions/mean_length",
    "completions/clipped_ratio",
)
FORM, RIGHT = "rewards/format/mean", "rewards/correctness_reward/mean"
CALLS, FAILED, FINISHED = TOOLS = [
    "tools/call_frequency",
    "tools/failure_frequency",
    "rewards/finished/mean",
]
COLUMNS = [DEAD, "kl", LENGTH, CUT, FORM, RIGHT]


def history(rows: int = 40, columns: list[str] = COLUMNS) -> pd.DataFrame:
    numbers = np.random.default_rng(0)
    values = {name: numbers.random(rows) for name in [*REQUIRED[1:], *columns]}
    return pd.DataFrame({"step": np.arange(1, rows + 1) * 5} | values)


def of_tools(rows: int = 40) -> pd.DataFrame:
    return history(rows, COLUMNS + TOOLS)


WITH_GAPS = of_tools()
WITH_GAPS.iloc[::3, 1:] = np.nan


# --- Incomplete histories -------------------------------------------------------------------------


HISTORIES = {
    "full": history(),
    "one row": history(1),
    "required columns": history()[REQUIRED],
    "gaps": WITH_GAPS,
    "kl all nan": history().assign(kl=np.nan),
    "reward_std all nan": history().assign(reward_std=np.nan),
    "tools": of_tools(),
    "tools, one row": of_tools(1),
    "tools, no finished": of_tools().drop(columns=FINISHED),
    "tools, none called": of_tools().assign(**dict.fromkeys(TOOLS, 0.0)),
    "tools all nan": of_tools().assign(**dict.fromkeys(TOOLS, np.nan)),
    "one row of nan": history(1).assign(**dict.fromkeys([*REQUIRED[1:], *COLUMNS], np.nan)),
}


@each_figure
@pytest.mark.filterwarnings("error")  # a notebook would show warnings to the reader
@pytest.mark.parametrize("table", HISTORIES.values(), ids=HISTORIES)
def test_each_figure_is_drawn_from_an_incomplete_history(draw, table):
    before = table.copy()
    figure = draw(table)
    figure.draw_without_rendering()
    assert figure.axes[0].get_title(loc="left")
    pd.testing.assert_frame_equal(table, before)


@pytest.mark.parametrize("lacking", ["required columns", "kl all nan"])
def test_a_note_says_why_there_is_no_kl(lacking):
    (axes,) = plots.kl(HISTORIES[lacking]).axes
    assert list(axes.get_lines()) == [] and "beta" in axes.texts[0].get_text()


# --- The lines ------------------------------------------------------------------------------------

ONE, TWO = of_tools(), history(50).drop(columns=["kl", RIGHT])
OVERLAY, GALLERY = (draw({"one": ONE, "two": TWO}) for draw in (plots.overlay, plots.gallery))
DASHBOARD = plots.dashboard(ONE)
CAREFUL = pd.Series([0.2, 0.9], index=[5, 150])
REASONING = plots.reasoning(ONE, CAREFUL)
# A figure, the number of a panel, and the columns drawn in that panel, with their running means.
LINES = {
    "reward": (plots.reward(ONE), 0, [ONE["reward"]]),
    "reward, with gaps": (plots.reward(WITH_GAPS), 0, [WITH_GAPS["reward"]]),
    "spread": (plots.spread(ONE), 0, [ONE[DEAD]]),
    "kl": (plots.kl(ONE), 0, [ONE["kl"]]),
    "each reward": (plots.each_reward(ONE), 0, [ONE[FORM], ONE[RIGHT], ONE[FINISHED]]),
    "length": (plots.completion_length(ONE), 0, [ONE[LENGTH]]),
    "cut off": (plots.completion_length(ONE), 1, [ONE[CUT]]),
    "calls": (plots.tools(ONE), 0, [ONE[CALLS]]),
    "failures, unfinished": (plots.tools(ONE), 1, [ONE[FAILED], 1 - ONE[FINISHED]]),
    "loss": (plots.loss(ONE), 0, [ONE["loss"]]),
    "dashboard": (DASHBOARD, 0, [ONE["reward"]]),
    "overlay, reward": (OVERLAY, 0, [ONE["reward"], TWO["reward"]]),
    "overlay, KL": (OVERLAY, 1, [ONE["kl"]]),
    "overlay, length": (OVERLAY, 2, [ONE[LENGTH], TWO[LENGTH]]),
    "overlay, dead groups": (OVERLAY, 3, [ONE[DEAD], TWO[DEAD]]),
    "gallery, reward": (GALLERY, 0, [ONE["reward"], ONE[RIGHT]]),
    "gallery, shares": (GALLERY, 1, [ONE[DEAD], ONE[CUT]]),
    "gallery, KL": (GALLERY, 2, [ONE["kl"]]),
    "gallery, length": (GALLERY, 3, [ONE[LENGTH]]),
    "gallery, second row": (GALLERY, 4, [TWO["reward"]]),
    "reasoning, right": (REASONING, 0, [ONE[RIGHT]]),
    "reasoning, length": (REASONING, 1, [ONE[LENGTH]]),
}


@pytest.mark.parametrize(("figure", "panel", "columns"), LINES.values(), ids=LINES)
def test_the_lines_are_the_data_and_its_running_mean(figure, panel, columns):
    axes = figure.axes[panel]
    low, high = axes.get_ylim()
    for place, column in enumerate(columns):
        raw, mean = axes.get_lines()[2 * place : 2 * place + 2]
        # the KL has a running median
        middle = smooth(column, median=column.name == "kl")
        for line, expected in ((raw, column), (mean, middle)):
            np.testing.assert_array_equal(line.get_xdata(), 5 * (column.index + 1))
            np.testing.assert_array_equal(line.get_ydata(), expected)
        assert low <= column.min() and column.max() <= high, "inside the axes"
        assert raw.get_color() == mean.get_color() and raw.get_alpha() < 1


@pytest.mark.parametrize(
    ("figure", "labels"),
    [
        (plots.each_reward(history()), ["format", "correctness_reward"]),
        (plots.completion_length(ONE), ["mean length (left)", "share cut off (right)"]),
        (
            plots.tools(ONE),
            ["calls per episode (left)", "calls that fail (right)", "unfinished episodes (right)"],
        ),
        (OVERLAY, ["one", "two"]),
    ],
)
def test_one_legend_names_every_line_with_its_colour_and_stroke(figure, labels):
    inside = [axes.get_legend() for axes in figure.axes if axes.get_legend()]
    (legend,) = inside + figure.legends
    assert [text.get_text() for text in legend.get_texts()] == labels
    lines = [line for axes in figure.axes for line in axes.get_lines()]
    drawn = {line.get_label(): (line.get_color(), line.get_linestyle()) for line in lines}
    shown = [(handle.get_color(), handle.get_linestyle()) for handle in legend.legend_handles]
    assert shown == [drawn[label] for label in labels]
    assert [len(set(looks)) for looks in zip(*shown, strict=True)] == [len(labels)] * 2


def test_the_dashboard_of_an_agent_has_a_seventh_curve():
    titles = [axes.get_title(loc="left") for axes in plots.dashboard(history()).axes]
    assert len(list(filter(None, titles))) == 6 and "Tools" not in titles
    assert "Tools" in [axes.get_title(loc="left") for axes in DASHBOARD.axes]


STAGED = join_stages(
    {"format": of_tools(30), "format + correctness": of_tools(20)}
)  # steps 5 to 250


def test_a_figure_marks_where_the_stage_changes():
    (axes,) = plots.reward(STAGED).axes
    marks = [line.get_xdata()[0] for line in axes.get_lines() if list(line.get_ydata()) == [0, 1]]
    names = [(text.xy[0], text.get_text()) for text in axes.texts]
    assert marks == [155] and names == [(5, "format"), (155, "format + correctness")]


# --- Evaluations ----------------------------------------------------------------------------------


EVALUATION = {
    "baseline": proportion(32, 100) | {"greedy": proportion(0, 100)},
    "trained": proportion(91, 100) | {"greedy": proportion(100, 100)},
    "merged_16bit": proportion(90, 100) | {"greedy": proportion(97, 100)},
}


def test_accuracy_draws_each_measurement_with_its_interval():
    axes = of_results.accuracy(EVALUATION).axes[0]
    bars = {one.get_label(): one for one in axes.containers if hasattr(one, "patches")}
    assert list(bars) == ["sampled", "greedy"]
    greedy = [entry["greedy"] for entry in EVALUATION.values()]
    for drawn, entries in zip(bars.values(), (EVALUATION.values(), greedy), strict=True):
        heights = [bar.get_height() for bar in drawn.patches]
        whiskers = [ends[:, 1] for ends in drawn.errorbar.lines[2][0].get_segments()]
        np.testing.assert_allclose(heights, [entry["accuracy"] for entry in entries])
        np.testing.assert_allclose(whiskers, [entry["ci95"] for entry in entries], atol=1e-12)
    names = [tick.get_text() for tick in axes.get_xticklabels()]
    assert names == ["baseline", "trained", "merged 16bit"]
    assert [text.get_text() for text in axes.texts] == ["32%", "91%", "90%", "0%", "100%", "97%"]


def sampled(*values: float) -> dict:
    curve = {str(2**i): {"value": v, "ci95": [v - 0.1, v + 0.1]} for i, v in enumerate(values)}
    return {"pass_at_k": curve, "majority": {"accuracy": values[0] + 0.05}}


SAMPLED = of_results.pass_at_k(
    {"baseline": sampled(0.3, 0.5, 0.9), "trained": sampled(0.8, 0.85, 0.9)}
)


def test_pass_at_k_draws_both_curves_the_vote_and_the_trained_pass_at_1():
    lines = SAMPLED.axes[0].get_lines()
    drawn = {line.get_label(): [*map(list, line.get_data())] for line in lines}
    assert drawn["base model, pass@k"] == [[1, 2, 4], [0.3, 0.5, 0.9]]
    assert drawn["trained, pass@k"] == [[1, 2, 4], [0.8, 0.85, 0.9]]
    assert drawn["base model, majority vote"][1] == [0.35]
    assert drawn["trained, pass@1"][1] == [0.8, 0.8]


# The laboratory's signal of two rewards, measured on three groups of four.
SIGNAL = {
    "rewards": {
        "right_reward": {"advantage_share": 0.9, "rank_correlation": {"shape_reward": -0.25}},
        "shape_reward": {"advantage_share": 0.1, "rank_correlation": {"right_reward": -0.25}},
    },
    "judges": ["right_reward"],
    "group_size": 4,
    "pass_rate": [0.0, 0.25, 0.25],
    "groups": 3,
    "total": {"mean": 0.5, "zero_spread": 1 / 3},
}


def test_the_signal_shows_shares_pass_rates_and_correlations():
    shares, passes, ranks = of_laboratory.reward_signal(SIGNAL).axes
    assert [bar.get_width() for bar in shares.patches] == [0.9, 0.1]
    colors = [to_hex(bar.get_facecolor()).upper() for bar in shares.patches]
    assert colors == [plots.BLUE, to_hex("lightgrey").upper()]
    assert [bar.get_height() for bar in passes.patches] == [1, 2, 0, 0, 0]
    assert "33%" in passes.get_title(loc="left")
    assert [text.get_text() for text in ranks.texts] == ["1.00", "-0.25", "-0.25", "1.00"]


# --- Legibility -----------------------------------------------------------------------------------


CHANGE = np.array([[0.1, -0.2], [0.3, 0.0]])
SHOWN = {draw.__name__: draw(ONE) for draw in CURVES} | {
    "accuracy": of_results.accuracy(EVALUATION),
    "pass_at_k": SAMPLED,
    "stored_changes": of_results.stored_changes(CHANGE, {"4 bits": CHANGE * 0, "32 bits": CHANGE}),
    "overlay": OVERLAY,
    "gallery": GALLERY,
    "reasoning": REASONING,
    "reward_signal": of_laboratory.reward_signal(SIGNAL),
    "group_advantages": group_advantages([1.3, 0.3, 0.0], ["a", "b", "c"]),
}


@pytest.mark.parametrize("figure", SHOWN.values(), ids=SHOWN)
def test_text_is_at_least_nine_points(figure):
    assert figure.get_figwidth() <= 8.6, "a page would shrink it"
    figure.draw_without_rendering()
    sizes = {
        text.get_text(): text.get_fontsize()
        for text in figure.findobj(lambda artist: hasattr(artist, "get_fontsize"))
        if text.get_text().strip()
    }
    assert len(sizes) >= 3 and {name: size for name, size in sizes.items() if size < 9} == {}
