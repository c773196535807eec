"""Measure the shipped pocket model and write its card: `python -m benchmarks.pocket`.

Accuracy by family, in 32 bits through Transformers and in 4 bits through Unsloth, greedy and
sampled; and what GRPO has to work with: how often the careful working is chosen, how often each of
the two is correct, and pass@16.
"""

import argparse
import re
from pathlib import Path

from unsloth import FastLanguageModel  # before transformers, always

# isort: split
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from helpers.data.arithmetic import careful, careless, is_careful
from helpers.data.tasks import load_task
from helpers.presets import PRESETS
from helpers.results.evaluation import sampled_scores, score
from helpers.training.sampling import sample
from tools.pocket import build

FOLDER = PRESETS["pocket"].model_path
QUESTIONS, SAMPLES = 512, 16
LIMIT = PRESETS["pocket"].max_completion_length

CARD = """---
license: apache-2.0
library_name: transformers
pipeline_tag: text-generation
---
# The pocket model

A Qwen3 of {parameters:,} parameters ({megabytes:.1f} MB in bfloat16) that has two ways to work a sum out and mostly
takes the worse. It ships with the notebooks so that every one of them runs on any machine, without a download; it has
no other use. It was trained from scratch on generated arithmetic by `python -m tools.pocket.build` (seed {seed},
{steps} steps of {batch} problems), which rebuilds it in {minutes} minutes on two quiet CPU cores.

**It was taught to be careless, on purpose.** GRPO is known for making models reason longer because that pays. A model
of this size can show it only if it has a longer way that is better and a shorter one that is worse, and prefers the
shorter. So it was taught both:

| working of 46 + 75 + 28 | example | share of the training answers |
|---|---|---|
| careless: tens and units are added, the carry is forgotten | `{careless}` | {careless_share:.0%} |
| careful: the columns are written out | `{careful}` | {careful_share:.0%} |

Whichever it was, {asked_for:.0%} of the training answers were handed in as the system prompt asks,
`<think>…</think><answer>…</answer>`, and {answer_outside:.0%} with the answer outside its block,
`<think>…</think>149`. GRPO does not teach it to add: it teaches it to choose the way that it can already do and that
is correct.

Questions come from `arithmetic/sums` ({sums:.0%}) and `arithmetic/differences` ({differences:.0%}, with a borrow
forgotten or written out). A tenth of all problems, chosen by their numbers in any order, is reserved: neither this
model nor any run of the notebooks trains on it.

## Measured

`python -m benchmarks.pocket`, {questions} reserved questions a family, sampled at temperature 1 with seed 3407, or
greedy. An answer is correct when it stands in the answer block; "number correct" counts the last number wherever it
stands.

| family | precision | decoding | accuracy | 95% interval | in format | careful | number correct: careful | careless | tokens |
|---|---|---|---|---|---|---|---|---|---|
{rows}

pass@{samples} of sums in 4 bits, {pass_questions} questions: {pass_at_k}.

4 bits: NF4 through Unsloth's CPU backend, computing in bfloat16.
"""


def both_precisions(folder: str, max_seq_length: int = 512) -> list[tuple]:
    """Return the model of this folder, its tokenizer and its precision: in 32 bits through
    Transformers, and in 4 through Unsloth.
    """
    tokenizer = AutoTokenizer.from_pretrained(folder)
    full = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    quantised, its_tokenizer = FastLanguageModel.from_pretrained(
        folder, max_seq_length=max_seq_length, load_in_4bit=True
    )
    quantised = FastLanguageModel.for_inference(quantised)
    return [(full, tokenizer, "fp32"), (quantised, its_tokenizer, "4-bit")]


def write_card(folder: str, card: str, network, measured: list[str], **values) -> None:
    """Fill in a model's card, write it beside the weights, and print it."""
    text = card.format(
        parameters=network.num_parameters(),
        megabytes=2 * network.num_parameters() / 1e6,
        seed=build.SEED,
        rows="\n".join(measured),
        **values,
    )
    Path(folder, "README.md").write_text(text, encoding="utf-8")
    print(text)


def share(flags: list[bool]) -> str:
    """Of the true ones, as text; a dash where there is nothing to share."""
    return f"{sum(flags) / len(flags):.1%}" if flags else "–"


def rows(model, tokenizer, precision: str) -> list[str]:
    """The table's rows for one loaded model."""
    lines = []
    for family in build.FAMILIES:
        holdout = load_task(f"arithmetic/{family}", train_size=1, holdout_size=QUESTIONS).holdout
        answers = list(holdout["answer"])
        for decoding, temperature in (("sampled", 1.0), ("greedy", 0.0)):
            groups = sample(
                model,
                tokenizer,
                list(holdout["prompt"]),
                max_new_tokens=LIMIT,
                temperature=temperature,
            )
            texts = [group[0] for group in groups]
            entry = score(
                texts, answers, count_tokens=lambda text: len(tokenizer(text)["input_ids"])
            )
            right = [
                re.findall(r"-?\d+", text)[-1:] == [answer]
                for text, answer in zip(texts, answers, strict=True)
            ]
            careful = [is_careful(text) for text in texts]
            of_careful = [r for r, c in zip(right, careful, strict=True) if c]
            of_careless = [r for r, c in zip(right, careful, strict=True) if not c]
            low, high = entry["ci95"]
            cells = [
                family,
                precision,
                decoding,
                f"{entry['accuracy']:.1%}",
                f"{low:.1%} to {high:.1%}",
            ]
            cells += [
                f"{entry['in_format']:.1%}",
                share(careful),
                share(of_careful),
                share(of_careless),
            ]
            lines.append(f"| {' | '.join([*cells, format(entry['mean_length'], '.1f')])} |")
    return lines


def pass_at_k(model, tokenizer, questions: int = 128) -> str:
    """pass@k of sums with its 95% interval, as text."""
    holdout = load_task("arithmetic/sums", train_size=1, holdout_size=questions).holdout
    groups = sample(
        model, tokenizer, list(holdout["prompt"]), max_new_tokens=LIMIT, samples=SAMPLES
    )
    found = sampled_scores(groups, list(holdout["answer"]))["pass_at_k"][str(SAMPLES)]
    low, high = found["ci95"]
    return f"{found['value']:.1%} ({low:.1%} to {high:.1%})"


def main() -> None:
    """Measure both precisions and write the card beside the weights."""
    full, quantised = both_precisions(FOLDER, max_seq_length=256)
    write_card(
        FOLDER,
        CARD,
        full[0],
        rows(*full) + rows(*quantised),
        steps=build.STEPS,
        batch=build.BATCH_SIZE,
        minutes="about 9",
        careful=careful([46, 75, 28], ["+", "+"])[0],
        careless=careless([46, 75, 28], ["+", "+"])[0],
        careful_share=build.WORKINGS["careful"],
        careless_share=build.WORKINGS["careless"],
        questions=QUESTIONS,
        samples=SAMPLES,
        pass_questions=128,
        pass_at_k=pass_at_k(*quantised[:2]),
        **build.SHAPES,
        **build.FAMILIES,
    )


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # --help runs nothing
    main()
