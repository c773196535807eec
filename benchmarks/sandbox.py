"""How fast programs are run in a sandbox, and what hostile ones cost: `python -m
benchmarks.sandbox`.

The bare subprocess is here for comparison only: nothing holds what it runs.
"""

import argparse
import os
import platform
import random
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from examples.json_reward import json_format_reward
from examples.style_rewards import forbidden_patterns_reward, repetition_reward
from helpers import PROJECT
from helpers.judging.programs.sandbox import Job, Limits, run_code
from helpers.judging.workers import slowness
from helpers.rewards.programs import tests_reward
from helpers.rewards.structure import substantial_format_reward

RESULTS = PROJECT / "benchmarks" / "results" / "sandbox.md"
BODIES = [
    "    return sum(x * {0} for x in numbers if x % 2)",
    "    best = {0}\n    for x in numbers:\n        if x > best:\n            best = x\n    "
    "return best",
    "    seen = {{}}\n    for x in numbers:\n        seen[x] = seen.get(x, {0}) + 1\n    return "
    "seen",
    "    return [x + {0} for x in sorted(numbers) if x != {0}]",
]
BUSY = "    total = 0\n    for at in range(200_000):\n        total += at % {0}\n    return total"
ROUNDS = 5
INPUTS = ([3, 1, 2], [], [5, 5, 4, 9])


PROGRAMS = {  # with a number in each, so that no two are the same
    "no end": "while {0} + 1: pass",
    "a sleep": "import time\ntime.sleep(10 + {0})",
    "memory": "x = []\nwhile True: x.append('x' * 10**6 * ({0} + 1))",
    "a large number": "x = 10**10**7 + {0}",
    "output": "while True: print('x' * 1000, {0})",
    "a pattern": "import re\nre.match('(a|aa)+$', 'a' * (500 + {0}) + '!')",
    "brackets": "x = {0}" + "[" * 9000,
}
OBJECTS = '["@",' + ",".join(f'{{"a":{at}}}' for at in range(900)) + "]"
TEXTS = {  # a reward, its options, and a completion, with a number in the place of @
    "json_format, uniqueItems": (json_format_reward, {"schema": {"uniqueItems": True}}, OBJECTS),
    "json_format, a pattern": (
        json_format_reward,
        {"schema": {"items": {"pattern": r"^(a|aa)+\1$"}}},
        '["' + "a" * 5000 + '!@"]',
    ),
    "forbidden_patterns": (
        forbidden_patterns_reward,
        {"patterns": r"(\w+\s?)+$"},
        "a " * 9000 + "!",
    ),
    "repetition": (repetition_reward, {}, "ha-" * 9000),
    "substantial_format": (substantial_format_reward, {}, "\N{HANGUL FILLER}" * 9000),
}


def batches() -> list[str]:
    """Return rows of a table: what a batch of 64 hostile completions costs, in seconds."""
    rows = []
    tests = [["assert f(1) == 1"]] * 64
    for name, program in PROGRAMS.items():
        batch = [program.format(at) for at in range(64)]
        rows.append((f"tests, {name}", partial(tests_reward, tests=tests), batch))
    for name, (reward, options, text) in TEXTS.items():
        batch = [
            f"<think>so</think><answer>{text.replace('@', str(at))}</answer>" for at in range(64)
        ]
        rows.append((name, partial(reward, **options), batch))
    lines = []
    for name, reward, batch in rows:
        with warnings.catch_warnings(action="ignore"):
            reward([f"<answer>[{at}]</answer>" for at in range(len(batch))])  # the workers start
            began = time.perf_counter()
            scores = reward(batch)
        seconds = time.perf_counter() - began
        lines.append(f"| {name} | {seconds:.1f} | {max(score or 0.0 for score in scores):g} |")
        print(lines[-1], flush=True)
    return lines


def programs(count: int, inputs: int = 3, bodies: Sequence[str] = BODIES) -> list[Job]:
    """Small functions, each another, and each called with so many lists."""
    rng = random.Random(3407)
    bodies = [rng.choice(bodies).format(rng.randrange(1, 100)) for _ in range(count)]
    return [
        Job(
            f"def f_{at}(numbers):\n{body}\n",
            [(f"f_{at}", (list(numbers),)) for numbers in INPUTS[:inputs]],
        )
        for at, body in enumerate(bodies)
    ]


def a_second(run: Callable[[], object], count: int) -> tuple[float, float]:
    """(the median, the best) number of programs a second of some rounds."""
    rates = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        run()
        rates.append(count / (time.perf_counter() - began))
    return statistics.median(rates), max(rates)


def bare(jobs: list[Job], workers: int) -> None:
    """The same calls in a bare `python -I -c` each: of harmless programs only."""

    def one(job: Job) -> None:
        calls = "".join(f"print({name}(*{arguments!r}))\n" for name, arguments in job.calls)
        subprocess.run(
            [sys.executable, "-I", "-c", job.source + calls], capture_output=True, check=True
        )

    with ThreadPoolExecutor(workers) as threads:
        list(threads.map(one, jobs))


def speed() -> list[str]:
    """The table's rows: sandbox, workers, inputs, programs a second."""
    rows = []
    slow = {}
    for workers in (1, 2):
        jobs = programs(40)
        slow[workers], best = a_second(
            lambda jobs=jobs, workers=workers: bare(jobs, workers), len(jobs)
        )
        rows.append(
            f"| bare subprocess | {workers} | 3 | {slow[workers]:,.0f} | {best:,.0f} | 1.0 |"
        )
    for sandbox, count, inputs, bodies in (
        ("monty", 2000, 1, BODIES),
        ("monty", 2000, 3, BODIES),
        ("monty", 60, 1, [BUSY]),
        ("sandlock", 40, 3, BODIES),
    ):
        for workers in (1, 2):
            jobs = programs(count, inputs, bodies)

            def run(jobs=jobs, sandbox=sandbox, workers=workers) -> None:
                outcomes = run_code(jobs, Limits(), sandbox, workers)
                assert all(outcome.kind == "value" for part in outcomes for outcome in part)

            run_code(jobs[:8], Limits(), sandbox, workers)  # the workers start
            rate, best = a_second(run, count)
            beside = f"{rate / slow[workers]:.1f}" if bodies is BODIES else ""
            name = sandbox if bodies is BODIES else f"{sandbox}, a loop of 200,000"
            rows.append(f"| {name} | {workers} | {inputs} | {rate:,.0f} | {best:,.0f} | {beside} |")
            print(rows[-1], flush=True)
    return rows


def main() -> None:
    """Measure and write the page."""
    load = os.getloadavg()[0]
    slow = sorted(slowness() for _ in range(200))
    low, high = slow[10], slow[-10]
    table = "\n".join(speed())
    hostile = "\n".join(batches())
    text = f"""# Programs in a sandbox

`python -m benchmarks.sandbox` on {os.cpu_count()} cores, {platform.machine()}, Linux {platform.release().split("-")[0]}, Python {platform.python_version()}; load at first: {load:.1f}.
The programs are small functions, all different, each called with one or three lists of numbers, in {ROUNDS} rounds. Each program has its own session
(monty) or process (sandlock). Its values are checked.

| where | workers | inputs | programs a second, median | best | beside the bare subprocess |
|---|---|---|---|---|---|
{table}

## A batch of 64 hostile completions

Time limits are multiples of the time that a reference computation needs at that moment. Before this run, it needed {low:.1f} to {high:.1f} times
(the middle 90%) its time on a quiet machine.

| reward and attack | seconds | the best score |
|---|---|---|
{hostile}
"""
    RESULTS.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # --help runs nothing
    main()
