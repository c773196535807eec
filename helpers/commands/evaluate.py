"""`python -m helpers evaluate`: how often one or two models are correct on a file of questions.

The measurement is that of notebook 05: accuracy with its interval, and for two models the questions
won and lost with McNemar's test. A model is any folder that Transformers loads.
"""

import argparse
from pathlib import Path

import pandas as pd

from helpers import commands, environment
from helpers.data.tasks import load_task, tokenizer_of
from helpers.presets import PRESETS
from helpers.results.evaluation import compare_outcomes, comparison_lines, right, score
from helpers.results.tables import summary
from helpers.rewards import own
from helpers.runs import Run
from helpers.tags import TagFormat
from helpers.templates import as_prompted

# models that are given by a name instead of a folder
_NAMED_MODELS = {"pocket": PRESETS["pocket"], "smollm2": PRESETS["smollm2"]}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `evaluate`."""
    parser.add_argument(
        "models",
        nargs="+",
        metavar="MODEL",
        help="a model's folder, a run (its merged model), smollm2 or pocket; one or two",
    )
    parser.add_argument(
        "--questions", required=True, metavar="FILE", help="a file with question and answer"
    )
    commands.add_format(parser)
    parser.add_argument(
        "--grader",
        metavar="FILE.py:FUNCTION",
        help="a reward that decides instead which answers are correct",
    )
    parser.add_argument(
        "--system-prompt", metavar="TEXT", help="default: one that asks for the tags"
    )
    parser.add_argument(
        "--few-shot", metavar="FILE", help="worked examples before each question, as in notebook 01"
    )
    parser.add_argument(
        "--max-tokens",
        type=int,
        default=512,
        metavar="N",
        help="the longest completion (default: 512)",
    )


def main(parsed: argparse.Namespace) -> int:
    """Print a table with a line per model, and the comparison of two; return 0.

    All models get the same prompts and decode greedily. Raise ValueError or OSError, before a model
    is loaded, if the call cannot work.
    """
    environment.quiet()
    if len(set(parsed.models)) < len(parsed.models) or len(parsed.models) > 2:
        raise ValueError(f"{', '.join(parsed.models)}: name one model, or two different ones.")

    # 1. Find the folder and the tokenizer of each model. A run's model thinks or not as in its
    # training.
    folders = {}
    tokenizers = {}
    for name in parsed.models:
        folders[name] = name  # a folder, or a name on the hub
        thinking = None
        if name in _NAMED_MODELS:
            folders[name] = _NAMED_MODELS[name].model_path
        elif not Path(name).exists() and "/" not in name:
            run = Run(name)
            folders[name] = str(run.require("merged"))
            thinking = run.manifest.get("training", {}).get("settings", {}).get("thinking")
        tokenizers[name] = tokenizer_of(folders[name], thinking)

    # 2. Read the questions. Nothing is trained here, so every usable row is asked: a task holds out
    # at least one row, which is put back.
    tags = TagFormat.parse(parsed.tags)
    grader = own.load_reward(parsed.grader, tags, "grader") if parsed.grader else None
    task = load_task(
        parsed.questions,
        holdout_size=1,
        columns=parsed.columns,
        kind=parsed.kind,
        tags=tags,
        system_prompt=parsed.system_prompt,
        few_shot=parsed.few_shot,
    )
    rows = pd.concat([task.holdout, task.train], ignore_index=True)
    dropped = task.report["rows_read"] - len(rows)
    print(f"{len(rows)} questions" + (f", {dropped} rows left out" if dropped else ""), flush=True)

    # 3. Measure one model after the other.
    evaluation = {}
    correct = {}
    for name, tokenizer in tokenizers.items():
        texts, cut = _completions(folders[name], tokenizer, list(rows["prompt"]), parsed.max_tokens)
        if cut:
            print(f"note: {name}: {cut} of {len(texts)} completions were cut off at --max-tokens")
        asked = as_prompted(tags, tokenizer)  # some templates open the reasoning themselves
        entry = score(
            texts,
            list(rows["answer"]),
            asked,
            grader=grader,
            rows=rows,
            count_tokens=lambda text, tokenizer=tokenizer: len(tokenizer(text)["input_ids"]),
        )
        # In evaluation.json, an entry measures sampled completions, and its `greedy` the greedy
        # ones. Here both are the same, and temperature 0 leaves the table's sampled accuracy empty.
        evaluation[name] = entry | {"temperature": 0, "greedy": entry}
        correct[name] = right(texts, list(rows["answer"]), asked, grader, rows)
    print("\n".join(summary(evaluation)))
    if len(correct) == 2:
        comparison = compare_outcomes(*correct.values(), tuple(correct))
        print(*comparison_lines(comparison), sep="\n")
    return 0


def _completions(folder: str, tokenizer, prompts: list, tokens: int) -> tuple[list[str], int]:
    """Return a greedy completion of each prompt, and how many were cut off. The model is freed when
    this function returns.
    """
    from helpers.training import policy, sampling

    model = policy.load_as_stored(folder)
    options = {"max_new_tokens": tokens, "temperature": 0.0, "as_tokens": True}
    groups = sampling.sample(model, tokenizer, prompts, **options)
    cut = sum(length > tokens for length in sampling.lengths_of(model, tokenizer, groups))
    return [tokenizer.decode(ids, skip_special_tokens=True) for (ids,) in groups], cut
