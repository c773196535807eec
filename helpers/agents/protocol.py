"""TRL's slot for environments, and what can be said of an environment before it trains.

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
from typing import Protocol

from helpers.data.files import Broken, file_rows

_NEEDED = {
    "reset": "which TRL calls before every episode. Write reset(self, **columns)",
    "get_reward": "which says what the episode has earned. Write get_reward(self)",
}
_WRITTEN = ("prompt", "question", "answer")  # the columns that notebook 10 adds to a user's rows


class Environment(Protocol):
    """What TRL asks of an environment. Its tools are whatever other public methods it has, each a
    plain `def`.
    """

    def reset(self, **columns) -> str | None:
        """Begin an episode from a row of the data; the text, if any, is appended to the row's last
        user message.
        """

    def get_reward(self) -> float:
        """What the episode earned so far, a full success 1.0.

        TRL can do without it, for reward functions get `environments=`, too; the suite cannot.
        """


class ToolError(Exception):
    """A call that the environment rightly refuses, in words a policy can learn from.

    It is no fault of the environment.
    """


def tools_of(kind: type) -> list[str]:
    """The names of a class's tools, in the order in which TRL shows them."""
    functions = dict(inspect.getmembers(kind, inspect.isfunction))
    return [name for name in functions if name not in _NEEDED and not name.startswith("_")]


def schema_of(tool: Callable) -> dict:
    """What the policy is told of a tool's arguments: the `parameters` of the schema that
    Transformers makes for TRL.
    """
    from transformers.utils import get_json_schema

    return get_json_schema(tool)["function"]["parameters"]


def called(environment: Environment, name: str, arguments: object) -> tuple[str | list, bool]:
    """One call as TRL makes it (grpo_trainer.py 1918 to 1929, 1957): what the policy is told, and
    whether the call failed.
    """
    try:
        if name not in tools_of(type(environment)):
            raise ValueError(f"Tool {name} not found.")
        result = getattr(environment, name)(**arguments)
    except Exception as error:
        return str({"error": str(error)}), True
    return result if isinstance(result, list) else str(result), False


# --- A user's environment and its rows ------------------------------------------------------------


def check_environment(factory: Callable[[], Environment]) -> list[str]:
    """What is wrong with an environment, a sentence each, with the way out; empty if TRL can use
    it.

    factory: what goes to `GRPOTrainer(environment_factory=…)`. It is called once, without
    arguments, as TRL calls it: give them defaults, or pass functools.partial. Whether `reset` takes
    the rows shows when the first episode begins.
    """
    try:
        instance, wrong = factory(), []
    except Exception as error:  # of the user's own file
        return [f"an environment is made without arguments, and this one raises {error!r}."]
    kind = type(instance)
    for needed, why in _NEEDED.items():
        if not inspect.isfunction(getattr(kind, needed, None)):
            wrong.append(f"{kind.__name__} has no method `{needed}`, {why}.")
    if not tools_of(kind):
        wrong.append(
            f"{kind.__name__} has no tool: a tool is a public method other than `reset` and "
            "`get_reward`."
        )
    for tool in tools_of(kind):
        method = getattr(instance, tool)
        if inspect.iscoroutinefunction(method):
            wrong.append(
                f"tool `{tool}` is an `async def`, and no call of it would be awaited: write a "
                "plain `def`, with asyncio.run inside it."
            )
        elif inspect.signature(method).return_annotation in (None, "None"):
            wrong.append(
                f"`{tool}` is public, and so a tool, but it returns nothing that a policy could "
                f"read. Hide it: call it `_{tool}`."
            )
        else:
            try:
                schema_of(method)
            except Exception as error:  # of Transformers, or NameError of an annotation
                wrong.append(
                    f"tool `{tool}`: {str(error).rstrip('.!')}. The policy is shown the docstring, "
                    "the annotations, and each argument's line under `Args:`. If it is no tool, "
                    f"hide it: call it `_{tool}`."
                )
    return wrong


def episode_rows(path: str | Path, seed: int) -> tuple[list[dict], Counter]:
    """The rows of a .csv, .jsonl or .parquet file, each of them what `reset` takes, in an order
    drawn from `seed`, and how many were dropped, by reason.

    Lines that cannot be read and duplicates are dropped, so that no episode is both trained on and
    held out. ValueError, with the row's number from 1, for a row with other columns than the first
    one, or with an empty value.
    """
    found, dropped = {}, Counter()  # by what is in a row
    for number, row in enumerate(file_rows(Path(str(path)), set()), start=1):
        if isinstance(row, Broken):
            dropped[row.reason] += 1
            continue
        names = next(iter(found.values()), row).keys()
        # only nan is not itself
        if row.keys() != names or any(value is None or value != value for value in row.values()):
            raise ValueError(
                f"{path}, row {number}: every row needs the columns {', '.join(names)}, and a "
                "value in each."
            )
        key = json.dumps(row, sort_keys=True, default=str)
        if key in found:
            dropped["duplicate"] += 1
        found[key] = row
    rows = list(found.values())
    if rows and (taken := [name for name in _WRITTEN if name in rows[0]]):
        raise ValueError(
            f"{path}: notebook 10 writes the column {taken[0]!r} itself: give yours another name."
        )
    random.Random(seed).shuffle(rows)
    return rows, dropped


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
