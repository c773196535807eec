"""The rewards of examples/more_rewards.py: the examples in their docstrings, what else earns, and no
completion that makes one raise.
"""

import doctest
from functools import partial

import pytest

from examples import more_rewards as more
from helpers.rewards.own import read_rewards
from helpers.tags import THINK_ANSWER

FOUR = "First, 2 + 2. Then, 4 + 1. Finally, 5."
HUGE = ["1e999", "-1e999", "1e-999", "9" * 100]


def answers(reward, *rows) -> list[tuple]:
    """Rows of the table for a reward that compares: what is in the answer block, the row's answer,
    what it earns.
    """
    return [
        (reward, f"<answer>{given}</answer>", {"answer": [gold]}, expected)
        for given, gold, expected in rows
    ]


TABLE = [
    # (reward, completion, columns, expected)
    *answers(more.exact_match_reward, ("Paris", "Paris", 1), (" Paris\n", "Paris", 1)),
    *answers(more.exact_match_reward, ("paris", "Paris", 0), ("4.0", "4", 0), ("", "", 0)),
    *answers(partial(more.exact_match_reward, ignore_case=True), ("B", "b ", 1), ("4.0", "4", 0)),
    *answers(more.numeric_reward, ("3.1412", "3.1415927", 1), ("3.13", "3.1415927", 0)),
    *answers(more.numeric_reward, ("1001", "1000", 1), ("1001.1", "1000", 0), ("50%", "0.5", 1)),
    *answers(more.numeric_reward, ("999", "1,000 km", 1), ("0", "0", 1), ("0.0000001", "0", 0)),
    *answers(more.numeric_reward, ("-1000", "1000", 0), ("1000 or 2", "1000", 0), ("nan", "1", 0)),
    *answers(more.numeric_reward, ("4", "Paris", None), ("4", 4, 1)),
    *answers(more.numeric_reward, *[(n, n, 1) for n in HUGE], *[(n, "1", 0) for n in HUGE]),
    *answers(more.numeric_reward, *[("1", n, 0) for n in HUGE]),
    *answers(partial(more.numeric_reward, relative_tolerance=0.05), ("104", "100", 1)),
    *answers(partial(more.numeric_reward, relative_tolerance=0.05), ("106", "100", 0)),
    *answers(partial(more.numeric_reward, relative_tolerance=0), ("100.0", "100", 1)),
    *answers(more.fuzzy_match_reward, ("Marie Curie", "marie  curie", 1), ("a", "aaaa", 0.25)),
    *answers(more.fuzzy_match_reward, ("Mary Curie", "marie curie", 0.818182), ("", "Paris", 0)),
    *answers(more.fuzzy_match_reward, ("abcd", "abxd", 0.75), ("Paris", "xyzvw", 0)),
    *answers(more.fuzzy_match_reward, ("x" * 10_000 + "a", "x" * 10_000 + "b", 1)),
    *answers(partial(more.fuzzy_match_reward, threshold=0.75), ("abcd", "abxd", 0.75)),
    *answers(partial(more.fuzzy_match_reward, threshold=0.76), ("abcd", "abxd", 0)),
    (more.proximity_reward, "<answer>99</answer>", {"answer": ["100"]}, 0.495),
    (more.proximity_reward, "<answer>200</answer>", {"answer": [100]}, 0.25),
    (more.proximity_reward, "<answer>-100</answer>", {"answer": ["100"]}, 0.0),
    (more.proximity_reward, "<answer>5</answer>", {"answer": ["0"]}, 0.0),
    (more.proximity_reward, "<answer>1 or 2</answer>", {"answer": ["1"]}, 0.0),
    (more.proximity_reward, "<answer>4</answer>", {"answer": ["Paris"]}, None),
    (more.soft_format_reward, "<think>so<answer>4</answer></think>", {}, 0.0),
    (more.soft_format_reward, "<answer>3</answer><think>a</think> <answer>4</answer>", {}, 1.0),
    (partial(more.min_length_reward, minimum=4), "", {}, 0.0),
    (partial(more.min_length_reward, minimum=4), "a b c d e", {}, 1.0),
    (partial(more.max_length_reward, maximum=4, unit="characters"), "sixsix", {}, 0.5),
    (partial(more.max_length_reward, maximum=4), "a " * 90, {}, 0.0),
    (more.reasoning_steps_reward, f"<think>{FOUR}</think><answer>- x</answer>", {}, 1.0),
    (more.reasoning_steps_reward, "1. a\n1. a\n2. ...", {}, pytest.approx(1 / 3)),
    (more.reasoning_steps_reward, "2 + 2 = 4", {}, 0.0),
    (more.citation_reward, "[1] [2]", {"sources": [["a"]]}, 0.0),
    (partial(more.citation_reward, citations=4), "[1] [1] [2]", {}, 0.5),
    (more.citation_reward, "[0]", {}, 0.0),
    (more.code_format_reward, "```python\nx = 1\n```\n```python\ny = 1\n```", {}, 0.0),
    (more.code_format_reward, "```python\n# nothing\n```", {}, 0.5),
    (more.code_format_reward, "```python\n" + "(" * 5_000 + "\n```", {}, 0.5),
]
HOSTILE = ["9" * 10**5, "[1]" * 10**4, "1. " * 10**4, "\ud800", "٣", None, [], 3, [None]]


def test_each_gives_what_its_table_and_its_docstring_say():
    assert doctest.testmod(more).failed == 0
    for reward, completion, columns, expected in TABLE:
        assert reward([completion], **columns) == [expected], (reward, completion)
        odd = reward(HOSTILE, **{name: values * len(HOSTILE) for name, values in columns.items()})
        assert all(score is None or 0 <= score <= 1 for score in odd)
    (named,), weights = read_rewards(
        "examples/more_rewards.py:soft_format_reward*0.25", THINK_ANSWER
    )
    assert named(["4"]) == [0.0] and weights == [0.25]
