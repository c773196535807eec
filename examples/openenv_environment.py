r"""Notebook 10 with an environment on an OpenEnv server (github.com/huggingface/OpenEnv, 0.10):

    export OPENENV_URL=http://127.0.0.1:8001
    python -m helpers run --run far --only 10 \
        -p environment=examples/openenv_environment.py:RemoteGuessing

A session is one WebSocket, with `reset` and `step` as JSON. OpenEnv's own client would change
packages of the suite, so this one needs `websockets` alone (requirements-optional.txt). It answers
the server's pings while the policy writes; without an answer, a server ends a session after 40
seconds.

Left out: tools made from what a server lists. Write a method for each, as RemoteGuessing does: its
docstring is what the policy reads.
"""

import json
import os

from websockets.sync.client import connect

from helpers.agents import Guessing, ToolError

SECONDS = 600  # the guard gives up sooner; this ends the thread that it leaves behind


class Remote:
    """Episodes on the server at OPENENV_URL, each in a session of its own.

    An episode earns the last reward that the server gave, 0.0 before the first. If the connection
    is lost or the server answers nonsense, the episode has no reward: `get_reward` raises, and the
    guard leaves the episode out. A refused action costs one call, and an action that ends the
    session keeps the reward, so no action is a way out of a low one.
    """

    _url = ""
    _earned_by_hanging = None  # for the guard: a server may hang through no fault of the policy
    _session = None

    def reset(self, **columns) -> str:
        """Open a session and return what the server's `reset` says."""
        self._close()
        self._url = os.environ.get("OPENENV_URL", "http://127.0.0.1:8001")
        self._reward = 0.0
        self._lost = ""
        address = self._url.replace("http", "ws", 1).rstrip("/") + "/ws"
        self._session = connect(address, ping_interval=None, close_timeout=1)
        observation = self._ask("reset", columns)
        return observation.get("result") or json.dumps(observation, ensure_ascii=False)

    def get_reward(self) -> float:
        """Close the session and return what the episode has earned."""
        self._close()
        if self._lost:
            raise ConnectionError(self._lost)
        return self._reward

    def _call(self, tool: str, **arguments) -> str:
        """Return the result of a tool that the server lists; ToolError if it refuses the call."""
        action = {"type": "call_tool", "tool_name": tool, "arguments": arguments}
        observation = self._ask("step", action)
        if observation.get("error"):
            raise ToolError(observation["error"]["message"])
        return observation["result"]

    def _ask(self, kind: str, content: dict) -> dict:
        """Send `reset` or `step` and return the server's observation."""
        if self._session is None:
            raise ToolError(f"The episode is over. {self._lost}".rstrip())
        message = json.dumps({"type": kind, "data": content}, default=str, ensure_ascii=False)
        try:
            self._session.send(message.encode(errors="replace").decode())
            reply = json.loads(self._session.recv(timeout=SECONDS))
            data = reply["data"]
            is_refusal = reply["type"] == "error"
            if is_refusal:
                done = data["code"] == "SESSION_ERROR"
            else:
                done = data["done"]
                self._reward = self._reward if data["reward"] is None else float(data["reward"])
                observation = dict(data["observation"])
        except Exception as error:  # whatever a server may do
            self._lost = f"{self._url} gave no answer ({type(error).__name__}: {error!s:.100})"
            self._close()
            raise ConnectionError(self._lost) from error
        if done:
            self._close()
        if is_refusal:
            raise ToolError(data["message"])
        return observation

    def _close(self) -> None:
        if self._session is not None:
            self._session.close()
        self._session = None


class RemoteGuessing(Remote):
    """Number guessing, as `examples/serve_environment.py helpers.agents:Guessing` serves it."""

    _oracle = staticmethod(Guessing._oracle)  # shows the laboratory that the game can be won

    def guess(self, number: int) -> str:
        """Guess the number.

        Args:
            number: Your guess.
        """
        return self._call("guess", number=number)
