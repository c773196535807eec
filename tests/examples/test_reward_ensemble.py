"""Ensembles of functions and of a classifier with random weights."""

import pytest
import torch
from transformers import AutoTokenizer, Qwen3Config, Qwen3ForSequenceClassification

from examples.reward_ensemble import ensemble, model_reward
from helpers.presets import PRESETS


def gives(*scores):
    return lambda completions, **columns: list(scores)


def test_an_ensemble_combines_the_scores_of_its_members(tmp_path):
    members = [gives(1.0, 0.0, None, None), gives(0.5, 0.0, 0.5, None), gives(0.0, 0.3, None, None)]
    texts = ["a", "b", "c", "d"]
    assert ensemble(members)(texts) == [0.5, pytest.approx(0.1), 0.5, None]
    assert ensemble(members, "min")(texts) == [0.0, 0.0, 0.5, None]
    # the standard deviation of 1.0, 0.5 and 0.0, halved
    penalised = ensemble(members, "median", spread_penalty=0.5)(texts)
    assert penalised[0] == pytest.approx(0.5 - (1 / 6) ** 0.5 / 2) and penalised[2] == 0.5

    # a reward model and a function
    tokenizer = AutoTokenizer.from_pretrained(PRESETS["pocket"].model_path)
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=8,
        num_labels=1,
    )
    Qwen3ForSequenceClassification(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    prompts = [[{"role": "user", "content": "2 + 2?"}]] * 2
    answers = [[{"role": "assistant", "content": text}] for text in ("4", "a longer answer, 5")]
    judge = model_reward(str(tmp_path))
    scores = judge(prompts=prompts, completions=answers)
    assert all(0 < score < 1 for score in scores) and scores[0] != scores[1]
    # a score does not depend on the rest of the batch
    assert judge(prompts=prompts[:1], completions=answers[:1]) == [
        pytest.approx(scores[0], abs=1e-4)
    ]
