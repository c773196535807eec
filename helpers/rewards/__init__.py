"""Stage 02, reward functions: unit-scale, TRL's signature, plain-text and chat completions alike.

In: `completions` and the data's columns, each a list with one entry per completion. Out: as many
floats, or None where the row itself cannot be judged; and from the laboratory (`lab`)
`reward_report.json`, a go or a no go. Used by notebook 02, and by all that train or measure. Bind
tags and other options with `functools.partial(format_reward, tags=TagFormat(…))`: TRL logs a
partial under the function's own name. Importing this package imports none of its modules: neither a
sandbox nor a judge comes with `correctness_reward`, and `from helpers.rewards import
correctness_reward` imports its module alone.
"""

import importlib
from collections.abc import Callable

# The rewards that `rewards=` knows by name, without `_reward`, and the module of each. Lengths are
# not among them: they need a number, which a name cannot give.
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
