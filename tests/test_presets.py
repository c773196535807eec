"""The presets: each can run, one is picked for each card, and every override is checked."""

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest

from helpers import presets
from helpers.environment import Machine
from helpers.presets import (
    PRESETS,
    Preset,
    as_settings,
    check_machine,
    from_manifest,
    pick,
    resolve,
    with_overrides,
)

POCKET = PRESETS["pocket"]
each_preset = pytest.mark.parametrize("preset", PRESETS.values(), ids=lambda preset: preset.name)


def machine(gpu_memory_gb: float = 0.0) -> Machine:
    return Machine(
        gpu="NVIDIA Card" if gpu_memory_gb else None,
        gpu_memory_gb=gpu_memory_gb,
        compute_capability=8.0 if gpu_memory_gb else 0.0,
        cores=2,
        memory_gb=8.0,
        python="3.11.7",
        system="Linux x86_64",
        colab=False,
    )


def from_mib(mib: int) -> float:
    return round(mib * 2**20 / 1e9, 1)


def test_the_presets_are_those_the_house_names():
    assert list(PRESETS) == [
        "pocket",
        "small",
        "t4",
        "l4",
        "a100",
        "h100",
        "h200",
        "memory_optimized",
        "high_performance",
    ]
    assert all(name == preset.name for name, preset in PRESETS.items())


@each_preset
def test_every_preset_gives_whole_groups_and_its_own_context(preset):
    batch = preset.per_device_train_batch_size
    assert preset.completions_per_step == batch * preset.gradient_accumulation_steps
    assert preset.completions_per_round == batch * (
        preset.steps_per_generation or preset.gradient_accumulation_steps
    )
    assert (
        preset.completions_per_round % preset.num_generations == 0
        and 4 <= preset.num_generations <= 16
    )
    assert preset.context >= preset.max_prompt_length + preset.max_completion_length
    assert preset.load_in_4bit and preset.max_lora_rank >= preset.lora_rank
    assert 1e-6 <= preset.learning_rate <= 5e-3 and 0 < preset.warmup_steps < 1
    # The KL term is what `kl` in the logs, and the diagnosis of it, needs.
    assert preset.beta > 0


@each_preset
def test_only_the_pocket_preset_runs_without_a_gpu(preset):
    assert (preset.needs_gb == 0) == (preset.name == "pocket")
    if preset.needs_gb < 20:
        # vLLM starts longer than the pocket model samples, and may not serve a T4.
        assert preset.engine == "transformers"


@pytest.mark.parametrize(
    ("memory", "name"),
    [
        (0.0, "pocket"),
        (4.0, "pocket"),
        (7.0, "pocket"),
        (from_mib(8192), "small"),
        (from_mib(11264), "small"),
        (from_mib(15360), "t4"),
        (from_mib(16384), "t4"),
        (22.5, "l4"),
        (from_mib(23034), "l4"),
        (24.6, "l4"),
        (from_mib(32607), "l4"),
        (from_mib(40960), "a100"),
        (from_mib(81920), "h100"),
        (from_mib(81559), "h100"),
        (from_mib(143771), "h200"),
    ],
)
def test_auto_picks_the_largest_preset_that_fits(memory, name):
    assert pick(machine(memory)) == name
    assert resolve("auto", machine(memory)) == PRESETS[name]


@pytest.mark.parametrize("memory", [0.0, 16.1, 24.2, 42.9, 85.9, 150.8])
def test_what_auto_picks_can_run_there_and_larger_presets_cannot(memory, monkeypatch):
    monkeypatch.setattr(presets, "vllm_obstacle", lambda machine: None)
    picked = resolve("auto", machine(memory))
    assert check_machine(picked, machine(memory)) == replace(
        picked, engine="vllm" if memory > 20 else "transformers"
    )
    for preset in PRESETS.values():
        if preset.needs_gb > max(memory, picked.needs_gb):
            with pytest.raises(
                ValueError, match=f"preset '{preset.name}'.*--preset {picked.name}`"
            ):
                check_machine(preset, machine(memory))


def test_the_smallest_preset_runs_on_any_card():
    assert check_machine(POCKET, machine(4.0)) == POCKET


@each_preset
def test_a_preset_is_found_by_name_whatever_the_machine(preset):
    assert resolve(preset.name, machine()) == preset


@pytest.mark.parametrize("name", ["t5", "", "POCKET", None, 3])
def test_an_unknown_preset_lists_those_known(name):
    with pytest.raises(ValueError) as error:
        resolve(name, machine())
    assert f"preset {name!r} is not known" in str(error.value)
    assert all(known in str(error.value) for known in ["auto", *PRESETS, "helpers doctor"])
    with pytest.raises(ValueError, match="Did you mean 'high_performance'"):
        resolve("high-performance", machine())


def test_overrides_replace_and_none_keeps():
    preset = resolve(
        "pocket",
        machine(),
        max_steps=5,
        learning_rate=1,
        train_size=None,
        beta=None,
        engine="transformers",
    )
    assert preset == replace(POCKET, max_steps=5, learning_rate=1)
    assert resolve("auto", machine(16.1), max_steps=7) == replace(PRESETS["t4"], max_steps=7)
    assert POCKET.max_steps != 5

    zero = with_overrides(POCKET, load_in_4bit=False, beta=0)
    assert (zero.load_in_4bit, zero.beta) == (False, 0), "false and zero are values"


@pytest.mark.parametrize(
    ("field", "near"),
    [
        ("max_step", " Did you mean 'max_steps'"),
        ("num_generation", " Did you mean 'num_generations'"),
        ("zzz", "$"),
        ("name", "(?! Did you mean 'name')"),
        ("needs_gb", "(?! Did you mean 'needs_gb')"),
    ],
)
def test_an_unknown_field_gets_a_suggestion_if_one_is_near(field, near):
    with pytest.raises(ValueError, match=f"'{field}' is not a setting\\.{near}"):
        with_overrides(POCKET, **{field: 3})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_steps", "10"),
        ("max_steps", 1.5),
        ("max_steps", True),
        ("train_size", 10.0),
        ("train_size", False),
        ("learning_rate", "1e-5"),
        ("learning_rate", True),
        ("load_in_4bit", 1),
        ("load_in_4bit", "no"),
        ("model", ""),
        ("model", 3),
        ("loss_type", []),
    ],
)
def test_a_value_of_another_type_is_named(field, value):
    with pytest.raises(ValueError) as error:
        with_overrides(POCKET, **{field: value})
    assert f"preset 'pocket' cannot run: {field}={value!r} is not of type" in str(error.value)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        *[(field, 0, f"{field}=0 must be at least 1") for field in presets._AT_LEAST_1],
        ("max_steps", -3, "max_steps=-3 must be at least 1"),
        ("optim", "", "optim='' is not of type str"),
        ("num_generations", 1, "a group of one has nothing to compare"),
        ("num_generations", 0, "use 2 or more"),
        ("learning_rate", 0, "learning_rate=0 must be between"),
        ("learning_rate", -1e-5, "must be between"),
        ("learning_rate", float("nan"), "must be between"),
        ("temperature", 0.0, "temperature=0.0 must be between"),
        ("beta", -0.1, "beta=-0.1 must be between"),
        ("learning_rate", float("inf"), "learning_rate=inf"),
        ("gpu_memory_utilization", 5.0, "gpu_memory_utilization=5.0"),
        ("warmup_steps", -1.0, "warmup_steps=-1.0"),
        ("warmup_steps", 32, "warmup_steps=32 is not less than max_steps=32"),
        ("engine", "hf", "engine='hf' is not one of: auto, transformers, vllm"),
    ],
)
def test_a_value_that_cannot_run_is_named(field, value, said):
    with pytest.raises(ValueError, match=f"preset 'pocket' cannot run:.*{said}"):
        with_overrides(POCKET, **{field: value})


@pytest.mark.parametrize(
    ("batch", "steps", "group", "fits"),
    [(8, 1, 8, True), (4, 2, 8, True), (8, 3, 12, True), (6, 1, 8, False), (4, 3, 8, False)],
)
def test_a_step_is_a_whole_number_of_groups(batch, steps, group, fits):
    sizes = {
        "per_device_train_batch_size": batch,
        "gradient_accumulation_steps": steps,
        "num_generations": group,
    }
    if fits:
        assert with_overrides(POCKET, **sizes).num_generations == group
    else:
        with pytest.raises(
            ValueError, match=f"= {batch * steps} completions a step are not whole groups.*{group}"
        ):
            with_overrides(POCKET, **sizes)


def test_all_problems_are_told_at_once():
    with pytest.raises(ValueError) as error:
        with_overrides(POCKET, max_steps=0, learning_rate=-1.0, num_generations=1)
    assert all(
        name in str(error.value) for name in ("max_steps", "learning_rate", "num_generations")
    )


@each_preset
def test_a_manifest_gives_the_preset_back(preset):
    settings = json.loads(json.dumps(as_settings(preset)))
    assert set(settings) == {field.name for field in fields(Preset)}
    assert from_manifest(settings) == preset


def test_a_manifest_with_overrides_and_a_setting_of_another_version():
    settings = as_settings(with_overrides(POCKET, max_steps=5)) | {"dropped_since": 1}
    assert from_manifest(settings) == replace(POCKET, max_steps=5)
    assert from_manifest(settings, max_steps=9, beta=None) == replace(POCKET, max_steps=9)
    with pytest.raises(ValueError, match="must be at least 1"):
        from_manifest(settings, max_steps=0)


def test_the_pocket_model_is_a_folder_in_the_project_with_positions_for_the_preset():
    folder = Path(POCKET.model_path)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert POCKET.context <= config["max_position_embeddings"]
    assert folder.is_dir()
    assert {"config.json", "tokenizer.json", "model.safetensors"} <= {
        path.name for path in folder.iterdir()
    }
    assert folder.is_relative_to(Path(__file__).resolve().parents[1])


def test_any_other_model_is_passed_on_as_it_is():
    assert with_overrides(POCKET, model="unsloth/Qwen3-4B").model_path == "unsloth/Qwen3-4B"


@pytest.mark.parametrize(
    ("given", "train_size"),
    [
        ({"source": "mine.csv"}, None),
        ({"source": "openai/gsm8k"}, None),
        ({"source": "mine.csv", "train_size": 30}, 30),
        ({"source": "arithmetic/differences"}, POCKET.train_size),
        ({}, POCKET.train_size),
    ],
)
def test_a_presets_number_of_rows_is_for_what_can_be_generated(given, train_size):
    assert with_overrides(POCKET, **given).train_size == train_size


# --- The two recipes ------------------------------------------------------------------------------


RECIPES = {
    "memory_optimized": {
        "learning_rate": 5e-6,
        "adam_beta1": 0.9,
        "adam_beta2": 0.99,
        "weight_decay": 0.1,
        "warmup_steps": 0.1,
        "lr_scheduler_type": "cosine",
        "optim": "adamw_8bit",
        "per_device_train_batch_size": 1,
        "gradient_accumulation_steps": 4,
        "num_generations": 8,
        "max_prompt_length": 256,
        "max_completion_length": 512,
        "max_grad_norm": 0.1,
    },
    "high_performance": {
        "learning_rate": 1e-5,
        "engine": "auto",
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "num_generations": 16,
        "max_prompt_length": 512,
        "max_completion_length": 1024,
    },
}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_the_classic_one_in_todays_names(name):
    settings = as_settings(PRESETS[name])
    assert {field: settings[field] for field in RECIPES[name]} == RECIPES[name]


def test_the_presets_are_a_spread_of_models_and_train_on_gsm8k():
    gpu = [preset for preset in PRESETS.values() if preset.needs_gb]
    assert {preset.source for preset in gpu} == {"openai/gsm8k"}
    assert len({preset.model for preset in gpu}) == 7
    assert {name.split("/")[1].split("-")[0] for name in (preset.model for preset in gpu)} == {
        "gemma",
        "Qwen2.5",
        "Qwen3",
        "Llama",
    }


# --- Combinations ---------------------------------------------------------------------------------


def test_a_round_of_sampling_may_serve_several_steps_and_is_whole_groups():
    sizes = {
        "per_device_train_batch_size": 1,
        "gradient_accumulation_steps": 4,
        "num_generations": 8,
    }
    with pytest.raises(
        ValueError,
        match="x gradient_accumulation_steps = 4 completions a step are not whole groups",
    ):
        with_overrides(POCKET, **sizes)
    preset = with_overrides(POCKET, **sizes, steps_per_generation=8)
    assert (preset.completions_per_step, preset.completions_per_round) == (4, 8)
    with pytest.raises(ValueError, match="x steps_per_generation = 6 completions"):
        with_overrides(POCKET, **sizes, steps_per_generation=6)


def test_the_context_holds_a_prompt_and_its_completion():
    needed = POCKET.max_prompt_length + POCKET.max_completion_length
    assert (
        POCKET.context == needed
        and with_overrides(POCKET, max_seq_length=needed + 8).context == needed + 8
    )
    with pytest.raises(
        ValueError, match=f"max_seq_length={needed - 1} does not hold .* = {needed}"
    ):
        with_overrides(POCKET, max_seq_length=needed - 1)


def test_vllm_serves_ranks_it_knows_and_only_with_unsloth():
    fast = PRESETS["l4"]
    assert [
        with_overrides(fast, lora_rank=rank).max_lora_rank for rank in (4, 16, 17, 64, 500)
    ] == [8, 16, 32, 64, 512]
    assert with_overrides(fast, backend="transformers").engine == "transformers"
    with pytest.raises(ValueError, match="engine='vllm' goes with backend='unsloth'"):
        with_overrides(fast, backend="transformers", engine="vllm")


def test_where_vllm_cannot_serve_the_same_preset_samples_through_transformers_and_says_so(
    capsys, monkeypatch
):
    card = machine(24.2)
    assert check_machine(PRESETS["l4"], card) == replace(PRESETS["l4"], engine="transformers"), (
        "vLLM is not installed here"
    )
    assert "vLLM is not installed: sampling goes through Transformers" in capsys.readouterr().out
    monkeypatch.setattr(presets, "vllm_obstacle", lambda machine: None)
    assert (
        check_machine(PRESETS["l4"], card) == replace(PRESETS["l4"], engine="vllm")
        and not capsys.readouterr().out
    )


def test_plain_trl_in_4_bits_is_refused_on_a_card_without_bfloat16():
    t4 = replace(machine(16.1), gpu="Tesla T4", compute_capability=7.5)
    plain = with_overrides(PRESETS["t4"], backend="transformers")
    with pytest.raises(
        ValueError,
        match="casts the adapters to bfloat16, which Tesla T4 has not: take backend='unsloth'",
    ):
        check_machine(plain, t4)
    assert check_machine(with_overrides(plain, load_in_4bit=False), t4).backend == "transformers"
    assert check_machine(plain, machine(16.1)) == plain


@pytest.mark.parametrize(
    ("gpu", "capability"), [("Tesla P100-PCIE-16GB", 6.0), ("Tesla K80", 3.7), ("Tesla V100", 7.0)]
)
def test_a_card_that_the_pinned_torch_does_not_serve_is_named(gpu, capability):
    old = replace(machine(17.2), gpu=gpu, compute_capability=capability)
    assert pick(old) == "pocket"
    with pytest.raises(
        ValueError,
        match=rf"{gpu} has compute capability {capability}.*serves 7\.5.*--preset pocket",
    ):
        check_machine(PRESETS["t4"], old)


def test_the_correction_of_vllms_probabilities_is_for_a_gpu(monkeypatch):
    asked = with_overrides(PRESETS["l4"], vllm_importance_sampling_correction=True)
    # vLLM is not installed here, so Transformers would sample
    with pytest.raises(ValueError, match="nothing to correct"):
        check_machine(asked, machine(24.2))
    monkeypatch.setattr(presets, "vllm_obstacle", lambda machine: None)
    assert check_machine(asked, machine(24.2)).vllm_importance_sampling_correction
    with pytest.raises(
        ValueError, match="vllm_importance_sampling_correction=True needs vLLM on a GPU"
    ):
        check_machine(
            with_overrides(POCKET, engine="vllm", vllm_importance_sampling_correction=True),
            machine(),
        )
