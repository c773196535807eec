"""Where rows come from: built-in arithmetic, reasoning-gym, a hub data set, or a file.

`read_source` yields one dict per row, with at least `question` and `answer` (`image` if asked for,
`split` if the source has its own), or a `Broken` in place of a row that could not be read. It does
not judge the values: `rows.py` does.
"""

import itertools
import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from helpers import presets
from helpers.data import arithmetic, pictures
from helpers.data.files import (
    FILE_TYPES,
    Broken,
    file_rows,
    hub_failure,
    parse_literal,
    shorten,
)
from helpers.data.options import LETTERS, options_in

_GENERATED_ROWS = 1_000  # to train on, without a train_size
_USUAL = {  # where people have a question and its answer, for a hint
    "question": ("problem", "prompt", "instruction", "messages", "conversations", "query", "input"),
    "answer": (
        *("solution", "reward_model", "output", "response", "answerKey", "correct", "label"),
        *("messages.-1.content", "conversations.-1.value"),  # the assistant's
    ),
}
_COLUMNS = TypeAdapter(dict[Literal["question", "answer", "image", "options"], str | list[str]])


def read_source(
    source: str,
    columns: dict | str | None,
    train_size: int | None,
    holdout_size: int,
    seed: int,
) -> Iterator[dict | Broken]:
    """Return the rows of a source, by name or by path; see `tasks.load_task` for the arguments."""
    source = str(source)
    mapping = check_columns(columns)
    kind, _, family = source.partition("/")
    size = train_size or _GENERATED_ROWS
    if "://" in source:
        raise ValueError(f"source={source!r} is an address. Download the file, and give its path.")
    if kind == "arithmetic":
        if family not in arithmetic.FAMILIES:
            raise ValueError(
                f"{source} is not a family of arithmetic. Known: {', '.join(arithmetic.FAMILIES)}."
            )
        rng = random.Random(f"{family}-{seed}")
        draw = arithmetic.FAMILIES[family]
        return _generated(lambda: arithmetic.problem(family, *draw(rng)), size, holdout_size)
    if source == "pictures/shapes":
        rng = random.Random(seed)
        return _generated(lambda: pictures.picture_row(rng), size, holdout_size)
    if kind == "reasoning-gym":
        return _reasoning_gym(family, size + holdout_size, seed)
    if source.lower().endswith(FILE_TYPES):
        wanted = set(itertools.chain(*mapping.values()))
        return mapped_rows(file_rows(Path(source), wanted), mapping, source)
    if (source and Path(source).is_dir()) or (source.count("/") == 1 and source[0] != "."):
        return _hub(source, mapping)
    raise ValueError(
        f"source={source!r} is not known. Give arithmetic/<family> "
        f"({', '.join(arithmetic.FAMILIES)}), reasoning-gym/<family>, a hub data set such as "
        f"openai/gsm8k, or the path of a {', '.join(FILE_TYPES)} file."
    )


def check_source(source: str, columns: dict | str | None = None) -> None:
    """Raise ValueError for a source that `read_source` would refuse, as far as is known at once.

    The first row of a file is read, so that a missing column is named; the family of arithmetic is
    checked; only the hub knows its data sets.
    """
    rows = read_source(source, columns, None, 1, 0)
    if str(source).startswith("arithmetic/") or str(source).lower().endswith(FILE_TYPES):
        next(rows, None)


# --- Generated rows -------------------------------------------------------------------------------


def _generated(draw: Callable[[], dict], train_size: int, holdout_size: int) -> Iterator[dict]:
    """Yield distinct rows as `draw` gives them, so many for each side; fewer if it has no more."""
    lacking = {"train": train_size, "holdout": holdout_size}
    seen = set()
    tries = 0  # since the last new row
    while any(lacking.values()) and tries < 20_000:
        tries += 1
        row = draw()
        subject = row.get("image", row["question"])
        if subject not in seen and lacking[row["split"]]:
            seen.add(subject)
            lacking[row["split"]] -= 1
            tries = 0
            yield row


# --- reasoning-gym --------------------------------------------------------------------------------


def _reasoning_gym(family: str, size: int, seed: int) -> Iterator[dict]:
    try:
        import reasoning_gym
        from reasoning_gym.factory import DATASETS
    except ImportError as error:
        raise ValueError(
            f"reasoning-gym/{family} needs the package reasoning-gym, which is not installed "
            f"({error}). Install it with `pip install reasoning-gym` (requirements-optional.txt "
            "has the pin); it takes a C compiler, for its dependency pycosat."
        ) from None
    if family not in DATASETS:
        raise ValueError(
            f"reasoning-gym has no family {family!r}. {presets.hint(family, DATASETS)}".strip()
        )
    for entry in reasoning_gym.create_dataset(family, size=size, seed=seed):
        yield {
            "question": entry["question"],
            "answer": entry["answer"],
            "family": family,
            # what the family's own score_answer needs, as JSON for one Parquet column
            "entry": json.dumps(entry, default=str),
        }


# --- Hub data sets --------------------------------------------------------------------------------


def _hub(source: str, mapping: dict[str, list[str]]) -> Iterator[dict | Broken]:
    import datasets

    name, _, config = source.partition(":")
    if len({file.suffix for file in Path(name).glob("*") if file.suffix in FILE_TYPES}) > 1:
        raise ValueError(
            f"{source} has files of several types ({', '.join(FILE_TYPES)}), and only those of one "
            "would be read: give the path of a file, or a folder with files of one type."
        )
    is_gsm8k = name == "openai/gsm8k"
    try:
        splits = datasets.load_dataset(name, config or ("main" if is_gsm8k else None))
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise ValueError(hub_failure(f"the data set {source!r}", error)) from None
    # GSM8K's own test split is held out, and a folder's: test.jsonl beside train.jsonl, for example
    held_out = "test" if "test" in splits and (is_gsm8k or Path(name).is_dir()) else None
    for split in [name for name in ("train", held_out) if name in splits] or list(splits)[:1]:
        rows = splits[split]
        for column in mapping.get("image", []):
            if isinstance(rows.features.get(column), datasets.Image):
                # not opened here: a broken picture is the fault of its row alone
                rows = rows.cast_column(column, datasets.Image(decode=False))
        for row in mapped_rows(iter(rows), mapping, source):
            if held_out and isinstance(row, dict):
                row["split"] = "holdout" if split == held_out else "train"
            yield row


def check_columns(columns: dict | str | None) -> dict[str, list[str]]:
    """Return which columns of a source make `question` and `answer`, those of these names unless
    `columns` says otherwise; and only if it says so, `image` and `options`.

    columns: the name of a column, or of a field in it (`reward_model.ground_truth`); for question
    and options also a list of columns. A text, which papermill passes, is read as JSON.
    """
    try:
        declared = _COLUMNS.validate_python(
            parse_literal({} if columns is None else columns), strict=True
        )
    except ValidationError:
        raise ValueError(
            f"columns={columns!r} is not a mapping of names to question and answer: write "
            '{"question": "…", "answer": "…"}, and "image": "…" if there are pictures, "options": '
            '"…" if there are options. A question in two columns is {"question": ["…", "…"]}.'
        ) from None
    mapping = {"question": "question", "answer": "answer"} | declared
    return {
        name: [columns] if isinstance(columns, str) else columns
        for name, columns in mapping.items()
    }


# Names that the rows, the rewards' own arguments or TRL's keywords use already; a source's column
# of that name is renamed.
_RESERVED = {
    *("prompt", "question", "answer", "options", "split", "image", "tags"),  # ours
    *("completion", "prompts", "completions", "completion_ids", "images", "tools"),  # TRL's
    *("messages", "chosen", "rejected"),  # TRL looks for the prompt in any of them
    *("trainer_state", "log_extra", "log_metric", "environments"),
    # options of rewards
    *("backend", "citations", "ignore_case", "limits", "maximum", "minimum", "ngram_size"),
    *("patterns", "relative_tolerance", "schema", "share", "steps", "target", "threshold"),
    *("tolerance", "unit"),
}


def mapped_rows(
    rows: Iterator[dict | Broken], mapping: dict[str, list[str]], source: str
) -> Iterator[dict | Broken]:
    """Yield the rows with the mapped columns under the names `question`, `answer` and, if there are
    any, `image` and `options`; the first row says which columns these are.

    Of several columns, those of a question are joined. All columns but the pictures keep their
    names, too, or get `source_` in front if the name is in use: rewards ask for them.

    mapping: from `check_columns`. ValueError if a column is not there.
    """
    is_first = True
    for row in rows:
        if isinstance(row, Broken):
            yield row
            continue
        if is_first:
            mapping = _find_columns(row, mapping, source)
            is_first = False
        mapped = {}
        for name, columns in mapping.items():
            values = [_field(row, column) for column in columns]
            if name == "question" and len(values) > 1:
                texts = [
                    str(value).strip() for value in values if value is not None and value == value
                ]
                mapped[name] = "\n\n".join(filter(None, texts))
            else:
                mapped[name] = values if len(values) > 1 else values[0]
        for column, value in row.items():
            if column not in mapping.get("image", ()) and mapping.get(column) != [column]:
                is_used = column in _RESERVED or column in mapped
                mapped[f"source_{column}" if is_used else column] = value
        yield mapped


def _find_columns(row: dict, mapping: dict[str, list[str]], source: str) -> dict[str, list[str]]:
    """Return the mapping with what a source's first row adds to it: the other half of a question,
    the case of names, and options. ValueError if a column is not there, with a proposal.
    """
    # Alpaca and Dolly have the question in two columns
    for pair in (["instruction", "input"], ["instruction", "context"]):
        if row.keys() >= set(pair) and mapping["question"] in ([pair[0]], [pair[1]]):
            mapping = mapping | {"question": pair}

    # Question is question
    folded = {str(column).strip().casefold(): column for column in row}
    mapping = {
        name: [c if c in row else folded.get(c.casefold(), c) for c in columns]
        for name, columns in mapping.items()
    }

    # options in a column, or in A, B, C or option_a, option_b if the answer is a letter of theirs
    for name in ("options", "choices"):
        if name in row and len(options_in(row[name])) != 1:  # one is another text
            mapping = {"options": [name]} | mapping
    pattern = r"[A-H]|(?i:(?:option|choice|opt?)[ _-]?[a-h])"
    letters = sorted(column for column in row if re.fullmatch(pattern, str(column)))
    answer = str(_field(row, mapping.get("answer", ["answer"])[0])).strip().upper()
    if len(letters) > 1 and answer in ("NONE", *LETTERS[: len(letters)]):
        mapping = {"options": letters} | mapping

    wanted = itertools.chain(*mapping.values())
    absent = [c for c in wanted if c not in row and c.split(".")[0] not in row]
    if absent:
        proposal = {}
        for name, columns in mapping.items():
            usual = (*columns, *_USUAL.get(name, ()))
            there = [c for c in usual if c in row or _field(row, c) is not None]
            proposal[name] = there[0] if there else "…"
        raise ValueError(
            f"{source}: no column {', '.join(map(repr, absent))}. It has: "
            f"{shorten(', '.join(map(str, row)), 500)}. "
            f"Map them with columns={json.dumps(proposal, ensure_ascii=False)}."
        )
    return mapping


def _field(row: dict, column: str) -> object:
    """Return a column of a row, or what is in it: `reward_model.ground_truth`,
    `messages.0.content`; None if there is no such thing.
    """
    if column in row:
        return row[column]
    value = row
    for name in column.split("."):
        value = parse_literal(value)
        try:
            value = value[int(name) if isinstance(value, list) else name]
        except (KeyError, IndexError, ValueError, TypeError):
            return None
    return value


def check_model(model: str) -> None:
    """Raise ValueError for the folder of an adapter in the place of a model's."""
    folder = Path(model)
    by_name = folder.name == "adapter" or folder.name.startswith("checkpoint-")
    if by_name or (folder / "adapter_config.json").is_file():
        raise ValueError(
            f"model={model!r} is an adapter, which changes a model and is none. Merge it with "
            "notebook 05 of its run, and give the merged model, model=runs/NAME/merged; or name "
            "the model that it was trained on."
        )
