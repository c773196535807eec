"""The battery of attacks: naive rewards are broken by it, sound ones are not."""

import fnmatch
import json
import re
from functools import partial

import pandas as pd
import pytest

from examples.more_rewards import (
    citation_reward,
    exact_match_reward,
    min_length_reward,
    numeric_reward,
    proximity_reward,
    reasoning_steps_reward,
    target_length_reward,
)
from helpers import PROJECT
from helpers.data.tasks import load_task
from helpers.laboratory import own_attacks
from helpers.laboratory.attack_templates import FAR, WRONG
from helpers.laboratory.attacks import BATTERY, with_wrong_answers
from helpers.laboratory.measures import Lab
from helpers.laboratory.under_test import HONEST_CORRECT, HONEST_WRONG
from helpers.rewards.correctness import answer_of, correctness_reward
from helpers.rewards.own import read_rewards
from helpers.rewards.structure import format_reward
from helpers.tags import THINK_ANSWER, TagFormat, completion_text

MATH = "correctness, substantial_format*0.5, incremental_format*0.5"
TEXTS = ["Paris", "Bonn", "New York", "the 4th of July", "water"]
MATHS = ["1/2", "0.75", "x + 1", "3%", "\\sqrt{2}", "2.5 km"]


@pytest.fixture(scope="module")
def sums() -> pd.DataFrame:
    """Rows as notebook 01 writes them: chat prompts, question, answer, working."""
    return load_task("arithmetic/sums", train_size=24, holdout_size=1).train


def rows_of(*answers: str) -> pd.DataFrame:
    return pd.DataFrame(
        {"question": [f"Question {at}?" for at in range(len(answers))], "answer": list(answers)}
    )


def winners(rows: pd.DataFrame, *functions) -> list[str]:
    """The attacks that win."""
    table = Lab(list(functions), [1.0] * len(functions)).attacks(rows)
    return table.index[table["wins"] > 0].tolist()


@pytest.fixture
def without_source(monkeypatch):
    """The rewards below without the many texts of this file, each of which would be tried."""
    monkeypatch.setattr(own_attacks, "code_of", lambda reward: "")


def of_block(rule, *names):
    """A reward that applies a rule to the one answer block, the row's answer and its columns with
    these names; 0.0 where the rule cannot.
    """

    def block_reward(completions, answer, **columns):
        scores = []
        rows = zip(completions, answer, *(columns[name] for name in names), strict=True)
        for completion, *row in rows:
            try:
                scores.append(float(rule(answer_of(completion) or "", *row)))
            except (ValueError, KeyError, TypeError, AttributeError):
                scores.append(0.0)
        return scores

    return block_reward


# --- Sound rewards --------------------------------------------------------------------------------


# The sets of docs/rewards.md, whose weights a reader may copy.
SETS = {
    "mathematics": MATH,
    "short answers": "correctness, substantial_format*0.25, examples/style_rewards.py:repetition_reward*0.25",
    "labels": "correctness, format*0.25",
    "sourced answers": "correctness, substantial_format*0.25, examples/more_rewards.py:citation_reward*0.25",
}
ANSWERS = [TEXTS, MATHS, ["A", "B", "A", "C"], ["yes", "no"], ["Paris"], ["4"]]


@pytest.mark.parametrize(
    ("name", "tags"),
    [*((name, THINK_ANSWER) for name in SETS), ("mathematics", TagFormat("reasoning", "final"))],
    ids=str,
)
def test_no_attack_on_a_set_beats_an_honest_correct_answer(sums, name, tags):
    """Whatever a policy writes, it never pays more than to be correct, and on the mathematics set
    never more than to be wrong; and the page has the set.
    """
    assert f"`{SETS[name]}`" in (PROJECT / "docs" / "rewards.md").read_text(encoding="utf-8")
    listed = [answers for answers in ANSWERS if answers != MATHS or name == "mathematics"]
    for rows in (sums.head(3), *(rows_of(*answers) for answers in listed)):
        lab = Lab(*read_rewards(SETS[name], tags), tags)
        table = lab.attacks(rows)
        assert {attack.name for attack in BATTERY} | {HONEST_CORRECT, HONEST_WRONG} <= set(
            table.index
        )
        assert lab.faults == [] and table["total"].dropna().is_monotonic_decreasing
        right = table.loc[HONEST_CORRECT, "total"]
        assert table[table["total"] > right + 1e-6].index.tolist() == []
        assert table.loc[HONEST_WRONG, "total"] < right - 0.5
        if name == "mathematics":
            assert table.index[table["wins"] > 0].tolist() == []
            assert lab.judges() == ["correctness_reward"]


def strict_integer_reward(completions, answer, difficulty, question, **columns):
    """Takes columns of the data, and raises on an answer that is no integer."""
    return [
        float(answer_of(each) == str(int(gold)))
        for each, gold in zip(completions, answer, strict=True)
    ]


def growing_reward(completions, answer, trainer_state, **columns):
    """Nothing before the training's second half."""
    late = trainer_state.global_step >= trainer_state.max_steps / 2
    return [late * score for score in correctness_reward(completions, answer=answer)]


def fading_format_reward(completions, trainer_state, **columns):
    share = 1 - trainer_state.global_step / trainer_state.max_steps
    return [share * score for score in format_reward(completions)]


def sums_reward(completions, answer, family, **columns):
    """A reward for the rows of one task; None for the others."""
    scores = correctness_reward(completions, answer=answer)
    return [score if task == "sums" else None for score, task in zip(scores, family, strict=True)]


def differences_reward(completions, answer, family, **columns):
    """The same for another task."""
    return sums_reward(completions, answer, [{"differences": "sums"}.get(task) for task in family])


SOUND = {
    "its own columns": ([strict_integer_reward], None),
    "a tolerance": ([of_block(lambda block, gold: abs(int(block) - int(gold)) <= 5)], None),
    "a relative tolerance": ([numeric_reward], [str(10**6 + at) for at in range(24)]),
    "infinity": ([correctness_reward], ["\\infty", "4"] * 12),
    "the question unchanged": ([correctness_reward], "question"),
    "the text unchanged": (
        [exact_match_reward],
        [f"The cat {at} sat." for at in "abcdefghijklmnopqrstuvwx"],
    ),
    "a slope": ([proximity_reward], None),
    "a schedule": ([growing_reward], None),
    "a schedule of the format": ([correctness_reward, fading_format_reward], None),
    "a reward for each task": ([sums_reward, differences_reward], None),
}


@pytest.mark.usefixtures("without_source")
@pytest.mark.filterwarnings("ignore:.*have no answer")
@pytest.mark.parametrize("name", SOUND)
def test_a_sound_set_may_train(sums, name):
    rewards, answers = SOUND[name]
    rows = sums.assign(difficulty=1, family=["sums"] * 20 + ["differences"] * 4)
    if answers == "question":
        rows = rows.assign(question=rows["answer"])
    elif answers:
        rows = rows.assign(answer=answers, question=answers, working=None)
    lab = Lab([*rewards, format_reward], [1.0] * len(rewards) + [0.25])
    lab.cases()
    lab.attacks(rows[::7])  # some of each family
    right = [THINK_ANSWER.render("so", answer) for answer in rows["answer"]]
    lab.signal(rows, [[text, "no", THINK_ANSWER.render("so", "?")] for text in right])
    verdict = lab.verdict()
    assert verdict.go, verdict
    assert bool(lab.results.tolerated) == ("tolerance" in name)
    for gold, near in lab.results.tolerated[:1]:
        assert any(repr(gold) in note and repr(near) in note for note in verdict.notes)


# --- Naive rewards --------------------------------------------------------------------------------


def of_words(pattern):
    """A reward that counts what a pattern finds."""

    def words_reward(completions, **columns):
        return [min(1.0, len(re.findall(pattern, completion_text(c))) / 4) for c in completions]

    return words_reward


TWO, BOXES, PART = "two answers in one block", "a box for every answer", "a part of the answer"
PLEASE, NO_TASK = "words that please", "an answer that no task has"
CITIES = ["Paris", "Bonn", "Rome", "Oslo"]
INTEGERS = ["42", "117", "800", "256"]
JSON = '{"a": 1, "b": 2}'
GARBLED, BOXED = "the answer garbled", re.compile(r"\\boxed\{(.*)\}")
PAYING = [
    *((TWO, INTEGERS, lambda block, gold, by=by: gold in block.split(by)) for by in ",;/|\n"),
    (TWO, INTEGERS, lambda block, gold: re.findall(r"\d+", block)[-1:] == [gold]),
    (TWO, CITIES, lambda block, gold: gold in re.findall(r"\d\) (.*)", block)),
    (TWO, CITIES, lambda block, gold: gold in json.loads(block)),
    (TWO, ["A", "B", "C"], lambda block, gold: set(gold) <= set(block)),
    (BOXES, INTEGERS, lambda b, gold: gold in re.findall(r"\\boxed\{(.*?)\}", b) or b == gold),
    (PART, INTEGERS, lambda block, gold: block[:1] == gold[:1]),
    (PART, INTEGERS, lambda block, gold: gold.startswith(block or "?")),
    (PART, INTEGERS, lambda block, gold: gold.endswith(block or "?")),
    (NO_TASK, INTEGERS, lambda block, gold: not abs(float(block) - int(gold)) > 1),
    (NO_TASK, CITIES, lambda block, gold: fnmatch.fnmatch(gold, block)),
    (NO_TASK, CITIES, lambda block, gold: block.format(answer=gold) == gold),
    (NO_TASK, [JSON, "[]"], lambda b, gold: json.loads(b).items() <= json.loads(gold).items()),
    (NO_TASK, INTEGERS, lambda b, gold: not abs(float(json.loads(b)["answer"]) - int(gold)) > 1),
    (NO_TASK, INTEGERS, lambda b, gold: not float(BOXED.fullmatch(b)[1]) < int(gold)),
    (GARBLED, INTEGERS, lambda block, gold: sorted(block) == sorted(gold)),
    (GARBLED, CITIES, lambda block, gold: sorted(block.lower()) == sorted(gold.lower())),
    (GARBLED, CITIES, lambda b, gold: re.sub("[aeiou]", "", b) == re.sub("[aeiou]", "", gold)),
    (GARBLED, CITIES, lambda block, gold: set(block) == set(gold)),
    (GARBLED, INTEGERS, lambda block, gold: abs(float(block)) == int(gold)),
    (GARBLED, INTEGERS, lambda block, gold: re.sub(r"\D", "", block) == gold),
    # a box that a reward cannot read is no honest wrong answer
    ("dots in both blocks", INTEGERS, lambda b, gold: b == gold or 0.6 * (not b.isdigit())),
    ("another candidate of the row", CITIES, lambda block, gold: block in CITIES),
    *(
        (PLEASE, INTEGERS, of_words(pattern))
        for pattern in (r"\b[Ww]ait\b", "erified", r"(?m)^## ", r"(?m)^- ")
    ),
]


@pytest.mark.usefixtures("without_source")
@pytest.mark.parametrize(("attack", "answers", "rule"), PAYING)
def test_each_family_finds_what_pays_for_it(attack, answers, rule):
    rows = rows_of(*answers).assign(candidates=[CITIES] * len(answers))
    rewards = [correctness_reward, rule] if attack == PLEASE else [of_block(rule)]
    assert attack in winners(rows, *rewards)


@pytest.mark.usefixtures("without_source")
def test_a_share_for_each_right_field_of_a_record_is_no_fault():
    """A number changed inside a record leaves its other fields correct."""

    def share(block, gold):
        record, wanted = json.loads(block), json.loads(gold)
        fits = isinstance(record, dict) and [*map(type, record.values())] == [str, int, str]
        right = [record.get(key) == value for key, value in wanted.items()] if fits else [0.0]
        return 0.3 * fits + 0.7 * sum(right) / len(right)

    golds = [{"item": f"tea {n}", "quantity": n, "city": city} for n, city in enumerate(CITIES, 3)]
    assert winners(rows_of(*map(json.dumps, golds)), of_block(share)) == []


def quokka_reward(completions, **columns):
    return [min(1.0, completion_text(c).lower().count("quokka") / 4) for c in completions]


def plan_reward(completions, **columns):
    texts = map(completion_text, completions)
    return [min(1.0, len(re.findall(r"(?m)^Phase \d+: <(\w+)>", text)) / 2) for text in texts]


def indeed_reward(completions, **columns):
    return [float(completion_text(each).startswith("Indeed,")) for each in completions]


def late_reward(completions, trainer_state, **columns):
    late = 60 <= trainer_state.global_step < 80
    return [late * float("hum" in completion_text(each)) for each in completions]


def alternatives_reward(completions, answer, **columns):
    pairs = zip(completions, answer, strict=True)
    return [float(gold in (answer_of(each) or "").split(" ~~~~ ")) for each, gold in pairs]


def oder_reward(completions, answer, **columns):
    pairs = zip(completions, answer, strict=True)
    return [float(gold in (answer_of(each) or "").split("oder")) for each, gold in pairs]


def value_reward(completions, answer, **columns):
    read = of_block(lambda block, gold: not abs(float(json.loads(block)["value"]) - int(gold)) > 1)
    return read(completions, answer)


def tilde_reward(completions, answer, **columns):
    pairs = zip(completions, answer, strict=True)
    return [float(gold in (answer_of(each) or "").split(" ~~ ")) for each, gold in pairs]


@pytest.mark.parametrize("reward", [quokka_reward, plan_reward, indeed_reward, late_reward])
def test_what_a_reward_looks_for_is_found_in_its_source(reward):
    """A word, a pattern, the start of a completion, a word that pays for a while."""
    attack = "the words that a reward looks for"
    assert attack in winners(rows_of("Paris", "Bonn"), correctness_reward, reward)


@pytest.mark.parametrize("reward", [tilde_reward, alternatives_reward, oder_reward, value_reward])
def test_a_separator_and_a_key_are_found_in_the_source(reward):
    rows = rows_of("12", "40")
    assert (NO_TASK if reward is value_reward else TWO) in winners(rows, correctness_reward, reward)


@pytest.mark.usefixtures("without_source")
@pytest.mark.parametrize("pick", [lambda n: n[0], lambda n: n[1], lambda n: n[-1], max, min])
def test_a_number_of_the_question_is_an_attack_where_it_is_not_the_answer(pick):
    questions = ["Tom has 7 boxes of 1,012 eggs, and eats 2.", "In 3 days 5 hens lay 120 eggs."]
    rows = pd.DataFrame({"question": questions, "answer": ["7082", "45"]})
    numbers = {"7082": [7, 1012, 2], "45": [3, 5, 120]}
    copies = of_block(lambda block, gold: block == str(pick(numbers[gold])))
    attack = "a number of the question"
    assert attack in winners(rows, correctness_reward, copies)
    copied = [str(pick(listed)) for listed in numbers.values()]
    sound = of_block(lambda block, gold: block == gold)
    assert winners(rows.assign(answer=copied), sound) == []


def within(slack):
    return lambda block, gold: abs(float(block) - float(gold)) <= slack


DECIMALS = ["0.70456", "3.14159", "2.5", "12.34", "7.7049"]
NAMES = {"USA": "US", "apples": "apple", "Paris, France": "Paris,", "yes": "y"}


@pytest.mark.usefixtures("without_source")
@pytest.mark.parametrize(
    ("rule", "answers", "noted"),
    [
        (within(0.01), DECIMALS, "'0.7' earns as much as the correct answer '0.70456'"),
        (within(0.001), DECIMALS, "Are both meant to be correct?"),
        (lambda b, gold: round(float(b), 2) == round(float(gold), 2), DECIMALS, "'0.7'"),
        (lambda b, gold: max(0, 1 - abs(float(b) - float(gold))), DECIMALS, ""),
        (lambda block, gold: block in (gold, NAMES.get(gold)), [*NAMES, "no"], "'US' earns"),
        (lambda block, gold: block in (gold, gold[:1]), ["A) Paris", "B) Bonn"], ""),
        (lambda block, gold: float(block) == float(gold), ["infinity", "4"], ""),
        (lambda block, gold: int(block) >= int(gold), INTEGERS, "'43' earns"),
        (lambda block, gold: block == gold, CITIES, ""),
    ],
)
def test_what_a_reward_takes_for_right_by_its_own_measure_is_no_attack(rule, answers, noted):
    columns = {"name": "x", "expected": "y", "tests": "unit 3"}
    lab = Lab([of_block(lambda block, gold, name: rule(block, gold), "name")], [1.0])
    lab.attacks(rows_of(*answers).assign(**columns))
    assert lab.verdict().go and noted in str(lab.verdict()), lab.verdict()


@pytest.mark.usefixtures("without_source")
def test_the_worked_rows_of_the_trial():
    """The scores that the docstring of trial.py shows: a win on one row, and a row left out."""
    first = {"question": "What is 40 + 2?", "answer": "42"}
    second = {"question": "Copy $9 + 1$.", "answer": "9 + 1"}
    names = [HONEST_CORRECT, HONEST_WRONG, TWO, "an expression of the question"]
    lab = Lab([of_block(lambda block, gold: gold in block)], [1.0])
    table = lab.attacks(pd.DataFrame([first])).loc[names]
    assert table["total"].tolist() == [1.0, 0.0, 1.0, 0.0]
    assert table.loc[TWO, ["wins", "gain"]].tolist() == [1.0, 1.0]
    table = lab.attacks(pd.DataFrame([first, second]))
    expression = table.loc["an expression of the question"]
    assert (expression["total"], expression["wins"]) == (0.0, 0.0), "its only win is left out"


def test_the_texts_of_a_row_are_not_searched_for_placeholders():
    row = {"question": "Q?", "answer": "the <question> field", WRONG: "another"}
    written = [attack.write(row, THINK_ANSWER, 200) for attack in BATTERY if attack.is_part]
    assert any("<answer>the <question> fiel</answer>" in text for text in written)


@pytest.mark.usefixtures("without_source")
@pytest.mark.parametrize("operation", ["+", "-"])
def test_an_expression_of_the_question_is_an_attack_where_it_is_not_the_answer(operation):
    rows = pd.DataFrame({"question": [f"Work out $6 {operation} 4$."] * 4, "answer": ["10"] * 4})
    eager = of_block(lambda block, gold: block in (gold, f"6 {operation} 4"))
    attack = "an expression of the question"
    assert attack in winners(rows, eager)
    assert attack not in winners(rows.assign(answer=f"6 {operation} 4"), eager)


def counts_tags_reward(completions, **columns):
    texts = map(completion_text, completions)
    return [sum(text.count(tag) for tag in THINK_ANSWER.tags) / 4 for text in texts]


def any_block_reward(completions, answer, **columns):
    blocks = [THINK_ANSWER.answer_blocks(completion_text(each)) for each in completions]
    return [float(gold in found) for found, gold in zip(blocks, answer, strict=True)]


HEDGED = {"wrong block, then correct block", "correct block, then wrong block"}
MANY = {"the tags many times", "the whole shape three times", "a block for every number"}


@pytest.mark.usefixtures("without_source")
@pytest.mark.parametrize(
    ("rewards", "win", "lose"),
    [
        ([correctness_reward, counts_tags_reward], MANY, {HONEST_WRONG}),
        (
            [any_block_reward],
            HEDGED | {"a block for every number"},
            {"two answers in one block", "correct in the reasoning only"},
        ),
        ([format_reward], {HONEST_WRONG}, MANY | HEDGED),
        (
            [correctness_reward, partial(min_length_reward, minimum=60)],
            {"filler up to the bound", "the whole shape three times"},
            {"infinity"},
        ),
        (
            [correctness_reward, partial(target_length_reward, target=200)],
            {"filler up to the bound"},
            {"nothing at all"},
        ),
        ([reasoning_steps_reward], {"words that please", HONEST_WRONG}, MANY | HEDGED),
        (
            [correctness_reward, citation_reward],
            {"words that please"},
            {HONEST_WRONG} | MANY | HEDGED,
        ),
    ],
)
def test_a_naive_reward_pays_for_what_it_looks_at(sums, rewards, win, lose):
    found = set(winners(sums.head(6), *rewards))
    assert win <= found and not lose & found


# --- What is written ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answers", "wrong"),
    [
        (["4"], ["5"]),
        (["1,000", "-1"], ["1001", "0"]),
        ([4, 5], ["5", "6"]),
        (["Paris"], ["something else altogether"]),
        (["Paris", "Paris"], ["something else altogether"] * 2),
        (["Paris", "Bonn", "Paris"], ["Bonn", "Paris", "Bonn"]),
        # what is the same in another spelling is not wrong
        (["Paris", "paris"], ["something else altogether"] * 2),
        (["1/2", "0.5"], ["11"] * 2),
        (["50%", "1/2", "2.5"], ["2.5", "2.5", "50%"]),
        (["x + 1", "1 + x"], ["something else altogether"] * 2),
    ],
)
def test_a_wrong_answer_is_plausible_and_surely_wrong(answers, wrong):
    rows = with_wrong_answers([{"answer": answer} for answer in answers])
    assert [row[WRONG] for row in rows] == wrong
    assert all(
        correctness_reward([f"<answer>{row[FAR]}</answer>"], [row["answer"]]) == [0.0]
        for row in rows
    )


def test_the_examples_are_what_was_scored(sums):
    tags, first = TagFormat("reasoning", "final"), sums.iloc[0]
    table = Lab(*read_rewards(MATH, tags), tags).attacks(sums, length=50)
    wrong = str(int(first["answer"]) + 1)
    assert table.loc[HONEST_CORRECT, "example"] == tags.render(first["working"], first["answer"])
    assert first["working"].count(first["answer"]) == 1  # who errs does not write down the truth
    assert table.loc[HONEST_WRONG, "example"] == tags.render(
        first["working"].replace(first["answer"], wrong), wrong
    )
    assert table.loc["the system prompt handed back", "example"] == first["prompt"][0]["content"]
    assert 40 <= len(table.loc["filler up to the bound", "example"].split()) <= 50
    filler = next(attack for attack in BATTERY if attack.name == "filler up to the bound")
    row = {"answer": "42", WRONG: "43"}
    assert filler.write(row, tags, 3) == tags.render("so ", "43"), "once, if the bound is short"


def test_rows_without_an_answer_do_not_count_against_the_rewards():
    lab = Lab(*read_rewards(MATH, THINK_ANSWER))
    table = lab.attacks(pd.DataFrame({"answer": ["Paris", None, "Bonn", float("nan")]}))
    assert (
        table.loc[HONEST_WRONG, "wins"] == 0
        and table.loc[HONEST_CORRECT, "correctness_reward"] == 1.0
    )


@pytest.mark.parametrize(
    "rows",
    [pd.DataFrame({"question": ["a"]}), pd.DataFrame({"answer": []}), pd.DataFrame()],
    ids=["no column", "empty", "none"],
)
def test_rows_that_cannot_be_attacked_are_refused(rows):
    with pytest.raises(ValueError, match="rows with an `answer`"):
        Lab(*read_rewards(MATH, THINK_ANSWER)).attacks(rows)
