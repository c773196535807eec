"""A file of questions answered by a run's merged model, resumably."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

from helpers.data.files import regular_file, shortened
from helpers.data.sources import Broken, file_rows
from helpers.environment import this_machine, vllm_obstacle
from helpers.presets import Preset, for_sampling
from helpers.runs import Run
from helpers.tags import TagFormat

_BATCH = 64  # questions between two writes
_HOTTEST = 10.0  # the highest temperature that a preset may have


def answer_file(
    run: Run,
    source: Path,
    target: Path,
    *,
    temperature: float = 0.0,
    batch_size: int | None = None,
    seed: int = 3407,
    engine: str = "transformers",
) -> int:
    """Answer each `question` of a file with the run's merged model; returns how many answers were
    written now.

    target: JSON lines, one for each question in the order of the file: the row's own columns,
    `completion` and `answer` (what the answer block holds, or null). Lines that are there already
    are kept and not done again, so a run that was interrupted goes on where it stopped. engine:
    "transformers" or "vllm". ValueError names what is wrong with either file.
    """
    _check(source, target, temperature, batch_size)
    merged = run.require("merged")
    if why := run.outdated("merged"):
        print(f"note: {why}", file=sys.stderr)
    training, data = run.section("training"), run.section("data")
    # Plain TRL or not, the merged model is the same; only with Unsloth can vLLM be had.
    settings = for_sampling(
        _needed(run, "manifest.json", training, "settings"), engine=engine, backend="unsloth"
    )
    if engine == "vllm" and (obstacle := vllm_obstacle(this_machine())):
        raise ValueError(f"--engine vllm: {obstacle}.")
    fmt = TagFormat.parse(_needed(run, "manifest.json", data, "tags"))
    system = _needed(
        run,
        "data_report.json",
        run.read_object("data_report.json"),
        "system_prompt",
    )
    rows = _questions(source)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.open("ab").close()
    except OSError as error:
        raise ValueError(f"--output {target} cannot be written ({error.strerror}).") from None
    done = _done(target, rows)
    if done == len(rows):
        return 0
    from helpers.training import vllm_cpu
    from helpers.training.policy import sample

    settings = replace(settings, model=str(merged), load_in_4bit=False)
    model, tokenizer = _loaded(run, settings)
    if settings.engine == "vllm":
        # Its context is fixed when it starts, so it is what the longest question needs.
        texts = [
            tokenizer.apply_chat_template(_prompt(system, str(row["question"])), tokenize=False)
            for row in rows
        ]
        # what opens the answer
        longest = max(len(tokenizer(text)["input_ids"]) for text in texts) + 8
        needed = longest + settings.max_completion_length
        vllm_cpu.attach(model, replace(settings, max_seq_length=max(settings.context, needed)))
    limits = {
        "max_new_tokens": settings.max_completion_length,
        "temperature": temperature,
        "batch_size": batch_size,
    }
    with target.open("a", encoding="utf-8") as file:
        for start in range(done, len(rows), _BATCH):
            some = rows[start : start + _BATCH]
            prompts = [_prompt(system, str(row["question"])) for row in some]
            groups = sample(
                model.eval(), tokenizer, prompts, seed=seed + start, progress=False, **limits
            )
            for row, (text,) in zip(some, groups, strict=True):
                file.write(
                    json.dumps(
                        row | {"completion": text, "answer": fmt.extract_answer(text)}, default=str
                    )
                    + "\n"
                )
            file.flush()
            print(f"{start + len(some)} of {len(rows)}", flush=True)
    return len(rows) - done


def _check(source: Path, target: Path, temperature: float, batch_size: int | None) -> None:
    if not 0 <= temperature <= _HOTTEST:  # false for nan too
        raise ValueError(
            f"--temperature {temperature}: give a number from 0, which is greedy decoding, to "
            f"{_HOTTEST:g}."
        )
    if batch_size is not None and (type(batch_size) is not int or batch_size < 1):
        raise ValueError(f"--batch-size {batch_size}: give an integer of at least 1.")
    if target.suffix.lower() != ".jsonl":
        raise ValueError(
            f"--output {shortened(target)}: answers are written as JSON lines; name a .jsonl file."
        )
    regular_file(source)
    try:
        if target.exists():
            regular_file(target)
            if target.samefile(source):
                raise ValueError(f"--output {target} is the input itself: name another file.")
    except OSError as error:
        raise ValueError(
            f"--output {shortened(target)}: there can be no such file ({error.strerror})."
        ) from None


def _needed(run: Run, file: str, content: dict, name: str):
    if name not in content:
        raise ValueError(
            f"{run.show(file)} is damaged: it has no {name}. Run the notebooks again: see `python "
            "-m helpers run`."
        )
    return content[name]


def _loaded(run: Run, settings: Preset):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from helpers.training import policy

    on_gpu, merged = torch.cuda.is_available(), settings.model_path
    try:
        if on_gpu and settings.engine == "vllm":
            return policy.load(settings)
        model = AutoModelForCausalLM.from_pretrained(
            merged, dtype="auto", device_map="cuda" if on_gpu else "cpu"
        )
        return model, AutoTokenizer.from_pretrained(merged)
    except Exception as error:  # whatever damaged files provoke in three libraries
        said = f"{type(error).__name__}: {shortened(str(error).strip().partition(chr(10))[0], 200)}"
        raise ValueError(
            f"{run.show('merged')} cannot be loaded ({said}). Run notebook 05_merge_and_inference "
            "again: "
            f"`python -m helpers run --run {run.name} --only 05`."
        ) from None


def _prompt(system: str, question: str) -> list[dict]:
    user = {"role": "user", "content": question}
    return [{"role": "system", "content": system}, user] if system else [user]


def _questions(source: Path) -> list[dict]:
    rows = []
    for number, row in enumerate(file_rows(source), 1):
        if isinstance(row, Broken) or not str(row.get("question") or "").strip():
            what = (
                f"{row.reason} ({row.where})" if isinstance(row, Broken) else "it has no question"
            )
            raise ValueError(
                f"{source}: row {number} cannot be answered: {what}. Every row needs a column "
                "'question'."
            )
        rows.append(row)
    if not rows:
        raise ValueError(f"{source}: there is no question in it.")
    return rows


def _done(target: Path, rows: list[dict]) -> int:
    """How many answers the target holds already; a last line of ours that was cut off is taken
    away, and nothing else.
    """
    kept = []
    lines = target.read_bytes().splitlines(keepends=True)
    for line, row in zip(lines, rows, strict=False):
        if not line.endswith(b"\n") or not _answers(line, row):
            break
        kept.append(line)
    rest = b"".join(lines[len(kept) :])
    if rest and (len(kept) == len(rows) or not _cut_off(rest, rows[len(kept)])):
        raise ValueError(
            f"--output {target}: line {len(kept) + 1} does not answer question {len(kept) + 1} of "
            "the input. It is of another "
            "file, or was edited: name another output."
        )
    if rest:
        target.write_bytes(b"".join(kept))
    return len(kept)


def _answers(line: bytes, row: dict) -> bool:
    """Whether a whole line is an answer of ours to this row."""
    try:
        answered = json.loads(line)
    except (ValueError, RecursionError):
        return False
    own = json.loads(json.dumps(row | {"completion": "", "answer": None}, default=str))
    return (
        isinstance(answered, dict)
        and answered.keys() == own.keys()
        and isinstance(answered["completion"], str)
        and all(answered[name] == own[name] for name in own.keys() - {"completion", "answer"})
    )


def _cut_off(rest: bytes, row: dict) -> bool:
    """Whether this is the beginning of the line that answers the row, as far as it does not depend
    on the model.
    """
    line = json.dumps(row | {"completion": ""}, default=str).encode()
    known = line[: line.index(b'"completion": "') + len(b'"completion": "')]
    return b"\n" not in rest and (known.startswith(rest) or rest.startswith(known))
