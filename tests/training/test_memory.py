"""The memory estimate against arithmetic by hand and against the pocket model, and its refusals."""

import functools
import json
import re
from dataclasses import replace

import pytest
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

from benchmarks.gpu import common
from benchmarks.gpu.grpo_step import settings_for
from helpers import PROJECT
from helpers.environment import Machine, cpu_has_bf16, this_machine
from helpers.families import config_of, dense
from helpers.presets import PRESETS
from helpers.settling import settle
from helpers.training import memory, model_sizes, policy
from helpers.training.memory import check, estimate

POCKET = PRESETS["pocket"]
L4 = Machine("NVIDIA L4", 24.2, 8.9, 8, 64.0, "3.11.7", "Linux x86_64")
QWEN3_4B = config_of("unsloth/Qwen3-4B")
TINY = {"hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 512, "intermediate_size": 96}
TINY |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}


@pytest.fixture(autouse=True)
def here(monkeypatch):
    """Count in this process, which has imported Transformers. One test counts in another."""
    monkeypatch.setattr(model_sizes, "_counted", counted)


@functools.cache  # as the function that it stands for
def counted(text: str) -> model_sizes.Sizes:
    return model_sizes.count(*json.loads(text))


def on_l4(**changes) -> memory.Estimate:
    """Return the estimate of preset `l4`, with the sizes of Qwen3-4B, on a card of 24.2 GB."""
    return estimate(settle(PRESETS["l4"], **changes), QWEN3_4B, 24.2e9)


# --- By hand --------------------------------------------------------------------------------------


def test_the_weights_of_qwen3_4b_by_hand():
    # One layer: query and output 2560 x 4096 each, key and value 2560 x 1024 each, the MLP three
    # times 2560 x 9728.
    layer = 2 * 10_485_760 + 2 * 2_621_440 + 3 * 24_903_680
    sizes = model_sizes.sizes_of(QWEN3_4B, 8)
    assert sizes.quantised == 36 * layer
    # the embedding, which is also the head; norms: per layer two and two of 128, and a last one
    embedding, norms = 151_936 * 2_560, 36 * (2 * 2_560 + 2 * 128) + 2_560
    assert sizes.unquantised == embedding + norms
    untied = model_sizes.sizes_of(QWEN3_4B | {"tie_word_embeddings": False}, 8)
    assert untied.unquantised == 2 * embedding + norms
    # inputs and norms; the four maps of attention; gate, activation, up and product
    inside = 4 * 2_560 + (4_096 + 2 * 1_024 + 2_560) + 4 * 9_728
    assert sizes.activations == [inside] * 36
    # NF4: half a byte, 1/64 of a byte of scale, 1/4096 of a byte of the scales' scale.
    in_4_bits = 36 * layer * (0.5 + 1 / 64 + 1 / 4_096)
    assert on_l4().held["frozen weights"] == pytest.approx(in_4_bits + 2 * (embedding + norms))
    in_16_bits = 2 * (36 * layer + embedding + norms)
    assert on_l4(load_in_4bit=False).held["frozen weights"] == in_16_bits


def test_the_adapter_its_reference_gradients_and_optimizer_by_hand():
    # Rank 32 on one layer of Qwen3-4B: 32 x (inputs + outputs) of the seven maps.
    adapter = 36 * 32 * (2 * (2_560 + 4_096) + 2 * (2_560 + 1_024) + 3 * (2_560 + 9_728))
    # Unsloth: 32 bits, no copy as the reference on a GPU, two 8-bit moments
    step = on_l4()
    assert step.held["adapter"] == step.training["gradients"] == 4 * adapter
    assert step.held["optimizer"] == 2 * adapter
    without_a_gpu = estimate(PRESETS["l4"], QWEN3_4B, None)
    assert without_a_gpu.held["adapter, and its reference"] == 2 * 4 * adapter
    # TRL: 16 bits
    copied = on_l4(backend="transformers")
    assert copied.held["adapter, and its reference"] == 2 * 2 * adapter
    plain = on_l4(backend="transformers", beta=0.0, optim="adamw_torch")
    assert plain.held["adapter"] == 2 * adapter and plain.held["optimizer"] == 2 * 2 * adapter


def test_the_cache_while_sampling_by_hand():
    # per token 36 layers x 8 heads x 128 x (key and value) x 2 bytes; per round 16 completions of
    # 1,024 tokens
    assert model_sizes.sizes_of(QWEN3_4B, 1_024).cache == 1_024 * 147_456
    for processes in (1, 4):  # each samples its own completions
        plain = replace(PRESETS["l4"], engine="transformers", processes=processes)
        plain = replace(plain, backend="transformers")
        assert estimate(plain, QWEN3_4B, 24.2e9).sampling == {"KV cache": 16 * 1_024 * 147_456}
    # Unsloth's own decoding on a GPU: room for twice 512 tokens, and the prompts' 256 twice
    replaced = estimate(replace(PRESETS["l4"], engine="transformers"), QWEN3_4B, 24.2e9).sampling
    assert replaced == {"KV cache": 16 * (256 + 256 + 2 * 512) * 147_456}
    # vLLM takes its share of the card in any case, and the weights are part of it
    found = on_l4()
    weights = found.held["frozen weights"]
    assert found.sampling["vLLM engine"] + weights == pytest.approx(0.6 * 24.2e9)
    assert found.training["vLLM asleep"] == 1e9


def test_activations_and_logits_by_hand():
    # 8 sequences of 1,024 tokens, 768 of them completion; a layer's input is 2,560 numbers, its
    # inside 57,856 (above); 151,936 logits a token
    tokens, completion, inside = 8 * 1_024, 8 * 768, 57_856
    found = on_l4(backend="transformers")
    assert found.training["activations"] == 2 * tokens * (36 * 2_560 + 2 * inside)
    assert found.training["logits"] == 3 * 2 * completion * 151_936
    assert found.offloaded == 0
    everything = on_l4(backend="transformers", gradient_checkpointing=False)
    assert everything.training["activations"] == 2 * tokens * (36 + 2) * inside
    # Unsloth on a GPU: three inputs on the card and 35 off it, and gradients over the inside;
    # 512 rows of logits in 32 bits, and four times the hidden states of the completions
    found = on_l4()
    assert found.training["activations"] == 2 * tokens * (3 * 2_560 + inside)
    assert found.offloaded == 2 * tokens * 35 * 2_560
    logits = 4 * 512 * 151_936 + 4 * 2 * completion * 2_560
    assert found.training["logits"] == logits
    # 1,035 rows of 61,440 tokens, if the vocabulary takes 2,560 of 151,936 of them
    long = on_l4(max_completion_length=7_680)
    rows = 8 * 7_680 * 2_560 / 151_936
    expected = 4 * rows * 151_936 + 4 * 2 * 8 * 7_680 * 2_560
    assert long.training["logits"] == pytest.approx(expected)
    # never more than 2 GiB of rows, and never more rows than there are tokens
    for length, expected in (
        (30_000, 2**31 + 4 * 2 * 8 * 30_000 * 2_560),
        (32, 8 * 32 * (4 * 151_936 + 4 * 2 * 2_560)),
    ):
        found = on_l4(max_completion_length=length).training["logits"]
        assert found == pytest.approx(expected)


def test_layer_inputs_leave_the_card_only_where_unsloth_moves_them():
    assert "layer inputs, not on the card" in "\n".join(check(PRESETS["l4"], L4))
    assert estimate(PRESETS["l4"], QWEN3_4B, None).offloaded == 0, "without a GPU"
    assert on_l4(gradient_checkpointing=False).offloaded == 0
    assert on_l4(max_completion_length=255).offloaded == 0, "511 tokens"
    one = replace(PRESETS["l4"], per_device_train_batch_size=1, max_completion_length=256)
    assert estimate(one, QWEN3_4B, 24.2e9).offloaded > 0, "2.5 MiB an input"
    narrow = estimate(one, QWEN3_4B | {"hidden_size": 2_048}, 24.2e9)
    assert narrow.offloaded == 0, "2 MiB an input"
    # other families train on Transformers' own layers, whose gradients take room of their own
    other = estimate(PRESETS["l4"], QWEN3_4B | {"model_type": "olmo2"}, 24.2e9)
    assert other.training["activations"] == 2 * 8 * 1_024 * (3 * 2_560 + 2 * 57_856)


# --- Against what others and an H200 have measured ------------------------------------------------


def test_the_published_memory_of_unsloth():
    # https://unsloth.ai/blog/grpo: Llama 3.1 8B, 8 completions of 20,000 tokens, 54.3 GB. It does
    # not say whether in 16 bits or 4; the figure is between the two.
    config = config_of("unsloth/Llama-3.1-8B-Instruct")
    long = {"max_prompt_length": 256, "max_completion_length": 19_744}
    peaks = [on_80_gb(config, load_in_4bit=bits, **long) for bits in (True, False)]
    assert 0.8 * 54.3e9 < peaks[0] < 54.3e9 < peaks[1] < 1.2 * 54.3e9
    # https://unsloth.ai/docs/get-started/reinforcement-learning-rl-guide/memory-efficient-rl:
    # Qwen2.5-14B, at 32,768 tokens beside a sleeping vLLM, 43,042 MiB of torch's. It does not give
    # the batch: a sequence takes less, and two take more.
    config = dense("qwen2", 5_120, 13_824, 48, 40, 8, 128, 152_064, False, 32_768)
    long = {"max_prompt_length": 256, "max_completion_length": 32_512, "load_in_4bit": False}
    peaks = [
        on_80_gb(config, per_device_train_batch_size=size, **long) - 0.8e9 - 1e9 for size in (1, 2)
    ]
    assert 0.8 * 43_042 * 2**20 < peaks[0] < 43_042 * 2**20 < peaks[1]
    # the blog again: 5 GB are enough for Qwen2.5 1.5B beside vLLM
    config = config_of("unsloth/Qwen2.5-1.5B-Instruct")
    step = estimate(replace(PRESETS["memory_optimized"], engine="vllm"), config, 5e9)
    assert 3e9 < step.peak < 5e9


def on_80_gb(config: dict, **changes) -> float:
    """Return the bytes of a training step of preset `l4` with Unsloth and vLLM on 80 GB."""
    settings = replace(PRESETS["l4"], gradient_accumulation_steps=1, **changes)
    return estimate(settings, config, 80e9).peaks["training"]


@pytest.mark.parametrize("part", ["unsloth_step", "trl_step"])
def test_the_estimate_of_a_step_that_an_h200_took(part):
    # what torch had reserved, which has no CUDA context
    found = json.loads((common.RESULTS / f"{part}.json").read_text(encoding="utf-8"))["found"]
    backend = {"unsloth_step": "unsloth", "trl_step": "transformers"}[part]
    settings = settings_for("shape", rehearse=False, backend=backend, load_in_4bit=True)
    step = estimate(settings, common.REAL, 151e9)
    assert (step.peak - 0.8e9) / 1e9 == pytest.approx(found["peak, GB"], rel=0.1)


SMOLLM2 = dense("llama", 576, 1_536, 30, 9, 3, 64, 49_152, True, 8_192)


@pytest.mark.parametrize(
    ("length", "in_32_bits", "took"), [(32, False, 5.3e9), (184, False, 8.1e9), (32, True, 8.2e9)]
)
def test_the_estimate_of_trainings_that_two_cores_took(length, in_32_bits, took):
    settings = replace(PRESETS["smollm2"], max_completion_length=length)
    step = estimate(settings, SMOLLM2, None, in_32_bits=in_32_bits)
    assert step.peak == pytest.approx(took, rel=0.1)


@pytest.mark.parametrize("said", ["1", "0", ""])
def test_the_check_knows_as_unsloth_does_whether_a_cpu_computes_in_32_bits(
    monkeypatch, machine, said
):
    from unsloth_zoo.cpu.runtime import cpu_bf16_supported

    monkeypatch.setenv("UNSLOTH_CPU_BF16", said)
    in_32_bits = not cpu_bf16_supported.__wrapped__()
    step = estimate(PRESETS["smollm2"], SMOLLM2, None, in_32_bits=in_32_bits)
    lines = check(PRESETS["smollm2"], this_machine(), SMOLLM2)
    assert memory.size(step.peak) in "\n".join(lines)


def test_the_process_and_the_activations_without_a_gpu_by_hand():
    # inputs and norms; the four maps of attention; gate, activation, up and product; and 12 bytes
    # of each input for norms in 32 bits and the adapter's copies
    inside = 4 * 576 + (576 + 2 * 192 + 576) + 4 * 1_536
    tokens, bytes_inside = 16 * 256, 2 * inside + 12 * 576
    # what the tensors that autograd saved in one such step of SmolLM2 took
    assert 30 * tokens * bytes_inside == pytest.approx(3.35e9, rel=0.02)
    step = estimate(replace(PRESETS["smollm2"], max_completion_length=96), SMOLLM2, None)
    assert step.training["activations"] == pytest.approx(1.45 * (30 + 2) * tokens * bytes_inside)
    assert step.held["Python and its libraries"] == 1e9
    on_a_card = estimate(PRESETS["smollm2"], SMOLLM2, 8e9)
    assert "Python and its libraries" not in on_a_card.held
    # on a card, the gradients of Unsloth's layers take the place of the activations
    assert on_a_card.training["activations"] == 2 * 16 * 192 * (30 + 1) * inside


# --- Pictures -------------------------------------------------------------------------------------


def test_the_reserved_room_holds_any_picture():
    sizes = {"factor": 32, "min_pixels": 65_536, "max_pixels": 2**24}
    for most in (2**14, 2**18, 2**20):
        room = memory.room_for_a_picture(replace(POCKET, max_pixels=most))
        for width in (512, 240, 480, 1088, 1800):
            height, width = smart_resize(max(32, most // width), width, **sizes)
            assert height * width // 32**2 + 2 <= room
        assert room >= (336 // 14) ** 2 + 4, "of LLaVA, which makes every picture as large"


def test_a_picture_lengthens_the_prompt_and_keeps_vllm_awake():
    preset, config = PRESETS["vision_2b"], config_of("unsloth/Qwen3-VL-2B-Instruct")
    longer = replace(preset, max_prompt_length=256 + memory.room_for_a_picture(preset))
    assert estimate(preset, config, None, sees=True) == estimate(longer, config, None)
    assert ", 600 of them an image" in check(preset, replace(L4, gpu_memory_gb=40))[0]

    preset, config = PRESETS["vision_4b"], config_of("unsloth/gemma-3-4b-it")
    step = estimate(preset, config, 24.2e9, sees=True)
    assert step.training["vLLM awake"] == step.sampling["vLLM engine"]
    assert estimate(preset, config, 24.2e9).training["vLLM asleep"] == 1e9
    with pytest.raises(ValueError, match="gpu_memory_utilization"):
        check(replace(preset, gpu_memory_utilization=0.9), L4)


# --- Against the pocket model ---------------------------------------------------------------------


def test_the_estimate_matches_the_pocket_model_in_4_bits():
    model, _ = policy.load(POCKET)
    config, counted = config_of(POCKET.model_path), 0
    for parameter in model.parameters():
        counted += parameter.numel() * parameter.element_size()
        scales = getattr(parameter, "quant_state", None)
        if scales:
            counted += scales.absmax.numel() * scales.absmax.element_size()
            counted += 4 * scales.state2.absmax.numel()
    step = estimate(POCKET, config, None, in_32_bits=not cpu_has_bf16())
    assert step.held["frozen weights"] == pytest.approx(counted, rel=0.02)
    adapted = policy.add_adapter(model, POCKET, seed=0).parameters()
    trained = sum(weight.numel() for weight in adapted if weight.requires_grad)
    assert model_sizes.sizes_of(config, 8).adapter * POCKET.lora_rank == trained


def test_a_separate_process_counts_the_same(monkeypatch):
    config = config_of(POCKET.model_path)
    counted = model_sizes.count(config, POCKET.context)
    monkeypatch.undo()
    assert model_sizes.sizes_of(config, POCKET.context) == counted
    assert counted.positions == 1024 and counted.vocabulary == 350
    assert len(counted.activations) == 4


def test_a_model_that_cannot_be_built_gets_no_estimate(tmp_path, monkeypatch):
    monkeypatch.undo()
    (tmp_path / "config.json").write_text('{"model_type": "not_known"}')
    (line,) = check(replace(POCKET, model=str(tmp_path)), L4)
    assert "no estimate for" in line and "not_known" in line


# --- Unusual layers -------------------------------------------------------------------------------


def test_the_cache_depends_on_each_layers_attention():
    def cache(context: int, **config) -> int:
        return model_sizes.sizes_of(TINY | config, context).cache

    token = 2 * 2 * 16 * 2  # keys and values x 2 heads x 16 x 16 bits
    window = {"model_type": "gemma3_text", "sliding_window": 9}
    window["layer_types"] = ["sliding_attention", "full_attention"]
    # a sliding window keeps one token less than its length, and the number of its first token
    assert cache(100, **window) == (100 + 8) * token + 8
    # linear attention: a 32-bit state of heads x keys x values, and the inputs of its convolution
    linear = {"model_type": "qwen3_5_text", "linear_conv_kernel_dim": 4}
    linear |= dict.fromkeys(("linear_num_key_heads", "linear_num_value_heads"), 2)
    linear |= dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim"), 16)
    linear["layer_types"] = ["linear_attention", "full_attention"]
    assert cache(100, **linear) == 100 * token + 2 * 16 * 16 * 4 + 3 * 2 * 16 * 4 * 2
    convolution = {"model_type": "lfm2", "layer_types": ["conv", "full_attention"]}
    assert cache(100, **convolution, conv_L_cache=3) == 100 * token + 64 * 3 * 2


def test_experts_are_counted_and_a_token_uses_only_some():
    config = {"model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2}
    sizes = model_sizes.sizes_of(TINY | config | {"moe_intermediate_size": 32}, 8)
    assert sizes.experts == 2 * 8 * 3 * 64 * 32
    # inputs and norms; the four maps of attention; two maps of two experts, the wider one thrice
    assert sizes.activations == [3 * 64 + (64 + 32 + 32 + 64) + 2 * (64 + 64) + 2 * 2 * 64] * 2
    gpt_oss = config_of("unsloth/gpt-oss-20b")
    weights = [
        estimate(replace(PRESETS["h200"], **changes), gpt_oss, 138e9).held["frozen weights"]
        for changes in ({"load_in_4bit": True}, {"load_in_4bit": False})
    ]
    assert weights == pytest.approx([12.5e9, 41.8e9], rel=0.02), "Unsloth's are in 4 bits, too"


def test_embeddings_of_every_layer_stay_in_16_bits():
    config = {"model_type": "gemma4_text", "vocab_size_per_layer_input": 512}
    plain, more = (
        model_sizes.sizes_of(TINY | config | {"hidden_size_per_layer_input": width}, 8)
        for width in (0, 8)
    )
    assert more.unquantised - plain.unquantised > 2 * 512 * 8


# --- Refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in PRESETS if PRESETS[name].needs_gb])
def test_every_preset_fits_the_smallest_card_it_is_meant_for(name):
    preset = PRESETS[name]
    lines = check(preset, replace(L4, gpu_memory_gb=preset.needs_gb))
    assert lines[0].startswith(f"memory of a step of {preset.model}")
    assert f" of {preset.needs_gb:.1f} GB" in lines[-1]
    on_a_cpu = check(preset, replace(L4, gpu=None, gpu_memory_gb=0.0))  # nothing is refused
    assert not any("CUDA" in line for line in on_a_cpu) and " of " not in on_a_cpu[-1]


@pytest.mark.parametrize("name", PRESETS)
def test_what_helps_can_be_set_and_trains_the_same(name):
    settings = PRESETS[name]
    advised = {
        key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", memory.what_helps(settings))
    }
    smaller = settle(name, None, **advised)
    assert smaller.completions_per_step == settings.completions_per_step
    assert smaller.completions_per_round == settings.completions_per_round
    if name != "memory_optimized":  # its batch is 1 already
        assert smaller.per_device_train_batch_size < settings.per_device_train_batch_size


def test_five_percent_of_the_card_stay_free():
    preset = PRESETS["t4"]
    peak = estimate(preset, config_of(preset.model), 15e9).peak
    assert check(preset, replace(L4, gpu_memory_gb=peak / 0.94e9))
    with pytest.raises(ValueError) as error:
        check(preset, replace(L4, gpu_memory_gb=peak / 0.96e9))
    for part in (preset.model, memory.size(peak), "NVIDIA L4", "per_device_train_batch_size"):
        assert part in str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model": "unsloth/Qwen3-4B", "max_completion_length": 50_000},
            r"take 50,256 tokens, but \S+-4B has 40,960 positions",
        ),
        ({"model": "nobody/no-model"}, "'nobody/no-model' could not be fetched"),
    ],
)
def test_settings_that_cannot_be_trained_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        check(replace(PRESETS["l4"], **changes), L4)


def test_4_bits_are_advised_against_for_some_families():
    a100 = replace(L4, gpu_memory_gb=80)
    *_, line = check(replace(PRESETS["a100"], load_in_4bit=True), a100)
    assert "unsloth/Qwen3.5-9B" in line and "load_in_4bit=False" in line


def test_docs_presets_shows_the_estimates():
    page = (PROJECT / "docs" / "presets.md").read_text(encoding="utf-8")
    rows = [line.strip("|\n ").split(" | ") for line in page.splitlines() if "| `" in line]
    shown = {cells[0].strip("`"): (cells[2], cells[-1]) for cells in rows}
    for name, preset in PRESETS.items():
        if name == "smollm2":  # its package may be missing; see tests/test_smollm2.py
            continue
        card = preset.needs_gb * 1e9 if preset.needs_gb else None
        model, peak = shown[name]
        config, sees = config_of(preset.model_path), name.startswith("vision")
        assert peak == memory.size(estimate(preset, config, card, sees).peak)
        assert preset.model.split("/")[-1] in model or name == "pocket"
