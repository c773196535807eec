"""What the rules of the diagnosis read, the series of a history, and what they give, findings.

Every change is judged against the noise of its own series. A step's reward is the mean of a few
groups and moves by itself, so a rise that the eye sees in a plot may be none.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from helpers.metrics.history import reward_names

# logged steps: with fewer, a quarter of them is under five, and the noise of its mean a guess
MIN_ROWS = 20
# rows in a window: enough to average the noise; not so many that a late fault hides in them
SHORTEST = 5
LONGEST = 100
LIKELY = 2.0  # standard errors, the usual 95 %, where one sign is not all that a rule asks for
# standard errors: by luck once in 700 comparisons, and a live diagnosis makes thousands
CERTAIN = 3.0
SINCE_BEST = 4.5  # standard errors since the best of many windows, whose height is in part luck
SOLVED = 0.9  # correctness: what is left to gain is less than most groups can show
# of 1, correctness or another share: a change that matters to a user, however certain a smaller one
# may be
NOTABLE = 0.1
# of the groups, completions, calls or episodes
MOST = 0.5
NEARLY_ALL = 0.9

# Words in the names of rewards. One that asks for full marks comes before one that gives partial
# credit, which may rise while no answer is right.
STRICT = (
    "correct", "accuracy", "exact_match", "numeric", "task", "symbolic", "answer", "solution",
    "number", "math",
)  # fmt: skip
LENIENT = ("fuzzy", "proximity")
FORMAT = ("format", "tags", "xml", "structure")

SEVERITIES = ("critical", "warning", "info")


@dataclass(frozen=True)
class Finding:
    """One thing that a history shows. `str()` of it is one line that holds everything.

    severity: one of SEVERITIES. rule: a short identifier; a history has at most one finding of
    each. sentence: one without numbers. evidence: a phrase with numbers and steps. advice: a
    sentence, what to try.

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
    """The means of two spans of a series, the standard error of their difference, and the steps of
    each in words.
    """

    before: float
    after: float
    error: float
    spans: tuple[str, str]

    @property
    def difference(self) -> float:
        return self.after - self.before

    def is_rise(self, errors: float, least: float = 0.0) -> bool:
        """Return whether it is beyond the noise by so many standard errors, and large enough to
        matter.
        """
        return self.difference > errors * self.error and self.difference >= least

    def is_fall(self, errors: float, least: float = 0.0) -> bool:
        """Return the same, downwards; `least` is positive."""
        return -self.difference > errors * self.error and -self.difference >= least

    def __str__(self) -> str:
        first, last = self.spans
        return f"{self.before:.3g} at {first}, {self.after:.3g} at {last}"


def change_between(series: pd.Series, before: slice, after: slice) -> Change:
    """Return the change between two slices of a series whose index is the step.

    The noise is taken from the differences of neighbouring rows, which a trend hardly touches:
    variance = mean of the squared differences / 2 (J. von Neumann et al., Annals of Mathematical
    Statistics 12, 1941).

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
    """Return the mean less its noise: of two groups a step, half are often dead by luck."""
    return float(shares.mean() - LIKELY * shares.std() / len(shares) ** 0.5)


class NotLogged(Exception):
    """A rule asked for a column that the history lacks, or that has too few numbers."""


class Signals:
    """The rows of a history as the rules of the diagnosis ask for them.

    rows: the logged steps, indexed by step. enough: whether they are enough to tell a trend from
    noise. window: the rows at the end that count as now. correctness, format: the first reward that
    judges the answer, and the first that judges the form, or None. success: correctness, or the
    total if no reward judges the answer. better: whether the success has likely risen. share_right:
    correctness now; None if it is unknown, or not of unit scale and so no share. solved: whether so
    many are right that little is left to gain. unweighted: whether the rewards are measured and
    weigh 0, as where a teacher's KL is all that teaches.
    """

    def __init__(self, history: pd.DataFrame):
        # An evaluation's row is no step.
        of_steps = [column for column in ("reward", "loss", "grad_norm") if column in history]
        rows = history.dropna(how="all", subset=of_steps) if of_steps else history
        self.rows = rows.set_index("step").sort_index() if "step" in rows else rows
        self.enough = len(rows) >= MIN_ROWS
        self.window = min(LONGEST, max(SHORTEST, len(rows) // 4))

        # Which reward judges the answer, and which the form? Their names say it.
        form = self._rewards_named(FORMAT)
        judges = self._rewards_named(STRICT) + self._rewards_named(LENIENT)
        judges = [name for name in judges if name not in form]
        self.correctness = self.optional(f"rewards/{judges[0]}/mean") if judges else None
        self.format = self.optional(f"rewards/{form[0]}/mean") if form else None

        # How well does it do?
        total = self.optional("reward")
        self.success = total if self.correctness is None else self.correctness
        self.better = self.risen(self.success)
        self.share_right = None
        if self.correctness is not None and self.correctness.between(0, 1).all():
            self.share_right = float(self.last(self.correctness).mean())
        self.solved = self.share_right is not None and self.share_right >= SOLVED

        # Do the rewards teach, or are they only measured?
        means = self.rows.filter(regex=r"^rewards/.*/mean$").fillna(0)
        self.unweighted = total is not None and not total.any() and bool(means.any(axis=None))

    def _rewards_named(self, words: Sequence[str]) -> list[str]:
        """Return the rewards that have one of these words in their names."""
        names = reward_names(self.rows)
        return [name for name in names if any(word in name.lower() for word in words)]

    def series(self, column: str, least: int = 1) -> pd.Series:
        """Return the column without its gaps. Raise NotLogged if fewer than `least` finite values
        were logged.
        """
        values = pd.to_numeric(self.rows.get(column, pd.Series(dtype=float)), errors="coerce")
        values = values[np.isfinite(values.to_numpy())]
        if len(values) < least:
            raise NotLogged(column)
        return values

    def optional(self, column: str) -> pd.Series | None:
        """Return the column without its gaps, or None if it was not logged."""
        try:
            return self.series(column)
        except NotLogged:
            return None

    def last(self, series: pd.Series) -> pd.Series:
        """Return the rows that count as now."""
        return series.iloc[-self.window :]

    def change(self, series: pd.Series, first: int | None = None) -> Change:
        """Return the change from the first window to the last; or from fewer first rows, for what
        is over soon and for series with little noise.
        """
        return change_between(series, slice(0, first or self.window), slice(-self.window, None))

    def risen(self, series: pd.Series | None) -> bool:
        """Return whether it is likely higher than in the first window, or than in fewer first rows
        if it was quick.
        """
        if series is None or len(series) < 2 * SHORTEST:
            return False
        firsts = (SHORTEST, MIN_ROWS, self.window)
        return any(self.change(series, rows).is_rise(LIKELY) for rows in firsts)

    def since_best(self, series: pd.Series) -> tuple[slice, slice]:
        """Return the window in which the series was highest, and the last one."""
        means = series.rolling(min(self.window, len(series))).mean()
        end = int(np.nanargmax(means.to_numpy())) + 1
        return slice(max(0, end - self.window), end), slice(-self.window, None)

    def reward_spread(self) -> float:
        """Return the spread of the total reward, in which its changes are measured: at first, or
        over all steps if that is more. Raise NotLogged without it.
        """
        std = self.series("reward_std")
        return max(std.iloc[:SHORTEST].mean(), std.mean())


def apply(rule: Callable[[Signals], Finding | None], signals: Signals) -> Finding | None:
    """Return what a rule finds. If the columns that it asks for were not logged, it finds nothing:
    what was not logged is no evidence (Unsloth on a GPU logs no entropy, TRL without beta no KL).
    """
    try:
        return rule(signals)
    except NotLogged:
        return None
