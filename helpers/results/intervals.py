"""The 95% confidence intervals of the project and McNemar's test, each with its source."""

import math
import statistics

# the 97.5% quantile of the standard normal distribution, 1.96
_Z95 = statistics.NormalDist().inv_cdf(0.975)


def wilson_interval(successes: float, n: int) -> tuple[float, float]:
    """Return the Wilson score interval of a proportion, successes / n.

    Unlike mean ± z·se, it is also valid near 0 and 1. E. B. Wilson, Journal of the American
    Statistical Association 22, 1927.

    successes: a count, or the sum of n values between 0 and 1 for the interval of their mean. The
        variance of such values is at most mean·(1 - mean), the variance of zeros and ones (R.
        Bhatia and C. Davis, American Mathematical Monthly 107, 2000, 353-357), so their interval
        can only be too wide. ValueError unless 0 <= successes <= n and n >= 1.

    >>> [round(bound, 3) for bound in wilson_interval(90, 100)]
    [0.826, 0.945]
    """
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"{successes} successes of {n} is not a proportion.")
    p = successes / n
    z2 = _Z95 * _Z95
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z95 / (1 + z2 / n) * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n))
    # For 0/n and n/n, rounding can put a bound on the wrong side of p by 1e-17.
    return min(p, max(0.0, centre - half)), max(p, min(1.0, centre + half))


def paired_interval(both: int, won: int, lost: int, neither: int) -> tuple[float, float]:
    """Return the interval of the difference between two accuracies on the same questions,
    (won - lost) / n.

    Newcombe's square-and-add method: it combines the Wilson intervals of both accuracies, using
    their correlation (R. G. Newcombe, Statistics in Medicine 17, 1998, 2635-2650, method 10). Like
    Wilson's, the interval is wider than a point even if the models never differ.

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
    # a positive correlation narrows the interval, so a continuity correction reduces it
    if covariance > 0:
        covariance = max(0.0, covariance - n / 2)
    correlation = covariance / math.sqrt(margins) if margins else 0.0

    def half(a: float, b: float) -> float:
        return math.sqrt(max(0.0, a * a - 2 * correlation * a * b + b * b))

    difference = (won - lost) / n
    below = half(after / n - low_after, high_before - before / n)
    above = half(high_after - after / n, before / n - low_before)
    return max(-1.0, difference - below), min(1.0, difference + above)


def mcnemar_test(won: int, lost: int) -> float:
    """Return the p-value of McNemar's exact two-sided test of two models on the same questions.

    won, lost: the questions that only the second model, or only the first, answered correctly. The
        other questions do not matter. Under the null hypothesis, a question is won or lost with
        probability 1/2 each (a sign test); without any such question, p is 1.0. Q. McNemar,
        Psychometrika 12, 1947.

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


def student_interval(values: list[float]) -> tuple[float, float]:
    """Return the interval of a mean by Student's t (Biometrika 6, 1908): mean ± t·s/√n.

    Returns nan for both bounds if there are fewer than two values.

    >>> [round(bound, 3) for bound in student_interval([1.0, 2.0, 3.0])]
    [-0.484, 4.484]
    """
    if len(values) < 2:
        return math.nan, math.nan
    t = student_975(len(values) - 1)
    mean = statistics.mean(values)
    half = t * statistics.stdev(values) / math.sqrt(len(values))
    return mean - half, mean + half


def student_975(freedom: int) -> float:
    """Return the 97.5% quantile of Student's t.

    >>> round(student_975(2), 3), round(student_975(1000), 3)
    (4.303, 1.962)
    """
    if freedom <= len(_T975):
        return _T975[freedom - 1]
    # Expand t around the normal quantile; beyond the table, the error is below 1e-4
    # (Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5).
    t = _Z95 + (_Z95**3 + _Z95) / (4 * freedom)
    return t + (5 * _Z95**5 + 16 * _Z95**3 + 3 * _Z95) / (96 * freedom**2)


# The 97.5% quantiles of Student's t for 1 to 30 degrees of freedom.
_T975 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
