"""Figures: whatever a history lacks, each is drawn from the data it was given."""

import warnings

import numpy as np
import pandas as pd
import pytest
from finished import proportion
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from helpers.metrics import plots
from helpers.metrics.history import joined, smoothed

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
COLUMNS = [
    *["frac_reward_zero_std", "kl", "completions/mean_length", "completions/clipped_ratio"],
    *["rewards/format/mean", "rewards/correctness/mean"],
]
TOOLS = ["tools/call_frequency", "tools/failure_frequency", "rewards/finished/mean"]


def history(rows: int = 40, columns: list[str] = COLUMNS) -> pd.DataFrame:
    numbers = np.random.default_rng(0)
    values = {name: numbers.random(rows) for name in [*REQUIRED[1:], *columns]}
    return pd.DataFrame({"step": np.arange(1, rows + 1) * 5} | values)


def of_tools(rows: int = 40) -> pd.DataFrame:
    return history(rows, COLUMNS + TOOLS)


WITH_GAPS = of_tools()
WITH_GAPS.iloc[::3, 1:] = np.nan


HISTORIES = {
    "full": history(),
    "one row": history(1),
    "no kl": history().drop(columns="kl"),
    "no frac_reward_zero_std": history().drop(columns="frac_reward_zero_std"),
    "no lengths": history().drop(columns=["completions/mean_length", "completions/clipped_ratio"]),
    "required columns": history()[REQUIRED],
    "gaps": WITH_GAPS,
    "kl all nan": history().assign(kl=np.nan),
    "reward_std all nan": history().assign(reward_std=np.nan),
    "tools": of_tools(),
    "tools, one row": of_tools(1),
    "tools, no finished": of_tools().drop(columns=TOOLS[2]),
    "tools, no failures": of_tools().drop(columns=TOOLS[1]),
    "tools, none called": of_tools().assign(**dict.fromkeys(TOOLS, 0.0)),
    "tools all nan": of_tools().assign(**dict.fromkeys(TOOLS, np.nan)),
    "one row of nan": history(1).assign(**dict.fromkeys([*REQUIRED[1:], *COLUMNS], np.nan)),
}


@each_figure
@pytest.mark.parametrize("table", HISTORIES.values(), ids=HISTORIES)
def test_each_figure_is_drawn_whatever_the_history_lacks(draw, table):
    before = table.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a notebook would show it to the reader
        figure = draw(table)
        figure.draw_without_rendering()
    assert isinstance(figure, Figure) and figure.axes[0].get_title(loc="left")
    pd.testing.assert_frame_equal(table, before)


@pytest.mark.parametrize(
    ("draw", "axis", "columns"),
    [
        (plots.reward, 0, ["reward"]),
        (plots.spread, 0, ["frac_reward_zero_std"]),
        (plots.kl, 0, ["kl"]),
        (plots.each_reward, 0, ["rewards/format/mean", "rewards/correctness/mean"]),
        (plots.completion_length, 0, ["completions/mean_length"]),
        (plots.completion_length, 1, ["completions/clipped_ratio"]),
        (plots.tools, 0, TOOLS[:1]),
        (plots.tools, 1, [TOOLS[1], "unfinished"]),
        (plots.loss, 0, ["loss"]),
    ],
)
@pytest.mark.parametrize("table", [of_tools(), WITH_GAPS], ids=["full", "gaps"])
def test_the_lines_are_the_data_and_its_running_mean(draw, axis, columns, table):
    table = table.assign(unfinished=1 - table["rewards/finished/mean"])
    columns = [*columns, "rewards/finished/mean"] if draw is plots.each_reward else columns
    lines = [
        line for line in draw(table).axes[axis].get_lines() if len(line.get_xdata()) == len(table)
    ]
    assert len(lines) == 2 * len(columns)
    for (raw, mean), column in zip(zip(lines[::2], lines[1::2], strict=True), columns, strict=True):
        middle = smoothed(table[column], median=draw is plots.kl)
        for line, expected in ((raw, table[column]), (mean, middle)):
            np.testing.assert_array_equal(line.get_xdata(), table["step"])
            np.testing.assert_array_equal(line.get_ydata(), expected)
        assert raw.get_color() == mean.get_color() and raw.get_alpha() < 1


@each_figure
def test_every_value_is_inside_the_axes(draw):
    for axes in draw(of_tools()).axes:
        low, high = axes.get_ylim()
        for line in axes.get_lines():
            assert low <= min(line.get_ydata()) and max(line.get_ydata()) <= high


def test_the_band_is_one_reward_std_to_each_side():
    table = history()
    (band,) = plots.reward(table).axes[0].collections
    mean, std = smoothed(table["reward"]), smoothed(table["reward_std"])
    corners = {(x, round(y, 9)) for x, y in band.get_paths()[0].vertices}
    for side in (mean - std, mean + std):
        assert {(x, round(y, 9)) for x, y in zip(table["step"], side, strict=True)} <= corners


@pytest.mark.parametrize(
    ("draw", "labels"),
    [
        (plots.each_reward, ["format", "correctness"]),
        (plots.completion_length, ["mean length (left)", "share cut off (right)"]),
        (
            plots.tools,
            ["calls per episode (left)", "calls that fail (right)", "unfinished episodes (right)"],
        ),
    ],
)
def test_one_legend_names_every_line_and_its_colour(draw, labels):
    figure = draw(history() if draw is plots.each_reward else of_tools())
    (legend,) = [axes.get_legend() for axes in figure.axes if axes.get_legend()]
    assert [text.get_text() for text in legend.get_texts()] == labels
    drawn = {
        line.get_label(): line.get_color() for axes in figure.axes for line in axes.get_lines()
    }
    looks = {handle.get_linestyle(): handle.get_color() for handle in legend.legend_handles}
    assert list(looks.values()) == [drawn[label] for label in labels], "in strokes of their own"
    assert len(set(looks.values())) == len(labels)


@pytest.mark.parametrize("absent", ["no kl", "kl all nan"])
def test_a_note_says_why_there_is_no_kl(absent):
    (axes,) = plots.kl(HISTORIES[absent]).axes
    assert list(axes.get_lines()) == [] and "no KL: beta is 0" in axes.texts[0].get_text()


@pytest.mark.parametrize(
    ("absent", "label"),
    [
        ("tools, no finished", "calls that fail (right)"),
        ("tools, no failures", "unfinished episodes (right)"),
    ],
)
def test_of_an_agents_curves_those_are_drawn_that_were_logged(absent, label):
    _, right = plots.tools(HISTORIES[absent]).axes
    assert [line.get_label() for line in right.get_lines()[1::2]] == [label]


# --- Stages that followed one another -------------------------------------------------------------

STAGED = joined({"format": of_tools(30), "format + correctness": of_tools(20)})  # steps 5 to 250


def marks(axes) -> list[float]:
    """Where the dotted lines stand that reach from the bottom of a panel to its top."""
    return [
        line.get_xdata()[0]
        for line in axes.get_lines()
        if line.get_linestyle() == ":" and list(line.get_ydata()) == [0, 1]
    ]


@each_figure
def test_every_figure_marks_where_the_stage_changes_and_moves_no_axis(draw):
    figure, plain = draw(STAGED), draw(STAGED.drop(columns="stage"))
    # once, however many lines and axes a panel has
    found = [marks(axes) for axes in figure.axes if marks(axes)]
    assert found == [[155]] * (7 if draw is plots.dashboard else 1)
    names = [(text.xy[0], text.get_text()) for text in figure.axes[0].texts]
    assert names == [(5, "format"), (155, "format + correctness")]
    for axes, without in zip(figure.axes, plain.axes, strict=True):
        assert axes.get_xlim() == pytest.approx(without.get_xlim())
        assert axes.get_ylim() == pytest.approx(without.get_ylim())
        assert marks(without) == []


# --- Accuracy -------------------------------------------------------------------------------------


EVALUATION = {
    "baseline": proportion(32, 100) | {"greedy": proportion(0, 100)},
    "trained": proportion(91, 100) | {"greedy": proportion(100, 100)},
    "merged_16bit": proportion(90, 100) | {"greedy": proportion(97, 100)},
}


def test_accuracy_draws_each_point_that_was_measured_with_its_interval():
    axes = plots.accuracy(EVALUATION).axes[0]
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
    half = {"baseline": proportion(32, 100), "trained": EVALUATION["trained"]}
    (bar,) = plots.accuracy(half).axes[0].containers[-1].patches
    assert bar.get_height() == 1.0 and bar.get_x() == pytest.approx(1.0)
    assert len(plots.accuracy({}).axes[0].patches) == 0


def sampled(*values: float) -> dict:
    curve = {str(2**i): {"value": v, "ci95": [v - 0.1, v + 0.1]} for i, v in enumerate(values)}
    return {"pass_at_k": curve, "majority": {"accuracy": values[0] + 0.05}}


SAMPLED = {"baseline": sampled(0.3, 0.5, 0.9), "trained": sampled(0.8, 0.85, 0.9)}


def test_pass_at_k_draws_both_curves_their_votes_and_a_line_at_the_trained_pass_at_1():
    axes = plots.pass_at_k(SAMPLED).axes[0]
    drawn = {line.get_label(): (*line.get_data(),) for line in axes.get_lines()}
    ks = [1, 2, 4]
    assert [list(ends) for ends in drawn["untrained, pass@k"]] == [ks, [0.3, 0.5, 0.9]]
    assert [list(ends) for ends in drawn["trained, pass@k"]] == [ks, [0.8, 0.85, 0.9]]
    assert drawn["untrained, majority vote"][1] == [0.35]
    assert list(drawn["trained, pass@1"][1]) == [0.8, 0.8]


def test_stored_changes_have_a_panel_for_each_format_on_one_scale():
    change = np.array([[0.1, -0.2], [0.3, 0.0]])
    left, right = plots.stored_changes(change, {"4 bits": change * 0, "32 bits": change}).axes
    assert left.get_ylim() == right.get_ylim()
    np.testing.assert_allclose(left.collections[0].get_offsets()[:, 1], 0)
    np.testing.assert_allclose(right.collections[0].get_offsets()[:, 1], change.flatten())


# --- The signal of the rewards --------------------------------------------------------------------


def signal(**more) -> dict:
    """What the laboratory finds about two rewards on three groups of four."""
    return {
        "rewards": {
            "right_reward": {"advantage_share": 0.9, "rank_correlation": {"shape_reward": -0.25}},
            "shape_reward": {"advantage_share": 0.1, "rank_correlation": {"right_reward": -0.25}},
        },
        "judges": ["right_reward"],
        "group_size": 4,
        "pass_rate": [0.0, 0.25, 0.25],
        "groups": 3,
        "total": {"mean": 0.5, "zero_spread": 1 / 3},
    } | more


def test_the_signal_shows_shares_pass_rates_and_correlations():
    shares, passes, ranks = plots.reward_signal(signal()).axes
    assert [bar.get_width() for bar in shares.patches] == [0.9, 0.1]
    colors = [to_hex(bar.get_facecolor()).upper() for bar in shares.patches]
    assert colors == [plots.BLUE, to_hex("lightgrey").upper()]
    assert [bar.get_height() for bar in passes.patches] == [1, 2, 0, 0, 0]
    assert "33% of groups are dead" in passes.get_title(loc="left")
    assert [text.get_text() for text in ranks.texts] == ["1.00", "-0.25", "-0.25", "1.00"]


def test_a_signal_with_nothing_in_it_is_drawn_without_a_warning():
    rewards = {
        "flat_reward": {"advantage_share": 0.0, "rank_correlation": {"other_reward": None}},
        "other_reward": {"advantage_share": -0.2, "rank_correlation": {"flat_reward": None}},
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = plots.reward_signal(signal(rewards=rewards, judges=[], pass_rate=[None, 0.0]))
        figure.draw_without_rendering()
    assert [text.get_text() for text in figure.axes[2].texts] == ["1.00", "–", "–", "1.00"]


# --- Several curves in one figure -----------------------------------------------------------------


def panels(figure: Figure) -> dict:
    return {axes.get_title(loc="left"): axes for axes in figure.axes if axes.get_title(loc="left")}


def test_the_dashboard_has_six_curves_and_of_an_agent_a_seventh_below_across_the_page():
    assert "Tools" not in panels(plots.dashboard(history())) and len(CURVES) == 8
    figure = plots.dashboard(of_tools())
    figure.draw_without_rendering()
    shown = panels(figure)
    assert list(shown)[-1] == "Tools" and len(shown) == 7
    for title, column in {"Reward": "reward", "KL": "kl", "Tools": TOOLS[0]}.items():
        assert raw(shown[title])[0] == list(of_tools()[column])
    assert shown["Tools"].get_position().width > 1.8 * shown["Loss"].get_position().width


def raw(axes) -> list[list[float]]:
    """The values that a panel draws, a list for each line and without the running means."""
    return [list(line.get_ydata()) for line in axes.get_lines()[::2]]


def test_runs_are_drawn_over_one_another_under_their_names():
    tables = {"one": history(30), "two": history(50), "without kl": history(20).drop(columns="kl")}
    axes = plots.overlay(tables).axes
    assert [text.get_text() for text in axes[0].get_legend().get_texts()] == list(tables)
    for panel, column in zip(
        axes, ["reward", "kl", "completions/mean_length", "frac_reward_zero_std"], strict=True
    ):
        drawn = [list(table[column]) for table in tables.values() if column in table]
        assert raw(panel) == drawn
        looks = {(line.get_linestyle(), line.get_color()) for line in panel.get_lines()[1::2]}
        assert [len(set(look)) for look in zip(*looks, strict=True)] == [len(drawn)] * 2


CAREFUL = pd.Series([0.2, 0.9], index=[5, 150])
JUDGED = history(30).rename(columns={"rewards/correctness/mean": "rewards/correctness_reward/mean"})


def test_the_gallery_has_a_row_for_each_training_and_names_what_it_shows():
    tables = {"A": JUDGED, "B": history(20)}
    grid = np.array(plots.gallery(tables).axes).reshape(2, 4)
    assert [axes.get_ylabel() for axes in grid[:, 0]] == ["A", "B"]
    titles = [axes.get_title(loc="left") for axes in grid[0]]
    assert titles == ["reward", "shares", "KL, nats per token", "length, tokens"]
    columns = ["reward", "frac_reward_zero_std", "kl", "completions/mean_length"]
    for row, table in zip(grid, tables.values(), strict=True):
        assert [raw(axes)[0] for axes in row] == [list(table[column]) for column in columns]
    assert [len(axes.get_lines()) for axes in grid[:, 0]] == [4, 2], "B has no correctness_reward"


def test_reasoning_shows_right_answers_careful_workings_and_their_length():
    left, right = plots.reasoning(JUDGED, CAREFUL).axes
    assert raw(left) == [list(JUDGED["rewards/correctness_reward/mean"]), [0.2, 0.9]]
    assert list(left.get_lines()[2].get_xdata()) == [5, 150]
    assert raw(right) == [list(JUDGED["completions/mean_length"])]


# --- For every reader -----------------------------------------------------------------------------


SHOWN = {draw.__name__: draw(of_tools()) for draw in CURVES} | {
    "accuracy": plots.accuracy(EVALUATION),
    "pass_at_k": plots.pass_at_k(SAMPLED),
    "stored_changes": plots.stored_changes(np.eye(2), {"4 bits": np.eye(2), "32 bits": np.eye(2)}),
    "overlay": plots.overlay({"one": history(), "two": history()}),
    "gallery": plots.gallery({"A": history(), "B": history()}),
    "reasoning": plots.reasoning(JUDGED, CAREFUL),
    "reward_signal": plots.reward_signal(signal()),
}


@pytest.mark.parametrize("figure", SHOWN.values(), ids=SHOWN)
def test_no_letter_is_smaller_than_nine_points_on_the_page(figure):
    assert figure.get_figwidth() <= 8.6, "a page would shrink it"
    figure.draw_without_rendering()
    sizes = {
        text.get_text(): text.get_fontsize()
        for text in figure.findobj(lambda artist: hasattr(artist, "get_fontsize"))
        if text.get_text().strip()
    }
    assert len(sizes) >= 3 and {name: size for name, size in sizes.items() if size < 9} == {}
