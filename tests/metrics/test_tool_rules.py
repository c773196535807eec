"""The rules about tool calls: each fault is reported, and an agent that improves is not."""

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
    """Return the severity of each finding about tools."""
    return {finding.rule: finding.severity for finding in diagnose(rows) if finding.rule in RULES}


# The rule, its severity, and arguments of `agent` that trigger it. Success is flat unless given.
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
def test_each_fault_is_reported_alone(rule, severity, shows):
    found_in = [told(agent(seed, **{"won": 0.4} | shows)) for seed in SEEDS]
    assert [set(one) for one in found_in] == [{rule}] * len(SEEDS)
    # By chance, about one flat reward in ten looks risen, which makes the finding an info.
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
def test_a_healthy_agent_gives_no_warning_at_any_step(columns, seed):
    rows = agent(seed, **columns)
    at = {n: told(rows[:n]) for n in (*range(40), *range(40, N + 1, 5))}
    assert {n: one for n, one in at.items() if set(one.values()) - {"info"}} == {} and at[N] == {}


def test_the_evidence_has_the_numbers_of_the_history():
    rows = agent(failed=0.7, finished=0.2, won=0.4)
    last = rows.tail(20)
    calls = f"{last[FAILED].mean():.0%} of {last[CALLS].mean():.3g} calls per episode"
    assert found(rows, "tool_failures").evidence == f"{calls} at steps 61 to 80"
    of = f"{1 - last[FINISHED].mean():.0%} of the episodes"
    assert found(rows, "unfinished").evidence == f"{of} at steps 61 to 80"


# --- Missing columns and few steps ----------------------------------------------------------------


def test_the_tool_rules_ignore_runs_without_tools():
    assert told(history(**EVERYTHING_WRONG)) == {}
    assert told(history().assign(**{FINISHED: 0.0})) == {}, "a user's own reward of that name"


def test_steps_without_a_call_are_left_out_of_the_failure_share():
    rows = agent(failed=0.9, calls=np.where(T % 3, 4.0, 0.0), won=0.4)
    share = rows[FAILED][rows[CALLS] > 0].tail(20).mean()
    assert found(rows, "tool_failures").evidence.startswith(f"{share:.0%} of ")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("columns", "rule"), [({"failed": 1.0}, "tool_failures"), ({"finished": 0.0}, "unfinished")]
)
def test_with_few_steps_only_a_total_failure_is_reported(columns, rule, seed):
    assert told(agent(seed, won=0.1, **columns)[:4]) == {}
    assert told(agent(seed, won=0.1, **columns)[:5]) == {rule: "critical"}
    nearly = {name: abs(value - 0.1) for name, value in columns.items()}
    assert told(agent(seed, won=0.1, **nearly)[:19]) == {}


# --- The reward `finished` ------------------------------------------------------------------------


def test_finished_judges_neither_the_answer_nor_the_format():
    signals = Signals(agent(2, finished=line(0.3, 1.0), won=0.4))
    assert signals.correctness is signals.format is None
    assert not signals.has_risen(signals.success), "more episodes end, but no more are won"
