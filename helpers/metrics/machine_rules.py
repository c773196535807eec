"""Diagnosis rules about the machinery: silent rewards, numerics, engine, time, memory."""

import numpy as np
import pandas as pd

from helpers.metrics.history import reward_names
from helpers.metrics.signals import (
    CERTAIN,
    MIN_ROWS,
    MIN_WINDOW,
    NEARLY_ALL,
    Finding,
    Signals,
    span,
)


def silent_reward(signals: Signals) -> Finding | None:
    """Report rewards that were logged, but without a number at any step."""
    names = reward_names(signals.rows)
    silent = [name for name in names if signals.optional(f"rewards/{name}/mean") is None]
    if not silent or len(signals.rows) < MIN_WINDOW:
        return None
    return Finding(
        "warning",
        "silent",
        "A reward has never logged a number.",
        f"{', '.join(silent)} at {span(signals.rows)}",
        "If it is None for all rows, check which rows it is meant for, or remove it. Early "
        "versions of TRL log nan for a batch in which one completion scores None.",
    )


UNJUDGED = 0.05  # share of a batch


def unjudged_programs(signals: Signals) -> Finding | None:
    """Report that many programs in a batch got no verdict, because the sandbox does not support
    something they use, or because time ran out.
    """
    shares = signals.rows.filter(regex="/(unsupported|not_started|out_of_time)$")
    highest = shares.max()
    if not highest.max() > UNJUDGED:  # `not >` is also true for nan, if nothing was logged
        return None
    column = highest.idxmax()
    return Finding(
        "warning",
        "unjudged",
        "Many programs or answers were not judged, and score None or nothing.",
        f"{column} is {highest[column]:.0%} of the batch at step {shares[column].idxmax()}",
        "Unsupported programs need the sandbox sandlock, on Linux 6.12. If time ran out, read such "
        "completions: most of their programs never end.",
    )


def not_a_number(signals: Signals) -> Finding | None:
    """Report that the loss or the gradient norm is or was nan or infinite."""
    rows = signals.rows
    finite = np.ones(len(rows), dtype=bool)  # of each row: whether both columns are
    for column in ("loss", "grad_norm"):
        if column in rows:
            finite &= np.isfinite(pd.to_numeric(rows[column], errors="coerce").to_numpy())
    if finite.all():
        return None
    steps = rows.index[~finite]
    evidence = (
        f"{len(steps)} of {len(rows)} rows, the first at step {int(steps[0])}, the last at step "
        f"{int(steps[-1])}"
    )
    if not finite[-1]:
        return Finding(
            "critical",
            "gradient",
            "The loss or the gradient is NaN or infinite, and nothing is learned any more.",
            evidence,
            "Train again with a lower learning rate, or with bf16 if it was fp16.",
        )
    # In fp16, the loss scaler searches for its scale in the first ten rows, and skips steps.
    return Finding(
        "info" if finite[10:].all() else "warning",
        "gradient",
        "The loss or the gradient was NaN or infinite for a while, and has recovered.",
        evidence,
        "In fp16 a few such steps at the start are the loss scaler's search; if more come, use "
        "bf16 or a lower rate.",
    )


ROUNDED_KL = 1e-6  # nats per token


def no_gradient(signals: Signals) -> Finding | None:
    """Report that the weights do not change: the gradient and the KL are always 0, although rewards
    differ within groups.
    """
    norms = signals.series("grad_norm", MIN_WINDOW)
    kl = signals.optional("kl")
    if norms.any():
        return None
    # A KL of rounding errors is 0, too.
    if kl is not None and kl.abs().max() > ROUNDED_KL:
        return None
    # A gradient of 0 is right if no group differs, or if the differences have no weight.
    if signals.series("frac_reward_zero_std").mean() >= NEARLY_ALL or signals.unweighted:
        return None
    # If no KL was logged, a rising reward shows that the norm was not measured.
    if kl is None and signals.has_risen(signals.success):
        return None
    kl_is_exactly_0 = kl is not None and not kl.any()
    subject = "grad_norm and kl are" if kl_is_exactly_0 else "grad_norm is"
    return Finding(
        "critical",
        "no_gradient",
        "No gradient reaches the weights, although rewards differ.",
        f"{subject} exactly 0 at {span(norms)}",
        "Check that the adapter is trainable: `PeftModel.from_pretrained(…, is_trainable=True)`, "
        "and that `model.print_trainable_parameters()` gives more than 0.",
    )


SPIKE = 8.0  # times the norm that nine of ten steps stay below


def gradient_spikes(signals: Signals) -> Finding | None:
    """Report single steps whose gradient norm is far above all others: needles in its curve."""
    norms = signals.series("grad_norm", MIN_ROWS)
    usual = norms.quantile(0.9)
    spikes = norms[norms > SPIKE * usual]
    if usual == 0 or len(spikes) < 3:
        return None
    return Finding(
        "warning",
        "gradient_spikes",
        "A few steps have a gradient many times as large as all others.",
        f"{len(spikes)} of {len(norms)} rows, the largest {spikes.max():.3g} at step "
        f"{int(spikes.idxmax())}, where nine of ten stay below {usual:.2g}",
        "Set max_grad_norm (0.1 to 1.0), which clips them, and read the completions of these "
        "steps.",
    )


# Nats per token. Rounding to bf16 alone causes 0.01 to 0.04 (huggingface/trl issue 6789).
SAMPLING_GAP = 0.08


def sampling_gap(signals: Signals) -> Finding | None:
    """Report that the sampling engine and the trained model differ by more than rounding explains.

    TRL logs the difference if vllm_importance_sampling_correction is on.
    """
    gap = signals.series("sampling/sampling_logp_difference/mean", MIN_WINDOW)
    last = signals.last_window(gap)
    if last.mean() - CERTAIN * last.std() / len(last) ** 0.5 <= SAMPLING_GAP:
        return None
    return Finding(
        "warning",
        "sampling",
        "The engine that samples and the model that trains differ by more than rounding.",
        f"their log-probabilities of a token differ by {last.mean():.2g} nats on average, at "
        f"{span(last)}",
        "Check that the engine gets the new weights after each step, compare precision and "
        "temperature, and sample with top_p=1, top_k=0 and no min_p.",
    )


SLOWER = 1.3  # times the seconds per token at the start


def slower_steps(signals: Signals) -> Finding | None:
    """Explain steps that take longer and longer although completions do not: a slope in step_time.

    An info, because another process on the machine can cause it.
    """
    seconds = signals.series("step_time")
    # What would each step take if its completions had the mean length of the run?
    length = signals.optional("completions/mean_length")
    if length is not None:
        seconds = (seconds / length * length.mean()).dropna()
    if len(seconds) < MIN_ROWS:  # the two may be logged at different steps
        return None
    seconds = seconds.iloc[1:]  # the first step compiles and allocates
    # A slope, and no single slow stretch: each third is at least as slow as the one before.
    third = len(seconds) // 3
    levels = [seconds.iloc[start : start + third].median() for start in (0, third, 2 * third)]
    change = signals.change(seconds)
    is_rise = change.is_rise(CERTAIN, (SLOWER - 1) * change.before)
    if levels != sorted(levels) or not is_rise:
        return None
    return Finding(
        "info",
        "slower",
        "Steps become slower, and longer completions do not explain it.",
        f"step_time at equal length {change} (seconds)",
        "Check whether memory grows or is swapped, and what else runs on the machine.",
    )


def growing_memory(signals: Signals) -> Finding | None:
    """Report memory that grows until the run ends with an error: a slope without a plateau."""
    for column in signals.rows.filter(regex=r"(?i)memory").columns:
        memory = signals.optional(column)
        if memory is None or len(memory) < MIN_ROWS:
            continue
        # The first fifth of a run reserves memory for its longest completions.
        memory = memory.iloc[len(memory) // 5 :]
        # Its mean must grow by a fifth, and its peak by a tenth: on a plateau, both halves of the
        # run have the same peak.
        change = signals.change(memory)
        mean_grows = change.is_rise(CERTAIN, 0.2 * change.before)
        peak_grows = memory.max() > 1.1 * memory.iloc[: len(memory) // 2].max()
        if mean_grows and peak_grows:
            return Finding(
                "warning",
                "memory",
                "The memory in use grows.",
                f"{column} {change}",
                "Look for tensors or texts that a reward or a callback keeps; a checkpoint and "
                "--resume continue with fresh memory.",
            )
    return None
