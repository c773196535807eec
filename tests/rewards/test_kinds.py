"""The kinds of answers: how they are recognised, the table of rules, and the table of answers in
answers.jsonl.
"""

import doctest
import json
import re
import subprocess
import sys
import warnings
from collections import Counter
from pathlib import Path

import pytest

from helpers.rewards import answers, correctness_reward
from helpers.rewards.answers import (
    dates,
    formulas,
    kind_of,
    kinds,
    mathematics,
    numbers,
    quick_verdict,
    same_answer,
    sets,
    spelling,
    units,
)

TABLE = [
    json.loads(line)
    for line in (Path(__file__).parent / "answers.jsonl").read_text(encoding="utf-8").splitlines()
]


def said(answer: str) -> str:
    return f"<think>so</think><answer>{answer}</answer>"


@pytest.mark.parametrize("kind", kinds.KINDS)
def test_every_answer_of_the_table_gets_its_verdict(kind):
    rows = [row for row in TABLE if row["kind"] == kind]
    assert len(rows) >= 60 and {row["right"] for row in rows} == {True, False}
    scores = correctness_reward(
        [said(row["given"]) for row in rows], answer=[row["gold"] for row in rows]
    )
    wrong = [
        (row["gold"], row["given"], score)
        for row, score in zip(rows, scores, strict=True)
        if score != row["right"]
    ]
    assert wrong == []


def test_every_answer_of_the_table_has_its_kind():
    found = {row["gold"]: kind_of(row["gold"]) for row in TABLE}
    assert {
        gold: kind
        for gold, kind in found.items()
        if {"gold": gold, "kind": kind}.items() - TABLE_KINDS[gold].items()
    } == {}


TABLE_KINDS = {row["gold"]: {"gold": row["gold"], "kind": row["kind"]} for row in TABLE}


def rules() -> list[tuple[str, str, str, str]]:
    """(kind, given, = or ≠, gold) for each example in the table of the module's docstring."""
    found = []
    for line in kinds.__doc__.splitlines():
        if line.startswith("| ") and not line.startswith("| kind"):
            kind = line.split("|")[1].strip()
            found += [
                (kind, *example) for example in re.findall(r"`([^`]+)` ([=≠]) `([^`]+)`", line)
            ]
    return found


@pytest.mark.parametrize(("kind", "given", "sign", "gold"), rules())
def test_an_example_of_the_rules_holds(kind, given, sign, gold):
    assert kind_of(gold) == kind
    assert same_answer(given, gold) is (sign == "=")


def test_there_is_a_rule_with_examples_of_both_for_each_kind():
    assert {(kind, sign) for kind, _, sign, _ in rules()} == {
        (kind, sign) for kind in kinds.KINDS for sign in "=≠"
    }


# --- Another kind than the one recognised ---------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "gold", "kind", "right"),
    [
        ("3.1", "3.10", None, 1.0),
        ("3.1", "3.10", "text", 0.0),
        ("3.10", "3.10", "text", 1.0),
        ("6-11", "5-10", None, 0.0),
        ("6-11", "5-10", "mathematics", 1.0),
        ("b", "F", "choice", 0.0),
        ("(f)", "F", "choice", 1.0),
        ("7", "Seven", "text", 0.0),
        ("Paris", "Paris", "number", 1.0),
        ("London", "Paris", "number", 0.0),
        ("London", "Paris", "date", 0.0),
        ("London", "Paris", "formula", 0.0),
        ("London", "Paris", "quantity", 0.0),
        ("London", "Paris", "set", 0.0),
        ("London", "Paris", "choice", 0.0),
    ],
)
def test_a_kind_can_be_said(given, gold, kind, right):
    assert correctness_reward([said(given)], answer=[gold], kind=kind) == [right]
    assert correctness_reward([said(given)], answer=[gold], kind=[kind]) == [right]


@pytest.mark.parametrize("kind", kinds.KINDS)
def test_an_answer_is_equal_to_itself_under_every_kind(kind):
    golds = sorted({row["gold"] for row in TABLE if row["kind"] in (kind, "text", "number")})
    assert [gold for gold in golds if quick_verdict(gold, gold, kind=kind) is not True] == []


def test_a_column_of_kinds_is_a_kind_a_row():
    given, golds = [said("3.1")] * 3, ["3.10"] * 3
    assert correctness_reward(given, answer=golds, kind=["text", None, "number"]) == [0.0, 1.0, 1.0]


def test_a_kind_that_is_none_is_named():
    with pytest.raises(
        ValueError, match=r"kind='word' is no kind of answer. Known: number, .*text"
    ):
        correctness_reward([said("4")], answer=["4"], kind="word")
    with pytest.raises(ValueError, match="kind='word'"):
        same_answer("4 ", "5", kind="word")


def test_a_column_of_another_meaning_is_passed_over_with_one_warning():
    with pytest.warns(UserWarning, match="`kind` holds 'easy'") as caught:
        assert (
            correctness_reward([said("4.0")] * 3, answer=["4"] * 3, kind=["easy", "hard", None])
            == [1.0] * 3
        )
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert correctness_reward([said("4")], answer=["4"], kind=[None]) == [1.0]


# --- What is loaded -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gold", "given", "loaded"),
    [
        ("42", "42.0", set()),
        ("Paris", "London", set()),
        ("B", "(B)", set()),
        ("5 km", "5 km", {"number_parser"}),  # whether the word is a number, as in 5 million
        ("5 km", "5000 m", {"number_parser", "pint"}),
        ("January 5", "Jan 5", {"dateutil"}),
        ("twelve", "12", {"number_parser"}),
    ],
)
def test_a_library_is_loaded_where_an_answer_needs_it(gold, given, loaded):
    program = "import sys; from helpers.rewards import correctness_reward; "
    program += f"correctness_reward([{said(given)!r}], answer=[{gold!r}]); "
    program += (
        "print(*(name for name in ('pint', 'dateutil', 'number_parser', 'sympy', 'torch') "
        "if name in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=600
    )
    assert set(done.stdout.split()) == loaded, done.stderr


@pytest.mark.parametrize(
    "text",
    [
        "9" * 500,
        "(" * 400,
        "1-" * 300,
        "a" * 2000,
        "1 " * 200,
        "{" * 25 + "}" * 25,
        "x=" * 100,
        "\ud800",
        "\x00",
    ],
)
def test_a_hostile_gold_has_a_kind(text):
    assert kind_of(text) in kinds.KINDS
    assert quick_verdict("something else", text) is not True


def test_the_table_is_large_and_has_no_row_twice():
    assert len(TABLE) >= 400
    assert max(Counter((row["gold"], row["given"]) for row in TABLE).values()) == 1


@pytest.mark.parametrize(
    "module",
    [answers, dates, formulas, kinds, mathematics, numbers, sets, spelling, units],
    ids=str,
)
def test_the_examples_in_the_docstrings_hold(module):
    result = doctest.testmod(module)
    assert result.attempted >= 1 and result.failed == 0
