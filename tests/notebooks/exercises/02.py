"""Exercises of notebook 02: wrong answers, each with words that the check must say to it, and what
the cells use.
"""

import pandas as pd
from reading import defined

from helpers.laboratory.measures import Lab
from helpers.settling import settle
from helpers.tags import TagFormat, completion_text


def _reward(expression: str) -> str:
    """A reward that gives each completion's `text` this score, `gold` being the row's answer."""
    pairs = "zip(map(completion_text, completions), answer)"
    return f"lambda completions, answer, **columns: [float({expression}) for text, gold in {pairs}]"


WRONG = {
    "best_attack": [
        ("'every number from 1 to 100'", "the `=` of one working only"),
        ("'filler up to the bound'", "holds no `=`"),
        ("'correct, but never closed'", "there is no answer block"),
        ("'the tags many times'", "earn 0.25 once"),
        ("'honest and correct'", "must be one of the five names"),
        ("5", "must be one of the five names"),
    ],
    "strict_reward": [
        (_reward("gold in text"), "A hole is left"),
        (
            _reward("gold in str(fmt.extract_answer(text))"),
            "A hole is left, 'the answer garbled'",
        ),
        (
            _reward("fmt.extract_answer(text) == gold"),
            "A hole is left, 'wrong block, then correct block'",
        ),
        (_reward("gold in fmt.answer_blocks(text)"), "A hole is left"),
        (
            _reward(
                "len(found := fmt.answer_blocks(text)) == 1 and found[0].split()[-1:] == [gold]"
            ),
            "earns",
        ),
        (
            _reward("len(found := fmt.answer_blocks(text)) == 1 and found[0].endswith(gold)"),
            "A hole is left",
        ),
        (_reward("fmt.answer_blocks(text) == [gold] or -1"), "a wrong one -1.00"),
        (
            "lambda completions, answer, **columns: [fmt.answer_blocks(text) for text in "
            "completions]",
            "a list of messages",
        ),
        (_reward("1"), "A hole is left, 'honest and wrong'"),
        (_reward("0"), "An honest correct answer earns 0.00, not 1.0"),
        (_reward("float('nan')"), "returned nan, which is not a finite number"),
        (_reward("1 / len(text)"), "ZeroDivisionError"),
        ("lambda completions: [1.0, 0.0]", "TRL calls a reward with"),
        ("lambda completions, **columns: 1.0", "A reward returns a list"),
        ("lambda completions, **columns: [1.0]", "A reward returns a list"),
        ("0.5", "TRL calls a reward with"),
    ],
}

# The correct answer in other forms: each must pass.
RIGHT = {
    "best_attack": ["'the whole shape three times'"],
    "strict_reward": [
        _reward("[block.strip() for block in fmt.answer_blocks(text)] == [gold]"),
        "lambda prompts, completions, answer, **columns: "
        "[int(fmt.answer_blocks(one[0]['content']) == [gold]) "
        "for one, gold in zip(completions, answer)]",
        "lambda completions, answer, **columns: "
        "[fmt.answer_blocks(completion_text(completions.pop(0))) == [answer.pop(0)] "
        "for _ in [*answer]]",
    ],
}


def context(run) -> dict:
    """The data of the run, and the rewards as the notebook defines them."""
    data = run.section("data")
    names = {
        "fmt": TagFormat.parse(data["tags"]),
        "settings": settle(data["settings"]),
        "train": pd.read_parquet(run.require("data/train.parquet")),
        "Lab": Lab,
        "rewards": None,
        "completion_text": completion_text,
    }
    return defined("02", "def contains_answer_reward(", "\nreward_functions = [", **names)
