"""Two steps at full length before a training: whether the memory suffices, and what the training
will take in time and tokens.

`memory.check` says what can be said without loading anything.
"""

import copy
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pandas as pd
import torch
from datasets import Dataset
from transformers import PrinterCallback

from helpers.environment import Machine
from helpers.presets import Preset
from helpers.rewards.faults import constant
from helpers.training import policy, vllm_cpu
from helpers.training.memory import WHAT_HELPS, card_of, size
from helpers.training.reward_guard import watched


@dataclass(frozen=True)
class Trial:
    """What was measured: the seconds of the first step, with what is done once (compiling, checks),
    and of one after it; how many of the latter were spent sampling; the most bytes of the card that
    torch held (None without a GPU), to which vLLM's are to be added; and each reward's scores.
    """

    first: float
    seconds: float
    sampling: float
    peak: int | None
    scores: dict[str, list[float | None]]


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

    limit = settings.max_completion_length
    few = copy.copy(config)  # as many steps as lead to a second round of sampling
    rounds = config.steps_per_generation * config.num_iterations
    few.max_steps = -(-rounds // config.gradient_accumulation_steps) + 1
    few.save_strategy, few.report_to, few.log_completions = "no", [], False
    few.logging_steps = 1  # each step's time
    few.generation_kwargs = {"min_new_tokens": limit}
    if settings.engine == "vllm" or config.use_vllm:
        few.generation_kwargs = {"min_tokens": limit, "ignore_eos": True}
    # the rows with the most text, as many as a round takes; repeated if the data has fewer
    rows = settings.completions_per_round // settings.num_generations
    length = train["prompt"].map(lambda said: sum(len(message["content"]) for message in said))
    longest = train.loc[length.sort_values(ascending=False, kind="stable").index[:rows]]
    longest = pd.concat([longest] * -(-rows // len(longest)))[:rows]
    on_gpu, scores = model.device.type == "cuda", defaultdict(list)
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    try:
        with _unchanged(model), tempfile.TemporaryDirectory() as folder:
            few.output_dir = folder
            trainer = GRPOTrainer(
                model=model,
                processing_class=tokenizer,
                args=few,
                reward_funcs=[
                    watched(function, lambda name, given, _: scores[name].extend(given))
                    for function in reward_functions
                ],
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
    return Trial(first, max(later), sampling[-1], peak, scores)


def _timed(trainer, method: str) -> list[float]:
    """Time every call of this method; the list returned gets the seconds of each."""
    call, seconds = getattr(trainer, method), []

    def timed(*given, **named):
        begin = time.perf_counter()
        made = call(*given, **named)
        seconds.append(time.perf_counter() - begin)
        return made

    setattr(trainer, method, timed)
    return seconds


@contextmanager
def _unchanged(model) -> Iterator[None]:
    """Afterwards the adapter's weights, the model's mode and the random numbers are as before, and
    TRL's frozen reference is gone, which the real trainer adds itself.
    """
    weights = {
        name: weight.detach().clone()
        for name, weight in model.named_parameters()
        if weight.requires_grad
    }
    adapters, training = set(model.peft_config), model.training
    try:
        with vllm_cpu.random_state_kept([model.device] if model.device.type == "cuda" else []):
            yield
    finally:
        for name in set(model.peft_config) - adapters:
            model.delete_adapter(name)
        parameters = dict(model.named_parameters())
        for name, weight in weights.items():
            parameters[name].data, parameters[name].grad = weight, None
        model.train(training)


def forecast(trial: Trial, settings: Preset) -> list[str]:
    """What the whole training will take at most, as lines of text: hours, tokens, the share of a
    step that is sampling, and the memory that was measured.
    """
    sampled = settings.max_steps * settings.completions_per_step * settings.max_completion_length
    sampled *= 1 + settings.dynamic_sampling
    hours = settings.max_steps * trial.seconds / 3600
    whole = f"{hours:.1f} hours" if hours >= 1 else f"{hours * 60:.1f} minutes"
    lines = [
        f"every completion at its limit: the first step takes {trial.first:.1f} s, the second "
        f"{trial.seconds:.1f} s",
        f"sampling is {trial.sampling / trial.seconds:.0%} of the second step",
        f"{settings.max_steps} steps: at most {whole} and {sampled:,} sampled tokens; less if "
        "completions end sooner",
    ]
    if settings.dynamic_sampling:
        lines.append("the time is without the rounds that dynamic_sampling may add")
    if trial.peak is not None:
        beside = " beside vLLM's" if settings.engine == "vllm" else ""
        lines.append(f"memory in use at its height{beside}: {size(trial.peak)}")
    # a constant 0 may be right here: no completion comes to its end
    alike = [constant(name, given) for name, given in trial.scores.items() if any(given)]
    return lines + [f"note: {said}" for said in alike if said]
