"""Load a policy and give it an adapter.

    model, tokenizer = load(settings)
    model = add_adapter(model, settings, seed=3407)

The model is loaded through Unsloth or through plain Transformers, in 16 or 4 bits: read `load`
first; the functions below it load a part of a model, or in another precision. `sampling.py` samples
completions from the model, and `reference.py` prepares it for a trainer.
"""

import os
import re
import sys
from typing import TYPE_CHECKING

import torch

from helpers.environment import gpu_obstacle, this_machine
from helpers.families import LORA_TARGETS, config_of, family_of, lora_targets
from helpers.runs import seed_everything
from helpers.settings import Preset
from helpers.templates import set_thinking
from helpers.training.base import Base
from helpers.training.memory import room_for_a_picture
from helpers.training.sampling import engine_of
from helpers.training.stops import set_stop

if TYPE_CHECKING:  # when the code runs, Unsloth must be imported before these
    from peft import PeftModel
    from transformers import BitsAndBytesConfig, PreTrainedModel
    from transformers import PreTrainedTokenizerBase as Tokenizer

# --- Loading --------------------------------------------------------------------------------------


def load(
    settings: Preset, base: Base | None = None, *, sees: bool = False
) -> tuple["PreTrainedModel", "Tokenizer"]:
    """Return the model named by the settings, without an adapter, and its tokenizer.

    base: the base of an existing adapter that will be put on the model (`base.py`). It is loaded in
        place of `settings.model`.
    sees: whether the policy reads pictures. Then the part that reads them is loaded as well, and
        the processor is returned in place of the tokenizer. Otherwise only the language part is
        loaded.

    Raise ValueError if torch cannot use the machine's GPU, if the loaded revision is not the
    base's, if Unsloth has started no engine, or if Unsloth is imported already and must not be
    (`needs_unsloth`).
    """
    # 1. Refuse a GPU that torch cannot use.
    if obstacle := gpu_obstacle(this_machine(), seen=torch.cuda.is_available()):
        raise ValueError(obstacle)
    name = base.name if base else settings.model_path

    # 2. Import Unsloth before Transformers, or not at all.
    import_unsloth(settings)
    if "unsloth" in sys.modules and not needs_unsloth(settings):
        raise ValueError(
            "backend='transformers' on a GPU trains without Unsloth, which this process has "
            "imported: its patches stay, and TRL's trainer is replaced by one for Unsloth's own "
            "models. Restart the kernel."
        )

    # 3. Load the model through one of the back ends.
    if settings.backend == "unsloth":
        model, tokenizer = _load_through_unsloth(name, settings, with_vision=sees)
    else:
        model, tokenizer = _load_through_transformers(name, settings, with_vision=sees)

    # 4. Check the model, and store in the tokenizer whether the model thinks and which texts end a
    # completion.
    check_engine(model, settings)
    if base:
        base.check(model)
    set_thinking(tokenizer, settings.thinking)
    set_stop(tokenizer, settings.stop)
    return model, tokenizer


def import_unsloth(settings: Preset) -> None:
    """Set vLLM's standby mode and import Unsloth, if these settings need them.

    Call this before importing Transformers, which Unsloth patches.
    """
    if settings.engine == "vllm":
        standby()
    if needs_unsloth(settings):
        import unsloth  # noqa: F401


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


def _load_through_unsloth(
    name: str, settings: Preset, with_vision: bool
) -> tuple["PreTrainedModel", "Tokenizer"]:
    """Return the model `name` and its tokenizer, or its processor if `with_vision`. Raise
    ValueError if it is loaded `with_vision` on a CPU.

    Unsloth quantises the model to 4 bits itself, as `nf4` does. With `engine="vllm"`, it also
    starts a vLLM engine that shares the model's weights; for the engine, it may load another
    quantisation of the same model (`_vllm_plain_bnb_or_16bit`).
    """
    from unsloth import FastLanguageModel, FastVisionModel

    loading = {"max_seq_length": settings.context, "load_in_4bit": settings.load_in_4bit}
    if not with_vision:
        loader = FastLanguageModel
        loading |= text_only(name)
    elif torch.cuda.is_available():
        loader = FastVisionModel
        loading["max_seq_length"] += room_for_a_picture(settings)
    else:
        raise ValueError(
            "backend='unsloth' has no vision models on a CPU: use backend='transformers'."
        )
    if settings.engine == "vllm":
        loading |= {
            "fast_inference": True,
            "max_lora_rank": settings.max_lora_rank,
            "gpu_memory_utilization": settings.gpu_memory_utilization,
        }
    return loader.from_pretrained(name, **loading)


def _load_through_transformers(
    name: str, settings: Preset, with_vision: bool
) -> tuple["PreTrainedModel", "Tokenizer"]:
    """Return the model `name`, in 4 bits or in the machine's own type, and its tokenizer, or its
    processor if `with_vision`.
    """
    from transformers import AutoProcessor, AutoTokenizer

    dtype = _dtype_to_compute_in(name)
    options = {
        "dtype": dtype,
        "device_map": "cuda" if torch.cuda.is_available() else "cpu",
        "quantization_config": nf4(dtype) if settings.load_in_4bit else None,
    }
    if with_vision:
        model = load_whole(name, **options)
        tokenizer = AutoProcessor.from_pretrained(name)
    else:
        model = load_text(name, **options)
        tokenizer = AutoTokenizer.from_pretrained(name)

    # On a CPU with AVX-512 bf16, bitsandbytes 0.50 repacks its weights at the first evaluation. The
    # backward pass through repacked weights is wrong (measured: gradients of three quarters the
    # norm). Unsloth's layers never repack.
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False
    return model, tokenizer


def _dtype_to_compute_in(name: str) -> torch.dtype:
    """Return the floating-point type in which this machine computes with a model: bfloat16 if the
    hardware has it, because torch would emulate it elsewhere. On AVX2, an emulated matrix product
    took 31 times as long as one in float32.
    """
    if not torch.cuda.is_available():
        from unsloth import is_bfloat16_supported

        return torch.bfloat16 if is_bfloat16_supported() else torch.float32
    if torch.cuda.is_bf16_supported(including_emulation=False):
        return torch.bfloat16
    return dtype_without_bf16(name)


def dtype_without_bf16(name: str) -> torch.dtype:
    """Return the floating-point type to compute in on a card without bfloat16: float16, or float32
    if the model's activations overflow float16.
    """
    family = family_of(config_of(name).get("model_type", ""))
    return torch.float32 if family.overflows else torch.float16


def nf4(dtype: torch.dtype) -> "BitsAndBytesConfig":
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


def load_whole(name: str, **options) -> "PreTrainedModel":
    """Return a model loaded through Transformers, including the part that reads pictures."""
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    if "vision_config" in config_of(name):
        return AutoModelForImageTextToText.from_pretrained(name, **options)
    return AutoModelForCausalLM.from_pretrained(name, **options)


def load_as_stored(name: str) -> "PreTrainedModel":
    """Return a whole model to sample from, in the data type that it is stored in, on the GPU if
    there is one.
    """
    where = "cuda" if torch.cuda.is_available() else "cpu"
    return load_whole(name, dtype="auto", device_map=where).eval()


# How a vision model names the weights of its language part, and how the language part names them
# when it is loaded alone (Unsloth's `_get_text_only_key_mapping`).
_LANGUAGE_NAMES = {
    r"^language_model\.model\.": "model.",
    r"^model\.language_model\.": "model.",
    r"^language_model\.lm_head\.": "lm_head.",
}


def load_text(name: str, **options) -> "PreTrainedModel":
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

    Without these keywords, Unsloth returns a processor as the tokenizer, and a processor treats
    text as images. Unsloth's CPU backend has no `text_only` argument, so on a CPU the dictionary
    holds keywords for Transformers instead.
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
        prefix = r"^(language_model\.model|model\.language_model)(?=\.|$)"
        in_16_bits = quantisation.get("llm_int8_skip_modules") or []
        renamed = [re.sub(prefix, "model", layer) for layer in in_16_bits]
        text.quantization_config = quantisation | {"llm_int8_skip_modules": renamed}
    return {"config": text, "key_mapping": _LANGUAGE_NAMES}


# --- The adapter ----------------------------------------------------------------------------------


def add_adapter(model, settings: Preset, seed: int, *, sees: bool = False) -> "PeftModel":
    """Return the model with a fresh LoRA adapter on the linear maps of its layers.

    seed: of the adapter's random matrices.
    sees: whether the policy reads pictures. The vision tower gets no adapter, because with vLLM
        Unsloth refuses one there. A `multi_modal_projector` with linear maps gets one only through
        PEFT: neither `finetune_vision_layers` nor `finetune_language_layers` of Unsloth covers it.
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
