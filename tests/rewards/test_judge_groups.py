"""Judges with a rubric of each row, and judges that rank a group."""

import json
import random

import numpy as np
import pytest

from helpers.rewards.judge import JudgeReward, RankingJudgeReward
from helpers.rewards.lab.attacks import JUDGE_BATTERY, with_wrong_answers
from helpers.tags import THINK_ANSWER
from notebooks.checks.scripted_judge import scripted_judge
from tests.rewards.test_judge import RUBRIC, run, said, unjudged

# --- A rubric of each row ------------------------------------------------------------------------

CRITERIA = [
    {"criterion": "says thanks", "weight": 3},
    {"criterion": "says please", "weight": 1},
    {"criterion": "shouts", "weight": -2},
]


def says(text: str, shown: dict) -> float:
    return float({"shouts": "!"}.get(shown["criterion"], shown["criterion"][5:]) in text)


@pytest.mark.parametrize("as_stored", [list, json.dumps, lambda given: np.array(given)])
def test_a_rubric_of_a_row_is_the_weight_of_what_is_met_in_one_call(tmp_path, as_stored):
    texts = ["thanks, please", "thanks", "thanks!", "please!!", "no", ""]
    rubrics = [as_stored(CRITERIA)] * len(texts)
    with scripted_judge(says) as address:
        judge = JudgeReward(address, "judge", "", rubric_column="rubric", cache=tmp_path)
        scores = run(judge, texts, rubric=rubrics)
        assert scores == [1.0, 0.75, 0.25, 0.0, 0.0, 0.0], "never below 0"
        assert judge.calls == 5
        assert run(judge, texts, rubric=rubrics) == scores and judge.calls == 5, "the cache"
        other = [as_stored(CRITERIA[:2])] * len(texts)
        assert run(judge, texts, rubric=other) == [1.0, 0.75, 0.75, 0.25, 0.0, 0.0]
        two = [[CRITERIA[0], CRITERIA[1] | {"weight": weight}] for weight in (1, 3)]
        assert run(judge, ["thanks"] * 2, rubric=list(map(as_stored, two))) == [0.75, 0.5]


@pytest.mark.parametrize(
    "rubric",
    [
        *(None, "polite?", [], 5, "[1]", {"criterion": "a", "weight": 1}),
        *([{"criterion": "a"}], [{"criterion": None, "weight": 1}], [{"weight": 1}]),
        *(
            [{"criterion": "a", "weight": weight}]
            for weight in (-1, None, float("nan"), float("inf"))
        ),
    ],
)
def test_a_row_without_a_sound_rubric_is_named_before_anything_is_asked(rubric):
    judge = JudgeReward("http://127.0.0.1:9", "judge", RUBRIC, rubric_column="rubric")
    with pytest.raises(ValueError, match=r"the 'rubric' of row 1 in the batch must be a list of"):
        run(judge, ["a", "b"], rubric=[CRITERIA, rubric])
    with pytest.raises(ValueError, match=r"the 'rubric' of row 0 .* it is None"):
        run(judge, ["a"])
    assert judge.calls == 0


@pytest.mark.parametrize("answer", [{"1": 1, "2": True, "3": 0}, {"1": 1}, [1] * 3])
def test_an_answer_without_each_criterion_is_no_verdict(serve, answer):
    server = serve(said(answer))
    judge = JudgeReward(server.url, "judge", RUBRIC, rubric_column="r")
    assert unjudged(judge, ["a"], r=[CRITERIA])[0] == [None]
    many = [CRITERIA[0] | {"criterion": f"criterion {n}"} for n in range(48)]
    unjudged(judge, ["a"], r=[many])
    short, long = (request["max_tokens"] for _, _, request in server.asked)
    assert short < 400 and long > 900, "the answer to many criteria is long"


# --- Ranking --------------------------------------------------------------------------------------


def by_size(text: str, shown: dict) -> float:
    return len(text) / 100


def ranking(address: str, size: int, **options) -> RankingJudgeReward:
    return RankingJudgeReward(address, "judge", RUBRIC, num_generations=size, **options)


def test_a_place_is_the_share_of_the_others_that_a_completion_beats():
    texts = ["aaa", "a", "aaaa", "aa", "bb", "", "cc", "bb"]
    with scripted_judge(by_size) as address:
        judge = ranking(address, 4)
        scores = run(judge, texts, prompts=["p"] * 4 + ["q"] * 4)
        # a question drawn twice in a row: two groups
        assert run(ranking(address, 2), ["a", "aa", "aaa", "a"]) == [0, 1, 1, 0]
    assert scores[:4] == [2 / 3, 0, 1, 1 / 3] and judge.calls == 2, "one call for each group"
    assert scores[5] == 0 and scores[4] == scores[7], "an empty one is last, equal ones are equal"
    assert [sum(scores[:4]), sum(scores[4:])] == pytest.approx([2, 2]), "the mean is 0.5"


def test_groups_that_need_no_judge_are_not_sent():
    judge, prompts = ranking("http://127.0.0.1:9", 4), ["p"] * 4 + ["q"] * 4
    assert run(judge, ["x"] * 4 + ["", "y", "y", ""], prompts=prompts) == [
        0.5, 0.5, 0.5, 0.5, 1 / 6, 5 / 6, 5 / 6, 1 / 6,
    ]  # fmt: skip
    assert judge.calls == 0


@pytest.mark.parametrize(("most", "calls"), [(6, 10), (12, 3), (14, 1), (2, 78)])
def test_a_large_group_is_judged_in_overlapping_parts_with_the_same_result(most, calls):
    texts = ["a" * n for n in range(1, 14)]
    random.Random(1).shuffle(texts)
    with scripted_judge(by_size) as address:
        judge = ranking(address, 13, most=most)
        assert run(judge, texts) == [(len(text) - 1) / 12 for text in texts]
    assert judge.calls == calls


def test_a_group_of_one_is_not_judged_and_a_part_of_a_group_is_refused():
    judge, metrics = ranking("http://127.0.0.1:9", 4), {}
    given = {"prompts": ["p", "q"], "log_metric": metrics.__setitem__}
    scores, told = unjudged(judge, ["a", "b"], **given)
    assert scores == [None, None] and told.endswith("2 of 2 completions were not judged and score "
                                                    "None: a group of one.")  # fmt: skip
    assert metrics == {"ranking_judge_reward/unjudged": 1}
    with pytest.raises(ValueError, match="6 completions of a prompt are no whole groups"):
        run(judge, list("abcdef"))


def test_a_bias_of_position_is_measured_and_cancels():
    logged, texts = {}, ["a", "b", "c", "d"]
    log = {"log_metric": logged.__setitem__}
    with scripted_judge(lambda text, shown: 0.5) as address:  # who is shown first is best
        assert run(ranking(address, 4, orders=2), texts, **log) == [0.5] * 4
    assert logged == {"ranking_judge_reward/disagreement": 1.0, "ranking_judge_reward/unjudged": 0}
    with scripted_judge(lambda text, shown: float(text == "d")) as address:
        scores = run(ranking(address, 4, orders=2), texts, **log)
    assert scores == pytest.approx([1 / 3] * 3 + [1])
    assert logged["ranking_judge_reward/disagreement"] == 0.5, "three of six pairs"
    with scripted_judge(by_size) as address:
        assert run(ranking(address, 3, orders=2), ["a", "aaa", "aa"], **log) == [0, 1, 0.5]
    assert logged["ranking_judge_reward/disagreement"] == 0


def test_what_the_judge_reads_alike_is_one_text():
    """Told apart by what is cut, taken apart or white space, texts share a place."""
    long = ["la " * (7_000 + n) for n in range(12)]
    with scripted_judge(by_size) as address:
        for texts in (long, ["<|a|>", "< |a|>", "<|a|> "], ["\ud800", "?", "? "], [" \n", "", " "]):
            assert run(ranking(address, len(texts)), texts) == [0.5] * len(texts)
        assert run(ranking(address, 2), ["\ud800\ud800", "right"]) == [0, 1]
        # a text like our own
        assert run(ranking(address, 2), ["The code of the marks is abc.", "?"]) == [1, 0]


@pytest.mark.parametrize("answer", [{}, {"1": "one"}, "first twice"])
def test_an_order_that_does_not_hold_each_mark_once_is_no_verdict(serve, answer):
    marks = []

    def first_twice(request: dict, number: int) -> tuple:
        fields = request["response_format"]["json_schema"]["schema"]["properties"]
        marks.extend(fields["1"]["enum"])
        return said({place: one["enum"][0] for place, one in fields.items()})

    server = serve(first_twice if answer == "first twice" else said(answer))
    for other in "bc":
        assert unjudged(ranking(server.url, 2), ["a", other])[0] == [None, None]
    assert len(set(marks)) == len(marks), "each group has marks of its own"


def test_the_order_shown_depends_on_the_texts_and_the_seed_alone():
    texts, orders = [f"text {n}" for n in range(6)], []
    for given, seed in ((texts, 1), (texts[::-1], 1), (texts, 2)):
        shown = []
        with scripted_judge(lambda text, _: shown.append(text) or 0.5) as address:  # noqa: B023
            run(ranking(address, 6, seed=seed), given)
        orders.append(shown)
    assert orders[0] == orders[1] != orders[2] and orders[0] != texts


def test_a_completion_knows_no_mark_and_no_place():
    """Whoever claims a place, copies what looks like a mark or insults the others gains nothing."""
    row = with_wrong_answers([{"answer": "4", "question": "2 + 2?"}])[0]
    honest = [THINK_ANSWER.render("2 + 2 = 4", "4"), THINK_ANSWER.render("2 + 2 is 4", "4")]
    with scripted_judge(
        lambda text, _: float("4" in (THINK_ANSWER.extract_answer(text) or ""))
    ) as address:
        for attack in JUDGE_BATTERY:
            text = attack.write(row, THINK_ANSWER, 100)
            assert run(ranking(address, 3), [honest[0], text, honest[1]])[1] == 0, attack.name
