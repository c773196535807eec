"""Stage 02, reward functions: what a completion earns, on a scale of 0 to 1.

In: `completions` and the data's columns, lists with one entry per completion; this is TRL's
signature. Out: a list of scores, None for a row that cannot be judged; and `reward_report.json`
from the laboratory, which attacks rewards before training. Used by every notebook but 01, 04 and
10. Bind options with functools.partial, such as `partial(format_reward, tags=TagFormat("reasoning",
"answer"))`. Importing this package imports none of its modules, so a sandbox or a judge is loaded
only when it is used.
"""

from helpers import door

# The rewards that the parameter `rewards=` knows by name, without `_reward`. Those for lengths are
# missing, because they need a number, which a name cannot give.
LIBRARY = (
    "correctness",
    "task",
    "format",
    "incremental_format",
    "substantial_format",
    "tests",
)

__getattr__ = door(
    __name__,
    {
        "common": "reward_name",
        "controls": "check_control control_rewards",
        "correctness": "correctness_reward",
        "judge": "JudgeReward",
        "own": "copies_of own_rewards with_absolute_paths",
        "programs": "looks_up program_of tests_reward verdicts",
        "reasoning_gym": "task_reward",
        "structure": "format_reward incremental_format_reward substantial_format_reward",
    },
)
