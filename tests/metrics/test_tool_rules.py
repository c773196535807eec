"""An agent's training: which faults of its calls are named, and that playing better is none."""

import numpy as np
import pandas as pd
import pytest
from histories import (
    EVERYTHING_WRONG,
    N,
    T,
    agent,
    found,
    history,
    line,
    until,
)

from helpers.metrics.diagnosis import diagnose
from helpers.metrics.signals import Signals

SEEDS = range(8)
CALLS, FAILED, FINISHED = "tools/call_frequency", "tools/failure_frequency", "rewards/finished/mean"
RULES = {"tool_failures", "unfinished", "tool_calls"}


def told(rows: pd.DataFrame) -> dict[str, str]:
    """How severe each finding about the tools is."""
    return {finding.rule: finding.severity for finding in diagnose(rows) if finding.rule in RULES}


# What is named, how severe, and the trainings that show it; success is flat but where the case says
# otherwise.
SICK = {
    "most calls fail": ("tool_failures", "warning", {"failed": 0.65}),
    "all calls fail": ("tool_failures", "critical", {"failed": 1.0, "won": 0.1}),
    "failures that stay, after a gain long ago": (
        "tool_failures",
        "warning",
        {"failed": until(20, 0.95, 0.65)},
    ),
    "most episodes are cut off": ("unfinished", "warning", {"finished": 0.3}),
    "all episodes are cut off": ("unfinished", "critical", {"finished": 0.02, "won": 0.1}),
    "episodes begin to be cut off": ("unfinished", "warning", {"finished": until(50, 0.95, 0.2)}),
    "cut off, and better long ago": (
        "unfinished",
        "warning",
        {"finished": 0.3, "won": until(20, 0.2, 0.6)},
    ),
    "tools given up": ("tool_calls", "warning", {"calls": until(40, line(8, 0), 0.02)}),
    "tools given up at once": (
        "tool_calls",
        "warning",
        {"calls": until(8, line(4, 0) * (T < 9), 0.0)},
    ),
    "tools given up once learnt": ("tool_calls", "warning", {"calls": until(50, line(0, 6), 0.0)}),
    "tools given up for what pays without": (
        "tool_calls",
        "warning",
        {"calls": until(40, 4.0, 0.0), "won": line(0.3, 0.9)},
    ),
}


@pytest.mark.parametrize(("rule", "severity", "shows"), SICK.values(), ids=SICK)
def test_each_fault_is_named_and_no_other(rule, severity, shows):
    found_in = [told(agent(seed, **{"won": 0.4} | shows)) for seed in SEEDS]
    assert [set(one) for one in found_in] == [{rule}] * len(SEEDS)
    # Of ten flat rewards, the noise makes one look likely risen; then it is told as an info.
    assert [one[rule] for one in found_in].count(severity) >= len(SEEDS) - 2, found_in


HEALTHY = {
    "plays better with fewer calls": {
        "calls": line(8, 5.5),
        "failed": line(0.1, 0),
        "won": line(0.4, 0.9),
    },
    "constant": {"won": 0.5},
    "one call, constant": {"calls": 1.0, "failed": 0.0, "finished": 1.0, "won": 0.5},
    "a call now and then": {"calls": 0.3, "won": 0.5},
    "some fail and some are cut off": {"failed": 0.4, "finished": 0.62, "won": 0.5},
    "failures learnt away": {"failed": np.maximum(0.9 - 0.03 * T, 0.05)},
    "episodes end sooner and sooner": {"finished": np.minimum(0.2 + 0.03 * T, 0.95)},
    "learns to call": {
        "calls": until(20, line(0.1, 6), 1.6),
        "won": until(20, 0.2, line(0.1, 0.7)),
    },
    "fewer calls for the same": {"calls": line(8, 2.6), "won": 0.6},
    "hardly needs its tools": {"calls": 0.02, "failed": 1.0, "won": line(0.3, 0.9)},
    "needs more calls and earns by them": {"calls": line(2, 3.6)},
}


@pytest.mark.parametrize("seed", SEEDS[:4])
@pytest.mark.parametrize("columns", HEALTHY.values(), ids=HEALTHY)
def test_a_healthy_agent_gives_no_warning_at_any_of_its_steps_and_nothing_at_the_end(columns, seed):
    rows = agent(seed, **columns)
    at = {n: told(rows[:n]) for n in (*range(40), *range(40, N + 1, 5))}
    assert {n: one for n, one in at.items() if set(one.values()) - {"info"}} == {} and at[N] == {}


def test_the_numbers_are_those_of_the_history():
    rows = agent(failed=0.7, finished=0.2, won=0.4)
    last = rows.tail(20)
    calls = f"{last[FAILED].mean():.0%} of {last[CALLS].mean():.3g} calls per episode"
    assert found(rows, "tool_failures").evidence == f"{calls} at steps 61 to 80"
    of = f"{1 - last[FINISHED].mean():.0%} of the episodes"
    assert found(rows, "unfinished").evidence == f"{of} at steps 61 to 80"


# --- What was not logged, and how much of it ------------------------------------------------------


def test_a_training_without_tools_is_not_judged_by_their_rules():
    assert told(history(**EVERYTHING_WRONG)) == {}
    assert told(history().assign(**{FINISHED: 0.0})) == {}, "somebody's own reward of that name"


def test_a_step_without_a_call_has_no_share_that_failed():
    rows = agent(failed=0.9, calls=np.where(T % 3, 4.0, 0.0), won=0.4)
    share = rows[FAILED][rows[CALLS] > 0].tail(20).mean()
    assert found(rows, "tool_failures").evidence.startswith(f"{share:.0%} of ")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("columns", "rule"), [({"failed": 1.0}, "tool_failures"), ({"finished": 0.0}, "unfinished")]
)
def test_with_few_steps_only_what_befell_all_is_told(columns, rule, seed):
    assert told(agent(seed, won=0.1, **columns)[:4]) == {}
    assert told(agent(seed, won=0.1, **columns)[:5]) == {rule: "critical"}
    nearly = {name: abs(value - 0.1) for name, value in columns.items()}
    assert told(agent(seed, won=0.1, **nearly)[:19]) == {}


# --- Which reward judges what ---------------------------------------------------------------------


def test_finished_is_taken_neither_for_correctness_nor_for_the_form():
    signals = Signals(agent(2, finished=line(0.3, 1.0), won=0.4))
    assert signals.correctness is signals.format is None
    assert not signals.better, "more episodes end, and none is won for it"
