"""What is tried before time is spent: two steps at full length before a training, for its memory,
time and tokens; and a few tokens before a notebook samples, for how many questions fit into its
seconds.

`memory.check` says what can be said without loading anything.
"""

import copy
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, islice

import pandas as pd
import torch
from datasets import Dataset
from transformers import PrinterCallback

from helpers import presets
from helpers.environment import Machine
from helpers.presets import Preset
from helpers.training import policy, processes
from helpers.training.memory import WHAT_HELPS, card_of, size
from helpers.training.reward_guard import guard_reward
from helpers.training.run_settings import check_sampling_seconds


@dataclass(frozen=True)
class Trial:
    """What was measured: the seconds of the first step, with what is done once (compiling, checks),
    and of one after it; how many of the latter were spent sampling; and the most bytes of the card
    that torch held (None without a GPU), to which vLLM's are to be added.
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
    """Take two real steps on the longest prompts, with every completion at its limit, and leave no
    trace of them in the model.

    They are what `config` will train with: sampling, rewards, loss, gradients, optimizer. If one
    round of sampling serves several steps, there are as many as lead to a second round. Afterwards
    the adapter's weights are what they were; a reward that keeps a state has seen two rounds.
    ValueError if the memory does not suffice: better now than when the first such batch comes,
    hours later.
    """
    from trl import GRPOTrainer

    # the configuration for as many steps as lead to a second round of sampling
    trial = copy.copy(config)
    rounds = config.steps_per_generation * config.num_iterations
    trial.max_steps = -(-rounds // config.gradient_accumulation_steps) + 1
    trial.logging_steps = 1  # each step's time
    trial.save_strategy = "no"
    trial.report_to = []
    trial.log_completions = False
    limit = settings.max_completion_length
    trial.generation_kwargs = {"min_new_tokens": limit}
    if config.use_vllm:
        trial.generation_kwargs = {"min_tokens": limit, "ignore_eos": True}

    # the rows with the most text, as many as a round takes; repeated if the data has fewer
    count = settings.completions_per_round // settings.num_generations
    length = train["prompt"].map(lambda turns: sum(len(message["content"]) for message in turns))
    longest = train.loc[length.sort_values(ascending=False, kind="stable").index[:count]]
    longest = pd.concat([longest] * -(-count // len(longest)))[:count]

    # train, timing what is sampled; rewards that fail are the training's to report
    sampling: list[float] = []
    guarded = [guard_reward(function, lambda *batch: None) for function in reward_functions]
    on_gpu = model.device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    try:
        with _put_back(model), tempfile.TemporaryDirectory() as folder:
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
                sampling.append(time.perf_counter() - begin)
                return returned

            trainer._generate = timed
            trainer.train()
        # TRL's own measure: all of a step but the optimizer's update, which is short for an adapter
        first, *later = [
            row["step_time"] for row in trainer.state.log_history if "step_time" in row
        ]
        peak = torch.cuda.max_memory_reserved() if on_gpu else None
    except torch.OutOfMemoryError:  # a GPU's; on a CPU the system ends the process
        room = size(card_of(machine) or machine.memory_gb * 1e9)
        raise ValueError(
            f"{machine.gpu or 'this machine'}, with {room}, ran out of memory in the trial step, "
            f"at full length. {WHAT_HELPS}"
        ) from None
    finally:
        trainer = None
        policy.release()
    # the longest is one that samples
    return Trial(first, max(later), sampling[-1], peak)


@contextmanager
def _put_back(model) -> Iterator[None]:
    """Put the adapter's weights and the model's mode back at the end, and delete TRL's frozen
    reference, which the real trainer adds itself. Random numbers need no such care: each trainer
    seeds them all with its configuration's `seed` when it is made.
    """
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    copies = [weight.detach().clone() for weight in trained]
    adapters = set(model.peft_config)
    training = model.training
    try:
        yield
    finally:
        for name in set(model.peft_config) - adapters:
            model.delete_adapter(name)
        for weight, copy_of_it in zip(trained, copies, strict=True):
            weight.data = copy_of_it
            weight.grad = None
        model.train(training)


def forecast(trial: Trial, settings: Preset) -> list[str]:
    """Return what the whole training will take at most, as lines of text: hours, tokens, the share
    of a step that is sampling, and the memory that was measured.
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


def check_limit(lengths: list[int], settings: Preset) -> None:
    """Raise ValueError if more than half of an ordinary sample was cut off: such a training would
    mostly learn to be short.

    lengths: the tokens of each completion and its end token; of one that was cut off, one more than
        the limit.
    """
    limit = settings.max_completion_length
    cut = sum(length > limit for length in lengths)
    if cut > len(lengths) / 2:
        shorter = (
            ", or take thinking=False: if the model's template has the choice, completions become "
            "several times as short, and hard questions are answered worse"
        )
        raise ValueError(
            f"{cut} of {len(lengths)} ordinary completions were cut off at max_completion_length="
            f"{limit}: the policy would mostly learn to be short. Raise it, which costs time and "
            "memory in proportion (max_seq_length must hold it)"
            f"{'' if settings.thinking is False else shorter}."
        )


# --- A notebook's own sampling --------------------------------------------------------------------

# Questions of each table, however small the budget is: notebook 2 would refuse good rewards if it
# saw 4 groups.
FEWEST = 8
AUTO = 300  # seconds that "auto" gives a model of one's own


def questions_within(
    seconds: float | str | None,
    model,
    tokenizer,
    settings: Preset,
    tables: dict[str, tuple[pd.DataFrame, int, int]],
) -> list[pd.DataFrame]:
    """Return the first rows of each table: all of them, or the share that `seconds` suffice to
    answer, and print what was left out.

    seconds: a notebook's budget; None keeps all rows. "auto" is AUTO, and None for an embedded
        model, so that the lessons' numbers are the same on the slowest machine. ValueError for
        anything else.
    tables: by what they are called in print, the rows, how many completions of each are sampled at
        a time, and how many times. All tables keep the same share, and at least FEWEST rows.

    The rate is that of a first batch, which ends after a few tokens; every completion is taken to
    reach its limit.
    """
    check_sampling_seconds(seconds)
    if seconds == "auto":
        seconds = None if settings.model in presets.EMBEDDED else AUTO
    if seconds is None:
        return [rows for rows, *_ in tables.values()]

    # the tokens a second of a batch: 16 on a CPU, which gains nothing from more, else a whole one
    prompts = [list(prompt) for rows, *_ in tables.values() for prompt in rows["prompt"]]
    count = sum(len(rows) * samples * times for rows, samples, times in tables.values())
    size_of_batch = 16 if model.device.type == "cpu" else policy.BATCH[policy.engine_of(model)]
    batch = list(islice(cycle(prompts), min(count, size_of_batch)))
    few = min(32, settings.max_completion_length)
    options = {"max_new_tokens": few, "temperature": settings.temperature, "progress": False}
    policy.sample(model, tokenizer, batch, **options)  # with what is done once
    begin = time.perf_counter()
    policy.sample(model, tokenizer, batch, **options)
    rate = len(batch) * few / (time.perf_counter() - begin)
    rate = processes.gather(rate)[0]  # several processes must sample the same

    # the share of the questions that is left
    needed = count * settings.max_completion_length / rate
    share = min(1.0, seconds / needed)
    kept = {
        name: rows.iloc[: max(min(FEWEST, len(rows)), int(share * len(rows)))]
        for name, (rows, *_) in tables.items()
    }
    print(f"to sample everything: at most about {needed:,.0f} s, at {rate:,.0f} tokens a second")
    if share < 1:
        # half the 95 % interval of a share of one half, the widest
        shares = ", ".join(
            f"{len(rows)} of {len(tables[name][0])} {name} (95 % interval: up to "
            f"±{98 / len(rows) ** 0.5:.0f} points)"
            for name, rows in kept.items()
        )
        print(
            f"note: sampling_seconds={seconds} has room for {shares}. sampling_seconds=None lifts "
            "the limit."
        )
    return list(kept.values())
