"""The former name of `helpers.rewards.code`, for rewards that were written with it."""

from helpers.rewards.code import Backend, Job, Limits, Outcome, run_code

__all__ = ["Backend", "Job", "Limits", "Outcome", "run_code"]
