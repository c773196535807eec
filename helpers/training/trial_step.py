"""Two steps at full length before a training: whether the memory suffices, and what the training
will take in time and tokens.

`memory.check` says what can be said without loading anything.
"""

from __future__ import annotations

import copy
import gc
import tempfile
import threading
import time
from dataclasses import dataclass

import pandas as pd
import torch
from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback

from helpers.environment import Machine
from helpers.presets import Preset
from helpers.rewards.faults import checked_scores
from helpers.rewards.shaping import reward_name
from helpers.training import vllm_cpu
from helpers.training.memory import WHAT_HELPS, card_of, estimate, shape_of, size
from helpers.training.reward_guard import ours_to_call

# CUDA has an error of its own for it, Python another; a CPU's allocator raises a RuntimeError
_OUT_OF_MEMORY = ("out of memory", "not enough memory", "allocate memory")


@dataclass(frozen=True)
class Trial:
    """What was measured: the seconds of the first step, with what is done once (compiling, checks),
    and of one after it; and the highest number of bytes of the card in use (None without a GPU).
    """

    first: float
    seconds: float
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

    limit = settings.max_completion_length
    few = copy.copy(config)  # as many steps as lead to a second round of sampling
    rounds = config.steps_per_generation * config.num_iterations
    few.max_steps = -(-rounds // config.gradient_accumulation_steps) + 1
    few.save_strategy, few.report_to, few.log_completions = "no", [], False
    few.generation_kwargs = {"min_new_tokens": limit}
    if settings.engine == "vllm" or config.use_vllm:
        few.generation_kwargs = {"min_tokens": limit, "ignore_eos": True}
    # the rows with the most text, as many as a round takes; repeated if the data has fewer
    rows = settings.completions_per_round // settings.num_generations
    length = train["prompt"].map(lambda said: sum(len(message["content"]) for message in said))
    longest = train.loc[length.sort_values(ascending=False, kind="stable").index[:rows]]
    longest = pd.concat([longest] * -(-rows // len(longest)))[:rows]
    weights = {
        name: weight.detach().clone()
        for name, weight in model.named_parameters()
        if weight.requires_grad
    }
    adapters, training, clock = set(model.peft_config), model.training, Clock()
    devices = [model.device] if model.device.type == "cuda" else []
    try:
        with (
            vllm_cpu.random_state_kept(devices),
            tempfile.TemporaryDirectory() as folder,
            PeakMemory() as peak,
        ):
            few.output_dir = folder
            trainer = GRPOTrainer(
                model=model,
                processing_class=tokenizer,
                args=few,
                reward_funcs=[_only_tried(function) for function in reward_functions],
                train_dataset=Dataset.from_pandas(longest, preserve_index=False),
                callbacks=[clock],
                rollout_func=vllm_cpu.rollout(model, tokenizer),
            )
            trainer.remove_callback(PrinterCallback)
            trainer.train()
    except (RuntimeError, MemoryError) as error:
        said = str(error).lower()
        if not isinstance(error, MemoryError) and not any(one in said for one in _OUT_OF_MEMORY):
            raise
        room = size(card_of(machine) or machine.memory_gb * 1e9)
        raise ValueError(
            f"{machine.gpu or 'this machine'}, with {room}, ran out of memory in the trial step, "
            f"at full length. {WHAT_HELPS}"
        ) from None
    finally:
        trainer = None
        # TRL's frozen reference; the real trainer adds its own
        for name in set(model.peft_config) - adapters:
            model.delete_adapter(name)
        parameters = dict(model.named_parameters())
        for name, weight in weights.items():
            parameters[name].data, parameters[name].grad = weight, None
        model.train(training)
        gc.collect()
        if devices:
            torch.cuda.empty_cache()
    first, *later = clock.seconds
    return Trial(first, max(later), peak.bytes)  # the longest is one that samples


def forecast(trial: Trial, settings: Preset, machine: Machine) -> list[str]:
    """What the whole training will take at most, as lines of text: hours, tokens, and the memory
    that was measured; and a warning if vLLM leaves out tokens that the training counts with.
    """
    sampled = settings.max_steps * settings.completions_per_step * settings.max_completion_length
    hours = settings.max_steps * trial.seconds / 3600
    whole = f"{hours:.1f} hours" if hours >= 1 else f"{hours * 60:.1f} minutes"
    lines = [
        f"every completion at its limit: first step {trial.first:.1f} s, with what is done once; "
        f"then {trial.seconds:.1f} s",
        f"{settings.max_steps} steps: at most {whole} and {sampled:,} sampled tokens; less, the "
        "sooner completions end",
    ]
    if trial.peak is not None:
        line = f"memory in use at its height: {size(trial.peak)}"
        if shape := shape_of(settings.model_path):
            line += f", estimated {size(estimate(settings, shape, card_of(machine)).peak)}"
        lines.append(line)
    if settings.engine == "vllm":
        for name, neutral in (("top_p", 1), ("top_k", 0), ("min_p", 0)):
            value = getattr(settings, name)
            if value != neutral:
                lines.append(
                    f"WARNING: with {name}={value} vLLM samples from another distribution than the "
                    f"training knows (TRL issue 6789). Leave {name} at {neutral}."
                )
    return lines


def _only_tried(function):
    """The reward as the training would call it, without raising."""
    if not ours_to_call(function):
        return function

    def reward(completions, **columns):
        return checked_scores(function, completions, columns)[0]

    reward.__name__ = reward_name(function)
    return reward


class Clock(TrainerCallback):
    """The seconds of each step, its sampling included."""

    def __init__(self):
        self.seconds = []

    def on_step_begin(self, args, state, control, **kwargs):
        self.began = time.monotonic()

    def on_step_end(self, args, state, control, **kwargs):
        self.seconds.append(time.monotonic() - self.began)


class PeakMemory:
    """The most bytes of the card that were in use, looked up every 20 ms: vLLM's memory does not
    pass through torch.
    """

    bytes: int | None = None

    def __enter__(self):
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        if torch.cuda.is_available():
            self.bytes = 0
            self.thread.start()
        return self

    def _watch(self) -> None:
        while not self.done.wait(0.02):
            free, total = torch.cuda.mem_get_info()
            self.bytes = max(self.bytes, total - free)

    def __exit__(self, *exception):
        self.done.set()
        if self.thread.is_alive():
            self.thread.join()
