"""One frozen dataclass, one table: what to train, on what, and how, for each kind of machine.

The notebooks pass these fields on under TRL's, PEFT's and Unsloth's own names, so a reader can look each one up there.
Every field can be overridden by a notebook parameter of the same name.
"""

from __future__ import annotations

import difflib
from dataclasses import asdict, dataclass, fields, replace

from helpers import PROJECT
from helpers.environment import Machine, vllm_obstacle

POCKET_MODEL = "pocket"  # the name under which notebooks and manifests know the embedded model
EMBEDDED = {POCKET_MODEL: "model", "pocket-extraction": "extraction_model"}  # their folders under helpers/pocket/


@dataclass(frozen=True)
class Preset:
    """Everything a run needs to know. Lengths in tokens, sizes in rows, memory in GB of the whole card.

    `num_generations` completions a prompt form a group. One optimiser step sees `per_device_train_batch_size` times
    `gradient_accumulation_steps` completions; one round of sampling makes `per_device_train_batch_size` times
    `steps_per_generation`, a whole number of groups.
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
    fast_inference: bool = True
    gpu_memory_utilization: float = 0.6
    gradient_checkpointing: bool = True
    lora_rank: int = 32
    lora_alpha: int = 64
    num_generations: int = 8
    per_device_train_batch_size: int = 8
    gradient_accumulation_steps: int = 2
    steps_per_generation: int | None = None  # forward passes that one round of sampling serves; None: one optimiser step
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
    temperature: float = 1.0
    logging_steps: int = 1
    save_steps: int = 50

    def __post_init__(self):
        problems = _problems(self)
        if problems:
            raise ValueError(f"preset {self.name!r} cannot run: " + " ".join(problems))

    @property
    def context(self) -> int:
        """Tokens that the model is loaded for: `max_seq_length`, or a prompt and its completion together."""
        return self.max_seq_length or self.max_prompt_length + self.max_completion_length

    @property
    def completions_per_step(self) -> int:
        """Completions that one optimiser step sees."""
        return self.per_device_train_batch_size * self.gradient_accumulation_steps

    @property
    def completions_per_round(self) -> int:
        """Completions that one round of sampling makes; TRL calls it the generation batch."""
        return self.per_device_train_batch_size * (self.steps_per_generation or self.gradient_accumulation_steps)

    @property
    def max_lora_rank(self) -> int:
        """The rank that vLLM reserves room for: the next one it knows from `lora_rank` on."""
        return next((rank for rank in _VLLM_RANKS if rank >= self.lora_rank), _VLLM_RANKS[-1])

    @property
    def model_path(self) -> str:
        """What `from_pretrained` takes: an embedded model's folder, or the hub name itself."""
        folder = EMBEDDED.get(self.model)
        return str(PROJECT / "helpers" / "pocket" / folder) if folder else self.model


_POSITIVE = (
    "holdout_size",
    "max_prompt_length",
    "max_completion_length",
    "lora_rank",
    "lora_alpha",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "max_steps",
    "logging_steps",
    "save_steps",
)


_RANGES = {
    "learning_rate": (1e-12, 1.0),
    "temperature": (1e-3, 10.0),
    "beta": (0.0, 100.0),
    "gpu_memory_utilization": (0.05, 1.0),
    "warmup_steps": (0.0, 1e9),
    "weight_decay": (0.0, 10.0),
    "max_grad_norm": (0.0, 1e6),
    "adam_beta1": (0.0, 0.999999),
    "adam_beta2": (0.0, 0.999999),
}
_VLLM_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # vllm.config.lora.MaxLoRARanks, vLLM 0.31
_BACKENDS = ("unsloth", "transformers")
# Transformers knows more; these need no package and no argument beyond what is here.
_OPTIMIZERS = ("adamw_torch", "adamw_torch_fused", "adamw_8bit", "adamw_bnb_8bit", "paged_adamw_8bit", "paged_adamw_32bit")
_OPTIMIZERS += ("lion_8bit", "lion_32bit", "paged_lion_8bit", "ademamix", "ademamix_8bit", "adafactor", "rmsprop", "sgd")
_SCHEDULES = ("cosine", "linear", "constant", "constant_with_warmup", "cosine_with_restarts", "polynomial", "inverse_sqrt")
_LOSS_TYPES = ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo")


def _problems(preset: Preset) -> list[str]:
    """What makes the settings impossible, one sentence each; types first, so that no later rule trips over them."""
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
    found = [f"{name}={getattr(preset, name)} must be at least 1." for name in _POSITIVE if getattr(preset, name) < 1]
    optional = ("train_size", "max_seq_length", "steps_per_generation")
    given = {name: value for name in optional if (value := getattr(preset, name)) is not None}
    found += [f"{name}={value} must be at least 1." for name, value in given.items() if value < 1]
    if preset.num_generations < 2:
        found.append(f"num_generations={preset.num_generations}: a group of one has nothing to compare; use 2 or more.")
    found = found or _misfits(preset)
    for name, (low, high) in _RANGES.items():
        if not low <= getattr(preset, name) <= high:  # false for nan too
            found.append(f"{name}={getattr(preset, name)} must be between {low:g} and {high:g}.")
    for name, known in _CHOICES.items():
        if getattr(preset, name) not in known:
            found.append(f"{name}={getattr(preset, name)!r} is not one of: {', '.join(known)}.")
    return found


_CHOICES = {"loss_type": _LOSS_TYPES, "backend": _BACKENDS, "optim": _OPTIMIZERS, "lr_scheduler_type": _SCHEDULES}


def _misfits(preset: Preset) -> list[str]:
    """Settings that are each possible and together are not."""
    found = []
    if preset.completions_per_round % preset.num_generations:
        rounds = "steps_per_generation" if preset.steps_per_generation else "gradient_accumulation_steps"
        found.append(
            f"per_device_train_batch_size x {rounds} = {preset.completions_per_round} completions a step are "
            f"not whole groups of num_generations={preset.num_generations}; make the product a multiple of it."
        )
    needed = preset.max_prompt_length + preset.max_completion_length
    if preset.context < needed:
        found.append(
            f"max_seq_length={preset.max_seq_length} does not hold max_prompt_length + max_completion_length = {needed}; "
            "raise it, or leave it out."
        )
    if preset.warmup_steps >= max(2, preset.max_steps):
        found.append(
            f"warmup_steps={preset.warmup_steps:g} is not less than max_steps={preset.max_steps}: the learning rate would "
            "never be reached. Below 1 it is a fraction of the steps."
        )
    if preset.fast_inference and preset.lora_rank > _VLLM_RANKS[-1]:
        found.append(
            f"lora_rank={preset.lora_rank}: vLLM serves adapters up to rank {_VLLM_RANKS[-1]}; lower it, or set "
            "fast_inference=false."
        )
    if preset.fast_inference and preset.backend != "unsloth":
        found.append(
            "fast_inference=True samples through the vLLM engine that Unsloth builds; with backend='transformers' leave it off."
        )
    return found


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
        fast_inference=False,
        gradient_checkpointing=False,
        lora_rank=16,
        lora_alpha=32,
        per_device_train_batch_size=64,
        gradient_accumulation_steps=1,
        max_steps=40,
        learning_rate=1e-3,
        beta=0.01,
        optim="adamw_torch",
        max_grad_norm=1.0,
        weight_decay=0.0,
        save_steps=20,
    ),
    # Cards below 20 GB sample through Transformers: a vLLM engine would leave little to train in, and recent vLLM may not
    # serve a T4 (compute capability 7.5, no bf16).
    Preset(
        "small",
        needs_gb=7.5,
        model="unsloth/gemma-3-1b-it",
        max_completion_length=512,
        fast_inference=False,
        lora_rank=16,
        lora_alpha=32,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=4,
    ),
    Preset("t4", needs_gb=15, model="unsloth/Qwen3-1.7B", fast_inference=False, lora_rank=16, lora_alpha=32),
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
    # The two recipes' batches are less than one group: steps_per_generation samples a whole one, which then serves two
    # optimiser steps.
    Preset(
        "memory_optimized",
        needs_gb=15,
        model="unsloth/Qwen2.5-1.5B-Instruct",
        max_completion_length=512,
        fast_inference=False,
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
SETTINGS = [field.name for field in fields(Preset) if field.name not in ("name", "needs_gb")]  # what may be overridden
# Those that notebook 03 takes, for a training of its own on data that 01 has prepared; the others are 01's.
_OF_DATA_AND_MODEL = ["model", "source", "train_size", "holdout_size", "max_prompt_length", "max_seq_length", "load_in_4bit"]
_OF_DATA_AND_MODEL += ["fast_inference", "gpu_memory_utilization", "gradient_checkpointing", "adam_beta1", "adam_beta2"]
_OF_DATA_AND_MODEL += ["logging_steps"]
OF_TRAINING = [name for name in SETTINGS if name not in _OF_DATA_AND_MODEL]
PRESETS = {preset.name: preset for preset in _TABLE}
OLDEST_CAPABILITY = 7.5  # CUDA 13, for which torch 2.13 is built, has dropped what came before Turing
_BY_MEMORY = ("h200", "h100", "a100", "l4", "t4", "small")  # what `auto` chooses from, largest first


def pick(machine: Machine) -> str:
    """The name of the largest preset that fits the machine's GPU; `pocket` without one, or where none fits."""
    if machine.gpu is None or machine.compute_capability < OLDEST_CAPABILITY:
        return "pocket"
    return next((name for name in _BY_MEMORY if PRESETS[name].needs_gb <= machine.gpu_memory_gb), "pocket")


def resolve(name: str, machine: Machine, **overrides) -> Preset:
    """A preset by name (`auto` picks one for the machine) with some fields overridden; None keeps the preset's value.

    Raises ValueError for an unknown name or field, or for a combination that cannot run.
    """
    if name == "auto":
        name = pick(machine)
    if name not in PRESETS:
        near = difflib.get_close_matches(str(name).lower(), PRESETS, 1)
        raise ValueError(
            f"preset {name!r} is not known. Known: auto, {', '.join(PRESETS)}."
            + (f" Did you mean {near[0]!r}?" if near else "")
            + " `python -m helpers doctor` says which one fits this machine."
        )
    return with_overrides(PRESETS[name], **overrides)


def with_overrides(preset: Preset, **overrides) -> Preset:
    """The preset with these fields replaced, validated; None keeps a field. ValueError names an unknown field."""
    for field in overrides:
        if field not in SETTINGS:
            near = difflib.get_close_matches(field, SETTINGS, 1)
            raise ValueError(f"{field!r} is not a setting." + (f" Did you mean {near[0]!r}?" if near else ""))
    given = {field: value for field, value in overrides.items() if value is not None}
    if (
        "source" in given
        and "train_size" not in given
        and not str(given["source"]).startswith(("arithmetic/", "reasoning-gym/"))
    ):
        given["train_size"] = None  # a preset's number is for what can be generated; of a file or a data set all rows are taken
    if given.get("backend") == "transformers" and "fast_inference" not in given:
        given["fast_inference"] = False  # vLLM is Unsloth's to start here
    return replace(preset, **given)


def from_manifest(settings: dict, **overrides) -> Preset:
    """The preset that `asdict` wrote into a manifest, with some fields overridden."""
    known = {field.name for field in fields(Preset)}
    absent = [name for name in ("name", "needs_gb") if name not in settings]
    if absent:
        raise ValueError(f"the settings recorded in the manifest have no {absent[0]}, so they are no preset's: run 01 again.")
    return with_overrides(Preset(**{key: value for key, value in settings.items() if key in known}), **overrides)


def check_early_stopping(patience: int | None) -> None:
    """ValueError for what is no patience: an integer of at least 2, in steps. None, for a training to its end, is fine."""
    if patience is not None and (type(patience) is not int or patience < 2):
        raise ValueError(f"early_stopping={patience!r} is not a number of steps: give an integer of at least 2, or None.")


def check_machine(preset: Preset, machine: Machine) -> Preset:
    """The preset as it will run on this machine: without vLLM where that cannot serve, which is said aloud.

    ValueError where the preset cannot run here, before anything is loaded or downloaded.
    """
    if machine.gpu is None and preset.needs_gb:
        raise ValueError(
            f"preset {preset.name!r} needs an NVIDIA GPU with {preset.needs_gb:.0f} GB and none is visible. Without one, take "
            "`--preset pocket`, which runs on a CPU."
        )
    if machine.gpu is None and preset.fast_inference:
        raise ValueError("fast_inference=True samples with vLLM, which needs a GPU; none is visible. Leave it off.")
    if preset.needs_gb and machine.compute_capability < OLDEST_CAPABILITY:
        raise ValueError(
            f"{machine.gpu} has compute capability {machine.compute_capability}, and the pinned torch serves "
            f"{OLDEST_CAPABILITY} (Turing: T4, RTX 20) and later. Take `--preset pocket` and hide the GPU with "
            "CUDA_VISIBLE_DEVICES= in the environment."
        )
    if preset.needs_gb > machine.gpu_memory_gb:
        raise ValueError(
            f"preset {preset.name!r} is meant for a card of {preset.needs_gb:.0f} GB; {machine.gpu} has "
            f"{machine.gpu_memory_gb:.0f} GB. Take `--preset {pick(machine)}`."
        )
    if machine.gpu and not machine.bf16 and preset.backend == "transformers" and preset.load_in_4bit:
        raise ValueError(
            f"backend='transformers' with load_in_4bit=True casts the adapters to bfloat16, which {machine.gpu} has not: take "
            "backend='unsloth', or load_in_4bit=False."
        )
    obstacle = vllm_obstacle(machine) if preset.fast_inference else None
    if obstacle:
        print(f"{obstacle}: sampling goes through Transformers, which is slower (fast_inference=False).")
        return replace(preset, fast_inference=False)
    return preset


def as_settings(preset: Preset) -> dict:
    """The preset as a JSON-ready dictionary, for the manifest."""
    return asdict(preset)
