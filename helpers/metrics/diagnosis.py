"""Diagnose a GRPO training run from its history: faults, the numbers that show them, and advice.

    for finding in diagnose(read_metrics(run.folder / "metrics.csv")):
        print(finding)

Each rule is a function that returns a finding or None, and is listed in `RULES` at the end. A rule
finds nothing if a column it needs was not logged (`signals.apply`). The rules about an agent's
tools are in `tool_rules.py`.
"""

import numpy as np
import pandas as pd

from helpers.metrics.history import in_trl_names, reward_names
from helpers.metrics.signals import (
    CERTAIN,
    LIKELY,
    MIN_ROWS,
    MIN_WINDOW,
    MOST,
    NEARLY_ALL,
    NOTABLE,
    SEVERITIES,
    SINCE_BEST,
    Finding,
    Signals,
    apply,
    change_between,
    lower_bound,
    span,
)
from helpers.metrics.tool_rules import failing_calls, given_up_tools, unfinished_episodes


def diagnose(history: pd.DataFrame) -> list[Finding]:
    """Return the findings about a training history, the most severe first.

    history: one row per logged step, as `read_metrics` returns it, or
        `DataFrame(trainer.state.log_history)`. Columns have TRL's names, or names that
        `in_trl_names` knows; columns and values may be missing. A reward's name says whether it
        judges the answer (`accuracy_reward`) or the format (`format_reward`).

    A healthy history gives findings of severity "info", or none. With fewer than MIN_ROWS rows,
    only the rules in AT_ONCE are used.
    """
    signals = Signals(in_trl_names(history))
    rules = RULES if signals.enough else AT_ONCE
    findings = [apply(rule, signals) for rule in rules]
    findings = [finding for finding in findings if finding is not None]
    if not signals.enough:
        findings.append(
            Finding(
                "info",
                "too_few_steps",
                "There are too few steps to tell whether it learns.",
                f"{len(signals.rows)} logged, and below {MIN_ROWS} a trend cannot be told from "
                "noise",
                "Train on; until then only what cannot be a matter of luck is judged.",
            )
        )
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))


# --- What was logged ------------------------------------------------------------------------------

# What every training run logs. The KL, the entropy and the tools depend on settings.
LOGGED = ("reward", "reward_std", "frac_reward_zero_std", "completions/clipped_ratio", "grad_norm")


def unread(signals: Signals) -> Finding | None:
    """Report columns that every training run logs but that are missing here: a fault in them would
    go unnoticed.
    """
    missing = [name for name in LOGGED if signals.optional(name) is None]
    if signals.rows.empty or not missing:
        return None
    severity = "warning"
    if "reward" in missing:
        sentence = "Without a reward nothing can be judged."
    elif "reward_std" in missing:
        sentence = "Without the spread of the reward, whether it rises or falls is not judged."
    else:
        severity = "info"
        sentence = "A part of the history was not logged, or has other names, and is not judged."
    columns = ", ".join(map(str, signals.rows.columns[:20])) or "no column"
    return Finding(
        severity,
        "unread",
        sentence,
        f"no numbers in {', '.join(missing)} at {span(signals.rows)}; found {columns}",
        "If the log has them, name them as TRL does and write 0.25, not 0,25 or 25%: what is not "
        "read may be sick.",
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
        "If it is None for all rows, see for which rows it is meant, or take it out. Early TRL "
        "logs nan for a batch in which one completion scores None.",
    )


UNJUDGED = 0.05  # share of a batch


def unjudged_programs(signals: Signals) -> Finding | None:
    """Report that many programs in a batch got no verdict, because the sandbox does not support
    something they use, or because time ran out.
    """
    shares = signals.rows.filter(regex="/(unsupported|not_started)$")
    highest = shares.max()
    if not highest.max() > UNJUDGED:  # `not >` is also true for nan, if nothing was logged
        return None
    column = highest.idxmax()
    return Finding(
        "warning",
        "unjudged",
        "Many programs were not judged, and score None, or nothing beside others of their row.",
        f"{column} is {highest[column]:.0%} of the batch at step {shares[column].idxmax()}",
        'Judge with backend="sandlock"; if they were not started, give the batch more '
        "time or each program less.",
    )


# --- The numerics: loss, gradient, sampler --------------------------------------------------------


def not_a_number(signals: Signals) -> Finding | None:
    """Report that the loss or the gradient norm is or was nan or infinite."""
    rows = signals.rows
    finite = np.ones(len(rows), dtype=bool)
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
            "The loss or the gradient is not a number, and nothing is learned any more.",
            evidence,
            "Go back to a checkpoint before it, with a lower learning rate, or with bf16 if it was "
            "fp16.",
        )
    return Finding(
        # in fp16, the loss scaler searches for its scale in the first ten rows, and skips steps
        "info" if finite[10:].all() else "warning",
        "gradient",
        "The loss or the gradient was not a number, and is one again.",
        evidence,
        "In fp16 a few such steps at the start are the loss scaler's search; if more come, use "
        "bf16 or a lower rate.",
    )


def no_gradient(signals: Signals) -> Finding | None:
    """Report that the weights do not change: the gradient and the KL are always 0, although rewards
    differ within groups.
    """
    norms = signals.series("grad_norm", MIN_WINDOW)
    dead = signals.series("frac_reward_zero_std")
    kl = signals.optional("kl")
    if norms.any() or (kl is not None and kl.any()):
        return None
    if dead.mean() >= NEARLY_ALL or signals.unweighted:
        return None
    # If no KL was logged, a rising reward shows that the norm was not measured.
    if kl is None and signals.better:
        return None
    return Finding(
        "critical",
        "no_gradient",
        "No gradient reaches the weights, although rewards differ.",
        f"grad_norm {'is' if kl is None else 'and kl are'} exactly 0 at {span(norms)}",
        "See that the adapter can be trained: `PeftModel.from_pretrained(…, is_trainable=True)`, "
        "and that `model.print_trainable_parameters()` gives more than 0.",
    )


# Nats per token. Rounding to bf16 alone causes 0.01 to 0.04 (huggingface/trl issue 6789).
SAMPLING_GAP = 0.08


def sampling_gap(signals: Signals) -> Finding | None:
    """Report that the sampling engine and the trained model differ by more than rounding explains.

    TRL logs the difference if vllm_importance_sampling_correction is on.
    """
    gap = signals.series("sampling/sampling_logp_difference/mean", MIN_WINDOW)
    last = signals.last(gap)
    if last.mean() - CERTAIN * last.std() / len(last) ** 0.5 <= SAMPLING_GAP:
        return None
    return Finding(
        "warning",
        "sampling",
        "The engine that samples and the model that trains differ by more than rounding.",
        f"their log-probabilities of a token differ by {last.mean():.2g} nats in the mean, at "
        f"{span(last)}",
        "See that the engine gets the new weights after each step, compare precision and "
        "temperature, and sample with top_p=1, top_k=0 and no min_p.",
    )


def rising_loss(signals: Signals) -> Finding | None:
    """Explain a rising loss, which is healthy unless the KL is high."""
    loss = signals.series("loss", 2 * MIN_WINDOW)
    change = signals.change(loss)
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


# --- The policy: KL, entropy, completion length ---------------------------------------------------


# Nats per token.
KL_HIGH = 0.5  # the reference finds a sampled token 1.6 times less likely; healthy: below 0.1
KL_RUNAWAY = 2.0  # 7 times less likely: the text no longer resembles the reference model's


def high_kl(signals: Signals) -> Finding | None:
    """Report that the KL is high at the end of the history, by its running median."""
    kl = signals.series("kl", MIN_WINDOW)
    level = _running_median(kl)
    now = level.iloc[-1]
    if now <= KL_HIGH:
        return None
    low = np.flatnonzero(level <= KL_HIGH)
    since = level.iloc[low[-1] + 1 :] if len(low) else level
    runaway = now > KL_RUNAWAY
    return Finding(
        "critical" if runaway else "warning",
        "kl",
        "The policy has run away from the reference model." if runaway else "The KL is high.",
        f"{now:.3g} nats per token, a running median, which is above {KL_HIGH:g} at {span(since)}",
        "Lower the learning rate first, then raise beta: so far away, a policy forgets what it "
        "could do. On a GPU, Unsloth no longer pulls back a token that has become 13.6 times "
        "less likely.",
    )


def kl_spikes(signals: Signals) -> Finding | None:
    """Explain single steps with a high KL, which stand out in the plot."""
    kl = signals.series("kl", MIN_WINDOW)
    spikes = kl[kl > max(5 * kl.median(), 0.1)]
    if spikes.empty or _running_median(kl).max() > KL_HIGH:
        return None
    return Finding(
        "info",
        "kl",
        "Single steps have a high KL, which is no drift.",
        f"{len(spikes)} of {len(kl)} rows, the largest {spikes.max():.2g} at step "
        f"{int(spikes.idxmax())}, over a median of {kl.median():.2g}",
        "A token that the reference finds far likelier causes one: the estimate exp(d) - d - 1 "
        "has a heavy tail.",
    )


def _running_median(kl: pd.Series) -> pd.Series:
    """Return the running median over nine rows, which up to four spikes hardly change."""
    return kl.rolling(9, min_periods=MIN_WINDOW).median().dropna()


def collapsed_entropy(signals: Signals) -> Finding | None:
    """Report that the entropy collapsed before the task was solved: without entropy, the policy
    finds no better answers (Cui et al., arXiv 2505.22617).
    """
    # With a quarter of the entropy left, samples for one question hardly differ.
    if signals.better or not _entropy_fell(signals, 0.25):
        return None
    change = signals.change(signals.series("entropy"), MIN_WINDOW)
    return Finding(
        "warning",
        "entropy",
        "The entropy has collapsed, and the policy no longer gets better.",
        f"{change} (nats per token)",
        "Raise the temperature or beta, or lower the learning rate. With several updates per round "
        "of sampling, a higher epsilon_high lets rare tokens gain.",
    )


def _entropy_fell(signals: Signals, share: float) -> bool:
    """Return whether less than this share of the initial entropy is left; False if there are too
    few rows to tell.
    """
    entropy = signals.optional("entropy")
    if entropy is None or len(entropy) < 2 * MIN_WINDOW:
        return False
    return bool(signals.last(entropy).mean() < share * entropy.iloc[:MIN_WINDOW].mean())


def changed_length(signals: Signals) -> Finding | None:
    """Report completions that became twice or half as long as at the start, but no better."""
    length = signals.series("completions/mean_length", 2 * MIN_WINDOW)
    if signals.better or length.min() <= 0:
        return None
    # A smaller change is normal: the pocket model's length changes by half when it learns a format.
    ratio = signals.change(np.log(length), MIN_WINDOW)
    longer = ratio.is_rise(CERTAIN, np.log(2))
    if not longer and not ratio.is_fall(CERTAIN, np.log(2)):
        return None
    return Finding(
        "warning",
        "length",
        f"Completions have become much {'longer' if longer else 'shorter'}, and no better.",
        f"mean length {signals.change(length, MIN_WINDOW)} (tokens)",
        "Reward brevity if more and more are cut off."
        if longer
        else "Read some: is the reasoning still there?",
    )


def clipped_completions(signals: Signals) -> Finding | None:
    """Report that most completions are cut off at the length limit."""
    last = signals.last(signals.series("completions/clipped_ratio", MIN_WINDOW))
    if lower_bound(last) < MOST:
        return None
    return Finding(
        "critical" if last.mean() >= NEARLY_ALL else "warning",
        "clipped",
        "Most completions are cut off at the limit, before an answer can be read.",
        f"{last.mean():.0%} at {span(last)}",
        "Raise max_completion_length or reward brevity; if the text is noise, lower the learning "
        "rate.",
    )


# --- The groups: is there anything to learn from? -------------------------------------------------


def unweighted_rewards(signals: Signals) -> Finding | None:
    """Report that all rewards have weight 0: the total is always 0, but single rewards are not."""
    if not signals.unweighted or len(signals.rows) < MIN_WINDOW:
        return None
    return Finding(
        "info",
        "unweighted",
        "The rewards weigh 0: they are measured, and the KL alone teaches.",
        f"the total is 0 at all {len(signals.rows)} steps, and single rewards are not",
        "With a teacher as the reference this is meant; otherwise give a reward a weight.",
    )


def dead_groups(signals: Signals) -> Finding | None:
    """Report that most groups are dead: all completions in the group score the same. The finding
    says whether these questions are solved, the policy has collapsed on wrong answers, or nothing
    earns the reward.

    The share of dead groups is frac_reward_zero_std. reward_std does not show it, because it is the
    spread over the whole batch.
    """
    share = signals.series("frac_reward_zero_std", MIN_WINDOW)
    # In the first steps, some groups are dead by chance, so every group must be dead.
    if signals.unweighted or (not signals.enough and share.min() < 1):
        return None
    last = signals.last(share)
    if lower_bound(last) < MOST:
        return None
    start = share.iloc[:MIN_WINDOW].mean()
    now = last.mean()
    right = signals.share_right
    evidence = f"{now:.0%} of the groups at {span(last)}, {start:.0%} at the start"
    if right is None:
        solved = signals.risen(signals.optional("reward"))
    else:
        evidence += f", with correctness {right:.2f}"
        # If all wrong completions were in dead groups, the wrong ones, 1 - right, would still be
        # less than half of the completions in dead groups, now.
        solved = right > 1 - now / 2

    if solved:
        return Finding(
            "info",
            "solved",
            "Most groups are dead because they are right, as at the end of a good training.",
            evidence,
            "There is little left to learn from these questions: stop, or go on with harder ones.",
        )
    # A collapsed policy had fewer dead groups before, and has less entropy now. (A policy that
    # writes noise has more.)
    collapsed = now - start >= 0.3 and _entropy_fell(signals, 0.5)
    if collapsed and (right is None or right <= now / 2):
        return Finding(
            "critical",
            "mode_collapse",
            "The policy has collapsed on answers that are not right.",
            evidence,
            "Go back to a checkpoint with spread; lower the learning rate, raise temperature and "
            "beta, check the rewards.",
        )
    return Finding(
        "critical" if now >= NEARLY_ALL else "warning",
        "zero_spread",
        "Many groups are dead, and teach nothing, because all their completions score the same.",
        evidence,
        _advice_for_dead_groups(signals),
    )


NEVER = 0.02  # correctness: practically no answer is right


def _advice_for_dead_groups(signals: Signals) -> str:
    """Return advice for dead groups that are not solved, depending on the cause."""
    if apply(clipped_completions, signals):
        return "Begin with the completions that are cut off: they earn the same."
    right = signals.share_right
    reward = signals.series("reward")
    level = signals.last(reward).mean()
    if (right is not None and right < NEVER) or level <= 0:
        return (
            "Nothing earns the reward: take easier questions, a larger model, or a reward with "
            "partial credit, and read some completions."
        )
    if np.ptp(reward) < 1e-6:
        return (
            f"All earn {level:.3g}. If these are full marks, take harder questions; if not, the "
            "reward is a constant."
        )
    return "Take questions that are answered sometimes, or larger groups."


def constant_reward(signals: Signals) -> Finding | None:
    """Report a reward that gave every completion at every step the same number, for at least
    MIN_ROWS steps.
    """
    for name in reward_names(signals.rows):
        mean = signals.optional(f"rewards/{name}/mean")
        std = signals.optional(f"rewards/{name}/std")
        if mean is None or std is None or min(len(mean), len(std)) < MIN_ROWS:
            continue
        if max(std.max(), np.ptp(mean)) < 1e-6:
            value = mean.iloc[0]
            if value == 0:
                advice = (
                    "A penalty may stay: nothing was wrong. If nothing can earn it, take easier "
                    "questions. If something should: completions are lists of messages, "
                    "`completion_text` gives the text."
                )
            else:
                advice = (
                    "If these are full marks, it is learned: take harder questions, or leave it "
                    "out. If not, it judges nothing."
                )
            return Finding(
                "warning",
                "constant",
                "A reward gives every completion the same number, and teaches nothing.",
                f"{name} is {value:g} for all completions at {span(mean)}",
                advice,
            )
    return None


# --- The reward: does it rise, and does correctness rise with it? ---------------------------------


def fallen_reward(signals: Signals) -> Finding | None:
    """Report that the reward has fallen from its best window."""
    reward = signals.series("reward", 2 * MIN_WINDOW)
    # Easier and harder questions alone can move the reward by a quarter of its spread.
    fall = change_between(reward, *signals.since_best(reward))
    if not fall.is_fall(SINCE_BEST, max(0.25 * signals.reward_spread(), 1e-9)):
        return None
    # Correctness must fall, too. The total alone also falls if a callback lowers the weight of a
    # reward that the policy has mastered.
    right = signals.correctness
    if right is not None:
        fall_of_right = change_between(right, *signals.since_best(right))
        if not fall_of_right.is_fall(LIKELY, NOTABLE):
            return None
    below_start = signals.change(reward).is_fall(LIKELY)
    return Finding(
        "critical" if below_start else "warning",
        "reward_fall",
        "The reward has fallen below where it began."
        if below_start
        else "The reward has fallen from its height.",
        str(fall),
        "Go back to the checkpoint before the fall, with a lower learning rate.",
    )


def flat_reward(signals: Signals) -> Finding | None:
    """Report that the reward does not rise, and has not fallen either."""
    reward = signals.series("reward", 2 * MIN_WINDOW)
    spread = signals.reward_spread()
    # Return if there is another explanation.
    if signals.unweighted or signals.solved or fallen_reward(signals):
        return None
    if signals.risen(reward) or signals.risen(signals.correctness):
        return None
    # Wait until the learning rate passed its maximum MIN_ROWS rows ago.
    rate = signals.series("learning_rate")
    if len(rate) - int(np.argmax(rate)) <= MIN_ROWS:
        return None
    # Be certain that the gain is less than a quarter of the spread.
    change = signals.change(reward)
    highest_gain = change.difference + CERTAIN * change.error
    if highest_gain > 0.25 * spread:
        return None
    cause = apply(no_gradient, signals) or apply(dead_groups, signals)
    if cause:
        advice = f"{cause.sentence.removesuffix('.')}: begin with that."
    elif signals.share_right is not None and signals.share_right < NOTABLE:
        advice = "Take easier questions, or a larger model: hardly an answer is right."
    else:
        advice = "Raise the learning rate, and see in notebook 02 what drives the advantage."
    return Finding(
        "warning",
        "no_learning",
        "The reward does not rise.",
        f"{change}, a gain of at most {max(0.0, highest_gain):.2g} where rewards spread by "
        f"{spread:.2g}",
        advice,
    )


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
    if not fall.is_fall(CERTAIN, NOTABLE) or not rise.is_rise(CERTAIN):
        return None
    return Finding(
        "critical",
        "hacking",
        "The reward rises while correctness falls, so the policy has found what pays without being "
        "right.",
        f"reward {rise}; correctness {fall}",
        "Read completions of the last steps, find which reward pays them, and correct it or weigh "
        "correctness more.",
    )


FORM_LEARNED = 0.8  # mean format reward; above it, wrong answers are not due to the format


def format_only(signals: Signals) -> Finding | None:
    """Report that the format was learned, but correctness has not risen in the MIN_ROWS rows since
    then.
    """
    form = signals.format
    right = signals.correctness
    if form is None or right is None or min(len(form), len(right)) < MIN_ROWS:
        return None
    # Was the format learned? A gain of less than 0.2 may be drift.
    gain = signals.change(form, MIN_WINDOW)
    if gain.after < FORM_LEARNED or not gain.is_rise(CERTAIN, 0.2):
        return None
    # Was it learned long enough ago?
    learned = form.rolling(MIN_WINDOW).mean() >= FORM_LEARNED
    if not learned.any() or len(form) - int(np.argmax(learned)) < MIN_ROWS:
        return None
    # Did correctness rise, or was it high already?
    change = signals.change(right)
    may_have_risen = change.difference + CERTAIN * change.error >= NOTABLE
    if may_have_risen or signals.risen(right) or signals.solved:
        return None
    return Finding(
        "warning",
        "format_only",
        "The format was learned and correctness was not.",
        f"format {gain}; correctness {change}",
        "Weigh the format less, take easier questions, or a larger model: the policy may not be "
        "able to answer these.",
    )


def blind_policy(signals: Signals) -> Finding | None:
    """Report that the reward rises, but not because the policy looks at the pictures.

    `training.vision.Looking` logs holdout accuracy during training, with the pictures (sighted) and
    with grey ones (blind).
    """
    sighted = signals.series("holdout/sighted", 3)
    blind = signals.series("holdout/blind", 3)
    reward = signals.series("reward")
    # Compare the first third with the last: the reward, and the accuracy that the pictures add.
    sees = (sighted - blind).dropna()
    first = max(1, len(reward) // 3)
    last = max(1, len(sees) // 3)
    gain = change_between(reward, slice(0, first), slice(-first, None)).difference
    change = change_between(sees, slice(0, last), slice(-last, None))
    if gain < NOTABLE or change.difference >= gain / 4:
        return None
    return Finding(
        "warning",
        "blind",
        "The reward rises by what needs no picture.",
        f"sighted minus blind {change}, while the reward gained {gain:.2g}",
        "Balance the answers of each question, so that guessing does not pay, or take questions "
        "that only the picture answers.",
    )


# Findings of one severity are listed in this order: causes before effects.
RULES = (
    unread, not_a_number, no_gradient, silent_reward, unjudged_programs, sampling_gap, high_kl,
    kl_spikes, hacked_reward, failing_calls, clipped_completions, unfinished_episodes,
    given_up_tools, unweighted_rewards, dead_groups, constant_reward, fallen_reward, flat_reward,
    format_only, changed_length, collapsed_entropy, rising_loss, blind_policy,
)  # fmt: skip
# The rules that can be used with fewer than MIN_ROWS rows.
AT_ONCE = (
    unread, not_a_number, no_gradient, silent_reward, unjudged_programs, sampling_gap, high_kl,
    kl_spikes, failing_calls, clipped_completions, unfinished_episodes, unweighted_rewards,
    dead_groups, blind_policy,
)  # fmt: skip
