"""Plan a comparison: how many held-out questions and how many seeds show a gain.

Used by the command `plan` and by notebook 05. `gain` is the rise in accuracy, and `lost` the share
of the questions that only the untrained model gets right, so lost + gain is the share that only the
trained one does.
"""

import math
from bisect import bisect_left

import numpy as np
import pandas as pd

from helpers.results.intervals import student_975, wilson_interval

POWER = 0.8
MOST = 20_000  # questions
MOST_SEEDS = 50
SIZES = (64, 128, 256, 512, 1024)  # numbers of held-out questions, for a table


def power_of_mcnemar(questions: int, gain: float, lost: float) -> float:
    """Return the probability that McNemar's exact two-sided test finds the gain, at the level 0.05.

    How many questions only one model gets right is binomial, and how many of these the trained one
    gets right is, too: this sums the exact power over both. R. J. Connor, Biometrics 43, 1987,
    207-211 and O. S. Miettinen, Biometrics 24, 1968, 339-352 approximate it.

    >>> round(power_of_mcnemar(200, 0.1, 0.05), 3)
    0.875
    """
    differ = gain + 2 * lost
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, questions + 1)))])

    def binomial(n: int, p: float, k: np.ndarray) -> np.ndarray:
        """Return the probability of each k of n, each with the probability p, between 0 and 1."""
        ways = log_factorial[n] - log_factorial[k] - log_factorial[n - k]
        return np.exp(ways + k * math.log(p) + (n - k) * math.log1p(-p))

    # all numbers of questions that differ but the most unlikely
    middle = questions * differ
    reach = 6 * math.sqrt(middle) + 6
    numbers = np.arange(max(1, int(middle - reach)), min(questions, int(middle + reach)) + 1)
    likely = binomial(questions, min(differ, 1 - 1e-12), numbers)
    power = 0.0
    for number, probability in zip(numbers, likely, strict=True):
        few = np.arange(number // 2 + 1)  # questions lost
        significant = 2 * np.cumsum(binomial(number, 0.5, few)) < 0.05
        power += probability * binomial(number, max(lost / differ, 1e-12), few[significant]).sum()
    return float(power)


def questions_for(gain: float, lost: float) -> int:
    """Return how many questions show the gain with a power of 80 %, at most about 1 % too many.

    Connor's formula gives the place to begin. ValueError if MOST are too few.
    """
    differ = gain + 2 * lost
    root = 1.96 * math.sqrt(differ) + 0.8416 * math.sqrt(differ - gain * gain)
    questions = max(6, int(0.9 * (root / gain) ** 2))
    while questions <= MOST:
        if power_of_mcnemar(questions, gain, lost) >= POWER:
            return questions
        questions += max(1, questions // 100)
    raise ValueError(f"a gain of {gain:g} needs more than {MOST:,} questions.")


def power_of_seeds(seeds: int, gain: float, lost: float, spread: float, questions: int) -> float:
    """Return the probability that the 95 % interval of the mean gain of several seeds is above 0.

    A seed's measured gain is normal: it varies by `spread`, the standard deviation of the gain
    between trainings, and by chance among its questions (Connor's variance). The power is that of
    Student's t (noncentral t: N. L. Johnson and B. L. Welch, Biometrika 31, 1940, 362-389), here
    integrated over the standard deviation found.
    """
    freedom = seeds - 1
    by_chance = (gain + 2 * lost - gain * gain) / questions
    shift = gain / math.sqrt((spread * spread + by_chance) / seeds)
    # the density of the standard deviation found, as a share of the true one: chi over √freedom
    found = np.linspace(1e-4, 6, 6000)
    log_density = (freedom - 1) * np.log(found) - freedom * found * found / 2
    density = np.exp(log_density - log_density.max())
    beyond = student_975(freedom) * found - shift
    above = np.array([math.erfc(value / math.sqrt(2)) / 2 for value in beyond])
    return float((density * above).sum() / density.sum())


def seeds_for(gain: float, lost: float, spread: float, questions: int) -> int:
    """Return how many seeds show the mean gain with a power of 80 %; at least 2.

    ValueError if MOST_SEEDS are too few.
    """
    for seeds in range(2, MOST_SEEDS + 1):
        if power_of_seeds(seeds, gain, lost, spread, questions) >= POWER:
            return seeds
    raise ValueError(
        f"a gain of {gain:g} that varies by {spread:g} between seeds needs more than {MOST_SEEDS} "
        "seeds."
    )


def widths(baseline: float, lost: float) -> pd.DataFrame:
    """Return a table with a row per number of held-out questions: the half width of the 95 %
    interval of an accuracy like `baseline`, and the least gain that McNemar's test shows with a
    power of 80 %, both in points.
    """
    rows = {}
    for size in SIZES:
        low, high = wilson_interval(baseline * size, size)
        gains = [point / 200 for point in range(1, round(200 * (1 - baseline)) + 1)]
        gains = [gain for gain in gains if gain + lost <= 1 - baseline]
        least = bisect_left(gains, POWER, key=lambda gain: power_of_mcnemar(size, gain, lost))
        rows[size] = {
            "accuracy": f"± {50 * (high - low):.1f}",
            "gain shown": f"{100 * gains[least]:.1f}" if least < len(gains) else "none",
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("questions")
