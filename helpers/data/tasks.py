"""Rows in, validated `prompt`/`answer` rows out: one function, `load_task`, from a source to a
train and a holdout table.

A source is a name (`arithmetic/sums`, `reasoning-gym/leg_counting`, `openai/gsm8k`) or a path to a
.csv, .jsonl or .parquet file. Reading them is `sources.py`'s work; here the rows are checked,
deduplicated, measured, split and reported. No question is ever on both sides of the split. A source
is read as a stream: of each row a digest is remembered, and only the rows that may be used are
kept, so that a file of millions of rows needs no more than a few hundred MB.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from helpers.data.columns import MOST_COLUMNS, kept_columns
from helpers.data.files import Unreadable
from helpers.data.sources import STAND_INS, Broken, Unreachable, read_source
from helpers.presets import Preset, as_settings
from helpers.runs import TRAINING_LOCK, Run, atomic_write, held, write_json
from helpers.tags import THINK_ANSWER, TagFormat

_GROUPED_NUMBER = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
# rows quoted in the report, for each reason to drop one and for each kind of answer
_KEPT_EXAMPLES = 3
# Rows trained on where train_size does not say: some twenty times what 300 steps of 16 questions
# see, in memory that any machine has.
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
) -> Task:
    """Read a source and split it into rows to train on and rows to hold out.

    source: `arithmetic/<family>`, `reasoning-gym/<family>`, a hub data set `owner/name` (or
    `owner/name:config`), or a path.
    train_size, holdout_size: rows on each side; train_size None takes all there are up to
        MOST_TRAINED, and says so where there are more (for a generated source, 1,000).
    columns: where the source keeps its `question` and `answer`, e.g. {"question": "problem",
    "answer": "solution"}.
    system_prompt: in place of the one that `tags` writes; the empty string leaves the system
    message out.
    count_tokens: tokens of one prompt or of one text (see `prompt_token_counter`). Prompts over
        max_prompt_tokens are dropped, because TRL does not truncate them; so are answers that,
        rendered in `tags` without any reasoning, are over max_completion_tokens, because no
        completion could give them. Only rows that may be used are measured.
    stand_in: where the hub cannot be reached, take the source that can stand in for openai/gsm8k
        (`sources.STAND_INS`), and say so; `report["source"]` names what was read.
    kind: how all answers are to be judged, one of `rewards.kinds.KINDS`; written to a column
        `kind`, which correctness_reward reads. Without it each answer's kind is recognised.
    kind_of: the kind of a row's answer (`rewards.kinds.kind_of_row`); with it
        `report["answer_kinds"]` says how many rows have which.

    Raises ValueError where the source cannot give the rows asked for; the message names the value
    and the way out.
    """
    for name, size in (("train_size", train_size), ("holdout_size", holdout_size)):
        _check_rows(name, size)
    system = tags.system_prompt if system_prompt is None else system_prompt
    limits = _Limits(count_tokens, max_prompt_tokens, max_completion_tokens, system, tags)
    sizes = {"train_size": train_size, "holdout_size": holdout_size, "seed": seed}
    stated = {"kind": kind} if kind else {}
    source, rows = _opened(source, columns, stand_in, **sizes)
    train, holdout = _drawn(rows, source, limits, account := _Account(), **sizes)
    for row in train + holdout:
        row.pop("split", None)
        row |= {"prompt": _prompt(system, row["question"])} | stated
    (train_table, holdout_table), dropped = kept_columns(train, holdout, account.left_out)
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
        "fingerprint": fingerprint(train + holdout),
    }
    return Task(train_table, holdout_table, report)


def _check_rows(name: str, size: int | None) -> None:
    if size is not None and (type(size) is not int or size < 1):
        raise ValueError(f"{name}={size!r} is not a number of rows: give an integer of at least 1.")


def save(run: Run, task: Task, settings: Preset) -> None:
    """Put a task into the run folder: both tables, `data_report.json`, and the manifest's section
    `data`.

    ValueError, before anything is written, while another process trains on what the run holds.
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
    """The answer to be judged: what follows GSM8K's last `####`, thousands separators removed;
    otherwise the text itself.

    >>> final_answer("He pays 2 * 617 = <<2*617=1234>>1234 dollars. #### 1,234")
    '1234'
    """
    _, marker, tail = answer.rpartition("####")
    answer = tail.strip()
    if marker and _GROUPED_NUMBER.fullmatch(answer):
        answer = answer.replace(",", "")
    return answer


def fingerprint(rows: Iterable[dict]) -> str:
    """SHA-256 over the questions and answers, in order: two runs with the same value used the same
    data.
    """
    digest = hashlib.sha256()
    for row in rows:
        digest.update(f"{row['question']}\x1f{row['answer']}\x1e".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def answer_kinds(rows: Iterable[dict], kind_of: Callable[[dict], str]) -> dict[str, dict]:
    """For each kind of answer that the rows have, the most frequent first: how many `rows`, and
    three different `examples`.

    >>> answer_kinds([{"answer": "4"}, {"answer": "Paris"}, {"answer": "5"}], lambda row: type(row["answer"]).__name__)
    {'str': {'rows': 3, 'examples': ['4', 'Paris', '5']}}
    """
    counts, examples = Counter(), {}
    for row in rows:
        kind = kind_of(row)
        counts[kind] += 1
        shown = examples.setdefault(kind, [])
        if len(shown) < _KEPT_EXAMPLES and row["answer"][:200] not in shown:
            shown.append(row["answer"][:200])
    return {
        kind: {"rows": count, "examples": examples[kind]} for kind, count in counts.most_common()
    }


def prompt_token_counter(model: str) -> Callable[[list[dict] | str], int]:
    """A function from chat messages to the number of tokens the model will see, without importing
    torch.

    model: a folder, or a hub name, whose tokenizer.json and chat template are read. The template is
    rendered by Transformers' own renderer, the tokens counted by the same Rust tokenizer that
    training uses. Of a plain string the function counts the tokens as they stand, without a
    template: the length of a completion.
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


def _opened(source, columns, stand_in: bool, **sizes) -> tuple[str, Iterator[dict | Broken]]:
    """The name of what is read, which may be the stand-in, and its rows."""
    try:
        return source, _begun(read_source(source, columns, **sizes))
    except Unreachable as unreachable:
        if not stand_in or source not in STAND_INS:
            raise
        other = STAND_INS[source]
        try:
            rows = _begun(read_source(other, None, **sizes))
        except ValueError as error:
            raise ValueError(f"{unreachable} Nor can {other} stand in for it: {error}") from None
        print(
            f"{unreachable}\nTAKING {other} IN ITS PLACE: similar word problems, generated here; "
            "results are not GSM8K's."
        )
        return other, rows


def _begun(rows: Iterator) -> Iterator:
    """The same rows, the first of them read already: a source that cannot be read says so here."""
    return itertools.chain(list(itertools.islice(rows, 1)), rows)


class _Account:
    """How many rows were read, and which were dropped for what."""

    def __init__(self):
        self.read, self.dropped, self.examples = 0, Counter(), {}
        # of the source: those that are kept; and why the others are not
        self.columns, self.left_out = set(), {}

    def drop(self, reason: str, example: object) -> None:
        self.dropped[reason] += 1
        if len(self.examples.setdefault(reason, [])) < _KEPT_EXAMPLES:
            self.examples[reason].append(str(example)[:200])

    def storable(self, row: dict) -> dict:
        """The row with those columns that have a name that can be written, the first MOST_COLUMNS
        that the source shows.
        """
        for name in row.keys() - self.columns - self.left_out.keys():
            if not str(name).isascii() and _has_lone_surrogate(str(name)):
                self.left_out[name] = "its name has a lone surrogate, which is no text"
        for name in row:
            if name not in self.columns and name not in self.left_out:
                if len(self.columns) < MOST_COLUMNS:
                    self.columns.add(name)
                else:
                    self.left_out[name] = f"beyond the first {MOST_COLUMNS} columns"
        return (
            {name: value for name, value in row.items() if name in self.columns}
            if self.left_out
            else row
        )

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
    """Of the rows offered, the `size` ones with the smallest hashes; never more than these are in
    memory.
    """

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
    """The source's own split where it has one; otherwise the holdout is drawn by a seeded hash of
    the question.

    A hash rather than a shuffle: the same rows give the same split, in whatever order the file
    holds them. A row is measured only when its hash is among the smallest so far, so few rows of a
    large file are.
    """
    most = train_size or MOST_TRAINED
    kept = {
        "train": _Smallest(most),
        "holdout": _Smallest(holdout_size),
        None: _Smallest(most + holdout_size),
    }
    for row in _validated(rows, account):
        pool = kept[row.get("split")]
        order = hashlib.sha256(
            f"{seed}\x1f{row['question']}".encode("utf-8", "surrogatepass")
        ).digest()
        order = int.from_bytes(order, "big")
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
            "are to train on; "
            "set train_size to take more or fewer."
        )
    return train, holdout


def _validated(source_rows: Iterable[dict | Broken], account: _Account) -> Iterator[dict]:
    """Rows with a question and an answer, each question once; the account has all the others."""
    seen: dict[int, str] = {}
    for account.read, row in enumerate(source_rows, 1):
        if isinstance(row, Broken):
            account.drop(row.reason, row.where)
            continue
        row = account.storable(row)
        problem = _clean(row)
        if problem:
            account.drop(
                problem, f"row {account.read}: {row.get('question')!r} -> {row.get('answer')!r}"
            )
            continue
        key, answer = (
            _digest(" ".join(row["question"].split()).casefold(), 16),
            _brief(row["answer"]),
        )
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


def _digest(text: str, size: int) -> int:
    """`size` bytes of BLAKE2b as an integer, which takes less memory than bytes do."""
    return int.from_bytes(
        hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).digest(), "big"
    )


def _brief(answer: str) -> str:
    """The answer, or of a long one its beginning and a digest: enough to compare it by and to show,
    millions of times.
    """
    return answer if len(answer) <= 40 else f"{answer[:16]}… ({_digest(answer, 8):x})"


def _clean(row: dict) -> str | None:
    """Make question and answer stripped strings in place; the reason where one of them
    cannot be.
    """
    for name in ("question", "answer"):
        value = row[name]
        if isinstance(value, float) and np.isnan(value):
            value = None
        if value is None or (isinstance(value, str) and not value.strip()):
            return f"{name} is blank"
        if isinstance(value, Unreadable):
            return f"{name} cannot be read"
        if not isinstance(value, (str, int, float)):
            return f"{name} is a {type(value).__name__}, not text"
        if not str(value).isascii() and _has_lone_surrogate(str(value)):
            return f"{name} has a lone surrogate, which is no text"
        if "\0" in str(value):
            return f"{name} has a NUL character, which is no text"
        row[name] = str(value).strip()
    row["answer"] = final_answer(row["answer"])
    if not row["answer"]:
        return "nothing after ####"
    return None


def _has_lone_surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


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
    said = (
        f"{source}: {rows} usable row{'s give' if rows > 1 else ' gives'} {train} to train on "
        f"and {holdout} to hold out, but "
    )
    said += (
        f"train_size={train_size} and holdout_size={holdout_size} were asked for, which need "
        f"{needed}. "
    )
    if rows < 2:
        return f"{said}Bring more rows: 2 are the least, one for either side. {account}"
    fewer = max(1, rows // 5)
    fewer = f"train_size={rows - fewer} and holdout_size={fewer}, for example"
    return f"{said}Bring more rows, or ask for fewer: {fewer}. {account}"
