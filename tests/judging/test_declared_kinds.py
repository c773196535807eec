"""Answers of a kind that the data declares, choices above all, and careless calls."""

import re

import pytest

from helpers import PROJECT
from helpers.judging.answers import KINDS
from helpers.judging.answers.kinds import are_right, compare_answers
from helpers.rewards.correctness import correctness_reward


def same_answer(given, gold, kind: str | None = None) -> bool:
    return are_right([compare_answers(given, gold, kind=kind)])[0]


@pytest.mark.parametrize(
    ("given", "gold", "kind", "right"),
    [
        ("3.1", "3.10", None, 1.0),
        ("3.1", "3.10", "text", 0.0),
        ("5000 m", "5 km", None, 0.0),
        ("6-11", "5-10", "exact", 0.0),
        ("(f)", "F", "choice", 1.0),
        ("3, 2, 1", "1, 2, 3", "set", 1.0),
        ("4 and 3", "[3, 4]", "set", 1.0),
        ("[4, 3]", "3, 4", "set", 1.0),
        ("3, 5", "[3, 4]", "set", 0.0),
        ("3", "[3, 4]", "set", 0.0),
        ("(3, 4)", "[3, 4]", "set", 0.0),
        *[(text, "blue, red", "set", 1.0) for text in ("red, blue", "{red, Blue}", "red and blue")],
        *[(text, r"\{blue, red\}", "set", 1.0) for text in ("red; blue", r"\{\text{red}, blue\}")],
        *[(text, "blue, red", "set", 0.0) for text in ("red", "red, red", "red, blue, green")],
        ("NY, LA", "LA, NY", "set", 1.0),
        ("red, blue", "blue, red", "mathematics", 0.0),
        ("3, 2, 1", "1, 2, 3", "mathematics", 0.0),
        ("Paris", "Paris", "number", 1.0),
        *[("London", "Paris", kind, 0.0) for kind in KINDS],
        *[("", "Paris", kind, 0.0) for kind in KINDS],
        *[("…", "…", kind, 1.0) for kind in KINDS],
    ],
)
def test_a_kind_can_be_said(given, gold, kind, right):
    assert correctness_reward([f"<answer>{given}</answer>"], answer=[gold], kind=kind) == [right]
    assert correctness_reward([f"<answer>{given}</answer>"], answer=[gold], kind=[kind]) == [right]


OPTIONS = "What is 2 + 2?\nA) 3;\nB) $4$;\nC) A\nAnswer with a letter."


@pytest.mark.parametrize(
    ("given", "gold", "question", "right"),
    [
        # a letter with its own text or an explanation
        *[(f"B{mark} 4", "B", OPTIONS, True) for mark in ".):"],
        *[
            (text, "B", OPTIONS, True)
            for text in ("B", "(B) 4.", "B: 3 is too few", "B) 4, as 2+2")
        ],
        *[(text, "B", "", True) for text in ("B: 3", "B: because it is so", "B) A king")],
        ("B: 3", "B", "What is 2 + 2?", True),
        ("B: 3", "B", "2 + 2? A) 3 B) 3", True),
        ("C) A", "C", OPTIONS, True),
        ("D) not enough information", "D", "Red or blue? A) red D) not enough information", True),
        ("B) Vitamin D", "B", "A) Vitamin C\nB) Vitamin D", True),
        # two answers
        *[(text, "B", OPTIONS, False) for text in ("B: 3", "B) 3.", "B. $3$", "B. **3**", "B: A")],
        ("B: red", "B", "Which? (A) red, (B) blue", False),
        ("A) not enough information", "A", "A) red\nD) not enough information", False),
        ("A) red D) not enough information", "D", "A) red D) not enough information", False),
        ("b. Red", "B", "Which?\na. red\nb. blue", False),
        *[
            (text, "B", "", False)
            for text in ("B: A", "B) A", "(B) a.", "B: option A", "B. A) red")
        ],
        ("The answer is B.\nThe answer is A.", "B", "", False),
        ("C) A", "C", "", False),
        # what looks like labels, and is none
        ("A) 2(x + y)", "A", "Simplify.\nA) 2(x + y)\nB) 3(x + y)", True),
        ("A. Vitamin C.", "A", "Which?\nA. Vitamin C.\nB. Vitamin D.\nC. Vitamin K.", True),
        ("D) Both (A) and (B)", "D", "A) x1\nB) y2\nC) z3\nD) Both (A) and (B)", True),
        ("D. Both A and B.", "D", "A. cats.\nB. dogs.\nC. cows.\nD. Both A and B.\n", True),
        ("B) 3", "B", "Open 9 a.m. to 5 p.m. on both days. 2 + 2? A) 3 B) 4", False),
        ("B) Rome", "B", "In the U.S. and the U.S. Army?\nA) Rome\nB) Oslo", False),
        ("B) the answer I got is 4", "B", "", True),
        ("B) 5", "B", "x: 5\ny: 7\nWhich is x?\nA - 7\nB - 5", True),
        ("A: Goodbye", "A", "A: Hello. B: Goodbye\nWhat comes next?\nA: Goodbye\nB: Hello", True),
        ("B: Hello", "B", "A: Hello. B: Goodbye. Who says it? A: both B: none", True),
        ("B: A", "B) A", "", True),
    ],
)
def test_a_choice_is_one_answer(given, gold, question, right):
    assert compare_answers(given, gold, question, kind="choice").right is right


def test_the_known_errors_of_the_readme_are_as_it_says():
    page = (PROJECT / "helpers" / "judging" / "README.md").read_text(encoding="utf-8")
    errors = page.partition("\nKnown and accepted errors")[2]
    pairs = re.findall("`([^`]+)` (is correct |is wrong |)for `([^`]+)`", errors)
    assert len(pairs) == 9
    for given, verdict, gold in pairs:
        kind = "choice" if gold == "D" else None
        assert same_answer(given, gold, kind) is (verdict == "is correct "), (given, gold)


# --- Careless calls -------------------------------------------------------------------------------


def test_an_unknown_kind_is_refused_with_a_near_one():
    with pytest.raises(ValueError, match=r"'sets'.* Did you mean 'set'.* number, mathematics, cho"):
        compare_answers("2, 1", "1, 2", kind="sets")


def test_a_number_is_judged_as_its_text_and_a_missing_answer_is_refused():
    assert same_answer("42.0", 42) and same_answer("1/2", 0.5) and same_answer(42, "42")
    assert not same_answer("43", 42)
    for missing in (None, float("nan"), ["42"]):
        with pytest.raises(TypeError, match="is neither a text nor a number"):
            compare_answers("nan", missing)


def test_a_column_of_another_meaning_is_passed_over_with_one_warning():
    with pytest.warns(UserWarning, match="`kind` holds 'easy'") as caught:
        scores = correctness_reward(
            ["<answer>4.0</answer>"] * 3, answer=["4"] * 3, kind=["easy", "hard", None]
        )
    assert scores == [1.0] * 3 and len(caught) == 1
