"""The laboratory: rewards with weights, tried on cases and measured on groups.

Attacks and verdicts have files of their own.
"""

import json
import math
from functools import partial

import numpy as np
import pandas as pd
import pytest
from told import told

from helpers.rewards.correctness import correctness_reward
from helpers.rewards.lab import Lab, stored_groups
from helpers.rewards.lab.verdicts import differences
from helpers.rewards.structure import (
    format_reward,
    incremental_format_reward,
    substantial_format_reward,
)
from helpers.tags import THINK_ANSWER, TagFormat, completion_text

CASED = [
    correctness_reward,
    format_reward,
    substantial_format_reward,
    incremental_format_reward,
]
pytestmark = pytest.mark.filterwarnings("ignore:.*have no answer")


def lab_of(*weights: float) -> Lab:
    """Rewards a, b, … with these weights, each reading its own number of a completion."""
    return Lab([told("abcdef"[at], at) for at in range(len(weights))], list(weights))


def rows_for(groups: list) -> pd.DataFrame:
    return pd.DataFrame(
        {"question": [f"q{at}" for at in range(len(groups))], "answer": ["4"] * len(groups)}
    )


def signal_of(groups: list[list[str]], *weights: float) -> dict:
    return lab_of(*weights).signal(rows_for(groups), groups)


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
    assert list(table.columns) == ["a", "b", "total"]
    np.testing.assert_array_equal(table["total"], [1.25, 0.5, 0.25, np.nan, 0.5])
    np.testing.assert_array_equal(table["a"], [1, np.nan, 0.25, np.nan, 0.5])
    found = [(fault.reward, fault.position, fault.completion) for fault in lab.faults]
    assert found == [("b", 4, "0.5")]


def test_rewards_are_handed_what_trl_hands_them_and_may_log():
    seen = {}

    def curious_reward(log_extra, log_metric, trainer_state, **given):
        seen.update(given)
        log_extra("text", [""])
        log_metric("number", 2.0)
        return [1.0] * len(given["completions"])

    lab = Lab([curious_reward], [1.0])
    lab.scores(["a b", "c"], answer=["1", "2"], prompts=["p", "q"])
    assert [len(ids) for ids in seen.pop("completion_ids")] == [2, 1] and lab.faults == []
    assert seen == {
        "completions": [[{"role": "assistant", "content": text}] for text in ("a b", "c")],
        "answer": ["1", "2"],
        "prompts": ["p", "q"],
    }
    lab.scores(["a", "b"])
    assert [prompt[0]["role"] for prompt in seen["prompts"]] == ["user", "user"]


# --- Cases ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tags",
    [
        THINK_ANSWER,
        TagFormat("reasoning", "final"),
        TagFormat("answer", "final"),
        TagFormat("answer", "think"),
    ],
    ids=lambda tags: tags.spec,
)
def test_our_rewards_score_our_cases_as_expected(tags):
    lab = Lab([partial(reward, tags=tags) for reward in CASED], [1.0] * len(CASED), tags)
    cases = lab.cases()
    assert differences(cases).to_dict("records") == [] and lab.faults == []
    assert all(cases[f"expected {name}"].notna().sum() >= 20 for name in lab.names)
    assert {0.0, 1.0} <= set(cases["correctness_reward"].dropna())
    assert cases["total"].to_dict() == cases[lab.names].sum(axis=1).to_dict()


def write_cases(tmp_path, *cases: dict | str):
    lines = [
        case if isinstance(case, str) else json.dumps(case, ensure_ascii=False) for case in cases
    ]
    (tmp_path / "mine.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path / "mine.jsonl"


def test_a_case_file_of_ones_own_brings_its_columns(tmp_path):
    def near_reward(completions, answer, slack=None, **columns):
        rows = zip(map(completion_text, completions), answer, slack, strict=True)
        return [float(abs(float(text) - float(gold)) <= (room or 0)) for text, gold, room in rows]

    four, expected = {"answer": "4"}, {"expected": {"near_reward": 1}}
    path = write_cases(
        tmp_path,
        four | expected | {"name": "near", "completion": "5", "slack": 1},
        "",
        four | expected | {"name": "no slack", "completion": "5"},
        four | {"name": "no matter", "completion": "5\u2028\x85\x0c"},  # one line all the same
    )
    lab = Lab([near_reward], [2.0])
    cases = lab.cases(path)
    assert cases["total"].to_dict() == {"near": 2.0, "no slack": 0.0, "no matter": 0.0}
    assert lab.faults == [] and list(differences(cases)["case"]) == ["no slack"]


LINES = [
    "not json",
    "[1]",
    '{"completion": "4"}',
    '{"name": 3, "completion": "4"}',
    '{"name": "a", "completion": null}',
    '{"name": "a", "completion": "4", "expected": 1}',
    '{"name": "a", "completion": "4", "expected": {"a": "1"}}',
    '{"name": "a", "completion": "4", "expected": {"a": NaN}}',
    '{"name": "a", "completion": "4", "expected": {"a": 1e999}}',
]
FINE = {"name": "fine", "completion": "4"}


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        *(([FINE, "", line], r"mine\.jsonl, case 2") for line in LINES),
        ([FINE, FINE], r"mine\.jsonl, case 2 .*`name`, which no other case has"),
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
    """TRL's advantage of one group, group-scaled, and what each reward puts into it (completions by
    rewards).
    """
    weighted = np.array([[float(word) for word in text.split()] for text in group]) * weights
    total = weighted.sum(axis=1)
    spread = total.std(ddof=1) + 1e-4
    return (total - total.mean()) / spread, (weighted - weighted.mean(axis=0)) / spread


def test_signal_by_hand():
    groups = [["1 0.5", "1 0.5", "0 0.5", "0 0"], ["1 1", "1 1", "1 1", "1 1"]]
    signal = signal_of(groups, 1.0, 2.0)
    a, b = signal["rewards"]["a"], signal["rewards"]["b"]
    assert (signal["groups"], signal["group_size"], signal["judges"]) == (2, 4, ["a"])
    assert (a["weight"], b["weight"]) == (1.0, 2.0)
    assert (a["mean"], b["mean"]) == (0.75, 0.6875)
    assert a["within_group_std"] == pytest.approx(math.sqrt(1 / 3) / 2)
    assert b["within_group_std"] == pytest.approx(0.125)
    assert (a["zero_spread"], b["zero_spread"]) == (0.5, 0.5)
    assert signal["total"] == {"mean": 2.125, "zero_spread": 0.5}
    assert signal["pass_rate"] == [0.5, 1.0]
    assert signal_of([["0.5", "0.49"], ["0", "1"]], 1.0)["pass_rate"] == [0.5, 0.5]


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


def test_ranks_are_what_is_correlated():
    groups = [["1 10 4", "2 1000 3"], ["3 1001 2", "4 9999 1"]]
    rewards = signal_of(groups, 1.0, 1.0, 1.0)["rewards"]
    assert rewards["a"]["rank_correlation"] == {"b": pytest.approx(1.0), "c": pytest.approx(-1.0)}


@pytest.mark.parametrize(
    ("groups", "weights"),
    [
        ([["1 0", "1 0"], ["1 0", "1 0"]], (1.0, 1.0)),
        ([["1 1 0", "0 0 1"]], (0.1, 0.2, 0.3)),  # by rounding alone
    ],
)
def test_groups_whose_total_never_differs_teach_nothing(groups, weights):
    signal = signal_of(groups, *weights)
    assert signal["total"]["zero_spread"] == 1.0
    assert {entry["advantage_share"] for entry in signal["rewards"].values()} == {0.0}


def test_a_completion_that_no_reward_judges_is_left_out_of_its_group_as_in_trl():
    signals = [signal_of([["1 0", *gap, "0 0.5", "1 1"]], 1.0, 1.0) for gap in (["- -", "- -"], [])]
    left_out, without = ((s["total"], s["rewards"]["a"]["advantage_share"]) for s in signals)
    assert left_out == (without[0], pytest.approx(without[1]))
    one_abstains = signal_of([["- 1", "- 0"], ["1 1", "0.5 1"]], 1.0, 1.0)
    assert one_abstains["rewards"]["a"]["mean"] == 0.75, "and one's None stays out of its mean"
    assert one_abstains["rewards"]["a"]["zero_spread"] == 0.5
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
    for stored in (table, tmp_path / "stored.jsonl"):
        rows, groups = stored_groups(stored)
        assert groups == [["x1", "x2"], ["y1", "y2"], ["x3", "x4"]]
        assert rows.values.tolist() == [[1, "a", "1"], [1, "b", "2"], [2, "a", "1"]]
    rows, groups = stored_groups(table.drop(columns="step"))
    assert groups == [["x1", "x2", "x3", "x4"], ["y1", "y2", "alone"]]
    assert rows.values.tolist() == [["a", "1"], ["b", "2"]]


ROW = {"question": "1 + 1?", "answer": "2", "completion": "<answer>2</answer>"}


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (pd.DataFrame([ROW] * 2).drop(columns="question"), "'question' is missing"),
        (pd.DataFrame([ROW] * 2).drop(columns="completion"), "'completion' is missing"),
        (pd.DataFrame([ROW, ROW | {"completion": None}]), "`completion` in row 1 is"),
        (pd.DataFrame([ROW, ROW | {"completion": 3}]), "`completion` in row 1 is 3"),
        (pd.DataFrame([ROW]), "share a question"),
        ("rows.txt", "rows.txt: give a .csv, .json, .jsonl, .parquet file"),
    ],
)
def test_stored_completions_that_are_none_are_refused(table, says):
    with pytest.raises(ValueError, match=says):
        stored_groups(table)


def test_speed_is_that_of_judging_a_thousand():
    seen = []

    def counting_reward(completions, answer, **columns):
        seen.append((len(completions), len(answer)))
        return [1.0] * len(completions)

    lab = Lab([counting_reward], [1.0])
    lab.signal(rows_for([[]] * 20), [["a", "b"]] * 20)
    taken = lab.speed()
    assert list(taken.index) == lab.names and (taken > 0).all()
    assert seen == [(40, 40), (1000, 1000)]
