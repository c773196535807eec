"""The rules that read an agent's training: calls that fail, episodes cut off, tools that are given
up or called without end.

TRL logs `tools/*` where a trainer has tools or environments; elsewhere these rules say nothing.
What TRL does not show, a reward named `finished` does, of weight 0: 1.0 where the episode's last
word is the policy's own and calls no tool, else 0.0. It judges neither the answer nor the form.
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from helpers.metrics.findings import MOST, MOVE, NEARLY_ALL, Finding, surely
from helpers.metrics.signals import (
    CERTAIN,
    CHOSEN,
    LIKELY,
    SHORTEST,
    Change,
    Signals,
    compare,
    span,
)

FAILURES_GROWN = 0.2  # share of the calls: harder tasks make some more of them fail
CALLS_USED = 0.5  # calls an episode: a policy with fewer had no habit of calling that it could lose
CALLS_LEFT = 0.1  # calls an episode: nine of ten episodes, or more, have none
CALLS_KEPT = 0.25  # of the first rows': to play well instead of badly takes less than that away
# times the first rows', or times one call where those have fewer: from none to one is learning to
# call
CALLS_FACTOR = 2.0

_BUT = {"info": ", but the training is still getting better.", "warning": ".", "critical": "."}


def failing(signals: Signals) -> Iterator[Finding]:
    """Most calls come back as an error now, or certainly more than at the best of times."""
    share, often = signals.series("tools/failure_frequency"), signals.series("tools/call_frequency")
    # of a few calls a step, all fail by luck
    if share is None or often is None or signals.last(often).mean() < CALLS_LEFT:
        return
    share = share[often.reindex(share.index) > 0]  # TRL logs 0 where nothing was called
    severity = _severity(signals, share)
    if severity:
        what = "Most calls of tools come back as an error" + _BUT[severity]
        advice = (
            "Read what the tools answered: refused arguments want a better description or an "
            "example in the prompt, "
            "an exception or a timeout a mended tool, and calls beyond a limit fewer turns."
        )
        last = signals.last(share)
        (first, end), calls = span(last), often.reindex(last.index).mean()
        evidence = f"{last.mean():.0%} of {calls:.3g} calls an episode at steps {first} to {end}"
        yield Finding(severity, "tool_failures", what, evidence, advice, (first, end))
    elif signals.enough and len(share) >= 2 * SHORTEST:
        change = compare(share, *signals.since_best(-share))
        if change.is_rise(CHOSEN, FAILURES_GROWN):
            what = "More and more calls of tools come back as an error" + (
                ", and the reward rises." if signals.better else "."
            )
            advice = (
                "Read what the tools answered; if it is the calls that got worse, lower the "
                "learning rate."
            )
            severity = "info" if signals.better else "warning"
            yield Finding(
                severity,
                "tool_failures",
                what,
                f"share of the calls {change}",
                advice,
                change.steps,
            )


def unfinished(signals: Signals) -> Iterator[Finding]:
    """Most episodes end with a call that nobody answers: its result did not fit, or it was one turn
    too many.

    TRL ends such an episode at the end token of its call, so that completions/clipped_ratio does
    not show it. Where what the policy wrote was cut, that is its own last word, and only
    clipped_ratio does. Both do where a result fits to the last token.
    """
    finished = signals.series("rewards/finished/mean")
    if finished is None or signals.series("tools/call_frequency") is None:
        return
    severity = _severity(signals, 1 - finished)
    if severity:
        last = 1 - signals.last(finished)
        first, end = span(last)
        what = (
            "Most episodes end before the policy's last word, with a call that is not answered"
            + _BUT[severity]
        )
        evidence = f"{last.mean():.0%} of the episodes at steps {first} to {end}"
        advice = (
            "Raise max_completion_length, which the whole episode shares with what the tools "
            "answer, or "
            "max_tool_calling_iterations; else make answers shorter or pay for fewer calls."
        )
        yield Finding(severity, "unfinished", what, evidence, advice, (first, end))


def _severity(signals: Signals, share: pd.Series) -> str | None:
    """How bad a share is that should be small: nothing below most; an info while it falls or the
    success rises.

    With few rows only where all failed in each of them: an untrained policy may fail often.
    """
    if (
        len(share) < SHORTEST
        or (not signals.enough and share.min() < 1)
        or surely(signals.last(share)) < MOST
    ):
        return None
    falls = signals.change(signals.lately(share)).is_fall(LIKELY, MOVE)
    if falls or (signals.success is not None and signals.risen(signals.lately(signals.success))):
        return "info"
    return (
        "critical" if signals.last(share).mean() >= NEARLY_ALL and not signals.better else "warning"
    )


def calls(signals: Signals) -> Iterator[Finding]:
    """The tools are given up, hardly called from the start, or called much less or much more than
    at first.

    Fewer calls are what playing better looks like, and more what harder tasks take: the reward
    tells which it is, but for a policy that calls nothing any more.
    """
    often = signals.series("tools/call_frequency")
    if often is None or len(often) < 2 * SHORTEST:
        return
    change, better = signals.early_change(often), signals.better
    highest = max(change, compare(often, *signals.since_best(often)), key=lambda one: one.before)
    if highest.is_fall(CHOSEN, CALLS_USED) and highest.after < CALLS_LEFT:
        what = "The policy has given up its tools" + (
            ", and the reward rises without them." if better else "."
        )
        advice = (
            "Read some episodes: a call that cannot be parsed is plain text and ends the episode. "
            "Else lower the learning "
            "rate, and find what pays without a call."
        )
        yield _calls("warning", what, highest, advice)
    elif change.is_fall(CERTAIN, CALLS_USED) and change.after <= CALLS_KEPT * change.before:
        fine = better or signals.solved
        what = "The policy calls its tools much less" + (
            ", and does as well." if fine else ", and no better."
        )
        advice = (
            "Read some episodes: are calls left out that were needed, or written so that "
            "they cannot be parsed?"
        )
        yield _calls("info" if fine else "warning", what, change, advice)
    elif change.is_rise(CERTAIN) and change.after >= CALLS_FACTOR * max(change.before, 1.0):
        what = "The policy calls its tools much more" + (
            ", and better." if better else ", and no better."
        )
        advice = (
            "Read which calls repeat; limit them by max_tool_calling_iterations, or pay for fewer."
        )
        yield _calls("info" if better else "warning", what, change, advice)
    elif highest.before < CALLS_LEFT and not (better or signals.solved):
        what = "The policy hardly calls its tools, and never did."
        advice = (
            "See that the prompt lists the tools and that its calls can be parsed; else show "
            "it examples before training."
        )
        yield _calls("info", what, change, advice)


def _calls(severity: str, what: str, change: Change, advice: str) -> Finding:
    return Finding(
        severity, "tool_calls", what, f"{change} (calls an episode)", advice, change.steps
    )
