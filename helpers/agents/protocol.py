"""TRL's slot for environments: what TRL requires of a class, how a policy's calls are checked and
made, and the rows that episodes begin from.

TRL 1.15 (`trl/trainer/grpo_trainer.py`) calls the factory without arguments (663) and keeps the
instances. It calls `reset` with the whole row, including `prompt` (2315), and appends the returned
text to the last user message (2324). **Every** public method except `reset` and `get_reward` is a
tool (668 to 674). Its schema comes from its signature and docstring.

The parts, each for itself: `Environment` and `check_environment`, the calls of a policy, the rows
of a user's file, and chat templates with tools.
"""

import functools
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
from helpers.rewards.time_limit import OutOfTime, time_limit

_NEEDED = {
    "reset": "which TRL calls before every episode. Write reset(self, **columns)",
    "get_reward": "which says what the episode has earned. Write get_reward(self)",
}
_SHOWN = 60  # characters of a value in a sentence for the policy
_SECONDS = 1.0  # time limit for reading the calls of one turn
_MOST_DIGITS = 300  # of a whole number in a call; a longer one does not fit into a float
_MOST_LEVELS = 32  # lists and objects inside each other in a call


class Environment(Protocol):
    """What TRL requires of an environment. Other public methods are tools, and cannot be async."""

    def reset(self, **columns) -> str | None:
        """Begin an episode from a row of the data. The returned text, if any, is appended to the
        row's last user message.
        """

    def get_reward(self) -> float:
        """Return the reward of the episode so far; a full success is 1.0.

        TRL does not require this method, because reward functions receive `environments=`, too.
        The suite does.
        """


class ToolError(Exception):
    """Raised by an environment that refuses a call, in words that a policy can learn from. It does
    not count as a fault of the environment.
    """


def tools_of(kind: type) -> list[str]:
    """Return the names of a class's tools, in the order in which TRL shows them."""
    functions = dict(inspect.getmembers(kind, inspect.isfunction))
    return [name for name in functions if name not in _NEEDED and not name.startswith("_")]


def schema_of(tool: Callable) -> dict:
    """Return what the policy sees of a tool: `parameters` in the schema that Transformers makes for
    TRL, and the tool's `description`.
    """
    from transformers.utils import get_json_schema

    function = get_json_schema(tool)["function"]
    return function["parameters"] | {"description": function["description"]}


def check_environment(factory: Callable[[], Environment]) -> list[str]:
    """Return the problems because of which TRL could not use an environment: one sentence each,
    with the way out.

    factory: the argument of `GRPOTrainer(environment_factory=…)`. Like TRL, this function calls it
        without arguments: give the class defaults, or pass functools.partial.

    Neither `reset` nor a tool is called.
    """
    from transformers.utils import get_json_schema  # if it is missing, that is no tool's problem

    try:
        instance = factory()
    except Exception as error:  # most often, a class that takes arguments
        return [f"TRL creates an environment without arguments, and this one raises {error!r}."]
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
            get_json_schema(getattr(instance, name))
        except Exception as error:  # an error of Transformers, or NameError for an annotation
            problems.append(
                f"tool `{name}`: {str(error).rstrip('.!')}. The policy is shown the docstring, the "
                "annotations, and each argument's line under `Args:`. If it is not a tool, hide "
                f"it: name it `_{name}`."
            )
    return problems


# --- A policy's calls -----------------------------------------------------------------------------


@functools.cache  # a second call would wrap the method again
def read_calls_safely() -> None:
    """Make sure that reading a turn's calls cannot end or hang a run: a turn whose calls cannot be
    read is plain text.

    TRL and `episodes.play_to_end` read a turn with `parse_response` of TRL's chat_template_utils,
    which calls the tokenizer's method of that name. Only its ValueError and TypeError make the turn
    plain text. But 990 opening brackets raise RecursionError; lone surrogates in a call raise
    errors later, when its result is rendered or logged; and the patterns of some templates take
    minutes for two thousand spaces. So this function wraps the method, for all tokenizers.
    """
    from transformers import PreTrainedTokenizerBase

    parse = PreTrainedTokenizerBase.parse_response

    @functools.wraps(parse)
    def parse_response(self, *arguments, **options):
        try:
            with time_limit(_SECONDS):
                turn = parse(self, *arguments, **options)
                if isinstance(turn, dict) and turn.get("tool_calls"):
                    turn["tool_calls"] = _safe_calls(turn["tool_calls"])
                return turn
        except (Exception, OutOfTime) as error:
            raise ValueError(f"the calls cannot be read: {type(error).__name__}") from error

    PreTrainedTokenizerBase.parse_response = parse_response


def _safe_calls(calls: list) -> list[dict]:
    """Return the calls of a turn as they can be made, rendered and logged: each has a name and
    arguments, a lone surrogate is "?", and a whole number of too many digits is infinity, which no
    tool takes. An exception of any type if that is impossible.
    """

    def whole_number(digits: str) -> int | float:
        return int(digits) if len(digits) <= _MOST_DIGITS else float(digits)

    # write the calls as JSON and read them again: what JSON cannot express, no tool can take
    text = json.dumps(calls, ensure_ascii=False, indent=1)
    if "\n" + " " * _MOST_LEVELS in text:  # one space of indentation per level
        raise ValueError("too many lists and objects inside each other")
    without_surrogates = text.encode(errors="replace")
    calls = json.loads(without_surrogates, parse_int=whole_number)
    for call in calls:
        if call["type"] != "function" or not isinstance(call["function"]["name"], str):
            raise ValueError("a call without the name of a function")
        call["function"].setdefault("arguments", {})  # a template cannot render a missing one
    return calls


def call_tool(environment: Environment, name: str, arguments: object) -> tuple[str, bool]:
    """Make one call as TRL does (grpo_trainer.py 1918 to 1929, 1957). Return the reply to the
    policy, and whether the call failed. Left out: results that are lists, such as pictures.
    """
    try:
        if name not in tools_of(type(environment)):
            raise ValueError(f"Tool {name} not found.")
        return str(getattr(environment, name)(**arguments)), False
    except Exception as error:
        return str({"error": str(error)}), True


def argument_check(tool: Callable) -> Callable[[dict], str]:
    """Return a function that checks a call's arguments. It returns the first problem, in a short
    sentence that a policy can learn from, or "" if there is none.

    The arguments must have the types of the tool's annotations, strictly: "3" is not a number, and
    1.0 is not a whole number. NaN is always refused, because every comparison with it is false, and
    so is infinity.

    >>> def read(row: int):
    ...     "Read a row."
    >>> check = argument_check(read)
    >>> check({"row": "3"})
    "read: row must be a whole number, not '3'."
    >>> check({"row": 3, "column": 3})
    "read takes no 'column'; it takes row."
    """
    # 1. Describe the arguments as a type that pydantic can check.
    fields = get_type_hints(tool)
    fields.pop("return", None)
    for name, parameter in inspect.signature(tool).parameters.items():
        if parameter.default is not parameter.empty:
            fields[name] = NotRequired[fields[name]]
    arguments_type = TypedDict("Arguments", fields)
    arguments_type.__pydantic_config__ = ConfigDict(
        strict=True, allow_inf_nan=False, arbitrary_types_allowed=True
    )
    validator = TypeAdapter(arguments_type)

    # 2. Make the function that checks a call.
    def problem_of(arguments: dict) -> str:
        unknown = [name for name in arguments if name not in fields]
        if unknown:
            takes = ", ".join(fields) or "nothing"
            return f"{tool.__name__} takes no {short_repr(unknown[0])}; it takes {takes}."
        try:
            validator.validate_python(arguments)
            # finds a number that is not finite in a list or an object of anything
            json.dumps(arguments, allow_nan=False, default=str)
        except ValidationError as error:
            return f"{tool.__name__}{_words_for(error)}"
        except ValueError:
            return f"{tool.__name__}: every number must be finite."
        return ""

    return problem_of


def _words_for(error: ValidationError) -> str:
    """Return pydantic's first problem with a call's arguments, to follow the name of the tool:
    " needs row." or ": row must be a whole number, not '3'."
    """
    problems = error.errors(include_url=False)
    first = problems[0]
    name = first["loc"][0]
    if first["type"] == "missing":
        return f" needs {name}."
    # a union has a problem for each of its types
    wanted = [problem["msg"].removeprefix("Input should be ") for problem in problems]
    words = " or ".join(dict.fromkeys(wanted)).replace("a valid integer", "a whole number")
    return f": {name} must be {words}, not {short_repr(first['input'])}."


def short_repr(value: object) -> str:
    """Return the repr of a policy's value, cut after 60 characters."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # thousands of nested lists, or thousands of digits
        text = f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


# --- The rows of a user's file --------------------------------------------------------------------


def episode_rows(path: str | Path, seed: int) -> tuple[list[dict], Counter]:
    """Return the rows of a .csv, .jsonl or .parquet file in an order drawn from `seed`, and the
    number of dropped rows by reason. Each row has the arguments of `reset`.

    Lines that cannot be read are dropped, and duplicates, so that no episode is both trained on and
    held out. ValueError, with the row's number (from 1), for a row whose columns differ from the
    first row's, and for an empty value.
    """
    # 1. Read the rows, and keep each once.
    by_content = {}
    dropped = Counter()
    columns = None  # of the first row
    for number, row in enumerate(file_rows(Path(str(path)), set()), start=1):
        if isinstance(row, Broken):
            dropped[row.reason] += 1
            continue
        columns = columns or row.keys()
        # only nan differs from itself
        is_complete = row.keys() == columns and not any(
            value is None or value != value for value in row.values()
        )
        if not is_complete:
            raise ValueError(
                f"{path}, row {number}: every row needs the columns {', '.join(columns)}, and a "
                "value in each."
            )
        content = json.dumps(row, sort_keys=True, default=str)
        if content in by_content:
            dropped["duplicate"] += 1
        by_content[content] = row

    # 2. Refuse columns that would be overwritten.
    for name in {"prompt", "question", "answer"} & set(columns or ()):
        raise ValueError(
            f"{path}: notebook 10 writes the column {name!r} itself: give yours another name."
        )

    # 3. Put them into an order drawn from the seed.
    rows = list(by_content.values())
    random.Random(seed).shuffle(rows)
    return rows, dropped


# --- Chat templates -------------------------------------------------------------------------------


def prepare_template(tokenizer) -> None:
    """Let a tokenizer render and parse tool calls as GRPOTrainer will, so that a policy can play
    before there is a trainer.

    TRL checks three things in its constructor, in this order (grpo_trainer.py 627, 742, 753): the
    template renders calls and results; there is a schema to parse calls with; and adding messages
    does not change how earlier messages are rendered. What is missing is added if TRL knows the
    template, otherwise ValueError.
    """
    from trl import chat_template_utils as trl

    if not trl.supports_tool_calling(tokenizer):
        raise ValueError(
            f"the chat template of {tokenizer.name_or_path} does not render tool calls and their "
            "results: use an instruct model with tools, such as Qwen3, or add both to the template "
            "(`message.tool_calls`, role `tool`)."
        )
    has_parser = getattr(tokenizer, "response_template", None) or getattr(
        tokenizer, "response_schema", None
    )
    if not has_parser:
        trl.add_response_schema(tokenizer)
    if not trl.is_chat_template_prefix_preserving(tokenizer):
        tokenizer.chat_template = trl.get_training_chat_template(tokenizer)
