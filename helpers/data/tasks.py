"""Rows in, validated `prompt`/`answer` rows out: one function, `load_task`, from a source to a
train and a holdout table.

A source is a name (`arithmetic/sums`, `reasoning-gym/leg_counting`, `openai/gsm8k`) or a path to a
.csv, .json, .jsonl or .parquet file. `sources.py` reads them; here the rows are checked,
deduplicated, measured, split and reported. No question is ever on both sides of the split, and no
picture. All usable rows are in memory while they are split, with their pictures.
"""

import hashlib
import io
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from helpers import templates
from helpers.data.files import (
    Broken,
    Dropped,
    file_rows,
    hub_failure,
    shortened,
)
from helpers.data.pictures import prepared
from helpers.data.shapes import (
    ANY_TEXT,
    BEYOND,
    NUMBERED,
    answer_in,
    options_in,
    question_in,
    with_options,
)
from helpers.data.sources import check_model, read_source
from helpers.presets import Preset
from helpers.runs import TRAINING_LOCK, Run, atomic_write, lock, write_json
from helpers.tags import THINK_ANSWER, TagFormat

# Rows to train on without a train_size: some twenty times what 300 steps of 16 questions see, in
# memory that any machine has.
MOST_TRAINED = 100_000
HELD_OUT = 256  # without a holdout_size
_LONG = 30  # words of an answer, about which a note is made
_MISSING = {"nan", "none", "n/a", "-"}  # what tables write for a missing value
_MORE_ROWS = "Bring more rows, or ask for fewer."


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
        """Return how many rows there are, in one line, and below it notes on how they were read;
        `python -m helpers run` prints them, too.
        """
        read, dropped, unused = map(self.report.get, ("rows_read", "dropped", "rows_unused"))
        smaller = self.report.get("pictures_made_smaller")
        found = self.report.get("found", {})
        commas = self.report.get("decimal_commas", 0)
        notes = {
            f"questions and answers were found in: {_counted(found)}": found,
            f"most answers have more than {_LONG} words, which no completion repeats: mark the "
            r"result in each of them, by #### or \boxed{}, or name another column.": (
                2 * self.report.get("long_answers", 0) > len(self.train) + len(self.holdout)
            ),
            f"answers with a decimal comma: {commas:,}. They are not judged as numbers: write "
            "17.5 for 17,5.": commas,
        }
        return (
            f"data: {read - sum(dropped.values()):,} of {read:,} rows usable (dropped: "
            f"{_counted(dropped)}); {len(self.train):,} to train on, {len(self.holdout):,} held out"
            + (f", {unused:,} unused (train_size takes more)" if unused else "")
            + (f"; {smaller:,} pictures made smaller (max_pixels)" if smaller else "")
            + "".join(f"\nnote: {note}" for note, applies in notes.items() if applies)
        )


def load_task(
    source: str,
    *,
    train_size: int | None = None,
    holdout_size: int | None = None,
    seed: int = 3407,
    tags: TagFormat = THINK_ANSWER,
    columns: dict[str, str | list[str]] | str | None = None,
    system_prompt: str | None = None,
    examples: list[dict] | str | None = None,
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
        "solution"}; see `sources.check_columns` for fields in a column and for `options`. With
        `image` it names the column of the pictures, each a path relative to the file or folder, or
        the bytes of a file that Pillow opens. A row is then a picture and a question; the rows of
        one picture are all on one side of the split.
    system_prompt: replaces the one of `tags`; the empty string leaves the system message out.
    examples: worked examples, which stand in each prompt as chat turns before the question; see
        `example_turns`. A row whose question is one of theirs is dropped, because the prompt would
        hold its answer.
    count_tokens: tokens of one prompt or of one text (see `prompt_token_counter`); without it
        nothing is measured. Prompts over max_prompt_tokens are dropped, because TRL does not
        truncate them; so are answers that, rendered in `tags` without any reasoning, are over
        max_completion_tokens, because no completion could give them. Only rows that may be used
        are measured.
    kind: how all answers are judged, one of `rewards.answers.kinds.KINDS`; written to a column
        `kind`, which correctness_reward reads. Without it an answer is a number, mathematics or
        text. NaN, None, N/A and - are missing values, unless the kind is text or exact.
    max_pixels: a picture with more is made smaller, in its proportions; the report counts these.

    ValueError if the source cannot give these rows; it names the value and the way out.
    """
    system = tags.system_prompt if system_prompt is None else system_prompt
    turns = example_turns(examples)
    worked = [
        {"question": user["content"], "answer": assistant["content"]}
        for user, assistant in zip(turns[::2], turns[1::2], strict=True)
    ]
    account = _Account()

    def check_length(row: dict) -> None:
        """Raise Dropped for a row that exceeds a limit."""
        if count_tokens is None:
            return
        length = count_tokens(chat_prompt(system, row["question"], turns))
        account.prompt_lengths.append(length)
        if max_prompt_tokens is not None and length > max_prompt_tokens:
            raise Dropped(
                f"prompt over {max_prompt_tokens} tokens",
                "Raise max_prompt_length, or shorten the questions.",
            )
        shortest = tags.render("", row["answer"])
        if max_completion_tokens is not None and count_tokens(shortest) > max_completion_tokens:
            raise Dropped(
                f"answer over {max_completion_tokens} tokens",
                "Raise max_completion_length, or drop the long answers.",
            )

    # 1. rows with a question and its one answer; what is generated must make up for rows that are
    # dropped as worked examples
    most = train_size and train_size + len(worked)
    held_out = (holdout_size or HELD_OUT) + len(worked)
    read = read_source(source, columns, most, held_out, seed)
    folder = Path(source) if Path(source).is_dir() else Path(source).parent
    as_it_is = str(source).startswith("reasoning-gym/")
    rows = _validated(read, account, kind, folder, max_pixels, as_it_is)
    shown = {_same(example["question"]) for example in worked}
    for row in rows:
        if _same(row["question"]) in shown:
            account.drop(
                "question is a worked example",
                row["question"],
                "Bring more questions, or take examples that are none of them.",
            )
    rows = [row for row in rows if _same(row["question"]) not in shown]

    # 2. the two sides, of rows that fit
    train, holdout = split_rows(
        rows,
        check_length,
        account,
        train_size=train_size,
        holdout_size=holdout_size,
        seed=seed,
    )
    account.require(source, train, holdout, train_size, holdout_size)

    # 3. their prompts, and the tables
    for row in train + holdout:
        row.pop("split", None)
        row.pop("pixels", None)
        row["prompt"] = chat_prompt(system, row["question"], turns)
        if kind:
            row["kind"] = kind
    table, columns_dropped = _table(train + holdout)

    # 4. what is told of them; some of it only if there is such a thing
    report = account.report(train, holdout) | {
        "source": source,
        "seed": seed,
        "tags": tags.spec,
        "system_prompt": system,
        "fingerprint": fingerprint(worked + train + holdout),
    }
    more = {"examples": turns, "columns_dropped": columns_dropped, "columns": columns}
    report |= {name: value for name, value in more.items() if value}
    return Task(table[: len(train)], table[len(train) :].reset_index(drop=True), report)


def save(run: Run, task: Task, settings: Preset) -> None:
    """Write a task into the run folder: both tables, `data_report.json`, and the manifest's
    section `data`.

    ValueError, before anything is written, while another process trains this run.
    """
    with lock(run.folder, f"the training of run {run.name!r}", TRAINING_LOCK):
        for name, table in (("train", task.train), ("holdout", task.holdout)):
            with atomic_write(run.path(f"data/{name}.parquet")) as temporary:
                table.to_parquet(temporary, index=False)
        write_json(run.path("data_report.json"), task.report)
        run.record(
            "data",
            settings=asdict(settings),
            **{name: task.report[name] for name in ("seed", "source", "tags", "fingerprint")},
        )


def fingerprint(rows: Iterable[dict]) -> str:
    """Return the SHA-256 over the questions and answers, in order: the same in two runs on the same
    data.
    """
    digest = hashlib.sha256()
    for row in rows:
        digest.update(f"{row['question']}\x1f{row['answer']}\x1e".encode() + row.get("image", b""))
    return digest.hexdigest()


def tokenizer_of(model: str, thinking: bool | None = None):
    """Return the tokenizer of a model, which carries the setting `thinking`; print it if the chat
    template cannot do as the setting says.

    model: a folder or hub name. ValueError if there is no such model, or no chat template.
    """
    from transformers import AutoTokenizer  # imports torch, which not everything here needs

    check_model(model)
    try:
        tokenizer = AutoTokenizer.from_pretrained(model)
    except (OSError, ValueError) as error:
        raise ValueError(hub_failure(f"the tokenizer of {model!r}", error)) from None
    if tokenizer.chat_template is None:
        raise ValueError(
            f"{model} has no chat template. GRPO here needs a chat model: take its -Instruct "
            "variant."
        )
    templates.set_thinking(tokenizer, thinking)
    templates.check_thinking(tokenizer, thinking)
    return tokenizer


def prompt_token_counter(
    model: str, thinking: bool | None = None
) -> Callable[[list[dict] | str], int]:
    """Return a function that counts the tokens of chat messages as the model will see them, or of
    a text without a template: the length of a completion. See `tokenizer_of`.
    """
    return partial(templates.length, tokenizer_of(model, thinking))


def chat_prompt(system: str, question: str, turns: Sequence[dict] = ()) -> list[dict]:
    """Return the messages that ask a question, after the turns of worked examples.

    An empty system prompt is left out.
    """
    messages = [*turns, {"role": "user", "content": question}]
    return [{"role": "system", "content": system}, *messages] if system else messages


def example_turns(examples: list[dict] | str | None) -> list[dict]:
    """Return the chat turns of worked examples, each a question and what the assistant says to it.

    examples: a list of {"question": …, "completion": …}, or the path of a file of such rows, JSON
        lines for example. The completion is what the model should write, tags included. ValueError
        for a row without the two texts, and for a file without rows.

    >>> example_turns([{"question": "What is 1 + 1?", "completion": "<answer>2</answer>"}])[1]
    {'role': 'assistant', 'content': '<answer>2</answer>'}
    """
    names = ("question", "completion")
    is_file = isinstance(examples, str)
    rows = list(file_rows(Path(examples), names)) if is_file else examples or []
    if is_file and not rows:
        raise ValueError(f"{examples}: the file has no worked examples.")
    turns = []
    for number, row in enumerate(rows, 1):
        texts = [row.get(name) for name in names] if isinstance(row, dict) else []
        if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
            shown = row.where if isinstance(row, Broken) else f"row {number}: {shortened(row)}"
            raise ValueError(
                f"{examples if is_file else 'examples'}: a worked example is a question and a "
                "completion, both texts that are not blank: "
                f'{{"question": "…", "completion": "…"}}. This one is not: {shown}'
            )
        question, completion = (text.strip() for text in texts)
        turns.append({"role": "user", "content": question})
        turns.append({"role": "assistant", "content": completion})
    return turns


@dataclass
class _Account:
    """How many rows of a source were read, which were dropped for what and what to do about it, in
    what their questions and answers were found, and how many tokens the prompts have.
    """

    read: int = 0
    dropped: Counter = field(default_factory=Counter)
    examples: dict = field(default_factory=dict)
    advice: dict = field(default_factory=dict)
    found: Counter = field(default_factory=Counter)
    prompt_lengths: list = field(default_factory=list)
    made_smaller: int = 0

    def drop(self, reason: str, example: object, advice: str) -> None:
        self.dropped[reason] += 1
        self.advice[reason] = advice
        if len(self.examples.setdefault(reason, [])) < 3:
            self.examples[reason].append(str(example)[:200])

    @property
    def usable(self) -> int:
        return self.read - self.dropped.total()

    def report(self, train: list[dict], holdout: list[dict]) -> dict:
        """Return what was read and dropped, and what the rows of the two sides are."""
        rows = train + holdout
        report = {
            "rows_read": self.read,
            "dropped": dict(self.dropped),
            "dropped_examples": self.examples,
            "found": dict(self.found),
            "long_answers": sum(len(row["answer"].split()) > _LONG for row in rows),
            "decimal_commas": sum(
                row.get("kind") not in ANY_TEXT
                and re.fullmatch(r"[+-]?\d+,(?!\d{3}$)\d+", row["answer"]) is not None
                for row in rows
            ),
            "rows_unused": self.usable - len(train) - len(holdout),
            "rows_train": len(train),
            "rows_holdout": len(holdout),
        }
        levels = {"min": 0, "p50": 50, "p90": 90, "p99": 99, "max": 100}
        more = {
            "pictures_made_smaller": self.made_smaller,
            "prompt_tokens": {
                name: int(np.percentile(self.prompt_lengths, level))
                for name, level in levels.items()
                if self.prompt_lengths
            },
        }
        return report | {name: value for name, value in more.items() if value}

    def require(
        self,
        source: str,
        train: list[dict],
        holdout: list[dict],
        train_size: int | None,
        holdout_size: int | None,
    ) -> None:
        """Raise ValueError for fewer rows than were asked for, with what to do about the most
        frequent reason.
        """
        short = [(train_size or 1) - len(train), (holdout_size or 1) - len(holdout)]
        lacking = sum(missing for missing in short if missing > 0)
        if not lacking:
            return
        example = ""
        advice = _MORE_ROWS
        for reason, count in self.dropped.most_common(1):
            example = f". For example, {reason}: {self.examples[reason][0]}"
            if count >= lacking or count > self.usable:
                advice = self.advice[reason]
        if self.prompt_lengths:
            low, half, high = np.percentile(self.prompt_lengths, (0, 50, 100)).astype(int)
            advice += f" The prompts have {low} to {high} tokens, half of them over {half}."
        raise ValueError(
            f"{source}: {self.usable} usable rows give {len(train)} to train on and "
            f"{len(holdout)} to hold out, but train_size={train_size} and "
            f"holdout_size={holdout_size} were asked for. {advice} "
            f"Read {self.read}, dropped: {_counted(self.dropped)}{example}."
        )


def _counted(dropped: dict[str, int]) -> str:
    return ", ".join(f"{count:,} × {reason}" for reason, count in dropped.items()) or "none"


def split_rows(
    rows: Iterable[dict],
    check_length: Callable[[dict], None],
    account: _Account,
    *,
    train_size: int | None,
    holdout_size: int | None,
    seed: int,
) -> tuple[list[dict], list[dict]]:
    """Return the source's own split, or else one by a seeded hash of the question, or of the
    picture; the account has the rows that are too long.

    A hash rather than a shuffle: the same rows give the same split in any order. Only as many rows
    are measured as are needed; of rows with pictures all, because those are dropped whose picture
    is held out.
    """

    def order(row: dict) -> tuple[bytes, bytes]:
        def seeded(about: bytes) -> bytes:
            return hashlib.sha256(f"{seed}\x1f".encode() + about).digest()

        picture = seeded(row["pixels"]) if "pixels" in row and "split" not in row else b""
        return picture, seeded(row["question"].encode() + row.get("image", b""))

    most = train_size or MOST_TRAINED
    held_out = holdout_size or HELD_OUT
    sizes = {"train": most, "holdout": held_out, None: most + held_out}
    kept = {split: [] for split in sizes}
    for row in sorted(rows, key=order):
        split = row.get("split")
        if len(kept[split]) >= sizes[split] and "pixels" not in row:
            continue
        try:
            check_length(row)
        except Dropped as error:
            account.drop(str(error), f"{row['question']} -> {row['answer']}", error.advice)
        else:
            kept[split].append(row)
    if holdout_size is None and not kept["holdout"]:
        held_out = max(1, min(held_out, account.usable // 4, account.usable - (train_size or 0)))
    holdout = (kept["holdout"] or kept[None])[:held_out]
    train = []
    held_out_pictures = {row["pixels"] for row in holdout if "pixels" in row}
    for row in kept["train"] or kept[None][held_out:]:
        if row.get("pixels") in held_out_pictures:
            account.drop(
                "picture is held out, too",
                row["question"],
                "Bring more pictures that differ, or ask for a smaller holdout.",
            )
        else:
            train.append(row)
    return train[:most], holdout


def _validated(
    source_rows: Iterable[dict | Broken],
    account: _Account,
    kind: str | None,
    folder: Path,
    max_pixels: int,
    as_it_is: bool,
) -> list[dict]:
    """Return rows with a question and its one answer, each once; the account has all the others.

    as_it_is: whether the answers are what is judged, and nothing is to be found in them.
    """
    # the rows of each question, by its hash, each with its number in the source
    alike: dict[int, list[tuple[int, dict]]] = {}
    for account.read, row in enumerate(source_rows, 1):
        if isinstance(row, Broken):
            account.drop(row.reason, row.where, row.advice or _MORE_ROWS)
            continue
        try:
            row["question"], *places = question_in(row["question"])
            row["answer"], answer_place = answer_in(
                row["answer"], "text" if as_it_is else kind or row.get("kind")
            )
            options = options_in(row.get("options"))
            if options and isinstance(row["question"], str):
                row["question"], row["answer"], option_place = with_options(
                    row["question"], options, row["answer"]
                )
                places.append(option_place)
            if options or answer_place == "a letter in a box":
                row["kind"] = row.get("kind") or "choice"
            _clean(row, kind)
            account.found.update(filter(None, [*places, answer_place]))
            if "image" in row:
                row["image"], row["pixels"], smaller = prepared(row["image"], folder, max_pixels)
                account.made_smaller += smaller
        except Dropped as error:
            picture = f" ({row['image']})" if isinstance(row.get("image"), str) else ""
            account.drop(
                str(error),
                f"row {account.read}{picture}: {row['question']!r} -> {row['answer']!r}",
                error.advice,
            )
            continue
        key = hash((_same(row["question"]), row.get("pixels")))
        alike.setdefault(key, []).append((account.read, row))
    # numbers that count from 1 are never 0, which has a chance below e**-7 if they count from 0
    letters = {row["answer"] for group in alike.values() for _, row in group}
    never_0 = "A" not in letters
    if account.dropped[BEYOND] or (never_0 and account.found[NUMBERED] > 7 * (len(letters) + 1)):
        raise ValueError(
            f"{account.dropped[BEYOND]} answers are numbers beyond the last option, and of "
            f"{account.found[NUMBERED]} others {'none is' if never_0 else 'some are'} 0. Numbers "
            "count from 0 here; if yours count from 1, or are options themselves, give the "
            'letters, or the options as texts ("10", not 10).'
        )
    kept = []
    for group in alike.values():
        _, first = group[0]
        if all(row["answer"] == first["answer"] for _, row in group):
            kept.append(first)
            for number, row in group[1:]:
                account.drop(
                    "duplicate question",
                    f"row {number}: {row['question']}",
                    "Bring more questions that differ, or ask for fewer.",
                )
        else:  # nobody knows which is right
            for number, row in group:
                account.drop(
                    "question with two answers",
                    f"row {number}: {row['question']} -> {row['answer']}",
                    "Is a part of the question in another column? Then join them: "
                    'columns={"question": ["…", "…"]}.',
                )
    return kept


def _same(question: str) -> str:
    """A question as all its spellings have it: one in two Unicode forms, or with a character that
    nobody sees, is one.
    """
    question = unicodedata.normalize("NFKC", question)
    question = "".join(c for c in question if unicodedata.category(c) != "Cf")
    return " ".join(question.split()).casefold()


def _clean(row: dict, kind: str | None) -> None:
    """Make question and answer stripped strings in place; Dropped says why one cannot be."""
    for name in ("question", "answer"):
        value = row[name]
        if not isinstance(value, (str, int, float, type(None))):
            raise Dropped(
                f"{name} is a {type(value).__name__}, not text",
                "Name a column with one answer; the list remains for a reward of your own. If the "
                "list is the answer, declare its kind, such as kind='set'."
                if isinstance(value, list) and name == "answer"
                else f'Name the field that is meant: columns={{"{name}": "column.field"}}.',
            )
        if pd.isna(value) or not str(value).strip():
            raise Dropped(
                f"{name} is blank", "Are these the right columns? Name others with columns=…."
            )
        if re.search("[\ud800-\udfff]", str(value)):  # from a JSON file; no tokenizer takes it
            raise Dropped(f"{name} has a lone surrogate, which is no text", _MORE_ROWS)
        row[name] = str(value).strip()
    for name in ("question", "answer"):
        if row[name].casefold() in _MISSING and (kind or row.get("kind")) not in ANY_TEXT:
            raise Dropped(
                f"{name} is a missing value",
                "If that is an answer, declare kind='text' or kind='exact'.",
            )


def _table(rows: list[dict]) -> tuple[pd.DataFrame, dict[str, str]]:
    """Return the rows as a table, and why each column that is not in it was left out.

    A column that Parquet cannot store is left out, so that it stops no run; that is printed, too.
    """
    kept = []
    left_out = {}
    names = dict.fromkeys(["prompt", "question", "answer", *(name for row in rows for name in row)])
    for name in names:
        try:
            values = {name: [row.get(name) for row in rows]}
            column = pd.DataFrame(values, dtype=object).infer_objects()
            column.to_parquet(io.BytesIO(), index=False)
        # Arrow's own, OverflowError, UnicodeEncodeError, TypeError: whatever the values provoke
        except Exception as error:
            shown = shortened(name, 40)
            left_out[shown] = f"Parquet cannot store it: {type(error).__name__}: {shortened(error)}"
            print(f"column left out: {shown} ({left_out[shown]})")
        else:
            kept.append(column)
    return pd.concat(kept, axis=1), left_out
