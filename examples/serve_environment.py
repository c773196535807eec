"""Serve your own environment with OpenEnv, for any trainer that supports OpenEnv's protocol:

    python3 -m venv openenv && openenv/bin/pip install openenv==0.10.0
    openenv/bin/python -m examples.serve_environment my_game.py:MyGame --port 8001

OpenEnv's packages conflict with ours, so the server needs its own virtual environment. Start the
server from the project's folder. `examples/openenv_environment.py` is a client.
"""

import argparse
from collections.abc import Callable
from inspect import getdoc

import uvicorn
from openenv.core.env_server import create_fastapi_app, interfaces, mcp_types, types
from pydantic import TypeAdapter, ValidationError, validate_call

from helpers.agents import ToolError
from helpers.agents.protocol import tools_of
from helpers.own_code import load_own

SESSIONS = 1024  # episodes at a time


def application(factory: Callable):
    """Return OpenEnv's FastAPI application for an environment.

    factory: a class, or a function that returns an environment. Each session has its own instance.

    OpenEnv's actions `list_tools` and `call_tool` list and call its tools. The reward of an
    observation is the reward of the episode so far. `done` is always false, because our
    environments do not say when an episode ends.
    """
    names = tools_of(type(factory()))

    class Served(interfaces.Environment):
        SUPPORTS_CONCURRENT_SESSIONS = True
        state = types.State()

        def __init__(self):
            super().__init__()
            self.game = factory()
            # strict: a text is not accepted as a number, as in notebook 10
            self.tools = {
                name: validate_call(getattr(self.game, name), config={"strict": True})
                for name in names
            }

        def reset(self, **columns):
            return self.observation("reset", result=self.game.reset(**columns) or "")

        def step(self, action, **ignored):
            if isinstance(action, mcp_types.ListToolsAction):
                tools = [tool_listing(name, getattr(self.game, name)) for name in names]
                return mcp_types.ListToolsObservation(tools=tools)
            try:
                if action.tool_name not in self.tools:
                    raise ToolError(f"Tool {action.tool_name} not found.")
                result = self.tools[action.tool_name](**action.arguments)
            except (ToolError, ValidationError) as error:
                refusal = mcp_types.ToolError(error_type="execution_error", message=str(error))
                return self.observation(action.tool_name, error=refusal)
            return self.observation(action.tool_name, result=result)

        def observation(self, tool: str, **content):
            earned = float(self.game.get_reward())
            return mcp_types.CallToolObservation(tool_name=tool, reward=earned, **content)

    action = mcp_types.CallToolAction
    observation = mcp_types.CallToolObservation
    return create_fastapi_app(Served, action, observation, max_concurrent_envs=SESSIONS)


def tool_listing(name: str, tool: Callable) -> mcp_types.Tool:
    """Return the entry of a tool in OpenEnv's `list_tools`."""
    schema = TypeAdapter(tool).json_schema()
    return mcp_types.Tool(name=name, description=getdoc(tool) or name, input_schema=schema)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("environment", help="my_game.py:MyGame, or helpers.agents:Guessing")
    parser.add_argument("--host", default="127.0.0.1", help="0.0.0.0 for other machines, too")
    parser.add_argument("--port", type=int, default=8001)
    arguments = parser.parse_args()
    game = load_own("environment", arguments.environment, "my_game.py:MyGame")
    print(f"export OPENENV_URL=http://{arguments.host}:{arguments.port}", flush=True)
    uvicorn.run(application(game), host=arguments.host, port=arguments.port, log_level="warning")
