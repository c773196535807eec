"""Trainings that go wrong, and one knob turned: the histories that notebooks 03 and 04 show.

`python -m benchmarks.sick`.

Each is a real training of the pocket model with the pocket preset, but for what is named here, and
with 25 steps of 32 completions. They are written to notebooks/data/sick/ and notebooks/data/beta/
in four digits, with the columns that are shown.
"""

import argparse
import contextlib
import tempfile

from unsloth import FastLanguageModel  # before trl, always

# isort: split
import pandas as pd
import torch
from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from helpers import PROJECT
from helpers.data.tasks import load_task
from helpers.environment import quiet
from helpers.presets import PRESETS
from helpers.rewards.correctness import correctness_reward
from helpers.rewards.structure import substantial_format_reward
from helpers.runs import Run, atomic_write, seed_everything
from helpers.tags import completion_text
from helpers.training.policy import LORA_TARGETS
from helpers.training.reward_guard import GuardedRewards

DATA = PROJECT / "notebooks" / "data"
POCKET = PRESETS["pocket"]
USUAL = {correctness_reward: 1.0, substantial_format_reward: 0.25}  # as in notebook 03
KEPT = [
    "step",
    "loss",
    "reward",
    "reward_std",
    "frac_reward_zero_std",
    "kl",
    "entropy",
    "grad_norm",
    "completions/mean_length",
    "completions/clipped_ratio",
]


def plain_reward(completions: list, **columns) -> list[float]:
    """1.0 without an answer block: someone found the tags ugly.

    But without them no answer can be read.
    """
    return [float("<answer>" not in completion_text(completion)) for completion in completions]


# By file: the rewards with their weights, what is changed in the configuration, and the seed if
# it is not the usual one.
TRAININGS = {
    "sick/a": (USUAL, {"max_completion_length": 20, "max_steps": 40}),
    "sick/b": ({correctness_reward: 0.25, plain_reward: 1.0}, {}),
    "sick/c": (USUAL, {"temperature": 0.2, "max_steps": 40}),
    "sick/d": (USUAL, {"learning_rate": 10 * POCKET.learning_rate, "beta": 1e-6}),
    "beta/a": (USUAL, {"beta": 1.0}),
    "beta/b": (USUAL, {"beta": 10.0}),
    "beta/c": (USUAL, {}),
    "beta/d": (USUAL, {"beta": 0.0}),
    # healthy, with another seed than beta/c: for notebook 04's first exercise, where the path must
    # not tell
    "sick/exam": (USUAL, {}, 5),
}


class Rows(TrainerCallback):
    """Keeps what is logged: steps, and evaluations if there are any."""

    def __init__(self):
        self.rows = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        """Leave out the summary at the end."""
        if logs and "train_runtime" not in logs:
            self.rows.append({"step": state.global_step} | logs)


def train(
    rewards: dict,
    changes: dict,
    seed: int = 3407,
    *,
    questions: int = POCKET.train_size,
    held_out: int = 0,
    before: int = 0,
    callbacks: tuple = (),
    frozen: bool = False,
) -> pd.DataFrame:
    """The history of one training: one row a step, under TRL's names.

    changes: of the preset's settings, as keywords of GRPOConfig.
    questions: to train on.
    held_out: questions that are evaluated every four steps; each evaluation is a row, too.
    before: steps of a usual training whose policy this one begins with.
    callbacks: classes of further callbacks, which may break the policy: the history then ends there.
    frozen: the adapter gets no gradient.
    """
    seed_everything(seed)
    model, tokenizer = FastLanguageModel.from_pretrained(
        POCKET.model_path, max_seq_length=POCKET.context, load_in_4bit=True
    )
    model = FastLanguageModel.get_peft_model(
        model,
        r=POCKET.lora_rank,
        lora_alpha=POCKET.lora_alpha,
        target_modules=LORA_TARGETS,
        use_gradient_checkpointing=False,
        random_state=seed,
    )
    task = load_task(POCKET.source, train_size=POCKET.train_size, holdout_size=held_out or 8)
    if before:
        fit(model, tokenizer, USUAL, {"max_steps": before}, seed, task, questions)
        model.delete_adapter("ref")  # TRL's reference; the next trainer adds its own
    if frozen:
        for weight in model.parameters():
            if weight.requires_grad:
                weight.register_hook(torch.zeros_like)
    return fit(model, tokenizer, rewards, changes, seed, task, questions, bool(held_out), callbacks)


def fit(
    model,
    tokenizer,
    rewards: dict,
    changes: dict,
    seed: int,
    task,
    questions: int,
    evaluated: bool = False,
    callbacks: tuple = (),
) -> pd.DataFrame:
    """Train a policy with TRL's trainer, and return the history."""
    options = {name: getattr(POCKET, name) for name in _SETTINGS.split()}
    options |= {"per_device_train_batch_size": 32, "max_steps": 25} | changes
    if evaluated:
        options |= {"eval_strategy": "steps", "eval_steps": 4, "num_generations_eval": 1}
        options |= {"per_device_eval_batch_size": 32}
    # the guard counts the groups that agree
    guarded = GuardedRewards(Run("sick"), list(rewards))
    logged = Rows()
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=model,
            processing_class=tokenizer,
            args=GRPOConfig(
                output_dir=folder,
                seed=seed,
                reward_weights=list(rewards.values()),
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                bf16=True,
                **options,
            ),
            reward_funcs=guarded.functions,
            train_dataset=Dataset.from_pandas(task.train.head(questions)),
            eval_dataset=Dataset.from_pandas(task.holdout) if evaluated else None,
            callbacks=[guarded, logged, *[callback() for callback in callbacks]],
        )
        trainer.remove_callback(PrinterCallback)
        with contextlib.suppress(*[RuntimeError] * bool(callbacks)):
            trainer.train()
    return pd.DataFrame(logged.rows)


def kl_without_penalty(history: pd.DataFrame, rewards: dict, changes: dict) -> pd.Series:
    """The KL of a training with beta 0, for which TRL logs none.

    It is that of the same training with a beta so small that no other number changes.
    Raise AssertionError if one does.
    """
    measured = train(rewards, changes | {"beta": 1e-12})
    logged = [column for column in history if column != "step_time"]
    pd.testing.assert_frame_equal(measured[logged], history[logged])
    return measured["kl"]


_SETTINGS = """
    num_generations per_device_train_batch_size gradient_accumulation_steps max_completion_length
    temperature beta loss_type max_steps logging_steps
    learning_rate lr_scheduler_type warmup_steps optim adam_beta1 adam_beta2 weight_decay
    max_grad_norm gradient_checkpointing
"""


def main() -> None:
    """Train what is asked for and write the histories."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(TRAININGS), help=", ".join(TRAININGS))
    quiet()
    for name in parser.parse_args().names:
        history = train(*TRAININGS[name])
        if "kl" not in history:
            history["kl"] = kl_without_penalty(history, *TRAININGS[name])
        rewards = [
            column
            for column in history.columns
            if column.startswith("rewards/") and column.endswith("/mean")
        ]
        path = DATA / f"{name}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as temporary:
            history[[*KEPT, *rewards]].to_csv(temporary, index=False, float_format="%.4g")
        print(
            name,
            history[["reward", "kl", "completions/mean_length"]].tail(10).mean().round(3).to_dict(),
            flush=True,
        )


if __name__ == "__main__":
    main()
