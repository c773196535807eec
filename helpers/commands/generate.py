"""`python -m helpers generate`: answer a file of questions with a run's merged model.

`main` reads the questions (`questions_of`), skips those that the output already answers
(`count_answered`), makes the prompts (`prompts_of`) and samples (`load_model`). An interrupted
command therefore continues where it stopped when it is given again.
"""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from helpers import environment
from helpers.data.files import Broken, file_rows
from helpers.data.options import options_in, with_options
from helpers.data.prompts import chat_prompt
from helpers.data.questions import question_in
from helpers.data.sources import check_columns, mapped_rows
from helpers.parameters import read_value
from helpers.printing import on_one_line, shorten
from helpers.results import llama_cpp
from helpers.runs import Run
from helpers.settings import Preset
from helpers.settling import settle
from helpers.tags import TagFormat
from helpers.templates import length, set_thinking

_BATCH = 64  # questions answered between two writes to the output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `generate`."""
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
        type=read_value,
        metavar="JSON",
        help='another name of the column, such as \'{"question": "problem"}\'',
    )
    parser.add_argument(
        "--output",
        required=True,
        metavar="FILE",
        help="a .jsonl file; answers it already holds are kept",
    )
    parser.add_argument(
        "--engine",
        default="transformers",
        choices=["transformers", "vllm"],
        help="the library that samples (default: transformers)",
    )
    parser.add_argument(
        "--gguf",
        choices=llama_cpp.CONVERTED,
        help="sample with llama.cpp from a GGUF file of the model, which is written if missing",
    )


def main(parsed: argparse.Namespace) -> int:
    """Answer every question of a file, with greedy decoding; return 0.

    The output has one JSON object per question, in the order of the file: the row's own columns,
    `completion`, `answer` (the content of the answer block, or null) and `model` (the run, and when
    its model was merged). A blank question, or one too long for the model, gets an empty
    completion. Lines already in the output are kept. Raise ValueError or OSError, before the model
    is loaded, if the call cannot work or the input or output file is unusable.
    """
    environment.quiet()
    run = Run(parsed.run)
    source = Path(parsed.input)
    target = Path(parsed.output)

    # 1. Read the questions. If the call names no columns, they may have the names that they had in
    # the run's own data.
    check_call(parsed, run)
    mapping = check_columns(parsed.columns)
    if parsed.columns is None:
        of_run = check_columns(run.read_object("data_report.json").get("columns"))
        first_row = next(iter(file_rows(source, of_run["question"])), None)
        if isinstance(first_row, dict) and set(of_run["question"]) <= first_row.keys():
            mapping = of_run
    del mapping["answer"]  # a file of questions needs no answers
    rows = questions_of(source, mapping)

    # 2. Count the answers that the output already holds. They must be this model's.
    model_name = f"{run.name}, {run.manifest.get('merge', {}).get('written', 'merged')}"
    if parsed.gguf:
        model_name += f", {parsed.gguf}"
    done = count_answered(target, model_name, rows)
    if done == len(rows):
        print(f"{parsed.output} already holds the answers")
        return 0

    # 3. Make the prompts, and load the merged model. Only the backend Unsloth can use vLLM; the
    # model is the same with both. vLLM's context is fixed when the engine starts, so it must hold
    # the longest prompt and its completion.
    from transformers import AutoTokenizer

    from helpers.training.stops import set_stop

    trained = run.section("training")["settings"]
    settings = settle(trained, engine=parsed.engine, backend="unsloth")
    settings = replace(settings, model=str(run.require("merged")), load_in_4bit=False)
    tokenizer = AutoTokenizer.from_pretrained(settings.model)
    set_thinking(tokenizer, settings.thinking)
    set_stop(tokenizer, settings.stop)
    prompts = prompts_of(run, rows, tokenizer, settings)
    longest = max((length(tokenizer, prompt) for prompt in prompts if prompt), default=0)
    context = max(settings.context, longest + settings.max_completion_length)
    settings = replace(settings, max_seq_length=context)
    complete = load_model(run, settings, tokenizer, gguf=parsed.gguf)

    # 4. Answer the rest, one batch after the other. A row without a prompt is written, too, so that
    # the output has the order of the file.
    tags = TagFormat.parse(run.section("data")["tags"])
    without_block = 0
    for start in range(done, len(rows), _BATCH):
        end = min(start + _BATCH, len(rows))
        asked = [prompt for prompt in prompts[start:end] if prompt]
        completions = iter(complete(asked) if asked else [])
        with target.open("a", encoding="utf-8") as file:
            for row, prompt in zip(rows[start:end], prompts[start:end], strict=True):
                completion = next(completions) if prompt else ""
                answer = tags.extract_answer(completion)
                if prompt and answer is None:
                    without_block += 1
                line = row | {"completion": completion, "answer": answer, "model": model_name}
                file.write(json.dumps(line, default=str) + "\n")
        print(f"{end} of {len(rows)}", flush=True)
    print(f"{len(rows) - done} answers written to {parsed.output}.")
    print(
        f"{without_block} are null because the completion has no answer block, and "
        f"{prompts[done:].count(None)} because the question is blank or too long for the model."
    )
    return 0


def check_call(parsed: argparse.Namespace, run: Run) -> None:
    """Raise ValueError or FileNotFoundError if this run, or this machine, cannot answer questions.

    Print a note if the merged model is older than the run's training.
    """
    if Path(parsed.output).suffix.lower() != ".jsonl":
        raise ValueError(f"--output {parsed.output}: answers are JSON lines; name a .jsonl file.")
    maker = run.manifest.get("data", {}).get("notebook")
    if maker in ("10", "11"):
        needs = "calls tools" if maker == "10" else "reads images"
        raise ValueError(
            f"run {run.name!r} is notebook {maker}'s: its policy {needs}, which generate cannot do."
        )
    run.require("merged")
    if note := run.outdated("merged"):
        print(f"note: {note}", file=sys.stderr)
    if parsed.engine == "vllm":
        obstacle = environment.vllm_obstacle(environment.this_machine(), load_in_4bit=False)
        if obstacle:
            raise ValueError(f"--engine vllm: {obstacle}.")
        if parsed.gguf:
            raise ValueError("--gguf samples with llama.cpp, so omit --engine vllm.")
    if parsed.gguf:
        llama_cpp.check_installed()


def questions_of(source: Path, mapping: dict[str, list[str]]) -> list[dict]:
    """Return the rows of a file, each with its `question` as in training, which may be empty, and
    its other columns.

    mapping: the columns to read for the question and its options. A column with the name of a
    column of the output, such as `answer`, becomes `source_answer`. Raise ValueError if a row
    cannot be read, or if there is no column for the question.
    """
    rows = []
    for number, row in enumerate(file_rows(source, mapping["question"]), 1):
        if isinstance(row, Broken):
            raise ValueError(f"{source}: row {number} cannot be read: {row.reason} ({row.where}).")
        # a missing value is NaN, which is unequal to itself, and becomes null in JSON
        rows.append({name: None if value != value else value for name, value in row.items()})

    questions = []
    for row, mapped in zip(rows, mapped_rows(iter(rows), mapping, str(source)), strict=True):
        # Write the options below the question. The correct one is not known, and does not matter:
        # it is said to be the first.
        question, _ = question_in(mapped["question"])
        options = options_in(mapped.get("options"))
        if question and options:
            question, *_ = with_options(question, options, 0)

        # Keep the other columns, under names that are still free.
        kept = {"question": str(question or "")}
        for name, value in row.items():
            if name not in mapping["question"]:
                while name in ("completion", "answer", "model", *kept):
                    name = f"source_{name}"
                kept[name] = value
        questions.append(kept)
    return questions


def count_answered(target: Path, model: str, rows: list[dict]) -> int:
    """Return how many questions the output file already answers, after removing a last line that
    was cut off.

    Raise ValueError if the file holds anything but this model's answers to the first questions.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        return 0
    lines = target.read_text(encoding="utf-8").splitlines(keepends=True)
    whole = [line for line in lines if line.endswith("\n")]  # the last line may have been cut off
    try:
        answered = [(line["question"], line["model"]) for line in map(json.loads, whole)]
    except (ValueError, LookupError, TypeError):
        answered = None
    asked = [(row["question"], model) for row in rows[: len(whole)]]
    # A file with one cut-off line and nothing else may be somebody's notes.
    is_other_file = lines and not whole
    if answered != asked or is_other_file:
        raise ValueError(
            f"--output {target} holds something other than answers to the first questions of the "
            f"input by this model ({model}). Name another output."
        )
    if len(whole) < len(lines):
        target.write_text("".join(whole), encoding="utf-8")
    return len(whole)


def prompts_of(run: Run, rows: list[dict], tokenizer, settings: Preset) -> list[list[dict] | None]:
    """Return a prompt for each row, built as in training. It is None for a question that is blank
    or too long for the model; of the latter, a note is printed.
    """
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(settings.model).get_text_config()
    room = config.max_position_embeddings - settings.max_completion_length
    report = run.read_object("data_report.json")
    examples = report.get("few_shot", ())
    prompts = []
    for number, row in enumerate(rows, 1):
        prompt = chat_prompt(report["system_prompt"], row["question"], examples)
        size = length(tokenizer, prompt)
        if size > room:
            print(
                f"note: row {number} is not answered: the prompt has {size:,} tokens, and the "
                f"model has room for {room:,}: {on_one_line(shorten(row['question'], 60))}",
                file=sys.stderr,
            )
        is_blank = not row["question"].strip()
        prompts.append(None if is_blank or size > room else prompt)
    return prompts


def load_model(
    run: Run, settings: Preset, tokenizer, gguf: str | None
) -> Callable[[list], list[str]]:
    """Load the merged model; return a function that completes a list of prompts greedily."""
    from helpers.training import policy, sampling

    tokens = settings.max_completion_length
    if gguf:
        # Write the file if it is missing or older than the merged model.
        in_gguf = run.folder / f"gguf/{run.name}-{gguf}.gguf"
        merged_at = (run.folder / "merged" / "config.json").stat().st_mtime
        if not in_gguf.exists() or in_gguf.stat().st_mtime < merged_at:
            llama_cpp.write(run, settings, gguf)
        return lambda prompts: llama_cpp.answers(in_gguf, tokenizer, prompts, tokens)["texts"]

    if settings.engine == "vllm":
        model, _ = policy.load(settings)
    else:
        model = policy.load_as_stored(settings.model)
    sample = partial(sampling.sample, model, tokenizer, max_new_tokens=tokens, temperature=0.0)
    return lambda prompts: [text for (text,) in sample(prompts)]
