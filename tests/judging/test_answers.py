"""Whether an answer means the same as the row's answer: tables of pairs, GSM8K and Math-Verify's own
pairs; the kinds of answers, declared and undeclared; and answers that must be refused.
"""

import json
import re
from pathlib import Path

import pytest

from helpers.judging.answers import (
    KINDS,
    choices_and_codes,
    documents,
    latex,
    mathematics,
    names_and_units,
    numbers,
    texts,
)
from helpers.judging.answers.kinds import are_right, compare_answers, kind_of, vote_of
from helpers.judging.answers.survey import kind_of_row, looks_like, survey
from helpers.rewards.correctness import correctness_reward
from helpers.tags import THINK_ANSWER

HERE = Path(__file__).parent
GSM8K = HERE.parents[2] / "shared" / "data" / "gsm8k"


def table(name: str) -> list[dict]:
    return [json.loads(line) for line in (HERE / name).read_text(encoding="utf-8").splitlines()]


def same_answer(given: str, gold: str, kind: str | None = None) -> bool:
    return are_right([compare_answers(given, gold, kind=kind)])[0]


def verdicts(rows: list[dict], kind: str | None) -> list[bool]:
    given = [f"<think>so</think><answer>{row['given']}</answer>" for row in rows]
    scores = correctness_reward(given, answer=[row["gold"] for row in rows], kind=kind)
    return [score == 1.0 for score in scores]


# --- The tables -----------------------------------------------------------------------------------

TABLE = table("answers.jsonl")


@pytest.mark.parametrize("kind", KINDS)
def test_every_answer_of_the_table_gets_its_verdict(kind):
    rows = [row for row in TABLE if row["kind"] == kind]
    assert len(rows) >= 100 and {row["right"] for row in rows} == {True, False}
    judged = zip(rows, verdicts(rows, kind), strict=True)
    assert [row for row, right in judged if right is not row["right"]] == []


def test_undeclared_nothing_is_accepted_that_the_kind_refuses():
    rows = [row for row in TABLE if not row["right"]]
    assert [row for row, right in zip(rows, verdicts(rows, None), strict=True) if right] == []


# Tricks of a policy and spellings of correct answers, some with the row's question.
UNDECLARED = table("undeclared.jsonl")


@pytest.mark.parametrize("right", [True, False])
def test_an_answer_without_a_kind_gets_its_verdict(right):
    rows = [{"question": ""} | row for row in UNDECLARED if row["right"] is right]
    found = are_right([compare_answers(row["given"], row["gold"], row["question"]) for row in rows])
    assert [row for row, is_right in zip(rows, found, strict=True) if is_right is not right] == []


# peer_pairs.jsonl: pairs that the tests of thirteen peers call equal or not; `source` names the peer.
# math_verify.jsonl: short, undisputed pairs of huggingface/Math-Verify, tests/ at 5d148cf. A few
# correct answers are in a notation that we do not read; `most_refused` allows for them.
PEERS = table("peer_pairs.jsonl")
MATH_VERIFY = [row | {"want": row["right"]} for row in table("math_verify.jsonl")]


@pytest.mark.parametrize(
    ("pairs", "kind", "most_refused"),
    [
        ([row for row in PEERS if not row["kind"]], None, 2),
        ([row for row in PEERS if row["kind"] == "choice"], "choice", 0),
        (MATH_VERIFY, "mathematics", 0),
        (MATH_VERIFY, None, 0),
    ],
)
def test_the_pairs_of_peers(pairs, kind, most_refused):
    judged = list(zip(pairs, verdicts(pairs, kind), strict=True))
    assert [row for row, right in judged if right and not row["want"]] == []
    assert len([row for row, right in judged if not right and row["want"]]) <= most_refused


@pytest.mark.needs("shared/data/gsm8k")
def test_the_answers_of_gsm8k_are_numbers_however_they_are_spelt():
    golds = {
        json.loads(line)["answer"].rpartition("####")[2].strip()
        for line in (GSM8K / "test.jsonl").read_text(encoding="utf-8").splitlines()
    }
    assert {kind_of(gold) for gold in golds} == {"number"}
    for gold in golds:
        spelt = [f"${gold}", f"{gold}.00", f"{gold} dollars", rf"\boxed{{{gold}}}", f"**{gold}**"]
        assert [text for text in spelt if not same_answer(text, gold)] == []
        assert not same_answer(f"{gold}1", gold) and not same_answer(f"-1{gold}", gold)


@pytest.mark.needs("shared/data/gsm8k")
def test_the_solutions_of_four_models_get_openai_s_verdicts():
    given, golds, wanted = [], [], []
    for line in (GSM8K / "example_model_solutions.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        for solution in row.values():
            if isinstance(solution, dict):
                given.append(THINK_ANSWER.render("so", solution["solution"].rpartition("A:")[2]))
                golds.append(row["ground_truth"].rpartition("A:")[2])
                wanted.append(float(solution["is_correct"]))
    assert len(wanted) == 5276 and correctness_reward(given, answer=golds) == wanted


# --- Verdicts without math-verify -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "gold", "question", "kind", "verdict"),
    [
        ("42", "42", "", None, True),
        ("42.0", "42", "", None, True),
        ("43", "42", "", None, False),
        ("Paris", "paris", "", None, True),
        ("London", "Paris", "", None, False),
        ("", "x+1", "", None, False),
        ("x + 1", "Paris", "", None, False),
        ("Paris", "x+1", "", None, False),
        # only mathematics is left to math-verify (verdict None)
        ("x+1", "x + 1", "", None, True),
        ("x+1", "1 + x", "", None, None),
        ("x^2", "x^3", "", None, None),
        ("the answer is x+1", "1 + x", "", None, None),
        # the question handed back is wrong
        ("48 27/1", "75", "What is 48 + 27?", None, False),
        ("84/12", "7", "What is 84/12?", None, False),
        ("168/4", "42", "What is 84/2?", None, False),
        (r"\frac{84}{12}", "7", r"Compute $\frac{84}{12}$.", None, False),
        ("5*10^2", "500", "What is 5*10^2?", None, False),
        ("3 dozen", "36", "What is 3 dozen?", None, False),
        ("2 million", "2000000", "Write 2 million in digits.", None, False),
        (r"\sqrt{12}.", r"2\sqrt{3}", r"Simplify $\sqrt{12}$.", "mathematics", False),
        ("the answer is 84/7", "12", "What is 84/7?", None, False),
        (r"\boxed{\sqrt{16}}", "4", r"What is $\sqrt{16}$?", "mathematics", False),
        ("5^2", "25", "What is 5^2?", "mathematics", False),
        ("(x + 1)^2", "x^2+2x+1", "Expand $(x+1)^2$.", None, False),
        *[(task, "42", "", None, False) for task in ("17 + 25", "6*7", "84 ÷ 2", "7!/5!")],
        *[(task, "42", "", "mathematics", False) for task in ("(17)+(25)", r"6 \times 7")],
        (r"\sum_{i=1}^{2} 21", "42", "", None, False),
        (r"\lfloor 42.9 \rfloor", "42", "", None, False),
        # but the question may contain the answer
        ("7", "7", "What is 7 + 0?", None, True),
        ("-7", "-7", "What is -7 + 0", None, True),
        ("1/2", "1/2", "Which is larger, 1/2 or 1/3?", None, True),
        ("3/6", "0.5", "Halve 1", None, True),
        # if the question asks for another form, the answer must have the row's form
        ("7/20", "0.35", "Write 7/20 as a decimal.", None, False),
        (".35", "0.35", "Write 7/20 as a decimal.", None, True),
        ("35%", "0.35", "Write 7/20 as a decimal.", None, False),
        ("12/16", "3/4", "Simplify 6/8.", None, False),
        (r"\frac{3}{4}", "3/4", "Simplify 6/8.", None, True),
        ("20%", "20", "How much is 20% of 100?", None, False),
        ("$1,000", "1000", "She has 1,000 dollars and keeps all.", None, True),
        ("x²+5x+6", "(x+2)(x+3)", "Factor $x^2+5x+6$.", None, False),
        ("6 + 5x + x^2", "(x+2)(x+3)", "Factor $x^2+5x+6$.", None, False),
        ("(3+x)(x+2)", "(x+2)(x+3)", "Factor $x^2+5x+6$.", None, None),
        ("x^2", "x^2", "Which is even, x^2 or x^3?", None, True),
        # another spelling of a number is correct, but not a division left undone
        ("2 million", "2000000", "How many live there?", None, True),
        ("1.5e3", "1500", "How many live there?", None, True),
        ("500%", "5", "How much more?", None, True),
        ("62/2", "31", "How many are left?", None, False),
        ("Paris", "Paris", "Paris or London?", None, True),
        ("The final answer is: 12", "12", "Is it 12?", None, True),
        ("x^2+2x+1", "(x+1)^2", "Expand (x+1)^2.", None, None),
    ],
)
def test_a_verdict_that_needs_no_computing(given, gold, question, kind, verdict):
    assert compare_answers(given, gold, question, kind).right is verdict


@pytest.mark.parametrize(
    "text",
    [
        "{" * 40 + "x+1" + "}" * 40,
        "(" * 10_000,
        "}{",
        "(]" * 2 + "]",
        "x+" * 200 + "1",
        "the sum of 2 and 3",
        "not 2",
        "__import__('os')",
        "4 2",
        "x2",
    ],
    ids=range(10),
)
def test_what_is_no_expression_is_never_computed(text):
    assert compare_answers(text, "x+2", kind="mathematics").right is False


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_text_is_compared_as_it_is(kind):
    assert compare_answers(" " + "1 + a " * 300, "1 + a " * 300, kind=kind).right
    assert not compare_answers("1 + A " * 300, "1 + a " * 300, kind=kind).right


def test_a_text_is_compared_as_it_is_if_only_one_of_the_two_is_long():
    long = "Paris" + "." * 1000
    assert compare_answers("Paris...", "Paris", kind="text").right
    assert not compare_answers(long, "Paris", kind="text").right
    assert not compare_answers("Paris", long, kind="text").right


# --- The examples in the docstrings of the kinds --------------------------------------------------


def examples_of(page: str) -> list[tuple[str, str, str]]:
    return re.findall(r"`([^`]+)` ([=≠]) `([^`]+)`", page)


def docstrings_of(module) -> str:
    """The docstring of a module and those of its functions."""
    functions = [
        value
        for value in vars(module).values()
        if getattr(value, "__module__", None) == module.__name__
    ]
    return "\n".join(each.__doc__ or "" for each in [module, *functions])


# The examples of numbers that are in no docstring.
NUMBERS = r"""
- Digits, with or without separators, signs and exponents:
  `1 000` = `1000`, `1'000` = `1000`, `1_000` = `1000`, `10,\!080` = `10080`, `1{,}000` = `1000`,
  `42.` = `42`, `−5` = `-5`, `1e3` = `1000`, `1.5 \times 10^{3}` = `1500`
- Fractions and repeating decimals:
  `1/2` = `0.5`, `7 1/2` = `7.5`, `½` = `0.5`, `3\frac12` = `3.5`, `0.(3)` = `1/3`,
  `0.333…` = `1/3`, `0.1\overline{6}` = `1/6`
- Percentages:
  `$28$ percent` = `28\%`, `-30%` = `-30`
- Rounded decimals need six correctly rounded digits:
  `0.333333` = `1/3`, `0.3333` ≠ `1/3`, `0.1234564` ≠ `0.1234561`, `0.000001` ≠ `1/700000`,
  `370367/3` ≠ `123456`
- Units, and words that are none:
  `$18 dollars` = `18`, `\$1,000.00` = `1000`, `2 million` = `2000000`, `5\text{ m}^2` = `5`,
  `90 degrees` = `90^\circ`, `72 years old` = `72`, `$5 each` = `5`, `USD 18` = `$18`,
  `13只` = `13`, `100bps` = `100`, `1,000.99 m²` = `1000.99`, `$\$36$` = `36`, `EUR 18` ≠ `$18`,
  `72 more` ≠ `72`, `5 lakhs` ≠ `5`, `3 dozen` ≠ `3`, `42k` ≠ `42`, `1980s` ≠ `1980`, `5ab` ≠ `5`,
  `5t^2` ≠ `5`, `2兆円` ≠ `2`, `2 quadrillions` ≠ `2`, `5m` ≠ `5`
- Names, brackets, quotes and boxes around a number; digits of any script:
  `**42**` = `42`, `(5)` = `5`, `"5",` = `5`, `(3)/(4)` = `3/4`, `{7 / 5}` = `1.4`,
  `x = \boxed{5}` = `5`, `٤٢` = `42`, `42。` = `42`
- Names in letters and words:
  `\frac{dy}{dx} = 3` = `3`, `|AB| = 3` = `3`, `\ln x = 3` ≠ `3`, `x^2 = 3` ≠ `3`,
  `total = 71 = 72` ≠ `72`
- No numbers: computations, ranges, doubts, numbers in words:
  `>= 42` ≠ `42`, `41 | 42` ≠ `42`, `42 or 43` ≠ `42`, `42!` ≠ `42`, `42, ...` ≠ `42`,
  `forty-two` ≠ `42`, `40_9` ≠ `40`, `(4)(200)` ≠ `4200`, `4 2` ≠ `42`, `80, 10` ≠ `10,\!080`,
  `1,00` ≠ `100`, `72 red marbles` ≠ `72`, `Total: 72` ≠ `72`
"""

CHOICE, _, EXACT = choices_and_codes.__doc__.partition("\nExact: ")
PAGES = (
    docstrings_of(numbers) + docstrings_of(names_and_units) + NUMBERS,
    docstrings_of(mathematics) + docstrings_of(latex),
    CHOICE,
    EXACT,
    texts.__doc__,
)
EXAMPLES = [
    (kind, *example)
    for kind, page in zip(KINDS, PAGES, strict=True)
    for example in examples_of(page)
]


@pytest.mark.parametrize(("kind", "given", "sign", "gold"), EXAMPLES)
def test_an_example_of_a_kind_holds(kind, given, sign, gold):
    assert same_answer(given, gold, kind=kind) is (sign == "=")


def test_every_kind_has_examples_of_both():
    assert {(kind, sign) for kind, _, sign, _ in EXAMPLES} == {
        (kind, sign) for kind in KINDS for sign in "=≠"
    }


@pytest.mark.parametrize(
    "refuses",
    [
        mathematics.differ_in_steps,
        mathematics.leaves_computation,
        mathematics.differ_in_variables,
        mathematics.differ_in_brackets,
        mathematics.differ_in_inequalities,
    ],
)
def test_a_decision_of_mathematics_refuses_its_own_examples(refuses):
    examples = examples_of(refuses.__doc__)
    assert "≠" in {sign for _, sign, _ in examples}
    for given, sign, gold in examples:
        values = mathematics.without_names(latex.to_latex(given), latex.to_latex(gold))
        assert refuses(*values) is (sign == "≠"), (given, gold)


def test_a_vote_is_the_same_whatever_was_answered_before():
    assert vote_of("5") == vote_of("$5.00") != vote_of("5%") == vote_of("0.05") == vote_of("1/20")
    assert vote_of("Paris") == vote_of("paris.") and vote_of("CO") != vote_of("Co")


DEEP = "[" * 700 + "]" * 700


def test_documents_are_compared_by_value_and_an_answer_that_is_none_is_wrong():
    examples = examples_of(documents.__doc__)
    assert len(examples) == 7
    for given, sign, gold in examples:
        assert same_answer(given, gold, kind="json") is (sign == "="), (given, gold)
    gold = '{"category": "billing", "urgent": true}'
    right = '{"urgent":true,\n"category":"billing"}'
    for given in (right, f"```json\n{right}\n```", f"The answer is {right}"):
        assert same_answer(given, gold, kind="json"), given
        assert not same_answer(given, gold, kind="text"), given
    hostile = ["NaN", '{"a": 1, "a": 1}', "[" * 10**5, DEEP * 99, "1" * 10**5, "1e" + "9" * 30]
    for given in [*hostile, '{"a":' * 9999, "\ud800", "\x00", "", "{}{}", "-Infinity"]:
        for answer in (gold, DEEP, "[1e999999999]", "no document"):
            assert not same_answer(given, answer, kind="json"), given[:20]
    assert not same_answer("[NaN]", "[NaN ]", kind="json")


# --- Undeclared kinds -----------------------------------------------------------------------------

SHOWN = {
    "number": [
        "42",
        "90°",
        r"90^\circ",
        "1,000.50",
        "$5",
        "18 dollars",
        "50%",
        "1/3",
        "033",
        r"\frac{1}{2}",
    ],
    "mathematics": [
        *("x+1", "x^2", r"\sqrt{2}", "[0, ∞)", "y = 3", "x > 2", "3·x", r"2\pi", "n-1"),
        *("$1$ and $2$", "(p,q)=(3,2)", "$|AB|=1$", "3 + 4i", r"x \in A"),
        *("(1, 2)", "[0,1)", "3, -3", "5,6", "2 and 5", "pi", "sqrt(2)", "x != 3", "52_8"),
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
        *("the sum of 2 + 3", "and/or", "555-1234", "1920x1080", "e-mail"),
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
        ({"answer": '{"id": 4, "price": "$5$"}'}, "text", "json"),
        ({"answer": '["red", "blue"]'}, "text", "json"),
        ({"answer": "[3, 4]"}, "mathematics", None),
        ({"answer": '{"id": 4}', "kind": "json"}, "json", None),
        ({"answer": "H2O", "kind": "exact"}, "exact", None),
        ({"answer": "January 5"}, "text", None),
        ({"answer": "15:30"}, "text", "exact"),
        ({"answer": "(B)"}, "text", "choice"),
        ({"answer": "v1.2.3"}, "text", "exact"),
        ({"answer": "5 red apples"}, "text", None),
        ({"answer": "12,0"}, "mathematics", "decimal comma"),
        ({"answer": "-1.234,56"}, "mathematics", "decimal comma"),
        ({"answer": "12,0", "kind": "number"}, "number", "decimal comma"),
        ({"answer": "12,0", "kind": "text"}, "text", None),
        ({"answer": "1,234"}, "number", None),
        ({"answer": "1, 2"}, "mathematics", None),
        ({"answer": "Paris"}, "text", None),
        ({"answer": "42"}, "number", None),
        ({"answer": "x+1"}, "mathematics", None),
    ],
)
def test_what_a_row_is_judged_as_and_what_it_looks_like(row, judged, looks):
    assert kind_of_row(row) == judged
    assert looks_like(row) == looks


def test_a_survey_says_how_many_answers_of_each_kind_there_are():
    answers = [*map(str, range(15)), "Paris", "5 km", "2024-01-02", "12,0", "3, 4", "4"]
    found = survey([{"answer": answer} for answer in answers])
    assert {kind: entry["rows"] for kind, entry in found["answer_kinds"].items()} == {
        "number": 16,
        "text": 3,
        "mathematics": 2,
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
    assert kind_of(text) in KINDS
    for kind in KINDS:
        assert compare_answers(text, text, kind=kind).right is True
        assert compare_answers("something else", text, kind=kind).right is False
