"""Incomplete histories, and how a reward's name shows what it judges."""

import numpy as np
import pandas as pd
import pytest
from histories import (
    EVERYTHING_WRONG,
    RIGHT,
    found,
    history,
    line,
    severe,
)

from helpers.metrics.diagnosis import diagnose

# --- Incomplete histories -------------------------------------------------------------------------


def test_gaps_do_not_change_the_findings():
    rows = history(**EVERYTHING_WRONG)
    gaps = rows.mask(np.random.default_rng(2).random(rows.shape) < 0.1)
    gaps[["step", "loss", "grad_norm"]] = rows[["step", "loss", "grad_norm"]]
    assert severe(gaps).keys() == severe(rows).keys()


def test_evaluation_rows_and_the_summary_row_are_not_steps():
    rows = history()[:10]
    extra = pd.DataFrame(
        [{"step": 5, "eval_loss": 0.1}, {"step": 10, "train_runtime": 60.0, "train_loss": 0.1}]
    )
    assert diagnose(pd.concat([rows, extra])) == diagnose(rows)
    assert severe(history()[["step", "reward"]]) == {"unread": "warning"}


def test_row_order_does_not_matter_and_the_history_is_not_changed():
    rows = history(**EVERYTHING_WRONG)
    before = rows.copy()
    staged = rows.sample(frac=1, random_state=3).assign(stage="one")
    assert diagnose(staged) == diagnose(rows)
    pd.testing.assert_frame_equal(rows, before)


# --- The names of rewards -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "judges"),
    [
        *((f"{name}_reward", True) for name in ("correctness", "accuracy", "exact_match", "task")),
        *((f"{name}_reward", True) for name in ("numeric", "proximity", "fuzzy_match")),
        ("check_answer", True),
        ("answer_format_reward", False),
    ],
)
def test_a_rewards_name_shows_whether_it_judges_the_answer(name, judges):
    rows = history(**EVERYTHING_WRONG).rename(columns={RIGHT: f"rewards/{name}/mean"})
    assert ("hacking" in severe(rows)) is judges


def test_a_strict_reward_is_preferred_to_partial_credit():
    rows = history(**EVERYTHING_WRONG)
    rows.insert(0, "rewards/proximity_reward/mean", line(0.3, 0.6))
    assert "hacking" in severe(rows)


def test_a_reward_above_one_is_not_taken_for_a_share():
    rows = history(zero=0.95)
    rows[RIGHT] = 2 * rows[RIGHT]  # full marks are 2.0, so 1.4 does not mean solved
    assert found(rows.assign(reward=1.0), "solved") is None
