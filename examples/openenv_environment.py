r"""Train in notebook 10 with an environment on an OpenEnv server (0.10,
github.com/huggingface/OpenEnv):

    export OPENENV_URL=http://127.0.0.1:8001
    python -m helpers run --run far --only 10 \
        -p environment=examples/openenv_environment.py:RemoteGuessing

A session is one WebSocket connection that carries `reset` and `step` as JSON. The packages of
OpenEnv's own client conflict with ours, so this client needs only `websockets`
(deploy/requirements-optional.txt). While the policy writes, it answers the server's pings; a server
ends a session after 40 seconds without an answer.

Left out: tools made from the server's list. Write a method for each tool, as in RemoteGuessing. The
policy reads the method's docstring.
"""

import json
import os

from websockets.sync.client import connect

from helpers.agents import Guessing, ToolError

SECONDS = 600  # ends the waiting thread; the guard has given up the episode long before


class Remote:
    """An environment on the server at OPENENV_URL. Each episode has a session of its own.

    An episode earns the last reward that the server sent, or 0.0 without one. If the connection is
    lost or an answer is invalid, `get_reward` raises, and the guard leaves the episode out. A
    refused action counts as a call, and an action that ends the session keeps the reward. So a
    policy cannot escape a low reward by any action.
    """

    _url = ""
    _earned_by_hanging = None  # for the guard: if a server hangs, the policy is not to blame
    _session = None

    def reset(self, **columns) -> str:
        """Open a session and return the server's first observation."""
        self._close()
        self._url = os.environ.get("OPENENV_URL", "http://127.0.0.1:8001")
        self._reward = 0.0
        self._lost = ""
        address = self._url.replace("http", "ws", 1).rstrip("/") + "/ws"
        self._session = connect(address, ping_interval=None, close_timeout=1)
        observation = self._ask("reset", columns)
        return observation.get("result") or json.dumps(observation, ensure_ascii=False)

    def get_reward(self) -> float:
        """Close the session and return the episode's reward."""
        self._close()
        if self._lost:
            raise ConnectionError(self._lost)
        return self._reward

    def _call(self, tool: str, **arguments) -> str:
        """Call one of the server's tools and return its result. Raise ToolError if the server
        refuses the call.
        """
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
        except Exception as error:  # an answer may be invalid in any way
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
    """Number guessing on a server: `examples/serve_environment.py helpers.agents:Guessing`."""

    _oracle = staticmethod(Guessing._oracle)  # lets the laboratory check that the game can be won

    def guess(self, number: int) -> str:
        """Guess the number.

        Args:
            number: Your guess.
        """
        return self._call("guess", number=number)
