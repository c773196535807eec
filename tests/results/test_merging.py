"""The proof of a merge, on the pocket model: it finds no difference where there is none, and any where there is one."""

import copy
from dataclasses import replace

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from helpers.environment import Machine
from helpers.formats import THINK_ANSWER
from helpers.presets import PRESETS
from helpers.results import merging
from helpers.results.merging import check_disk, largest_difference, prompt_logits, untrained_matrices
from helpers.runs import Run, atomic_folder

pytestmark = pytest.mark.usefixtures("one_thread")

POCKET = PRESETS["pocket"]
FOLDER = POCKET.model_path
TARGETS = ["q_proj", "v_proj", "down_proj"]


def prompt(question: str) -> list[dict]:
    return [{"role": "system", "content": THINK_ANSWER.system_prompt}, {"role": "user", "content": question}]


PROMPTS = [prompt("What is 1 + 2?"), prompt("What is 45 + 36 + 27?")]


@pytest.fixture
def other(model):
    return copy.deepcopy(model)


@pytest.fixture
def adapter(other):
    """A fresh adapter with every lora_B set, as after training."""
    policy = get_peft_model(other, LoraConfig(r=4, lora_alpha=8, target_modules=TARGETS, task_type="CAUSAL_LM"))
    torch.manual_seed(0)
    for matrix in lora(policy, "B").values():
        torch.nn.init.normal_(matrix, std=0.05)
    return policy.eval()


def lora(policy, letter: str) -> dict:
    return {name: matrix for name, matrix in policy.named_parameters() if f"lora_{letter}" in name}


def largest_logit_difference(model, other, tokenizer, prompts: list[list[dict]]) -> float:
    return largest_difference(*(prompt_logits(m, tokenizer, prompts) for m in (model, other)))


# --- The difference ----------------------------------------------------------------------------------------------------


def test_a_model_is_no_different_from_its_copy(model, other, tokenizer):
    assert largest_logit_difference(model, other, tokenizer, PROMPTS) == 0.0


@pytest.mark.parametrize(
    "matrix", ["model.embed_tokens", "model.layers.0.mlp.up_proj", "model.layers.3.self_attn.q_proj", "model.norm"]
)
def test_one_changed_weight_is_seen(model, other, tokenizer, matrix):
    weight = other.get_submodule(matrix).weight
    # Of the embedding, a token that every prompt has; of the others any weight will do.
    row = tokenizer(" + ", add_special_tokens=False)["input_ids"][0] if matrix.endswith("embed_tokens") else 0
    with torch.no_grad():
        weight[(row, 0)[: weight.dim()]] += 0.5
    assert largest_logit_difference(model, other, tokenizer, PROMPTS) > 1e-4


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_a_broken_model_is_not_called_equal(model, other, tokenizer, broken):
    with torch.no_grad():
        other.model.layers[0].mlp.up_proj.weight[0, 0] = broken
    for pair in ((model, other), (other, model)):
        difference = largest_logit_difference(*pair, tokenizer, PROMPTS)
        assert not difference <= 1e-3


@torch.inference_mode()
def test_it_is_the_largest_over_every_token_of_all_prompts_and_the_same_either_way(model, other, tokenizer):
    other.model.layers[0].input_layernorm.weight.mul_(1.1)
    gaps = []
    for messages in PROMPTS:
        inputs = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        gaps.append((model(**inputs).logits - other(**inputs).logits).abs().amax(dim=(0, 2)))
    single = [largest_logit_difference(model, other, tokenizer, [prompt]) for prompt in PROMPTS]
    assert single == pytest.approx([gap.max().item() for gap in gaps], rel=1e-5) and min(single) > 0.1
    assert all(gap[-1] < gap.max() for gap in gaps), "so the last token alone would not do"
    both = largest_logit_difference(model, other, tokenizer, PROMPTS)
    assert both == max(single) == largest_logit_difference(other, model, tokenizer, PROMPTS[::-1])


def test_what_is_kept_of_a_model_stands_for_it_when_it_has_changed(model, other, tokenizer):
    kept = prompt_logits(other, tokenizer, PROMPTS)
    assert [logits.dtype for logits in kept] == [torch.float32] * 2 and not any(logits.requires_grad for logits in kept)
    with torch.no_grad():
        other.model.norm.weight.mul_(2)
    assert largest_difference(kept, prompt_logits(model, tokenizer, PROMPTS)) == 0.0
    assert largest_difference(kept, prompt_logits(other, tokenizer, PROMPTS)) > 0.1


def test_no_prompts_prove_nothing(model, other, tokenizer):
    with pytest.raises(ValueError):
        largest_logit_difference(model, other, tokenizer, [])


# --- The merge ---------------------------------------------------------------------------------------------------------


def test_the_merged_model_is_the_adapter_on_its_base(model, adapter, tokenizer):
    merged = copy.deepcopy(adapter).merge_and_unload()
    assert largest_logit_difference(adapter, merged, tokenizer, PROMPTS) < 1e-3
    assert largest_logit_difference(adapter, model, tokenizer, PROMPTS) > 0.1, "the adapter does something"


def test_a_merge_that_lost_one_matrix_is_seen(adapter, tokenizer):
    merged = copy.deepcopy(adapter)
    with torch.no_grad():
        next(iter(lora(merged, "B").values())).zero_()
    assert largest_logit_difference(adapter, merged.merge_and_unload(), tokenizer, PROMPTS) > 1e-3


# --- Untrained matrices ------------------------------------------------------------------------------------------------


def test_a_new_adapter_has_learned_nothing(other):
    policy = get_peft_model(other, LoraConfig(r=4, target_modules=TARGETS, task_type="CAUSAL_LM"))
    assert untrained_matrices(policy) == list(lora(policy, "B"))
    assert len(untrained_matrices(policy)) == len(TARGETS) * policy.config.num_hidden_layers


def test_a_trained_adapter_has_none_and_a_single_one_is_found(adapter):
    assert untrained_matrices(adapter) == []
    for letter in "AB":
        name, matrix = list(lora(adapter, letter).items())[3]
        with torch.no_grad():
            matrix.zero_()
        assert name in untrained_matrices(adapter)
    assert len(untrained_matrices(adapter)) == 2


def test_a_single_weight_is_enough_to_have_learned(adapter):
    matrix = next(iter(lora(adapter, "B").values()))
    with torch.no_grad():
        matrix.zero_()
        matrix[-1, -1] = 1e-9
    assert untrained_matrices(adapter) == []


def test_a_model_without_an_adapter_has_no_adapter_matrices(other):
    with torch.no_grad():
        other.model.layers[0].mlp.up_proj.weight.zero_()
    assert untrained_matrices(other) == []


# --- Room ----------------------------------------------------------------------------------------------------------------


def test_a_disk_too_small_for_the_merge_is_refused_with_both_sizes(tmp_path, monkeypatch):
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path))
    run = Run("a")
    run.path("data")
    # Qwen3-8B has 8.19 billion weights: 16.4 GB in 16 bits, 32.8 in 32, and 5 % more for what lies beside them.
    monkeypatch.setattr(merging.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 20e9}))
    assert check_disk(run, "unsloth/Qwen3-8B", torch.bfloat16) is None
    with pytest.raises(ValueError, match=r"34\.4 GB and the disk of \S+/a has 20\.0 GB free.*GRPO_RUNS_DIR"):
        check_disk(run, "unsloth/Qwen3-8B", torch.float32)


def test_the_pocket_model_has_room(tmp_path, monkeypatch):
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path))
    run = Run("a")
    run.path("data")
    assert check_disk(run, FOLDER, torch.float32) is None


# --- The proof, in a process of its own ------------------------------------------------------------------------------------


@pytest.fixture
def saved(adapter, tokenizer, tmp_path):
    """A merged model on disk, and the logits of the adapter on its base."""
    expected = prompt_logits(adapter, tokenizer, PROMPTS)
    adapter.merge_and_unload().save_pretrained(tmp_path / "merged")
    tokenizer.save_pretrained(tmp_path / "merged")
    return tmp_path / "merged", expected


def test_what_was_saved_is_proven_from_disk_by_plain_transformers(saved, tokenizer):
    folder, expected = saved
    assert 0 <= merging.verify(folder, tokenizer, PROMPTS, expected, torch.float32) < 1e-3


def test_a_merge_that_is_not_the_adapter_on_its_base_is_refused_with_the_difference(saved, tokenizer, model):
    folder, _ = saved
    with pytest.raises(ValueError, match=r"logits differ by \d.*more than the 0\.001.*The adapter is whole"):
        merging.verify(folder, tokenizer, PROMPTS, prompt_logits(model, tokenizer, PROMPTS), torch.float32)


def test_a_merge_that_cannot_be_loaded_is_refused(saved, tokenizer):
    folder, expected = saved
    (folder / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(ValueError, match="cannot be loaded by plain Transformers"):
        merging.verify(folder, tokenizer, PROMPTS, expected, torch.float32)


def test_a_failed_proof_leaves_what_was_merged_before(saved, tokenizer, model, tmp_path):
    folder, expected = saved
    before = (folder / "model.safetensors").read_bytes()
    with pytest.raises(ValueError, match="logits differ"), atomic_folder(folder) as path:
        model.save_pretrained(path)
        tokenizer.save_pretrained(path)
        merging.verify(path, tokenizer, PROMPTS, expected, torch.float32)
    assert (folder / "model.safetensors").read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["merged"]


# --- The bases, and 4 bits -------------------------------------------------------------------------------------------------


def test_the_dequantised_base_is_the_4_bit_policy_and_the_original_one_is_not(tokenizer):
    from helpers.training import policy

    in_4_bits = prompt_logits(policy.load(POCKET)[0], tokenizer, PROMPTS)
    gaps = {}
    for dequantised in (False, True):
        base = merging.load_base(POCKET, torch.float32, dequantised)
        assert {weight.dtype for weight in base.parameters()} == {torch.float32}
        gaps[dequantised] = largest_difference(in_4_bits, prompt_logits(base, tokenizer, PROMPTS))
    assert gaps[True] < gaps[False] / 2, "what is left is rounding in 16 bits"


def test_a_merged_model_stored_in_4_bits_is_smaller_and_still_answers(saved, tokenizer):
    folder, expected = saved
    before = (folder / "model.safetensors").stat().st_size
    merging.store_in_4_bits(folder, torch.float32)
    assert (folder / "model.safetensors").stat().st_size < before / 2
    stored = AutoModelForCausalLM.from_pretrained(folder).eval()
    assert stored.config.quantization_config.load_in_4bit
    assert 1e-3 < largest_difference(expected, prompt_logits(stored, tokenizer, PROMPTS)) < 10


# --- What is asked for and cannot be done ----------------------------------------------------------------------------------


CPU = Machine(None, 0.0, 0.0, 2, 8.0, "3.11.7", "Linux x86_64", False)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"merge": "8bit"}, "merge='8bit' is not known. Known: original, dequantised, 4bit, adapter"),
        ({"gguf": "q4_k_m"}, "gguf='q4_k_m' cannot be written here: Unsloth writes GGUF on a machine with an NVIDIA GPU"),
        ({"push_to_hub": "mine"}, "name it owner/model"),
        ({"push_to_hub": "me/mine"}, "set HF_TOKEN"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_loaded(tmp_path, monkeypatch, asked, said):
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    run = Run("a")
    run.path("data")
    nothing = {"merge": "original", "gguf": None, "push_to_hub": None}
    with pytest.raises(ValueError) as error:
        merging.check_plan(run, POCKET, CPU, torch.float32, **(nothing | asked))
    assert said in str(error.value)
    for merge in merging.WAYS:
        assert merging.check_plan(run, POCKET, CPU, torch.float32, merge=merge, gguf=None, push_to_hub=None) is None


def test_gguf_names_each_thing_that_is_missing(monkeypatch):
    monkeypatch.setattr(merging.shutil, "which", lambda tool: None if tool == "cmake" else f"/bin/{tool}")
    card = replace(CPU, gpu="NVIDIA L4", gpu_memory_gb=24.2)
    assert merging.gguf_obstacles(card, "unsloth") == [
        "llama.cpp is built for it, which needs cmake: install them with the system's packages."
    ]
    assert len(merging.gguf_obstacles(CPU, "transformers")) == 3
    monkeypatch.setattr(merging.shutil, "which", lambda tool: tool)
    assert merging.gguf_obstacles(card, "unsloth") == []
