"""`python -m helpers generate`: a file of questions answered by a run's merged model, resumably."""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

from helpers import environment
from helpers.commands import arguments
from helpers.data.files import Broken, file_rows, shortened
from helpers.data.sources import check_columns
from helpers.data.tasks import chat_prompt
from helpers.presets import Preset, for_sampling
from helpers.results.answering import weights_identity
from helpers.runs import Run, write_json
from helpers.tags import TagFormat
from helpers.templates import options_of, set_thinking, template_options

_BATCH = 64  # questions between two writes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `generate` takes."""
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
        type=arguments.value,
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


def main(parsed: argparse.Namespace) -> int:
    """Answer each question of a file greedily with the run's merged model; 0.

    The output has JSON lines, one for each question in the order of the file: the row's own
    columns, `completion` and `answer` (what the answer block holds, or null). A column of the row
    with such a name becomes `source_completion`, `source_answer`. A question that is blank, or too
    long for the model, has an empty completion. Lines that are there already are kept and not done
    again, so a run that was interrupted goes on where it stopped; `<output>.made.json` has what
    made them. ValueError names what is wrong with either file.
    """
    environment.quiet()
    run, source, target = Run(parsed.run), Path(parsed.input), Path(parsed.output)
    if target.suffix.lower() != ".jsonl":
        raise ValueError(
            f"--output {target}: answers are written as JSON lines; name a .jsonl file."
        )
    maker = run.manifest.get("data", {}).get("notebook")
    if needs := {"10": "calls tools", "11": "reads pictures"}.get(maker):
        raise ValueError(
            f"run {run.name!r} is notebook {maker}'s: its policy {needs}, and generate has none."
        )
    merged = run.require("merged")
    if why := run.outdated("merged"):
        print(f"note: {why}", file=sys.stderr)
    # Plain TRL or not, the merged model is the same; only with Unsloth can vLLM be had.
    trained = run.section("training")["settings"]
    settings = for_sampling(trained, engine=parsed.engine, backend="unsloth")
    obstacle = parsed.engine == "vllm" and environment.vllm_obstacle(environment.this_machine())
    if obstacle:
        raise ValueError(f"--engine vllm: {obstacle}.")
    fmt = TagFormat.parse(run.section("data")["tags"])
    system = run.read_object("data_report.json")["system_prompt"]
    rows = _questions(source, check_columns(parsed.columns)["question"])
    tokens = settings.max_completion_length
    made = {
        "run": run.name,
        "model": weights_identity(merged),
        "system_prompt": system,
        "max_new_tokens": tokens,
        "temperature": 0.0,
    } | template_options(settings.thinking)
    done = _done(target, rows, made)
    if done == len(rows):
        print(f"{parsed.output} holds the answers already")
        return 0
    from transformers import AutoTokenizer

    from helpers.training.policy import sample

    tokenizer = AutoTokenizer.from_pretrained(merged)
    set_thinking(tokenizer, settings.thinking)  # as in the training
    prompts, longest = _prompts(rows, system, tokenizer, merged, tokens)
    # vLLM's context is fixed when it starts, so it is what the longest question needs.
    context = max(settings.context, longest + tokens)
    settings = replace(settings, model=str(merged), load_in_4bit=False, max_seq_length=context)
    model = _loaded(settings)
    with target.open("a", encoding="utf-8") as file:
        for start in range(done, len(rows), _BATCH):
            part = list(zip(rows, prompts, strict=True))[start : start + _BATCH]
            groups = sample(
                model,
                tokenizer,
                [prompt for _, prompt in part if prompt],
                max_new_tokens=tokens,
                temperature=0.0,
                progress=False,
            )
            for row, prompt in part:
                text = groups.pop(0)[0] if prompt else ""
                answered = row | {"completion": text, "answer": fmt.extract_answer(text)}
                file.write(json.dumps(answered, default=str) + "\n")
            file.flush()
            print(f"{start + len(part)} of {len(rows)}", flush=True)
    print(
        f"{len(rows) - done} answers written to {parsed.output}; blank or too long: "
        f"{prompts.count(None)} of {len(rows)} questions"
    )
    return 0


def _loaded(settings: Preset):
    """The merged model, ready to sample."""
    import torch

    from helpers.training import policy, vllm_cpu

    on_gpu = torch.cuda.is_available()
    if on_gpu and settings.engine == "vllm":
        model, _ = policy.load(settings)
    else:
        from transformers import AutoModelForCausalLM

        model = AutoModelForCausalLM.from_pretrained(
            settings.model_path, dtype="auto", device_map="cuda" if on_gpu else "cpu"
        )
    vllm_cpu.attach(model, settings)
    return model.eval()


def _prompts(
    rows: list[dict], system: str, tokenizer, merged: Path, tokens: int
) -> tuple[list, int]:
    """The prompt of each question, None for one that is blank or too long for the model, and the
    tokens of the longest. What is too long is named.

    tokens: the room that a completion needs.
    """
    from transformers import AutoConfig

    room = AutoConfig.from_pretrained(merged).get_text_config().max_position_embeddings - tokens
    prompts, longest = [], 0
    for number, row in enumerate(rows, 1):
        prompt = chat_prompt(system, row["question"])
        text = tokenizer.apply_chat_template(
            prompt, add_generation_prompt=True, tokenize=False, **options_of(tokenizer)
        )
        length = len(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
        if length > room:
            print(
                f"note: row {number} is not answered: the prompt has {length:,} tokens, and the "
                f"model has room for {room:,}: {shortened(row['question'], 60)}",
                file=sys.stderr,
            )
        else:
            longest = max(longest, length)
        prompts.append(prompt if length <= room and row["question"].strip() else None)
    return prompts, longest


def _questions(source: Path, column: str) -> list[dict]:
    """The rows, each as `_row` gives it."""
    rows = list(file_rows(source, {column}))
    for number, row in enumerate(rows, 1):
        if isinstance(row, Broken):
            raise ValueError(f"{source}: row {number} cannot be read: {row.reason} ({row.where}).")
    if not any(column in row for row in rows):
        has = shortened(", ".join(rows[0]), 500) if rows else "no rows"
        raise ValueError(
            f"{source}: no column {column!r}. It has: {has}. Name the column of the questions: "
            '--columns \'{"question": "…"}\'.'
        )
    return [_row(row, column) for row in rows]


def _row(row: dict, column: str) -> dict:
    """A row with its `question` as text, which may be empty, and its other columns. One that has
    the name of a column of the output gets `source_` in front.
    """
    values = {name: None if value != value else value for name, value in row.items()}  # no nan
    kept = {"question": str(values.pop(column, None) or "")}
    for name, value in values.items():
        while name in ("completion", "answer", *kept):
            name = f"source_{name}"
        kept[name] = value
    return kept


def _done(target: Path, rows: list[dict], made: dict) -> int:
    """How many answers the target holds already; a last line of ours that was cut off is taken
    away, and nothing else. A file beside it is written that says what makes them.

    ValueError where it holds anything but answers to the first of the questions, or where another
    run, model or prompt made them.
    """
    lines = target.read_text(encoding="utf-8").splitlines(True) if target.exists() else []
    cut = bool(lines) and lines[-1].startswith('{"') and not lines[-1].endswith("\n")
    whole = lines[:-1] if cut else lines
    try:
        answers = [json.loads(line) for line in whole]
        answered = [str(one["question"]) for one in answers if "completion" in one]
    except (ValueError, TypeError, KeyError):
        answered = None
    if answered != [str(row["question"]) for row in rows[: len(whole)]]:
        raise ValueError(
            f"--output {target} holds something other than answers to the first questions of the "
            "input: it is of another file, or was edited. Name another output."
        )
    record = target.with_suffix(".made.json")
    before = json.loads(record.read_text("utf-8")) if lines and record.exists() else made
    if why := arguments.changes(before, made):
        raise ValueError(
            f"--output {target} holds answers that were made otherwise: {'; '.join(why)}. Name "
            "another output."
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    write_json(record, made)
    if cut:
        target.write_text("".join(whole), encoding="utf-8")
    return len(whole)
