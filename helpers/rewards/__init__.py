"""Stage 02, reward functions: what a completion earns, on a scale of 0 to 1.

In: `completions` and the data's columns, lists with one entry per completion; this is TRL's
signature. Out: a list of scores, None for a row that cannot be judged; and `reward_report.json`
from the laboratory (`lab`), which attacks rewards before training. Used by notebook 02, and by
every notebook that trains or measures. Bind options with functools.partial, such as
`partial(format_reward, tags=TagFormat("reasoning", "answer"))`. Importing this package imports none
of its modules, so a sandbox or a judge is loaded only when it is used.
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
    "tests": "programs",
}


def __getattr__(name: str) -> Callable:
    """Return a reward of the library by its full name; AttributeError for any other name."""
    module = LIBRARY.get(name.removesuffix("_reward"))
    if module is None or not name.endswith("_reward"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
