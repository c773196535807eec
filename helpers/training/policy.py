"""Load a policy, give it an adapter, and sample completions from it.

    model, tokenizer = load(settings)
    model = add_adapter(model, settings, seed=3407)
    texts = sample(model, tokenizer, prompts, max_new_tokens=72, samples=8)

The model is loaded through Unsloth or through plain Transformers. It samples through vLLM if
Unsloth has started an engine for it, and through Transformers otherwise.
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

# --- Loading --------------------------------------------------------------------------------------


def load(settings: Preset, base: Base | None = None, *, sees: bool = False):
    """Return the model that the settings name and its tokenizer; the model has no adapter yet.

    base: the base of an existing adapter that will be put on the model (`base.py`). It is loaded in
        place of `settings.model`.
    sees: load the part that reads pictures as well, make room for a picture in the context, and
        return the processor in place of the tokenizer. Otherwise only the language part is loaded.

    With `load_in_4bit`, both back ends quantise to NF4 with double quantisation. With
    `engine="vllm"`, Unsloth starts a vLLM engine that shares the model's weights; for it, Unsloth
    may load another quantisation of the same model (`_vllm_plain_bnb_or_16bit`).

    ValueError if the loaded revision is not the base's, if Unsloth has started no engine, or if
    Unsloth is imported already and must not be (`needs_unsloth`).
    """
    on_gpu = torch.cuda.is_available()
    name = base.name if base else settings.model_path

    # import Unsloth before Transformers, or not at all
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

    # load through Unsloth, which also quantises and starts vLLM
    if settings.backend == "unsloth":
        if sees and not on_gpu:
            raise ValueError(
                "backend='unsloth' has no models that see on a CPU: take backend='transformers'."
            )
        loader = FastVisionModel if sees else FastLanguageModel
        vllm_options = {
            "fast_inference": True,
            "max_lora_rank": settings.max_lora_rank,
            "gpu_memory_utilization": settings.gpu_memory_utilization,
        }
        model, tokenizer = loader.from_pretrained(
            name,
            max_seq_length=settings.context + (room_for_a_picture(settings) if sees else 0),
            load_in_4bit=settings.load_in_4bit,
            **({} if sees else text_only(name)),
            **(vllm_options if settings.engine == "vllm" else {}),
        )

    # or load through Transformers, in the card's 16-bit type
    else:
        from transformers import AutoProcessor, AutoTokenizer

        bf16 = not on_gpu or torch.cuda.is_bf16_supported(including_emulation=False)
        dtype = torch.bfloat16 if bf16 else dtype_without_bf16(name)
        load_model = load_whole if sees else load_text
        model = load_model(
            name,
            dtype=dtype,
            device_map="cuda" if on_gpu else "cpu",
            quantization_config=nf4(dtype) if settings.load_in_4bit else None,
        )
        for module in model.modules():
            # On a CPU with AVX-512 bf16, bitsandbytes 0.50 repacks its weights at the first
            # evaluation. The backward pass through repacked weights is wrong (measured: gradients
            # of three quarters the norm). Unsloth's layers never repack.
            if hasattr(module, "support_avx512bf16_for_cpu"):
                module.support_avx512bf16_for_cpu = False
        load_tokenizer = AutoProcessor if sees else AutoTokenizer
        tokenizer = load_tokenizer.from_pretrained(name)

    # check and finish what either back end has loaded
    check_engine(model, settings)
    if base:
        base.check(model)
    set_thinking(tokenizer, settings.thinking)
    return model, tokenizer


def needs_unsloth(settings: Preset) -> bool:
    """Return whether Unsloth must be imported before a policy with these settings is trained.

    Without a GPU it must be, with either back end: TRL's loss is a Triton kernel, which runs on a
    CPU only as Unsloth replaces it. With `backend="transformers"` on a GPU it must not be: the
    import replaces `trl.GRPOTrainer` by a trainer that calls the model's `for_training`, a method
    only of models loaded by Unsloth (rl_replacements.py).
    """
    return settings.backend == "unsloth" or not torch.cuda.is_available()


def standby() -> None:
    """Let vLLM free its cache while the policy trains, and obey `gpu_memory_utilization`.

    Call this before importing Unsloth, which reads both variables at import.
    """
    os.environ["UNSLOTH_VLLM_STANDBY"] = "1"
    os.environ["UNSLOTH_VLLM_STANDBY_UTIL_OVERRIDE"] = "1"


def check_engine(model, settings: Preset) -> None:
    """Raise ValueError if the settings ask for vLLM and Unsloth has started no engine: on some
    cards Unsloth falls back to its own sampling.
    """
    if settings.engine == "vllm" and engine_of(model) != "vllm":
        raise ValueError(
            "Unsloth has started no vLLM engine on this card (it says why above). Take `-p "
            "engine=transformers`."
        )


def load_whole(name: str, **options):
    """Return a model loaded through Transformers, including the part that reads pictures."""
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    sees = "vision_config" in config_of(name)
    auto = AutoModelForImageTextToText if sees else AutoModelForCausalLM
    return auto.from_pretrained(name, **options)


def load_text(name: str, **options):
    """Return a text model loaded through Transformers, or the language part of a vision model."""
    from transformers import AutoModelForCausalLM

    part = _language_part(name)
    model = AutoModelForCausalLM.from_pretrained(name, **part, **options)
    if part:  # do not save the weights under the names they have in the whole model
        model._weight_conversions = [
            conversion
            for conversion in model._weight_conversions
            if not set(conversion.source_patterns) & _LANGUAGE_NAMES.keys()
        ]
    return model


def text_only(name: str) -> dict:
    """Return the keywords that make Unsloth's FastLanguageModel load only the language part of a
    vision model. They are empty for a text model.

    Without these keywords Unsloth returns a processor as the tokenizer, and a processor takes texts
    for pictures. Unsloth's CPU backend does not know `text_only`; it passes its keywords on to
    Transformers.
    """
    part = _language_part(name)
    return {"text_only": True} if part and torch.cuda.is_available() else part


def _language_part(name: str) -> dict:
    """Return the keywords that make Transformers load only the language part of a vision model.
    They are empty for a text model.
    """
    if "vision_config" not in config_of(name):
        return {}
    from transformers import AutoConfig

    whole = AutoConfig.from_pretrained(name)
    text = whole.get_text_config()
    stored = getattr(whole, "quantization_config", None)
    if stored:
        # it lists the layers kept in 16 bits by their names in the whole model
        stored = dict(stored if isinstance(stored, dict) else stored.to_dict())
        stored["llm_int8_skip_modules"] = [
            re.sub(r"^(language_model\.model|model\.language_model)(?=\.|$)", "model", layer)
            for layer in stored.get("llm_int8_skip_modules") or []
        ]
        text.quantization_config = stored
    return {"config": text, "key_mapping": _LANGUAGE_NAMES}


# Prefixes of weight names in a vision model, and in its language part loaded alone:
# _get_text_only_key_mapping of unsloth/models/_utils.py 2322.
_LANGUAGE_NAMES = {
    r"^language_model\.model\.": "model.",
    r"^model\.language_model\.": "model.",
    r"^language_model\.lm_head\.": "lm_head.",
}


def dtype_without_bf16(name: str) -> torch.dtype:
    """Return the type a model computes in on a card without bfloat16: float16, or float32 if the
    model's activations overflow float16.
    """
    overflows = family_of(config_of(name).get("model_type", "")).overflows
    return torch.float32 if overflows else torch.float16


def nf4(dtype: torch.dtype):
    """Return the suite's quantisation for Transformers: 4-bit NormalFloat with double quantisation
    (QLoRA, arXiv 2305.14314, section 3), computing in `dtype`.

    Unsloth's `load_in_4bit` quantises a 16-bit checkpoint the same way. A checkpoint stored in 4
    bits keeps its own quantisation, whatever is passed.
    """
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
    )


# --- The adapter ----------------------------------------------------------------------------------


def add_adapter(model, settings: Preset, seed: int, *, sees: bool = False):
    """Return the model with fresh LoRA matrices, drawn with this seed, on the linear maps of its
    layers.

    sees: the model reads pictures. The vision tower gets no adapter, because with vLLM Unsloth
        refuses one there. PEFT alone also adapts the projector between tower and language part.
        Unsloth selects modules by name, and neither `finetune_vision_layers` nor
        `finetune_language_layers` covers the projector (Qwen3-VL, Gemma 3).
    """
    seed_everything(seed)

    # through Unsloth
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
    """Return the model; raise RuntimeError if a trainer already used it.

    A second training run would start from a trained policy and report it as untrained. TRL's own
    error only says that the adapter `ref` already exists; Unsloth's GPU trainer raises nothing.
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
    """Make the current policy the reference of the KL: copy its adapter into a frozen adapter
    `ref`, unless there is one.

    Call this between the trainer's constructor and `train()` if the adapter has been trained
    before. (A fresh adapter needs no copy: it changes nothing, so the model without an adapter is
    the same reference.) TRL's `GRPOTrainer` makes the copy itself. Unsloth's GPU trainer does not
    (unsloth/models/rl.py, "Skip add_adapter"), but uses an existing `ref`.
    """
    if "ref" in model.peft_config:
        return
    # PEFT initialises the new adapter at random before the copy below
    with torch.random.fork_rng(random_devices(model)):
        model.add_adapter("ref", model.peft_config["default"])
    for name, weight in model.named_parameters():
        if ".default." in name:
            model.get_parameter(name.replace(".default.", ".ref.")).data.copy_(weight.data)


# --- Sampling -------------------------------------------------------------------------------------


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
    """Return `samples` completions for each chat prompt, in the order of the prompts.

    temperature: 0 is greedy decoding, for which one sample per prompt is enough.
    batch_size: completions sampled at a time; None: BATCH.

    vLLM samples with the adapter's current weights. Whether the model thinks before it answers is
    stored in the tokenizer (`templates.set_thinking`).

    Sampling during a training run does not change the run: the model's training mode, gradient
    checkpointing, cache setting and the random state are restored, and a vLLM engine gives its
    memory back.
    """
    texts = [render(tokenizer, prompt) for prompt in prompts]
    ids = tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []
    # batch prompts of similar length, so that there is little padding
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    prompts_at_a_time = max(1, (batch_size or BATCH[engine_of(model)]) // samples)
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
        for start in range(0, len(order), prompts_at_a_time):
            batch = order[start : start + prompts_at_a_time]
            groups = complete([ids[i] for i in batch])
            for i, group in zip(batch, groups, strict=True):
                completions[i] = tokenizer.batch_decode(group, skip_special_tokens=True)
            bar.update(len(batch))
    return completions


# Completions sampled at a time. vLLM queues those it has no memory for.
BATCH = {"transformers": 256, "vllm": 1024}


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
    """Open a context whose value is a function `complete(prompts, room=())`.

    The function takes prompts as lists of token ids. For each prompt it returns `samples`
    completions, also as token ids, each including its end token. `room` limits the tokens of each
    prompt's completions; without it the limit is `max_new_tokens`.

    Calls within one context continue one stream of random numbers, so that all turns of an episode
    are drawn from the same seed. seed: None uses torch's global random state, as TRL does.
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


@contextmanager
def _with_transformers(model, tokenizer, temperature: float, samples: int):
    """Open a context whose value is a function from prompts, and the room that each has left, to
    their completions. It samples through Transformers' `generate`.
    """
    head = model.get_output_embeddings()
    if model.device.type == "cpu" and not head._forward_pre_hooks:
        # `generate` passes the head a slice: the last token of each prompt. For a 3-D input that is
        # not contiguous, torch multiplies batch by batch, and in bf16 it copies the head's weights
        # for each prompt: 19 GB for 64 prompts and 152,000 tokens (pytorch issue 186148). The hook
        # stays on the model, because TRL's own sampling needs it too.
        head.register_forward_pre_hook(lambda _, inputs: (inputs[0].contiguous(),))

    # the tokens that end a completion; the generation config may list several
    ends = model.generation_config.eos_token_id
    ends = tokenizer.eos_token_id if ends is None else ends
    ends = {ends} if isinstance(ends, int) else set(ends or [])

    def generate(prompts: list[list[int]], room: Sequence[int]) -> list[list[list[int]]]:
        inputs = _left_padded(model, tokenizer, prompts, samples)
        output = model.generate(
            **inputs,
            max_new_tokens=max(1, *room),  # a tool's reply may have used up all the room
            num_return_sequences=samples,
            pad_token_id=tokenizer.pad_token_id,
            **generation_options(temperature),
        )
        groups: list[list[list[int]]] = [[] for _ in prompts]
        for number, tokens in enumerate(output[:, inputs["input_ids"].shape[1] :].tolist()):
            # keep the end token and drop the padding after it
            length = next((at + 1 for at, token in enumerate(tokens) if token in ends), len(tokens))
            prompt = number // samples
            groups[prompt].append(tokens[: min(length, room[prompt])])
        return groups

    at_a_time = sys.maxsize  # prompts; halved whenever the GPU runs out of memory

    def complete(prompts: list[list[int]], room: Sequence[int]) -> list[list[list[int]]]:
        nonlocal at_a_time
        groups: list[list[list[int]]] = []
        while len(groups) < len(prompts):
            part = slice(len(groups), len(groups) + at_a_time)
            try:
                groups += generate(prompts[part], room[part])
            except torch.OutOfMemoryError:
                if len(prompts[part]) == 1:
                    raise
                at_a_time = len(prompts[part]) // 2
        return groups

    with sampling_mode(model):
        yield complete


def _left_padded(model, tokenizer, prompts: list[list[int]], samples: int) -> dict:
    """Return a batch of prompts as inputs of `generate`, padded on the left.

    Prompts often begin with the same tokens: the system prompt and the worked examples. On a CPU
    these are computed once and passed as a cache, if that saves more than PREFIX_PAYS.
    """
    # count the shared tokens; `generate` needs at least one token of each prompt beside the cache
    shared = 0
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


# Multiplications, about a second on a CPU. The embedded models' prompts stay below: each is then
# computed by itself.
PREFIX_PAYS = 1e11


@contextmanager
def _with_vllm(model, temperature: float, samples: int, seed: int | None):
    """Open the same context as `_with_transformers`, sampling through the model's vLLM engine with
    the adapter's current weights.
    """
    from vllm import SamplingParams

    context = context_of(model)
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    adapter = None  # vLLM's request for the adapter, if there is one

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
                # vLLM gives sample i of a request the seed `seed + i`. The seeds of two requests
                # are far apart, so that no two completions share random numbers.
                seed=torch.randint(2**62, (), generator=generator).item(),
            )
            for left in room
        ]
        outputs = model.fast_generate(
            # token ids: vLLM would add a second beginning-of-sequence token to a text
            [{"prompt_token_ids": ids} for ids in prompts],
            sampling_params=parameters,
            lora_request=adapter,
            use_tqdm=False,
        )
        return [
            [list(completion.token_ids)[:left] for completion in output.outputs]
            for output, left in zip(outputs, room, strict=True)
        ]

    with tempfile.TemporaryDirectory() as folder:
        if getattr(model, "peft_config", None):
            model.save_pretrained(folder, selected_adapters=["default"])
            if hasattr(model, "load_lora"):  # only on adapters that Unsloth made
                adapter = model.load_lora(folder)
            else:
                from unsloth_zoo.vllm_utils import load_lora

                adapter = load_lora(model, folder)
        try:
            yield complete
        finally:
            if model.training:
                release(model)  # the next optimiser step needs the memory


def engine_of(model) -> str:
    """Return what samples from this model: "vllm" if it has an engine, else "transformers"."""
    return "transformers" if getattr(model, "vllm_engine", None) is None else "vllm"


def context_of(model) -> int | None:
    """Return the most tokens that a prompt and its completion may have together: the limit of the
    vLLM engine, or of the model; None if neither is known.
    """
    if engine_of(model) == "vllm":
        return model.vllm_engine.llm_engine.vllm_config.model_config.max_model_len
    return getattr(model.config, "max_position_embeddings", None)


def release(model=None) -> None:
    """Free the GPU memory that sampling holds: the cache of the model's vLLM engine, if any, and
    torch's unused blocks.

    The engine shares the model's weights. They are freed once nothing refers to the model.
    """
    engine = getattr(model, "vllm_engine", None)
    can_sleep = engine is not None and engine.llm_engine.vllm_config.model_config.enable_sleep_mode
    if can_sleep and not engine.llm_engine.is_sleeping():  # vLLM warns if it sleeps already
        engine.sleep(level=1)
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def generation_options(temperature: float) -> dict:
    """Return the sampling keywords of `generate`. All are explicit, because a model may ship other
    values in its generation config, such as a top_k or a repetition penalty.
    """
    options = {"do_sample": temperature > 0, "repetition_penalty": 1.0}
    if temperature > 0:
        options |= {"temperature": temperature, "top_k": 0, "top_p": 1.0}
    return options


@contextmanager
def sampling_mode(model):
    """Let a model sample in this context: no gradients, no dropout, and the key-value cache on. The
    model's modes are restored at the end.
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
                # Unsloth's `generate` turns gradient checkpointing off, and turns it on again only
                # if it was called in training mode.
                checkpointing = getattr(model, "_unsloth_gradient_checkpointing", None)
                model.for_training(use_gradient_checkpointing=checkpointing)
            else:
                model.train(was_training)
            config.use_cache = had_cache


def random_devices(model) -> list:
    """Return the devices besides the CPU on which a model draws random numbers, for torch's
    `fork_rng`.
    """
    return [model.device] if model.device.type == "cuda" else []
