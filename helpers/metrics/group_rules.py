"""Diagnosis rules about the groups: do their completions differ, and is there anything to learn?"""

import numpy as np

from helpers.metrics.history import reward_names
from helpers.metrics.signals import (
    MIN_ROWS,
    MIN_WINDOW,
    MOST,
    NEARLY_ALL,
    NEVER,
    Finding,
    Signals,
    lower_bound,
    span,
)


def unweighted_rewards(signals: Signals) -> Finding | None:
    """Report that all rewards have weight 0: the total is always 0, but single rewards are not."""
    if not signals.unweighted or len(signals.rows) < MIN_WINDOW:
        return None
    return Finding(
        "info",
        "unweighted",
        "All rewards have weight 0: they are only logged, and the KL alone trains the policy.",
        f"the total is 0 at all {len(signals.rows)} steps, but single rewards are not",
        "With a teacher as the reference, this is intended; otherwise, give a reward a weight.",
    )


def dead_groups(signals: Signals) -> Finding | None:
    """Report that most groups are dead, because all completions in them score the same: a curve of
    frac_reward_zero_std above a half.

    The finding depends on why they score the same: their questions are solved; the policy has
    collapsed on answers that are not correct; or their answers are wrong, or unknown.

    reward_std does not show dead groups, because it is the spread over the whole batch.
    """
    # 1. Most groups must be dead for certain. In the first steps, some are dead by chance, so every
    # group must be dead.
    share = signals.series("frac_reward_zero_std", MIN_WINDOW)
    if signals.unweighted:
        return None
    if not signals.enough_rows and share.min() < 1:
        return None
    last = signals.last_window(share)
    start = share.iloc[:MIN_WINDOW].mean()
    now = last.mean()
    # With few groups per step, the last window may be too short to be certain. It is then enough
    # that the whole run is, and that the window's mean is above a half.
    if lower_bound(last) < MOST and min(now, lower_bound(share)) < MOST:
        return None
    correct = signals.share_correct
    evidence = f"{now:.0%} of the groups at {span(last)}, {start:.0%} at the start"
    if correct is not None:
        evidence += f", with correctness {correct:.2f}"

    # 2. Are they solved? Even if every wrong completion were in a dead group, more than half of the
    # completions of dead groups would be correct.
    if correct is not None and correct > 1 - now / 2:
        return Finding(
            "info",
            "solved",
            "Most groups are dead because they are correct, as at the end of a good training run.",
            evidence,
            "There is little left to learn from these questions: stop, or continue with harder "
            "ones.",
        )

    # 3. Has the policy collapsed? It then had fewer dead groups before, and has less entropy now.
    # (A policy that writes noise has more.)
    has_more_dead_groups = now - start >= 0.3
    has_less_entropy = signals.entropy_left is not None and signals.entropy_left < 0.5
    if has_more_dead_groups and has_less_entropy and not signals.has_risen(signals.success):
        return Finding(
            "critical",
            "mode_collapse",
            "The policy has collapsed on answers that are not correct.",
            evidence,
            "Train again with a lower learning rate.",
        )

    # 4. They are wrong, or unknown.
    return _unsolved_groups(signals, start, now, evidence)


def _unsolved_groups(signals: Signals, start: float, now: float, evidence: str) -> Finding:
    """Return the finding about dead groups that are neither solved nor due to a collapse.

    start, now: the share of dead groups in the first steps and in the last window.
    """
    # 1. Are almost all answers wrong?
    is_wrong = signals.share_correct is not None and signals.share_correct < NEVER
    if signals.correctness is not None:
        correctness_now = signals.last_window(signals.correctness).mean()
        is_wrong = is_wrong or correctness_now <= 0

    # 2. Does the log tell? Even without a reward that judges the answer, a total of 0 or less shows
    # that nothing is earned.
    level = signals.last_window(signals.series("reward")).mean()
    is_known = is_wrong or signals.share_correct is not None or level <= 0
    if is_wrong:
        # "teach nothing" may be false, because they may earn something else in full
        sentence = "Many groups are dead, and almost no answer is correct."
    elif is_known:
        sentence = (
            "Many groups are dead, and teach nothing, because all their completions score the same."
        )
    else:
        sentence = (
            "Many groups are dead. This log does not show whether the questions are solved or "
            "impossible."
        )

    # 3. How bad is it? If a reward of an unknown scale rose, the groups that have gone dead since
    # are probably solved.
    severity = "critical" if now >= NEARLY_ALL else "warning"
    if signals.has_risen(signals.success) and not is_known:
        severity = "info" if start < now / 2 else "warning"
    advice = _advice_for_dead_groups(signals, is_wrong, is_known, level)
    return Finding(severity, "zero_spread", sentence, evidence, advice)


def _advice_for_dead_groups(signals: Signals, is_wrong: bool, is_known: bool, level: float) -> str:
    """Return what to try first for dead groups that are not solved.

    is_wrong: whether almost no answer is correct.
    is_known: whether the log shows how many answers are correct, or that nothing is earned.
    level: the mean reward of the last window.
    """
    # 1. The reward falls and rises with the share of completions that are cut off.
    reward = signals.series("reward")
    clipped = signals.optional("completions/clipped_ratio")
    if clipped is not None and clipped.std() > 0.2 and reward.corr(clipped) < -NEARLY_ALL:
        return (
            "The reward of a step depends only on whether its completions are cut off: raise "
            "max_completion_length until none are, then ask several questions per step."
        )

    # 2. The questions are too hard.
    if is_wrong or level <= 0:
        advice = (
            "Use easier questions, a larger model, or a reward with partial credit, and read some "
            "completions."
        )
        return advice if level > 0 else f"No completion earns the reward. {advice}"

    # 3. The reward is the same at all steps.
    if np.ptp(reward) < 1e-6:
        return (
            f"All earn {reward.iloc[-1]:.3g}. If these are full marks, use harder questions; if "
            "not, the reward is a constant."
        )

    # 4. None of these.
    if not is_known:
        return (
            "Read some completions of the last steps (log_completions=True, or "
            "completions.parquet): if they are correct, use harder questions; if they are wrong, "
            "easier ones."
        )
    return "Use questions that are sometimes answered correctly, or larger groups."


def constant_reward(signals: Signals) -> Finding | None:
    """Report a reward that gave every completion at every step the same number, for at least
    MIN_ROWS steps.
    """
    for name in reward_names(signals.rows):
        mean = signals.optional(f"rewards/{name}/mean")
        std = signals.optional(f"rewards/{name}/std")
        if mean is None or std is None or min(len(mean), len(std)) < MIN_ROWS:
            continue
        differs_within_a_step = std.max() >= 1e-6
        differs_between_steps = np.ptp(mean) >= 1e-6
        if differs_within_a_step or differs_between_steps:
            continue
        value = mean.iloc[0]
        if value == 0:
            advice = (
                "If it is a penalty, keep it: nothing was wrong. If no completion can earn it, "
                "use easier questions. If some should: completions are lists of messages, and "
                "`completion_text` gives the text."
            )
        else:
            advice = (
                "If these are full marks, it is learned: use harder questions, or remove it. "
                "If not, it judges nothing."
            )
        return Finding(
            "warning",
            "constant",
            "A reward gives every completion the same number, so it teaches nothing.",
            f"{name} is {value:g} for all completions at {span(mean)}",
            advice,
        )
    return None
