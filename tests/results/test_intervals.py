"""The intervals and McNemar's test, checked against published values and the equations that they
solve.
"""

import itertools
import math

import pytest

from helpers.results.intervals import (
    mcnemar_test,
    paired_interval,
    student_interval,
    wilson_interval,
)

Z95 = 1.959963984540054


# --- Wilson's -------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 7, 50, 512])
def test_wilson_bounds_solve_the_score_equation(n):
    for k in range(n + 1):
        low, high = wilson_interval(k, n)
        assert 0 <= low <= k / n <= high <= 1 and low < high
        for bound in (low, high):
            if 0 < bound < 1:  # a bound of exactly 0 or 1 was clipped
                width = Z95 * math.sqrt(bound * (1 - bound) / n)
                assert abs(k / n - bound) == pytest.approx(width, rel=1e-6)
        assert wilson_interval(n - k, n) == pytest.approx((1 - high, 1 - low), abs=1e-12)


@pytest.mark.parametrize(("successes", "n"), [(0, 0), (1, 0), (0, -1), (-1, 10), (11, 10)])
def test_impossible_proportions_are_refused(successes, n):
    with pytest.raises(ValueError, match=f"{successes} successes of {n}"):
        wilson_interval(successes, n)


# --- Student's ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "quantile"),
    [(2, 12.706), (16, 2.131), (31, 2.042), (32, 2.0395), (61, 2.0003), (121, 1.9799)],
)
def test_students_interval_uses_the_published_quantiles(n, quantile):
    values = [float(i % 2) for i in range(n)]
    low, high = student_interval(values)
    mean = sum(values) / n
    error = math.sqrt(sum((value - mean) ** 2 for value in values) / (n - 1) / n)
    assert (low + high) / 2 == pytest.approx(mean)
    assert (high - low) / 2 == pytest.approx(quantile * error, rel=1e-4)
    assert all(map(math.isnan, student_interval([1.0])))


# --- McNemar's test -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("won", "lost", "p"),
    [
        (0, 0, 1.0),
        (1, 0, 1.0),
        (5, 0, 2 / 2**5),
        (0, 6, 2 / 2**6),
        (7, 1, 2 * (1 + 8) / 2**8),
        (3, 3, 1.0),
        (12, 2, 2 * (1 + 14 + 91) / 2**14),  # Armitage and Berry 1994, page 127: 0.0129
        (16, 6, 0.052479),  # Cavo et al. 2012, in Fagerland et al. 2014: 0.0525
    ],
)
def test_hand_computed_p_values(won, lost, p):
    assert mcnemar_test(won, lost) == pytest.approx(p, abs=5e-7) == mcnemar_test(lost, won)


def test_tiny_p_values_are_not_rounded_to_zero():
    assert 0 < mcnemar_test(330, 4) < 1e-80
    assert mcnemar_test(50_000, 0) == 0.0
    assert 0.9 < mcnemar_test(5_000, 5_001) <= 1.0


# --- The interval of a difference -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "low", "high", "tolerance"),
    [
        # Newcombe's interval in Fagerland, Lydersen and Laake, Statistics in Medicine 33, 2014:
        # Bentur 2009 and Cavo 2012.
        ((1, 7, 1, 12), 0.026, 0.507, 5e-4),
        ((59, 16, 6, 80), 0.0046, 0.1186, 5e-5),
    ],
)
def test_published_paired_intervals(counts, low, high, tolerance):
    both, won, lost, neither = counts
    assert paired_interval(both, won, lost, neither) == pytest.approx((low, high), abs=tolerance)
    assert paired_interval(both, lost, won, neither) == pytest.approx((-high, -low), abs=tolerance)


def test_the_paired_interval_contains_the_difference():
    for both, won, lost, neither in itertools.product((0, 1, 3, 40), repeat=4):
        n = both + won + lost + neither
        if n:
            low, high = paired_interval(both, won, lost, neither)
            assert -1 <= low <= (won - lost) / n <= high <= 1 and low < high
