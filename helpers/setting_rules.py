"""Check the settings of a run: each value alone, and which values do not go together.

Settings are a `presets.Preset`. `presets.override` calls `problems` and refuses what it lists.
"""

import math
from dataclasses import Field, fields
from typing import Any, get_args


def problems(preset: Any) -> list[str]:
    """Return one sentence for each problem of these settings.

    Types are checked first, then values, then combinations; a check that finds a problem ends the
    list, because the next one relies on it.
    """
    return problems_alone(preset) or _misfits(preset)


def problems_alone(preset: Any) -> list[str]:
    """Return the settings that are impossible whatever the others are, one sentence each."""
    return _wrong_types(preset) or _wrong_values(preset)


def _wrong_types(preset: Any) -> list[str]:
    """Return a sentence for each empty text and each value of a wrong type."""
    sentences = []
    for setting in fields(preset):
        value = getattr(preset, setting.name)
        wanted = int | float if setting.type is float else setting.type
        if isinstance(value, bool):  # Python's bool is an int
            fits = bool in (setting.type, *get_args(setting.type))
        else:
            fits = isinstance(value, wanted)
        if value == "":
            sentences.append(f"{setting.name}='' is empty.")
        elif not fits:
            named = getattr(setting.type, "__name__", setting.type)
            sentences.append(f"{setting.name}={value!r} is not of type {named}.")
    return sentences


def _wrong_values(preset: Any) -> list[str]:
    """Return a sentence for each value outside its range or choices."""
    sentences = []
    for setting in fields(preset):
        rule = setting.metadata
        value = getattr(preset, setting.name)
        if not rule or value is None:
            continue
        fits = value in rule["choices"] or not rule["choices"]
        if rule["least"] is not None:
            fits = rule["least"] <= value <= rule["most"]  # False for nan, too
        if not fits:
            sentences.append(f"{setting.name}={value!r} must be {possible_values(setting)}.")
    return sentences


def possible_values(setting: Field) -> str:
    """Return the possible values of a setting in words, such as `between 0 and 1`."""
    least, most, choices = (setting.metadata[key] for key in ("least", "most", "choices"))
    if choices:
        return f"one of: {', '.join(choices)}"
    if least is None:
        if bool in get_args(setting.type):
            return "True, False or None"
        return "True or False" if setting.type is bool else "a text"
    return f"at least {least}" if most == math.inf else f"between {least:g} and {most:g}"


def _misfits(preset: Any) -> list[str]:
    """Return a sentence for each combination of values that cannot run, or that would silently
    compute something else. What a loss ignores was read in GRPOTrainer._compute_loss of TRL 1.15,
    which does not warn.
    """
    sentences = []
    loss = preset.loss_type
    of_loss = f"loss_type={loss!r}"
    by_sequence = preset.importance_sampling_level == "sequence"

    # settings that the loss ignores must be at their defaults
    gdpo = preset.multi_objective_aggregation == "normalize_then_sum"
    defaults = {setting.name: setting.default for setting in fields(preset)}
    for name, ignored, by in (
        ("epsilon", loss in ("cispo", "sapo", "vespo"), of_loss),
        ("epsilon_high", loss in ("sapo", "vespo"), of_loss),
        ("scale_rewards", gdpo, "multi_objective_aggregation='normalize_then_sum'"),
    ):
        value = getattr(preset, name)
        if ignored and value != defaults[name]:
            sentences.append(
                f"{name}={value!r} would be ignored by {by}; leave it at {defaults[name]!r}."
            )

    # settings that a loss needs or excludes
    if loss == "cispo" and preset.epsilon_high < 1:
        sentences.append(
            f"epsilon_high={preset.epsilon_high}: {of_loss} cuts the ratio off at epsilon_high "
            "itself, so below 1 always; set epsilon_high=5.0 (ScaleRL), for example."
        )
    if loss == "dr_grpo" and preset.scale_rewards == "group":
        sentences.append(
            f"scale_rewards='group': {of_loss} is defined without it, and Unsloth drops it, on a "
            "GPU only; set scale_rewards='none'."
        )
    if loss == "luspo" and not by_sequence:
        sentences.append(
            f"importance_sampling_level='token': {of_loss} has one ratio per completion; set "
            "'sequence'."
        )
    if loss == "vespo" and by_sequence:
        sentences.append(
            f"importance_sampling_level='sequence': {of_loss} has one weight per completion "
            "already, and only the KL would change; leave it at 'token'."
        )
    if loss in ("bnpo", "dr_grpo", "dapo", "cispo") and by_sequence:
        sentences.append(
            f"importance_sampling_level='sequence': with {of_loss} a completion would count by "
            "its length; GSPO is loss_type='grpo'."
        )
    corrects = preset.vllm_importance_sampling_correction is not False
    if loss == "vespo" and corrects and preset.vllm_importance_sampling_mode.startswith("sequence"):
        sentences.append(
            f"vllm_importance_sampling_mode={preset.vllm_importance_sampling_mode!r}: {of_loss} "
            "takes a ratio of each token; leave it at 'token_truncate'."
        )

    # sizes
    if preset.completions_per_round % preset.num_generations > 0:
        processes = f"{preset.processes} processes x " if preset.processes > 1 else ""
        rounds = (
            "steps_per_generation" if preset.steps_per_generation else "gradient_accumulation_steps"
        )
        sentences.append(
            f"{processes}per_device_train_batch_size x {rounds} = {preset.completions_per_round} "
            f"completions are not whole groups of num_generations={preset.num_generations}; "
            "make the product a multiple of it."
        )
    needed = preset.max_prompt_length + preset.max_completion_length
    if preset.context < needed:
        sentences.append(
            f"max_seq_length={preset.max_seq_length} does not hold max_prompt_length + "
            f"max_completion_length = {needed}; raise it, or leave it out."
        )
    if preset.warmup_steps >= max(2, preset.max_steps):
        sentences.append(
            f"warmup_steps={preset.warmup_steps:g} is not less than max_steps={preset.max_steps}: "
            "the learning rate would never be reached. Below 1 it is a fraction of the steps."
        )

    # vLLM replaces a temperature below 0.01 by 0.01 without a warning (vllm/sampling_params.py,
    # vLLM 0.31)
    if preset.engine != "transformers" and not 0.01 <= preset.temperature <= 2:
        sentences.append(
            f"temperature={preset.temperature}: vLLM samples at 0.01 to 2; set "
            "engine='transformers' for another."
        )
    if preset.engine == "vllm" and preset.backend != "unsloth":
        sentences.append(
            "engine='vllm' goes with backend='unsloth', which builds the engine; with "
            "backend='transformers' leave it out."
        )
    return sentences
