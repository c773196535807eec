"""Rows in, validated `prompt`/`answer` rows out: one function, `load_task`, from a source to a
train and a holdout table.

A source is a name (`arithmetic/sums`, `reasoning-gym/leg_counting`, `openai/gsm8k`) or a path to a
.csv, .jsonl or .parquet file. `sources.py` reads them; here the rows are checked, deduplicated,
measured, split and reported. No question is ever on both sides of the split. A source is read as a
stream: a digest of each row is kept, and only those rows whole that may be used, so that a file of
millions of rows needs a few hundred MB.
"""

from __future__ import annotations

import hashlib
import heapq
import io
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from helpers.data.files import shortened
from helpers.data.sources import STAND_INS, Broken, Unreachable, read_source
from helpers.presets import Preset, as_settings
from helpers.runs import TRAINING_LOCK, Run, atomic_write, held, write_json
from helpers.tags import THINK_ANSWER, TagFormat

_GROUPED_NUMBER = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
_OURS = ("prompt", "question", "answer")
# rows quoted in the report, for each reason to drop one, and for each kind of answer
_KEPT_EXAMPLES, _KIND_EXAMPLES = 3, 10
# Rows to train on without a train_size: some twenty times what 300 steps of 16 questions see, in
# memory that any machine has.
MOST_TRAINED = 100_000


@dataclass(frozen=True)
class Task:
    """A task ready to train on.

    train, holdout: tables with the columns `prompt` (list of {role, content}), `question`, `answer`
        (str), then the source's own columns, as far as Parquet can store them.
    report: what was read, dropped (rows and columns, and why), and how long the prompts are;
        JSON-ready.
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
    count_tokens: Callable[[list[dict] | str], int] | None = None,
    max_prompt_tokens: int | None = None,
    max_completion_tokens: int | None = None,
    stand_in: bool = False,
    kind: str | None = None,
    kind_of: Callable[[dict], str] | None = None,
    looks_like: Callable[[dict], str | None] | None = None,
) -> Task:
    """Read a source and split it into rows to train on and rows to hold out.

    source: `arithmetic/<family>`, `reasoning-gym/<family>`, a hub data set `owner/name` (or
        `owner/name:config`), or a path.
    train_size, holdout_size: rows on each side. train_size None takes all up to MOST_TRAINED, and
        prints so if there are more (for a generated source, 1,000).
    columns: the source's names of `question` and `answer`, e.g. {"question": "problem", "answer":
        "solution"}.
    system_prompt: replaces the one of `tags`; the empty string leaves the system message out.
    count_tokens: tokens of one prompt or of one text (see `prompt_token_counter`). Prompts over
        max_prompt_tokens are dropped, because TRL does not truncate them; so are answers that,
        rendered in `tags` without any reasoning, are over max_completion_tokens, because no
        completion could give them. Only rows that may be used are measured.
    stand_in: if the hub cannot be reached, take the source that can replace openai/gsm8k
        (`sources.STAND_INS`), and print so; `report["source"]` names what was read.
    kind: how all answers are judged, one of `rewards.answers.kinds.KINDS`; written to a column
        `kind`, which correctness_reward reads. Without it an answer is a number, mathematics or
        text.
    kind_of, looks_like: how a row's answer is judged, and the kind that it might better be declared
        as (`kinds.kind_of_row`, `kinds.looks_like`); with them `report["answer_kinds"]` and
        `report["answer_hints"]` say how many rows each holds for.

    ValueError if the source cannot give these rows; it names the value and the way out.
    """
    for name, size in (("train_size", train_size), ("holdout_size", holdout_size)):
        if size is not None and (type(size) is not int or size < 1):
            raise ValueError(
                f"{name}={size!r} is not a number of rows: give an integer of at least 1."
            )
    system = tags.system_prompt if system_prompt is None else system_prompt
    limits = _Limits(count_tokens, max_prompt_tokens, max_completion_tokens, system, tags)
    sizes = {"train_size": train_size, "holdout_size": holdout_size, "seed": seed}
    stated = {"kind": kind} if kind else {}
    account, rows = _Account(), read_source(source, columns, **sizes)
    try:
        train, holdout = _drawn(rows, source, limits, account, **sizes)
    except Unreachable as unreachable:
        if not stand_in or source not in STAND_INS:
            raise
        source = STAND_INS[source]
        print(
            f"{unreachable}\nTAKING {source} IN ITS PLACE: similar word problems, generated here; "
            "results are not GSM8K's."
        )
        rows = read_source(source, None, **sizes)
        train, holdout = _drawn(rows, source, limits, account, **sizes)
    for row in train + holdout:
        row.pop("split", None)
        row |= {"prompt": _prompt(system, row["question"])} | stated
    (train_table, holdout_table), dropped = _tables(train, holdout)
    report = account.report | limits.report | ({"columns_dropped": dropped} if dropped else {})
    report |= {
        "source": source,
        "seed": seed,
        "tags": tags.spec,
        "system_prompt": system,
        "rows_unused": account.usable - len(train) - len(holdout),
        "rows_train": len(train),
        "rows_holdout": len(holdout),
        **({"answer_kinds": answer_kinds(train + holdout, kind_of)} if kind_of else {}),
        **({"answer_hints": answer_kinds(train + holdout, looks_like)} if looks_like else {}),
        "fingerprint": fingerprint(train + holdout),
    }
    return Task(train_table, holdout_table, report)


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
            settings=as_settings(settings),
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
    if marker and _GROUPED_NUMBER.fullmatch(answer):
        answer = answer.replace(",", "")
    return answer


def fingerprint(rows: Iterable[dict]) -> str:
    """SHA-256 over the questions and answers, in order: the same in two runs on the same data."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(f"{row['question']}\x1f{row['answer']}\x1e".encode())
    return digest.hexdigest()


def answer_kinds(rows: Iterable[dict], kind_of: Callable[[dict], str | None]) -> dict[str, dict]:
    """How many `rows` have each kind of answer, most frequent first, with ten different `examples`;
    rows of no kind (None) are left out.

    >>> rows = [{"answer": "4"}, {"answer": "Paris"}, {"answer": "5"}]
    >>> answer_kinds(rows, lambda row: type(row["answer"]).__name__)
    {'str': {'rows': 3, 'examples': ['4', 'Paris', '5']}}
    """
    counts, examples = Counter(), {}
    for row in rows:
        kind = kind_of(row)
        if kind is None:
            continue
        counts[kind] += 1
        shown = examples.setdefault(kind, [])
        if len(shown) < _KIND_EXAMPLES and row["answer"][:200] not in shown:
            shown.append(row["answer"][:200])
    return {
        kind: {"rows": count, "examples": examples[kind]} for kind, count in counts.most_common()
    }


def prompt_token_counter(model: str) -> Callable[[list[dict] | str], int]:
    """A function from chat messages to the number of tokens the model will see, without importing
    torch.

    model: a folder or hub name, whose tokenizer.json and chat template are read. Transformers' own
    renderer applies the template, and the Rust tokenizer that training uses counts. A plain string
    is counted as it is, without a template: the length of a completion.
    """
    from tokenizers import Tokenizer
    from transformers.utils.chat_template_utils import render_jinja_template

    from helpers.data.sources import model_files

    tokenizer_file, template, special_tokens = model_files(model)
    tokenizer = Tokenizer.from_file(str(tokenizer_file))

    def count(messages: list[dict] | str) -> int:
        text = messages
        if not isinstance(messages, str):
            (text,), _ = render_jinja_template(
                [messages], chat_template=template, add_generation_prompt=True, **special_tokens
            )
        return len(tokenizer.encode(text, add_special_tokens=False).ids)

    return count


class _Account:
    """How many rows were read, and which were dropped for what."""

    def __init__(self):
        self.read, self.dropped, self.examples = 0, Counter(), {}

    def drop(self, reason: str, example: object) -> None:
        self.dropped[reason] += 1
        if len(self.examples.setdefault(reason, [])) < _KEPT_EXAMPLES:
            self.examples[reason].append(str(example)[:200])

    @property
    def usable(self) -> int:
        return self.read - self.dropped.total()

    @property
    def report(self) -> dict:
        return {
            "rows_read": self.read,
            "dropped": dict(self.dropped),
            "dropped_examples": self.examples,
        }

    def __str__(self) -> str:
        reasons = (
            ", ".join(f"{count} with {reason}" for reason, count in self.dropped.items()) or "none"
        )
        return f"Read {self.read}, dropped: {reasons}."


@dataclass
class _Limits:
    """Whether a row fits the prompt and the completion; remembers how long the prompts were."""

    count_tokens: Callable[[list[dict] | str], int] | None
    prompt: int | None
    completion: int | None
    system: str
    tags: TagFormat
    lengths: list[int] = field(default_factory=list)

    def __post_init__(self):
        for name, limit in (
            ("max_prompt_tokens", self.prompt),
            ("max_completion_tokens", self.completion),
        ):
            if limit is not None and self.count_tokens is None:
                raise ValueError(
                    f"{name} needs count_tokens, to know how long a text is; see "
                    "prompt_token_counter."
                )

    def exceeded(self, row: dict) -> str | None:
        """The limit that the row is over, if any."""
        if self.count_tokens is None:
            return None
        self.lengths.append(self.count_tokens(_prompt(self.system, row["question"])))
        if self.prompt is not None and self.lengths[-1] > self.prompt:
            return f"prompt over {self.prompt} tokens"
        if (
            self.completion is not None
            and self.count_tokens(self.tags.render("", row["answer"])) > self.completion
        ):
            return f"answer over {self.completion} tokens"
        return None

    @property
    def report(self) -> dict:
        if not self.lengths:
            return {}
        levels = {"min": 0, "p50": 50, "p90": 90, "p99": 99, "max": 100}
        quantiles = {
            name: int(np.percentile(self.lengths, level)) for name, level in levels.items()
        }
        return {"prompt_tokens": quantiles, "rows_measured": len(self.lengths)}


class _Smallest:
    """The `size` rows with the smallest hashes; never more than these are in memory."""

    def __init__(self, size: int):
        # of (-hash, row): the largest hash, the first to go, is on top
        self.size, self.heap = size, []

    def admits(self, order: int) -> bool:
        return len(self.heap) < self.size or -order > self.heap[0][0]

    def add(self, order: int, row: dict) -> None:
        (heapq.heappush if len(self.heap) < self.size else heapq.heappushpop)(
            self.heap, (-order, row)
        )

    def rows(self) -> list[dict]:
        return [row for _, row in sorted(self.heap, key=lambda entry: -entry[0])]


def _drawn(
    rows, source, limits, account, *, train_size, holdout_size, seed
) -> tuple[list[dict], list[dict]]:
    """The source's own split, or else one by a seeded hash of the question.

    A hash rather than a shuffle: the same rows give the same split in any order. A row is measured
    only when its hash is among the smallest so far, so few rows of a large file are.
    """
    most = train_size or MOST_TRAINED
    kept = {
        "train": _Smallest(most),
        "holdout": _Smallest(holdout_size),
        None: _Smallest(most + holdout_size),
    }
    for row in _validated(rows, account):
        pool = kept[row.get("split")]
        digest = hashlib.sha256(f"{seed}\x1f{row['question']}".encode()).digest()
        order = int.from_bytes(digest, "big")
        if not pool.admits(order):
            continue
        limit = limits.exceeded(row)
        if limit:
            account.drop(limit, f"row {account.read}: {row['question']} -> {row['answer']}")
        else:
            pool.add(order, row)
    unsplit = kept[None].rows()
    holdout = kept["holdout"].rows() + unsplit[:holdout_size]
    train = kept["train"].rows() + unsplit[holdout_size:]
    if not account.usable:
        raise ValueError(f"{source}: no usable row. {account}")
    if len(train) < (train_size or 1) or len(holdout) < holdout_size:
        raise ValueError(
            _too_few(source, account, len(train), len(holdout), train_size, holdout_size)
        )
    if train_size is None and len(train) == most and account.usable > len(train) + len(holdout):
        print(
            f"{source} has {account.usable:,} usable rows. {most:,} of them, drawn by the seed, "
            "are to train on; set train_size to take more or fewer."
        )
    return train, holdout


def _validated(source_rows: Iterable[dict | Broken], account: _Account) -> Iterator[dict]:
    """Rows with a question and an answer, each question once; the account has all the others."""
    seen: dict[bytes, str] = {}  # digest of a question to its answer, both short for millions
    for account.read, row in enumerate(source_rows, 1):
        if isinstance(row, Broken):
            account.drop(row.reason, row.where)
            continue
        problem = _clean(row)
        if problem:
            account.drop(
                problem, f"row {account.read}: {row.get('question')!r} -> {row.get('answer')!r}"
            )
            continue
        # One question in two Unicode forms, or with a character that nobody sees, is one question.
        question = row["question"]
        if not question.isascii():
            question = unicodedata.normalize("NFKC", question)
            question = "".join(c for c in question if unicodedata.category(c) != "Cf")
        question = " ".join(question.split()).casefold()
        key = hashlib.blake2b(question.encode(), digest_size=16).digest()
        answer = row["answer"]
        if len(answer) > 40:
            digest = hashlib.blake2b(answer.encode(), digest_size=8).hexdigest()
            answer = f"{answer[:16]}… ({digest})"
        if key not in seen:
            seen[key] = answer
            yield row
        elif seen[key] == answer:
            account.drop("duplicate question", row["question"])
        else:
            account.drop(
                "duplicate question with another answer",
                f"{row['question']} -> {seen[key]} / {answer}",
            )


def _clean(row: dict) -> str | None:
    """Make question and answer stripped strings in place; the reason if one of them cannot be."""
    for name in ("question", "answer"):
        value = row[name]
        if isinstance(value, float) and np.isnan(value):
            value = None
        if value is None or (isinstance(value, str) and not value.strip()):
            return f"{name} is blank"
        if not isinstance(value, (str, int, float)):
            return f"{name} is a {type(value).__name__}, not text"
        try:
            str(value).encode()
        except UnicodeEncodeError:  # from a JSON file; no tokenizer takes it
            return f"{name} has a lone surrogate, which is no text"
        row[name] = str(value).strip()
    row["answer"] = final_answer(row["answer"])
    if not row["answer"]:
        return "nothing after ####"
    return None


def _tables(*parts: list[dict]) -> tuple[list[pd.DataFrame], dict[str, str]]:
    """Lists of rows as tables with the same columns, and why each other column was left out.

    A column that Parquet cannot store is left out, so that it stops no run; that is printed, too.
    """
    names = dict.fromkeys([*_OURS, *(name for rows in parts for row in rows for name in row)])
    tables, left_out = [{} for _ in parts], {}
    for name in names:
        columns = [
            pd.Series([row.get(name) for row in rows], dtype=object, name=name) for rows in parts
        ]
        why = None if name in _OURS else next(filter(None, map(_obstacle, columns)), None)
        if why:
            left_out[name] = why
            continue
        for table, column in zip(tables, columns, strict=True):
            table[name] = column.infer_objects()
    left_out = {shortened(name, 40): why for name, why in left_out.items()}
    if left_out:
        told = "; ".join(f"{name} ({why})" for name, why in left_out.items())
        print(f"columns left out: {told}")
    return [pd.DataFrame(table) for table in tables], left_out


def _obstacle(column: pd.Series) -> str | None:
    """Why a column cannot be stored in Parquet: it is written, and read back."""
    try:
        pd.read_parquet(io.BytesIO(column.infer_objects().to_frame().to_parquet(index=False)))
    # Arrow's own, OverflowError, UnicodeEncodeError, TypeError: whatever the values provoke
    except Exception as error:
        said = error.args[0] if error.args else "no reason given"
        return f"Parquet cannot store it: {type(error).__name__}: {shortened(said)}"
    return None


def _prompt(system: str, question: str) -> list[dict]:
    user = {"role": "user", "content": question}
    return [{"role": "system", "content": system}, user] if system else [user]


def _too_few(
    source: str,
    account: _Account,
    train: int,
    holdout: int,
    train_size: int | None,
    holdout_size: int,
) -> str:
    rows, needed = account.usable, (train_size or 1) + holdout_size
    fewer = max(1, rows // 5)
    way_out = (
        "Bring more rows: 2 are the least, one for either side."
        if rows < 2
        else "Bring more rows, or ask for fewer: "
        f"train_size={rows - fewer} and holdout_size={fewer}, for example."
    )
    return (
        f"{source}: {rows} usable row{'s give' if rows > 1 else ' gives'} {train} to train on and "
        f"{holdout} to hold out, but train_size={train_size} and holdout_size={holdout_size} were "
        f"asked for, which need {needed}. {way_out} {account}"
    )
