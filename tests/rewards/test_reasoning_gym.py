"""The reward that asks reasoning-gym's verifiers, and answers that try to run code in them."""

import json
import sys

import pytest

from helpers.judging import workers
from helpers.rewards.reasoning_gym import task_reward
from helpers.tags import THINK_ANSWER

needs_gym = pytest.mark.needs("reasoning_gym")


def said(answer: str) -> str:
    return THINK_ANSWER.render("so", answer)


def entry_of(family: str) -> dict:
    import reasoning_gym

    return reasoning_gym.create_dataset(family, size=1, seed=1)[0]


def verdict(family: str, answer: str, entry: dict | str) -> float | None:
    """Return a worker's score for an answer, without the reward's check for code."""
    data = entry if isinstance(entry, str) else json.dumps(entry, default=str)
    return workers.scores_in_time("task", [(family, answer, data)])[0]


@needs_gym
def test_a_row_is_judged_by_its_own_verifier_on_its_one_answer():
    entry = entry_of("chain_sum")
    answer = entry["answer"]
    hedged = f"<answer>{answer}</answer><answer>{answer}1</answer>"
    given = [said(answer), said("no"), hedged, f"<think><answer>{answer}</answer></think>", answer]
    rows = {"entry": [json.dumps(entry)] * 5, "family": ["chain_sum"] * 5}
    assert task_reward(given, **rows) == [1.0, pytest.approx(0, abs=0.1), 0.0, 0.0, 0.0]
    with pytest.warns(UserWarning, match="2 of 3 rows") as caught:
        rows = {"entry": [entry, None, entry], "family": ["chain_sum", "chain_sum", None]}
        assert task_reward(given[:1] * 3, **rows) == [1.0, None, None]
    assert len(caught) == 1
    with pytest.warns(UserWarning, match="2 of 2 rows"):
        assert task_reward(given[:2]) == [None, None], "data without these columns"


@pytest.mark.parametrize(
    ("answer", "asked"),
    [
        ("entry, open", True),  # such words alone are not code
        ("exec('import os\\nos.write(1,b\"1.0\\\\n\")')", False),
        ("ｅｘｅｃ('import os')", False),
        ("[e for e in [eval]][0]('1')", False),
        ("(x for x in [1]).gi_frame.f_builtins['ex' + 'ec']('1')", False),
        ("[r.split() for r in entry['metadata']['valid_answers'][0].split('\\n')]", False),
    ],
)
def test_an_answer_that_is_code_reaches_no_verifier(answer, asked, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: "installed")
    monkeypatch.setattr(workers, "scores_in_time", lambda kind, rows, log: [1.0] * len(rows))
    assert task_reward([said(answer)], entry=["{}"], family=["n_queens"]) == [float(asked)]


NONSENSE = [
    "1" * 9000 + "!",
    "x",
    "nan",
    "nan+nanj",
    "0",
    "-0",
    "0,0",
    "True False",
    "valid",
    "1e-1",
    "[0]",
    "x + C",
]
REPEATED = [
    "expand({})",
    "Integral({}, x)",
    "integrate({}, x)",
    "simplify({})",
    "{} or 0",
    "not {}",
]
PAID_FOR_NONSENSE = [
    *("coin_flip", "complex_arithmetic", "countdown", "fraction_simplification", "game_of_life"),
    *("game_of_life_halting", "gsm_symbolic", "intermediate_integration", "mahjong_puzzle"),
    *("polynomial_multiplication", "puzzle24", "simple_integration"),
]


@needs_gym
@pytest.mark.parametrize("family", PAID_FOR_NONSENSE)
def test_no_family_pays_for_nonsense_or_for_the_question_in_a_call(family):
    entry = entry_of(family)
    gold = str(entry["answer"])
    expressions = [gold, str(entry["metadata"].get("integrand", "1"))]
    expressions += [
        line.rpartition(":")[2] for line in entry["question"].splitlines() if "*" in line
    ]
    tried = [wrap.format(text.strip()) for wrap in REPEATED for text in expressions]
    tried += [*NONSENSE, f"{gold} or 7", f"7\n{gold}"]
    given = [said(answer) for answer in [gold, *(text for text in tried if text != gold)]]
    rows = {"entry": [json.dumps(entry, default=str)] * len(given), "family": [family] * len(given)}
    right, *others = task_reward(given, **rows)
    paid = [text for text, score in zip(given[1:], others, strict=True) if score > 0.1]
    assert (right, paid) == (1.0, [])


@needs_gym
def test_puzzle24_needs_the_numbers_of_its_row():
    numbers = {"metadata": {"numbers": [4, 6, 1, 1]}, "answer": "4*6*1*1"}
    given = ["6*4*1*1", "8*3*1*1", "4*6+1-1", "(4*6)*1+1", "4*6*1.0*1"]
    rows = {"entry": [json.dumps(numbers)] * 5, "family": ["puzzle24"] * 5}
    assert [score == 1.0 for score in task_reward([*map(said, given)], **rows)] == [
        *(True, False, True, False, False)
    ]


def test_without_reasoning_gym_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    row = {"entry": ['{"answer": "4"}'], "family": ["chain_sum"]}
    assert task_reward(["no answer block"], **row) == [0.0]
    with pytest.raises(LookupError, match=r"not installed.*deploy/requirements-optional\.txt"):
        task_reward([said("4")], **row)


@needs_gym
def test_a_verifier_that_fails_hangs_or_leaves_gives_nothing_and_ends_no_worker():
    entry = entry_of("spiral_matrix")  # whose verifier evaluates the answer
    answers = ["exec('exit()')", entry["answer"]]
    rows = [("spiral_matrix", answer, json.dumps(entry)) for answer in answers]
    assert workers.scores_in_time("task", rows) == [0.0, 1.0]
    before = workers._workers["task"][0].process.pid
    assert (verdict("countdown", "9**9**9**9", entry_of("countdown")) or 0.0) < 0.1
    for row in (("gcd", "1", "{}"), ("gcd", "1", "no JSON"), ("no_such_family", "1", "{}")):
        assert verdict(*row) == 0.0
    assert verdict("spiral_matrix", entry["answer"] + " ", entry) == 1.0
    assert workers._workers["task"][0].process.pid == before


@needs_gym
def test_the_share_of_verdicts_that_ran_out_of_time_is_logged():
    logged = {}
    row = {"entry": [json.dumps(entry_of("chain_sum"))], "family": ["chain_sum"]}
    task_reward([said("4")], **row, log_metric=logged.__setitem__)
    assert logged == {"task_reward/out_of_time": 0.0}


@needs_gym
@pytest.mark.parametrize(
    "code",
    [
        "open('{path}', 'w')",
        'exec(\'open("{path}", "w")\')',
        "[open('{path}', 'w').close() or 'A']",
    ],
)
@pytest.mark.parametrize("family", ["countdown", "simple_integration", "string_insertion"])
def test_a_verifier_that_evaluates_the_answer_writes_nothing(tmp_path, family, code):
    path = tmp_path / "written"
    score = verdict(family, code.format(path=path), entry_of(family))
    assert score is None or score < 0.5
    assert not path.exists()
