"""Keep the usable rows of a source, and split them into rows to train on and rows to hold out.

`usable_rows` finds the question and the answer of each row, cleans them, and keeps one row of each
question. `split_rows` makes the two sides: no question and no picture is on both. A function that
finds a fault in a row raises `Dropped`; its caller drops the row, and an `Account` counts the
dropped rows by reason. All usable rows stay in memory, with their pictures, until they are split.
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
from helpers.data.questions import question_in, system_message_in
from helpers.tags import TagFormat

# The most rows of each side if no size is given. 100,000 is twenty times what 300 steps of 16
# questions need, and still fits into memory.
DEFAULT_TRAIN_LIMIT = 100_000
DEFAULT_HOLDOUT_LIMIT = 256
_MORE_ROWS = "Add more rows, or ask for fewer."


@dataclass
class Row:
    """A row of a source.

    number: its position in the source, counted from 1.
    values: by name of the column. The names are `question`, `answer`, `image` if there is a
        picture, and those of the source's own columns. For `split_rows`, there is also `prompt`.
    split: "train" or "holdout" if the source has its own split, else None.
    pixel_hash: the SHA-256 of its picture's pixels; None without a picture.
    """

    number: int
    values: dict
    split: str | None
    pixel_hash: bytes | None = None

    def __str__(self) -> str:
        image = self.values.get("image")
        picture = f" ({image})" if isinstance(image, str) else ""
        return (
            f"row {self.number}{picture}: {self.values['question']!r} -> {self.values['answer']!r}"
        )


@dataclass
class Account:
    """A record of what happened to the rows of a source.

    read: the number of rows read.
    dropped: the rows that are not used, with the reasons.
    formats: how often each format of questions, answers and options was found (`chat messages`,
        `####`), and how many pictures were scaled down.
    unmarked: answers that were not marked as the result of a worked solution.
    system_messages: that of each row, or "". The prompts have another one.
    prompt_lengths: the tokens of each prompt that was measured.
    """

    read: int = 0
    dropped: list[Broken] = field(default_factory=list)
    formats: Counter = field(default_factory=Counter)
    unmarked: list[str] = field(default_factory=list)
    system_messages: list[str] = field(default_factory=list)
    prompt_lengths: list[int] = field(default_factory=list)

    def drop(self, cause: Dropped | Broken, row: Row | str) -> None:
        """Record a row that is not used."""
        self.dropped.append(Broken(cause.reason, str(row)[:200], cause.advice))

    @property
    def usable(self) -> int:
        """Return the number of rows that were not dropped."""
        return self.read - len(self.dropped)

    def reasons(self) -> Counter:
        """Return how many rows were dropped for each reason."""
        return Counter(dropped.reason for dropped in self.dropped)

    def report(self, train: list[Row], holdout: list[Row]) -> dict:
        """Return the numbers of rows, examples of dropped rows and the lengths of the prompts."""
        examples: dict[str, list[str]] = {}  # up to three for each reason
        for dropped in self.dropped:
            of_reason = examples.setdefault(dropped.reason, [])
            if len(of_reason) < 3:
                of_reason.append(dropped.where)
        report = {
            "rows_read": self.read,
            "dropped": dict(self.reasons()),
            "dropped_examples": examples,
            "rows_unused": self.usable - len(train) - len(holdout),
            "rows_train": len(train),
            "rows_holdout": len(holdout),
        }
        if self.prompt_lengths:
            names = ("min", "p50", "p90", "p99", "max")
            tokens = np.percentile(self.prompt_lengths, (0, 50, 90, 99, 100)).astype(int)
            report["prompt_tokens"] = dict(zip(names, tokens.tolist(), strict=True))
        return report

    def check_sizes(
        self,
        source: str,
        train: list[Row],
        holdout: list[Row],
        train_size: int | None,
        holdout_size: int | None,
    ) -> None:
        """Raise ValueError, with advice, if either side has fewer rows than were asked for."""
        # 1. Count the rows that are missing. Each side needs at least one row, even if no size was
        # asked for.
        missing_to_train = max((train_size or 1) - len(train), 0)
        missing_to_hold_out = max((holdout_size or 1) - len(holdout), 0)
        missing = missing_to_train + missing_to_hold_out
        if not missing:
            return

        # 2. Choose the advice: that of the most frequent reason, if it explains the lack. It does
        # if without it there would be enough rows, or if it dropped most of the source.
        advice = _MORE_ROWS
        example = ""
        if self.dropped:
            [(most_frequent, count)] = self.reasons().most_common(1)
            first = next(dropped for dropped in self.dropped if dropped.reason == most_frequent)
            example = f". For example, {first.reason}: {first.where}"
            if count >= missing or count > self.usable:
                advice = first.advice

        # 3. Prompts may have been too long: add how long they are.
        if self.prompt_lengths:
            shortest, median, longest = np.percentile(self.prompt_lengths, (0, 50, 100)).astype(int)
            advice += (
                f" The prompts have {shortest} to {longest} tokens, half of them over {median}."
            )
        raise ValueError(
            f"{source}: {self.usable} usable rows give {len(train)} to train on and "
            f"{len(holdout)} to hold out, but train_size={train_size} and "
            f"holdout_size={holdout_size} were asked for. {advice} "
            f"Read {self.read}, dropped: {counted(self.reasons())}{example}."
        )


def counted(numbers: dict[str, int]) -> str:
    """Return counts as text.

    >>> counted({"duplicate question": 2, "answer is blank": 1})
    '2 × duplicate question, 1 × answer is blank'
    """
    return ", ".join(f"{count:,} × {reason}" for reason, count in numbers.items()) or "none"


# --- Usable rows ----------------------------------------------------------------------------------


def usable_rows(
    source_rows: Iterable[dict | Broken],
    account: Account,
    *,
    source: str,
    kind: str | None,
    example_questions: Iterable[str],
    max_pixels: int,
) -> list[Row]:
    """Return the rows that can be used, one per question. The account records the dropped ones. If
    a question has several answers, all its rows are dropped.

    source, kind, max_pixels: see `tasks.load_task`.
    example_questions: the questions of worked examples. Their answers are in every prompt, so rows
        with these questions are dropped.
    """
    # reasoning-gym's answers may be about marks such as ####, so they are read as texts
    answers_are_texts = source.startswith("reasoning-gym/")
    # the paths of pictures are relative to the source
    folder = Path(source) if Path(source).is_dir() else Path(source).parent
    asked_in_examples = {_normal_form(question) for question in example_questions}

    # 1. Read each row. It is dropped at its first fault, so the order of the checks decides the
    # reason that is counted.
    rows = []
    for number, source_row in enumerate(source_rows, 1):
        account.read = number
        # a line or a file that could not be read as a row
        if isinstance(source_row, Broken):
            account.drop(source_row, source_row.where)
            continue
        row = Row(number, source_row, source_row.pop("split", None))
        try:
            # its question and its answer must be clear
            _read_texts(row, account, kind, answers_are_texts)

            # a worked example would tell the answer
            if _normal_form(row.values["question"]) in asked_in_examples:
                raise Dropped(
                    "question is a worked example",
                    "Add more questions, or choose other examples.",
                )

            # its picture, if it has one, must be readable
            if "image" in row.values:
                picture = prepare_picture(row.values["image"], folder, max_pixels)
                row.values["image"] = picture.file
                row.pixel_hash = picture.pixel_hash
                if picture.was_scaled_down:
                    account.formats["an image made smaller (max_pixels)"] += 1
            elif row.values.get("source_image") or row.values.get("source_images"):
                account.formats["an image that is not read (see columns, and notebook 11)"] += 1
            rows.append(row)
        except Dropped as cause:
            account.drop(cause, row)

    # 2. Group the rows by question. The same question about two pictures counts as two.
    by_question: dict[tuple, list[Row]] = {}
    for row in rows:
        key = (_normal_form(row.values["question"]), row.pixel_hash)
        by_question.setdefault(key, []).append(row)

    # 3. Keep the first row of each question, if all its rows have one answer. If they have several,
    # there is no way to tell which one is correct: drop them all.
    kept = []
    for same_question in by_question.values():
        answers = {row.values["answer"] for row in same_question}
        if len(answers) == 1:
            first, *not_kept = same_question
            kept.append(first)
            cause = Dropped(
                "duplicate question", "Add more questions that differ, or ask for fewer."
            )
        else:
            not_kept = same_question
            cause = Dropped(
                "question with two answers",
                "If a part of the question is in another column, join them: "
                'columns={"question": ["…", "…"]}.',
            )
        for row in not_kept:
            account.drop(cause, row)
    return kept


def _normal_form(question: str) -> str:
    """Return a question without differences of case, spaces, Unicode form or invisible characters.

    >>> _normal_form("What is  1\N{FULLWIDTH PLUS SIGN}1?")
    'what is 1+1?'
    """
    question = unicodedata.normalize("NFKC", question)
    # Cf: invisible characters, such as the zero-width space
    question = "".join(c for c in question if unicodedata.category(c) != "Cf")
    return " ".join(question.split()).casefold()


def _read_texts(row: Row, account: Account, kind: str | None, answers_are_texts: bool) -> None:
    """Replace a row's question and answer by the texts found in them, and set its kind. The account
    records how they were found. Raise Dropped if there is no clear question or answer.

    kind: that of all rows; None: each row has its own, or none.
    """
    values = row.values
    if kind:
        values["kind"] = kind
    row_kind = values.get("kind")

    # 1. Find the question, which may have a picture, and the answer. With options, the answer is a
    # letter.
    has_picture = bool(values.get("image"))
    question, question_format = question_in(values["question"], has_picture)
    read_as = "text" if answers_are_texts else row_kind
    answer, answer_format = answer_in(values["answer"], read_as)
    options = options_in(values.get("options"))
    options_format = ""
    if options and isinstance(question, str):
        question, answer, options_format = with_options(question, options, answer)
    question = _clean_text("question", question, row_kind)
    answer = _clean_text("answer", answer, row_kind)

    # 2. Record how they were found.
    for found_format in (question_format, answer_format, options_format):
        if found_format:
            account.formats[found_format] += 1
    account.system_messages.append(system_message_in(values["question"]))
    if answer_format not in MARK_NAMES:
        account.unmarked.append(answer)

    # 3. Keep them. With options, the source's own column `kind` is replaced: it may be about
    # something else.
    values |= {"question": question, "answer": answer}
    if options or answer_format == LETTER_IN_BOX:
        values["kind"] = kind or "choice"


# What spreadsheets, databases and pandas write for a missing value, and a spreadsheet's errors:
# `#N/A`, `#DIV/0!`, `#NAME?`. `Na` is sodium.
_MISSING = re.compile(
    r"""-|--|NA|na|\\N
    | (?i: -?nan | none | n/a | n\.a\. | nil | <na> | nat | undefined
        | [(<\[]?null[)>\]]? | -?1\.\#(?:ind|qnan)
        | \#(?:n/?a|nv)(?:\ n/a)? | \#[a-z][\w/]*[!?] )""",
    re.VERBOSE,
)


def _clean_text(name: str, value: object, kind: str | None) -> str:
    """Return a question or an answer as text without spaces around it. Raise Dropped if it is not
    text.

    name: "question" or "answer", for the message.

    >>> _clean_text("answer", 6.5, None), _clean_text("answer", [3, 4], "set")
    ('6.5', '3, 4')
    """
    # 1. A type that can be written as text.
    if isinstance(value, list) and name == "answer":
        value = _list_as_text(value, kind)
    if not isinstance(value, (str, int, float, type(None))):
        raise Dropped(
            f"{name} is a {type(value).__name__}, not text",
            f'Name the field that is meant: columns={{"{name}": "column.field"}}.',
        )

    # 2. What is no text, or none that is meant.
    text = "" if pd.isna(value) else str(value).strip()
    if not text:
        raise Dropped(
            f"{name} is blank", "Are these the right columns? Name others with columns=…."
        )
    # half of a character, which JSON can write as \ud800; no tokenizer accepts it
    if re.search("[\ud800-\udfff]", text):
        raise Dropped(f"{name} has a lone surrogate, which is not text", _MORE_ROWS)
    if _MISSING.fullmatch(text) and kind not in TEXT_KINDS:
        raise Dropped(
            f"{name} is a missing value",
            "If that is an answer, declare kind='text' or kind='exact'.",
        )
    return text


def _list_as_text(items: list, kind: str | None) -> str:
    """Return an answer that is a list of numbers or expressions as the text of one answer, of kind
    set or mathematics. Raise Dropped if the kind is another, or if items are words, which may have
    commas of their own.

    >>> _list_as_text([3, "x + 1", [1, 2]], "set")
    '3, x + 1, (1, 2)'
    """
    texts = []
    for item in items:
        if isinstance(item, list):  # a tuple: [1, 2] becomes (1, 2)
            texts.append(f"({', '.join(map(str, item))})")
        else:
            texts.append(str(item).strip())
    # several letters, perhaps in several words, and nothing else
    has_words = any(re.fullmatch(r"[^\W\d_]{3,}(?: [^\W\d_]+)*", text) for text in texts)
    if has_words or kind not in ("set", "mathematics"):
        raise Dropped(
            "answer is a list, not text",
            "Name a column with one answer; the list remains for a reward of your own. If the "
            "list is the answer, declare its kind, such as kind='set' for numbers and "
            "expressions in any order, and write a list of words as one text, such as "
            '"red, blue".',
        )
    return ", ".join(texts)


# --- The split ------------------------------------------------------------------------------------


def split_rows(
    rows: list[Row],
    account: Account,
    *,
    tags: TagFormat,
    count_tokens: Callable[[list[dict] | str], int] | None,
    max_prompt_tokens: int | None,
    max_completion_tokens: int | None,
    train_size: int | None,
    holdout_size: int | None,
    seed: int,
) -> tuple[list[Row], list[Row]]:
    """Return the rows to train on and the rows to hold out, without rows that are too long.

    If the source has its own split, it is kept. Otherwise rows are ordered by a seeded hash of the
    question or the picture, and the first ones are held out. A hash rather than a shuffle: the same
    rows give the same split in any order.

    rows: their values include a `prompt`.

    For the other arguments, see `tasks.load_task`.
    """
    # 1. Group the rows by the source's own split. Without one, `row.split` is None for all of them,
    # and step 3 takes both sides from one group. Each group has a limit.
    train_limit = train_size or DEFAULT_TRAIN_LIMIT
    holdout_limit = holdout_size or DEFAULT_HOLDOUT_LIMIT
    limits = {"train": train_limit, "holdout": holdout_limit, None: train_limit + holdout_limit}
    fitting: dict[str | None, list[Row]] = {"train": [], "holdout": [], None: []}

    # 2. Keep the rows that are not too long. Once a group is full, no more of its rows are
    # measured, except those with pictures, because step 4 drops some of them.
    for row in sorted(rows, key=lambda row: _position(row, seed)):
        is_full = len(fitting[row.split]) >= limits[row.split]
        if is_full and row.pixel_hash is None:
            continue
        too_long = None
        if count_tokens is not None:
            prompt_tokens = count_tokens(row.values["prompt"])
            account.prompt_lengths.append(prompt_tokens)
            shortest = tags.render("", row.values["answer"])  # without reasoning
            if max_prompt_tokens is not None and prompt_tokens > max_prompt_tokens:
                too_long = Dropped(
                    f"prompt over {max_prompt_tokens} tokens",
                    "Raise max_prompt_length, or shorten the questions.",
                )
            elif max_completion_tokens is not None and (
                count_tokens(shortest) > max_completion_tokens
            ):
                too_long = Dropped(
                    f"answer over {max_completion_tokens} tokens",
                    "Raise max_completion_length, or drop the long answers.",
                )
        if too_long is None:
            fitting[row.split].append(row)
        else:
            account.drop(too_long, row)

    # 3. Hold out the rows of the source's own split, or the first rows by hash. Without a
    # holdout_size, these are at most a quarter of all rows, and leave enough rows for train_size.
    if any(row.split for row in rows):
        holdout = fitting["holdout"][:holdout_limit]
        others = fitting["train"]
    else:
        if holdout_size is None:
            quarter = account.usable // 4
            left_by_train_size = account.usable - (train_size or 0)
            holdout_limit = max(1, min(holdout_limit, quarter, left_by_train_size))
        holdout = fitting[None][:holdout_limit]
        others = fitting[None][holdout_limit:]

    # 4. Train on the others, without the pictures that are held out.
    held_out_pictures = {row.pixel_hash for row in holdout if row.pixel_hash}
    is_held_out = Dropped(
        "image is also held out", "Add more images that differ, or ask for a smaller holdout."
    )
    train = []
    for row in others:
        if row.pixel_hash in held_out_pictures:
            account.drop(is_held_out, row)
        else:
            train.append(row)
    return train[:train_limit], holdout


def _position(row: Row, seed: int) -> tuple[bytes, bytes]:
    """Return a row's place in the order of the split: by a hash of its picture, then by its own.

    So all questions about a picture follow one another, and the cut between the two sides separates
    the questions of one picture at most. A source with its own split has no such cut, so there the
    picture does not matter.
    """
    salt = f"{seed}\x1f".encode()
    picture_hash = b""
    if row.pixel_hash and not row.split:
        picture_hash = hashlib.sha256(salt + row.pixel_hash).digest()
    content = row.values["question"].encode() + row.values.get("image", b"")
    row_hash = hashlib.sha256(salt + content).digest()
    return picture_hash, row_hash
