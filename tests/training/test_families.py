"""The table of families: the linear maps that get an adapter, and whether presets suit their models.

The models are built on torch's meta device, where they take no memory.
"""

from collections import Counter

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModel

from helpers.families import CONFIGS, LORA_TARGETS, family_of, lora_targets
from helpers.presets import PRESETS

SMALL = {"hidden_size": 64, "num_hidden_layers": 4, "vocab_size": 512, "intermediate_size": 96}
SMALL |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
OTHERS = {
    "lfm2": SMALL | {"model_type": "lfm2", "full_attn_idxs": [2]},
    "gemma4": SMALL | {"model_type": "gemma4_text", "vocab_size_per_layer_input": 512},
    "mistral": SMALL | {"model_type": "mistral"},
    "phi3": SMALL | {"model_type": "phi3", "pad_token_id": 0},
    "qwen3_moe": SMALL | {"model_type": "qwen3_moe", "num_experts": 8, "moe_intermediate_size": 32},
}
# Linear maps without an adapter: gates of linear attention, which have one output per head; and the
# maps of per-layer embeddings, which Unsloth's adapter leaves out, too.
LEFT_OUT = {
    "qwen3_5": {"in_proj_a", "in_proj_b"},
    "gemma4": {"per_layer_input_gate", "per_layer_projection", "per_layer_model_projection"},
}


ON_A_GPU = [preset for preset in PRESETS.values() if preset.needs_gb]
MODELS = {preset.model for preset in ON_A_GPU} | {"unsloth/gpt-oss-20b"}


def adapted(config: dict):
    """Return a model, without its vision tower and head, with an adapter of rank 1, and the names of
    its linear maps.
    """
    text = AutoConfig.for_model(**config).get_text_config()
    with torch.device("meta"):
        model = AutoModel.from_config(text)
        maps = {name for name, one in model.named_modules() if isinstance(one, torch.nn.Linear)}
        return get_peft_model(model, LoraConfig(r=1, target_modules=lora_targets(model))), maps


def reached(policy) -> set[str]:
    """Return the names of the modules with an adapter."""
    return {
        name.removeprefix("base_model.model.")
        for name, module in policy.named_modules()
        if hasattr(module, "lora_A")
    }


@pytest.mark.parametrize("model", sorted(MODELS) + sorted(OTHERS))
def test_the_adapter_covers_attention_and_mlp_of_every_layer(model):
    config = CONFIGS.get(model) or OTHERS[model]
    policy, maps = adapted(config)
    names = reached(policy)
    left_out = {name.rpartition(".")[2] for name in maps - names}
    assert left_out == LEFT_OUT.get(config["model_type"].removesuffix("_text"), set())
    layers = {name.split("layers.")[-1].split(".")[0] for name in names}
    assert len(layers) == AutoConfig.for_model(**config).get_text_config().num_hidden_layers


@pytest.mark.parametrize(
    ("model", "maps"),
    [
        ("unsloth/Qwen3.5-9B", {"mlp": 3 * 32, "self_attn": 4 * 8, "linear_attn": 3 * 24}),
        ("lfm2", {"feed_forward": 3 * 4, "self_attn": 4, "conv": 2 * 3}),
        # PEFT translates the target names for experts that are tensors of three dimensions …
        ("qwen3_moe", {"self_attn": 4 * 4, "mlp": 4, "experts": 4}),
        # … except for gpt-oss
        ("unsloth/gpt-oss-20b", {"self_attn": 4 * 24}),
    ],
)
def test_the_adapter_covers_hybrid_layers_and_experts(model, maps):
    policy, _ = adapted(CONFIGS.get(model) or OTHERS[model])
    assert Counter(name.split(".")[-2] for name in reached(policy)) == maps


def test_only_unusual_targets_are_given_as_a_pattern():
    with torch.device("meta"):
        targets = {
            family: lora_targets(AutoModel.from_config(AutoConfig.for_model(**config)))
            for family, config in OTHERS.items()
        }
    assert targets["mistral"] == targets["gemma4"] == LORA_TARGETS
    assert targets["phi3"] == "all-linear"
    assert targets["lfm2"].startswith(r".*\.(q_proj|k_proj|v_proj|out_proj|in_proj|")


@pytest.mark.parametrize("preset", ON_A_GPU, ids=lambda preset: preset.name)
def test_each_preset_suits_its_models_family(preset):
    family = family_of(CONFIGS[preset.model]["model_type"])
    assert family.in_4_bits or not preset.load_in_4bit
    assert family.vllm_from is not None or preset.engine != "auto"
