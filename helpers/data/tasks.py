"""Turn a source into a table to train on and a table to hold out.

    task = load_task("questions.csv", holdout_size=100)
    print(task.line)  # data: 291 of 300 rows usable (dropped: …); 191 to train on, 100 held out

`sources.py` reads the rows of a source, and `rows.py` keeps the usable ones and splits them. This
module adds the prompts (`prompts.py`), builds the tables and writes them into a run folder. Read
`load_task` first: its five steps are the whole way of a row. `_notes` looks for what a user should
know about the data, `save` writes, and the functions at the end load the model's tokenizer.
"""

import hashlib
import io
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from functools import partial

import pandas as pd

from helpers import templates
from helpers.data.answer_marks import MARK_NAMES, TEXT_KINDS
from helpers.data.prompts import chat_prompt, example_turns
from helpers.data.rows import DEFAULT_HOLDOUT_LIMIT, Account, counted, split_rows, usable_rows
from helpers.data.sources import read_source
from helpers.families import check_model, hub_failure
from helpers.printing import on_one_line, shorten
from helpers.runs import TRAINING_LOCK, Run, atomic_write, lock, write_json
from helpers.settings import Preset
from helpers.tags import THINK_ANSWER, TagFormat


@dataclass(frozen=True)
class Task:
    """A task ready to train on.

    train, holdout: tables with the columns `prompt` (a list of {role, content}), `question`,
        `answer` (str), `image` (the bytes of a file, if there are pictures), and those of the
        source's own columns that Parquet can store.
    report: the rows read, the rows and columns dropped with the reasons, notes on how rows were
        read, and the lengths of the prompts. It can be written as JSON.
    """

    train: pd.DataFrame
    holdout: pd.DataFrame
    report: dict

    @property
    def line(self) -> str:
        """Return one line with the numbers of rows, followed by a line for each note."""
        report = self.report
        usable = report["rows_read"] - sum(report["dropped"].values())
        line = (
            f"data: {usable:,} of {report['rows_read']:,} rows usable (dropped: "
            f"{counted(report['dropped'])}); {len(self.train):,} to train on, "
            f"{len(self.holdout):,} held out"
        )
        if report["rows_unused"]:
            line += f", {report['rows_unused']:,} unused (raise train_size to use them)"
        for note in report["notes"]:
            line += f"\nnote: {note}"
        return line


def load_task(
    source: str,
    *,
    train_size: int | None = None,
    holdout_size: int | None = None,
    seed: int = 3407,
    tags: TagFormat = THINK_ANSWER,
    columns: dict[str, str | list[str]] | str | None = None,
    system_prompt: str | None = None,
    few_shot: list[dict] | str | None = None,
    count_tokens: Callable[[list[dict] | str], int] | None = None,
    max_prompt_tokens: int | None = None,
    max_completion_tokens: int | None = None,
    kind: str | None = None,
    max_pixels: int = Preset.max_pixels,
) -> Task:
    """Read a source and split its usable rows into a training table and a holdout table.

    source: `arithmetic/<family>`, `pictures/shapes`, `reasoning-gym/<family>`, a hub dataset
        `owner/name` or `owner/name:config`, or the path of a file or folder.
    train_size: rows to train on; None: all, up to 100,000 (1,000 if they are generated).
    holdout_size: rows to hold out; None: 256, and at most a quarter of the usable rows unless the
        source has its own split.
    columns: the source's names of the fields, such as {"question": "problem"}; see
        `sources.check_columns`. Pictures are paths relative to the source, or the bytes of files.
    system_prompt: replaces the system prompt of `tags`; an empty string leaves it out.
    few_shot: worked examples, shown in every prompt before the question; see `example_turns`.
    count_tokens: counts the tokens of a prompt or of a text; see `prompt_token_counter`. With
        it, rows with longer prompts are dropped, because TRL does not truncate them, and so are
        rows whose answer, in its tags and without any reasoning, fits into no completion. Without
        it, neither limit applies.
    kind: how all answers are judged, one of `judging.answers.DECLARED_KINDS`; stored in a
        column `kind`, which correctness_reward reads.
    max_pixels: larger pictures are scaled down.

    Raise ValueError if the source cannot give these rows.
    """
    # 1. What is around every question: the system prompt, and the worked examples, as turns of a
    # user and an assistant.
    system = tags.system_prompt if system_prompt is None else system_prompt
    turns = example_turns(few_shot)
    example_rows = [
        {"question": user["content"], "answer": assistant["content"]}
        for user, assistant in zip(turns[::2], turns[1::2], strict=True)
    ]

    # 2. Read the usable rows. Questions of worked examples are dropped, so a generator draws as
    # many rows more for each side.
    more = len(example_rows)
    train_rows_drawn = train_size + more if train_size else None
    holdout_rows_drawn = (holdout_size or DEFAULT_HOLDOUT_LIMIT) + more
    account = Account()
    rows = usable_rows(
        read_source(source, columns, train_rows_drawn, holdout_rows_drawn, seed),
        account,
        source=str(source),
        kind=kind,
        example_questions=[example["question"] for example in example_rows],
        max_pixels=max_pixels,
    )
    for row in rows:
        row.values["prompt"] = chat_prompt(system, row.values["question"], turns)

    # 3. Split the rows, and drop those that are too long.
    train, holdout = split_rows(
        rows,
        account,
        tags=tags,
        count_tokens=count_tokens,
        max_prompt_tokens=max_prompt_tokens,
        max_completion_tokens=max_completion_tokens,
        train_size=train_size,
        holdout_size=holdout_size,
        seed=seed,
    )
    account.check_sizes(source, train, holdout, train_size, holdout_size)

    # 4. Make one table of both sides, so that they have the same columns.
    table_rows = [row.values for row in train + holdout]
    table, columns_dropped = _table(table_rows)

    # 5. Write the report. The optional entries are left out if they are empty.
    report = account.report(train, holdout) | {
        "source": source,
        "seed": seed,
        "tags": tags.spec,
        "system_prompt": system,
        "fingerprint": fingerprint(example_rows + table_rows),
        "notes": _notes(
            account, table_rows, example_rows, tags, system, count_tokens, max_completion_tokens
        ),
    }
    optional = {"few_shot": turns, "columns_dropped": columns_dropped, "columns": columns}
    report |= {name: value for name, value in optional.items() if value}
    return Task(
        train=table[: len(train)],
        holdout=table[len(train) :].reset_index(drop=True),
        report=report,
    )


def _table(rows: list[dict]) -> tuple[pd.DataFrame, dict[str, str]]:
    """Return the rows as a table, and the columns that Parquet cannot store, with the reasons.

    Each of these columns is left out of the table, and named on the terminal.
    """
    # 1. Collect the names of all columns: ours first, then in the order of the rows.
    names = ["prompt", "question", "answer"]
    for row in rows:
        names.extend(row)

    # 2. Try to store each column alone, in memory.
    kept = []
    left_out = {}
    for name in dict.fromkeys(names):
        values = [row.get(name) for row in rows]
        try:
            column = pd.DataFrame({name: values}, dtype=object).infer_objects()
            column.to_parquet(io.BytesIO(), index=False)
        # Arrow's own errors, OverflowError, UnicodeEncodeError, TypeError: it depends on the values
        except Exception as error:
            shown = shorten(name, 40)
            left_out[shown] = f"Parquet cannot store it: {type(error).__name__}: {shorten(error)}"
            print(on_one_line(f"column left out: {shown} ({left_out[shown]})"))
        else:
            kept.append(column)
    return pd.concat(kept, axis=1), left_out


def _notes(
    account: Account,
    rows: list[dict],
    example_rows: list[dict],
    tags: TagFormat,
    system: str,
    count_tokens: Callable[[list[dict] | str], int] | None,
    max_completion_tokens: int | None,
) -> list[str]:
    """Return the notes of the report. Each step below looks for one thing that a user should know.

    rows, example_rows: each with `question` and `answer`.
    system: the system prompt.
    count_tokens, max_completion_tokens: as for `load_task`.
    """
    notes = []
    # 1. the formats in which questions and answers were found
    if account.formats:
        notes.append(f"found in the data: {counted(account.formats)}")

    # 2. answers without a mark, such as ####, if more answers have one
    marked = sum(count for name, count in account.formats.items() if name in MARK_NAMES)
    if 0 < len(account.unmarked) < marked:
        longest = max(account.unmarked, key=len)
        notes.append(
            f"answers without a marked result, beside {marked:,} with one: "
            f"{len(account.unmarked):,}, such as {shorten(longest)!r}. They are used whole."
        )

    # 3. more than a result as the answer, in more than half of the rows
    advice = r"mark the result in each of them, by #### or \boxed{}, or name another column."
    answers = [row["answer"] for row in rows if row.get("kind") not in TEXT_KINDS]
    sentences = [answer for answer in answers if _SENTENCE.fullmatch(answer)]
    long_answers = [row for row in rows if len(row["answer"].split()) > 30]
    half = len(rows) / 2
    if len(long_answers) > half:
        notes.append(f"most answers have more than 30 words, which no completion repeats: {advice}")
    elif len(sentences) > half:
        notes.append(
            f"most answers contain more than the result, such as {shorten(sentences[0])!r}, and a "
            f"completion is correct only if it repeats the whole answer: {advice}"
        )

    # 4. calculations as answers, such as 17 + 34 = 51
    side = r"[\d\s.,()+*/×÷·−-]+"
    calculations = [answer for answer in answers if re.fullmatch(f"{side}={side}", answer)]
    if calculations:
        notes.append(
            f"answers that are a whole calculation, such as {calculations[0]!r}: "
            f"{len(calculations):,}. The result alone then counts as wrong: give only the number."
        )

    # 5. worked examples in another format. An example must contain the first tag, even if the chat
    # template of the model writes this tag in front of a completion.
    whole_format = replace(tags, opened=False)
    unlike = [example for example in example_rows if not whole_format.matches(example["answer"])]
    if unlike:
        notes.append(
            f"worked examples that are not in the format {whole_format.render('…', '…')}: "
            f"{len(unlike)} of {len(example_rows)}. The policy copies what it is shown."
        )

    # 6. system messages of the data that are not the system prompt
    unused = [text for text in account.system_messages if text not in ("", system.strip())]
    if unused:
        notes.append(
            f"system messages of the data that are not used: {len(unused):,}, such as "
            f"{shorten(unused[0])!r}. The prompts have this run's; system_prompt=… replaces it."
        )

    # 7. worked examples that are too long: a policy that copies one needs room for its reasoning,
    # and for the end token
    if count_tokens and max_completion_tokens is not None:
        lengths = [count_tokens(example["answer"]) + 1 for example in example_rows]
        too_long = [length for length in lengths if length > max_completion_tokens]
        if too_long:
            notes.append(
                f"worked examples longer than max_completion_length={max_completion_tokens}: "
                f"{len(too_long)} of {len(lengths)}. A policy that follows them is cut off before "
                f"its answer: set max_completion_length to {max(lengths)} or more."
            )
    return notes


# An answer that says more than its result. `50 square metres`, `A. Paris` and `May 12, 1990` do
# not.
_SENTENCE = re.compile(
    r"""(?!.*[\\^=*_{}<>])  # but not an expression
    (?!\W?[A-Za-z][).:])  # and not an option
    (?: [^\W\d_]{2,}(?:\ [^\W\d_]+)?\s*[:：]\s*\S.*  # a lead: Antwort: 50 Stück
      | (?=(?:.*?[^\W\d_]{2,}\b){2}) \W*[^\W\d_]{2,}\D*\d[\d.,]*\D*  # one number: He has 5 apples
      | (?:\S+\s+){2,}\S*[.!] | .*。  # a full stop: It is red.
    )""",
    re.DOTALL | re.VERBOSE,
)


def save(run: Run, task: Task, settings: Preset) -> None:
    """Write both tables, `data_report.json` and the manifest's section `data` into the run folder.

    Raise ValueError, before anything is written, if another process is training this run.
    """
    with lock(run.folder, f"the training of run {run.name!r}", TRAINING_LOCK):
        for name, table in (("train", task.train), ("holdout", task.holdout)):
            with atomic_write(run.path(f"data/{name}.parquet")) as temporary:
                table.to_parquet(temporary, index=False)
        write_json(run.path("data_report.json"), task.report)
        run.record(
            "data",
            settings=asdict(settings),
            seed=task.report["seed"],
            source=task.report["source"],
            tags=task.report["tags"],
            fingerprint=task.report["fingerprint"],
        )


def fingerprint(rows: Iterable[dict]) -> str:
    """Return the SHA-256 of the questions, answers and pictures, in order, as hexadecimal digits.

    Two runs on the same data have the same fingerprint.
    """
    digest = hashlib.sha256()
    for row in rows:
        digest.update(f"{row['question']}\x1f{row['answer']}\x1e".encode() + row.get("image", b""))
    return digest.hexdigest()


def tokenizer_of(model: str, thinking: bool | None = None):
    """Return the tokenizer of a model, with the setting `thinking` stored in it.

    A setting that the model's chat template does not support is named on the terminal.

    model: a folder, or a name on the hub. Raise ValueError if it is not there or has no chat
        template.
    """
    from transformers import AutoTokenizer  # slow: it imports torch

    check_model(model)
    try:
        tokenizer = AutoTokenizer.from_pretrained(model)
    except (OSError, ValueError) as error:
        raise ValueError(hub_failure(f"the tokenizer of {model!r}", error)) from None
    if tokenizer.chat_template is None:
        raise ValueError(
            f"{model} has no chat template. GRPO here needs a chat model: use its -Instruct "
            "variant."
        )
    templates.set_thinking(tokenizer, thinking)
    templates.check_thinking(tokenizer, thinking)
    return tokenizer


def prompt_token_counter(
    model: str, thinking: bool | None = None
) -> Callable[[list[dict] | str], int]:
    """Return a function that counts tokens as the model sees them.

    Chat messages are rendered with the model's chat template; a text, such as a completion, is
    counted as it is. For the arguments, see `tokenizer_of`.
    """
    return partial(templates.length, tokenizer_of(model, thinking))
