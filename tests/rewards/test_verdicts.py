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
from helpers.rewards.lab.verdicts import against_report, differences, marked
from helpers.rewards.own import located, own_rewards, read_rewards
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


def test_the_math_set_on_healthy_groups_may_train(math_lab):
    verdict = math_lab.verdict()
    assert verdict.stops == [] and verdict.go
    assert str(verdict).startswith("GO") and "was not run" not in str(verdict)


def test_what_was_left_out_is_said():
    lab = Lab([correctness_reward], [1.0])
    assert "nothing was tried yet" in stops(lab)
    entry = {"weight": 1.0, "source": None, "faults": 0}
    assert lab.report()["rewards"] == {"correctness_reward": entry}
    assert lab.report().keys() == {"rewards", "verdict"}
    lab.cases()
    verdict = lab.verdict()
    assert verdict.go
    assert verdict.notes == [
        f"The laboratory's part {step!r} was not run." for step in ("attacks", "signal", "speed")
    ]


def test_half_of_the_groups_may_be_flat():
    lab = lab_on([SQUARE, ["1 1"] * 4], 1.0, 0.5)
    assert stops(lab) == "" and "never differs" not in str(lab.verdict())


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


def test_a_winning_attack_stops_and_names_who_pays(sums):
    lab = Lab([correctness_reward, format_reward, reasoning_steps_reward], [1.0, 0.5, 0.25])
    lab.attacks(sums)
    (stop,) = lab.verdict().stops
    assert (
        "'words that please' earns 0.25 more than an honest wrong answer would, on 100% of the rows"
        in stop
    )
    assert "reasoning_steps_reward pays for it" in stop


def test_who_pays_is_named_where_an_attack_wins_on_few_rows_only(sums):
    lab = Lab([correctness_reward, fuzzy_match_reward], [1.0, 0.25])
    table = lab.attacks(sums)
    won = table.index[(table["wins"] > 0) & (table["wins"] < 1)]
    assert len(won) and table.loc[won, "correctness_reward"].max() == 0
    assert "fuzzy_match_reward pays for it" in stops(
        lab
    ) and "correctness_reward pays for it" not in stops(lab)


def test_more_than_three_winning_attacks_are_named(sums):
    lab = Lab([correctness_reward, partial(min_length_reward, minimum=150)], [1.0, 0.5])
    table = lab.attacks(sums)
    winners = table.index[table["wins"] > 0]
    *_, last = lab.verdict().stops
    assert len(winners) > 3 and len(lab.verdict().stops) == 4
    assert last.endswith("win too.") and all(repr(name) in last for name in winners[3:])


def test_rewards_that_cannot_tell_right_from_wrong_stop(sums):
    lab = Lab([format_reward], [1.0])
    lab.attacks(sums)
    assert (
        "earns as much as a right one (1.00 against 1.00 on average): no reward tells them apart"
        in stops(lab)
    )
    lab.signal(sums, healthy_groups(sums))
    assert "no reward tells a right answer from a wrong one" in stops(lab)
    assert set(lab.results["signal"]["pass_rate"]) == {0.0}, "nobody can say who passed"


@pytest.mark.parametrize(
    ("groups", "advice"),
    [
        ([["1 1"] * 4, ["1 1"] * 4, ["1 1"] * 4, SQUARE], "has not mastered"),
        ([["0 1"] * 4, ["0 1"] * 4, ["0 1"] * 4, SQUARE], "sometimes gets right"),
    ],
    ids=["mastered", "hopeless"],
)
def test_flat_groups_stop(groups, advice):
    (stop,) = lab_on(groups, 1.0, 1.0).verdict().stops
    assert "75% of the groups score the same" in stop and advice in stop


@pytest.mark.parametrize(
    ("right", "of", "says"),
    [
        (0, 64, "the policy earns `first` on 0.0% of its completions: there is nothing"),
        (1, 64, "the policy earns `first` on 1.6% of its completions: there is nothing"),
        (1, 50, "the policy earns `first` on 2.0% of its completions: there is nothing"),
        (2, 64, None),
        (18, 20, None),
        (19, 20, "already earns `first` on 95% of its completions. Take harder"),
        (20, 20, "already earns `first` on 100% of its completions. Take harder"),
        (None, 20, "`first` judged none of the completions"),
    ],
)
def test_a_policy_that_is_never_or_always_right_or_never_judged_stops(right, of, says):
    # the second reward varies, so that the groups are not flat
    group = [f"{'-' if right is None else int(n < right)} {n % 2}" for n in range(of)]
    said = stops(lab_on([group], 5.0, 1.0))
    assert says in said if says else "completions" not in said


@pytest.mark.parametrize(
    ("weights", "shares"),
    [
        ((1.0, 4.0), ("6%", "94%")),
        ((1.0, 10.0), ("1%", "99%")),
        ((1.0, 2.9), None),
        ((1.0, 1.0), None),
    ],
)
def test_an_answer_that_hardly_counts_stops(weights, shares):
    said = stops(lab_on([SQUARE, SQUARE], *weights))
    found = re.findall(
        r"`first` drives (\S+) of the advantage; the model will learn what `second` wants "
        r"\((\S+)\) instead",
        said,
    )
    assert found == ([shares] if shares else [])


def test_the_judge_is_the_one_the_attacks_found(sums):
    lab = Lab([format_reward, correctness_reward], [1.0, 0.01])
    lab.attacks(sums)
    lab.signal(sums, healthy_groups(sums))
    assert (
        "`correctness_reward` drives 0% of the advantage; the model will learn what "
        "`format_reward` wants" in stops(lab)
    )


def test_each_reason_is_on_a_line_of_its_own():
    verdict = lab_on([["0 1", "0 1"]], 1.0, 1.0).verdict()
    lines = str(verdict).splitlines()
    assert lines[0] == "NO GO:" and len(lines) == 1 + len(verdict.stops) + len(verdict.notes)
    assert all(
        any(reason in line for line in lines[1:]) for reason in verdict.stops + verdict.notes
    )


# --- Notes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("groups", "note"),
    [
        ([["1 1", "0 1"], ["1 0", "0 0"]], "second never differs inside a group"),
        ([["1 1", "0 1"], ["0 1", "1 1"]], "second gave 1.0 to each of 4 completions"),
        ([["0 0.1", "0.4 0.5", "1 0.6"]], "first and second rank completions alike (1.00)"),
    ],
)
def test_what_is_no_reason_to_stop_is_noted(groups, note):
    verdict = lab_on(groups, 1.0, 1.0).verdict()
    (said,) = [given for given in verdict.notes if "was not run" not in given]
    assert verdict.go and note in said


@pytest.mark.parametrize(("milliseconds", "said"), [(2500.0, True), (900.0, False)])
def test_a_slow_reward_is_noted(milliseconds, said):
    lab = lab_on([SQUARE], 1.0, 1.0)
    lab.results["speed"] = pd.Series({"first": 1.0, "second": milliseconds})
    assert (
        any("second takes 2.5 s for 1,000 completions" in note for note in lab.verdict().notes)
        == said
    )


# --- The report -----------------------------------------------------------------------------------

STATISTICS = {"mean", "within_group_std", "zero_spread", "constant"}
STATISTICS |= {"advantage_share", "rank_correlation"}


def test_the_report_holds_everything(math_lab):
    report = json.loads(json.dumps(math_lab.report(), allow_nan=False))
    assert report.keys() == {"rewards", "attacks", "signal", "verdict"}
    assert list(report["rewards"]) == math_lab.names
    for name, entry in report["rewards"].items():
        assert entry.keys() == {"weight", "source", "cases", "ms_per_1000", "faults"} | STATISTICS
        assert entry["faults"] == 0 and entry["ms_per_1000"] > 0
        assert entry["cases"].keys() == set(math_lab.results["cases"].index)
        assert entry["mean"] == pytest.approx(math_lab.results["signal"]["rewards"][name]["mean"])
    assert [entry["weight"] for entry in report["rewards"].values()] == [1.0, 0.5, 0.5]
    assert report["rewards"]["correctness_reward"]["cases"]["a row without an answer"] is None
    assert report["rewards"]["correctness_reward"]["cases"]["right"] == 1.0
    assert report["attacks"]["honest and right"] == {"total": 2.0, "wins": 0.0}
    assert report["signal"]["groups"] == 24 and len(report["signal"]["pass_rate"]) == 24
    assert report["verdict"] == {"go": True, "stops": [], "notes": math_lab.verdict().notes}


def test_the_report_of_broken_rewards_is_json():
    def broken_reward(completions, **columns):
        return [
            math.inf if "4" in completion_text(completion) else None for completion in completions
        ]

    def constant_reward(completions, **columns):
        return [1.0] * len(completions)

    lab = Lab([broken_reward, correctness_reward, constant_reward], [1.0, 1.0, 0.0])
    lab.cases()
    lab.signal(pd.DataFrame({"answer": ["4", None]}), [["\ud800 4", "no"], ["4", "no"]])
    report = json.loads(json.dumps(lab.report(), allow_nan=False))
    assert report["rewards"]["broken_reward"]["faults"] == len(lab.faults) > 0
    assert report["rewards"]["correctness_reward"]["faults"] == 0
    assert report["rewards"]["broken_reward"]["mean"] is None
    assert report["rewards"]["constant_reward"]["rank_correlation"] == {
        "broken_reward": None,
        "correctness_reward": None,
    }
    assert not report["verdict"]["go"] and "broken_reward" in report["verdict"]["stops"][0]


# --- What 03 trains with, against what 02 tested --------------------------------------------------


@pytest.fixture
def tested(tmp_path, monkeypatch) -> Run:
    """A run whose rewards, correctness at 1 and format at 0.5, were tested; no reason against
    them.
    """
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path))
    run = Run("tested")
    rewards = {"correctness_reward": {"weight": 1.0}, "format_reward": {"weight": 0.5}}
    write_json(
        run.path("reward_report.json"),
        {"rewards": rewards, "verdict": {"go": True, "stops": [], "notes": []}},
    )
    return run


BOTH = [partial(correctness_reward), format_reward]


@pytest.mark.parametrize(
    ("functions", "weights", "says"),
    [
        (BOTH, [1.0, 0.5], "tested and approved."),
        (BOTH[:1], [1.0], "NOT WHAT .* correctness_reward x 1, format_reward x 0.5"),
        (BOTH, [1.0, 0.7], "NOT WHAT"),
        ([*BOTH, min_length_reward], [1.0, 0.5, 1.0], "NOT WHAT"),
    ],
)
def test_rewards_that_differ_from_the_tested_ones_are_told_what_was_tested(
    tested, functions, weights, says
):
    assert re.search(says, against_report(tested, functions, weights))


EDITED = """def brevity(completions, **columns):
    return [1.0 for _ in completions]
"""


def test_a_reward_that_was_edited_under_the_same_name_is_not_what_was_tested(tmp_path, monkeypatch):
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path / "runs"))
    run, file = Run("edited"), tmp_path / "mine.py"
    file.write_text(EDITED, encoding="utf-8")
    functions, weights = own_rewards(run, f"{file}:brevity, correctness*0.5", THINK_ANSWER)
    report = Lab(functions, weights, THINK_ANSWER).report() | {"verdict": {"go": True, "stops": []}}
    write_json(run.path("reward_report.json"), report)
    given = located(f"{file}:brevity, correctness*0.5")

    functions, weights = own_rewards(run, given, THINK_ANSWER)
    assert against_report(run, functions, weights).endswith("tested and approved.")

    # the edited file is what trains, and it is not called tested
    file.write_text(EDITED.replace("1.0", "0.0"), encoding="utf-8")
    functions, weights = own_rewards(run, given, THINK_ANSWER)
    assert functions[0](completions=["a"]) == [0.0]
    said = against_report(run, functions, weights)
    assert said.startswith("NOT WHAT NOTEBOOK 2 TESTED: the source of brevity has changed")

    # a report of an earlier version has no hash: names and weights decide
    for entry in report["rewards"].values():
        del entry["source"]
    write_json(run.path("reward_report.json"), report)
    assert against_report(run, functions, weights).endswith("tested and approved.")


def test_another_reward_under_the_name_of_the_librarys_is_not_what_was_tested(tested, tmp_path):
    report = tested.read_object("reward_report.json")
    report["rewards"] = Lab(BOTH, [1.0, 0.5]).report()["rewards"]
    write_json(tested.path("reward_report.json"), report)
    assert against_report(tested, BOTH, [1.0, 0.5]).endswith("tested and approved.")
    file = tmp_path / "mine.py"
    file.write_text(EDITED.replace("brevity", "format_reward"), encoding="utf-8")
    functions, weights = own_rewards(tested, f"correctness, {file}:format_reward*0.5", THINK_ANSWER)
    said = against_report(tested, functions, weights)
    assert said.startswith("NOT WHAT NOTEBOOK 2 TESTED: the source of format_reward has changed")


def test_a_no_go_is_said_again_and_a_missing_report_too(tested):
    report = tested.read_object("reward_report.json")
    write_json(
        tested.path("reward_report.json"),
        report | {"verdict": {"go": False, "stops": ["It pays to copy."]}},
    )
    said = against_report(tested, [correctness_reward, format_reward], [1.0, 0.5])
    assert said.startswith("NOT APPROVED: ") and said.endswith("NO GO: It pays to copy.")
    assert against_report(Run("new"), [format_reward], [1.0]).startswith(
        f"NOT TESTED: {tested.folder.parent}/new/reward_report.json is"
    )
    tested.path("reward_report.json").write_text("{")
    with pytest.raises(ValueError, match=r"reward_report\.json is damaged"):
        against_report(tested, [format_reward], [1.0])
