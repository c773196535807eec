"""What training on sums did to differences: `python -m benchmarks.differences --run demo`.

The policy of a finished run answers differences before and after its training. Which steps of a
careful working got lost?
"""

import argparse

import pandas as pd

from helpers import PROJECT, presets
from helpers.data.arithmetic import is_careful
from helpers.data.tasks import load_task
from helpers.runs import Run
from helpers.tags import TagFormat
from helpers.training.base import base_of
from helpers.training.policy import load, sample

RESULTS = PROJECT / "benchmarks" / "results" / "differences.md"
QUESTIONS, SAMPLES, SEED = 400, 4, 11


def answers(run: Run) -> pd.DataFrame:
    """A row per completion: question, answer, when ("before" or "after" the training), text."""
    settings = presets.for_sampling(run.section("training")["settings"])
    tags = TagFormat.parse(run.section("data")["tags"])
    given = {"train_size": 1, "holdout_size": QUESTIONS, "seed": SEED, "tags": tags}
    rows = load_task("arithmetic/differences", **given).holdout
    prompts = [list(prompt) for prompt in rows["prompt"]]
    policy, tokenizer = load(settings, base_of(run, settings))
    found = []
    for when in ("before", "after"):
        if when == "after":
            from peft import PeftModel  # Unsloth, which `load` imports, must come first

            policy = PeftModel.from_pretrained(policy, str(run.require("adapter")))
        limits = {"max_new_tokens": settings.max_completion_length, "progress": False}
        groups = sample(policy, tokenizer, prompts, samples=SAMPLES, **limits)
        for question, answer, texts in zip(rows["question"], rows["answer"], groups, strict=True):
            found += [(question, answer, when, text) for text in texts]
    return pd.DataFrame(found, columns=["question", "answer", "when", "text"])


def table(completions: pd.DataFrame) -> str:
    """The shares before and after, as rows of Markdown."""
    asked = completions["question"].str.extract(r"(\d+) - (\d+)").astype(int)
    gold = completions["answer"].astype(int)
    number = completions["text"].str.extract(r"(-?\d+)\D*$")[0].astype(float)
    first = completions["text"].str.extract(r"<think>(\d+) - (\d+)").astype(float)
    careful, right = completions["text"].map(is_careful), number == gold
    swapped = (first[0] == asked[1]) & (first[1] == asked[0])
    kept = (first[0] == asked[0]) & (first[1] == asked[1])
    everyone = pd.Series(True, index=completions.index)
    negative, positive = careful & (gold < 0), careful & (gold > 0)
    shares = {
        "worked out carefully": (careful, everyone),
        "right number": (right, everyone),
        "right number, careful workings": (right, careful),
        "right number, careless workings": (right, ~careful),
        "negative results, careful: the larger number comes first": (swapped, negative),
        "… right number if it does": (right, negative & swapped),
        "… right number if the numbers keep the question's order": (right, negative & kept),
        "positive results, careful: right amount": (number.abs() == gold, positive),
        "positive results, careful: right amount and sign": (right, positive),
    }
    lines = ["| | before | after |", "|---|---|---|"]
    for label, (hit, among) in shares.items():
        cells = []
        for when in ("before", "after"):
            chosen = among & (completions["when"] == when)
            cells.append(f"{hit[chosen].mean():.0%} ({hit[chosen].sum()} of {chosen.sum()})")
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def write(completions: pd.DataFrame, name: str) -> None:
    """Write benchmarks/results/differences.md."""
    text = f"""# What training on sums did to differences

`python -m benchmarks.differences --run {name}`: {QUESTIONS} questions of arithmetic/differences (seed {SEED}), {SAMPLES} samples
each at temperature 1, from the policy before and after its training on sums. The number that a completion ends with
counts, in an answer block or not.

{table(completions)}
"""
    RESULTS.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", default="demo")
    chosen = parser.parse_args().run
    write(answers(Run(chosen)), chosen)
