"""Held-out questions that a training run is asked now and then: which, and how to evaluate them
without changing the training.
"""

import copy
import math

import pandas as pd
import torch
from datasets import Dataset

from helpers.settings import Preset
from helpers.training.sampling_budget import Plan, questions_within

FEWEST_LOOKS = 4  # with fewer, there is no curve; rounding to logging_steps may leave fewer
MOST_LOOKS = 8
FEWEST_STEPS_BETWEEN = 5  # from one look to the next
FEWEST_AT_A_LOOK = 10  # questions; with fewer, a point of the curve is mostly chance
MOST_AT_A_LOOK = 64
# The looks get one completion for this many of the training. They cost less than a tenth of it,
# because a look of the pocket model takes half a step.
TRAINING_FOR_A_LOOK = 15


def held_out_looks(
    holdout: pd.DataFrame,
    settings: Preset,
    seconds: float | str | None,
    model,
    tokenizer,
    patience: int | None = None,
) -> tuple[Dataset | None, dict]:
    """Return the held-out questions that a training run asks now and then, and the keywords of
    GRPOConfig for it; (None, {}) if it asks none. Print how many and how often.

    A look is one evaluation. All looks ask the same questions, one completion each. They cost less
    than a tenth of the training, and at most `seconds` (see `questions_within`). If that is too
    little for a usable curve, none are asked.

    patience: the steps after which early stopping gives up, at least 2. It needs the score whatever
        that costs, so there are two looks within its patience. A look needs a logged step: if
        `logging_steps` is more than half the patience, there is a look at each logged step.
    """
    # 1. A batch of a look, over all processes, may be twice that of the training: without
    # gradients, it fits into the memory.
    largest_batch = min(
        settings.per_device_train_batch_size * settings.processes * 2,
        settings.completions_per_round,
    )

    # 2. Choose how many steps lie between two looks, as a multiple of `logging_steps`, and how many
    # questions are asked at most and at least.
    if patience is not None:
        every = min(patience // 2, settings.max_steps) // settings.logging_steps
        every = max(every, 1) * settings.logging_steps
        looks = math.ceil(settings.max_steps / every)
        most = MOST_AT_A_LOOK
        fewest = 1
    else:
        # A batch that is smaller than a round may take as long as the round, so the number of
        # affordable completions shrinks by their ratio.
        affordable = settings.max_steps * settings.completions_per_step // TRAINING_FOR_A_LOOK
        affordable = affordable * largest_batch // settings.completions_per_round
        most_looks = min(MOST_LOOKS, settings.max_steps // FEWEST_STEPS_BETWEEN)
        looks = min(most_looks, affordable // FEWEST_AT_A_LOOK)
        if looks < FEWEST_LOOKS:
            return _print_not_logged()
        every = math.ceil(settings.max_steps / looks / settings.logging_steps)
        every = every * settings.logging_steps
        most = min(MOST_AT_A_LOOK, affordable // looks)
        fewest = min(FEWEST_AT_A_LOOK, len(holdout))

    # 3. Keep the questions that the seconds allow, with one completion each in every look.
    plan = Plan(holdout.head(most), samples=1, repetitions=looks)
    planned = {"held-out questions during the training": plan}
    (asked,) = questions_within(seconds, model, tokenizer, settings, planned)

    # 4. Drop questions that would not fill a batch. All processes get equal parts of a batch,
    # because accelerate asks some questions twice otherwise, and all batches have the same size,
    # because TRL averages over batches.
    for_each_process = min(largest_batch, len(asked)) // settings.processes
    batch = for_each_process * settings.processes
    if batch == 0:
        return _print_not_logged()
    asked = asked.iloc[: len(asked) // batch * batch]
    if len(asked) < fewest:
        return _print_not_logged()
    print(f"held-out score: {len(asked)} questions, every {every} step{'s' * (every > 1)}")
    return Dataset.from_pandas(asked, preserve_index=False), {
        "eval_strategy": "steps",
        "eval_steps": every,
        "num_generations_eval": 1,
        "per_device_eval_batch_size": for_each_process,
    }


def _print_not_logged() -> tuple[None, dict]:
    """Print that no held-out questions are asked, and return what `held_out_looks` then returns."""
    print("held-out score: not logged; the steps, the questions or the seconds are too few")
    return None, {}


def keep_apart(trainer) -> None:
    """Make the evaluations of a GRPOTrainer cheap, and keep them from changing its training and its
    tables.

    TRL 1.15 writes the completions of an evaluation into the table of the training step, and draws
    from the same random numbers. Here, all evaluations draw the same random numbers, so a policy
    that has not changed scores the same. The loss and the KL are not computed: `eval_loss` is NaN.
    """
    evaluate = trainer.evaluate

    def evaluate_apart(*args, **options):
        for_evaluation = {
            "_logs": copy.deepcopy(trainer._logs),  # what TRL adds to the copy is thrown away
            "log_completions": False,
            "beta": 0.0,  # without a KL, the reference is not asked
            "compute_loss": lambda model, inputs: torch.tensor(math.nan, device=model.device),
        }
        for_training = {name: getattr(trainer, name) for name in for_evaluation}
        vars(trainer).update(for_evaluation)
        try:
            # the training goes on with the random numbers that it would have drawn anyway
            with torch.random.fork_rng(range(torch.cuda.device_count())):
                torch.manual_seed(trainer.args.seed + trainer.args.process_index)
                return evaluate(*args, **options)
        finally:
            vars(trainer).update(for_training)

    trainer.evaluate = evaluate_apart
