"""Plan a comparison: how many held-out questions and how many seeds show a gain.

Used by the command `plan` and by notebook 05. `gain` is the rise in accuracy, and `lost` the share
of the questions that only the base model answers correctly. So only the trained model answers the
share lost + gain correctly, and the share gain + 2 lost is discordant: exactly one model answers it
correctly. The functions need a gain above 0, a lost share of 0 or more, and a discordant share of
at most 1.
"""

import math
from bisect import bisect_left

import numpy as np
import pandas as pd

from helpers.results.intervals import student_975, wilson_interval

POWER = 0.8  # the probability of finding a gain that is there
# quantiles of the standard normal distribution
_Z_975 = 1.96  # for a two-sided test at the level 0.05
_Z_POWER = 0.8416  # for POWER
MAX_QUESTIONS = 20_000
MAX_SEEDS = 50
SIZES = (64, 100, 256, 1000)  # numbers of held-out questions, for a table


def power_of_mcnemar(questions: int, gain: float, lost: float) -> float:
    """Return the probability that McNemar's exact two-sided test finds the gain, at the level 0.05.

    gain: the rise in accuracy, above 0.
    lost: the share of the questions that only the base model answers correctly.

    The number of discordant questions is binomial. Given that number, so is the number of losses
    among them. This sums the exact power over both. R. J. Connor, Biometrics 43, 1987, 207-211 and
    O. S. Miettinen, Biometrics 24, 1968, 339-352 approximate it.

    >>> round(power_of_mcnemar(200, 0.1, 0.05), 3)
    0.875
    """
    discordant = gain + 2 * lost
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, questions + 1)))])

    def binomial(n: int, p: float, k: np.ndarray) -> np.ndarray:
        """Return the probability of each k of n, each with the probability p."""
        p = min(max(p, 1e-12), 1 - 1e-12)  # log(0) is an error; such a small change does not show
        ways = log_factorial[n] - log_factorial[k] - log_factorial[n - k]
        return np.exp(ways + k * math.log(p) + (n - k) * math.log1p(-p))

    # 1. Likely numbers of discordant questions. To save time, leave out those more than 6 standard
    # deviations from the mean: together, their probability is below 1e-8. √mean is at least the
    # standard deviation, and the 6 more are for the longer tail of a small mean.
    mean = questions * discordant
    reach = 6 * math.sqrt(mean) + 6
    numbers = np.arange(max(1, int(mean - reach)), min(questions, int(mean + reach)) + 1)
    probabilities = binomial(questions, discordant, numbers)

    # 2. For each number, the probability of so few losses that the gain is significant.
    power = 0.0
    for n_discordant, probability in zip(numbers, probabilities, strict=True):
        losses = np.arange(n_discordant // 2 + 1)
        p_values = 2 * np.cumsum(binomial(n_discordant, 0.5, losses))
        significant = losses[p_values < 0.05]
        power += probability * binomial(n_discordant, lost / discordant, significant).sum()
    return float(power)


def questions_for(gain: float, lost: float) -> int:
    """Return how many questions show the gain with a power of 80%, at most about 1% too many.

    gain, lost: as for `power_of_mcnemar`; the gain must be above 0.

    Raise ValueError if MAX_QUESTIONS are too few.
    """
    discordant = gain + 2 * lost
    # Connor's formula is an approximation. Begin a tenth below it, because the search only goes up,
    # and at 6 at the least: even 5 losses to none are not significant (p = 0.0625).
    root = _Z_975 * math.sqrt(discordant) + _Z_POWER * math.sqrt(discordant - gain * gain)
    questions = max(6, int(0.9 * (root / gain) ** 2))
    while questions <= MAX_QUESTIONS:
        if power_of_mcnemar(questions, gain, lost) >= POWER:
            return questions
        questions += max(1, questions // 100)
    raise ValueError(f"a gain of {gain:g} needs more than {MAX_QUESTIONS:,} questions.")


def power_of_seeds(seeds: int, gain: float, lost: float, spread: float, questions: int) -> float:
    """Return the probability that the 95% interval of the mean gain of several seeds is above 0.

    seeds: at least 2.
    gain, lost: the true rise in accuracy, above 0, and the share as for `power_of_mcnemar`.
    spread: the standard deviation of the gain between trainings.
    questions: the number of held-out questions.

    A seed's measured gain is normal: it varies by `spread`, and by chance among its
    questions (Connor's variance). The power is that of Student's t (noncentral t: N. L. Johnson and
    B. L. Welch, Biometrika 31, 1940, 362-389), here integrated over the ratio of the measured
    standard deviation to the true one.
    """
    degrees_of_freedom = seeds - 1
    chance_variance = (gain + 2 * lost - gain * gain) / questions
    noncentrality = gain / math.sqrt((spread * spread + chance_variance) / seeds)
    # The ratio has the density of chi, divided by √degrees_of_freedom. It is hardly ever above 6.
    sd_ratio = np.linspace(1e-4, 6, 6000)
    log_density = (degrees_of_freedom - 1) * np.log(sd_ratio) - degrees_of_freedom * sd_ratio**2 / 2
    density = np.exp(log_density - log_density.max())
    # For each ratio, how far above the true gain the mean gain must be, in standard errors, and the
    # probability of that: the upper tail of the normal distribution.
    threshold = student_975(degrees_of_freedom) * sd_ratio - noncentrality
    tail = np.array([math.erfc(z / math.sqrt(2)) / 2 for z in threshold])
    return float((density * tail).sum() / density.sum())


def seeds_for(gain: float, lost: float, spread: float, questions: int) -> int:
    """Return how many seeds show the mean gain with a power of 80%; at least 2.

    gain, lost, spread, questions: as for `power_of_seeds`; the gain must be above 0.

    Raise ValueError if MAX_SEEDS are too few.
    """
    for seeds in range(2, MAX_SEEDS + 1):
        if power_of_seeds(seeds, gain, lost, spread, questions) >= POWER:
            return seeds
    raise ValueError(
        f"a gain of {gain:g} that varies by {spread:g} between seeds needs more than {MAX_SEEDS} "
        "seeds."
    )


def widths(baseline: float, lost: float) -> pd.DataFrame:
    """Return a table of what can be shown, in points, with a row for each of SIZES.

    baseline: the accuracy of the base model.
    lost: the share of the questions that only the base model answers correctly.

    Columns:
        accuracy: half the width of the 95% interval of an accuracy like `baseline`.
        gain shown: the least gain, in steps of half a point, that McNemar's test shows with a power
            of 80%; "none" if no possible gain is large enough.
    """
    # The trained model can win only questions that were wrong before: the share gain + lost.
    wrong_before = 1 - baseline
    gains = [half_points / 200 for half_points in range(1, round(200 * wrong_before) + 1)]
    gains = [gain for gain in gains if gain + lost <= wrong_before]
    rows = {}
    for size in SIZES:
        low, high = wilson_interval(baseline * size, size)
        half_width = (high - low) / 2
        # bisect needs ascending powers, and the power grows with the gain
        least = bisect_left(gains, POWER, key=lambda gain: power_of_mcnemar(size, gain, lost))
        rows[size] = {
            "accuracy": f"± {100 * half_width:.1f}",
            "gain shown": f"{100 * gains[least]:.1f}" if least < len(gains) else "none",
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("questions")
