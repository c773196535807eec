"""Controls: what is trained on carries no signal of the rewards, and the rewards are still logged."""

import math
import pickle
import random
from types import SimpleNamespace

import pytest

from helpers.commands.checks import check_parameters
from helpers.rewards.common import reward_name
from helpers.rewards.controls import CONTROLS, control_rewards
from helpers.tags import THINK_ANSWER

COMPLETIONS = [[{"role": "assistant", "content": text}] for text in ["4", "5", "", "4"] * 200]
PROMPTS = [f"question {at // 8}" for at in range(len(COMPLETIONS))]


def is_four(completions, **columns):
    return [float(messages[0]["content"] == "4") for messages in completions]


def has_text(completions, **columns):
    return [1.0 if messages[0]["content"] else None for messages in completions]


def scores(control, seed=1, step=3, functions=(is_four, has_text), prompts=PROMPTS):
    functions, weights = control_rewards(control, list(functions), [1.0, 0.25], THINK_ANSWER, seed)
    assert weights == [0.0, 0.0, 1.0]
    taught = pickle.loads(pickle.dumps(functions[-1]))
    state = SimpleNamespace(global_step=step)
    return taught(completions=COMPLETIONS, prompts=prompts, trainer_state=state)


def test_the_rewards_are_logged_under_their_names_beside_the_control():
    for control in CONTROLS:
        functions, _ = control_rewards(control, [is_four, has_text], [1.0, 0.25], THINK_ANSWER, 1)
        assert [reward_name(one) for one in functions[:2]] == ["is_four", "has_text"]
        assert reward_name(functions[2]) == f"{control}_control"


def correlation(xs, ys):
    n, mean_x, mean_y = len(xs), sum(xs) / len(xs), sum(ys) / len(ys)
    covariance = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / n
    spreads = [sum((v - m) ** 2 for v in vs) / n for vs, m in ((xs, mean_x), (ys, mean_y))]
    return covariance / math.sqrt(spreads[0] * spreads[1])


def test_a_coin_is_fair_and_knows_nothing_of_the_completion():
    coins = scores("random")
    assert set(coins) == {0.0, 1.0} and 320 < sum(coins) < 480
    assert abs(correlation(coins, is_four(COMPLETIONS))) < 0.15
    assert scores("random") == coins, "a resumed training repeats its step"
    assert scores("random", step=4) != coins and scores("random", seed=2) != coins


def test_each_group_keeps_its_rewards_but_not_who_earned_them():
    dealt = scores("shuffled")
    totals = [1.25, 0.25, 0.0, 1.25]  # is_four + 0.25 has_text; an abstention adds nothing
    for start in range(0, len(dealt), 8):
        assert sorted(dealt[start : start + 8]) == sorted(totals * 2)
    assert abs(correlation(dealt, totals * 200)) < 0.15
    assert scores("shuffled") == dealt != scores("shuffled", step=4)


def test_a_completion_that_no_reward_scores_is_dealt_as_such():
    dealt = scores("shuffled", functions=[has_text, has_text])
    assert dealt.count(None) == 200 and {1.25, None} == set(dealt)


def test_rewards_are_not_dealt_from_one_group_to_another():
    def of_the_first(completions, prompts, **columns):
        return [float(prompt == PROMPTS[0]) for prompt in prompts]

    functions, _ = control_rewards("shuffled", [of_the_first], [1.0], THINK_ANSWER, 1)
    dealt = functions[-1](completions=COMPLETIONS, prompts=PROMPTS)
    assert dealt == [1.0] * 8 + [0.0] * (len(dealt) - 8)


def test_the_format_alone_is_rewarded():
    functions, _ = control_rewards("format", [is_four], [1.0], THINK_ANSWER, 1)
    right, wrong = ("<think>2 + 2 = 4</think><answer>4</answer>", "It is 4.")
    assert functions[-1]([right, right.replace("4</answer>", "5</answer>"), wrong])[:2] == [1, 1]
    assert functions[-1]([wrong])[0] < 1


def test_what_is_no_control_is_refused_at_the_door():
    check_parameters({"control": random.choice(list(CONTROLS))})
    with pytest.raises(ValueError, match="'coin'"):
        check_parameters({"control": "coin"})
    with pytest.raises(ValueError, match="my-model"):
        control_rewards("shuffled", ["org/my-model"], [1.0], THINK_ANSWER, 1)
