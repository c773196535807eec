"""How fast correctness_reward judges, beside TRL's accuracy_reward in the same run, and what a batch
of hostile completions costs: `python -m benchmarks.rewards --rows FILE`.

Both read the same completions, reasoning included, with the answer in a box inside the answer
block. Ours runs on one core except where it says workers. Every verdict is compared; what differs
is printed.
"""

import argparse
import gc
import os
import platform
import random
import statistics
import time
from pathlib import Path

from trl.rewards import accuracy_reward

from examples.more_rewards import exact_match_reward, fuzzy_match_reward, numeric_reward
from helpers import PROJECT
from helpers.data.tasks import load_task
from helpers.judging import workers
from helpers.judging.answers import numbers
from helpers.rewards.correctness import correctness_reward

RESULTS = PROJECT / "benchmarks" / "results" / "rewards.md"
GROUP = 8
BATCH = 1024
COMPARED = 4096
TURNS = 8


PLAIN = ["{0}", "{0:,}", "{0}.0", "{0}%", "${0:,}.00", "{1}/2"]
LATEX = [r"\frac{{{1}}}{{2}}", r"\${0:,}.00", r"{0}\%", r"\text{{{0}}}"]


def number_completions(
    rows: list[dict], spellings: list[str], rng: random.Random
) -> tuple[list[str], list[str]]:
    """A group a row: half correct in one of the spellings, half another number.

    Returns completions and golds.
    """
    completions, golds = [], []
    for row in rows:
        gold = row["answer"]
        number = numbers.parse_number(gold)
        for _ in range(GROUP):
            value = int(number.value) if rng.random() < 0.5 else rng.randrange(-200, 10_000)
            spelt = rng.choice(spellings).format(value, 2 * value)
            completions.append(
                f"<think>{row.get('working', '')}</think><answer>\\boxed{{{spelt}}}</answer>"
            )
            golds.append(gold)
    return completions, golds


def symbolic_completions(rng: random.Random) -> tuple[list[str], list[str]]:
    """Polynomials, roots, sets and intervals, half of them correct; every pair comes four times, as
    in a group. Returns COMPARED completions and golds.
    """
    pairs = []
    for _ in range(COMPARED // 4):
        a, b, off = rng.randrange(2, 60), rng.randrange(2, 60), rng.randrange(2)
        pairs.append(
            rng.choice(
                [
                    (f"x^2+{a + b}x+{a * b + off}", f"(x+{a})(x+{b})"),
                    (rf"\frac{{\sqrt{{{a}}}}}{{{b + off}}}", rf"\frac{{{a}}}{{{b}\sqrt{{{a}}}}}"),
                    (rf"\{{{a},{b + off},99\}}", rf"\{{99,{b},{a}\}}"),
                    (f"[{a},{a + b + off})", f"[{a},{a + b})"),
                ]
            )
        )
    repeated = [pair for pair in pairs for _ in range(4)]
    return [f"<think>so</think><answer>\\boxed{{{given}}}</answer>" for _, given in repeated], [
        f"${gold}$" for gold, _ in repeated
    ]


# The nth of 64 hostile answers, each kind beside an expression in x.
HOSTILE = {
    "towers of powers": lambda n: f"{n}^{{9^{{9^9}}}}",
    "high powers": lambda n: f"(x+{n})^{{99}}",
    "forty factors": lambda n: "".join(f"(x+{n + at})" for at in range(40)),
    "nested radicals": lambda n: r"\sqrt{x+" * 24 + str(n) + "}" * 24,
    "nested logarithms": lambda n: r"\log(" * 20 + f"{n}x" + ")" * 20,
    "cube roots": lambda n: "+".join(rf"\sqrt[3]{{x+{n + at}}}" for at in range(15)),
    "a hundred slashes": lambda n: "x" + "/x" * 99 + f"/{n}",
    "dots that NFKC triples": lambda n: "…" * 2700 + str(n),
    "ligatures that NFKC makes eighteen": lambda n: "ﷺ" * 990 + str(n),
    "exclamations": lambda n: "a!" * 490 + str(n),
    "eight blocks": lambda n: "</answer><answer>".join(f"(A){n}" + "." * at for at in range(8)),
}
REWARDS = [correctness_reward, exact_match_reward, numeric_reward, fuzzy_match_reward]


def hostile_batches() -> tuple[list[str], list[float]]:
    """A row of a table for each kind of hostile answer, and how slow the machine was at each try.

    A cell has the seconds of a reward on 64 answers, the fastest and the slowest of three tries,
    each divided by the slowness that the workers had measured, their limits being multiples of it:
    the mean of what it was before and after the try.
    """
    rows, slow = [], []
    for name, nth in HOSTILE.items():
        texts = [f"<think>so</think><answer>{nth(n)}</answer>" for n in range(11, 75)]
        seconds = []
        for reward in REWARDS:
            golds = ["42" if reward is numeric_reward else "x^2+1"] * len(texts)
            ready = [f"<answer>x+{n}</answer>" for n in range(len(texts))]
            tries = []
            for _ in range(3):
                correctness_reward(ready, answer=["1+x"] * len(texts))  # the workers are up
                measured = [one.slowness for one in workers._workers["equal"]]
                began = time.perf_counter()
                reward(texts, answer=golds)
                taken = time.perf_counter() - began
                measured += [one.slowness for one in workers._workers["equal"]]
                slow.append(statistics.mean(measured))
                tries.append(taken / slow[-1])
            seconds.append(f"{min(tries):.2f} to {max(tries):.2f}")
        rows.append(f"| {name} | {' | '.join(seconds)} |")
    return rows, sorted(slow)


def rate(judge, completions: list, golds: list, clock=time.process_time) -> tuple[float, list]:
    """Verdicts a second, in batches as a trainer asks for them, and the verdicts.

    clock: the processor time of this process, which a busy machine hardly changes; for judgements
    in workers, the time of a clock.
    """
    numbers._parse.cache_clear()
    gc.collect()
    began, verdicts = clock(), []
    for start in range(0, len(completions), BATCH):
        verdicts += judge(completions[start : start + BATCH], golds[start : start + BATCH])
    return len(completions) / (clock() - began), verdicts


def ours(completions: list, golds: list) -> list:
    """correctness_reward as a trainer calls it."""
    return correctness_reward(completions, answer=golds)


def theirs(completions: list, golds: list) -> list:
    """TRL's accuracy_reward on the same texts."""
    return accuracy_reward(
        [[{"role": "assistant", "content": text}] for text in completions], golds
    )


def compare(name: str, completions: list, golds: list, workers_cache: bool = False) -> str:
    """A row of the table; prints where the verdicts differ.

    The two take turns, because a machine's speed changes within seconds. A turn of TRL's is an
    eighth of the texts; a turn of ours is all of them, or the same eighth where workers cache.
    """
    theirs(completions[:8], golds[:8])  # compiles its regular expressions
    clock = time.perf_counter if workers_cache else time.process_time
    turns, verdicts = [], []
    for at in range(0, min(len(completions), COMPARED), COMPARED // TURNS):
        part = slice(at, at + COMPARED // TURNS)
        mine, judged = rate(ours, completions[part], golds[part], clock)
        if not workers_cache:
            mine, _ = rate(ours, completions, golds)
        trl, other = rate(theirs, completions[part], golds[part], clock)
        turns.append((mine / trl, mine, trl))
        verdicts += zip(judged, other, strict=True)
    differing = [at for at, (a, b) in enumerate(verdicts) if a != b]
    ratios = sorted(ratio for ratio, _, _ in turns)
    mine, trl = (statistics.median(turn[which] for turn in turns) for which in (1, 2))
    print(f"{name}: {ratios}, {len(differing)} verdicts differ: {differing[:5]}")
    return (
        f"| {name} | {mine:,.0f} | {trl:,.0f} | {statistics.median(ratios):,.1f} "
        f"| {ratios[0]:,.1f} to {ratios[-1]:,.1f} | {len(verdicts)} | {len(differing)} |"
    )


def main() -> None:
    """Measure, and write benchmarks/results/rewards.md."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rows",
        default="arithmetic/differences",
        help="a source as notebook 01 takes it, such as a file of GSM8K",
    )
    source = parser.parse_args().rows
    rng = random.Random(0)
    rows = load_task(source, holdout_size=1).train.to_dict("records")
    rows = [row for row in rows if row["answer"].lstrip("-").replace(",", "").isdigit()]
    table = []
    for name, spellings in (("plain numbers", PLAIN), ("the same in LaTeX", LATEX)):
        table.append(compare(f"{name}, one core", *number_completions(rows, spellings, rng)))
    texts, symbols = symbolic_completions(rng)
    for count in (1, os.cpu_count() or 1):
        workers._workers["equal"] = [workers.Worker("equal") for _ in range(count)]
        workers.scores_in_time("equal", [(f"y+{n}", f"{n}+y") for n in range(16 * count)])
        name = f"symbolic, {count} worker{'s' * (count > 1)}"
        table.append(compare(name, texts, symbols, workers_cache=True))
    hostile, slow = hostile_batches()
    named = Path(source).name if Path(source).exists() else source
    text = f"""# Judging answers: correctness_reward beside TRL's accuracy_reward

`python -m benchmarks.rewards --rows {named}` on {os.cpu_count()} cores, {platform.machine()}, {len(rows)} questions, groups of
{GROUP}, batches of {BATCH:,}. The table shows verdicts per second of processor time, or of clock time with workers (the median of {TURNS} turns),
the median and the range of their ratio within a turn, the number of answers that both judged, and the number of these on which they differ.

| | correctness_reward | accuracy_reward | ratio | from, to | compared | differ |
|---|---|---|---|---|---|---|
""" + "\n".join(table)
    text += (
        "\n\nThe next table shows the seconds for 64 hostile answers: the fastest and the slowest of three tries. Each is divided by the slowdown that the\n"
        f"workers measured at the time (1.0 on a quiet machine; here {slow[0]:.1f} to {slow[-1]:.1f}). "
        "The time limits are multiples of the same number, so an honest\nanswer is judged on a busy machine, too:\n\n"
        "| | correctness | exact_match | numeric | fuzzy_match |\n|---|---|---|---|---|\n"
    )
    text += "\n".join(hostile) + "\n"
    RESULTS.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
