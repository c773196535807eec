"""The rewards for a right answer: what earns, what does not, and that no completion makes them
raise, hang or run code.
"""

import json
import random
import sys

import pytest

from helpers.rewards.answers import workers
from helpers.rewards.correctness import (
    correctness_reward,
    exact_match_reward,
    fuzzy_match_reward,
    judged_answer,
    numeric_reward,
    task_reward,
)
from helpers.tags import THINK_ANSWER, TagFormat

COMPARING = [
    correctness_reward,
    exact_match_reward,
    numeric_reward,
    fuzzy_match_reward,
]
each_reward = pytest.mark.parametrize("reward", COMPARING, ids=lambda reward: reward.__name__)


def said(answer: str, tags: TagFormat = THINK_ANSWER) -> str:
    return tags.render("so", answer)


def score(reward, given: str, gold, **columns) -> float | None:
    return reward([said(given)], answer=[gold], **columns)[0]


# --- A right answer -------------------------------------------------------------------------------


THOUSAND = ["1,000", "$1,000", "1000.0", "1000.", "1e3", "+1000", "1000 dollars"]
NOT_42 = [
    *("43", "-42", "42 or", "42 and", "42 to 43", "42/0", "", " ", "nan", "42e9", "+-42", "=42"),
    *("0.42%", "forty-three", "perhaps 42", r"\boxed{42}, \boxed{43}", r"42 \pm 1", "x=42, x=43"),
]


@pytest.mark.parametrize(
    ("given", "gold", "earned"),
    [
        *[(given, "1000", 1.0) for given in THOUSAND],
        *[("1000", gold, 1.0) for gold in THOUSAND],
        *[(given, "42", 0.0) for given in NOT_42],
        ("New\n York", "new york", 1.0),
        ("STRASSE", "straße", 1.0),
        (r"\boxed{(x-1)(x+1)}", r"$x^2-1$", 1.0),
        ("(x+1)^2", "x^2+1", 0.0),
        ("not Paris", "Paris", 0.0),
        ("nan", "0", 0.0),
        ("-inf", "-1", 0.0),
        (".", "0", 0.0),
        ("nan", "nan", 1.0),
        ("4", 4, 1.0),
        ("4", 4.0, 1.0),
        ("4", 5, 0.0),
        ("4", 0, 0.0),
    ],
)
def test_an_answer_earns_where_it_means_the_same(given, gold, earned):
    assert score(correctness_reward, given, gold) == earned


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
        # Each of the first two agrees with the last, which names no unit, but they contradict
        # each other.
        ("<answer>4 km</answer><answer>4 m</answer><answer>4</answer>", 0.0),
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
    assert (judged_answer(completion) in ("4", "4.0")) is bool(earned)


@pytest.mark.parametrize(
    ("given", "gold", "question", "earned"),
    [
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
def test_the_question_of_an_exercise_is_not_its_answer(given, gold, question, earned):
    assert score(correctness_reward, given, gold, question=question) == earned


# --- Rows without an answer -----------------------------------------------------------------------


@each_reward
@pytest.mark.parametrize("gold", [None, "", " \n", float("nan"), "no column"])
def test_a_row_without_an_answer_scores_none_with_one_warning(reward, gold):
    columns = {} if gold == "no column" else {"answer": [gold, "4", gold]}
    without = 3 if gold == "no column" else 2
    with pytest.warns(
        UserWarning, match=f"{reward.__name__}: {without} of 3 rows have no answer"
    ) as caught:
        scores = reward([said("4")] * 3, **columns)
    assert scores == [None, 1.0 if columns else None, None]
    assert len(caught) == 1


# --- reasoning-gym's verifiers --------------------------------------------------------------------

needs_gym = pytest.mark.needs("reasoning_gym")


@pytest.fixture(scope="module")
def entries() -> list[dict]:
    import reasoning_gym

    return list(reasoning_gym.create_dataset("chain_sum", size=12, seed=1))


@needs_gym
def test_a_row_is_judged_by_its_own_verifier_on_the_judged_answer_alone(entries):
    given = [said(entry["answer"] if n % 2 else "no") for n, entry in enumerate(entries)]
    rows = {"entry": [json.dumps(entry) for entry in entries], "family": ["chain_sum"] * 12}
    assert task_reward(given, **rows) == [pytest.approx(n % 2, abs=0.1) for n in range(12)]
    answer = entries[0]["answer"]
    hedged = f"<answer>{answer}</answer><answer>{answer}1</answer>"
    hidden = [hedged, f"<think><answer>{answer}</answer></think>", answer, ""]
    first = {"entry": rows["entry"][:1] * 4, "family": ["chain_sum"] * 4}
    assert task_reward(hidden, **first) == [0.0] * 4


@needs_gym
@pytest.mark.parametrize(
    "code",
    [
        "exec('import os\\nos.write(1,b\"1.0\\\\n\")')",
        "ｅｘｅｃ('import os')",
        "[e for e in [eval]][0]('1')",
        "(x for x in [1]).gi_frame.f_builtins['ex' + 'ec']('1')",
        "[r.split() for r in entry['metadata']['valid_answers'][0].split('\\n')]",
    ],
)
def test_an_answer_that_is_code_is_never_evaluated(code, monkeypatch):
    asked = []

    def judged(kind, rows):
        asked.extend(rows)
        return [1.0] * len(rows)

    monkeypatch.setattr(workers, "scores_in_time", judged)
    row = {"entry": ["{}"], "family": ["n_queens"]}
    assert task_reward([said(code)], **row) == [0.0] and not asked
    assert task_reward([said("entry, open")], **row) == [1.0], "words are no code"


@needs_gym
def test_rows_of_other_sources_score_none_with_one_warning(entries):
    given, entry = said(entries[0]["answer"]), json.dumps(entries[0])
    with pytest.warns(UserWarning, match="2 of 3 rows have no reasoning-gym entry") as caught:
        scores = task_reward(
            [given] * 3, entry=[entry, None, entry], family=["chain_sum", "chain_sum", None]
        )
    assert scores == [1.0, None, None] and len(caught) == 1


def test_without_reasoning_gym_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    row = {"entry": ['{"answer": "4"}'], "family": ["chain_sum"]}
    assert task_reward(["no answer block"], **row) == [0.0]
    with pytest.raises(LookupError, match=r"not installed.*requirements-optional\.txt"):
        task_reward([said("4")], **row)


# --- Hostile completions --------------------------------------------------------------------------

HOSTILE = [
    "9" * 10**6,
    "9**9**9**9",
    "9^{9^{9^{9}}}",
    "1e999999999",
    "9" * 50 + "/" + "0" * 40,
    "1" + ",000" * 5000,
    "10000000!",
    "{" * 10_000 + "}" * 10_000,
    r"\frac{" * 10_000,
    r"\boxed{" * 10_000 + "4" + "}" * 10_000,
    "$" * 10_000,
    "((((9!)!)!)!)!",
    r"\binom{10^8}{10^7}",
    r"\sum_{n=1}^{10^9} n^n",
    "(x+1)^{9999999}",
    "__import__('os').abort()",
    "exit()",
    "\ud800",
    "\x00",
    " " * 10**6 + "$" * 10,
    "٣",
    "4²",
    "</think>" * 1000,
    "<answer>" * 10_000,
    "</answer><answer>" * 5_000,
    "or " * 10_000,
]


@each_reward
@pytest.mark.parametrize(
    "gold", ["4", "x^2 + 1", "\ud800", "8" * 10**4], ids=["number", "algebra", "surrogate", "long"]
)
@pytest.mark.filterwarnings("ignore:.*rows have no answer")
def test_a_hostile_answer_gets_a_score_and_does_not_earn(reward, gold):
    completions = [said(answer) for answer in HOSTILE] + HOSTILE
    scores = reward(completions, answer=[gold] * len(completions))
    if reward is numeric_reward and gold != "4":
        assert scores == [None] * len(completions)
        return
    assert all(isinstance(earned, float) and 0 <= earned <= 1 for earned in scores)
    won = [answer for answer, earned in zip(HOSTILE * 2, scores, strict=True) if earned == 1]
    assert [answer[:20] for answer in won if answer != gold] == []


def test_a_batch_with_a_hostile_hundredth_scores_like_each_completion_alone():
    rng = random.Random(0)
    kinds = [
        ("42", "42", 1.0),
        ("43", "42", 0.0),
        ("1+x", "x+1", 1.0),
        ("2x", "x^2", 0.0),
        ("Paris", "paris", 1.0),
    ]
    kinds = rng.choices(kinds, k=1013) + [
        (answer, rng.choice(["42", "x+1"]), 0.0) for answer in HOSTILE[:22:2]
    ]
    rng.shuffle(kinds)
    scores = correctness_reward(
        [said(given) for given, _, _ in kinds], answer=[gold for _, gold, _ in kinds]
    )
    assert scores == [earned for _, _, earned in kinds] and len(scores) == 1024
