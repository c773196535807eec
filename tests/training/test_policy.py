"""policy.py and sampling.py with the pocket model: each prompt gets its own completions, all state is
restored, and both back ends load the same policy.
"""

import copy
import random
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from helpers.environment import this_machine
from helpers.presets import PRESETS
from helpers.tags import THINK_ANSWER
from helpers.training import policy, reference, sampling
from helpers.training.sampling import sample

pytestmark = pytest.mark.usefixtures("one_thread")

FOLDER = PRESETS["pocket"].model_path
QUESTIONS = [
    "What is 45 + 36 + 27?",
    "What is 1 + 2?",
    "What is 12 + 30?",
    "Hm",
    "What is 9 + 99?",
    "What is 7 + 80 + 6?",
]


def prompt(question: str) -> list[dict]:
    return [
        {"role": "system", "content": THINK_ANSWER.system_prompt},
        {"role": "user", "content": question},
    ]


PROMPTS = [prompt(question) for question in QUESTIONS]


def load():
    # in 32 bits, rounding by padding cannot change which token is likeliest
    return AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32)


@pytest.fixture(scope="module")
def adapter():
    lora = LoraConfig(
        r=4, target_modules=["q_proj", "up_proj"], lora_dropout=0.5, task_type="CAUSAL_LM"
    )
    policy = get_peft_model(load(), lora)
    torch.manual_seed(0)
    for name, weight in policy.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.3)
    return policy.eval()


def texts(model, tokenizer, prompts=PROMPTS, **options) -> list[list[str]]:
    return sample(model, tokenizer, prompts, **({"max_new_tokens": 40} | options))


@torch.inference_mode()
def alone(model, tokenizer, prompt: list[dict]) -> str:
    """Return a greedy completion from plain `generate`, without padding."""
    inputs = tokenizer.apply_chat_template(
        prompt, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    output = model.generate(**inputs, max_new_tokens=40, do_sample=False)
    return tokenizer.decode(output[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)


# --- Completions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "batch_size", "pays"),
    [
        ("model", 1, sampling.PREFIX_PAYS),
        ("model", 4, 0),
        ("adapter", 4, sampling.PREFIX_PAYS),
        ("adapter", 128, 0),
    ],
)
def test_greedy_batches_match_each_prompt_sampled_alone(
    request, tokenizer, monkeypatch, kind, batch_size, pays
):
    """Padding, batching and a shared prefix (pays=0) change no text."""
    monkeypatch.setattr(sampling, "PREFIX_PAYS", pays)
    model = request.getfixturevalue(kind)
    expected = [[alone(model, tokenizer, prompt)] for prompt in PROMPTS]
    assert len({text for (text,) in expected}) > 3, "equal texts would hide a mix-up"
    # a model's own penalty is ignored: Qwen2.5-Instruct ships with 1.1, and TRL trains without it
    monkeypatch.setattr(model.generation_config, "repetition_penalty", 3.0)
    model.train()  # sampling turns off dropout and gradients nevertheless
    order = [3, 0, 5, 1, 4, 2]
    prompts = [PROMPTS[i] for i in order]
    found = texts(model, tokenizer, prompts, temperature=0, batch_size=batch_size)
    assert found == [expected[i] for i in order]
    assert texts(model, tokenizer, []) == []
    model.eval()


@pytest.mark.parametrize(("samples", "batch_size"), [(3, 128), (3, 2), (5, 7)])
def test_each_prompt_gets_the_requested_number_of_its_own_completions(
    model, tokenizer, samples, batch_size
):
    prompts = [prompt(f"What is {n} + 1?") for n in (5, 40, 7)]
    options = {"samples": samples, "batch_size": batch_size, "temperature": 0.3}
    groups = texts(model, tokenizer, prompts, **options)
    assert [len(group) for group in groups] == [samples] * 3
    for n, group in zip((5, 40, 7), groups, strict=True):
        assert all(f"{n} + 1" in text for text in group)


def test_the_seed_fixes_the_texts_and_temperature_varies_them(model, tokenizer):
    first = texts(model, tokenizer, samples=8, seed=1)
    torch.manual_seed(99)  # the global random state does not matter
    assert texts(model, tokenizer, samples=8, seed=1) == first
    assert texts(model, tokenizer, samples=8, seed=2) != first
    hot = texts(model, tokenizer, samples=8, seed=1, temperature=3.0)
    different = [sum(len(set(group)) for group in groups) for groups in (first, hot)]
    assert len(PROMPTS) < different[0] < different[1]


def test_a_shared_prefix_is_computed_once(model, tokenizer, monkeypatch):
    monkeypatch.setattr(sampling, "PREFIX_PAYS", 0)
    shapes = []
    hook = model.register_forward_pre_hook(
        lambda _, args, options: shapes.append(options.get("input_ids", *args[:1]).shape),
        with_kwargs=True,
    )
    texts(model, tokenizer, samples=8, max_new_tokens=2)
    hook.remove()
    prefix, first = shapes[:2]
    assert prefix[0] == 1 and prefix[1] > 10 and first[0] == 8 * len(PROMPTS)


def test_the_head_multiplies_contiguous_inputs(model, tokenizer):
    """Contiguous inputs need no copy of the weights. The hook stays, for TRL's own sampling. There
    is one, whoever else hooked the head before.
    """
    layouts = []
    model = copy.deepcopy(model)  # no other test has sampled from it
    head = model.get_output_embeddings()
    head._forward_pre_hooks.clear()
    head.register_forward_pre_hook(lambda _, inputs: None)
    texts(model, tokenizer, max_new_tokens=2)
    watch = head.register_forward_hook(lambda _, inputs, out: layouts.append(inputs[0]))
    texts(model, tokenizer, max_new_tokens=2)
    alone(model, tokenizer, PROMPTS[0])
    watch.remove()
    assert len(layouts) > 3 and all(hidden.is_contiguous() for hidden in layouts)
    assert layouts[0].shape[:2] == (len(PROMPTS), 1)
    assert len(head._forward_pre_hooks) == 2


# --- State ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("fails", [False, True], ids=["done", "raised"])
@pytest.mark.parametrize(
    ("training", "cache", "side"), [(True, False, "right"), (False, True, "left")]
)
def test_sampling_restores_all_state(adapter, tokenizer, fails, training, cache, side):
    adapter.train(training)
    adapter.config.use_cache, tokenizer.padding_side = cache, side
    numbers = [torch.get_rng_state(), random.getstate(), np.random.get_state()[1]]
    modes = [module.training for module in adapter.modules()]

    def interrupt(*inputs):
        if fails:
            raise KeyboardInterrupt

    hook = adapter.get_base_model().register_forward_pre_hook(interrupt)
    with pytest.raises(KeyboardInterrupt) if fails else nullcontext():
        texts(adapter, tokenizer, max_new_tokens=4)
    hook.remove()
    assert torch.equal(torch.get_rng_state(), numbers[0]) and random.getstate() == numbers[1]
    assert np.array_equal(np.random.get_state()[1], numbers[2])
    assert [module.training for module in adapter.modules()] == modes
    assert (adapter.config.use_cache, tokenizer.padding_side) == (cache, side)
    adapter.eval()


# --- From token ids -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ids(tokenizer):
    """PROMPTS as token ids."""
    texts = [
        tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False)
        for prompt in PROMPTS
    ]
    return tokenizer(texts, add_special_tokens=False)["input_ids"]


def test_a_completion_ends_at_any_of_several_end_tokens(model, tokenizer, ids, monkeypatch):
    def greedy() -> list[list[int]]:
        with sampling.sampler(model, tokenizer, temperature=0) as complete:
            return [tokens for (tokens,) in complete(ids, [40] * 6)]

    whole = greedy()
    other = whole[0][3]
    ends = [tokenizer.eos_token_id, other]
    monkeypatch.setattr(model.generation_config, "eos_token_id", ends)
    cut = greedy()
    assert cut != whole
    assert cut == [ids[: ids.index(other) + 1] if other in ids else ids for ids in whole]


def test_each_prompt_keeps_within_its_own_limit(model, tokenizer, ids):
    with sampling.sampler(model, tokenizer, temperature=0) as complete:
        longest = [tokens for (tokens,) in complete(ids, [200] * 6)]
        assert complete(ids, [40] * 6) == [[tokens[:40]] for tokens in longest]
        room = [0, 1, 5, 12, 30, 200]
        expected = [[tokens[:left]] for tokens, left in zip(longest, room, strict=True)]
        assert complete(ids, room) == expected
        assert complete(ids, [0] * 6) == [[[]]] * 6, "no room is not an error"


# --- Out of memory --------------------------------------------------------------------------------


def test_batches_are_halved_after_running_out_of_gpu_memory(model, tokenizer, monkeypatch):
    expected = texts(model, tokenizer, temperature=0)
    generate, sizes = model.generate, []

    def small(input_ids, **options):
        sizes.append(len(input_ids))
        if len(input_ids) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return generate(input_ids=input_ids, **options)

    monkeypatch.setattr(model, "generate", small)
    assert len(PROMPTS) == 6 and texts(model, tokenizer, temperature=0) == expected
    assert sizes == [6, 3, 1, 1, 1, 1, 1, 1]
    monkeypatch.setattr(model, "generate", lambda **options: small([0] * 3))
    with pytest.raises(torch.OutOfMemoryError):  # a single prompt cannot be halved
        texts(model, tokenizer)


def test_a_model_is_not_trained_by_two_trainers():
    model = load()
    assert reference.claim_for_training(model) is model
    with pytest.raises(RuntimeError, match="Restart Kernel"):
        reference.claim_for_training(model)


def test_a_trained_policy_begins_again_for_another_trainer():
    model = policy.add_adapter(load(), replace(PRESETS["pocket"], backend="transformers"), seed=1)
    fresh = {name: weight.clone() for name, weight in model.named_parameters() if "lora" in name}
    reference.claim_for_training(model)
    reference.freeze_reference(model)
    for name in fresh:
        model.get_parameter(name).data.add_(1)
    reference.begin_again(model, fresh)
    assert list(model.peft_config) == ["default"] and fresh
    assert all(torch.equal(model.get_parameter(name), old) for name, old in fresh.items())
    assert reference.claim_for_training(model) is model


# --- Back ends and engines ------------------------------------------------------------------------


def gradients(backend: str, sampled_before: bool) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return the logits of a policy with a fresh adapter, and the gradients of the sum of their
    squares.
    """
    settings = replace(PRESETS["pocket"], backend=backend)
    model, tokenizer = policy.load(settings)
    model = policy.add_adapter(model, settings, seed=0)
    if sampled_before:
        sample(model, tokenizer, PROMPTS[:2], max_new_tokens=4)
    model.train()
    text = tokenizer.apply_chat_template(PROMPTS[0], tokenize=False)
    logits = model(**tokenizer(text, return_tensors="pt")).logits.float()
    logits.square().sum().backward()
    return logits.detach(), {
        name: weight.grad.float()
        for name, weight in model.named_parameters()
        if weight.grad is not None
    }


def test_both_back_ends_give_the_same_logits_and_gradients():
    logits, expected = gradients("unsloth", sampled_before=False)
    for backend, sampled_before in (("transformers", True), ("unsloth", True)):
        same, found = gradients(backend, sampled_before)
        assert torch.equal(same, logits), backend
        assert found.keys() == expected.keys() and expected
        for name, gradient in found.items():
            assert torch.allclose(gradient, expected[name], rtol=1e-2), (backend, name)


def test_a_model_without_the_requested_engine_is_refused(model):
    """On some cards Unsloth falls back to its own sampling."""
    with pytest.raises(ValueError, match="vLLM engine"):
        policy.check_engine(model, replace(PRESETS["pocket"], engine="vllm"))
    policy.check_engine(model, PRESETS["pocket"])


@pytest.mark.parametrize(
    ("driver", "said"),
    [("570.124.06", "driver of NVIDIA L4 is 570"), ("580.95.05", "torch .*does not see NVIDIA L4")],
)
def test_a_gpu_that_torch_does_not_see_is_refused_unless_it_is_hidden(
    smi, monkeypatch, driver, said
):
    """A GPU's settings were trained on the CPU without a word."""
    smi(f"NVIDIA L4, 23034, 8.9, {driver}")
    with pytest.raises(ValueError, match=f"{said}.*hide the GPU: CUDA_VISIBLE_DEVICES="):
        policy.load(PRESETS["pocket"])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    this_machine.cache_clear()
    model, _ = policy.load(PRESETS["pocket"])
    assert model.device.type == "cpu"


@pytest.mark.parametrize(("said", "dtype"), [("1", torch.bfloat16), ("0", torch.float32)])
def test_without_bfloat16_a_cpu_computes_in_float32_with_either_back_end(monkeypatch, said, dtype):
    """Torch would emulate bfloat16; Unsloth decides by the CPU, or by this variable."""
    from unsloth_zoo.cpu.runtime import cpu_bf16_supported

    monkeypatch.setenv("UNSLOTH_CPU_BF16", said)
    cpu_bf16_supported.cache_clear()
    for backend in ("unsloth", "transformers"):
        settings = replace(PRESETS["pocket"], backend=backend, load_in_4bit=False)
        assert policy.load(settings)[0].dtype == dtype, backend
    cpu_bf16_supported.cache_clear()
