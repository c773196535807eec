"""Trainings that followed one another as one history: how they are joined, marked in the figures,
and diagnosed.
"""

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from histories import HACKED, history

from helpers.metrics import plots
from helpers.metrics.diagnosis import diagnose
from helpers.metrics.history import joined, read_metrics

plt.switch_backend("agg")
FIRST, SECOND = history()[:30], history(kl=None)[:20]
STAGED = joined({"format": FIRST, "format + correctness": SECOND})
DRAWN = [
    plots.reward,
    plots.spread,
    plots.kl,
    plots.each_reward,
    plots.completion_length,
    plots.loss,
]
each_figure = pytest.mark.parametrize("draw", DRAWN, ids=lambda draw: draw.__name__)


def marks(axes) -> list[float]:
    """Where the dotted lines stand that reach from the bottom of a panel to its top."""
    return [
        line.get_xdata()[0]
        for line in axes.get_lines()
        if line.get_linestyle() == ":" and list(line.get_ydata()) == [0, 1]
    ]


def names(axes) -> list[tuple]:
    return [(text.xy[0], text.get_text()) for text in axes.texts if hasattr(text, "xy")]


# --- Joining --------------------------------------------------------------------------------------


def test_the_steps_go_on_and_each_row_says_its_stage():
    assert list(STAGED["step"]) == list(range(1, 51))
    assert list(STAGED["stage"]) == ["format"] * 30 + ["format + correctness"] * 20
    assert list(STAGED["reward"]) == [*FIRST["reward"], *SECOND["reward"]]
    assert STAGED["kl"][:30].notna().all() and STAGED["kl"][30:].isna().all()
    assert list(FIRST["step"]) == list(range(1, 31)) and "stage" not in FIRST
    sparse = pd.DataFrame({"step": [5, 10], "reward": [0.1, 0.2]})
    assert list(joined({"a": sparse, "b": sparse, "c": sparse})["step"]) == [5, 10, 15, 20, 25, 30]


# --- Drawing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("draw", DRAWN, ids=lambda draw: draw.__name__)
def test_every_figure_marks_where_the_stage_changes_and_moves_no_axis(draw):
    figure, plain = draw(STAGED), draw(STAGED.drop(columns="stage")).axes[0]
    # once, however many lines and axes a panel has
    assert [marks(axes) for axes in figure.axes if marks(axes)] == [[31]]
    first = figure.axes[0]
    assert names(first) == [(1, "format"), (31, "format + correctness")]
    assert first.get_xlim() == pytest.approx(plain.get_xlim())
    assert first.get_ylim() == pytest.approx(plain.get_ylim())
    for table in (history(), joined({"only": history()})):
        axes = draw(table).axes[0]
        assert marks(axes) == [] and names(axes) == []


def test_the_dashboard_marks_all_its_panels():
    assert sum(marks(axes) == [31] for axes in plots.dashboard(STAGED).axes) == 6


def test_runs_that_change_together_share_a_mark_and_others_have_their_own():
    other = joined({"format": FIRST[:10], "format + correctness": SECOND})
    axes = plots.overlay({"one": STAGED, "two": STAGED, "three": other, "four": history()}).axes[0]
    assert sorted(marks(axes)) == [11, 31] and len(names(axes)) == 3


def test_a_stage_that_comes_again_is_marked_again_also_when_read_from_the_file(tmp_path):
    again = pd.concat([STAGED, STAGED.assign(step=STAGED["step"] + 50)], ignore_index=True)
    again.to_csv(tmp_path / "metrics.csv", index=False)
    assert marks(plots.reward(read_metrics(tmp_path / "metrics.csv")).axes[0]) == [31, 51, 81]


# --- Diagnosing -----------------------------------------------------------------------------------


def test_the_diagnosis_reads_a_joined_history_as_any_other():
    hacked = joined({"a": history(**HACKED)[:40], "b": history(**HACKED)[40:]})
    for table in (STAGED, hacked):
        assert diagnose(table) == diagnose(table.drop(columns="stage"))
