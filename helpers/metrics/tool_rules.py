"""The rules of the diagnosis for an agent's training: its calls of tools.

TRL logs `tools/*` for a trainer with tools or environments. What TRL does not log, a reward named
`finished` does, with weight 0: 1.0 if the last word of the episode is the policy's own and calls no
tool, else 0.0. It judges neither the answer nor the form.
"""

import pandas as pd

from helpers.metrics.signals import (
    LIKELY,
    MIN_ROWS,
    MOST,
    NEARLY_ALL,
    NOTABLE,
    SHORTEST,
    SINCE_BEST,
    Finding,
    Signals,
    change_between,
    lower_bound,
    span,
)

# calls per episode: a policy with fewer had no habit of calling that it could lose
CALLS_USED = 0.5
CALLS_LEFT = 0.1  # calls per episode: nine of ten episodes, or more, have none


def failing_calls(signals: Signals) -> Finding | None:
    """Most calls come back as an error."""
    share = signals.series("tools/failure_frequency")
    calls = signals.series("tools/call_frequency")
    if signals.last(calls).mean() < CALLS_LEFT:  # of a few calls a step, all fail by luck
        return None
    share = share[calls.reindex(share.index) > 0]  # TRL logs 0 for a step without a call
    per_episode = calls.reindex(signals.last(share).index).mean()
    return _too_often(
        signals,
        share,
        "tool_failures",
        "Most calls of tools come back as an error",
        f"{per_episode:.3g} calls per episode",
        "Read what the tools answered: refused arguments want a better description or an "
        "example in the prompt, an exception or a timeout a mended tool, and calls beyond a "
        "limit fewer turns.",
    )


def unfinished_episodes(signals: Signals) -> Finding | None:
    """Most episodes end with a call that nobody answers: its result did not fit, or it was one turn
    too many.

    TRL ends such an episode at the end token of its call, so completions/clipped_ratio does not
    show it.
    """
    signals.series("tools/call_frequency")  # without tools, it is somebody's own reward
    finished = signals.series("rewards/finished/mean")
    return _too_often(
        signals,
        1 - finished,
        "unfinished",
        "Most episodes end before the policy's last word, with a call that is not answered",
        "the episodes",
        "Raise max_completion_length, which the whole episode shares with what the tools answer, "
        "or max_tool_calling_iterations; else make answers shorter or pay for fewer calls.",
    )


def _too_often(
    signals: Signals, share: pd.Series, rule: str, sentence: str, total: str, advice: str
) -> Finding | None:
    """Return a finding if a share that should be small is above a half; it is an info while the
    share falls or the success rises.
    """
    last = signals.last(share)
    if len(share) < SHORTEST or lower_bound(last) < MOST:
        return None
    # an untrained policy may fail often: in its first steps only what failed throughout counts
    if not signals.enough and share.min() < 1:
        return None
    # Judge all of a short training, and of a long one not what it gained long ago: twice as many
    # rows as a trend takes.
    rows = 2 * max(MIN_ROWS, signals.window)
    improves = signals.change(share.iloc[-rows:]).is_fall(LIKELY, NOTABLE)
    if signals.success is not None:
        improves = improves or signals.risen(signals.success.iloc[-rows:])
    if improves:
        severity = "info"
        sentence += ", but the training is still getting better"
    elif last.mean() >= NEARLY_ALL and not signals.better:
        severity = "critical"
    else:
        severity = "warning"
    evidence = f"{last.mean():.0%} of {total} at {span(last)}"
    return Finding(severity, rule, f"{sentence}.", evidence, advice)


def given_up_tools(signals: Signals) -> Finding | None:
    """The tools are given up, or were never called.

    Fewer calls are what playing better looks like, as long as some are left.
    """
    calls = signals.series("tools/call_frequency", 2 * SHORTEST)
    change = signals.change(calls, SHORTEST)
    since_best = change_between(calls, *signals.since_best(calls))
    highest = change if change.before >= since_best.before else since_best
    if highest.is_fall(SINCE_BEST, CALLS_USED) and highest.after < CALLS_LEFT:
        return Finding(
            "warning",
            "tool_calls",
            "The policy has given up its tools"
            + (", and the reward rises without them." if signals.better else "."),
            f"{highest} (calls per episode)",
            "Read some episodes: a call that cannot be parsed is plain text and ends the episode. "
            "Else lower the learning rate, and find what pays without a call.",
        )
    if highest.before < CALLS_LEFT and not (signals.better or signals.solved):
        return Finding(
            "info",
            "tool_calls",
            "The policy hardly calls its tools, and never did.",
            f"{change} (calls per episode)",
            "See that the prompt lists the tools and that its calls can be parsed; else show it "
            "examples before training.",
        )
    return None
