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


class Plan(NamedTuple):
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

    def first(self, count: int) -> "Plan":
        """Return the plan for the first `count` rows only, or for all if there are fewer."""
        return self._replace(rows=self.rows.iloc[:count])


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

    seconds: the budget; None keeps all rows. "auto" means AUTO seconds, but no limit for a
        pocket model, so that the lessons print the same numbers on the slowest machine.
        Raise ValueError if it is anything else.
    tables: printed name -> the three fields of a `Plan`. All tables keep the same share of their
        rows, and at least FEWEST rows, even if these take longer than the budget.
    extras: tables that share what the others leave, one after the other, and may keep no row.
    training_follows: also measure a batch of the training, and print how long a training with
        these settings samples, so that a slow machine is noticed long before the trial steps.

    The time is predicted from the tokens per second of a short batch, as if every completion
    reached its limit.
    """
    check_sampling_seconds(seconds)
    if seconds == "auto":
        seconds = None if settings.model in EMBEDDED else AUTO
    plans = {name: Plan(*table) for name, table in tables.items()}
    extra_plans = {name: Plan(*table) for name, table in (extras or {}).items()}
    planned = plans | extra_plans
    if seconds is None:
        return [plan.rows for plan in planned.values()]

    # 1. Measure this machine, and print how long everything would take.
    prompts = [list(prompt) for plan in planned.values() for prompt in plan.rows["prompt"]]
    rate = _tokens_per_second(model, tokenizer, prompts, _completions(planned), settings)
    seconds_each = settings.max_completion_length / rate
    print(
        f"to sample everything: at most about {_completions(planned) * seconds_each:,.0f} s, at "
        f"{rate:,.0f} tokens a second"
    )
    if training_follows:
        _print_time_of_training(model, tokenizer, prompts, settings)

    # 2. Of each table, keep the same share of its rows; of an extra table, as many rows as the
    # tables before it leave time for.
    affordable = seconds / seconds_each  # completions
    share = min(1.0, affordable / _completions(plans))
    kept = {}
    for name, plan in plans.items():
        kept[name] = plan.first(max(FEWEST, int(share * len(plan.rows))))
    for name, plan in extra_plans.items():
        count = int((affordable - _completions(kept)) / plan.per_row)
        enough = count >= min(FEWEST, len(plan.rows))
        kept[name] = plan.first(count if enough else 0)

    # 3. If rows are left out, print how many of each table are asked.
    if _completions(kept) < _completions(planned):
        _print_shares(seconds, seconds_each, planned, kept)
    return [plan.rows for plan in kept.values()]


def _completions(plans: dict[str, Plan]) -> int:
    """Return how many completions several tables get together."""
    return sum(plan.completions for plan in plans.values())


def _tokens_per_second(
    model, tokenizer, prompts: list[list[dict]], count: int, settings: Preset
) -> float:
    """Return how many tokens per second this machine samples in a batch of `count` completions, or
    in the largest batch if that is smaller. The prompts are repeated, or the first of them taken;
    a completion has at most 32 tokens.
    """
    on_cpu = model.device.type == "cpu"
    # On a CPU, a batch of 64 prompts samples twice as fast as one of 16 and nearly as fast as one
    # of 128 (SmolLM2 on two cores).
    largest = 64 if on_cpu else sampling.BATCH[sampling.engine_of(model)]
    batch = list(islice(cycle(prompts), min(count, largest)))
    tokens = min(32, settings.max_completion_length)
    options = {"max_new_tokens": tokens, "temperature": settings.temperature}
    # warm up, so that one-time work is not measured; on a CPU there is little of it
    sampling.sample(model, tokenizer, batch[:2] if on_cpu else batch, **options)

    begin = time.perf_counter()
    sampling.sample(model, tokenizer, batch, **options)
    rate = len(batch) * tokens / (time.perf_counter() - begin)
    return processes.gather(rate)[0]  # the first's, so that all processes keep the same rows


def _print_time_of_training(model, tokenizer, prompts: list[list[dict]], settings: Preset) -> None:
    """Print how long a training with these settings samples, at the speed of one of its rounds."""
    # each process samples its share of a round, and one round serves num_iterations updates
    of_round = settings.completions_per_round // settings.processes
    rate = _tokens_per_second(model, tokenizer, prompts, of_round, settings)
    updates = settings.max_steps / settings.num_iterations
    completions = updates * settings.completions_per_step / settings.processes
    minutes = completions * settings.max_completion_length / rate / 60
    print(
        f"to sample in a training of {settings.max_steps} steps, as the preset has: about "
        f"{minutes:,.1f} minutes at most, at {rate:,.0f} tokens a second"
    )


def _print_shares(
    seconds: float, seconds_each: float, planned: dict[str, Plan], kept: dict[str, Plan]
) -> None:
    """Print how many rows of each table are asked, how long they take, and how to ask all of them.

    Each number comes with half the width of the 95% interval of a proportion, in percentage
    points, at its widest: 1.96 standard errors of one half.
    """
    shares = []
    for name, plan in planned.items():
        asked = len(kept[name].rows)
        interval = f" (95% interval: up to ±{98 / asked**0.5:.0f} points)" if asked else ""
        shares.append(f"{asked} of {len(plan.rows)} {name}{interval}")
    taken = _completions(kept) * seconds_each
    if taken > seconds:
        says = (
            "is too short, and the fewest questions that show anything are asked: "
            f"{', '.join(shares)}; they take up to about {taken:,.0f} s"
        )
    else:
        says = f"has room for {', '.join(shares)}; they take at most about {taken:,.0f} s"
    print(f"note: sampling_seconds={seconds} {says}. `null` (in Python, None) lifts the limit.")
