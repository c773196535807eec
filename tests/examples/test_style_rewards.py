"""The rewards of examples/style_rewards.py: disguised words, loops in any script, and patterns that
take too long.
"""

import doctest
from functools import partial

import pytest

from examples import style_rewards
from examples.style_rewards import forbidden_patterns_reward, repetition_reward


def texts(reward, *rows) -> list[tuple]:
    return [(reward, text, earned) for text, earned in rows]


DISGUISED = ["As\u200ban\u200bAI", "as a\u200bn AI", "as\u3164an AI", "as\u00a0an AI", "as  an\tAI"]
DISGUISED += [
    "ａｓ ａｎ ＡＩ",
    "𝐚𝐬 𝐚𝐧 𝐀𝐈",
    "as\u2800an AI",
    "I\u2019m sorry",
    "I can\u2060not",
    "as\nan AI",
    "as an\r\n\r\nAI",
    "as an\u2028AI",
    "I\n cannot",
    "i\u00adcannot",
    "I **cannot**",
    "as _an_ `AI`",
]
LOOPS = [
    "这个" * 90,
    "ha" * 500,
    "a," * 300,
    "ha\u200b" * 300,
    "ha\u3164" * 300,
    "-" * 300,
    "?! " * 90,
]
LOOPS += [
    "ha \uff48a " * 90,
    "สวัสดี" * 90,
    "😀" * 90,
    "ha\n" * 90,
    "ha." * 300,
    "1/" * 300,
    "<b>ha</b>" * 90,
]
WRITTEN = [
    "First we add 3 and 4, which is 7. Then we multiply 7 by 2 and get 14. So the answer is 14.",
    "今天天气很好，我们一起去公园玩吧。他说他喜欢吃苹果。",
    "def f(xs):\n    total = 0\n    for x in xs:\n        total += x\n    return total",
    "5 + 3 = 8. 8 + 2 = 10. 10 - 4 = 6. So $\\frac{6}{2} = 3$ and $\\frac{12}{4} = 3$.",
    "https://example.com/some/long/path/file.html?x=1&y=2",
]
TABLE = [
    # --- what is written
    *texts(forbidden_patterns_reward, ("Bonn.", 1), ("AS AN AI language model", 0), ("", 1)),
    *texts(forbidden_patterns_reward, ("I'm sorry, but", 0), ("Well, I cannot", 0)),
    *texts(forbidden_patterns_reward, ("as an air force", 1), ("Ali cannot", 1)),
    *texts(partial(forbidden_patterns_reward, patterns=["bonn"]), ("In Bonn.", 0), ("Paris", 1)),
    *texts(partial(forbidden_patterns_reward, patterns=("^paris$", "x")), ("Paris", 0), ("Pa", 1)),
    *texts(forbidden_patterns_reward, *[(text, 0) for text in DISGUISED], ("as a nail", 1)),
    # one pattern, not its characters
    *texts(partial(forbidden_patterns_reward, patterns=r"b.*n"), ("In Bonn.", 0), ("Paris", 1)),
    *texts(repetition_reward, ("one two three four five", 1), ("ha ha", 1), ("", 1)),
    *texts(repetition_reward, ("ha " * 6, 0.25), ("ha " * 1002, 0.001), ("a b c a b c", 0.75)),
    *texts(repetition_reward, *[(text, pytest.approx(0, abs=0.06)) for text in LOOPS]),
    *texts(repetition_reward, *[(text, pytest.approx(1, abs=0.06)) for text in WRITTEN]),
    *texts(repetition_reward, ("这个这个这个", 0.5), ("a, a, a, a", 0.4)),
    *texts(partial(repetition_reward, ngram_size=1), ("Ha hA\nHA\tha", 0.25)),
    *texts(partial(repetition_reward, ngram_size=2), ("a b a b", 0.666667), ("a b c a b d", 0.8)),
    *[
        (reward, odd, 1)
        for odd in (None, [], 3)
        for reward in (repetition_reward, forbidden_patterns_reward)
    ],
]


@pytest.mark.parametrize(("reward", "text", "earned"), TABLE)
def test_the_score_of_a_text(reward, text, earned):
    assert reward([text]) == [earned]


def test_the_examples_hold_and_ngram_size_is_checked():
    assert doctest.testmod(style_rewards).failed == 0
    with pytest.raises(ValueError, match="ngram_size=0"):
        repetition_reward([], ngram_size=0)


def test_a_text_that_cannot_be_searched_in_time_loses_only_its_own_score():
    slow = ["a" * 30_000 + "!" + str(n) for n in range(8)]
    with pytest.warns(UserWarning, match="8 of 9"):
        scores = forbidden_patterns_reward([*slow, "Bonn."], patterns=[r"^(a+)+\1b"])
    assert scores == [0.0] * 8 + [1.0]
