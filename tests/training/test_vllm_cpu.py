"""vLLM without a GPU, for real: the same texts as Transformers, and always of the policy as it is
now.
"""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from unsloth import FastLanguageModel  # isort: skip

from datasets import Dataset
from transformers import AutoModelForCausalLM, TrainerCallback
from trl import GRPOTrainer

from helpers.data.tasks import load_task
from helpers.presets import PRESETS
from helpers.training import policy, vision, vllm_cpu

pytestmark = [pytest.mark.slow, pytest.mark.needs("vllm")]

SETTINGS = replace(PRESETS["pocket"], engine="vllm", max_completion_length=40)
ROWS = load_task("arithmetic/sums", train_size=300, holdout_size=256)
PROMPTS = [list(prompt) for prompt in ROWS.holdout["prompt"]]


def change(model, seed: int, std: float = 0.1) -> None:
    """Other matrices for the adapter, far from those that it had."""
    torch.manual_seed(seed)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            weight.data.normal_(std=std)


def adapted(model, settings=SETTINGS):
    """The model with an adapter that changes what it says: LoRA's B is zero at first."""
    model = policy.add_adapter(model, settings, seed=0)
    change(model, seed=1)
    return model


@pytest.fixture(scope="module")
def trained():
    model, tokenizer = policy.load(SETTINGS)
    return adapted(model), tokenizer


def in_32_bits(model):
    """A plain Transformers model with the weights that the engine is handed."""
    plain = AutoModelForCausalLM.from_pretrained(SETTINGS.model_path, dtype=torch.float32).eval()
    plain.load_state_dict(dict(vllm_cpu.weights(model)))
    return plain


def texts(model, tokenizer, prompts=PROMPTS, **options) -> list[str]:
    options = {"max_new_tokens": 40, "temperature": 0.0, "progress": False} | options
    return [text for group in policy.sample(model, tokenizer, prompts, **options) for text in group]


def same(some: list[str], others: list[str]) -> float:
    differ = [(one, other) for one, other in zip(some, others, strict=True) if one != other]
    print(*differ, sep="\n")
    return 1 - len(differ) / len(some)


# --- Against Transformers -------------------------------------------------------------------------


def test_greedy_completions_are_those_of_transformers(trained):
    model, tokenizer = trained
    engine = texts(model, tokenizer)
    assert same(engine, texts(in_32_bits(model), tokenizer)) >= 0.99
    with model.disable_adapter():
        base = texts(model, tokenizer)
        assert same(base, texts(in_32_bits(model), tokenizer)) >= 0.99
        handed = dict(vllm_cpu.weights(model))
    assert same(engine, base) < 0.9, "or the two comparisons would be the same one"
    original = AutoModelForCausalLM.from_pretrained(SETTINGS.model_path, dtype=torch.float32)
    original = original.state_dict()
    assert handed.keys() == original.keys()
    equal = [name for name in handed if "_proj" in name and handed[name].equal(original[name])]
    assert equal == [], "the policy's own weights, and every linear layer was in 4 bits"


# --- Sampling -------------------------------------------------------------------------------------


def test_a_seed_gives_the_same_completions_and_leaves_the_random_state_alone(trained):
    model, tokenizer = trained
    options = {"temperature": 1.0, "samples": 4, "prompts": PROMPTS[:16]}
    state = torch.get_rng_state()
    first = texts(model, tokenizer, seed=1, **options)
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(7)
    assert texts(model, tokenizer, seed=1, **options) == first
    assert texts(model, tokenizer, seed=2, **options) != first


def test_the_token_of_a_picture_is_suppressed_in_the_words_of_the_engine():
    from vllm import SamplingParams

    processor = SimpleNamespace(image_token_id=5, video_token_id=7)
    sampled = SamplingParams(**vision.image_token_ban(processor, "vllm"))
    assert sampled.logit_bias == {5: -100.0, 7: -100.0}
    assert vision.image_token_ban(processor) == {"suppress_tokens": [5, 7]}


def test_no_two_completions_share_random_numbers(trained):
    """vLLM gives sample i of a request the seed `seed + i`; requests with seeds beside each other
    would say 15 things in all.
    """
    said = texts(*trained, [PROMPTS[0]] * 8, temperature=1.5, samples=8)
    assert len(said) == 64 and len(set(said)) > 30


def test_a_prompt_with_its_completion_must_fit_the_context(trained):
    long = [[{"role": "user", "content": "1 + 1 + " * 60}]]
    said = r"a prompt of \d+ tokens and a completion of 40 do not fit .* context of 104: raise"
    with pytest.raises(ValueError, match=said):
        texts(*trained, long)


def test_long_prompts_are_read_again_when_the_weights_have_changed():
    """vLLM keeps what it computed of a prompt in blocks of 128 tokens, for the next time."""
    settings = replace(SETTINGS, max_prompt_length=300)
    model, tokenizer = policy.load(settings)
    model = adapted(model, settings=settings)
    asked = [f"{'What is 1 + 2? ' * 25}{prompt[-1]['content']}" for prompt in PROMPTS[:8]]
    assert min(len(tokenizer(text)["input_ids"]) for text in asked) > 128
    long, said = [[{"role": "user", "content": text}] for text in asked], []
    for seed in (1, 2):
        change(model, seed)
        said.append(texts(model, tokenizer, long))
        assert same(said[-1], texts(in_32_bits(model), tokenizer, long)) == 1
    assert said[0] != said[1]


# --- Training -------------------------------------------------------------------------------------


class Spy(TrainerCallback):
    """The greedy completion of the policy as each step begins, by Transformers, and what the step
    was given.

    Each step ends with weights far from those it began with, as if the optimizer had gone very far.
    """

    def __init__(self, model, tokenizer):
        self.model, self.tokenizer, self.expected, self.given = model, tokenizer, [], []

    def on_step_begin(self, args, state, control, **kwargs):
        self.expected += texts(in_32_bits(self.model), self.tokenizer, PROMPTS[:1])

    def on_step_end(self, args, state, control, **kwargs):
        change(self.model, state.global_step, std=0.3)

    def reward(self, completions, completion_ids, **columns):
        self.given.append({completion[0]["content"] for completion in completions})
        self.lengths = [len(ids) for ids in completion_ids]
        return [float(i % 2) for i in range(len(completions))]


@pytest.fixture
def spied_on(config, tmp_path):
    """A function that watches a training of a policy of its own."""
    few = {"per_device_train_batch_size": 4, "max_completion_length": 40, "top_k": 1, "beta": 0.0}

    def spied_on(**options) -> Spy:
        model, tokenizer = policy.load(SETTINGS)
        lora = {"r": 8, "lora_alpha": 16, "target_modules": policy.LORA_TARGETS, "random_state": 1}
        model = FastLanguageModel.get_peft_model(model, use_gradient_checkpointing=False, **lora)
        spy = Spy(model, tokenizer)
        GRPOTrainer(
            model=model,
            processing_class=tokenizer,
            args=config(tmp_path, **few, **options),
            reward_funcs=[spy.reward],
            train_dataset=Dataset.from_list([{"prompt": PROMPTS[0]}] * 8),
            callbacks=[spy],
            rollout_func=vllm_cpu.rollout(model, tokenizer),
        ).train()
        return spy

    return spied_on


def test_every_step_samples_from_the_weights_of_that_step(spied_on):
    spy = spied_on(max_steps=4)
    assert spy.given == [{text} for text in spy.expected]
    assert len(set(spy.expected)) == 4, "or an engine with old weights would pass"


def test_a_training_samples_as_its_configuration_says(spied_on):
    at_the_limit = {"min_tokens": 40, "ignore_eos": True}
    spy = spied_on(max_steps=1, temperature=2.0, generation_kwargs=at_the_limit)
    (given,) = spy.given
    assert len(given) == 1, "of one token nothing can be drawn, however hot"
    assert spy.lengths == [40] * 4
