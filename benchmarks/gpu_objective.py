"""The objective contract with a live trainer: each setting of the loss is what the manifest
recorded.

The formula is not compared, and one part of it differs on a GPU: Unsloth's loss clamps the KL of a
token at 10 (unsloth_zoo/rl_replacements.py, `grpo_compute_loss`), TRL's does not. A setting that the manifest does not record has to have TRL's own default. Settings are compared by
name, wherever the manifest's training section has them.
"""

import dataclasses
import json
from dataclasses import dataclass

from helpers.environment import this_machine
from helpers.runs import Run, write_json

# Fields of TRL's GRPOConfig. One that the installed TRL does not have is passed over. The settings
# of GRPOConfig that the loss, the advantages and the choice of completions read: in TRL's
# GRPOTrainer, in the trainer that Unsloth generates, and in unsloth_zoo's loss. tests/gpu_contract
# compares this list with their sources.
OF_THE_LOSS = (
    *(
        "loss_type",
        "epsilon",
        "epsilon_high",
        "delta",
        "importance_sampling_level",
        "scale_rewards",
        "reward_weights",
    ),
    *(
        "multi_objective_aggregation",
        "mask_truncated_completions",
        "max_completion_length",
        "num_generations",
    ),
    *(
        "num_iterations",
        "beta",
        "use_bias_correction_kl",
        "off_policy_mask_threshold",
        "top_entropy_quantile",
    ),
    *(
        "router_aux_loss_coef",
        "entropy_coef",
        "entropy_coef_delta",
        "entropy_coef_max",
        "entropy_coef_min",
        "entropy_target",
    ),
    *("use_adaptive_entropy", "sapo_temperature_neg", "sapo_temperature_pos"),
    *("vespo_k_neg", "vespo_k_pos", "vespo_lambda_neg", "vespo_lambda_pos"),
    *(
        "use_vllm",
        "vllm_importance_sampling_correction",
        "vllm_importance_sampling_mode",
        "vllm_importance_sampling_cap",
    ),
    *("vllm_importance_sampling_clip_max", "vllm_importance_sampling_clip_min"),
    *(
        "per_device_train_batch_size",
        "gradient_accumulation_steps",
        "steps_per_generation",
        "generation_batch_size",
    ),
    *(
        "temperature",
        "top_p",
        "min_p",
        "repetition_penalty",
        "generation_kwargs",
        "seed",
        "shuffle_dataset",
    ),
)
BESIDE = ("top_k", "sync_ref_model", "disable_dropout")
UPDATE = (
    "learning_rate",
    "lr_scheduler_type",
    "warmup_steps",
    "optim",
    "adam_beta1",
    "adam_beta2",
    "weight_decay",
)
UPDATE += ("max_grad_norm",)
OBJECTIVE = OF_THE_LOSS + BESIDE + UPDATE
_OF_TRAINER = {"epsilon": "epsilon_low"}  # the trainer's own names, where they differ
_OWN = ("generation_kwargs",)  # the trainer keeps another thing under this name
_ALIKE = {  # values that come to the same, and what they have in common
    # in one kernel, which Unsloth takes on a CPU
    "optim": (("adamw_torch", "adamw_torch_fused"), "same update"),
    # Transformers' value, vLLM's (which Unsloth puts in its place), and unset
    "top_k": ((0, -1, None), "no limit"),
    # None: the model's own, and ours have none
    "router_aux_loss_coef": ((0.0, None), "no experts"),
    "generation_kwargs": (("{}", None), "nothing more"),
}
_FILE = "live_objective.json"


@dataclass(frozen=True)
class Row:
    """One setting: what was recorded (or TRL's default), and what the arguments and the trainer
    have. problem: a sentence.
    """

    name: str
    recorded: bool
    expected: object
    args: object
    trainer: object  # None where the trainer keeps no copy of its own
    problem: str


def write(trainer, run: Run) -> None:
    """Write down, in the run folder, what this trainer has under the names of `OBJECTIVE`, and
    TRL's defaults.
    """
    args, trls = (
        trainer.args,
        next(cls for cls in type(trainer.args).__mro__ if cls.__module__.startswith("trl.")),
    )
    defaults = {
        f.name: f.default for f in dataclasses.fields(trls) if f.default is not dataclasses.MISSING
    }
    own = {
        name: getattr(trainer, _OF_TRAINER.get(name, name), None)
        for name in OBJECTIVE
        if name not in _OWN
    }
    live = {
        "gpu": this_machine().gpu,
        "args": {name: _plain(getattr(args, name)) for name in OBJECTIVE if hasattr(args, name)},
        "trainer": {name: _plain(value) for name, value in own.items() if value is not None},
        "defaults": {name: _plain(value) for name, value in defaults.items() if name in OBJECTIVE},
    }
    write_json(run.path(_FILE), live)


def compare(run: Run) -> list[Row]:
    """What `write` found, a setting a row, against the manifest of the run."""
    live = json.loads(run.require(_FILE).read_text(encoding="utf-8"))
    recorded = _recorded(run.section("training"), live["gpu"])
    rows = []
    for name, args in live["args"].items():
        expected = recorded.get(name, live["defaults"].get(name))
        trainer = live["trainer"].get(name)
        lower = recorded.get("epsilon", live["defaults"].get("epsilon"))
        # TRL: one epsilon for both sides
        of_trainer = lower if name == "epsilon_high" and expected is None else expected
        source = (
            "the manifest records"
            if name in recorded
            else "nothing is recorded, and TRL's default is"
        )
        problem = ""
        if not _same(name, args, expected):
            problem = f"{name}: {source} {expected!r}, and the live arguments have {args!r}."
        elif trainer is not None and not _same(name, trainer, of_trainer):
            problem = f"{name}: {source} {of_trainer!r}, and the live trainer has {trainer!r}."
        rows.append(Row(name, name in recorded, expected, args, trainer, problem))
    return rows


def _recorded(training: dict, gpu: str | None) -> dict:
    """The manifest's settings by TRL's names, and what follows from them: by TRL's own rule, or
    notebook 03's.
    """
    found = {
        name: _plain(value)
        for part in training.values()
        if isinstance(part, dict)
        for name, value in part.items()
    }
    rounds = found["steps_per_generation"] or found["gradient_accumulation_steps"]
    return found | {
        "seed": training["seed"],
        "reward_weights": _plain(training["weights"]),
        "steps_per_generation": rounds,
        "generation_batch_size": found["per_device_train_batch_size"] * rounds,
        "use_vllm": found["engine"] == "vllm" and gpu is not None,
    }


def _same(name: str, one: object, other: object) -> bool:
    alike = _ALIKE.get(name, ((), ""))[0]
    return one == other or (one in alike and other in alike)


def table(rows: list[Row]) -> list[str]:
    """The rows in Markdown."""
    lines = ["| setting | recorded | arguments | trainer | |", "|---|---|---|---|---|"]
    for row in rows:
        expected = f"{row.expected}" if row.recorded else f"(TRL: {row.expected})"
        own = "" if row.trainer is None else row.trainer
        lines.append(f"| {row.name} | {expected} | {row.args} | {own} | {_verdict(row)} |")
    return lines


def _verdict(row: Row) -> str:
    if row.problem:
        return "**differs**"
    return "same" if row.args == row.expected else _ALIKE[row.name][1]


def _plain(value: object) -> object:
    """As JSON has it; an enumeration as its value, weights rounded to what 32 bits hold."""
    value = getattr(value, "value", value)
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, list):
        return [round(one, 6) if isinstance(one, float) else one for one in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
