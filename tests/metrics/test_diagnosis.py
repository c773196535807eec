"""Each rule of the diagnosis, on a synthetic history that triggers it and on one that nearly does;
and histories that look similar but have different causes.
"""

import re

import numpy as np
import pandas as pd
import pytest
from histories import (
    CLIPPED,
    EVERYTHING_WRONG,
    FLAT,
    FORM,
    GAP,
    HACKED,
    LENGTH,
    RIGHT,
    ZERO,
    N,
    T,
    agent,
    found,
    gaps,
    history,
    line,
    severe,
    shaken,
    until,
)

from helpers.metrics.diagnosis import RULES, diagnose, unread
from helpers.metrics.length_rules import clipped_completions, end_token
from helpers.metrics.signals import SEVERITIES, Signals, apply

LONGEST = "completions/max_length"
STUCK = np.full(N, 0.3)
HALF_HALF = np.where(T % 9 < 5, 1.0, 0.0)  # the mean is 0.55, but not significantly above 0.5
# Of two groups: the mean is 0.63, for certain above 0.5 in 80 steps, but not in the last 20.
MOST_OF_TWO = np.where(T % 4 == 0, 0.0, np.where(T % 2, 1.0, 0.5))


def collapsed(right: float = 0.05, start: float = 0.5, entropy: float = 0.16) -> dict:
    """Return columns in which groups become dead, while correctness and entropy fall."""
    return {
        "zero": until(40, start, 0.9),
        "right": until(40, 0.3, right),
        "entropy": until(40, 0.4, entropy),
    }


def broken(column: str, value: float, steps) -> np.ndarray:
    return np.where(np.isin(T, steps), value, history()[column])


def measured(first: float, last: float) -> np.ndarray:
    """Return a line that is logged at every fourth step only."""
    return np.where(T % 4, np.nan, line(first, last))


def looked_once(step: int) -> np.ndarray:
    """Return an accuracy that is high at one step."""
    return np.where(step == T, 1.0, measured(0.2, 0.2))


# The rule, its severity, columns of a history that triggers it, and of one that nearly does.
CASES = {
    "flat rewards": (
        "no_learning",
        "warning",
        FLAT,
        {"right": line(0.4, 0.6), "form": np.full(N, 0.5)},
    ),
    "flat but solved": (
        "no_learning",
        "warning",
        {"right": np.full(N, 0.85), "form": np.full(N, 0.95)},
        {"right": np.full(N, 0.95), "form": np.full(N, 0.95)},
    ),
    "flat, beside its noise": (
        "no_learning",
        "warning",
        FLAT | {"reward": 1 + 0.06 * (-1.0) ** T},
        FLAT | {"reward": 1 + 0.12 * (-1.0) ** T},
    ),
    "flat total, right rises": ("no_learning", "warning", FLAT, {"reward": shaken(0.8, 0.03)}),
    "a policy that is still the reference": (
        "unmoved",
        "warning",
        FLAT | {"kl": shaken(2e-6, 1e-7)},
        FLAT | {"kl": shaken(1e-4, 1e-5)},
    ),
    "a KL that is not the distance": (
        "unmoved",
        "warning",
        FLAT | {"kl": shaken(2e-6, 1e-7)},
        {"kl": shaken(2e-6, 1e-7)},
    ),
    "a reward that does not follow the policy": (
        "indifferent",
        "warning",
        FLAT,
        FLAT | {"kl": line(0.0, 0.002)},
    ),
    "a reward that follows": ("indifferent", "warning", FLAT, {"right": line(0.35, 0.5)}),
    "a reward that may follow": (
        "indifferent",
        "warning",
        FLAT | {"reward": shaken(0.6, 0.15)},
        FLAT | {"reward": shaken(0.6, 0.3)},
    ),
    "a reward that does not fall with the policy": (
        "indifferent",
        "critical",
        FLAT | {"kl": line(0.0, 3.0)},
        FLAT | {"kl": line(0.0, 3.0), "reward": shaken(line(0.7, 0.6), 0.01)},
    ),
    "a reward that falls": (
        "reward_fall",
        "warning",
        {"reward": shaken(until(40, line(0.2, 1.8), 0.6), 0.01), RIGHT: None},
        {"reward": shaken(until(40, line(0.2, 1.8), 0.6), 0.3), RIGHT: None},
    ),
    "a fall that matters": (
        "reward_fall",
        "critical",
        {"reward": shaken(until(40, 1.0, 0.86), 0.01), RIGHT: None},
        {"reward": shaken(until(40, 1.0, 0.9), 0.01), RIGHT: None},
    ),
    "a reward below its start": (
        "reward_fall",
        "critical",
        {"right": line(0.7, 0.2), "form": line(0.8, 0.3)},
        FLAT,
    ),
    "mode collapse": ("mode_collapse", "critical", collapsed(), collapsed(right=0.97)),
    "collapse on what is wrong": ("mode_collapse", "critical", collapsed(), collapsed(right=0.52)),
    "collapse of the entropy": ("mode_collapse", "critical", collapsed(), collapsed(entropy=0.26)),
    "collapse from a start": ("mode_collapse", "critical", collapsed(), collapsed(start=0.7)),
    "more than half alike": (
        "zero_spread",
        "warning",
        {"zero": shaken(0.6, 0.05)},
        {"zero": HALF_HALF},
    ),
    "more than half in the whole run": (
        "zero_spread",
        "warning",
        {"zero": MOST_OF_TWO},
        {"zero": np.where(T > 60, MOST_OF_TWO, 0.0)},
    ),
    "half of the groups alike": (
        "zero_spread",
        "warning",
        {"zero": shaken(0.65, 0.05)},
        {"zero": shaken(0.45, 0.05)},
    ),
    "nearly all groups alike": (
        "zero_spread",
        "critical",
        FLAT | {"zero": 0.95},
        FLAT | {"zero": shaken(0.85, 0.02)},
    ),
    "high KL": ("kl", "warning", {"kl": shaken(0.6, 0.03)}, {"kl": shaken(0.4, 0.03)}),
    "KL that runs away": ("kl", "critical", {"kl": line(0.01, 3)}, {"kl": shaken(1.8, 0.03)}),
    "hacking": (
        "hacking",
        "critical",
        HACKED | {"reward": line(0.6, 0.9)},
        HACKED | {"reward": line(0.9, 0.6)},
    ),
    "hacking needs a fall": (
        "hacking",
        "critical",
        HACKED | {"reward": line(0.6, 0.9)},
        FLAT | {"reward": line(0.6, 0.9)},
    ),
    "a fall of correctness": (
        "hacking",
        "critical",
        {"right": until(40, 0.6, 0.47), "reward": line(1, 2)},
        {"right": until(40, 0.6, 0.53), "reward": line(1, 2)},
    ),
    "hacking late": (
        "hacking",
        "critical",
        {"right": until(40, line(0.2, 0.8), 0.2), "reward": line(1, 2)},
        {"reward": line(1, 2)},
    ),
    "format alone": ("format_only", "warning", {"right": STUCK}, {"right": line(0.3, 0.45)}),
    "format just learned": (
        "format_only",
        "warning",
        {"right": STUCK, "form": until(55, 0.3, 0.95)},
        {"right": STUCK, "form": until(64, 0.3, 0.95)},
    ),
    "length explosion": (
        "length",
        "warning",
        FLAT | {"length": line(100, 260)},
        FLAT | {"length": line(100, 170)},
    ),
    "length collapse": (
        "length",
        "warning",
        FLAT | {"length": line(100, 30)},
        FLAT | {"length": line(100, 60)},
    ),
    "a third of the completions clipped": (
        "clipped",
        "warning",
        {"clipped": shaken(0.42, 0.03)},
        {"clipped": shaken(0.28, 0.03)},
    ),
    "more and more clipped": (
        "clipped",
        "warning",
        {"clipped": 0.5 * line(0, 1) ** 2, "length": line(100, 190)},
        {"clipped": line(0.6, 0.4), "length": line(190, 100)},
    ),
    "clipped by count, but short": (
        "end_token",
        "critical",
        {"clipped": 0.97, "length": 180.0, LONGEST: 640.0},
        {"clipped": 0.97, "length": 630.0, LONGEST: 640.0},
    ),
    "held-out score falls": (
        "held_out",
        "critical",
        {"right": line(0.3, 0.9), "eval_reward": measured(0.5, 0.3)},
        {"right": line(0.3, 0.9), "eval_reward": measured(0.5, 0.9)},
    ),
    "held-out score stays": (
        "held_out",
        "critical",
        {"right": line(0.3, 0.9), "eval/accuracy": measured(0.4, 0.42)},
        {"right": line(0.3, 0.36), "eval/accuracy": measured(0.4, 0.42)},
    ),
    "longer by count, and no better since": (
        "length",
        "warning",
        {"right": until(40, line(0.2, 0.8), 0.5), "length": until(40, 100.0, line(10, 300))},
        {
            "right": until(40, line(0.2, 0.8), line(0.1, 0.9)),
            "length": until(40, 100.0, line(10, 300)),
        },
    ),
    "a plateau": (
        "plateau",
        "warning",
        {"right": until(20, line(0.2, 1.4), 0.5)},
        {"right": until(20, line(0.2, 1.4), line(0.4, 0.7))},
    ),
    "a plateau near full marks": (
        "plateau",
        "warning",
        {"right": until(20, line(0.2, 1.4), 0.5)},
        {"right": until(20, line(0.2, 2.2), 0.8)},
    ),
    "another reward rises": (
        "other_reward",
        "warning",
        FLAT | {"rewards/bonus/mean": shaken(line(0.1, 0.9), 0.02), "reward": line(0.5, 1.3)},
        {"rewards/bonus/mean": shaken(line(0.1, 0.9), 0.02), "reward": line(0.5, 1.7)},
    ),
    "clipped updates": (
        "clip_ratio",
        "warning",
        {"clip_ratio/region_mean": shaken(0.4, 0.03)},
        {"clip_ratio/region_mean": shaken(0.15, 0.03)},
    ),
    "an entropy that is gone although the reward rises": (
        "entropy",
        "warning",
        {"entropy": line(0.4, 0.005)},
        {"entropy": line(0.4, 0.08)},
    ),
    "gradient spikes": (
        "gradient_spikes",
        "warning",
        {"grad_norm": broken("grad_norm", 9.0, [20, 41, 66])},
        {"grad_norm": broken("grad_norm", 9.0, [20, 41])},
    ),
    "memory that grows": (
        "memory",
        "warning",
        {"memory/reserved_gb": line(10, 20)},
        {"memory/reserved_gb": until(12, line(10, 40), 16.0)},
    ),
    "all completions clipped": (
        "clipped",
        "critical",
        {"clipped": 0.97},
        {"clipped": shaken(0.85, 0.02)},
    ),
    "entropy collapse": (
        "entropy",
        "warning",
        FLAT | {"entropy": until(40, 0.4, 0.08)},
        FLAT | {"entropy": until(40, 0.4, 0.13)},
    ),
    "entropy spent to learn": (
        "entropy",
        "warning",
        FLAT | {"entropy": line(0.4, 0.06)},
        {"entropy": line(0.4, 0.06)},
    ),
    "a wide gap": ("sampling", "warning", gaps(np.full(N, 0.13)), gaps(np.full(N, 0.09))),
    "a NaN loss": (
        "gradient",
        "critical",
        {"loss": broken("loss", np.nan, T[70:])},
        {"kl": broken("kl", np.nan, T[70:])},
    ),
    "a NaN gradient": (
        "gradient",
        "critical",
        {"grad_norm": broken("grad_norm", np.nan, [80])},
        {},
    ),
    "programs without a verdict": (
        "unjudged",
        "warning",
        {"tests_reward/unsupported": np.where(T == 30, 0.06, 0.0)},
        {"tests_reward/unsupported": np.full(N, 0.05), "tests_reward/unreadable": 0.5},
    ),
    "a policy that guesses better and looks no more": (
        "blind",
        "warning",
        {"holdout/sighted": measured(0.4, 0.62), "holdout/blind": measured(0.35, 0.6)},
        {"holdout/sighted": measured(0.4, 0.8), "holdout/blind": measured(0.35, 0.4)},
    ),
    "a policy that looks before the last third only": (
        "blind",
        "warning",
        {"holdout/sighted": looked_once(56), "holdout/blind": measured(0.2, 0.2)},
        {"holdout/sighted": looked_once(60), "holdout/blind": measured(0.2, 0.2)},
    ),
    "an infinite gradient": (
        "gradient",
        "warning",
        {"grad_norm": broken("grad_norm", np.inf, [12])},
        {"grad_norm": broken("grad_norm", np.inf, [1, 9])},
    ),
}


@pytest.mark.parametrize(("rule", "severity", "shows", "nearly"), CASES.values(), ids=CASES)
def test_a_rule_reports_its_fault_but_not_a_near_miss(rule, severity, shows, nearly):
    rows = history(**shows)
    finding = found(rows, rule)
    assert finding is not None and finding.severity == severity, [
        str(finding) for finding in diagnose(rows)
    ]
    less = severe(history(**nearly)).get(rule, "info")
    assert SEVERITIES.index(less) > SEVERITIES.index(severity), str(found(history(**nearly), rule))
    assert re.search(r"\bsteps? \d+", finding.evidence)
    line = str(finding)  # all of it
    assert line.startswith(f"{severity} ({rule}): {finding.sentence[:-1]}: {finding.evidence}. ")
    assert line.endswith(finding.advice) and "\n" not in line and "nan" not in line
    assert finding.sentence.endswith(".") and not re.search(r"[\d:]", finding.sentence)


def test_a_healthy_run_gives_no_warning_at_any_step():
    rows = history()
    assert [severe(rows[:n]) for n in range(N + 1)] == [{}] * (N + 1)


@pytest.mark.parametrize("seed", range(8))
def test_a_slow_noisy_run_gives_no_warning(seed):
    """Each step has 16 completions for questions of all difficulties, as in the presets for small
    GPUs.
    """
    noise = np.random.default_rng(seed)
    rate = np.clip(line(0.35, 0.75, 240)[:, None] + noise.normal(0, 0.3, (240, 2)), 0, 1)
    correct = noise.random((240, 2, 8)) < rate[..., None]
    rows = pd.DataFrame(
        {
            "step": range(1, 241),
            RIGHT: correct.mean(axis=(1, 2)),
            "reward": correct.mean(axis=(1, 2)),
        }
    )
    rows = rows.assign(
        reward_std=correct.std(axis=(1, 2)), **{ZERO: (correct.std(axis=2) == 0).mean(axis=1)}
    )
    assert severe(rows) == {}


# --- Similar histories ----------------------------------------------------------------------------


SOLVED = {
    "right": until(40, line(0.3, 1.6), 0.97),
    "zero": until(40, 0.1, 0.9),
    "entropy": until(40, 0.4, 0.02),
}
UNNAMED = {RIGHT: None, FORM: None, "zero": until(40, 0.1, 0.9), "entropy": until(40, 0.4, 0.02)}
CONSTANT = {
    "reward": 1.0,
    "reward_std": 0.0,
    "zero": 1.0,
    "grad_norm": 0.0,
    RIGHT: None,
    FORM: None,
}
AGREE = collapsed() | {"zero": until(40, 0.4, shaken(0.75, 0.05))}
LATE = until(75, np.nan, 0.4)  # too few rows of entropy to compare
FELL = {"reward_fall": "critical", "format_only": "warning"}
FEW = {"too_few_steps": "info"}
# The columns of a history, the number of rows used, and all findings about them.
TOLD_APART = {
    "groups that agree because they are right": (SOLVED, N, {"solved": "info", "entropy": "info"}),
    # without a reward that judges the answer, nobody knows whether the groups are solved
    "a total that rose": (UNNAMED, N, {"zero_spread": "info", "entropy": "warning"}),
    "a flat total": (
        UNNAMED | FLAT,
        N,
        {"mode_collapse": "critical", "no_learning": "warning", "entropy": "warning"},
    ),
    # with a teacher, all weights are 0, but the rewards are still measured
    "rewards that weigh 0": (
        {"reward": 0.0, "reward_std": 0.0, "zero": 1.0, "right": line(0.3, 0.9)},
        N,
        {"unweighted": "info"},
    ),
    "rewards that are 0": (
        {"reward": 0.0, "reward_std": 0.0, "zero": 1.0, RIGHT: 0.0, FORM: 0.0},
        N,
        {"zero_spread": "critical", "no_learning": "warning"},
    ),
    # the spread within groups matters, not the spread over the batch
    "one score per question": ({"reward_std": 1e-9, "zero": 0.0}, N, {}),
    "one score per group": (
        {"reward_std": 0.9, "zero": 0.95, "right": line(0.1, 0.4)},
        N,
        {"zero_spread": "critical"},
    ),
    "a constant reward, four steps": (CONSTANT, 4, FEW),
    "a constant reward, five steps": (CONSTANT, 5, FEW | {"zero_spread": "critical"}),
    "a constant reward": (CONSTANT, N, {"zero_spread": "critical", "no_learning": "warning"}),
    # the total falls but correctness does not: an adaptive weight
    "a total that falls": ({"reward": line(1.2, 0.5)}, N, {}),
    "a total that falls, unjudged": (
        {"reward": line(1.2, 0.5), RIGHT: None},
        N,
        {"reward_fall": "critical"},
    ),
    "a loss that hardly rises": ({"loss": shaken(line(0, 0.0005), 1e-3)}, N, {}),
    "a loss that a KL raises": ({"loss": line(0, 0.2), "kl": line(0, 10)}, N, {"kl": "critical"}),
    # Unsloth on a GPU logs no entropy; a collapse is then only a warning, because early stopping
    # ends a run with a critical finding
    "a collapse": (AGREE, N, FELL | {"mode_collapse": "critical"}),
    "no entropy": (AGREE | {"entropy": None}, N, FELL | {"zero_spread": "warning"}),
    "a late entropy": (AGREE | {"entropy": LATE}, N, FELL | {"zero_spread": "warning"}),
    "a late entropy, flat": (
        FLAT | {"entropy": LATE, "kl": None},
        N,
        {"no_learning": "warning"},
    ),
    "a warm-up": (FLAT | {"learning_rate": np.minimum(T / 65, 1.0)}, N, {}),
    "a warm-up that is over": (
        FLAT | {"learning_rate": np.minimum(T / 40, 1.0), "kl": None},
        N,
        {"no_learning": "warning"},
    ),
    # a high KL that is over is not a spike
    "a KL that came back": ({"kl": np.where((T > 20) & (T <= 40), 0.9, 0.02)}, N, {}),
    # a fault that cannot be chance is reported from the fifth step on
    "a KL at once": ({"kl": 5.0}, 6, FEW | {"kl": "critical"}),
    "no spread at once": ({"zero": 1.0}, 6, FEW | {"zero_spread": "critical"}),
    "clipped at once": ({"clipped": 1.0}, 6, FEW | {"clipped": "critical"}),
    "a NaN at once": ({"loss": np.nan}, 6, FEW | {"gradient": "critical"}),
    "one group with spread": ({"zero": np.where(T == 3, 0.5, 1.0)}, 8, FEW),
}


@pytest.mark.parametrize(("columns", "rows", "findings"), TOLD_APART.values(), ids=TOLD_APART)
def test_similar_histories_are_told_apart(columns, rows, findings):
    assert {one.rule: one.severity for one in diagnose(history(**columns)[:rows])} == findings


# The severity and rule of a finding, its history, and parts of its sentence and evidence.
STALE = pd.DataFrame({"step": range(1, 21), "reward": 0.0, GAP: [0.0173] * 10 + [0.809] * 10})
BETTER = "but the training is still getting better"
EXPLAINED = [
    # alarming curves of a healthy run
    ("info", "loss", history(loss=shaken(line(0, 0.01), 1e-3)), "healthy", "at steps 61 to 80"),
    (
        "info",
        "solved",
        history(**SOLVED),
        "because they are correct",
        "90% of the groups at steps 61 to 80, 10% at the start, with correctness 0.9",
    ),
    ("info", "tool_failures", agent(2, failed=until(50, 0.95, 0.62), won=0.4), BETTER, "calls"),
    ("info", "tool_failures", agent(2, failed=0.7, won=line(0.1, 0.9)), BETTER, "calls"),
    ("info", "unfinished", agent(2, finished=0.2, won=line(0.1, 0.9)), BETTER, "episodes"),
    ("info", "tool_calls", agent(2, calls=0.02, won=0.1), "hardly calls its tools", "per episode"),
    # the evidence begins at the last rise
    (
        "warning",
        "kl",
        history(kl=until(40, np.where(T <= 10, 0.9, 0.02), 0.9)),
        "is high",
        "at steps 45 to 80",
    ),
    # huggingface/trl issue 5312: a sleeping engine was not given the weights
    ("warning", "sampling", STALE, "by more than rounding", "0.81 nats on average, at steps 16"),
]


@pytest.mark.parametrize(("severity", "rule", "rows", "what", "evidence"), EXPLAINED)
def test_a_finding_has_its_sentence_and_its_numbers(severity, rule, rows, what, evidence):
    finding = found(rows, rule)
    assert finding.severity == severity
    assert what in finding.sentence and evidence in finding.evidence


def test_rounding_and_one_outlier_are_not_reported():
    for seed in range(3):
        # around the standard deviation in huggingface/trl issue 6789
        size = 0.05 * np.random.default_rng(seed).lognormal(0, 0.15, N)
        rows = history(**gaps(size, seed=seed))
        rows.loc[N - 2, GAP] = 2.0
        assert [found(rows[:n], "sampling") for n in range(1, N + 1, 3)] == [None] * 27


# --- What was not logged --------------------------------------------------------------------------

# Columns that a backend may not log. Steps and rewards are always logged.
OPTIONAL = [
    "tools/call_frequency",
    "tools/failure_frequency",
    "rewards/finished/mean",
    "loss",
    "grad_norm",
    "learning_rate",
    "reward_std",
    "kl",
    "entropy",
    LENGTH,
    CLIPPED,
    ZERO,
    GAP,
]
AGENTS = [
    {"failed": 0.9, "finished": 0.1, "calls": line(3, 10), "won": 0.4},
    {"failed": line(0.05, 0.4), "finished": 0.3, "calls": until(50, 4.0, 0.3)},
    {"failed": until(40, 0.0, 0.9), "calls": np.where(T % 3, 2.0, 0.0), "won": 0.1},
]
HISTORIES = [
    EVERYTHING_WRONG,
    *(shows for _, _, shows, _ in CASES.values()),
    FLAT | {"learning_rate": np.minimum(T / 65, 1.0)},
    {"reward": shaken(until(40, 5.0, 4.0), 0.05), "reward_std": 6.0, RIGHT: None},
    *(collapsed(entropy=entropy) | {"zero": until(40, 0.4, 0.8)} for entropy in (0.4, 0.16, 0.02)),
]


def worst(rows: pd.DataFrame) -> list[int]:
    """Return the severity of each rule's finding: 0 for none or an info, 1 for a warning, 2 for a
    critical finding.
    """
    signals = Signals(rows)
    findings = [apply(rule, signals) for rule in RULES]
    return [2 - SEVERITIES.index(one.severity) if one else 0 for one in findings]


@pytest.fixture(scope="module")
def judged() -> list[tuple[pd.DataFrame, list[int]]]:
    tables = [*(history(**one) for one in HISTORIES), *(agent(**one) for one in AGENTS)]
    return [(rows, worst(rows)) for rows in tables]


@pytest.mark.parametrize("column", OPTIONAL)
def test_a_missing_column_makes_no_rule_more_severe(judged, column):
    for rows, complete in judged:
        if column in rows:
            for rule, less, more in zip(
                RULES, worst(rows.drop(columns=column)), complete, strict=True
            ):
                if rule is clipped_completions:
                    # where the lengths are known, the end token may be named instead
                    more = max(more, complete[RULES.index(end_token)])
                # `unread` reports missing columns
                assert less <= more or rule is unread, (rule.__name__, diagnose(rows))


# --- Logs of other trainers ------------------------------------------------------------------------


EARLY = {
    RIGHT: "rewards/accuracy_reward",
    FORM: "rewards/format_reward",
    LENGTH: "completion_length",
}
TABLE = {"step": "Step", "loss": "Training Loss", RIGHT: "rewards / accuracy_reward"}
VERL = {
    "step": "training/global_step",
    "loss": "actor/pg_loss",
    "grad_norm": "actor/grad_norm",
    "reward": "critic/rewards/mean",
    "kl": "actor/kl_loss",
    "entropy": "actor/entropy",
    LENGTH: "response_length/mean",
    CLIPPED: "response_length/clip_ratio",
}


@pytest.mark.parametrize(
    "names",
    [
        EARLY,
        TABLE,
        VERL,
        {name: f"train/{name}" for name in history()},
        {name: f"run-7 - train/{name}" for name in history()},
    ],
    ids=["early TRL", "a progress table", "verl", "a tracker", "a tracker's export"],
)
def test_other_column_names_give_the_same_diagnosis(names):
    rows = history(**EVERYTHING_WRONG)
    assert diagnose(rows.rename(columns=names)) == diagnose(rows)


@pytest.mark.parametrize(
    ("rows", "severity", "says"),
    [
        (
            history()[["step", "kl"]].rename(columns={"kl": "divergence"}),
            "warning",
            "no numbers in reward, reward_std, frac_reward_zero_std, completions/clipped_ratio, "
            "grad_norm at steps 1 to 80; found divergence",
        ),
        (history(reward="0,25", right=STUCK), "warning", "no numbers in reward at steps 1 to 80"),
        (
            history(reward_std=None),
            "warning",
            "whether the reward rises or falls is not judged: no numbers",
        ),
        (history(zero=None), "info", "no numbers in frac_reward_zero_std at"),
    ],
)
def test_unread_columns_are_named(rows, severity, says):
    finding = found(rows, "unread")
    assert finding.severity == severity and says in str(finding)


# --- Advice by cause --------------------------------------------------------------------------------

DEAD = {"zero": 1.0, "reward_std": 0.0, "grad_norm": 0.0, "kl": 0.0, FORM: 0.0, RIGHT: 0.3}
# For each cause: columns, the rule that reports it, and words that only its advice contains.
ADVICE = {
    "frozen weights": (FLAT | {"grad_norm": 0.0, "kl": 0.0}, "no_gradient", "is_trainable=True"),
    "nothing is earned": (
        DEAD | {"reward": 0.0, RIGHT: None},
        "zero_spread",
        "No completion earns",
    ),
    "all earn the same": (CONSTANT | {"reward": 4.0}, "zero_spread", "All earn 4. If these are"),
    "solved or unsolvable": (DEAD, "zero_spread", "sometimes answered correctly"),
    "cut off": (DEAD | {"clipped": 1.0}, "clipped", "Raise max_completion_length"),
    "one reward is not earned": (
        {"rewards/x/mean": 0.0, "rewards/x/std": 0.0},
        "constant",
        "If no completion can earn it",
    ),
    "one reward is learned": (
        {"rewards/x/mean": 1.0, "rewards/x/std": 0.0},
        "constant",
        "it is learned",
    ),
    "one reward is silent": ({"rewards/x/mean": np.nan}, "silent", "None for all rows"),
    "too hard": (
        {"right": np.full(N, 0.05), "form": np.full(N, 0.5)},
        "no_learning",
        "almost no answer is correct",
    ),
    "it falls": (FLAT | {"reward": shaken(1.0, 0.05) - line(0, 0.1)}, "no_learning", "It falls"),
    "too slow": (FLAT | {"kl": None}, "no_learning", "Raise the learning rate threefold"),
    "not moved": (FLAT | {"kl": shaken(2e-6, 1e-7)}, "unmoved", "learning rate tenfold"),
    "a coin": (FLAT, "indifferent", "correct completions and wrong ones"),
}


def test_what_another_finding_explains_has_no_advice_of_its_own():
    findings = {one.rule: one for one in diagnose(history(**DEAD | {"clipped": 1.0}))}
    explained = [one for one in findings.values() if one.cause]
    assert "zero_spread" in [one.rule for one in explained] and not findings["clipped"].cause
    assert all(one.cause in findings and one.cause in one.advice for one in explained)
    alone = found(history(**DEAD), "zero_spread")
    assert not alone.cause and "This follows" not in alone.advice


def test_a_drift_without_any_change_of_the_reward_follows_from_that_reward():
    drift = {"kl": until(40, 0.01, 1.0)}
    assert found(history(**FLAT | drift), "kl").cause == "indifferent"
    assert found(history(**FLAT | drift), "no_learning").cause == "indifferent"
    assert found(history(right=until(40, 0.5, 0.2), **drift), "kl").cause == ""


def test_noise_to_the_limit_follows_from_a_policy_that_ran_away():
    kl, clipped = until(40, 0.01, 5.0), until(45, 0.05, 1.0)
    assert found(history(kl=kl, clipped=clipped), "clipped").cause == "kl"
    assert found(history(kl=kl, clipped=1.0), "clipped").cause == "", "cut off from the start"


# Correctness of a scale, and the groups: which of them may be called solved?
@pytest.mark.parametrize(
    ("columns", "rule", "says"),
    [
        (
            {RIGHT: shaken(-0.93, 0.02), "reward": line(-0.6, 0.1)},
            "zero_spread",
            "almost no answer",
        ),
        ({RIGHT: None, "rewards/my_score/mean": line(0.2, 0.7)}, "zero_spread", "does not show"),
        ({RIGHT: None, "rewards/my_score/mean": line(0.2, 0.97)}, "zero_spread", "does not show"),
        ({RIGHT: shaken(0.97, 0.01), f"{RIGHT[:-4]}std": 1.0}, "zero_spread", "does not show"),
        ({RIGHT: shaken(9.7, 0.1)}, "zero_spread", "does not show"),
        (
            {RIGHT: shaken(9.7, 0.1), f"{RIGHT[:-4]}min": 0, f"{RIGHT[:-4]}max": 10},
            "solved",
            "correct",
        ),
        ({RIGHT: shaken(0.97, 0.01), f"{RIGHT[:-4]}std": 0.2}, "solved", "correct"),
    ],
)
def test_groups_are_called_solved_only_on_a_known_scale(columns, rule, says):
    rows = history(**{FORM: None, "zero": 0.8, "reward": line(0.2, 0.7)} | columns)
    finding = found(rows, rule)
    assert finding is not None and says in finding.sentence
    assert rule == "solved" or found(rows, "solved") is None


def test_steps_that_get_slower_are_explained_only_if_lengths_do_not_explain_it():
    slower = {"step_time": shaken(line(9, 40), 0.3)}
    assert found(history(**slower), "slower").severity == "info"
    assert found(history(**slower, length=line(90, 400)), "slower") is None


def test_equal_lengths_are_pointed_out():
    same = {"completions/min_length": 200.0, LONGEST: 200.0}
    assert found(history(**same), "equal_lengths").severity == "info"
    assert found(history(**same | {"completions/min_length": 90.0}), "equal_lengths") is None


EVALUATIONS = [
    "eval_reward", "eval/accuracy", "eval_rewards/accuracy_reward/mean", "eval/rewards/correctness/mean",
    "val-core/gsm8k/acc/mean@1", "holdout/accuracy", "train/eval_reward",
]  # fmt: skip


@pytest.mark.parametrize("column", EVALUATIONS)
def test_a_held_out_score_is_read_under_all_its_names_and_from_rows_of_its_own(column):
    rows = history(right=line(0.3, 0.9), **{column: measured(0.5, 0.3)})
    apart = pd.concat([rows.drop(columns=column), rows[["step", column]].dropna()])
    for logged in (rows, apart):
        first, *_ = diagnose(logged)
        assert first.rule == "held_out" and "at steps 64 to 80" in first.evidence
    loss = history(right=line(0.3, 0.9), eval_loss=measured(0.5, 0.3), eval_runtime=measured(9, 3))
    assert found(loss, "held_out") is None


@pytest.mark.parametrize(
    ("held_out", "parted"),
    [(measured(0.3, 0.5), False), (measured(0.4, 0.4), True), (measured(0.5, 0.3), True)],
)
@pytest.mark.parametrize(("lowest", "highest"), [(0, 5), (-2, 5), (0, 10)])
def test_an_accuracy_may_have_another_scale_than_the_reward(lowest, highest, held_out, parted):
    def scaled(share):
        return lowest + (highest - lowest) * share

    right = scaled(shaken(line(0.3, 0.8), 0.02))
    rows = history(**{RIGHT: right, "reward": right, "eval/accuracy": held_out})
    assert (found(rows, "held_out") is not None) == parted
    # without a reward that judges the answer, the total is compared
    total = rows.drop(columns=RIGHT).assign(**{"rewards/my_score/mean": right})
    assert (found(total, "held_out") is not None) == parted


def test_a_held_out_score_in_percent_may_stall():
    for score in (40.0, shaken(40, 0.05)):
        rows = history(right=line(0.3, 0.8), **{"eval/accuracy": np.where(T % 4, np.nan, score)})
        assert found(rows, "held_out") is not None
    rises = history(right=line(0.3, 0.8), **{"eval/accuracy": 100 * measured(0.3, 0.6)})
    assert found(rises, "held_out") is None


STD = f"{RIGHT[:-4]}std"


def test_one_odd_step_does_not_decide_what_is_notable():
    falls = {RIGHT: shaken(line(4, 2), 0.1), "reward": shaken(line(1, 3), 0.05)}
    odd = np.where(T == 40, 30.0, 1.0)
    assert found(history(**falls, **{STD: odd}), "hacking") is not None
    rises = {RIGHT: shaken(line(1, 4), 0.1), "reward": shaken(line(1, 4), 0.1)}
    learned = rises | {FORM: until(30, 0.2, 0.97), STD: 20 * odd / 3}
    assert found(history(**learned), "format_only") is None


def test_two_values_of_a_reward_are_not_taken_for_its_limits():
    # 2 for a part and 10 for the answer: a policy that learns only the part has solved nothing
    share = line(0.02, 0.99)
    part = {RIGHT: 2 * share, STD: 2 * (share * (1 - share)) ** 0.5, "zero": 0.95}
    assert Signals(history(**part)).share_correct is None
    assert found(history(**part), "solved") is None


def test_the_total_is_not_judged_by_the_range_of_correctness():
    rows = history(
        **{RIGHT: shaken(line(3, 8), 0.1), STD: 3.0, "reward": shaken(line(0.3, 0.8), 0.01)},
        **{"reward_std": 0.3, "eval_reward": measured(0.5, 0.3)},
    )
    assert found(rows, "held_out") is not None


@pytest.mark.parametrize(
    "columns",
    [
        {RIGHT: 0.0, STD: 1.0},  # a ranking's mean is always 0
        {RIGHT: -1.0, STD: 0.0},
        {RIGHT: 3.0, "reward_std": np.nan},
        {RIGHT: 3.0, STD: np.nan},
        {RIGHT: 1e200, STD: 1e200},
    ],
)
def test_unusual_numbers_do_not_end_a_training_run(columns):
    rows = history(**columns)
    twice = pd.concat([rows, rows[40:41].assign(**{STD: np.nan})])
    for logged in (rows[:1], rows[:6], rows, twice):
        assert {finding.severity for finding in diagnose(logged)} <= set(SEVERITIES)


def test_a_total_that_rises_although_no_other_reward_was_logged_is_judged():
    # Correctness and the format have the same values, and no reward is left that could have risen.
    flat = np.full(N, 0.5)
    rows = history(**{RIGHT: flat, FORM: flat, "reward": line(0.2, 1.2)})
    assert found(rows, "other_reward") is None


def test_the_format_is_learned_on_any_scale():
    columns = {FORM: until(30, 0.2, 0.97), RIGHT: shaken(0.2, 0.02)}
    assert found(history(**columns), "format_only") is not None
    three = {name: 3 * values for name, values in columns.items()}
    std = {f"{name[:-4]}std": 0.9 for name in columns}
    assert found(history(**three, **std), "format_only") is not None


def test_questions_seen_many_times_are_a_possible_cause():
    rows = history(right=line(0.3, 0.9), eval_reward=measured(0.5, 0.3))
    assert "12 times" in found(rows.assign(epoch=line(0, 12)), "held_out").advice
    assert "memorised" not in found(rows.assign(epoch=line(0, 0.5)), "held_out").advice


def test_half_marks_for_every_completion_are_not_solved():
    same = {"reward": 0.5, RIGHT: 0.5, RIGHT.replace("/mean", "/std"): 0.0}
    rules = {finding.rule: finding.advice for finding in diagnose(history(**DEAD | same))}
    assert "0.5" in rules["zero_spread"] and "solved" not in rules


def test_wrong_answers_that_are_paid_for_something_else_are_not_said_to_earn_nothing():
    finding = found(history(**DEAD | {"reward": 0.25, RIGHT: 0.0}), "zero_spread")
    assert "almost no answer is correct" in str(finding) and "because almost" not in str(finding)
    assert "easier questions" in finding.advice and "earns the reward" not in finding.advice


@pytest.mark.parametrize("cause", ADVICE)
def test_each_cause_has_its_own_advice(cause):
    columns, rule, says = ADVICE[cause]
    assert says in found(history(**columns), rule).advice
    for other, (columns, _, _) in ADVICE.items():
        advice = [finding.advice for finding in diagnose(history(**columns))]
        assert other == cause or not any(says in one for one in advice), other


@pytest.mark.parametrize(
    "columns",
    [
        {"zero": 1.0},  # dead groups have no gradient
        {"kl": 1e-4},
        {"grad_norm": np.where(T == 3, 0.1, 0.0)},
    ],
)
def test_a_zero_gradient_with_another_cause_is_not_reported_as_frozen(columns):
    rows = history(**FLAT | {"grad_norm": 0.0, "kl": 0.0} | columns)
    assert found(rows, "no_gradient") is None
    assert found(history(grad_norm=0.0, kl=None), "no_gradient") is None, "the reward rises"
    frozen = history(**FLAT | {"grad_norm": 0.0, "kl": 0.0})
    assert found(frozen[:5], "no_gradient").severity == "critical", "at once"
    rounded = history(**FLAT | {"grad_norm": 0.0, "kl": np.where(T == 70, 1e-8, 0.0)})
    assert [one.rule for one in diagnose(rounded) if not one.cause] == ["no_gradient"]


# --- Too few steps --------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 2, 5, 19, 20])
def test_with_too_few_steps_no_trend_is_judged(n):
    rows = history(**HACKED, entropy=line(0.4, 0.001), length=line(1, 1000))[:n]
    first, *more = diagnose(rows)
    assert (first.rule == "too_few_steps" and not more) is (n < 20)
    if n < 20:
        assert first.severity == "info" and f"{n} logged" in first.evidence


# --- What a finding says --------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [line(0, 1), broken("loss", np.nan, [30])], ids=["", "NaN"])
def test_findings_are_sorted_by_severity_with_one_per_rule(loss):
    findings = diagnose(history(**EVERYTHING_WRONG | {"loss": loss}))
    ranks = [SEVERITIES.index(finding.severity) for finding in findings]
    assert (
        ranks == sorted(ranks) and len({finding.rule for finding in findings}) == len(findings) >= 6
    )


def test_seconds_and_lengths_that_were_logged_at_different_steps_are_no_error():
    even = T % 2 == 0
    seconds = np.where(even, line(1.0, 3.0), np.nan)
    rows = history(step_time=seconds, length=np.where(even, np.nan, 100.0))
    assert found(rows, "slower") is None
