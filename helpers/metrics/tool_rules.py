"""The diagnosis rules about an agent's tool calls.

They read the columns `tools/*`, which TRL logs for a trainer with tools or environments, and the
mean of `agents.trainer.finished`, a reward of weight 0. It is 1.0 if an episode ends with text of
the policy that calls no tool, else 0.0.
"""

import pandas as pd

from helpers.metrics.signals import (
    LIKELY,
    MIN_ROWS,
    MIN_WINDOW,
    MOST,
    NEARLY_ALL,
    NOTABLE,
    SINCE_BEST,
    Finding,
    Signals,
    change_between,
    lower_bound,
    span,
)

# Calls per episode.
CALLS_USED = 0.5  # with a smaller loss, the policy had not been relying on its tools
CALLS_LEFT = 0.1  # with fewer, at least nine episodes in ten have no call


def failing_calls(signals: Signals) -> Finding | None:
    """Report that most tool calls return an error."""
    share = signals.series("tools/failure_frequency")
    calls = signals.series("tools/call_frequency")
    # If there are only a few calls per step, all of them may fail by chance.
    if signals.last_window(calls).mean() < CALLS_LEFT:
        return None
    # Drop steps without a call, for which TRL logs 0.
    share = share[calls.reindex(share.index) > 0]
    per_episode = calls.reindex(signals.last_window(share).index).mean()
    return _too_often(
        signals,
        share,
        "tool_failures",
        "Most tool calls return an error",
        f"{per_episode:.3g} calls per episode",
        "Read what the tools answered: for refused arguments, improve the description or add an "
        "example to the prompt; for an exception or a timeout, fix the tool; for calls beyond a "
        "limit, ask for fewer turns.",
    )


def unfinished_episodes(signals: Signals) -> Finding | None:
    """Report that most episodes end with a tool call that is not answered, because its result was
    too long or the limit of turns was reached.

    completions/clipped_ratio does not show such episodes, because they end with an end token.
    """
    # Raise NotLogged if there are no tools: a user's own reward may be called `finished`.
    signals.series("tools/call_frequency")
    finished = signals.series("rewards/finished/mean")
    return _too_often(
        signals,
        1 - finished,
        "unfinished",
        "Most episodes end before the policy's last word, with a call that is not answered",
        "the episodes",
        "Raise max_completion_length, which the whole episode shares with the tools' answers, or "
        "max_tool_calling_iterations; otherwise, make answers shorter or reward fewer calls.",
    )


def _too_often(
    signals: Signals, share: pd.Series, rule: str, sentence: str, total: str, advice: str
) -> Finding | None:
    """Return a finding if a share that should be small is above one half. It is only an info while
    the share falls or success rises.
    """
    last = signals.last_window(share)
    if len(share) < MIN_WINDOW or lower_bound(last) < MOST:
        return None
    # A base model may fail often. In the first steps, report only a constant share of 1.
    if not signals.enough_rows and share.min() < 1:
        return None
    # Is the run still improving? An improvement long ago does not count, so use only the last rows:
    # twice as many as a trend needs.
    rows = 2 * max(MIN_ROWS, signals.window)
    improves = signals.change(share.iloc[-rows:]).is_fall(LIKELY, NOTABLE)
    if signals.success is not None:
        improves = improves or signals.has_risen(signals.success.iloc[-rows:])
    if improves:
        severity = "info"
        sentence += ", but the training is still getting better"
    elif last.mean() >= NEARLY_ALL and not signals.has_risen(signals.success):
        severity = "critical"
    else:
        severity = "warning"
    return Finding(
        severity,
        rule,
        f"{sentence}.",
        f"{last.mean():.0%} of {total} at {span(last)}",
        advice,
    )


def given_up_tools(signals: Signals) -> Finding | None:
    """Report that the policy stopped calling its tools, or never called them.

    Fewer calls are not a fault by themselves: a policy that improves may need fewer.
    """
    calls = signals.series("tools/call_frequency", 2 * MIN_WINDOW)
    change = signals.change(calls, MIN_WINDOW)
    since_best = change_between(calls, *signals.since_best(calls))
    highest = change if change.before >= since_best.before else since_best
    success_has_risen = signals.has_risen(signals.success)
    if highest.is_fall(SINCE_BEST, CALLS_USED) and highest.after < CALLS_LEFT:
        return Finding(
            "warning",
            "tool_calls",
            "The policy has stopped using its tools"
            + (", and the reward rises without them." if success_has_risen else "."),
            f"{highest} (calls per episode)",
            "Read some episodes: a call that cannot be parsed is plain text and ends the episode. "
            "Otherwise, lower the learning rate, and find what is rewarded without a call.",
        )
    if highest.before < CALLS_LEFT and not (success_has_risen or signals.solved):
        return Finding(
            "info",
            "tool_calls",
            "The policy hardly calls its tools, and never did.",
            f"{change} (calls per episode)",
            "Check that the prompt lists the tools and that the policy's calls can be parsed; "
            "otherwise, show it examples before training.",
        )
    return None
