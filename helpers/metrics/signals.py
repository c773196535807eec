"""What the diagnosis rules read from a training history, and the findings they return.

`Signals` holds the series of a history and answers questions about them. The reward of a step is
the mean of a few groups, so it moves by chance even if nothing is learned. Each change is therefore
compared with the noise of its own series (`Change`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from helpers.metrics.history import reward_names

# Numbers of logged steps.
MIN_ROWS = 20  # with fewer, a trend cannot be told from noise
MIN_WINDOW = 5  # enough to average out the noise
MAX_WINDOW = 100  # few enough that a late fault is noticed

# How certain a change must be, in standard errors.
LIKELY = 2.0  # the usual 95 %, for rules that also ask for other signs
CERTAIN = 3.0  # by chance once in 700 comparisons; a diagnosis during training makes thousands
SINCE_BEST = 4.5  # for a fall from the best of many windows, which is partly best by chance

# Shares between 0 and 1.
SOLVED = 0.9  # correctness: most groups can show no further gain
NOTABLE = 0.1  # the smallest change of a share that matters to a user
MOST = 0.5  # of groups, completions, calls or episodes
NEARLY_ALL = 0.9

SEVERITIES = ("critical", "warning", "info")


@dataclass(frozen=True)
class Finding:
    """One observation about a training history. `str()` returns it as a single line.

    severity: one of SEVERITIES.
    rule: a short identifier, used by at most one finding per history.
    sentence: the observation, without numbers.
    evidence: a phrase with numbers and steps.
    advice: a sentence that says what to try.

    >>> print(Finding("warning", "kl", "The KL is high.", "0.6 at step 9", "Lower it."))
    warning (kl): The KL is high: 0.6 at step 9. Lower it.
    """

    severity: str
    rule: str
    sentence: str
    evidence: str
    advice: str

    def __str__(self) -> str:
        sentence = self.sentence.removesuffix(".")
        return f"{self.severity} ({self.rule}): {sentence}: {self.evidence}. {self.advice}"


@dataclass(frozen=True)
class Change:
    """The means of two parts of a series, before and after.

    error: the standard error of their difference.
    spans: the steps of each part, in words.
    """

    before: float
    after: float
    error: float
    spans: tuple[str, str]

    @property
    def difference(self) -> float:
        return self.after - self.before

    def is_rise(self, errors: float, least: float = 0.0) -> bool:
        """Return whether the series rose by more than `errors` standard errors, and by at least
        `least`.
        """
        return self.difference > errors * self.error and self.difference >= least

    def is_fall(self, errors: float, least: float = 0.0) -> bool:
        """Return whether the series fell by more than `errors` standard errors, and by at least
        `least` (positive).
        """
        return -self.difference > errors * self.error and -self.difference >= least

    def __str__(self) -> str:
        first, last = self.spans
        return f"{self.before:.3g} at {first}, {self.after:.3g} at {last}"


class Signals:
    """The logged steps of a training history, with the questions that the rules ask about them.

    rows: the logged steps, indexed by step.
    enough: whether there are enough rows to tell a trend from noise.
    window: the number of rows at the end that count as the present.
    correctness, format: the mean of the first reward that judges the answer, and of the first that
        judges the format; None if there is no such reward.
    success: correctness, or the total reward if no reward judges the answer.
    better: whether success has likely risen.
    share_right: present correctness; None if it is unknown, or not between 0 and 1.
    solved: whether share_right is so high that little is left to gain.
    unweighted: whether the total is always 0 although single rewards are not: all weights are 0, as
        in distillation from a teacher through the KL.
    """

    def __init__(self, history: pd.DataFrame):
        # Drop rows that are not training steps, such as evaluations.
        of_steps = [column for column in ("reward", "loss", "grad_norm") if column in history]
        rows = history.dropna(how="all", subset=of_steps) if of_steps else history
        self.rows = rows.set_index("step").sort_index() if "step" in rows else rows
        self.enough = len(rows) >= MIN_ROWS
        self.window = min(MAX_WINDOW, max(MIN_WINDOW, len(rows) // 4))

        # Tell by its name what a reward judges.
        form = self._rewards_named(FORMAT)
        judges = self._rewards_named(STRICT) + self._rewards_named(LENIENT)
        judges = [name for name in judges if name not in form]
        self.correctness = self.optional(f"rewards/{judges[0]}/mean") if judges else None
        self.format = self.optional(f"rewards/{form[0]}/mean") if form else None

        # Measure success.
        total = self.optional("reward")
        self.success = total if self.correctness is None else self.correctness
        self.better = self.risen(self.success)
        self.share_right = None
        if self.correctness is not None and self.correctness.between(0, 1).all():
            self.share_right = float(self.last(self.correctness).mean())
        self.solved = self.share_right is not None and self.share_right >= SOLVED

        # Find out whether the rewards have any weight.
        means = self.rows.filter(regex=r"^rewards/.*/mean$").fillna(0)
        self.unweighted = total is not None and not total.any() and bool(means.any(axis=None))

    def _rewards_named(self, words: Sequence[str]) -> list[str]:
        """Return the rewards whose names contain one of these words."""
        names = reward_names(self.rows)
        return [name for name in names if any(word in name.lower() for word in words)]

    def series(self, column: str, least: int = 1) -> pd.Series:
        """Return the finite values of a column; raise NotLogged if there are fewer than `least`."""
        values = pd.to_numeric(self.rows.get(column, pd.Series(dtype=float)), errors="coerce")
        values = values[np.isfinite(values.to_numpy())]
        if len(values) < least:
            raise NotLogged(column)
        return values

    def optional(self, column: str) -> pd.Series | None:
        """Return the finite values of a column, or None if there are none."""
        try:
            return self.series(column)
        except NotLogged:
            return None

    def last(self, series: pd.Series) -> pd.Series:
        """Return the present: the last window of a series."""
        return series.iloc[-self.window :]

    def change(self, series: pd.Series, first: int | None = None) -> Change:
        """Return the change from the first rows to the last window.

        first: how many first rows; by default one window. Fewer suit a fast change, or a series
            with little noise.
        """
        return change_between(series, slice(0, first or self.window), slice(-self.window, None))

    def risen(self, series: pd.Series | None) -> bool:
        """Return whether a series is now likely higher than at the start.

        Starts of several lengths are tried, so that a rise in the first few steps counts, too.
        """
        if series is None or len(series) < 2 * MIN_WINDOW:
            return False
        firsts = (MIN_WINDOW, MIN_ROWS, self.window)
        return any(self.change(series, rows).is_rise(LIKELY) for rows in firsts)

    def since_best(self, series: pd.Series) -> tuple[slice, slice]:
        """Return the window with the highest mean, and the last window."""
        means = series.rolling(min(self.window, len(series))).mean()
        end = int(np.nanargmax(means.to_numpy())) + 1
        return slice(max(0, end - self.window), end), slice(-self.window, None)

    def reward_spread(self) -> float:
        """Return the spread of the total reward, the unit for its changes: the mean `reward_std` of
        the first steps or of all steps, whichever is larger. Raise NotLogged if it is missing.
        """
        std = self.series("reward_std")
        return max(std.iloc[:MIN_WINDOW].mean(), std.mean())


# Words in reward names. Strict rewards ask for a right answer and are preferred; lenient ones give
# partial credit, which can rise although no answer is right.
STRICT = (
    "correct", "accuracy", "exact_match", "numeric", "task", "symbolic", "answer", "solution",
    "number", "math",
)  # fmt: skip
LENIENT = ("fuzzy", "proximity")
FORMAT = ("format", "tags", "xml", "structure")


def apply(rule: Callable[[Signals], Finding | None], signals: Signals) -> Finding | None:
    """Return the finding of a rule, or None if a column it needs was not logged.

    A missing column is not evidence of a fault: Unsloth on a GPU logs no entropy, and TRL logs no
    KL if beta is 0.
    """
    try:
        return rule(signals)
    except NotLogged:
        return None


class NotLogged(Exception):
    """Raised if a column that a rule needs is missing from the history or has too few numbers."""


def change_between(series: pd.Series, before: slice, after: slice) -> Change:
    """Return the change between two slices of a series whose index is the step.

    The noise is estimated from the differences between neighbouring rows, because a trend hardly
    affects them: variance = mean of the squared differences / 2 (J. von Neumann et al., Annals of
    Mathematical Statistics 12, 1941).

    >>> series = pd.Series([0.0, 0.2, 0.0, 0.2, 1.0, 1.2], index=range(1, 7))
    >>> change = change_between(series, slice(0, 4), slice(4, 6))
    >>> print(change, change.is_rise(2.0))
    0.1 at steps 1 to 4, 1.1 at steps 5 to 6 True
    """
    one = series.iloc[before]
    two = series.iloc[after]
    variance = float(np.mean(np.diff(series.to_numpy()) ** 2)) / 2 if len(series) > 1 else 0.0
    error = (variance * (1 / len(one) + 1 / len(two))) ** 0.5
    return Change(float(one.mean()), float(two.mean()), error, (span(one), span(two)))


def span(series: pd.Series) -> str:
    """Return the first and the last step of a series, in words."""
    first = int(series.index[0])
    last = int(series.index[-1])
    return f"step {first}" if first == last else f"steps {first} to {last}"


def lower_bound(shares: pd.Series) -> float:
    """Return the mean of shares minus LIKELY standard errors.

    Rules use it so that chance is not reported: with two groups per step, half of them are often
    dead by chance.
    """
    return float(shares.mean() - LIKELY * shares.std() / len(shares) ** 0.5)
