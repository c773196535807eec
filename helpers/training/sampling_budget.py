"""How many questions a notebook can answer within its budget of seconds, `sampling_seconds`."""

import time
from itertools import cycle, islice

import pandas as pd

from helpers import processes
from helpers.settings import EMBEDDED, Preset, check_sampling_seconds
from helpers.training import sampling

# Fewest rows to keep of each table: from 4 groups, notebook 2 would refuse good rewards.
FEWEST = 8
AUTO = 300  # seconds


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
    planned = tables | (extras or {})
    if seconds is None:
        return [rows for rows, _, _ in planned.values()]

    # 1. Count the completions of each table, and of all.
    per_row = {name: samples * times for name, (_, samples, times) in planned.items()}
    completions = {name: len(rows) * per_row[name] for name, (rows, _, _) in planned.items()}
    of_all = sum(completions.values())
    of_tables = sum(completions[name] for name in tables)

    # 2. Measure the tokens per second of one batch, and compute the seconds of a completion at its
    # limit. On a CPU, a batch of 64 prompts samples twice as fast as one of 16 and nearly as fast
    # as one of 128 (SmolLM2 on two cores).
    on_cpu = model.device.type == "cpu"
    largest_batch = 64 if on_cpu else sampling.BATCH[sampling.engine_of(model)]
    prompts = [list(prompt) for rows, _, _ in planned.values() for prompt in rows["prompt"]]
    rate = _tokens_per_second(model, tokenizer, prompts, min(of_all, largest_batch), settings)
    seconds_each = settings.max_completion_length / rate

    # 3. Keep the rows that the budget allows: of each table the same share, and of an extra table
    # as many as the tables before it leave time for.
    share = min(1.0, seconds / (of_tables * seconds_each))
    kept = {}
    taken = 0.0  # seconds
    for name, (rows, _, _) in planned.items():
        fewest = min(FEWEST, len(rows))
        if name in tables:
            number = max(fewest, int(share * len(rows)))
        else:
            number = int(max(0.0, seconds - taken) / (per_row[name] * seconds_each))
            if number < fewest:
                number = 0
        kept[name] = rows.iloc[:number]
        taken += len(kept[name]) * per_row[name] * seconds_each

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
    if all(len(kept[name]) == len(rows) for name, (rows, _, _) in planned.items()):
        return list(kept.values())
    shares = []
    for name, (rows, _, _) in planned.items():
        asked = len(kept[name])
        interval = f" (95 % interval: up to ±{98 / asked**0.5:.0f} points)" if asked else ""
        shares.append(f"{asked} of {len(rows)} {name}{interval}")
    says = f"has room for {', '.join(shares)}; they take at most about {taken:,.0f} s"
    if taken > seconds:
        says = (
            "is too short, and the fewest questions that show anything are asked: "
            f"{', '.join(shares)}; they take up to about {taken:,.0f} s"
        )
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
