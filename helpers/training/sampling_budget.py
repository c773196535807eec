"""How many questions a notebook can answer within its budget of seconds, `sampling_seconds`.

`questions_within` times a short batch on this machine, and cuts the notebook's tables of questions
to what can be sampled at that speed.
"""

import time
from itertools import cycle, islice
from typing import NamedTuple

import pandas as pd

from helpers import processes
from helpers.settings import EMBEDDED, Preset, check_sampling_seconds
from helpers.training import sampling

# Fewest rows to keep of each table: from 4 groups, notebook 2 would refuse good rewards.
FEWEST = 8
AUTO = 300  # seconds


class _Plan(NamedTuple):
    """A table of questions, of which each row gets `samples` completions, `repetitions` times."""

    rows: pd.DataFrame
    samples: int
    repetitions: int

    @property
    def per_row(self) -> int:
        """The completions of a row."""
        return self.samples * self.repetitions

    @property
    def completions(self) -> int:
        """The completions of all rows."""
        return len(self.rows) * self.per_row


def questions_within(
    seconds: float | str | None,
    model,
    tokenizer,
    settings: Preset,
    tables: dict[str, tuple[pd.DataFrame, int, int]],
    extras: dict[str, tuple[pd.DataFrame, int, int]] | None = None,
    training_follows: bool = False,
) -> list[pd.DataFrame]:
    """Return the first rows of each table, as many as can be answered within a notebook's budget,
    and print how many were left out, and how long the others take.

    seconds: the budget; None keeps all rows. "auto" means AUTO seconds, but no limit for an
        embedded model, so that the lessons print the same numbers on the slowest machine.
        ValueError for anything else.
    tables: printed name -> (rows, completions per row, repetitions). All tables keep the same
        share of their rows, and at least FEWEST rows, even if these take longer than the budget.
    extras: tables that share what the others leave, one after the other, and may keep no row.
    training_follows: also measure a batch of the training, and print how long a training with
        these settings samples, so that a slow machine is noticed long before the trial steps.

    The time is predicted from the tokens per second of a short batch, as if every completion
    reached its limit.
    """
    check_sampling_seconds(seconds)
    if seconds == "auto":
        seconds = None if settings.model in EMBEDDED else AUTO
    planned = {name: _Plan(*table) for name, table in (tables | (extras or {})).items()}
    if seconds is None:
        return [plan.rows for plan in planned.values()]

    # 1. Count the completions of everything, and those of the tables alone.
    of_all = sum(plan.completions for plan in planned.values())
    of_tables = sum(planned[name].completions for name in tables)

    # 2. Measure the tokens per second of one batch, and compute the seconds of a completion at its
    # limit. On a CPU, a batch of 64 prompts samples twice as fast as one of 16 and nearly as fast
    # as one of 128 (SmolLM2 on two cores).
    on_cpu = model.device.type == "cpu"
    largest_batch = 64 if on_cpu else sampling.BATCH[sampling.engine_of(model)]
    prompts = [list(prompt) for plan in planned.values() for prompt in plan.rows["prompt"]]
    rate = _tokens_per_second(model, tokenizer, prompts, min(of_all, largest_batch), settings)
    seconds_each = settings.max_completion_length / rate

    # 3. Keep the rows that the budget allows: of each table the same share, and of an extra table
    # as many as the tables before it leave time for.
    share = min(1.0, seconds / (of_tables * seconds_each))
    kept = {}
    taken = 0.0  # seconds
    for name, plan in planned.items():
        fewest = min(FEWEST, len(plan.rows))
        if name in tables:
            number = max(fewest, int(share * len(plan.rows)))
        else:
            left = max(0.0, seconds - taken)
            number = int(left / (plan.per_row * seconds_each))
            if number < fewest:
                number = 0
        kept[name] = plan.rows.iloc[:number]
        taken += len(kept[name]) * plan.per_row * seconds_each

    # 4. Print how long everything would take, and how long the training samples after it. Each
    # process samples its share of the rounds, and one round serves num_iterations updates.
    print(
        f"to sample everything: at most about {of_all * seconds_each:,.0f} s, at "
        f"{rate:,.0f} tokens a second"
    )
    if training_follows:
        of_round = settings.completions_per_round // settings.processes
        rate = _tokens_per_second(model, tokenizer, prompts, min(of_round, largest_batch), settings)
        updates = settings.max_steps / settings.num_iterations
        sampled = updates * settings.completions_per_step / settings.processes
        minutes = sampled * settings.max_completion_length / rate / 60
        print(
            f"to sample in a training of {settings.max_steps} steps, as the preset has: about "
            f"{minutes:,.1f} minutes at most, at {rate:,.0f} tokens a second"
        )

    # 5. If rows are left out, print how many of each table are asked, with half the width of the
    # 95 % interval of a proportion, at its widest (one half).
    if all(len(kept[name]) == len(plan.rows) for name, plan in planned.items()):
        return list(kept.values())
    shares = []
    for name, plan in planned.items():
        asked = len(kept[name])
        interval = f" (95 % interval: up to ±{98 / asked**0.5:.0f} points)" if asked else ""
        shares.append(f"{asked} of {len(plan.rows)} {name}{interval}")
    if taken > seconds:
        says = (
            "is too short, and the fewest questions that show anything are asked: "
            f"{', '.join(shares)}; they take up to about {taken:,.0f} s"
        )
    else:
        says = f"has room for {', '.join(shares)}; they take at most about {taken:,.0f} s"
    print(f"note: sampling_seconds={seconds} {says}. `null` (in Python, None) lifts the limit.")
    return list(kept.values())


def _tokens_per_second(
    model, tokenizer, prompts: list[list[dict]], count: int, settings: Preset
) -> float:
    """Return how many tokens per second a batch of `count` completions samples. The prompts are
    repeated, or the first of them taken; a completion has at most 32 tokens.
    """
    batch = list(islice(cycle(prompts), count))
    tokens = min(32, settings.max_completion_length)
    options = {"max_new_tokens": tokens, "temperature": settings.temperature}
    # warm up, so that one-time work is not measured; on a CPU there is little of it
    warm_up = batch[:2] if model.device.type == "cpu" else batch
    sampling.sample(model, tokenizer, warm_up, **options)

    begin = time.perf_counter()
    sampling.sample(model, tokenizer, batch, **options)
    rate = count * tokens / (time.perf_counter() - begin)
    return processes.gather(rate)[0]  # the first's, so that all processes keep the same rows
