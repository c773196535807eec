"""The games of notebook 10: the environment's words in them are its own, and the player's are what
its model learned from.
"""

import hashlib
import json
import random
import re
from dataclasses import replace
from functools import partial

import pytest
import torch
from trl import chat_template_utils

from helpers.agents import Guarded, Guessing, episodes, prepare_template
from helpers.pocket import build, games


@pytest.fixture(scope="module")
def tokenizer():
    return build.build_tokenizer(build.GAMES)


@pytest.fixture(scope="module")
def drawn():
    rng = random.Random(1)
    return [games.training_episode(rng) for _ in range(500)]


def seed_of(question: str) -> int:
    return int(re.match(r"Game (\d+)\. ", question)[1])


def replayed(tokenizer, question: str, said: list[str]) -> episodes.Episode:
    """The game again, with the player's words put into a policy's mouth."""
    texts = iter(said[::2])
    seed = seed_of(question)
    system = {"role": "system", "content": games.SYSTEM_PROMPT}
    row = {"prompt": [system, {"role": "user", "content": games.asked(seed)}], "seed": seed}

    def complete(prompts, room):
        return [tokenizer(next(texts) + tokenizer.eos_token)["input_ids"]]

    limits = {"max_completion_length": 2000, "turns": 100}
    (one,) = episodes.play(
        complete, tokenizer, Guarded(partial(Guessing, span=games.SPAN), turns=100), [row], **limits
    )
    assert next(texts, None) is None, "the game ended before the player did"
    return one


# --- The games ------------------------------------------------------------------------------------


def test_every_word_of_the_environment_is_its_own(drawn, tokenizer):
    for question, said in drawn[:120]:
        one = replayed(tokenizer, question, said)
        assert one.prompt[-1]["content"] == question
        assert [message["content"] for message in one.said if message["role"] == "tool"] == said[
            1::2
        ]
        assert one.finished and (said[-1] == games.FOUND) == (one.reward >= 0.4)
        assert (said[-1] == games.LOST) == (
            one.reward == 0.1 and len(one.environment._guesses) == 12
        )


def test_the_games_are_those_that_the_model_was_built_from(drawn):
    """Players, places and slips in their shares, to the letter."""
    told = json.dumps(drawn).encode()
    assert hashlib.sha256(told).hexdigest()[:16] == "d3adfe9a481c5c36"


def test_a_slip_is_read_as_what_it_is(tokenizer):
    def read(slip):
        ids, before = (
            tokenizer(text)["input_ids"]
            for text in (games.call(7, slip) + "<|im_end|>", "<|im_start|>assistant\n")
        )
        message = chat_template_utils.parse_response(tokenizer, ids, prefix=before)
        return [call["function"] for call in message.get("tool_calls", [])]

    assert read(None) == [{"name": "guess", "arguments": {"number": 7}}]
    assert read("in words") == read("cut short") == []
    assert read("in quotes") == [{"name": "guess", "arguments": {"number": "7"}}]
    assert read("another tool") == [{"name": "check", "arguments": {"number": 7}}]


# --- What the model learned from ------------------------------------------------------------------


def test_a_batch_of_the_build_teaches_what_the_player_says_and_no_word_of_the_tool(tokenizer):
    recipe, rng = replace(build.GAMES, steps_first=0), random.Random(4)
    batch = next(build.training_batches(tokenizer, random.Random(4), recipe))
    assert len(batch["input_ids"]) == recipe.batch_size
    for ids, labels in zip(batch["input_ids"].tolist(), batch["labels"].tolist(), strict=True):
        # Token for token what TRL trains on, and nothing that the mask leaves out.
        one = replayed(tokenizer, *games.training_episode(rng))
        whole = one.prompt_ids + one.ids
        padding = len(ids) - len(whole)
        assert ids == whole + [tokenizer.pad_token_id] * padding
        own = [0] * len(one.prompt_ids) + one.mask + [0] * padding
        learnt = [token if mine else build.IGNORED for token, mine in zip(ids, own, strict=True)]
        assert labels == learnt


# --- Its tokenizer --------------------------------------------------------------------------------


def test_its_template_shows_the_tool_and_renders_calls_and_only_appends(tokenizer):
    prepare_template(tokenizer)
    assert chat_template_utils.is_chat_template_prefix_preserving(tokenizer)
    call = {"type": "function", "function": {"name": "guess", "arguments": {"number": 50}}}
    conversation = [
        {"role": "user", "content": "Let us play."},
        {"role": "assistant", "content": "Between 0 and 101. ", "tool_calls": [call]},
        {"role": "tool", "name": "guess", "content": "Lower than 50."},
        {"role": "assistant", "content": "", "tool_calls": [call, call]},
        {"role": "assistant", "content": None, "tool_calls": None},
        {"role": "tool", "name": "guess", "content": "Lower than 50."},
        {"role": "assistant", "content": "Found."},
    ]

    def rendered(length, **how):
        return tokenizer.apply_chat_template(
            conversation[:length], tools=[games.TOOL], tokenize=False, **how
        )

    assert json.loads(rendered(1).split("\n")[1])["function"]["name"] == "guess"
    assert rendered(2).endswith(
        f"<|im_start|>assistant\nBetween 0 and 101. {games.call(50)}<|im_end|>\n"
    )
    assert rendered(4).endswith(f"<|im_start|>assistant\n{games.call(50) * 2}<|im_end|>\n")
    assert rendered(5).endswith("<|im_start|>assistant\n<|im_end|>\n")
    for length in range(1, len(conversation)):
        assert rendered(length + 1).startswith(rendered(length))
        if conversation[length]["role"] == "assistant":
            assert rendered(length + 1).startswith(rendered(length, add_generation_prompt=True))
    without = tokenizer.apply_chat_template(conversation[:1], tokenize=False)
    assert without == "<|im_start|>user\nLet us play.<|im_end|>\n"


# --- The shipped model ----------------------------------------------------------------------------


def test_greedily_whoever_keeps_track_keeps_it_right(shipped):
    """The skill that GRPO builds on is there: after each reply the two numbers are the
    right ones.
    """
    model, tokenizer = shipped("games")
    rng, right, seen = random.Random(11), 0, 0
    for _ in range(40):
        question, said = games.good_episode(rng)
        ids, labels = build._conversation(tokenizer, build.GAMES, question, said)
        with torch.no_grad():
            best = model(input_ids=torch.tensor([ids])).logits[0].argmax(-1).tolist()
        between = tokenizer("Between ")["input_ids"]
        for at in (
            at for at, token in enumerate(ids) if [token] == between and labels[at] == token
        ):
            right += all(best[place - 1] == ids[place] for place in (at + 1, at + 3))
            seen += 1
    assert seen > 100 and right / seen > 0.97
