"""Measure the small model of notebook 09 and write its card: `python -m benchmarks.functions`.

With `--seeds 1 2 3` notebook 09 is run with each of these seeds instead, as a user would, and what
its two trainings came to is written to benchmarks/results/functions.md.
"""

import json
import shutil

from benchmarks.pocket import both_precisions, write_card  # loads unsloth first

# isort: split
from benchmarks.seeds import machine, percent, run_anew, seeds_of_command
from helpers import PROJECT
from helpers.presets import PRESETS
from helpers.results.evaluation import comparison_lines
from helpers.results.intervals import wilson_interval
from helpers.rewards.programs import tests_reward, verdicts
from helpers.runs import Run
from helpers.settling import settle
from helpers.training.sampling import sample
from tools.pocket import build, functions

MODEL = "pocket-functions"
FOLDER = settle(PRESETS["pocket"], model=MODEL).model_path
RESULTS = PROJECT / "benchmarks" / "results" / "functions.md"
MAX_NEW_TOKENS = 40

CARD = """---
license: apache-2.0
library_name: transformers
pipeline_tag: text-generation
---
# The functions model

A Qwen3 of {parameters:,} parameters ({megabytes:.1f} MB in bfloat16), the pocket model's sibling: it writes one-line
Python functions over a list of numbers, from a sentence and two tests. It ships with notebook 09, as `model="{model}"`, so
that the notebook runs on any machine; it has no other use. It was trained from scratch on generated tasks by
`python -m tools.pocket.build --task functions` (seed {seed}, {steps} steps of {batch} tasks), which rebuilds it in about
13 minutes on one CPU core.

**It was taught to answer in four ways, on purpose**, drawn independently of the task. Hidden tests pay for the first
alone, and tests that stand in the prompt for the first two. The second begins with a token of its own, so that a policy can
choose it. It makes its mistakes independently of one another, so it is correct somewhat more often than it was shown:

| way | example | share of the training answers |
|---|---|---|
{ways}

The tasks are {aggregates} aggregates of {filters} filters with {maps} maps (`tools/pocket/functions.py`). A fifth of them,
chosen by a hash, is reserved: `notebooks/data/functions.jsonl` is made of these {tasks} alone, and this model never saw one.

## Measured

`python -m benchmarks.functions`, all {tasks} tasks of functions.jsonl, sampled at temperature 1 with seed 3407, or greedy. A
program is correct when it passes all six hidden tests, run with `monty`; "runs" counts those that come to no error on any of
them.

| precision | decoding | correct | 95% interval | passes the visible tests | hard-coded | of these, pass them | runs |
|---|---|---|---|---|---|---|---|
{rows}

4 bits: NF4 through Unsloth's CPU backend, computing in bfloat16. What notebook 09 makes of the model with other seeds:
`benchmarks/results/functions.md`.
"""
WAYS = {
    "right": "correct",
    "hard_coded": "hard-coded: a table of the visible tests",
    "wrong": "wrong: something forgotten or mixed up",
    "broken": "does not run",
}
EXAMPLES = {
    "right": "sum(x * x for x in xs if x > 3)",
    "hard_coded": "{(3, 4, 1): 16, (2, 5, 0): 25}[tuple(xs)]",
    "wrong": "sum(x * x for x in xs if x >= 3)",
    "broken": "sum(x * x for x in xs if x > 3",
}


def rows(model, tokenizer, precision: str) -> list[str]:
    """The table's rows for one loaded model."""
    tasks = functions.functions()
    lines = []
    asked = [functions.question(task["text"], task["test_list"]) for task in tasks]
    prompts = [
        [
            {"role": "system", "content": functions.SYSTEM_PROMPT},
            {"role": "user", "content": question},
        ]
        for question in asked
    ]
    for decoding, temperature in (("sampled", 1.0), ("greedy", 0.0)):
        groups = sample(
            model, tokenizer, prompts, max_new_tokens=MAX_NEW_TOKENS, temperature=temperature
        )
        texts = [group[0] for group in groups]
        n = len(tasks)
        visible = [task["test_list"] for task in tasks]
        hidden = [task["challenge_test_list"] for task in tasks]
        seen = tests_reward(texts, tests=visible, share=False)
        right = int(sum(tests_reward(texts, tests=hidden, share=False)))
        tables = [
            score for text, score in zip(texts, seen, strict=True) if functions.is_hard_coded(text)
        ]
        low, high = wilson_interval(right, n)
        run = sum(verdict in ("correct", "wrong value") for verdict in verdicts(texts, hidden))
        shares = [f"{part / n:.1%}" for part in (right, sum(seen), len(tables), run)]
        passing = f"{sum(tables) / len(tables):.1%}" if tables else "–"
        interval = f"{low:.1%} to {high:.1%}"
        cells = [precision, decoding, shares[0], interval, shares[1], shares[2], passing, shares[3]]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def measure_model() -> None:
    """Measure both precisions and write the card beside the weights."""
    full, quantised = both_precisions(FOLDER)
    ways = functions.WAYS.items()
    write_card(
        FOLDER,
        CARD,
        full[0],
        rows(*full) + rows(*quantised),
        model=MODEL,
        steps=build.FUNCTIONS.steps,
        batch=build.BATCH_SIZE,
        ways="\n".join(f"| {WAYS[way]} | `{EXAMPLES[way]}` | {share:.0%} |" for way, share in ways),
        aggregates=len(functions.AGGREGATES),
        filters=len(functions.FILTERS),
        maps=len(functions.MAPS),
        tasks=len(functions.functions()),
    )


def write_seeds(seeds: list[int]) -> None:
    """Run notebook 09 with every seed and write the table, a row for each policy."""
    table = []
    for seed in seeds:
        name = f"functions-seed-{seed}"
        shutil.rmtree(Run(f"{name}-visible").folder, ignore_errors=True)
        run = run_anew(name, "09", [f"seed={seed}"])
        policies = json.loads(run.require("policies.json").read_text(encoding="utf-8"))
        differences = {}
        for comparison in policies["all"]:
            if comparison["before"] == "base model":
                sentence = comparison_lines(comparison)[1]
                differences[comparison["after"]] = sentence.removeprefix("accuracy ")
        for policy, passed in policies["passed"].items():
            cells = [str(seed), policy]
            for kind in ("visible", "hidden"):
                cells.append(percent(passed[kind]["1"]["value"], passed[kind]["1"]["ci95"]))
            cells.append(f"{passed['hidden']['greedy']['accuracy']:.1%}")
            cells.append(f"{policies['hard_coded'][policy]:.1%}")
            cells.append(differences.get(policy, ""))
            table.append(f"| {' | '.join(cells)} |")
    text = f"""# Notebook 09 with {len(seeds)} seeds

`python -m benchmarks.functions --seeds {" ".join(map(str, seeds))}` on {machine()}.
The table shows pass@1 on both kinds of tests for 150 held-out tasks, with eight programs each, sampled at temperature 1 with 4-bit weights. The 95%
Wilson intervals count tasks. The last column compares one program per task with the base model, on hidden tests, with Newcombe's paired interval.

| seed | trained with | visible tests | hidden tests | hidden, greedy | hard-coded | difference on hidden tests |
|---|---|---|---|---|---|---|
""" + "\n".join(table)
    RESULTS.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    seeds = seeds_of_command(__doc__.splitlines()[0])
    write_seeds(seeds) if seeds else measure_model()
