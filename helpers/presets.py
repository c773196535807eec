"""One frozen dataclass, one table: what to train, on what, and how, for each kind of machine.

The notebooks pass these fields on under TRL's, PEFT's and Unsloth's own names, so a reader can look
each one up there. Every field can be overridden by a notebook parameter of the same name.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace

from helpers import PROJECT
from helpers.environment import Machine, vllm_obstacle

POCKET_MODEL = "pocket"  # the name under which notebooks and manifests know the embedded model
# Their folders under helpers/pocket/.
EMBEDDED = {
    POCKET_MODEL: "model",
    "pocket-extraction": "extraction_model",
    "pocket-functions": "functions_model",
    "pocket-games": "games_model",
}


@dataclass(frozen=True)
class Preset:
    """All settings of a run.

    Lengths in tokens, sizes in rows, memory in GB of the whole card.

    `num_generations` completions a prompt form a group. One optimiser step sees
    `per_device_train_batch_size` times `gradient_accumulation_steps` completions in each process;
    one round of sampling makes `per_device_train_batch_size` times `steps_per_generation` in each,
    together a whole number of groups.
    """

    name: str
    needs_gb: float  # the smallest card this preset is meant for; 0 runs on a CPU
    model: str = "unsloth/Qwen3-4B"
    source: str = "openai/gsm8k"
    train_size: int | None = None
    holdout_size: int = 256
    max_prompt_length: int = 256
    max_completion_length: int = 768
    max_seq_length: int | None = None  # the context; None: a prompt and its completion together
    load_in_4bit: bool = True
    backend: str = "unsloth"  # or "transformers": Transformers, PEFT and TRL alone
    engine: str = "auto"  # what samples: "vllm", "transformers", or vLLM on a GPU that it serves
    gpu_memory_utilization: float = 0.6
    gradient_checkpointing: bool = True
    lora_rank: int = 32
    lora_alpha: int = 64
    num_generations: int = 8
    per_device_train_batch_size: int = 8
    gradient_accumulation_steps: int = 2
    # forward passes that one round of sampling serves; None: one optimiser step
    steps_per_generation: int | None = None
    max_steps: int = 300
    learning_rate: float = 1e-5
    lr_scheduler_type: str = "cosine"
    warmup_steps: float = 0.1  # below 1: a fraction of max_steps
    optim: str = "adamw_8bit"
    adam_beta1: float = 0.9
    adam_beta2: float = 0.99
    weight_decay: float = 0.1
    max_grad_norm: float = 0.1
    beta: float = 0.02
    loss_type: str = "dapo"
    # The rest of the objective, at TRL's values. None is left out: Unsloth's GPU configuration
    # fills in values of its own.
    epsilon: float = 0.2  # the ratio of new to old probability counts down to 1 - epsilon,
    epsilon_high: float = 0.2  # and up to 1 + epsilon_high; with cispo, up to epsilon_high itself
    scale_rewards: str = "group"
    multi_objective_aggregation: str = "sum_then_normalize"
    importance_sampling_level: str = "token"
    mask_truncated_completions: bool = False
    num_iterations: int = 1  # optimiser steps on the same completions; TRL's mu
    # TRL: True; without a GPU nothing computes it
    vllm_importance_sampling_correction: bool = False
    temperature: float = 1.0
    # below 1, or top_k or min_p above 0, what is sampled is not what is trained
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    logging_steps: int = 1
    save_steps: int = 50
    # how the training was launched, with the stage of ZeRO; set by that, never overridden
    processes: int = 1
    zero_stage: int = 0

    def __post_init__(self):
        problems = _problems(self)
        if problems:
            raise ValueError(f"preset {self.name!r} cannot run: " + " ".join(problems))

    @property
    def context(self) -> int:
        """Tokens that the model is loaded for: `max_seq_length`, or a prompt and a completion."""
        return self.max_seq_length or self.max_prompt_length + self.max_completion_length

    @property
    def completions_per_step(self) -> int:
        """Completions that one optimiser step sees, over all processes."""
        return self.processes * self.per_device_train_batch_size * self.gradient_accumulation_steps

    @property
    def completions_per_round(self) -> int:
        """Completions that one round of sampling makes, over all processes: TRL's generation
        batch.
        """
        passes = self.steps_per_generation or self.gradient_accumulation_steps
        return self.processes * self.per_device_train_batch_size * passes

    @property
    def batch(self) -> str:
        """The effective batch in words: `2 processes × 32 × 1 = 64 completions a step`."""
        processes = f"{self.processes} process{'es' * (self.processes > 1)}"
        product = (
            f"{self.per_device_train_batch_size} × {self.gradient_accumulation_steps} = "
            f"{self.completions_per_step}"
        )
        return f"{processes} × {product} completions a step"

    @property
    def max_lora_rank(self) -> int:
        """The rank that vLLM reserves room for: the next one it knows from `lora_rank` on."""
        return next((rank for rank in _VLLM_RANKS if rank >= self.lora_rank), _VLLM_RANKS[-1])

    @property
    def model_path(self) -> str:
        """What `from_pretrained` takes: an embedded model's folder, or the hub name itself."""
        folder = EMBEDDED.get(self.model)
        return str(PROJECT / "helpers" / "pocket" / folder) if folder else self.model


_VLLM_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # vllm.config.lora.MaxLoRARanks, vLLM 0.31
_LOSS_TYPES = ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo")
# The least and the greatest value.
_RANGES = {
    "train_size": (1, math.inf),
    "holdout_size": (1, math.inf),
    "max_prompt_length": (1, math.inf),
    "max_completion_length": (1, math.inf),
    "max_seq_length": (1, math.inf),
    "lora_rank": (1, math.inf),
    "lora_alpha": (1, math.inf),
    "num_generations": (2, math.inf),  # a group of one has nothing to compare
    "per_device_train_batch_size": (1, math.inf),
    "gradient_accumulation_steps": (1, math.inf),
    "steps_per_generation": (1, math.inf),
    "num_iterations": (1, math.inf),
    "max_steps": (1, math.inf),
    "logging_steps": (1, math.inf),
    "save_steps": (1, math.inf),
    "learning_rate": (1e-12, 1.0),
    "temperature": (1e-3, 10.0),
    "top_p": (1e-3, 1.0),
    "top_k": (0, 10**9),
    "min_p": (0.0, 1.0),
    "beta": (0.0, 100.0),
    "epsilon": (1e-6, 1.0),
    "epsilon_high": (1e-6, 100.0),
    "gpu_memory_utilization": (0.05, 1.0),
    "warmup_steps": (0.0, 1e9),
    "weight_decay": (0.0, 10.0),
    "max_grad_norm": (0.0, 1e6),
    "adam_beta1": (0.0, 0.999999),
    "adam_beta2": (0.0, 0.999999),
}
# `optim` and `lr_scheduler_type` are not here: Transformers names those it knows.
_CHOICES = {
    "loss_type": _LOSS_TYPES,
    "scale_rewards": ("group", "batch", "none"),
    "multi_objective_aggregation": ("sum_then_normalize", "normalize_then_sum"),
    "importance_sampling_level": ("token", "sequence"),
    "backend": ("unsloth", "transformers"),
    "engine": ("auto", "transformers", "vllm"),
}


def _problems(preset: Preset) -> list[str]:
    """What makes the settings impossible, one sentence each; types first, then each value, then
    what does not go together, because each rule depends on those before it.
    """
    for field in fields(preset):
        value, declared = getattr(preset, field.name), field.type
        whole = isinstance(value, int) and not isinstance(value, bool)
        fits = {
            "int": whole,
            "float": whole or isinstance(value, float),
            "bool": isinstance(value, bool),
            "str": isinstance(value, str) and bool(value),
            "int | None": value is None or whole,
        }[declared]
        if not fits:
            return [f"{field.name}={value!r} is not of type {declared}."]
    found = []
    for name, (low, high) in _RANGES.items():
        value = getattr(preset, name)
        if value is not None and not low <= value <= high:  # false for nan too
            bounds = f"at least {low}" if high == math.inf else f"between {low:g} and {high:g}"
            found.append(f"{name}={value} must be {bounds}.")
    for name, known in _CHOICES.items():
        if getattr(preset, name) not in known:
            found.append(f"{name}={getattr(preset, name)!r} is not one of: {', '.join(known)}.")
    return found or _misfits(preset)


def _misfits(preset: Preset) -> list[str]:
    """Settings that are valid alone but not together."""
    found = list(_objective(preset))
    if preset.completions_per_round % preset.num_generations:
        rounds = (
            "steps_per_generation" if preset.steps_per_generation else "gradient_accumulation_steps"
        )
        processes = f"{preset.processes} processes x " if preset.processes > 1 else ""
        found.append(
            f"{processes}per_device_train_batch_size x {rounds} = {preset.completions_per_round} "
            f"completions a step are not whole groups of num_generations={preset.num_generations}; "
            "make the product a multiple of it."
        )
    needed = preset.max_prompt_length + preset.max_completion_length
    if preset.context < needed:
        found.append(
            f"max_seq_length={preset.max_seq_length} does not hold max_prompt_length + "
            f"max_completion_length = {needed}; raise it, or leave it out."
        )
    if preset.warmup_steps >= max(2, preset.max_steps):
        found.append(
            f"warmup_steps={preset.warmup_steps:g} is not less than max_steps={preset.max_steps}: "
            "the learning rate would never be reached. Below 1 it is a fraction of the steps."
        )
    if preset.engine != "transformers" and not 0.01 <= preset.temperature <= 2:
        found.append(  # vllm/sampling_params.py, vLLM 0.31: below it takes 0.01 without a word
            f"temperature={preset.temperature}: vLLM samples at 0.01 to 2; set "
            "engine='transformers' for another."
        )
    if preset.engine == "vllm" and preset.backend != "unsloth":
        found.append(
            "engine='vllm' goes with backend='unsloth', which builds the engine; with "
            "backend='transformers' leave it out."
        )
    return found


# As GRPOTrainer._compute_loss of TRL 1.15 has it, which does not warn.
_IGNORED = {
    "cispo": ["epsilon"],
    "sapo": ["epsilon", "epsilon_high"],
    "vespo": ["epsilon", "epsilon_high"],
}


def _objective(preset: Preset) -> Iterator[str]:
    """Settings of the objective that would be ignored, or do something else than their names say,
    one sentence each.
    """
    loss, of_loss = preset.loss_type, f"loss_type={preset.loss_type!r}"
    ignored = [(name, of_loss) for name in _IGNORED.get(loss, [])]
    if preset.multi_objective_aggregation == "normalize_then_sum":
        ignored.append(("scale_rewards", "multi_objective_aggregation='normalize_then_sum'"))
    for name, by in ignored:
        value, usual = getattr(preset, name), getattr(Preset, name)
        if value != usual:
            yield f"{name}={value!r} would be ignored by {by}; leave it at {usual!r}."
    if loss == "cispo" and preset.epsilon_high < 1:
        yield (
            f"epsilon_high={preset.epsilon_high}: {of_loss} cuts the ratio off at epsilon_high "
            "itself, so below 1 always; set epsilon_high=5.0 (ScaleRL), for example."
        )
    if loss == "dr_grpo" and preset.scale_rewards == "group":
        yield (
            f"scale_rewards='group': {of_loss} is defined without it, and Unsloth drops it, on a "
            "GPU only; set scale_rewards='none'."
        )
    if loss == "luspo" and preset.importance_sampling_level == "token":
        yield (
            f"importance_sampling_level='token': {of_loss} has one ratio per completion; set "
            "'sequence'."
        )
    if loss == "vespo" and preset.importance_sampling_level == "sequence":
        yield (
            f"importance_sampling_level='sequence': {of_loss} has one weight per completion "
            "already, and only the KL would change; leave it at 'token'."
        )
    if (
        loss in ("bnpo", "dr_grpo", "dapo", "cispo")
        and preset.importance_sampling_level == "sequence"
    ):
        yield (
            f"importance_sampling_level='sequence': with {of_loss} a completion would count by "
            "its length; GSPO is loss_type='grpo'."
        )
    if preset.vllm_importance_sampling_correction and preset.engine == "transformers":
        yield (
            "vllm_importance_sampling_correction=True: with engine='transformers' there is "
            "nothing to correct; leave it out."
        )


_TABLE = (
    Preset(
        "pocket",
        needs_gb=0,
        model=POCKET_MODEL,
        source="arithmetic/sums",
        train_size=1_000,
        holdout_size=256,
        max_prompt_length=64,
        max_completion_length=72,
        engine="transformers",
        gradient_checkpointing=False,
        lora_rank=16,
        lora_alpha=32,
        per_device_train_batch_size=64,
        gradient_accumulation_steps=1,
        max_steps=32,
        learning_rate=1e-3,
        beta=0.01,
        optim="adamw_torch",
        max_grad_norm=1.0,
        weight_decay=0.0,
        save_steps=16,
    ),
    # Cards below 20 GB sample through Transformers: a vLLM engine would leave little to train in,
    # and recent vLLM may not serve a T4 (compute capability 7.5, no bf16).
    Preset(
        "small",
        needs_gb=7.5,
        model="unsloth/gemma-3-1b-it",
        max_completion_length=512,
        engine="transformers",
        lora_rank=16,
        lora_alpha=32,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=4,
    ),
    Preset(
        "t4",
        needs_gb=15,
        model="unsloth/Qwen3-1.7B",
        engine="transformers",
        lora_rank=16,
        lora_alpha=32,
    ),
    Preset("l4", needs_gb=22, model="unsloth/Qwen3-4B"),
    Preset("a100", needs_gb=39, model="unsloth/Llama-3.1-8B-Instruct", max_completion_length=1024),
    Preset(
        "h100",
        needs_gb=79,
        model="unsloth/Qwen3-8B",
        max_completion_length=2048,
        num_generations=16,
        per_device_train_batch_size=16,
        gradient_accumulation_steps=2,
    ),
    Preset(
        "h200",
        needs_gb=138,
        model="unsloth/Qwen3-14B",
        max_completion_length=2048,
        lora_rank=64,
        lora_alpha=128,
        num_generations=16,
        per_device_train_batch_size=32,
        gradient_accumulation_steps=2,
    ),
    # The two recipes' batches are less than one group: steps_per_generation samples a whole one,
    # which then serves two optimiser steps.
    Preset(
        "memory_optimized",
        needs_gb=15,
        model="unsloth/Qwen2.5-1.5B-Instruct",
        max_completion_length=512,
        engine="transformers",
        lora_rank=16,
        lora_alpha=32,
        num_generations=8,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=4,
        steps_per_generation=8,
        learning_rate=5e-6,
    ),
    Preset(
        "high_performance",
        needs_gb=39,
        model="unsloth/Qwen3-4B",
        max_prompt_length=512,
        max_completion_length=1024,
        num_generations=16,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        steps_per_generation=4,
        learning_rate=1e-5,
    ),
)
# What may be overridden.
SETTINGS = [
    f.name for f in fields(Preset) if f.name not in ("name", "needs_gb", "processes", "zero_stage")
]
_OF_DATA_AND_MODEL = (
    "model",
    "source",
    "train_size",
    "holdout_size",
    "max_prompt_length",
    "max_seq_length",
    "load_in_4bit",
    "gpu_memory_utilization",
    "gradient_checkpointing",
    "adam_beta1",
    "adam_beta2",
    "logging_steps",
)
# Settings of the loss, which nothing reads that only samples.
_OBJECTIVE = (
    "loss_type",
    "epsilon",
    "epsilon_high",
    "scale_rewards",
    "multi_objective_aggregation",
    "importance_sampling_level",
    "mask_truncated_completions",
    "num_iterations",
    "vllm_importance_sampling_correction",
)
# Those that notebook 03 takes, for a training of its own on data that 01 has prepared.
OF_TRAINING = [name for name in SETTINGS if name not in _OF_DATA_AND_MODEL]
PRESETS = {preset.name: preset for preset in _TABLE}
# CUDA 13, for which torch 2.13 is built, has dropped what came before Turing
OLDEST_CAPABILITY = 7.5
# what `auto` chooses from, largest first
_BY_MEMORY = ("h200", "h100", "a100", "l4", "t4", "small")


def pick(machine: Machine) -> str:
    """The name of the largest preset that fits the machine's GPU, or else `pocket`."""
    if machine.gpu is None or machine.compute_capability < OLDEST_CAPABILITY:
        return "pocket"
    return next(
        (name for name in _BY_MEMORY if PRESETS[name].needs_gb <= machine.gpu_memory_gb), "pocket"
    )


def resolve(name: str, machine: Machine, **overrides) -> Preset:
    """A preset by name (`auto` picks one for the machine) with some fields overridden; None keeps
    the preset's value.

    Raises ValueError for an unknown name or field, or for a combination that cannot run.
    """
    if name == "auto":
        name = pick(machine)
    if name not in PRESETS:
        raise ValueError(
            f"preset {name!r} is not known. Known: auto, {', '.join(PRESETS)}. "
            "`python -m helpers doctor` says which one fits this machine."
        )
    return with_overrides(PRESETS[name], **overrides)


def with_overrides(preset: Preset, **overrides) -> Preset:
    """The preset with these fields replaced, validated; None keeps a field.

    ValueError names an unknown field.
    """
    return replace(preset, **_given(overrides))


def _given(overrides: dict) -> dict:
    for field in overrides:
        if field not in SETTINGS:
            near = difflib.get_close_matches(field, SETTINGS, 1)
            raise ValueError(
                f"{field!r} is not a setting." + (f" Did you mean {near[0]!r}?" if near else "")
            )
    given = {field: value for field, value in overrides.items() if value is not None}
    generated = str(given.get("source", "arithmetic/")).startswith(
        ("arithmetic/", "reasoning-gym/")
    )
    if not generated and "train_size" not in given:
        # a preset's number is for what can be generated; of a file or a data set all rows are taken
        given["train_size"] = None
    if given.get("backend") == "transformers" and "engine" not in given:
        given["engine"] = "transformers"  # vLLM is Unsloth's to start here
    return given


def completed(settings: dict) -> dict:
    """Recorded settings, with newer ones at their defaults and without those that are gone."""
    return {
        field.name: settings.get(field.name, getattr(Preset, field.name, None))
        for field in fields(Preset)
    }


def from_manifest(settings: dict, **overrides) -> Preset:
    """The preset that a manifest recorded, with some fields overridden, checked as a whole."""
    return Preset(**completed(settings) | _given(overrides))


def for_sampling(settings: dict, **overrides) -> Preset:
    """`from_manifest` for what only loads a model and samples: the objective of its training is
    neither checked nor kept.
    """
    kept, given = (
        {name: one[name] for name in one if name not in _OBJECTIVE} for one in (settings, overrides)
    )
    return from_manifest(kept, **given)


def check_early_stopping(patience: int | None) -> None:
    """ValueError unless this is None or an integer of at least 2, in steps."""
    if patience is not None and (type(patience) is not int or patience < 2):
        raise ValueError(
            f"early_stopping={patience!r} is not a number of steps: give an integer of at least "
            "2, or None."
        )


def check_machine(preset: Preset, machine: Machine) -> Preset:
    """The preset as it will run on this machine: its engine is then "vllm" or "transformers".

    "auto" becomes vLLM on a GPU that it serves, and else prints why not. ValueError if the preset,
    or the engine that was asked for, cannot run here, before anything is loaded or downloaded.
    """
    if machine.gpu is None and preset.needs_gb:
        raise ValueError(
            f"preset {preset.name!r} needs an NVIDIA GPU with {preset.needs_gb:.0f} GB and none "
            "is visible. Without one, take `--preset pocket`, which runs on a CPU."
        )
    if preset.needs_gb and machine.compute_capability < OLDEST_CAPABILITY:
        raise ValueError(
            f"{machine.gpu} has compute capability {machine.compute_capability}, and the pinned "
            f"torch serves {OLDEST_CAPABILITY} (Turing: T4, RTX 20) and later. Take `--preset "
            "pocket` and hide the GPU with CUDA_VISIBLE_DEVICES= in the environment."
        )
    if preset.needs_gb > machine.gpu_memory_gb:
        raise ValueError(
            f"preset {preset.name!r} is meant for a card of {preset.needs_gb:.0f} GB; "
            f"{machine.gpu} has {machine.gpu_memory_gb:.0f} GB. Take `--preset {pick(machine)}`."
        )
    if (
        machine.gpu
        and not machine.bf16
        and preset.backend == "transformers"
        and preset.load_in_4bit
    ):
        raise ValueError(
            "backend='transformers' with load_in_4bit=True casts the adapters to bfloat16, which "
            f"{machine.gpu} has not: take backend='unsloth', or load_in_4bit=False."
        )
    if preset.engine == "transformers" or (preset.engine == "auto" and machine.gpu is None):
        return replace(preset, engine="transformers")
    if machine.gpu is None and preset.vllm_importance_sampling_correction:
        raise ValueError(
            "vllm_importance_sampling_correction=True needs vLLM on a GPU; on a CPU leave it out."
        )
    obstacle = vllm_obstacle(machine)
    if obstacle and preset.engine == "vllm":
        raise ValueError(
            f"engine='vllm': {obstacle}. Take engine='transformers'"
            + (
                ", or install it: python -m helpers install --optional."
                if obstacle == "vLLM is not installed"
                else "."
            )
        )
    if obstacle:
        print(
            f"{obstacle}: sampling goes through Transformers, which is slower "
            "(engine='transformers')."
        )
    return replace(preset, engine="transformers" if obstacle else "vllm")


def as_settings(preset: Preset) -> dict:
    """The preset as a JSON-ready dictionary, for the manifest."""
    return asdict(preset)
