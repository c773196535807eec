"""The training history: reading, renaming, smoothing and summarising it."""

import json

import numpy as np
import pandas as pd
import pytest

from helpers.metrics.history import (
    first_and_last,
    in_trl_names,
    read_metrics,
    reward_names,
    smooth,
)
from helpers.metrics.logs import read_log
from helpers.metrics.signals import Signals

# --- Reading --------------------------------------------------------------------------------------


def test_steps_are_sorted_as_numbers_and_an_empty_field_is_nan(tmp_path):
    file = tmp_path / "metrics.csv"
    file.write_bytes(b"step,reward,reward_std,loss,kl\n10,3,,0,\n9,2,0.1,0,0.01\n100,4,0,0,1\n")
    history = read_metrics(file)
    assert list(history["step"]) == [9, 10, 100] and list(history["reward"]) == [2, 3, 4]
    assert list(history.index) == [0, 1, 2] and history.loc[0, "kl"] == 0.01
    assert np.isnan(history.loc[1, "kl"]) and np.isnan(history.loc[1, "reward_std"])


def test_the_step_of_ms_swift_is_read_from_its_fraction():
    logged = {"global_step/max_steps": ["5/60", "10/60", None], "reward": [0.5, 0.6, np.nan]}
    history = in_trl_names(pd.DataFrame(logged))
    assert list(history["step"][:2]) == [5, 10] and np.isnan(history["step"][2])
    assert len(Signals(history).rows) == 2, "the summary row is not a step"


def test_a_column_with_other_texts_than_numbers_stays_text(tmp_path):
    """Names of phases or runs, some of which are digits, are no gaps between numbers."""
    lines = [
        "step;phase;reward;clipped;kl",
        "1;warm;0,25;25 %;-",
        "2;2;n/a;50%;0,5",
        "3;7b;0,75; None ;1e-3",
    ]
    (tmp_path / "log.csv").write_text("\n".join(lines), encoding="utf-8")
    history = read_log(tmp_path / "log.csv")
    assert history["phase"].tolist() == ["warm", "2", "7b"]
    assert history["reward"].tolist()[::2] == [0.25, 0.75] and np.isnan(history["reward"][1])
    assert history["clipped"].tolist()[:2] == [0.25, 0.5] and np.isnan(history["clipped"][2])
    assert history["kl"].tolist()[1:] == [0.5, 0.001] and np.isnan(history["kl"][0])


def test_texts_beside_numbers_in_json_stay_as_they_are(tmp_path):
    rows = [{"step": 1, "reward": "0.5", "note": 3}, {"step": 2, "reward": None, "note": "slow, 4"}]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    history = read_log(tmp_path / "log.jsonl")
    assert history["note"].tolist() == [3, "slow, 4"]
    assert history["reward"][0] == 0.5 and np.isnan(history["reward"][1])


# --- Summaries ------------------------------------------------------------------------------------


def test_reward_names_are_unique_and_in_logged_order():
    columns = ["rewards/zeta/mean", "rewards/zeta/std", "reward", "rewards/alpha/mean", "kl"]
    columns += ["rewards/a/b/mean", "rewards/a/c/mean"]
    assert reward_names(pd.DataFrame(columns=columns)) == ["zeta", "alpha", "a/b", "a/c"]


@pytest.mark.parametrize(
    ("series", "window", "median", "middle"),
    [
        ([3.0, -1.0, 2.5], 1, False, [3.0, -1.0, 2.5]),
        ([0.0, 3.0, 6.0, 0.0], 3, False, [1.5, 3.0, 3.0, 3.0]),  # shorter windows at the ends
        ([1.0, np.nan, 3.0], 3, False, [1.0, 2.0, 3.0]),  # a gap is left out
        ([0.25] * 5, 100, False, [0.25] * 5),
        ([], 9, False, []),
        (
            [0.1, 0.1, 9.0, 0.1, 0.3, 0.3],
            3,
            True,
            [0.1, 0.1, 0.1, 0.3, 0.3, 0.3],
        ),  # the spike is gone
    ],
)
def test_the_running_mean_or_median_is_centred(series, window, median, middle):
    series = pd.Series(series, dtype=float, index=range(5, 5 + len(series)))
    found = smooth(series, window, median)
    assert found.to_list() == middle and list(found.index) == list(series.index)


@pytest.mark.parametrize(("length", "used"), [(100, 10), (20, 10), (15, 7), (3, 1), (2, 1), (1, 1)])
def test_first_and_last_rows_do_not_overlap(length, used):
    history = pd.DataFrame({"reward": np.arange(length, dtype=float), "kl": 1.0})
    table = first_and_last(history, ["kl", "entropy", "reward"])
    assert list(table.index) == ["kl", "reward"], "in the given order, without missing columns"
    assert list(table.columns) == [f"first {used} steps", f"last {used} steps"]
    assert table.loc["reward"].to_list() == [(used - 1) / 2, length - 1 - (used - 1) / 2]
    assert table.loc["kl"].to_list() == [1.0, 1.0]
    spiked = first_and_last(history.assign(kl=[7.0, *[1.0] * (length - 1)]), ["kl"])
    assert length < 10 or spiked.loc["kl"].to_list() == [1.0, 1.0], "the median"
