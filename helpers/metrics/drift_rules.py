"""Diagnosis rules about how far the policy has moved: KL, entropy, clipped updates, loss."""

import numpy as np

from helpers.metrics.signals import (
    CERTAIN,
    MIN_WINDOW,
    Finding,
    Signals,
    apply,
    lower_bound,
    span,
)

# Nats per token.
KL_HIGH = 0.5  # the reference finds a sampled token 1.6 times less likely; healthy: below 0.1
KL_RUNAWAY = 2.0  # 7 times less likely: the text no longer resembles the reference model's


def high_kl(signals: Signals) -> Finding | None:
    """Report that the KL is high at the end of the history, by its running median."""
    kl = signals.series("kl", MIN_WINDOW)
    # the running median, which up to four spikes hardly change
    level = kl.rolling(9, min_periods=MIN_WINDOW).median().dropna()
    now = level.iloc[-1]
    if now <= KL_HIGH:
        return None

    # Since when? From the row after the last low one, or from the beginning.
    low_rows = np.flatnonzero(level <= KL_HIGH)
    high_part = level.iloc[low_rows[-1] + 1 :] if len(low_rows) else level
    severity = "warning"
    sentence = "The KL is high."
    if now > KL_RUNAWAY:
        severity = "critical"
        sentence = "The policy has moved far from the reference model."
    return Finding(
        severity,
        "kl",
        sentence,
        f"{now:.3g} nats per token, a running median, which is above {KL_HIGH:g} at "
        f"{span(high_part)}",
        "Lower the learning rate first, then raise beta: this far from the reference, a policy "
        "forgets what it could do.",
    )


UNMOVED = 0.02  # of a reward's range: a gain that nobody would notice


def unmoved_policy(signals: Signals) -> Finding | None:
    """Report that the policy is still the reference model, so nothing can have been learned: a KL
    that stays on the axis.
    """
    if signals.unweighted or signals.solved or not signals.rate_is_past_its_peak():
        return None
    # A KL of exactly 0 has another cause, such as dead groups or a frozen adapter. If the reward
    # has risen nevertheless, this KL is not the distance from the reference.
    kl = signals.last_window(signals.series("kl"))
    reach = signals.pinsker_bound()
    risen = signals.change(signals.series("reward")).is_rise(CERTAIN)
    if reach >= UNMOVED or not kl.any() or risen:
        return None
    return Finding(
        "warning",
        "unmoved",
        "The policy has hardly moved, so it cannot have learned anything.",
        f"a KL of {max(0.0, kl.mean()):.1g} nats per token at {span(kl)}, with which no reward "
        f"differs from the reference model's by more than {reach:.1%} of its range",
        "Raise the learning rate tenfold, or lower beta if it is above 0.1.",
    )


# Shares of the initial entropy.
ENTROPY_LOW = 0.25  # samples for one question hardly differ
ENTROPY_GONE = 0.1  # whatever the reward does, hardly anything is left to explore with


def collapsed_entropy(signals: Signals) -> Finding | None:
    """Report that the entropy collapsed before the task was solved: a curve that falls to the axis.

    Without entropy, the policy finds no better answers (Cui et al., arXiv 2505.22617).
    """
    # A policy that is still improving may have little entropy.
    limit = ENTROPY_GONE if signals.has_risen(signals.success) else ENTROPY_LOW
    if signals.entropy_left is None or signals.entropy_left >= limit:
        return None
    change = signals.change(signals.series("entropy"), MIN_WINDOW)
    if signals.solved:
        return Finding(
            "info",
            "entropy",
            "The entropy is near 0, as is normal at the end of a good training run.",
            f"{change} (nats per token)",
            "Nothing needs to be done.",
        )
    return Finding(
        "warning",
        "entropy",
        "The entropy has collapsed, and the policy hardly explores any more.",
        f"{change} (nats per token)",
        "Lower the learning rate, raise the temperature, or add an entropy bonus (entropy_coef, "
        "such as 0.001; too large a bonus makes texts random). With several updates per round of "
        "sampling, a higher epsilon_high lets rare tokens gain.",
    )


CLIP_HIGH = 0.25  # of the tokens; usual: 0 with one update per round of sampling, else below 0.1


def clipped_updates(signals: Signals) -> Finding | None:
    """Report that many tokens are outside the clip range: a ratio that stays high or climbs."""
    ratio = signals.optional("clip_ratio/region_mean")
    if ratio is None:
        ratio = signals.optional("clip_ratio")
    if ratio is None:
        ratio = signals.series("clip_ratio/low_mean") + signals.series("clip_ratio/high_mean")
    last = signals.last_window(ratio.dropna())
    if len(last) < MIN_WINDOW or lower_bound(last) < CLIP_HIGH:
        return None
    return Finding(
        "warning",
        "clip_ratio",
        "Clipping removes a large part of every update.",
        f"{last.mean():.0%} of the tokens at {span(last)}",
        "The policy moves too far per round of sampling: lower the learning rate, or make fewer "
        "updates per round (num_iterations, steps_per_generation).",
    )


def rising_loss(signals: Signals) -> Finding | None:
    """Explain a rising loss, which is healthy unless the KL is high."""
    change = signals.change(signals.series("loss", 2 * MIN_WINDOW))
    if not change.is_rise(CERTAIN) or apply(high_kl, signals):
        return None
    return Finding(
        "info",
        "loss",
        "The loss rises, which is healthy.",
        str(change),
        "Apart from the completions' lengths, advantages cancel in it, and beta times the KL is "
        "added: judge by the reward.",
    )
