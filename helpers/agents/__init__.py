"""Notebook 10, agents: episodes of several turns in TRL's slot for environments, the guard around
them, and the laboratory that plays them first.

In: a class with `reset(**columns)`, methods that are the policy's tools, and `get_reward()`.
Out: a factory for `GRPOTrainer(environment_factory=…)` whose tools cannot end or hang a training,
`environment_faults.jsonl` beside the rewards' log, and from `laboratory` a go or a no go. Only
`episodes`, which plays them without a trainer, needs a model.
"""

import importlib

# Each is imported when it is first asked for: an environment of one's own takes ToolError from
# here, and the Python that serves it (`examples/serve_environment.py`) has no package of the suite.
_MODULES = {
    "BrokenEnvironment": "guard",
    "Environment": "protocol",
    "Guarded": "guard",
    "Guessing": "guessing",
    "Laboratory": "laboratory",
    "ToolError": "protocol",
    "check_environment": "protocol",
    "prepare_template": "protocol",
}

__all__ = list(_MODULES)


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
