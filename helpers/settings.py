"""Declare every setting of a run, with its help and what it may be.

Settings have the names of TRL, PEFT and Unsloth. The class `Preset` declares them. A preset
(presets.py) gives each a value, a notebook parameter of the same name changes it, and `settle`
(settling.py) checks and settles them all. `python -m tools.settings` prints the table of
docs/settings.md from here.
"""

import difflib
import importlib.util
import math
import os
from collections.abc import Iterable
from dataclasses import Field, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, get_args

from helpers import PROJECT, smollm2
from helpers.templates import template_options

POCKET_MODEL = "pocket"  # as notebooks and manifests name the pocket model
# name of a pocket model -> its folder under helpers/pocket/
EMBEDDED = {
    POCKET_MODEL: "model",
    "pocket-extraction": "extraction_model",
    "pocket-functions": "functions_model",
    "pocket-games": "games_model",
    "pocket-vision": "vision_model",
}
# Models stored by name, because their folder differs between machines.
NAMED = (*EMBEDDED, smollm2.NAME)
# How the names of sources begin whose questions are generated here.
GENERATED = ("arithmetic/", "pictures/", "reasoning-gym/")

# --- The settings ---------------------------------------------------------------------------------

_ANY = None
_COUNT = (1, math.inf)


def _setting(
    default: object,
    may_be: tuple | list | None,
    does: str,
    *,
    to: str = "GRPOConfig",
    of: tuple[str, ...] = ("00", "03"),
    spelt: bool = False,
) -> Any:
    """Declare a setting.

    may_be: its least and its largest value, a list of its possible values, or None: any.
    does: its effect, for docs/settings.md.
    to: the call that receives it as a keyword of the same name; `call.keyword` if the names differ;
        "" if no call receives the plain value.
    of: which of the notebooks 00, 01, 03 and 11 have it as a parameter.
    spelt: whether notebook 03 writes the setting out; `unspelt_keywords` passes the others.
    """
    facts = {"may_be": may_be, "does": does, "to": to, "of": of, "spelt": spelt}
    return field(default=default, metadata=facts)


# Three abbreviations for the table below.
_of_01 = partial(_setting, of=("00", "01"))  # notebook 03 does not have it as a parameter
_unpassed = partial(_setting, to="", of=("00", "01"))  # no call receives the plain value, either
_both = ("00", "01", "03")
_MODEL = "unsloth/Qwen3-4B-Instruct-2507"
_LOSSES = ["grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo"]
# Transformers' schedules that need no further argument
_SCHEDULES = ["linear", "cosine", "cosine_with_restarts", "polynomial", "inverse_sqrt"]
_SCHEDULES += ["constant", "constant_with_warmup"]
_ORDERS = ["sum_then_normalize", "normalize_then_sum"]
_RATIOS = ["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"]


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

    # Each setting with its default and what it may be, and below it what it does.
    # fmt: off

    # the data and the model
    model: str = _of_01(_MODEL, _ANY, to="from_pretrained.model_name", spelt=True, does=
        "the policy to train: a hub name, a folder, `smollm2`, or `pocket`")
    source: str = _unpassed("openai/gsm8k", _ANY,
        "the questions: a generated set, a hub dataset, or a file")
    few_shot: str | list | None = _unpassed(None, _ANY,  # noqa: RUF009 (as all others)
        "worked examples put before each question: a file or a list")
    train_size: int | None = _unpassed(None, _COUNT,
        "rows to train on; None: all")
    holdout_size: int | None = _unpassed(256, _COUNT,
        "rows held out for evaluation; None: 256, but at most a quarter of a file")
    max_prompt_length: int = _unpassed(256, _COUNT,
        "tokens; rows with longer prompts are dropped")
    max_pixels: int = _unpassed(262_144, _COUNT, of=("11",), does=
        "pixels; larger images are scaled down")
    max_completion_length: int = _setting(768, _COUNT, of=_both, spelt=True, does=
        "tokens after which a completion is cut off")
    max_seq_length: int | None = _of_01(None, _COUNT, to="from_pretrained", does=
        "the context in tokens; None: the longest prompt plus the longest completion")
    thinking: bool | None = _of_01(None, _ANY, to="GRPOConfig.chat_template_kwargs", does=
        "whether the model thinks first, if its chat template offers this; None: its default")
    load_in_4bit: bool = _of_01(True, _ANY, to="from_pretrained", spelt=True, does=
        "quantise the frozen weights to 4 bits")
    backend: str = _unpassed("unsloth", ["unsloth", "transformers"], of=("01", "03"), does=
        "the training library; transformers: without Unsloth, except for its patch on a CPU")
    engine: str = _unpassed("auto", ["auto", "transformers", "vllm"], of=_both, does=
        "the library that samples; auto: vLLM on a GPU that supports it, else Transformers")
    gpu_memory_utilization: float = _of_01(0.6, (0.05, 1.0), to="from_pretrained", does=
        "the share of the GPU's memory reserved for vLLM")
    gradient_checkpointing: bool = _of_01(True, _ANY,
        "recompute activations instead of keeping them; saves memory, costs time")
    lora_rank: int = _setting(32, _COUNT, to="get_peft_model.r", spelt=True, does=
        "rank of the adapter's matrices; a higher rank can learn more")
    lora_alpha: int = _setting(64, _COUNT, to="get_peft_model", does=
        "the adapter's output is scaled by lora_alpha / lora_rank")

    # the batch; a group of one has nothing to compare
    num_generations: int = _setting(8, (2, math.inf), spelt=True, does=
        "completions per question (the group)")
    per_device_train_batch_size: int = _setting(8, _COUNT, spelt=True, does=
        "completions per forward pass")
    gradient_accumulation_steps: int = _setting(2, _COUNT, spelt=True, does=
        "forward passes per update")
    steps_per_generation: int | None = _setting(None, _COUNT,
        "forward passes per round of sampling; None: as many as an update has")

    # the optimiser; Transformers names those it knows
    max_steps: int = _setting(300, _COUNT, spelt=True, does=
        "updates in the whole training run")
    learning_rate: float = _setting(1e-5, (1e-12, 1.0), spelt=True, does=
        "size of an update; if it is too large, the policy forgets")
    lr_scheduler_type: str = _setting("cosine", _SCHEDULES, spelt=True, does=
        "course of the learning rate after warmup; cosine falls to 0")
    warmup_steps: float = _setting(0.1, (0.0, 1e9), spelt=True, does=
        "updates in which the learning rate rises from 0; below 1: a fraction of max_steps")
    optim: str = _setting("adamw_8bit", _ANY,
        "the optimiser; adamw_8bit keeps its state in 8 bits")
    adam_beta1: float = _of_01(0.9, (0.0, 0.999999),
        "decay rate of Adam's running mean of the gradient")
    adam_beta2: float = _of_01(0.99, (0.0, 0.999999),
        "decay rate of Adam's running mean of the squared gradient")
    weight_decay: float = _setting(0.1, (0.0, 10.0),
        "rate at which the adapter's weights shrink towards 0")
    max_grad_norm: float = _setting(0.1, (0.0, 1e6),
        "largest norm of the gradient; longer gradients are scaled down")

    # The objective, at TRL's defaults apart from beta. Each setting is passed on, because Unsloth's
    # GPU configuration replaces omitted ones by its own defaults.
    beta: float = _setting(0.02, (0.0, 100.0), spelt=True, does=
        "weight of the KL from the reference; 0: no KL is computed or logged")
    entropy_coef: float = _setting(0.0, (0.0, 10.0),
        "weight of a bonus for the entropy per token, against collapse; 0: none")
    loss_type: str = _setting("dapo", _LOSSES, spelt=True, does=
        "how the loss averages over tokens; dapo: every token of the batch counts equally")
    epsilon: float = _setting(0.2, (1e-6, 1.0),
        "where the advantage is negative, clip the ratio of new to old probability at 1 - epsilon")
    epsilon_high: float = _setting(0.2, (1e-6, 100.0),
        "where the advantage is positive, clip the ratio at 1 + this; in cispo, the largest ratio")
    scale_rewards: str = _setting("group", ["group", "batch", "none"], spelt=True, does=
        "divide advantages by the standard deviation of the group, that of the batch, or nothing")
    multi_objective_aggregation: str = _setting("sum_then_normalize", _ORDERS,
        "add the rewards and then normalise the sum, or (GDPO) normalise each and then add")
    importance_sampling_level: str = _setting("token", ["token", "sequence"],
        "one ratio of new to old probability per token, or (GSPO) per completion")
    mask_truncated_completions: bool = _setting(False, _ANY,
        "leave cut-off completions out of the loss")
    num_iterations: int = _setting(1, _COUNT,
        "updates on the same completions; with 1 and one round per update, every ratio is 1")
    vllm_importance_sampling_correction: bool | None = _setting(None, _ANY,
        "weight tokens by the policy's / vLLM's probability; None: 4-bit runs of 100 steps or more")
    # TRL's defaults, sequence_mask and 3.0, multiply the ratios of a whole completion. The cap of
    # 2.0 per token is that of fengyao.notion.site/off-policy-rl. VESPO allows only tokens.
    vllm_importance_sampling_mode: str = _setting("token_truncate", _RATIOS,
        "one ratio per token or completion; above the cap: lowered (truncate) or left out (mask)")
    vllm_importance_sampling_clip_max: float = _setting(2.0, (1e-6, 100.0),
        "the cap on the ratio of the policy's to vLLM's probability")

    # sampling; with top_p, top_k or min_p, the sampled distribution is not the trained one
    temperature: float = _setting(1.0, (1e-3, 10.0), spelt=True, does=
        "randomness of sampling; near 0, all completions of a group are the same")
    top_p: float = _setting(1.0, (1e-3, 1.0),
        "sample from the likeliest tokens that together have this probability; 1: from all")
    top_k: int = _setting(0, (0, 10**9),
        "sample from this many of the likeliest tokens; 0: from all")
    min_p: float = _setting(0.0, (0.0, 1.0),
        "sample only tokens with at least this fraction of the likeliest token's probability")

    # a completion keeps the stop text that ends it (training/stops.py)
    stop: list | None = _unpassed(None, _ANY, of=_both, does=  # noqa: RUF009
        "a text, or a list of texts, that ends a completion, such as `</answer>`")

    # logging
    logging_steps: int = _of_01(1, _COUNT,
        "updates per row of metrics.csv")
    save_steps: int = _setting(50, _COUNT,
        "updates per checkpoint")
    # fmt: on

    # set by the launcher, such as torchrun; never changed by a parameter
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


# The settings that a parameter can change, by name; `metadata` holds the arguments of `_setting`.
SETTINGS = {each.name: each for each in fields(Preset) if each.metadata}
# Those that describe one process's part of a step.
OF_A_PROCESS = (
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "steps_per_generation",
)


def settings_of(notebook: str) -> list[str]:
    """Return the names of the settings that a notebook, such as "03", has as parameters."""
    return [name for name, setting in SETTINGS.items() if notebook in setting.metadata["of"]]


def grpo_keywords(preset: Preset) -> dict:
    """Return the keywords of `GRPOConfig`: the settings that it receives, the keywords of the chat
    template, and a constant that Unsloth would otherwise fill in on a GPU.
    """
    keywords = {
        name: getattr(preset, name)
        for name, setting in SETTINGS.items()
        if setting.metadata["to"] == "GRPOConfig"
    }
    keywords["chat_template_kwargs"] = template_options(preset.thinking)
    # None stays None unless `settling.settle` has decided for True
    corrects = bool(preset.vllm_importance_sampling_correction)
    keywords["vllm_importance_sampling_correction"] = corrects
    if preset.stop and preset.engine == "vllm":  # with Transformers, `stops.end_at_stop` does it
        keywords["generation_kwargs"] = {"stop": preset.stop}
    keywords["router_aux_loss_coef"] = 0.0  # Unsloth does not compute this loss of experts
    return keywords


def unspelt_keywords(preset: Preset) -> dict:
    """Return the keywords of `grpo_keywords` that notebook 03 does not write out one by one."""
    return {
        name: value
        for name, value in grpo_keywords(preset).items()
        if name not in SETTINGS or not SETTINGS[name].metadata["spelt"]
    }


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `Did you mean …? ` for an unknown name, or an empty text if no known name is close."""
    if name in ("fast_inference", "use_vllm"):  # the names in Unsloth and TRL
        return "Did you mean 'engine'? "
    near = difflib.get_close_matches(name, known, 1)
    return f"Did you mean {near[0]!r}? " if near else ""


def possible_values(setting: Field) -> str:
    """Return the possible values of a setting in words, such as `between 0 and 1`."""
    may_be = setting.metadata["may_be"]
    if isinstance(may_be, list):
        return f"one of: {', '.join(may_be)}"
    if may_be is None:
        kinds = get_args(setting.type) or (setting.type,)
        if bool in kinds:
            return "True, False or None" if len(kinds) > 1 else "True or False"
        return "a string or a list" if list in kinds else "a string"
    least, most = may_be
    return f"at least {least}" if most == math.inf else f"between {least:g} and {most:g}"


# --- Parameters beside the settings ---------------------------------------------------------------


def check_early_stopping(patience: int | None) -> None:
    """Raise ValueError unless the patience is None or at least 2 steps."""
    if patience is not None and (type(patience) is not int or patience < 2):
        raise ValueError(
            f"early_stopping={patience!r} is not a number of steps: give an integer of at least "
            "2, or None."
        )


def check_sampling_seconds(seconds: float | str | None) -> None:
    """Raise ValueError unless this is a positive number of seconds, "auto", or None (no limit)."""
    number = type(seconds) in (int, float) and seconds > 0
    if not number and seconds not in ("auto", None):
        raise ValueError(
            f"sampling_seconds={seconds!r} is not valid: give a number of seconds above 0, 'auto', "
            "or None for no limit."
        )


# Transformers' trackers: the module that each needs, and the variable that names its place.
TRACKERS = {
    "tensorboard": ("tensorboard", "TENSORBOARD_LOGGING_DIR"),
    "wandb": ("wandb", "WANDB_DIR"),
    "trackio": ("trackio", "TRACKIO_DIR"),
    "mlflow": ("mlflow", "MLFLOW_TRACKING_URI"),
    "comet_ml": ("comet_ml", "COMET_OFFLINE_DIRECTORY"),
    "clearml": ("clearml", "CLEARML_API_HOST"),
    "swanlab": ("swanlab", "SWANLAB_LOG_DIR"),
    "dvclive": ("dvclive", "DVCLIVE_DIR"),
    "neptune": ("neptune", "NEPTUNE_PROJECT"),
    "codecarbon": ("codecarbon", "CODECARBON_OUTPUT_DIR"),
    "dagshub": ("dagshub", "DAGSHUB_REPO"),
    "azure_ml": ("azureml", "AZUREML_RUN_ID"),
    "flyte": ("flytekit", "FLYTE_PROJECT"),
    "kubeflow": ("kubeflow", "KUBEFLOW_HOST"),
}


def check_report_to(report_to: str, checkpoints: str = "checkpoints") -> str:
    """Return a line that says where an experiment tracker writes; "" for "none".

    checkpoints: the folder of the run's checkpoints. Raise ValueError if Transformers
    does not know the tracker, if it is not installed, or if it would ask for a key.
    """
    if report_to == "none":
        return ""
    if report_to not in TRACKERS:
        raise ValueError(
            f"report_to={report_to!r} is not a tracker. {did_you_mean(str(report_to), TRACKERS)}"
            f"Known: none, {', '.join(TRACKERS)}."
        )
    module, variable = TRACKERS[report_to]
    if not importlib.util.find_spec(module):
        raise ValueError(f"report_to={report_to!r}: {module} is not installed.")
    netrc = Path(os.environ.get("NETRC") or "~/.netrc").expanduser()
    has_login = netrc.is_file() and "wandb" in netrc.read_text()
    has_key = "WANDB_API_KEY" in os.environ or has_login
    is_offline = os.environ.get("WANDB_MODE") in ("offline", "disabled", "dryrun")
    if report_to == "wandb" and not has_key and not is_offline:
        raise ValueError(
            "report_to='wandb' needs a key, and would ask for it after the sampling: set "
            "WANDB_API_KEY, or WANDB_MODE=offline and upload later with `wandb sync`."
        )
    default = f"{checkpoints}/runs" if report_to == "tensorboard" else "its own default"
    place = os.environ.get(variable) or f"{default} ({variable} changes that)"
    return f"tracker: {report_to} writes to {place}"
