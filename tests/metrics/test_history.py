"""The training history as a table: what is read, what is refused, and the two ways to
shorten it.
"""

import numpy as np
import pandas as pd
import pytest

from helpers.metrics.history import (
    REQUIRED,
    first_and_last,
    read_metrics,
    reward_names,
    running_median,
    smoothed,
)

COLUMNS = {
    "step": [1, 2, 3],
    "loss": [0.0, 0.1, -0.1],
    "reward": [0.1, 0.4, 0.7],
    "reward_std": [0.5, 0.4, 0.2],
}
HISTORY = pd.DataFrame(COLUMNS)


@pytest.fixture
def write(tmp_path):
    """Writes a metrics.csv and returns its path."""

    def written(content):
        path = tmp_path / "metrics.csv"
        if isinstance(content, pd.DataFrame):
            content.to_csv(path, index=False)
        else:
            path.write_bytes(content)
        return path

    return written


# --- Reading --------------------------------------------------------------------------------------


def test_what_was_written_is_read(write):
    pd.testing.assert_frame_equal(read_metrics(write(HISTORY)), HISTORY)


@pytest.mark.parametrize("order", [[2, 0, 1], [2, 1, 0]])
def test_rows_come_sorted_by_step_with_a_fresh_index(write, order):
    pd.testing.assert_frame_equal(read_metrics(write(HISTORY.iloc[order])), HISTORY)


def test_steps_are_sorted_as_numbers(write):
    history = read_metrics(write(b"step,reward,reward_std,loss\n10,3,0,0\n9,2,0,0\n100,4,0,0\n"))
    assert list(history["step"]) == [9, 10, 100] and list(history["reward"]) == [2, 3, 4]


def test_an_empty_field_is_nan_and_not_an_error(write):
    history = read_metrics(write(b"step,reward,reward_std,loss,kl\n1,0.5,,0,\n2,0.6,0.1,0,0.01\n"))
    assert (
        np.isnan(history.loc[0, "kl"])
        and np.isnan(history.loc[0, "reward_std"])
        and history.loc[1, "kl"] == 0.01
    )


@pytest.mark.parametrize("column", REQUIRED)
def test_an_absent_column_is_named(write, column):
    with pytest.raises(
        ValueError, match=rf"metrics\.csv has no column {column}\. Rerun notebook 03"
    ):
        read_metrics(write(HISTORY.drop(columns=column)))


def test_all_absent_columns_are_named_at_once(write):
    with pytest.raises(ValueError, match="has no column reward, reward_std, loss"):
        read_metrics(write(HISTORY[["step"]]))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "cannot be read"),
        (b"\n\n", "cannot be read"),
        (b"step,reward,reward_std,loss\n", "has no row"),
        (b"step,reward\n1,2\n1,2,3,4\n", "cannot be read"),
        (b"step,reward,reward_std,loss\n1,0.5,0.5,8.42e-05\n2,0.5,0.5,8.42", "cut off"),
        (b"step,reward,reward_std,loss\n\xff\xfe,1,1,1\n", "cannot be read"),
    ],
    ids=["empty", "blank", "no row", "ragged", "cut off", "not UTF-8"],
)
def test_a_damaged_file_is_told_with_the_notebook_to_rerun_and_no_path(
    write, tmp_path, content, why
):
    with pytest.raises(ValueError, match=why) as error:
        read_metrics(write(content))
    message = str(error.value)
    assert message.startswith("metrics.csv ") and "Rerun notebook 03_grpo_training" in message
    assert str(tmp_path) not in message


def test_a_file_that_is_not_there_is_not_a_damaged_one(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_metrics(tmp_path / "metrics.csv")


# --- The rewards ----------------------------------------------------------------------------------


def test_reward_names_come_in_the_order_logged_and_only_once():
    columns = [
        "step",
        "rewards/zeta/mean",
        "rewards/zeta/std",
        "reward",
        "rewards/alpha/mean",
        "rewards/alpha/std",
        "kl",
    ]
    assert reward_names(pd.DataFrame(columns=columns)) == ["zeta", "alpha"]
    assert reward_names(HISTORY) == []


# --- The running mean -----------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 2, 5, 9, 30])
@pytest.mark.parametrize("window", [1, 2, 9, 100])
def test_a_constant_stays_constant_and_keeps_its_length(length, window):
    result = smoothed(pd.Series([0.3] * length), window)
    assert len(result) == length and result.to_list() == pytest.approx([0.3] * length)


def test_a_window_of_one_changes_nothing():
    series = pd.Series([3.0, -1.0, 2.5])
    assert smoothed(series, 1).to_list() == [3.0, -1.0, 2.5]


def test_the_mean_is_centred_and_near_the_ends_over_what_there_is():
    assert smoothed(pd.Series([0.0, 3.0, 6.0, 0.0]), 3).to_list() == [1.5, 3.0, 3.0, 3.0]
    # a straight line is its own mean
    assert smoothed(pd.Series(range(21)), 9).iloc[4:17].to_list() == list(range(4, 17))


def test_the_index_is_kept_and_the_series_is_not_changed():
    series = pd.Series([1.0, 2.0, 6.0], index=[5, 6, 7])
    assert list(smoothed(series, 3).index) == [5, 6, 7] and series.to_list() == [1.0, 2.0, 6.0]


def test_a_gap_is_left_out_of_the_mean():
    assert smoothed(pd.Series([1.0, np.nan, 3.0]), 3).to_list() == [1.0, 2.0, 3.0]
    assert len(smoothed(pd.Series([], dtype=float))) == 0


def test_a_running_median_is_not_moved_by_single_spikes():
    assert running_median(pd.Series([0.1, 0.1, 9.0, 0.1, 0.3, 0.3]), 3).to_list() == [
        0.1,
        0.1,
        0.1,
        0.3,
        0.3,
        0.3,
    ]
    assert (
        running_median(pd.Series([2.0])).to_list() == [2.0]
        and len(running_median(pd.Series([], dtype=float))) == 0
    )


# --- First and last -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "rows", "used"),
    [(100, 10, 10), (20, 10, 10), (15, 10, 7), (3, 10, 1), (2, 1, 1), (1, 10, 1)],
)
def test_first_and_last_never_share_a_row_where_there_are_two(length, rows, used):
    history = pd.DataFrame({"reward": np.arange(length, dtype=float), "kl": 1.0})
    table = first_and_last(history, ["reward", "kl"], rows)
    assert list(table.columns) == [f"first {used} steps", f"last {used} steps"]
    assert table.loc["reward"].to_list() == [(used - 1) / 2, length - 1 - (used - 1) / 2]
    assert table.loc["kl"].to_list() == [1.0, 1.0]


def test_of_the_kl_it_is_the_median():
    history = pd.DataFrame({"reward": [1.0, 1.0, 4.0] * 2, "kl": [0.1, 0.1, 7.0] * 2})
    assert first_and_last(history, ["kl", "reward"]).iloc[:, 0].to_list() == [0.1, 2.0]


def test_absent_columns_are_left_out_and_the_order_asked_for_is_kept():
    table = first_and_last(HISTORY, ["loss", "kl", "reward"])
    assert list(table.index) == ["loss", "reward"]
