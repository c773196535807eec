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

    # 1. Measure the tokens per second of one batch: on a CPU of 64 prompts, which samples twice as
    # fast as one of 16 and nearly as fast as one of 128 (SmolLM2 on two cores).
    completions = sum(len(rows) * samples * times for rows, samples, times in planned.values())
    prompts = [list(prompt) for rows, _, _ in planned.values() for prompt in rows["prompt"]]
    on_cpu = model.device.type == "cpu"
    most = 64 if on_cpu else sampling.BATCH[sampling.engine_of(model)]
    few = min(32, settings.max_completion_length)

    def measured_rate(count: int) -> float:
        batch = list(islice(cycle(prompts), count))
        options = {"max_new_tokens": few, "temperature": settings.temperature}
        # warm up, because one-time work is not measured; on a CPU there is little of it
        sampling.sample(model, tokenizer, batch[:2] if on_cpu else batch, **options)
        begin = time.perf_counter()
        sampling.sample(model, tokenizer, batch, **options)
        rate = count * few / (time.perf_counter() - begin)
        return processes.gather(rate)[0]  # all processes must keep the same rows

    rate = measured_rate(min(completions, most))
    seconds_each = settings.max_completion_length / rate  # of a completion

    # 2. Keep the share of the tables' rows that the budget allows. An extra table gets what those
    # before it leave.
    in_tables = sum(len(rows) * samples * times for rows, samples, times in tables.values())
    share = min(1.0, seconds / (in_tables * seconds_each))
    kept = {}
    taken = 0.0  # seconds
    for name, (rows, samples, times) in planned.items():
        fewest = min(FEWEST, len(rows))
        if name in tables:
            room = max(fewest, int(share * len(rows)))
        else:
            room = int(max(0.0, seconds - taken) / (samples * times * seconds_each))
            if room < fewest:
                room = 0
        kept[name] = rows.iloc[:room]
        taken += len(kept[name]) * samples * times * seconds_each

    # 3. Print how long everything would take, and what comes after it.
    print(
        f"to sample everything: at most about {completions * seconds_each:,.0f} s, at "
        f"{rate:,.0f} tokens a second"
    )
    if training_follows:
        # each process samples its share of the rounds; one round serves num_iterations updates
        rate = measured_rate(min(settings.completions_per_round // settings.processes, most))
        updates = settings.max_steps / settings.num_iterations
        sampled = updates * settings.completions_per_step / settings.processes
        minutes = sampled * settings.max_completion_length / rate / 60
        print(
            f"to sample in a training of {settings.max_steps} steps, as the preset has: about "
            f"{minutes:,.1f} minutes at most, at {rate:,.0f} tokens a second"
        )

    # 4. If rows are left out, print what is asked.
    if all(len(kept[name]) == len(rows) for name, (rows, _, _) in planned.items()):
        return list(kept.values())
    shares = []
    for name, (rows, _, _) in planned.items():
        asked = len(kept[name])
        shares.append(f"{asked} of {len(rows)} {name}")
        if asked:
            # half the width of the 95 % interval of a proportion, at its widest (one half)
            shares[-1] += f" (95 % interval: up to ±{98 / asked**0.5:.0f} points)"
    says = f"has room for {', '.join(shares)}; they take at most about {taken:,.0f} s"
    if taken > seconds:
        says = (
            "is too short, and the fewest questions that show anything are asked: "
            f"{', '.join(shares)}; they take up to about {taken:,.0f} s"
        )
    print(f"note: sampling_seconds={seconds} {says}. `null` (in Python, None) lifts the limit.")
    return list(kept.values())
