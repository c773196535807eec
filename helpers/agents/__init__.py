"""Notebook 10, agents: episodes of several turns in TRL's slot for environments, the guard around
them, and the laboratory that plays them first.

In: a class with `reset(**columns)`, methods that are the policy's tools and, if it judges itself,
`get_reward()`. Out: a factory for `GRPOTrainer(environment_factory=…)` whose tools cannot end or
hang a training, `environment_faults.jsonl` beside the rewards' log, and from `laboratory` a go or a
no go. Nothing here needs a model.
"""

from helpers.agents.guard import BrokenEnvironment, Guarded
from helpers.agents.guessing import Guessing
from helpers.agents.laboratory import Laboratory
from helpers.agents.protocol import Environment, ToolError, check_environment, prepare_template

__all__ = [
    "BrokenEnvironment",
    "Environment",
    "Guarded",
    "Guessing",
    "Laboratory",
    "ToolError",
    "check_environment",
    "prepare_template",
]
