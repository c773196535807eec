"""`sampling.sample` through the real vLLM on a CPU (tests/support/vllm_cpu.py): it gives the texts of
Transformers, and always with the policy's current weights.
"""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import vllm_cpu

import unsloth  # isort: skip  # noqa: F401  # before transformers

from transformers import AutoModelForCausalLM

from helpers.data.tasks import load_task
from helpers.presets import PRESETS
from helpers.training import policy, sampling, vision

pytestmark = [pytest.mark.slow, pytest.mark.needs("vllm")]

SETTINGS = replace(PRESETS["pocket"], max_completion_length=40)
ROWS = load_task("arithmetic/sums", train_size=300, holdout_size=256)
PROMPTS = [list(prompt) for prompt in ROWS.holdout["prompt"]]


def change(model, seed: int) -> None:
    """Replace the adapter's B matrices by large random ones."""
    torch.manual_seed(seed)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            weight.data.normal_(std=0.1)


def adapted(settings):
    """Return a policy with an engine and an adapter that changes its texts, and its tokenizer."""
    model, tokenizer = policy.load(settings)
    vllm_cpu.attach(model, settings)
    model = policy.add_adapter(model, settings, seed=0)
    change(model, seed=1)
    return model, tokenizer


@pytest.fixture(scope="module")
def trained():
    return adapted(SETTINGS)


def in_32_bits(model):
    """Return a plain Transformers model with the weights that the engine receives."""
    plain = AutoModelForCausalLM.from_pretrained(SETTINGS.model_path, dtype=torch.float32).eval()
    plain.load_state_dict(dict(vllm_cpu.weights(model)))
    return plain


def texts(model, tokenizer, prompts=PROMPTS, **options) -> list[str]:
    options = {"max_new_tokens": 40, "temperature": 0.0} | options
    return [
        text for group in sampling.sample(model, tokenizer, prompts, **options) for text in group
    ]


def share_of_equals(some: list[str], others: list[str]) -> float:
    return sum(one == other for one, other in zip(some, others, strict=True)) / len(some)


# --- Against Transformers -------------------------------------------------------------------------


def test_greedy_completions_are_those_of_transformers(trained):
    model, tokenizer = trained
    engine = texts(model, tokenizer)
    assert share_of_equals(engine, texts(in_32_bits(model), tokenizer)) >= 0.99
    with model.disable_adapter():
        base = texts(model, tokenizer)
        assert share_of_equals(base, texts(in_32_bits(model), tokenizer)) >= 0.99
        weights = dict(vllm_cpu.weights(model))
    assert share_of_equals(engine, base) < 0.9, "or the two comparisons would be the same one"
    original = AutoModelForCausalLM.from_pretrained(SETTINGS.model_path, dtype=torch.float32)
    original = original.state_dict()
    assert weights.keys() == original.keys()
    linear = [name for name in weights if "_proj" in name]
    assert not any(weights[name].equal(original[name]) for name in linear), "they were in 4 bits"


# --- Sampling -------------------------------------------------------------------------------------


def test_a_seed_fixes_the_completions_and_keeps_the_random_state(trained):
    model, tokenizer = trained
    options = {"temperature": 1.0, "samples": 4, "prompts": PROMPTS[:16]}
    state = torch.get_rng_state()
    first = texts(model, tokenizer, seed=1, **options)
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(7)
    assert texts(model, tokenizer, seed=1, **options) == first
    assert texts(model, tokenizer, seed=2, **options) != first


def test_each_engine_bans_the_picture_token_by_its_own_keyword():
    from vllm import SamplingParams

    processor = SimpleNamespace(image_token_id=5, video_token_id=7)
    sampled = SamplingParams(**vision.image_token_ban(processor, "vllm"))
    assert sampled.logit_bias == {5: -100.0, 7: -100.0}
    assert vision.image_token_ban(processor) == {"suppress_tokens": [5, 7]}


def test_no_two_completions_share_random_numbers(trained):
    """vLLM gives sample i of a request the seed `seed + i`. With consecutive seeds, eight requests
    of eight samples would have only 15 different texts.
    """
    said = texts(*trained, [PROMPTS[0]] * 8, temperature=1.5, samples=8)
    assert len(said) == 64 and len(set(said)) > 30


def test_a_prompt_that_does_not_fit_the_context_is_refused(trained):
    long = [[{"role": "user", "content": "1 + 1 + " * 60}]]
    said = r"a prompt of \d+ tokens and a completion of 40 do not fit .* context of 104: raise"
    with pytest.raises(ValueError, match=said):
        texts(*trained, long)


def test_new_weights_invalidate_the_prompt_cache():
    """vLLM caches a prompt's keys and values in blocks of 128 tokens."""
    model, tokenizer = adapted(replace(SETTINGS, max_prompt_length=300))
    questions = [f"{'What is 1 + 2? ' * 25}{prompt[-1]['content']}" for prompt in PROMPTS[:8]]
    assert min(len(tokenizer(text)["input_ids"]) for text in questions) > 128
    prompts = [[{"role": "user", "content": text}] for text in questions]
    first = texts(model, tokenizer, prompts)
    change(model, seed=2)
    second = texts(model, tokenizer, prompts)
    assert second == texts(in_32_bits(model), tokenizer, prompts) != first
