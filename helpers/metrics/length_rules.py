"""Diagnosis rules about the length of completions: limits, ends of turns, growth without gain."""

import numpy as np

from helpers.metrics.signals import (
    CERTAIN,
    LIKELY,
    MIN_WINDOW,
    MOST,
    NEARLY_ALL,
    NOTABLE,
    Finding,
    Signals,
    apply,
    change_between,
    lower_bound,
    span,
)

MANY_CLIPPED = 1 / 3  # of the completions


def clipped_completions(signals: Signals) -> Finding | None:
    """Report that many completions are cut off at the limit: clipped_ratio above a third.

    In the first steps, it must be above a half.
    """
    # 1. Many completions must be cut off now, for certain, and not only be counted as such.
    ratio = signals.series("completions/clipped_ratio", MIN_WINDOW)
    last = signals.last_tenth(ratio)
    now = last.mean()
    many = MANY_CLIPPED if signals.enough_rows else MOST
    if lower_bound(last) < many or apply(end_token, signals):
        return None

    # 2. A policy that learns to stop in time needs no help.
    falls = signals.enough_rows and signals.change(ratio).is_fall(LIKELY, NOTABLE)
    severity = "warning"
    if now >= NEARLY_ALL:
        severity = "critical"
    elif falls and now < MOST:
        severity = "info"

    # 3. Is the cause that the policy ran away from the reference? It then writes noise that has no
    # end, and few completions were cut off at the start.
    kl = signals.optional("kl")
    is_far = kl is not None and kl.tail(9).median() > 2  # nats per token; see `high_kl`
    few_at_the_start = ratio.iloc[:MIN_WINDOW].mean() < many
    amount = "Most" if now > MOST else "Many"
    return Finding(
        severity,
        "clipped",
        f"{amount} completions are cut off at the limit, before an answer can be read.",
        f"{now:.0%} at {span(last)}",
        "Raise max_completion_length; if the texts ramble, reward brevity.",
        cause="kl" if is_far and few_at_the_start else "",
    )


def end_token(signals: Signals) -> Finding | None:
    """Report completions that count as cut off although most are far shorter than the limit: their
    end token is not among those that the trainer knows.
    """
    clipped = signals.last_window(signals.series("completions/clipped_ratio", MIN_WINDOW))
    longest = signals.series("completions/max_length", MIN_WINDOW)
    now = signals.last_window(signals.series("completions/mean_length", MIN_WINDOW)).mean()
    # If these completions were cut off, they would be as long as the limit, and the mean length
    # would be at least this.
    least = clipped.mean() * longest.max()
    if clipped.mean() < NEARLY_ALL or now >= NEARLY_ALL * least:
        return None
    return Finding(
        "critical",
        "end_token",
        "Completions count as cut off although they end before the limit.",
        f"{clipped.mean():.0%} at {span(clipped)}, with a mean length of {now:.0f} of "
        f"{longest.max():.0f} tokens",
        "The token that ends a turn of this template is not an end token of the tokenizer: set "
        "tokenizer.eos_token to it before training.",
    )


def changed_length(signals: Signals) -> Finding | None:
    """Report completions twice or half as long as they were, and no better since: a slope in the
    length over a flat success.
    """
    length = signals.series("completions/mean_length", 2 * MIN_WINDOW)
    if length.min() <= 0:
        return None
    # 1. Has the length halved since the start, or doubled since it was last near its shortest?
    # Smaller changes are normal: the pocket model's length changes by half when it learns a format.
    # Logarithms turn factors into differences.
    log = np.log(length)
    shortest = log.rolling(MIN_WINDOW).mean().min()
    since_start = (slice(0, MIN_WINDOW), slice(-signals.window, None))
    since_shortest = signals.since_below(log, shortest + np.log(1.25))
    if change_between(log, *since_start).is_fall(CERTAIN, np.log(2)):
        word = "shorter"
        windows = since_start
        advice = "Read some: is the reasoning still there?"
    elif change_between(log, *since_shortest).is_rise(CERTAIN, np.log(2)):
        word = "longer"
        windows = since_shortest
        advice = "Find the reward that pays for length, and read some completions."
    else:
        return None

    # 2. It is no fault if success rose between the same windows, and not in training alone.
    is_known = signals.success is not None and signals.generalisation_gap is None
    if is_known and change_between(signals.success, *windows).is_rise(LIKELY, signals.notable):
        return None
    return Finding(
        "warning",
        "length",
        f"Completions have become much {word}, but no better.",
        f"mean length {change_between(length, *windows)} (tokens)",
        advice,
    )


def equal_lengths(signals: Signals) -> Finding | None:
    """Explain a flat line where lengths should differ: the shortest and the longest completion of
    every step have the same length.
    """
    shortest = signals.series("completions/min_length", MIN_WINDOW)
    longest = signals.series("completions/max_length", MIN_WINDOW)
    if not shortest.equals(longest):
        return None
    # If all are cut off, all have the length of the limit.
    clipped = signals.optional("completions/clipped_ratio")
    if clipped is not None and clipped.mean() >= NEARLY_ALL:
        return None
    return Finding(
        "info",
        "equal_lengths",
        "All completions of a step have the same length.",
        f"completions/min_length is completions/max_length at {span(longest)}",
        "Either padding is counted as text, or every answer is the same: read some completions.",
    )
