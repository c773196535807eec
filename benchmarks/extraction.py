"""Measure the small model of notebook 07 and write its card: `python -m benchmarks.extraction`.

With `--seeds 1 2 3` notebook 07 is run with each of these seeds instead, as a user would, and the
table of accuracies before and after its training is written to benchmarks/results/extraction.md.
"""

import json

from benchmarks.pocket import both_precisions, write_card  # loads unsloth first

# isort: split
from benchmarks.seeds import machine, percent, run_anew, seeds_of_command
from helpers import PROJECT
from helpers.data.tasks import load_task
from helpers.presets import PRESETS
from helpers.results.evaluation import comparison_lines
from helpers.results.intervals import paired_interval, student_interval, wilson_interval
from helpers.settling import settle
from helpers.tags import THINK_ANSWER
from helpers.training.sampling import sample
from tools.pocket import build, extraction

MODEL = "pocket-extraction"
FOLDER = settle(PRESETS["pocket"], model=MODEL).model_path
RESULTS = PROJECT / "benchmarks" / "results" / "extraction.md"
QUESTIONS, MAX_NEW_TOKENS = 512, 40

CARD = """---
license: apache-2.0
library_name: transformers
pipeline_tag: text-generation
---
# The extraction model

A Qwen3 of {parameters:,} parameters ({megabytes:.1f} MB in bfloat16), the pocket model's sibling: it finds item, quantity
and city in short messages that order goods, and is bad at saying them as JSON. It ships with notebook 07, as
`model="{model}"`, so that the notebook runs on any machine; it has no other use. It was trained from scratch on
generated messages by `python -m tools.pocket.build --task extraction` (seed {seed}, {steps} steps of {batch} messages),
which rebuilds it in 10 to 14 minutes on one CPU core. It answers in five shapes, and the asked-for one is a minority:

| shape of the training answers | share |
|---|---|
{shapes}

The messages are drawn from {items} items, {cities} cities, quantities from {low} to {high} and {templates} wordings
(`tools/pocket/extraction.py`). A fifth of all records, chosen by a hash, is reserved: `notebooks/data/orders.csv` is
made of these alone, and this model never saw one. It was trained with one system prompt and without worked examples.

## Measured

`python -m benchmarks.extraction`, {questions} messages of orders.csv, sampled at temperature 1 with seed 3407, or greedy. An
answer is correct when the record stands in the answer block as JSON; "record known" counts it in whatever shape.

| precision | decoding | accuracy | 95% interval | in format | record known |
|---|---|---|---|---|---|
{rows}

4 bits: NF4 through Unsloth's CPU backend, computing in bfloat16. What notebook 07 makes of the model with three seeds:
`benchmarks/results/extraction.md`.
"""
SHAPES = {
    "asked_for": "`<think>…</think><answer>` and the JSON, as asked for",
    "json_outside": "`<think>…</think>` and the JSON behind it, in no block",
    "prose": "a note such as `3 x sea salt, Oslo`, without a tag",
    "text_quantity": "`<answer>` alone, the quantity as text",
    "other_keys": "`<answer>` alone, under other keys",
}


def rows(model, tokenizer, precision: str) -> list[str]:
    """The table's rows for one loaded model."""
    columns = {"question": "message", "answer": "expert_answer"}
    orders = str(extraction.ORDERS_CSV)
    holdout = load_task(
        orders, columns=columns, system_prompt=extraction.SYSTEM_PROMPT, holdout_size=QUESTIONS
    ).holdout
    records = [json.loads(answer) for answer in holdout["answer"]]
    lines = []
    for decoding, temperature in (("sampled", 1.0), ("greedy", 0.0)):
        groups = sample(
            model,
            tokenizer,
            list(holdout["prompt"]),
            max_new_tokens=MAX_NEW_TOKENS,
            temperature=temperature,
        )
        pairs = list(zip([group[0] for group in groups], records, strict=True))
        right = sum(extraction.is_asked_for(text, record) for text, record in pairs)
        known = sum(extraction.is_known(text, record) for text, record in pairs)
        in_format = sum(THINK_ANSWER.matches(text) for text, _ in pairs)
        low, high = wilson_interval(right, QUESTIONS)
        shares = [f"{count / QUESTIONS:.1%}" for count in (right, in_format, known)]
        lines.append(
            f"| {precision} | {decoding} | {shares[0]} | {low:.1%} to {high:.1%} | {shares[1]} | "
            f"{shares[2]} |"
        )
    return lines


def measure_model() -> None:
    """Measure both precisions and write the card beside the weights."""
    full, quantised = both_precisions(FOLDER)
    write_card(
        FOLDER,
        CARD,
        full[0],
        rows(*full) + rows(*quantised),
        model=MODEL,
        steps=build.EXTRACTION.steps,
        batch=build.BATCH_SIZE,
        shapes="\n".join(
            f"| {SHAPES[shape]} | {share:.0%} |" for shape, share in extraction.SHAPES.items()
        ),
        items=len(extraction.ITEMS),
        cities=len(extraction.CITIES),
        low=min(extraction.QUANTITIES),
        high=max(extraction.QUANTITIES),
        templates=len(extraction.TEMPLATES),
        questions=QUESTIONS,
    )


def over_seeds(found: list[dict]) -> str:
    """One sentence on all seeds: the messages pooled, and the mean over the seeds."""
    gains = [100 * entry["difference"] for entry in found]
    counts = [
        sum(entry[kind] for entry in found) for kind in ("both_right", "won", "lost", "both_wrong")
    ]
    pooled = [100 * bound for bound in paired_interval(*counts)]
    low, high = student_interval(gains)
    return (
        f"Gain in points: {100 * (counts[1] - counts[2]) / sum(counts):+.1f} ({pooled[0]:.1f} to {pooled[1]:.1f}) "
        f"over the {sum(counts)} messages pooled, {sum(gains) / len(gains):+.1f} ({low:.1f} to {high:.1f}) over the "
        f"{len(gains)} seeds (Student's t)."
    )


def write_seeds(seeds: list[int]) -> None:
    """Run notebook 07 with every seed and write the table."""
    table, found = [], []
    for seed in seeds:
        run = run_anew(f"extraction-seed-{seed}", "07", [f"seed={seed}"])
        before = run.evaluation["baseline"]
        after = run.evaluation["trained"]
        comparisons = json.loads(run.require("comparison.json").read_text(encoding="utf-8"))
        sampled = comparisons["sampled"]
        found.append(sampled)
        counts, difference = comparison_lines(sampled)
        cells = [
            str(seed),
            percent(before["accuracy"], before["ci95"]),
            percent(after["accuracy"], after["ci95"]),
            difference.removeprefix("accuracy "),
            f"{sampled['won']} / {sampled['lost']}",
            counts.rpartition(" p ")[2],
        ]
        table.append(f"| {' | '.join(cells)} |")
    text = f"""# Notebook 07 with {len(seeds)} seeds

`python -m benchmarks.extraction --seeds {" ".join(map(str, seeds))}` on {machine()}.
A record is correct if it equals the expert's. {before["n"]} held-out messages are answered at temperature 1, with 4-bit weights.
Accuracies have 95% Wilson intervals, and the difference has Newcombe's paired interval. The p-value for messages won and lost is that of the exact
McNemar test.

| seed | before | after | difference | won / lost | p |
|---|---|---|---|---|---|
""" + "\n".join([*table, "", over_seeds(found)])
    RESULTS.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    seeds = seeds_of_command(__doc__.splitlines()[0])
    write_seeds(seeds) if seeds else measure_model()
