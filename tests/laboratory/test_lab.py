"""The laboratory: its measures of weighted rewards on cases and groups, and its verdict in words.
test_attacks.py tests the attacks.
"""

import asyncio
import contextlib
import functools
import json
import math
import random
import re
import time
import warnings
from functools import partial
from unittest.mock import ANY

import httpx
import numpy as np
import pandas as pd
import pytest
from told import told
from trl.rewards import think_format_reward

from examples.more_rewards import (
    fuzzy_match_reward,
    min_length_reward,
    reasoning_steps_reward,
)
from helpers.data.tasks import load_task
from helpers.laboratory import own_attacks
from helpers.laboratory.approval import against_report
from helpers.laboratory.cases import differences, stored_groups, style_cases
from helpers.laboratory.measures import Lab
from helpers.laboratory.trial import columns_of
from helpers.laboratory.verdicts import STEPS
from helpers.rewards.correctness import answer_of, correctness_reward
from helpers.rewards.own import VerlReward, read_rewards
from helpers.rewards.structure import (
    format_reward,
    incremental_format_reward,
    substantial_format_reward,
)
from helpers.runs import Run, write_json
from helpers.tags import THINK_ANSWER, TagFormat, completion_text
from notebooks.checks import scripted_judge as scripted

pytestmark = pytest.mark.filterwarnings("ignore:.*have no answer")
CASED = [
    correctness_reward,
    format_reward,
    substantial_format_reward,
    incremental_format_reward,
]


def lab_of(*weights: float) -> Lab:
    """Return a lab with rewards called first, second and third, with these weights. Each reads its
    score from a completion of numbers, by position. Without attacks, the first is the judge.
    """
    names = ["first", "second", "third"][: len(weights)]
    return Lab([told(name, at) for at, name in enumerate(names)], list(weights))


def rows_for(groups: list) -> pd.DataFrame:
    return pd.DataFrame(
        {"question": [f"q{at}" for at in range(len(groups))], "answer": ["4"] * len(groups)}
    )


MATH = "correctness, substantial_format*0.5, incremental_format*0.5"
SQUARE = ["0 0", "0 1", "1 0", "1 1"]  # the scores of two rewards that are independent


def lab_on(groups: list[list[str]], *weights: float) -> Lab:
    """Return the lab of `lab_of` after `signal` on these groups."""
    lab = lab_of(*weights)
    lab.signal(rows_for(groups), groups)
    return lab


def signal_of(groups: list[list[str]], *weights: float) -> dict:
    return lab_on(groups, *weights).results.signal


def stops(lab: Lab) -> str:
    return "\n".join(lab.verdict().stops)


@pytest.fixture(scope="module")
def sums() -> pd.DataFrame:
    return load_task("arithmetic/sums", train_size=24, holdout_size=1).train


def reward_of(name: str, rule):
    """Return a reward of this name that applies a rule to each completion and its answer."""

    def reward(completions, answer, **columns):
        return [
            rule(completion, gold) for completion, gold in zip(completions, answer, strict=True)
        ]

    reward.__name__ = name
    return reward


def is_right(completion, gold) -> float | None:
    return correctness_reward([completion], answer=[gold])[0]


def healthy_groups(rows: pd.DataFrame) -> list[list[str]]:
    """Return four completions per row, as a policy in the middle of its training writes them."""
    return [
        [
            THINK_ANSWER.render("so", answer),
            THINK_ANSWER.render("so", str(int(answer) + 1)),
            f"<answer>{answer}</answer>",
            f"<think>so</think>{answer}",
        ]
        for answer in rows["answer"]
    ]


# --- A lab ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("functions", "weights", "says"),
    [
        ([format_reward], [], "1 rewards and 0 weights"),
        ([format_reward], [1.0, 0.5], "1 rewards and 2 weights"),
        ([format_reward, correctness_reward], [1.0], "2 rewards and 1 weights"),
        ([], [], "0 rewards and 0 weights"),
        (
            [format_reward, partial(format_reward, tags=THINK_ANSWER)],
            [1.0, 1.0],
            "two columns .* called 'format_reward'",
        ),
    ],
)
def test_rewards_and_weights_that_do_not_fit_are_refused(functions, weights, says):
    with pytest.raises(ValueError, match=says):
        Lab(functions, weights)


def test_scores_are_weighted_none_adds_nothing_and_a_fault_costs_only_itself():
    lab = lab_of(1.0, 0.5)
    table = lab.scores(["1 0.5", "- 1", "0.25 -", "- -", "0.5"])
    np.testing.assert_array_equal(table["total"], [1.25, 0.5, 0.25, np.nan, 0.5])
    np.testing.assert_array_equal(table["first"], [1, np.nan, 0.25, np.nan, 0.5])
    found = [(fault.reward, fault.position, fault.completion) for fault in lab.faults]
    assert found == [("second", 4, "0.5")]


def test_rewards_are_handed_what_trl_hands_them_and_may_log():
    seen = {}

    def curious_reward(log_extra, log_metric, trainer_state, **columns):
        seen.update(columns)
        log_extra("text", [""])
        log_metric("number", 2.0)
        return [1.0] * len(columns["completions"])

    lab = Lab([curious_reward], [1.0])
    lab.scores(["a b", "c"], answer=["1", "2"], prompts=["p", "q"])
    assert lab.faults == [] and seen == {
        "completions": [[{"role": "assistant", "content": text}] for text in ("a b", "c")],
        "completion_ids": [[ANY, ANY], [ANY]],
        "answer": ["1", "2"],
        "prompts": ["p", "q"],
    }


# --- Cases ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tags",
    [
        THINK_ANSWER,
        TagFormat("reasoning", "final"),
        TagFormat("answer", "final"),
        TagFormat("answer", "think"),
        TagFormat(opened=True),
    ],
    ids=lambda tags: tags.spec,
)
def test_our_rewards_score_our_cases_as_expected(tags):
    lab = Lab([partial(reward, tags=tags) for reward in CASED], [1.0] * len(CASED), tags)
    cases = lab.cases()
    assert differences(cases).to_dict("records") == [] and lab.faults == []
    least = 12 if tags.opened else 20  # opened: only cases that begin with the reasoning
    assert all(cases[f"expected {name}"].notna().sum() >= least for name in lab.names)
    assert {0.0, 1.0} <= set(cases["correctness_reward"].dropna())
    assert cases["total"].to_dict() == cases[lab.names].sum(axis=1).to_dict()


def write_cases(tmp_path, *cases: dict | str):
    lines = [
        case if isinstance(case, str) else json.dumps(case, ensure_ascii=False) for case in cases
    ]
    (tmp_path / "mine.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path / "mine.jsonl"


def test_a_case_file_of_ones_own_brings_its_columns_and_expectations(tmp_path):
    def half_reward(completions, factor, **columns):
        rows = zip(map(completion_text, completions), factor, strict=True)
        return [None if text == "-" else float(text) * (times or 1) for text, times in rows]

    half = {"expected": {"half_reward": 0.5}}
    path = write_cases(
        tmp_path,
        half | {"name": "by its column", "completion": "0.25", "factor": 2},
        "",
        half | {"name": "rounded", "completion": "0.5004"},
        half | {"name": "too much", "completion": "0.502"},
        half | {"name": "too little", "completion": "0.498"},
        half | {"name": "no score", "completion": "-"},
        {"name": "no matter", "completion": "5\u2028\x85\x0c"},  # one line all the same
    )
    lab = Lab([half_reward], [2.0])
    cases = lab.cases(path)
    assert cases["total"].tolist() == [1.0, 1.0008, 1.004, 0.996, ANY, 10.0] and lab.faults == []
    assert list(differences(cases)["case"]) == ["too much", "too little", "no score"]


LINES = ["not json", "[1]", '{"completion": "4"}']
FINE = {"name": "fine", "completion": "4"}


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        *(([FINE, "", line], r"mine\.jsonl, case 2") for line in LINES),
        ([FINE, FINE], r"mine\.jsonl, case 2 .*`name`, which must be unique"),
        (
            [FINE | {"expected": {"corectness_reward": 1}}],
            r"'fine' .*'corectness_reward'.* correctness_reward",
        ),
    ],
)
def test_what_is_no_case_or_for_no_reward_is_named(tmp_path, lines, says):
    with pytest.raises(ValueError, match=says):
        Lab([correctness_reward], [1.0]).cases(write_cases(tmp_path, *lines))


# --- Signal ---------------------------------------------------------------------------------------


def advantages(group: list[str], weights: tuple) -> tuple[np.ndarray, np.ndarray]:
    """Return TRL's group-scaled advantage of each completion in a group, and each reward's part in
    it (completions by rewards).
    """
    weighted = np.array([[float(word) for word in text.split()] for text in group]) * weights
    total = weighted.sum(axis=1)
    spread = total.std(ddof=1) + 1e-4
    return (total - total.mean()) / spread, (weighted - weighted.mean(axis=0)) / spread


def test_signal_by_hand():
    groups = [["1 0.5", "1 0.5", "0 0.5", "0 0"], ["1 1", "1 1", "1 1", "1 1"]]
    others = {"zero_spread": 0.5, "scored": 1.0, "unscored": 0.0, "constant": None}
    others |= {"advantage_share": ANY, "rank_correlation": ANY}
    a = {"weight": 1.0, "mean": 0.75, "within_group_std": pytest.approx(math.sqrt(1 / 3) / 2)}
    b = {"weight": 2.0, "mean": 0.6875, "within_group_std": pytest.approx(0.125)}
    assert signal_of(groups, 1.0, 2.0) == {
        "groups": 2,
        "group_size": 4,
        "judges": ["first"],
        "rewards": {"first": a | others, "second": b | others},
        "total": {"mean": 2.125, "zero_spread": 0.5},
        "pass_rate": [0.5, 1.0],
        "answered": 0.0,
        "cut_off": 0.0,
        "want_opening": [],
        "run_on": 0.0,
        "first_answer": None,
        "one_text": 1.0,
    }
    assert signal_of([["0.5", "0.49"], ["0", "1"]], 1.0)["pass_rate"] == [0.5, 0.5]
    ranks = signal_of([["1 10 4", "2 1000 3"], ["3 1001 2", "4 9999 1"]], 1.0, 1.0, 1.0)
    of_ranks = {"second": pytest.approx(1.0), "third": pytest.approx(-1.0)}
    assert ranks["rewards"]["first"]["rank_correlation"] == of_ranks


@pytest.mark.parametrize("sizes", [(4, 4, 4), (2, 5, 3)], ids=["even", "uneven"])
def test_advantage_shares_are_those_of_trls_advantage(sizes):
    draw, weights = np.random.default_rng(0), (1.0, 0.5, -0.25)
    groups = [[" ".join(map(str, draw.random(3).round(3))) for _ in range(size)] for size in sizes]
    pairs = [advantages(group, weights) for group in groups]
    advantage, parts = (np.concatenate(each) for each in zip(*pairs, strict=True))
    expected = (parts * advantage[:, None]).mean(axis=0) / (advantage**2).mean()
    signal = signal_of(groups, *weights)
    shares = [statistics["advantage_share"] for statistics in signal["rewards"].values()]
    assert shares == pytest.approx(expected) and sum(shares) == pytest.approx(1.0)
    assert (signal["groups"], signal["group_size"], len(signal["pass_rate"])) == (3, max(sizes), 3)


def test_groups_whose_total_differs_by_rounding_alone_teach_nothing():
    signal = signal_of([["1 1 0", "0 0 1"]], 0.1, 0.2, 0.3)
    assert signal["total"]["zero_spread"] == 1.0
    assert {entry["advantage_share"] for entry in signal["rewards"].values()} == {0.0}


def test_a_completion_that_no_reward_judges_is_left_out_of_its_group_as_in_trl():
    gap, without = (
        signal_of([["1 0", *gap, "0 0.5", "1 1"]], 1.0, 1.0) for gap in (["- -", "- -"], [])
    )
    share = without["rewards"]["first"]["advantage_share"]
    assert gap["rewards"]["first"]["advantage_share"] == pytest.approx(share)
    assert gap["total"] == without["total"]
    one_abstains = signal_of([["- 1", "- 0"], ["1 1", "0.5 1"]], 1.0, 1.0)
    assert one_abstains["rewards"]["first"]["mean"] == 0.75, "and one's None stays out of its mean"
    assert one_abstains["rewards"]["first"]["zero_spread"] == 0.5
    assert one_abstains["total"]["mean"] == 1.125


@pytest.mark.parametrize(
    ("rows", "groups", "says"),
    [
        (1, [["1"]], "fewer than two"),
        (2, [["1", "1"], ["1"]], "fewer than two"),
        (1, [[]], "fewer than two"),
        (2, [["1", "1"]], "2 rows and 1 groups"),
        (0, [], "0 rows and 0 groups"),
    ],
)
def test_groups_without_a_spread_or_a_row_are_refused(rows, groups, says):
    with pytest.raises(ValueError, match=says):
        lab_of(1.0).signal(rows_for([[]] * rows), groups)


# --- Stored completions, speed --------------------------------------------------------------------


def test_the_completions_of_a_run_become_groups(tmp_path):
    table = pd.DataFrame(
        [
            (1, "a", "1", "x1"),
            (1, "b", "2", "y1"),
            (1, "a", "1", [{"role": "assistant", "content": "x2"}]),
            (1, "b", "2", "y2"),
            (2, "a", "1", "x3"),
            (2, "a", "1", "x4"),
            (2, "b", "2", "alone"),
        ],
        columns=["step", "question", "answer", "completion"],
    )
    table.to_json(tmp_path / "stored.jsonl", orient="records", lines=True)
    by_step = (
        [[1, "a", "1"], [1, "b", "2"], [2, "a", "1"]],
        [["x1", "x2"], ["y1", "y2"], ["x3", "x4"]],
    )
    by_question = ([["a", "1"], ["b", "2"]], [["x1", "x2", "x3", "x4"], ["y1", "y2", "alone"]])
    without = table.drop(columns="step")
    for stored, found in (
        (table, by_step),
        (tmp_path / "stored.jsonl", by_step),
        (without, by_question),
    ):
        rows, groups = stored_groups(stored)
        assert (rows.values.tolist(), groups) == found


def test_half_a_character_in_stored_completions_is_a_question_mark(tmp_path):
    rows = [{"question": "a \udfff", "completion": text} for text in ("x \ud800", "y")]
    (tmp_path / "stored.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found, groups = stored_groups(tmp_path / "stored.jsonl")
    assert (list(found["question"]), groups) == (["a ?"], [["x ?", "y"]])


ROW = {"question": "1 + 1?", "answer": "2", "completion": "<answer>2</answer>"}


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (pd.DataFrame([ROW] * 2).drop(columns="question"), "'question' is missing"),
        (pd.DataFrame([ROW] * 2).drop(columns="completion"), "'completion' is missing"),
        (pd.DataFrame([ROW]), "share a question"),
        ("rows.txt", "rows.txt: give a .csv, .json, .jsonl, .parquet file"),
    ],
)
def test_stored_completions_that_are_none_are_refused(table, says):
    with pytest.raises(ValueError, match=says):
        stored_groups(table)


# --- Cases ----------------------------------------------------------------------------------------


def test_the_one_wrong_cell_is_found_and_marked_and_stops():
    hasty = reward_of(
        "correctness_reward",
        lambda text, gold: 1.0 if "42 or 43" in completion_text(text) else is_right(text, gold),
    )
    lab = Lab([hasty, format_reward], [1.0, 1.0])
    cases = lab.cases()
    found = ["hedged: 42 or 43", "correctness_reward", 0.0, 1.0]
    assert differences(cases).to_numpy().tolist() == [found]
    page = style_cases(cases).to_html()
    assert page.count("(not ") == 1 and "1.000 (not 0)" in page
    row = list(cases.index).index("hedged: 42 or 43")
    assert page.count("#C0392B") == 1 and f"#T_cases_row{row}_col0 {{" in page
    (stop,) = lab.verdict().stops
    assert re.search("1 .*correctness_reward .*1 .*'hedged: 42 or 43'.* 0[.]", stop)


# --- Go -------------------------------------------------------------------------------------------


STATISTICS = {"mean", "within_group_std", "zero_spread", "scored", "unscored", "constant"}
STATISTICS |= {"advantage_share", "rank_correlation"}


def test_the_math_set_on_healthy_groups_may_train_and_its_report_is_json(sums):
    lab = Lab(*read_rewards(MATH, THINK_ANSWER))
    lab.cases()
    lab.attacks(sums.head(8))
    lab.signal(sums, healthy_groups(sums))
    speed = lab.speed()
    verdict = lab.verdict()
    assert str(verdict).startswith("GO") and "was not run" not in str(verdict)
    assert list(speed.index) == lab.names and (speed > 0).all()
    report = json.loads(json.dumps(lab.report(), allow_nan=False))
    assert report.keys() == {"rewards", "attacks", "signal", "verdict"}
    assert report["verdict"] == {"go": True, "stops": [], "notes": verdict.notes}
    for entry in report["rewards"].values():
        assert entry.keys() == {"weight", "source", "cases", "ms_per_1000", "faults"} | STATISTICS
    assert report["rewards"]["correctness_reward"]["cases"]["a row without an answer"] is None
    assert report["attacks"]["honest and correct"] == {"total": 2.0, "wins": 0.0}


def blocks(*answers: str, think: str = "<think>so") -> list[str]:
    return [f"{think}</think><answer>{answer}</answer>" for answer in answers]


def near(text, gold: str) -> float:
    """Two fifths for an answer that contains the correct one."""
    return 0.4 * (gold in (THINK_ANSWER.extract_answer(completion_text(text)) or ""))


RIGHT_AND_WRONG = [*blocks("{}", "-1"), "so"]
JUDGED = [correctness_reward]
# A sentence of the verdict, and the rewards and the group of completions that lead to it.
REASONS = {
    "to all attacks. Does it look at the text?": (
        [*JUDGED, reward_of("short_reward", lambda messages, gold: float(len(messages) < 9))],
        RIGHT_AND_WRONG,
    ),
    "format_reward gave 1 to every": ([*JUDGED, format_reward], blocks("{}", "-1")),
    "the chat template opens it": ([*JUDGED, format_reward], blocks("{}", "-1", think="so")),
    "abstains_reward never gave a completion a score": (
        [*JUDGED, reward_of("abstains_reward", lambda messages, gold: None)],
        RIGHT_AND_WRONG,
    ),
    "100% have no complete answer block": (JUDGED, ["so", "no idea"]),
    "too few correct answers to reinforce": (
        JUDGED,
        blocks("-1", "-2"),
    ),
    "Use harder questions": (JUDGED, blocks("{}", "{}.0")),
    "Add one for the answer": ([format_reward], [*blocks("1"), "no"]),
    "Check its weight": (
        [reward_of("contrary_reward", lambda text, gold: 1 - is_right(text, gold)), *JUDGED],
        RIGHT_AND_WRONG,
    ),
    "It accepts this as correct": (
        [reward_of("contains_reward", lambda text, gold: float(gold in completion_text(text)))],
        RIGHT_AND_WRONG,
    ),
    "It gives partial credit for this": (
        [
            reward_of(
                "near_reward", lambda text, gold: 1.0 if is_right(text, gold) else near(text, gold)
            )
        ],
        RIGHT_AND_WRONG,
    ),
    "It rewards this at any weight": (
        [*JUDGED, reasoning_steps_reward],
        [*RIGHT_AND_WRONG, "1. so"],
    ),
    "return 0.0 if it cannot read": (
        [*JUDGED, reward_of("first_word", lambda c, _: 0.0 * len(completion_text(c).split()[0]))],
        RIGHT_AND_WRONG,
    ),
    "has no attribute 'isupper'": (
        [*JUDGED, reward_of("shouts_reward", lambda messages, gold: float(messages.isupper()))],
        RIGHT_AND_WRONG,
    ),
}


@pytest.mark.parametrize("reason", REASONS)
def test_each_reason_is_given_for_its_cause_and_for_no_other(sums, reason):
    rewards, group = REASONS[reason]
    rows = sums.head(4)
    lab = Lab(rewards, [1.0] * len(rewards))
    lab.cases(rows=rows)
    lab.attacks(rows)
    lab.signal(rows, [[text.format(answer) for text in group] for answer in rows["answer"]])
    verdict = lab.verdict()
    assert [one for one in REASONS if one in str(verdict)] == [reason], verdict
    assert verdict.go == (reason in list(REASONS)[:3])


def test_each_winning_attack_has_a_text_and_the_likeliest_comes_first(sums):
    def pays(text, gold):
        return float(gold in completion_text(text)) + 0.1 * ("What is" in completion_text(text))

    lab = Lab([reward_of("loose_reward", pays)], [1.0])
    table = lab.attacks(sums.head(3))
    first = stops(lab).split("\n")[0]
    assert first.startswith("'the question handed back'") and "What is" in first
    named = table.index[table["wins"] > 0]
    assert len(named) > 4
    for name in named:
        text = table.loc[name, "example"].split("\n")[0][:20]
        assert re.search(rf"'{name}'.*{re.escape(text)}", stops(lab)), name


def test_a_reward_that_reads_the_reasoning_is_told_how_to_read_the_answer(sums):
    def pays(text, gold):
        return float(f"<answer>{gold}</answer>" in completion_text(text))

    lab = Lab([reward_of("any_block_reward", pays)], [1.0])
    lab.attacks(sums.head(3))
    assert re.search("reasoning.*`answer_of`", stops(lab))


def test_what_was_left_out_is_said():
    lab = Lab([correctness_reward], [1.0])
    assert "nothing has been tried yet" in stops(lab)
    entry = {"weight": 1.0, "source": None, "faults": 0}
    assert lab.report()["rewards"] == {"correctness_reward": entry}
    lab.cases()
    verdict = lab.verdict()
    missing = [
        note for note in verdict.notes if all(f"({step})" in note for step in list(STEPS)[1:])
    ]
    assert verdict.go and verdict.notes == missing


# --- Rewards that people bring: what the verdict says, and whether it is a go ----------------------


def of_answer(silent, wrong, right=1.0):
    """Return a reward with these scores for no single answer, a wrong and a correct one."""

    def of_answer_reward(completions, answer, **columns):
        blocks = [THINK_ANSWER.answer_blocks(completion_text(each)) for each in completions]
        return [
            silent
            if len(found) != 1 or not found[0].strip()
            else right
            if found == [gold]
            else wrong
            for found, gold in zip(blocks, answer, strict=True)
        ]

    return of_answer_reward


def lucky(draw, rate=0.05):
    """Return a reward that errs by luck: with `rate`, by the generator that `draw` returns."""

    def lucky_reward(completions, answer, **columns):
        luck = draw()
        scores = correctness_reward(completions, answer)
        return [1 - score if luck.random() < rate else score for score in scores]

    return lucky_reward


def clock_reward(completions, answer, **columns):
    """Errs by luck, with a seed that changes each second."""
    return lucky(lambda: random.Random(int(time.time())))(completions, answer)


def counting(weight_of):
    """Return a reward whose weight follows a schedule of its own: it counts its calls."""
    calls = []

    def counting_reward(completions, answer, **columns):
        calls.append(None)
        scores = correctness_reward(completions, answer)
        return [(1 + weight_of(len(calls))) * score for score in scores]

    return counting_reward


def wavering_reward(completions, answer, **columns):
    """Grades correct and empty answers firmly, as a judge at temperature 1 does, and others not."""
    scores = correctness_reward(completions, answer)
    return [score or random.choice([0.1, 0.2]) for score in scores]


def asking(address, score_of, name):
    """Return a user's own judge, which asks a server about the texts that are not empty."""

    @functools.cache
    def reply_on(right):
        return httpx.post(address, json={"right": right}).text

    def judge_reward(completions, answer, **columns):
        scores = []
        for text, gold in zip(map(completion_text, completions), answer, strict=True):
            right = THINK_ANSWER.answer_blocks(text) == [gold]
            scores.append(score_of(reply_on(right)) if text.strip() else 0.0)
        return scores

    judge_reward.__name__ = name
    return judge_reward


def int_beside_text_reward(completions, answer, **columns):
    blocks = [THINK_ANSWER.extract_answer(completion_text(each)) for each in completions]
    return [
        float(int(b) == a if b and b.isdigit() else 0) for b, a in zip(blocks, answer, strict=True)
    ]


def no_tag_reward(completions, answer, **columns):
    said = [completion_text(each).rpartition("Answer:")[2].strip() for each in completions]
    return [float(text == gold) for text, gold in zip(said, answer, strict=True)]


def not_there_reward(completions, **columns):
    gold = columns.get("ground_truth", ["?"] * len(completions))
    return [float(a == b) for a, b in zip(map(completion_text, completions), gold, strict=True)]


def none_there_reward(completions, **columns):
    """Pays for no answer: None is None."""
    gold = columns.get("truth", [None] * len(completions))
    answers = map(THINK_ANSWER.extract_answer, map(completion_text, completions))
    return [float(a == b) for a, b in zip(answers, gold, strict=True)]


def left_out_reward(completions, solution=None, **columns):
    return [float(solution is not None) for _ in completions]


def none_in_its_body_reward(completions, answer, **columns):
    """Calls a function with the keyword argument sep=None, which is no column."""
    words = [completion_text(each).split(sep=None, maxsplit=-1) for each in completions]
    return [float([gold] == said) for said, gold in zip(words, answer, strict=True)]


def of_verl(data_source, solution_str, ground_truth, extra_info=None):
    """Has verl's parameters and no `**` parameter, and looks up what is no column."""
    turn = {"content": solution_str}
    return float(turn["content"] == ground_truth)


def judged_by_math_verify(completion, gold):
    from math_verify import parse

    with contextlib.suppress(Exception):
        return float(parse(completion_text(completion))[0] == parse(gold)[0])
    return 0.0


async def threaded_reward(completions, answer, **columns):
    pairs = zip(completions, answer, strict=True)
    return [await asyncio.to_thread(judged_by_math_verify, *pair) for pair in pairs]


def crowded_reward(completions, answer, **columns):
    """Fails, as a server with a limit may, if one completion comes more than twice in a call."""
    texts = [*map(completion_text, completions)]
    if any(texts.count(text) > 2 for text in texts if text and text[-1] == ">"):
        raise RuntimeError("too many requests")
    return correctness_reward(completions, answer)


SILENT_NONE = "silence gets no score"
NOTHING = "a correct answer earns nothing.*"
BY_CALL = "counting_reward gave .* counts its calls.* trainer_state.global_step"
# rewards, whether they may train, what the verdict says
BROUGHT = {
    "errs": ([lucky(lambda: random)], False, "same completion gets different scores"),
    "beside": ([correctness_reward, lucky(random.Random)], False, "same completion gets different"),
    "clock": ([clock_reward], False, "same completion gets .* chance"),
    "sinks": ([counting(lambda call: 0.99**call)], False, BY_CALL),
    "begins later": ([counting(lambda call: float(call > 12))], False, BY_CALL),
    "counts, beside": ([correctness_reward, counting(lambda call: call // 5)], False, BY_CALL),
    "wavers": ([wavering_reward], False, "same completion gets different scores"),
    "crowded": ([crowded_reward], False, "crowded_reward raised RuntimeError.* too many requests"),
    "dear": ([of_answer(0.0, -1.0)], False, "silence scores more than a wrong answer"),
    "dear, format": (
        [of_answer(0.0, -1.0), format_reward],
        False,
        "silence scores more than a wrong answer",
    ),
    "dearer": ([of_answer(0.0, -2.0)], False, "silence scores more than a wrong answer"),
    "paid": ([of_answer(0.3, 0.0)], False, "Silence scores more than a wrong answer"),
    "cheap": (
        [of_answer(0.0, -0.25)],
        True,
        "silence scores more than a wrong answer.* less than 20%",
    ),
    "cheap, format": (
        [of_answer(0.0, -0.25), format_reward],
        True,
        "silence scores .* less than 20%",
    ),
    "same loss": ([of_answer(-1.0, -1.0)], True, r"\AGO[^\n]*\n  note: Not known"),
    "none": ([of_answer(None, -1.0)], False, SILENT_NONE),
    "none beside 0": ([of_answer(None, 0.0)], True, SILENT_NONE),
    "text and number": ([int_beside_text_reward], False, NOTHING + "Columns hold text"),
    "no tag": (
        [no_tag_reward],
        False,
        NOTHING + "does not name a tag, but an answer here .*<answer>42</answer>",
    ),
    "not there, beside": ([correctness_reward, none_there_reward], False, "It asks for truth; "),
    "not there": ([not_there_reward], False, NOTHING + "asks for ground_truth; .*question, answer"),
    "None in its body": ([none_in_its_body_reward], False, NOTHING + "does not name a tag"),
    "verl's": ([VerlReward(of_verl)], False, NOTHING + "does not name a tag"),
    "left out": ([left_out_reward], False, NOTHING + "asks for solution; the columns are"),
    "thread": ([threaded_reward], False, NOTHING + "needs the main thread"),
}


@pytest.mark.parametrize("name", BROUGHT)
def test_the_verdict_on_what_people_bring_names_the_cause(sums, name, monkeypatch):
    monkeypatch.setattr(own_attacks, "code_of", lambda reward: "")  # not the texts of this file
    rewards, go, says = BROUGHT[name]
    rows = sums.head(4)
    lab = Lab(rewards, [1.0, 0.25][: len(rewards)])
    lab.attacks(rows)
    lab.signal(rows, healthy_groups(rows))
    verdict = lab.verdict()
    assert verdict.go == go and re.search(says, str(verdict)), verdict
    assert len(verdict.stops) == 1 or go or NOTHING in says or "takes" not in str(verdict)


@pytest.mark.parametrize("silent", [None, 0.0])
def test_silence_is_not_compared_with_a_wrong_answer_that_has_no_total(sums, silent, monkeypatch):
    monkeypatch.setattr(own_attacks, "code_of", lambda reward: "")
    lab = Lab([of_answer(silent, None)], [1.0])
    lab.attacks(sums.head(4))
    notes = " ".join(lab.verdict().notes)
    assert (SILENT_NONE in notes) == (silent is None), notes
    assert "worth more than a wrong answer" not in notes


def test_a_lone_surrogate_in_a_rewards_source_is_no_end_of_the_attacks(sums):
    def whole_reward(completions, answer, **columns):
        texts = [completion_text(each).replace("\ud800", "") for each in completions]
        return correctness_reward(texts, answer)

    assert "\ud800" not in "".join(Lab([whole_reward], [1.0]).attacks(sums.head(1))["example"])


GRADES = {True: "CORRECT, 95", False: "INCORRECT, 20"}
SCORES = {
    "word": lambda reply: float("CORRECT" in reply),
    "clamped": lambda reply: min(1.0, float(reply.split()[1])),
    "sound": lambda reply: float(reply.startswith("CORRECT")),
    "scaled": lambda reply: float(reply.split()[1]) / 100,
}


@pytest.mark.parametrize("name", SCORES)
def test_a_judge_that_gives_everything_full_marks_is_named(sums, name, monkeypatch):
    """A verdict's word in its opposite, and a scale of 0 to 100 cut to 1; alone and beside another."""
    monkeypatch.setattr(own_attacks, "code_of", lambda reward: "")
    rows = sums.head(2)

    def reply(path, headers, request):
        return 200, GRADES[request["right"]].encode()

    with scripted.served(reply) as address:
        judge = asking(address, SCORES[name], name)
        for rewards in ([judge], [correctness_reward, judge]):
            lab = Lab(rewards, [1.0] * len(rewards))
            lab.attacks(rows)
            blames = [stop for stop in lab.verdict().stops if "full marks" in stop]
            assert bool(blames) == (name in ("word", "clamped")), lab.verdict()
            assert lab.verdict().go == (not blames)


def has_answer_reward(completions, **columns):
    """Pays for any answer in a block. It calls `answer_of`, and reads no column."""
    blocks = [THINK_ANSWER.extract_answer(completion_text(each)) for each in completions]
    alone = [answer_of(each) for each in completions]
    return [float(bool(block or one)) for block, one in zip(blocks, alone, strict=True)]


@pytest.mark.parametrize("reads", [True, False])
def test_full_marks_for_every_answer_are_a_stop_if_the_reward_reads_the_column(sums, reads):
    def looks_up_reward(completions, **columns):
        assert columns.get("answer")
        return has_answer_reward(completions)

    reward = looks_up_reward if reads else has_answer_reward
    lab = Lab([correctness_reward, reward], [1.0, 0.1])
    lab.attacks(sums.head(2))
    reasons = lab.verdict().stops if reads else lab.verdict().notes
    assert [reason for reason in reasons if f"{reward.__name__} gives full marks" in reason]


@pytest.mark.parametrize("alone", [True, False])
def test_a_judge_whose_replies_cannot_be_read_is_named_with_its_warning(sums, alone):
    """It scores empty texts and nothing else."""

    def mute_reward(completions, **columns):
        texts = list(map(completion_text, completions))
        if any(texts):
            warnings.warn("mute: no score in 'It seems right.'", stacklevel=1)
        return [None if text else 0.0 for text in texts]

    rewards = [mute_reward] if alone else [correctness_reward, mute_reward]
    lab = Lab(rewards, [1.0] * len(rewards))
    with pytest.warns(match="It seems right"):
        lab.attacks(sums.head(2))
        lab.signal(sums.head(2), healthy_groups(sums.head(2)))
    said = stops(lab)
    assert re.search("mute_reward .*100%", said)


def test_most_replies_unread_is_a_no_go_alone_and_a_note_beside_another():
    groups = [["1 -", "0 -", "1 1", "0 -"]] * 2
    assert re.search("note: second .*75%", str(lab_on(groups, 1.0, 1.0).verdict()))
    assert "second" not in stops(lab_on(groups, 1.0, 1.0))
    alone = [["-", "-", "1", "0", "-", "-"]] * 2
    assert re.search("first .*67%", stops(lab_on(alone, 1.0)))
    by_task = [["1", "0"], ["-", "-"], ["-", "-"], ["-", "-"]]
    assert "no score" not in str(lab_on(by_task, 1.0).verdict())


OPEN = "so</think><answer>{}</answer>"
WITHHELD = {
    "because they continue": (
        "{}",
        ["<think>so</think><answer>{}</answer>\nQuestion: 1 + 1?\n<answer>2</answer>"],
    ),
    "correct answers to reinforce.* contain more than the result": (
        "The answer is {} km.",
        blocks("{}"),
    ),
}


@pytest.mark.parametrize("says", WITHHELD)
def test_what_keeps_right_answers_from_their_point_is_named(sums, says):
    gold, texts = WITHHELD[says]
    rows = sums.head(4).assign(answer=[gold.format(answer) for answer in sums["answer"][:4]])
    lab = Lab([correctness_reward, format_reward], [1.0, 0.25])
    group = [*texts, *blocks("1000001", "1000002")]
    lab.signal(rows, [[text.format(answer) for text in group] for answer in sums["answer"][:4]])
    assert [other for other in WITHHELD if re.search(other, stops(lab))] == [says]


def test_a_limit_that_cuts_completions_off_is_named_first_and_alone(sums):
    lab = Lab([correctness_reward], [1.0])
    never_right, mixed = ["so it", "so"] * 2, blocks("{}", "1000001", "1000002")
    for texts, share, go in ((never_right, 0.4, False), (mixed, 0.2, True), (mixed, 0.0, True)):
        rows = sums.head(4)
        lab.signal(rows, [[text.format(gold) for text in texts] for gold in rows["answer"]], share)
        reasons = lab.verdict().notes if go else lab.verdict().stops
        assert lab.verdict().go == go and ("max_completion_length" in reasons[0]) == (share > 0)
        assert not re.search("examples|larger model|easier", stops(lab))


@pytest.mark.parametrize("ended", [0, 1, 4])
def test_completions_that_go_on_are_a_stop_if_few_correct_ones_end(sums, ended):
    """With as many correct completions that end, GRPO teaches to end."""
    (goes_on,) = WITHHELD["because they continue"][1]
    group = [goes_on] * 3 + blocks("{}") * ended + blocks("1000001")
    lab = Lab([correctness_reward], [1.0])
    lab.signal(sums.head(4), [[text.format(gold) for text in group] for gold in sums["answer"][:4]])
    assert ("because they continue" in stops(lab)) == (ended < 4)
    assert "because they continue" in str(lab.verdict())


@pytest.mark.parametrize("behind", [" \n", " I hope that this helps."])
def test_completions_that_write_on_although_they_are_right_are_a_note(sums, behind):
    lab = Lab([correctness_reward], [1.0], TagFormat("think", "result"))
    group = [f"<think>so</think><result>{{}}</result>{behind}"] * 2
    group += ["<think>so</think><result>1000001</result>"] * 4
    lab.signal(sums.head(4), [[text.format(gold) for text in group] for gold in sums["answer"][:4]])
    said = "33% of the completions continue after their first answer: stop='</result>'"
    assert (said in str(lab.verdict())) == bool(behind.strip())


def test_a_reward_that_wants_the_tag_which_the_template_opens_is_named(sums):
    tags = TagFormat(opened=True)
    lab = Lab([partial(correctness_reward, tags=tags), think_format_reward], [1.0, 0.5], tags)
    group = [text.removeprefix("<think>") for text in RIGHT_AND_WRONG[:2]]
    rows = sums.head(4)
    lab.signal(rows, [[text.format(answer) for text in group] for answer in rows["answer"]])
    assert re.search("think_format_reward .* 0 .*<think>", str(lab.verdict()))


# --- No go ----------------------------------------------------------------------------------------


def test_a_fault_on_the_users_rows_stops_and_one_on_our_cases_does_not(sums):
    lab = Lab(REASONS["return 0.0 if it cannot read"][0], [1.0, 0.5])
    lab.cases()
    assert lab.verdict().go, "not your rows yet"
    lab.attacks(sums.head(4))
    stop = lab.verdict().stops[0]
    assert stop.startswith("first_word raised IndexError in test_lab.py, line")
    count = len(lab.faults)
    assert "for the completion ''" in stop and f"({count} of {count} faults)." in stop


def test_the_three_most_frequent_causes_of_faults_are_named_once_with_their_counts():
    causes = {"a": ValueError, "b": KeyError, "c": TypeError, "d": OSError}

    def picky(text, gold):
        word = completion_text(text)
        if word in causes:
            raise causes[word](f"cannot read: {word}")
        return float(word)

    lab = Lab([reward_of("picky_reward", picky)], [1.0])
    group = [*"aaabbccccd", "1", "0"]
    lab.signal(rows_for([group]), [group])
    found = re.findall(r"raised (\w+) .* '(\w)' \((\d of 10) faults\)", stops(lab))
    assert found == [
        ("TypeError", "c", "4 of 10"),
        ("ValueError", "a", "3 of 10"),
        ("KeyError", "b", "2 of 10"),
    ]
    assert stops(lab).count("return 0.0 if it cannot read") == 1


def test_a_reward_that_scores_some_rows_alone_leaves_no_row_of_an_attack_out(sums):
    rows = sums.head(4)
    silent = {*rows["answer"][:2]}
    pays = reward_of("words_reward", lambda text, _: float(len(completion_text(text).split()) > 99))
    some = reward_of("some_reward", lambda _, gold: None if gold in silent else 0.0)
    table = Lab([pays, some], [1.0, 1.0]).attacks(rows)
    assert table.loc["filler up to the bound", "wins"] == 1.0


def test_a_right_answer_on_which_a_reward_failed_is_no_evidence_that_wrong_answers_pay(sums):
    rows = sums.head(4)

    def verdict_of(rule):
        lab = Lab([reward_of("fragile_reward", rule), format_reward], [1.0, 0.5])
        lab.attacks(rows)
        lab.signal(rows, healthy_groups(rows))
        return lab, lab.verdict().stops

    def fails_if_right(text, gold):
        return 1 / 0 if is_right(text, gold) else 0.0

    def fails_on_one_row(text, gold):
        return 1 / 0 if gold == rows["answer"][0] and is_right(text, gold) else is_right(text, gold)

    def blind_and_fails_on_one_row(text, gold):
        return fails_on_one_row(text, gold) * 0.0

    for rule in (fails_if_right, fails_on_one_row):
        lab, said = verdict_of(rule)
        assert len(said) == 1 and said[0].startswith("fragile_reward raised ZeroDivisionError")
        assert lab.results.attacks.loc["honest and wrong", "wins"] == 0
        assert lab.results.lost == [] == lab.results.tolerated

    # the other rows are evidence
    lab, said = verdict_of(blind_and_fails_on_one_row)
    assert [gold for gold, _ in lab.results.lost] == rows["answer"].tolist()[1:]
    assert lab.results.attacks.loc["honest and wrong", "wins"] == 1.0
    assert any("fragile_reward gives 0 " in stop for stop in said)


@pytest.mark.parametrize(
    ("rewards", "weights", "says"),
    [
        (
            [correctness_reward, format_reward, reasoning_steps_reward],
            [1.0, 0.5, 0.25],
            r"\A'words that please' earns 0.25 more than an honest wrong answer would, on 100% of "
            r"the rows; reasoning_steps_reward gives the points. It rewards this at any weight.*\n'the words that a",
        ),
        # attacks that win on few rows
        (
            [correctness_reward, fuzzy_match_reward],
            [1.0, 0.25],
            r"\A('.*fuzzy_match_reward gives the points.*\n){3}'.* win too\.\Z",
        ),
        # more than three attacks that win
        (
            [correctness_reward, partial(min_length_reward, minimum=150)],
            [1.0, 0.5],
            r"\A('.*min_length_reward gives the points.*\n){3}'.*'chatter behind .* win too\.\Z",
        ),
        (
            [format_reward],
            [1.0],
            r"a correct one \(1.00 against 1.00 on average\), for example .* instead of .*: no reward tells them"
            r"[^`]*\nno reward distinguishes a correct answer from a wrong one",
        ),
        # the judge is the one that the attacks found, not the first
        (
            [format_reward, correctness_reward],
            [1.0, 0.01],
            "`correctness_reward` drives 0% of the advantage; .* what `format_reward` wants",
        ),
    ],
)
def test_what_cheating_earns_stops_and_who_pays_is_named(sums, rewards, weights, says):
    lab = Lab(rewards, weights)
    lab.attacks(sums)
    lab.signal(sums, healthy_groups(sums))
    assert re.search(says, stops(lab)), stops(lab)


def judged(right: int, of: int) -> list[str]:
    """A group of which the first reward calls `right` completions correct. The second varies."""
    return [f"{int(n < right)} {n % 2}" for n in range(of)]


@pytest.mark.parametrize(
    ("groups", "weights", "says"),
    [
        # half of the groups may be flat
        ([SQUARE, ["1 1"] * 4], (1.0, 0.5), None),
        ([["1 1"] * 4] * 3 + [SQUARE], (1.0, 1.0), "75% of the groups .*raise the temperature"),
        (
            [["1 1", "1 1 "]] * 3 + [SQUARE],
            (1.0, 1.0),
            "75% of the groups .*the policy has not mastered",
        ),
        (
            [["0 1", "0 1 "]] * 3 + [SQUARE],
            (1.0, 1.0),
            "75% of the groups .*the policy sometimes answers",
        ),
        # never or always correct, or never judged
        (
            [judged(0, 64)],
            (5.0, 1.0),
            "earns at least 0.5 from `first` on 0.0% of its .*orrect answers to reinforce",
        ),
        (
            [judged(1, 50)],
            (5.0, 1.0),
            "0.5 from `first` on 2.0% of its .*orrect answers to reinforce",
        ),
        ([judged(2, 64)], (5.0, 1.0), None),
        ([judged(18, 20)], (5.0, 1.0), None),
        ([judged(19, 20)], (5.0, 1.0), "already earns `first` on 95% of .*Use harder questions"),
        ([["- 0", "- 1"] * 9], (5.0, 1.0), "first never gave a completion a score"),
        # an answer that hardly counts
        ([SQUARE] * 2, (1.0, 2.9), None),
        ([SQUARE] * 2, (1.0, 4.0), r"`first` drives 6% of the adv.* what `second` wants \(94%\)"),
    ],
)
def test_groups_from_which_the_policy_would_not_learn_to_be_right_stop(groups, weights, says):
    said = stops(lab_on(groups, *weights))
    assert re.search(says, said) if says else said == "", said


# --- Notes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("groups", "milliseconds", "notes"),
    [
        ([["1 1", "0 1"], ["1 0", "0 0"]], 900.0, ["second never differs within a group"]),
        (
            [["1 1", "0 1"], ["0 1", "1 1"]],
            900.0,
            ["second gave 1 to every completion .* teaches nothing here"],
        ),
        (
            [["0 0.1", "0.4 0.5", "1 0.6"]],
            900.0,
            ["first and second rank .* almost identically \\(1.00\\)"],
        ),
        ([SQUARE], 2500.0, ["second takes 2.5 s for 1,000 completions"]),
        ([SQUARE], 900.0, []),
    ],
)
def test_what_is_no_reason_to_stop_is_noted(groups, milliseconds, notes):
    lab = lab_on(groups, 1.0, 1.0)
    lab.results.speed = pd.Series({"first": 1.0, "second": milliseconds})
    said = [note for note in lab.verdict().notes if "was not run" not in note]
    assert lab.verdict().go and len(said) == len(notes) and all(map(re.match, notes, said))


# --- What 03 trains with, against what 02 tested --------------------------------------------------

BOTH = [partial(correctness_reward), format_reward]
WEIGHTS = {"correctness_reward": {"weight": 1.0}, "format_reward": {"weight": 0.5}}
GO = {"rewards": WEIGHTS, "verdict": {"go": True, "stops": [], "notes": []}}
EDITED = WEIGHTS | {"format_reward": {"weight": 0.5, "source": "another file's hash"}}
NO_GO = GO | {"verdict": {"go": False, "stops": ["It pays to copy."]}}


@pytest.mark.parametrize(
    ("report", "functions", "weights", "says"),
    [
        (GO, BOTH, [1.0, 0.5], "tested and approved."),
        (GO, BOTH[:1], [1.0], "^NOT WHAT .* correctness_reward x 1, format_reward x 0.5"),
        (GO, BOTH, [1.0, 0.7], "^NOT WHAT"),
        (GO, [*BOTH, min_length_reward], [1.0, 0.5, 1.0], "^NOT WHAT"),
        (
            GO | {"rewards": EDITED},
            BOTH,
            [1.0, 0.5],
            "^NOT WHAT .*: the source of format_reward has",
        ),
        (NO_GO, BOTH, [1.0, 0.5], "^NOT APPROVED: .*NO GO: It pays to copy.$"),
        (None, BOTH, [1.0, 0.5], "^NOT TESTED: .*/tested/reward_report.json is not there"),
    ],
)
def test_what_trains_is_compared_with_what_was_tested(runs, report, functions, weights, says):
    run = Run("tested")
    if report:
        write_json(run.path("reward_report.json"), report)
    assert re.search(says, against_report(run, functions, weights))


def test_a_reward_gets_the_columns_that_trl_would_pass():
    rows = [{"prompt": "a", "answer": "1", "completion": "x"}, {"prompt": "b", "level": 2}]
    expected = {"prompts": ["a", "b"], "answer": ["1", None], "level": [None, 2]}
    assert columns_of(rows) == expected
    assert columns_of([{"answer": "1"}]) == {"answer": ["1"]}
