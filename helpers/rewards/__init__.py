"""Stage 02, reward functions: what a completion earns, on a scale of 0 to 1.

A reward takes `completions` and the data's columns, each a list with one entry per completion, and
returns a list of scores; None means that the row cannot be judged. This is TRL's signature, for
plain-text and chat completions. Bind options with `functools.partial`, under which TRL logs the
function's own name:

    from helpers.rewards import correctness_reward, format_reward
    rewards = [correctness_reward, partial(format_reward, tags=TagFormat("reasoning", "answer"))]

The laboratory (`lab`) attacks rewards before training and writes `reward_report.json`. Importing
this package imports none of its modules, so no sandbox and no judge is loaded before it is used.
"""

import importlib
from collections.abc import Callable

# The rewards that the parameter `rewards=` knows by name, without `_reward`, and their modules.
# Rewards for lengths are missing, because they need a number, which a name cannot give.
LIBRARY = {
    "correctness": "correctness",
    "task": "reasoning_gym",
    "format": "structure",
    "incremental_format": "structure",
    "substantial_format": "structure",
    "tests": "code.rewards",
}


def __getattr__(name: str) -> Callable:
    """Return a reward of the library by its full name; AttributeError for any other name."""
    module = LIBRARY.get(name.removesuffix("_reward"))
    if module is None or not name.endswith("_reward"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
