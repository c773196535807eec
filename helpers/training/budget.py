"""Measure before spending time: trial steps before a training run, and a short batch before a
notebook samples.

    trial = trial_step(model, tokenizer, config, rewards, train, settings, machine)
    lines = forecast(trial, settings)

The trial steps tell whether the memory suffices, and how long a step takes. The short batch tells
how many questions a notebook can answer within its budget of seconds. `memory.check` estimates the
memory before anything is loaded.
"""

import copy
import math
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from typing import NamedTuple

import pandas as pd
import torch
from datasets import Dataset
from transformers import PrinterCallback

from helpers import processes
from helpers.environment import Machine
from helpers.settings import EMBEDDED, Preset, check_sampling_seconds
from helpers.training import sampling
from helpers.training.memory import WHAT_HELPS, card_of, size
from helpers.training.reward_guard import guard_reward


@dataclass(frozen=True)
class Trial:
    """Measurements of the trial steps.

    first: seconds of the first step, which includes one-time work such as compilation.
    seconds: seconds of a later step.
    sampling: how many of these seconds were spent sampling.
    peak: peak bytes that torch reserved on the GPU, without vLLM's memory; None without a GPU.
    """

    first: float
    seconds: float
    sampling: float
    peak: int | None


def trial_step(
    model,
    tokenizer,
    config,
    reward_functions: list,
    train: pd.DataFrame,
    settings: Preset,
    machine: Machine,
) -> Trial:
    """Train for two steps on the longest prompts, with every completion at its limit, measure them,
    and restore the model.

    The steps use the whole of `config`: sampling, rewards, loss, gradients, optimizer. If one round
    of sampling serves several steps, there are as many steps as it takes to begin a second round.
    The adapter's weights are restored afterwards; a stateful reward has seen two more rounds.
    ValueError if memory runs out, which otherwise would happen hours later, at the first such
    batch.
    """
    from trl import GRPOTrainer

    # 1. Configure as many steps as it takes to begin a second round of sampling.
    trial = copy.copy(config)
    passes = config.steps_per_generation * config.num_iterations  # that one round serves
    trial.max_steps = math.ceil(passes / config.gradient_accumulation_steps) + 1
    trial.logging_steps = 1  # TRL then logs the time of each step
    trial.save_strategy = "no"
    trial.eval_strategy = "no"
    trial.report_to = []
    trial.log_completions = False
    limit = settings.max_completion_length
    trial.generation_kwargs = {"min_new_tokens": limit}
    if config.use_vllm:
        trial.generation_kwargs = {"min_tokens": limit, "ignore_eos": True}

    # 2. Take the rows with the longest prompts, enough for one round; repeat them if there are too
    # few.
    count = settings.completions_per_round // settings.num_generations
    characters = train["prompt"].map(
        lambda turns: sum(len(message["content"]) for message in turns)
    )
    longest_first = characters.sort_values(ascending=False, kind="stable").index
    longest = train.loc[longest_first[:count]]
    longest = pd.concat([longest] * math.ceil(count / len(longest)))[:count]

    # 3. Train, and time the sampling. Failing rewards are reported by the training run, not here.
    sampling_times: list[float] = []
    guarded = [guard_reward(function, lambda *batch: None) for function in reward_functions]
    on_gpu = model.device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    try:
        with _restored(model), tempfile.TemporaryDirectory() as folder:
            trial.output_dir = folder
            trainer = GRPOTrainer(
                model=model,
                processing_class=tokenizer,
                args=trial,
                reward_funcs=guarded,
                train_dataset=Dataset.from_pandas(longest, preserve_index=False),
            )
            trainer.remove_callback(PrinterCallback)
            generate = trainer._generate

            def timed(prompts):
                begin = time.perf_counter()
                returned = generate(prompts)
                sampling_times.append(time.perf_counter() - begin)
                return returned

            trainer._generate = timed
            trainer.train()
        # TRL's step_time leaves out the optimizer's update, which is short for an adapter
        step_times = [row["step_time"] for row in trainer.state.log_history if "step_time" in row]
        peak = torch.cuda.max_memory_reserved() if on_gpu else None
    except torch.OutOfMemoryError:  # only on a GPU; on a CPU the system ends the process
        room = size(card_of(machine) or machine.memory_gb * 1e9)
        raise ValueError(
            f"{machine.gpu or 'this machine'}, with {room}, ran out of memory in the trial step, "
            f"at full length. {WHAT_HELPS}"
        ) from None
    finally:
        trainer = None  # frees its optimizer's memory
        sampling.release()
    # steps that reuse completions are shorter; the longest is one that samples
    return Trial(step_times[0], max(step_times[1:]), sampling_times[-1], peak)


@contextmanager
def _restored(model) -> Iterator[None]:
    """Restore the adapter's weights and the model's mode at the end of the context, and delete the
    frozen reference that TRL added: the real trainer adds its own. The random state need not be
    restored, because each trainer seeds it with its configuration's `seed`.
    """
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    originals = [weight.detach().clone() for weight in trained]
    adapters = set(model.peft_config)
    training = model.training
    try:
        yield
    finally:
        for name in set(model.peft_config) - adapters:
            model.delete_adapter(name)
        for weight, original in zip(trained, originals, strict=True):
            weight.data = original
            weight.grad = None
        model.train(training)


def forecast(trial: Trial, settings: Preset) -> list[str]:
    """Return upper bounds for the whole training run as lines of text: hours and sampled tokens,
    with the share of a step spent sampling and the peak memory.
    """
    sampled = settings.max_steps * settings.completions_per_step * settings.max_completion_length
    hours = settings.max_steps * trial.seconds / 3600
    whole = f"{hours:.1f} hours" if hours >= 1 else f"{hours * 60:.1f} minutes"
    lines = [
        f"every completion at its limit: the first step takes {trial.first:.1f} s, a later one "
        f"{trial.seconds:.1f} s",
        f"sampling is {trial.sampling / trial.seconds:.0%} of the later step",
        f"{settings.max_steps} steps: at most {whole} and {sampled:,} sampled tokens; less if "
        "completions end sooner",
    ]
    if trial.peak is not None:
        beside = " beside vLLM's" if settings.engine == "vllm" else ""
        lines.append(f"memory in use at its height{beside}: {size(trial.peak)}")
    return lines


def check_limit(lengths: list[int], settings: Preset, model, tokenizer) -> float:
    """Return the share of an ordinary sample that was cut off at the limit. Raise ValueError if it
    is more than half: the policy would mostly learn to write less.

    lengths: the tokens of each completion including its end token; limit + 1 for a completion that
        was cut off. See `sampling.lengths_of`.
    """
    limit = settings.max_completion_length
    cut = sum(length > limit for length in lengths)
    if cut <= len(lengths) / 2:
        return cut / len(lengths)

    # 1. One cause is known: the model was given an end token that its chat template does not write.
    end = sampling.end_that_ends_nothing(model, tokenizer)
    if end is not None:
        written = repr(end) if end else "no token"
        ends = tokenizer.convert_ids_to_tokens(sorted(sampling.ends_of(model, tokenizer)))
        ending = " or ".join(map(repr, ends)) or "no token"
        raise ValueError(
            f"{cut} of {len(lengths)} ordinary completions did not end before "
            f"max_completion_length={limit}: the chat template ends a turn with {written}, but "
            f"a completion ends only at {ending}. Set the model's end token to the template's: "
            "eos_token in tokenizer_config.json and eos_token_id in generation_config.json."
        )

    # 2. Otherwise the limit is too low, or the model thinks for too long.
    advice = "Raise it, which costs time and memory in proportion (max_seq_length must hold it)"
    if settings.thinking is not False:
        advice += (
            ", or use thinking=False: if the model's template has the choice, completions become "
            "several times shorter, and hard questions are answered worse"
        )
    raise ValueError(
        f"{cut} of {len(lengths)} ordinary completions were cut off at max_completion_length="
        f"{limit}: the policy would mostly learn to be short. {advice}."
    )


# --- A notebook's own sampling --------------------------------------------------------------------

# Fewest rows to keep of each table: from 4 groups, notebook 2 would refuse good rewards.
FEWEST = 8
AUTO = 300  # seconds


class _Planned(NamedTuple):
    """A table to sample from, and the completions that each of its rows gets in all repetitions."""

    rows: pd.DataFrame
    per_row: int


def questions_within(
    seconds: float | str | None,
    model,
    tokenizer,
    settings: Preset,
    tables: dict[str, tuple[pd.DataFrame, int, int]],
    extras: dict[str, tuple[pd.DataFrame, int, int]] | None = None,
) -> list[pd.DataFrame]:
    """Return the first rows of each table, as many as can be answered within a notebook's budget,
    and print how many were left out, and how long the others take.

    seconds: the budget; None keeps all rows. "auto" means AUTO seconds, but no limit for an
        embedded model, so that the lessons print the same numbers on the slowest machine.
        ValueError for anything else.
    tables: printed name -> (rows, completions per row, repetitions). All tables keep the same
        share of their rows, and at least FEWEST rows, even if these take longer than the budget.
    extras: tables that share what the others leave, one after the other, and may keep no row.

    The time is predicted from the tokens per second of a short batch, as if every completion
    reached its limit.
    """
    check_sampling_seconds(seconds)
    if seconds == "auto":
        seconds = None if settings.model in EMBEDDED else AUTO
    planned = {
        name: _Planned(rows, samples * times)
        for name, (rows, samples, times) in (tables | (extras or {})).items()
    }
    if seconds is None:
        return [table.rows for table in planned.values()]

    # 1. Measure the tokens per second of one batch. A CPU gains nothing from more than 16 prompts.
    completions = sum(len(table.rows) * table.per_row for table in planned.values())
    most = 16 if model.device.type == "cpu" else sampling.BATCH[sampling.engine_of(model)]
    prompts = [list(prompt) for table in planned.values() for prompt in table.rows["prompt"]]
    batch = list(islice(cycle(prompts), min(completions, most)))
    few = min(32, settings.max_completion_length)
    options = {"max_new_tokens": few, "temperature": settings.temperature}
    sampling.sample(model, tokenizer, batch, **options)  # warm up: one-time work is not measured
    begin = time.perf_counter()
    sampling.sample(model, tokenizer, batch, **options)
    rate = len(batch) * few / (time.perf_counter() - begin)
    rate = processes.gather(rate)[0]  # all processes must keep the same rows
    seconds_each = settings.max_completion_length / rate  # of a completion

    # 2. Keep the share of the tables' rows that the budget allows. An extra table gets what those
    # before it leave.
    in_tables = sum(len(planned[name].rows) * planned[name].per_row for name in tables)
    share = min(1.0, seconds / (in_tables * seconds_each))
    kept = {}
    taken = 0.0  # seconds
    for name, table in planned.items():
        fewest = min(FEWEST, len(table.rows))
        if name in tables:
            room = max(fewest, int(share * len(table.rows)))
        else:
            room = int(max(0.0, seconds - taken) / (table.per_row * seconds_each))
            if room < fewest:
                room = 0
        kept[name] = table.rows.iloc[:room]
        taken += len(kept[name]) * table.per_row * seconds_each

    # 3. Print how long everything would take, and, if rows are left out, what is asked.
    print(
        f"to sample everything: at most about {completions * seconds_each:,.0f} s, at "
        f"{rate:,.0f} tokens a second"
    )
    if all(len(kept[name]) == len(table.rows) for name, table in planned.items()):
        return list(kept.values())
    shares = []
    for name, table in planned.items():
        asked = len(kept[name])
        shares.append(f"{asked} of {len(table.rows)} {name}")
        if asked:
            # half the width of the 95 % interval of a proportion, at its widest (one half)
            shares[-1] += f" (95 % interval: up to ±{98 / asked**0.5:.0f} points)"
    says = f"has room for {', '.join(shares)}; they take at most about {taken:,.0f} s"
    if taken > seconds:
        says = (
            "is too short, and the fewest questions that show anything are asked: "
            f"{', '.join(shares)}; they take up to about {taken:,.0f} s"
        )
    print(f"note: sampling_seconds={seconds} {says}. sampling_seconds=None lifts the limit.")
    return list(kept.values())


# --- Held-out questions during a training run -----------------------------------------------------

FEWEST_LOOKS = 4  # with fewer, there is no curve
FEWEST_AT_A_LOOK = 10  # with fewer, a point of the curve is mostly chance
MOST_AT_A_LOOK = 64


def held_out_looks(
    holdout: pd.DataFrame,
    settings: Preset,
    seconds: float | str | None,
    model,
    tokenizer,
    patience: int | None = None,
) -> tuple[Dataset | None, dict]:
    """Return the held-out questions that a training run asks now and then, and the keywords of
    GRPOConfig for it; (None, {}) if it asks none. Print which.

    All looks ask the same questions, one completion each. They cost less than a tenth of the
    training, and at most `seconds` (see `questions_within`). If that is too little for a usable
    curve, none are asked.

    patience: of early stopping, which needs the score whatever it costs: two looks within it.
    """
    if holdout.empty:
        return _not_logged()

    # 1. The model may be called with twice the training's batch, because without gradients that
    # fits into the memory.
    largest_batch = min(
        settings.per_device_train_batch_size * settings.processes * 2,
        settings.completions_per_round,
    )

    # 2. Choose how many looks, and how many questions at most and at least.
    if patience is not None:
        # Early stopping needs the score, whatever it costs: two looks within its patience.
        looks = math.ceil(2 * settings.max_steps / patience)
        most = MOST_AT_A_LOOK
        fewest = 1
    else:
        # The training can afford a fifteenth of its completions, because a look of the pocket model
        # takes half a step. A batch that is smaller than a round may take as long as the round, so
        # the number shrinks by their ratio.
        affordable = settings.max_steps * settings.completions_per_step // 15
        affordable = affordable * largest_batch // settings.completions_per_round
        looks = min(8, settings.max_steps // 5, affordable // FEWEST_AT_A_LOOK)
        if looks < FEWEST_LOOKS:
            return _not_logged()
        most = min(MOST_AT_A_LOOK, affordable // looks)
        fewest = min(FEWEST_AT_A_LOOK, len(holdout))

    # 3. Keep the questions that the seconds allow.
    table = {"held-out questions during the training": (holdout.head(most), 1, looks)}
    (asked,) = questions_within(seconds, model, tokenizer, settings, table)

    # 4. Use batches of equal size, because TRL averages over batches, with equal parts for all
    # processes, because accelerate asks some questions twice otherwise.
    batch = min(largest_batch, len(asked)) // settings.processes * settings.processes
    if len(asked) < fewest or not batch:
        return _not_logged()
    asked = asked.iloc[: len(asked) // batch * batch]

    # 5. A look belongs to a logged step.
    every = math.ceil(settings.max_steps / looks / settings.logging_steps) * settings.logging_steps
    print(f"held-out score: {len(asked)} questions, every {every} step{'s' * (every > 1)}")
    return Dataset.from_pandas(asked, preserve_index=False), {
        "eval_strategy": "steps",
        "eval_steps": every,
        "num_generations_eval": 1,
        "per_device_eval_batch_size": batch // settings.processes,
    }


def _not_logged() -> tuple[None, dict]:
    """Print that no held-out questions are asked, and return what `held_out_looks` then returns."""
    print("held-out score: not logged; the steps, the questions or the seconds are too few")
    return None, {}


def keep_apart(trainer) -> None:
    """Keep the evaluations of a GRPOTrainer from changing its training and its tables, and cheap.

    TRL 1.15 writes the completions of an evaluation into the table of the training step, and draws
    from the same random numbers. Here, all evaluations draw the same random numbers, so a policy
    that has not changed scores the same. The loss and the KL are not computed: `eval_loss` is NaN.
    """
    evaluate = trainer.evaluate

    def apart(*args, **options):
        temporary = {
            "_logs": copy.deepcopy(trainer._logs),
            "log_completions": False,
            "beta": 0.0,  # without a KL, the reference is not asked
            "compute_loss": lambda model, inputs: torch.tensor(math.nan, device=model.device),
        }
        forked = torch.random.fork_rng(range(torch.cuda.device_count()))
        of_training = {name: getattr(trainer, name) for name in temporary}
        vars(trainer).update(temporary)
        try:
            with forked:
                torch.manual_seed(trainer.args.seed + trainer.args.process_index)
                return evaluate(*args, **options)
        finally:
            vars(trainer).update(of_training)

    trainer.evaluate = apart
