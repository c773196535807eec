"""The road on which the settings of a run are settled, read from top to bottom.

    settings = settle("auto", this_machine(), max_steps=100)

settings.py declares each setting, and presets.py has their values for each card. `settle` takes
five steps: a start, the changes of a notebook or of a command, this process, this machine, and the
rules that bind several settings. The functions below it are its steps 2 to 5, in this order. The
command `run` settles before it starts a notebook, and the notebook settles again: nothing has been
loaded by then.
"""

import math
import re
from collections.abc import Iterable, Set
from dataclasses import fields, replace
from typing import get_args

from helpers import families, processes
from helpers.environment import Machine, gpu_obstacle, say_which_gpu, this_machine, vllm_obstacle
from helpers.presets import PRESETS, pick
from helpers.settings import (
    GENERATED,
    OF_A_PROCESS,
    SETTINGS,
    Preset,
    did_you_mean,
    possible_values,
)


def settings_in(names: dict, among: Iterable[str] = SETTINGS) -> dict:
    """Return the settings that a notebook's parameters change: `settings_in(globals())` returns the
    variables that are named like a setting and are not None.
    """
    return {name: names[name] for name in among if names.get(name) is not None}


def settle(
    start: str | dict | Preset,
    machine: Machine | None = None,
    *,
    small: dict | None = None,
    sees: bool = False,
    **changes,
) -> Preset:
    """Return the settings of a run in this process. Raise ValueError if they cannot run, with a
    sentence for each reason.

    start: a preset's name, "auto" for the one that fits this machine, or settings, as a `Preset` or
        as a manifest recorded them.
    machine: where a model will be loaded; None: nowhere, so no machine's limits matter.
    small: settings for a lesson's own small model. They replace those of preset `pocket`, unless
        the changes name another model, which then needs a learning rate.
    sees: whether the run has pictures. The chat template then decides whether the model thinks.
    changes: settings by name; None keeps a setting.

    If the engine was left to the suite and vLLM cannot run, a sentence is printed and Transformers
    samples. Unsloth would fall back silently or raise.

    An unknown preset and an impossible value that was recorded are refused at once, because the
    rest depends on them. A rule about a refused value is not judged. Nor is whether Unsloth starts
    vLLM for the model, which may need a file from the hub, if anything was refused before.
    """
    # 1. where the settings start
    if start == "auto":
        here = machine or this_machine()
        say_which_gpu(here)
        start = pick(here)
    if not isinstance(start, dict | Preset):
        if start not in PRESETS:
            raise ValueError(
                f"preset {start!r} is not known. Known: auto, {', '.join(PRESETS)}. "
                "`python -m helpers doctor` says which one fits this machine."
            )
        start = PRESETS[start]
    if isinstance(start, dict):
        # A manifest of an older version may lack settings, which get their defaults (or None, which
        # the rules refuse), and may have some that no longer exist, which are left out.
        names = [setting.name for setting in fields(Preset)]
        start = Preset(**{name: start.get(name, getattr(Preset, name, None)) for name in names})

    # 2. what the parameters change: those that are not None
    refused = [
        f"{name!r} is not a setting. {did_you_mean(name, SETTINGS)}".strip()
        for name in changes
        if name not in SETTINGS
    ]
    changes = settings_in(changes)
    if small and start.name == "pocket":
        if changes.get("model", small["model"]) == small["model"]:
            changes = settings_in(small) | changes
        elif "learning_rate" not in changes:
            refused.append(
                f"the learning rate of preset 'pocket' would ruin {changes['model']!r}: use "
                "preset='auto' on a GPU, or give a rate."
            )
    settings, wrong = changed(start, changes)
    if wrong.keys() - changes.keys():  # recorded, so there is nothing to judge the rest by
        refuse(refused, wrong.values())

    # 3. this process's share of a step
    settings = _share(settings, changes, refused)

    # 4. this machine, and the model on it
    if machine:
        settings = _fit(settings, machine, sees, changes, wrong, refused)

    # 5. which values go together; a run that recorded a misfit did run, by the rules of its time
    allowed = misfits(start)
    unknown = {*wrong}
    if machine and settings.engine == "auto":  # step 4 could not decide it
        unknown.add("engine")
    together = [sentence for sentence in misfits(settings, unknown) if sentence not in allowed]
    refuse(refused, [*wrong.values(), *together])
    return settings


# --- 2. What the parameters change ----------------------------------------------------------------


def changed(start: Preset, changes: dict) -> tuple[Preset, dict[str, str]]:
    """Return the settings with these changes, none of which is None, and by name a sentence for
    each value that is impossible whatever the others are: first those of a wrong type, then those
    out of their range. Such a change is left out of the settings.
    """
    # 1. A change can take another setting with it. A preset's numbers of rows and its examples
    # belong to its generated source, not to a file or a dataset; and only Unsloth starts vLLM.
    values = {}
    if "source" in changes and not str(changes["source"]).startswith(GENERATED):
        values = {"train_size": None, "holdout_size": None, "few_shot": None}
    if changes.get("backend") == "transformers":
        values["engine"] = "transformers"

    # 2. Read texts: in YAML, and so for papermill, 3e-4 is one.
    for name, value in changes.items():
        is_number = re.fullmatch(r"-?[\d.]*\de[-+]?\d+", str(value))
        if SETTINGS[name].type is float and is_number:
            value = float(value)
        if name == "stop" and isinstance(value, str):
            value = [value]
        values[name] = value
    settings = replace(start, **values)

    # 3. The types, also of what was not changed.
    wrong = {}
    for setting in fields(settings):
        value = getattr(settings, setting.name)
        if isinstance(value, bool):  # Python's bool is an int, too
            fits = bool in (setting.type, *get_args(setting.type))
        elif setting.type is float:
            fits = isinstance(value, int | float)
        else:
            fits = isinstance(value, setting.type)
        if value == "":
            wrong[setting.name] = f"{setting.name}='' is empty."
        elif not fits:
            type_name = getattr(setting.type, "__name__", setting.type)
            wrong[setting.name] = f"{setting.name}={value!r} is not of type {type_name}."

    # 4. The ranges, of values whose type is right.
    texts = [] if "stop" in wrong else settings.stop or []
    if not all(isinstance(text, str) and text for text in texts):
        wrong["stop"] = f"stop={settings.stop!r} must be a text or a list of texts, none empty."
    for name, setting in SETTINGS.items():
        value = getattr(settings, name)
        may_be = setting.metadata["may_be"]
        if may_be is None or value is None or name in wrong:
            continue
        if isinstance(may_be, list):
            fits = value in may_be
        else:
            least, most = may_be
            fits = least <= value <= most  # False for nan, too
        if not fits:
            wrong[name] = f"{name}={value!r} must be {possible_values(setting)}."
    return replace(settings, **{name: getattr(start, name) for name in wrong}), wrong


# --- 3. This process ------------------------------------------------------------------------------


def _share(settings: Preset, changes: dict, refused: list[str]) -> Preset:
    """Return the settings of one of the processes that train together. If these cannot share a step
    evenly, add a sentence to `refused`.

    Together, the processes sample as many completions as the settings say, so that curves stay
    comparable. But if a change gives one of OF_A_PROCESS, all three hold for each process.
    """
    number = processes.count()
    if changes.keys() & set(OF_A_PROCESS) or number == settings.processes:
        return replace(settings, processes=number)

    # 1. Count the forward passes of all processes: of a step, and of a round of sampling (0 if a
    # round has as many as a step).
    batch = settings.per_device_train_batch_size
    passes = settings.gradient_accumulation_steps * settings.processes
    passes_of_round = (settings.steps_per_generation or 0) * settings.processes

    # 2. Divide the number of passes by as many of the processes as possible, and their size by the
    # rest: with 4 passes, each of 8 processes makes 1 pass of half the size.
    fewer = math.gcd(number, passes, passes_of_round)
    smaller = number // fewer
    if batch % smaller:
        refused.append(
            f"{number} processes cannot share the {batch * passes} completions of a step "
            f"(per_device_train_batch_size={batch} x gradient_accumulation_steps={passes}) evenly: "
            "start a number that divides them, or say with these two settings what each process "
            "does."
        )
        return settings
    return replace(
        settings,
        processes=number,
        per_device_train_batch_size=batch // smaller,
        gradient_accumulation_steps=passes // fewer,
        steps_per_generation=passes_of_round // fewer or None,
    )


# --- 4. This machine ------------------------------------------------------------------------------


def _fit(
    settings: Preset, machine: Machine, sees: bool, changes: dict, wrong: dict, refused: list[str]
) -> Preset:
    """Return the settings on this machine: the engine becomes "vllm" or "transformers", and
    `vllm_importance_sampling_correction` is decided. What the machine cannot do is added to
    `refused`.

    wrong: the sentences about refused values, by name, as `changed` returns them.
    """
    # 1. Can it train the preset?
    obstacle = gpu_obstacle(machine)
    if machine.gpu is None and settings.needs_gb > 0:
        obstacle = (
            f"preset {settings.name!r} needs an NVIDIA GPU with {settings.needs_gb:.0f} GB, but "
            "none is visible. Without a GPU, use `--preset pocket`, or `--preset smollm2` for a "
            "real language model: both run on a CPU."
        )
    elif obstacle is None and settings.needs_gb > machine.gpu_memory_gb:
        obstacle = (
            f"preset {settings.name!r} is meant for a card of {settings.needs_gb:.0f} GB; "
            f"{machine.gpu} has {machine.gpu_memory_gb:.0f} GB. `--preset auto` picks one that "
            "fits."
        )
    if obstacle:
        refused.append(obstacle)
        return settings

    # 2. Can it compute with the adapters?
    casts = settings.backend == "transformers" and settings.load_in_4bit
    if machine.only_fp16 and casts and wrong.keys().isdisjoint(["backend", "load_in_4bit"]):
        refused.append(
            "backend='transformers' with load_in_4bit=True casts the adapters to bfloat16, which "
            f"{machine.gpu} does not support: use backend='unsloth', or load_in_4bit=False."
        )

    # 3. Can vLLM sample, if it may? The model's file is read only if nothing was refused; otherwise
    # the settings are returned as they are, because `settle` raises.
    if "engine" in wrong:
        return settings
    engine = settings.engine
    if engine == "auto" and not machine.gpu:
        engine = "transformers"
    in_4_bits = settings.load_in_4bit and "load_in_4bit" not in wrong
    obstacle = vllm_obstacle(machine, in_4_bits)
    if engine == "vllm" and obstacle:
        install = ""
        if obstacle == "vLLM is not installed":
            install = ", or install it: python -m helpers install"
        refused.append(f"engine='vllm': {obstacle}. Use engine='transformers'{install}.")
    elif engine != "transformers":
        if refused or wrong:
            return settings
        if not obstacle:
            config = families.config_of(settings.model_path)
            kind = config.get("model_type", "")
            family = families.family_of(kind)
            card_is_new_enough = (
                family.vllm_from is not None and machine.compute_capability >= family.vllm_from
            )
            shows_pictures = sees and "vision_config" in config
            if not card_is_new_enough or (shows_pictures and not family.sees_through_vllm):
                pictures = " and images" if sees else ""
                obstacle = (
                    f"Unsloth does not start vLLM for {kind}{pictures} on {machine.gpu} (compute "
                    f"capability {machine.compute_capability})"
                )
        engine = "vllm"
        if obstacle:
            engine = "transformers"
            print(
                f"{obstacle}: sampling goes through Transformers, which is slower "
                "(engine='transformers')."
            )

    # 4. Are vLLM's probabilities corrected? By default only in a long run with 4-bit weights.
    corrects = settings.vllm_importance_sampling_correction
    if engine == "vllm":
        if corrects is None and settings.load_in_4bit and settings.max_steps >= 100:
            corrects = True
    elif corrects and "vllm_importance_sampling_correction" in changes.keys() - wrong:
        refused.append(
            "vllm_importance_sampling_correction=True needs vLLM on a GPU; leave it out here."
        )
    elif corrects:
        corrects = None  # recorded where vLLM sampled

    return replace(
        settings,
        engine=engine,
        # a processor takes an unknown template keyword for one of its own
        thinking=None if sees else settings.thinking,
        vllm_importance_sampling_correction=corrects,
    )


# --- 5. The rules ---------------------------------------------------------------------------------


def misfits(preset: Preset, unknown: Set[str] = frozenset()) -> list[str]:
    """Return a sentence for each combination of values that cannot run, or that would silently
    compute something else. What a loss ignores was read in GRPOTrainer._compute_loss of TRL 1.15,
    which does not warn.

    unknown: settings whose values are not known yet. No rule that binds one of them is judged.
    """
    loss = preset.loss_type
    of_loss = f"loss_type={loss!r}"

    # 1. Settings that would be ignored must be at their defaults.
    ignored_by = {}
    if loss in ("cispo", "sapo", "vespo"):
        ignored_by["epsilon"] = of_loss
    if loss in ("sapo", "vespo"):
        ignored_by["epsilon_high"] = of_loss
    if preset.multi_objective_aggregation == "normalize_then_sum":
        ignored_by["scale_rewards"] = "multi_objective_aggregation='normalize_then_sum'"
    sentences = []
    for name, by in ignored_by.items():
        value = getattr(preset, name)
        default = SETTINGS[name].default
        if value != default and unknown.isdisjoint([name, by.partition("=")[0]]):
            sentences.append(f"{name}={value!r} would be ignored by {by}; leave it at {default!r}.")

    # 2. All other combinations: the settings that one binds, whether a preset has it, and what to
    # say of it.
    by_sequence = preset.importance_sampling_level == "sequence"
    corrects = preset.vllm_importance_sampling_correction is not False
    mode = preset.vllm_importance_sampling_mode
    needed = preset.max_prompt_length + preset.max_completion_length
    processes = f"{preset.processes} processes x " if preset.processes > 1 else ""
    if preset.steps_per_generation:
        passes = "steps_per_generation"
    else:
        passes = "gradient_accumulation_steps"
    combinations = [
        # settings that a loss needs or excludes
        (
            "loss_type epsilon_high",
            loss == "cispo" and preset.epsilon_high < 1,
            f"epsilon_high={preset.epsilon_high}: {of_loss} clips the ratio at epsilon_high "
            "itself, so always below 1; set epsilon_high=5.0 (ScaleRL), for example.",
        ),
        (
            "loss_type scale_rewards",
            loss == "dr_grpo" and preset.scale_rewards == "group",
            f"scale_rewards='group': {of_loss} is defined without it, and Unsloth drops it, on a "
            "GPU only; set scale_rewards='none'.",
        ),
        (
            "loss_type importance_sampling_level",
            loss == "luspo" and not by_sequence,
            f"importance_sampling_level='token': {of_loss} has one ratio per completion; set "
            "'sequence'.",
        ),
        (
            "loss_type importance_sampling_level",
            loss == "vespo" and by_sequence,
            f"importance_sampling_level='sequence': {of_loss} has one weight per completion "
            "already, and only the KL would change; leave it at 'token'.",
        ),
        (
            "loss_type importance_sampling_level",
            loss in ("bnpo", "dr_grpo", "dapo", "cispo") and by_sequence,
            f"importance_sampling_level='sequence': with {of_loss} a completion would be weighted "
            "by its length; GSPO is loss_type='grpo'.",
        ),
        (
            "loss_type vllm_importance_sampling_correction vllm_importance_sampling_mode",
            loss == "vespo" and corrects and mode.startswith("sequence"),
            f"vllm_importance_sampling_mode={mode!r}: {of_loss} uses a ratio per token; leave it "
            "at 'token_truncate'.",
        ),
        # sizes
        (
            "num_generations per_device_train_batch_size gradient_accumulation_steps "
            "steps_per_generation",
            preset.completions_per_round % preset.num_generations > 0,
            f"{processes}per_device_train_batch_size x {passes} = {preset.completions_per_round} "
            f"completions are not whole groups of num_generations={preset.num_generations}; "
            "make the product a multiple of it.",
        ),
        (
            "max_seq_length max_prompt_length max_completion_length",
            preset.context < needed,
            f"max_seq_length={preset.max_seq_length} is less than max_prompt_length + "
            f"max_completion_length = {needed}; raise it, or leave it out.",
        ),
        (
            "warmup_steps max_steps",
            preset.warmup_steps >= max(2, preset.max_steps),
            f"warmup_steps={preset.warmup_steps:g} is not less than max_steps={preset.max_steps}: "
            "the learning rate would never be reached. Below 1 it is a fraction of the steps.",
        ),
        # vLLM replaces a temperature below 0.01 by 0.01 without a warning (vllm/sampling_params.py,
        # vLLM 0.31)
        (
            "engine temperature",
            preset.engine != "transformers" and not 0.01 <= preset.temperature <= 2,
            f"temperature={preset.temperature}: vLLM samples at 0.01 to 2; set "
            "engine='transformers' for another.",
        ),
        (
            "engine backend",
            preset.engine == "vllm" and preset.backend != "unsloth",
            "engine='vllm' needs backend='unsloth', which builds the engine; with "
            "backend='transformers', leave it out.",
        ),
    ]
    return sentences + [
        sentence
        for names, has_it, sentence in combinations
        if has_it and unknown.isdisjoint(names.split())
    ]


def refuse(reasons: list[str], of_values: Iterable[str]) -> None:
    """Raise ValueError with all these sentences, if there are any: those about values first."""
    if of_values:
        reasons = ["these settings cannot run:", *of_values, *reasons]
    if reasons:
        raise ValueError(" ".join(reasons))
