"""The laboratory: a list of rewards is tried, attacked, measured and timed before it trains
anything.

In: rewards with weights, labelled cases, the attacks. Out: measures, and a go or a no go with its
reasons.
"""

from helpers.rewards.lab.cases import CASES, load_cases, stored_groups
from helpers.rewards.lab.measures import Lab

__all__ = ["CASES", "Lab", "load_cases", "stored_groups"]
