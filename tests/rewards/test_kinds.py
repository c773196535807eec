"""The kinds of answers: the examples in their files, how a kind is said, and what is taken for
which where none is.
"""

import re

import pytest

from helpers.rewards.answers import choices, exact, kinds, mathematics, numbers, texts
from helpers.rewards.answers.kinds import kind_of, quick_verdict, same_answer
from helpers.rewards.correctness import correctness_reward

FILES = dict(zip(kinds.KINDS, (numbers, mathematics, choices, exact, texts), strict=True))


def said(answer: str) -> str:
    return f"<think>so</think><answer>{answer}</answer>"


EXAMPLES = [
    (kind, *example)
    for kind, module in FILES.items()
    for example in re.findall(r"`([^`]+)` ([=≠]) `([^`]+)`", module.__doc__)
]


@pytest.mark.parametrize(("kind", "given", "sign", "gold"), EXAMPLES)
def test_an_example_of_a_kind_holds(kind, given, sign, gold):
    assert same_answer(given, gold, kind=kind) is (sign == "=")


def test_every_kind_has_examples_of_both():
    assert {(kind, sign) for kind, _, sign, _ in EXAMPLES} == {
        (kind, sign) for kind in kinds.KINDS for sign in "=≠"
    }


# --- A kind is said -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "gold", "kind", "right"),
    [
        ("3.1", "3.10", None, 1.0),
        ("3.1", "3.10", "text", 0.0),
        ("5000 m", "5 km", None, 0.0),
        ("6-11", "5-10", "token", 0.0),
        ("H2O", "H_2O", "formula", 1.0),
        ("(f)", "F", "choice", 1.0),
        (r"\{2, 1\}", r"\{1, 2\}", "set", 1.0),
        ("Paris", "Paris", "number", 1.0),
        *[("London", "Paris", kind, 0.0) for kind in kinds.KINDS],
        *[("", "Paris", kind, 0.0) for kind in kinds.KINDS],
        *[("…", "…", kind, 1.0) for kind in kinds.KINDS],
    ],
)
def test_a_kind_can_be_said(given, gold, kind, right):
    assert correctness_reward([said(given)], answer=[gold], kind=kind) == [right]
    assert correctness_reward([said(given)], answer=[gold], kind=[kind]) == [right]


def test_a_column_of_another_meaning_is_passed_over_with_one_warning():
    with pytest.warns(UserWarning, match="`kind` holds 'easy'") as caught:
        scores = correctness_reward(
            [said("4.0")] * 3, answer=["4"] * 3, kind=["easy", "hard", None]
        )
    assert scores == [1.0] * 3 and len(caught) == 1


# --- No kind is said ------------------------------------------------------------------------------

SHOWN = {
    "number": ["42", "1,000.50", "$5", "18 dollars", "50%", "1/3", "033", r"\frac{1}{2}"],
    "mathematics": [
        *("x+1", "x^2", r"\sqrt{2}", "[0, ∞)", "y = 3", "x > 2", "3·x", r"2\pi", "n-1"),
        *("$1$ and $2$", "(p,q)=(3,2)", "$|AB|=1$", "3 + 4i", r"x \in A"),
    ],
    "text": [
        *("Paris", "5 km", "B", "2024-01-02", "5-10", "1-0", "10.0.0.1", "7:32", "H2O", "02134"),
        *(
            "twelve",
            "January 5",
            "AC/DC",
            "F-16",
            "C++",
            "x == 1",
            "a->b",
            "get_name",
            "50/50",
            "nan",
            "12 mm/s",
        ),
        *("the sum of 2 + 3", "and/or", "555-1234", "1920x1080", "$5 and $10", "e-mail"),
    ],
}


@pytest.mark.parametrize(("kind", "gold"), [(kind, gold) for kind in SHOWN for gold in SHOWN[kind]])
def test_an_answer_shows_one_of_three_kinds(kind, gold):
    assert kind_of(gold) == kind


@pytest.mark.parametrize(
    ("row", "judged", "looks"),
    [
        ({"answer": "5 km"}, "text", "number"),
        ({"answer": "5 km", "kind": "easy"}, "text", None),
        ({"answer": "H2O", "kind": "formula"}, "exact", None),
        ({"answer": "January 5"}, "text", None),
        ({"answer": "15:30"}, "text", "exact"),
        ({"answer": "(B)"}, "text", "choice"),
        ({"answer": "v1.2.3"}, "text", "exact"),
        ({"answer": "5 red apples"}, "text", None),
        ({"answer": "12,0"}, "text", "decimal comma"),
        ({"answer": "-1.234,56"}, "text", "decimal comma"),
        ({"answer": "12,0", "kind": "text"}, "text", None),
        ({"answer": "1,234"}, "number", None),
        ({"answer": "1, 2"}, "text", None),
        ({"answer": "Paris"}, "text", None),
        ({"answer": "42"}, "number", None),
        ({"answer": "x+1"}, "mathematics", None),
    ],
)
def test_what_a_row_is_judged_as_and_what_it_looks_like(row, judged, looks):
    assert kinds.kind_of_row(row) == judged
    assert kinds.looks_like(row) == looks


def test_a_survey_says_how_many_answers_of_each_kind_there_are():
    answers = [*map(str, range(15)), "Paris", "5 km", "2024-01-02", "12,0", "4"]
    found = kinds.survey({"answer": answer} for answer in answers)
    assert {kind: entry["rows"] for kind, entry in found["answer_kinds"].items()} == {
        "number": 16,
        "text": 4,
    }
    assert len(set(found["answer_kinds"]["number"]["examples"])) == 10
    assert found["answer_hints"] == {
        "number": {"rows": 1, "examples": ["5 km"]},
        "exact": {"rows": 1, "examples": ["2024-01-02"]},
        "decimal comma": {"rows": 1, "examples": ["12,0"]},
    }


@pytest.mark.parametrize(
    "text",
    [
        "9" * 500,
        "(" * 400,
        "1-" * 300,
        "a" * 2000,
        "1 " * 200,
        "{" * 25 + "}" * 25,
        "\ud800",
        "\x00",
    ],
)
def test_a_hostile_gold_has_a_kind_and_is_right_under_every_one(text):
    assert kind_of(text) in kinds.KINDS
    for kind in kinds.KINDS:
        assert quick_verdict(text, text, kind=kind) is True
        assert quick_verdict("something else", text, kind=kind) is False
