"""What the tests of each embedded model share."""

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from helpers import PROJECT
from helpers.pocket import build


@pytest.fixture(scope="module")
def shipped():
    """The shipped model of a task in 32 bits and its tokenizer: shipped("games")."""

    def load(task: str):
        folder = PROJECT / "helpers" / "pocket" / build.RECIPES[task].folder
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        return model, AutoTokenizer.from_pretrained(folder)

    return load
