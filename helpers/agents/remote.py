"""An environment that an OpenEnv server runs (github.com/huggingface/OpenEnv, 0.10).

Spoken here is the server's own protocol: `reset` and `step` as JSON over one WebSocket a session.
OpenEnv's client would bring packages that change the suite's. The `websockets` package answers a
server's pings while the policy writes; without, a server closes the session after 40 seconds.

What a server says is data for the policy. `Guarded` limits its length and the time it may take.
"""

import inspect
import json
from collections.abc import Callable
from functools import reduce
from operator import or_
from typing import Literal

import httpx
from websockets.sync.client import connect

from helpers.agents.protocol import ToolError
from helpers.own_code import named

_SECONDS = 600  # the guard gives up sooner; this ends the thread that it leaves behind
_TYPES = {"string": str, "integer": int, "number": float, "boolean": bool, "null": type(None)}
_ERRORS = {"VALIDATION_ERROR": ToolError, "EXECUTION_ERROR": RuntimeError}  # others end the session


class Remote:
    """Episodes of an OpenEnv server, each in a session of its own.

    `remote_environment` makes a subclass that shows the server's actions as they are. If they need
    words, write one: `_url`, and tools that call `_step` with an action.

        class Wordle(Remote):
            _url = "http://127.0.0.1:8001"

            def guess(self, word: str) -> str:
                ...
                return self._step({"message": f"[{word}]"})["messages"][-1]["content"]

    An episode earns the last reward that the server gave, 0.0 before the first. Asking for it ends
    the session. If the server died, hung or answered nonsense, `get_reward` raises, and the guard
    makes that None.
    """

    _url = ""
    _earned_by_hanging = None  # see Guarded: a server may hang without any fault of the policy
    _session = None
    _lost = ""

    def reset(self, **columns) -> str:
        self._connect()
        return _words(self._ask("reset", columns))

    def get_reward(self) -> float:
        self._close()
        if self._lost:
            raise ConnectionError(self._lost)
        return self._reward

    def _step(self, action: dict) -> dict:
        """The observation that follows an action, an object with the fields of the server's
        schema.
        """
        return self._ask("step", action)

    def _connect(self) -> None:
        self._close()
        self._reward, self._lost = 0.0, ""
        address = f"ws{self._url.removeprefix('http').rstrip('/')}/ws"
        self._session = connect(address, ping_interval=None, close_timeout=1)

    def _close(self) -> None:
        if self._session:
            self._session.close()
        self._session = None

    def _ask(self, kind: str, data: dict) -> dict:
        """The observation that answers a message.

        ToolError for an action that the server refuses, RuntimeError if its environment failed,
        ConnectionError for anything else that is no observation; then there is no reward.
        """
        if self._session is None:
            raise ToolError(f"The episode is over. {self._lost}".rstrip())
        answer, done, wrong = "", False, None
        try:
            self._session.send(json.dumps({"type": kind, "data": data}, default=str))
            answer = json.loads(self._session.recv(timeout=_SECONDS))
            data = answer["data"]
            if answer["type"] == "error":
                said = [data["message"], *(one["msg"] for one in data.get("errors", []))]
                wrong = _ERRORS.get(data["code"], ConnectionError)("; ".join(said))
            else:
                observation, done = dict(data["observation"]), bool(data["done"])
                if data["reward"] is not None:
                    self._reward = float(data["reward"])
        except Exception as error:  # whatever a server may do
            wrong = ConnectionError(f"{type(error).__name__}: {error!s:.100} {answer!s:.100}")
        if isinstance(wrong, ConnectionError):
            self._lost = f"{self._url}: {wrong}"
        if done or self._lost:
            self._close()
        if wrong:
            raise wrong
        return observation


def _words(observation: dict) -> str:
    """What the policy reads: the result of a tool, else the only field that is not empty, else all
    of them as JSON. ToolError if it is a tool's error.
    """
    if observation.get("error") and "tool_name" in observation:
        raise ToolError(str(observation["error"]["message"]))
    said = {name: value for name, value in observation.items() if value or value == 0}
    if len(said) > 1:
        said.pop("metadata", None)
    if "tool_name" in observation:
        said = observation["result"]
        if isinstance(said, dict) and "content" in said:  # as MCP writes it
            said = "\n".join(part.get("text", "") for part in said["content"])
    elif len(said) == 1:
        (said,) = said.values()
    return said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)


# --- The tools that a server's actions become -----------------------------------------------------


def environment_named(value: object) -> Callable:
    """The environment that notebook 10's parameter names: `my_game.py:MyGame`, or
    `openenv:http://127.0.0.1:8001`. ValueError if it names none.
    """
    kind, _, address = str(value).partition(":")
    if kind == "openenv":
        return remote_environment(address)
    return named("environment", value, "my_game.py:MyGame or openenv:http://127.0.0.1:8001")


def remote_environment(address: str) -> type[Remote]:
    """The environment of an OpenEnv server, with its tools as tools. Where the server has none, one
    tool `step` takes the fields of its action.

    ValueError if nothing answers there as OpenEnv does, or if an action's fields are more than
    texts, numbers, true or false, and lists of them.
    """
    kind = type("Remote", (Remote,), {"_url": address})
    try:
        schema = httpx.get(f"{address.rstrip('/')}/schema", timeout=10).raise_for_status()
        action = schema.json()["action"]
        fields = action["properties"].keys() - {"metadata"}
        listed = []
        if not fields or "tool_name" in fields:
            server = kind()
            server._connect()
            listed = server._ask("step", {"type": "list_tools"})["tools"]
            server.get_reward()
        tools = [_tool(one["name"], one["description"], one["input_schema"]) for one in listed]
        tools = tools or [_tool("step", action.get("description", "Take a step."), action, False)]
    except Exception as error:  # whatever a server may do
        raise ValueError(
            f"environment='openenv:{address}': no OpenEnv server of the suite's kind answers there "
            f"({type(error).__name__}: {error!s:.300})."
        ) from error
    for tool in tools:
        setattr(kind, tool.__name__, tool)
    return kind


def _tool(name: str, said: str, schema: dict, listed: bool = True) -> Callable:
    """A method whose signature and docstring give the policy this schema.

    listed: it is one of the server's tools; else the arguments are the action itself.
    """

    def tool(self, **arguments) -> str:
        called = {"type": "call_tool", "tool_name": name, "arguments": arguments}
        return _words(self._step(called if listed else arguments))

    lines, parameters = [], [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    for argument, of in schema.get("properties", {}).items():
        if argument == "metadata" or "const" in of:
            continue  # OpenEnv's own
        default = inspect.Parameter.empty
        if argument not in schema.get("required", []):
            default = of.get("default")
        parameters.append(
            inspect.Parameter(
                argument,
                inspect.Parameter.KEYWORD_ONLY,
                annotation=_annotation(of, f"{name}: {argument}"),
                default=default,
            )
        )
        lines.append(f"    {argument}: {' '.join(of.get('description', argument).split())}")
    tool.__name__ = tool.__qualname__ = name
    tool.__doc__ = said if "Args:" in said or not lines else "\n".join([said, "", "Args:", *lines])
    tool.__signature__ = inspect.Signature(parameters, return_annotation=str)
    tool.__annotations__ = {one.name: one.annotation for one in parameters[1:]} | {"return": str}
    return tool


def _annotation(schema: dict, where: str) -> object:
    if "enum" in schema:
        return Literal[tuple(schema["enum"])]
    if "anyOf" in schema:
        return reduce(or_, (_annotation(each, where) for each in schema["anyOf"]))
    if schema.get("type") == "array":
        return list[_annotation(schema.get("items", {}), where)]
    if schema.get("type") not in _TYPES:
        raise TypeError(
            f"{where} is no text, number, true or false, or a list of them, but {schema!s:.100}: "
            "write an adapter, as in helpers/agents/remote.py"
        )
    return _TYPES[schema["type"]]
