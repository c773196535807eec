"""Which rows of a source are usable, and the two sides that they are split into.

Question and answer of a row are found (`questions.py`, `answer_marks.py`, `options.py`), cleaned,
and compared with those of all other rows. What cannot be used is dropped, and the `Account` counts
it by its reason. No question is ever on both sides of the split, and no picture. All usable rows
are in memory while they are split, with their pictures.
"""

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from helpers.data.answer_marks import LETTER_IN_BOX, MARK_NAMES, TEXT_KINDS, answer_in
from helpers.data.files import Broken, Dropped
from helpers.data.options import options_in, with_options
from helpers.data.pictures import prepare_picture
from helpers.data.questions import question_in

# Rows to train on without a train_size: some twenty times what 300 steps of 16 questions see, in
# memory that any machine has.
MOST_TRAINED = 100_000
HELD_OUT = 256  # without a holdout_size
_MISSING = {"nan", "none", "n/a", "-"}  # what tables write for a missing value
MORE_ROWS = "Bring more rows, or ask for fewer."


@dataclass
class Row:
    """A row of a source.

    number: its place in the source, from 1.
    columns: `question` and `answer`, `image` if there is a picture, and the source's own.
    split: the side that the source puts it on, "train" or "holdout"; None if it has no sides.
    pixels: a digest of what is seen in its picture.
    """

    number: int
    columns: dict
    split: str | None
    pixels: bytes | None = None

    def __str__(self) -> str:
        image = self.columns.get("image")
        picture = f" ({image})" if isinstance(image, str) else ""
        question, answer = self.columns["question"], self.columns["answer"]
        return f"row {self.number}{picture}: {question!r} -> {answer!r}"


@dataclass
class Account:
    """What happened to the rows of a source.

    dropped: of each row that is not used the reason, what to do about many such rows, and a text
        that shows it.
    shapes: in which shapes questions and answers were found, and how many pictures were too large.
    unmarked: the answers that were not marked as the result of a working.
    prompt_lengths: in tokens, of the rows that were measured.
    """

    read: int = 0
    dropped: list[tuple[str, str, str]] = field(default_factory=list)
    formats: Counter = field(default_factory=Counter)
    unmarked: list[str] = field(default_factory=list)
    prompt_lengths: list[int] = field(default_factory=list)

    def drop(self, cause: Dropped | Broken, row: Row | str) -> None:
        self.dropped.append((cause.reason, cause.advice, str(row)[:200]))

    @property
    def usable(self) -> int:
        return self.read - len(self.dropped)

    def reasons(self) -> Counter:
        """Return how many rows were dropped for each reason."""
        return Counter(reason for reason, _, _ in self.dropped)

    def report(self, train: list[Row], holdout: list[Row]) -> dict:
        """Return what was read and dropped, and how many rows the two sides have."""
        examples = {}
        for reason, _, row in self.dropped:
            examples.setdefault(reason, []).append(row)
        report = {
            "rows_read": self.read,
            "dropped": dict(self.reasons()),
            "dropped_examples": {reason: rows[:3] for reason, rows in examples.items()},
            "rows_unused": self.usable - len(train) - len(holdout),
            "rows_train": len(train),
            "rows_holdout": len(holdout),
        }
        if self.prompt_lengths:
            levels = {"min": 0, "p50": 50, "p90": 90, "p99": 99, "max": 100}
            quantiles = np.percentile(self.prompt_lengths, list(levels.values()))
            report["prompt_tokens"] = dict(zip(levels, map(int, quantiles), strict=True))
        return report

    def check_sizes(
        self,
        source: str,
        train: list[Row],
        holdout: list[Row],
        train_size: int | None,
        holdout_size: int | None,
    ) -> None:
        """Raise ValueError for fewer rows than were asked for, with what to do about it."""
        lacking = max((train_size or 1) - len(train), 0)
        lacking += max((holdout_size or 1) - len(holdout), 0)
        if not lacking:
            return
        advice = MORE_ROWS
        example = ""
        if self.dropped:
            [(most_frequent, count)] = self.reasons().most_common(1)
            rows = [entry for entry in self.dropped if entry[0] == most_frequent]
            reason, advice_for_it, row = rows[0]
            example = f". For example, {reason}: {row}"
            # the dropped rows would be enough, or are most of the source
            if count >= lacking or count > self.usable:
                advice = advice_for_it
        if self.prompt_lengths:
            low, half, high = np.percentile(self.prompt_lengths, (0, 50, 100)).astype(int)
            advice += f" The prompts have {low} to {high} tokens, half of them over {half}."
        raise ValueError(
            f"{source}: {self.usable} usable rows give {len(train)} to train on and "
            f"{len(holdout)} to hold out, but train_size={train_size} and "
            f"holdout_size={holdout_size} were asked for. {advice} "
            f"Read {self.read}, dropped: {counted(self.reasons())}{example}."
        )


def counted(numbers: dict[str, int]) -> str:
    """Return counts as a text: `2 × duplicate question, 1 × answer is blank`."""
    return ", ".join(f"{count:,} × {reason}" for reason, count in numbers.items()) or "none"


# --- Usable rows ----------------------------------------------------------------------------------


def usable_rows(
    source_rows: Iterable[dict | Broken],
    account: Account,
    *,
    kind: str | None,
    verbatim: bool,
    example_questions: Iterable[str],
    folder: Path,
    max_pixels: int,
) -> list[Row]:
    """Return the rows with a question and its one answer, each once; the account has all others.

    kind, max_pixels: see `tasks.load_task`.
    verbatim: whether the answers are what is judged, and nothing is to be found in them.
    worked: questions of worked examples, whose answers stand in every prompt.
    folder: where paths of pictures begin.
    """
    asked_in_examples = {_normal_form(question) for question in example_questions}
    rows = []
    for number, columns in enumerate(source_rows, 1):
        account.read = number
        if isinstance(columns, Broken):
            account.drop(columns, columns.where)
            continue
        row = Row(number, columns, columns.pop("split", None))
        if kind:
            columns["kind"] = kind
        try:
            columns |= _read(columns, kind, verbatim, account)
            if _normal_form(columns["question"]) in asked_in_examples:
                raise Dropped(
                    "question is a worked example",
                    "Bring more questions, or take examples that are none of them.",
                )
            if "image" in columns:
                picture = prepare_picture(columns["image"], folder, max_pixels)
                columns["image"], row.pixels, is_smaller = picture
                if is_smaller:
                    account.formats["a picture made smaller (max_pixels)"] += 1
            rows.append(row)
        except Dropped as cause:
            account.drop(cause, row)
    return _distinct(rows, account)


def _read(columns: dict, declared: str | None, verbatim: bool, account: Account) -> dict:
    """Return the `question` and the `answer` that are found in a row's columns, as texts; of an
    answer that is a letter, also the `kind`, which is choice unless another is declared: a column
    of that name in the data may be about something else.

    The account counts in which shapes they were. Dropped says why there are none.
    """
    kind = columns.get("kind")
    question, question_shape = question_in(columns["question"])
    answer, answer_shape = answer_in(columns["answer"], "text" if verbatim else kind)
    shapes = [question_shape, answer_shape]
    options = options_in(columns.get("options"))
    if options and isinstance(question, str):
        question, answer, option_shape = with_options(question, options, answer)
        shapes.append(option_shape)
    question = _clean_text("question", question, kind)
    answer = _clean_text("answer", answer, kind)
    account.formats.update(filter(None, shapes))
    if answer_shape not in MARK_NAMES:
        account.unmarked.append(answer)
    texts = {"question": question, "answer": answer}
    if options or answer_shape == LETTER_IN_BOX:
        texts["kind"] = declared or "choice"
    return texts


def _clean_text(name: str, value: object, kind: str | None) -> str:
    """Return a question or an answer as a stripped text; Dropped says why it cannot be one."""
    if isinstance(value, list) and name == "answer":
        raise Dropped(
            "answer is a list, not text",
            "Name a column with one answer; the list remains for a reward of your own. If the list "
            "is the answer, declare its kind, such as kind='set'.",
        )
    if not isinstance(value, (str, int, float, type(None))):
        raise Dropped(
            f"{name} is a {type(value).__name__}, not text",
            f'Name the field that is meant: columns={{"{name}": "column.field"}}.',
        )
    text = "" if pd.isna(value) else str(value).strip()
    if not text:
        raise Dropped(
            f"{name} is blank", "Are these the right columns? Name others with columns=…."
        )
    if re.search("[\ud800-\udfff]", text):  # from a JSON file; no tokenizer takes it
        raise Dropped(f"{name} has a lone surrogate, which is no text", MORE_ROWS)
    if text.casefold() in _MISSING and kind not in TEXT_KINDS:
        raise Dropped(
            f"{name} is a missing value",
            "If that is an answer, declare kind='text' or kind='exact'.",
        )
    return text


def _normal_form(question: str) -> str:
    """Return a question as all its spellings have it: without capitals, double spaces, Unicode's
    other forms of a character, and characters that nobody sees.
    """
    question = unicodedata.normalize("NFKC", question)
    question = "".join(c for c in question if unicodedata.category(c) != "Cf")
    return " ".join(question.split()).casefold()


def _distinct(rows: list[Row], account: Account) -> list[Row]:
    """Return one row of each question, or of each question about a picture, that has one answer."""
    alike: dict[tuple, list[Row]] = {}
    for row in rows:
        alike.setdefault((_normal_form(row.columns["question"]), row.pixels), []).append(row)
    kept = []
    for group in alike.values():
        if len({row.columns["answer"] for row in group}) == 1:
            kept.append(group.pop(0))
            cause = Dropped(
                "duplicate question", "Bring more questions that differ, or ask for fewer."
            )
        else:  # nobody knows which is right
            cause = Dropped(
                "question with two answers",
                "Is a part of the question in another column? Then join them: "
                'columns={"question": ["…", "…"]}.',
            )
        for row in group:
            account.drop(cause, row)
    return kept


# --- The two sides --------------------------------------------------------------------------------


def split_rows(
    rows: list[Row],
    check_length: Callable[[dict], None],
    account: Account,
    *,
    train_size: int | None,
    holdout_size: int | None,
    seed: int,
) -> tuple[list[Row], list[Row]]:
    """Return the rows to train on and those to hold out: the source's own split, or else one by a
    seeded hash of the question, or of the picture.

    A hash rather than a shuffle: the same rows give the same split in any order. No picture is on
    both sides.

    check_length: raises Dropped for a row's columns that are too long. Only as many rows are
        measured as are needed; of rows with pictures all, because some are dropped afterwards.
    """

    def seeded(data: bytes) -> bytes:
        return hashlib.sha256(f"{seed}\x1f".encode() + data).digest()

    def order(row: Row) -> tuple[bytes, bytes]:
        # all questions about a picture beside each other
        picture = seeded(row.pixels) if row.pixels and not row.split else b""
        return picture, seeded(row.columns["question"].encode() + row.columns.get("image", b""))

    # 1. the rows that fit, in their order, and no more than are needed of each side
    most = train_size or MOST_TRAINED
    held_out = holdout_size or HELD_OUT
    sizes = {"train": most, "holdout": held_out, None: most + held_out}
    fitting = {split: [] for split in sizes}
    for row in sorted(rows, key=order):
        if len(fitting[row.split]) >= sizes[row.split] and row.pixels is None:
            continue
        try:
            check_length(row.columns)
        except Dropped as cause:
            account.drop(cause, row)
        else:
            fitting[row.split].append(row)

    # 2. the holdout: of a source without sides at most a quarter, unless its size is given
    if holdout_size is None and not fitting["holdout"]:
        held_out = max(1, min(held_out, account.usable // 4, account.usable - (train_size or 0)))
    holdout = (fitting["holdout"] or fitting[None])[:held_out]

    # 3. the rest is trained on, but for pictures that are held out
    held_out_pictures = {row.pixels for row in holdout} - {None}
    train = []
    for row in fitting["train"] or fitting[None][held_out:]:
        if row.pixels in held_out_pictures:
            cause = Dropped(
                "picture is held out, too",
                "Bring more pictures that differ, or ask for a smaller holdout.",
            )
            account.drop(cause, row)
        else:
            train.append(row)
    return train[:most], holdout
