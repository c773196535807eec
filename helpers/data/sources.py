"""Read the rows of a source: a built-in generator, reasoning-gym, a hub dataset, or a file.

`read_source` yields rows such as {"question": "What is 1 + 1?", "answer": "2"}, and a `Broken` for
a row that could not be read. It does not check the values; `rows.py` does that.

A user says in the setting `columns` what the columns of a source are called, such as {"question":
"problem"}. `check_columns` makes a mapping of it, with a list of columns for each of our fields:
{"question": ["problem"], "answer": ["answer"]}. `mapped_rows` renames the columns of each row by
this mapping.

In this file: `read_source`, which recognises the kind of source; a reader for each kind; and the
columns.
"""

import itertools
import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from helpers.data import arithmetic, pictures
from helpers.data.files import FILE_TYPES, Broken, file_rows, parse_literal
from helpers.data.options import LETTERS, options_in
from helpers.families import hub_failure
from helpers.printing import shorten
from helpers.settings import did_you_mean


def read_source(
    source: str,
    columns: dict | str | None,
    train_size: int | None,
    holdout_size: int,
    seed: int,
) -> Iterator[dict | Broken]:
    """Return the rows of a source, each a dict. See `tasks.load_task` for the arguments.

    A row has `question` and `answer`, and the source's other columns. It has `image` and
    `options` if the source has them, and `split` ("train" or "holdout") if the source is split.
    The sizes and the seed matter only to generated sources; any other source is read whole.

    Raise ValueError if the source is unknown, or if columns are not there.
    """
    source = str(source)
    mapping = check_columns(columns)
    if "://" in source:
        raise ValueError(f"source={source!r} is an address. Download the file, and give its path.")

    # 1. Generated rows: `arithmetic/sums`. Without a train_size, 1,000 to train on.
    kind, _, family = source.partition("/")
    size = train_size or 1_000
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

    # 2. A file.
    if source.lower().endswith(FILE_TYPES):
        wanted = set(itertools.chain(*mapping.values()))
        return mapped_rows(file_rows(Path(source), wanted), mapping, source)

    # 3. A folder, or owner/name on the hub. `./name` would be a folder, which is not there.
    is_folder = source != "" and Path(source).is_dir()
    is_hub_name = source.count("/") == 1 and not source.startswith(".")
    if is_folder or is_hub_name:
        return _hub(source, mapping)
    raise ValueError(
        f"source={source!r} is not known. Give arithmetic/<family> "
        f"({', '.join(arithmetic.FAMILIES)}), reasoning-gym/<family>, a hub dataset such as "
        f"openai/gsm8k, or the path of a {', '.join(FILE_TYPES)} file."
    )


def check_source(source: str, columns: dict | str | None = None) -> None:
    """Raise ValueError if `read_source` would refuse the source, without reading all of it.

    The first row of a file is read, to check its columns. The files of a folder are not read, and a
    hub dataset is not downloaded, so their columns and the dataset's name are not checked.
    """
    rows = read_source(source, columns, None, 1, 0)
    if str(source).lower().endswith(FILE_TYPES):
        next(rows, None)


# --- Generated rows -------------------------------------------------------------------------------


def _generated(draw: Callable[[], dict], train_size: int, holdout_size: int) -> Iterator[dict]:
    """Yield distinct rows from `draw` until both sides of the split are full.

    A small family can run out of new rows: stop after 20,000 draws without one.
    """
    missing = {"train": train_size, "holdout": holdout_size}
    seen = set()
    draws_without_new_row = 0
    while any(missing.values()) and draws_without_new_row < 20_000:
        draws_without_new_row += 1
        row = draw()
        split = row["split"]
        identity = row.get("image", row["question"])
        if identity in seen or not missing[split]:
            continue
        seen.add(identity)
        missing[split] -= 1
        draws_without_new_row = 0
        yield row


def _reasoning_gym(family: str, size: int, seed: int) -> Iterator[dict]:
    """Return rows of a family. Not a generator function, which would check nothing before its first
    row is asked for.
    """
    try:
        import reasoning_gym
        from reasoning_gym.factory import DATASETS
    except ImportError as error:
        raise ValueError(
            f"reasoning-gym/{family} needs the package reasoning-gym, which is not installed "
            f"({error}). Install it with `pip install reasoning-gym` "
            "(deploy/requirements-optional.txt has the pin); it needs a C compiler, for its "
            "dependency pycosat."
        ) from None
    if family not in DATASETS:
        raise ValueError(
            f"reasoning-gym has no family {family!r}. {did_you_mean(family, DATASETS)}".strip()
        )
    return (
        {
            "question": entry["question"],
            "answer": entry["answer"],
            "family": family,
            # the family's own score_answer needs the whole entry; JSON fits one Parquet column
            "entry": json.dumps(entry, default=str),
        }
        for entry in reasoning_gym.create_dataset(family, size=size, seed=seed)
    )


# --- Hub datasets ---------------------------------------------------------------------------------


def _hub(source: str, mapping: dict[str, list[str]]) -> Iterator[dict | Broken]:
    """Return the rows of a hub dataset `owner/name` or `owner/name:config`, or of a local folder.

    GSM8K and folders keep their own split: `train` is trained on, `test` is held out. Any other
    dataset is read from its `train` split, or from its first split if none is called `train`.
    """
    name, _, config = source.partition(":")
    file_types = {file.suffix for file in Path(name).glob("*")} & set(FILE_TYPES)
    if len(file_types) > 1:
        raise ValueError(
            f"{source} has files of several types ({', '.join(sorted(file_types))}), but only "
            "files of one type would be read: give the path of a file, or a folder with files "
            "of one type."
        )

    # The check above is made at once; the rest waits until the first row is asked for.
    def loaded() -> Iterator[dict | Broken]:
        import datasets

        # 1. Load all splits.
        is_gsm8k = name == "openai/gsm8k"
        default_config = "main" if is_gsm8k else None
        try:
            splits = datasets.load_dataset(name, config or default_config)
        except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
            raise ValueError(hub_failure(f"the dataset {source!r}", error)) from None

        # 2. Choose those to read.
        keeps_split = "test" in splits and (is_gsm8k or Path(name).is_dir())
        wanted = ["train", "test"] if keeps_split else ["train"]
        used = [split for split in wanted if split in splits] or list(splits)[:1]

        # 3. Read them.
        for split in used:
            rows = splits[split]
            for image_column in mapping.get("image", []):
                if isinstance(rows.features.get(image_column), datasets.Image):
                    # undecoded, so that a broken picture costs only its own row
                    rows = rows.cast_column(image_column, datasets.Image(decode=False))
            for row in mapped_rows(iter(rows), mapping, source):
                if keeps_split and isinstance(row, dict):
                    row["split"] = "holdout" if split == "test" else "train"
                yield row

    return loaded()


# --- Columns --------------------------------------------------------------------------------------

_MAPPING = TypeAdapter(dict[Literal["question", "answer", "image", "options"], str | list[str]])

# A source's column of one of these names would be passed to a reward or to TRL as something else.
_OUR_NAMES = "prompt question answer options split image tags"
_NAMES_OF_TRL = """
    completion prompts completions completion_ids images tools messages chosen rejected
    trainer_state log_extra log_metric environments
"""
_OPTIONS_OF_REWARDS = """
    citations ignore_case limits maximum minimum ngram_size patterns relative_tolerance
    sandbox schema share steps target threshold tolerance unit
"""
_RESERVED = set(f"{_OUR_NAMES} {_NAMES_OF_TRL} {_OPTIONS_OF_REWARDS}".split())

# Names of columns that often hold a question or an answer, proposed in an error message.
_COMMON_NAMES = {
    "question": ["problem", "prompt", "instruction", "messages", "conversations", "query", "input"],
    "answer": [
        "solution",
        "reward_model",
        "output",
        "response",
        "answerKey",
        "correct",
        "label",
        "messages.-1.content",  # the assistant's last message
        "conversations.-1.value",
    ],
}


def check_columns(columns: dict | str | None) -> dict[str, list[str]]:
    """Return the mapping: for each field, the names of the source columns to read.

    `question` and `answer` default to the columns of those names; `image` and `options` are read
    only if `columns` names them, or if `mapped_rows` recognises the options.

    columns: for each field, the name of a column, or a path into a column
        (`reward_model.ground_truth`). A question and options may also have a list of names.
        papermill passes the setting as JSON text.

    >>> check_columns({"question": ["context", "question"]})
    {'question': ['context', 'question'], 'answer': ['answer']}
    """
    given = {} if columns is None else parse_literal(columns)
    try:
        declared = _MAPPING.validate_python(given, strict=True)
    except ValidationError:
        raise ValueError(
            f"columns={columns!r} is not a mapping of names to question and answer: write "
            '{"question": "…", "answer": "…"}, and "image": "…" if there are images, "options": '
            '"…" if there are options. A question in two columns is {"question": ["…", "…"]}.'
        ) from None
    mapping = {"question": "question", "answer": "answer"} | declared
    return {field: [names] if isinstance(names, str) else names for field, names in mapping.items()}


def mapped_rows(
    rows: Iterator[dict | Broken], mapping: dict[str, list[str]], source: str
) -> Iterator[dict | Broken]:
    """Yield each row with its mapped columns renamed to `question`, `answer`, `image`, `options`.

    A question in several columns is joined by blank lines. Rewards may ask for any column, so every
    column except a picture is also kept under its own name. Names in `_RESERVED` get the prefix
    `source_`.

    mapping: from `check_columns`. The first row completes it.

    Raise ValueError if a column is not there.
    """
    complete = None  # the mapping, completed from the first row
    for row in rows:
        if isinstance(row, Broken):
            yield row
            continue
        if complete is None:
            complete = _complete_mapping(mapping, row, source)

        # 1. Our fields. A field with several columns has a list of their values; a question joins
        # them.
        mapped = {}
        for field, names in complete.items():
            values = [_value_at(row, name) for name in names]
            if len(values) == 1:
                mapped[field] = values[0]
            elif field == "question":
                mapped[field] = _joined(values)
            else:
                mapped[field] = values

        # 2. The source's own columns.
        for name, value in row.items():
            is_picture = name in complete.get("image", [])
            is_the_field = complete.get(name) == [name]  # a column `question` that is the question
            if is_picture or is_the_field:
                continue
            is_taken = name in _RESERVED or name in mapped
            mapped[f"source_{name}" if is_taken else name] = value
        yield mapped


def _joined(values: list) -> str:
    """Return the parts of a question as one text. None, NaN and blank texts are left out."""
    # NaN differs from itself
    texts = [str(value).strip() for value in values if value is not None and value == value]
    return "\n\n".join(filter(None, texts))


def _complete_mapping(
    mapping: dict[str, list[str]], row: dict, source: str
) -> dict[str, list[str]]:
    """Return the mapping with everything that the first row of a source adds to it.

    Raise ValueError if a column is not there; the message proposes columns that are.
    """
    # 1. Names as the source spells them: `question` is found as " Question", too.
    spelling = {str(name).strip().casefold(): name for name in row}

    def as_spelt(name: str) -> str:
        return name if name in row else spelling.get(name.casefold(), name)

    mapping = {field: [as_spelt(name) for name in names] for field, names in mapping.items()}

    # 2. A question in two columns, as in Alpaca and Dolly, if one of them was named.
    for first, second in (("instruction", "input"), ("instruction", "context")):
        has_both = first in row and second in row
        if has_both and mapping["question"] in ([first], [second]):
            mapping["question"] = [first, second]

    # 3. Options in one column. A text with a single option is about something else.
    for name in ("options", "choices"):
        if name in row and len(options_in(row[name])) != 1:
            mapping.setdefault("options", [name])

    # 4. Options in columns A, B, C or option_a, option_b, if the answer is a letter of one of them
    # or is missing. The questions of `generate` have a mapping without an answer.
    with_letter = r"[A-H]|(?i:(?:option|choice|opt?)[ _-]?[a-h])"
    option_columns = sorted(name for name in row if re.fullmatch(with_letter, str(name)))
    answer_column = mapping.get("answer", ["answer"])[0]
    answer = str(_value_at(row, answer_column)).strip().upper()
    letters = LETTERS[: len(option_columns)]
    if len(option_columns) > 1 and answer in ("NONE", *letters):
        mapping.setdefault("options", option_columns)

    # 5. Every column must be there; of a path into a column, its first part.
    absent = []
    for name in itertools.chain(*mapping.values()):
        first_part = name.split(".")[0]
        if name not in row and first_part not in row:
            absent.append(name)
    if absent:
        raise ValueError(
            f"{source}: no column {', '.join(map(repr, absent))}. It has: "
            f"{shorten(', '.join(map(str, row)), 500)}. "
            f"Map them with columns={json.dumps(_proposal(mapping, row), ensure_ascii=False)}."
        )
    return mapping


def _proposal(mapping: dict[str, list[str]], row: dict) -> dict[str, str]:
    """Return, for each field, a column of the row that may hold it, or "…" if none is known."""
    proposal = {}
    for field, names in mapping.items():
        known = [*names, *_COMMON_NAMES.get(field, [])]
        there = [name for name in known if name in row or _value_at(row, name) is not None]
        proposal[field] = there[0] if there else "…"
    return proposal


def _value_at(row: dict, path: str) -> object:
    """Return the value of a column, or of a path into it (`messages.0.content`); None if absent."""
    if path in row:
        return row[path]
    value = row
    for part in path.split("."):
        value = parse_literal(value)  # a cell of a CSV file may hold JSON
        try:
            key = int(part) if isinstance(value, list) else part
            value = value[key]
        except (KeyError, IndexError, ValueError, TypeError):
            return None
    return value
