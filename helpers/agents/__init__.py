"""Notebook 10, agents: episodes of several turns in TRL's slot for environments.

In: a class with `reset(**columns)`, methods that are the policy's tools, and `get_reward()`.
Out: from `guard`, a factory for `GRPOTrainer(environment_factory=…)` whose tools cannot end or hang
a training run; from `laboratory`, whose scripted `players` attack the environment, go or no go.
`episodes` plays without a trainer, and `trainer` has what a trainer gets besides the factory.
`guard`, `guessing` and `protocol` need only pydantic, as the Python that serves an environment may
have no more.
"""

from helpers import door

__getattr__ = door(
    __name__,
    {
        "episodes": "",
        "guard": "BrokenEnvironment Guarded",
        "guessing": "Guessing",
        "protocol": "Environment ToolError check_environment episode_rows prepare_template",
        "trainer": "StopIfBroken episodes_fingerprint finished",
        "helpers.own_code": "load_own",
    },
)
