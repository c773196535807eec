"""Presets and settings: picking one for a machine, overriding settings, and TRL's defaults."""

import json
from dataclasses import asdict, fields, replace

import pytest
import torch
from transformers import get_scheduler

from helpers import PROJECT, settling
from helpers.environment import Machine
from helpers.presets import PRESETS, pick
from helpers.settings import (
    SETTINGS,
    Preset,
    grpo_keywords,
    settings_of,
)
from helpers.settling import changed, misfits, settings_in, settle
from helpers.templates import template_options

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


@each_preset
def test_every_preset_has_a_kl_and_an_engine_that_fits(preset):
    # without a KL term TRL logs no `kl`, which the diagnosis needs
    assert preset.beta > 0
    # below 20 GB vLLM leaves little memory for training, and may not support a T4
    assert preset.needs_gb >= 20 or preset.engine == "transformers"
    settings = json.loads(json.dumps(asdict(preset)))
    assert set(settings) == {field.name for field in fields(Preset)}
    assert settle(preset.name) == settle(settings) == preset


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
        "load_in_4bit": False,  # nearer to what vLLM samples
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "num_generations": 16,
        "max_prompt_length": 512,
        "max_completion_length": 1024,
    },
}


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_have_the_classic_values(name):
    settings = asdict(PRESETS[name])
    assert {field: settings[field] for field in RECIPES[name]} == RECIPES[name]


def test_model_path_is_a_folder_or_the_hub_name():
    folder = PROJECT / "helpers" / "pocket" / "model"
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert POCKET.model_path == str(folder)
    assert POCKET.context <= config["max_position_embeddings"]
    assert settle(POCKET, model="unsloth/Qwen3-4B").model_path == "unsloth/Qwen3-4B"


# --- For a machine --------------------------------------------------------------------------------


T4, V100 = machine(16.1, "Tesla T4", 7.5), machine(17.2, "Tesla V100", 7.0)
TOO_OLD = r"Tesla V100 has .* 7\.0.*supports 7\.5.*--preset pocket.*CUDA_VISIBLE_DEVICES= "
OLD_DRIVER = replace(machine(24.2), driver="570.124.06")


@pytest.mark.parametrize(
    ("memory", "name"),
    [
        (0.0, "pocket"),
        (7.0, "pocket"),
        (8.6, "small"),  # 8, 11, 15, 16, 22.5, 32, 40, 80 and 140 GiB
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
def test_auto_picks_the_largest_preset_that_fits(memory, name, monkeypatch):
    assert (pick(V100), pick(T4)) == ("pocket", "t4"), "the pinned torch does not serve a V100"
    assert pick(OLD_DRIVER) == "pocket"
    here = machine(memory)
    monkeypatch.setattr(settling, "this_machine", lambda: here)
    picked = settle("auto", max_steps=99)
    assert picked == replace(PRESETS[name], max_steps=99)
    assert settle("auto", here, max_steps=99, engine="transformers").name == name
    for preset in PRESETS.values():
        if preset.needs_gb > max(memory, picked.needs_gb):
            with pytest.raises(
                ValueError, match=f"preset '{preset.name}'.*--preset (auto|pocket)`"
            ):
                settle(preset, here)


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
            "vLLM is not .*helpers install",
        ),
        ("l4", CORRECTING, machine(24.2), True, "vllm"),
        ("l4", {"max_steps": 99}, machine(24.2), True, "vllm"),
        ("l4", {"load_in_4bit": False}, machine(24.2), True, "vllm"),
        ("l4", {"vllm_importance_sampling_correction": False}, machine(24.2), True, "vllm"),
        ("pocket", {"engine": "auto"}, machine(), True, "transformers"),
        ("pocket", {"engine": "vllm"}, machine(), True, "needs an NVIDIA GPU.* engine='transf"),
        ("pocket", CORRECTING, machine(24.2), True, "needs vLLM on a GPU"),
        ("t4", {}, T4, True, "transformers"),
        ("t4", PLAIN, T4, True, "casts the adapters to bfloat16, which Tesla T4 does not support"),
        ("t4", PLAIN | {"load_in_4bit": False}, T4, True, "transformers"),
        ("t4", PLAIN, machine(16.1), True, "transformers"),
        ("t4", {}, V100, True, TOO_OLD),
        ("pocket", {}, V100, True, TOO_OLD),
        ("l4", {}, OLD_DRIVER, True, "driver of NVIDIA Card is 570.* 580 or newer"),
        ("pocket", {}, OLD_DRIVER, True, "driver of NVIDIA Card is 570.*CUDA_VISIBLE_DEVICES= "),
        ("l4", {}, replace(OLD_DRIVER, driver="580.65.06"), True, "vllm"),
    ],
)
def test_the_engine_of_each_machine_or_a_refusal(
    name, given, here, vllm, outcome, monkeypatch, capsys
):
    if here.gpu:
        obstacle = None if vllm else "vLLM is not installed"
        monkeypatch.setattr(settling, "vllm_obstacle", lambda machine, load_in_4bit: obstacle)
    if outcome in ("vllm", "transformers"):
        found = settle(name, here, **given)
        # the correction is on by default only with vLLM, 4 bits and a long run
        asked = given.get("vllm_importance_sampling_correction")
        long_in_4_bits = name == "l4" and outcome == "vllm" and set(given) <= {"engine"}
        corrects = True if asked is None and long_in_4_bits else asked
        settled = {"engine": outcome, "vllm_importance_sampling_correction": corrects}
        assert found == replace(settle(name, **given), **settled)
        assert grpo_keywords(found)["vllm_importance_sampling_correction"] is bool(corrects)
        assert ("not installed: sampling goes" in capsys.readouterr().out) == (not vllm)
    else:
        with pytest.raises(ValueError, match=outcome):
            settle(name, here, **given)


def test_01_only_warns_about_a_preset_this_machine_cannot_train():
    said = "preset 'l4' needs an NVIDIA GPU with 22 GB, but none is visible"
    with pytest.raises(ValueError, match=f"^{said}.*--preset smollm2"):
        settle("l4", machine())
    assert settle("l4") == PRESETS["l4"]
    (path,) = (PROJECT / "notebooks").glob("01_*.ipynb")
    source = path.read_text(encoding="utf-8")
    assert source.index("settle(settings, machine)") < source.index("tokenizer_of(")


# --- Overrides ------------------------------------------------------------------------------------


KNOWN = f"is not known. Known: auto, {', '.join(PRESETS)}. .*helpers doctor"


@pytest.mark.parametrize(
    ("preset", "given", "said"),
    [
        ("t5", {}, f"preset 't5' {KNOWN}"),
        ("POCKET", {}, f"preset 'POCKET' {KNOWN}"),
        (None, {}, f"preset None {KNOWN}"),
        ("pocket", {"max_step": 3}, r"'max_step' is not a setting\. Did you mean 'max_steps'\?"),
        ("pocket", {"zzz": 3}, r"'zzz' is not a setting\.$"),
        ("pocket", {"needs_gb": 3}, r"'needs_gb' is not a setting\.(?! Did you mean 'needs_gb')"),
    ],
)
def test_an_unknown_preset_or_setting_is_refused_with_a_hint(preset, given, said):
    with pytest.raises(ValueError, match=said):
        settle(preset, machine(), **given)


def test_settings_in_finds_a_notebooks_parameters():
    names = {"max_steps": 5, "beta": None, "engine": "auto", "load_in_4bit": False, "seed": 1}
    assert settings_in(names) == {"max_steps": 5, "engine": "auto", "load_in_4bit": False}
    loaded = names | {"model": object()}  # a variable of a later cell in 03
    assert settings_in(loaded, settings_of("03")) == {"max_steps": 5, "engine": "auto"}
    with pytest.raises(ValueError, match=r"model=<object.*is not of type str"):
        settle(POCKET, **settings_in(loaded))


GSPO = {"loss_type": "grpo", "importance_sampling_level": "sequence"}
GDPO = {"multi_objective_aggregation": "normalize_then_sum"}
NEEDED = {
    "dr_grpo": {"scale_rewards": "none"},
    "cispo": {"epsilon_high": 5.0},
    "luspo": {"importance_sampling_level": "sequence"},
}
COUNTS = [
    *("train_size", "holdout_size", "max_prompt_length", "max_completion_length", "max_seq_length"),
    *("lora_rank", "lora_alpha", "per_device_train_batch_size", "gradient_accumulation_steps"),
    *("steps_per_generation", "num_iterations", "max_steps", "logging_steps", "save_steps"),
]
LOSSES = SETTINGS["loss_type"].metadata["may_be"]


def sizes(batch: int, passes: int, rounds: int | None) -> dict:
    return {
        "per_device_train_batch_size": batch,
        "gradient_accumulation_steps": passes,
        "steps_per_generation": rounds,
    }


REFUSED = [
    ({"model": ""}, "model='' is empty"),
    *(
        ({field: value}, f"{field}={value!r} is not of type")
        for field, value in [
            ("max_steps", "10"),
            ("max_steps", 1.5),
            ("max_steps", True),
            ("train_size", 10.0),
            ("learning_rate", "fast"),
            ("learning_rate", True),
            ("load_in_4bit", 1),
            ("thinking", 0),
            ("thinking", "no"),
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
    # all at once
    ({"max_steps": 0, "beta": -1.0}, r"max_steps=0 .* beta=-1\.0"),
    ({"max_steps": "10", "model": ""}, r"model='' is empty\. max_steps='10' is not of type"),
    ({"max_seq_length": 135}, "max_seq_length=135 is less than .* = 136"),
    # a round of sampling is a whole number of groups
    (
        sizes(6, 1, None),
        "x gradient_accumulation_steps = 6 completions are not whole groups .*=8",
    ),
    (sizes(4, 3, None), "x gradient_accumulation_steps = 12 completions"),
    (sizes(1, 4, 6), "x steps_per_generation = 6 completions"),
    ({"engine": "vllm", "temperature": 0.005}, "temperature=0.005: vLLM samples at 0.01 to 2"),
    ({"engine": "vllm", "temperature": 2.5}, "temperature=2.5: vLLM samples at 0.01 to 2"),
    (
        {"engine": "vllm", "backend": "transformers"},
        "engine='vllm' needs backend='unsloth'",
    ),
    # settings that the chosen loss ignores or changes
    ({"loss_type": "cispo", "epsilon_high": 5.0, "epsilon": 0.1}, "epsilon=0.1 would be ignored"),
    ({"loss_type": "sapo", "epsilon": 0.1}, "epsilon=0.1 would be ignored by loss_type='sapo'"),
    ({"loss_type": "vespo", "epsilon_high": 0.28}, "epsilon_high=0.28 would be ignored"),
    ({"loss_type": "sapo", "epsilon_high": 0.28}, "epsilon_high=0.28 would be ignored by loss_typ"),
    ({"loss_type": "vespo", "epsilon": 0.1}, "epsilon=0.1 would be .*'vespo'; leave it at 0.2"),
    (
        {"loss_type": "vespo", "importance_sampling_level": "sequence"},
        "has one weight per completion already",
    ),
    ({"loss_type": "cispo", "epsilon_high": 0.99}, "clips the ratio at epsilon_high itself"),
    ({"importance_sampling_level": "sequence"}, "with loss_type='dapo' .* weighted by its length"),
    (GDPO | {"scale_rewards": "batch"}, "scale_rewards='batch' would be ignored"),
    (
        CORRECTING
        | {"engine": "vllm", "loss_type": "vespo"}
        | {"vllm_importance_sampling_mode": "sequence_mask"},
        "loss_type='vespo' uses a ratio per token",
    ),
    ({"vllm_importance_sampling_mode": "cut"}, "must be one of: token_truncate, token_mask"),
    *(
        ({"loss_type": loss}, rf"{name}=.*loss_type='{loss}'.*set .*{value}")
        for loss, needed in NEEDED.items()
        for name, value in needed.items()
    ),
]


@pytest.mark.parametrize(("changes", "said"), REFUSED)
def test_impossible_settings_are_named(changes, said):
    with pytest.raises(ValueError, match=f"these settings cannot run:.*{said}"):
        settle(POCKET, **changes)


RATE = {"small": {"model": "pocket-functions"}, "model": "org/other"}  # and no learning rate
NO_VLLM = "engine='vllm': vLLM needs an NVIDIA GPU"


@pytest.mark.parametrize(
    ("preset", "given", "said"),
    [
        (
            "pocket",
            {"max_step": 3, "bta": 1},
            ["'max_step' is not a setting", "'bta' is not a sett"],
        ),
        (
            "pocket",
            {"max_step": 3, "beta": -1.0},
            ["'max_step' is not", "beta=-1.0 must be between"],
        ),
        (
            "pocket",
            {"max_steps": "10", "beta": -1.0},
            ["max_steps='10' is not of type", "beta=-1.0"],
        ),
        (
            "pocket",
            {"beta": -1.0, "num_generations": 7},
            ["beta=-1.0", "not whole groups of num_gen"],
        ),
        (
            "pocket",
            {"stop": [""], "warmup_steps": 32},
            ["stop=['']", "warmup_steps=32 is not less"],
        ),
        ("pocket", {"bta": 1, "warmup_steps": 32}, ["'bta' is not", "warmup_steps=32 is not less"]),
        ("pocket", {"bta": 1} | RATE, ["'bta' is not a setting", "or give a rate."]),
        ("pocket", {"max_steps": 0} | RATE, ["max_steps=0 must be", "would ruin 'org/other'"]),
        ("l4", {"beta": -1.0}, ["beta=-1.0", "'l4' needs an NVIDIA GPU"]),
        ("l4", {"warmup_steps": 300}, ["warmup_steps=300 is not less", "'l4' needs an NVIDIA GPU"]),
        ("pocket", {"temperature": 3, "engine": "vllm"}, ["temperature=3: vLLM samples", NO_VLLM]),
        ("pocket", {"engine": "vllm"} | PLAIN, ["engine='vllm' needs backend='unsloth'", NO_VLLM]),
        ("pocket", {"max_steps": -1, "engine": "vllm"}, ["max_steps=-1 must be", NO_VLLM]),
        ("pocket", {"load_in_4bit": 1, "engine": "vllm"}, ["load_in_4bit=1 is not", NO_VLLM]),
        ("pocket", {"bta": 1, "engine": "vllm"}, ["'bta' is not a setting", NO_VLLM]),
        ("pocket", {"max_steps": -1} | CORRECTING, ["max_steps=-1 must be", "needs vLLM on a GPU"]),
    ],
)
def test_faults_of_several_kinds_are_named_in_one_error(preset, given, said):
    with pytest.raises(ValueError) as error:
        settle(preset, machine(), **given)
    message = str(error.value)
    assert all(part in message for part in said)
    # a sentence each; those about values follow the one announcement
    of_values = message.startswith("these settings cannot run: ")
    assert message.count("these settings cannot run") == of_values


def test_a_models_file_is_fetched_only_if_nothing_was_refused(monkeypatch):
    monkeypatch.setattr(settling, "vllm_obstacle", lambda machine, load_in_4bit: None)
    in_fp16 = {"engine": "vllm", "model": "org/no-such-model"} | PLAIN
    for given, said in (
        ({"max_steps": -1, "engine": "vllm", "model": "org/no-such-model"}, "max_steps=-1 must be"),
        (
            {"max_steps": -1} | in_fp16,
            r"max_steps=-1 must be .* needs backend.* casts the adapters",
        ),
        (in_fp16, "needs backend='unsloth'.* casts the adapters"),
    ):
        with pytest.raises(ValueError, match=f"^these settings cannot run: .*{said}") as error:
            settle("t4", T4, **given)
        assert "no-such-model" not in str(error.value)
    with pytest.raises(ValueError, match=r"load_in_4bit=1 is not of type bool\.$"):
        settle("t4", T4, load_in_4bit=1, backend="transformers")  # of a refused value, no rule


@pytest.mark.parametrize(
    ("given", "unsaid"),
    [
        # with the preset's 8 per group, 12 completions would not be whole groups
        ({"num_generations": 0} | sizes(12, 1, None), "whole groups"),
        # with the preset's None, a round would have 4 completions
        (sizes(4, 1, 0), "whole groups"),
        ({"warmup_steps": 32, "max_steps": "64"}, "is not less than"),
        ({"engine": "sglang"} | CORRECTING, "needs vLLM"),
        ({"engine": "auto", "model": "", "temperature": 0.005}, "vLLM samples"),
    ],
)
def test_a_rule_about_a_refused_value_is_not_judged(given, unsaid):
    with pytest.raises(ValueError) as error:
        settle(POCKET, machine(), **given)
    assert unsaid not in str(error.value)


def test_a_rule_is_judged_only_if_it_holds_whatever_the_unknown_setting_is():
    tried = [0, 1, 2, 3, 5, 8, 32, 64, 0.2, 5.0, None, False, True]
    for setting in SETTINGS.values():
        if isinstance(setting.metadata["may_be"], list):
            tried += setting.metadata["may_be"]
    for changes, _ in REFUSED:
        settings, wrong = changed(POCKET, changes)
        found = [] if wrong else misfits(settings)
        for name in SETTINGS if found else ():
            judged = misfits(settings, {name})
            others = [replace(settings, **{name: value}) for value in tried]
            assert all(
                set(judged) <= {*misfits(other)} for other in others if not changed(other, {})[1]
            )


TAKEN = [
    *({"loss_type": loss} | NEEDED.get(loss, {}) for loss in LOSSES),
    GSPO | {"epsilon": 3e-4, "epsilon_high": 4e-4},
    GDPO | {"num_iterations": 2},
    {"epsilon_high": 0.28, "mask_truncated_completions": True, "beta": 0.0},
    {"temperature": 0.005, "engine": "transformers"},
    {"max_seq_length": 136},
    {"load_in_4bit": False, "beta": 0},  # false and zero are values
]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        *((taken, taken) for taken in TAKEN),
        ({"train_size": None, "beta": None, "max_steps": 5}, {"train_size": 1_000, "beta": 0.01}),
        # a preset's number of rows is for its generated source
        ({"source": "mine.csv"}, {"train_size": None}),
        ({"source": "mine.csv", "train_size": 30}, {"train_size": 30}),
        ({"source": "arithmetic/differences"}, {"train_size": 1_000}),
        ({"source": "reasoning-gym/chain_sum"}, {"train_size": 1_000}),
        # a round of sampling may serve several steps
        (sizes(8, 1, None), {"completions_per_step": 8, "completions_per_round": 8}),
        (sizes(4, 2, None), {"completions_per_step": 8, "completions_per_round": 8}),
        (sizes(1, 4, 8), {"completions_per_step": 4, "completions_per_round": 8}),
        # vLLM supports certain ranks, and needs Unsloth
        *(
            ({"lora_rank": rank}, {"max_lora_rank": served})
            for rank, served in [(4, 8), (16, 16), (17, 32), (500, 512)]
        ),
        ({"engine": None, "backend": "transformers"}, {"engine": "transformers"}),
        ({"learning_rate": "3e-4"}, {"learning_rate": 3e-4}),  # as YAML reads it
    ],
)
def test_possible_settings_are_accepted(given, found):
    preset = settle(replace(POCKET, engine="auto"), **given)
    assert {name: getattr(preset, name) for name in found} == found


def test_every_schedule_that_is_offered_needs_no_further_argument():
    model = torch.nn.Linear(2, 1)
    for name in SETTINGS["lr_scheduler_type"].metadata["may_be"]:
        optimiser = torch.optim.SGD(model.parameters(), 1.0)
        schedule = get_scheduler(name, optimiser, num_warmup_steps=2, num_training_steps=9)
        assert schedule.get_last_lr() == [0.0] or name == "constant"


# --- Recorded runs --------------------------------------------------------------------------------


def test_settings_of_a_manifest_can_be_overridden():
    settings = asdict(settle(POCKET, max_steps=5)) | {"dropped_since": 1}
    assert settle(settings) == replace(POCKET, max_steps=5)
    assert settle(settings, max_steps=9, beta=None) == replace(POCKET, max_steps=9)


OBJECTIVE = [
    *("loss_type", "epsilon", "epsilon_high", "scale_rewards", "multi_objective_aggregation"),
    *("importance_sampling_level", "mask_truncated_completions", "num_iterations"),
    *("vllm_importance_sampling_correction", "vllm_importance_sampling_mode"),
    "vllm_importance_sampling_clip_max",
]


def test_what_an_older_version_recorded_gets_todays_defaults():
    old = {name: asdict(POCKET)[name] for name in SETTINGS if name not in OBJECTIVE}
    assert settle(old | {"name": "pocket", "needs_gb": 0}) == POCKET


def test_recorded_settings_without_a_name_or_memory_are_refused_in_a_sentence():
    with pytest.raises(ValueError, match="needs_gb"):
        settle({"name": "pocket"})


def test_what_a_run_recorded_is_sampled_from_though_it_is_no_longer_allowed():
    recorded = asdict(POCKET) | {"loss_type": "dr_grpo"}
    assert settle(recorded, temperature=0.5).loss_type == "dr_grpo"
    with pytest.raises(ValueError, match="'cispo' clips the ratio"):
        settle(recorded, loss_type="cispo")


def test_a_run_trained_with_vllm_is_sampled_from_without_it():
    fast = asdict(settle("l4", engine="vllm", **CORRECTING))
    slow = replace(PRESETS["l4"], engine="transformers")
    assert settle(fast, machine(24.2), engine="transformers") == slow


SMALL = {"model": "pocket-functions", "learning_rate": 2e-3, "beta": 0.02}


@pytest.mark.parametrize("given", [{}, {"model": "pocket-functions"}])
def test_parameters_override_a_lessons_small_model(given):
    found = settle("pocket", machine(), small=SMALL, source="tasks.jsonl", **given, beta=0.5)
    expected = ("pocket-functions", 2e-3, 0.5)
    assert (found.model, found.learning_rate, found.beta) == expected


def test_another_model_needs_its_own_learning_rate():
    with pytest.raises(ValueError, match="would ruin 'org/other': use preset='auto'"):
        settle("pocket", small=SMALL, model="org/other")
    found = settle("pocket", small=SMALL, model="org/other", learning_rate=1e-6)
    assert (found.model, found.learning_rate) == ("org/other", 1e-6) and found.beta != 0.02


# --- In TRL, and on the page ----------------------------------------------------------------------


def test_grpo_gets_every_setting_and_trls_default_objective():
    from trl import GRPOConfig

    trls = {name: field.default for name, field in GRPOConfig.__dataclass_fields__.items()}
    objective = {name: trls[name] for name in OBJECTIVE}
    objective |= {"epsilon_high": 0.2, "vllm_importance_sampling_correction": False}
    objective["vllm_importance_sampling_mode"] = "token_truncate"
    objective["vllm_importance_sampling_clip_max"] = 2.0
    for preset in PRESETS.values():
        known = {name: getattr(preset, name) for name in SETTINGS if name in trls}
        constant = {"router_aux_loss_coef": 0.0}
        constant["chat_template_kwargs"] = template_options(preset.thinking)
        assert grpo_keywords(preset) == known | objective | constant
