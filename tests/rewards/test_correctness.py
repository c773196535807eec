"""The rewards for a right answer: what earns, what does not, and that no completion makes them
raise, hang or run code.
"""

import json
import random
import sys

import pytest
from told import HOSTILE_ANSWERS

from helpers.rewards.answers import workers
from helpers.rewards.correctness import (
    answer_of,
    correctness_reward,
    exact_match_reward,
    fuzzy_match_reward,
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


# --- A right answer -------------------------------------------------------------------------------


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
        # the question of an exercise is not its answer
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
        # Each of the first two agrees with the last, which names no unit, but they contradict
        # each other.
        ("<answer>4 km</answer><answer>4 m</answer><answer>4</answer>", 0.0),
        # whether these are the same is math-verify's to say, and it is not asked
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
def test_a_row_is_judged_by_its_own_verifier_on_the_answer_of_alone(entries):
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
