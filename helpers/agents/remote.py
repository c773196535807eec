"""An environment that an OpenEnv server runs (github.com/huggingface/OpenEnv, 0.10).

A session is one WebSocket, with `reset` and `step` as JSON. OpenEnv's own client would change
packages of the suite. `websockets` answers a server's pings while the policy writes; a client that
does not loses its session after 40 seconds.

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

    `environment_named` makes a subclass that shows the server's actions as they are. If they need
    words, write one with `_url`, and tools that call `_step` with an action:

        def guess(self, word: str) -> str:
            ...
            return self._step({"message": f"[{word}]"})["messages"][-1]["content"]

    An episode earns the last reward that the server gave, 0.0 before the first. Asking for it ends
    the session. If the server died or answered nonsense, `get_reward` raises.
    """

    _url = ""
    _earned_by_hanging = None  # for `Guarded`: a server may hang through no fault of the policy
    _session, _lost = None, ""

    def reset(self, **columns) -> str:
        self._connect()
        return _words(self._ask("reset", columns))

    def get_reward(self) -> float:
        self._close()
        if self._lost:
            raise ConnectionError(self._lost)
        return self._reward

    def _step(self, action: dict) -> dict:
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
            message = json.dumps({"type": kind, "data": data}, default=str, ensure_ascii=False)
            self._session.send(message.encode(errors="replace").decode())
            answer = json.loads(self._session.recv(timeout=_SECONDS))
            data = answer["data"]
            if answer["type"] == "error":
                said = [data["message"], *(one["msg"] for one in data.get("errors", []))]
                # OpenEnv cannot say why it refuses some actions; then it ends the session, and the
                # policy keeps what it has: an action of its own is no way out of a low reward
                done = kind == "step" and data["code"] == "SESSION_ERROR"
                failed = RuntimeError if done else ConnectionError
                wrong = _ERRORS.get(data["code"], failed)("; ".join(said))
            else:
                observation, done = dict(data["observation"]), data["done"]
                self._reward = self._reward if data["reward"] is None else float(data["reward"])
        except Exception as error:  # whatever a server may do
            wrong = ConnectionError(f"{type(error).__name__}: {error!s:.100} {answer!s:.100}")
        if isinstance(wrong, ConnectionError):
            self._lost = f"{self._url} gave no answer ({wrong}): start the server, then --resume"
        if done or self._lost:
            self._close()
        if wrong:
            raise wrong
        return observation


def _words(observation: dict) -> str:
    """What the policy reads: a tool's result, else what is in the observation as JSON."""
    said = {name: value for name, value in observation.items() if value not in (None, [], {})}
    if "tool_name" in said:
        if "error" in said:
            raise ToolError(str(said["error"]["message"]))
        said = said.get("result")
        if isinstance(said, dict) and isinstance(said.get("content"), list):  # as MCP writes it
            said = "\n".join(part["text"] for part in said["content"] if "text" in part)
    return said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)


def environment_named(value: object) -> Callable:
    """The environment that notebook 10's parameter names: `my_game.py:MyGame`, or
    `openenv:http://127.0.0.1:8001`, whose tools are the server's; if it has none, one tool `step`
    takes the fields of its action.

    ValueError if there is no such thing, or if an action's fields are more than texts, numbers,
    true or false, and lists of them.
    """
    prefix, _, address = str(value).partition(":")
    if prefix != "openenv":
        return named("environment", value, "my_game.py:MyGame or openenv:http://127.0.0.1:8001")
    kind = type("Remote", (Remote,), {"_url": address})
    try:
        answer = httpx.get(f"{address.rstrip('/')}/schema", timeout=10).raise_for_status()
        action = answer.json()["action"]
        fields = action["properties"].keys() - {"metadata"}
        if not fields or "tool_name" in fields:
            server = kind()
            server._connect()
            tools = server._step({"type": "list_tools"})["tools"]
            server._close()
            tools = [_tool(one["name"], one["description"], one["input_schema"]) for one in tools]
        else:
            tools = [_tool("step", action.get("description", "Take a step."), action, False)]
    except Exception as error:  # whatever a server may do
        raise ValueError(
            f"environment={value!r}: no OpenEnv server with actions for a policy answers there "
            f"({type(error).__name__}: {error!s:.300})."
        ) from error
    for tool in tools:
        setattr(kind, tool.__name__, tool)
    return kind


def _tool(name: str, said: str, schema: dict, listed: bool = True) -> Callable:
    """A method whose signature and docstring show the policy this schema.

    listed: it is one of the server's tools; else the arguments are the action itself.
    """

    def tool(self, **arguments) -> str:
        called = {"type": "call_tool", "tool_name": name, "arguments": arguments}
        return _words(self._step(called if listed else arguments))

    parameters, lines = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)], []
    for argument, of in schema.get("properties", {}).items():
        if argument == "metadata" or "const" in of:
            continue  # OpenEnv's own
        needed = argument in schema.get("required", [])
        parameter = inspect.Parameter(
            argument,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=_annotation(of, argument),
            default=inspect.Parameter.empty if needed else of.get("default"),
        )
        parameters.append(parameter)
        lines.append(f"    {argument}: {' '.join(of.get('description', argument).split())}")
    tool.__name__ = name
    tool.__doc__ = said if "Args:" in said or not lines else "\n".join([said, "", "Args:", *lines])
    tool.__signature__ = inspect.Signature(parameters, return_annotation=str)
    tool.__annotations__ = {one.name: one.annotation for one in parameters[1:]} | {"return": str}
    return tool


def _annotation(schema: dict, argument: str) -> object:
    if "enum" in schema:
        return Literal[tuple(schema["enum"])]
    if "anyOf" in schema:
        return reduce(or_, (_annotation(each, argument) for each in schema["anyOf"]))
    if schema.get("type") == "array":
        return list[_annotation(schema.get("items", {}), argument)]
    if schema.get("type") in _TYPES:
        return _TYPES[schema["type"]]
    raise TypeError(
        f"{argument} is neither text, number, true or false nor a list of them, but "
        f"{schema!s:.100}: write a class with tools, as in helpers/agents/remote.py"
    )
