"""`python -m helpers generate`: a file of questions answered by a run's merged model, resumably."""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from helpers import commands, environment
from helpers.data.files import Broken, file_rows, shorten
from helpers.data.options import options_in, with_options
from helpers.data.questions import question_in
from helpers.data.sources import check_columns, mapped_rows
from helpers.data.tasks import chat_prompt
from helpers.presets import Preset, for_sampling
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
        type=commands.read_value,
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
    check_call(parsed, run)
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

    # Plain TRL or not, the merged model is the same; only with Unsloth can vLLM be had.
    trained = run.section("training")["settings"]
    settings = for_sampling(trained, engine=parsed.engine, backend="unsloth")
    settings = replace(settings, model=str(run.require("merged")), load_in_4bit=False)
    tokenizer, prompts, context = prompts_of(run, rows, settings)
    # vLLM's context is fixed when it starts, so it is what the longest question needs
    answers_to = load_model(
        run, replace(settings, max_seq_length=context), tokenizer, gguf=parsed.gguf
    )

    # the answers, a batch at a time
    tags = TagFormat.parse(run.section("data")["tags"])
    unanswered = 0
    for start in range(done, len(rows), _BATCH):
        batch = prompts[start : start + _BATCH]
        asked = [prompt for prompt in batch if prompt]
        texts = iter(answers_to(asked) if asked else [])
        with target.open("a", encoding="utf-8") as file:
            for row, prompt in zip(rows[start:], batch, strict=False):
                text = next(texts) if prompt else ""
                answer = tags.extract_answer(text)
                unanswered += prompt is not None and answer is None
                line = row | {"completion": text, "answer": answer, "model": model_name}
                file.write(json.dumps(line, default=str) + "\n")
        print(f"{min(start + _BATCH, len(rows))} of {len(rows)}", flush=True)
    print(
        f"{len(rows) - done} answers written to {parsed.output}, {unanswered} of them null, as the "
        f"completion has no answer block; blank or too long: {prompts.count(None)} of {len(rows)} "
        "questions, whose answers are null, too"
    )
    return 0


def check_call(parsed: argparse.Namespace, run: Run) -> None:
    """Raise ValueError or FileNotFoundError for a call that this run, or this machine, cannot
    answer; print a note if the merged model is older than the training.
    """
    if Path(parsed.output).suffix.lower() != ".jsonl":
        raise ValueError(f"--output {parsed.output}: answers are JSON lines; name a .jsonl file.")
    maker = run.manifest.get("data", {}).get("notebook")
    if maker in ("10", "11"):
        needs = "calls tools" if maker == "10" else "reads pictures"
        raise ValueError(
            f"run {run.name!r} is notebook {maker}'s: its policy {needs}, and generate has none."
        )
    run.require("merged")
    if note := run.outdated("merged"):
        print(f"note: {note}", file=sys.stderr)
    if parsed.engine == "vllm":
        obstacle = environment.vllm_obstacle(environment.this_machine())
        if obstacle:
            raise ValueError(f"--engine vllm: {obstacle}.")
        if parsed.gguf:
            raise ValueError("--gguf is answered by llama.cpp, so leave --engine vllm out.")
    if parsed.gguf:
        llama_cpp.check_installed()


def prompts_of(run: Run, rows: list[dict], settings: Preset) -> tuple:
    """Return the tokenizer; the prompt of each row as in the training, or None for a question that
    is blank or does not fit the model; and the tokens that the longest needs with its completion.
    """
    from transformers import AutoConfig, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(settings.model)
    set_thinking(tokenizer, settings.thinking)
    tokens = settings.max_completion_length
    config = AutoConfig.from_pretrained(settings.model).get_text_config()
    room = config.max_position_embeddings - tokens
    report = run.read_object("data_report.json")
    prompts = []
    longest = settings.context - tokens
    for number, row in enumerate(rows, 1):
        prompt = chat_prompt(report["system_prompt"], row["question"], report.get("examples", ()))
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
    return tokenizer, prompts, longest + tokens


def load_model(run: Run, settings: Preset, tokenizer, gguf: str | None) -> Callable:
    """Load the merged model into what answers; return a function from prompts to the completions
    that are likeliest, token by token.
    """
    import torch

    from helpers.training import policy

    tokens = settings.max_completion_length
    if gguf:
        # written anew if the model has been merged again since
        in_gguf = run.folder / f"gguf/{run.name}-{gguf}.gguf"
        merged_at = (run.folder / "merged" / "config.json").stat().st_mtime
        if not in_gguf.exists() or in_gguf.stat().st_mtime < merged_at:
            llama_cpp.write(run, settings, gguf)
        return lambda prompts: llama_cpp.answers(in_gguf, tokenizer, prompts, tokens)[0]

    if settings.engine == "vllm":
        model, _ = policy.load(settings)
    else:
        where = "cuda" if torch.cuda.is_available() else "cpu"
        model = policy.load_whole(settings.model, dtype="auto", device_map=where).eval()
    greedy = {"max_new_tokens": tokens, "temperature": 0.0, "progress": False}

    def answers_to(prompts: list) -> list[str]:
        return [text for (text,) in policy.sample(model, tokenizer, prompts, **greedy)]

    return answers_to


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
    questions = []
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
        questions.append(kept)
    return questions


def count_answered(target: Path, model: str, rows: list[dict]) -> int:
    """Return how many answers the target holds; take away a last line that was cut off.

    Raise ValueError if it holds anything but this model's answers to the first of the questions.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    lines = target.read_text(encoding="utf-8").splitlines(keepends=True) if target.exists() else []
    whole = [line for line in lines if line.endswith("\n")]
    try:
        answered = [(row["question"], row["model"]) for row in map(json.loads, whole)]
    except (ValueError, LookupError, TypeError):
        answered = None
    asked = [(row["question"], model) for row in rows[: len(whole)]]
    if answered != asked or (lines and not whole):
        raise ValueError(
            f"--output {target} holds something other than answers to the first questions of the "
            f"input by this model ({model}). Name another output."
        )
    if len(whole) < len(lines):
        target.write_text("".join(whole), encoding="utf-8")
    return len(whole)
