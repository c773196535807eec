"""The ranking judge: ranks, ties, groups that need no judge, and attacks that gain nothing."""

import asyncio

import pytest

from examples.ranking_judge import RankingJudgeReward
from helpers.laboratory.attacks import JUDGE_BATTERY, with_wrong_answers
from helpers.tags import THINK_ANSWER
from notebooks.checks.scripted_judge import scripted_judge


def places(judge: RankingJudgeReward, texts: list, prompts: list | None = None) -> list:
    return asyncio.run(judge(texts, prompts=prompts or ["p"] * len(texts)))


def test_the_reward_is_the_share_of_the_others_that_a_completion_beats():
    texts = ["aaa", "a", "aaaa", "aa", "bb", "", "cc", "bb", "x", "x", "x", "x"]
    prompts = ["p"] * 4 + ["q"] * 4 + ["r"] * 4
    with scripted_judge(lambda text, shown: len(text) / 100) as address:
        judge = RankingJudgeReward(address, "judge", "The longest.", num_generations=4)
        scores = places(judge, texts, prompts)
        with pytest.raises(ValueError, match="whole groups of 4"):
            places(judge, texts[2:10], prompts[2:10])
    assert scores[:4] == [2 / 3, 0, 1, 1 / 3]
    assert scores[5] == 0 and scores[4] == scores[7], "an empty one is last, equal ones are equal"
    assert scores[8:] == [0.5] * 4 and judge.calls == 2, "one call per group that has an order"
    with scripted_judge(lambda text, shown: len(text) / 100) as address:
        judge = RankingJudgeReward(address, "judge", "The longest.", num_generations=4)
        same = ["caf\u00e9 au lait", "cafe\u0301  au\u00a0lait", "caf\u00e9 au lait\n\n"]
        same.append("caf\u00e9 a\u200bu\u2060 lait\u3164")
        assert places(judge, same) == [0.5] * 4 and judge.calls == 0, "they read the same"
    assert [sum(scores[:4]), sum(scores[4:8])] == pytest.approx([2, 2]), "the mean is 0.5"


def test_claiming_a_rank_or_insulting_the_others_gains_nothing():
    def right(text: str, shown: dict) -> float:
        return float("4" in (THINK_ANSWER.extract_answer(text) or ""))

    row = with_wrong_answers([{"answer": "4", "question": "2 + 2?"}])[0]
    honest = [THINK_ANSWER.render("2 + 2 = 4", "4"), THINK_ANSWER.render("2 + 2 is 4", "4")]
    with scripted_judge(right) as address:
        judge = RankingJudgeReward(address, "judge", "The right number.", num_generations=3)
        for attack in JUDGE_BATTERY:
            text = attack.write(row, THINK_ANSWER, 100)
            assert places(judge, [honest[0], text, honest[1]])[1] == 0, attack.name
