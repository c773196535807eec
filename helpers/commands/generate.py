"""`python -m helpers generate`: a file of questions answered by a run's merged model, resumably."""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

from helpers import environment
from helpers.data.files import Broken, file_rows
from helpers.data.tasks import chat_prompt
from helpers.presets import Preset, for_sampling
from helpers.runs import Run
from helpers.tags import TagFormat

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
    """Answer each `question` of a file greedily with the run's merged model; 0.

    The output has JSON lines, one for each question in the order of the file: the row's own
    columns, `completion` and `answer` (what the answer block holds, or null). Lines that are there
    already are kept and not done again, so a run that was interrupted goes on where it stopped.
    ValueError names what is wrong with either file.
    """
    environment.quiet()
    run, source, target = Run(parsed.run), Path(parsed.input), Path(parsed.output)
    if target.suffix.lower() != ".jsonl":
        raise ValueError(
            f"--output {target}: answers are written as JSON lines; name a .jsonl file."
        )
    merged = run.require("merged")
    if why := run.outdated("merged"):
        print(f"note: {why}", file=sys.stderr)
    # Plain TRL or not, the merged model is the same; only with Unsloth can vLLM be had.
    trained = run.section("training")["settings"]
    settings = for_sampling(trained, engine=parsed.engine, backend="unsloth")
    machine = environment.this_machine()
    if parsed.engine == "vllm" and (obstacle := environment.vllm_obstacle(machine)):
        raise ValueError(f"--engine vllm: {obstacle}.")
    fmt = TagFormat.parse(run.section("data")["tags"])
    system = run.read_object("data_report.json")["system_prompt"]
    rows = _questions(source)
    done = _done(target, rows)
    if done == len(rows):
        print(f"{parsed.output} holds the answers already")
        return 0
    from helpers.training.policy import sample

    prompts = [chat_prompt(system, str(row["question"])) for row in rows]
    settings = replace(settings, model=str(merged), load_in_4bit=False)
    model, tokenizer = _loaded(settings, prompts)
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("a", encoding="utf-8") as file:
        for start in range(done, len(rows), _BATCH):
            end = min(start + _BATCH, len(rows))
            groups = sample(
                model,
                tokenizer,
                prompts[start:end],
                max_new_tokens=settings.max_completion_length,
                temperature=0.0,
                progress=False,
            )
            for row, (text,) in zip(rows[start:end], groups, strict=True):
                answered = row | {"completion": text, "answer": fmt.extract_answer(text)}
                file.write(json.dumps(answered, default=str) + "\n")
            file.flush()
            print(f"{end} of {len(rows)}", flush=True)
    print(f"{len(rows) - done} answers written to {parsed.output}")
    return 0


def _loaded(settings: Preset, prompts: list[list[dict]]) -> tuple:
    """The merged model, ready to sample, and its tokenizer."""
    import torch

    from helpers.training import policy, vllm_cpu

    on_gpu = torch.cuda.is_available()
    if on_gpu and settings.engine == "vllm":
        model, tokenizer = policy.load(settings)
    else:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        path = settings.model_path
        tokenizer = AutoTokenizer.from_pretrained(path)
        model = AutoModelForCausalLM.from_pretrained(
            path, dtype="auto", device_map="cuda" if on_gpu else "cpu"
        )
    if settings.engine == "vllm":
        # vLLM's context is fixed when it starts, so it is what the longest question needs.
        texts = [tokenizer.apply_chat_template(prompt, tokenize=False) for prompt in prompts]
        # 8: what opens the answer
        longest = max(len(tokenizer(text)["input_ids"]) for text in texts) + 8
        needed = longest + settings.max_completion_length
        vllm_cpu.attach(model, replace(settings, max_seq_length=max(settings.context, needed)))
    return model.eval(), tokenizer


def _questions(source: Path) -> list[dict]:
    rows = list(file_rows(source))
    for number, row in enumerate(rows, 1):
        if isinstance(row, Broken) or not str(row.get("question") or "").strip():
            why = f"{row.reason} ({row.where})" if isinstance(row, Broken) else "it has no question"
            raise ValueError(
                f"{source}: row {number} cannot be answered: {why}. Every row needs a column "
                "'question'."
            )
    if not rows:
        raise ValueError(f"{source}: there is no question in it.")
    return rows


def _done(target: Path, rows: list[dict]) -> int:
    """How many answers the target holds already; a last line of ours that was cut off is taken
    away, and nothing else.

    ValueError where it holds anything but answers to the first of the questions.
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
    if cut:
        target.write_text("".join(whole), encoding="utf-8")
    return len(whole)
