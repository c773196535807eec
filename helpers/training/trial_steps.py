"""The last checks before a training run: trial steps, their forecast, and the limit of completions.

    check_limit(lengths, settings, model, tokenizer)
    trial = trial_step(model, tokenizer, config, rewards, train, settings, machine)
    lines = forecast(trial, settings)

The trial steps tell whether the memory suffices, and how long a step takes: `trial_step` trains for
two steps as large as they can become. `memory.check` only estimates the memory, before anything is
loaded.
"""

import copy
import math
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pandas as pd
import torch
from datasets import Dataset
from transformers import PrinterCallback

from helpers.environment import Machine
from helpers.settings import Preset
from helpers.training import sampling
from helpers.training.memory import card_of, size, what_helps
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
    Raise ValueError if memory runs out, which otherwise would happen hours later, at the first such
    batch.
    """
    from trl import GRPOTrainer

    # 1. Prepare the configuration, the rows, and rewards whose failure ends nothing: the training
    # run reports failing rewards.
    questions = settings.completions_per_round // settings.num_generations
    rows = _longest_prompts(train, questions)
    guarded = [guard_reward(function, lambda *batch: None) for function in reward_functions]
    with_full_completions = _trial_config(config, settings.max_completion_length)

    # 2. Train, and time the sampling.
    sampling_times: list[float] = []
    on_gpu = model.device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    try:
        with _restored(model), tempfile.TemporaryDirectory() as folder:
            with_full_completions.output_dir = folder
            trainer = GRPOTrainer(
                model=model,
                processing_class=tokenizer,
                args=with_full_completions,
                reward_funcs=guarded,
                train_dataset=Dataset.from_pandas(rows, preserve_index=False),
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
        log = trainer.state.log_history
        peak = torch.cuda.max_memory_reserved() if on_gpu else None
    except torch.OutOfMemoryError:  # only on a GPU; on a CPU the system ends the process
        room = size(card_of(machine) or machine.memory_gb * 1e9)
        raise ValueError(
            f"{machine.gpu or 'this machine'}, with {room}, ran out of memory in the trial step, "
            f"at full length. {what_helps(settings)}"
        ) from None
    finally:
        trainer = None  # frees its optimizer's memory
        sampling.release()

    # 3. Read the times. TRL's step_time leaves out the optimizer's update, which is short for an
    # adapter. Steps that reuse completions are shorter, so the longest is one that samples.
    step_times = [row["step_time"] for row in log if "step_time" in row]
    return Trial(
        first=step_times[0],
        seconds=max(step_times[1:]),
        sampling=sampling_times[-1],
        peak=peak,
    )


def _trial_config(config, limit: int):
    """Return a copy of a GRPOConfig for trial steps, which saves and reports nothing. Every
    completion has `limit` tokens, and the last step begins a second round of sampling.
    """
    trial = copy.copy(config)
    passes_of_round = config.steps_per_generation * config.num_iterations
    trial.max_steps = math.ceil(passes_of_round / config.gradient_accumulation_steps) + 1
    trial.logging_steps = 1  # TRL then logs the time of each step
    trial.save_strategy = "no"
    trial.eval_strategy = "no"
    trial.report_to = []
    trial.log_completions = False
    if config.use_vllm:
        trial.generation_kwargs = {"min_tokens": limit, "ignore_eos": True}
    else:
        trial.generation_kwargs = {"min_new_tokens": limit}
    return trial


def _longest_prompts(train: pd.DataFrame, count: int) -> pd.DataFrame:
    """Return the `count` rows with the longest prompts, repeated if there are too few."""
    characters = [
        sum(len(message["content"]) for message in messages) for messages in train["prompt"]
    ]
    longest_first = pd.Series(characters).sort_values(ascending=False, kind="stable").index
    longest = train.iloc[longest_first[:count]]
    return pd.concat([longest] * math.ceil(count / len(longest)))[:count]


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
    """Return upper bounds for the steps of the whole training run as lines of text: hours and
    sampled tokens, with the share of a step spent sampling and the peak memory.
    """
    sampled = settings.max_steps * settings.completions_per_step * settings.max_completion_length
    hours = settings.max_steps * trial.seconds / 3600
    whole = f"{hours:.1f} hours" if hours >= 1 else f"{hours * 60:.1f} minutes"
    lines = [
        f"every completion at its limit: the first step takes {trial.first:.1f} s, a later one "
        f"{trial.seconds:.1f} s",
        f"sampling is {trial.sampling / trial.seconds:.0%} of the later step",
        f"{settings.max_steps} steps: about {whole} at most, without the held-out score, and "
        f"{sampled:,} sampled tokens; less if completions end sooner",
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
    share = cut / len(lengths)
    if share <= 0.5:
        return share

    # 1. One cause is known: the model was given an end token that its chat template does not write.
    end = sampling.end_that_ends_nothing(model, tokenizer)
    if end is not None:
        written = repr(end) if end else "no token"
        end_tokens = sorted(sampling.ends_of(model, tokenizer))
        names = [repr(name) for name in tokenizer.convert_ids_to_tokens(end_tokens)]
        ending = " or ".join(names) or "no token"
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
