"""The laboratory: rewards are tried, attacked, measured and timed before they train anything.

It takes rewards with weights, labelled cases and attacks. It returns measures, and a go or no-go
decision with its reasons.
"""

from helpers.rewards.lab.cases import CASES, load_cases, stored_groups
from helpers.rewards.lab.measures import Lab

__all__ = ["CASES", "Lab", "load_cases", "stored_groups"]
