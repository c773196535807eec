"""The reward for a correct answer: which answers earn it, and hostile completions, which must not
change the scores of others.
"""

import random

import pytest
from told import HOSTILE_ANSWERS

from helpers.rewards.correctness import answer_of, correctness_reward
from helpers.tags import THINK_ANSWER


def said(answer: str) -> str:
    return THINK_ANSWER.render("so", answer)


# --- A correct answer -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "gold", "question", "earned"),
    [
        ("New\n York", "new york", None, 1.0),
        ("STRASSE", "straße", None, 1.0),
        (r"\boxed{(x-1)(x+1)}", r"$x^2-1$", None, 1.0),
        ("(x+1)^2", "x^2+1", None, 0.0),
        ("not Paris", "Paris", None, 0.0),
        ("forty-three", "42", None, 0.0),
        (r"42 \pm 1", "42", None, 0.0),
        ("x=42, x=43", "42", None, 0.0),
        ("nan", "0", None, 0.0),
        ("-inf", "-1", None, 0.0),
        (".", "0", None, 0.0),
        ("nan", "nan", None, 1.0),
        # a source may hold numbers
        ("4", 4, None, 1.0),
        ("4", 4.0, None, 1.0),
        ("4", 0, None, 0.0),
        # the question handed back is wrong
        ("17 + 25", "42", ["What is 17 + 25?"], 0.0),
        ("17 + 25", "42", None, 0.0),
        ("17 + 25 = 42", "42", [None], 0.0),
        ("84/12", "7", ["What is 84/12?"], 0.0),
        ("84/12", "7", None, 1.0),
        ("(x+1)^2", "x^2+2x+1", ["Expand (x + 1)^2."], 0.0),
        ("1+2x+x^2", "x^2+2x+1", ["Expand (x + 1)^2."], 1.0),
        ("(x+1)^2", "(x+1)^2", ["Factor x^2+2x+1."], 1.0),
        ("(x+1)^2", "x^2+2x+1", [None], 1.0),
    ],
)
def test_an_answer_earns_where_it_means_the_same(given, gold, question, earned):
    assert correctness_reward([said(given)], answer=[gold], question=question) == [earned]


@pytest.mark.parametrize(
    ("completion", "earned"),
    [
        ("<answer>4</answer>", 1.0),
        ("<think>so</think><answer>3</answer><answer>4</answer>", 0.0),
        ("<think>so</think><answer>4</answer><answer>3</answer>", 0.0),
        ("<think>so</think><answer>4</answer><answer></answer>", 0.0),
        ("<think>so</think><answer></answer><answer>4</answer>", 0.0),
        ("<think>so</think><answer>4</answer><answer>4.0</answer>", 1.0),
        ("<think>so</think><answer>3</answer><answer>4</answer><answer>4</answer>", 0.0),
        # The first two agree with the last, which has no unit, but not with each other.
        ("<answer>4 km</answer><answer>4 m</answer><answer>4</answer>", 0.0),
        # only math-verify could prove these equal, and it is not asked
        (r"<answer>\sqrt{16}</answer><answer>\frac{8}{2}\sqrt{1}</answer>", 0.0),
        ("<think><answer>3</answer></think><answer>4</answer>", 1.0),
        ("<think><answer>4</answer></think>", 0.0),
        ("<think><answer>4</answer></think>4", 0.0),
        ("<think><answer>4</answer></think><answer>3</answer>", 0.0),
        ("<think>so <answer>4</answer>", 0.0),
        ("<answer>4</answer></think>", 0.0),
        ("so</think><answer>4</answer>", 1.0),
        ("<answer>4</answer><answer>3", 1.0),
        ("<answer>4", 0.0),
        ("4", 0.0),
        ("", 0.0),
    ],
)
def test_what_is_judged_is_the_answer_block_outside_the_reasoning(completion, earned):
    assert correctness_reward([completion], answer=["4"]) == [earned]
    assert (answer_of(completion) in ("4", "4.0")) is bool(earned)


# --- Rows without an answer -----------------------------------------------------------------------


@pytest.mark.parametrize("gold", [None, "", " \n", float("nan"), "no column"])
def test_a_row_without_an_answer_scores_none_with_one_warning(gold):
    columns = {} if gold == "no column" else {"answer": [gold, "4", gold]}
    without = 2 if columns else 3
    with pytest.warns(UserWarning, match=f"{without} of 3 rows") as caught:
        scores = correctness_reward([said("4")] * 3, **columns)
    assert scores == [None, 1.0 if columns else None, None]
    assert len(caught) == 1


# --- Hostile completions --------------------------------------------------------------------------


def test_a_batch_with_a_hostile_share_scores_like_each_completion_alone():
    rows = [
        ("42", "42", 1.0),
        ("43", "42", 0.0),
        ("1+x", "x+1", 1.0),
        ("2x", "x^2", 0.0),
        ("Paris", "paris", 1.0),
    ] * 200 + [(answer, gold, 0.0) for answer in HOSTILE_ANSWERS[:22:2] for gold in ("42", "x+1")]
    random.Random(0).shuffle(rows)
    given, golds, earned = zip(*rows, strict=True)
    assert correctness_reward(list(map(said, given)), answer=list(golds)) == list(earned)
