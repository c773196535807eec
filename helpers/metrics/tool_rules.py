"""The rules of the diagnosis for an agent: calls that fail, episodes cut off, tools that are given
up or called without end.

TRL logs `tools/*` where a trainer has tools or environments; elsewhere these rules say nothing.
What TRL does not show, a reward named `finished` does, of weight 0: 1.0 where the episode's last
word is the policy's own and calls no tool, else 0.0. It judges neither the answer nor the form.
"""

import pandas as pd

from helpers.metrics.signals import (
    CERTAIN,
    CHOSEN,
    LIKELY,
    MIN_ROWS,
    MOST,
    MOVE,
    NEARLY_ALL,
    SHORTEST,
    Finding,
    Signals,
    compare,
    span,
    surely,
)

CALLS_USED = (
    0.5  # calls per episode: a policy with fewer had no habit of calling that it could lose
)
CALLS_LEFT = 0.1  # calls per episode: nine of ten episodes, or more, have none


def failing(signals: Signals) -> Finding | None:
    """Most calls come back as an error."""
    share, often = signals.series("tools/failure_frequency"), signals.series("tools/call_frequency")
    # of a few calls a step, all fail by luck
    if share is None or often is None or signals.last(often).mean() < CALLS_LEFT:
        return None
    share = share[often.reindex(share.index) > 0]  # TRL logs 0 where nothing was called
    calls = often.reindex(signals.last(share).index).mean()
    return _most(
        signals,
        share,
        "tool_failures",
        "Most calls of tools come back as an error",
        f"{calls:.3g} calls per episode",
        "Read what the tools answered: refused arguments want a better description or an "
        "example in the prompt, an exception or a timeout a mended tool, and calls beyond a "
        "limit fewer turns.",
    )


def unfinished(signals: Signals) -> Finding | None:
    """Most episodes end with a call that nobody answers: its result did not fit, or it was one turn
    too many.

    TRL ends such an episode at the end token of its call, so completions/clipped_ratio does not
    show it. Where what the policy wrote was cut, that is its own last word, and only clipped_ratio
    does. Both do where a result fits to the last token.
    """
    finished = signals.series("rewards/finished/mean")
    if finished is None or signals.series("tools/call_frequency") is None:
        return None
    return _most(
        signals,
        1 - finished,
        "unfinished",
        "Most episodes end before the policy's last word, with a call that is not answered",
        "the episodes",
        "Raise max_completion_length, which the whole episode shares with what the tools answer, "
        "or max_tool_calling_iterations; else make answers shorter or pay for fewer calls.",
    )


def _most(
    signals: Signals, share: pd.Series, rule: str, what: str, of: str, advice: str
) -> Finding | None:
    """A finding where a share that should be small is above a half: an info while it falls or the
    success rises.

    With few rows only where it was the whole in each of them: an untrained policy may fail often.
    """
    if len(share) < SHORTEST or surely(signals.last(share)) < MOST:
        return None
    if not signals.enough and share.min() < 1:
        return None
    # Twice as many rows as a trend takes: all of a short training, and not what a long one gained
    # long ago.
    rows = 2 * max(MIN_ROWS, signals.window)
    improves = signals.change(share.iloc[-rows:]).is_fall(LIKELY, MOVE) or (
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


def calls(signals: Signals) -> Finding | None:
    """The tools are given up, called much more than at first, or were never called.

    Fewer calls are what playing better looks like, as long as some are left; more are what harder
    tasks take, and the reward tells whether they pay.
    """
    often = signals.series("tools/call_frequency", 2 * SHORTEST)
    if often is None:
        return None
    change, better = signals.change(often, SHORTEST), signals.better
    highest = max(change, compare(often, *signals.since_best(often)), key=lambda one: one.before)
    if highest.is_fall(CHOSEN, CALLS_USED) and highest.after < CALLS_LEFT:
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
