"""Where rows come from: built-in arithmetic, reasoning-gym, a hub data set, a CSV, JSONL or Parquet
file.

`read_source` yields one dict a row, with at least `question` and `answer` (and `split`, where the
source has its own), or a `Broken` in place of a row that could not be read. It does not judge the
values: `tasks.py` does.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from helpers.data import arithmetic
from helpers.data.csvfiles import Broken, listed, text_lines
from helpers.data.files import FILE_TYPES, file_rows, shortened

# of the files beside this one, for those that read rows
__all__ = ["FILE_TYPES", "Broken", "file_rows", "text_lines"]
DEFAULT_GENERATED_ROWS = 1_000
_COMPARED = 1_000  # names of columns that a misspelt one is compared with
_LONGEST_HUB_NAME = 255  # characters of owner/name:config; the hub takes fewer


def read_source(
    source: str,
    columns: dict[str, str] | None,
    train_size: int | None,
    holdout_size: int,
    seed: int,
) -> Iterator[dict | Broken]:
    """The rows of a source, by name or by path; see `tasks.load_task` for the arguments."""
    source, kind = _kind(source)
    family = source.partition("/")[2]
    if kind == "arithmetic":
        return arithmetic.rows(family, train_size or DEFAULT_GENERATED_ROWS, holdout_size, seed)
    if kind == "reasoning-gym":
        return _reasoning_gym(family, (train_size or DEFAULT_GENERATED_ROWS) + holdout_size, seed)
    if kind == "file":
        return _mapped(file_rows(Path(source), check_columns(columns).values()), columns, source)
    return _hub(source, columns)


def check_source(source: str, columns: dict[str, str] | None = None) -> None:
    """ValueError for a source that `read_source` would refuse, as far as a moment without a network
    tells.

    Of a file the first row is read, so that a column that is not there is named; of a generated
    source the family is known; whether the hub has a data set only the hub can say.
    """
    check_columns(columns)
    source, kind = _kind(source)
    if kind == "arithmetic":
        arithmetic.check_family(source.partition("/")[2])
    elif kind == "file":
        next(iter(read_source(source, columns, None, 1, 0)), None)


def _kind(source: object) -> tuple[str, str]:
    """The source as text, and what it is: arithmetic, reasoning-gym, file or hub.

    ValueError where it is none of them.
    """
    source = str(source) if isinstance(source, Path) else source
    if not isinstance(source, str) or not source.strip():
        raise ValueError(
            f"source={source!r} is not a data source: give a name such as 'arithmetic/sums' or a "
            "file's path."
        )
    if "://" in source:
        raise ValueError(
            f"source={shortened(source)!r} is an address. Download the file, and give its path."
        )
    kind = source.partition("/")[0]
    if kind in ("arithmetic", "reasoning-gym"):
        return source, kind
    if source.lower().endswith(FILE_TYPES):
        return source, "file"
    named = source.count("/") == 1 and not source.startswith(".")
    if len(source) <= _LONGEST_HUB_NAME and "\0" not in source and (named or Path(source).is_dir()):
        return source, "hub"
    raise ValueError(
        f"source={shortened(source)!r} is not known. Give arithmetic/<family> "
        f"({', '.join(arithmetic.FAMILIES)}), "
        "reasoning-gym/<family>, a hub data set such as openai/gsm8k, or the path of a "
        f"{', '.join(FILE_TYPES)} file."
    )


# --- reasoning-gym --------------------------------------------------------------------------------


def _reasoning_gym(family: str, size: int, seed: int) -> Iterator[dict]:
    try:
        import reasoning_gym
        from reasoning_gym.factory import DATASETS
    except ImportError as error:
        raise ValueError(
            f"reasoning-gym/{family} needs the package reasoning-gym, which is not installed "
            f"({error}). Install it with `pip "
            "install reasoning-gym` (requirements-optional.txt has the pin); it takes a C "
            "compiler, for its dependency pycosat."
        ) from None
    if family not in DATASETS:
        raise ValueError(arithmetic.unknown_family("reasoning-gym", family, DATASETS))
    for entry in reasoning_gym.create_dataset(family, size=size, seed=seed):
        yield {
            "question": entry["question"],
            "answer": entry["answer"],
            "family": family,
            # The row's own score_answer needs the entry it was made with; JSON keeps it in one
            # Parquet column.
            "entry": json.dumps(entry, default=str),
        }


# --- Hub data sets --------------------------------------------------------------------------------

# What load_dataset needs to be told, for the sets this project names: configuration, columns, and
# the split held out.
HUB_SETS = {
    "openai/gsm8k": {
        "config": "main",
        "columns": {"question": "question", "answer": "answer"},
        "holdout": "test",
    }
}


# Where the hub cannot be reached: word problems of GSM8K's kind, generated on the spot
# (GSM-Symbolic, arXiv 2410.05229).
STAND_INS = {"openai/gsm8k": "reasoning-gym/gsm_symbolic"}


class Unreachable(ValueError):
    """A hub data set that cannot be fetched because the hub cannot be reached."""


def _hub(source: str, columns: dict[str, str] | None) -> Iterator[dict]:
    import datasets

    name, _, config = source.partition(":")
    # A folder's own test split, test.jsonl beside train.jsonl for example, is held out, too.
    known = HUB_SETS.get(name, {"holdout": "test"} if Path(name).is_dir() else {})
    try:
        splits = datasets.load_dataset(name, config or known.get("config"))
    except ConnectionError as error:
        reason = str(error).splitlines()[0][:200]
        raise Unreachable(
            f"data set {source!r} could not be fetched: the hub cannot be reached ({reason}). "
            "Check the network, or take "
            "source=arithmetic/sums or a file of your own, which need none."
        ) from None
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise ValueError(
            f"data set {source!r} could not be loaded ({type(error).__name__}: "
            f"{str(error).splitlines()[0][:200]}). Check "
            "the spelling, the network, and, for a gated set, that HF_TOKEN is set. Without a "
            "network use arithmetic/sums."
        ) from None
    held_out = known.get("holdout")
    has_own_holdout = held_out in splits
    for split in [name for name in ("train", held_out) if name in splits] or list(splits)[:1]:
        for row in _mapped(iter(splits[split]), columns or known.get("columns"), source):
            if has_own_holdout and isinstance(row, dict):
                row["split"] = "holdout" if split == held_out else "train"
            yield row


def check_columns(columns: dict[str, str] | None) -> dict[str, str]:
    """Where `question` and `answer` are: the columns of those names, unless `columns` says
    otherwise.
    """
    columns = {} if columns is None else columns
    if not isinstance(columns, dict) or not all(
        isinstance(name, str) for pair in columns.items() for name in pair
    ):
        said = shortened(repr(columns))
        raise ValueError(
            f'columns={said} is not a mapping of names to names: write {{"question": "…", '
            f'"answer": "…"}}.'
        )
    unknown = set(columns) - {"question", "answer"}
    if unknown:
        raise ValueError(
            f"columns maps {listed(sorted(unknown))}, but only 'question' and 'answer' can be "
            "mapped."
        )
    mapping = {"question": "question", "answer": "answer"} | columns
    if mapping["question"] == mapping["answer"]:
        raise ValueError(
            f"columns takes question and answer both from {mapping['answer']!r}: name the column "
            "of each."
        )
    return mapping


def _mapped(
    rows: Iterator[dict | Broken], columns: dict[str, str] | None, source: str
) -> Iterator[dict | Broken]:
    """The rows with the mapped columns under the names `question` and `answer`; the first row says
    whether they exist.
    """
    mapping = check_columns(columns)
    checked, names = False, _FreeNames()
    for row in rows:
        if isinstance(row, Broken):
            yield row
            continue
        absent = [column for column in mapping.values() if column not in row]
        if absent and not checked:
            raise ValueError(_no_column(source, absent, mapping, list(row)))
        checked = True
        if absent:
            yield Broken(f"no {', '.join(absent)}", str(row))
            continue
        rest = {key: value for key, value in row.items() if key not in mapping.values()}
        names.learn(rest)
        yield {name: row[column] for name, column in mapping.items()} | {
            names[key]: value for key, value in rest.items()
        }


def _no_column(source: str, absent: list[str], mapping: dict[str, str], names: list[str]) -> str:
    """What is missing, what is there, and a mapping to copy, filled in where a name is near."""
    there = {str(name).casefold(): str(name) for name in names[:_COMPARED]}
    near = {
        name: difflib.get_close_matches(str(name).casefold(), list(there), 1) for name in absent
    }
    meant = {name: there[found[0]] for name, found in near.items() if found}
    question = f"Did you mean {', '.join(map(repr, meant.values()))}? " if meant else ""
    filled = {
        role: meant.get(name, "…") if name in absent else name for role, name in mapping.items()
    }
    return (
        f"{source}: no column {', '.join(map(repr, absent))}. It has: {listed(names)}. "
        f"{question}Map them with "
        f"columns={json.dumps(filled, ensure_ascii=False)}."
    )


# Names that the rows, the rewards' own arguments or TRL's keywords use already; a source's column
# of that name is renamed.
_RESERVED = {
    "prompt",
    "question",
    "answer",
    "split",
    "completion",
    "prompts",
    "completions",
    "completion_ids",
    "tags",
}
_RESERVED |= {
    "trainer_state",
    "log_extra",
    "log_metric",
    "environments",
    "image",
    "images",
    "tools",
}
_RESERVED |= {
    "citations",
    "ignore_case",
    "language",
    "maximum",
    "minimum",
    "ngram_size",
    "patterns",
    "relative_tolerance",
}
_RESERVED |= {
    "samples",
    "schema",
    "steps",
    "target",
    "threshold",
    "tolerance",
    "unit",
    "backend",
    "limits",
    "share",
}


class _FreeNames(dict):
    """What each column of a source is called here: its own name, or where that is taken, the name
    behind `source_`.
    """

    def __init__(self):
        super().__init__()
        self.taken = set(_RESERVED)

    def learn(self, columns: dict) -> None:
        """Name the columns not yet known; those that can keep their names come first."""
        for column in sorted(
            (column for column in columns if column not in self), key=_RESERVED.__contains__
        ):
            name = column
            while name in self.taken:
                name = f"source_{name}"
            self[column] = name
            self.taken.add(name)


def model_files(model: str) -> tuple[Path, str, dict[str, str]]:
    """Of a model folder or hub name: its tokenizer.json, its chat template, and its special tokens
    by name.

    ValueError where the hub does not give them to us, or where they are no chat model's.
    """
    folder = Path(model)
    if not folder.is_dir():
        from huggingface_hub import snapshot_download

        try:
            folder = Path(
                snapshot_download(
                    model, allow_patterns=["tokenizer*", "chat_template*", "special_tokens*"]
                )
            )
        except (OSError, ValueError) as error:
            raise ValueError(hub_failure(f"the tokenizer of {model!r}", error)) from None
    tokenizer_file, config_file = folder / "tokenizer.json", folder / "tokenizer_config.json"
    if not tokenizer_file.is_file() or not config_file.is_file():
        raise ValueError(
            f"{model}: tokenizer.json or tokenizer_config.json is missing, so prompts cannot be "
            "measured."
        )
    config = json.loads(config_file.read_text(encoding="utf-8"))
    template_file = folder / "chat_template.jinja"
    template = (
        template_file.read_text(encoding="utf-8")
        if template_file.is_file()
        else config.get("chat_template")
    )
    if not isinstance(template, str):
        raise ValueError(
            f"{model} has no chat template. GRPO here needs a chat model: take its -Instruct "
            "variant."
        )
    special = {key: value for key, value in config.items() if key.endswith("_token")}
    return (
        tokenizer_file,
        template,
        {k: v["content"] if isinstance(v, dict) else v for k, v in special.items() if v},
    )


def hub_failure(what: str, error: Exception) -> str:
    """Why the hub has not given us a model's files, and what to do, for the exception that its
    library raised.
    """
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    if isinstance(error, GatedRepoError):
        token = (
            "the account of HF_TOKEN has not done so"
            if os.environ.get("HF_TOKEN")
            else "HF_TOKEN is not set"
        )
        return (
            f"{what} could not be fetched: the model is gated. Accept its terms on its page at "
            "the hub, and set HF_TOKEN to a "
            f"token of the account that did ({token})."
        )
    if isinstance(error, RepositoryNotFoundError):
        return (
            f"{what} could not be fetched: the hub has no model of that name, or not for us. It "
            "is misspelt, private, or has "
            "moved: look up its present name and give it with `-p model=OWNER/NAME`."
        )
    if (answer := getattr(error, "response", None)) is not None:
        return (
            f"{what} could not be fetched: the hub answers {answer.status_code}. After 401 or 403 "
            "look at HF_TOKEN, which must "
            "be valid or not set; after 429 or 5xx try again later."
        )
    return (
        f"{what} could not be fetched ({type(error).__name__}): it is not on this machine, and "
        "the hub cannot be reached. "
        "Check the network, or take a model in a folder."
    )
