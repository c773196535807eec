"""Notebook 10, agents: episodes of several turns in TRL's slot for environments, the guard around
them, and the laboratory that plays them first.

In: a class with `reset(**columns)`, methods that are the policy's tools, and `get_reward()`.
Out: a factory for `GRPOTrainer(environment_factory=…)` whose tools cannot end or hang a training,
and from `laboratory`, whose scripted `players` attack it, a go or a no go. `episodes` plays without
a trainer, and `trainer` has what one gets beside the factory. What is imported here needs pydantic
alone, as the Python that serves an environment has.
"""

from helpers.agents.guard import BrokenEnvironment, Guarded
from helpers.agents.guessing import Guessing
from helpers.agents.protocol import Environment, ToolError, check_environment

__all__ = [
    "BrokenEnvironment",
    "Environment",
    "Guarded",
    "Guessing",
    "ToolError",
    "check_environment",
]
