"""What a rule of the diagnosis says, and the measures that its rules share."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from helpers.metrics.signals import LIKELY

SEVERITIES = ("critical", "warning", "info")

# of 1, correctness or another share: a change that matters to a user, however certain a smaller one
# may be
MOVE = 0.1
MOST, NEARLY_ALL = 0.5, 0.9  # of the groups, completions, calls or episodes


@dataclass(frozen=True)
class Finding:
    """One thing that a history shows. `str()` of it is one line that holds everything.

    severity: one of SEVERITIES. rule: a short identifier; a history has at most one finding of
    each. what: a sentence without numbers. evidence: a phrase with numbers and steps. advice: a
    sentence, what to try. steps: first and last of the evidence.

    >>> print(Finding("warning", "kl", "The KL is high.", "0.6 at steps 1 to 9", "Lower the learning rate.", (1, 9)))
    warning (kl): The KL is high: 0.6 at steps 1 to 9. Lower the learning rate.
    """

    severity: str
    rule: str
    what: str
    evidence: str
    advice: str
    steps: tuple[int, int]

    def __str__(self) -> str:
        return (
            f"{self.severity} ({self.rule}): {self.what.removesuffix('.')}: {self.evidence}. "
            f"{self.advice}"
        )


def surely(shares: pd.Series) -> float:
    """The mean less its noise: with two groups a step, half of them agree by luck again
    and again.
    """
    return float(shares.mean() - LIKELY * shares.std() / len(shares) ** 0.5)
