import pytest


@pytest.fixture(scope="session")
def beginner():
    """The model of notebook 10 as it is shipped, and its tokenizer: its calls are mostly calls."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from helpers import PROJECT

    folder = PROJECT / "helpers/pocket/games_model"
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model.eval(), AutoTokenizer.from_pretrained(folder)
