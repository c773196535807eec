"""Accuracy, pass@k, the majority vote and the comparison of two models, checked against counts by
hand, enumeration and published formulas.
"""

import itertools
import json
import random
import re

import numpy as np
import pandas as pd
import pytest
import torch
from finished import proportion
from transformers import AutoModelForCausalLM, AutoTokenizer

from helpers.results.evaluation import (
    compare,
    comparison_lines,
    majority_vote,
    pass_at_k,
    right,
    sampled_scores,
    score,
)
from helpers.results.intervals import mcnemar_test, paired_interval, wilson_interval
from helpers.results.tables import difficulty_summary, samples_summary, summary
from helpers.tags import THINK_ANSWER, TagFormat

OTHER_TAGS = TagFormat("work", "result")


def says(answer: str, tags: TagFormat = THINK_ANSWER) -> str:
    return tags.render("so", answer)


RIGHT = says("2")


# --- One completion per question ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("completions", "answers", "correct", "in_format"),
    [
        ([RIGHT] * 4, ["2"] * 4, 4, 1.0),
        ([RIGHT] * 4, ["2", "3", "2", "3"], 2, 1.0),
        (["<answer>2</answer>", "2", RIGHT, ""], ["2"] * 4, 2, 0.25),
        (["2"], ["2"], 0, 0.0),
    ],
)
def test_accuracy_and_format_are_counted_separately(completions, answers, correct, in_format):
    expected = proportion(correct, len(answers)) | {"in_format": in_format}
    assert score(completions, answers) == expected


@pytest.mark.filterwarnings("ignore:.*have no answer")
def test_right_agrees_with_the_correctness_reward():
    hedged = RIGHT + "<answer>3</answer>"
    completions = [RIGHT, "<answer>2.0</answer>", "2", "<answer>3</answer>", hedged]
    assert right(completions, ["2"] * 5) == [True, True, False, False, False]
    assert right([says("2", OTHER_TAGS), RIGHT], ["2", "2"], OTHER_TAGS) == [True, False]
    assert score([says("2", OTHER_TAGS), RIGHT], ["2", "2"], OTHER_TAGS)["in_format"] == 0.5
    assert right([RIGHT], [None]) == [False]


def test_the_mean_length_needs_a_token_counter():
    entry = score(["a b c", RIGHT, "", "d"], ["2"] * 4, count_tokens=lambda text: len(text.split()))
    assert entry["mean_length"] == (3 + len(RIGHT.split()) + 0 + 1) / 4
    assert not {"mean_length", "by_difficulty"} & set(score([RIGHT], ["2"]))


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        (["hard", "easy", "hard"], ["easy", "hard"]),
        (list(np.array([3, 1, 2])), ["1", "2", "3"]),
        ([2.0, float("nan"), 1.0], ["1", "2"]),
        ([0.25, 0.5, 0.125], ["0.125", "0.25", "0.5"]),
        (["b", "a", None], ["a", "b"]),
        ([3, "hard", 2], ["2", "3", "hard"]),
        ([None, None, float("nan")], []),
    ],
)
def test_levels_of_any_type_are_sorted_and_missing_levels_left_out(levels, expected):
    entry = score([RIGHT] * 3, ["2"] * 3, difficulty=levels)
    assert list(entry["by_difficulty"]) == expected
    assert json.loads(json.dumps(entry)) == entry


def test_every_level_has_its_own_accuracy():
    entry = score([RIGHT] * 4, ["2", "3", "2", "3"], difficulty=[1, 1, 1, 10])
    assert entry["by_difficulty"] == {"1": proportion(2, 3), "10": proportion(0, 1)}


# --- A user's own grader --------------------------------------------------------------------------


def half_for_text_reward(completions, answer, **columns):
    """Return 0.7 + 0.2 + 0.1 (slightly less than 1.0) if the completion contains the answer, else
    0.5; None if the answer is y.
    """
    texts = [completion[0]["content"] for completion in completions]
    return [
        None if gold == "y" else 0.7 + 0.2 + 0.1 if gold in text else 0.5
        for text, gold in zip(texts, answer, strict=True)
    ]


def test_a_users_own_reward_can_be_the_judge():
    completions, answers = ["it is {a}", "it is b", "c"], ["{a}", "x", "y"]
    assert right(completions, answers) == [False] * 3
    assert right(completions, answers, grader=half_for_text_reward) == [True, False, False]
    entry = score(completions, answers, grader=half_for_text_reward, difficulty=[1, 1, 2])
    assert (entry["accuracy"], entry["by_difficulty"]["1"]["accuracy"]) == (1 / 3, 0.5)


def test_an_accuracy_and_a_comparison_are_of_the_same_verdicts_of_a_judge():
    coin = random.Random(0)

    def moody_reward(completions, **columns):
        return [float(coin.random() < 0.5) for _ in completions]

    before, after = ([f"{name} {n}" for n in range(64)] for name in ("a", "b"))
    answers = ["1"] * 64
    first, second = (score(texts, answers, grader=moody_reward) for texts in (before, after))
    counts = compare(before, after, answers, answers, grader=moody_reward)
    assert counts["both_right"] + counts["lost"] == round(64 * first["accuracy"])
    assert counts["both_right"] + counts["won"] == round(64 * second["accuracy"])


def test_an_error_in_the_judge_names_the_judge_and_the_completion():
    def broken_reward(completions, answer, **columns):
        raise KeyError("quantity")

    said = r"the grader broken_reward raised KeyError in test_evaluation.py, line [0-9]+: 'quantity' for the completion 'x'"
    with pytest.raises(ValueError, match=said):
        right(["x"], ["1"], grader=broken_reward)


ROWS = pd.DataFrame(
    {
        "prompt": [[]] * 3,
        "question": ["1,000 to a power of ten?", "How much is 10/2?", "What is 84/2?"],
        "answer": ["1e3", "5", "42"],
        "kind": ["text", None, "number"],
    }
)


def test_rows_are_judged_with_their_kind_and_question_as_in_training():
    texts, answers = [says("1000"), says("5.0"), says("84/2")], list(ROWS["answer"])
    assert right(texts, answers) == [True, True, True]
    assert right(texts, answers, rows=ROWS) == [False, True, False]
    assert score(texts, answers, rows=ROWS)["accuracy"] == 1 / 3
    groups = [[text, text] for text in texts]
    sampled = sampled_scores(groups, answers, rows=ROWS)
    assert sampled["pass_at_k"]["2"]["value"] == sampled["majority"]["accuracy"] == 1 / 3
    counts = compare(texts, [""] * 3, list(ROWS["question"]), answers, rows=ROWS)
    assert (counts["lost"], counts["both_wrong"]) == (1, 2)

    def kind_reward(completions, answer, kind, question, **columns):
        assert columns == {} and list(question) == list(ROWS["question"])
        return [float(name == "number") for name in kind]

    assert right(texts, answers, grader=kind_reward, rows=ROWS) == [False, False, True]


# --- pass@k ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", range(1, 9))
def test_pass_at_k_is_the_share_of_subsets_with_a_right_sample(n):
    for c, k in itertools.product(range(n + 1), range(1, n + 1)):
        subsets = list(itertools.combinations([True] * c + [False] * (n - c), k))
        assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, subsets)) / len(subsets), abs=1e-15)


# --- The majority ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "winner"),
    [
        (["7", "42", "42"], "42"),
        (["7", "42", "7", "42.0", "42"], "42"),
        (["7", "1,000", "1000", "7", "1000.0"], "1,000"),
        (["7", "42"], "7"),  # one vote each: the first wins
        (["7", "42", "42", "7"], "42"),  # two votes each: 42 got its second vote first
        (["Paris", "Rome", "paris"], "Paris"),
        (["42"], "42"),
    ],
)
def test_the_most_frequent_answer_wins_and_ties_go_to_the_first(given, winner):
    assert majority_vote([says(answer) for answer in given]) == says(winner)


@pytest.mark.parametrize(
    "silent", ["", "42", "<answer></answer>", "<answer>42", "<answer>42</answer><answer>7</answer>"]
)
def test_completions_without_one_clear_answer_do_not_vote(silent):
    assert majority_vote([silent, silent, says("7")]) == says("7")
    assert majority_vote([silent, silent]) == ""


# --- The scores of several samples ----------------------------------------------------------------


def groups_of(*counts: int, samples: int = 4) -> list[list[str]]:
    """Return one group per count, with that many correct samples and different wrong ones; the
    answer is always 1.
    """
    return [[says("1")] * c + [says(str(100 + i)) for i in range(samples - c)] for c in counts]


def test_pass_at_k_is_the_mean_over_the_questions():
    counts = [0, 1, 4, 2, 0]
    scores = sampled_scores(groups_of(*counts), ["1"] * 5)
    assert (scores["samples"], scores["pass_at_k_questions"]) == (4, 5)
    assert list(scores["pass_at_k"]) == ["1", "2", "4"], "four samples give no pass@8 or pass@16"
    for k, point in scores["pass_at_k"].items():
        assert point["value"] == pytest.approx(sum(pass_at_k(4, c, int(k)) for c in counts) / 5)
    # the interval is Wilson's for the number of questions
    low, high = wilson_interval(7 / 4, 5)
    assert scores["pass_at_k"]["1"] == {"value": 7 / 20, "ci95": [low, high]}
    assert json.loads(json.dumps(scores)) == scores


def test_the_majority_answer_is_judged_and_no_answer_is_wrong():
    groups = [
        [says("2"), says("1"), says("1.0")],
        [says("2"), says("2"), says("1")],
        ["1", "", says("1")],
        ["1", "1", "1"],
    ]
    assert sampled_scores(groups, ["1"] * 4)["majority"] == proportion(2, 4)


# --- Two models -----------------------------------------------------------------------------------

QUESTIONS = [f"What is {n} + 0?" for n in range(8)]
ANSWERS = [str(n) for n in range(8)]
BEFORE = [says(str(n)) if n in (0, 1, 2) else says("-1") for n in range(8)]
AFTER = [says(str(n)) if n in (1, 2, 3, 4, 5, 6) else "?" for n in range(8)]


def test_questions_won_and_lost_are_counted_and_add_up():
    found = compare(BEFORE, AFTER, QUESTIONS, ANSWERS, names=("a", "b"))
    counts = {"n": 8, "won": 4, "lost": 1, "both_right": 2, "both_wrong": 1}
    assert (counts | {"before": "a", "after": "b"}).items() <= found.items()
    assert found["p_value"] == mcnemar_test(4, 1) == 2 * 6 / 32
    assert found["difference"] == 3 / 8
    assert found["difference_ci95"] == list(paired_interval(2, 4, 1, 1))
    assert [row["question"] for row in found["won_examples"]] == QUESTIONS[3:6]
    lost = {"question": QUESTIONS[0], "answer": "0", "before": BEFORE[0], "after": "?"}
    assert found["lost_examples"] == [lost] and json.loads(json.dumps(found)) == found
    assert len(compare(BEFORE, AFTER, QUESTIONS, ANSWERS, examples=9)["won_examples"]) == 4


# --- As text --------------------------------------------------------------------------------------


def words(lines: list[str]) -> list[str]:
    """Return the lines with single spaces, after checking that all have the same length."""
    assert len({len(line) for line in lines}) == 1
    return [" ".join(line.split()) for line in lines]


def test_the_summary_has_one_line_per_model_in_order():
    trained = score([RIGHT] * 10, ["2"] * 10, count_tokens=lambda text: 7)
    trained["greedy"] = score(["2"] * 10, ["2"] * 10)
    baseline = score([RIGHT] * 10, ["2"] * 5 + ["3"] * 5)
    assert words(summary({"baseline": baseline, "trained": trained})) == [
        "sampled 95% interval greedy in format questions tokens",
        # greedy decoding and the length were not measured
        "baseline 50.0% 23.7% to 76.3% 100.0% 10",
        "trained 100.0% 72.2% to 100.0% 0.0% 100.0% 10 7.0",
    ]


@pytest.mark.parametrize(("dtype", "bits"), [("torch.float32", 32), ("torch.bfloat16", 16)])
def test_the_summary_shows_the_base_model_without_quantisation_after_the_quantised_one(dtype, bits):
    whole = score([RIGHT] * 4, ["2"] * 3 + ["3"]) | {"dtype": dtype}
    baseline = score([RIGHT] * 4, ["2"] * 2 + ["3"] * 2) | {"unquantised": whole}
    merged = score([RIGHT] * 4, ["2"] * 4)
    lines = words(summary({"baseline": baseline, "merged": merged}))
    assert [line.split("%")[0] for line in lines[1:]] == [
        "baseline 50.0",
        f"base model, {bits} bits 75.0",
        "merged 100.0",
    ]


def test_the_difficulty_summary_has_one_line_per_level_and_one_column_per_model():
    def entry(answers):
        return score([RIGHT] * 4, answers, difficulty=[10, 9, 9, "counting and probability"])

    models = {"baseline": entry(["2", "2", "3", "3"]), "trained": entry(["2"] * 4)}
    assert words(difficulty_summary(models | {"old": score([RIGHT], ["2"])})) == [
        "difficulty questions baseline trained",
        "9 2 50.0% (9.5 to 90.5) 100.0% (34.2 to 100.0)",
        "10 1 100.0% (20.7 to 100.0) 100.0% (20.7 to 100.0)",
        "counting and probability 1 0.0% (0.0 to 79.3) 100.0% (20.7 to 100.0)",
    ]
    assert difficulty_summary({"baseline": score([RIGHT], ["2"])}) == []


def test_the_samples_summary_has_one_line_per_measure_and_one_column_per_model():
    four = sampled_scores(groups_of(*[1, 2] * 8), ["1"] * 16)
    two = sampled_scores(groups_of(*[2] * 16, samples=2), ["1"] * 16)
    lines = words(samples_summary({"baseline": four, "old": {"accuracy": 0.5}, "trained": two}))
    assert lines[:2] == ["baseline trained", "samples 4 for 16 questions 2 for 16 questions"]
    assert lines[2].startswith("pass@1 37.5%") and lines[2].endswith("100.0% (80.6 to 100.0)")
    assert [len(line.split()) for line in lines[3:6]] == [9, 5, 9], "two samples have no pass@4"
    assert lines[5].startswith("majority") and len(lines) == 6
    assert samples_summary({"older": {"accuracy": 0.5}}) == []


def test_the_comparison_lines_state_wins_p_value_and_difference():
    low, high = (100 * bound for bound in paired_interval(2, 4, 1, 1))
    assert comparison_lines(compare(BEFORE, AFTER, QUESTIONS, ANSWERS)) == [
        "trained against baseline: won 4, lost 1 of 8; exact McNemar p = 0.375",
        f"accuracy +37.5 points ({low:.1f} to {high:.1f})",
    ]
    clear = compare([says("-1")] * 100, [says("1")] * 100, ["?"] * 100, ["1"] * 100)
    assert re.search("100.* 0 .*100.* p < 1e-15$", comparison_lines(clear)[0])
    worse = comparison_lines(compare(AFTER, BEFORE, QUESTIONS, ANSWERS))
    assert worse[1].startswith("accuracy -37.5 points")


# --- evaluation.json, recomputed with plain Transformers and regular expressions ------------------


def greedy_texts(folder, prompts: list[list[dict]], max_new_tokens: int) -> list[str]:
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    inputs = tokenizer.apply_chat_template(
        prompts, add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
    )
    with torch.inference_mode():
        output = model.generate(**inputs, max_new_tokens=max_new_tokens, do_sample=False)
    return tokenizer.batch_decode(
        output[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True
    )


def answers_in(text: str) -> set[str]:
    """Return the contents of all answer blocks outside the reasoning."""
    outside = re.sub(r"<think>.*?(</think>|$)", "", text, flags=re.DOTALL)
    return set(re.findall(r"<answer>\s*([^<]*?)\s*</answer>", outside))


def test_the_numbers_agree_with_plain_transformers(executed):
    holdout = pd.read_parquet(executed.folder / "data" / "holdout.parquet")
    manifest = json.loads((executed.folder / "manifest.json").read_text())
    limit = manifest["training"]["settings"]["max_completion_length"]
    texts = greedy_texts(
        executed.folder / "merged", [list(messages) for messages in holdout["prompt"]], limit
    )
    correct = [
        answers_in(text) == {gold} for text, gold in zip(texts, holdout["answer"], strict=True)
    ]
    shaped = [
        re.fullmatch(r"\s*<think>[^<]*</think>\s*<answer>[^<]*</answer>\s*", text) is not None
        for text in texts
    ]
    reported = json.loads((executed.folder / "evaluation.json").read_text())["merged"]["greedy"]
    assert reported["n"] == len(holdout) == 128
    assert reported["accuracy"] == sum(correct) / 128
    assert reported["in_format"] == sum(shaped) / 128
    assert 0 < sum(correct) < 128, "a wrong evaluation could also report all or none correct"
