"""Number guessing on a small server in this process, which follows OpenEnv's protocol or breaks it."""

import json
import threading

import pytest
from transformers.utils import get_json_schema

from helpers import PROJECT
from helpers.agents import Guarded, Guessing, ToolError
from helpers.laboratory.environments import attack
from helpers.own_code import load_own

pytestmark = pytest.mark.needs("websockets")

# The answers of a faulty server, by the number that is guessed.
ANSWERS = {
    -1: {"type": "error", "data": {"code": "EXECUTION_ERROR", "message": "So it is."}},
    -2: {"type": "error", "data": {"code": "SESSION_ERROR", "message": "So it is."}},
    -3: {"type": "observation", "data": {"observation": {}, "done": False}},
}


def session(socket) -> None:
    game = Guessing()
    for message in socket:
        asked = json.loads(message)
        said = {}
        if asked["type"] == "reset":
            said["result"] = game.reset(**asked["data"])
        else:
            number = asked["data"]["arguments"]["number"]
            if number in ANSWERS:
                socket.send(json.dumps(ANSWERS[number]))
                continue
            try:
                said["result"] = game.guess(number)
            except ToolError as error:
                said["error"] = {"message": str(error)}
        data = {"observation": said, "reward": game.get_reward(), "done": False}
        socket.send(json.dumps({"type": "observation", "data": data}))


@pytest.fixture
def remote(monkeypatch):
    """The environment as notebook 10's parameter names it, on a server that runs until then."""
    from websockets.sync.server import serve

    server = serve(session, "127.0.0.1", 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.socket.getsockname()[1]
    monkeypatch.setenv("OPENENV_URL", f"http://127.0.0.1:{port}")
    yield load_own("environment", PROJECT / "examples/openenv_environment.py:RemoteGuessing", "")
    server.shutdown()


def test_the_remote_game_is_the_same_as_the_local_game(remote):
    assert get_json_schema(remote().guess) == get_json_schema(Guessing().guess)
    rows = [{"seed": seed} for seed in range(4)]
    there, here = (attack(Guarded(factory), rows) for factory in (remote, Guessing))
    assert there.played.equals(here.played) and there.verdict.go


@pytest.mark.parametrize(("number", "earned"), [(-1, 0.1), (-2, 0.1), (-3, None)])
def test_a_refusal_keeps_the_reward_and_a_failing_server_leaves_the_episode_out(
    remote, number, earned
):
    game = Guarded(remote)()
    game.reset(seed=1)
    game.guess(number=101)
    with pytest.raises(ToolError, match=r"So it is\." if earned else "gave no answer"):
        game.guess(number=number)
    if number != -1:
        with pytest.raises(ToolError, match="The episode is over"):
            game.guess(number=1)
    assert game.get_reward() == earned
    game.reset(seed=2)
    game.guess(number=101)
    assert game.get_reward() == 0.1, "the next episode lives"
