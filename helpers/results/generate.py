"""A file of questions answered by a run's merged model, resumably."""

from __future__ import annotations

import json
from pathlib import Path

from helpers.data.sources import Broken, file_rows
from helpers.formats import TagFormat
from helpers.presets import from_manifest
from helpers.runs import Run

_BATCH = 64  # questions between two writes


def answer_file(
    run: Run, source: Path, target: Path, *, temperature: float = 0.0, batch_size: int | None = None, seed: int = 3407
) -> int:
    """Answer each `question` of a file with the run's merged model; returns how many answers were written now.

    target: JSON lines, one for each question in the order of the file: the row's own columns, `completion` and `answer` (what
    the answer block holds, or null). Lines that are there already are kept and not done again, so a run that was interrupted
    goes on where it stopped. ValueError names what is wrong with either file.
    """
    merged = run.require("merged")
    settings, data = from_manifest(run.section("training")["settings"]), run.section("data")
    rows = _questions(source)
    done = _done(target, rows)
    if done == len(rows):
        return 0
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from helpers.training.policy import sample

    fmt = TagFormat.parse(data["tags"])
    system = json.loads(run.require("data_report.json").read_text(encoding="utf-8"))["system_prompt"]
    model = AutoModelForCausalLM.from_pretrained(
        merged, dtype="auto", device_map="cuda" if torch.cuda.is_available() else "cpu"
    )
    tokenizer = AutoTokenizer.from_pretrained(merged)
    limits = {"max_new_tokens": settings.max_completion_length, "temperature": temperature, "batch_size": batch_size}
    with target.open("a", encoding="utf-8") as file:
        for start in range(done, len(rows), _BATCH):
            some = rows[start : start + _BATCH]
            prompts = [_prompt(system, str(row["question"])) for row in some]
            groups = sample(model.eval(), tokenizer, prompts, seed=seed + start, progress=False, **limits)
            for row, (text,) in zip(some, groups, strict=True):
                file.write(json.dumps(row | {"completion": text, "answer": fmt.extract_answer(text)}, default=str) + "\n")
            file.flush()
            print(f"{start + len(some)} of {len(rows)}", flush=True)
    return len(rows) - done


def _prompt(system: str, question: str) -> list[dict]:
    user = {"role": "user", "content": question}
    return [{"role": "system", "content": system}, user] if system else [user]


def _questions(source: Path) -> list[dict]:
    rows = []
    for number, row in enumerate(file_rows(source), 1):
        if isinstance(row, Broken) or not str(row.get("question") or "").strip():
            what = f"{row.reason} ({row.where})" if isinstance(row, Broken) else "it has no question"
            raise ValueError(f"{source}: row {number} cannot be answered: {what}. Every row needs a column 'question'.")
        rows.append(row)
    if not rows:
        raise ValueError(f"{source}: there is no question in it.")
    return rows


def _done(target: Path, rows: list[dict]) -> int:
    """How many answers the target holds already; a last line that was cut off is taken away."""
    if target.suffix.lower() != ".jsonl":
        raise ValueError(f"--output {target}: answers are written as JSON lines; name a .jsonl file.")
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        return 0
    kept = []
    for line in target.read_bytes().splitlines(keepends=True):
        try:
            answered = json.loads(line)
        except ValueError:
            break
        number = len(kept)
        if not line.endswith(b"\n") or number >= len(rows) or answered.get("question") != json.loads(_plain(rows[number])):
            break
        kept.append(line)
    rest = target.read_bytes()[sum(map(len, kept)) :]
    if rest.count(b"\n"):
        raise ValueError(
            f"--output {target}: line {len(kept) + 1} does not answer question {len(kept) + 1} of the input. It is of another "
            "file, or was edited: name another output."
        )
    target.write_bytes(b"".join(kept))
    return len(kept)


def _plain(row: dict) -> str:
    return json.dumps(row["question"], default=str)
