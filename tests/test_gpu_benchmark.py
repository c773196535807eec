"""The GPU benchmark's own parts, on a CPU: the random model, one case measured, the table."""

import json

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks import gpu
from helpers.presets import PRESETS
from helpers.training.memory import shape_of
from helpers.training.policy import sample

POCKET = PRESETS["pocket"]
PROMPT = [{"role": "user", "content": "What is 1 + 2?"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A random model of the pocket's shape with a larger vocabulary."""
    shaped = tmp_path_factory.mktemp("shape")
    with open(f"{POCKET.model_path}/config.json", encoding="utf-8") as file:
        config = json.load(file)
    (shaped / "config.json").write_text(json.dumps(config | {"vocab_size": 1000}), encoding="utf-8")
    return gpu.random_model(str(shaped), tmp_path_factory.mktemp("random"))


def test_the_random_model_has_the_shape_and_every_id_can_be_read(folder):
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert shape_of(str(folder)).vocab_size == 1000 == len(tokenizer) == model.get_output_embeddings().weight.shape[0]
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id == 2
    assert tokenizer.apply_chat_template(PROMPT, tokenize=False, add_generation_prompt=True).count("What is 1 + 2?") == 1
    (texts,) = sample(model, tokenizer, [PROMPT], max_new_tokens=16, samples=8, progress=False)
    assert len(set(texts)) == 8 and any("<answer>" in text for text in texts), "they differ, and some will earn"


def test_a_case_is_measured_at_the_sizes_of_the_preset():
    settings = gpu.with_overrides(POCKET, max_completion_length=8, num_generations=4, per_device_train_batch_size=8)
    result = gpu.measure(settings, steps=1)
    assert result["seconds"] > 0 and result["tokens_per_second"] == pytest.approx(64 / result["seconds"])
    assert result["peak"] is None, "no GPU"


def test_the_table_sets_each_case_beside_trl_alone_and_the_estimate_beside_the_peak():
    rows = [
        {"model": "m", "case": "Unsloth + vLLM", "seconds": 2.0, "tokens_per_second": 900.0, "peak": 10e9, "estimate": 11e9},
        {"model": "m", "case": "Unsloth", "error": "OutOfMemoryError"},
        {"model": "m", "case": "TRL alone", "seconds": 6.0, "tokens_per_second": 300.0, "peak": 20e9, "estimate": 18e9},
    ]
    text = gpu.table(rows, "the command")
    assert "| m | Unsloth + vLLM | 2.00 | 900 | 3.00 | 10.0 | 11.0 | 1.10 |" in text
    assert "| m | Unsloth | OutOfMemoryError |" in text and "| m | TRL alone | 6.00 | 300 | 1.00 | 20.0 | 18.0 | 0.90 |" in text
    assert "`the command` on a CPU" in text


def test_the_cases_are_presets_that_can_run():
    args = type("Args", (), {"length": 128, "utilization": None})
    cases = {case: gpu.settings_of("unsloth/Qwen3-8B", case, args) for case in gpu.CASES}
    assert {case: (s.backend, s.fast_inference) for case, s in cases.items()} == {
        "Unsloth + vLLM": ("unsloth", True),
        "Unsloth": ("unsloth", False),
        "TRL alone": ("transformers", False),
    }
    assert {(s.model, s.max_completion_length) for s in cases.values()} == {("unsloth/Qwen3-8B", 128)}
