"""The presets: each can run, one is picked for each card, every override is checked, and the
objective is TRL's.
"""

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest

from helpers import PROJECT, presets
from helpers.environment import Machine
from helpers.presets import (
    PRESETS,
    SETTINGS,
    Preset,
    as_settings,
    check_machine,
    for_sampling,
    from_manifest,
    pick,
    resolve,
    with_overrides,
)

POCKET = PRESETS["pocket"]
each_preset = pytest.mark.parametrize("preset", PRESETS.values(), ids=lambda preset: preset.name)


def machine(gpu_memory_gb: float = 0.0, gpu: str = "NVIDIA Card", capability: float = 8.0):
    has_one = gpu_memory_gb > 0
    return Machine(
        gpu if has_one else None,
        gpu_memory_gb,
        capability if has_one else 0.0,
        2,
        8.0,
        "3.11.7",
        "Linux x86_64",
    )


# --- The presets ----------------------------------------------------------------------------------


def test_the_presets_are_those_the_house_names():
    names = "pocket small t4 l4 a100 h100 h200 memory_optimized high_performance"
    assert list(PRESETS) == names.split() == [preset.name for preset in PRESETS.values()]
    assert [preset.needs_gb for preset in PRESETS.values()] == [0, 7.5, 15, 22, 39, 79, 138, 15, 39]


@each_preset
def test_every_preset_gives_whole_groups_its_own_context_and_itself_back(preset):
    assert preset.completions_per_round % preset.num_generations == 0
    assert preset.context == preset.max_prompt_length + preset.max_completion_length
    # The KL term is what `kl` in the logs, and the diagnosis of it, needs.
    assert preset.beta > 0 and preset.load_in_4bit
    # Below 20 GB vLLM leaves little to train in, and it may not serve a T4.
    assert preset.needs_gb >= 20 or preset.engine == "transformers"
    settings = json.loads(json.dumps(as_settings(preset)))
    assert set(settings) == {field.name for field in fields(Preset)}
    assert resolve(preset.name, machine()) == from_manifest(settings) == preset


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


def test_a_model_is_a_folder_in_the_project_or_passed_on_as_it_is():
    folder = Path(POCKET.model_path)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert POCKET.context <= config["max_position_embeddings"]
    assert folder.is_relative_to(Path(__file__).resolve().parents[1])
    assert with_overrides(POCKET, model="unsloth/Qwen3-4B").model_path == "unsloth/Qwen3-4B"


# --- For a machine --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("memory", "name"),
    [
        (0.0, "pocket"),
        (7.0, "pocket"),
        (8.6, "small"),  # as nvidia-smi tells 8, 11, 15, 16, 22.5, 32, 40, 80 and 140 GiB
        (11.8, "small"),
        (16.1, "t4"),
        (17.2, "t4"),
        (24.2, "l4"),
        (34.2, "l4"),
        (42.9, "a100"),
        (85.5, "h100"),
        (150.8, "h200"),
    ],
)
def test_auto_picks_the_largest_preset_that_fits_and_larger_ones_are_refused(memory, name):
    here = machine(memory)
    picked = resolve("auto", here, max_steps=7)
    assert picked == replace(PRESETS[name], max_steps=7)
    for preset in PRESETS.values():
        if preset.needs_gb > max(memory, picked.needs_gb):
            with pytest.raises(ValueError, match=f"preset '{preset.name}'.*--preset {name}`"):
                check_machine(preset, here)


T4, V100 = machine(16.1, "Tesla T4", 7.5), machine(17.2, "Tesla V100", 7.0)
CORRECTING = {"vllm_importance_sampling_correction": True}
PLAIN = {"backend": "transformers"}


@pytest.mark.parametrize(
    ("name", "given", "here", "vllm", "outcome"),
    [
        ("l4", {}, machine(24.2), True, "vllm"),
        ("l4", {}, machine(24.2), False, "transformers"),
        (
            "l4",
            {"engine": "vllm"},
            machine(24.2),
            False,
            "vLLM is not .*helpers install --optional",
        ),
        ("l4", CORRECTING, machine(24.2), True, "vllm"),
        ("pocket", {"engine": "auto"}, machine(), True, "transformers"),
        ("pocket", {"engine": "vllm"}, machine(), True, "vllm"),
        ("pocket", {"engine": "vllm"} | CORRECTING, machine(), True, "needs vLLM on a GPU"),
        ("t4", {}, T4, True, "transformers"),
        ("t4", PLAIN, T4, True, "casts the adapters to bfloat16, which Tesla T4 has not"),
        ("t4", PLAIN | {"load_in_4bit": False}, T4, True, "transformers"),
        ("t4", PLAIN, machine(16.1), True, "transformers"),
        ("t4", {}, V100, True, r"Tesla V100 has .* 7\.0.*serves 7\.5.*--preset pocket"),
    ],
)
def test_what_a_machine_samples_with_and_what_it_refuses(
    name, given, here, vllm, outcome, monkeypatch, capsys
):
    obstacle = None if vllm else "vLLM is not installed"
    monkeypatch.setattr(presets, "vllm_obstacle", lambda machine: obstacle)
    preset = with_overrides(PRESETS[name], **given)
    if outcome in ("vllm", "transformers"):
        assert check_machine(preset, here) == replace(preset, engine=outcome)
        assert ("not installed: sampling goes" in capsys.readouterr().out) == (not vllm)
    else:
        with pytest.raises(ValueError, match=outcome):
            check_machine(preset, here)


def test_auto_leaves_a_card_older_than_the_pinned_torch_alone():
    assert pick(V100) == "pocket"


# --- Overrides ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["t5", "", "POCKET", None])
def test_an_unknown_preset_lists_those_known(name):
    said = f"preset {name!r} is not known. Known: auto, {', '.join(PRESETS)}. .*helpers doctor"
    with pytest.raises(ValueError, match=said):
        resolve(name, machine())


def test_overrides_replace_and_none_keeps():
    given = {"max_steps": 5, "train_size": None, "load_in_4bit": False, "beta": 0}
    wanted = replace(POCKET, max_steps=5, load_in_4bit=False, beta=0)
    assert resolve("pocket", machine(), **given) == wanted, "false and zero are values"


def test_a_notebooks_parameters_are_those_names_that_are_settings_and_not_none():
    names = {"max_steps": 5, "beta": None, "engine": "auto", "load_in_4bit": False, "seed": 1}
    assert presets.chosen(names) == {"max_steps": 5, "engine": "auto", "load_in_4bit": False}
    loaded = names | {"model": object()}  # a later cell's, where 03 has no parameter of that name
    assert presets.chosen(loaded, presets.OF_TRAINING) == {"max_steps": 5, "engine": "auto"}
    with pytest.raises(ValueError, match=r"model is of type object here.*run that cell again"):
        presets.chosen(loaded)


@pytest.mark.parametrize(
    ("given", "train_size"),
    [
        ({"source": "mine.csv"}, None),
        ({"source": "mine.csv", "train_size": 30}, 30),
        ({"source": "arithmetic/differences"}, POCKET.train_size),
        ({"source": "reasoning-gym/chain_sum"}, POCKET.train_size),
        ({}, POCKET.train_size),
    ],
)
def test_a_presets_number_of_rows_is_for_what_can_be_generated(given, train_size):
    assert with_overrides(POCKET, **given).train_size == train_size


@pytest.mark.parametrize(
    ("field", "near"),
    [
        ("max_step", " Did you mean 'max_steps'"),
        ("zzz", "$"),
        ("name", "(?! Did you mean 'name')"),
        ("needs_gb", "(?! Did you mean 'needs_gb')"),
    ],
)
def test_an_unknown_field_gets_a_suggestion_if_one_is_near(field, near):
    with pytest.raises(ValueError, match=f"'{field}' is not a setting\\.{near}"):
        with_overrides(POCKET, **{field: 3})


GSPO = {"loss_type": "grpo", "importance_sampling_level": "sequence"}
GDPO = {"multi_objective_aggregation": "normalize_then_sum"}
NEEDED = {
    "dr_grpo": {"scale_rewards": "none"},
    "cispo": {"epsilon_high": 5.0},
    "luspo": {"importance_sampling_level": "sequence"},
}
COUNTS = ["train_size", "holdout_size", "max_prompt_length", "max_completion_length"]
COUNTS += ["max_seq_length", "lora_rank", "lora_alpha", "per_device_train_batch_size"]
COUNTS += ["gradient_accumulation_steps", "steps_per_generation", "num_iterations", "max_steps"]
COUNTS += ["logging_steps", "save_steps"]
SIZES = ("per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation")
REFUSED = [
    *(
        ({field: value}, f"{field}={value!r} is not of type")
        for field, value in [
            ("max_steps", "10"),
            ("max_steps", 1.5),
            ("max_steps", True),
            ("train_size", 10.0),
            ("learning_rate", "1e-5"),
            ("learning_rate", True),
            ("load_in_4bit", 1),
            ("model", ""),
            ("model", 3),
            ("loss_type", 5),
        ]
    ),
    *(
        ({field: least - 1}, f"{field}={least - 1} must be at least {least}")
        for least, counted in [(1, COUNTS), (2, ["num_generations"])]
        for field in counted
    ),
    *(
        ({field: value}, f"{field}={value} must be between")
        for field, value in [
            ("learning_rate", 0),
            ("learning_rate", float("nan")),
            ("learning_rate", float("inf")),
            ("temperature", 0.0),
            ("beta", -0.1),
            ("gpu_memory_utilization", 5.0),
            ("warmup_steps", -1.0),
            ("epsilon", 0.0),
        ]
    ),
    *(
        ({field: value}, f"{field}='{value}' must be one of: {known}")
        for field, value, known in [
            ("engine", "sglang", "auto, transformers, vllm"),
            ("scale_rewards", "std", "group, batch, none"),
            ("importance_sampling_level", "word", "token, sequence"),
            ("multi_objective_aggregation", "sum", "sum_then_normalize"),
            ("loss_type", "ppo", "grpo, bnpo, dr_grpo, dapo, cispo, sapo, luspo, vespo"),
        ]
    ),
    ({"warmup_steps": 32}, "warmup_steps=32 is not less than max_steps=32"),
    ({"max_steps": 0, "beta": -1.0}, "beta=-1.0"),  # all at once
    ({"max_seq_length": 135}, "max_seq_length=135 does not hold .* = 136"),
    # a round of sampling is a whole number of groups
    (
        dict(zip(SIZES, (6, 1, None), strict=True)),
        "x gradient_accumulation_steps = 6 completions a step are not whole .*=8",
    ),
    (dict(zip(SIZES, (4, 3, None), strict=True)), "x gradient_accumulation_steps = 12 completions"),
    (dict(zip(SIZES, (1, 4, 6), strict=True)), "x steps_per_generation = 6 completions"),
    ({"engine": "vllm", "temperature": 0.005}, "temperature=0.005: vLLM samples at 0.01 to 2"),
    ({"engine": "vllm", "temperature": 2.5}, "temperature=2.5: vLLM samples at 0.01 to 2"),
    (
        {"engine": "vllm", "backend": "transformers"},
        "engine='vllm' goes with backend='unsloth'",
    ),
    # what the chosen loss ignores or changes
    ({"loss_type": "cispo", "epsilon_high": 5.0, "epsilon": 0.1}, "epsilon=0.1 would be ignored"),
    ({"loss_type": "sapo", "epsilon": 0.1}, "epsilon=0.1 would be ignored by loss_type='sapo'"),
    ({"loss_type": "vespo", "epsilon_high": 0.28}, "epsilon_high=0.28 would be ignored"),
    ({"loss_type": "sapo", "epsilon_high": 0.28}, "epsilon_high=0.28 would be ignored by loss_typ"),
    ({"loss_type": "vespo", "epsilon": 0.1}, "epsilon=0.1 would be .*'vespo'; leave it at 0.2"),
    (
        {"loss_type": "vespo", "importance_sampling_level": "sequence"},
        "has one weight per completion already",
    ),
    ({"loss_type": "cispo", "epsilon_high": 0.99}, "cuts the ratio off at epsilon_high itself"),
    ({"importance_sampling_level": "sequence"}, "with loss_type='dapo' .* count by its length"),
    (GDPO | {"scale_rewards": "batch"}, "scale_rewards='batch' would be ignored"),
    (CORRECTING, "with engine='transformers' there is nothing to correct"),
    *(
        ({"loss_type": loss}, rf"{name}=.*loss_type='{loss}'.*set .*{value}")
        for loss, needed in NEEDED.items()
        for name, value in needed.items()
    ),
]


@pytest.mark.parametrize(("override", "said"), REFUSED)
def test_what_cannot_run_is_named(override, said):
    with pytest.raises(ValueError, match=f"preset 'pocket' cannot run:.*{said}"):
        with_overrides(POCKET, **override)


@pytest.mark.parametrize(
    "override",
    [
        *(
            {"loss_type": loss} | NEEDED.get(loss, {})
            for loss in SETTINGS["loss_type"].metadata["choices"]
        ),
        GSPO | {"epsilon": 3e-4, "epsilon_high": 4e-4},
        GDPO | {"num_iterations": 2},
        {"epsilon_high": 0.28, "mask_truncated_completions": True, "beta": 0.0},
        {"temperature": 0.005},
        {"max_seq_length": 136},
    ],
)
def test_what_the_field_trains_with_can_be_had(override):
    found = with_overrides(POCKET, **override)
    assert {name: getattr(found, name) for name in override} == override


@pytest.mark.parametrize(
    ("sizes", "per_step", "per_round"),
    [
        ((8, 1, None), 8, 8),
        ((4, 2, None), 8, 8),
        ((1, 4, 8), 4, 8),  # a round of sampling may serve several steps
    ],
)
def test_a_round_of_sampling_may_serve_several_steps(sizes, per_step, per_round):
    found = with_overrides(POCKET, **dict(zip(SIZES, sizes, strict=True)))
    assert (found.completions_per_step, found.completions_per_round) == (per_step, per_round)


def test_vllm_serves_ranks_it_knows_and_only_with_unsloth():
    ranks = {4: 8, 16: 16, 17: 32, 500: 512}
    fast = PRESETS["l4"]
    assert {rank: with_overrides(fast, lora_rank=rank).max_lora_rank for rank in ranks} == ranks
    assert with_overrides(fast, backend="transformers").engine == "transformers"


# --- Recorded runs --------------------------------------------------------------------------------


def test_a_manifest_with_overrides_and_a_setting_of_another_version():
    settings = as_settings(with_overrides(POCKET, max_steps=5)) | {"dropped_since": 1}
    assert from_manifest(settings) == replace(POCKET, max_steps=5)
    assert from_manifest(settings, max_steps=9, beta=None) == replace(POCKET, max_steps=9)
    with pytest.raises(ValueError, match="must be at least 1"):
        from_manifest(settings, max_steps=0)


# Settings as they were recorded before those of the objective existed.
OLD = {name: as_settings(POCKET)[name] for name in SETTINGS if name not in presets._OBJECTIVE}
OLD |= {"name": "pocket", "needs_gb": 0}


@pytest.mark.parametrize("loss", ["dr_grpo", "cispo"])
def test_an_old_manifest_whose_loss_needs_another_setting_is_mended_by_giving_it(loss):
    with pytest.raises(ValueError, match=f"loss_type='{loss}'"):
        from_manifest(OLD | {"loss_type": loss})
    wanted = with_overrides(POCKET, loss_type=loss, **NEEDED[loss])
    assert from_manifest(OLD | {"loss_type": loss}, **NEEDED[loss]) == wanted


def test_what_only_samples_does_not_mind_how_a_run_was_trained():
    assert for_sampling(OLD | {"loss_type": "dr_grpo"}, engine="transformers") == POCKET
    cooler = for_sampling(as_settings(POCKET), loss_type="cispo", temperature=0.5)
    assert cooler == replace(POCKET, temperature=0.5)
    fast = as_settings(with_overrides(PRESETS["l4"], engine="vllm", **CORRECTING))
    slow = replace(PRESETS["l4"], engine="transformers")
    assert for_sampling(fast, engine="transformers") == slow


# --- In TRL, and on the page ----------------------------------------------------------------------


def test_grpo_gets_every_setting_that_trl_knows_and_its_objective_is_trls_default():
    from trl import GRPOConfig

    trls = {name: field.default for name, field in GRPOConfig.__dataclass_fields__.items()}
    objective = {name: trls[name] for name in presets._OBJECTIVE}
    objective |= {"epsilon_high": 0.2, "vllm_importance_sampling_correction": False}
    for preset in PRESETS.values():
        known = {name: getattr(preset, name) for name in SETTINGS if name in trls}
        assert presets.grpo(preset) == known | objective | {"router_aux_loss_coef": 0.0}


def test_the_page_has_the_table_of_the_settings():
    page = (PROJECT / "docs" / "presets.md").read_text(encoding="utf-8")
    assert presets.table() in page, "put what `python -m helpers.presets` prints in its place"
