"""Facts about model families that training depends on, and the sizes of the presets' models.

FAMILIES has one row per `model_type`, which also holds for its language part, `…_text`. CONFIGS has
the config.json values of single models. The facts come from the sources of Unsloth and unsloth_zoo
2026.10.9 and Transformers 5.17; tests compare them with the installed packages where possible.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path

from helpers.printing import shorten

# The linear maps of an ordinary layer: attention, then MLP.
LORA_TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


@dataclass(frozen=True)
class Family:
    """One row of FAMILIES. A name in brackets with a file is where a package states the column.

    targets: names of the linear maps that get an adapter; empty: every linear map except the head
        (PEFT's all-linear).
    in_4_bits: whether 4-bit weights are advisable for training; Unsloth advises against them for
        some families.
    experts_in_4_bits: whether Unsloth quantises experts as well; otherwise they stay in 16 bits.
    vllm_from: the lowest compute capability on which Unsloth starts vLLM; None: it never does
        (VLLM_UNSUPPORTED_MODEL_TYPES, VLLM_NEEDS_SM80_MODEL_TYPES, unsloth/models/loader.py).
    sees_through_vllm: whether Unsloth starts vLLM for prompts with pictures (VLLM_SUPPORTED_VLM,
        unsloth/models/vision.py).
    language_part: whether the language part of a vision model can be loaded, trained and merged
        alone (_is_family_text_decoder, unsloth/models/_utils.py, and Transformers). No family
        without it has been tried.
    overflows: whether activations overflow float16 (FORCE_FLOAT32, unsloth_zoo/model_lists.py).
    """

    targets: tuple[str, ...] = tuple(LORA_TARGETS)
    in_4_bits: bool = True
    experts_in_4_bits: bool = False
    vllm_from: float | None = 0.0
    sees_through_vllm: bool = False
    language_part: bool = False
    overflows: bool = False


def family_of(model_type: str) -> Family:
    """Return the row of a `model_type`. A family without a row gets an adapter on every linear
    map.
    """
    return FAMILIES.get(model_type.removesuffix("_text"), Family(targets=()))


def lora_targets(model) -> list[str] | str:
    """Return the `target_modules` of a model's adapter, for PEFT and Unsloth: a list of names, a
    regular expression, or "all-linear".

    Targets other than the usual seven are given as an expression. Unsloth would narrow a list of
    names to its own lists of attention and MLP layers (FastBaseModel.get_peft_model,
    unsloth/models/vision.py), which miss LFM2's convolutions.
    """
    targets = family_of(model.config.get_text_config().model_type).targets
    if not targets:
        return "all-linear"
    return LORA_TARGETS if list(targets) == LORA_TARGETS else rf".*\.({'|'.join(targets)})"


_QWEN3_5 = Family(
    # Three of four layers have linear attention (transformers/models/qwen3_5). Its in_proj_a and
    # in_proj_b have one output per head and get no adapter, as in Unsloth's own list
    # (_clef_peft_model, unsloth/models/decision.py).
    targets=(*LORA_TARGETS, "in_proj_qkv", "in_proj_z", "out_proj"),
    in_4_bits=False,  # unsloth.ai/docs/models/qwen3.5/fine-tune: loses more accuracy than others
    sees_through_vllm=True,
    overflows=True,
)
_GEMMA4 = Family(vllm_from=8.0, sees_through_vllm=True, overflows=True)
FAMILIES = {
    "llama": Family(),
    "mistral": Family(),
    "ministral": Family(),
    "ministral3": Family(),
    "mistral3": Family(sees_through_vllm=True),
    "idefics3": Family(sees_through_vllm=True),
    "qwen2": Family(),
    "qwen2_5_vl": Family(sees_through_vllm=True),
    "qwen3": Family(),
    # Experts are tensors of three dimensions, for which PEFT 0.21 translates the target names.
    "qwen3_moe": Family(overflows=True),
    "qwen3_vl": Family(sees_through_vllm=True),
    "qwen3_vl_moe": Family(sees_through_vllm=True),
    "qwen3_5": replace(_QWEN3_5, language_part=True),
    "qwen3_5_moe": _QWEN3_5,
    "gemma3": Family(sees_through_vllm=True, language_part=True, overflows=True),
    "gemma3n": Family(overflows=True),
    "gemma4": replace(_GEMMA4, language_part=True),
    "gemma4_unified": _GEMMA4,
    "glm4_moe": Family(overflows=True),
    "glm4_moe_lite": Family(targets=(), overflows=True),
    # In Unsloth's 4-bit repository (gpt-oss-20b-unsloth-bnb-4bit, unsloth/models/mapper.py) experts
    # are linear maps, which get an adapter. Through PEFT alone, only the attention gets one.
    "gpt_oss": Family(experts_in_4_bits=True, vllm_from=None, overflows=True),
    # Ten of sixteen layers are convolutions (transformers/models/lfm2). Unsloth's notebook
    # nb/LFM2.5_(1.2B)-GRPO.ipynb names the same targets.
    "lfm2": Family(targets=("q_proj", "k_proj", "v_proj", "out_proj", "in_proj", "w1", "w2", "w3")),
}


# --- Configurations -------------------------------------------------------------------------------


def dense(
    model_type: str,
    hidden_size: int,
    intermediate_size: int,
    num_hidden_layers: int,
    num_attention_heads: int,
    num_key_value_heads: int,
    head_dim: int,
    vocab_size: int,
    tie_word_embeddings: bool,
    max_position_embeddings: int,
    **others,
) -> dict:
    """Return the part of a text model's config.json that its memory depends on.

    others: further entries, of families that have them.
    """
    return {
        "model_type": model_type,
        "hidden_size": hidden_size,
        "intermediate_size": intermediate_size,
        "num_hidden_layers": num_hidden_layers,
        "num_attention_heads": num_attention_heads,
        "num_key_value_heads": num_key_value_heads,
        "head_dim": head_dim,
        "vocab_size": vocab_size,
        "tie_word_embeddings": tie_word_embeddings,
        "max_position_embeddings": max_position_embeddings,
        **others,
    }


def _seeing(model_type: str, *sizes, **others) -> dict:
    """Return the config.json of a vision model, with its language part only."""
    text = dense(f"{model_type}_text", *sizes, **others)
    return {"model_type": model_type, "text_config": text, "vision_config": {}}


# Copied from each model's config.json, so that an estimate needs no network. The columns are the
# parameters of `dense`.
# fmt: off
CONFIGS = {
    "unsloth/gemma-3-1b-it": dense(
        # type         hidden     MLP layers  heads   KV  head    vocab   tied positions
        "gemma3_text",  1_152,  6_912,    26,     4,   1,  256, 262_144,  True,   32_768,
        sliding_window=512,
    ),
    "unsloth/Qwen2.5-1.5B-Instruct": dense(
        "qwen2",        1_536,  8_960,    28,    12,   2,  128, 151_936,  True,   32_768,
    ),
    "unsloth/Qwen3-1.7B": dense(
        "qwen3",        2_048,  6_144,    28,    16,   8,  128, 151_936,  True,   40_960,
    ),
    "unsloth/Llama-3.2-3B-Instruct": dense(
        "llama",        3_072,  8_192,    28,    24,   8,  128, 128_256,  True,  131_072,
    ),
    "unsloth/Qwen3-4B": dense(
        "qwen3",        2_560,  9_728,    36,    32,   8,  128, 151_936,  True,   40_960,
    ),
    "unsloth/Qwen3-4B-Instruct-2507": dense(
        "qwen3",        2_560,  9_728,    36,    32,   8,  128, 151_936,  True,  262_144,
    ),
    "unsloth/Llama-3.1-8B-Instruct": dense(
        "llama",        4_096, 14_336,    32,    32,   8,  128, 128_256, False,  131_072,
    ),
    "unsloth/Qwen3-8B": dense(
        "qwen3",        4_096, 12_288,    36,    32,   8,  128, 151_936, False,   40_960,
    ),
    "unsloth/Qwen3-14B": dense(
        "qwen3",        5_120, 17_408,    40,    40,   8,  128, 151_936, False,   40_960,
    ),
    "unsloth/Qwen3.5-9B": _seeing(
        "qwen3_5",      4_096, 12_288,    32,    16,   4,  256, 248_320, False,  262_144,
        linear_num_value_heads=32,
    ),
    "unsloth/Qwen3.5-27B": _seeing(
        "qwen3_5",      5_120, 17_408,    64,    24,   4,  256, 248_320, False,  262_144,
        linear_num_value_heads=48,
    ),
    "unsloth/gpt-oss-20b": dense(
        "gpt_oss",      2_880,  2_880,    24,    64,   8,   64, 201_088, False,  131_072,
        num_local_experts=32,
    ),
    "unsloth/Qwen3-VL-2B-Instruct": _seeing(
        "qwen3_vl",     2_048,  6_144,    28,    16,   8,  128, 151_936,  True,  262_144,
    ),
    "unsloth/gemma-3-4b-it": _seeing(
        "gemma3",       2_560, 10_240,    34,     8,   4,  256, 262_208,  True,  131_072,
        sliding_window=1024,
    ),
    "unsloth/Qwen3-VL-8B-Instruct": _seeing(
        "qwen3_vl",     4_096, 12_288,    36,    32,   8,  128, 151_936, False,  262_144,
    ),
}
# fmt: on


def config_of(model: str) -> dict:
    """Return the config.json of a model, given as a hub name or a folder. For the models in CONFIGS
    it holds only what the estimate needs.

    Read without Transformers, which must be imported after Unsloth. Raise FileNotFoundError if the
    folder has no config.json, and ValueError if the folder holds an adapter, or if the hub fails.
    """
    if model in CONFIGS:
        return CONFIGS[model]
    check_model(model)
    path = Path(model) / "config.json"
    if not Path(model).is_dir():
        from huggingface_hub import hf_hub_download

        try:
            path = Path(hf_hub_download(model, "config.json"))
        except (OSError, ValueError) as error:
            raise ValueError(hub_failure(f"the model {model!r}", error)) from None
    return json.loads(path.read_text(encoding="utf-8"))


def check_model(model: str) -> None:
    """Raise ValueError if the model is the folder of an adapter, or has an adapter's name and is
    not the folder of a whole model.
    """
    folder = Path(model)
    is_whole = (folder / "config.json").is_file()
    has_its_name = folder.name == "adapter" or folder.name.startswith("checkpoint-")
    has_its_file = (folder / "adapter_config.json").is_file()
    if has_its_file or (has_its_name and not is_whole):
        raise ValueError(
            f"model={model!r} is an adapter, not a whole model. Merge it with notebook 05 of its "
            "run, and give the merged model, model=runs/NAME/merged; or name the model that it was "
            "trained on."
        )


def hub_failure(what: str, error: Exception) -> str:
    """Return an error message for a dataset or model that could not be downloaded."""
    return (
        f"{what} could not be fetched ({type(error).__name__}: "
        f"{shorten(' '.join(str(error).split()), 300)}). Check its name, the network and, if it "
        "is gated or private, HF_TOKEN; or name a folder that holds it."
    )
