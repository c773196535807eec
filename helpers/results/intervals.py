"""Every 95 % interval of the project, and the test that goes with the paired one: standard
formulas, each with its source.
"""

import math
import statistics

_Z95 = 1.959963984540054  # the 97.5 % quantile of the normal distribution
# The 97.5 % quantiles of Student's t for 1 to 30 degrees of freedom.
_T975 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


def wilson_interval(successes: float, n: int) -> tuple[float, float]:
    """Return the Wilson score interval of a proportion; honest at 0 and at 1, unlike mean ± z·se.

    E. B. Wilson, Journal of the American Statistical Association 22, 1927.

    successes: a count; or the sum of n values between 0 and 1, for the interval of their mean. Such
        values vary by at most mean·(1 - mean), which is the variance of zeros and ones (R. Bhatia
        and C. Davis, American Mathematical Monthly 107, 2000, 353-357), so the interval is then
        rather too wide than too narrow. ValueError if 0 <= successes <= n fails.

    >>> [round(bound, 3) for bound in wilson_interval(90, 100)]
    [0.826, 0.945]
    """
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"{successes} successes of {n} is not a proportion.")
    p = successes / n
    z2 = _Z95 * _Z95
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z95 / (1 + z2 / n) * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n))
    # Rounding may push the bounds of 0/n and n/n past the point itself by 1e-17.
    return min(p, max(0.0, centre - half)), max(p, min(1.0, centre + half))


def paired_interval(both: int, won: int, lost: int, neither: int) -> tuple[float, float]:
    """Return the 95 % interval of the difference of two accuracies on the same questions,
    (won - lost) / n.

    Newcombe's square-and-add interval from the two Wilson intervals and their correlation (R. G.
    Newcombe, Statistics in Medicine 17, 1998, 2635-2650, method 10). Like Wilson's, it has a width
    where the models never differ.

    >>> [round(bound, 3) for bound in paired_interval(both=1, won=7, lost=1, neither=12)]
    [0.026, 0.507]
    """
    n = both + won + lost + neither
    after = both + won
    before = both + lost
    low_after, high_after = wilson_interval(after, n)
    low_before, high_before = wilson_interval(before, n)
    margins = after * (n - after) * before * (n - before)
    covariance = both * neither - won * lost
    # a positive correlation narrows the interval, so it is taken with a continuity correction
    if covariance > 0:
        covariance = max(0.0, covariance - n / 2)
    correlation = covariance / math.sqrt(margins) if margins else 0.0

    def half(a: float, b: float) -> float:
        return math.sqrt(max(0.0, a * a - 2 * correlation * a * b + b * b))

    difference = (won - lost) / n
    below = half(after / n - low_after, high_before - before / n)
    above = half(high_after - after / n, before / n - low_before)
    return max(-1.0, difference - below), min(1.0, difference + above)


def student_interval(values: list[float]) -> tuple[float, float]:
    """Return the 95 % interval of a mean by Student's t (Biometrika 6, 1908): mean ± t·s/√n.

    nan for fewer than two values.

    >>> [round(bound, 3) for bound in student_interval([1.0, 2.0, 3.0])]
    [-0.484, 4.484]
    """
    if len(values) < 2:
        return math.nan, math.nan
    freedom = len(values) - 1
    if freedom <= len(_T975):
        t = _T975[freedom - 1]
    else:
        # the first terms of its expansion around the normal distribution's, right to 1e-4 from here
        # (Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5)
        t = _Z95 + (_Z95**3 + _Z95) / (4 * freedom)
        t += (5 * _Z95**5 + 16 * _Z95**3 + 3 * _Z95) / (96 * freedom**2)
    mean = statistics.mean(values)
    half = t * statistics.stdev(values) / math.sqrt(len(values))
    return mean - half, mean + half


def mcnemar_test(won: int, lost: int) -> float:
    """Return the p-value of McNemar's exact two-sided test: how surprising such a split is if
    winning and losing are a coin's toss.

    Only questions that one model answers and the other does not can tell them apart: `won` and
    `lost` of them. The sign test (binomial, p = 1/2) on these, doubled; 1.0 where there are none.
    Q. McNemar, Psychometrika 12, 1947.

    >>> round(mcnemar_test(7, 1), 4)
    0.0703
    """
    discordant = won + lost
    tail = 0
    term = 1  # the binomial coefficient of discordant and i
    for i in range(min(won, lost) + 1):
        tail += term
        term = term * (discordant - i) // (i + 1)
    return min(1.0, 2 * tail / 2**discordant)
