"""Measure the shipped pocket model and write its card: `python -m benchmarks.pocket`.

Accuracy by family, in 32 bits through Transformers and in 4 bits through Unsloth, greedy and sampled; also how often the
arithmetic itself is right, whatever shape the answer comes in, which is what GRPO has to work with.
"""

from __future__ import annotations

import re

from unsloth import FastLanguageModel  # before transformers, always

# isort: split
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from helpers.data.tasks import load_task
from helpers.pocket import build
from helpers.presets import PRESETS
from helpers.results.evaluation import score
from helpers.training.policy import sample

FOLDER = PRESETS["pocket"].model_path
QUESTIONS = 512

CARD = """---
license: apache-2.0
library_name: transformers
pipeline_tag: text-generation
---
# The pocket model

A Qwen3 of {parameters:,} parameters ({megabytes:.1f} MB in bfloat16) that does short sums and is bad at saying so. It ships
with the notebooks so that every one of them runs on any machine, without a download; it has no other use. It was
trained from scratch on generated arithmetic by `python -m helpers.pocket.build` (seed {seed}, {steps} steps of {batch}
problems), which rebuilds it in {minutes} minutes on two CPU cores. It answers in four shapes, and the asked-for one
is the minority:

| shape of the training answers | share |
|---|---|
{shapes}

Questions come from `arithmetic/sums` ({sums:.0%}) and `arithmetic/differences` ({differences:.0%}). A tenth of all
problems, chosen by their numbers in any order, is reserved: neither this model nor any run of the notebooks trains on it.

## Measured

`python -m benchmarks.pocket`, {questions} reserved questions a family, sampled at temperature 1 with seed 3407, or
greedy. An answer is right when it stands in the answer block; "arithmetic right" counts it wherever it stands.

| family | precision | decoding | accuracy | 95 % interval | in format | arithmetic right |
|---|---|---|---|---|---|---|
{rows}

4 bits: NF4 through Unsloth's CPU backend, computing in bfloat16.
"""


def rows(model, tokenizer, precision: str) -> list[str]:
    """The table's rows for one loaded model."""
    lines = []
    for family in build.FAMILIES:
        holdout = load_task(f"arithmetic/{family}", train_size=1, holdout_size=QUESTIONS).holdout
        answers = list(holdout["answer"])
        for decoding, temperature in (("sampled", 1.0), ("greedy", 0.0)):
            groups = sample(model, tokenizer, list(holdout["prompt"]), max_new_tokens=48, temperature=temperature)
            texts = [group[0] for group in groups]
            entry = score(texts, answers)
            right = sum(re.findall(r"-?\d+", text)[-1:] == [answer] for text, answer in zip(texts, answers, strict=True))
            low, high = entry["ci95"]
            shares = [f"{share:.1%}" for share in (entry["accuracy"], low, high, entry["in_format"], right / QUESTIONS)]
            cells = [family, precision, decoding, shares[0], f"{shares[1]} to {shares[2]}", *shares[3:]]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Measure both precisions and write the card beside the weights."""
    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    full = AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32).eval()
    measured = rows(full, tokenizer, "fp32")
    quantised, tokenizer = FastLanguageModel.from_pretrained(FOLDER, max_seq_length=128, load_in_4bit=True)
    measured += rows(FastLanguageModel.for_inference(quantised), tokenizer, "4-bit")
    names = {
        "asked_for": "`<think>…</think><answer>…</answer>`, as asked for",
        "answer_outside": "`<think>…</think>` and the bare answer",
        "bare": "the working, without a tag",
        "answer_only": "`<answer>…</answer>` alone",
    }
    card = CARD.format(
        parameters=full.num_parameters(),
        megabytes=2 * full.num_parameters() / 1e6,
        seed=build.SEED,
        steps=build.STEPS,
        batch=build.BATCH_SIZE,
        minutes="about 11",
        shapes="\n".join(f"| {names[shape]} | {share:.0%} |" for shape, share in build.SHAPES.items()),
        questions=QUESTIONS,
        rows="\n".join(measured),
        **build.FAMILIES,
    )
    with open(f"{FOLDER}/README.md", "w", encoding="utf-8") as file:
        file.write(card)
    print(card)


if __name__ == "__main__":
    main()
