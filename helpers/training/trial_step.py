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

import pandas as pd
import torch
from datasets import Dataset
from transformers import PrinterCallback

from helpers import presets
from helpers.environment import Machine
from helpers.presets import Preset
from helpers.runs import Run, write_json
from helpers.training import policy, processes, vllm_cpu
from helpers.training.memory import WHAT_HELPS, card_of, size
from helpers.training.reward_guard import watched


@dataclass(frozen=True)
class Trial:
    """What was measured: the seconds of the first step, with what is done once (compiling, checks),
    and of one after it; how many of the latter were spent sampling; the most bytes of the card that
    torch held (None without a GPU), to which vLLM's are to be added.
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
    trace of them.

    They are what `config` will train with: sampling, rewards, loss, gradients, optimizer. If one
    round of sampling serves several steps, there are as many as lead to a second round. Afterwards
    the adapter's weights, the rewards' states and the random numbers are what they were. ValueError
    if the memory does not suffice: better now than when the first such batch comes, hours later.
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
    if settings.engine == "vllm":
        trial.generation_kwargs = {"min_tokens": limit, "ignore_eos": True}

    # the rows with the most text, as many as a round takes; repeated if the data has fewer
    count = settings.completions_per_round // settings.num_generations
    length = train["prompt"].map(lambda said: sum(len(message["content"]) for message in said))
    longest = train.loc[length.sort_values(ascending=False, kind="stable").index[:count]]
    longest = pd.concat([longest] * -(-count // len(longest)))[:count]

    # rewards that do not raise; what they give a text that was cut off says nothing of them
    watching = [watched(function, lambda *batch: None) for function in reward_functions]

    # train, timing what is sampled
    on_gpu = model.device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    try:
        with _unchanged(model), tempfile.TemporaryDirectory() as folder:
            trial.output_dir = folder
            trainer = GRPOTrainer(
                model=model,
                processing_class=tokenizer,
                args=trial,
                reward_funcs=watching,
                train_dataset=Dataset.from_pandas(longest, preserve_index=False),
                rollout_func=vllm_cpu.rollout(model, tokenizer),
            )
            trainer.remove_callback(PrinterCallback)
            sampling = _timed(trainer, "_generate")
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


def _timed(trainer, method: str) -> list[float]:
    """Time every call of this method; the list returned gets the seconds of each."""
    call = getattr(trainer, method)
    seconds = []

    def timed(*given, **named):
        begin = time.perf_counter()
        returned = call(*given, **named)
        seconds.append(time.perf_counter() - begin)
        return returned

    setattr(trainer, method, timed)
    return seconds


@contextmanager
def _unchanged(model) -> Iterator[None]:
    """Put the adapter's weights, the model's mode and the random numbers back at the end, and
    delete TRL's frozen reference, which the real trainer adds itself.
    """
    weights = {
        name: weight.detach().clone()
        for name, weight in model.named_parameters()
        if weight.requires_grad
    }
    adapters = set(model.peft_config)
    training = model.training
    try:
        with vllm_cpu.random_state_kept([model.device] if model.device.type == "cuda" else []):
            yield
    finally:
        for name in set(model.peft_config) - adapters:
            model.delete_adapter(name)
        for name, weight in model.named_parameters():
            if name in weights:
                weight.data = weights[name]
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
        f"every completion at its limit: the first step takes {trial.first:.1f} s, the second "
        f"{trial.seconds:.1f} s",
        f"sampling is {trial.sampling / trial.seconds:.0%} of the second step",
        f"{settings.max_steps} steps: at most {whole} and {sampled:,} sampled tokens; less if "
        "completions end sooner",
    ]
    if trial.peak is not None:
        beside = " beside vLLM's" if settings.engine == "vllm" else ""
        lines.append(f"memory in use at its height{beside}: {size(trial.peak)}")
    return lines


# --- A notebook's own sampling --------------------------------------------------------------------

# Questions of each table, however small the budget is: notebook 2 would refuse good rewards if it
# saw 4 groups.
FEWEST = 8
# What "auto" is with a model of one's own, by notebook; 03 only shows one group, and looks at the
# holdout while it trains.
AUTO = {"00": 300, "02": 300, "03": 60, "05": 600, "07": 600, "09": 600}


def questions_within(
    seconds: float | str | None,
    run: Run,
    notebook: str,
    model,
    tokenizer,
    settings: Preset,
    tables: dict[str, tuple[pd.DataFrame, int, int]],
) -> list[pd.DataFrame]:
    """Return the first rows of each table: all of them, or the share that `seconds` suffice to
    answer.

    seconds: a notebook's budget; None keeps all rows. "auto" is AUTO's, and None for an embedded
        model, so that the lessons' numbers are the same on the slowest machine. ValueError for
        anything else.
    notebook: its number, and more if it asks twice.
    tables: by what they are called in print, the rows, how many completions of each are sampled at
        a time, and how many times. All tables keep the same share, and at least FEWEST rows.

    The rate is measured on the first prompts, every completion is taken to reach its limit, and
    what will be spent is printed first. The decision is kept in the run's `sampling.json`, by
    notebook: a rerun that asks for the same gets the same questions, on whatever machine.
    """
    presets.check_sampling_seconds(seconds)
    if seconds == "auto":
        seconds = None if settings.model in presets.EMBEDDED else AUTO[notebook[:2]]
    questions = {name: [len(rows), *counts] for name, (rows, *counts) in tables.items()}
    asked = {
        "sampling_seconds": seconds,
        "model": settings.model,
        "engine": policy.engine_of(model),
        "max_completion_length": settings.max_completion_length,
        "questions": questions,
    }

    def decide() -> dict:
        # what a rerun asks for again
        before = run.read_object("sampling.json")
        if before.get(notebook, {}).get("asked") == asked:
            return before[notebook]

        # else what a trial says
        prompts = [list(prompt) for rows, *_ in tables.values() for prompt in rows["prompt"]]
        rate, share = _share(seconds, model, tokenizer, settings, prompts, questions)
        kept = {
            name: max(min(FEWEST, number), int(share * number))
            for name, (number, *_) in questions.items()
        }
        decision = {"asked": asked, "tokens_per_second": rate, "kept": kept}
        write_json(run.path("sampling.json"), before | {notebook: decision})
        return decision

    # several processes must sample the same
    decision = processes.from_first(decide)
    print("\n".join(_in_words(decision)))
    return [rows.iloc[: decision["kept"][name]] for name, (rows, *_) in tables.items()]


def _share(
    seconds: float | None,
    model,
    tokenizer,
    settings: Preset,
    prompts: list[list[dict]],
    questions: dict[str, list[int]],
) -> tuple[float, float]:
    """Return the tokens a second that were measured, and the share of the questions that fits, at
    most 1.

    A larger batch gives more tokens a second on a GPU, and costs more to try. So 16 completions are
    tried first. If not everything fits, the batch that the answer would make is tried next, as long
    as it is much larger and a trial takes less than a tenth of the budget.
    """
    limit = settings.max_completion_length
    tokens = limit * sum(rows * samples * times for rows, samples, times in questions.values())
    largest = max(rows * samples for rows, samples, _ in questions.values())
    room = policy.batch_that_fits(model, settings.context)
    rate = 0.0
    batch = min(16, largest, room)
    while True:
        begin = time.perf_counter()
        repeated = (prompts * -(-batch // len(prompts)))[:batch]
        whole = _seconds_of_a_batch(model, tokenizer, repeated, limit, settings.temperature)
        cost = time.perf_counter() - begin
        rate = max(rate, batch * limit / whole)
        share = 1.0 if seconds is None else min(1.0, seconds * rate / tokens)
        larger = min(room, int(share * largest))
        if share == 1 or larger < 2 * batch or cost * larger / batch > seconds / 10:
            return rate, share
        batch = larger


def _seconds_of_a_batch(model, tokenizer, prompts: list, limit: int, temperature: float) -> float:
    """Return the seconds of one completion of each prompt, the longest at the limit: extrapolated
    from the time of the prompt and two tokens, and the time of 16 tokens more.
    """
    few = min(2, limit)
    many = min(18, limit)
    how = {"batch_size": len(prompts), "temperature": temperature, "progress": False}

    def timed(new_tokens: int) -> tuple[float, int]:
        begin = time.perf_counter()
        groups = policy.sample(model, tokenizer, prompts, max_new_tokens=new_tokens, **how)
        took = time.perf_counter() - begin
        texts = [text for (text,) in groups]
        # the end token is not in the text
        steps = 1 + max(map(len, tokenizer(texts, add_special_tokens=False)["input_ids"]))
        return took, min(new_tokens, steps)

    timed(few)  # with what is done once
    begun, first = timed(few)
    ended, last = timed(many)
    # all may have come to their end sooner
    step = max(0.0, ended - begun) / max(1, last - first)
    return begun + step * (limit - few)


def _in_words(decision: dict) -> list[str]:
    """Return a decision as lines of text: what will be sampled and how long that takes, and what of
    it was left out.
    """
    asked = decision["asked"]
    rate = decision["tokens_per_second"]
    parts = []
    left_out = []
    completions = 0
    for name, (number, samples, times) in asked["questions"].items():
        now = decision["kept"][name]
        completions += now * samples * times
        part = f"{now} {name}" + (f" × {samples} completions" if samples > 1 else "")
        parts.append(part + (f", {times} times" if times > 1 else ""))
        if now < number:
            # half the 95 % interval of a share of one half, the widest
            left_out.append(
                f"{now} of {number} {name} (95 % interval: up to ±{98 / now**0.5:.0f} points, with "
                f"all ±{98 / number**0.5:.0f})"
            )
    whole = completions * asked["max_completion_length"] / rate
    lines = [
        f"to sample: {'; '.join(parts)}: at most about {whole:,.0f} s, at {rate:,.0f} tokens a "
        "second"
    ]
    if left_out:
        lines.append(
            f"note: sampling_seconds={asked['sampling_seconds']} has room for "
            f"{'; '.join(left_out)}. sampling_seconds=None lifts the limit."
        )
    return lines
