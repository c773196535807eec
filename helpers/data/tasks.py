"""Rows in, validated `prompt`/`answer` rows out: one function, `load_task`, from a source to a
train and a holdout table.

A source is a name (`arithmetic/sums`, `reasoning-gym/leg_counting`, `openai/gsm8k`) or a path to a
.csv, .json, .jsonl or .parquet file. `sources.py` reads its rows, `rows.py` keeps the usable ones
and splits them; here they get their prompts and become tables.
"""

import hashlib
import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import pandas as pd

from helpers import templates
from helpers.data.files import Dropped, file_rows, hub_failure, shorten
from helpers.data.rows import HELD_OUT, Account, counted, split_rows, usable_rows
from helpers.data.shapes import ANY_TEXT, MARKS
from helpers.data.sources import check_model, read_source
from helpers.presets import Preset
from helpers.runs import TRAINING_LOCK, Run, atomic_write, lock, write_json
from helpers.tags import THINK_ANSWER, TagFormat

_LONG = 30  # words of an answer, about which a note is made
_CALCULATION = re.compile(r"[\d\s.,()+*/×÷·−-]+=[\d\s.,()+*/×÷·−-]+")


@dataclass(frozen=True)
class Task:
    """A task ready to train on.

    train, holdout: tables with the columns `prompt` (list of {role, content}), `question`, `answer`
        (str), `image` (the bytes of a file) if there are pictures, and the source's own columns, as
        far as Parquet can store them.
    report: what was read, dropped (rows and columns, and why), notes on how it was read, and how
        long the prompts are; JSON-ready.
    """

    train: pd.DataFrame
    holdout: pd.DataFrame
    report: dict

    @property
    def line(self) -> str:
        """Return how many rows there are, in one line, and the notes below it;
        `python -m helpers run` prints them, too.
        """
        read, dropped, unused = map(self.report.get, ("rows_read", "dropped", "rows_unused"))
        line = (
            f"data: {read - sum(dropped.values()):,} of {read:,} rows usable (dropped: "
            f"{counted(dropped)}); {len(self.train):,} to train on, {len(self.holdout):,} held out"
        )
        if unused:
            line += f", {unused:,} unused (train_size takes more)"
        return "\n".join([line, *(f"note: {note}" for note in self.report["notes"])])


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
    train_size, holdout_size: rows on each side. train_size None takes all up to 100,000 (for
        a generated source, 1,000). holdout_size None takes 256, but at most a quarter of the usable
        rows unless the source has a split of its own.
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
    kind: how all answers are judged, one of `rewards.answers.kinds.DECLARED_KINDS`; written to a
        column `kind`, which correctness_reward reads. Without it an answer is a number, mathematics
        or text. NaN, None, N/A and - are missing values, unless the kind is text or exact.
    max_pixels: a picture with more is made smaller, in its proportions; a note counts these.

    ValueError if the source cannot give these rows; it names the value and the way out.
    """
    system = tags.system_prompt if system_prompt is None else system_prompt
    turns = example_turns(examples)
    worked = [
        {"question": user["content"], "answer": assistant["content"]}
        for user, assistant in zip(turns[::2], turns[1::2], strict=True)
    ]
    account = Account()

    def check_length(columns: dict) -> None:
        """Raise Dropped for a row that exceeds a limit."""
        if count_tokens is None:
            return
        length = count_tokens(chat_prompt(system, columns["question"], turns))
        account.prompt_lengths.append(length)
        if max_prompt_tokens is not None and length > max_prompt_tokens:
            raise Dropped(
                f"prompt over {max_prompt_tokens} tokens",
                "Raise max_prompt_length, or shorten the questions.",
            )
        shortest = tags.render("", columns["answer"])
        if max_completion_tokens is not None and count_tokens(shortest) > max_completion_tokens:
            raise Dropped(
                f"answer over {max_completion_tokens} tokens",
                "Raise max_completion_length, or drop the long answers.",
            )

    # 1. rows with a question and its one answer; a generator makes up for those that are dropped
    # because they are worked examples
    rows = usable_rows(
        read_source(
            source,
            columns,
            train_size and train_size + len(worked),
            (holdout_size or HELD_OUT) + len(worked),
            seed,
        ),
        account,
        kind=kind,
        as_it_is=str(source).startswith("reasoning-gym/"),
        worked=[example["question"] for example in worked],
        folder=Path(source) if Path(source).is_dir() else Path(source).parent,
        max_pixels=max_pixels,
    )

    # 2. the two sides, of rows that fit
    train, holdout = split_rows(
        rows,
        check_length,
        account,
        train_size=train_size,
        holdout_size=holdout_size,
        seed=seed,
    )
    account.check_sizes(source, train, holdout, train_size, holdout_size)

    # 3. their prompts, and the tables
    rows = [row.columns for row in train + holdout]
    for row in rows:
        row["prompt"] = chat_prompt(system, row["question"], turns)
    table, columns_dropped = _table(rows)

    # 4. the report; some of it only if there is such a thing
    report = account.report(train, holdout) | {
        "source": source,
        "seed": seed,
        "tags": tags.spec,
        "system_prompt": system,
        "fingerprint": fingerprint(worked + rows),
        "notes": _notes(account, rows, worked, tags),
    }
    optional = {"examples": turns, "columns_dropped": columns_dropped, "columns": columns}
    report |= {name: value for name, value in optional.items() if value}
    return Task(table[: len(train)], table[len(train) :].reset_index(drop=True), report)


def _notes(account: Account, rows: list[dict], worked: list[dict], tags: TagFormat) -> list[str]:
    """Return sentences on how rows were read, on answers that a completion will hardly give, and on
    worked examples that show another format.
    """
    notes = []
    if account.shapes:
        notes.append(f"found in the data: {counted(account.shapes)}")
    marked = sum(count for shape, count in account.shapes.items() if shape in MARKS)
    if marked > len(account.unmarked) > 0:
        longest = max(account.unmarked, key=len)
        notes.append(
            f"answers without a marked result, beside {marked:,} with one: "
            f"{len(account.unmarked):,}, such as {shorten(longest)!r}. They are taken whole."
        )
    answers = [row["answer"] for row in rows]
    if 2 * sum(len(answer.split()) > _LONG for answer in answers) > len(rows):
        notes.append(
            f"most answers have more than {_LONG} words, which no completion repeats: mark the "
            r"result in each of them, by #### or \boxed{}, or name another column."
        )
    answers = [row["answer"] for row in rows if row.get("kind") not in ANY_TEXT]
    calculations = [answer for answer in answers if _CALCULATION.fullmatch(answer)]
    if calculations:
        notes.append(
            f"answers that are a whole calculation, such as {calculations[0]!r}: "
            f"{len(calculations):,}. Its result alone is then wrong: give the number."
        )
    # in a worked example, the assistant says it all, also what a template opens for the policy
    whole = replace(tags, opened=False)
    others = sum(not whole.matches(example["answer"]) for example in worked)
    if others:
        notes.append(
            f"worked examples that are not in the format {whole.render('…', '…')}: {others} of "
            f"{len(worked)}. The policy copies what it is shown."
        )
    return notes


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
    rows = examples or []
    where = "examples"
    if isinstance(examples, str):
        where = examples
        rows = list(file_rows(Path(examples), ("question", "completion")))
        if not rows:
            raise ValueError(f"{examples}: the file has no worked examples.")
    turns = []
    for number, row in enumerate(rows, 1):
        texts = []
        if isinstance(row, dict):
            texts = [row.get("question"), row.get("completion")]
        if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
            raise ValueError(
                f"{where}: a worked example is a question and a completion, both texts that are "
                'not blank: {"question": "…", "completion": "…"}. This one is not: row '
                f"{number}: {shorten(row)}"
            )
        question, completion = texts
        turns.append({"role": "user", "content": question.strip()})
        turns.append({"role": "assistant", "content": completion.strip()})
    return turns


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
            shown = shorten(name, 40)
            left_out[shown] = f"Parquet cannot store it: {type(error).__name__}: {shorten(error)}"
            print(f"column left out: {shown} ({left_out[shown]})")
        else:
            kept.append(column)
    return pd.concat(kept, axis=1), left_out
