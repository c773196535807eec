"""vLLM without a GPU, for real: the same texts and probabilities as Transformers, and always of the
policy as it is now.
"""

import random
import sys
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from unsloth import FastLanguageModel  # isort: skip

from datasets import Dataset
from transformers import AutoModelForCausalLM, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from helpers.data.tasks import load_task
from helpers.environment import this_machine, vllm_obstacle
from helpers.presets import PRESETS, check_machine
from helpers.training import policy, sampling_gap, vllm_cpu
from helpers.training.checkpoints import last_checkpoint

OBSTACLE = vllm_obstacle(this_machine())
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(OBSTACLE), reason=f"{OBSTACLE} (make optional)"),
]

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
    torch.manual_seed(1)
    model = policy.add_adapter(model, settings)
    change(model, seed=1)
    return model


@pytest.fixture(scope="module")
def loaded():
    return policy.load(SETTINGS)


@pytest.fixture(scope="module")
def trained(loaded):
    model, tokenizer = loaded
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
    assert same(engine, base) < 0.9, (
        "the adapter changes what is said, so the two comparisons are not the same one"
    )


@torch.inference_mode()
def test_sampled_log_probabilities_are_those_of_a_forward_pass(trained):
    from vllm import SamplingParams

    model, tokenizer = trained
    ids = [
        tokenizer.apply_chat_template(p, add_generation_prompt=True, return_dict=True)["input_ids"]
        for p in PROMPTS[:32]
    ]
    parameters = SamplingParams(temperature=0.7, max_tokens=40, logprobs=0, seed=5)
    answers = model.fast_generate([{"prompt_token_ids": row} for row in ids], parameters)
    plain, largest = in_32_bits(model), 0.0
    for row, answer in zip(ids, answers, strict=True):
        tokens = list(answer.outputs[0].token_ids)
        said = [
            place[token].logprob
            for place, token in zip(answer.outputs[0].logprobs, tokens, strict=True)
        ]
        logits = plain(torch.tensor([row + tokens])).logits[0, len(row) - 1 : -1] / 0.7
        expected = logits.log_softmax(-1)[range(len(tokens)), tokens]
        largest = max(largest, (torch.tensor(said) - expected).abs().max().item())
    assert largest < 1e-3


def test_the_weights_are_the_policys_own_not_those_of_the_checkpoint(loaded):
    model, _ = loaded
    handed = dict(vllm_cpu.weights(model))
    original = AutoModelForCausalLM.from_pretrained(
        SETTINGS.model_path, dtype=torch.float32
    ).state_dict()
    assert handed.keys() == original.keys()
    rounded = [
        name for name in handed if "_proj" in name and not torch.equal(handed[name], original[name])
    ]
    assert len(rounded) == sum("_proj" in name for name in handed), (
        "every linear layer was in 4 bits"
    )


def test_a_lora_request_and_folded_weights_give_the_same_text(trained, tmp_path):
    from vllm import SamplingParams
    from vllm.lora.request import LoRARequest

    model, tokenizer = trained
    model.save_pretrained(tmp_path)
    engine = vllm_cpu.start(
        SETTINGS.model_path,
        SETTINGS.context,
        enable_lora=True,
        max_lora_rank=SETTINGS.max_lora_rank,
    )
    with model.disable_adapter():
        vllm_cpu.put_weights(engine, model)
    prompts = PROMPTS[:32]
    rendered = [
        tokenizer.apply_chat_template(p, add_generation_prompt=True, tokenize=False)
        for p in prompts
    ]
    ids = tokenizer(rendered, add_special_tokens=False)["input_ids"]
    request = LoRARequest("adapter", 1, str(tmp_path))
    with torch.compiler.set_stance("force_eager"):
        answers = engine.generate(
            [{"prompt_token_ids": row} for row in ids],
            SamplingParams(temperature=0.0, max_tokens=40),
            lora_request=request,
            use_tqdm=False,
        )
    asked = [
        tokenizer.decode(answer.outputs[0].token_ids, skip_special_tokens=True)
        for answer in answers
    ]
    assert same(asked, texts(model, tokenizer, prompts)) >= 0.96


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


def test_no_two_completions_share_random_numbers(trained, monkeypatch):
    """vLLM gives sample i of a request the seed `seed + i`."""
    model, tokenizer = trained
    base, asked = model.get_base_model(), []
    generate = base.fast_generate

    def noted(prompts, sampling_params, **options):
        asked.extend(sampling_params)
        return generate(prompts, sampling_params, **options)

    monkeypatch.setattr(base, "fast_generate", noted)
    same_question = texts(model, tokenizer, [PROMPTS[0]] * 8, temperature=1.5, samples=8)
    seeds = [parameters.seed + i for parameters in asked for i in range(parameters.n)]
    assert len(seeds) == 64 and len(set(seeds)) == 64
    groups = [same_question[i : i + 8] for i in range(0, 64, 8)]
    assert all(one[1:] != other[:-1] for one, other in pairwise(groups))


def test_a_prompt_with_its_completion_must_fit_the_context(trained):
    model, tokenizer = trained
    long = [[{"role": "user", "content": "1 + 1 + " * 60}]]
    with pytest.raises(
        ValueError,
        match=r"a prompt of \d+ tokens and a completion of 40 do not fit .* context of 104: raise",
    ):
        texts(model, tokenizer, long)


def test_many_prompts_with_seeds_are_more_than_one_batch_of_the_engine(trained):
    model, tokenizer = trained
    assert len(texts(model, tokenizer, temperature=1.0, samples=3)) == 3 * len(PROMPTS)


def test_long_prompts_are_read_again_when_the_weights_have_changed():
    """vLLM keeps what it computed of a prompt in blocks of 128 tokens, for the next time."""
    settings = replace(SETTINGS, max_prompt_length=300)
    model, tokenizer = policy.load(settings)
    model = adapted(model, settings=settings)
    question = "What is 1 + 2?"
    long = [
        [{"role": "user", "content": f"{question} " * 25 + prompt[-1]["content"]}]
        for prompt in PROMPTS[:8]
    ]
    assert min(len(tokenizer(message["content"])["input_ids"]) for (message,) in long) > 128
    said = []
    for seed in (1, 2):
        change(model, seed)
        said.append(texts(model, tokenizer, long))
        assert same(said[-1], texts(in_32_bits(model), tokenizer, long)) == 1
    assert said[0] != said[1]


def test_starting_an_engine_leaves_the_random_state_alone():
    torch.manual_seed(11)
    random.seed(11)
    before = torch.get_rng_state(), random.getstate(), sys.excepthook
    vllm_cpu.start(SETTINGS.model_path, 90)
    assert (
        torch.equal(torch.get_rng_state(), before[0])
        and random.getstate() == before[1]
        and sys.excepthook is before[2]
    )


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


def trainer(model, tokenizer, folder, reward, callbacks=(), **options) -> GRPOTrainer:
    options = {"top_k": 1, "learning_rate": 0.02, "max_steps": 4, "save_strategy": "no"} | options
    config = GRPOConfig(
        output_dir=str(folder),
        num_generations=4,
        per_device_train_batch_size=4,
        max_completion_length=40,
        warmup_steps=0,
        lr_scheduler_type="constant",
        beta=0.0,
        report_to="none",
        disable_tqdm=True,
        **options,
    )
    return GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        args=config,
        reward_funcs=[reward],
        train_dataset=Dataset.from_list([{"prompt": PROMPTS[0]}] * 8),
        callbacks=list(callbacks),
        rollout_func=vllm_cpu.rollout(model, tokenizer),
    )


def fresh(settings=SETTINGS):
    """A policy of its own, to be changed."""
    model, tokenizer = policy.load(settings)
    model = FastLanguageModel.get_peft_model(
        model,
        r=8,
        lora_alpha=16,
        target_modules=policy.LORA_TARGETS,
        use_gradient_checkpointing=False,
        random_state=1,
    )
    return model, tokenizer


def test_every_step_samples_from_the_weights_of_that_step(tmp_path):
    model, tokenizer = fresh()
    spy = Spy(model, tokenizer)
    trainer(model, tokenizer, tmp_path, spy.reward, [spy]).train()
    assert spy.given == [{text} for text in spy.expected]
    assert len(set(spy.expected)) == 4, (
        "the policy has changed, or an engine with old weights would pass"
    )


def test_a_training_samples_as_its_configuration_says(tmp_path):
    model, tokenizer = fresh()
    spy = Spy(model, tokenizer)
    options = {
        "max_steps": 1,
        "temperature": 2.0,
        "top_k": 1,
        "generation_kwargs": {"min_tokens": 40, "ignore_eos": True},
    }
    trainer(model, tokenizer, tmp_path, spy.reward, **options).train()
    (given,) = spy.given
    assert len(given) == 1, "of one token nothing can be drawn, however hot"
    assert spy.lengths == [40] * 4


def test_an_engine_that_fails_is_named_and_the_training_goes_on_from_its_checkpoint(tmp_path):
    # an engine of its own, to be broken
    model, tokenizer = fresh(replace(SETTINGS, max_completion_length=41))

    class Breaks(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 2:
                model.vllm_engine.collective_rpc(
                    lambda worker: delattr(worker.model_runner.model, "lm_head")
                )

    reward = Spy(model, tokenizer).reward
    options = {"save_strategy": "steps", "save_steps": 1}
    with pytest.raises(
        vllm_cpu.EngineFailed,
        match=r"vLLM's engine failed \(.*lm_head.*\) at step 3\. What was saved is kept: "
        r".*engine=transformers",
    ):
        trainer(model, tokenizer, tmp_path, reward, [Breaks()], **options).train()
    checkpoint = last_checkpoint(tmp_path)
    assert checkpoint.name == "checkpoint-2"
    again = trainer(*fresh(), tmp_path, reward, **options)
    again.train(resume_from_checkpoint=str(checkpoint))
    assert again.state.global_step == 4


# --- The gap and the faults -----------------------------------------------------------------------


def config(tmp_path, **options) -> GRPOConfig:
    return GRPOConfig(output_dir=str(tmp_path), max_completion_length=40, **options)


def test_the_gap_to_the_trainer_is_that_of_16_bits(trained, tmp_path):
    model, tokenizer = trained
    model.train()
    found = sampling_gap.measure(model, tokenizer, PROMPTS[:16], config(tmp_path, temperature=1.5))
    assert model.training
    assert (
        found.tokens > 16 * 10
        and found.least == 1
        and 0 < found.mean < 0.02
        and found.mean < found.largest < 1
    )
    assert 0.98 < found.effective <= 1 and found.kept == 1
    first, second = sampling_gap.lines(found, config(tmp_path))
    assert f"differ by {found.mean:.4f} nats on average" in first and "correction: off" in second
    on = config(tmp_path, use_vllm=True, vllm_importance_sampling_correction=True)
    assert sampling_gap.lines(found, on)[1] == "importance-sampling correction: on"


def test_truncated_sampling_is_measured_and_warned_of(trained, tmp_path):
    model, tokenizer = trained
    cut = config(
        tmp_path, temperature=2.0, top_k=1, use_vllm=True, vllm_importance_sampling_correction=True
    )
    found = sampling_gap.measure(model, tokenizer, PROMPTS[:16], cut)
    # Of one token the engine is sure, and the trainer is not: log p - log 1. By Jensen, exp(mean
    # log p) < mean p.
    assert found.kept < 0.95 and torch.tensor(-found.mean).exp() < found.kept
    (warning,) = sampling_gap.lines(found, cut)[2:]
    assert (
        found.least < found.kept
        and found.largest >= found.mean
        and warning.endswith("Leave top_k at 0.")
    )
    assert (
        f"top_k=1 cuts off {1 - found.kept:.2%} of" in warning
        and f"{1 - found.least:.0%} at most" in warning
    )
    assert f"multiplies the loss by about {found.kept:.3f}" in warning
    half = sampling_gap.measure(
        model, tokenizer, PROMPTS[:16], config(tmp_path, temperature=2.0, top_p=0.5)
    )
    assert found.kept <= half.kept < 1
    assert sampling_gap.truncation(config(tmp_path, top_p=1.0, top_k=0, min_p=0.0)) == {}


def test_a_cache_that_is_no_number_names_the_variable(monkeypatch):
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "half")
    with pytest.raises(
        ValueError, match="VLLM_CPU_KVCACHE_SPACE='half' is not a whole number of GB"
    ):
        vllm_cpu.start(SETTINGS.model_path, 99)


@pytest.mark.parametrize("space", ["100000", "0"])
def test_a_cache_that_does_not_fit_names_the_variable(monkeypatch, space):
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", space)
    with pytest.raises(
        ValueError, match=f"vLLM did not start: its cache is VLLM_CPU_KVCACHE_SPACE={space} GB"
    ) as error:
        vllm_cpu.start(SETTINGS.model_path, 100 + len(space))
    assert "\n" not in str(error.value)


def test_transformers_is_left_alone(tmp_path):
    model, tokenizer = policy.load(check_machine(PRESETS["pocket"], this_machine()))
    assert not hasattr(model, "vllm_engine") and vllm_cpu.rollout(model, tokenizer) is None
