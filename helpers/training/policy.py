"""Loading a policy, through Unsloth or plain Transformers, and sampling completions from it, with
vLLM if the model has an engine.
"""

import gc
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from contextlib import contextmanager, nullcontext

import torch
from tqdm.auto import tqdm

from helpers.presets import Preset
from helpers.runs import seed_everything
from helpers.templates import render, set_thinking
from helpers.training.base import Base
from helpers.training.families import LORA_TARGETS, family_of, lora_targets
from helpers.training.memory import config_of, room_for_a_picture

# What the weights of a language part are called when it is loaded alone: _get_text_only_key_mapping
# of unsloth/models/_utils.py 2322.
_LANGUAGE_NAMES = {
    r"^language_model\.model\.": "model.",
    r"^model\.language_model\.": "model.",
    r"^language_model\.lm_head\.": "lm_head.",
}
# How many completions are sampled at a time; vLLM queues what it has no room for.
BATCH = {"transformers": 256, "vllm": 1024}
# What all prompts begin with is computed once if that saves so many multiplications: on a CPU about
# a second. With fewer, as with the embedded models, each prompt is computed by itself.
PREFIX_PAYS = 1e11


def load(settings: Preset, base: Base | None = None, *, sees: bool = False):
    """Return the model and the tokenizer of the settings, in 4 bits if they say so, without an
    adapter.

    base: what an adapter to be put on it was trained on; see `base.py`. sees: return the processor
    of a model that reads pictures in place of its tokenizer; its context has room for one.
    Otherwise only the language part of such a model is loaded.

    Through Unsloth, or with `backend="transformers"` through Transformers and bitsandbytes,
    quantised the same way: NF4 with double quantisation, computing in the card's 16 bits. With
    `engine="vllm"`, for a GPU, Unsloth's vLLM engine comes with the model and shares its weights.
    For that engine Unsloth may load another quantisation of the same model
    (`_vllm_plain_bnb_or_16bit`); ValueError if it is not the base's, or if Unsloth has been
    imported where it must stay out (`needs_unsloth`).
    """
    on_gpu = torch.cuda.is_available()
    name = base.name if base else settings.model_path

    # Unsloth comes first, or not at all
    if settings.engine == "vllm":
        standby()
    if needs_unsloth(settings):
        from unsloth import FastLanguageModel, FastVisionModel
    elif "unsloth" in sys.modules:
        raise ValueError(
            "backend='transformers' on a GPU trains without Unsloth, which this process has "
            "imported: its patches stay, and TRL's trainer is replaced by one for Unsloth's own "
            "models. Restart the kernel."
        )

    # its loader, which quantises and starts the engine as well
    if settings.backend == "unsloth":
        if sees and not on_gpu:
            raise ValueError(
                "backend='unsloth' has no models that see on a CPU: take backend='transformers'."
            )
        vllm_options = {
            "fast_inference": True,
            "max_lora_rank": settings.max_lora_rank,
            "gpu_memory_utilization": settings.gpu_memory_utilization,
        }
        loader = FastVisionModel if sees else FastLanguageModel
        model, tokenizer = loader.from_pretrained(
            name,
            max_seq_length=settings.context + (room_for_a_picture(settings) if sees else 0),
            load_in_4bit=settings.load_in_4bit,
            **({} if sees else text_only(name)),
            **(vllm_options if settings.engine == "vllm" else {}),
        )
    # or Transformers, in the card's 16 bits
    else:
        from transformers import AutoProcessor, AutoTokenizer

        bf16 = not on_gpu or torch.cuda.is_bf16_supported(including_emulation=False)
        dtype = torch.bfloat16 if bf16 else dtype_without_bf16(name)
        model = (load_whole if sees else load_text)(
            name,
            dtype=dtype,
            device_map="cuda" if on_gpu else "cpu",
            quantization_config=nf4(dtype) if settings.load_in_4bit else None,
        )
        for module in model.modules():
            # On a CPU with AVX-512 bf16, bitsandbytes 0.50 repacks its weights at the first
            # evaluation, and the backward pass of what is repacked is wrong (measured: gradients of
            # three quarters the norm). Unsloth's layers do not ask.
            if hasattr(module, "support_avx512bf16_for_cpu"):
                module.support_avx512bf16_for_cpu = False
        tokenizer = (AutoProcessor if sees else AutoTokenizer).from_pretrained(name)

    # what is the same either way
    check_engine(model, settings)
    if base:
        base.check(model)
    set_thinking(tokenizer, settings.thinking)
    return model, tokenizer


def check_engine(model, settings: Preset) -> None:
    """Raise ValueError if the settings ask for vLLM and Unsloth has started no engine: on some
    cards it falls back to its own sampling.
    """
    if settings.engine == "vllm" and engine_of(model) != "vllm":
        raise ValueError(
            "Unsloth has started no vLLM engine on this card (it says why above). Take `-p "
            "engine=transformers`."
        )


def needs_unsloth(settings: Preset) -> bool:
    """Return whether a policy with these settings is trained beside Unsloth: with
    `backend="unsloth"`, and without a GPU with either, because TRL's loss is a Triton kernel, which
    a CPU runs only as Unsloth replaces it.

    On a GPU, importing Unsloth replaces `trl.GRPOTrainer` by a trainer that calls the model's
    `for_training`, which only models that Unsloth has loaded have (rl_replacements.py).
    """
    return settings.backend == "unsloth" or not torch.cuda.is_available()


def load_whole(name: str, **options):
    """Return a model through Transformers, with the part that reads pictures if it has one."""
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    sees = "vision_config" in config_of(name)
    auto = AutoModelForImageTextToText if sees else AutoModelForCausalLM
    return auto.from_pretrained(name, **options)


def load_text(name: str, **options):
    """Return a model of text through Transformers, or the language part of one that sees."""
    from transformers import AutoModelForCausalLM

    part = _language_part(name)
    model = AutoModelForCausalLM.from_pretrained(name, **part, **options)
    if part:  # it would be saved under the names that the weights had in the whole model
        model._weight_conversions = [
            conversion
            for conversion in model._weight_conversions
            if not set(conversion.source_patterns) & _LANGUAGE_NAMES.keys()
        ]
    return model


def text_only(name: str) -> dict:
    """Return the keywords with which Unsloth's FastLanguageModel loads the language part alone of a
    model that sees; none for a model of text.

    Without them it gives a processor for the tokenizer, which takes texts for pictures. Unsloth's
    CPU backend does not know `text_only` and passes its keywords on to Transformers.
    """
    part = _language_part(name)
    return {"text_only": True} if part and torch.cuda.is_available() else part


def _language_part(name: str) -> dict:
    """Return the keywords with which Transformers loads the language part alone of a model that
    sees; none for a model of text.
    """
    if "vision_config" not in config_of(name):
        return {}
    from transformers import AutoConfig

    whole = AutoConfig.from_pretrained(name)
    text = whole.get_text_config()
    stored = getattr(whole, "quantization_config", None)  # of the whole model, by its names
    if stored:
        stored = dict(stored if isinstance(stored, dict) else stored.to_dict())
        stored["llm_int8_skip_modules"] = [
            re.sub(r"^(language_model\.model|model\.language_model)(?=\.|$)", "model", kept)
            for kept in stored.get("llm_int8_skip_modules") or []
        ]
        text.quantization_config = stored
    return {"config": text, "key_mapping": _LANGUAGE_NAMES}


def dtype_without_bf16(name: str) -> torch.dtype:
    """Return what a model computes in on a card without bfloat16: float16, unless it leaves its
    range.
    """
    overflows = family_of(config_of(name).get("model_type", "")).overflows
    return torch.float32 if overflows else torch.float16


def nf4(dtype: torch.dtype):
    """Return the suite's quantisation as Transformers takes it: 4-bit NormalFloat with double
    quantisation, computing in `dtype`.

    QLoRA, arXiv 2305.14314, section 3. Unsloth's `load_in_4bit` does the same to a 16-bit
    checkpoint. One that is stored in 4 bits keeps its own quantisation, whatever is passed.
    """
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
    )


def standby() -> None:
    """Let vLLM's engine give up its cache while the policy trains, and take what
    `gpu_memory_utilization` says; before Unsloth is imported, which reads both variables then.
    """
    os.environ["UNSLOTH_VLLM_STANDBY"] = "1"
    os.environ["UNSLOTH_VLLM_STANDBY_UTIL_OVERRIDE"] = "1"


def add_adapter(model, settings: Preset, seed: int, *, sees: bool = False):
    """Return the model with fresh LoRA matrices on the linear maps of its layers, drawn with this
    seed.

    sees: it reads pictures. The tower that reads them then stays as it is: with vLLM, Unsloth
    refuses adapters in the tower. Through PEFT alone the projector gets such matrices, too;
    Unsloth's switches, which choose by names, reach it neither with `finetune_vision_layers` nor
    with `finetune_language_layers` (Qwen3-VL, Gemma 3).
    """
    seed_everything(seed)
    if settings.backend == "unsloth":
        from unsloth import FastLanguageModel, FastVisionModel

        lora = {
            "r": settings.lora_rank,
            "lora_alpha": settings.lora_alpha,
            "use_gradient_checkpointing": settings.gradient_checkpointing,
            "random_state": seed,
        }
        if not sees:
            targets = lora_targets(model)
            return FastLanguageModel.get_peft_model(model, target_modules=targets, **lora)
        return FastVisionModel.get_peft_model(
            model,
            finetune_vision_layers=False,
            finetune_language_layers=True,
            finetune_attention_modules=True,
            finetune_mlp_modules=True,
            **lora,
        )

    # through PEFT alone
    from peft import LoraConfig, get_peft_model

    targets = lora_targets(model)
    if sees:
        family = family_of(model.config.get_text_config().model_type)
        layers = "|".join(family.targets or LORA_TARGETS)
        targets = rf".*(language_model\..*\.({layers})|multi_modal_projector\..*linear\w*)"
    if settings.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
    config = LoraConfig(
        r=settings.lora_rank,
        lora_alpha=settings.lora_alpha,
        target_modules=targets,
        task_type="CAUSAL_LM",
    )
    return get_peft_model(model, config)


def claim_for_training(model):
    """Return the model; RuntimeError if a trainer already used it.

    A second training would begin with a trained policy under the name of a first. TRL says only
    that the adapter `ref` already exists; Unsloth's trainer for a GPU says nothing.
    """
    if getattr(model, "given_to_a_trainer", False):
        raise RuntimeError(
            "This cell has been run before, and the model that it trains is no longer untrained: "
            "choose Kernel > Restart Kernel and Run All Cells. A training that was interrupted "
            "goes on from its last checkpoint."
        )
    model.given_to_a_trainer = True
    return model


def freeze_reference(model) -> None:
    """Keep the policy as it is now as the reference of the KL: a frozen copy of its adapter, `ref`.

    For an adapter that is trained already; a fresh one changes nothing, so that the model without
    it is the same reference. TRL's `GRPOTrainer` makes the copy; Unsloth's for a GPU makes none
    (unsloth/models/rl.py, "Skip add_adapter"), and takes one that is there. Call this between the
    trainer's constructor and `train()`; if there is a copy, nothing is done.
    """
    if "ref" in model.peft_config:
        return
    # it is initialised before it is copied
    with torch.random.fork_rng(random_devices(model)):
        model.add_adapter("ref", model.peft_config["default"])
    for name, weight in model.named_parameters():
        if ".default." in name:
            model.get_parameter(name.replace(".default.", ".ref.")).data.copy_(weight.data)


def sample(
    model,
    tokenizer,
    prompts: list[list[dict]],
    *,
    max_new_tokens: int,
    temperature: float = 1.0,
    samples: int = 1,
    batch_size: int | None = None,
    seed: int = 3407,
    progress: bool = True,
) -> list[list[str]]:
    """Return completions for chat prompts: for each prompt, in the order given, a list of `samples`
    texts.

    Through the model's vLLM engine if it has one, with the adapter as it is now; otherwise through
    Transformers. The tokenizer carries whether the model thinks (`templates.set_thinking`).

    temperature: 0 is greedy decoding (then one sample per prompt is enough). Prompts are batched by
    length, so little is padded. batch_size counts prompts times samples; None takes BATCH. The
    model's training mode, gradient checkpointing, caching and the global random state are put back
    afterwards, and an engine beside a model in training gives its cache back: sampling in the
    middle of a training changes nothing about it.
    """
    texts = [render(tokenizer, prompt) for prompt in prompts]
    ids = tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))  # so little is padded
    at_a_time = max(1, (batch_size or BATCH[engine_of(model)]) // samples)
    completions: list[list[str]] = [[] for _ in texts]
    with (
        tqdm(total=len(texts), disable=not progress) as bar,
        sampler(
            model,
            tokenizer,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            samples=samples,
            seed=seed,
        ) as complete,
    ):
        for start in range(0, len(order), at_a_time):
            batch = order[start : start + at_a_time]
            groups = complete([ids[i] for i in batch])
            for i, group in zip(batch, groups, strict=True):
                completions[i] = tokenizer.batch_decode(group, skip_special_tokens=True)
            bar.update(len(batch))
    return completions


@contextmanager
def sampler(
    model,
    tokenizer,
    *,
    max_new_tokens: int,
    temperature: float = 1.0,
    samples: int = 1,
    seed: int | None = 3407,
):
    """Open a context for prompts that are token ids already. Its value is a function from them to
    `samples` continuations of each, ids up to the end token and with it. Its second argument, if
    given, is the room that each prompt has left.

    Within one context the random numbers go on from call to call, so that an episode of several
    turns is drawn as one. seed: None goes on with torch's own random numbers, as TRL does.
    """
    if engine_of(model) == "vllm":
        engine = _with_vllm(model, temperature, samples, seed)
    else:
        engine = _with_transformers(model, tokenizer, temperature, samples)
    with nullcontext() if seed is None else torch.random.fork_rng(random_devices(model)):
        if seed is not None:
            torch.manual_seed(seed)
        with engine as complete:
            yield lambda prompts, room=(): complete(
                prompts, room or [max_new_tokens] * len(prompts)
            )


def random_devices(model) -> list:
    """Return the devices whose random numbers a model draws, besides the CPU's: what torch's
    `fork_rng` puts back.
    """
    return [model.device] if model.device.type == "cuda" else []


def context_of(model) -> int | None:
    """Return the most tokens of prompt and completion: the engine's limit, or the model's."""
    if engine_of(model) == "vllm":
        return model.vllm_engine.llm_engine.vllm_config.model_config.max_model_len
    return getattr(model.config, "max_position_embeddings", None)


def engine_of(model) -> str:
    """Return what samples from this model: "vllm" if it has an engine, else "transformers"."""
    return "transformers" if getattr(model, "vllm_engine", None) is None else "vllm"


def release(model=None) -> None:
    """Give back what sampling holds of the GPU: the cache of a model's vLLM engine, if it has one,
    and torch's free blocks.

    The engine shares the model's weights, which go when nothing refers to the model any more.
    """
    engine = getattr(model, "vllm_engine", None)
    can_sleep = engine is not None and engine.llm_engine.vllm_config.model_config.enable_sleep_mode
    if can_sleep and not engine.llm_engine.is_sleeping():  # it would warn that it sleeps already
        engine.sleep(level=1)
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def generation_options(temperature: float) -> dict:
    """Return what `generate` is told about drawing: explicitly, so that what a model ships in its
    generation config (top_k, a repetition penalty) does not bend the result.
    """
    options = {"do_sample": temperature > 0, "repetition_penalty": 1.0}
    if temperature > 0:
        options |= {"temperature": temperature, "top_k": 0, "top_p": 1.0}
    return options


@contextmanager
def sampling_mode(model):
    """Let a model sample: without gradients and dropout, with its cache; its modes are put back at
    the end.
    """
    was_training = model.training
    config = model.config.get_text_config()
    had_cache = config.use_cache
    with torch.no_grad():
        try:
            model.eval()
            config.use_cache = True
            yield
        finally:
            if was_training and hasattr(model, "for_training"):
                # Unsloth's `generate` turns gradient checkpointing off, and on again only if it met
                # a model in training.
                checkpointing = getattr(model, "_unsloth_gradient_checkpointing", None)
                model.for_training(use_gradient_checkpointing=checkpointing)
            else:
                model.train(was_training)
            config.use_cache = had_cache


@contextmanager
def _with_transformers(model, tokenizer, temperature: float, samples: int):
    """Open a context whose value is a function from prompts, and the room that each has left, to
    their continuations, through `generate`.
    """
    head = model.get_output_embeddings()
    if model.device.type == "cpu" and not head._forward_pre_hooks:
        # `generate` passes a slice, the last token of each prompt. For a 3-D input that is not
        # contiguous torch multiplies batch by batch, and in bf16 copies the head's weights for each
        # prompt: 19 GB for 64 prompts and 152,000 tokens (pytorch issue 186148). It stays, for
        # TRL's own sampling.
        head.register_forward_pre_hook(lambda _, inputs: (inputs[0].contiguous(),))
    # the tokens that end a completion: those of the generation config, which may be several
    ends = model.generation_config.eos_token_id
    ends = tokenizer.eos_token_id if ends is None else ends
    ends = {ends} if isinstance(ends, int) else set(ends or [])

    def generate(prompts: list[list[int]], room: Sequence[int]) -> list[list[list[int]]]:
        inputs = _inputs(model, tokenizer, prompts, samples)
        output = model.generate(
            **inputs,
            max_new_tokens=max(1, *room),  # none is left if a tool's words just fitted
            num_return_sequences=samples,
            pad_token_id=tokenizer.pad_token_id,
            **generation_options(temperature),
        )
        groups: list[list[list[int]]] = [[] for _ in prompts]
        for number, tokens in enumerate(output[:, inputs["input_ids"].shape[1] :].tolist()):
            # up to the first end token and with it, without the padding after it
            length = next((at + 1 for at, token in enumerate(tokens) if token in ends), len(tokens))
            prompt = number // samples
            groups[prompt].append(tokens[: min(length, room[prompt])])
        return groups

    at_a_time = sys.maxsize  # prompts, as far as is known

    def complete(prompts: list[list[int]], room: Sequence[int]) -> list[list[list[int]]]:
        nonlocal at_a_time
        groups: list[list[list[int]]] = []
        while len(groups) < len(prompts):
            part = slice(len(groups), len(groups) + at_a_time)
            try:
                groups += generate(prompts[part], room[part])
            except torch.OutOfMemoryError:  # of a GPU: half as many from now on
                if len(prompts[part]) == 1:
                    raise
                at_a_time = len(prompts[part]) // 2
        return groups

    with sampling_mode(model):
        yield complete


def _inputs(model, tokenizer, prompts: list[list[int]], samples: int) -> dict:
    """Return prompts as `generate` takes them, padded on the left.

    What all of them begin with, a system prompt and worked examples, comes as a cache that is
    computed once, if a CPU saves time by it (PREFIX_PAYS).
    """
    shared = 0  # tokens; the last one of each prompt is not among them
    for tokens in zip(*(ids[:-1] for ids in prompts), strict=False):
        if len(set(tokens)) > 1:
            break
        shared += 1
    saved = shared * (len(prompts) * samples - 1) * model.num_parameters()
    if model.device.type != "cpu" or saved <= PREFIX_PAYS:
        shared = 0
    inputs = tokenizer.pad(
        {"input_ids": [ids[shared:] for ids in prompts]},
        padding_side="left",
        return_tensors="pt",
    ).to(model.device)
    if shared:
        tokens = torch.tensor([prompts[0][:shared]])
        cache = model(tokens, use_cache=True, logits_to_keep=1).past_key_values
        cache.batch_repeat_interleave(len(prompts) * samples)
        tokens = tokens.repeat(len(prompts), 1)
        mask = torch.ones_like(tokens)
        inputs["input_ids"] = torch.cat([tokens, inputs["input_ids"]], dim=1)
        inputs["attention_mask"] = torch.cat([mask, inputs["attention_mask"]], dim=1)
        inputs["past_key_values"] = cache
    return inputs


@contextmanager
def _with_vllm(model, temperature: float, samples: int, seed: int | None):
    """The same through the model's vLLM engine, with the adapter as it is now."""
    from vllm import SamplingParams

    context = context_of(model)
    draw = None if seed is None else torch.Generator().manual_seed(seed)
    request = None  # for the adapter, if there is one

    def complete(prompts: list[list[int]], room: Sequence[int]) -> list[list[list[int]]]:
        if max(len(ids) + left for ids, left in zip(prompts, room, strict=True)) > context:
            raise ValueError(
                f"a prompt of {max(map(len, prompts))} tokens and a completion of {max(room)} do "
                f"not fit into the engine's context of {context}: raise max_seq_length in notebook "
                "1, or sample with engine='transformers'."
            )
        parameters = [
            SamplingParams(
                n=samples,
                temperature=temperature,
                top_p=1.0,
                top_k=-1,
                max_tokens=max(1, left),
                # vLLM gives sample i of a request the seed `seed + i`. Far apart, so that no two
                # completions share random numbers.
                seed=torch.randint(2**62, (), generator=draw).item(),
            )
            for left in room
        ]
        outputs = model.fast_generate(
            # ids rather than text, which vLLM would give a second beginning-of-sequence token
            [{"prompt_token_ids": ids} for ids in prompts],
            sampling_params=parameters,
            lora_request=request,
            use_tqdm=False,
        )
        return [
            [list(completion.token_ids)[:left] for completion in output.outputs]
            for output, left in zip(outputs, room, strict=True)
        ]

    with tempfile.TemporaryDirectory() as folder:
        if getattr(model, "peft_config", None):
            model.save_pretrained(folder, selected_adapters=["default"])
            if hasattr(model, "load_lora"):  # Unsloth gives it only to adapters that it made
                request = model.load_lora(folder)
            else:
                from unsloth_zoo.vllm_utils import load_lora

                request = load_lora(model, folder)
        try:
            yield complete
        finally:
            if model.training:
                release(model)  # the next optimiser step needs the room
