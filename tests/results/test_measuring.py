"""What notebook 05 measures of a model, with the sampling replaced."""

from types import SimpleNamespace

import pandas as pd
import pytest

from helpers.presets import PRESETS
from helpers.results import measuring
from helpers.results.measuring import Measurement
from helpers.tags import THINK_ANSWER

RIGHT, WRONG = (f"<think>1 + 1 = 2</think><answer>{n}</answer>" for n in (2, 3))


@pytest.fixture
def asked(monkeypatch):
    """A list of (name, samples, temperature); greedy completions are right, sampled ones wrong."""
    calls = []

    def answered(run, name, model, tokenizer, prompts, *, samples, temperature, **rest):
        calls.append((name, samples, temperature, rest["identity"], len(prompts)))
        return [[WRONG] * (samples - 1) + [WRONG if temperature else RIGHT] for _ in prompts]

    monkeypatch.setattr(measuring, "answered", answered)
    return calls


@pytest.mark.parametrize("source", ["arithmetic/differences", "openai/gsm8k", "my/rows.csv"])
def test_what_was_forgotten_is_looked_for_where_the_training_was_not(source):
    exam = Measurement(None, PRESETS["pocket"], THINK_ANSWER, None, source)
    assert exam.other == "arithmetic/sums" and len(exam.elsewhere) == 128


def test_a_measure_asks_its_questions_and_fills_the_entry(asked):
    holdout = pd.DataFrame(
        {"question": ["What is 1 + 1?"] * 4, "answer": ["2"] * 4, "difficulty": [1, 1, 2, 2]}
    )
    holdout["prompt"] = [[{"role": "user", "content": q}] for q in holdout["question"]]
    exam = Measurement(None, PRESETS["pocket"], THINK_ANSWER, holdout, "arithmetic/sums")
    model, tokenizer = SimpleNamespace(), lambda text: {"input_ids": text.split()}
    exam.measure("baseline", model, tokenizer, "w", 2, 3)
    identity = {"weights": "w"}
    assert asked == [
        ("baseline-sampled", 1, 1.0, identity, 4),
        ("baseline-greedy", 1, 0.0, identity, 4),
        ("baseline-samples", 2, 1.0, identity, 3),
        ("baseline-other", 1, 1.0, identity, 128),
    ]
    entry = exam.evaluation["baseline"]
    assert (entry["accuracy"], entry["greedy"]["accuracy"], entry["n"]) == (0, 1, 4)
    assert list(entry["by_difficulty"]) == ["1", "2"] and entry["mean_length"] == 5
    assert entry["pass_at_k_questions"] == 3 and entry["samples"] == 2
    assert entry["other"]["source"] == "arithmetic/differences" and entry["other"]["n"] == 128
    assert exam.written["baseline", "greedy"] == [RIGHT] * 4
    assert exam.written["baseline", "samples"] == [[WRONG] * 2] * 3
