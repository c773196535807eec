"""Diagnosis rules about the reward: does it rise, on held-out questions too, and what raises it?

Each rule takes the `Signals` of a history, rules out other explanations first, then compares two
parts of a series, and returns a `Finding` or None. `signals.py` has the thresholds.
"""

import pandas as pd

from helpers.metrics.group_rules import dead_groups
from helpers.metrics.history import reward_names
from helpers.metrics.length_rules import clipped_completions, end_token
from helpers.metrics.signals import (
    CERTAIN,
    LIKELY,
    MIN_ROWS,
    MIN_WINDOW,
    MOST,
    NOTABLE,
    SINCE_BEST,
    SPREAD_NOTABLE,
    Change,
    Finding,
    Signals,
    apply,
    change_between,
    span,
)

# --- Held-out questions against training questions ------------------------------------------------


def held_out_gap(signals: Signals) -> Finding | None:
    """Report that training improves and the held-out score does not: two curves that part."""
    if signals.generalisation_gap is None:
        return None
    held_out, training = signals.generalisation_gap
    causes = []
    epochs = signals.optional("epoch")
    if epochs is not None and epochs.max() >= 3:
        causes.append(
            f"memorised questions (each was seen {epochs.max():.0f} times: use more questions)"
        )
    causes.append("a reward that pays for something else (read completions of both sets)")
    if signals.format is not None:
        gain = signals.change(signals.format)
        if gain.is_rise(CERTAIN, NOTABLE * signals.format_range.width):
            causes.append("the format, which rose (compare correctness alone)")
    causes.append("held-out questions of another kind, or too few of them")
    return Finding(
        "critical",
        "held_out",
        "Training gets better, but the held-out score does not.",
        f"held out {held_out}; in training {training}",
        f"Possible causes: {'; '.join(causes)}.",
    )


# --- Up or down -----------------------------------------------------------------------------------


def fallen_reward(signals: Signals) -> Finding | None:
    """Report that the reward has fallen from its best window."""
    reward = signals.series("reward", 2 * MIN_WINDOW)
    fall = change_between(reward, *signals.since_best(reward))
    # A constant reward has no spread, and may differ by rounding.
    least = max(SPREAD_NOTABLE * signals.reward_spread(), 1e-9)
    if not fall.is_fall(SINCE_BEST, least):
        return None
    # Correctness must fall, too. The total alone also falls if a callback lowers the weight of a
    # reward that the policy has mastered.
    correctness = signals.correctness
    if correctness is not None:
        fall_of_correctness = change_between(correctness, *signals.since_best(correctness))
        if not fall_of_correctness.is_fall(LIKELY, signals.notable):
            return None
    severity = "warning"
    sentence = "The reward has fallen from its peak."
    if signals.change(reward).is_fall(LIKELY):
        severity = "critical"
        sentence = "The reward has fallen below where it began."
    return Finding(
        severity,
        "reward_fall",
        sentence,
        str(fall),
        "Train again with a lower learning rate.",
    )


def flat_reward(signals: Signals) -> Finding | None:
    """Report that the reward does not rise, and has not fallen either: noise around a level."""
    reward = signals.series("reward", 2 * MIN_WINDOW)
    spread = signals.reward_spread()
    # 1. Return if there is another explanation.
    if signals.unweighted or signals.solved or fallen_reward(signals):
        return None
    if signals.has_risen(reward) or signals.has_risen(signals.correctness):
        return None
    # 2. Wait until the learning rate has passed its maximum.
    if not signals.rate_is_past_its_peak():
        return None
    # 3. Be certain that the gain is too small to matter.
    change = signals.change(reward)
    if change.may_be_rise(SPREAD_NOTABLE * spread):
        return None
    # 4. Advise. Without a correct answer, a higher learning rate has nothing to learn from.
    if change.is_fall(LIKELY):
        advice = "It falls: stop, or lower the learning rate."
    elif signals.share_correct is not None and signals.share_correct < NOTABLE:
        advice = "Use easier questions, or a larger model: almost no answer is correct."
    else:
        advice = (
            "Raise the learning rate threefold. If that changes nothing, check in notebook 02 "
            "whether the reward depends on the answer."
        )
    highest_gain = max(0.0, change.difference + CERTAIN * change.error)
    return Finding(
        "warning",
        "no_learning",
        "The reward does not rise.",
        f"{change}, a gain of at most {highest_gain:.2g} where rewards spread by {spread:.2g}",
        advice,
    )


def indifferent_reward(signals: Signals) -> Finding | None:
    """Report that the policy changed and the reward did not: the KL climbs, and the reward is as
    high in the second half as in the first.
    """
    reward = signals.series("reward", 2 * MIN_ROWS)
    # 1. The policy has moved so far that rewards could have changed by half of their range.
    if signals.pinsker_bound() < MOST or not signals.rate_is_past_its_peak():
        return None
    # 2. Return if there is another explanation: groups or completions that teach nothing, or
    # hardly any correct answer.
    if signals.unweighted or signals.solved or dead_groups(signals):
        return None
    if signals.share_correct is not None and signals.share_correct < NOTABLE:
        return None
    if clipped_completions(signals) or apply(end_token, signals):
        return None
    # 3. Return if the reward or correctness has risen, or the reward has fallen.
    if signals.has_risen(reward) or signals.has_risen(signals.correctness):
        return None
    if fallen_reward(signals) or signals.change(reward).is_fall(LIKELY):
        return None
    # 4. Be certain that the change between the halves is too small to matter, up or down. Halves
    # hold all rows, so they are more certain than windows.
    half = len(reward) // 2
    change = change_between(reward, slice(0, half), slice(half, None))
    largest_change = abs(change.difference) + CERTAIN * change.error
    spread = signals.reward_spread()
    if largest_change > SPREAD_NOTABLE * spread:
        return None
    change_of_kl = signals.change(signals.series("kl"))
    return Finding(
        "warning",
        "indifferent",
        "The policy has changed but the reward has not, so the reward may not depend on the text.",
        f"reward {change}, a change of at most {largest_change:.2g} where rewards spread by "
        f"{spread:.2g}; KL {change_of_kl}",
        "Score correct completions and wrong ones, as notebook 02 does. If the reward tells them "
        "apart, use easier questions or a larger model. (A ranking's mean is constant by "
        "construction.)",
    )


FAR_FROM_FULL = 0.75  # of full marks


def plateau(signals: Signals) -> Finding | None:
    """Report that correctness rose, then stayed far below full marks for half of the run or more: a
    knee followed by a level line.
    """
    # 1. Correctness is on a known scale, has risen, and is far below full marks.
    share = signals.share_by_step
    if share is None or len(share) < 3 * MIN_ROWS:
        return None
    if signals.share_correct > FAR_FROM_FULL or not signals.has_risen(share):
        return None
    if signals.generalisation_gap is not None:  # a finding of its own
        return None
    # 2. Find the longest stretch up to the end in which correctness does not rise: try starts from
    # the first row to the middle, a twentieth of the run apart.
    rows = max(MIN_ROWS, len(share) // 10)
    middle = len(share) // 2
    twentieth = max(1, len(share) // 20)
    level_part = None
    for start in range(0, middle + 1, twentieth):
        change = change_between(share, slice(start, start + rows), slice(-rows, None))
        if not change.may_be_rise(NOTABLE / 2):
            level_part = share.iloc[start:]
            break
    if level_part is None:
        return None
    level = level_part.mean()
    return Finding(
        "warning",
        "plateau",
        "Correctness has stopped rising far below full marks.",
        f"{level:.0%} at {span(level_part)}, {len(level_part) / len(share):.0%} of the run, with "
        f"{1 - level:.0%} left to gain",
        "Stop here, and use questions of the right difficulty: those that are sometimes answered "
        "correctly.",
    )


# --- What raises it -------------------------------------------------------------------------------


def hacked_reward(signals: Signals) -> Finding | None:
    """Report reward hacking: the total rises while correctness falls from its best window."""
    reward = signals.series("reward")
    if signals.correctness is None:
        return None
    both = pd.DataFrame({"correct": signals.correctness, "reward": reward}).dropna()
    if len(both) < 2 * MIN_WINDOW:
        return None
    windows = signals.since_best(both["correct"])
    fall = change_between(both["correct"], *windows)
    rise = change_between(both["reward"], *windows)
    if not fall.is_fall(CERTAIN, signals.notable) or not rise.is_rise(CERTAIN):
        return None
    return Finding(
        "critical",
        "hacking",
        "The reward rises while correctness falls, so the policy has found a way to earn reward "
        "without being correct.",
        f"reward {rise}; correctness {fall}",
        "Read completions of the last steps, find the reward that accepts them, and fix it or give "
        "correctness more weight.",
    )


FORMAT_LEARNED = 0.8  # of the format's range; above it, wrong answers are not due to the format


def format_only(signals: Signals) -> Finding | None:
    """Report that the format was learned and correctness has not risen since before it, MIN_ROWS
    rows later: one curve climbs to its ceiling, the other stays.
    """
    form = signals.format
    right = signals.correctness
    if form is None or right is None or signals.solved:
        return None
    if min(len(form), len(right)) < MIN_ROWS:
        return None
    # 1. When was the format last not learned, or, if it always was, at its lowest?
    learned = signals.format_range.lowest + FORMAT_LEARNED * signals.format_range.width
    drift = 0.2 * signals.format_range.width  # a gain of less than a fifth may be drift
    lowest = form.rolling(MIN_WINDOW).mean().min()
    before, now = signals.since_below(form, max(lowest, learned - drift))
    # 2. Is that long enough ago, and is it learned now?
    if len(form) - before.stop < MIN_ROWS:
        return None
    gain = change_between(form, before, now)
    if gain.after < learned or not gain.is_rise(CERTAIN, drift):
        return None
    # 3. Be certain that correctness did not rise between the same windows.
    change = change_between(right, before, now)
    if change.may_be_rise(signals.notable):
        return None
    return Finding(
        "warning",
        "format_only",
        "The format was learned, but correctness was not.",
        f"format {gain}; correctness {change}",
        "Give the format less weight; if correctness still does not rise, use easier questions or "
        "a larger model.",
    )


def other_reward(signals: Signals) -> Finding | None:
    """Report that the total rises by a reward that judges neither answer nor format, while
    correctness stays.
    """
    # 1. The total rises, and correctness does not.
    total = signals.change(signals.series("reward", MIN_ROWS))
    least = SPREAD_NOTABLE * signals.reward_spread()
    if signals.correctness is None or not total.is_rise(CERTAIN, least):
        return None
    correctness = signals.change(signals.correctness)
    if correctness.may_be_rise(signals.notable):
        return None
    # 2. Which reward rises most? The format has a rule of its own, `format_only`.
    changes = {}
    for name in reward_names(signals.rows):
        mean = signals.optional(f"rewards/{name}/mean")
        if mean is not None and not mean.equals(signals.format):
            changes[name] = signals.change(mean)
    name = max(changes, key=lambda name: changes[name].difference, default=None)
    if not name:
        return None
    if not changes[name].is_rise(CERTAIN, NOTABLE * signals.range_of(name).width):
        return None
    return Finding(
        "warning",
        "other_reward",
        "The reward rises because of a reward that does not judge the answer.",
        f"{name} {changes[name]}; correctness {correctness}",
        f"Give {name} less weight, and attack it in notebook 02.",
    )


def blind_policy(signals: Signals) -> Finding | None:
    """Report that the reward rises, but not because the policy looks at the pictures.

    `training.vision.Looking` logs holdout accuracy during training, with the pictures (sighted) and
    with grey ones (blind).
    """
    sighted = signals.series("holdout/sighted", 3)
    blind = signals.series("holdout/blind", 3)
    added = (sighted - blind).dropna()  # the accuracy that the pictures add
    gain = _from_first_to_last_third(signals.series("reward")).difference
    gain_of_added = _from_first_to_last_third(added)
    # If the policy looks, the pictures add at least a quarter of what the reward gained.
    if gain < NOTABLE or gain_of_added.difference >= gain / 4:
        return None
    return Finding(
        "warning",
        "blind",
        "The reward rises without the policy using the image.",
        f"sighted minus blind {gain_of_added}, while the reward gained {gain:.2g}",
        "Balance the answers of each question, so that guessing does not pay, or use questions "
        "that cannot be answered without the image.",
    )


def _from_first_to_last_third(series: pd.Series) -> Change:
    """Return the change from the first third of a series to the last."""
    third = max(1, len(series) // 3)
    return change_between(series, slice(0, third), slice(-third, None))
