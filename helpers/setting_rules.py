"""What settings a run may have: the values of each, and which go together.

Settings are a `presets.Preset`. Each rule is a condition and the sentence that is said if it holds.
"""

import math
from dataclasses import Field, fields
from typing import Any, get_args


def possible_values(setting: Field) -> str:
    """Return the values that a setting may have, in words."""
    least, most, choices = (setting.metadata[key] for key in ("least", "most", "choices"))
    if choices:
        return f"one of: {', '.join(choices)}"
    if least is None:
        if bool in get_args(setting.type):
            return "True, False or None"
        return "True or False" if setting.type is bool else "a text"
    return f"at least {least}" if most == math.inf else f"between {least:g} and {most:g}"


def problems(preset: Any) -> list[str]:
    """Return what makes settings impossible, one sentence each: types first, then values, then what
    does not go together, because each rule depends on those before it.
    """
    return problems_alone(preset) or _misfits(preset)


def problems_alone(preset: Any) -> list[str]:
    """Return the settings that are impossible whatever the others are, one sentence each."""
    return _wrong_types(preset) or _wrong_values(preset)


def _wrong_types(preset: Any) -> list[str]:
    sentences = []
    for setting in fields(preset):
        value = getattr(preset, setting.name)
        wanted = int | float if setting.type is float else setting.type
        if isinstance(value, bool):  # which Python takes for an int
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
    sentences = []
    for setting in fields(preset):
        rule = setting.metadata
        value = getattr(preset, setting.name)
        if not rule or value is None:
            continue
        fits = value in rule["choices"] or not rule["choices"]
        if rule["least"] is not None:
            fits = rule["least"] <= value <= rule["most"]  # false for nan, too
        if not fits:
            sentences.append(f"{setting.name}={value!r} must be {possible_values(setting)}.")
    return sentences


def _misfits(preset: Any) -> list[str]:
    """Return what is valid alone but not together, one sentence each."""
    loss = preset.loss_type
    of_loss = f"loss_type={loss!r}"
    by_sequence = preset.importance_sampling_level == "sequence"
    processes = f"{preset.processes} processes x " if preset.processes > 1 else ""
    rounds = (
        "steps_per_generation" if preset.steps_per_generation else "gradient_accumulation_steps"
    )
    needed = preset.max_prompt_length + preset.max_completion_length
    gdpo = "multi_objective_aggregation='normalize_then_sum'"

    # What a loss ignores, as GRPOTrainer._compute_loss of TRL 1.15 has it, which does not warn.
    defaults = {setting.name: setting.default for setting in fields(preset)}
    rules = []
    for name, ignored, by in (
        ("epsilon", loss in ("cispo", "sapo", "vespo"), of_loss),
        ("epsilon_high", loss in ("sapo", "vespo"), of_loss),
        ("scale_rewards", preset.multi_objective_aggregation == "normalize_then_sum", gdpo),
    ):
        value = getattr(preset, name)
        sentence = f"{name}={value!r} would be ignored by {by}; leave it at {defaults[name]!r}."
        rules.append((ignored and value != defaults[name], sentence))

    rules += [
        (
            loss == "cispo" and preset.epsilon_high < 1,
            f"epsilon_high={preset.epsilon_high}: {of_loss} cuts the ratio off at epsilon_high "
            "itself, so below 1 always; set epsilon_high=5.0 (ScaleRL), for example.",
        ),
        (
            loss == "dr_grpo" and preset.scale_rewards == "group",
            f"scale_rewards='group': {of_loss} is defined without it, and Unsloth drops it, on a "
            "GPU only; set scale_rewards='none'.",
        ),
        (
            loss == "luspo" and not by_sequence,
            f"importance_sampling_level='token': {of_loss} has one ratio per completion; set "
            "'sequence'.",
        ),
        (
            loss == "vespo" and by_sequence,
            f"importance_sampling_level='sequence': {of_loss} has one weight per completion "
            "already, and only the KL would change; leave it at 'token'.",
        ),
        (
            loss in ("bnpo", "dr_grpo", "dapo", "cispo") and by_sequence,
            f"importance_sampling_level='sequence': with {of_loss} a completion would count by "
            "its length; GSPO is loss_type='grpo'.",
        ),
        (
            loss == "vespo"
            and preset.vllm_importance_sampling_correction is not False
            and preset.vllm_importance_sampling_mode.startswith("sequence"),
            f"vllm_importance_sampling_mode={preset.vllm_importance_sampling_mode!r}: {of_loss} "
            "takes a ratio of each token; leave it at 'token_truncate'.",
        ),
        (
            preset.completions_per_round % preset.num_generations > 0,
            f"{processes}per_device_train_batch_size x {rounds} = {preset.completions_per_round} "
            f"completions are not whole groups of num_generations={preset.num_generations}; "
            "make the product a multiple of it.",
        ),
        (
            preset.context < needed,
            f"max_seq_length={preset.max_seq_length} does not hold max_prompt_length + "
            f"max_completion_length = {needed}; raise it, or leave it out.",
        ),
        (
            preset.warmup_steps >= max(2, preset.max_steps),
            f"warmup_steps={preset.warmup_steps:g} is not less than max_steps={preset.max_steps}: "
            "the learning rate would never be reached. Below 1 it is a fraction of the steps.",
        ),
        (  # vllm/sampling_params.py, vLLM 0.31: below it takes 0.01 without a word
            preset.engine != "transformers" and not 0.01 <= preset.temperature <= 2,
            f"temperature={preset.temperature}: vLLM samples at 0.01 to 2; set "
            "engine='transformers' for another.",
        ),
        (
            preset.engine == "vllm" and preset.backend != "unsloth",
            "engine='vllm' goes with backend='unsloth', which builds the engine; with "
            "backend='transformers' leave it out.",
        ),
    ]
    return [sentence for refused, sentence in rules if refused]
