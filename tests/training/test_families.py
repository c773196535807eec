"""The table of families: which linear maps of a model get an adapter, counted on models without
memory, and what is said against settings that its family does not suit.
"""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

from helpers.presets import PRESETS
from helpers.training import memory
from helpers.training.families import CONFIGS, LORA_TARGETS, family_of, lora_targets

SMALL = {"hidden_size": 64, "num_hidden_layers": 4, "vocab_size": 512, "intermediate_size": 96}
SMALL |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
OTHERS = {
    "lfm2": SMALL | {"model_type": "lfm2", "full_attn_idxs": [2]},
    "gemma4": SMALL | {"model_type": "gemma4_text", "vocab_size_per_layer_input": 512},
    "mistral": SMALL | {"model_type": "mistral"},
    "phi3": SMALL | {"model_type": "phi3", "pad_token_id": 0},
    "gpt2": {"model_type": "gpt2", "n_embd": 64, "n_layer": 4, "n_head": 4, "vocab_size": 512},
    "qwen3_moe": SMALL | {"model_type": "qwen3_moe", "num_experts": 8, "moe_intermediate_size": 32},
}
# Maps that no adapter is on, and why: gates of linear attention with one output a head; what feeds
# per-layer embeddings, which Unsloth does not reach either.
LEFT_OUT = {
    "qwen3_5": {"in_proj_a", "in_proj_b"},
    "gemma4": {"per_layer_input_gate", "per_layer_projection", "per_layer_model_projection"},
}


def adapted(config: dict):
    """A model of text, or the language part of one that sees, without memory and with an adapter of
    rank 1; and its linear maps without the head, by name.
    """
    text = AutoConfig.for_model(**config).get_text_config()
    sees = "vision_config" in config and text.model_type == "qwen3_vl_text"  # has no other class
    auto = AutoModelForImageTextToText if sees else AutoModelForCausalLM
    with torch.device("meta"):
        model = auto.from_config(AutoConfig.for_model(**config) if sees else text)
        maps = [
            name
            for name, module in model.named_modules()
            if type(module).__name__ in ("Linear", "Conv1D") and name != "lm_head"
        ]
        lora = LoraConfig(r=1, target_modules=lora_targets(model))
        return get_peft_model(model, lora), [name for name in maps if "visual" not in name]


def reached(policy) -> set[str]:
    """The names of the modules with an adapter."""
    return {
        name.removeprefix("base_model.model.")
        for name, module in policy.named_modules()
        if hasattr(module, "lora_A") and "visual" not in name
    }


ON_A_GPU = [preset for preset in PRESETS.values() if preset.needs_gb]
MODELS = {preset.model for preset in ON_A_GPU} | {"unsloth/gpt-oss-20b"}


@pytest.mark.parametrize("model", sorted(MODELS) + sorted(OTHERS))
def test_an_adapter_reaches_attention_and_mlp_of_every_layer(model):
    config = CONFIGS.get(model) or OTHERS[model]
    policy, maps = adapted(config)
    family = config["model_type"].removesuffix("_text")
    got = reached(policy)
    left = {name.rpartition(".")[2] for name in set(maps) - got}
    assert got and left == LEFT_OUT.get(family, set())
    # as many maps in each layer of a kind, and some in each layer
    layers = Counter(name.split("layers.")[-1].split("h.")[-1].split(".")[0] for name in got)
    text = AutoConfig.for_model(**config).get_text_config()
    assert len(layers) == text.num_hidden_layers
    assert len(set(layers.values())) <= len(set(getattr(text, "layer_types", None) or [0]))
    # the memory counts the same weights; Unsloth's adapter of gpt-oss, which is larger
    seen = any("visual" in name for name, _ in policy.named_modules())
    if family != "gpt_oss" and not seen:
        weights = sum(weight.numel() for weight in policy.parameters() if weight.requires_grad)
        assert memory.count(config, 8)["adapted"] == weights


def test_hybrid_layers_are_reached_that_the_usual_names_miss():
    policy, _ = adapted(CONFIGS["unsloth/Qwen3.5-9B"])
    kinds = Counter(name.split(".")[-2] for name in reached(policy))
    assert kinds == {"mlp": 3 * 32, "self_attn": 4 * 8, "linear_attn": 3 * 24}
    policy, _ = adapted(OTHERS["lfm2"])
    kinds = Counter(name.split(".")[-2] for name in reached(policy))
    assert kinds == {"feed_forward": 3 * 4, "self_attn": 4, "conv": 2 * 3}
    # experts are one tensor of three dimensions, for which PEFT translates the names, except here
    policy, _ = adapted(OTHERS["qwen3_moe"])
    assert "model.layers.3.mlp.experts" in reached(policy)
    policy, _ = adapted(CONFIGS["unsloth/gpt-oss-20b"])
    assert {name.split(".")[-2] for name in reached(policy)} == {"self_attn"}


def test_the_usual_seven_are_given_as_names_and_others_as_a_pattern():
    with torch.device("meta"):
        given = {
            family: lora_targets(AutoModelForCausalLM.from_config(AutoConfig.for_model(**config)))
            for family, config in OTHERS.items()
        }
    assert given["mistral"] == given["gemma4"] == LORA_TARGETS
    assert given["phi3"] == given["gpt2"] == "all-linear"
    assert given["lfm2"].startswith(r".*\.(q_proj|k_proj|v_proj|out_proj|in_proj|")


@pytest.mark.parametrize(
    ("model", "kind", "in_4_bits", "thinking", "limit", "said"),
    [
        ("unsloth/Qwen3.5-9B", "qwen3_5", True, False, 1024, "load_in_4bit=False"),
        ("unsloth/Qwen3.5-9B", "qwen3_5", False, None, 1024, "thinking=False"),
        ("unsloth/Qwen3.5-9B", "qwen3_5", False, None, 4096, None),
        ("unsloth/Qwen3.5-2B", "qwen3_5", False, None, 1024, None),
        ("unsloth/Qwen3-1.7B-unsloth-bnb-4bit", "qwen3", True, True, 768, "thinking=False"),
        ("unsloth/Qwen3-4B-Instruct-2507", "qwen3", True, None, 768, None),
        ("Qwen/Qwen3-0.6B-Base", "qwen3", True, None, 768, None),
        ("unsloth/gpt-oss-20b", "gpt_oss", True, None, 768, "thinking=False"),
        ("me/mine", "unheard_of", True, None, 768, None),
    ],
)
def test_what_a_family_says_against_a_run(model, kind, in_4_bits, thinking, limit, said):
    changed = {"load_in_4bit": in_4_bits, "thinking": thinking, "max_completion_length": limit}
    found = memory.notes(replace(PRESETS["t4"], model=model, **changed), {"model_type": kind})
    assert len(found) == (said is not None) and all(said in one for one in found)


@pytest.mark.parametrize("preset", ON_A_GPU, ids=lambda preset: preset.name)
def test_a_preset_suits_its_models_family_and_needs_no_network_for_it(preset):
    config = CONFIGS[preset.model]
    assert memory.notes(preset, config) == []
    assert family_of(config["model_type"]).vllm_from is not None or preset.engine != "auto"
