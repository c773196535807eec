"""`python -m helpers generate`: a file of questions answered by a run's merged model, resumably."""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

from helpers import commands, environment
from helpers.data.files import Broken, file_rows, shorten
from helpers.data.shapes import options_in, question_in, with_options
from helpers.data.sources import check_columns, mapped_rows
from helpers.data.tasks import chat_prompt
from helpers.presets import for_sampling
from helpers.results import llama_cpp
from helpers.runs import Run
from helpers.tags import TagFormat
from helpers.templates import length, set_thinking

_BATCH = 64  # questions between two writes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `generate` takes."""
    parser.add_argument(
        "--run", default="demo", metavar="NAME", help="the run whose model answers (default: demo)"
    )
    parser.add_argument(
        "--input",
        required=True,
        metavar="FILE",
        help="a .jsonl, .csv or .parquet file with a column question",
    )
    parser.add_argument(
        "--columns",
        type=commands.value,
        metavar="JSON",
        help='where the column has another name: \'{"question": "problem"}\'',
    )
    parser.add_argument(
        "--output",
        required=True,
        metavar="FILE",
        help="a .jsonl file; what it holds already is not done again",
    )
    parser.add_argument(
        "--engine",
        default="transformers",
        choices=["transformers", "vllm"],
        help="what samples (default: transformers)",
    )
    parser.add_argument(
        "--gguf",
        choices=llama_cpp.CONVERTED,
        help="let llama.cpp answer, from a GGUF file of the model; it is written if it is missing",
    )


def main(parsed: argparse.Namespace) -> int:
    """Answer each question of a file greedily with the run's merged model; return 0.

    The output has JSON lines, one for each question in the order of the file: the row's own
    columns, `completion`, `answer` (what the answer block holds, or null) and `model` (the run and
    when it was merged). A column of the row with such a name becomes `source_completion` and so on.
    A question that is blank, or too long for the model, has an empty completion. Lines that are
    there already are kept and not done again, so a run that was interrupted goes on where it
    stopped. Raise ValueError for what is wrong with either file.
    """
    environment.quiet()
    run = Run(parsed.run)
    target = Path(parsed.output)

    # what can be refused, before the model is loaded
    if target.suffix.lower() != ".jsonl":
        raise ValueError(f"--output {target}: answers are JSON lines; name a .jsonl file.")
    maker = run.manifest.get("data", {}).get("notebook")
    if maker in ("10", "11"):
        needs = "calls tools" if maker == "10" else "reads pictures"
        raise ValueError(
            f"run {run.name!r} is notebook {maker}'s: its policy {needs}, and generate has none."
        )
    merged = run.require("merged")
    if why := run.outdated("merged"):
        print(f"note: {why}", file=sys.stderr)
    # Plain TRL or not, the merged model is the same; only with Unsloth can vLLM be had.
    trained = run.section("training")["settings"]
    settings = for_sampling(trained, engine=parsed.engine, backend="unsloth")
    if parsed.engine == "vllm":
        obstacle = environment.vllm_obstacle(environment.this_machine())
        if obstacle:
            raise ValueError(f"--engine vllm: {obstacle}.")
        if parsed.gguf:
            raise ValueError("--gguf is answered by llama.cpp, so leave --engine vllm out.")
    if parsed.gguf:
        llama_cpp.check_installed()
    mapping = check_columns(parsed.columns)
    del mapping["answer"]
    rows = questions_of(Path(parsed.input), mapping)

    # what is there already
    model_name = f"{run.name}, {run.manifest.get('merge', {}).get('written', 'merged')}"
    if parsed.gguf:
        model_name += f", {parsed.gguf}"
    done = count_answered(target, model_name, rows)
    if done == len(rows):
        print(f"{parsed.output} holds the answers already")
        return 0

    # the prompts that fit the model; None for a question that is blank or too long
    import torch
    from transformers import AutoConfig, AutoTokenizer

    from helpers.training import policy, vllm_cpu

    tokenizer = AutoTokenizer.from_pretrained(merged)
    set_thinking(tokenizer, settings.thinking)  # as in the training
    tokens = settings.max_completion_length
    room = AutoConfig.from_pretrained(merged).get_text_config().max_position_embeddings - tokens
    report = run.read_object("data_report.json")
    examples = report.get("examples", ())
    prompts = []
    longest = 0
    for number, row in enumerate(rows, 1):
        prompt = chat_prompt(report["system_prompt"], row["question"], examples)
        size = length(tokenizer, prompt)
        if size > room:
            print(
                f"note: row {number} is not answered: the prompt has {size:,} tokens, and the "
                f"model has room for {room:,}: {shorten(row['question'], 60)}",
                file=sys.stderr,
            )
        else:
            longest = max(longest, size)
        prompts.append(prompt if size <= room and row["question"].strip() else None)

    # vLLM's context is fixed when it starts, so it is what the longest question needs
    context = max(settings.context, longest + tokens)
    settings = replace(settings, model=str(merged), load_in_4bit=False, max_seq_length=context)
    if parsed.gguf:
        # written anew if the model has been merged again since
        in_gguf = run.folder / f"gguf/{run.name}-{parsed.gguf}.gguf"
        since = (merged / "config.json").stat().st_mtime
        if not in_gguf.exists() or in_gguf.stat().st_mtime < since:
            llama_cpp.write(run, settings, parsed.gguf)
    elif settings.engine == "vllm" and torch.cuda.is_available():
        model, _ = policy.load(settings)
    else:
        where = "cuda" if torch.cuda.is_available() else "cpu"
        model = policy.load_whole(str(merged), dtype="auto", device_map=where).eval()
        vllm_cpu.attach(model, settings)

    # the answers, a batch at a time
    silent = 0
    tags = TagFormat.parse(run.section("data")["tags"])
    for start in range(done, len(rows), _BATCH):
        asked = [prompt for prompt in prompts[start : start + _BATCH] if prompt]
        limits = {"max_new_tokens": tokens, "temperature": 0.0, "progress": False}
        if parsed.gguf:
            texts = iter(llama_cpp.answers(in_gguf, tokenizer, asked, tokens)[0] if asked else [])
        else:
            texts = iter([text for (text,) in policy.sample(model, tokenizer, asked, **limits)])
        with target.open("a", encoding="utf-8") as file:
            for row, prompt in zip(rows[start:], prompts[start : start + _BATCH], strict=False):
                text = next(texts) if prompt else ""
                answer = tags.extract_answer(text)
                silent += prompt is not None and answer is None
                line = row | {"completion": text, "answer": answer, "model": model_name}
                file.write(json.dumps(line, default=str) + "\n")
        print(f"{min(start + _BATCH, len(rows))} of {len(rows)}", flush=True)
    print(
        f"{len(rows) - done} answers written to {parsed.output}, {silent} of them null, as the "
        f"completion has no answer block; blank or too long: {prompts.count(None)} of {len(rows)} "
        "questions, whose answers are null, too"
    )
    return 0


def questions_of(source: Path, mapping: dict[str, list[str]]) -> list[dict]:
    """Return the rows of a file, each with its `question` as in a training, which may be empty, and
    its other columns; those with the name of a column of the output get `source_` in front.

    Raise ValueError for a row that cannot be read, and if there is no such column.
    """
    rows = []
    for number, row in enumerate(file_rows(source, mapping["question"]), 1):
        if isinstance(row, Broken):
            raise ValueError(f"{source}: row {number} cannot be read: {row.reason} ({row.where}).")
        # a missing value, NaN, is null in JSON
        rows.append({name: None if value != value else value for name, value in row.items()})
    found = []
    for row, mapped in zip(rows, mapped_rows(iter(rows), mapping, str(source)), strict=True):
        question, _ = question_in(mapped["question"])
        options = options_in(mapped.get("options"))
        if question and options:
            question, *_ = with_options(question, options, 0)  # the letter is not used
        kept = {"question": str(question or "")}
        for name, value in row.items():
            if name not in mapping["question"]:
                while name in ("completion", "answer", "model", *kept):
                    name = f"source_{name}"
                kept[name] = value
        found.append(kept)
    return found


def count_answered(target: Path, model: str, rows: list[dict]) -> int:
    """Return how many answers the target holds; take away a last line that was cut off.

    Raise ValueError if it holds anything but this model's answers to the first of the questions.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    lines = target.read_text(encoding="utf-8").splitlines(keepends=True) if target.exists() else []
    whole = [line for line in lines if line.endswith("\n")]
    try:
        found = [(row["question"], row["model"]) for row in map(json.loads, whole)]
    except (ValueError, LookupError, TypeError):
        found = None
    if found != [(row["question"], model) for row in rows[: len(whole)]] or (lines and not whole):
        raise ValueError(
            f"--output {target} holds something other than answers to the first questions of the "
            f"input by this model ({model}). Name another output."
        )
    if len(whole) < len(lines):
        target.write_text("".join(whole), encoding="utf-8")
    return len(whole)
