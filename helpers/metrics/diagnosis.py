"""The rules that read a training history: what goes wrong in GRPO, the numbers that show it, and
what to try.

A rule whose columns are absent says nothing, or nothing worse: what was not logged is no evidence
(Unsloth on a GPU logs no entropy, TRL without beta no KL). With few rows, only what cannot be a
matter of luck is judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from helpers.metrics import tool_rules
from helpers.metrics.findings import MOST, MOVE, NEARLY_ALL, SEVERITIES, Finding, surely
from helpers.metrics.signals import (
    CERTAIN,
    CHOSEN,
    LIKELY,
    MIN_ROWS,
    SHORTEST,
    Signals,
    compare,
    span,
)

# of the reward's spread: a training that has certainly gained less has not begun to learn
FLAT = 0.25
FALL = 0.25  # of the same spread: less is what easier and harder questions make of it
# of 1: beyond what drifts; and so often kept that a lacking answer is no matter of form
FORM_GAIN, FORM_LEARNED = 0.2, 0.8

SPREAD_LOST = 0.3  # share of groups: from a start with signal, not one that never had any
# rows whose median is the level: four spikes of a heavy-tailed estimate do not move it
KL_WINDOW = 9
# nats a token: the reference finds a sampled token 1.6 times less likely; healthy pocket runs stay
# below 0.1
KL_HIGH = 0.5
# nats a token: 7 times less likely; what is written is no longer the reference's language
KL_RUNAWAY = 2.0
# times the median, and nats: what a reader notices in the plot and asks about
KL_SPIKE, KL_SEEN = 5.0, 0.1
# from block to block, three times, not slowing by half: from zero, a line has 3, 1.7, 1.4, a square
# 9, 2.8, 2
KL_GROWTH = 1.5
LENGTH_FACTOR = 2.0  # doubled or halved: learning a shape changes the pocket model's length by half
ENTROPY_LEFT = 0.25  # of the first rows': below it, samples of one question hardly differ
# of the first rows': a group that agrees by writing noise has more than before, one collapsed has
# less
ENTROPY_HALVED = 0.5
ROOM = 0.75  # correctness: above it the entropy was spent on being right; below, it is missed
# times the median gradient norm: healthy pocket runs stay within 6, but for a single step of 11
SPIKE = 10.0
SPIKES = 3  # one or two are cut down by max_grad_norm and leave no trace
# nats a token: rounding to bf16 alone makes 0.01 to 0.04 (huggingface/trl issue 6789)
GAP_NOISE = 0.05
# of the first rows': less is what a policy's falling or rising entropy makes of the rounding
GAP_FACTOR = 2.0
GAP_HIGH = 0.08  # nats a token: twice the most that rounding makes
RATIO_LOW = 0.98  # rounding leaves the ratio's mean within 0.002 of 1 (the same issue)
# of the gap: rounding and old weights err both ways; tokens left out make every ratio smaller
ONE_SIDED = 0.5
# rows in which fp16's loss scaler looks for its scale, skipping steps whose gradient overflows
WARM_UP = 10


def diagnose(
    history: pd.DataFrame, *, correctness: str | None = None, formats: Sequence[str] = ()
) -> list[Finding]:
    """What a training history shows, most severe first.

    history: one row a logged step under TRL's column names, as `read_metrics` returns it or as
    `DataFrame(trainer.state.log_history)`; columns and values may be absent. correctness, formats:
    the rewards that judge the answer and the form, where their names do not say so
    (`accuracy_reward` and `soft_format_reward` do). ValueError where no such reward was logged. A
    history in which all is well gives findings of severity "info", or none.
    """
    signals = Signals(history, correctness, formats)
    n = len(signals.rows)
    rules = _RULES if signals.enough else _AT_ONCE
    found = [finding for rule in rules if n for finding in rule(signals)]
    if not signals.enough:
        what = "There are too few steps to tell whether it learns."
        evidence = f"{n} logged, and below {MIN_ROWS} a trend cannot be told from noise"
        advice = "Train on; until then only what cannot be a matter of luck is judged."
        found.append(
            Finding(
                "info", "too_few_steps", what, evidence, advice, span(signals.rows) if n else (0, 0)
            )
        )
    return sorted(found, key=lambda finding: SEVERITIES.index(finding.severity))


# --- What is judged at once -----------------------------------------------------------------------


def _finite(rows: pd.DataFrame) -> np.ndarray:
    """Which rows have a loss and a gradient norm that are numbers."""
    logged = [
        pd.to_numeric(rows[column], errors="coerce")
        for column in ("loss", "grad_norm")
        if column in rows
    ]
    return np.isfinite(np.array(logged)).all(axis=0) if logged else np.ones(len(rows), dtype=bool)


def _numbers(signals: Signals) -> Iterator[Finding]:
    rows, finite = signals.rows, _finite(signals.rows)
    if finite.all():
        return
    first, last = span(rows[~finite])
    evidence = (
        f"{np.sum(~finite)} of {len(rows)} rows, the first at step {first}, the last at step {last}"
    )
    if not finite[-1]:
        what = "The loss or the gradient is not a number, and nothing is learned any more."
        advice = (
            "Go back to a checkpoint before it, with a lower learning rate, or with bf16 if "
            "it was fp16."
        )
        yield Finding("critical", "gradient", what, evidence, advice, (first, last))
    else:
        what = "The loss or the gradient was not a number, and is one again."
        advice = (
            "In fp16 a few such steps at the start are the loss scaler's search; if more "
            "come, use bf16 or a lower rate."
        )
        severity = "info" if finite[WARM_UP:].all() else "warning"
        yield Finding(severity, "gradient", what, evidence, advice, (first, last))


def _sampling(signals: Signals) -> Iterator[Finding]:
    """The engine that samples beside the model that trains: tokens that it leaves out; else a
    growing, else a wide gap.

    From what TRL logs with vllm_importance_sampling_correction; the ratios are those after
    truncation or masking.
    """
    gap = signals.series("sampling/sampling_logp_difference/mean")
    if gap is None or len(gap) < SHORTEST:
        return
    last, change, ratio = signals.last(gap), signals.early_change(gap), _cut_ratio(signals)
    if ratio is not None:
        first, end = span(last)
        what = "The engine leaves tokens out that the trainer counts, so every gradient is biased."
        evidence = (
            f"the importance ratio's mean is {ratio:.3g} and would be 1, the gap "
            f"{last.mean():.2g} nats a token, "
            f"at steps {first} to {end}"
        )
        advice = (
            "Sample with top_p=1, top_k=0 and no min_p: each of them leaves out what is unlikely."
        )
        yield Finding("warning", "sampling", what, evidence, advice, (first, end))
    elif (
        signals.enough
        and change.is_rise(CERTAIN)
        and change.after >= max(GAP_NOISE, GAP_FACTOR * change.before)
    ):
        what = "The engine that samples and the model that trains drift apart."
        evidence = f"their log-probabilities of a token differ by {change} (nats, in the mean)"
        advice = (
            "See that the engine gets the new weights after each step; else lower the "
            "learning rate or raise its precision."
        )
        yield Finding("warning", "sampling", what, evidence, advice, change.steps)
    elif last.mean() - CERTAIN * last.std() / len(last) ** 0.5 > GAP_HIGH:
        first, end = span(last)
        what = "The engine that samples and the model that trains differ by more than rounding."
        evidence = (
            f"their log-probabilities of a token differ by {last.mean():.2g} nats in the "
            f"mean, at steps {first} to {end}"
        )
        advice = (
            "Compare their weights, precision and temperature, and sample with top_p=1, "
            "top_k=0 and no min_p."
        )
        yield Finding("warning", "sampling", what, evidence, advice, (first, end))


def _cut_ratio(signals: Signals) -> float | None:
    """The importance ratio's mean now, where tokens that are never sampled must explain why it is
    below 1; else None.

    Where every token can be sampled, the mean of p / q is 1 for any p and q. TRL logs the ratios of
    tokens, or by default those of completions, and does not say which. Of tokens, no ratio's log is
    above the widest gap, and that of their mean no further from 0 than the mean gap (Jensen). A
    completion's adds up all its gaps: what goes both ways cancels, what was cut does not.
    """
    gap, widest = (
        signals.series(f"sampling/sampling_logp_difference/{name}") for name in ("mean", "max")
    )
    ratio, largest = (
        signals.series(f"sampling/importance_sampling_ratio/{name}") for name in ("mean", "max")
    )
    columns = [gap, widest, ratio, largest, signals.series("completions/mean_length")]
    if any(column is None or len(column) < SHORTEST for column in columns):
        return None
    gap, widest, ratio, largest, length = map(signals.last, columns)
    log_ratio, log_largest = np.log(
        np.maximum([ratio.mean(), largest.median()], np.finfo(np.float32).tiny)
    )
    of_tokens = log_largest <= widest.median() and -log_ratio <= gap.mean()
    one_sided = -log_ratio / (1 if of_tokens else length.mean()) >= ONE_SIDED * gap.mean()
    low = ratio.mean() + CERTAIN * ratio.std() / len(ratio) ** 0.5 < RATIO_LOW
    return float(ratio.mean()) if low and one_sided else None


def _kl_level(signals: Signals) -> pd.Series | None:
    kl = signals.series("kl")
    return (
        None
        if kl is None or len(kl) < SHORTEST
        else kl.rolling(KL_WINDOW, min_periods=SHORTEST).median().dropna()
    )


def _kl(signals: Signals) -> Iterator[Finding]:
    """The level of the KL; else its growth; else what is over, or was a single spike."""
    level = _kl_level(signals)
    if level is None:
        return
    now, high = level.iloc[-1], level[level > KL_HIGH]
    if now > KL_HIGH:
        runaway = now > KL_RUNAWAY
        what = "The policy has run away from the reference model." if runaway else "The KL is high."
        # after the last row that was not high
        steps = span(level[level.where(level <= KL_HIGH).bfill().isna()])
        evidence = (
            f"{now:.3g} nats a token, a running median, which is above {KL_HIGH:g} at "
            f"steps {steps[0]} to {steps[1]}"
        )
        advice = (
            "Lower the learning rate first, then raise beta: so far away, a policy forgets "
            "what it could do."
        )
        yield Finding("critical" if runaway else "warning", "kl", what, evidence, advice, steps)
        return
    growth = _kl_growth(signals.series("kl"), signals.window) or _kl_growth(
        signals.series("kl"), SHORTEST
    )
    if growth:
        yield growth
    elif len(high):
        first, last = span(high)
        evidence = (
            f"{high.max():.3g} nats a token at its height, between steps {first} and "
            f"{last}, and {now:.2g} now"
        )
        advice = "If the reward suffered there, lower the learning rate."
        yield Finding(
            "info", "kl", "The KL was high and has come back.", evidence, advice, (first, last)
        )
    else:
        yield from _kl_spikes(signals.series("kl"))


def _kl_growth(kl: pd.Series, block: int) -> Finding | None:
    """Where the medians of the last four blocks of rows multiply, at a pace that passes KL_HIGH
    within two more blocks.
    """
    if len(kl) < 4 * block:
        return None
    recent = kl.iloc[-4 * block :]
    medians = np.maximum(np.median(recent.to_numpy().reshape(4, block), axis=1), 1e-9)
    factors = medians[1:] / medians[:-1]
    slowing = factors.min() < KL_GROWTH or factors[-1] < factors[0] / 2
    if slowing or medians[-1] < KL_SEEN or medians[-1] * factors[-1] ** 2 < KL_HIGH:
        return None
    (first, last), listed = span(recent), ", ".join(f"{value:.2g}" for value in medians)
    evidence = (
        f"{listed} nats a token, the medians of {block} rows each, at steps {first} to {last}"
    )
    advice = "Lower the learning rate or raise beta before the policy runs away."
    return Finding("warning", "kl", "The KL grows exponentially.", evidence, advice, (first, last))


def _kl_spikes(kl: pd.Series) -> Iterator[Finding]:
    spikes = kl[kl > max(KL_SPIKE * kl.median(), KL_SEEN)]
    if len(spikes):
        evidence = (
            f"{len(spikes)} of {len(kl)} rows, the largest {spikes.max():.2g} at step "
            f"{int(spikes.idxmax())}, over a median of "
            f"{kl.median():.2g}"
        )
        advice = (
            "One token that the reference finds far likelier makes one: the estimate exp(d) "
            "- d - 1 has a heavy tail."
        )
        yield Finding(
            "info",
            "kl",
            "Single steps have a high KL, which is no drift.",
            evidence,
            advice,
            span(spikes),
        )


def _clipped(signals: Signals) -> Iterator[Finding]:
    series = signals.series("completions/clipped_ratio")
    if series is None or len(series) < SHORTEST:
        return
    last = signals.last(series)
    if surely(last) >= MOST:
        first, end = span(last)
        severity = "critical" if last.mean() >= NEARLY_ALL else "warning"
        what = "Most completions are cut off at the limit, before an answer can be read."
        advice = (
            "Raise max_completion_length or reward brevity; if the text is noise, lower the "
            "learning rate."
        )
        yield Finding(
            severity,
            "clipped",
            what,
            f"{last.mean():.0%} at steps {first} to {end}",
            advice,
            (first, end),
        )


def _agreement(signals: Signals) -> Iterator[Finding]:
    """Groups whose completions all score the same: solved, collapsed on one wrong answer, or
    without a signal.

    From frac_reward_zero_std: reward_std is the spread over the whole batch, and says nothing about
    a group.
    """
    share = signals.series("frac_reward_zero_std")
    if share is None or len(share) < SHORTEST or (not signals.enough and share.min() < 1):
        return
    last, right = signals.last(share), signals.share_right
    start, now, steps = share.iloc[:SHORTEST].mean(), last.mean(), span(last)
    if surely(last) < MOST:
        return
    evidence = (
        f"{now:.0%} of the groups at steps {steps[0]} to {steps[1]}, {start:.0%} at the start"
    )
    evidence += "" if right is None else f", with correctness {right:.2f}"
    # At least so many groups agree and are right: all but those that hold the wrong completions.
    good = (
        signals.risen(signals.series("reward")) if right is None else now - (1 - right) >= now / 2
    )
    if good:
        what = "Groups agree because they are right, as at the end of a good training."
        advice = (
            "There is little left to learn from these questions: stop, or go on with harder ones."
        )
        yield Finding("info", "solved", what, evidence, advice, steps)
    elif (
        now - start >= SPREAD_LOST
        and _entropy_fell(signals, ENTROPY_HALVED)
        and (right or 0.0) <= now / 2
    ):
        what = "The policy has collapsed on answers that are not right."
        advice = (
            "Go back to a checkpoint with spread; lower the learning rate, raise temperature "
            "and beta, check the rewards."
        )
        yield Finding("critical", "mode_collapse", what, evidence, advice, steps)
    else:
        what = (
            "Groups have no spread and so teach nothing, because all their completions score "
            "the same."
        )
        advice = (
            "Check that the reward is no constant; take questions that are answered "
            "sometimes, or larger groups."
        )
        yield Finding(
            "critical" if now >= NEARLY_ALL else "warning",
            "zero_spread",
            what,
            evidence,
            advice,
            steps,
        )


def _entropy_fell(signals: Signals, share: float) -> bool:
    """Whether less than so much of the first rows' entropy is left; not where too little of it was
    logged to tell.
    """
    series = signals.series("entropy")
    if series is None or len(series) < 2 * SHORTEST:
        return False
    return bool(signals.last(series).mean() < share * series.iloc[:SHORTEST].mean())


# --- What takes enough rows -----------------------------------------------------------------------


def _reward(signals: Signals) -> Iterator[Finding]:
    """The reward falls from its height, or has not risen, or moves too much for so few rows."""
    reward = signals.series("reward")
    if reward is None or len(reward) < 2 * SHORTEST or signals.spread is None:
        return
    fall = compare(reward, *signals.since_best(reward))
    if fall.is_fall(CHOSEN, max(FALL * signals.spread, 1e-9)) and _falls(signals, LIKELY):
        lower = signals.change(reward).is_fall(LIKELY)
        what = (
            "The reward has fallen below where it began."
            if lower
            else "The reward has fallen from its height."
        )
        advice = "Go back to the checkpoint before the fall, with a lower learning rate."
        yield Finding(
            "critical" if lower else "warning", "reward_fall", what, str(fall), advice, fall.steps
        )
    elif not (
        signals.solved
        or signals.risen(reward)
        or signals.risen(signals.correctness)
        or _warming_up(signals)
    ):
        yield _flat(signals, reward)


def _falls(signals: Signals, errors: float) -> bool:
    """Whether correctness falls too; a total alone may fall because AdaptiveReward takes a mastered
    reward's weight away.
    """
    series = signals.correctness
    return series is None or compare(series, *signals.since_best(series)).is_fall(errors, MOVE)


def _warming_up(signals: Signals) -> bool:
    """Whether the learning rate has been past its warm-up for fewer rows than a trend takes, or was
    not logged.
    """
    rate = signals.series("learning_rate")
    return rate is None or len(rate) - int(np.argmax(rate)) <= MIN_ROWS


def _flat(signals: Signals, reward: pd.Series) -> Finding:
    change = signals.change(reward)
    most = change.difference + CERTAIN * change.error
    evidence = (
        f"{change}, a gain of at most {max(0.0, most):.2g} where rewards spread by "
        f"{signals.spread:.2g}"
    )
    if most <= FLAT * signals.spread:
        advice = (
            "Raise the learning rate, take easier questions, and see in notebook 02 whether "
            "completions of a group differ."
        )
        return Finding(
            "warning", "no_learning", "The reward does not rise.", evidence, advice, change.steps
        )
    advice = "Train on, or take more completions a step."
    what = "The steps are too few, beside the noise, to tell whether it learns."
    return Finding("info", "too_few_steps", what, evidence, advice, change.steps)


def _hacking(signals: Signals) -> Iterator[Finding]:
    """The total rises while correctness falls, since the window where it was best."""
    if signals.correctness is None or "reward" not in signals.rows:
        return
    both = pd.DataFrame(
        {"correct": signals.correctness, "reward": signals.series("reward")}
    ).dropna()
    if len(both) < 2 * SHORTEST:
        return
    windows = signals.since_best(both["correct"])
    fall, rise = (compare(both[name], *windows) for name in ("correct", "reward"))
    if fall.is_fall(CERTAIN, MOVE) and rise.is_rise(CERTAIN):
        what = (
            "The reward rises while correctness falls, so the policy has found what pays "
            "without being right."
        )
        advice = (
            "Read completions of the last steps, find which reward pays them, and mend it or "
            "weigh correctness more."
        )
        yield Finding(
            "critical", "hacking", what, f"reward {rise}; correctness {fall}", advice, fall.steps
        )


def _format_only(signals: Signals) -> Iterator[Finding]:
    """The format was learned and correctness, given as many rows again as a trend takes, has not
    moved.
    """
    form, right = signals.format, signals.correctness
    if form is None or right is None or min(len(form), len(right)) < MIN_ROWS:
        return
    gain, change = signals.early_change(form), signals.change(right)
    learned = form.rolling(SHORTEST).mean() >= FORM_LEARNED
    since = len(form) - int(np.argmax(learned)) if learned.any() else 0
    held = gain.after >= FORM_LEARNED and gain.is_rise(CERTAIN, FORM_GAIN) and since >= MIN_ROWS
    if (
        held
        and not signals.solved
        and not signals.risen(right)
        and change.difference + CERTAIN * change.error < MOVE
    ):
        what = "The format was learned and correctness was not."
        advice = (
            "Weigh the format less, take easier questions, or a larger model: the policy may "
            "not be able to answer these."
        )
        yield Finding(
            "warning",
            "format_only",
            what,
            f"format {gain}; correctness {change}",
            advice,
            gain.steps,
        )


def _length(signals: Signals) -> Iterator[Finding]:
    series = signals.series("completions/mean_length")
    if series is None or len(series) < 2 * SHORTEST or series.min() <= 0:
        return
    ratio, change = signals.early_change(np.log(series)), signals.early_change(series)
    longer = ratio.is_rise(CERTAIN, np.log(LENGTH_FACTOR))
    if not longer and not ratio.is_fall(CERTAIN, np.log(LENGTH_FACTOR)):
        return
    better = signals.better
    what = (
        "Completions have become much longer" if longer else "Completions have become much shorter"
    )
    what += ", and better." if better else ", and no better."
    advice = (
        "Reward brevity if more and more are cut off."
        if longer
        else "Read some: is the reasoning still there?"
    )
    yield Finding(
        "info" if better else "warning",
        "length",
        what,
        f"mean length {change} (tokens)",
        advice,
        change.steps,
    )


def _entropy(signals: Signals) -> Iterator[Finding]:
    """Entropy spent before the task is solved: without it no better answer is found (Cui et al.,
    arXiv 2505.22617).
    """
    entropy, right = signals.series("entropy"), signals.share_right
    if not _entropy_fell(signals, ENTROPY_LEFT) or (right or 0.0) >= ROOM:
        return
    if right is None and signals.risen(signals.series("reward")):  # it may be solved
        return
    if right is not None and signals.improving(signals.correctness):
        return
    change = signals.early_change(entropy)
    what = "The entropy has collapsed, and the policy no longer gets better."
    advice = (
        "Raise the temperature or beta, lower the learning rate, or raise epsilon_high so "
        "that rare tokens can gain."
    )
    yield Finding("warning", "entropy", what, f"{change} (nats a token)", advice, change.steps)


def _spikes(signals: Signals) -> Iterator[Finding]:
    norms, agreed = signals.series("grad_norm"), signals.series("frac_reward_zero_std")
    if norms is None or agreed is None or not _finite(signals.rows).all():
        return
    # Where all groups agree only the KL has a gradient, and beside that every other step would be a
    # spike.
    usual = norms[agreed.reindex(norms.index) < 1].median()
    spikes = norms[norms > SPIKE * usual]
    if len(spikes):
        evidence = (
            f"{len(spikes)} of {len(norms)} rows above {SPIKE:g} times the median of {usual:.2g}, "
            "the largest "
            f"{spikes.max():.3g} at step {int(spikes.idxmax())}"
        )
        often = len(spikes) >= SPIKES
        advice = (
            "Lower the learning rate or max_grad_norm."
            if often
            else "One or two are cut down by max_grad_norm: leave it."
        )
        what = "The gradient norm has spikes."
        yield Finding(
            "warning" if often else "info", "gradient", what, evidence, advice, span(spikes)
        )


def _loss(signals: Signals) -> Iterator[Finding]:
    loss, level = signals.series("loss"), _kl_level(signals)
    if loss is None or len(loss) < 2 * SHORTEST or (level is not None and level.iloc[-1] > KL_HIGH):
        return
    change = signals.change(loss)
    if change.is_rise(CERTAIN):
        what = "The loss rises, which is healthy."
        advice = (
            "Advantages cancel in it but for the completions' lengths, and beta times the KL "
            "is added: judge by the reward."
        )
        yield Finding("info", "loss", what, str(change), advice, change.steps)


# In the order in which findings of one severity are told: causes before their effects.
_RULES = (
    _numbers, _sampling, _kl, _hacking, tool_rules.failing, _clipped, tool_rules.unfinished, tool_rules.calls, _agreement,
    _reward, _format_only, _length, _entropy, _spikes, _loss,
)  # fmt: skip
_AT_ONCE = (
    _numbers,
    _sampling,
    _kl,
    tool_rules.failing,
    _clipped,
    tool_rules.unfinished,
    _agreement,
)
