"""A step of GRPO as notebook 03 takes it: its speed, its memory, and what really enters its loss.

What enters the loss is what the settings say; a setting that they do not have is at TRL's default.
One thing cannot be seen in a setting: Unsloth clamps the logarithm of the ratio in its KL estimate
at ±10 (unsloth_zoo/rl_replacements.py), and TRL does not.
"""

import dataclasses

from benchmarks.gpu import common
from helpers.environment import this_machine
from helpers.families import config_of
from helpers.presets import PRESETS
from helpers.runs import Run
from helpers.settings import Preset, grpo_keywords
from helpers.settling import settle
from helpers.training.memory import card_of, estimate

# The settings of GRPOConfig that the loss, the advantages and the choice of completions read: in
# TRL's GRPOTrainer, in the trainer that Unsloth generates, and in unsloth_zoo's loss.
# tests/gpu_contract compares this list with their sources.
_LOSS = """
    loss_type epsilon epsilon_high delta importance_sampling_level scale_rewards reward_weights
    multi_objective_aggregation mask_truncated_completions max_completion_length num_generations
    num_iterations beta use_bias_correction_kl off_policy_mask_threshold top_entropy_quantile
    router_aux_loss_coef entropy_coef entropy_coef_delta entropy_coef_max entropy_coef_min
    entropy_target use_adaptive_entropy sapo_temperature_neg sapo_temperature_pos vespo_k_neg
    vespo_k_pos vespo_lambda_neg vespo_lambda_pos use_vllm vllm_importance_sampling_correction
    vllm_importance_sampling_mode vllm_importance_sampling_cap vllm_importance_sampling_clip_max
    vllm_importance_sampling_clip_min per_device_train_batch_size gradient_accumulation_steps
    steps_per_generation generation_batch_size temperature top_p min_p repetition_penalty
    generation_kwargs seed shuffle_dataset
    """
OF_THE_LOSS = tuple(_LOSS.split())
_UPDATE = """
    top_k sync_ref_model disable_dropout learning_rate lr_scheduler_type warmup_steps optim
    adam_beta1 adam_beta2 weight_decay max_grad_norm
    """
# the trainer's own names where they differ; None: it keeps another thing under this name
_OF_TRAINER = {"epsilon": "epsilon_low", "generation_kwargs": None}
_ALIKE = {  # values that come to the same
    "optim": ("adamw_torch", "adamw_torch_fused"),
    "top_k": (0, -1, None),
    "router_aux_loss_coef": (0.0, None),  # no experts
    "generation_kwargs": ("{}", None),
    "reward_weights": ([1.0], None),  # one reward
}


def settings_for(model: str, rehearse: bool, **changes) -> Preset:
    """Settings for a folder's model that samples through Transformers, of preset l4; in a rehearsal
    of preset pocket, and smaller.
    """
    changes |= {"model": model, "engine": "transformers", "source": "arithmetic/sums"}
    changes |= {"max_steps": 1, "learning_rate": 1e-3, "warmup_steps": 0.0}
    smaller = {"per_device_train_batch_size": 8, "max_completion_length": 16}
    if not rehearse:
        smaller = {"max_completion_length": 256}
    return settle(PRESETS["pocket" if rehearse else "l4"], **smaller | changes)


def step(settings: Preset, result: common.Result):
    """Measure a trial step, compare the live trainer's objective, and train one step; the trained
    model and its tokenizer.
    """
    import pandas as pd
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    from helpers.training import lessons, policy
    from helpers.training.trial_steps import trial_step

    model, tokenizer = policy.load(settings)
    model = policy.add_adapter(model, settings, seed=1)
    machine, run = this_machine(), Run(f"gpu-check-{settings.backend}")
    keywords = lessons.lesson_keywords(run, settings, machine, seed=1)
    config = GRPOConfig(**keywords, save_strategy="no")
    prompt = [{"role": "user", "content": "What is 1 + 2? " * (settings.max_prompt_length // 12)}]
    train = pd.DataFrame({"prompt": [prompt] * 64})
    trial = trial_step(model, tokenizer, config, [every_other], train, settings, machine)
    tokens = settings.completions_per_step * settings.max_completion_length
    result.found |= {"seconds a step": trial.seconds, "seconds of sampling": trial.sampling}
    result.found["sampled tokens a second"] = tokens / trial.sampling
    if trial.peak is None:
        result.left_out.append("memory: needs a GPU")
    else:
        guess = estimate(settings, config_of(settings.model_path), card_of(machine))
        del guess.held["CUDA context"]  # torch does not count it in `max_memory_reserved`
        result.found |= {"peak, GB": trial.peak / 1e9, "estimate / peak": guess.peak / trial.peak}
    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        args=config,
        reward_funcs=[every_other],
        train_dataset=Dataset.from_pandas(train),
    )
    compared, differing = differences(trainer, settings, seed=1)
    result.found["settings of the live trainer as asked for"] = compared
    result.problems += differing
    trainer.train()
    return model, tokenizer


def every_other(completions: list, **columns) -> list[float]:
    """A reward that differs in every group, whatever is written."""
    return [float(i % 2) for i in range(len(completions))]


def differences(trainer, settings: Preset, seed: int) -> tuple[int, list[str]]:
    """How many settings of the objective the live trainer has, and those that are not as asked for,
    a sentence each.
    """
    args = trainer.args
    trls = next(cls for cls in type(args).__mro__ if cls.__module__.startswith("trl."))
    asked = {one.name: one.default for one in dataclasses.fields(trls)} | grpo_keywords(settings)
    rounds = settings.steps_per_generation or settings.gradient_accumulation_steps
    asked |= {"steps_per_generation": rounds, "seed": seed}
    asked |= {"generation_batch_size": settings.per_device_train_batch_size * rounds}
    asked["use_vllm"] = settings.engine == "vllm" and this_machine().gpu is not None
    names, problems = [name for name in (*OF_THE_LOSS, *_UPDATE.split()) if hasattr(args, name)], []
    for name in names:
        own = getattr(trainer, _OF_TRAINER.get(name, name) or "", None)
        live = {"arguments": plain(getattr(args, name)), "trainer": plain(own)}
        for where, value in live.items():
            wanted, alike = plain(asked[name]), _ALIKE.get(name, ())
            absent = where == "trainer" and value is None
            if value != wanted and not absent and not (value in alike and wanted in alike):
                problems.append(f"{name}: asked for {wanted!r}, the live {where}: {value!r}.")
    return len(names), problems


def plain(value: object) -> object:
    """As JSON has it: an enumeration as its value, a tensor as a list of rounded numbers."""
    value = getattr(value, "value", value)
    if hasattr(value, "tolist"):
        return [round(one, 6) for one in value.tolist()]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
