"""`python -m helpers serve-environment`: an environment as an OpenEnv server, for every trainer
that speaks OpenEnv, and for notebook 10 with `environment="openenv:http://…"`.

It runs in a Python of its own, because OpenEnv's packages would change the suite's.
"""

import argparse
from collections.abc import Callable
from inspect import getdoc

from helpers.agents.protocol import ToolError, tools_of
from helpers.own_code import named

_SESSIONS = 1024  # episodes that are played at once
_INSTALL = (
    "OpenEnv is not installed in this Python. It needs one of its own, because it would change "
    "packages of the suite: python3 -m venv openenv, openenv/bin/pip install openenv==0.10.0, then "
    "the same command with openenv/bin/python."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `serve-environment` takes."""
    parser.add_argument(
        "environment",
        metavar="FILE.py:CLASS",
        help="your environment, such as my_game.py:MyGame or helpers.agents:Guessing",
    )
    parser.add_argument("--host", default="127.0.0.1", help="0.0.0.0 for other machines, too")
    parser.add_argument("--port", type=int, default=8001, help="8001 if not given")


def main(parsed: argparse.Namespace) -> int:
    """Serve until Ctrl-C; the exit code."""
    factory = named("environment", parsed.environment, "my_game.py:MyGame")
    try:
        import uvicorn

        app = application(factory)
    except ModuleNotFoundError as error:
        if error.name.partition(".")[0] not in ("openenv", "fastapi", "uvicorn"):
            raise
        raise ValueError(_INSTALL) from error
    print(f'environment="openenv:http://{parsed.host}:{parsed.port}" in notebook 10', flush=True)
    uvicorn.run(app, host=parsed.host, port=parsed.port, log_level="warning")
    return 0


def application(factory: Callable):
    """The FastAPI application that OpenEnv makes of an environment: its tools are listed and called
    as those of MCP (`list_tools`, `call_tool`). The reward of each observation is what the episode
    has earned so far.

    ValueError for what is no environment.
    """
    from openenv.core.env_server import create_fastapi_app, interfaces, mcp_types, types
    from pydantic import TypeAdapter, ValidationError, validate_call

    kind = type(factory())
    names, strict = tools_of(kind), {"strict": True}
    if not names or not hasattr(kind, "reset") or not hasattr(kind, "get_reward"):
        raise ValueError(
            f"{kind.__name__} needs `reset`, `get_reward` and a tool, which is any other public "
            "method. Notebook 10 checks it, and plays it before anybody trains on it."
        )

    class Served(interfaces.Environment):
        SUPPORTS_CONCURRENT_SESSIONS = True
        state = types.State()

        def __init__(self):
            super().__init__()
            self.inner = factory()
            tools = ((name, getattr(self.inner, name)) for name in names)
            self.tools = {name: validate_call(tool, config=strict) for name, tool in tools}

        def reset(self, **columns):
            return self.observed("reset", result=self.inner.reset(**columns) or "")

        def step(self, action, **ignored):
            if isinstance(action, mcp_types.ListToolsAction):
                return mcp_types.ListToolsObservation(
                    tools=[listed(name, getattr(self.inner, name)) for name in names]
                )
            try:
                if action.tool_name not in self.tools:
                    raise ToolError(f"Tool {action.tool_name} not found.")
                result = self.tools[action.tool_name](**action.arguments)
                return self.observed(action.tool_name, result=result)
            except (ToolError, ValidationError) as error:
                refusal = mcp_types.ToolError(error_type="execution_error", message=str(error))
                return self.observed(action.tool_name, error=refusal)

        def observed(self, tool, **said):
            earned = float(self.inner.get_reward())
            return mcp_types.CallToolObservation(tool_name=tool, reward=earned, **said)

    def listed(name, tool):
        schema = TypeAdapter(tool).json_schema()
        return mcp_types.Tool(name=name, description=getdoc(tool) or name, input_schema=schema)

    Served.__name__ = kind.__name__
    action, observation = mcp_types.CallToolAction, mcp_types.CallToolObservation
    return create_fastapi_app(Served, action, observation, max_concurrent_envs=_SESSIONS)
