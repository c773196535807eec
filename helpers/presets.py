"""Declare every setting of a run, and a preset of settings for each kind of card.

    settings = resolve("auto", this_machine(), max_steps=100)

`Preset` declares each setting once: its default, what it does, its possible values, and the call
that receives it. Settings have the names of TRL, PEFT and Unsloth, and a notebook parameter of the
same name overrides each. setting_rules.py checks which settings go together, and
training/run_settings.py what a machine can run. `python -m tools.settings` prints the table of
docs/settings.md.
"""

import difflib
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from helpers import PROJECT, smollm2
from helpers.environment import Machine, gpu_obstacle
from helpers.setting_rules import problems
from helpers.templates import template_options

POCKET_MODEL = "pocket"  # as notebooks and manifests name the embedded model
# name of an embedded model -> its folder under helpers/pocket/
EMBEDDED = {
    POCKET_MODEL: "model",
    "pocket-extraction": "extraction_model",
    "pocket-functions": "functions_model",
    "pocket-games": "games_model",
    "pocket-vision": "vision_model",
}
# Models stored by name, because their folder differs between machines.
NAMED = (*EMBEDDED, smollm2.NAME)


def _setting(
    default: object,
    does: str,
    *,
    least: float | None = None,
    most: float = math.inf,
    choices: tuple[str, ...] = (),
    becomes: str = "GRPOConfig",
    notebooks: tuple[str, ...] = ("03",),
    spelt_in_03: bool = False,
) -> Any:
    """Declare a setting.

    does: its effect, for docs/settings.md.
    least, most, choices: its possible values.
    becomes: the call that receives it as a keyword of the same name; `call.keyword` if the names
        differ; "" if no call receives the plain value.
    notebooks: which of 01, 03 and 11 have it as a parameter.
    spelt_in_03: whether notebook 03 writes the setting out; `unspelt_keywords` passes the others.
    """
    return field(
        default=default,
        metadata={
            "does": does,
            "least": least,
            "most": most,
            "choices": choices,
            "becomes": becomes,
            "notebooks": notebooks,
            "spelt_in_03": spelt_in_03,
        },
    )


@dataclass(frozen=True)
class Preset:
    """All settings of a run. Lengths are in tokens, sizes in rows, `needs_gb` in GB.

    A group is `num_generations` completions of one prompt. In each process, an optimiser step uses
    `per_device_train_batch_size` x `gradient_accumulation_steps` completions, and a round of
    sampling makes `per_device_train_batch_size` x `steps_per_generation`. Together, the processes
    sample a whole number of groups per round.
    """

    name: str
    needs_gb: float  # the smallest card this preset is meant for; 0 runs on a CPU

    # the data and the model
    model: str = _setting(
        "unsloth/Qwen3-4B-Instruct-2507",
        "the policy to train: a hub name, a folder, `smollm2`, or `pocket`",
        becomes="from_pretrained.model_name",
        notebooks=("01",),
        spelt_in_03=True,
    )
    source: str = _setting(
        "openai/gsm8k",
        "the questions: a generated set, a hub data set, or a file",
        becomes="",
        notebooks=("01",),
    )
    examples: str | list | None = _setting(  # noqa: RUF009 (as all others)
        None,
        "worked examples put before each question: a file or a list",
        becomes="",
        notebooks=("01",),
    )
    train_size: int | None = _setting(
        None, "rows to train on; None: all", least=1, becomes="", notebooks=("01",)
    )
    holdout_size: int | None = _setting(
        256,
        "rows held out for evaluation; None: 256, but at most a quarter of a file",
        least=1,
        becomes="",
        notebooks=("01",),
    )
    max_prompt_length: int = _setting(
        256, "tokens; rows with longer prompts are dropped", least=1, becomes="", notebooks=("01",)
    )
    max_pixels: int = _setting(
        262_144,
        "pixels; larger pictures are scaled down",
        least=1,
        becomes="",
        notebooks=("11",),
    )
    max_completion_length: int = _setting(
        768,
        "tokens after which a completion is cut off",
        least=1,
        notebooks=("01", "03"),
        spelt_in_03=True,
    )
    max_seq_length: int | None = _setting(
        None,
        "the context in tokens; None: the longest prompt plus the longest completion",
        least=1,
        becomes="from_pretrained",
        notebooks=("01",),
    )
    thinking: bool | None = _setting(
        None,
        "whether the model thinks before it answers, if its chat template has the choice; None: "
        "the template's default",
        becomes="GRPOConfig.chat_template_kwargs",
        notebooks=("01",),
    )
    load_in_4bit: bool = _setting(
        True,
        "quantise the frozen weights to 4 bits",
        becomes="from_pretrained",
        notebooks=("01",),
        spelt_in_03=True,
    )
    backend: str = _setting(
        "unsloth",
        "the training library; transformers: Transformers, PEFT and TRL without Unsloth",
        choices=("unsloth", "transformers"),
        becomes="",
        notebooks=("01", "03"),
    )
    engine: str = _setting(
        "auto",
        "the library that samples; auto: vLLM on a GPU that supports it, else Transformers",
        choices=("auto", "transformers", "vllm"),
        becomes="",
        notebooks=("01", "03"),
    )
    gpu_memory_utilization: float = _setting(
        0.6,
        "the share of the GPU's memory reserved for vLLM",
        least=0.05,
        most=1.0,
        becomes="from_pretrained",
        notebooks=("01",),
    )
    gradient_checkpointing: bool = _setting(
        True,
        "recompute activations instead of keeping them; saves memory, costs time",
        notebooks=("01",),
    )
    lora_rank: int = _setting(
        32,
        "rank of the adapter's matrices; a higher rank can learn more",
        least=1,
        becomes="get_peft_model.r",
        spelt_in_03=True,
    )
    lora_alpha: int = _setting(
        64,
        "the adapter's output is scaled by lora_alpha / lora_rank",
        least=1,
        becomes="get_peft_model",
    )

    # the batch
    num_generations: int = _setting(  # a group of one has nothing to compare
        8, "completions per question (the group)", least=2, spelt_in_03=True
    )
    per_device_train_batch_size: int = _setting(
        8, "completions per forward pass; decrease if out of memory", least=1, spelt_in_03=True
    )
    gradient_accumulation_steps: int = _setting(
        2, "forward passes per update; increase it by the same factor", least=1, spelt_in_03=True
    )
    steps_per_generation: int | None = _setting(
        None, "forward passes per round of sampling; None: as many as an update has", least=1
    )

    # the optimiser
    max_steps: int = _setting(300, "updates in the whole training run", least=1, spelt_in_03=True)
    learning_rate: float = _setting(
        1e-5,
        "size of an update; if it is too large, the policy forgets",
        least=1e-12,
        most=1.0,
        spelt_in_03=True,
    )
    # Transformers names the schedules and optimisers it knows.
    lr_scheduler_type: str = _setting(
        "cosine", "course of the learning rate after warmup; cosine falls to 0", spelt_in_03=True
    )
    warmup_steps: float = _setting(
        0.1,
        "updates in which the learning rate rises from 0; below 1: a fraction of max_steps",
        least=0.0,
        most=1e9,
        spelt_in_03=True,
    )
    optim: str = _setting("adamw_8bit", "the optimiser; adamw_8bit keeps its state in 8 bits")
    adam_beta1: float = _setting(
        0.9,
        "decay rate of Adam's running mean of the gradient",
        least=0.0,
        most=0.999999,
        notebooks=("01",),
    )
    adam_beta2: float = _setting(
        0.99,
        "decay rate of Adam's running mean of the squared gradient",
        least=0.0,
        most=0.999999,
        notebooks=("01",),
    )
    weight_decay: float = _setting(
        0.1, "rate at which the adapter's weights shrink towards 0", least=0.0, most=10.0
    )
    max_grad_norm: float = _setting(
        0.1, "largest norm of the gradient; longer gradients are scaled down", least=0.0, most=1e6
    )

    # The objective, at TRL's defaults apart from beta. Each setting is passed on, because Unsloth's
    # GPU configuration replaces omitted ones by its own defaults.
    beta: float = _setting(
        0.02,
        "weight of the KL to the reference; 0: no KL is computed or logged",
        least=0.0,
        most=100.0,
        spelt_in_03=True,
    )
    loss_type: str = _setting(
        "dapo",
        "how the loss averages over tokens; dapo: every token of the batch counts alike",
        choices=("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo"),
        spelt_in_03=True,
    )
    epsilon: float = _setting(
        0.2,
        "lower clip of the ratio of new to old probability, 1 - epsilon: below it, a bad token is "
        "pushed down no further",
        least=1e-6,
        most=1.0,
    )
    epsilon_high: float = _setting(
        0.2,
        "upper clip of that ratio, 1 + epsilon_high: above it, a good token is pushed up no "
        "further; with cispo, the largest ratio",
        least=1e-6,
        most=100.0,
    )
    scale_rewards: str = _setting(
        "group",
        "the standard deviation that divides an advantage: of the group, of the batch, or none",
        choices=("group", "batch", "none"),
        spelt_in_03=True,
    )
    multi_objective_aggregation: str = _setting(
        "sum_then_normalize",
        "add the rewards and then normalise the sum, or (GDPO) normalise each and then add",
        choices=("sum_then_normalize", "normalize_then_sum"),
    )
    importance_sampling_level: str = _setting(
        "token",
        "one ratio of new to old probability per token, or (GSPO) per completion",
        choices=("token", "sequence"),
    )
    mask_truncated_completions: bool = _setting(False, "leave cut-off completions out of the loss")
    num_iterations: int = _setting(
        1,
        "updates on the same completions; with 1 and a round per update, the ratio is always 1",
        least=1,
    )
    vllm_importance_sampling_correction: bool | None = _setting(
        None,
        "weight tokens by the ratio of the policy's probability to vLLM's; None: only with vLLM, "
        "4 bits and at least 100 steps",
    )
    # TRL's defaults, sequence_mask and 3.0, multiply the ratios of a whole completion. The cap of
    # 2.0 per token is that of fengyao.notion.site/off-policy-rl. VESPO allows only tokens.
    vllm_importance_sampling_mode: str = _setting(
        "token_truncate",
        "one ratio per token or per completion; above the cap, truncate limits the ratio and mask "
        "leaves the token or completion out",
        choices=("token_truncate", "token_mask", "sequence_truncate", "sequence_mask"),
    )
    vllm_importance_sampling_clip_max: float = _setting(
        2.0, "cap of that ratio", least=1e-6, most=100.0
    )

    # sampling
    temperature: float = _setting(
        1.0,
        "randomness of sampling; near 0, all completions of a group are the same",
        least=1e-3,
        most=10.0,
        spelt_in_03=True,
    )
    top_p: float = _setting(
        1.0,
        "sample from the likeliest tokens that together have this probability; below 1, or with "
        "top_k or min_p above 0, the sampled distribution is not the trained one",
        least=1e-3,
        most=1.0,
    )
    top_k: int = _setting(
        0, "sample from this many of the likeliest tokens; 0: from all", least=0, most=10**9
    )
    min_p: float = _setting(
        0.0,
        "sample only tokens with at least this fraction of the likeliest token's probability",
        least=0.0,
        most=1.0,
    )

    # logging
    logging_steps: int = _setting(1, "updates per row of metrics.csv", least=1, notebooks=("01",))
    save_steps: int = _setting(50, "updates per checkpoint", least=1)

    # set by the launcher, such as torchrun; never overridden
    processes: int = 1

    @property
    def context(self) -> int:
        """Longest sequence in tokens: `max_seq_length`, or a prompt with its completion."""
        return self.max_seq_length or self.max_prompt_length + self.max_completion_length

    @property
    def completions_per_step(self) -> int:
        """Completions per optimiser step, over all processes."""
        return self.processes * self.per_device_train_batch_size * self.gradient_accumulation_steps

    @property
    def completions_per_round(self) -> int:
        """Completions per round of sampling (TRL's generation batch), over all processes."""
        passes = self.steps_per_generation or self.gradient_accumulation_steps
        return self.processes * self.per_device_train_batch_size * passes

    @property
    def batch(self) -> str:
        """The effective batch in words: `2 processes × 32 × 1 = 64 completions a step`."""
        processes = f"{self.processes} process{'es' * (self.processes > 1)}"
        return (
            f"{processes} × {self.per_device_train_batch_size} × "
            f"{self.gradient_accumulation_steps} = {self.completions_per_step} completions a step"
        )

    @property
    def max_lora_rank(self) -> int:
        """The rank for which vLLM reserves memory: the smallest one it supports that is at least
        `lora_rank`.
        """
        known = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # vllm.config.lora.MaxLoRARanks, vLLM 0.31
        return min((rank for rank in known if rank >= self.lora_rank), default=known[-1])

    @property
    def model_path(self) -> str:
        """The folder or hub name for `from_pretrained`. SmolLM2's folder is made at first use."""
        if self.model == smollm2.NAME:
            return smollm2.folder()
        folder = EMBEDDED.get(self.model)
        return str(PROJECT / "helpers" / "pocket" / folder) if folder else self.model


# The settings that can be overridden, by name; `metadata` holds the arguments of `_setting`.
SETTINGS = {each.name: each for each in fields(Preset) if each.metadata}
# The parameters of notebook 03.
OF_TRAINING = [name for name, each in SETTINGS.items() if "03" in each.metadata["notebooks"]]


def grpo_keywords(preset: Preset) -> dict:
    """Return the keywords of `GRPOConfig`: the settings that it receives, the keywords of the chat
    template, and a constant that Unsloth would otherwise fill in on a GPU.
    """
    keywords = {
        name: getattr(preset, name)
        for name, setting in SETTINGS.items()
        if setting.metadata["becomes"] == "GRPOConfig"
    }
    keywords["chat_template_kwargs"] = template_options(preset.thinking)
    # None stays None unless `run_settings.for_machine` has decided for True
    corrects = bool(preset.vllm_importance_sampling_correction)
    keywords["vllm_importance_sampling_correction"] = corrects
    keywords["router_aux_loss_coef"] = 0.0  # Unsloth does not compute this loss of experts
    return keywords


def unspelt_keywords(preset: Preset) -> dict:
    """Return the keywords of `grpo_keywords` that notebook 03 does not write out one by one."""
    return {
        name: value
        for name, value in grpo_keywords(preset).items()
        if name not in SETTINGS or not SETTINGS[name].metadata["spelt_in_03"]
    }


def settings_in(names: dict, among: Iterable[str] = SETTINGS) -> dict:
    """Return the settings that a notebook's parameters change: `settings_in(globals())` returns the
    variables that are named like a setting and are not None.
    """
    return {name: names[name] for name in among if names.get(name) is not None}


# --- The presets ---------------------------------------------------------------------------------

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
    # A real language model on two cores. It is in 16 bits, because 4 bits are slower on a CPU. The
    # completion limit is short, because the whole batch waits for its longest completion.
    Preset(
        "smollm2",
        needs_gb=0,
        model=smollm2.NAME,
        source="arithmetic/pairs",
        examples=str(PROJECT / "notebooks" / "data" / "pairs.jsonl"),
        train_size=1_000,
        holdout_size=256,
        max_prompt_length=160,
        max_completion_length=32,
        load_in_4bit=False,
        engine="transformers",
        gradient_checkpointing=False,
        lora_rank=16,
        lora_alpha=32,
        per_device_train_batch_size=16,
        gradient_accumulation_steps=1,
        max_steps=40,
        learning_rate=2e-4,
        beta=0.01,
        optim="adamw_torch",
        max_grad_norm=1.0,
        weight_decay=0.0,
        save_steps=4,
    ),
    # thinking=False: Qwen3 thinks by default and then needs 1,500 to 2,200 tokens for a question of
    # GSM8K, so these limits would cut off most completions. The embedded models and the vision
    # models have no such choice.
    # engine="transformers" below 20 GB: vLLM would leave little memory for training, and recent
    # vLLM may not support a T4 (compute capability 7.5, no bf16).
    Preset(
        "small",
        needs_gb=7.5,
        model="unsloth/gemma-3-1b-it",
        load_in_4bit=False,
        max_completion_length=512,
        thinking=False,
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
        thinking=False,
        engine="transformers",
        lora_rank=16,
        lora_alpha=32,
    ),
    Preset("l4", needs_gb=22, model="unsloth/Qwen3-4B-Instruct-2507", thinking=False),
    # Qwen3.5 is in 16 bits (families.py) and samples through Transformers: Unsloth's loader would
    # start vLLM for it (unsloth/models/vision.py 1283), but Unsloth's own GRPO notebook does not.
    # The ranks, learning rates and 16 to 32 completions per step follow TRL's
    # lora_without_regret.md (for RL: ranks of 1 to 32, 1e-5, a batch below 32) and Unsloth's
    # notebooks of August 2026 (ranks of 4 to 32, alpha twice the rank, 5e-6 to 5e-5).
    Preset(
        "a100",
        needs_gb=39,
        model="unsloth/Qwen3.5-9B",
        load_in_4bit=False,
        max_completion_length=1024,
        thinking=False,
        engine="transformers",
    ),
    Preset(
        "h100",
        needs_gb=79,
        model="unsloth/Qwen3.5-9B",
        load_in_4bit=False,
        max_completion_length=2048,
        thinking=False,
        engine="transformers",
        num_generations=16,
        per_device_train_batch_size=16,
        gradient_accumulation_steps=2,
    ),
    Preset(
        "h200",
        needs_gb=138,
        model="unsloth/Qwen3.5-27B",
        load_in_4bit=False,
        max_completion_length=2048,
        thinking=False,
        engine="transformers",
        num_generations=16,
        per_device_train_batch_size=16,
        gradient_accumulation_steps=2,
    ),
    # The batches of the next two recipes are smaller than one group. steps_per_generation samples a
    # whole group, which then serves two optimiser steps.
    Preset(
        "memory_optimized",
        needs_gb=15,
        model="unsloth/Qwen2.5-1.5B-Instruct",
        max_completion_length=512,
        thinking=False,
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
        model="unsloth/Qwen3-4B-Instruct-2507",
        load_in_4bit=False,  # the probabilities of vLLM and of the policy are nearer than in 4 bits
        max_prompt_length=512,
        max_completion_length=1024,
        thinking=False,
        num_generations=16,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        steps_per_generation=4,
        learning_rate=1e-5,
    ),
    # Vision models, for notebook 11. Unsloth starts vLLM for each of these families.
    Preset(
        "vision_2b",
        needs_gb=15,
        model="unsloth/Qwen3-VL-2B-Instruct",
        source="pictures/shapes",
        max_completion_length=256,
        engine="transformers",
    ),
    Preset(
        "vision_4b",
        needs_gb=22,
        model="unsloth/gemma-3-4b-it",
        source="pictures/shapes",
        max_completion_length=256,
    ),
    Preset(
        "vision_8b",
        needs_gb=39,
        model="unsloth/Qwen3-VL-8B-Instruct",
        source="pictures/shapes",
        max_completion_length=512,
    ),
)
PRESETS = {preset.name: preset for preset in _TABLE}


def pick(machine: Machine) -> str:
    """Return the name of the largest preset for the machine's GPU; `pocket` if none fits, or if
    torch cannot use the GPU, which then has to be hidden (`gpu_obstacle`).
    """
    if machine.gpu is None or gpu_obstacle(machine):
        return "pocket"
    largest_first = ("h200", "h100", "a100", "l4", "t4", "small")
    fitting = (name for name in largest_first if PRESETS[name].needs_gb <= machine.gpu_memory_gb)
    return next(fitting, "pocket")


def resolve(name: str, machine: Machine, **overrides) -> Preset:
    """Return a preset with some settings overridden; None keeps the preset's value. The name "auto"
    picks a preset for the machine.

    ValueError for an unknown preset or setting, and for settings that cannot run.
    """
    if name == "auto":
        name = pick(machine)
    if name not in PRESETS:
        raise ValueError(
            f"preset {name!r} is not known. Known: auto, {', '.join(PRESETS)}. "
            "`python -m helpers doctor` says which one fits this machine."
        )
    return override(PRESETS[name], **overrides)


# --- Changing settings ----------------------------------------------------------------------------


def with_defaults(settings: dict) -> dict:
    """Return settings that an older version recorded, in today's form: new settings get their
    defaults, and removed ones are dropped.
    """
    return {
        each.name: settings.get(each.name, getattr(Preset, each.name, None))
        for each in fields(Preset)
    }


def hint(name: str, known: Iterable[str]) -> str:
    """Return `Did you mean …? ` for an unknown name, or an empty text if no known name is close."""
    if name in ("fast_inference", "use_vllm"):  # the names in Unsloth and TRL
        return "Did you mean 'engine'? "
    near = difflib.get_close_matches(name, known, 1)
    return f"Did you mean {near[0]!r}? " if near else ""


def override(settings: Preset | dict, **changes) -> Preset:
    """Return a preset, or settings that a manifest recorded, with some settings changed; None keeps
    a setting. ValueError for an unknown setting, and for settings that cannot run.
    """
    for name in changes:
        if name not in SETTINGS:
            raise ValueError(f"{name!r} is not a setting. {hint(name, SETTINGS)}".strip())
    changes = {name: value for name, value in changes.items() if value is not None}

    # a preset's number of rows and its examples belong to its generated source; drop them for a
    # file or a data set
    source = str(changes.get("source", "arithmetic/"))
    if not source.startswith(("arithmetic/", "pictures/", "reasoning-gym/")):
        changes = {"train_size": None, "holdout_size": None, "examples": None} | changes
    if changes.get("backend") == "transformers":
        changes = {"engine": "transformers"} | changes  # only Unsloth starts vLLM

    recorded = asdict(settings) if isinstance(settings, Preset) else settings
    changed = Preset(**with_defaults(recorded) | changes)
    if sentences := problems(changed):
        raise ValueError("these settings cannot run: " + " ".join(sentences))
    return changed


def for_sampling(settings: dict, **overrides) -> Preset:
    """Return what `override` returns, for a run that only samples: settings of the objective are
    neither checked nor kept.
    """
    settings = {name: value for name, value in settings.items() if name not in _OBJECTIVE}
    overrides = {name: value for name, value in overrides.items() if name not in _OBJECTIVE}
    return override(settings, **overrides)


# Settings of the loss, which sampling does not read.
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
    "vllm_importance_sampling_mode",
    "vllm_importance_sampling_clip_max",
)
