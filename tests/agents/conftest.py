import random
from dataclasses import replace

import pytest


@pytest.fixture(scope="session")
def beginner():
    """A small model that has seen a few games, and its tokenizer: its calls are mostly calls, and
    not much besides is right.
    """
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from tools.pocket import build

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        tokenizer = build.build_tokenizer(build.GAMES)
        config = Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=32,
            max_position_embeddings=1024,
            tie_word_embeddings=True,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
        model = Qwen3ForCausalLM(config)
        recipe = replace(build.GAMES, steps_first=0)
        batch = next(build.training_batches(tokenizer, random.Random(0), recipe))
        batch = {name: values[:16, :100] for name, values in batch.items()}
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        for _ in range(50):
            model(**batch, use_cache=False).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    torch.set_num_threads(threads)
    return model.eval(), tokenizer
