"""TRL's slot for environments, in one small class, and what can be said of one before it trains.

TRL 1.15 (`trl/trainer/grpo_trainer.py`) calls the factory without arguments (663), keeps the
instances and calls `reset` with the whole row, `prompt` included (2315). What `reset` returns is
appended to the last user message (2324). **Every** public method of the class but `reset` and
`get_reward` is a tool (668 to 674): its schema comes from its signature and docstring.
"""

from __future__ import annotations

import importlib
import inspect
import random
import runpy
from collections.abc import Callable, Collection
from typing import Protocol

from helpers.agents.threads import OutOfTime, Worker

_NOT_TOOLS = {"reset", "get_reward"}
_DECLARED = ("response_template", "response_schema")  # where a tokenizer says how calls are read
# What classes have for whoever uses them; a policy that finds one among its tools will try it.
_FOR_US = {
    "close",
    "render",
    "seed",
    "setup",
    "teardown",
    "state",
    "state_dict",
    "load_state_dict",
    "regret",
    "score",
}


class Environment(Protocol):
    """What TRL asks of an environment. Its tools are whatever other public methods it has."""

    def reset(self, **columns) -> str | None:
        """Begin an episode from a row of the data; the text, if any, is appended to the row's last
        user message.
        """

    def get_reward(self) -> float:
        """What the episode earned so far, a full success 1.0.

        May be left out; reward functions get `environments=`, too.
        """


class ToolError(Exception):
    """A call that the environment rightly refuses, in words a policy can learn from.

    No fault of the environment.
    """


def seeded(seed: int) -> random.Random:
    """The random numbers of one episode.

    ValueError for what is no whole number: with None, the clock would be the seed.
    """
    if isinstance(seed, bool) or not hasattr(seed, "__index__"):
        raise ValueError(
            f"seed={seed!r} is not a whole number: the members of a group must start alike. Add a "
            "`seed` column."
        )
    return random.Random(int(seed))


def named(parameter: str, value: object, example: str) -> Callable:
    """What `file.py:name` or `package.module:name` names: a user's class or function, given as a
    parameter.

    ValueError, in which the parameter and an example stand, where there is no such file, module,
    class or function.
    """
    where, colon, name = str(value).rpartition(":")
    if not colon or not where or not name.isidentifier():
        kind = "Class" if example.rpartition(":")[2][0].isupper() else "function"
        raise ValueError(
            f"{parameter}={value!r}: write it as file.py:{kind}, for example {example}."
        )
    try:
        module = (
            runpy.run_path(where) if where.endswith(".py") else vars(importlib.import_module(where))
        )
    except (Exception, SystemExit) as error:  # whatever a user's file may raise
        raise ValueError(
            f"{parameter}={value!r}: {where} cannot be read ({type(error).__name__}: {error})."
        ) from None
    if not callable(module.get(name)):
        raise ValueError(f"{parameter}={value!r}: {where} has no class or function {name}.")
    return module[name]


def tools_of(kind: type) -> list[str]:
    """The names of a class's tools, in the order in which TRL shows them."""
    names = [name for name, _ in inspect.getmembers(kind, predicate=inspect.isfunction)]
    return [name for name in names if name not in _NOT_TOOLS and not name.startswith("_")]


def schema_of(tool: Callable) -> dict:
    """What the policy is told of a tool's arguments: the `parameters` of the schema that
    Transformers makes for TRL.
    """
    from transformers.utils import get_json_schema

    return get_json_schema(tool)["function"]["parameters"]


# --- Before training ------------------------------------------------------------------------------


def check_environment(
    factory: Callable[[], Environment],
    columns: Collection[str] | None = None,
    seconds: float = 60.0,
) -> list[str]:
    """What is wrong with an environment, a sentence each, with the way out; empty where TRL can use
    it.

    factory: what goes to `GRPOTrainer(environment_factory=…)`. It is called once. columns: those of
    the training data; `prompt` is one of them. None leaves `reset` unchecked. A dictionary of
    factories is TRL's way to mix environments, chosen by the column `environment`, which `reset`
    does not see. seconds: how long making an instance may take.
    """
    if isinstance(factory, dict):
        seen = None if columns is None else set(columns) - {"environment"}
        return [
            f"{name}: {said}"
            for name, one in factory.items()
            for said in examined(one, seen, seconds)[1]
        ]
    return examined(factory, columns, seconds)[1]


def examined(
    factory: Callable, columns: Collection[str] | None = None, seconds: float = 60.0
) -> tuple[Environment | None, list[str]]:
    """The instance that was examined, if there is one, and what `check_environment` says of it."""
    instance, said = _instance(factory, seconds)
    if instance is None:
        return None, [said]
    kind, name, found = type(instance), type(instance).__name__, []
    if not inspect.isfunction(getattr(kind, "reset", None)):
        return instance, [
            f"{name} has no method `reset`: TRL calls it before every episode. Write reset(self, "
            "**columns)."
        ]
    if inspect.iscoroutinefunction(kind.reset):
        found.append(f"{name}.reset is asynchronous, and TRL does not await it: write `def reset`.")
    if columns is not None:
        found += _misfitting_columns(instance, {"prompt", *columns})
    if inspect.isfunction(getattr(kind, "get_reward", None)) and (
        needed := _needed(instance.get_reward)
    ):
        found.append(f"{name}.get_reward needs {_listed(needed)}: TRL calls it without arguments.")
    tools = tools_of(kind)
    if not tools:
        found.append(
            f"{name} has no tool: a tool is a public method other than `reset` and `get_reward`."
        )
    return instance, found + [
        said for tool in tools if (said := _wrong_with(tool, getattr(instance, tool)))
    ]


def _instance(factory: Callable, seconds: float) -> tuple[Environment | None, str]:
    """An instance, or why there is none."""
    name = getattr(factory, "__name__", type(factory).__name__)
    if not callable(factory):
        return (
            None,
            f"{name} is an object, not a factory: pass the class itself, {name} without brackets.",
        )
    try:
        needed = _needed(factory)
    except (TypeError, ValueError):  # a builtin without a signature
        needed = []
    if needed:
        return None, (
            f"{name}() needs {_listed(needed)}, and TRL makes instances without arguments: give "
            "them defaults, or pass "
            f"functools.partial({name}, {needed[0]}=…)."
        )
    worker = Worker()
    try:
        # in a tuple, or what is asynchronous would be awaited
        made, error = worker.call(seconds, lambda: (factory(),))
    except OutOfTime:
        worker.abandon()
        return None, (
            f"{name}() did not return within {seconds:g} seconds, and TRL makes many instances: "
            "load what takes long once, "
            "outside the class, or give it more `seconds`."
        )
    worker.release()
    if error is not None:
        return None, f"{name}() raised {type(error).__name__}: {error!s:.200}"
    return made[0], "" if made[0] is not None else f"{name}() returned nothing: name a class."


def _needed(function: Callable) -> list[str]:
    """The parameters without a default."""
    parameters = inspect.signature(function).parameters.values()
    return [
        p.name
        for p in parameters
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]


def _misfitting_columns(instance: Environment, columns: set[str]) -> list[str]:
    parameters, name = inspect.signature(instance.reset).parameters, type(instance).__name__
    found, missing = [], [needed for needed in _needed(instance.reset) if needed not in columns]
    if missing:
        found.append(
            f"{name}.reset needs {_listed(missing)}, and the data has only "
            f"{_listed(sorted(columns))}."
        )
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        extra = sorted(columns - set(parameters))
        if extra:
            found.append(
                f"{name}.reset does not take {_listed(extra)}, and TRL passes whole rows: end it "
                "with `**columns`."
            )
    return found


def _wrong_with(name: str, tool: Callable) -> str | None:
    """Why a public method cannot be a tool, or should not be one."""
    signature = inspect.signature(tool)
    hide = f"If it is no tool, hide it: call it `_{name}`."
    if name in _FOR_US or signature.return_annotation in (None, "None"):
        why = (
            "by its name no policy should call it"
            if name in _FOR_US
            else "it returns nothing that a policy could read"
        )
        return f"`{name}` is public, and so a tool, but {why}. Hide it: call it `_{name}`."
    if not inspect.getdoc(tool):
        return (
            f"tool `{name}` has no docstring, which the policy reads as its description. Write "
            f"one. {hide}"
        )
    for parameter in signature.parameters.values():
        if parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
            parameter.POSITIONAL_ONLY,
        ):
            return (
                f"tool `{name}` takes `{parameter}`: a policy calls tools with named arguments "
                f"only. Name each. {hide}"
            )
        if parameter.annotation is parameter.empty:
            return (
                f"tool `{name}`: `{parameter.name}` has no annotation, such as "
                f"`{parameter.name}: int`. {hide}"
            )
    try:
        schema_of(tool)
    # Transformers' own, NameError of an annotation, ValueError of `choices`
    except Exception as error:
        said = " ".join(str(argument) for argument in error.args)
        return (
            f"tool `{name}`: no schema can be made of it ({said:.200}). Under `Args:`, give "
            f"each argument a line. {hide}"
        )
    return None


def _listed(names: Collection[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def check_template(tokenizer) -> list[str]:
    """What a tokenizer lacks for tools in TRL, a sentence each, with the way out; empty where it
    can be trained with.

    Three things, in the order in which TRL asks (grpo_trainer.py 627, 742, 753): the template
    renders calls and results, it is known how a call is parsed, and a conversation that goes on
    begins as it did before. The tokenizer is left as it is.
    """
    from trl import chat_template_utils as trl

    name = getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__
    if not trl.supports_tool_calling(tokenizer):
        return [
            f"the chat template of {name} does not render tool calls and their results: take an "
            "instruct model with tools, "
            "such as Qwen3, or write both into the template (`message.tool_calls`, role `tool`)."
        ]
    found, known = [], _template_known(trl, tokenizer)
    if not known:
        found.append(
            f"nothing says how a call is read out of what {name} writes: TRL knows that only for "
            "templates that it has word "
            "for word. Set `tokenizer.response_template` (Transformers: chat response parsing)."
        )
    if not trl.is_chat_template_prefix_preserving(tokenizer):
        try:
            trl.get_training_chat_template(tokenizer)
        except ValueError:
            found.append(
                f"the chat template of {name} renders earlier messages differently once more "
                "follow, and TRL has no other for "
                "it: in several turns the policy would be trained on tokens that it did not see. "
                "Let the template only append."
            )
    return found


def prepare_template(tokenizer) -> None:
    """Let the tokenizer render and read tool calls as GRPOTrainer will, so that a policy can play
    before there is a trainer.

    As TRL does in its constructor (grpo_trainer.py 742, 753): how calls are read and, for some
    templates, one that only ever appends. A tokenizer that has both stays as it is. ValueError, in
    the words of `check_template`, where it cannot be.
    """
    from trl import chat_template_utils as trl

    problems = check_template(tokenizer)
    if problems:
        raise ValueError(" ".join(problems))
    if not any(getattr(tokenizer, name, None) is not None for name in _DECLARED):
        trl.add_response_schema(tokenizer)
    if not trl.is_chat_template_prefix_preserving(tokenizer):
        tokenizer.chat_template = trl.get_training_chat_template(tokenizer)


def _template_known(trl, tokenizer) -> bool:
    if any(getattr(tokenizer, name, None) is not None for name in _DECLARED):
        return True
    try:
        trl.add_response_schema(tokenizer)
    except ValueError:
        return False
    tokenizer.response_template = None
    return True
