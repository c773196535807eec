"""The verification of a merge, on the pocket model: it accepts a correct merge and finds every
fault in a wrong one.
"""

import copy
import importlib.util
import runpy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

from helpers.environment import Machine
from helpers.families import FAMILIES, family_of
from helpers.presets import PRESETS
from helpers.results import merging
from helpers.results.merging import largest_difference, prompt_logits
from helpers.runs import Run, atomic_folder
from helpers.settling import settle
from helpers.tags import THINK_ANSWER
from helpers.training import policy
from helpers.training.base import Base, base_of, base_record
from helpers.training.policy import nf4

pytestmark = pytest.mark.usefixtures("one_thread")
slow = pytest.mark.slow

POCKET = PRESETS["pocket"]
FOLDER = POCKET.model_path
TARGETS = ["q_proj", "v_proj", "down_proj"]


def prompt(question: str) -> list[dict]:
    return [
        {"role": "system", "content": THINK_ANSWER.system_prompt},
        {"role": "user", "content": question},
    ]


PROMPTS = [prompt("What is 1 + 2?"), prompt("What is 45 + 36 + 27?")]


@pytest.fixture
def other(model):
    return copy.deepcopy(model)


@pytest.fixture
def adapter(other):
    """Return a new adapter with every lora_B filled in, as after training."""
    policy = get_peft_model(
        other, LoraConfig(r=4, lora_alpha=8, target_modules=TARGETS, task_type="CAUSAL_LM")
    )
    torch.manual_seed(0)
    for matrix in lora(policy, "B").values():
        torch.nn.init.normal_(matrix, std=0.05)
    return policy.eval()


def lora(policy, letter: str) -> dict:
    return {name: matrix for name, matrix in policy.named_parameters() if f"lora_{letter}" in name}


def test_an_adapter_without_effect_is_refused(adapter, tokenizer):
    with torch.no_grad():
        for matrix in lora(adapter, "B").values():
            matrix.zero_()
    with pytest.raises(ValueError, match="nothing"):
        merging.merge_in_memory(adapter, tokenizer, PROMPTS)


# --- The proof, in a process of its own -----------------------------------------------------------

ORIGINAL = Base(FOLDER, None)


def save(model, tokenizer, folder: Path) -> Path:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def saved(adapter, tokenizer, tmp_path):
    """Return the folder of a merged model, and the other arguments of `verify`."""
    adapter.save_pretrained(tmp_path / "adapter")
    how = {"adapter": tmp_path / "adapter", "base": ORIGINAL, "dtype": torch.float32}
    return save(adapter.merge_and_unload(), tokenizer, tmp_path / "merged"), how


def test_a_wrong_merge_is_refused_and_the_previous_one_stays(saved, tokenizer, tmp_path):
    folder, how = saved
    before = (folder / "model.safetensors").read_bytes()
    broken = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        broken.model.norm.weight.mul_(1.5)
    not_the_base = (
        r"not the adapter on its base: 1 of 13 comparisons .* \(logits by .*25% is allowed"
    )
    with pytest.raises(ValueError, match=not_the_base), atomic_folder(folder) as path:
        merging.verify(save(broken, tokenizer, path), PROMPTS, **how)
    assert (folder / "model.safetensors").read_bytes() == before
    assert {left.name for left in tmp_path.iterdir()} == {"merged", "adapter"}
    (folder / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(ValueError, match=r"[Hh]eader"):
        merging.verify(folder, PROMPTS, **how)


@pytest.fixture
def rounded(monkeypatch):
    """Round cos and sin to 16 bits in this process, as Unsloth does on a GPU (models/qwen3.py)."""
    whole = Qwen3RotaryEmbedding.forward

    def forward(self, *args, **kwargs):
        return tuple(one.bfloat16().to(one.dtype) for one in whole(self, *args, **kwargs))

    with monkeypatch.context() as patch:
        patch.setattr(Qwen3RotaryEmbedding, "forward", forward)
        yield patch


@pytest.mark.parametrize("size", [1e-5, *(pytest.param(s, marks=slow) for s in (1e-4, 1e-3))])
def test_the_proof_does_not_depend_on_patches_in_this_process(rounded, tokenizer, tmp_path, size):
    def original():
        return merging.load_base(ORIGINAL, torch.bfloat16, dequantised=False)

    def fresh():
        return PeftModel.from_pretrained(original(), str(tmp_path / "adapter")).eval()

    torch.manual_seed(0)
    config = LoraConfig(r=4, lora_alpha=8, target_modules=TARGETS, task_type="CAUSAL_LM")
    trained = get_peft_model(original(), config)
    for matrix in lora(trained, "B").values():
        torch.nn.init.normal_(matrix, std=size)
    trained.save_pretrained(tmp_path / "adapter")
    folder = save(fresh().merge_and_unload(), tokenizer, tmp_path / "merged")
    of_this_process = merging.merge_in_memory(fresh(), tokenizer, PROMPTS)
    how = {"adapter": tmp_path / "adapter", "base": ORIGINAL, "dtype": torch.bfloat16}
    proof = merging.verify(folder, PROMPTS, **how)
    assert proof["unexplained"] == proof["matrix"] == 0
    left_out, name = AutoModelForCausalLM.from_pretrained(folder), "model.layers.1.mlp.down_proj"
    with torch.no_grad():
        left_out.get_submodule(name).weight.copy_(original().get_submodule(name).weight)
    with pytest.raises(ValueError, match=rf" 13 .*{name}.weight by 100%"):
        merging.verify(save(left_out, tokenizer, folder), PROMPTS, **how)
    rounded.undo()
    plain = fresh()
    plain.merge_adapter()
    with merging.in_32_bits(plain):
        apart = merging.compare_logits(prompt_logits(plain, tokenizer, PROMPTS), of_this_process)
    assert apart["unexplained"] > merging.UNEXPLAINED, (
        "the same comparison in this process would fail"
    )


def in_16_bits(policy):
    """Convert the base to bfloat16. The adapter stays in 32 bits, as PEFT loads it."""
    policy.to(torch.bfloat16)
    for name, matrix in policy.named_parameters():
        if "lora_" in name:
            matrix.data = matrix.data.float()
    return policy


@pytest.fixture
def sharp(adapter):
    """Return the adapter on its base in bfloat16, with logits above 32, where bfloat16 has steps of
    0.25.
    """
    with torch.no_grad():
        adapter.get_output_embeddings().weight.mul_(8)
    return in_16_bits(adapter)


@pytest.mark.parametrize(
    ("broken", "kept"),
    [("nothing", 1.0), ("scale", 0.5), ("twice", 2.0), ("layer", None), ("other", None)],
)
def test_a_broken_16_bit_merge_is_refused_even_with_large_logits(sharp, tokenizer, broken, kept):
    wrong = copy.deepcopy(sharp)
    expected = merging.merge_in_memory(sharp, tokenizer, PROMPTS)
    assert max(logits.abs().max() for logits in expected["adapter"]) > 32
    with torch.no_grad():
        for name, matrix in lora(wrong, "B").items():
            if broken == "other":
                torch.nn.init.normal_(matrix, std=0.05)
            elif broken != "layer" or ".layers.2." in name:
                matrix.mul_({"nothing": 1, "scale": 0.5, "twice": 2, "layer": 0}[broken])
    wrong.merge_adapter()
    with merging.in_32_bits(wrong):
        proof = merging.compare_logits(prompt_logits(wrong, tokenizer, PROMPTS), expected)
    assert proof["unexplained"] < 0.01 or broken != "nothing"
    assert proof["unexplained"] > merging.UNEXPLAINED or broken == "nothing"
    assert kept is None or proof["kept"] == pytest.approx(kept, rel=0.3)


def test_loss_by_16_bit_rounding_is_reported_but_not_refused(adapter, tokenizer):
    with torch.no_grad():
        for matrix in lora(adapter, "B").values():
            matrix.mul_(2e-3)
    policy = in_16_bits(adapter)
    expected = merging.merge_in_memory(policy, tokenizer, PROMPTS)
    proof = merging.compare_logits(expected["merged"], expected)
    assert proof["kept"] < 0.9 and proof["unexplained"] == 0
    fine, lost = merging.proof_text({"kept": 0.5}), merging.proof_text({"kept": 0.358})
    assert "does 50.0% of what" in fine and "WARNING" not in fine
    assert "does 35.8% of what" in lost and 'merge="adapter"' in lost


@pytest.mark.parametrize("size", [1e-5, 1e-3])
def test_one_unmerged_matrix_is_found_in_a_deep_model(size):
    """In a model of 28 layers, one matrix changes the logits by less than rounding does; see
    benchmarks/results/merge_tolerance.md.
    """
    layers = 28
    torch.manual_seed(0)
    config = Qwen3Config(
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        hidden_size=64,
        intermediate_size=128,
        vocab_size=32,
    )
    base = Qwen3ForCausalLM._from_config(config, dtype=torch.bfloat16)
    lora_config = LoraConfig(r=4, target_modules=TARGETS, task_type="CAUSAL_LM")
    policy = get_peft_model(copy.deepcopy(base), lora_config)
    for matrix in lora(policy, "B").values():
        torch.nn.init.normal_(matrix, std=size)
    merged = copy.deepcopy(policy).merge_and_unload()
    matrices = merging.merge_by_matrix(policy)
    distances = merging.matrix_distances(merged, matrices)
    assert set(distances.values()) == {0.0} and len(matrices) == 3 * layers
    left_out = f"model.layers.{layers // 2}.self_attn.v_proj.weight"
    with torch.no_grad():
        merged.get_parameter(left_out).copy_(base.get_parameter(left_out))
    distances = merging.matrix_distances(merged, matrices)
    assert distances.pop(left_out) == pytest.approx(1) and set(distances.values()) == {0.0}


def test_computing_in_32_bits_does_not_change_the_weights(sharp, tokenizer):
    before = {name: weight.detach().clone() for name, weight in sharp.named_parameters()}
    with merging.in_32_bits(sharp):
        wide = prompt_logits(sharp, tokenizer, PROMPTS)
    for name, weight in sharp.named_parameters():
        assert weight.dtype == before[name].dtype and torch.equal(weight, before[name])
    assert largest_difference(wide, prompt_logits(sharp.float(), tokenizer, PROMPTS)) < 1e-3


# --- The bases, and 4 bits ------------------------------------------------------------------------


HERE = Base(FOLDER, "here")
CPU = Machine(None, 0.0, 0.0, 2, 8.0, "3.11.7", "Linux x86_64")
CARD = replace(CPU, gpu="NVIDIA L4", gpu_memory_gb=24.2)


def test_the_dequantised_base_is_closer_to_the_4_bit_policy_than_the_original(tokenizer):
    in_4_bits = prompt_logits(policy.load(POCKET)[0], tokenizer, PROMPTS)
    gaps = {}
    for dequantised in (False, True):
        base = merging.load_base(HERE, torch.float32, dequantised)
        assert {weight.dtype for weight in base.parameters()} == {torch.float32}
        gaps[dequantised] = largest_difference(in_4_bits, prompt_logits(base, tokenizer, PROMPTS))
    assert gaps[True] < gaps[False] / 2, "the remaining difference is 16-bit rounding"


T4 = replace(CARD, gpu="Tesla T4", compute_capability=7.5)


@pytest.mark.parametrize(
    ("family", "on_t4"), [("qwen3", torch.float16), ("gemma3_text", torch.float32)]
)
def test_families_that_overflow_in_float16_use_32_bits_without_bf16(tmp_path, family, on_t4):
    (tmp_path / "config.json").write_text(f'{{"model_type": "{family}"}}')
    base, l4 = Base(str(tmp_path), "here"), replace(CARD, compute_capability=8.9)
    found = [merging.precision(on, base) for on in (CPU, l4, T4)]
    assert found == [torch.float32, torch.bfloat16, on_t4]


def test_the_overflowing_families_are_unsloths():
    (package,) = importlib.util.find_spec("unsloth_zoo").submodule_search_locations
    known = runpy.run_path(f"{package}/model_lists.py")["FORCE_FLOAT32"]
    named = [name for name in known if not name.startswith("embedding_")]  # no language models
    # Unsloth searches for these names in the model type followed by a comma
    for kind, family in FAMILIES.items():
        assert family.overflows == any(name in f"{kind}," for name in named), kind
    for name in named:
        assert family_of(name.strip(",").replace("text", "_text")).overflows


KEPT = "model.layers.1.mlp.down_proj"  # kept in 16 bits


@pytest.fixture
def trained_on_dynamic(tokenizer, tmp_path, monkeypatch):
    """Return a run whose adapter was trained on a stored quantisation that keeps one layer in 16
    bits, as Unsloth's dynamic quantisations do.
    """
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path))
    dynamic = nf4(torch.bfloat16)
    dynamic.llm_int8_skip_modules = ["lm_head", KEPT]
    options = {"dtype": torch.bfloat16, "device_map": "cpu"}
    stored = save(
        AutoModelForCausalLM.from_pretrained(FOLDER, quantization_config=dynamic, **options),
        tokenizer,
        tmp_path / "4bit",
    )
    run, settings = Run("a"), settle(POCKET, model=str(stored))
    trained = get_peft_model(
        policy.load(settings)[0], LoraConfig(r=4, target_modules=TARGETS, task_type="CAUSAL_LM")
    )
    run.record("training", base=base_record(trained, settings))
    trained.save_pretrained(run.path("adapter"))
    # the settings name the original model, but Unsloth loaded the quantised one
    return run, settle(POCKET, model=FOLDER)


@pytest.mark.parametrize("backend", ["unsloth", "transformers"])
def test_the_quantisation_used_in_training_is_dequantised(trained_on_dynamic, backend):
    run, settings = trained_on_dynamic
    base = base_of(run, replace(settings, backend=backend))
    policy.load(replace(settings, backend=backend), base)
    own = merging.load_base(base, torch.float32, dequantised=True)
    fresh, original = (merging.load_base(HERE, torch.float32, way) for way in (True, False))
    for name in (KEPT, KEPT.replace("layers.1", "layers.2")):
        weight = own.get_submodule(name).weight
        assert torch.equal(weight, original.get_submodule(name).weight) == (name == KEPT)
    assert not torch.equal(own.get_submodule(KEPT).weight, fresh.get_submodule(KEPT).weight)
    another = replace(base, revision="0" * 40)
    for load in (
        lambda: merging.load_base(another, torch.float32, dequantised=True),
        lambda: policy.load(replace(settings, backend=backend), another),
    ):
        with pytest.raises(
            ValueError, match=r"has changed since training .* the engine used in train"
        ):
            load()
