"""Reward functions: unit-scale, TRL's signature, plain-text and chat completions alike.

A reward takes `completions` and the data's columns, each a list with one entry a completion, and returns as many floats, or
None where the row itself cannot be judged. Bind other tags with `functools.partial(format_reward, tags=TagFormat(…))`: TRL
logs a partial under the function's own name.
"""

from helpers.rewards.correctness import correctness_reward, parse_number, same_answer
from helpers.rewards.structure import format_reward, incremental_format_reward

__all__ = ["correctness_reward", "format_reward", "incremental_format_reward", "parse_number", "same_answer"]
