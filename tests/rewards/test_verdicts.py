"""From numbers to words: which cells are wrong, what stops a training and why, and the
report as JSON.
"""

import json
import math
import re
from functools import partial

import pandas as pd
import pytest
from told import told

from examples.more_rewards import min_length_reward, reasoning_steps_reward
from helpers.data.tasks import load_task
from helpers.rewards.correctness import correctness_reward, fuzzy_match_reward
from helpers.rewards.lab import Lab
from helpers.rewards.lab.verdicts import STEPS, against_report, differences, marked
from helpers.rewards.own import read_rewards
from helpers.rewards.structure import format_reward
from helpers.runs import Run, write_json
from helpers.tags import THINK_ANSWER, completion_text

MATH = "correctness, substantial_format*0.5, incremental_format*0.5"
SQUARE = ["0 0", "0 1", "1 0", "1 1"]  # two rewards that have nothing to do with one another
pytestmark = pytest.mark.filterwarnings("ignore:.*have no answer")


def lab_on(groups: list[list[str]], *weights: float) -> Lab:
    """Rewards first, second, … after their signal on these groups; the first is the judge."""
    names = ["first", "second", "third"][: len(weights)]
    lab = Lab([told(name, at) for at, name in enumerate(names)], list(weights))
    lab.signal(pd.DataFrame({"answer": ["4"] * len(groups)}), groups)
    return lab


def stops(lab: Lab) -> str:
    return "\n".join(lab.verdict().stops)


@pytest.fixture(scope="module")
def sums() -> pd.DataFrame:
    return load_task("arithmetic/sums", train_size=24, holdout_size=1).train


def healthy_groups(rows: pd.DataFrame) -> list[list[str]]:
    """Four completions a row as a policy in the middle of its training writes them."""
    return [
        [
            THINK_ANSWER.render("so", answer),
            THINK_ANSWER.render("so", str(int(answer) + 1)),
            f"<answer>{answer}</answer>",
            f"<think>so</think>{answer}",
        ]
        for answer in rows["answer"]
    ]


@pytest.fixture(scope="module")
def math_lab(sums) -> Lab:
    """The math set after all four steps."""
    lab = Lab(*read_rewards(MATH, THINK_ANSWER))
    lab.cases()
    lab.attacks(sums)
    lab.signal(sums, healthy_groups(sums))
    lab.speed()
    return lab


# --- Cases ----------------------------------------------------------------------------------------


def hasty_reward(completions, answer, **columns):
    """correctness_reward, but for a hedged answer."""
    scores = correctness_reward(completions, answer=answer)
    return [
        1.0 if "42 or 43" in completion_text(c) else score
        for c, score in zip(completions, scores, strict=True)
    ]


hasty_reward.__name__ = "correctness_reward"


def test_the_one_wrong_cell_is_found_and_marked_and_stops():
    lab = Lab([hasty_reward, format_reward], [1.0, 1.0])
    cases = lab.cases()
    found = {
        "case": "hedged: 42 or 43",
        "reward": "correctness_reward",
        "expected": 0.0,
        "score": 1.0,
    }
    assert differences(cases).to_dict("records") == [found]
    page = marked(cases).to_html()
    assert page.count("(not ") == 1 and "1.000 (not 0)" in page
    row = list(cases.index).index("hedged: 42 or 43")
    assert page.count("#C0392B") == 1 and f"#T_cases_row{row}_col0 {{" in page
    (stop,) = lab.verdict().stops
    assert stop.startswith("1 of the cases' scores")
    assert "correctness_reward gives 1 for 'hedged: 42 or 43', expected 0." in stop


@pytest.mark.parametrize(
    ("score", "differs"),
    [("0.5", False), ("0.5004", False), ("0.502", True), ("0.498", True), ("-", True)],
)
def test_a_rounded_expectation_is_met_and_a_missing_score_differs(tmp_path, score, differs):
    path = tmp_path / "cases.jsonl"
    path.write_text(json.dumps({"name": "half", "completion": score, "expected": {"first": 0.5}}))
    assert len(differences(Lab([told("first", 0)], [1.0]).cases(path))) == differs


# --- Go -------------------------------------------------------------------------------------------


STATISTICS = {"mean", "within_group_std", "zero_spread", "constant"}
STATISTICS |= {"advantage_share", "rank_correlation"}


def test_the_math_set_on_healthy_groups_may_train_and_its_report_is_json(math_lab):
    verdict = math_lab.verdict()
    assert verdict.stops == [] and verdict.go and "was not run" not in str(verdict)
    assert str(verdict).startswith("GO")
    report = json.loads(json.dumps(math_lab.report(), allow_nan=False))
    assert report.keys() == {"rewards", "attacks", "signal", "verdict"}
    assert report["verdict"] == {"go": True, "stops": [], "notes": verdict.notes}
    for entry in report["rewards"].values():
        assert entry.keys() == {"weight", "source", "cases", "ms_per_1000", "faults"} | STATISTICS
    assert report["rewards"]["correctness_reward"]["cases"]["a row without an answer"] is None
    assert report["attacks"]["honest and right"] == {"total": 2.0, "wins": 0.0}


def test_what_was_left_out_is_said():
    lab = Lab([correctness_reward], [1.0])
    assert "nothing was tried yet" in stops(lab)
    entry = {"weight": 1.0, "source": None, "faults": 0}
    assert lab.report()["rewards"] == {"correctness_reward": entry}
    lab.cases()
    verdict = lab.verdict()
    missing = [f"The laboratory's part {step!r} was not run." for step in STEPS[1:]]
    assert verdict.go and verdict.notes == missing


# --- No go ----------------------------------------------------------------------------------------


def test_a_fault_stops(sums):
    def fragile_reward(completions, **columns):
        return [
            float(completion_text(completion).split()[0] == "<think>") for completion in completions
        ]

    lab = Lab([correctness_reward, fragile_reward], [1.0, 0.5])
    lab.cases()
    (stop,) = lab.verdict().stops
    assert "fragile_reward raised IndexError" in stop and "''" in stop
    lab.attacks(sums)
    assert f"(faults in all: {len(lab.faults)})" in stops(lab) and len(lab.faults) > 1


@pytest.mark.parametrize(
    ("rewards", "weights", "says"),
    [
        (
            [correctness_reward, format_reward, reasoning_steps_reward],
            [1.0, 0.5, 0.25],
            r"\A'words that please' earns 0.25 more than an honest wrong answer would, on 100% of "
            r"the rows; reasoning_steps_reward pays for it.*\Z",
        ),
        # it wins on few rows only
        (
            [correctness_reward, fuzzy_match_reward],
            [1.0, 0.25],
            r"\A('.*fuzzy_match_reward pays for it.*\n){3}'.* win too\.\Z",
        ),
        # more than three attacks win
        (
            [correctness_reward, partial(min_length_reward, minimum=150)],
            [1.0, 0.5],
            r"\A('.*min_length_reward pays for it.*\n){3}'chatter behind .* win too\.\Z",
        ),
        (
            [format_reward],
            [1.0],
            r"a right one \(1.00 against 1.00 on average\): no reward tells them apart"
            r"[^`]*\nno reward tells a right answer from a wrong one",
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
    """A group in which the first reward finds so many right; the second varies."""
    return [f"{int(n < right)} {n % 2}" for n in range(of)]


@pytest.mark.parametrize(
    ("groups", "weights", "says"),
    [
        # half of the groups may be flat
        ([SQUARE, ["1 1"] * 4], (1.0, 0.5), None),
        ([["1 1"] * 4] * 3 + [SQUARE], (1.0, 1.0), "75% of the groups .*it has not mastered"),
        ([["0 1"] * 4] * 3 + [SQUARE], (1.0, 1.0), "75% of the groups .*it sometimes gets right"),
        # never or always right, or never judged
        ([judged(0, 64)], (5.0, 1.0), "earns `first` on 0.0% of its .*nothing to reinforce"),
        ([judged(1, 50)], (5.0, 1.0), "earns `first` on 2.0% of its .*nothing to reinforce"),
        ([judged(2, 64)], (5.0, 1.0), None),
        ([judged(18, 20)], (5.0, 1.0), None),
        ([judged(19, 20)], (5.0, 1.0), "already earns `first` on 95% of .*Take harder questions"),
        ([["- 0", "- 1"] * 9], (5.0, 1.0), "`first` judged none of the completions"),
        # an answer that hardly counts
        ([SQUARE] * 2, (1.0, 2.9), None),
        ([SQUARE] * 2, (1.0, 4.0), r"`first` drives 6% of the adv.* what `second` wants \(94%\)"),
    ],
)
def test_groups_from_which_the_policy_would_not_learn_to_be_right_stop(groups, weights, says):
    said = stops(lab_on(groups, *weights))
    assert re.search(says, said) if says else said == "", said


def test_each_reason_is_on_a_line_of_its_own():
    verdict = lab_on([["0 1", "0 1"]], 1.0, 1.0).verdict()
    lines = [*(f"  - {stop}" for stop in verdict.stops), *(f"  note: {n}" for n in verdict.notes)]
    assert len(verdict.stops) > 1 and str(verdict).splitlines() == ["NO GO:", *lines]


# --- Notes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("groups", "milliseconds", "notes"),
    [
        ([["1 1", "0 1"], ["1 0", "0 0"]], 900.0, ["second never differs inside a group"]),
        ([["1 1", "0 1"], ["0 1", "1 1"]], 900.0, ["second gave 1.0 to each of 4 completions"]),
        ([["0 0.1", "0.4 0.5", "1 0.6"]], 900.0, ["first and second rank .* alike \\(1.00\\)"]),
        ([SQUARE], 2500.0, ["second takes 2.5 s for 1,000 completions"]),
        ([SQUARE], 900.0, []),
    ],
)
def test_what_is_no_reason_to_stop_is_noted(groups, milliseconds, notes):
    lab = lab_on(groups, 1.0, 1.0)
    lab.results["speed"] = pd.Series({"first": 1.0, "second": milliseconds})
    said = [note for note in lab.verdict().notes if "was not run" not in note]
    assert lab.verdict().go and len(said) == len(notes) and all(map(re.match, notes, said))


# --- The report -----------------------------------------------------------------------------------


def test_the_report_of_broken_rewards_is_json():
    def broken_reward(completions, **columns):
        return [
            math.inf if "4" in completion_text(completion) else None for completion in completions
        ]

    lab = Lab([broken_reward, correctness_reward], [1.0, 1.0])
    lab.signal(pd.DataFrame({"answer": ["4", None]}), [["\ud800 4", "no"], ["4", "no"]])
    report = json.loads(json.dumps(lab.report(), allow_nan=False))
    broken = report["rewards"]["broken_reward"]
    assert broken["faults"] == len(lab.faults) == 2 and broken["mean"] is None
    assert broken["rank_correlation"] == {"correctness_reward": None}
    assert report["rewards"]["correctness_reward"]["faults"] == 0
    assert not report["verdict"]["go"] and "broken_reward" in report["verdict"]["stops"][0]


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
