"""How many questions a notebook can answer within its budget of seconds, `sampling_seconds`."""

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
