"""Rows in, validated `prompt`/`answer` rows out: one function, `load_task`, from a source to a
train and a holdout table.

A source is a name (`arithmetic/sums`, `reasoning-gym/leg_counting`, `openai/gsm8k`) or a path to a
.csv, .jsonl or .parquet file. `sources.py` reads them; here the rows are checked, deduplicated,
measured, split and reported. No question is ever on both sides of the split, and no picture. All
usable rows are in memory while they are split, with their pictures.
"""

import hashlib
import io
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image
from PIL.ExifTags import Base as Exif

from helpers.data.files import Broken, shortened
from helpers.data.pictures import DEEP, seen
from helpers.data.sources import hub_failure, read_source
from helpers.presets import Preset
from helpers.runs import TRAINING_LOCK, Run, atomic_write, held, write_json
from helpers.tags import THINK_ANSWER, TagFormat
from helpers.templates import template_options

# Rows to train on without a train_size: some twenty times what 300 steps of 16 questions see, in
# memory that any machine has.
MOST_TRAINED = 100_000
HELD_OUT = 256  # without a holdout_size
_MISSING = {"nan", "none", "n/a", "-"}  # what tables write for a missing value
_ANY_TEXT = {"text", "exact"}  # kinds, by name, of which these are answers


@dataclass(frozen=True)
class Task:
    """A task ready to train on.

    train, holdout: tables with the columns `prompt` (list of {role, content}), `question`, `answer`
        (str), `image` (the bytes of a file) if there are pictures, and the source's own columns, as
        far as Parquet can store them.
    report: what was read, dropped (rows and columns, and why), and how long the prompts are;
        JSON-ready.
    """

    train: pd.DataFrame
    holdout: pd.DataFrame
    report: dict

    @property
    def line(self) -> str:
        """How many rows there are, in one line, which `python -m helpers run` prints, too."""
        read, dropped, unused = map(self.report.get, ("rows_read", "dropped", "rows_unused"))
        smaller = self.report.get("pictures", {}).get("made_smaller")
        return (
            f"data: {read - sum(dropped.values()):,} of {read:,} rows usable (dropped: "
            f"{_counted(dropped)}); {len(self.train):,} to train on, {len(self.holdout):,} held out"
            + (f", {unused:,} unused (train_size takes more)" if unused else "")
            + (f"; {smaller:,} pictures made smaller (max_pixels)" if smaller else "")
        )


def load_task(
    source: str,
    *,
    train_size: int | None = None,
    holdout_size: int | None = None,
    seed: int = 3407,
    tags: TagFormat = THINK_ANSWER,
    columns: dict[str, str] | None = None,
    system_prompt: str | None = None,
    count_tokens: Callable[[list[dict] | str], int] | None = None,
    max_prompt_tokens: int | None = None,
    max_completion_tokens: int | None = None,
    kind: str | None = None,
    max_pixels: int = Preset.max_pixels,
) -> Task:
    """Read a source and split it into rows to train on and rows to hold out.

    source: `arithmetic/<family>`, `reasoning-gym/<family>`, a hub data set `owner/name` (or
        `owner/name:config`), or a path.
    train_size, holdout_size: rows on each side. train_size None takes all up to MOST_TRAINED (for
        a generated source, 1,000). holdout_size None takes HELD_OUT, but at most a quarter of the
        usable rows unless the source has a split of its own.
    columns: the source's names of `question` and `answer`, e.g. {"question": "problem", "answer":
        "solution"}. With `image` it names the column of the pictures, each a path
        relative to the file or folder, or the bytes of a file that Pillow opens. A row is then a
        picture and a question; the rows of one picture are all on one side of the split.
    system_prompt: replaces the one of `tags`; the empty string leaves the system message out.
    count_tokens: tokens of one prompt or of one text (see `prompt_token_counter`). Prompts over
        max_prompt_tokens are dropped, because TRL does not truncate them; so are answers that,
        rendered in `tags` without any reasoning, are over max_completion_tokens, because no
        completion could give them. Only rows that may be used are measured.
    kind: how all answers are judged, one of `rewards.answers.kinds.KINDS`; written to a column
        `kind`, which correctness_reward reads. Without it an answer is a number, mathematics or
        text. NaN, None, N/A and - are missing values, unless the kind is text or exact.
    max_pixels: a picture with more is made smaller, in its proportions; the report counts these,
        and the rows whose picture another row has, too.

    ValueError if the source cannot give these rows; it names the value and the way out.
    """
    if count_tokens is None and (max_prompt_tokens or max_completion_tokens):
        raise ValueError(
            "max_prompt_tokens and max_completion_tokens need count_tokens, to know how long a "
            "text is; see prompt_token_counter."
        )
    system = tags.system_prompt if system_prompt is None else system_prompt
    prompt_lengths: list[int] = []

    def too_long(row: dict) -> str | None:
        """The limit that a row exceeds; None if it fits."""
        if count_tokens is None:
            return None
        prompt_lengths.append(count_tokens(chat_prompt(system, row["question"])))
        if max_prompt_tokens is not None and prompt_lengths[-1] > max_prompt_tokens:
            return f"prompt over {max_prompt_tokens} tokens"
        shortest = tags.render("", row["answer"])
        if max_completion_tokens is not None and count_tokens(shortest) > max_completion_tokens:
            return f"answer over {max_completion_tokens} tokens"
        return None

    account = _Account()
    read = read_source(source, columns, train_size, holdout_size or HELD_OUT, seed)
    folder = Path(source) if Path(source).is_dir() else Path(source).parent
    rows = _validated(read, account, kind, folder, max_pixels)
    sizes = {"train_size": train_size, "holdout_size": holdout_size, "seed": seed}
    train, holdout = _drawn(source, rows, too_long, account, **sizes)
    shown = Counter(row["pixels"] for row in train + holdout if "pixels" in row)
    for row in train + holdout:
        row.pop("split", None)
        row.pop("pixels", None)
        row["prompt"] = chat_prompt(system, row["question"])
        if kind:
            row["kind"] = kind
    table, columns_dropped = _table(train + holdout)
    report = {
        "rows_read": account.read,
        "dropped": dict(account.dropped),
        "dropped_examples": account.examples,
        "source": source,
        "seed": seed,
        "tags": tags.spec,
        "system_prompt": system,
        "rows_unused": account.usable - len(train) - len(holdout),
        "rows_train": len(train),
        "rows_holdout": len(holdout),
        "fingerprint": fingerprint(train + holdout),
    }
    if shown:
        repeated = shown.total() - len(shown)
        report["pictures"] = {"distinct": len(shown), "repeated": repeated}
        report["pictures"]["made_smaller"] = account.made_smaller
    if prompt_lengths:
        levels = {"min": 0, "p50": 50, "p90": 90, "p99": 99, "max": 100}
        report["prompt_tokens"] = {
            name: int(np.percentile(prompt_lengths, level)) for name, level in levels.items()
        }
        report["rows_measured"] = len(prompt_lengths)
    if columns_dropped:
        report["columns_dropped"] = columns_dropped
    return Task(table[: len(train)], table[len(train) :].reset_index(drop=True), report)


def save(run: Run, task: Task, settings: Preset) -> None:
    """Write a task into the run folder: both tables, `data_report.json`, and the manifest's
    section `data`.

    ValueError, before anything is written, while another process trains this run.
    """
    with held(run.folder, f"the training of run {run.name!r}", TRAINING_LOCK):
        for name, table in (("train", task.train), ("holdout", task.holdout)):
            with atomic_write(run.path(f"data/{name}.parquet")) as temporary:
                table.to_parquet(temporary, index=False)
        write_json(run.path("data_report.json"), task.report)
        run.record(
            "data",
            settings=asdict(settings),
            **{name: task.report[name] for name in ("seed", "source", "tags", "fingerprint")},
        )


def final_answer(answer: str) -> str:
    """The answer to be judged: what follows GSM8K's last `####`, without thousands separators, or
    else the whole text.

    >>> final_answer("He pays 2 * 617 = <<2*617=1234>>1234 dollars. #### 1,234")
    '1234'
    """
    _, marker, tail = answer.rpartition("####")
    answer = tail.strip()
    if marker and re.fullmatch(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?", answer):
        answer = answer.replace(",", "")
    return answer


def fingerprint(rows: Iterable[dict]) -> str:
    """SHA-256 over the questions and answers, in order: the same in two runs on the same data."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(f"{row['question']}\x1f{row['answer']}\x1e".encode() + row.get("image", b""))
    return digest.hexdigest()


def prompt_token_counter(
    model: str, thinking: bool | None = None
) -> Callable[[list[dict] | str], int]:
    """Return a function that counts the tokens of chat messages as the model will see them, or of
    a text without a template: the length of a completion.

    model: a folder or hub name, whose tokenizer and chat template are used. thinking: the setting,
    which the template is told. ValueError if there is no such model, or no chat template.
    """
    from transformers import AutoTokenizer  # imports torch, which not everything here needs

    try:
        tokenizer = AutoTokenizer.from_pretrained(model)
    except (OSError, ValueError) as error:
        raise ValueError(hub_failure(f"the tokenizer of {model!r}", error)) from None
    if tokenizer.chat_template is None:
        raise ValueError(
            f"{model} has no chat template. GRPO here needs a chat model: take its -Instruct "
            "variant."
        )

    def count(messages: list[dict] | str) -> int:
        text = messages
        if not isinstance(messages, str):
            text = tokenizer.apply_chat_template(
                messages, add_generation_prompt=True, tokenize=False, **template_options(thinking)
            )
        # verbose: it would warn of a text that is longer than the model's context
        return len(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    return count


def chat_prompt(system: str, question: str) -> list[dict]:
    """The messages that ask a question; an empty system prompt is left out."""
    user = {"role": "user", "content": question}
    return [{"role": "system", "content": system}, user] if system else [user]


class _Account:
    """How many rows of a source were read, and which were dropped for what."""

    def __init__(self):
        self.read, self.dropped, self.examples, self.made_smaller = 0, Counter(), {}, 0

    def drop(self, reason: str, example: object) -> None:
        self.dropped[reason] += 1
        if len(self.examples.setdefault(reason, [])) < 3:
            self.examples[reason].append(str(example)[:200])

    @property
    def usable(self) -> int:
        return self.read - self.dropped.total()


def _counted(dropped: dict[str, int]) -> str:
    return ", ".join(f"{count:,} × {reason}" for reason, count in dropped.items()) or "none"


def _drawn(
    source: str,
    rows: Iterable[dict],
    too_long: Callable[[dict], str | None],
    account: _Account,
    *,
    train_size: int | None,
    holdout_size: int | None,
    seed: int,
) -> tuple[list[dict], list[dict]]:
    """The source's own split, or else one by a seeded hash of the question, or of the picture.

    A hash rather than a shuffle: the same rows give the same split in any order. Only as many rows
    are measured as are needed; of rows with pictures all, because those are dropped whose picture
    is held out.
    """

    def order(row: dict) -> tuple[bytes, bytes]:
        def drawn(about: bytes) -> bytes:
            return hashlib.sha256(f"{seed}\x1f".encode() + about).digest()

        one = drawn(row["pixels"]) if "pixels" in row and "split" not in row else b""
        return one, drawn(row["question"].encode() + row.get("image", b""))

    most, held_out = train_size or MOST_TRAINED, holdout_size or HELD_OUT
    sizes = {"train": most, "holdout": held_out, None: most + held_out}
    kept = {split: [] for split in sizes}
    for row in sorted(rows, key=order):
        split = row.get("split")
        if len(kept[split]) >= sizes[split] and "pixels" not in row:
            continue
        if limit := too_long(row):
            account.drop(limit, f"{row['question']} -> {row['answer']}")
        else:
            kept[split].append(row)
    if holdout_size is None and not kept["holdout"]:
        held_out = max(1, min(held_out, account.usable // 4, account.usable - (train_size or 0)))
    holdout = (kept["holdout"] or kept[None])[:held_out]
    train = []
    held = {row["pixels"] for row in holdout if "pixels" in row}
    for row in kept["train"] or kept[None][held_out:]:
        if row.get("pixels") in held:
            account.drop("picture is held out, too", row["question"])
        else:
            train.append(row)
    train = train[:most]
    if len(train) < (train_size or 1) or len(holdout) < (holdout_size or 1):
        such = ""
        if account.dropped:
            reason = max(account.dropped, key=account.dropped.get)
            such = f". For example, {reason}: {account.examples[reason][0]}"
        raise ValueError(
            f"{source}: {account.usable} usable rows give {len(train)} to train on and "
            f"{len(holdout)} to hold out, but train_size={train_size} and "
            f"holdout_size={holdout_size} were asked for. Bring more rows, or ask for fewer. "
            f"Read {account.read}, dropped: {_counted(account.dropped)}{such}."
        )
    return train, holdout


def _validated(
    source_rows: Iterable[dict | Broken],
    account: _Account,
    kind: str | None,
    folder: Path,
    max_pixels: int,
) -> list[dict]:
    """Rows with a question and its one answer, each once; the account has all the others."""
    # the rows of each question, by its hash, each with its number in the source
    alike: dict[int, list[tuple[int, dict]]] = {}
    for account.read, row in enumerate(source_rows, 1):
        if isinstance(row, Broken):
            account.drop(row.reason, row.where)
        elif problem := _clean(row, kind) or _seen(row, folder, max_pixels, account):
            picture = f" ({row['image']})" if isinstance(row.get("image"), str) else ""
            account.drop(
                problem,
                f"row {account.read}{picture}: {row.get('question')!r} -> {row.get('answer')!r}",
            )
        else:
            # One question in two Unicode forms, or with a character that nobody sees, is one.
            question = row["question"]
            if not question.isascii():
                question = unicodedata.normalize("NFKC", question)
                question = "".join(c for c in question if unicodedata.category(c) != "Cf")
            key = hash((" ".join(question.split()).casefold(), row.get("pixels")))
            alike.setdefault(key, []).append((account.read, row))
    kept = []
    for group in alike.values():
        _, first = group[0]
        if all(row["answer"] == first["answer"] for _, row in group):
            kept.append(first)
            for number, row in group[1:]:
                account.drop("duplicate question", f"row {number}: {row['question']}")
        else:  # nobody knows which is right
            for number, row in group:
                account.drop(
                    "question with two answers",
                    f"row {number}: {row['question']} -> {row['answer']}",
                )
    return kept


def _clean(row: dict, kind: str | None) -> str | None:
    """Make question and answer stripped strings in place; the reason if one of them cannot be."""
    for name in ("question", "answer"):
        value = row[name]
        if not isinstance(value, (str, int, float, type(None))):
            return f"{name} is a {type(value).__name__}, not text"
        if pd.isna(value) or not str(value).strip():
            return f"{name} is blank"
        if re.search("[\ud800-\udfff]", str(value)):  # from a JSON file; no tokenizer takes it
            return f"{name} has a lone surrogate, which is no text"
        row[name] = str(value).strip()
    row["answer"] = final_answer(row["answer"])
    if not row["answer"]:
        return "nothing after ####"
    missing = [name for name in ("question", "answer") if row[name].casefold() in _MISSING]
    if missing and (kind or row.get("kind")) not in _ANY_TEXT:
        return f"{missing[0]} is a missing value"
    return None


def _seen(row: dict, folder: Path, max_pixels: int, account: _Account) -> str | None:
    """Make the picture of a row, if it should have one, the bytes of an upright one with at most
    max_pixels, and `pixels` a digest of what is seen in it; the reason if that cannot be done.
    """
    if "image" not in row:
        return None
    if isinstance(row["image"], dict):  # as datasets.Image stores it
        row["image"] = row["image"].get("bytes") or row["image"].get("path")
    file = row["image"]
    if not file or file != file:  # or is NaN
        return "picture is blank"
    if not isinstance(file, str | bytes):
        return f"picture is a {type(file).__name__}, not a path or bytes"
    try:
        file = (folder / file).read_bytes() if isinstance(file, str) else file
    except (OSError, ValueError):
        return "picture cannot be read from its path"
    try:
        with Image.open(io.BytesIO(file)) as opened:
            if opened.mode.startswith(DEEP):
                return "picture has more than 8 bits per colour"
            changes = opened.mode != "RGB" or opened.getexif().get(Exif.Orientation, 1) != 1
            format = "JPEG" if opened.format in ("JPEG", "MPO") else "PNG"
            picture = seen(opened)
    except Exception:  # whatever the bytes provoke in one of Pillow's decoders
        return "picture cannot be opened by Pillow"
    shrunk = math.sqrt(max_pixels / (picture.width * picture.height))
    if shrunk < 1:
        picture = picture.resize([max(1, int(side * shrunk)) for side in picture.size])
    if max(picture.size) > 200 * min(picture.size):
        return "picture is over 200 times as long as wide, which Qwen's processor refuses"
    account.made_smaller += shrunk < 1
    if shrunk < 1 or changes:
        buffer = io.BytesIO()
        picture.save(buffer, format, quality=95)
        file = buffer.getvalue()
    row["image"] = file
    row["pixels"] = hashlib.sha256(f"{picture.size}".encode() + picture.tobytes()).digest()
    return None


def _table(rows: list[dict]) -> tuple[pd.DataFrame, dict[str, str]]:
    """The rows as a table, and why each column that is not in it was left out.

    A column that Parquet cannot store is left out, so that it stops no run; that is printed, too.
    """
    kept, left_out = {}, {}
    ours = ["prompt", "question", "answer"]
    for name in dict.fromkeys([*ours, *(name for row in rows for name in row)]):
        column = pd.Series([row.get(name) for row in rows], dtype=object)
        try:
            stored = column.infer_objects().to_frame(name)
            # some of what is written cannot be read
            pd.read_parquet(io.BytesIO(stored.to_parquet(index=False)))
        # Arrow's own, OverflowError, UnicodeEncodeError, TypeError: whatever the values provoke
        except Exception as error:
            why = f"Parquet cannot store it: {type(error).__name__}: {shortened(error)}"
            left_out[shortened(name, 40)] = why
            print(f"column left out: {shortened(name, 40)} ({why})")
        else:
            kept[name] = stored[name]
    return pd.DataFrame(kept), left_out
