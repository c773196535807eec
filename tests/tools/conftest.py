"""What the tests of each embedded model share."""

import re

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from helpers import PROJECT
from helpers.results.intervals import wilson_interval
from helpers.training.policy import sample
from tools.pocket import build


@pytest.fixture(scope="module")
def shipped():
    """The shipped model of a task in 32 bits and its tokenizer: shipped("games")."""

    def load(task: str):
        folder = PROJECT / "helpers" / "pocket" / build.RECIPES[task].folder
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        return model, AutoTokenizer.from_pretrained(folder)

    return load


@pytest.fixture(scope="module")
def carded():
    """The shares in one row of a card's table, from 0 to 1: carded("games", "fp32", "sampled"). Its
    head says what they are.
    """

    def read(task: str, *cells: str) -> list[float]:
        card = PROJECT / "helpers" / "pocket" / build.RECIPES[task].folder / "README.md"
        begin = re.escape("| " + " | ".join(cells) + " |")
        row = re.search(f"^{begin} (.*)$", card.read_text(encoding="utf-8"), re.MULTILINE)[1]
        return [float(number) / 100 for number in re.findall(r"([\d.]+)%", row)]

    return read


@pytest.fixture
def reproduced(shipped, carded, one_thread):
    """Sample a shipped model, and find it right as often as the row of its card says.

    reproduced("games", cells, prompts, is_right, ...) gives the texts; is_right takes the number of
    a prompt and the text. Other questions than the card's: both are estimates, so their intervals
    must meet.
    """

    def check(task: str, cells: tuple, prompts: list, is_right, **sampling) -> list[str]:
        accuracy, low, high, *_ = carded(task, *cells)
        found = sample(*shipped(task), prompts, progress=False, **sampling)
        texts = [text for (text,) in found]
        right = sum(is_right(number, text) for number, text in enumerate(texts))
        again = wilson_interval(right, len(texts))
        assert low <= accuracy <= high and again[0] <= high and again[1] >= low
        return texts

    return check
