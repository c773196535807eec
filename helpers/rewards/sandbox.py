"""The documented path of before; see `helpers.rewards.code`."""

from helpers.rewards.code import BACKENDS, Job, Limits, run_code  # noqa: F401
