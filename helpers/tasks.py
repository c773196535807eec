"""Rows in, validated `prompt`/`answer` rows out: one function, `load_task`, from a source to a train and a holdout table.

A source is a name (`arithmetic/sums`, `reasoning-gym/leg_counting`, `openai/gsm8k`) or a path to a .csv, .jsonl or .parquet
file. Reading them is `sources.py`'s work; here the rows are checked, deduplicated, measured, split and reported.
No question is ever on both sides of the split.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from helpers.formats import THINK_ANSWER, TagFormat
from helpers.sources import STAND_INS, Broken, Unreachable, read_source

_GROUPED_NUMBER = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
_KEPT_EXAMPLES = 3  # dropped rows quoted in the report, for each reason


@dataclass(frozen=True)
class Task:
    """A task ready to train on.

    train, holdout: tables with the columns `prompt` (list of {role, content}), `question`, `answer` (str), then the source's
    own columns; a third column set aside by none: what the source gave, it keeps.
    report: what was read, dropped (and why), and how long the prompts are; JSON-ready.
    """

    train: pd.DataFrame
    holdout: pd.DataFrame
    report: dict


def load_task(
    source: str,
    *,
    train_size: int | None = None,
    holdout_size: int = 256,
    seed: int = 3407,
    tags: TagFormat = THINK_ANSWER,
    columns: dict[str, str] | None = None,
    system_prompt: str | None = None,
    count_tokens: Callable[[list[dict]], int] | None = None,
    max_prompt_tokens: int | None = None,
    stand_in: bool = False,
) -> Task:
    """Read a source and split it into rows to train on and rows to hold out.

    source: `arithmetic/<family>`, `reasoning-gym/<family>`, a hub data set `owner/name` (or `owner/name:config`), or a path.
    train_size, holdout_size: rows on each side; train_size None takes all there are (for a generated source, 1,000).
    columns: where the source keeps its `question` and `answer`, e.g. {"question": "problem", "answer": "solution"}.
    system_prompt: in place of the one that `tags` writes; the empty string leaves the system message out.
    count_tokens: tokens of one prompt (see `prompt_token_counter`); prompts over max_prompt_tokens are dropped, because
        TRL does not truncate them.
    stand_in: where the hub cannot be reached, take the source that can stand in for openai/gsm8k (`sources.STAND_INS`), and
        say so; `report["source"]` names what was read.

    Raises ValueError where the source cannot give the rows asked for; the message names the value and the way out.
    """
    for name, size, least in (("train_size", train_size, 1), ("holdout_size", holdout_size, 1)):
        if size is not None and (type(size) is not int or size < least):
            raise ValueError(f"{name}={size!r} is not a number of rows: give an integer of at least {least}.")
    if max_prompt_tokens is not None and count_tokens is None:
        raise ValueError("max_prompt_tokens needs count_tokens, to know how long a prompt is; see prompt_token_counter.")
    system = tags.system_prompt if system_prompt is None else system_prompt
    try:
        rows, report = _validated(read_source(source, columns, train_size, holdout_size, seed))
    except Unreachable as unreachable:
        if not stand_in or source not in STAND_INS:
            raise
        source = STAND_INS[source]
        try:
            rows, report = _validated(read_source(source, None, train_size, holdout_size, seed))
        except ValueError as error:
            raise ValueError(f"{unreachable} Nor can {source} stand in for it: {error}") from None
        print(f"{unreachable}\nTAKING {source} IN ITS PLACE: similar word problems, generated here; results are not GSM8K's.")
    for row in rows:
        row["prompt"] = _prompt(system, row["question"])
    rows = _within_limit(rows, report, count_tokens, max_prompt_tokens)
    if not rows:
        raise ValueError(f"{source}: no usable row. {_account(report)}")
    train, holdout = _split(rows, source, train_size, holdout_size, seed, report)
    report |= {
        "source": source,
        "seed": seed,
        "tags": tags.spec,
        "system_prompt": system,
        "rows_train": len(train),
        "rows_holdout": len(holdout),
        "fingerprint": fingerprint(train + holdout),
    }
    return Task(_table(train), _table(holdout), report)


def final_answer(answer: str) -> str:
    """The answer to be judged: what follows GSM8K's last `####`, thousands separators removed; otherwise the text itself.

    >>> final_answer("He pays 2 * 617 = <<2*617=1234>>1234 dollars. #### 1,234")
    '1234'
    """
    _, marker, tail = answer.rpartition("####")
    answer = tail.strip()
    if marker and _GROUPED_NUMBER.fullmatch(answer):
        answer = answer.replace(",", "")
    return answer


def fingerprint(rows: Iterable[dict]) -> str:
    """SHA-256 over the questions and answers, in order: two runs with the same value used the same data."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(f"{row['question']}\x1f{row['answer']}\x1e".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def prompt_token_counter(model: str) -> Callable[[list[dict]], int]:
    """A function from chat messages to the number of tokens the model will see, without importing torch.

    model: a folder, or a hub name, whose tokenizer.json and chat template are read. The template is rendered by
    Transformers' own renderer, the tokens counted by the same Rust tokenizer that training uses.
    """
    from tokenizers import Tokenizer
    from transformers.utils.chat_template_utils import render_jinja_template

    from helpers.sources import model_files

    tokenizer_file, template, special_tokens = model_files(model)
    tokenizer = Tokenizer.from_file(str(tokenizer_file))

    def count(messages: list[dict]) -> int:
        rendered, _ = render_jinja_template([messages], chat_template=template, add_generation_prompt=True, **special_tokens)
        return len(tokenizer.encode(rendered[0], add_special_tokens=False).ids)

    return count


def _validated(source_rows: Iterable[dict | Broken]) -> tuple[list[dict], dict]:
    """Rows with a question and an answer, each question once; and the account of all the others."""
    kept: dict[str, dict] = {}
    read, dropped, examples = 0, Counter(), {}

    def drop(reason: str, example: object) -> None:
        dropped[reason] += 1
        if len(examples.setdefault(reason, [])) < _KEPT_EXAMPLES:
            examples[reason].append(str(example)[:200])

    for read, row in enumerate(source_rows, 1):
        if isinstance(row, Broken):
            drop(row.reason, row.where)
            continue
        problem = _clean(row)
        if problem:
            drop(problem, f"row {read}: {row.get('question')!r} -> {row.get('answer')!r}")
            continue
        key = " ".join(row["question"].split()).casefold()
        if key not in kept:
            kept[key] = row
        elif kept[key]["answer"] == row["answer"]:
            drop("duplicate question", row["question"])
        else:
            drop("duplicate question with another answer", f"{row['question']} -> {kept[key]['answer']} / {row['answer']}")
    return list(kept.values()), {"rows_read": read, "dropped": dict(dropped), "dropped_examples": examples}


def _clean(row: dict) -> str | None:
    """Make question and answer stripped strings in place; the reason where one of them cannot be."""
    for name in ("question", "answer"):
        value = row[name]
        if isinstance(value, float) and np.isnan(value):
            value = None
        if value is None or (isinstance(value, str) and not value.strip()):
            return f"{name} is blank"
        if not isinstance(value, (str, int, float)):
            return f"{name} is a {type(value).__name__}, not text"
        if not str(value).isascii() and any("\ud800" <= character <= "\udfff" for character in str(value)):
            return f"{name} has a lone surrogate, which is no text"
        row[name] = str(value).strip()
    row["answer"] = final_answer(row["answer"])
    if not row["answer"]:
        return "nothing after ####"
    return None


def _prompt(system: str, question: str) -> list[dict]:
    user = {"role": "user", "content": question}
    return [{"role": "system", "content": system}, user] if system else [user]


def _within_limit(rows: list[dict], report: dict, count_tokens, limit: int | None) -> list[dict]:
    if count_tokens is None:
        return rows
    lengths = np.array([count_tokens(row["prompt"]) for row in rows])
    if not len(lengths):
        return rows
    levels = {"min": 0, "p50": 50, "p90": 90, "p99": 99, "max": 100}
    report["prompt_tokens"] = {name: int(np.percentile(lengths, level)) for name, level in levels.items()}
    if limit is None:
        return rows
    too_long = int((lengths > limit).sum())
    if too_long:
        report["dropped"][f"prompt over {limit} tokens"] = too_long
    return [row for row, length in zip(rows, lengths, strict=True) if length <= limit]


def _split(rows, source, train_size, holdout_size, seed, report) -> tuple[list[dict], list[dict]]:
    """The source's own split where it has one; otherwise the holdout is drawn by a seeded hash of the question.

    A hash rather than a shuffle: the same rows give the same split, in whatever order the file holds them.
    """

    def order(row: dict) -> bytes:
        return hashlib.sha256(f"{seed}\x1f{row['question']}".encode("utf-8", "surrogatepass")).digest()

    rows = sorted(rows, key=order)
    if any("split" in row for row in rows):
        train = [row for row in rows if row.get("split") != "holdout"]
        holdout = [row for row in rows if row.get("split") == "holdout"][:holdout_size]
    else:
        holdout, train = rows[:holdout_size], rows[holdout_size:]
    train = train[:train_size]
    wanted = train_size or 1
    if len(train) < wanted or len(holdout) < holdout_size:
        raise ValueError(
            f"{source}: {len(rows)} usable rows give {len(train)} to train on and {len(holdout)} to hold out, but "
            f"train_size={train_size} and holdout_size={holdout_size} were asked for. {_way_out(len(rows))} {_account(report)}"
        )
    for row in train + holdout:
        row.pop("split", None)
    return train, holdout


def _way_out(rows: int) -> str:
    if rows < 2:
        return "Bring more rows."
    holdout = max(1, rows // 5)
    return f"Bring more rows, or ask for fewer: train_size={rows - holdout} and holdout_size={holdout}, for example."


def _account(report: dict) -> str:
    reasons = ", ".join(f"{count} with {reason}" for reason, count in report["dropped"].items()) or "none"
    return f"Read {report['rows_read']}, dropped: {reasons}."


def _table(rows: list[dict]) -> pd.DataFrame:
    table = pd.DataFrame(rows)
    first = ["prompt", "question", "answer"]
    return table[first + [column for column in table.columns if column not in first]]
