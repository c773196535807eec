"""Stage 02, reward functions: unit-scale, TRL's signature, plain-text and chat completions alike.

In: `completions` and the data's columns, each a list with one entry per completion. Out: as many
floats, or None where the row itself cannot be judged; and from the laboratory (`lab`)
`reward_report.json`, a go or a no go. Used by notebook 02, and by all that train or measure. Bind
tags and other options with `functools.partial(format_reward, tags=TagFormat(…))`: TRL logs a
partial under the function's own name.
"""

import inspect
from collections.abc import Callable
from functools import partial

from helpers.rewards.answers.kinds import same_answer
from helpers.rewards.answers.numbers import parse_number
from helpers.rewards.code.rewards import program_of, tests_reward
from helpers.rewards.code.tests import read_tests
from helpers.rewards.correctness import (
    correctness_reward,
    exact_match_reward,
    fuzzy_match_reward,
    numeric_reward,
    proximity_reward,
    task_reward,
)
from helpers.rewards.length import max_length_reward, min_length_reward, target_length_reward
from helpers.rewards.shaping import reward_name
from helpers.rewards.structure import (
    code_format_reward,
    format_reward,
    incremental_format_reward,
    json_format_reward,
    soft_format_reward,
    substantial_format_reward,
)
from helpers.rewards.style import (
    citation_reward,
    forbidden_patterns_reward,
    reasoning_steps_reward,
    repetition_reward,
)
from helpers.tags import THINK_ANSWER, TagFormat

__all__ = [
    "REWARD_SETS",
    "citation_reward",
    "code_format_reward",
    "correctness_reward",
    "exact_match_reward",
    "forbidden_patterns_reward",
    "format_reward",
    "fuzzy_match_reward",
    "incremental_format_reward",
    "json_format_reward",
    "max_length_reward",
    "min_length_reward",
    "numeric_reward",
    "parse_number",
    "program_of",
    "proximity_reward",
    "read_tests",
    "reasoning_steps_reward",
    "repetition_reward",
    "reward_name",
    "reward_set",
    "same_answer",
    "soft_format_reward",
    "substantial_format_reward",
    "target_length_reward",
    "task_reward",
    "tests_reward",
]

# Starting points, to be attacked in notebook 02 on your own rows before they train anything.
REWARD_SETS = {
    "math": {
        correctness_reward: 1.0,
        substantial_format_reward: 0.5,
        incremental_format_reward: 0.5,
    },
    # The column `tests` holds what the program must pass, all of it: a share of them can be guessed
    # (in a third of HumanEval's problems, by always returning True).
    "code": {
        partial(tests_reward, share=False): 1.0,
        code_format_reward: 0.25,
    },
    "summaries": {
        fuzzy_match_reward: 1.0,
        partial(target_length_reward, target=80): 0.5,
        repetition_reward: 0.25,
        substantial_format_reward: 0.25,
    },
    "qa": {
        correctness_reward: 1.0,
        fuzzy_match_reward: 0.25,
        substantial_format_reward: 0.25,
        citation_reward: 0.25,
    },
}


def reward_set(name: str, tags: TagFormat = THINK_ANSWER) -> tuple[list, list[float]]:
    """The functions and the weights of a named set, with the tags bound, as GRPOTrainer and
    GRPOConfig take them.

    ValueError for another name than math, code, summaries or qa.

    >>> functions, weights = reward_set("math")
    >>> [reward_name(function) for function in functions]
    ['correctness_reward', 'substantial_format_reward', 'incremental_format_reward']
    >>> weights
    [1.0, 0.5, 0.5]
    """
    if name not in REWARD_SETS:
        raise ValueError(f"reward set {name!r} is not known. Known: {', '.join(REWARD_SETS)}.")
    chosen = REWARD_SETS[name]
    return [with_tags(function, tags) for function in chosen], list(chosen.values())


def with_tags(reward: Callable, tags: TagFormat) -> Callable:
    """The reward with the tags bound, if it reads them.

    Not where `tags` is None by default: such a reward judges the whole completion unless told
    otherwise.
    """
    reads = inspect.signature(reward).parameters.get("tags")
    return partial(reward, tags=tags) if reads and reads.default is not None else reward
