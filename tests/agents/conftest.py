import pytest


@pytest.fixture(scope="session")
def beginner():
    """The small model taught with a few games, in fp32, and its tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from helpers.presets import PRESETS
    from helpers.settling import settle

    folder = settle(PRESETS["pocket"], model="pocket-games").model_path
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model, AutoTokenizer.from_pretrained(folder)
