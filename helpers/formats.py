"""The former name of `helpers.tags`, for rewards that were written with it."""

from helpers.tags import *  # noqa: F403
