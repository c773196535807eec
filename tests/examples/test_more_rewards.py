"""The rewards of examples/more_rewards.py agree with their docstrings, and no completion makes them
raise.
"""

import doctest
from functools import partial

import pytest

from examples import more_rewards as more
from helpers.rewards.own import read_rewards
from helpers.tags import THINK_ANSWER

FOUR = "First, 2 + 2. Then, 4 + 1. Finally, 5."
NO_UNIT = partial(more.target_length_reward, target=10)
TOKENS = partial(more.target_length_reward, target=4, unit="tokens", tolerance=1)
HUGE = ["1e999", "-1e999", "1e-999", "9" * 100]


def answers(reward, *rows) -> list[tuple]:
    """Rows of the table for a reward that compares: what is in the answer block, the row's answer,
    what it earns.
    """
    return [
        (reward, f"<answer>{given}</answer>", {"answer": [gold]}, expected)
        for given, gold, expected in rows
    ]


def texts(reward, *rows) -> list[tuple]:
    return [(reward, text, {}, expected) for text, expected in rows]


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
    *texts(NO_UNIT, *[("word " * n, earned) for n, earned in ((10, 1), (9, 0.8), (11, 0.8))]),
    *texts(
        NO_UNIT, *[("word " * n, earned) for n, earned in ((6, 0.2), (5, 0), (15, 0), (999, 0))]
    ),
    *texts(NO_UNIT, ("a\u00a0b\u3000c d\n\te f g h i j", 1)),
    *texts(NO_UNIT, ("a\u200bb\u3164c\u2800d e f g h i j", 1)),
    *texts(partial(NO_UNIT, tolerance=2), ("", 0.5), ("word " * 20, 0.5), ("word " * 29, 0.05)),
    *texts(partial(NO_UNIT, tolerance=1e-9), ("word " * 10, 1), ("word " * 11, 0)),
    *texts(
        partial(more.target_length_reward, target=4, unit="characters"), ("äöü€", 1), ("a b\n", 1)
    ),
    *texts(
        partial(more.target_length_reward, target=4, unit="characters"), ("a\u200b\u3164bcd", 1)
    ),
    (TOKENS, "whatever", {"completion_ids": [[7] * 4]}, 1),
    (TOKENS, "", {"completion_ids": [[7] * 3]}, 0.75),
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


def test_each_reward_agrees_with_its_table_and_its_docstring():
    assert doctest.testmod(more).failed == 0
    for reward, completion, columns, expected in TABLE:
        (score,) = reward([completion], **columns)
        assert score == pytest.approx(expected, abs=1e-9), (reward, completion)
        odd = reward(HOSTILE, **{name: values * len(HOSTILE) for name, values in columns.items()})
        assert all(score is None or 0 <= score <= 1 for score in odd)
    (named,), weights = read_rewards(
        "examples/more_rewards.py:soft_format_reward*0.25", THINK_ANSWER
    )
    assert named(["4"]) == [0.0] and weights == [0.25]


@pytest.mark.parametrize("completions", [["a"], []], ids=["one", "none"])
@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"target": 0}, "target=0"),
        ({"target": float("nan")}, "target=nan"),
        ({"target": 4, "tolerance": 0}, "tolerance=0"),
        ({"target": 4, "unit": "Words"}, "'Words'.*characters, words, tokens"),
        ({"target": 4, "unit": "tokens"}, "completion_ids.*TRL"),
    ],
)
def test_an_impossible_option_is_named_with_its_value(options, why, completions):
    with pytest.raises(ValueError, match=why):
        more.target_length_reward(completions, **options)
