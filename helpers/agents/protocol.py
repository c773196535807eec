"""TRL's slot for environments: what it asks of a class, how a policy's call is judged and made, and
the rows that episodes begin from.

TRL 1.15 (`trl/trainer/grpo_trainer.py`) calls the factory without arguments (663), keeps the
instances and calls `reset` with the whole row, `prompt` included (2315). What `reset` returns is
appended to the last user message (2324). **Every** public method of the class but `reset` and
`get_reward` is a tool (668 to 674): its schema comes from its signature and docstring.
"""

import inspect
import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NotRequired, Protocol, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from helpers.data.files import Broken, file_rows

_NEEDED = {
    "reset": "which TRL calls before every episode. Write reset(self, **columns)",
    "get_reward": "which says what the episode has earned. Write get_reward(self)",
}
_SHOWN = 60  # characters of a value in a sentence for the policy


class Environment(Protocol):
    """What TRL asks of an environment. Its tools are whatever other public methods it has, each a
    plain `def`.
    """

    def reset(self, **columns) -> str | None:
        """Begin an episode from a row of the data; the text, if any, is appended to the row's last
        user message.
        """

    def get_reward(self) -> float:
        """Return what the episode has earned so far, a full success 1.0.

        TRL can do without it, for reward functions get `environments=`, too; the suite cannot.
        """


class ToolError(Exception):
    """A call that the environment rightly refuses, in words a policy can learn from.

    It is no fault of the environment.
    """


def tools_of(kind: type) -> list[str]:
    """Return the names of a class's tools, in the order in which TRL shows them."""
    functions = dict(inspect.getmembers(kind, inspect.isfunction))
    return [name for name in functions if name not in _NEEDED and not name.startswith("_")]


def schema_of(tool: Callable) -> dict:
    """Return what the policy is told about a tool's arguments: the `parameters` of the schema that
    Transformers makes for TRL.
    """
    from transformers.utils import get_json_schema

    return get_json_schema(tool)["function"]["parameters"]


def check_environment(factory: Callable[[], Environment]) -> list[str]:
    """Return what is wrong with an environment, a sentence each, with the way out; nothing if TRL
    can use it.

    factory: what goes to `GRPOTrainer(environment_factory=…)`. It is called once, without
    arguments, as TRL calls it: give them defaults, or pass functools.partial. Whether `reset` takes
    the rows shows when the first episode begins, and what a tool returns when players call it.
    """
    try:
        instance = factory()
    except Exception as error:  # a class that takes arguments, most often
        return [f"an environment is made without arguments, and this one raises {error!r}."]
    kind = type(instance)
    problems = [
        f"{kind.__name__} has no method `{needed}`, {why}."
        for needed, why in _NEEDED.items()
        if not inspect.isfunction(getattr(kind, needed, None))
    ]
    if not tools_of(kind):
        problems.append(
            f"{kind.__name__} has no tool: a tool is a public method other than `reset` and "
            "`get_reward`."
        )
    for name in tools_of(kind):
        try:
            schema_of(getattr(instance, name))
        except Exception as error:  # Transformers' own, or NameError of an annotation
            problems.append(
                f"tool `{name}`: {str(error).rstrip('.!')}. The policy is shown the docstring, the "
                "annotations, and each argument's line under `Args:`. If it is no tool, hide it: "
                f"call it `_{name}`."
            )
    return problems


# --- What a policy passes to a tool ---------------------------------------------------------------


def call_tool(environment: Environment, name: str, arguments: object) -> tuple[str, bool]:
    """Make one call as TRL makes it (grpo_trainer.py 1918 to 1929, 1957); return what the policy is
    told, and whether the call failed. Left out: a result that is a list, as of pictures.
    """
    try:
        if name not in tools_of(type(environment)):
            raise ValueError(f"Tool {name} not found.")
        return str(getattr(environment, name)(**arguments)), False
    except Exception as error:
        return str({"error": str(error)}), True


def argument_check(tool: Callable) -> Callable[[dict], str]:
    """Return a function that says what is wrong first with a call's arguments, in one short
    sentence from which a policy can learn; "" if nothing is.

    The tool's annotations are the rule, strictly. A text is no number, 1.0 no whole number, and NaN
    nothing, because every comparison with it is false.

    >>> def read(row: int):
    ...     "Read a row."
    >>> check = argument_check(read)
    >>> check({"row": "3"})
    "read: row must be a whole number, not '3'."
    >>> check({"row": 3, "column": 3})
    "read takes no 'column'; it takes row."
    """
    fields = get_type_hints(tool)
    fields.pop("return", None)
    for name, parameter in inspect.signature(tool).parameters.items():
        if parameter.default is not parameter.empty:
            fields[name] = NotRequired[fields[name]]
    kind = TypedDict("Arguments", fields)
    kind.__pydantic_config__ = ConfigDict(
        strict=True, allow_inf_nan=False, arbitrary_types_allowed=True
    )
    validator = TypeAdapter(kind)

    def problem_of(arguments: dict) -> str:
        unknown = [name for name in arguments if name not in fields]
        if unknown:
            takes = ", ".join(fields) or "nothing"
            return f"{tool.__name__} takes no {short_repr(unknown[0])}; it takes {takes}."
        try:
            validator.validate_python(arguments)
        except ValidationError as error:
            problems = error.errors(include_url=False)
            name = problems[0]["loc"][0]
            if problems[0]["type"] == "missing":
                return f"{tool.__name__} needs {name}."
            # pydantic's own words; one for each type that a union allows
            wanted = [problem["msg"].removeprefix("Input should be ") for problem in problems]
            words = " or ".join(dict.fromkeys(wanted)).replace("a valid integer", "a whole number")
            value = short_repr(problems[0]["input"])
            return f"{tool.__name__}: {name} must be {words}, not {value}."
        return ""

    return problem_of


def short_repr(value: object) -> str:
    """Return the repr of a policy's value for a sentence, cut after 60 characters."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # a thousand brackets, or five thousand digits
        text = f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


# --- The rows of a user's file --------------------------------------------------------------------


def episode_rows(path: str | Path, seed: int) -> tuple[list[dict], Counter]:
    """Return the rows of a .csv, .jsonl or .parquet file, each of them what `reset` takes, in an
    order drawn from `seed`, and how many were dropped, by reason.

    Lines that cannot be read and duplicates are dropped, so that no episode is both trained on and
    held out. ValueError, with the row's number from 1, for a row with other columns than the first
    one, or with an empty value.
    """
    rows = {}  # by what is in them
    dropped = Counter()
    columns = None  # of the first row
    for number, row in enumerate(file_rows(Path(str(path)), set()), start=1):
        if isinstance(row, Broken):
            dropped[row.reason] += 1
            continue
        columns = columns or row.keys()
        # only nan is not itself
        if row.keys() != columns or any(value is None or value != value for value in row.values()):
            raise ValueError(
                f"{path}, row {number}: every row needs the columns {', '.join(columns)}, and a "
                "value in each."
            )
        key = json.dumps(row, sort_keys=True, default=str)
        dropped["duplicate"] += key in rows
        rows[key] = row
    for name in {"prompt", "question", "answer"} & set(columns or ()):
        raise ValueError(
            f"{path}: notebook 10 writes the column {name!r} itself: give yours another name."
        )
    rows = list(rows.values())
    random.Random(seed).shuffle(rows)
    return rows, +dropped


# --- Chat templates -------------------------------------------------------------------------------


def prepare_template(tokenizer) -> None:
    """Let the tokenizer render and read tool calls as GRPOTrainer will, so that a policy can play
    before there is a trainer.

    TRL does the same in its constructor, in this order (grpo_trainer.py 627, 742, 753): the
    template must render calls and results, it must be known how a call is read, and a conversation
    that goes on must begin as it did before. A tokenizer that has all three stays as it is.
    ValueError, for the last two in TRL's words, for a template that cannot be made ready.
    """
    from trl import chat_template_utils as trl

    if not trl.supports_tool_calling(tokenizer):
        raise ValueError(
            f"the chat template of {tokenizer.name_or_path} does not render tool calls and their "
            "results: take an instruct model with tools, such as Qwen3, or write both into it "
            "(`message.tool_calls`, role `tool`)."
        )
    if not any(getattr(tokenizer, f"response_{way}", None) for way in ("template", "schema")):
        trl.add_response_schema(tokenizer)
    if not trl.is_chat_template_prefix_preserving(tokenizer):
        tokenizer.chat_template = trl.get_training_chat_template(tokenizer)
