"""What the diagnosis rules read from a training history, and the findings they return.

`Signals` holds the series of a history and answers questions about them. The reward of a step is
the mean of a few groups, so it moves by chance even if nothing is learned. Each change is therefore
compared with the noise of its own series (`Change`).

A rule, such as `drift_rules.high_kl`, takes the `Signals` and returns a `Finding` or None. Read one
first, then what it uses here: the thresholds, `Finding`, `Change`, and the methods of `Signals`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from helpers.metrics.history import reward_names

# Numbers of logged steps.
MIN_ROWS = 20  # with fewer, a trend cannot be told from noise
MIN_WINDOW = 5  # enough to average out the noise
MAX_WINDOW = 100  # few enough that a late fault is noticed

# How certain a change must be, in standard errors.
LIKELY = 2.0  # the usual 95%, for rules that also ask for other signs
CERTAIN = 3.0  # by chance once in 700 comparisons; a diagnosis during training makes thousands
SINCE_BEST = 4.5  # for a fall from the best of many windows, which is partly best by chance

# Shares between 0 and 1.
SOLVED = 0.9  # of full marks: most groups can show no further gain
NOTABLE = 0.1  # the smallest change of a share that matters to a user
NEVER = 0.02  # of full marks: practically no answer is correct
MOST = 0.5  # of groups, completions, calls or episodes
NEARLY_ALL = 0.9
ROUNDING = 0.05  # a mean may lie this far outside its scale, by smoothing or rounding
WIDEST = 0.6  # standard deviation; a larger one contradicts a scale from 0 to 1

# Of the spread of the total reward. Easier and harder questions alone can move its mean this far.
SPREAD_NOTABLE = 0.25

SEVERITIES = ("critical", "warning", "info")


@dataclass(frozen=True)
class Finding:
    """One observation about a training history. `str()` returns it as a single line.

    severity: one of SEVERITIES.
    rule: a short identifier, used by at most one finding per history.
    sentence: the observation, without numbers.
    evidence: a phrase with numbers and steps.
    advice: what to try first. If another finding explains this one, it says so and advises nothing.
    cause: the rule of the finding that explains this one; "" if none does.

    >>> print(Finding("warning", "kl", "The KL is high.", "0.6 at step 9", "Lower it."))
    warning (kl): The KL is high: 0.6 at step 9. Lower it.
    """

    severity: str
    rule: str
    sentence: str
    evidence: str
    advice: str
    cause: str = ""

    def __str__(self) -> str:
        sentence = self.sentence.removesuffix(".")
        return f"{self.severity} ({self.rule}): {sentence}: {self.evidence}. {self.advice}"


@dataclass(frozen=True)
class RewardRange:
    """The values of a reward: the lowest, and how far the highest is above it.

    known: whether these are the limits of the reward; otherwise, its range is at least this wide.
    """

    lowest: float
    width: float
    known: bool


@dataclass(frozen=True)
class HeldOut:
    """The evaluations that were logged during training.

    score: the score on held-out questions, by step.
    training: the training series that it corresponds to: correctness or the total reward.
    unit: the gain of the score that corresponds to a gain of 1.0 in training; None if unknown.
    """

    score: pd.Series
    training: pd.Series
    unit: float | None


class NotLogged(Exception):
    """Raised if a column that a rule needs is missing from the history or has too few numbers."""


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

    def may_be_rise(self, least: float) -> bool:
        """Return whether the series may have risen by more than `least`: False only if that is
        unlikely.
        """
        return self.difference + CERTAIN * self.error > least

    def __str__(self) -> str:
        first, last = self.spans
        return f"{self.before:.3g} at {first}, {self.after:.3g} at {last}"


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
    first = series.iloc[before]
    last = series.iloc[after]
    variance = 0.0
    if len(series) > 1:
        variance = float(np.mean(np.diff(series.to_numpy()) ** 2)) / 2
    error = (variance * (1 / len(first) + 1 / len(last))) ** 0.5
    return Change(float(first.mean()), float(last.mean()), error, (span(first), span(last)))


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


# Words in reward names. Strict rewards ask for a correct answer and are preferred; lenient ones
# give partial credit, which can rise although no answer is correct.
STRICT = (
    "correct", "accuracy", "exact_match", "numeric", "task", "symbolic", "answer", "solution",
    "number", "math",
)  # fmt: skip
LENIENT = ("fuzzy", "proximity")
FORMAT = ("format", "tags", "xml", "structure")

# The columns of an evaluation: of TRL (`eval_reward`, `eval_rewards/NAME/mean`), of trackers
# (`eval/accuracy`) and of verl (`val-core/DATA/acc/mean@1`). Those with other words are no scores.
HELD_OUT = re.compile(
    r"(?:eval|val|valid|validation|test|held_?out|holdout)(?:-core|-aux)?[_/-](.+)", re.IGNORECASE
)
NO_SCORE = (
    "loss", "runtime", "per_second", "num_", "length", "clip", "std", "/max", "/min", "kl", "blind",
    "entropy", "time", "format", "tags", "sampling", "tools",
)  # fmt: skip


class Signals:
    """The logged steps of a training history, with the questions that the rules ask about them.

    rows: the logged steps, indexed by step.
    enough_rows: whether there are enough to tell a trend from noise.
    window: the number of rows at the end that count as the present.
    correctness, format: the mean of the first reward that judges the answer, and of the first that
        judges the format; None if there is no such reward.
    success: correctness, or the total reward if no reward judges the answer.
    share_by_step: correctness as a share of full marks; None if its scale is unknown.
    share_correct: the present share; None if it is unknown.
    solved: whether share_correct is so high that little is left to gain.
    correctness_range, format_range: the ranges of these two rewards; None if there is none.
    held_out: the evaluations; None if none of them logged a score.
    entropy_left: the present entropy as a share of the initial one; None if too few rows tell.
    unweighted: whether the total is always 0 although single rewards are not: all weights are 0, as
        in distillation from a teacher through the KL.
    """

    def __init__(self, history: pd.DataFrame):
        # 1. Separate the training steps from other rows, such as evaluations. A training step logs
        # at least one of these columns; an evaluation logs none.
        logged = history
        if "step" in history:
            logged = history.set_index("step").sort_index()
        self.rows = logged
        step_columns = [column for column in ("reward", "loss", "grad_norm") if column in history]
        if step_columns:
            self.rows = logged.dropna(how="all", subset=step_columns)
        self.enough_rows = len(self.rows) >= MIN_ROWS
        self.window = min(MAX_WINDOW, max(MIN_WINDOW, len(self.rows) // 4))

        # 2. Find the first reward that judges the format, and the first that judges the answer, by
        # words in their names. The name `answer_format_reward` has words of both, and judges the
        # format.
        names = reward_names(self.rows)
        for_format = _names_with(FORMAT, names)
        others = [name for name in names if name not in for_format]
        for_answer = _names_with(STRICT, others) + _names_with(LENIENT, others)
        self.format, self.format_range = self._mean_and_range(for_format)
        self.correctness, self.correctness_range = self._mean_and_range(for_answer)

        # 3. Measure success, in training and on held-out questions.
        total = self.optional("reward")
        self.success = total if self.correctness is None else self.correctness
        self.share_by_step = None
        self.share_correct = None
        if self.correctness_range is not None and self.correctness_range.known:
            limits = self.correctness_range
            share = (self.correctness - limits.lowest) / limits.width
            self.share_by_step = share.clip(0, 1)  # rounding may pass the limits
            self.share_correct = float(self.last_window(self.share_by_step).mean())
        self.solved = self.share_correct is not None and self.share_correct >= SOLVED
        self.held_out = self._held_out(logged)

        # 4. Measure how much of the initial entropy is left.
        self.entropy_left = None
        entropy = self.optional("entropy")
        if entropy is not None and len(entropy) >= 2 * MIN_WINDOW:
            initial = entropy.iloc[:MIN_WINDOW].mean()
            if initial > 0:
                self.entropy_left = float(self.last_tenth(entropy).mean() / initial)

        # 5. Find out whether the rewards have any weight.
        means = self.rows.filter(regex=r"^rewards/.*/mean$").fillna(0)
        total_is_zero = total is not None and not total.any()
        self.unweighted = total_is_zero and bool(means.any(axis=None))

    def _mean_and_range(self, names: list[str]) -> tuple[pd.Series | None, RewardRange | None]:
        """Return the mean of the first of these rewards, by step, and its range; None for both if
        there is no such reward, or if it never logged a number.
        """
        if not names:
            return None, None
        return self.optional(f"rewards/{names[0]}/mean"), self.range_of(names[0])

    def range_of(self, name: str) -> RewardRange | None:
        """Return the range of a reward's values, or None if no mean of it was logged."""
        mean = self.optional(f"rewards/{name}/mean")
        if mean is None:
            return None

        # 1. The limits may be logged.
        lows = self.optional(f"rewards/{name}/min")
        highs = self.optional(f"rewards/{name}/max")
        if lows is not None and highs is not None:
            width = highs.max() - lows.min()
            if width > 0:
                return RewardRange(lows.min(), width, known=True)

        # 2. They are 0 and 1 if no value contradicts that: a reward between 0 and 1 has a standard
        # deviation of at most 0.5 (0.53 in a batch of eight).
        std = self.optional(f"rewards/{name}/std")
        std_fits = std is None or std.max() <= WIDEST
        if _may_be_shares(mean) and std_fits:
            return RewardRange(0.0, 1.0, known=True)

        # 3. Otherwise, the range is at least as wide as the means have moved, and as two standard
        # deviations; medians, so that no single step decides. Without a standard deviation, a tenth
        # of it is a quarter of the total's spread, as in `notable`.
        level = mean.rolling(MIN_WINDOW, min_periods=1).median()
        moved = level.max() - level.min()
        if std is not None:
            width = 2 * std.rolling(MIN_WINDOW, min_periods=1).median().max()
        else:
            width = self._notable_total() / NOTABLE
        return RewardRange(level.min(), max(moved, width), known=False)

    def _held_out(self, logged: pd.DataFrame) -> HeldOut | None:
        """Return the evaluations; None if no score was logged, or nothing to compare it with.

        A score that judges answers is preferred to the total reward of the evaluation.
        """
        # 1. Collect the scores. What follows `eval_` (or the like) in a column's name says what a
        # score judges.
        scores = {}
        for column in logged:
            match = HELD_OUT.match(str(column))
            if match is None or any(word in match[1] for word in NO_SCORE):
                continue
            values = pd.to_numeric(logged[column], errors="coerce").dropna()
            if len(values):
                scores[match[1]] = values

        # 2. Prefer one that judges answers; of several, the one with the earliest of these words.
        for_answer = []
        for word in (*STRICT, "acc"):
            for_answer += [name for name in scores if word in name.lower()]
        if for_answer and self.success is not None:
            name = for_answer[0]
            score = scores[name]
            unit = None
            if name in logged and self.success.equals(self.optional(name)):
                unit = 1.0  # the same reward: `eval_rewards/NAME/mean` and `rewards/NAME/mean`
            elif self.share_by_step is not None and _may_be_shares(score):
                unit = 1 / self.correctness_range.width  # the score is a share of full marks
            return HeldOut(score, self.success, unit)

        # 3. Otherwise take the total reward.
        total = self.optional("reward")
        totals = [name for name in scores if "reward" in name or "score" in name]
        if not totals or total is None:
            return None
        name = "reward" if "reward" in totals else totals[0]
        # `rewards/NAME/mean` is one reward of several, so its scale may be another one.
        is_total = "reward" in name and "rewards/" not in name
        return HeldOut(scores[name], total, unit=1.0 if is_total else None)

    # --- Columns, windows of them, and changes between windows ---

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

    def last_window(self, series: pd.Series) -> pd.Series:
        """Return the present: the last `window` rows of a series."""
        return series.iloc[-self.window :]

    def last_tenth(self, series: pd.Series) -> pd.Series:
        """Return the last tenth of a series, and at least MIN_WINDOW rows. If a series climbs, this
        is nearer to its present level than the last window.
        """
        rows = max(MIN_WINDOW, min(MAX_WINDOW, len(series) // 10))
        return series.iloc[-rows:]

    def change(self, series: pd.Series, first: int | None = None) -> Change:
        """Return the change from the first rows to the last window.

        first: how many first rows; by default one window. Fewer suit a fast change, or a series
            with little noise.
        """
        return change_between(series, slice(0, first or self.window), slice(-self.window, None))

    def since_below(self, series: pd.Series, level: float) -> tuple[slice, slice]:
        """Return the window that ends where the series, by its mean over MIN_WINDOW rows, was last
        at or below this level, and the last window. Raise IndexError if it never was.
        """
        means = series.rolling(MIN_WINDOW).mean()
        last_below = int(np.flatnonzero(means <= level)[-1])
        end = last_below + 1
        return slice(max(0, end - self.window), end), slice(-self.window, None)

    def since_best(self, series: pd.Series, window: int | None = None) -> tuple[slice, slice]:
        """Return the window with the highest mean, and the last window.

        window: the number of rows; by default that of the present.
        """
        window = window or self.window
        means = series.rolling(min(window, len(series))).mean()
        best = int(np.nanargmax(means.to_numpy()))  # the last row of the best window
        end = best + 1
        return slice(max(0, end - window), end), slice(-window, None)

    # --- What several rules ask ---

    def has_risen(self, series: pd.Series | None) -> bool:
        """Return whether a series is now likely higher than at the start.

        Starts of several lengths are tried, so that a rise in the first few steps counts, too.
        """
        if series is None or len(series) < 2 * MIN_WINDOW:
            return False
        firsts = (MIN_WINDOW, MIN_ROWS, self.window)
        return any(self.change(series, rows).is_rise(LIKELY) for rows in firsts)

    def rate_is_past_its_peak(self) -> bool:
        """Return whether the learning rate passed its maximum more than MIN_ROWS rows ago. Before
        that, a policy has hardly begun. Raise NotLogged if the rate is missing.
        """
        rate = self.series("learning_rate")
        peak = int(np.argmax(rate))
        return len(rate) - peak > MIN_ROWS

    def pinsker_bound(self) -> float:
        """Return how much the mean of any reward can differ between the present policy and the
        reference, as a share of the reward's range: at most sqrt(KL / 2), with the KL of whole
        completions (Pinsker's inequality). Raise NotLogged if a KL or lengths are missing.
        """
        per_token = self.last_window(self.series("kl", MIN_ROWS)).mean()
        tokens = self.last_window(self.series("completions/mean_length", MIN_ROWS)).mean()
        per_completion = max(0.0, per_token * tokens)  # an estimate of the KL may be below 0
        return float(min(1.0, (per_completion / 2) ** 0.5))

    def reward_spread(self) -> float:
        """Return the spread of the total reward, the unit for its changes: the mean `reward_std` of
        the first steps or of all steps, whichever is larger. Raise NotLogged if it is missing.
        """
        std = self.series("reward_std")
        return max(std.iloc[:MIN_WINDOW].mean(), std.mean())

    @property
    def notable(self) -> float:
        """Return the smallest gain of success that matters: a tenth of the range of correctness,
        or a quarter of the spread of the total reward.
        """
        if self.correctness_range is not None:
            return NOTABLE * self.correctness_range.width
        return self._notable_total()

    def _notable_total(self) -> float:
        """Return the smallest gain of the total reward that matters."""
        if self.optional("reward_std") is None:
            return NOTABLE
        return SPREAD_NOTABLE * self.reward_spread()

    @cached_property
    def generalisation_gap(self) -> tuple[Change, Change] | None:
        """Return the change of the held-out score and the change in training, if training gets
        better and the held-out score likely does not; else None.
        """
        if self.held_out is None or len(self.held_out.score) < MIN_WINDOW:
            return None
        score = self.held_out.score

        # 1. Has training become better by what matters?
        training = self.change(self.held_out.training, min(self.window, MIN_ROWS))
        is_success = self.held_out.training is self.success
        notable = self.notable if is_success else self._notable_total()
        if not training.is_rise(CERTAIN, notable):
            return None

        # 2. Which change of the score matters, and how much should it have gained at least? A
        # quarter of what training gained, or, if their scales cannot be compared, half of what
        # matters. The scale of the score is then taken to end at 1, or at the highest score.
        if self.held_out.unit is not None:
            notable = notable * self.held_out.unit
            least = training.difference * self.held_out.unit / 4
        else:
            highest = 1.0 if _may_be_shares(score) else score.abs().max()
            notable = NOTABLE * highest
            least = notable / 2

        # 3. Has the score fallen from its best window? It is logged more rarely than the training,
        # so its windows have fewer rows.
        points = max(2, len(score) // 4)
        fall = change_between(score, *self.since_best(score, points))
        if fall.is_fall(SINCE_BEST, notable / 2):
            return fall, training

        # 4. Has it likely gained less than it should have?
        change = change_between(score, slice(0, points), slice(-points, None))
        if change.difference + LIKELY * change.error < least:
            return change, training
        return None


def _names_with(words: tuple[str, ...], names: list[str]) -> list[str]:
    """Return the names that contain one of these words."""
    return [name for name in names if any(word in name.lower() for word in words)]


def _may_be_shares(series: pd.Series) -> bool:
    """Return whether all values are between 0 and 1, apart from rounding."""
    return bool(series.between(-ROUNDING, 1 + ROUNDING).all())


def apply(rule: Callable[[Signals], Finding | None], signals: Signals) -> Finding | None:
    """Return the finding of a rule, or None if a column it needs was not logged.

    A missing column is not evidence of a fault: Unsloth on a GPU logs no entropy, and TRL logs no
    KL if beta is 0.
    """
    try:
        return rule(signals)
    except NotLogged:
        return None
