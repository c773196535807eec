"""The policy's episodes through `policy.play`: in the order of the rows, however many at a time,
and at every limit.
"""

import copy
import re

import pytest
import torch
from scripted_policies import called

from helpers.agents import Guarded, Guessing, episodes
from helpers.training import policy

pytestmark = pytest.mark.usefixtures("one_thread")

ROWS = [
    {
        "prompt": [
            {"role": "system", "content": "Call a tool. " * (seed % 3)},
            {"role": "user", "content": f"Game {seed}. "},
        ]
    }
    | {"seed": seed}
    for seed in range(1, 8)
]


def played(beginner, rows=ROWS, environments=Guessing, **options):
    limits = {"max_completion_length": 80, "turns": 6} | options
    return policy.play(*beginner, environments, rows, **limits)


def test_an_episode_a_row_in_their_order(beginner):
    found = played(beginner)
    assert [one.prompt[-1]["content"].split(".")[0] for one in found] == [
        f"Game {seed}" for seed in range(1, 8)
    ]
    for one, row in zip(found, ROWS, strict=True):
        fresh = Guessing()
        fresh.reset(seed=row["seed"])
        assert one.environment._number == fresh._number
        replies = [message["content"] for message in one.said if message["role"] == "tool"]
        for which, number in re.findall(r"(Higher|Lower) than (\d+)", " ".join(replies)):
            assert (which == "Higher") == (int(number) < fresh._number)
    assert sum(len(one.calls) for one in found) > 7
    assert played(beginner, []) == []


@pytest.mark.parametrize("at_a_time", [1, 3, 7])
def test_greedy_episodes_do_not_depend_on_how_many_are_played_at_a_time(
    beginner, monkeypatch, at_a_time
):
    expected, asked = played(beginner, temperature=0), []

    def fits(model, tokens):
        asked.append(tokens)
        return at_a_time

    monkeypatch.setattr(policy, "batch_that_fits", fits)
    found = played(beginner, temperature=0)
    assert [(one.ids, one.mask) for one in found] == [(one.ids, one.mask) for one in expected]
    # The room that is asked for is that of the longest prompt, which is not the first.
    assert (
        asked == [max(len(one.prompt_ids) for one in found) + 80]
        and len(found[0].prompt_ids) + 80 < asked[0]
    )


def test_an_environment_a_row_is_made_and_begun_once(beginner, monkeypatch):
    monkeypatch.setattr(policy, "batch_that_fits", lambda model, tokens: 2)
    guard, made = Guarded(Guessing), []

    def environments():
        made.append(guard())
        return made[-1]

    found = played(beginner, environments=environments)
    assert [one.environment for one in found] == made and guard.counts["episodes"] == len(ROWS)


def test_the_seed_decides_and_the_random_numbers_go_on_from_one_batch_to_the_next(
    beginner, monkeypatch
):
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = [one.ids for one in played(beginner, seed=1)]
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    assert [one.ids for one in played(beginner, seed=1)] == first
    assert [one.ids for one in played(beginner, seed=2)] != first
    monkeypatch.setattr(policy, "batch_that_fits", lambda model, tokens: 4)
    same = played(beginner, [ROWS[0]] * 8)
    assert [one.ids for one in same[:4]] != [one.ids for one in same[4:]]


def test_where_a_result_leaves_no_room_the_policy_says_no_more(beginner):
    (whole,) = played(beginner, ROWS[:1], temperature=0)
    first_result = whole.mask.index(0)
    end_of_it = whole.mask.index(1, first_result)
    (one,) = played(beginner, ROWS[:1], temperature=0, max_completion_length=end_of_it)
    assert one.ids == whole.ids[:end_of_it] and one.said[-1]["role"] == "tool" and not one.finished
    (one,) = played(beginner, ROWS[:1], temperature=0, max_completion_length=end_of_it - 1)
    assert one.ids == whole.ids[:first_result] and one.said[-1]["tool_calls"] and not one.finished


def test_the_models_own_context_is_the_limit_of_prompt_and_episode(beginner):
    model, tokenizer = copy.deepcopy(beginner[0]), beginner[1]
    (whole,) = played(beginner, ROWS[:1], temperature=0)
    end_of_it = whole.mask.index(1, whole.mask.index(0))
    for context, answered in (
        (len(whole.prompt_ids) + end_of_it, False),
        (len(whole.prompt_ids) + end_of_it + 1, True),
    ):
        model.config.max_position_embeddings = context
        (one,) = played((model, tokenizer), ROWS[:1], temperature=0)
        assert (0 in one.mask) == answered


@pytest.mark.parametrize("turns", [0, 1, 3])
def test_calls_are_answered_so_often_and_the_policy_is_asked_once_more(beginner, turns):
    asked = []

    call = beginner[1](called("guess", number=50) + "<|im_end|>")["input_ids"]

    def complete(prompts, room):
        asked.append(room)
        return [call for _ in prompts]

    limits = {"max_completion_length": 100, "turns": turns}
    found = episodes.play(complete, beginner[1], Guessing, [{**ROWS[0], "seed": 7}], **limits)
    assert len(asked) == turns + 1 and [len(one.calls) for one in found] == [turns]
    result = found[0].mask.count(0) // max(turns, 1)
    assert asked == [[100 - turn * (len(call) + result)] for turn in range(turns + 1)]
