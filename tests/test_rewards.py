"""The rewards: what earns, what does not, and that no completion makes them raise."""

import doctest
import importlib
import json
import math
import pickle
import random
import warnings
from fractions import Fraction
from functools import partial

import pytest

from helpers.formats import THINK_ANSWER, TagFormat
from helpers.rewards import correctness_reward, format_reward, incremental_format_reward, parse_number, same_answer
from helpers.tasks import load_task

CUSTOM = TagFormat("reasoning", "final")
REWARDS = [correctness_reward, format_reward, incremental_format_reward]
each_reward = pytest.mark.parametrize("reward", REWARDS, ids=lambda reward: reward.__name__)


def said(answer: str, tags: TagFormat = THINK_ANSWER) -> str:
    return tags.render("so", answer)


def correctness(completion, gold) -> float | None:
    return correctness_reward([completion], answer=[gold])[0]


def chat(text: str) -> list[dict]:
    return [{"role": "assistant", "content": text}]


# --- A right answer ----------------------------------------------------------------------------------------------------


THOUSAND = ["1000", "1,000", "$1,000", "1000.0", "1000.", "1e3", "1E+3", "+1000", "1000 dollars", "$ 1,000.00"]
NOT_42 = ["43", "-42", "42 or 43", "42 or", "42 and", "not 42", "42, 43", "42-43", "42 to 43", "42 43", "4 2", "4,2", "42/0"]
NOT_42 += ["", " ", "nan", "inf", "42e", "42e9", "+-42", "--42", "42%", "=42", "forty-two", "0x2a"]


@pytest.mark.parametrize(
    ("given", "gold"),
    [
        *[(given, "1000") for given in THOUSAND],
        *[("1000", gold) for gold in THOUSAND],
        ("\N{MINUS SIGN}5", "-5"),
        ("-5", "\N{MINUS SIGN}5"),
        ("-$5", "-5"),
        ("$-5", "-5"),
        ("- 5", "-5"),
        ("50%", "0.5"),
        ("0.5", "50 %"),
        ("1/2", "0.5"),
        ("2/4", "1/2"),
        ("-1/2", "-.5"),
        ("1/3", "2/6"),
        ("€3.50", "3.5 Euro"),
        ("007", "7"),
        ("-0", "0"),
        ("5 KM", "5 km."),
        ("1,234,567", "1234567"),
        ("0.1", "1e-1"),
        ("9007199254740993", "9007199254740993.0"),
        (" Paris ", "paris"),
        ("New\n York", "new york"),
        ("x = 3", "X =  3"),
        ("STRASSE", "straße"),
    ],
)
def test_the_same_answer_in_another_spelling_earns(given, gold):
    assert correctness(said(given), gold) == 1.0


@pytest.mark.parametrize(
    ("given", "gold"),
    [
        *[(given, "42") for given in NOT_42],
        ("nan", "0"),
        ("inf", "1e999"),
        ("-inf", "-1"),
        (".", "0"),
        ("$", "0"),
        ("-", "0"),
        ("1,00", "100"),
        ("1,0000", "10000"),
        ("0.3333", "1/3"),
        ("9007199254740993", "9007199254740992"),
        ("0.30000000000000004", "0.3"),
        ("5 km", "5 m"),
        ("1/0", "0"),
        ("London", "Paris"),
        ("Paris or London", "Paris"),
    ],
)
def test_another_answer_earns_nothing(given, gold):
    assert correctness(said(given), gold) == 0.0


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
        ("<think><answer>3</answer></think><answer>4</answer>", 1.0),
        ("<think><answer>4</answer></think>", 0.0),
        ("<think><answer>4</answer></think>4", 0.0),
        ("<think>so <answer>4</answer>", 0.0),
        ("<answer>4</answer></think>", 0.0),
        ("so</think><answer>4</answer>", 1.0),
        ("<answer>4", 0.0),
        ("4", 0.0),
        ("", 0.0),
    ],
)
def test_what_is_judged_is_the_answer_block_outside_the_reasoning(completion, earned):
    assert correctness(completion, "4") == earned


def test_three_blocks_earn_only_where_every_two_agree():
    # Each of the first two agrees with the last, which names no unit, and yet they contradict each other.
    assert correctness("<answer>5 km</answer><answer>5 m</answer><answer>5</answer>", "5") == 0.0


def test_an_empty_answer_never_equals_an_empty_answer():
    assert not same_answer("", "")
    assert not same_answer(" ", "")


@pytest.mark.parametrize("gold", [None, "", " \n", float("nan")])
def test_a_row_without_an_answer_scores_none_with_one_warning(gold):
    with pytest.warns(UserWarning, match="2 of 3 rows have no answer") as caught:
        scores = correctness_reward([said("4")] * 3, answer=[gold, "4", gold])
    assert scores == [None, 1.0, None]
    assert len(caught) == 1


def test_without_an_answer_column_every_row_scores_none_with_one_warning():
    with pytest.warns(UserWarning, match="2 of 2") as caught:
        assert correctness_reward([said("4"), "x"]) == [None, None]
    assert len(caught) == 1


def test_rows_with_answers_bring_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert correctness_reward([said("4")], answer=["4"]) == [1.0]


@pytest.mark.parametrize(("gold", "earned"), [(4, 1.0), (4.0, 1.0), (5, 0.0), (0, 0.0)])
def test_an_answer_that_is_a_number_is_compared_too(gold, earned):
    assert correctness(said("4"), gold) == earned


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("-1,234.50", (Fraction(-2469, 2), "")),
        ("7 Apples.", (Fraction(7), "apples")),
        ("12.5 %", (Fraction(1, 8), "")),
        ("1e-999", (Fraction(1, 10**999), "")),
        ("9" * 100, (Fraction(10**100 - 1), "")),
        ("9" * 101, None),
        ("1e1000", None),
        ("9**9**9**9", None),
        ("", None),
        ("km", None),
        ("3/0", None),
        ("٣", None),
    ],
)
def test_a_number_is_read_exactly_or_not_at_all(text, number):
    assert parse_number(text) == number


# --- The shape ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("completion", "earned"),
    [
        (said("4"), 1.0),
        (f"\n{said('')}\n", 1.0),
        (said("4") + ".", 0.0),
        ("so " + said("4"), 0.0),
        (said("4") * 2, 0.0),
        ("<think>so</think>4", 0.0),
        ("<answer>4</answer>", 0.0),
        ("<answer>4</answer><think>so</think>", 0.0),
        ("", 0.0),
    ],
)
def test_the_format_reward_is_all_or_nothing(completion, earned):
    assert format_reward([completion]) == [earned]


@pytest.mark.parametrize(
    ("completion", "earned"),
    [
        ("", 0.0),
        ("4", 0.0),
        ("<think>so", 0.25),
        ("<think>so</think>", 0.5),
        ("<think>so</think>4", 0.5),
        ("<think>so</think><answer>4", 0.75),
        ("<think>so</think><answer>4</answer>", 1.0),
        ("before <think>so</think> between <answer>4</answer> \n", 1.0),
        ("<answer>4</answer>", 0.5),
        # A tag out of its place earns nothing.
        ("</think><think><answer>4</answer>", 0.75),
        ("</answer><answer></think><think>", 0.25),
        ("<answer>4</answer><think>so</think>", 0.5),
        # A tag that is there twice earns nothing.
        ("<think><think>so</think><answer>4</answer>", 0.75),
        ("<think>so</think><answer>4</answer></answer>", 0.75),
        ("<think>so</think><answer>4</answer>" * 2, 0.0),
        ("<think>" * 50, 0.0),
        # Text after the end costs a thousandth a character, a quarter at most.
        (said("4") + "x", 0.999),
        (said("4") + " ok ", 0.998),
        (said("4") + "x" * 250, 0.75),
        (said("4") + "x" * 100_000, 0.75),
        ("</answer>" + "x" * 300, 0.0),
        ("<answer>4</answer>" + "x" * 300, 0.25),
        # Only what follows a closed answer is trailing.
        ("<think>so</think>" + "x" * 300, 0.5),
        ("<think>so</think><answer>" + "x" * 300, 0.75),
    ],
)
def test_each_tag_in_its_place_earns_a_quarter(completion, earned):
    assert incremental_format_reward([completion]) == [pytest.approx(earned, abs=1e-9)]


# --- All of them -------------------------------------------------------------------------------------------------------

HOSTILE = [
    "9" * 10**6,
    said("9" * 10**6),
    said("9**9**9**9"),
    said("1e999999999"),
    said("9" * 50 + "/" + "0" * 40),
    said("1" + ",000" * 5000),
    said(" " * 10**6 + "$" * 10),
    said("\ud800\udfff"),
    "\ud800",
    said("\x00"),
    "\x00" * 1000,
    said("{" * 10_000 + "}" * 10_000),
    said("\\frac{" * 10_000),
    "<think>" * 10_000,
    "<answer>" * 10_000 + "</answer>" * 10_000,
    "<answer>4</answer>" * 5_000,
    said("٣"),
    said("4²"),
    None,
    [],
    {},
    3,
    [None],
    [{"role": "assistant", "content": None}],
    [{"role": "assistant", "content": [{"type": "image"}]}],
]


@each_reward
@pytest.mark.parametrize("number", range(len(HOSTILE)))
@pytest.mark.parametrize("gold", ["4", "9" * 10**4, "\ud800"], ids=["short", "long", "surrogate"])
def test_hostile_completions_get_a_score(reward, number, gold):
    (score,) = reward([HOSTILE[number]], answer=[gold])
    assert isinstance(score, float) and 0 <= score <= 1


def soup(rng: random.Random) -> str:
    pieces = [*THINK_ANSWER.tags, "4", " ", "5 ", "so", "x" * 300, "\n", "<", "</", "<think", "or"]
    return "".join(rng.choices(pieces, k=rng.randrange(16)))


@each_reward
def test_every_score_of_a_tag_soup_is_between_0_and_1(reward):
    rng = random.Random(0)
    completions = [soup(rng) for _ in range(500)]
    scores = reward(completions, answer=["4"] * 500)
    assert len(scores) == 500
    assert all(isinstance(score, float) and math.isfinite(score) and 0 <= score <= 1 for score in scores)
    # One at a time or as chat messages, the same text earns the same.
    assert [reward([chat(text)], answer=["4"])[0] for text in completions] == scores


def test_only_a_completion_with_each_tag_once_and_in_order_earns_more_than_three_quarters():
    rng = random.Random(1)
    completions = [soup(rng) for _ in range(500)] + [said("4"), said("4") + "x", said("4") + "<think>"]
    whole, slope = format_reward(completions), incremental_format_reward(completions)
    for text, all_or_nothing, score in zip(completions, whole, slope, strict=True):
        in_order = [tag for tag, _, _ in THINK_ANSWER.found_tags(text)] == list(THINK_ANSWER.tags)
        assert score <= 0.75 or in_order, text
        assert score == 1.0 or not all_or_nothing, text


@each_reward
def test_no_completions_give_no_scores(reward):
    assert reward([], answer=[]) == []


@each_reward
def test_other_tags_can_be_bound(reward):
    bound = partial(reward, tags=CUSTOM)
    assert bound([said("4", CUSTOM), said("4")], answer=["4", "4"]) == [1.0, 0.0]
    assert reward([said("4", CUSTOM), said("4")], answer=["4", "4"]) == [0.0, 1.0]


@each_reward
def test_a_reward_can_be_pickled(reward):
    for copy in (pickle.loads(pickle.dumps(reward)), pickle.loads(pickle.dumps(partial(reward, tags=THINK_ANSWER)))):
        assert copy([said("4"), ""], answer=["4", "4"]) == [1.0, 0.0]


@each_reward
def test_trls_extra_arguments_and_any_column_are_accepted(reward):
    scores = reward(
        prompts=[[{"role": "user", "content": "2 + 2?"}]] * 2,
        completions=[chat(said("4")), chat("4")],
        completion_ids=[[1, 2], [3]],
        answer=["4", "4"],
        question=["2 + 2?"] * 2,
        difficulty=[1, 1],
        trainer_state=object(),
        log_extra=print,
        log_metric=print,
        environments=None,
    )
    assert scores == [1.0, 0.0]


@each_reward
@pytest.mark.parametrize("column", ["tags", "completions", "prompts"])
def test_a_source_column_cannot_take_the_place_of_an_argument(tmp_path, reward, column):
    path = tmp_path / "rows.jsonl"
    rows = [{"question": f"{n} + 0?", "answer": str(n), column: ["algebra"]} for n in range(4)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    row = load_task(str(path), holdout_size=1).train.iloc[0].to_dict()
    # As TRL calls a reward: with every column of the data but the prompt.
    columns = {name: [value] for name, value in row.items() if name != "prompt"}
    assert reward(prompts=[row["prompt"]], completions=[said(row["answer"])], completion_ids=[[1]], **columns) == [1.0]


@pytest.mark.parametrize("name", ["correctness", "structure"])
def test_the_examples_in_the_docstrings_hold(name):
    result = doctest.testmod(importlib.import_module(f"helpers.rewards.{name}"))
    assert result.attempted >= 2 and result.failed == 0
