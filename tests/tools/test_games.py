"""The games of notebook 10 are those that its model learned from, and it knows how to play."""

import hashlib
import json
import random

import torch

from tools.pocket import build, games


def test_the_games_are_those_that_the_model_was_built_from():
    """Players, places and slips in their shares, to the letter."""
    rng = random.Random(1)
    told = json.dumps([games.training_episode(rng) for _ in range(500)]).encode()
    assert hashlib.sha256(told).hexdigest()[:16] == "d3adfe9a481c5c36"


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
