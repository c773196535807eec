"""The language part of a vision model, loaded, trained and merged alone, on small random models."""

from dataclasses import replace

import pytest
import torch
import transformers
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, AutoTokenizer

from helpers.environment import Machine
from helpers.families import FAMILIES
from helpers.presets import PRESETS
from helpers.results import merging
from helpers.results.exports import check_merge
from helpers.training import memory, policy
from helpers.training.base import base_of

POCKET = PRESETS["pocket"]
L4 = Machine("NVIDIA L4", 24.2, 8.9, 8, 64.0, "3.11.7", "Linux x86_64")
TEXT = {"hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 512, "intermediate_size": 64}
TEXT |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
TOWER = {"hidden_size": 32, "num_hidden_layers": 1, "intermediate_size": 32}
TOWER |= {"num_attention_heads": 2, "patch_size": 8, "image_size": 32}
TOKENS = {"image_token_id": 500, "video_token_id": 501}
TOKENS |= {"vision_start_token_id": 502, "vision_end_token_id": 503}
QWEN = {"depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2}
LINEAR = dict.fromkeys(("linear_num_key_heads", "linear_num_value_heads"), 2)
LINEAR |= dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim"), 16)
CONFIGS = {
    "gemma3": transformers.Gemma3Config(text_config=TEXT, vision_config=TOWER),
    "gemma4": transformers.Gemma4Config(
        text_config=TEXT
        | {"layer_types": ["sliding_attention", "full_attention"], "global_head_dim": 16}
        | {"vocab_size_per_layer_input": 512, "hidden_size_per_layer_input": 8},
        vision_config=TOWER,
        audio_config=None,
    ),
    "qwen3_5": transformers.Qwen3_5Config(
        text_config=TEXT | LINEAR | {"layer_types": ["linear_attention", "full_attention"]},
        vision_config=QWEN | {"out_hidden_size": 64},
        **TOKENS,
    ),
}
IDS = torch.arange(1, 20)[None]


@pytest.fixture(params=CONFIGS)
def seeing(request, tmp_path):
    """The settings, the whole model and the folder of a small model of each family."""
    torch.manual_seed(0)
    whole = AutoModelForImageTextToText.from_config(CONFIGS[request.param]).float().eval()
    folder = tmp_path / "seeing"
    whole.save_pretrained(folder)
    AutoTokenizer.from_pretrained(POCKET.model_path).save_pretrained(folder)
    return replace(POCKET, model=str(folder), load_in_4bit=False, lora_rank=4), whole, folder


@torch.inference_mode()
def logits(model) -> torch.Tensor:
    return model.eval()(input_ids=IDS).logits.float()


def test_every_family_with_a_language_part_is_tested():
    assert set(CONFIGS) == {name for name, row in FAMILIES.items() if row.language_part}


@pytest.mark.parametrize("backend", ["unsloth", "transformers"])
def test_the_language_part_alone_computes_the_same(seeing, backend):
    settings, whole, folder = seeing
    model, tokenizer = policy.load(replace(settings, backend=backend))
    assert type(model).__name__.endswith("ForCausalLM") and not hasattr(
        model.config, "vision_config"
    )
    assert isinstance(tokenizer, transformers.PreTrainedTokenizerBase)
    assert tokenizer(["one", "two"])["input_ids"], "texts are not taken for pictures"
    assert not [name for name, _ in model.named_parameters() if "vision" in name]
    exact = policy.load_text(str(folder), dtype=torch.float32)
    assert torch.equal(logits(exact), logits(whole))
    assert torch.allclose(logits(model), logits(whole), atol=0.05), "in 16 bits"


def test_an_adapter_on_the_language_part_merges_into_a_text_model(seeing, run):
    settings, whole, _ = seeing
    policy_of_text = policy.add_adapter(
        policy.load_text(settings.model, dtype=torch.float32), settings, seed=0
    )
    torch.manual_seed(1)
    for name, weight in policy_of_text.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1)
    policy_of_text.save_pretrained(run.path("adapter"))
    base = base_of(run, settings)
    assert base.text_only and base.quantised is None
    bare = merging.load_base(base, torch.float32, dequantised=False)
    assert torch.equal(logits(bare), logits(whole))
    merged = PeftModel.from_pretrained(bare, str(run.path("adapter"))).merge_and_unload()
    merged.save_pretrained(run.path("merged"))
    final = AutoModelForCausalLM.from_pretrained(run.path("merged"), dtype=torch.float32)
    expected = logits(policy_of_text)
    assert (expected - logits(whole)).abs().max() > 0.01
    assert torch.allclose(logits(final), expected, atol=1e-5)
    with pytest.raises(ValueError, match="language part"):
        check_merge("unsloth", L4, base, gguf="q4_k_m")


def test_an_adapter_on_the_whole_model_keeps_the_whole_model(seeing, run):
    settings, whole, _ = seeing
    adapted = policy.add_adapter(
        whole, replace(settings, backend="transformers"), seed=0, sees=True
    )
    adapted.save_pretrained(run.path("adapter"))
    base = base_of(run, settings)
    assert not base.text_only
    assert type(merging.load_base(base, torch.float32, False)) is type(whole)


def test_the_language_part_of_a_4_bit_model_stays_in_4_bits(tmp_path):
    torch.manual_seed(0)
    folder, stored = tmp_path / "whole", tmp_path / "4_bits"
    AutoModelForImageTextToText.from_config(CONFIGS["gemma3"]).float().save_pretrained(folder)
    how = policy.nf4(torch.float32)
    how.llm_int8_skip_modules = ["lm_head", "vision_tower", "language_model.model.layers.1.mlp"]
    how.llm_int8_skip_modules += ["model.language_model.layers.1.mlp"]
    policy.load_whole(str(folder), quantization_config=how).save_pretrained(stored)
    part = policy.load_text(str(stored), dtype=torch.float32)
    kinds = {name: type(layer).__name__ for name, layer in part.named_modules()}
    assert kinds["model.layers.0.mlp.up_proj"] == "Linear4bit"
    assert kinds["model.layers.1.mlp.up_proj"] == "Linear", "as in the whole model"


# --- The check before anything is loaded ----------------------------------------------------------


def test_a_family_without_a_separate_language_part_is_refused(tmp_path):
    config = transformers.Mistral3Config(text_config={"model_type": "ministral3"} | TEXT)
    config.save_pretrained(tmp_path)
    settings = replace(PRESETS["t4"], model=str(tmp_path))
    with pytest.raises(ValueError, match=r"\(mistral3\)"):
        memory.check(settings, L4)
    assert memory.check(settings, L4, sees=True)
