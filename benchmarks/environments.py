"""What the guard of an environment costs an episode: `python -m benchmarks.environments`.

The embedded model samples as in training, a batch of episodes at a time, and says nothing that is a
call; so a scripted player calls the tools in its place. Guarded and bare take turns in one run, on
the same seeds and calls, and the medians are compared.
"""

from __future__ import annotations

import argparse
import platform
import random
import statistics
import time

from unsloth import FastLanguageModel  # noqa: F401  # before transformers, always

# isort: split
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from helpers import PROJECT
from helpers.agents import Guarded, Guessing, guessing, players
from helpers.agents.protocol import called
from helpers.presets import PRESETS
from helpers.runs import atomic_write

RESULTS = PROJECT / "benchmarks" / "results" / "environments.md"
POCKET = PRESETS["pocket"]
EPISODES, TOKENS, REPEATS = 64, 24, 25
CASES = {Guessing: guessing.halving}


def in_the_tools(environments: list, schemas: dict, player) -> tuple[float, float, int]:
    """Seconds of the processor, and by the clock, for `reset`, tools and `get_reward` of all
    episodes; the number of calls.
    """
    calls, began, clock = 0, time.process_time(), time.perf_counter()
    for seed, environment in enumerate(environments):
        turns = player(players.View(environment.reset(seed=seed), schemas, random.Random(seed)))
        reply = None
        try:
            while True:
                reply, _ = called(environment, *turns.send(reply))
                calls += 1
        except StopIteration:
            environment.get_reward()
    return time.process_time() - began, time.perf_counter() - clock, calls


def measured(kind: type, player) -> tuple[float, float, float, float]:
    """Median processor seconds for all episodes bare and guarded, what the guard takes by the
    clock, and the calls of one.
    """
    guard, seconds = Guarded(kind), {"bare": [], "guarded": []}
    bare, guarded = [kind() for _ in range(EPISODES)], [guard() for _ in range(EPISODES)]
    for _ in range(REPEATS):
        for name, environments in (("bare", bare), ("guarded", guarded)):
            *taken, calls = in_the_tools(environments, guard.schemas, player)
            seconds[name].append(taken)
    bare, bare_clock = map(statistics.median, zip(*seconds["bare"], strict=True))
    guarded, guarded_clock = map(statistics.median, zip(*seconds["guarded"], strict=True))
    return bare, guarded, guarded_clock - bare_clock, calls / EPISODES


@torch.inference_mode()
def sampling() -> float:
    """Median processor seconds in which the embedded model samples one turn of all episodes, in one
    batch as TRL does.

    Processor time, because a busy machine would lengthen it by the clock and make the guard look
    cheap.
    """
    tokenizer = AutoTokenizer.from_pretrained(POCKET.model_path, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(POCKET.model_path, dtype=torch.float32).eval()
    texts = [
        f"<|im_start|>user\nWhat is {seed} + 12?<|im_end|>\n<|im_start|>assistant\n"
        for seed in range(EPISODES)
    ]
    inputs, taken = tokenizer(texts, return_tensors="pt", padding=True), []
    for _ in range(REPEATS):
        began = time.process_time()
        model.generate(**inputs, do_sample=True, min_new_tokens=TOKENS, max_new_tokens=TOKENS)
        taken.append(time.process_time() - began)
    return statistics.median(taken)


def main() -> None:
    """Measure, print and write the table."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    turn = sampling()
    rows = []
    for kind, player in CASES.items():
        bare, guarded, clock, calls = measured(kind, player)
        episode = turn * (calls + 1) / EPISODES  # after the last call the policy writes once more
        cost = (guarded - bare) / EPISODES
        rows.append(
            f"| {kind.__name__} | {calls:.1f} | {1000 * episode:.1f} | "
            f"{1e6 * bare / EPISODES:.0f} | "
            f"{1e6 * guarded / EPISODES:.0f} | {1e6 * cost / (calls + 2):.0f} | "
            f"{1e6 * clock / EPISODES / (calls + 2):.0f} | "
            f"{cost / (episode + bare / EPISODES):.1%} |"
        )
    report = f"""# The guard of an environment: what it costs an episode

`python -m benchmarks.environments` on {platform.machine()}, {torch.get_num_threads()} threads.
{EPISODES} episodes at a time: in each turn the embedded model samples {TOKENS} tokens for all of them in one batch
({1000 * turn:.0f} ms). Guarded and bare take turns; medians of {REPEATS} rounds. All times are processor time, which other
programs cannot lengthen; what the guard takes by the clock, waiting for the other thread included, stands beside it. A call
is `reset`, a tool, or `get_reward`. The share is of an episode's sampling and tools together. A batch is the hardest case:
it makes sampling cheap, and tools run one by one.

| environment | calls | sampling, ms | tools bare, µs | tools guarded, µs | guard, µs a call | by the clock | share |
|---|---|---|---|---|---|---|---|
{chr(10).join(rows)}
"""
    print(report)
    with atomic_write(RESULTS) as temporary:
        temporary.write_text(report, encoding="utf-8")


if __name__ == "__main__":
    main()
