"""The former name of `helpers.agents`, for environments that were written with it."""

from helpers.agents import *  # noqa: F403
