"""The memory estimate: against arithmetic done by hand, against the real pocket model, and what it
refuses and proposes.
"""

from dataclasses import replace

import pytest
import torch

from helpers import PROJECT
from helpers.environment import Machine
from helpers.presets import PRESETS, with_overrides
from helpers.training import memory, policy, spread
from helpers.training.memory import (
    check,
    estimate,
    sampling_batch,
    sequences_in_engine,
    shape_from_config,
    shape_of,
    smaller,
)

POCKET = PRESETS["pocket"]
L4 = Machine("NVIDIA L4", 24.2, 8.9, 8, 64.0, "3.11.7", "Linux x86_64", False)
QWEN3_4B = shape_of("unsloth/Qwen3-4B")
gpu_presets = [preset for preset in PRESETS.values() if preset.needs_gb]


# --- By hand --------------------------------------------------------------------------------------


def test_the_weights_of_qwen3_4b_by_hand():
    # One layer: query and output 2560 x 4096 each, key and value 2560 x 1024 each, the MLP three
    # times 2560 x 9728.
    layer = 2 * 10_485_760 + 2 * 2_621_440 + 3 * 24_903_680
    assert layer == 100_925_440 and QWEN3_4B.linear_parameters == 36 * layer == 3_633_315_840
    assert QWEN3_4B.embedding_parameters == 151_936 * 2_560 == 388_956_160  # tied: counted once
    # NF4: half a byte, 1/64 of a byte of scale, 1/4096 of a byte of the scales' scale.
    in_4_bits = 3_633_315_840 * 0.5 + 3_633_315_840 / 64 + 3_633_315_840 / 4_096
    held = estimate(PRESETS["l4"], QWEN3_4B, 24.2e9).held
    assert (
        held["frozen weights"]
        == pytest.approx(in_4_bits + 2 * 388_956_160)
        == pytest.approx(2.652e9, rel=1e-3)
    )
    whole = estimate(with_overrides(PRESETS["l4"], load_in_4bit=False), QWEN3_4B, 24.2e9).held
    assert whole["frozen weights"] == 2 * 4_022_272_000


@pytest.mark.parametrize(
    ("model", "billions"),  # as their model cards count them
    [
        *(
            ("gemma-3-1b-it", 1.00),
            ("Qwen2.5-1.5B-Instruct", 1.54),
            ("Qwen3-1.7B", 1.72),
            ("Llama-3.2-3B-Instruct", 3.21),
        ),
        *(
            ("Qwen3-4B", 4.02),
            ("Llama-3.1-8B-Instruct", 8.03),
            ("Qwen3-8B", 8.19),
            ("Qwen3-14B", 14.77),
        ),
    ],
)
def test_the_shapes_count_as_many_parameters_as_the_models_have(model, billions):
    assert shape_of(f"unsloth/{model}").parameters / 1e9 == pytest.approx(billions, abs=0.006)


def test_the_adapter_its_reference_gradients_and_optimizer_by_hand():
    # Rank 32 on one layer of Qwen3-4B: 32 x (inputs + outputs) of the seven maps.
    layer = 32 * (2 * (2_560 + 4_096) + 2 * (2_560 + 1_024) + 3 * (2_560 + 9_728))
    assert QWEN3_4B.lora_parameters(32) == 36 * layer == 66_060_288
    found = estimate(PRESETS["l4"], QWEN3_4B, 24.2e9)
    # 32 bits under Unsloth, whose reference on a GPU is the model without it
    assert found.held["adapter"] == 4 * 66_060_288
    # two 8-bit moments
    assert (
        found.training["gradients"] == 4 * 66_060_288 and found.held["optimizer"] == 2 * 66_060_288
    )
    # without a GPU
    assert (
        estimate(PRESETS["l4"], QWEN3_4B, None).held["adapter, and its reference"]
        == 2 * 4 * 66_060_288
    )
    copied = estimate(with_overrides(PRESETS["l4"], backend="transformers"), QWEN3_4B, 24.2e9)
    assert copied.held["adapter, and its reference"] == 2 * 2 * 66_060_288
    plain = estimate(
        with_overrides(PRESETS["l4"], backend="transformers", beta=0.0, optim="adamw_torch"),
        QWEN3_4B,
        24.2e9,
    )
    # 16 bits under TRL
    assert plain.held["adapter"] == 2 * 66_060_288 and plain.held["optimizer"] == 2 * 2 * 66_060_288


def test_the_cache_while_sampling_by_hand():
    # 36 layers x 8 heads x 128 x (key and value) x 2 bytes a token; a round is 16 completions of
    # 1,024 tokens.
    settings = with_overrides(PRESETS["l4"], engine="transformers")
    assert (
        QWEN3_4B.kv_bytes == 147_456
        and settings.completions_per_round == 16
        and settings.context == 1_024
    )
    assert estimate(settings, QWEN3_4B, 24.2e9).sampling == {"KV cache": 16 * 1_024 * 147_456}
    # vLLM takes its share of the card whatever it needs; the weights lie in it.
    held = estimate(PRESETS["l4"], QWEN3_4B, 24.2e9)
    assert held.sampling["vLLM engine"] + held.held["frozen weights"] == pytest.approx(0.6 * 24.2e9)
    room = 0.6 * 24.2e9 - held.held["frozen weights"] - 1e9
    assert sequences_in_engine(PRESETS["l4"], QWEN3_4B, 24.2e9) == int(room // (1_024 * 147_456))


def test_activations_and_logits_by_hand():
    tokens = 8 * 1_024
    inputs = 36 * tokens * 2_560 * 2
    inside = tokens * 2 * (4 * 2_560 + (4_096 + 1_024 + 1_024 + 2_560) + 4 * 9_728)
    found = estimate(PRESETS["l4"], QWEN3_4B, 24.2e9).training
    assert found["activations"] == inputs + 2 * inside + 2_560 * 9_728 * 2
    assert found["logits"] == 3 * 256 * 151_936 * 4  # a quarter of a completion at a time, 32 bits
    plain = estimate(
        with_overrides(PRESETS["l4"], backend="transformers"), QWEN3_4B, 24.2e9
    ).training
    assert plain["logits"] == 3 * 8 * 768 * 151_936 * 2  # the whole batch, 16 bits
    unchecked = estimate(
        with_overrides(PRESETS["l4"], gradient_checkpointing=False), QWEN3_4B, 24.2e9
    ).training
    assert unchecked["activations"] == 38 * inside + 2_560 * 9_728 * 2


def test_the_peak_is_the_higher_of_the_two_phases():
    found = estimate(PRESETS["l4"], QWEN3_4B, 24.2e9)
    held = sum(found.held.values())
    assert found.peaks == {
        "sampling": held + sum(found.sampling.values()),
        "training": held + sum(found.training.values()),
    }
    assert (
        found.peak == max(found.peaks.values())
        and found.fits(found.peak / 0.94)
        and not found.fits(found.peak / 0.96)
    )


# --- Against the real thing -----------------------------------------------------------------------


def test_the_pocket_model_in_4_bits_takes_what_was_estimated():
    model, _ = policy.load(POCKET)
    shape = shape_of(POCKET.model_path)
    counted = 0
    for parameter in model.parameters():
        counted += parameter.numel() * parameter.element_size()
        state = getattr(parameter, "quant_state", None)
        if state is not None:
            counted += (
                state.absmax.numel() * state.absmax.element_size() + 4 * state.state2.absmax.numel()
            )
    assert estimate(POCKET, shape, None).held["frozen weights"] == pytest.approx(counted, rel=0.02)
    adapted = policy.add_adapter(model, POCKET)
    assert shape.lora_parameters(POCKET.lora_rank) == sum(
        p.numel() for p in adapted.parameters() if p.requires_grad
    )


def test_a_shape_read_off_a_configuration_is_that_of_the_model_built_from_it():
    from transformers import AutoModelForCausalLM, LlamaConfig

    config = LlamaConfig(
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=50,
    )
    shape = shape_from_config(config.to_dict())
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    norms = sum(weight.numel() for name, weight in model.named_parameters() if "norm" in name)
    assert shape.parameters + norms == sum(weight.numel() for weight in model.parameters())
    assert shape.max_position_embeddings == config.max_position_embeddings


def test_a_mixture_of_experts_gets_no_estimate_rather_than_a_wrong_one(tmp_path):
    config = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 8, "num_experts": 8}
    assert shape_from_config(config | {"num_hidden_layers": 2, "vocab_size": 50}) is None
    (tmp_path / "config.json").write_text(
        '{"num_experts": 8, "num_attention_heads": 4, "intermediate_size": 8}'
    )
    (line,) = check(replace(POCKET, model=str(tmp_path)), L4)
    assert "no estimate for" in line


# --- What it refuses and what it proposes ---------------------------------------------------------


@pytest.mark.parametrize("preset", gpu_presets, ids=lambda preset: preset.name)
def test_every_preset_fits_the_smallest_card_it_is_meant_for(preset):
    card = replace(L4, gpu_memory_gb=preset.needs_gb)
    lines = check(preset, card)
    assert (
        lines[0].startswith(f"memory of a step of {preset.model}")
        and f" of {preset.needs_gb:.1f} GB" in lines[-1]
    )
    if preset.engine == "auto":
        shape = shape_of(preset.model)
        assert (
            sequences_in_engine(preset, shape, preset.needs_gb * 1e9)
            >= preset.completions_per_round
        ), "no queue"


def test_too_much_for_the_card_is_refused_with_three_settings_that_fit():
    settings = with_overrides(
        PRESETS["l4"], model="unsloth/Qwen3-14B", per_device_train_batch_size=64
    )
    with pytest.raises(ValueError) as error:
        check(settings, L4)
    assert "needs an estimated" in str(
        error.value
    ) and "of NVIDIA L4's 24.2 GB 23.0 GB can be filled" in str(error.value)
    ways = smaller(settings, shape_of(settings.model), 24.2e9, 0.95 * 24.2e9)
    assert len(ways) == 3
    for changes, after in ways:
        changed = with_overrides(settings, **changes)
        assert after == estimate(changed, shape_of(changed.model), 24.2e9) and after.fits(24.2e9)
        assert all(f"-p {name}={value}" in str(error.value) for name, value in changes.items())
        assert f"({memory.size(after.peak)})" in str(error.value)
    first, _ = ways[0]
    assert (
        with_overrides(settings, **first).completions_per_step == settings.completions_per_step
    ), "the training as it was"


def test_nothing_known_fits_a_card_of_one_gigabyte_and_that_is_said():
    with pytest.raises(ValueError, match="None of the smaller settings known here would fit"):
        check(PRESETS["small"], replace(L4, gpu_memory_gb=1.0))


def test_a_share_that_holds_not_one_sequence_is_refused():
    with pytest.raises(
        ValueError, match=r"gpu_memory_utilization=0\.1 leaves vLLM 2\.4 GB of 24\.2 GB"
    ):
        check(with_overrides(PRESETS["l4"], gpu_memory_utilization=0.1), L4)


def test_a_context_longer_than_the_models_positions_is_refused():
    with pytest.raises(
        ValueError, match=r"take 50,256 tokens and unsloth/Qwen3-4B has 40,960 positions"
    ):
        check(with_overrides(PRESETS["l4"], max_completion_length=50_000), L4)


def test_a_model_that_cannot_be_had_is_named_with_the_cause():
    with pytest.raises(
        ValueError, match=r"'nobody/no-model' could not be fetched .*HF_TOKEN"
    ):
        check(replace(POCKET, model="nobody/no-model"), L4)


def test_a_folder_without_a_model_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"no readable config\.json"):
        check(replace(POCKET, model=str(tmp_path)), L4)


def test_without_a_gpu_the_parts_are_shown_and_nothing_is_refused():
    lines = check(POCKET, replace(L4, gpu=None, gpu_memory_gb=0.0))
    assert not any("CUDA" in line for line in lines) and " of " not in lines[-1]


def test_a_batch_for_sampling_fills_the_free_memory_and_no_more():
    tokens = 1_024
    assert (
        sampling_batch(QWEN3_4B, tokens, 1e12) == 256 and sampling_batch(QWEN3_4B, tokens, 1e6) == 1
    )
    batch = sampling_batch(QWEN3_4B, tokens, 10e9)
    assert 0.9 * 8e9 < batch * (tokens * QWEN3_4B.kv_bytes + 12 * QWEN3_4B.vocab_size) <= 8e9


@pytest.mark.parametrize(
    ("number", "shown"), [(5.2e5, "0.5 MB"), (1.26e8, "126 MB"), (3.44e9, "3.4 GB")]
)
def test_sizes_are_for_the_eye(number, shown):
    assert memory.size(number) == shown


def test_the_page_of_presets_shows_the_estimates_of_the_presets():
    page = (PROJECT / "docs" / "presets.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in page.splitlines() if "| `" in line]
    told = {
        cells[0].strip("|` "): (cells[2], cells[-1].strip(" |"))
        for cells in rows
        if cells[0].strip("|` ") in PRESETS
    }
    assert told.keys() == PRESETS.keys()
    for name, (model, peak) in told.items():
        preset = PRESETS[name]
        card = preset.needs_gb * 1e9 if preset.needs_gb else None
        assert peak == memory.size(estimate(preset, shape_of(preset.model_path), card).peak)
        assert preset.model.split("/")[-1] in model or name == "pocket"


@pytest.mark.parametrize("card", [12.0, 24.2, 42.9, 85.9])
@pytest.mark.parametrize("model", ["unsloth/Qwen3-1.7B", "unsloth/Qwen3-8B", "unsloth/Qwen3-14B"])
@pytest.mark.parametrize("load_in_4bit", [True, False])
@pytest.mark.parametrize("engine", ["vllm", "transformers"])
@pytest.mark.parametrize("length", [768, 16_000])
def test_whatever_is_proposed_passes_the_check_itself(card, model, load_in_4bit, engine, length):
    machine = replace(L4, gpu_memory_gb=card)
    changes = {
        "model": model,
        "load_in_4bit": load_in_4bit,
        "engine": engine,
        "max_completion_length": length,
    }
    settings = with_overrides(PRESETS["l4"], per_device_train_batch_size=32, **changes)
    ways = smaller(settings, shape_of(model), card * 1e9, 0.95 * card * 1e9)
    for change, after in ways:
        assert check(with_overrides(settings, **change), machine)
        assert after.fits(card * 1e9)
        assert shape_of(change.get("model", model)).parameters <= shape_of(model).parameters, (
            "never a larger model"
        )
    assert len({after.peak for _, after in ways}) == len(ways), "no two of one kind"


def test_a_completion_is_not_shortened_where_a_smaller_batch_will_do():
    settings = with_overrides(
        PRESETS["l4"],
        model="unsloth/Qwen3-8B",
        engine="transformers",
        per_device_train_batch_size=24,
        num_generations=12,
    )
    first, _ = smaller(settings, shape_of(settings.model), 24.2e9, 0.95 * 24.2e9)[0]
    assert "max_completion_length" not in first and first["per_device_train_batch_size"] < 24


def test_the_memory_of_one_of_several_processes():
    one = replace(
        PRESETS["a100"],
        backend="transformers",
        engine="transformers",
        load_in_4bit=False,
        optim="adamw_torch",
    )
    shape = memory.shape_of(one.model)
    alone = memory.estimate(one, shape, 80e9)
    four = {
        stage: memory.estimate(replace(one, processes=4, zero_stage=stage), shape, 80e9)
        for stage in range(4)
    }
    adapter = 4 * shape.lora_parameters(one.lora_rank)  # in 32 bits
    # DDP: all of the model in each process, and the gradients once more.
    assert four[0].held == alone.held and four[0].training == alone.training | {
        "gradient buckets": adapter
    }
    assert (
        four[0].sampling["KV cache"]
        == memory.estimate(replace(one, processes=1), shape, 80e9).sampling["KV cache"]
    )
    # ZeRO: a quarter of the optimizer's two moments, then of the gradients, then of the adapter.
    # The 16-bit weights are whole on each card while they are loaded and gathered to sample.
    assert [found.held["optimizer"] for found in four.values()] == [2 * adapter] + [
        2 * adapter / 4
    ] * 3
    assert [found.training["gradients"] for found in four.values()] == [adapter] * 2 + [
        adapter / 4
    ] * 2
    assert [found.held["frozen weights"] for found in four.values()] == [2 * shape.parameters] * 4
    assert four[2].held == four[1].held and sum(four[3].held.values()) < sum(four[2].held.values())
    assert four[3].peak < four[2].peak < four[0].peak


def test_processes_that_share_a_step_share_its_cache_too():
    one = replace(PRESETS["t4"], load_in_4bit=False)
    two = spread.shared(one, 2)
    shape = memory.shape_of(one.model)
    caches = [
        memory.estimate(settings, shape, 15e9).sampling["KV cache"] for settings in (one, two)
    ]
    assert caches == [16 * one.context * shape.kv_bytes, 8 * one.context * shape.kv_bytes]
