"""The gap between the engine that samples and the model that trains: rounding, a drift, and tokens
that are never sampled.
"""

import numpy as np
import pandas as pd
import pytest
from histories import N, found, gaps, history, line

MEAN, RATIO = "sampling/sampling_logp_difference/mean", "sampling/importance_sampling_ratio/mean"
ROUNDING = np.full(N, 0.05)  # the standard deviation in huggingface/trl issue 6789
TOKENS = pytest.mark.parametrize("tokens", [1, 40], ids=["ratios of tokens", "of completions"])


def told(rows: pd.DataFrame) -> str:
    return str(found(rows, "sampling") or "")


@TOKENS
def test_rounding_is_no_finding_however_many_steps(tokens):
    for seed in range(3):
        size = ROUNDING * np.random.default_rng(seed).lognormal(0, 0.15, N)
        rows = history(length=40.0, **gaps(size, tokens=tokens, seed=seed))
        assert 0.03 < rows[MEAN].mean() < 0.05
        assert {told(rows[:n]) for n in range(1, N + 1, 3)} == {""}


def test_masked_completions_bring_the_mean_below_one_and_are_no_tokens_left_out():
    rows = history(length=40.0, **gaps(1.85 * ROUNDING, tokens=40))
    assert rows[RATIO].mean() < 0.96 and told(rows) == ""
    assert told(rows.assign(**{RATIO: 0.95})) == "", (
        "nor where thousands of completions leave it no noise"
    )
    rows = history(length=40.0, **gaps(20 * ROUNDING, tokens=40))
    assert rows[RATIO].mean() < 0.2 and "by more than rounding" in told(rows)


@TOKENS
def test_a_gap_that_grows_is_a_drift_with_its_numbers(tokens):
    rows = history(length=40.0, **gaps(line(0.025, 0.125), tokens=tokens))  # a mean of 0.02 to 0.1
    finding = found(rows, "sampling")
    assert (
        "drift apart" in finding.what
        and "new weights" in finding.advice
        and finding.steps == (1, N)
    )
    before, after = rows[MEAN][:5].mean(), rows[MEAN][-20:].mean()
    assert f"{before:.3g} at steps 1 to 5, {after:.3g} at steps 61 to 80" in finding.evidence


def test_a_drift_is_judged_once_there_are_rows_enough_and_a_single_wide_step_is_none():
    rows = history(**gaps(line(0.01, 0.5)))
    assert told(rows[:4]) == told(rows[:12]) == "" and "drift apart" in told(rows[:24])
    rows = history(**gaps(ROUNDING))
    rows.loc[N - 2, MEAN] = 2.0
    assert told(rows) == ""


@TOKENS
@pytest.mark.parametrize("kept", [0.9, 0.965])
def test_tokens_left_out_are_told_from_the_fifth_step_with_the_ratio(tokens, kept):
    rows = history(length=40.0, **gaps(ROUNDING / 2, kept=kept, tokens=tokens))
    assert told(rows[:4]) == ""
    for n, first in ((5, 1), (N, 61)):
        finding = found(rows[:n], "sampling")
        assert (
            "leaves tokens out" in finding.what
            and "top_p=1" in finding.advice
            and finding.severity == "warning"
        )
        ratio, gap = (rows[column][first - 1 : n].mean() for column in (RATIO, MEAN))
        assert (
            f"mean is {ratio:.3g} " in finding.evidence
            and f"the gap {gap:.2g} nats" in finding.evidence
        )
        assert finding.evidence.endswith(f"at steps {first} to {n}")
        assert tokens > 1 or ratio == pytest.approx(kept, abs=0.002)


@pytest.mark.parametrize("less", [1e-5, 0.005], ids=["in fp32", "with top_k=1024"])
def test_a_ratio_next_to_one_is_no_finding_though_it_be_one_sided(less):
    assert told(history(**gaps(np.full(N, less), kept=1 - less))) == ""


def test_a_few_ratios_that_differ_by_luck_are_no_finding():
    rows = history(**gaps(ROUNDING))[:5].assign(**{RATIO: [0.9, 1.06, 0.95, 0.98, 0.93]})
    assert told(rows) == "" and "leaves tokens out" in told(rows.assign(**{RATIO: 0.964}))


def test_an_engine_with_old_weights_is_not_taken_for_one_that_leaves_tokens_out():
    """The two rows of huggingface/trl issue 5312, where a sleeping engine was not given
    the weights.
    """
    first, last = (
        dict(zip(gaps([1.0]), numbers, strict=True))
        | {"completions/mean_length": length, "reward": 0.0}
        for numbers, length in (
            ((0.0173, 0.262, 0.923, 0.976, 1.305), 50),
            ((0.809, 7.43, 3e-21, 3.3e-7, 2.6e-6), 53),
        )
    )
    rows = pd.DataFrame([first] * 10 + [last] * 10).assign(step=range(1, 21))
    assert told(rows[:10]) == "" and "drift apart" in told(rows)
    assert "by more than rounding" in told(rows[10:])


def test_what_was_not_logged_is_not_judged():
    columns = gaps(ROUNDING / 2, kept=0.95)
    assert told(history(**columns)) != ""
    for less in ({}, dict.fromkeys(columns, np.nan), {MEAN: columns[MEAN]}):
        assert told(history(**less)) == ""


def test_gaps_among_the_rows_are_left_out():
    rows = history(**gaps(ROUNDING / 2, kept=0.9))
    columns = list(gaps([1.0]))
    rows.loc[rows.index % 3 > 0, columns] = np.nan  # a round of sampling that serves three steps
    rows.loc[3, columns] = np.inf
    assert "leaves tokens out" in told(rows) and "inf" not in told(rows)
