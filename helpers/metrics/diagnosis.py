"""Diagnose a GRPO training run from its history: faults, the numbers that show them, and advice.

    for finding in diagnose(read_metrics(run.folder / "metrics.csv")):
        print(finding)

Each rule is a function that returns a finding or None. The rules are grouped by what they look at:
`reward_rules`, `group_rules`, `length_rules`, `drift_rules` (KL, entropy, clip), `machine_rules`
and `tool_rules`. A rule finds nothing if a column it needs was not logged (`signals.apply`).
`RULES` lists all, and `CAUSES` says which finding explains which.
"""

from dataclasses import replace

import pandas as pd

from helpers.metrics.drift_rules import (
    clipped_updates,
    collapsed_entropy,
    high_kl,
    rising_loss,
    unmoved_policy,
)
from helpers.metrics.group_rules import constant_reward, dead_groups, unweighted_rewards
from helpers.metrics.history import in_trl_names
from helpers.metrics.length_rules import (
    changed_length,
    clipped_completions,
    end_token,
    equal_lengths,
)
from helpers.metrics.machine_rules import (
    gradient_spikes,
    growing_memory,
    no_gradient,
    not_a_number,
    sampling_gap,
    silent_reward,
    slower_steps,
    unjudged_programs,
)
from helpers.metrics.reward_rules import (
    blind_policy,
    fallen_reward,
    flat_reward,
    format_only,
    hacked_reward,
    held_out_gap,
    indifferent_reward,
    other_reward,
    plateau,
)
from helpers.metrics.signals import MIN_ROWS, SEVERITIES, Finding, Signals, apply, span
from helpers.metrics.tool_rules import failing_calls, given_up_tools, unfinished_episodes


def diagnose(history: pd.DataFrame | list[dict]) -> list[Finding]:
    """Return the findings about a training history, the most severe first.

    history: one row per logged step, as `read_metrics` returns it, or `read_log` from a log of
        another trainer, or `trainer.state.log_history`. Columns have TRL's names, or names that
        `in_trl_names` knows; columns and values may be missing. A reward's name says whether it
        judges the answer (`accuracy_reward`) or the format (`format_reward`).

    A healthy history gives findings of severity "info", or none. With fewer than MIN_ROWS rows,
    only the rules in AT_ONCE are used. A finding that another one explains gives no advice of its
    own but names that one (`Finding.cause`).
    """
    # 1. Read the history, with TRL's names.
    signals = Signals(in_trl_names(pd.DataFrame(history)))

    # 2. Apply the rules, and find out which finding explains which.
    findings = []
    for rule in RULES if signals.enough_rows else AT_ONCE:
        finding = apply(rule, signals)
        if finding is not None:
            findings.append(finding)
    findings = explained(findings)

    # 3. Say if the history is too short for most rules, and sort.
    if not signals.enough_rows:
        findings.append(
            Finding(
                "info",
                "too_few_steps",
                "There are too few steps to tell whether the policy learns.",
                f"{len(signals.rows)} logged, and below {MIN_ROWS} a trend cannot be told from "
                "noise",
                "Train longer. Until then, only findings that cannot be chance are reported.",
            )
        )
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))


def explained(findings: list[Finding]) -> list[Finding]:
    """Return the findings. One that another finding explains names that one in place of its advice,
    and a cause is at least as severe as what it explains.
    """
    by_rule = {finding.rule: finding for finding in findings}

    # 1. Name the cause of each finding: what the rule itself names comes before CAUSES.
    for finding in findings:
        causes = [finding.cause, *CAUSES.get(finding.rule, ())]
        cause = next((rule for rule in causes if rule in by_rule), "")
        advice = f"This follows from {cause}: begin there." if cause else finding.advice
        by_rule[finding.rule] = replace(finding, cause=cause, advice=advice)

    # 2. From each finding, go up to its cause, to the cause of that, and so on. All of them become
    # at least as severe as the finding.
    for finding in findings:
        cause = by_rule[finding.rule].cause
        while cause:
            severity = min(by_rule[cause].severity, finding.severity, key=SEVERITIES.index)
            by_rule[cause] = replace(by_rule[cause], severity=severity)
            cause = by_rule[cause].cause
    return list(by_rule.values())


# What every training run logs. The KL, the entropy and the tools depend on settings.
LOGGED = ("reward", "reward_std", "frac_reward_zero_std", "completions/clipped_ratio", "grad_norm")

# What verl and OpenRLHF never log, by the beginning of a column that only they log.
NEVER_LOGGED = {
    "critic/": ("frac_reward_zero_std",),
    "total_length": ("reward_std", "frac_reward_zero_std", "completions/clipped_ratio"),
}


def unread(signals: Signals) -> Finding | None:
    """Report columns that every training run logs but that are missing here: a fault in them would
    go unnoticed.
    """
    # 1. Which columns have no number? Some trainers never log them.
    columns = [str(column) for column in signals.rows]
    missing = [name for name in LOGGED if signals.optional(name) is None]
    for beginning, never_logged in NEVER_LOGGED.items():
        if any(column.startswith(beginning) for column in columns):
            missing = [name for name in missing if name not in never_logged]
    if signals.rows.empty or not missing:
        return None

    # 2. How much can be judged without them?
    severity = "warning"
    if "reward" in missing:
        sentence = "Without a reward nothing can be judged."
    elif "reward_std" in missing:
        sentence = (
            "The spread of the reward is missing, so whether the reward rises or falls is not "
            "judged."
        )
    else:
        severity = "info"
        sentence = "Part of the history was not logged, or has other names, and is not judged."
    return Finding(
        severity,
        "unread",
        sentence,
        f"no numbers in {', '.join(missing)} at {span(signals.rows)}; found "
        f"{', '.join(columns[:20]) or 'no column'}",
        "If the log has them, name them as TRL does and write 0.25, not 0,25: a fault in unread "
        "columns goes unnoticed.",
    )


# A finding, and those that explain it: the first that is present does. A cause comes before what it
# explains, so no two findings explain each other.
_BROKEN = ("gradient", "no_gradient", "end_token", "clipped")
CAUSES = {
    "gradient_spikes": ("gradient",),
    "zero_spread": (*_BROKEN, "hacking"),
    "solved": ("held_out", "hacking"),
    "mode_collapse": ("gradient", "kl", "end_token", "clipped"),
    "constant": (*_BROKEN, "zero_spread"),
    "reward_fall": ("gradient", "hacking", "kl", "mode_collapse", "clipped"),
    "unmoved": (*_BROKEN, "zero_spread"),
    "indifferent": ("gradient",),
    "kl": ("indifferent",),
    "no_learning": (
        *_BROKEN,
        "unmoved",
        "indifferent",
        "kl",
        "mode_collapse",
        "zero_spread",
        "entropy",
        "clip_ratio",
    ),
    "plateau": (*_BROKEN, "kl", "zero_spread", "entropy", "clip_ratio", "format_only", "length"),
    "format_only": (*_BROKEN, "hacking", "mode_collapse", "zero_spread", "constant"),
    "other_reward": ("hacking",),
    "length": ("gradient", "kl", "clipped"),
    "entropy": ("gradient", "kl", "mode_collapse", "clip_ratio"),
}
# Findings of one severity are listed in this order: causes before effects.
RULES = (
    unread, held_out_gap, not_a_number, no_gradient, silent_reward, unjudged_programs,
    sampling_gap, indifferent_reward, high_kl, unmoved_policy, hacked_reward, failing_calls,
    end_token, clipped_completions, unfinished_episodes, given_up_tools, unweighted_rewards,
    dead_groups, constant_reward, fallen_reward, flat_reward, format_only, other_reward,
    collapsed_entropy, clipped_updates, gradient_spikes, changed_length, plateau, rising_loss,
    equal_lengths, slower_steps, growing_memory, blind_policy,
)  # fmt: skip
# The rules that can be used with fewer than MIN_ROWS rows.
AT_ONCE = (
    unread, not_a_number, no_gradient, silent_reward, unjudged_programs, sampling_gap, high_kl,
    failing_calls, end_token, clipped_completions, unfinished_episodes, unweighted_rewards,
    dead_groups, blind_policy,
)  # fmt: skip
