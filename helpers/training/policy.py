"""Load a policy and give it an adapter.

    model, tokenizer = load(settings)
    model = add_adapter(model, settings, seed=3407)

The model is loaded through Unsloth or through plain Transformers, in 16 or 4 bits: read `load`
first; the functions below it load a part of a model, or in another precision. The trainer then gets
`claim_for_training(model)`. `sampling.py` samples completions from the model.
"""

import functools
import os
import re
import sys
from weakref import WeakSet

import torch

from helpers.environment import gpu_obstacle, this_machine
from helpers.families import LORA_TARGETS, config_of, family_of, lora_targets
from helpers.runs import seed_everything
from helpers.settings import Preset
from helpers.templates import set_thinking
from helpers.training.base import Base
from helpers.training.memory import room_for_a_picture
from helpers.training.sampling import engine_of, random_devices
from helpers.training.stops import set_stop

# --- Loading --------------------------------------------------------------------------------------


def load(settings: Preset, base: Base | None = None, *, sees: bool = False):
    """Return the model named by the settings, without an adapter, and its tokenizer.

    base: the base of an existing adapter that will be put on the model (`base.py`). It is loaded in
        place of `settings.model`.
    sees: load the part that reads pictures as well, make room for a picture in the context, and
        return the processor in place of the tokenizer. Otherwise only the language part is loaded.

    With `load_in_4bit`, both back ends quantise to NF4 with double quantisation. With
    `engine="vllm"`, Unsloth starts a vLLM engine that shares the model's weights; for it, Unsloth
    may load another quantisation of the same model (`_vllm_plain_bnb_or_16bit`).

    ValueError if torch cannot use the machine's GPU, if the loaded revision is not the base's, if
    Unsloth has started no engine, or if Unsloth is imported already and must not be
    (`needs_unsloth`).
    """
    on_gpu = torch.cuda.is_available()
    if obstacle := gpu_obstacle(this_machine(), seen=on_gpu):
        raise ValueError(obstacle)
    name = base.name if base else settings.model_path

    # 1. Import Unsloth before Transformers, or not at all.
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

    # 2. Load the model through Unsloth, which also quantises it and starts vLLM.
    if settings.backend == "unsloth":
        if sees and not on_gpu:
            raise ValueError(
                "backend='unsloth' has no vision models on a CPU: use backend='transformers'."
            )
        loading = {"max_seq_length": settings.context, "load_in_4bit": settings.load_in_4bit}
        if sees:
            loader = FastVisionModel
            loading["max_seq_length"] += room_for_a_picture(settings)
        else:
            loader = FastLanguageModel
            loading |= text_only(name)
        if settings.engine == "vllm":
            loading |= {
                "fast_inference": True,
                "max_lora_rank": settings.max_lora_rank,
                "gpu_memory_utilization": settings.gpu_memory_utilization,
            }
        model, tokenizer = loader.from_pretrained(name, **loading)

    # 3. Or load it through Transformers, in the machine's 16-bit type.
    else:
        from transformers import AutoProcessor, AutoTokenizer

        if not on_gpu:
            from unsloth import is_bfloat16_supported

            # elsewhere torch emulates it: on AVX2, a matrix product took 31 times as long
            dtype = torch.bfloat16 if is_bfloat16_supported() else torch.float32
        elif torch.cuda.is_bf16_supported(including_emulation=False):
            dtype = torch.bfloat16
        else:
            dtype = dtype_without_bf16(name)
        load_model = load_whole if sees else load_text
        model = load_model(
            name,
            dtype=dtype,
            device_map="cuda" if on_gpu else "cpu",
            quantization_config=nf4(dtype) if settings.load_in_4bit else None,
        )
        # On a CPU with AVX-512 bf16, bitsandbytes 0.50 repacks its weights at the first evaluation.
        # The backward pass through repacked weights is wrong (measured: gradients of three quarters
        # the norm). Unsloth's layers never repack.
        for module in model.modules():
            if hasattr(module, "support_avx512bf16_for_cpu"):
                module.support_avx512bf16_for_cpu = False
        tokenizer_class = AutoProcessor if sees else AutoTokenizer
        tokenizer = tokenizer_class.from_pretrained(name)

    # 4. Check the model, and store in the tokenizer whether the model thinks and which texts end a
    # completion.
    check_engine(model, settings)
    if base:
        base.check(model)
    set_thinking(tokenizer, settings.thinking)
    set_stop(tokenizer, settings.stop)
    return model, tokenizer


def needs_unsloth(settings: Preset) -> bool:
    """Return whether Unsloth must be imported before a policy with these settings is trained.

    Without a GPU, training needs Unsloth with either back end: TRL's loss is a Triton kernel, and
    only Unsloth's replacement runs on a CPU. With `backend="transformers"` on a GPU, Unsloth must
    not be imported: it replaces `trl.GRPOTrainer` by a trainer that calls the model's
    `for_training`, and only models loaded by Unsloth have this method (rl_replacements.py).
    """
    return settings.backend == "unsloth" or not torch.cuda.is_available()


def standby() -> None:
    """Make vLLM free its cache while the policy trains, and obey `gpu_memory_utilization`.

    Call this before importing Unsloth, which reads both variables at import.
    """
    os.environ.update(UNSLOTH_VLLM_STANDBY="1", UNSLOTH_VLLM_STANDBY_UTIL_OVERRIDE="1")


def check_engine(model, settings: Preset) -> None:
    """Raise ValueError if the settings ask for vLLM and Unsloth has started no engine.

    On some cards Unsloth falls back to its own sampling.
    """
    if settings.engine == "vllm" and engine_of(model) != "vllm":
        raise ValueError(
            "Unsloth has started no vLLM engine on this card (it says why above). Use `-p "
            "engine=transformers`."
        )


def load_whole(name: str, **options):
    """Return a model loaded through Transformers, including the part that reads pictures."""
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    if "vision_config" in config_of(name):
        return AutoModelForImageTextToText.from_pretrained(name, **options)
    return AutoModelForCausalLM.from_pretrained(name, **options)


def load_as_stored(name: str):
    """Return a whole model to sample from, in the data type that it is stored in, on the GPU if
    there is one.
    """
    where = "cuda" if torch.cuda.is_available() else "cpu"
    return load_whole(name, dtype="auto", device_map=where).eval()


# How a vision model names the weights of its language part, and how the language part names them
# when it is loaded alone (_get_text_only_key_mapping, unsloth/models/_utils.py 2322).
_LANGUAGE_NAMES = {
    r"^language_model\.model\.": "model.",
    r"^model\.language_model\.": "model.",
    r"^language_model\.lm_head\.": "lm_head.",
}


def load_text(name: str, **options):
    """Return a text model loaded through Transformers, or the language part of a vision model."""
    from transformers import AutoModelForCausalLM

    language_part = _language_part(name)
    model = AutoModelForCausalLM.from_pretrained(name, **language_part, **options)
    if language_part:
        # forget how the weights were renamed: `save_pretrained` would rename them back
        model._weight_conversions = [
            conversion
            for conversion in model._weight_conversions
            if _LANGUAGE_NAMES.keys().isdisjoint(conversion.source_patterns)
        ]
    return model


def text_only(name: str) -> dict:
    """Return the keywords that make Unsloth's FastLanguageModel load only the language part of a
    vision model: an empty dictionary for a text model.

    Without these keywords Unsloth returns a processor as the tokenizer, and a processor takes texts
    for pictures. Unsloth's CPU backend does not know `text_only`; there the keywords are those
    that it passes on to Transformers.
    """
    language_part = _language_part(name)
    if language_part and torch.cuda.is_available():
        return {"text_only": True}
    return language_part


def _language_part(name: str) -> dict:
    """Return the keywords that make Transformers load only the language part of a vision model: an
    empty dictionary for a text model.
    """
    if "vision_config" not in config_of(name):
        return {}
    from transformers import AutoConfig

    whole = AutoConfig.from_pretrained(name)
    text = whole.get_text_config()

    # a checkpoint stored in 4 bits lists the layers kept in 16 bits; rename these, too
    quantisation = getattr(whole, "quantization_config", None)
    if quantisation:
        if not isinstance(quantisation, dict):
            quantisation = quantisation.to_dict()
        prefix = r"^(language_model\.model|model\.language_model)(?=\.|$)"
        in_16_bits = quantisation.get("llm_int8_skip_modules") or []
        renamed = [re.sub(prefix, "model", layer) for layer in in_16_bits]
        text.quantization_config = quantisation | {"llm_int8_skip_modules": renamed}
    return {"config": text, "key_mapping": _LANGUAGE_NAMES}


def dtype_without_bf16(name: str) -> torch.dtype:
    """Return the floating-point type to compute in on a card without bfloat16: float16, or float32
    if the model's activations overflow float16.
    """
    family = family_of(config_of(name).get("model_type", ""))
    return torch.float32 if family.overflows else torch.float16


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
    """Return the model with a fresh LoRA adapter on the linear maps of its layers.

    seed: of the adapter's random matrices.
    sees: the model reads pictures. The vision tower gets no adapter, because with vLLM Unsloth
        refuses one there. The projector between the tower and the language part gets one only
        through PEFT: neither `finetune_vision_layers` nor `finetune_language_layers` of Unsloth
        covers it (Qwen3-VL, Gemma 3).
    """
    seed_everything(seed)

    # 1. Through Unsloth.
    if settings.backend == "unsloth":
        from unsloth import FastLanguageModel, FastVisionModel

        lora = {
            "r": settings.lora_rank,
            "lora_alpha": settings.lora_alpha,
            # "unsloth": on a GPU, the layers' inputs wait in the computer's memory; True keeps them
            # on the card
            "use_gradient_checkpointing": "unsloth" if settings.gradient_checkpointing else False,
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

    # 2. Through PEFT alone.
    from peft import LoraConfig, get_peft_model

    targets = lora_targets(model)
    if sees:  # the linear maps of the language part, and those of the projector
        family = family_of(model.config.get_text_config().model_type)
        names = "|".join(family.targets or LORA_TARGETS)
        targets = rf".*(language_model\..*\.({names})|multi_modal_projector\..*linear\w*)"
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
    """Return the model, and remember that a trainer has it. RuntimeError at the second call.

    A second training run would start from a trained policy and report it as untrained. TRL's own
    error only says that the adapter `ref` already exists; Unsloth's GPU trainer raises nothing.
    """
    if model in _claimed:
        raise RuntimeError(
            "This cell has been run before, and the model that it trains is no longer untrained: "
            "choose Kernel > Restart Kernel and Run All Cells. An interrupted training continues "
            "from its last checkpoint."
        )
    _claimed.add(model)
    return model


_claimed: WeakSet = WeakSet()  # the models that a trainer has


def begin_again(model, fresh: dict[str, torch.Tensor]) -> None:
    """Make a trained policy the untrained one again, for another training run with the same engine.

    fresh: copies of the adapter's weights from before the first training run, by name.

    TRL's copy of the adapter (`ref`) is removed, and a trainer may claim the model again.
    """
    if "ref" in model.peft_config:
        model.delete_adapter("ref")
    for name, weight in fresh.items():
        model.get_parameter(name).data.copy_(weight)
    _claimed.discard(model)


def freeze_reference(model) -> None:
    """Make the current policy the reference of the KL: copy its adapter into a frozen adapter
    `ref`, unless the model has a `ref` already.

    Call this between the trainer's constructor and `train()` if the adapter has been trained
    before. A fresh adapter changes nothing, so the model without an adapter serves as its
    reference. TRL's `GRPOTrainer` makes the copy itself. Unsloth's GPU trainer does not
    (unsloth/models/rl.py, "Skip add_adapter"), but uses an existing `ref`.
    """
    if engine_of(model) == "vllm":
        _send_vllm_only_the_policy()
    if "ref" in model.peft_config:
        return
    # PEFT initialises the new adapter at random before the copy below
    with torch.random.fork_rng(random_devices(model)):
        model.add_adapter("ref", model.peft_config["default"])
    for name, weight in model.named_parameters():
        if ".default." in name:
            model.get_parameter(name.replace(".default.", ".ref.")).data.copy_(weight.data)


@functools.cache  # once per process
def _send_vllm_only_the_policy() -> None:
    """Make Unsloth send vLLM the tensors of the adapter `default` alone.

    Unsloth's `_build_lora_request` (unsloth_zoo/vllm_utils.py 7208) takes those of every adapter
    from the model's state, and vLLM raises at those of `ref`. Every request with an adapter's
    tensors is built there, even one in place of a merged rollout.
    """
    from unsloth_zoo import vllm_utils

    build = vllm_utils._build_lora_request

    def build_from_default(model, *args, **options):
        # only meanwhile: a checkpoint holds both adapters
        with model.register_state_dict_post_hook(_drop_other_adapters):
            return build(model, *args, **options)

    vllm_utils._build_lora_request = build_from_default


def _drop_other_adapters(model, state: dict, prefix: str, metadata) -> None:
    """Remove the LoRA tensors of other adapters than `default` from a model's state."""
    for name in list(state):
        if re.search(r"\.lora_[AB]\.(?!default\b)", name):
            del state[name]
