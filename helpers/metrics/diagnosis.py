"""The rules that read a training history: what goes wrong in GRPO, the numbers that show it, and
what to try.

A rule is a function of this file, listed in `_RULES`. A rule whose columns are absent says nothing,
or nothing worse: what was not logged is no evidence (Unsloth on a GPU logs no entropy, TRL without
beta no KL). With few rows, only what cannot be a matter of luck is judged.
"""

import numpy as np
import pandas as pd

from helpers.metrics.history import in_trl_names, reward_names
from helpers.metrics.signals import (
    CERTAIN,
    LIKELY,
    MIN_ROWS,
    MOST,
    NEARLY_ALL,
    NOTABLE,
    SEVERITIES,
    SHORTEST,
    SINCE_BEST,
    SOLVED,
    Finding,
    Signals,
    change_between,
    lower_bound,
    span,
)

NEVER = 0.02  # correctness: as good as no answer is right
FORM_LEARNED = 0.8  # of 1: so often kept that a lacking answer is no matter of form
# nats per token: the reference finds a sampled token 1.6 times less likely; healthy runs stay
# below 0.1
KL_HIGH = 0.5
# times the median gradient norm: healthy pocket runs stay within 6, but for a single step of 11
SPIKE = 10.0
# calls per episode: a policy with fewer had no habit of calling that it could lose
CALLS_USED = 0.5
# what every training logs; kl, entropy and the tools depend on settings
_LOGGED = ("reward", "reward_std", "frac_reward_zero_std", "completions/clipped_ratio", "grad_norm")
CALLS_LEFT = 0.1  # calls per episode: nine of ten episodes, or more, have none
UNJUDGED = 0.05  # of a batch: programs without a verdict, each taken out of its group


def diagnose(history: pd.DataFrame) -> list[Finding]:
    """What a training history shows, most severe first.

    history: one row a logged step under TRL's column names, as `read_metrics` returns it or as
    `DataFrame(trainer.state.log_history)`, or under names that `in_trl_names` knows; columns and
    values may be absent. Which rewards judge
    the answer and which the form is read from their names, as in `accuracy_reward` and
    `format_reward`. A history in which all is well gives findings of severity "info", or none.
    """
    signals = Signals(in_trl_names(history))
    rules = _RULES if signals.enough else _AT_ONCE
    found = [finding for rule in rules if (finding := rule(signals))]
    if not signals.enough:
        n = len(signals.rows)
        found.append(
            Finding(
                "info",
                "too_few_steps",
                "There are too few steps to tell whether it learns.",
                f"{n} logged, and below {MIN_ROWS} a trend cannot be told from noise",
                "Train on; until then only what cannot be a matter of luck is judged.",
            )
        )
    return sorted(found, key=lambda finding: SEVERITIES.index(finding.severity))


# --- What is judged at once -----------------------------------------------------------------------


def _unread(signals: Signals) -> Finding | None:
    """Columns that every training logs are not there under a known name: silence is not health."""
    lacking = [name for name in _LOGGED if signals.series(name) is None]
    if signals.rows.empty or not lacking:
        return None
    if "reward" in lacking:
        what = "Without a reward nothing can be judged."
    elif "reward_std" in lacking:
        what = "Without the spread of the reward, whether it rises or falls is not judged."
    else:
        what = "A part of the history was not logged, or has other names, and is not judged."
    advice = "If the log has them, rename them as TRL does: what is not read may be sick."
    for name in lacking:
        texts = signals.rows[name].dropna() if name in signals.rows else ()
        if len(texts) and isinstance(texts.iloc[0], str):
            advice = f"{name} has {texts.iloc[0]!r:.40} for a number: write 0.25, not 0,25 or 25%."
    return Finding(
        "warning" if what.startswith("Without") else "info",
        "unread",
        what,
        f"no numbers in {', '.join(lacking)} at {span(signals.rows)}; found "
        f"{', '.join(map(str, signals.rows.columns[:20])) or 'no column'}",
        advice,
    )


def _silent(signals: Signals) -> Finding | None:
    """A reward was logged without a number at any step."""
    names = reward_names(signals.rows)
    silent = [name for name in names if signals.series(f"rewards/{name}/mean") is None]
    if not silent or len(signals.rows) < SHORTEST:
        return None
    return Finding(
        "warning",
        "silent",
        "A reward has never logged a number.",
        f"{', '.join(silent)} at {span(signals.rows)}",
        "If it is None for all rows, see for which rows it is meant, or take it out. Early TRL "
        "logs nan for a batch in which one completion scores None.",
    )


def _no_gradient(signals: Signals) -> Finding | None:
    """Groups differ, and neither a gradient nor a KL is ever more than 0: the weights stay."""
    norms = signals.series("grad_norm", SHORTEST)
    dead = signals.series("frac_reward_zero_std")
    kl = signals.series("kl")
    std = signals.series("reward_std")
    if norms is None or norms.any() or (kl is not None and kl.any()):
        return None
    # without the share of dead groups, the spread of the batch is the only hint
    differ = dead.mean() < NEARLY_ALL if dead is not None else std is not None and std.mean() > 0
    # without a KL, a reward that rises says that the norm was not measured
    if not differ or signals.unweighted or (kl is None and signals.better):
        return None
    groups = "reward_std is above 0" if dead is None else f"{1 - dead.mean():.0%} of groups differ"
    return Finding(
        "critical",
        "no_gradient",
        "No gradient reaches the weights, although rewards differ.",
        f"grad_norm {'is' if kl is None else 'and kl are'} exactly 0 at {span(norms)}; {groups}",
        "See that the adapter can be trained: `PeftModel.from_pretrained(…, is_trainable=True)`, "
        "and that `model.print_trainable_parameters()` gives more than 0.",
    )


def _numbers(signals: Signals) -> Finding | None:
    """The loss or the gradient norm is not a number, now or at some step before."""
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
        # fp16's loss scaler looks for its scale in the first ten rows, and skips those steps
        "info" if finite[10:].all() else "warning",
        "gradient",
        "The loss or the gradient was not a number, and is one again.",
        evidence,
        "In fp16 a few such steps at the start are the loss scaler's search; if more come, use "
        "bf16 or a lower rate.",
    )


def _sampling(signals: Signals) -> Finding | None:
    """The engine that samples beside the model that trains: a gap wider than rounding makes.

    From what TRL logs with vllm_importance_sampling_correction.
    """
    gap = signals.series("sampling/sampling_logp_difference/mean", SHORTEST)
    if gap is None:
        return None
    last = signals.last(gap)
    # Rounding to bf16 alone makes 0.01 to 0.04 nats per token (huggingface/trl issue 6789).
    if last.mean() - CERTAIN * last.std() / len(last) ** 0.5 <= 0.08:
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


def _kl(signals: Signals) -> Finding | None:
    """The level of the KL; else its single spikes."""
    kl = signals.series("kl", SHORTEST)
    if kl is None:
        return None
    # The running median of nine rows: four spikes of a heavy-tailed estimate do not move it.
    level = kl.rolling(9, min_periods=SHORTEST).median().dropna()
    now = level.iloc[-1]
    if now > KL_HIGH:
        # 7 times less likely: what is written is no longer the reference's language
        runaway = now > 2.0
        # after the last row that was not high
        high = level[level.where(level <= KL_HIGH).bfill().isna()]
        return Finding(
            "critical" if runaway else "warning",
            "kl",
            "The policy has run away from the reference model." if runaway else "The KL is high.",
            f"{now:.3g} nats per token, a running median, which is above {KL_HIGH:g} at "
            f"{span(high)}",
            "Lower the learning rate first, then raise beta: so far away, a policy forgets what it "
            "could do. On a GPU, Unsloth no longer pulls back a token that has become 13.6 times "
            "less likely.",
        )
    # what a reader notices in the plot and asks about
    spikes = kl[kl > max(5 * kl.median(), 0.1)]
    if spikes.empty or level.max() > KL_HIGH:  # high for longer, and over
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


def _clipped(signals: Signals) -> Finding | None:
    """Most completions are cut off at the limit."""
    series = signals.series("completions/clipped_ratio", SHORTEST)
    if series is None or lower_bound(signals.last(series)) < MOST:
        return None
    last = signals.last(series)
    return Finding(
        "critical" if last.mean() >= NEARLY_ALL else "warning",
        "clipped",
        "Most completions are cut off at the limit, before an answer can be read.",
        f"{last.mean():.0%} at {span(last)}",
        "Raise max_completion_length or reward brevity; if the text is noise, lower the learning "
        "rate.",
    )


def _dead_groups(signals: Signals) -> Finding | None:
    """Groups whose completions all score the same: solved, collapsed on one wrong answer, or
    without a signal.

    From frac_reward_zero_std: reward_std is the spread over the whole batch, and says nothing about
    a group.
    """
    share = signals.series("frac_reward_zero_std", SHORTEST)
    if share is None or (not signals.enough and share.min() < 1):
        return None
    if signals.unweighted:
        return Finding(
            "info",
            "unweighted",
            "The rewards weigh 0: they are measured, and the KL alone teaches.",
            f"the total is 0 at all {len(signals.rows)} steps, and single rewards are not",
            "With a teacher as the reference this is meant; otherwise give a reward a weight.",
        )
    last = signals.last(share)
    right = signals.share_right
    start = share.iloc[:SHORTEST].mean()
    now = last.mean()
    if lower_bound(last) < MOST:
        return None
    evidence = f"{now:.0%} of the groups at {span(last)}, {start:.0%} at the start"
    # At least so many dead groups are right: all but those that hold the wrong completions.
    if right is None:
        good = signals.risen(signals.series("reward"))
    else:
        # of the completions, if each is right or wrong: one score for all of them is no share
        std = signals.series(signals.correctness.name.replace("/mean", "/std"))
        means = signals.last(signals.correctness)
        same = std is not None and max(signals.last(std).max(), np.ptp(means)) < 1e-6
        good = right >= SOLVED if same else now - (1 - right) >= now / 2
        evidence += f", with correctness {right:.2f}"
    # From a start with signal, not one that never had any. A group of noise has more entropy than
    # before, a collapsed one less.
    lost = now - start >= 0.3 and _entropy_fell(signals, 0.5)
    if good:
        return Finding(
            "info",
            "solved",
            "Most groups are dead because they are right, as at the end of a good training.",
            evidence,
            "There is little left to learn from these questions: stop, or go on with harder ones.",
        )
    if lost and (right or 0.0) <= now / 2:
        return Finding(
            "critical",
            "mode_collapse",
            "The policy has collapsed on answers that are not right.",
            evidence,
            "Go back to a checkpoint with spread; lower the learning rate, raise temperature and "
            "beta, check the rewards.",
        )
    reward = signals.series("reward")
    level = np.nan if reward is None else signals.last(reward).mean()
    if _clipped(signals):
        advice = "Begin with the completions that are cut off: they earn the same."
    elif (right is not None and right < NEVER) or level <= 0:
        advice = (
            "Nothing earns the reward: take easier questions, a larger model, or a reward with "
            "partial credit, and read some completions."
        )
    elif level > 0 and np.ptp(reward) < 1e-6:
        advice = (
            f"All earn {level:.3g}. If these are full marks, take harder questions; if not, the "
            "reward is a constant."
        )
    else:
        advice = "Take questions that are answered sometimes, or larger groups."
    return Finding(
        "critical" if now >= NEARLY_ALL else "warning",
        "zero_spread",
        "Many groups are dead, and teach nothing, because all their completions score the same.",
        evidence,
        advice,
    )


def _entropy_fell(signals: Signals, share: float) -> bool:
    """Whether less than so much of the first rows' entropy is left; not where too little of it was
    logged to tell.
    """
    series = signals.series("entropy", 2 * SHORTEST)
    if series is None:
        return False
    return bool(signals.last(series).mean() < share * series.iloc[:SHORTEST].mean())


# --- What takes enough rows -----------------------------------------------------------------------


def _constant(signals: Signals) -> Finding | None:
    """A reward has given the same number throughout."""
    for name in reward_names(signals.rows):
        mean, std = (signals.series(f"rewards/{name}/{kind}", MIN_ROWS) for kind in ("mean", "std"))
        if mean is not None and std is not None and max(std.max(), np.ptp(mean)) < 1e-6:
            value = mean.iloc[0]
            if value == 0:
                advice = (
                    "A penalty may stay: nothing was wrong. If nothing can earn it, take easier "
                    "questions. If something should: "
                    "completions are lists of messages, `completion_text` gives the text."
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


def _fallen(signals: Signals) -> Finding | None:
    """The reward has fallen from its height."""
    reward = signals.series("reward", 2 * SHORTEST)
    if reward is None or signals.spread is None:
        return None
    fall = change_between(reward, *signals.since_best(reward))
    right = signals.correctness
    # less than a quarter of the spread is what easier and harder questions make of it
    if not fall.is_fall(SINCE_BEST, max(0.25 * signals.spread, 1e-9)):
        return None
    # a total alone may fall because a callback takes a mastered reward's weight away
    if right is not None:
        fall_of_right = change_between(right, *signals.since_best(right))
        if not fall_of_right.is_fall(LIKELY, NOTABLE):
            return None
    lower = signals.change(reward).is_fall(LIKELY)
    return Finding(
        "critical" if lower else "warning",
        "reward_fall",
        "The reward has fallen below where it began."
        if lower
        else "The reward has fallen from its height.",
        str(fall),
        "Go back to the checkpoint before the fall, with a lower learning rate.",
    )


def _flat(signals: Signals) -> Finding | None:
    """The reward has neither fallen nor risen, or moves too much for so few rows to tell."""
    reward = signals.series("reward", 2 * SHORTEST)
    rate = signals.series("learning_rate")
    if reward is None or signals.spread is None or signals.unweighted or _fallen(signals):
        return None
    # past its height for fewer rows than a trend takes, or not logged
    warming_up = rate is None or len(rate) - int(np.argmax(rate)) <= MIN_ROWS
    risen = signals.risen(reward) or signals.risen(signals.correctness)
    if warming_up or risen or signals.solved:
        return None
    change = signals.change(reward)
    most = change.difference + CERTAIN * change.error
    evidence = (
        f"{change}, a gain of at most {max(0.0, most):.2g} where rewards spread by "
        f"{signals.spread:.2g}"
    )
    # a training that has certainly gained less has not begun to learn
    if most <= 0.25 * signals.spread:
        cause = _no_gradient(signals) or _dead_groups(signals)
        if cause:
            advice = f"{cause.sentence.removesuffix('.')}: begin with that."
        elif signals.share_right is not None and signals.share_right < NOTABLE:
            advice = "Take easier questions, or a larger model: hardly an answer is right."
        else:
            advice = "Raise the learning rate, and see in notebook 02 what drives the advantage."
        return Finding("warning", "no_learning", "The reward does not rise.", evidence, advice)
    return Finding(
        "info",
        "too_few_steps",
        "The steps are too few, beside the noise, to tell whether it learns.",
        evidence,
        "Train on, or take more completions a step.",
    )


def _hacking(signals: Signals) -> Finding | None:
    """The total rises while correctness falls, since the window where it was best."""
    if signals.correctness is None or "reward" not in signals.rows:
        return None
    both = pd.DataFrame(
        {"correct": signals.correctness, "reward": signals.series("reward")}
    ).dropna()
    if len(both) < 2 * SHORTEST:
        return None
    windows = signals.since_best(both["correct"])
    fall, rise = (change_between(both[name], *windows) for name in ("correct", "reward"))
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


def _format_only(signals: Signals) -> Finding | None:
    """The format was learned and correctness, given as many rows again as a trend takes, has not
    moved.
    """
    form = signals.format
    right = signals.correctness
    if form is None or right is None or min(len(form), len(right)) < MIN_ROWS:
        return None
    gain = signals.change(form, SHORTEST)
    change = signals.change(right)
    learned = form.rolling(SHORTEST).mean() >= FORM_LEARNED
    since = len(form) - int(np.argmax(learned)) if learned.any() else 0
    # a gain of 0.2 is beyond what drifts
    held = gain.after >= FORM_LEARNED and gain.is_rise(CERTAIN, 0.2) and since >= MIN_ROWS
    still = not signals.risen(right) and change.difference + CERTAIN * change.error < NOTABLE
    if not held or not still or signals.solved:
        return None
    return Finding(
        "warning",
        "format_only",
        "The format was learned and correctness was not.",
        f"format {gain}; correctness {change}",
        "Weigh the format less, take easier questions, or a larger model: the policy may not be "
        "able to answer these.",
    )


def _length(signals: Signals) -> Finding | None:
    """Completions have become twice as long as at first, or half as long."""
    series = signals.series("completions/mean_length", 2 * SHORTEST)
    if series is None or series.min() <= 0:
        return None
    ratio = signals.change(np.log(series), SHORTEST)
    change = signals.change(series, SHORTEST)
    # doubled or halved: learning a shape changes the pocket model's length by half
    longer = ratio.is_rise(CERTAIN, np.log(2))
    if not longer and not ratio.is_fall(CERTAIN, np.log(2)):
        return None
    return Finding(
        "info" if signals.better else "warning",
        "length",
        f"Completions have become much {'longer' if longer else 'shorter'}"
        + (", and better." if signals.better else ", and no better."),
        f"mean length {change} (tokens)",
        "Reward brevity if more and more are cut off."
        if longer
        else "Read some: is the reasoning still there?",
    )


def _entropy(signals: Signals) -> Finding | None:
    """Entropy spent before the task is solved: without it no better answer is found (Cui et al.,
    arXiv 2505.22617).
    """
    # With a quarter left, samples of one question hardly differ. Where three in four are right it
    # was spent on being right; below, it is missed.
    if not _entropy_fell(signals, 0.25) or (signals.share_right or 0.0) >= 0.75:
        return None
    if signals.share_right is None:
        fine = signals.risen(signals.series("reward"))  # it may be solved
    else:
        right = signals.correctness
        w = min(signals.window, len(right) // 2)
        # likely higher in the last window than in the one before it
        fine = w > 0 and change_between(right, slice(-2 * w, -w), slice(-w, None)).is_rise(LIKELY)
    if fine:
        return None
    change = signals.change(signals.series("entropy"), SHORTEST)
    return Finding(
        "warning",
        "entropy",
        "The entropy has collapsed, and the policy no longer gets better.",
        f"{change} (nats per token)",
        "Raise the temperature or beta, or lower the learning rate. With several updates per round "
        "of sampling, a higher epsilon_high lets rare tokens gain.",
    )


def _spikes(signals: Signals) -> Finding | None:
    """The gradient norm has spikes, many times its median."""
    norms = signals.series("grad_norm")
    dead = signals.series("frac_reward_zero_std")
    if norms is None or dead is None or _numbers(signals):  # one finding about the gradient
        return None
    # In a step of dead groups only the KL has a gradient, beside which any other step would be a
    # spike.
    usual = norms[dead.reindex(norms.index) < 1].median()
    spikes = norms[norms > SPIKE * usual]
    if spikes.empty:
        return None
    often = len(spikes) >= 3  # one or two are cut down by max_grad_norm and leave no trace
    return Finding(
        "warning" if often else "info",
        "gradient",
        "The gradient norm has spikes.",
        f"{len(spikes)} of {len(norms)} rows above {SPIKE:g} times the median of {usual:.2g}, the "
        f"largest {spikes.max():.3g} at step {int(spikes.idxmax())}",
        "Lower the learning rate or max_grad_norm."
        if often
        else "One or two are cut down by max_grad_norm: leave it.",
    )


def _loss(signals: Signals) -> Finding | None:
    """The loss rises and the KL is not high, which is healthy."""
    loss = signals.series("loss", 2 * SHORTEST)
    drift = _kl(signals)
    if loss is None or (drift and drift.severity != "info"):
        return None
    change = signals.change(loss)
    if not change.is_rise(CERTAIN):
        return None
    return Finding(
        "info",
        "loss",
        "The loss rises, which is healthy.",
        str(change),
        "Apart from the completions' lengths, advantages cancel in it, and beta times the KL is "
        "added: judge by the reward.",
    )


def _unjudged(signals: Signals) -> Finding | None:
    """Many programs of a batch had no verdict: the sandbox lacks something, or time was over."""
    shares = signals.rows.filter(regex="/(unsupported|not_started)$")
    most = shares.max()
    if not most.max() > UNJUDGED:  # not <=: true for nan too, where nothing was logged
        return None
    worst = most.idxmax()
    return Finding(
        "warning",
        "unjudged",
        "Many programs were not judged, and score None, or nothing beside others of their row.",
        f"{worst} is {most[worst]:.0%} of the batch at step {shares[worst].idxmax()}",
        'Judge with backend="sandlock"; if they were not started, give the batch more '
        "time or each program less.",
    )


def _blind(signals: Signals) -> Finding | None:
    """The reward rises without the picture's help: from a holdout that is measured with its
    pictures and with grey ones during the training (`training.vision.Looking`).
    """
    sighted, blind = (signals.series(f"holdout/{way}", 3) for way in ("sighted", "blind"))
    reward = signals.series("reward")
    if sighted is None or blind is None or reward is None:
        return None
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


# --- An agent's tools -----------------------------------------------------------------------------

# TRL logs `tools/*` where a trainer has tools or environments; elsewhere these rules say nothing.
# What TRL does not show, a reward named `finished` does, of weight 0: 1.0 where the episode's last
# word is the policy's own and calls no tool, else 0.0. It judges neither the answer nor the form.


def _failing(signals: Signals) -> Finding | None:
    """Most calls come back as an error."""
    share = signals.series("tools/failure_frequency")
    often = signals.series("tools/call_frequency")
    # of a few calls a step, all fail by luck
    if share is None or often is None or signals.last(often).mean() < CALLS_LEFT:
        return None
    share = share[often.reindex(share.index) > 0]  # TRL logs 0 where nothing was called
    calls = often.reindex(signals.last(share).index).mean()
    return _mostly(
        signals,
        share,
        "tool_failures",
        "Most calls of tools come back as an error",
        f"{calls:.3g} calls per episode",
        "Read what the tools answered: refused arguments want a better description or an "
        "example in the prompt, an exception or a timeout a mended tool, and calls beyond a "
        "limit fewer turns.",
    )


def _unfinished(signals: Signals) -> Finding | None:
    """Most episodes end with a call that nobody answers: its result did not fit, or it was one turn
    too many.

    TRL ends such an episode at the end token of its call, so completions/clipped_ratio does not
    show it. Where what the policy wrote was cut, that is its own last word, and only clipped_ratio
    does. Both do where a result fits to the last token.
    """
    finished = signals.series("rewards/finished/mean")
    if finished is None or signals.series("tools/call_frequency") is None:
        return None
    return _mostly(
        signals,
        1 - finished,
        "unfinished",
        "Most episodes end before the policy's last word, with a call that is not answered",
        "the episodes",
        "Raise max_completion_length, which the whole episode shares with what the tools answer, "
        "or max_tool_calling_iterations; else make answers shorter or pay for fewer calls.",
    )


def _mostly(
    signals: Signals, share: pd.Series, rule: str, what: str, of: str, advice: str
) -> Finding | None:
    """A finding where a share that should be small is above a half: an info while it falls or the
    success rises.

    With few rows only where it was the whole in each of them: an untrained policy may fail often.
    """
    if len(share) < SHORTEST or lower_bound(signals.last(share)) < MOST:
        return None
    if not signals.enough and share.min() < 1:
        return None
    # Twice as many rows as a trend takes: all of a short training, and not what a long one gained
    # long ago.
    rows = 2 * max(MIN_ROWS, signals.window)
    improves = signals.change(share.iloc[-rows:]).is_fall(LIKELY, NOTABLE) or (
        signals.success is not None and signals.risen(signals.success.iloc[-rows:])
    )
    last = signals.last(share)
    critical = last.mean() >= NEARLY_ALL and not signals.better
    return Finding(
        "info" if improves else "critical" if critical else "warning",
        rule,
        what + (", but the training is still getting better." if improves else "."),
        f"{last.mean():.0%} of {of} at {span(last)}",
        advice,
    )


def _calls(signals: Signals) -> Finding | None:
    """The tools are given up, called much more than at first, or were never called.

    Fewer calls are what playing better looks like, as long as some are left; more are what harder
    tasks take, and the reward tells whether they pay.
    """
    often = signals.series("tools/call_frequency", 2 * SHORTEST)
    if often is None:
        return None
    change = signals.change(often, SHORTEST)
    better = signals.better
    highest = max(
        change, change_between(often, *signals.since_best(often)), key=lambda one: one.before
    )
    if highest.is_fall(SINCE_BEST, CALLS_USED) and highest.after < CALLS_LEFT:
        return Finding(
            "warning",
            "tool_calls",
            "The policy has given up its tools"
            + (", and the reward rises without them." if better else "."),
            f"{highest} (calls per episode)",
            "Read some episodes: a call that cannot be parsed is plain text and ends the episode. "
            "Else lower the learning rate, and find what pays without a call.",
        )
    # from none to one is learning to call
    if change.is_rise(CERTAIN) and change.after >= 2 * max(change.before, 1.0):
        return Finding(
            "info" if better else "warning",
            "tool_calls",
            "The policy calls its tools much more"
            + (", and better." if better else ", and no better."),
            f"{change} (calls per episode)",
            "Read which calls repeat; limit them by max_tool_calling_iterations, or pay for fewer.",
        )
    if highest.before < CALLS_LEFT and not (better or signals.solved):
        return Finding(
            "info",
            "tool_calls",
            "The policy hardly calls its tools, and never did.",
            f"{change} (calls per episode)",
            "See that the prompt lists the tools and that its calls can be parsed; else show it "
            "examples before training.",
        )
    return None


# In the order in which findings of one severity are told: causes before their effects.
_RULES = (
    _unread, _numbers, _no_gradient, _silent, _unjudged, _sampling, _kl, _hacking, _failing,
    _clipped, _unfinished, _calls, _dead_groups, _constant, _fallen, _flat, _format_only, _length,
    _entropy, _spikes, _loss, _blind,
)  # fmt: skip
_AT_ONCE = (
    _unread, _numbers, _no_gradient, _silent, _unjudged, _sampling, _kl, _failing, _clipped,
    _unfinished, _dead_groups, _blind,
)  # fmt: skip
